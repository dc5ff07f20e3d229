//! What stops a run.

/// The kind of a trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrapKind {
    /// An index outside the buffer of `len` elements.
    OutOfBounds {
        /// Elements of the buffer.
        len: u64,
    },
    /// A read of memory that nobody wrote.
    Uninitialised,
    /// A vector access whose address is not a multiple of its size.
    Misaligned {
        /// Size of the access in bytes.
        bytes: u32,
        /// The address modulo that size.
        offset: u32,
    },
    /// Two accesses without ordering.
    Race {
        /// Whether this side writes.
        write: bool,
        /// Whether this side is atomic.
        atomic: bool,
        /// The earlier access.
        other: Other,
    },
    /// A barrier or shuffle that only the lanes of `active` reached, of `expected`.
    Divergence {
        /// Lanes that are here.
        active: u32,
        /// Lanes that should be.
        expected: u32,
    },
    /// A shuffle reads a lane that does not take part.
    ShuffleSource {
        /// The lane that is read.
        source: u32,
    },
    /// Warps of one block wait at different barriers.
    SplitBarrier(Vec<Waiter>),
    /// Nothing can run.
    Deadlock(Vec<Waiter>),
    /// More blocks must be resident than fit.
    Residency {
        /// Blocks of the grid.
        blocks: u64,
        /// Blocks that fit.
        resident: u64,
    },
    /// The step limit was reached.
    StepLimit {
        /// The limit, in instructions of a warp.
        limit: u64,
    },
}

/// The other side of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its instruction, if the run kept a log.
    pub pc: Option<u32>,
    /// Its linear block.
    pub block: u32,
    /// Its thread in the block; one of several if `many`.
    pub thread: u32,
    /// Whether it wrote.
    pub write: bool,
    /// Whether it was atomic.
    pub atomic: bool,
    /// Whether several threads did it.
    pub many: bool,
    /// Whether it is an asynchronous copy that its thread has not waited for.
    pub landing: bool,
}

/// A warp that waits at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its linear block.
    pub block: u32,
    /// The warp.
    pub warp: u32,
    /// The barrier's instruction; none for a warp that finished.
    pub pc: Option<u32>,
    /// Warps of the barrier's scope that arrived at this barrier.
    pub arrived: u32,
    /// Warps that it waits for.
    pub expected: u32,
}

/// A stop with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trap {
    /// What happened.
    pub kind: TrapKind,
    /// The instruction.
    pub pc: u32,
    /// Linear block.
    pub block: u32,
    /// Warp of the block.
    pub warp: u32,
    /// Lane of the warp.
    pub lane: u32,
    /// Buffer (by position in the program), for memory accesses.
    pub buffer: Option<u16>,
    /// Local slot, for uninitialised local memory.
    pub slot: Option<u32>,
    /// Element index, for memory accesses.
    pub index: i64,
}
