//! What heuristics have in common whose kernels pass tensors through tiles in shared memory: `transpose`, `images`, `heads`, `boxes`.

use super::choose::Problem;
use super::summary::GlobalTensor;
use crate::diag::Result;
use crate::kernel::MAX_ACCESS_BYTES;
use crate::schedule::{AxisId, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId};

/// Bytes of a tile of one tensor, and of all tiles of a block.
pub(super) const TILE_BYTES: i64 = 16 << 10;
pub(super) const MAX_SHARED: i64 = 40 << 10;
/// Threads of a block.
pub(super) const THREADS: i64 = 256;
/// Threads that a multiprocessor runs at once, and blocks at most.
const RUNNING_THREADS: i64 = 1024;
const MOST_BLOCKS: i64 = 16;
/// Registers of a multiprocessor, and those of a thread for what it does not hold.
const REGISTERS: i64 = 64 << 10;
const ADDRESSES: i64 = 32;
/// Bytes of the narrowest accesses that keep up with memory.
pub(super) const WORD_BYTES: i64 = 4;
/// Bytes that memory moves at least.
pub(super) const SECTOR_BYTES: i64 = 32;
/// Bytes that all banks of shared memory move at once.
pub(super) const BANKS_BYTES: i64 = 128;
/// Bytes of a tensor below which nothing is gained: the second-level cache has all of it.
pub(super) const LEAST_BYTES: i64 = 32 << 10;

/// Widths of vectors of elements of so many bytes, the widest first, down to one element.
pub(super) fn widths(bytes: i64) -> impl Iterator<Item = i64> {
    let halves = std::iter::successors(Some((MAX_ACCESS_BYTES / bytes).max(1)), |vector| Some(vector / 2));
    halves.take_while(|vector| *vector >= 1)
}

/// One of the tensors, if all start their rows at the same places of memory.
pub(super) fn alike(tensors: &[&GlobalTensor]) -> Option<TvId> {
    let first = tensors.first()?;
    let alike = |tensor: &&GlobalTensor| {
        let dense = tensors.len() == 1 || tensor.dense.iter().all(|dense| *dense);
        tensor.bytes == first.bytes && tensor.order == first.order && dense
    };
    tensors.iter().all(alike).then_some(first.tv)
}

/// Blocks of so many threads that a multiprocessor shall have at once: with a thousand threads each has 64 registers. More are
/// addresses that are computed far ahead, and with fewer threads less is under way. Of several inputs a thread holds single
/// elements, so many of each, in a register each.
pub(super) fn blocks_of(threads: i64, inputs: usize, elements: i64) -> u32 {
    let held = if inputs > 1 { elements.saturating_mul(inputs as i64) } else { 0 };
    let running = RUNNING_THREADS.min(REGISTERS / (ADDRESSES + held));
    (running / threads).clamp(1, MOST_BLOCKS) as u32
}

/// Indices of several dimensions together.
pub(super) fn extent_of(problem: &Problem<'_>, scheduled: &ScheduledFusion, roots: &[AxisId]) -> i64 {
    roots.iter().fold(1, |n, root| n.saturating_mul(problem.sizes.extent(scheduled, *root)))
}

/// The dimensions that are in none of the groups that are taken, slowest first.
pub(super) fn others(problem: &Problem<'_>, groups: &[Vec<AxisId>], taken: &[usize]) -> Vec<AxisId> {
    let grouped = groups.concat();
    let stray = problem.summary.structure.roots.iter().copied().filter(|root| !grouped.contains(root));
    let is_taken = |root: &AxisId| taken.iter().any(|at| groups[*at].contains(root));
    grouped.iter().copied().chain(stray).filter(|root| !is_taken(root)).collect()
}

/// Gives blocks an axis, and all tensors loops within. Returns the loop over blocks.
pub(super) fn bind_loops(builder: &mut ScheduleBuilder, grid: AxisId, within: &[Loop]) -> Result<Loop> {
    let grid = Loop { axis: grid, parallel: ParallelType::Bidx };
    let loops: Vec<Loop> = std::iter::once(grid).chain(within.iter().copied()).collect();
    for own in &loops {
        builder.parallelize(own.axis, own.parallel)?;
    }
    let order: Vec<AxisId> = loops.iter().map(|own| own.axis).collect();
    builder.propagate(&order)?;
    Ok(grid)
}

/// Passes an input, which is read into registers, through a tile: loaded in loops of its own, and put into the tile in others,
/// which may be the same. Returns the registers into which the tile is read, in the loops of all other tensors.
pub(super) fn pass_input(
    builder: &mut ScheduleBuilder,
    input: TvId,
    [loading, filling]: [&[Loop]; 2],
    tile: Tile,
) -> Result<TvId> {
    let registers = builder.state().consumers(input)[0];
    let shared = builder.cache_after(registers)?;
    let held = builder.cache_after(shared)?;
    builder.set_loops(registers, loading)?;
    builder.set_loops(shared, filling)?;
    builder.set_memory(shared, Memory::Shared)?;
    builder.alloc(shared, tile)?;
    Ok(held)
}
