//! Random schedules of elementwise fusions: splits, merges, shifts, bindings,
//! loop orders and memories that no heuristic would choose. Whatever the schedule, every
//! element of every output is written once and has the right value.

use super::grid::strides;
use super::memory::hold;
use crate::data::Draw;
use engine::diag::{Diagnostic, DiagnosticKind, Result};
use engine::fusion::{AxisDecl, Fusion, FusionBuilder, bind};
use engine::kernel::{self, Kernel};
use engine::lower;
use engine::num::{DType, Value};
use engine::options::{DeviceDesc, Options};
use engine::schedule::heuristic::Sizes;
use engine::schedule::{
    ArgClass, AxisId, Extent, Loop, Memory, ParallelType, Parts, ScheduleBuilder, TvId, check_schedule, check_sizes,
    check_text, scheduled_fusion,
};
use engine::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};

/// A scheduled kernel with its arguments and what it should compute.
pub struct ScheduledCase {
    /// What it computes.
    pub fusion: Fusion,
    /// The arguments.
    pub args: Vec<Arg>,
    /// The kernel, or why there is none.
    pub kernel: Result<Kernel>,
    /// The schedule as text.
    pub schedule: String,
}

/// `x + y` where `y` has some of the axes, beside `-y`, which is smaller, and
/// the sum in another order of axes.
pub fn sums(dtype: DType, thin: &[bool], order: &[i64]) -> Result<Fusion> {
    let mut b = FusionBuilder::new("f");
    let x = b.tensor("x", dtype, &vec![AxisDecl::Symbolic; thin.len()])?;
    let dims: Vec<AxisDecl> =
        thin.iter().map(|thin| if *thin { AxisDecl::Broadcast } else { AxisDecl::Symbolic }).collect();
    let y = b.tensor("y", dtype, &dims)?;
    let small = b.neg(y)?;
    let sum = b.add(x, y)?;
    let moved = b.permute(sum, order)?;
    for output in [small, sum, moved] {
        b.output(output)?;
    }
    b.finish()
}

/// The result of what may be refused, and none where it is. Nothing but a defect is an error.
pub(super) fn unless_refused<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.kind == DiagnosticKind::Bug => Err(error),
        Err(_) => Ok(None),
    }
}

fn tensor(draw: &mut Draw, dtype: DType, sizes: &[i64]) -> Result<HostTensor> {
    let strides = strides(draw, sizes);
    let mut count = 0;
    HostTensor::strided(TensorMeta { dtype, sizes: sizes.to_vec(), strides }, |_| {
        count += 1;
        Value::Int(count * 7 % 1009)
    })
}

/// Splits, merges and shifts leaves. Returns the leaves.
fn transform(draw: &mut Draw, b: &mut ScheduleBuilder, sizes: &Sizes) -> Result<Vec<AxisId>> {
    let mut leaves: Vec<AxisId> = b.state().axes.ids().collect();
    let globals: Vec<TvId> =
        b.state().tensors.iter().filter(|(_, tv)| tv.memory == Memory::Global).map(|(tv, _)| tv).collect();
    for _ in 0..draw.below(8) {
        let at = draw.below(leaves.len());
        let axis = leaves[at];
        let n = sizes.extent(b.state(), axis);
        let made: Result<Vec<AxisId>> = match draw.below(7) {
            0..=2 => {
                let factor = 1 + draw.below(9) as i64;
                b.split(axis, factor, n > 0 && n % factor == 0 && draw.once_in(2))
                    .map(|(outer, inner)| vec![outer, inner])
            }
            3 => {
                let count = 1 + draw.below(5) as i64;
                let factor = (n + count - 1) / count;
                let exact = factor > 0 && factor * count == n;
                b.split_cover(axis, count, factor.max(1), exact).map(|(outer, inner)| vec![outer, inner])
            }
            4 => {
                let other = leaves[draw.below(leaves.len())];
                let parts = Parts { places: 1 + draw.below(12) as i64, beside: (other != axis).then_some(other) };
                let share = parts.share(n, parts.beside.map_or(1, |other| sizes.extent(b.state(), other)));
                b.split_parts(axis, parts, n > 0 && n % share == 0 && draw.once_in(2))
                    .map(|(outer, inner)| vec![outer, inner])
            }
            5 => {
                let other = draw.below(leaves.len());
                if other == at {
                    continue;
                }
                let merged = b.merge(axis, leaves[other]).map(|merged| vec![merged]);
                if merged.is_ok() {
                    let other = leaves[other];
                    leaves.retain(|leaf| *leaf != other);
                }
                merged
            }
            _ => b.align(axis, draw.choose(&[2, 4, 8]), draw.choose(&globals), None).map(|shifted| vec![shifted]),
        };
        // What a primitive refuses leaves no trace.
        if let Some(made) = unless_refused(made)? {
            leaves.retain(|leaf| *leaf != axis);
            leaves.extend(made);
        }
    }
    Ok(leaves)
}

