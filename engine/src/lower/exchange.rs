//! Shared memory through which the threads of a block exchange values.
//!
//! In: what one reduction needs, and where it stands. Out: a buffer and the index
//! of the first element in it. Each exchange is `write; barrier; read`, and is
//! emitted where all threads of the block come by. Invariant: between the last
//! read of an exchange and the next write to the same memory lies a barrier.
//!
//! Mostly each reduction has memory of its own ([`Sharing::Own`]). Then only loops
//! bring threads back to it, and two copies take turns there: the barrier of the
//! iteration between separates two uses of one copy.
//!
//! Where that is too much ([`Sharing::Turns`]), reductions share: of each element
//! type there are two buffers, as large as the largest user, and reductions take
//! them in turn. (One arena of bytes for all types would need accesses of one
//! memory under two types, which kernels do not have.) If two uses of a buffer have
//! another exchange between them, its barrier separates them:
//!
//! * in straight code, taking turns is enough;
//! * in a loop, the first exchange of the body has two copies of memory that no
//!   other exchange of the loop uses, and iterations take them in turn: it stands
//!   between the last exchange of one iteration and the second of the next, and the
//!   others take turns as ever;
//! * a loop may run no iteration, so a barrier stands before the first exchange
//!   after it, and before a loop after it that has such a first exchange.
//!
//! In nested loops turns are not regular: a barrier stands before each exchange, of
//! either kind.

use super::context::Lowering;
use crate::kernel::{BufId, ExprId, Scope};
use crate::num::DType;
use std::collections::BTreeMap;

/// Who uses which exchange memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each reduction has its own.
    #[default]
    Own,
    /// Reductions take turns.
    Turns,
}

/// Which of the buffers of a type that reductions share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Slot {
    /// One of the two that take turns.
    Turn(bool),
    /// That of the first exchange in a loop's body: two copies.
    First,
}

/// The exchange memory of a kernel.
#[derive(Default)]
pub(super) struct Exchange {
    sharing: Sharing,
    buffers: BTreeMap<(DType, Slot), (BufId, i64)>,
    /// Whose turn it is.
    turn: bool,
    /// Exchanges emitted so far.
    uses: usize,
    /// Whether the open outermost loop has had its first exchange.
    first_taken: bool,
    /// Whether threads may still read what a closed loop exchanged last.
    unsettled: bool,
}

/// What is remembered while a loop is open.
pub(super) struct LoopEntry {
    uses: usize,
    unsettled: bool,
}

impl Exchange {
    pub(super) fn new(sharing: Sharing) -> Self {
        Self { sharing, ..Self::default() }
    }
}

impl Lowering<'_> {
    /// Memory of `len` elements for one exchange, and the index of its first. It
    /// may be written to at once. `name` is the reduction's.
    pub(super) fn exchange_memory(&mut self, name: String, dtype: DType, len: i64) -> (BufId, ExprId) {
        self.exchange.uses += 1;
        let shares = self.exchange.sharing == Sharing::Turns;
        let slot = match self.repeat {
            Some(counter) if !shares || !self.exchange.first_taken => {
                self.exchange.first_taken = true;
                let shared = self.exchange_buffer(name, dtype, Slot::First, 2 * len);
                return (shared, self.copy_of_iteration(counter, len));
            }
            _ => Slot::Turn(self.exchange.turn),
        };
        let nested = self.open_loops > 0 && self.repeat.is_none();
        if nested || shares && self.exchange.unsettled {
            self.b.sync(Scope::Block);
            self.exchange.unsettled = false;
        }
        self.exchange.turn = !self.exchange.turn;
        let zero = self.b.exprs().int(0, DType::I32);
        (self.exchange_buffer(name, dtype, slot, len), zero)
    }

    /// Where the copy of an iteration starts: every second has the same.
    fn copy_of_iteration(&mut self, counter: ExprId, len: i64) -> ExprId {
        let counter = self.b.exprs().cast(counter, DType::I32);
        let two = self.b.exprs().int(2, DType::I32);
        let len = self.b.exprs().int(len, DType::I32);
        let copy = self.b.exprs().rem(counter, two);
        self.b.exprs().mul(copy, len)
    }

    /// The buffer of a slot, at least `len` long. What several reductions use
    /// bears the name of none.
    fn exchange_buffer(&mut self, name: String, dtype: DType, slot: Slot, len: i64) -> BufId {
        if self.exchange.sharing == Sharing::Own {
            return self.b.shared(name, dtype, len, 16);
        }
        if let Some((buffer, known)) = self.exchange.buffers.get_mut(&(dtype, slot)) {
            *known = len.max(*known);
            self.b.share_array(*buffer, format!("exchange_{dtype}"), *known);
            return *buffer;
        }
        let buffer = self.b.shared(name, dtype, len, 16);
        self.exchange.buffers.insert((dtype, slot), (buffer, len));
        buffer
    }

    /// Called before the body of a loop is emitted.
    pub(super) fn exchange_enters_loop(&mut self) -> LoopEntry {
        let entry = LoopEntry { uses: self.exchange.uses, unsettled: self.exchange.unsettled };
        if self.open_loops == 0 {
            // If that matters to the body, a barrier will stand before the loop.
            self.exchange.unsettled = false;
            self.exchange.first_taken = false;
        }
        entry
    }

    /// Called when the body is complete and the loop itself not yet emitted.
    pub(super) fn exchange_leaves_loop(&mut self, entry: &LoopEntry) {
        let outermost = self.open_loops == 0;
        if self.exchange.uses == entry.uses {
            self.exchange.unsettled = entry.unsettled;
            return;
        }
        // Without a first exchange, all are in nested loops and have their barriers.
        let first = outermost && self.exchange.first_taken;
        if first && entry.unsettled && self.exchange.sharing == Sharing::Turns {
            self.b.sync(Scope::Block);
        }
        self.exchange.unsettled = true;
    }
}
