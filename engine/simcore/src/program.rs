//! The bytecode and everything that is fixed before a launch.

use crate::op::Opcode;

/// One instruction. `d` is the destination register, `a`, `b`, `c` are sources;
/// other meanings are stated at the operation.
#[derive(Clone, Copy, Debug)]
pub struct Inst {
    /// What to do.
    pub op: Opcode,
    /// How, see [`Flags`].
    pub flags: Flags,
    /// Destination register.
    pub d: u16,
    /// First source.
    pub a: u16,
    /// Second source.
    pub b: u16,
    /// Third source.
    pub c: u16,
    /// Jump target, slot or table index.
    pub imm: u32,
}

/// Small facts of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// The index (or loop counter) is 64 bits wide.
    pub const INDEX64: u16 = 1;
    /// The value is in the 64-bit file.
    pub const WIDE: u16 = 2;
    /// First, second and third operand of a host call are wide.
    pub const WIDE_A: u16 = 4;
    /// See [`Flags::WIDE_A`].
    pub const WIDE_B: u16 = 8;
    /// See [`Flags::WIDE_A`].
    pub const WIDE_C: u16 = 16;
    /// The old value of an atomic is wanted.
    pub const RESULT: u16 = 32;
    /// A move may begin anywhere.
    pub const UNALIGNED: u16 = 64;

    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// How an element lies in memory and extends into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elem {
    /// One byte, zero-extended.
    U8,
    /// One byte, sign-extended.
    I8,
    /// Two bytes, zero-extended.
    U16,
    /// Two bytes, sign-extended.
    I16,
    /// Four bytes.
    B32,
    /// Eight bytes.
    B64,
}

impl Elem {
    /// Size in memory.
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        match self {
            Elem::U8 | Elem::I8 => 1,
            Elem::U16 | Elem::I16 => 2,
            Elem::B32 => 4,
            Elem::B64 => 8,
        }
    }
}

/// Where a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceKind {
    /// Device memory; `index` numbers the buffers of [`crate::GlobalMemory`].
    Global,
    /// Memory of a block, at a byte offset.
    Shared {
        /// First byte.
        offset: u32,
    },
}

/// A buffer that instructions name by its position in [`Program::buffers`].
#[derive(Clone, Copy, Debug)]
pub struct BufferDecl {
    /// Where it is. Global buffers come first, so that their position is also
    /// their position in [`crate::GlobalMemory`].
    pub space: SpaceKind,
    /// Element type.
    pub elem: Elem,
    /// Length of shared buffers; global ones have theirs in memory.
    pub len: u64,
    /// Whether some instruction reads it.
    pub read: bool,
    /// Whether some instruction writes it.
    pub written: bool,
    /// Whether some instruction updates it atomically.
    pub atomic: bool,
    /// Whether asynchronous copies write it, among others.
    pub landed: bool,
    /// Byte pattern of unwritten memory (shared buffers).
    pub poison: u8,
}

/// An atomic read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AtomicKind {
    /// Wrapping 32-bit addition.
    AddI32,
    /// Single precision addition.
    AddF32,
    /// Double precision addition.
    AddF64,
    /// `old >= value ? 0 : old + 1`, unsigned.
    Inc,
    /// Signed maximum.
    MaxI32,
    /// Signed minimum.
    MinI32,
}

impl AtomicKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [AtomicKind; 6] = [Self::AddI32, Self::AddF32, Self::AddF64, Self::Inc, Self::MaxI32, Self::MinI32];
}

/// Where the initial value of a register comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreloadSource {
    /// A constant's bits.
    Const(u64),
    /// The bits of a scalar argument.
    Param(u32),
    /// `threadIdx` in a dimension.
    ThreadIdx(u8),
    /// `blockIdx` in a dimension.
    BlockIdx(u8),
    /// `blockDim` in a dimension.
    BlockDim(u8),
    /// `gridDim` in a dimension.
    GridDim(u8),
}

/// A register that is set before the first instruction.
#[derive(Clone, Copy, Debug)]
pub struct Preload {
    /// The register.
    pub reg: u16,
    /// Whether it is in the 64-bit file.
    pub wide: bool,
    /// Its value.
    pub source: PreloadSource,
}

/// A scalar function of up to three operands, on their bits.
pub type HostFn = Box<dyn Fn([u64; 3]) -> u64 + Send + Sync>;

/// A compiled kernel.
#[derive(Default)]
pub struct Program {
    /// Instructions; the last one is [`Opcode::End`].
    pub code: Vec<Inst>,
    /// Which statement each instruction belongs to; opaque here.
    pub origin: Vec<u32>,
    /// Buffers, global ones first.
    pub buffers: Vec<BufferDecl>,
    /// Registers of 32 bits.
    pub regs32: u16,
    /// Registers of 64 bits.
    pub regs64: u16,
    /// Registers `[first, first + count)` of local memory, to poison: 32 bits.
    pub locals32: (u16, u16),
    /// The same of 64 bits.
    pub locals64: (u16, u16),
    /// Elements of local memory, each with a mask of initialised lanes.
    pub local_slots: u32,
    /// Initial register values.
    pub preloads: Vec<Preload>,
    /// Functions `f64 -> f64` of [`Opcode::CallF32`] and [`Opcode::CallF64`].
    pub unary: Vec<fn(f64) -> f64>,
    /// Functions of [`Opcode::Host`].
    pub host: Vec<HostFn>,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Whether there is a grid barrier.
    pub grid_sync: bool,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("code", &self.code)
            .field("regs32", &self.regs32)
            .field("regs64", &self.regs64)
            .finish_non_exhaustive()
    }
}

impl Program {
    /// Whether blocks cannot see each other: no grid barrier, and every global
    /// buffer is only read or only written. Then they run in any order.
    pub fn independent_blocks(&self) -> bool {
        let alone = |b: &BufferDecl| b.space != SpaceKind::Global || !(b.atomic || b.read && b.written);
        !self.grid_sync && self.buffers.iter().all(alone)
    }

    /// Whether the warps of a block cannot see each other either.
    pub(crate) fn independent_warps(&self) -> bool {
        let silent = |b: &BufferDecl| b.space == SpaceKind::Global || !b.written && !b.atomic;
        self.independent_blocks() && self.buffers.iter().all(silent)
    }
}

/// The numbers of a launch.
#[derive(Clone, Debug)]
pub struct LaunchConfig {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bits of the scalar arguments, by parameter number.
    pub params: Vec<u64>,
}

impl LaunchConfig {
    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }
    /// Blocks of the grid.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|&n| u64::from(n)).product()
    }
    /// The place of a block, x fastest.
    pub fn block_at(&self, linear: u64) -> [u32; 3] {
        let [x, y, _] = self.grid.map(u64::from);
        [(linear % x) as u32, (linear / x % y) as u32, (linear / x / y) as u32]
    }
}
