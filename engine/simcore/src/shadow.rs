//! Who accessed each element last, and whether that is ordered before now.
//!
//! Buffers never alias and are accessed in whole elements, so a cell for each
//! element is as precise as one for each byte. A *cell* packs
//! `event:28 | block:24 | thread:10 | many:2`, 0 for "never". Events number the
//! accesses of warps in the order of execution, so "before the barrier" is one
//! comparison with the event number that the next access had at the barrier.
//!
//! An access of thread `t'` in block `b'` is ordered before thread `t` of block
//! `b` now if
//! - it is before the last grid barrier, or
//! - `b' = b` and it is before the block's last barrier, or `t' = t`, or both are
//!   in one warp and it is before the warp's last barrier, or
//! - a fence and an atomic after it were seen by an atomic and a fence before
//!   now ([`crate::clocks`]).
//!
//! Plain writes have one cell: two unordered ones are a race at once. Reads and
//! atomics do not exclude each other, so their cell keeps the latest event of
//! those not ordered before it, and whether they come from several lanes of one
//! warp, several warps of one block or several blocks (`many` 1, 2, 3). That
//! loses no race within a block: a write conflicts with the set exactly if it
//! conflicts with this summary.

use crate::LANES;
use crate::clocks::{BlockSync, Clocks};
use crate::exec::each;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const EVENT_SHIFT: u32 = 36;
const BLOCK_SHIFT: u32 = 12;
const THREAD_SHIFT: u32 = 2;
/// Events, blocks and threads that a cell can name.
pub(crate) const MAX_EVENT: u64 = (1 << 28) - 1;
pub(crate) const MAX_BLOCKS: u64 = 1 << 24;

/// A packed access; see the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell(pub(crate) u64);

impl Cell {
    #[inline(always)]
    pub(crate) fn new(event: u64, block: u32, thread: u32) -> Self {
        Self(event << EVENT_SHIFT | u64::from(block) << BLOCK_SHIFT | u64::from(thread) << THREAD_SHIFT)
    }
    /// Every cell below this one has an event before `event`, or is "never".
    #[inline(always)]
    pub(crate) fn before(event: u64) -> Self {
        Self(event.max(1) << EVENT_SHIFT)
    }
    /// The same access by the thread `lane` further.
    #[inline(always)]
    fn lane(self, lane: usize) -> Self {
        Self(self.0 + ((lane as u64) << THREAD_SHIFT))
    }
    #[inline(always)]
    pub(crate) fn event(self) -> u64 {
        self.0 >> EVENT_SHIFT
    }
    #[inline(always)]
    pub(crate) fn block(self) -> u32 {
        (self.0 >> BLOCK_SHIFT) as u32 & 0xff_ffff
    }
    #[inline(always)]
    pub(crate) fn thread(self) -> u32 {
        (self.0 >> THREAD_SHIFT) as u32 & 0x3ff
    }
    #[inline(always)]
    pub(crate) fn many(self) -> u32 {
        self.0 as u32 & 3
    }
}

/// What is ordered before the running warp.
#[derive(Clone, Copy)]
pub(crate) struct WarpOrder<'a> {
    pub(crate) block: u32,
    pub(crate) grid_base: u64,
    pub(crate) block_base: u64,
    pub(crate) warp_base: u64,
    pub(crate) clocks: Option<(&'a Clocks, &'a BlockSync)>,
}

