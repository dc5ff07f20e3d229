//! Where the values of a drawn schedule are held: in shared memory, of each thread or of a whole
//! block, and copies of inputs in stages that are filled ahead.
//!
//! In: a schedule that is whole. Out: the same with other memory for some values. Each is tried by
//! itself: what verbs or the check of the whole refuse leaves no trace. An error is a defect.

use super::schedule::unless_refused;
use crate::data::Draw;
use engine::diag::{Diagnostic, Result, code};
use engine::schedule::{
    AxisId, Columns, Compute, Io, Loop, Memory, ParallelType, ScheduleBuilder, ScheduledFusion, Tile, TvId, TvOp,
    check_schedule,
};

/// More than an index of 32 bits reaches when it is doubled.
const LARGE: i64 = i32::MAX as i64;

/// Moves some values to shared memory.
pub(super) fn hold(draw: &mut Draw, b: &mut ScheduleBuilder) -> Result<()> {
    for tv in b.state().topological() {
        let data = &b.state().tensors[tv];
        if data.io.is_some() || b.state().is_reduction(tv) || draw.once_in(3) {
            continue;
        }
        let mut tried = b.clone();
        let done = match is_copy_of_input(b.state(), tv) {
            true => ring(draw, &mut tried, tv),
            false if draw.once_in(3) => tried.set_memory(tv, Memory::Shared),
            false => tile_in_blocks(draw, &mut tried, tv),
        };
        if unless_refused(done.and_then(|()| check_schedule(tried.state())))?.is_some() {
            *b = tried;
        }
    }
    Ok(())
}

fn is_copy_of_input(state: &ScheduledFusion, tv: TvId) -> bool {
    let copies = matches!(&state.tensors[tv].op, Some(TvOp { compute: Compute::Copy, .. }));
    let is_input = |from: &TvId| matches!(state.tensors[*from].io, Some(Io::Input(_)));
    copies && state.producers(tv).first().is_some_and(is_input)
}

/// Not every draw is of use.
fn useless() -> Box<Diagnostic> {
    Diagnostic::user(code::SCHEDULE_LOOPS, "there is no such loop")
}

fn is_constant(state: &ScheduledFusion, own: &Loop) -> bool {
    state.axes.constant_extent(own.axis).is_some()
}

/// A copy of an input in stages, in one of the loops in which it can be.
fn ring(draw: &mut Draw, b: &mut ScheduleBuilder, tv: TvId) -> Result<()> {
    let state = b.state();
    let data = &state.tensors[tv];
    let fits = |at: &usize| {
        data.loops[at - 1].parallel == ParallelType::Serial
            && data.loops[*at..].iter().all(|own| !own.parallel.is_loop() || is_constant(state, own))
    };
    let places: Vec<usize> = (1..=data.inline_at).filter(fits).collect();
    if places.is_empty() {
        return Err(useless());
    }
    let at = draw.choose(&places);
    let shares = data.loops[..at].iter().all(|own| !own.parallel.is_thread()) && !draw.once_in(4);
    b.set_memory(tv, Memory::Shared)?;
    if shares {
        tile(draw, b, tv, at)?;
    }
    b.inline_at(tv, at)?;
    b.circular_buffer(tv, 1 + draw.below(5) as u32)
}

/// A value that a whole block reaches, computed before anything else in it.
fn tile_in_blocks(draw: &mut Draw, b: &mut ScheduleBuilder, tv: TvId) -> Result<()> {
    let data = &b.state().tensors[tv];
    let blocks = data.loops.iter().take_while(|own| own.parallel.is_block()).count();
    let at = blocks.min(data.inline_at);
    b.set_memory(tv, Memory::Shared)?;
    tile(draw, b, tv, at)?;
    b.inline_at(tv, at)
}

/// Gives a tensor a tile of what its loops behind the first `at` run over, and mostly other
/// threads than those who read it.
fn tile(draw: &mut Draw, b: &mut ScheduleBuilder, tv: TvId, at: usize) -> Result<()> {
    let loops = b.state().tensors[tv].loops.clone();
    let (outer, inner) = loops.split_at(at);
    if inner.is_empty() || !inner.iter().all(|own| is_constant(b.state(), own)) {
        return Err(useless());
    }
    let own = |own: &&Loop| b.state().depends(tv, own.axis);
    let mut axes: Vec<AxisId> = inner.iter().filter(own).map(|own| own.axis).collect();
    if draw.once_in(16) {
        axes.push(draw.choose(&b.state().axes.ids().collect::<Vec<_>>()));
    }
    for last in (1..axes.len()).rev() {
        axes.swap(last, draw.below(last + 1));
    }
    // What a tensor does not have need not run where it is written, and mostly must not.
    let needed: Vec<Loop> = match draw.once_in(4) {
        true => inner.to_vec(),
        false => inner.iter().filter(|own| own.parallel.is_thread() || axes.contains(&own.axis)).copied().collect(),
    };
    let written = match draw.below(3) {
        _ if needed.is_empty() => needed,
        0 => swapped(draw, b.state(), &needed),
        1 => dealt(b, &needed)?,
        _ => needed,
    };
    b.set_loops(tv, &[outer, &written].concat())?;
    let every = if draw.once_in(20) { LARGE } else { 1 + draw.below(3) as i64 };
    let columns = match draw.below(4) {
        0 => Columns::InOrder,
        3 => Columns::Skewed { by: if draw.once_in(10) { LARGE } else { draw.choose(&[1, 2, 4]) }, every },
        1 => Columns::Rotated { by: if draw.once_in(10) { LARGE } else { draw.choose(&[1, 2, 4]) }, every },
        _ => Columns::Swizzled { groups: draw.choose(&[2, 4, 8]), every },
    };
    match unless_refused(b.alloc(tv, Tile { axes: axes.clone(), columns }))? {
        Some(()) => Ok(()),
        // Most rows have no groups to change places.
        None => b.alloc(tv, Tile { axes, columns: Columns::InOrder }),
    }
}

/// Loops of which two of the same length change places in the launch.
fn swapped(draw: &mut Draw, state: &ScheduledFusion, loops: &[Loop]) -> Vec<Loop> {
    let mut swapped = loops.to_vec();
    let (one, other) = (draw.below(loops.len()), draw.below(loops.len()));
    let extent = |at: usize| state.axes.constant_extent(loops[at].axis);
    if extent(one) == extent(other) {
        (swapped[one].parallel, swapped[other].parallel) = (loops[other].parallel, loops[one].parallel);
    }
    swapped
}

/// All elements of some loops dealt out to the threads in order, whatever their axes.
fn dealt(b: &mut ScheduleBuilder, loops: &[Loop]) -> Result<Vec<Loop>> {
    let threads: Vec<Loop> = loops.iter().filter(|own| own.parallel.is_thread()).copied().collect();
    let [thread] = threads.as_slice() else { return Err(useless()) };
    let count = b.state().axes.constant_extent(thread.axis).ok_or_else(useless)?;
    let mut all = loops[0].axis;
    for own in &loops[1..] {
        all = b.merge(all, own.axis)?;
    }
    let (outer, inner) = b.split(all, count, true)?;
    let parallel = ParallelType::Serial;
    Ok(vec![Loop { axis: outer, parallel }, Loop { axis: inner, parallel: thread.parallel }])
}
