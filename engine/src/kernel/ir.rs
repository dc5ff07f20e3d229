//! The data of a kernel.

#![allow(missing_docs, reason = "fields of a variant are described by the variant")]

use super::exprs::ExprArena;
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::{PrimaryMap, entity_id};

/// Bytes of the widest access of a thread to memory.
pub const MAX_ACCESS_BYTES: i64 = 16;
/// Bytes of the least asynchronous copy.
pub const MIN_ASYNC_BYTES: i64 = 4;
/// Bytes of the narrowest load that may begin anywhere: it is put together from words.
pub const MIN_UNALIGNED_BYTES: i64 = 4;

entity_id!(
    /// A pure expression.
    pub struct ExprId, "e"
);
entity_id!(
    /// A variable: bound by one statement, or the counter of a loop.
    pub struct VarId, "v"
);
entity_id!(
    /// A buffer in global, shared or local memory.
    pub struct BufId, "b"
);
entity_id!(
    /// A kernel argument.
    pub struct ParamId, "p"
);

/// One GPU kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Function name: a C identifier derived from content, never a counter.
    pub name: String,
    /// The type of every index expression: `i32` or `i64`.
    pub index_type: DType,
    /// Arguments in order.
    pub params: PrimaryMap<ParamId, Param>,
    /// All memory.
    pub buffers: PrimaryMap<BufId, Buffer>,
    /// All variables.
    pub vars: PrimaryMap<VarId, Var>,
    /// All expressions.
    pub exprs: ExprArena,
    /// What each thread does.
    pub body: Block,
    /// How it is launched.
    pub launch: Launch,
}

/// A sequence of statements.
pub type Block = Vec<Stmt>;

/// A kernel argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// A C identifier.
    pub name: String,
    /// `None` for a pointer (the buffer has the element type).
    pub dtype: Option<DType>,
    /// Where the launch takes its value from.
    pub kind: ParamKind,
    /// A fact that the launch checks: an integer argument is a multiple of this
    /// (1 when nothing is known). Alignment proofs start here.
    pub multiple_of: i64,
    /// Another: an integer argument is no greater.
    pub at_most: Option<i64>,
}

/// Where an argument's value comes from. Inputs and outputs are numbered as in
/// the fusion (`fusion.inputs`, `fusion.outputs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// Pointer to the data of an input tensor.
    Input { input: u32, buffer: BufId },
    /// Pointer to the data of an output tensor.
    Output { output: u32, buffer: BufId },
    /// Pointer to scratch memory that lives for one launch.
    Workspace { buffer: BufId },
    /// The size of an axis of an input tensor.
    Size { input: u32, axis: u32 },
    /// The stride, in elements, of an axis of an input tensor, or of an output: those are numbered behind the inputs.
    Stride { input: u32, axis: u32 },
    /// An input scalar.
    Scalar { input: u32 },
    /// An expression over earlier parameters, evaluated once on the host.
    Derived(ExprId),
    /// The [`reciprocal`](crate::kernel::reciprocal) of an expression over earlier parameters, an `i64`:
    /// by it a back end may divide indices by that expression.
    Reciprocal(ExprId),
}

/// A memory object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// A C identifier, from the tensor it holds.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Where it is.
    pub space: Space,
    /// Number of elements: an expression over parameters for global buffers, a
    /// constant for shared and local ones.
    pub len: ExprId,
    /// Alignment of element 0 in bytes: a fact that the launch guarantees for
    /// global buffers, a demand for the others.
    pub align: u32,
    /// The first element that is the kernel's, of an output that may begin anywhere in something else: those before are
    /// there, so that element 0 is aligned.
    pub start: u32,
    /// Whether the launch provides it filled with zero bytes (workspace only).
    pub zeroed: bool,
}

impl Buffer {
    /// Bytes before the first element that is the kernel's.
    pub fn start_bytes(&self) -> u64 {
        u64::from(self.start) * self.dtype.bytes() as u64
    }
}

/// A memory space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Device memory, reached through an argument.
    Global,
    /// Memory of a block.
    Shared,
    /// An array of one thread.
    Local,
}

