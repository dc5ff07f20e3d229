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
    /// First, second and third operand of a host call are in the 64-bit file.
    pub const WIDE_A: u16 = 4;
    /// See [`Flags::WIDE_A`].
    pub const WIDE_B: u16 = 8;
    /// See [`Flags::WIDE_A`].
    pub const WIDE_C: u16 = 16;
    /// The value is in the 128-bit file.
    pub const DOUBLE: u16 = 128;
    /// First, second and third operand of a host call are in the 128-bit file.
    pub const DOUBLE_A: u16 = 256;
    /// See [`Flags::DOUBLE_A`].
    pub const DOUBLE_B: u16 = 512;
    /// See [`Flags::DOUBLE_A`].
    pub const DOUBLE_C: u16 = 1024;
    /// The old value of an atomic is wanted.
    pub const RESULT: u16 = 32;
    /// A move may begin anywhere.
    pub const UNALIGNED: u16 = 64;

    /// The flags for 64 and for 128 bits of each operand of a host call.
    pub const OPERANDS: [(u16, u16); 3] =
        [(Self::WIDE_A, Self::DOUBLE_A), (Self::WIDE_B, Self::DOUBLE_B), (Self::WIDE_C, Self::DOUBLE_C)];

    /// Whether a flag is set.
    #[inline(always)]
    pub const fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    /// The file of a value, by the flags for 64 and for 128 bits.
    #[inline(always)]
    pub const fn file(self, wide: u16, double: u16) -> File {
        match (self.has(wide), self.has(double)) {
            (_, true) => File::R128,
            (true, _) => File::R64,
            _ => File::R32,
        }
    }

    /// The flag of those for 64 and for 128 bits that says that a value is in a file, if one does.
    pub const fn of(file: File, (wide, double): (u16, u16)) -> u16 {
        match file {
            File::R32 => 0,
            File::R64 => wide,
            File::R128 => double,
        }
    }

    /// The file of the value.
    #[inline(always)]
    pub const fn value(self) -> File {
        self.file(Self::WIDE, Self::DOUBLE)
    }
}

/// A file of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum File {
    /// Of 32 bits a lane.
    R32,
    /// Of 64 bits a lane.
    R64,
    /// Of 128 bits a lane: a pair of numbers of 64 bits.
    R128,
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
    /// Sixteen bytes.
    B128,
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
            Elem::B128 => 16,
        }
    }

    /// The file that an element is in.
    #[inline(always)]
    pub const fn file(self) -> File {
        match self {
            Elem::B128 => File::R128,
            Elem::B64 => File::R64,
            _ => File::R32,
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
    Const(u128),
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
    /// The file that it is in.
    pub file: File,
    /// Its value.
    pub source: PreloadSource,
}

/// A scalar function of up to three operands, on their bits.
pub type HostFn = Box<dyn Fn([u128; 3]) -> u128 + Send + Sync>;

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
    /// Registers of 128 bits.
    pub regs128: u16,
    /// Registers `[first, first + count)` of local memory, to poison: 32 bits.
    pub locals32: (u16, u16),
    /// The same of 64 bits.
    pub locals64: (u16, u16),
    /// The same of 128 bits.
    pub locals128: (u16, u16),
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
    pub params: Vec<u128>,
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