impl WarpOrder<'_> {
    /// Whether the access of a cell is ordered before thread `thread` now.
    #[inline(always)]
    pub(crate) fn ordered(&self, cell: Cell, thread: u32) -> bool {
        if cell.0 == 0 {
            return true;
        }
        // A set from several blocks is ordered as a whole only by a grid barrier.
        if cell.block() == self.block && cell.many() < 3 {
            let event = cell.event();
            if event < self.block_base {
                return true;
            }
            let same_thread = cell.thread() == thread && cell.many() == 0;
            let same_warp = cell.thread() / 32 == thread / 32 && cell.many() <= 1;
            if same_thread || same_warp && event < self.warp_base {
                return true;
            }
        } else if self.grid_base > 0 && cell.event() < self.grid_base {
            return true;
        }
        self.clocks.is_some_and(|(clocks, sync)| clocks.ordered(sync, cell, thread))
    }

    /// The summary of a set of reads or atomics and one more.
    fn join(&self, set: Cell, new: Cell, thread: u32) -> Cell {
        if self.ordered(set, thread) {
            return new;
        }
        let many = if set.block() != new.block() {
            3
        } else if set.thread() / 32 != thread / 32 {
            set.many().max(2)
        } else if set.thread() != thread {
            set.many().max(1)
        } else {
            set.many()
        };
        Cell(new.0 | u64::from(many))
    }
}

/// Why an access is wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    Uninitialised,
    /// Meets an asynchronous copy that its thread has not waited for.
    Landing {
        cell: Cell,
    },
    /// Races with the access of the cell: a write, an atomic or a read.
    Race {
        cell: Cell,
        write: bool,
        atomic: bool,
    },
}

/// One cell for each element.
struct Cells(Box<[AtomicU64]>);

impl Cells {
    fn new(len: u64) -> Self {
        let zeros: Box<[u64]> = vec![0; len as usize].into();
        // SAFETY: `AtomicU64` has the size, alignment and validity of `u64`, and
        // the box is passed on whole. This keeps the allocator's zeroed pages.
        Self(unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [AtomicU64]) })
    }
    #[inline(always)]
    fn get(&self, i: usize) -> Cell {
        Cell(self.0[i].load(Relaxed))
    }
    #[inline(always)]
    fn set(&self, i: usize, cell: Cell) {
        self.0[i].store(cell.0, Relaxed);
    }
    fn clear(&mut self) {
        for cell in &mut self.0 {
            *cell.get_mut() = 0;
        }
    }
    /// # Safety
    /// `i` is in bounds.
    #[inline(always)]
    unsafe fn at(&self, i: u32) -> &AtomicU64 {
        // SAFETY: by the caller.
        unsafe { self.0.get_unchecked(i as usize) }
    }
    /// # Safety
    /// The indices plus `k` are in bounds; so for the following functions.
    #[inline(always)]
    unsafe fn greatest(&self, index: &[u32; LANES], k: u32) -> u64 {
        // SAFETY: by the caller.
        index.iter().fold(0, |most, &i| most.max(unsafe { self.at(i + k) }.load(Relaxed)))
    }
    #[inline(always)]
    unsafe fn least(&self, index: &[u32; LANES], k: u32) -> u64 {
        // SAFETY: by the caller.
        index.iter().fold(u64::MAX, |least, &i| least.min(unsafe { self.at(i + k) }.load(Relaxed)))
    }
    #[inline(always)]
    unsafe fn mark(&self, index: &[u32; LANES], k: u32, mask: u32, new: Cell) {
        // SAFETY: by the caller.
        each(mask, |l| unsafe { self.at(index[l] + k) }.store(new.lane(l).0, Relaxed));
    }
    #[inline(always)]
    unsafe fn marked(&self, index: &[u32; LANES], k: u32, mask: u32, new: Cell) -> bool {
        let mut same = true;
        // SAFETY: by the caller.
        each(mask, |l| same &= unsafe { self.at(index[l] + k) }.load(Relaxed) == new.lane(l).0);
        same
    }
}

/// The shadow of one buffer. Only the cells that some access needs exist.
pub(crate) struct Shadow {
    writes: Option<Cells>,
    reads: Option<Cells>,
    atomics: Option<Cells>,
    /// Asynchronous copies that were started and not waited for.
    landings: Option<Cells>,
    filled: bool,
}