/// A variable's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Var {
    /// A C identifier, from the value it holds; the printer makes it unique.
    pub name: String,
    /// Its type.
    pub dtype: DType,
    /// What lowering knows of a value that a load reads: it is a finished sum of
    /// data in `f32`, which each term entered once, and NaN or at least this,
    /// which is positive. It decides approximations, and comparisons that every number
    /// passes; no back end relies on it.
    pub at_least: Option<Value>,
}

/// A pure expression. Its type is kept beside it by [`ExprArena`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expr {
    /// A constant of the node's type.
    Const(Value),
    /// A scalar argument.
    Param(ParamId),
    /// A thread's place; always `i32`.
    Special(Special),
    /// A variable.
    Var(VarId),
    /// Elementwise operation; operand and result types as in `num`.
    Unary(UnaryOp, ExprId),
    /// Elementwise operation on operands of one type, with the meaning of `num`:
    /// arithmetic on integers wraps and has a rule for zero divisors. It is about
    /// data; only comparisons take indices too.
    Binary(BinaryOp, ExprId, ExprId),
    /// Elementwise operation on three operands.
    Ternary(TernaryOp, ExprId, ExprId, ExprId),
    /// Conversion to the node's type.
    Cast(ExprId),
    /// A function of `f32` by the given approximation.
    Approx(ApproxOp, ExprId),
    /// A product of floats, rounded before anything uses it. Another product may become one operation with
    /// the sum that it enters, so that two uses of it see two numbers: `x - x` is then not 0.
    Rounded(ExprId),
    /// Index arithmetic on `i32` or `i64`: never overflows, divides a
    /// non-negative number by a positive one, and mixes bits of non-negative ones;
    /// only the remainder by a constant power of two is of any number
    /// ([`IndexOp::Mod`]). Where a thread evaluates it otherwise, the result is any
    /// number, and nothing may depend on it.
    Index(IndexOp, ExprId, ExprId),
    /// An index as data: the same number, on which arithmetic wraps from here on.
    AsData(ExprId),
    /// Data as an index: the same number, which is a place or an extent from here on.
    AsIndex(ExprId),
}

impl Expr {
    /// The operands, in order.
    pub fn operands(self) -> impl Iterator<Item = ExprId> {
        let operands = match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Special(_) | Expr::Var(_) => [None; 3],
            Expr::Unary(_, a)
            | Expr::Approx(_, a)
            | Expr::Rounded(a)
            | Expr::Cast(a)
            | Expr::AsData(a)
            | Expr::AsIndex(a) => [Some(a), None, None],
            Expr::Binary(_, a, b) | Expr::Index(_, a, b) => [Some(a), Some(b), None],
            Expr::Ternary(_, a, b, c) => [Some(a), Some(b), Some(c)],
        };
        operands.into_iter().flatten()
    }

    /// The expression with each operand replaced.
    #[must_use]
    pub fn map_operands(self, mut f: impl FnMut(ExprId) -> ExprId) -> Self {
        match self {
            Expr::Const(_) | Expr::Param(_) | Expr::Special(_) | Expr::Var(_) => self,
            Expr::Unary(op, a) => Expr::Unary(op, f(a)),
            Expr::Approx(op, a) => Expr::Approx(op, f(a)),
            Expr::Rounded(a) => Expr::Rounded(f(a)),
            Expr::Cast(a) => Expr::Cast(f(a)),
            Expr::AsData(a) => Expr::AsData(f(a)),
            Expr::AsIndex(a) => Expr::AsIndex(f(a)),
            Expr::Binary(op, a, b) => Expr::Binary(op, f(a), f(b)),
            Expr::Index(op, a, b) => Expr::Index(op, f(a), f(b)),
            Expr::Ternary(op, a, b, c) => Expr::Ternary(op, f(a), f(b), f(c)),
        }
    }

    /// Whether this is a word of a formula: a constant, or the name of something.
    pub fn is_leaf(self) -> bool {
        self.operands().next().is_none()
    }
}

