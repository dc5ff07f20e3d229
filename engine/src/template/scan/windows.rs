//! Rows that start anywhere, moved to and from shared memory in vectors: what of a tile lies between two places that memory has
//! aligned is moved in *windows*, and what is before the first and behind the last of these element by element.
//!
//! In shared memory elements lie as in memory, as far from an aligned place as there; so each tensor has its own slots, and where the
//! scan goes from the last to the first a thread's elements are counted down.

use super::super::share::LANES;
use super::super::walk::{Lines, MAX_LANES};
use super::elements::Of;
use super::{Memory, Place, Scan};
use crate::kernel::{CacheHint, ExprId, IndexOp, KernelBuilder, MAX_ACCESS_BYTES, Scope, Unroll};
use crate::num::{DType, TernaryOp};

/// The windows of a tile in each tensor.
pub(super) struct Windows {
    /// How many elements of the row there are.
    count: ExprId,
    /// Of what is read none if it is one element for all of a row.
    reads: Vec<Option<Window>>,
    made: Vec<Window>,
}

/// The windows of a tile in a tensor.
#[derive(Clone, Copy)]
pub(super) struct Window {
    lines: Lines,
    /// Elements of each.
    width: i64,
    /// Where the first element of the tile is in memory, the aligned place up to there, and how far behind that it is.
    begin: ExprId,
    aligned: ExprId,
    phase: ExprId,
    /// Where in shared memory the first element of the tile is, and the first one of the thread.
    first_slot: ExprId,
    own_slot: ExprId,
}

/// The elements before the first window, and those behind the last one.
const ENDS: i64 = 2;

impl Windows {
    /// Those of a tensor; of what has none any.
    pub(super) fn of(&self, of: Of) -> Window {
        match of {
            Of::Read(read) => self.reads[read].unwrap_or(self.made[0]),
            Of::Made(result) => self.made[result],
        }
    }
}

/// Elements of a window.
fn width_of(dtype: DType) -> i64 {
    (MAX_ACCESS_BYTES / dtype.bytes() as i64).clamp(1, MAX_LANES)
}