impl Shadow {
    /// The shadow of a buffer, or none if no access to it can be wrong.
    pub(crate) fn new(len: u64, read: bool, written: bool, atomic: bool, filled: bool) -> Option<Self> {
        if filled && !written && !atomic {
            return None;
        }
        Some(Self {
            writes: written.then(|| Cells::new(len)),
            reads: (read && (written || atomic)).then(|| Cells::new(len)),
            atomics: atomic.then(|| Cells::new(len)),
            landings: None,
            filled,
        })
    }

    /// The same of a buffer that asynchronous copies write.
    pub(crate) fn with_landings(self, len: u64) -> Self {
        Self { landings: Some(Cells::new(len)), ..self }
    }

    /// A copy to element `i` was started.
    pub(crate) fn set_landing(&self, i: u32, cell: Cell) {
        if let Some(landings) = &self.landings {
            landings.set(i as usize, cell);
        }
    }

    /// A copy to element `i` was waited for: now it is a write of its thread.
    pub(crate) fn land(&self, i: u32, cell: Cell) {
        self.set_landing(i, Cell(0));
        if let Some(writes) = &self.writes {
            writes.set(i as usize, cell);
        }
    }

    /// Whether a copy is on its way to element `i`.
    #[inline(always)]
    fn landing(&self, i: usize) -> Option<Wrong> {
        let cell = self.landings.as_ref()?.get(i);
        (cell.0 != 0).then_some(Wrong::Landing { cell })
    }

    /// Forgets all accesses.
    pub(crate) fn clear(&mut self) {
        for cells in [&mut self.writes, &mut self.reads, &mut self.atomics, &mut self.landings].into_iter().flatten() {
            cells.clear();
        }
    }

    /// Elements that nobody wrote.
    pub(crate) fn unwritten(&self, len: u64) -> u64 {
        if self.filled {
            return 0;
        }
        let get = |cells: &Option<Cells>, i| cells.as_ref().map_or(0, |cells| cells.get(i).0);
        if self.atomics.is_none()
            && let Some(writes) = &self.writes
        {
            return writes.0.iter().map(|cell| u64::from(cell.load(Relaxed) == 0)).sum();
        }
        (0..len as usize).filter(|&i| get(&self.writes, i) == 0 && get(&self.atomics, i) == 0).count() as u64
    }

    /// The numbers of the first elements that nobody wrote.
    pub(crate) fn first_unwritten(&self, len: u64, limit: usize) -> Vec<u64> {
        let get = |cells: &Option<Cells>, i| cells.as_ref().map_or(0, |cells| cells.get(i).0);
        let written = |i: &u64| get(&self.writes, *i as usize) != 0 || get(&self.atomics, *i as usize) != 0;
        (0..len).filter(|i| !written(i)).take(limit).collect()
    }

    #[inline(always)]
    fn against(
        cells: &Option<Cells>,
        i: usize,
        view: &WarpOrder,
        thread: u32,
        write: bool,
        atomic: bool,
    ) -> Option<Wrong> {
        let cell = cells.as_ref()?.get(i);
        (!view.ordered(cell, thread)).then_some(Wrong::Race { cell, write, atomic })
    }