/// An operation of index arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexOp {
    /// Sum.
    Add,
    /// Difference, perhaps negative.
    Sub,
    /// Product.
    Mul,
    /// Quotient, rounded down.
    Div,
    /// Remainder. By a constant `2^k` it is that of a negative number too, from 0 to `2^k - 1`: its last `k` bits.
    Mod,
    /// Quotient, rounded up.
    CeilDiv,
    /// Smaller one.
    Min,
    /// Larger one.
    Max,
    /// Exclusive or of the bits of numbers that are not negative.
    Xor,
}

impl IndexOp {
    /// The operation on data that has the same result wherever this one has a meaning.
    pub const fn as_binary(self) -> BinaryOp {
        match self {
            IndexOp::Add => BinaryOp::Add,
            IndexOp::Sub => BinaryOp::Sub,
            IndexOp::Mul => BinaryOp::Mul,
            IndexOp::Div => BinaryOp::Div,
            IndexOp::Mod => BinaryOp::Mod,
            IndexOp::CeilDiv => BinaryOp::CeilDiv,
            IndexOp::Min => BinaryOp::Minimum,
            IndexOp::Max => BinaryOp::Maximum,
            IndexOp::Xor => BinaryOp::BitwiseXor,
        }
    }
    /// The index arithmetic that is like an operation on data.
    pub const fn from_binary(op: BinaryOp) -> Option<Self> {
        Some(match op {
            BinaryOp::Add => IndexOp::Add,
            BinaryOp::Sub => IndexOp::Sub,
            BinaryOp::Mul => IndexOp::Mul,
            BinaryOp::Div => IndexOp::Div,
            BinaryOp::Mod => IndexOp::Mod,
            BinaryOp::CeilDiv => IndexOp::CeilDiv,
            BinaryOp::Minimum => IndexOp::Min,
            BinaryOp::Maximum => IndexOp::Max,
            BinaryOp::BitwiseXor => IndexOp::Xor,
            _ => return None,
        })
    }
}

/// What an expression is about. Indices and data do not mix: the arithmetic of
/// the first never overflows, that of the second wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueKind {
    /// Constants only; takes part in both.
    Constant,
    /// Places in a launch, sizes, strides, counters, and what is computed of
    /// them; or a condition on those.
    Index,
    /// The user's values, and what memory holds.
    Data,
}

/// A dimension of a grid or block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dim {
    /// Fastest.
    X,
    /// Middle.
    Y,
    /// Slowest.
    Z,
}

/// A thread's place in the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Special {
    /// `threadIdx`.
    ThreadIdx(Dim),
    /// `blockIdx`.
    BlockIdx(Dim),
    /// `blockDim`.
    BlockDim(Dim),
    /// `gridDim`.
    GridDim(Dim),
}

/// An element of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// The buffer.
    pub buffer: BufId,
    /// Linear element index: an index of the kernel's index type (any integer
    /// type for local and shared buffers).
    pub index: ExprId,
}

/// A statement and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stmt {
    /// What it does.
    pub kind: StmtKind,
    /// Which fusion op or pass made it.
    pub origin: Origin,
}

