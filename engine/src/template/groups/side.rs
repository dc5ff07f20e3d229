//! A factor of a tile: how threads bring its elements from memory into shared memory, and from there into registers.

use super::super::share;
use super::memory::Factor;
use super::{DEPTH, SIDE, THREADS};
use crate::kernel::{BufId, CacheHint, Dim, ExprId, KernelBuilder, MAX_ACCESS_BYTES, Unroll};
use crate::num::{DType, TernaryOp, UnaryOp, Value};

/// A factor's part of a tile: along its rows if it is the left one, along its columns if it is the right one.
pub(super) struct Side<'a> {
    factor: &'a Factor,
    work: DType,
    /// How many rows or columns the tile has, and from each term to the next one in shared memory.
    width: i64,
    pitch: i64,
    /// The threads along it, and the parts of 4 that each of them has.
    pub(super) threads: i64,
    parts: i64,
    /// The tile's first row or column, and which of the threads this one is.
    origin: ExprId,
    thread: ExprId,
    /// Elements that are read at once, and whether some of them may be of another group.
    vector: i64,
    is_cut: bool,
    /// Two stages.
    shared: BufId,
    /// What is read of the next stage, as it is in memory.
    ahead: BufId,
    /// A vector of it on its way to shared memory.
    values: BufId,
    /// What is multiplied of a term.
    pub(super) held: BufId,
}

/// What is read of a factor.
pub(super) struct Part {
    /// Where the matrix of the group starts.
    pub(super) start: ExprId,
    /// The rows or columns, from one up to another.
    pub(super) across: [ExprId; 2],
    /// The terms.
    pub(super) terms: [ExprId; 2],
}

/// A vector that a thread reads: its first element's number among those of the thread, its first row or column within the
/// tile, and its first term within the stage.
#[derive(Clone, Copy)]
struct Piece {
    number: ExprId,
    across: ExprId,
    term: ExprId,
}

impl<'a> Side<'a> {
    /// Declares the memory for a tile of a width that so many threads share, each with so many parts.
    pub(super) fn new(
        b: &mut KernelBuilder,
        factor: &'a Factor,
        name: &str,
        work: DType,
        [width, threads, parts]: [i64; 3],
        [origin, thread]: [ExprId; 2],
        may_be_cut: bool,
    ) -> Self {
        let (vector, pitch) = (factor.vector(width), width + SIDE);
        Self {
            factor,
            work,
            width,
            pitch,
            threads,
            parts,
            origin,
            thread,
            vector,
            is_cut: may_be_cut && vector > 1,
            shared: b.shared(format!("{name}_tile"), work, 2 * DEPTH * pitch, 16),
            ahead: b.local(format!("{name}_ahead"), factor.dtype, width * DEPTH / THREADS),
            values: b.local(format!("{name}_values"), work, vector),
            held: b.local(format!("{name}_held"), work, SIDE * parts),
        }
    }

    /// Where the matrix of a group starts.
    pub(super) fn start(&self, b: &mut KernelBuilder, group: ExprId) -> ExprId {
        let start = match self.factor.group {
            Some(step) => b.exprs().mul(group, step),
            None => b.int(0),
        };
        b.let_("matrix", start)
    }

    /// The row or column of a thread: `origin + 4 (part threads + thread) + i`.
    pub(super) fn place(&self, b: &mut KernelBuilder, part: ExprId, i: ExprId) -> ExprId {
        let within = self.within(b, part, i);
        b.exprs().add(self.origin, within)
    }

    fn within(&self, b: &mut KernelBuilder, part: ExprId, i: ExprId) -> ExprId {
        let (threads, four) = (b.int(self.threads), b.int(SIDE));
        let at = b.exprs().mul(part, threads);
        let at = b.exprs().add(at, self.thread);
        let at = b.exprs().mul(at, four);
        b.exprs().add(at, i)
    }