impl Scan<'_> {
    /// Elements of a warp in shared memory.
    pub(super) fn slots_of_warp(&self) -> i64 {
        let all = LANES * self.items;
        if self.has_windows { (all + 2 * MAX_LANES - 2) / MAX_LANES * MAX_LANES } else { all }
    }

    /// Windows that a lane moves, at most.
    fn turns(&self, width: i64) -> i64 {
        let all = self.lanes * self.items;
        ((all + width - 1) / width + self.lanes - 1) / self.lanes
    }

    /// Elements that a lane has on their way between memory and shared memory.
    pub(super) fn held_on_the_way(&self, dtype: DType) -> i64 {
        let width = width_of(dtype);
        if self.has_windows { self.turns(width) * width + ENDS } else { self.steps() * self.width }
    }

    /// The windows of the elements that lanes share of a tile, of which the first one is so far along the row.
    pub(super) fn find_windows(&self, b: &mut KernelBuilder, place: &Place, first: ExprId) -> Windows {
        let (zero, all, length) = (b.int(0), b.int(self.lanes * self.items), self.walk.from.length);
        let left = b.exprs().sub(length, first);
        let left = b.exprs().index(IndexOp::Max, left, zero);
        let count = b.exprs().index(IndexOp::Min, left, all);
        let count = b.exprs().ternary(TernaryOp::Where, place.is_row, count, zero);
        let count = b.let_("count", count);
        let mut at = first;
        if self.around.is_reversed {
            let left = b.exprs().sub(left, count);
            at = b.exprs().index(IndexOp::Max, left, zero);
        }
        let of_row: Vec<bool> = (0..self.types.len()).map(|read| self.is_of_row(b, read)).collect();
        let mut windows = Vec::new();
        for (number, lines) in
            (0..self.types.len()).map(|read| self.lines(read)).chain(self.walk.to.clone()).enumerate()
        {
            let is_moving = of_row.get(number) != Some(&true);
            windows.push(is_moving.then(|| self.find_window(b, place, (lines, place.starts[number]), at, count)));
        }
        let made = windows.split_off(self.types.len()).into_iter().flatten().collect();
        Windows { count, reads: windows, made }
    }

    fn find_window(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        (lines, start): (Lines, ExprId),
        at: ExprId,
        count: ExprId,
    ) -> Window {
        let width = width_of(b.buffer(lines.buffer).dtype);
        let (wide, one, items) = (b.int(width), b.int(1), b.int(self.items));
        let begin = b.exprs().add(start, at);
        let begin = b.let_("begin", begin);
        let aligned = b.exprs().div(begin, wide);
        let aligned = b.exprs().mul(aligned, wide);
        let aligned = b.let_("aligned", aligned);
        let phase = b.exprs().sub(begin, aligned);
        let phase = b.let_("phase", phase);
        let first_slot = b.exprs().add(place.slots, phase);
        let first_slot = b.let_("first_slot", first_slot);
        let ahead = b.exprs().mul(place.lane, items);
        let own_slot = if self.around.is_reversed {
            let last = b.exprs().sub(count, one);
            let own = b.exprs().sub(last, ahead);
            b.exprs().add(first_slot, own)
        } else {
            b.exprs().add(first_slot, ahead)
        };
        let own_slot = b.let_("own_slot", own_slot);
        Window { lines, width, begin, aligned, phase, first_slot, own_slot }
    }

    /// Where in shared memory an element of a thread is, by its number.
    pub(super) fn slot_in_window(&self, b: &mut KernelBuilder, window: Window, number: ExprId) -> ExprId {
        if self.around.is_reversed {
            b.exprs().sub(window.own_slot, number)
        } else {
            b.exprs().add(window.own_slot, number)
        }
    }

    /// For each window of a lane: where it goes among those on their way, in memory, and in shared memory, and whether there is one.
    fn each_window(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        (window, count): (Window, ExprId),
        body: impl FnOnce(&mut KernelBuilder, [ExprId; 3], ExprId),
    ) {
        let [turns, lanes, width, one] = [self.turns(window.width), self.lanes, window.width, 1].map(|n| b.int(n));
        let all = b.exprs().add(count, window.phase);
        b.count("k", turns, Unroll::Full, |b, turn| {
            let number = b.exprs().mul(turn, lanes);
            let number = b.exprs().add(number, place.lane);
            let before = b.exprs().mul(number, width);
            // Whole, from the first element on, and up to the last one.
            let behind = b.exprs().add(before, one);
            let starts = b.exprs().lt(window.phase, behind);
            let last = b.int(window.width - 1);
            let last = b.exprs().add(before, last);
            let ends = b.exprs().lt(last, all);
            let is_whole = b.exprs().and(starts, ends);
            let held = b.exprs().mul(turn, width);
            let (at, slot) = (b.exprs().add(window.aligned, before), b.exprs().add(place.slots, before));
            body(b, [held, at, slot], is_whole);
        });
    }

    /// For the element of a lane before the first window, and for that behind the last one: the same.
    fn each_end(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        (window, count): (Window, ExprId),
        mut body: impl FnMut(&mut KernelBuilder, [ExprId; 3], ExprId),
    ) {
        let (wide, held) = (b.int(window.width), self.turns(window.width) * window.width);
        let head = b.exprs().sub(wide, window.phase);
        let head = b.exprs().rem(head, wide);
        let head = b.exprs().index(IndexOp::Min, head, count);
        let head = b.let_("head", head);
        let all = b.exprs().add(count, window.phase);
        let whole = b.exprs().div(all, wide);
        let whole = b.exprs().mul(whole, wide);
        let tail = b.exprs().sub(whole, window.phase);
        let tail = b.exprs().add(tail, place.lane);
        let tail = b.let_("tail", tail);
        let is_head = b.exprs().lt(place.lane, head);
        // A row of no whole window is all before the first one, or behind the last.
        let one = b.int(1);
        let behind = b.exprs().add(tail, one);
        let is_behind = b.exprs().lt(head, behind);
        let is_inside = b.exprs().lt(tail, count);
        let is_near = b.exprs().lt(place.lane, wide);
        let is_tail = b.exprs().and(is_behind, is_inside);
        let is_tail = b.exprs().and(is_near, is_tail);
        for (end, (element, is_one)) in (0..ENDS).zip([(place.lane, is_head), (tail, is_tail)]) {
            let held = b.int(held + end);
            let (at, slot) = (b.exprs().add(window.begin, element), b.exprs().add(window.first_slot, element));
            body(b, [held, at, slot], is_one);
        }
    }

    /// Moves a tile to shared memory.
    pub(super) fn read_windows(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        memory: &Memory,
        windows: &Windows,
        asked: &[usize],
    ) {
        let of = |read: usize| (windows.of(Of::Read(read)), windows.count);
        for &read in asked {
            let (window, moved) = (of(read).0, memory.moved[0][read]);
            self.each_window(b, place, of(read), |b, [held, at, _], is_one| {
                let from = (window.lines.buffer, at);
                b.if_(is_one, |b| b.mov((moved, held), from, window.width as u32, CacheHint::Default));
            });
            self.each_end(b, place, of(read), |b, [held, at, _], is_one| {
                b.if_(is_one, |b| {
                    let x = b.load("x_r", window.lines.buffer, at);
                    b.store(moved, held, x);
                });
            });
        }
        // Others may still move what was there of the tile before.
        if !self.is_one_tile {
            b.sync(Scope::Warp);
        }
        for &read in asked {
            let (window, moved, shared) = (of(read).0, memory.moved[0][read], memory.reads[read]);
            self.each_window(b, place, of(read), |b, [held, _, slot], is_one| {
                b.if_(is_one, |b| b.mov((shared, slot), (moved, held), window.width as u32, CacheHint::Default));
            });
            self.each_end(b, place, of(read), |b, [held, _, slot], is_one| {
                b.if_(is_one, |b| {
                    let x = b.load("x_m", moved, held);
                    b.store(shared, slot, x);
                });
            });
        }
        b.sync(Scope::Warp);
    }

    /// Moves results of a tile from shared memory, when all are there.
    pub(super) fn write_windows(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, windows: &Windows) {
        for (result, &window) in windows.made.iter().enumerate() {
            let (moved, shared, to) = (memory.moved[1][result], memory.results[result], window.lines.buffer);
            let of = (window, windows.count);
            self.each_window(b, place, of, |b, [held, at, slot], is_one| {
                b.if_(is_one, |b| {
                    b.mov((moved, held), (shared, slot), window.width as u32, CacheHint::Default);
                    b.mov((to, at), (moved, held), window.width as u32, CacheHint::Default);
                });
            });
            self.each_end(b, place, of, |b, [_, at, slot], is_one| {
                b.if_(is_one, |b| {
                    let made = b.load("made_m", shared, slot);
                    b.store(to, at, made);
                });
            });
        }
    }
}