    /// Handles an access of `width` elements at each index if all cells that
    /// matter are below `limit`, that is ordered before by the last barrier of
    /// everybody; most accesses are such. Returns false, having changed nothing
    /// that the general way would not overwrite, if some cell needs a closer
    /// look. `new` is the access of lane 0.
    ///
    /// # Safety
    /// The indices are in bounds, those of lanes outside `mask` included.
    #[inline(always)]
    pub(crate) unsafe fn quiet(
        &self,
        index: &[u32; LANES],
        width: u32,
        mask: u32,
        limit: Cell,
        new: Cell,
        write: bool,
    ) -> bool {
        // SAFETY: by the caller; there is a cell for each element.
        unsafe {
            for k in 0..width {
                if self.landings.as_ref().is_some_and(|cells| cells.greatest(index, k) > 0) {
                    return false;
                }
                let others = if write { &self.reads } else { &None };
                for cells in [&self.writes, &self.atomics, others].into_iter().flatten() {
                    if cells.greatest(index, k) >= limit.0 {
                        return false;
                    }
                }
                if write {
                    continue;
                }
                let written = |cells: &Cells| cells.least(index, k) > 0;
                if !self.filled && !self.writes.as_ref().is_some_and(written) {
                    return false;
                }
                if self.reads.as_ref().is_some_and(|cells| cells.greatest(index, k) >= limit.0) {
                    return false;
                }
            }
            let Some(cells) = (if write { &self.writes } else { &self.reads }) else { return true };
            for k in 0..width {
                cells.mark(index, k, mask, new);
            }
            // Two lanes that write one element: the general way finds and reports them.
            let mut alone = true;
            if write {
                for k in 0..width {
                    alone &= cells.marked(index, k, mask, new);
                }
            }
            alone
        }
    }

    /// Thread `thread` reads element `i`.
    #[inline(always)]
    pub(crate) fn read(&self, i: usize, view: &WarpOrder, new: Cell, thread: u32) -> Option<Wrong> {
        if let Some(landing) = self.landing(i) {
            return Some(landing);
        }
        if !self.filled {
            let get = |cells: &Option<Cells>| cells.as_ref().map_or(0, |cells| cells.get(i).0);
            if get(&self.writes) == 0 && get(&self.atomics) == 0 {
                return Some(Wrong::Uninitialised);
            }
        }
        if let Some(wrong) = Self::against(&self.writes, i, view, thread, true, false) {
            return Some(wrong);
        }
        if let Some(wrong) = Self::against(&self.atomics, i, view, thread, true, true) {
            return Some(wrong);
        }
        if let Some(reads) = &self.reads {
            reads.set(i, view.join(reads.get(i), new, thread));
        }
        None
    }

    /// Thread `thread` writes element `i`.
    #[inline(always)]
    pub(crate) fn write(&self, i: usize, view: &WarpOrder, new: Cell, thread: u32) -> Option<Wrong> {
        if let Some(landing) = self.landing(i) {
            return Some(landing);
        }
        let writes = self.writes.as_ref()?;
        let old = writes.get(i);
        writes.set(i, new);
        if !view.ordered(old, thread) {
            return Some(Wrong::Race { cell: old, write: true, atomic: false });
        }
        if let Some(wrong) = Self::against(&self.atomics, i, view, thread, true, true) {
            return Some(wrong);
        }
        Self::against(&self.reads, i, view, thread, false, false)
    }

    /// As `write`, while other host threads may write the same element: the
    /// exchange makes sure that at least one of two racing writers sees the other.
    #[inline(always)]
    pub(crate) fn write_shared(&self, i: usize, view: &WarpOrder, new: Cell, thread: u32) -> Option<Wrong> {
        let old = Cell(self.writes.as_ref()?.0[i].swap(new.0, Relaxed));
        (!view.ordered(old, thread)).then_some(Wrong::Race { cell: old, write: true, atomic: false })
    }

    /// Thread `thread` updates element `i` atomically.
    pub(crate) fn atomic(&self, i: usize, view: &WarpOrder, new: Cell, thread: u32) -> Option<Wrong> {
        if let Some(landing) = self.landing(i) {
            return Some(landing);
        }
        let atomics = self.atomics.as_ref()?;
        let old = atomics.get(i);
        if !self.filled && old.0 == 0 && self.writes.as_ref().is_none_or(|w| w.get(i).0 == 0) {
            return Some(Wrong::Uninitialised);
        }
        if let Some(wrong) = Self::against(&self.writes, i, view, thread, true, false) {
            return Some(wrong);
        }
        if let Some(wrong) = Self::against(&self.reads, i, view, thread, false, false) {
            return Some(wrong);
        }
        atomics.set(i, view.join(old, new, thread));
        None
    }
}