/// Where a statement came from: the fusion tensor whose computation it belongs
/// to, if any, and the lowering pass that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Index of the tensor in the fusion.
    pub tensor: Option<crate::fusion::TensorId>,
    /// The pass.
    pub pass: &'static str,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StmtKind {
    /// Names a value: `const T var = value;`.
    Let { var: VarId, value: ExprId },
    /// Reads one element.
    Load { var: VarId, from: Access, hint: CacheHint },
    /// Writes one element.
    Store { to: Access, value: ExprId, hint: CacheHint },
    /// Moves `lanes` consecutive elements as one access. Exactly one side is
    /// local, both have one type. The other side is aligned to the whole size,
    /// which is a power of two of at most [`MAX_ACCESS_BYTES`]. Without `aligned` the elements may begin
    /// anywhere. Those of an input before the buffer and behind it too: they are put together
    /// from those of the two words that they touch which have a part of the buffer, and what is
    /// outside of it may be anything. Those of an output lie in it; threads beside each other may write
    /// for each other, so a thread that reads its own again waits for its warp before.
    Move { to: Access, from: Access, lanes: u32, hint: CacheHint, aligned: bool },
    /// Starts to copy `lanes` consecutive elements from an input to shared memory, a power of two
    /// of [`MIN_ASYNC_BYTES`] to [`MAX_ACCESS_BYTES`], to which both sides are aligned. They lie
    /// there once the thread has waited for the copy's group, and nobody touches them before.
    CopyAsync { to: Access, from: Access, lanes: u32, hint: CacheHint },
    /// Ends the thread's group of copies that it started since the last one.
    CommitGroup,
    /// Waits until at most the thread's latest `open` groups have not landed.
    WaitGroup { open: u32 },
    /// `for (var = start; var < end; var += step)`, `step` a positive constant.
    For { var: VarId, start: ExprId, end: ExprId, step: i64, unroll: Unroll, body: Block },
    /// Two-way branch.
    If { condition: ExprId, then: Block, otherwise: Block },
    /// Exchanges a value among the 32 lanes of a warp; all lanes take part.
    /// `lane` is the mask of `Xor`, the distance of `Up` and `Down` and the
    /// source lane of `Index`; an out-of-range source gives the own value.
    Shuffle { var: VarId, value: ExprId, mode: ShuffleMode, lane: ExprId },
    /// The numbers of one block of the generator Philox 4x32-10
    /// ([`num::philox`](crate::num::philox)): four of `f32`, each from a word,
    /// or two of `f64`, each from two words, all in (0, 1]. Seed, offset and
    /// subsequence are the 64 bits of an `i64`.
    Random { vars: Vec<VarId>, seed: ExprId, offset: ExprId, subsequence: ExprId },
    /// Barrier of all threads of the scope; orders all memory accesses in it.
    Sync(Scope),
    /// Orders this thread's accesses before it and after it, seen from the scope.
    Fence(Scope),
    /// Atomic read-modify-write, relaxed, device scope; `var` gets the old value.
    Atomic { var: Option<VarId>, op: AtomicOp, to: Access, value: ExprId },
}

/// How a loop is unrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unroll {
    /// Not at all.
    No,
    /// Completely; bounds are constant.
    Full,
    /// By a factor.
    By(u32),
}

/// The direction of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShuffleMode {
    /// From lane `id ^ mask`.
    Xor,
    /// From lane `id - distance`.
    Up,
    /// From lane `id + distance`.
    Down,
    /// From the given lane.
    Index,
}

/// A set of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The 32 threads of a warp.
    Warp,
    /// The threads of a block.
    Block,
    /// The threads of a team: of all blocks that differ in their index along x alone. Only a `Sync` is of it, and
    /// needs a cooperative launch.
    Team,
    /// All threads of the launch; a `Sync` of it needs a cooperative launch.
    Grid,
}

impl Scope {
    /// Whether it is more than a block.
    pub fn is_of_blocks(self) -> bool {
        matches!(self, Self::Team | Self::Grid)
    }
}

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtomicOp {
    /// Addition (`i32`, `f32`, `f64`).
    Add,
    /// Addition that wraps to 0 after reaching the value: CUDA's `atomicInc`, `i32` read as unsigned.
    Inc,
    /// Maximum (`i32`).
    Max,
    /// Minimum (`i32`).
    Min,
}

/// Which caches a global access should use, and what a store to registers should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CacheHint {
    /// The default.
    #[default]
    Default,
    /// Read or written once: evict first.
    Streaming,
    /// Bypasses the first-level cache; sees what other blocks wrote.
    Global,
    /// All caches, and no register: read anew by each access, so that the value
    /// need not be held from one to the next.
    Again,
    /// Of a store of an `i32` to a local array: stays in its register, and is not computed
    /// again where it is read.
    Held,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y, z: expressions over parameters.
    pub grid: [ExprId; 3],
    /// Threads in x, y, z: expressions over parameters.
    pub block: [ExprId; 3],
    /// The largest number of threads of a block for which the kernel is compiled.
    pub max_threads: u32,
    /// Blocks that should fit a multiprocessor at once, for the register budget.
    pub min_blocks: u32,
    /// Whether all blocks must be resident at once (`Sync(Grid)`).
    pub cooperative: bool,
}
