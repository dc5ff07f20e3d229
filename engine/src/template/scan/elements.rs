//! Reads and writes of a tile: what is in memory becomes what is scanned, and prefixes results.
//!
//! A thread has vectors of a row, which it moves as they are, or neighbours, which it has of others that moved them: lanes that share
//! a row move neighbouring elements of it to and from shared memory. There a warp has a part of its own, so that its lanes wait for each
//! other alone; an odd number of elements of each lies in other banks than those of its neighbours. Where a warp has many elements of a
//! row, they are moved in vectors, from the first one on that memory has aligned (`windows`).
//!
//! Invariants: places along a row are counted as the scan goes, and turned round where memory is met alone; what is in a thread's
//! part of shared memory is in the order of the scan, but for windows.

use super::super::around::{Element, Program};
use super::super::share::LANES;
use super::super::walk::Lines;
use super::windows::Windows;
use super::{Memory, Place, Scan, Way};
use crate::kernel::{BufId, CacheHint, ExprId, KernelBuilder, Scope, Unroll};

/// Some elements of a thread that lie side by side along the row.
struct Own {
    /// The first one's number among the thread's.
    number: ExprId,
    /// How far along the row it is.
    at: ExprId,
    is_inside: ExprId,
}

/// The elements of a tile that lanes share.
pub(super) struct Tile {
    /// How far along the row the first one is.
    first: ExprId,
    /// Where in shared memory a thread's own start, but in windows.
    own_slots: ExprId,
    windows: Option<Windows>,
}

/// A tensor that is read, or a result.
#[derive(Clone, Copy)]
pub(super) enum Of {
    Read(usize),
    Made(usize),
}