    /// The vectors of a stage that a thread reads. Threads beside each other read along the axis that is dense.
    fn each(&self, b: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder, Piece)) {
        let fast = if self.factor.is_along { DEPTH } else { self.width };
        let per = fast / self.vector;
        let (thread, count, vector) = (share::thread(b, Dim::X), b.int(per), b.int(self.vector));
        let (slow, quick) = (b.exprs().div(thread, count), b.exprs().rem(thread, count));
        let quick = b.exprs().mul(quick, vector);
        let pieces = b.int(self.width * DEPTH / (THREADS * self.vector));
        let apart = b.int(THREADS / per);
        b.count("e", pieces, Unroll::Full, |b, e| {
            let ahead = b.exprs().mul(e, apart);
            let slow = b.exprs().add(slow, ahead);
            let (across, term) = if self.factor.is_along { (slow, quick) } else { (quick, slow) };
            let number = b.exprs().mul(e, vector);
            body(b, Piece { number, across, term });
        });
    }

    /// Reads the stage that starts at a term into registers; where the part has nothing there is 0.
    pub(super) fn fetch(&self, b: &mut KernelBuilder, part: &Part, k: ExprId) {
        let nothing = b.exprs().value(Value::Float(0.0), self.work);
        let nothing = b.exprs().cast(nothing, self.factor.dtype);
        let wide = |is_fast: bool| if is_fast { self.vector } else { 1 };
        self.each(b, |b, piece| {
            let (across, term) = (b.exprs().add(self.origin, piece.across), b.exprs().add(k, piece.term));
            let has_place = is_between(b, across, wide(!self.factor.is_along), part.across);
            let has_term = is_between(b, term, wide(self.factor.is_along), part.terms);
            let is_some = b.exprs().and(has_place, has_term);
            let vector = b.int(self.vector);
            b.count("j", vector, Unroll::Full, |b, j| {
                let number = b.exprs().add(piece.number, j);
                b.store(self.ahead, number, nothing);
            });
            b.if_(is_some, |b| {
                let (across, term) =
                    (b.exprs().mul(across, self.factor.across), b.exprs().mul(term, self.factor.along));
                let index = b.exprs().add(across, term);
                let index = b.exprs().add(part.start, index);
                match self.vector {
                    1 => {
                        let x = b.load("x", self.factor.buffer, index);
                        b.store(self.ahead, piece.number, x);
                    }
                    lanes => {
                        let to = (self.ahead, piece.number);
                        b.mov(to, (self.factor.buffer, index), lanes as u32, CacheHint::Default);
                    }
                }
            });
        });
    }

    /// Writes what was read of the stage that starts at a term to shared memory.
    pub(super) fn put(&self, b: &mut KernelBuilder, part: &Part, k: ExprId, stage: ExprId) {
        let (pitch, stages) = (b.int(self.pitch), b.int(DEPTH * self.pitch));
        let nothing = b.exprs().value(Value::Float(0.0), self.work);
        let is_along = self.factor.is_along;
        self.each(b, |b, piece| {
            let (first, limits) = match is_along {
                true => (b.exprs().add(k, piece.term), part.terms),
                false => (b.exprs().add(self.origin, piece.across), part.across),
            };
            let vector = b.int(self.vector);
            b.count("j", vector, Unroll::Full, |b, j| {
                let number = b.exprs().add(piece.number, j);
                let x = b.load("x", self.ahead, number);
                let mut x = b.exprs().cast(x, self.work);
                if self.is_cut {
                    let at = b.exprs().add(first, j);
                    let is_own = is_between(b, at, 1, limits);
                    x = b.exprs().ternary(TernaryOp::Where, is_own, x, nothing);
                }
                b.store(self.values, j, x);
            });
            let row = b.exprs().mul(piece.term, pitch);
            let stage = b.exprs().mul(stage, stages);
            let to = b.exprs().add(stage, row);
            let to = b.exprs().add(to, piece.across);
            // Along the tile one access writes several.
            let lanes = if is_along { 1 } else { self.vector.min(MAX_ACCESS_BYTES / self.work.bytes() as i64) };
            let zero = b.int(0);
            b.for_("j", (zero, vector, lanes), Unroll::Full, |b, j| {
                let ahead = if is_along { b.exprs().mul(j, pitch) } else { j };
                let to = b.exprs().add(to, ahead);
                if lanes > 1 {
                    b.mov((self.shared, to), (self.values, j), lanes as u32, CacheHint::Default);
                } else {
                    let x = b.load("x", self.values, j);
                    b.store(self.shared, to, x);
                }
            });
        });
    }

    /// Reads what a thread multiplies of a term of a stage.
    pub(super) fn hold(&self, b: &mut KernelBuilder, stage: ExprId, term: ExprId) {
        let lanes = SIDE.min(MAX_ACCESS_BYTES / self.work.bytes() as i64);
        let (depth, pitch) = (b.int(DEPTH), b.int(self.pitch));
        let row = b.exprs().mul(stage, depth);
        let row = b.exprs().add(row, term);
        let row = b.exprs().mul(row, pitch);
        let (parts, zero, four) = (b.int(self.parts), b.int(0), b.int(SIDE));
        b.count("part", parts, Unroll::Full, |b, part| {
            b.for_("j", (zero, four, lanes), Unroll::Full, |b, j| {
                let from = self.within(b, part, j);
                let from = b.exprs().add(row, from);
                let to = b.exprs().mul(part, four);
                let to = b.exprs().add(to, j);
                b.mov((self.held, to), (self.shared, from), lanes as u32, CacheHint::Default);
            });
        });
    }
}

/// Whether some of so many places from one on are between two limits.
fn is_between(b: &mut KernelBuilder, at: ExprId, wide: i64, [first, last]: [ExprId; 2]) -> ExprId {
    let is_before = b.exprs().lt(at, last);
    if b.exprs().as_int(first) == Some(0) {
        return is_before;
    }
    let more = b.int(wide - 1);
    let end = b.exprs().add(at, more);
    let is_outside = b.exprs().lt(end, first);
    let is_behind = b.exprs().unary(UnaryOp::LogicalNot, is_outside);
    b.exprs().and(is_behind, is_before)
}