/// Binds leaves to places, orders the loops and inlines.
fn bind_leaves(draw: &mut Draw, b: &mut ScheduleBuilder, mut leaves: Vec<AxisId>) -> Result<()> {
    use ParallelType::{Bidx, Bidy, Bidz, Tidx, Tidy, Tidz};
    for last in (1..leaves.len()).rev() {
        leaves.swap(last, draw.below(last + 1));
    }
    let mut threads = 1;
    let mut free = vec![Bidx, Bidy, Bidz, Tidx, Tidy, Tidz];
    for leaf in &leaves {
        let constant = match b.state().axes[*leaf].extent {
            Extent::Const(n) => Some(n),
            _ => None,
        };
        let parallel = match (draw.below(5), constant) {
            (0 | 1, _) if !free.is_empty() => draw.choose(&free),
            (2, Some(n)) if n <= 16 => ParallelType::Unroll,
            (3, Some(n)) if n <= 16 => ParallelType::Vectorize,
            _ => continue,
        };
        if parallel.is_thread() {
            match constant {
                Some(n) if n > 0 && n <= 64 && threads * n <= 1024 => threads *= n,
                _ => continue,
            }
        }
        free.retain(|place| *place != parallel);
        b.parallelize(*leaf, parallel)?;
    }
    // Mostly what is bound comes first and vectors last, as heuristics order it, or threads inside
    // of loops, as in those that fill a stage together.
    if draw.below(4) > 0 {
        let threads = if draw.once_in(3) { 2 } else { 0 };
        leaves.sort_by_key(|leaf| match b.state().bindings[*leaf] {
            ParallelType::Serial => 1,
            ParallelType::Unroll => 3,
            ParallelType::Vectorize => 4,
            parallel if parallel.is_thread() => threads,
            _ => 0,
        });
    }
    b.propagate(&leaves)?;
    recompute(draw, b, &leaves)?;
    // Some values are kept for all constant loops at the end of their order.
    let mut keep = Vec::new();
    for tv in b.state().tensors.ids() {
        let data = &b.state().tensors[tv];
        let constant = |own: &&Loop| {
            matches!(b.state().axes[own.axis].extent, Extent::Const(n) if n <= 16) && own.parallel.is_loop()
        };
        let kept = data.loops.iter().rev().take_while(constant).count();
        if data.io.is_none() && draw.once_in(2) {
            keep.push((tv, data.loops.len() - draw.below(kept + 1)));
        }
    }
    b.inline_most(&keep)
}

/// Computes some values anew in loops that they do not depend on, where that is legal.
fn recompute(draw: &mut Draw, b: &mut ScheduleBuilder, leaves: &[AxisId]) -> Result<()> {
    for tv in b.state().topological().into_iter().rev() {
        for leaf in leaves {
            if !draw.once_in(3) {
                continue;
            }
            let before = b.state().tensors[tv].loops.clone();
            let did = unless_refused(b.recompute_in(tv, *leaf))?.is_some();
            let after = &b.state().tensors[tv];
            let had = before.iter().any(|own| own.axis == *leaf);
            let right = if did { after.has_loop(*leaf) && !had } else { after.loops == before };
            if !right {
                return Err(Diagnostic::bug("a refused recompute_in left a trace, or an accepted one none"));
            }
        }
    }
    Ok(())
}

/// Draws a fusion, sizes and a schedule. An error is a defect.
pub fn draw_schedule(seed: u64) -> Result<ScheduledCase> {
    let mut draw = Draw::new(seed);
    let rank = 1 + draw.below(3);
    let most = [300, 24, 11][rank - 1];
    let dtype = draw.choose(&[DType::I32, DType::I32, DType::I64, DType::I8, DType::U16, DType::U64, DType::C64]);
    let (mut sizes, mut thin) = (Vec::new(), Vec::new());
    let mut order: Vec<i64> = (0..rank as i64).collect();
    for axis in 0..rank {
        sizes.push(if draw.once_in(30) { 0 } else { 1 + draw.below(most) as i64 });
        thin.push(draw.once_in(3));
        order.swap(axis, draw.below(axis + 1));
    }
    let fusion = sums(dtype, &thin, &order)?;
    let thin_sizes: Vec<i64> = sizes.iter().zip(&thin).map(|(size, thin)| if *thin { 1 } else { *size }).collect();
    let args =
        vec![Arg::Tensor(tensor(&mut draw, dtype, &sizes)?), Arg::Tensor(tensor(&mut draw, dtype, &thin_sizes)?)];
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let sizes = Sizes::new(&fusion, &bind(&fusion, &metas)?);
    let class = ArgClass::new(&fusion, &metas, &vec![16; metas.len()], sizes.elements(), &Options::default());
    let mut b = ScheduleBuilder::new(scheduled_fusion(&fusion)?);
    let leaves = transform(&mut draw, &mut b, &sizes)?;
    for input in b.inputs() {
        let cache = b.cache_after(input)?;
        if draw.once_in(4) {
            b.cache_after(cache)?;
        }
        // With users of its own, a copy can go into loops that the others lack.
        for user in b.state().consumers(cache).into_iter().skip(1) {
            if draw.once_in(2) {
                b.cache_fork(cache, &[user])?;
            }
        }
    }
    bind_leaves(&mut draw, &mut b, leaves)?;
    if draw.below(3) > 0 {
        hold(&mut draw, &mut b)?;
    }
    let scheduled = b.finish();
    check_text(&scheduled_fusion(&fusion)?, &scheduled)?;
    let schedule = format!("{metas:?} order {order:?}\n{}", scheduled.schedule_text());
    // As the compiler does: what a thread has no room for is refused before it is a mistake.
    let fits = |kernel: Kernel| kernel::check_limits(&kernel, &DeviceDesc::h200()).map(|()| kernel);
    let checked = check_sizes(&scheduled, &sizes).and_then(|()| check_schedule(&scheduled));
    let lowered = checked.and_then(|()| lower::lower(&scheduled, &class, "drawn"));
    let kernel = lowered.and_then(fits);
    Ok(ScheduledCase { fusion, args, kernel, schedule })
}