impl Scan<'_> {
    /// Where in shared memory what is of the lanes that share a thread's row starts.
    pub(super) fn slots(&self, b: &mut KernelBuilder, [x, part, z]: [ExprId; 3]) -> ExprId {
        if self.way != Way::Staged {
            return b.int(0);
        }
        let [parts, warp, lanes] = [self.parts, self.slots_of_warp(), self.lanes].map(|n| b.int(n));
        let warps = b.exprs().mul(z, parts);
        let warps = b.exprs().add(warps, part);
        let mut slots = b.exprs().mul(warps, warp);
        if self.lanes < LANES {
            let (line, of_line) = (b.exprs().div(x, lanes), b.int(self.lanes * self.items));
            let above = b.exprs().mul(line, of_line);
            slots = b.exprs().add(slots, above);
        }
        b.let_("slots", slots)
    }

    /// Where the elements of a tile are that lanes share, of which the first one is so far along the row.
    pub(super) fn find_tile(&self, b: &mut KernelBuilder, place: &Place, first: ExprId) -> Tile {
        let windows = self.has_windows.then(|| self.find_windows(b, place, first));
        let items = b.int(self.items);
        let ahead = b.exprs().mul(place.lane, items);
        let own = b.exprs().add(place.slots, ahead);
        Tile { first, own_slots: b.let_("own_slots", own), windows }
    }

    /// Where in shared memory an element of a thread is, of what is read or of a result, by its number.
    fn shared_slot(&self, b: &mut KernelBuilder, tile: &Tile, of: Of, number: ExprId) -> ExprId {
        match &tile.windows {
            Some(windows) => self.slot_in_window(b, windows.of(of), number),
            None => b.exprs().add(tile.own_slots, number),
        }
    }

    /// For each vector of a thread, or each of its neighbours.
    fn each(&self, b: &mut KernelBuilder, place: &Place, tile: &Tile, body: impl FnOnce(&mut KernelBuilder, Own)) {
        let [count, width, step, own] = match self.way {
            Way::Along => [self.items / self.vector, self.vector, self.lanes * self.vector, self.vector],
            Way::Staged => [self.items, 1, 1, self.items],
            Way::Across => [self.items, 1, 1, 0],
        };
        let [count, width, step, own] = [count, width, step, own].map(|n| b.int(n));
        let ahead = b.exprs().mul(place.lane, own);
        let first = b.exprs().add(tile.first, ahead);
        let first = b.let_("own_first", first);
        b.count("i", count, Unroll::Full, |b, own| {
            let number = b.exprs().mul(own, width);
            let ahead = b.exprs().mul(own, step);
            let at = b.exprs().add(first, ahead);
            let is_inside = b.exprs().lt(at, self.walk.from.length);
            let is_inside = b.exprs().and(place.is_row, is_inside);
            body(b, Own { number, at, is_inside });
        });
    }

    /// Elements of each of them.
    fn together(&self) -> i64 {
        if self.way == Way::Along { self.vector } else { 1 }
    }

    /// How often a lane moves elements to or from shared memory.
    pub(super) fn steps(&self) -> i64 {
        (self.items + self.width - 1) / self.width
    }

    /// For each vector that a lane moves to or from shared memory: its number, how far along the row it is, its place there, and
    /// whether there is one.
    fn each_moved(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        tile: &Tile,
        body: impl FnOnce(&mut KernelBuilder, [ExprId; 3], ExprId),
    ) {
        let [steps, width, step] = [self.steps(), self.width, self.lanes * self.width].map(|n| b.int(n));
        let own = b.exprs().mul(place.lane, width);
        b.count("k", steps, Unroll::Full, |b, number| {
            let ahead = b.exprs().mul(number, step);
            let ahead = b.exprs().add(ahead, own);
            let (at, slot) = (b.exprs().add(tile.first, ahead), b.exprs().add(place.slots, ahead));
            let is_inside = b.exprs().lt(at, self.walk.from.length);
            let mut is_inside = b.exprs().and(place.is_row, is_inside);
            if self.items % self.width != 0 {
                let all = b.int(self.lanes * self.items);
                let is_own = b.exprs().lt(ahead, all);
                is_inside = b.exprs().and(is_inside, is_own);
            }
            body(b, [number, at, slot], is_inside);
        });
    }

    /// The place in memory of so many elements, of which the first one of the scan is at a place.
    fn in_memory(&self, b: &mut KernelBuilder, at: ExprId, width: i64) -> ExprId {
        if !self.around.is_reversed {
            return at;
        }
        let width = b.int(width);
        let behind = b.exprs().add(at, width);
        b.exprs().sub(self.walk.from.length, behind)
    }

    /// Which element of a vector in memory one of the scan is, of so many.
    fn in_vector(&self, b: &mut KernelBuilder, e: ExprId, width: i64) -> ExprId {
        if !self.around.is_reversed {
            return e;
        }
        let last = b.int(width - 1);
        b.exprs().sub(last, e)
    }

    /// The lines of a tensor that is read.
    pub(super) fn lines(&self, read: usize) -> Lines {
        read.checked_sub(1).map_or(self.walk.from, |beside| self.walk.beside[beside])
    }

    /// Whether a tensor has one element for all of a row.
    pub(super) fn is_of_row(&self, b: &mut KernelBuilder, read: usize) -> bool {
        let zero = b.int(0);
        self.lines(read).step == zero
    }

    /// Elements that are the same for all of a thread's row.
    pub(super) fn read_of_row(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory) {
        let zero = b.int(0);
        let of_row: Vec<usize> = (0..self.types.len()).filter(|read| self.is_of_row(b, *read)).collect();
        b.if_(place.is_row, |b| {
            for read in of_row {
                let x = b.load("x_r", self.lines(read).buffer, place.starts[read]);
                b.store(memory.reads[read], zero, x);
            }
        });
    }

    /// Reads a vector, of which the first element of the scan is at a place along the row.
    fn fetch(&self, b: &mut KernelBuilder, (lines, start): (Lines, ExprId), at: ExprId, to: (BufId, ExprId)) {
        let at = self.in_memory(b, at, self.width);
        let ahead = b.exprs().mul(at, lines.step);
        let index = b.exprs().add(start, ahead);
        if self.width == 1 {
            let x = b.load("x_r", lines.buffer, index);
            b.store(to.0, to.1, x);
        } else {
            b.mov(to, (lines.buffer, index), self.width as u32, CacheHint::Default);
        }
    }

    /// Elements of the tile; what changes nothing where there is none. Where prefixes are only carried, what results alone
    /// are made of is not read.
    pub(super) fn read(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, tile: &Tile, writes: bool) {
        let is_asked = |read: &usize| writes || self.around.reads[*read].is_before;
        let asked: Vec<usize> =
            (0..self.types.len()).filter(|read| is_asked(read) && !self.is_of_row(b, *read)).collect();
        if self.way == Way::Staged {
            self.read_shared(b, place, memory, tile, &asked);
        }
        let together = b.int(self.together());
        self.each(b, place, tile, |b, Own { number, at, is_inside }| {
            b.count("e", together, Unroll::Full, |b, e| {
                let e = b.exprs().add(number, e);
                b.store(memory.values, e, self.identity);
            });
            b.if_(is_inside, |b| {
                for read in asked.into_iter().filter(|_| self.way != Way::Staged) {
                    self.fetch(b, (self.lines(read), place.starts[read]), at, (memory.reads[read], number));
                }
                b.count("e", together, Unroll::Full, |b, e| {
                    let made = self.emit(b, (place, tile), memory, &self.around.before, [number, at, e], None);
                    let x = b.exprs().cast(made[0], self.work);
                    let e = b.exprs().add(number, e);
                    b.store(memory.values, e, x);
                });
            });
        });
    }

    /// Moves a tile to shared memory.
    fn read_shared(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, tile: &Tile, asked: &[usize]) {
        if let Some(windows) = &tile.windows {
            return self.read_windows(b, place, memory, windows, asked);
        }
        let width = b.int(self.width);
        for &read in asked {
            self.each_moved(b, place, tile, |b, [number, at, _], is_inside| {
                let number = b.exprs().mul(number, width);
                b.if_(is_inside, |b| {
                    self.fetch(b, (self.lines(read), place.starts[read]), at, (memory.moved[0][read], number));
                });
            });
        }
        // Others may still move what was there of the tile before.
        if !self.is_one_tile {
            b.sync(Scope::Warp);
        }
        for &read in asked {
            self.each_moved(b, place, tile, |b, [number, _, slot], is_inside| {
                let number = b.exprs().mul(number, width);
                b.if_(is_inside, |b| {
                    b.count("e", width, Unroll::Full, |b, e| {
                        let (from, to) = (b.exprs().add(number, e), self.in_vector(b, e, self.width));
                        let to = b.exprs().add(slot, to);
                        let x = b.load("x_m", memory.moved[0][read], from);
                        b.store(memory.reads[read], to, x);
                    });
                });
            });
        }
        b.sync(Scope::Warp);
    }

    /// What a program makes of an element: the first one's number among the thread's and its place along the row of some that lie
    /// side by side, and which of them it is.
    fn emit(
        &self,
        b: &mut KernelBuilder,
        (place, tile): (&Place, &Tile),
        memory: &Memory,
        program: &Program,
        [number, at, e]: [ExprId; 3],
        prefix: Option<ExprId>,
    ) -> Vec<ExprId> {
        let mut reads = vec![None; self.types.len()];
        for read in (0..reads.len()).filter(|read| program.asks_for(*read)) {
            let slot = match self.way {
                _ if self.is_of_row(b, read) => b.int(0),
                Way::Staged => self.shared_slot(b, tile, Of::Read(read), number),
                Way::Along | Way::Across => {
                    let e = self.in_vector(b, e, self.together());
                    b.exprs().add(number, e)
                }
            };
            reads[read] = Some(b.load("x_r", memory.reads[read], slot));
        }
        let mut places = place.places.clone();
        if let Some(own) = places.get_mut(self.around.axis) {
            let at = b.exprs().add(at, e);
            *own = self.in_memory(b, at, 1);
        }
        program.emit(b, &Element { reads: &reads, prefix, places: &places, scalars: &self.scalars })
    }

    /// What is made of prefixes of a tile, with what comes before a thread's part of it; of none, where they have it.
    pub(super) fn write(
        &self,
        b: &mut KernelBuilder,
        place: &Place,
        memory: &Memory,
        tile: &Tile,
        before: Option<ExprId>,
    ) {
        let together = b.int(self.together());
        let starts = &place.starts[self.types.len()..];
        // Others may still read what lies where they lie in windows.
        if self.has_windows {
            b.sync(Scope::Warp);
        }
        self.each(b, place, tile, |b, Own { number, at, is_inside }| {
            b.if_(is_inside, |b| {
                b.count("e", together, Unroll::Full, |b, e| {
                    let own = b.exprs().add(number, e);
                    let prefix = b.load("prefix", memory.values, own);
                    let all = before.map_or(prefix, |before| self.combine(b, before, prefix));
                    let all = b.exprs().cast(all, self.dtype);
                    let all = b.let_("all", all);
                    let made = self.emit(b, (place, tile), memory, &self.around.behind, [number, at, e], Some(all));
                    for (result, made) in made.into_iter().enumerate() {
                        let slot = match self.way {
                            Way::Staged => self.shared_slot(b, tile, Of::Made(result), number),
                            Way::Along | Way::Across => self.in_vector(b, e, self.together()),
                        };
                        b.store(memory.results[result], slot, made);
                    }
                });
                for ((lines, made), start) in self.walk.to.iter().zip(&memory.results).zip(starts) {
                    if self.way != Way::Staged {
                        self.put(b, (*lines, *start), at, *made);
                    }
                }
            });
        });
        if self.way == Way::Staged {
            self.write_shared(b, place, memory, tile);
        }
    }

    /// Writes a vector, of which the first element of the scan is at a place along the row.
    fn put(&self, b: &mut KernelBuilder, (lines, start): (Lines, ExprId), at: ExprId, made: BufId) {
        let zero = b.int(0);
        let at = self.in_memory(b, at, self.width);
        let ahead = b.exprs().mul(at, lines.step);
        let index = b.exprs().add(start, ahead);
        if self.width == 1 {
            let made = b.load("made", made, zero);
            b.store(lines.buffer, index, made);
        } else {
            b.mov((lines.buffer, index), (made, zero), self.width as u32, CacheHint::Default);
        }
    }

    /// Moves results of a tile from shared memory.
    fn write_shared(&self, b: &mut KernelBuilder, place: &Place, memory: &Memory, tile: &Tile) {
        let (width, starts) = (b.int(self.width), &place.starts[self.types.len()..]);
        b.sync(Scope::Warp);
        if let Some(windows) = &tile.windows {
            return self.write_windows(b, place, memory, windows);
        }
        for (result, start) in starts.iter().enumerate() {
            self.each_moved(b, place, tile, |b, [_, at, slot], is_inside| {
                b.if_(is_inside, |b| {
                    b.count("e", width, Unroll::Full, |b, e| {
                        let (from, to) = (b.exprs().add(slot, e), self.in_vector(b, e, self.width));
                        let x = b.load("made_m", memory.results[result], from);
                        b.store(memory.moved[1][result], to, x);
                    });
                    self.put(b, (self.walk.to[result], *start), at, memory.moved[1][result]);
                });
            });
        }
    }
}
