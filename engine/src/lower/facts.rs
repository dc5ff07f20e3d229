//! What the schedule says, in the form in which the passes ask for it. Nothing here
//! changes once it is made, and nothing has expressions.

use super::tree::{Exchange, ExchangeId, Step};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, ReduceOp, TernaryOp, Value};
use crate::schedule::{
    ArgClass, AxisId, Compute, Extent, Loop, Memory, ParallelType, ScheduledFusion, TvId, TvOp, TvOperand, Xform,
};
use crate::util::{PrimaryMap, SecondaryMap};
use std::collections::{BTreeMap, BTreeSet};

/// Lanes of a warp.
pub(super) const WARP: i64 = 32;

/// A scheduled fusion, and what follows from it.
pub(super) struct Facts<'a> {
    pub(super) scheduled: &'a ScheduledFusion,
    pub(super) class: &'a ArgClass,
    /// For each tensor those that read it.
    pub(super) consumers: SecondaryMap<TvId, Vec<TvId>>,
    /// The axes behind each place in the launch.
    pub(super) places: BTreeMap<ParallelType, Vec<AxisId>>,
    /// Whether all blocks wait for the values of reductions over blocks.
    pub(super) blocks_wait: bool,
    /// For each copy of another tensor in registers, that tensor.
    copied: SecondaryMap<TvId, Option<TvId>>,
}

/// The thread and block axes that a reduction combines over.
#[derive(Clone, Debug, Default)]
pub(super) struct CrossThread {
    pub(super) threads: Vec<ParallelType>,
    pub(super) block_axes: Vec<AxisId>,
    pub(super) blocks: bool,
}

impl CrossThread {
    pub(super) fn any(&self) -> bool {
        !self.threads.is_empty() || self.blocks
    }
}

impl<'a> Facts<'a> {
    pub(super) fn new(scheduled: &'a ScheduledFusion, class: &'a ArgClass) -> Result<Self> {
        Ok(Self {
            scheduled,
            class,
            consumers: scheduled.all_consumers(),
            places: scheduled.launch_axes()?,
            blocks_wait: scheduled.blocks_wait(),
            copied: copies(scheduled),
        })
    }

    /// Whether a tensor is in global memory.
    pub(super) fn is_global(&self, tv: TvId) -> bool {
        self.scheduled.tensors[tv].memory == Memory::Global
    }

    /// The tensor in global memory that a tensor is a copy of, in registers or shared memory: all of it,
    /// or what an index says.
    pub(super) fn loaded_from(&self, tv: TvId) -> Option<TvId> {
        if let Some((table, _)) = self.scheduled.lookup_of(tv) {
            return Some(table);
        }
        match &self.scheduled.tensors[tv].op {
            Some(TvOp { compute: Compute::Copy, inputs }) if !self.is_global(tv) => match *inputs.as_slice() {
                [TvOperand::Tv(from)] if self.is_global(from) => Some(from),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the elements of a tensor are random.
    pub(super) fn is_random(&self, tv: TvId) -> bool {
        matches!(&self.scheduled.tensors[tv].op, Some(TvOp { compute: Compute::Random(_), .. }))
    }

    /// Whether a tensor is a reduction within each thread.
    pub(super) fn accumulates(&self, tv: TvId) -> bool {
        self.scheduled.is_reduction(tv) && !self.cross_thread(tv).any()
    }

    /// The operation of a reduction.
    pub(super) fn reduce_op(&self, tv: TvId) -> Result<ReduceOp> {
        match &self.scheduled.tensors[tv].op {
            Some(TvOp { compute: Compute::Reduce { op, .. }, .. }) => Ok(*op),
            _ => Err(Diagnostic::bug(format!("{} is not a reduction", self.scheduled.tensors[tv].name))),
        }
    }

    /// The thread and block axes over which a tensor reduces.
    pub(super) fn cross_thread(&self, tv: TvId) -> CrossThread {
        let mut found = CrossThread::default();
        for leaf in self.scheduled.reduced_leaves(tv) {
            let Some(parallel) = self.scheduled.parallel_of(tv, leaf) else { continue };
            if parallel.is_thread() {
                found.threads.push(parallel);
            } else if parallel.is_block() {
                found.block_axes.push(leaf);
                found.blocks = true;
            }
        }
        found
    }

    /// The roots that a reduction combines over; empty for other tensors.
    pub(super) fn reduced_roots(&self, tv: TvId) -> BTreeSet<AxisId> {
        match &self.scheduled.tensors[tv].op {
            Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) => {
                over.iter().flat_map(|axis| self.scheduled.axes.roots_of(*axis)).collect()
            }
            _ => BTreeSet::new(),
        }
    }

    /// The loops of a local tensor's array, outer to inner: those inside its
    /// inline position that it does not reduce over.
    pub(super) fn array_loops(&self, tv: TvId) -> Vec<Loop> {
        let data = &self.scheduled.tensors[tv];
        let reduced = self.scheduled.reduced_leaves(tv);
        data.loops[data.inline_at..]
            .iter()
            .copied()
            .filter(|own| own.parallel.is_loop() && !reduced.contains(&own.axis))
            .collect()
    }

    /// Whether a local tensor's array runs over an axis, or over what the axis is a part of.
    pub(super) fn is_held_along(&self, tv: TvId, axis: AxisId) -> bool {
        let whole = match self.scheduled.axes.def(axis) {
            Some(Xform::Split { input, .. }) => *input,
            _ => axis,
        };
        self.array_loops(tv).iter().any(|own| own.axis == axis || own.axis == whole)
    }

    /// The loop over lanes that lie side by side in the shared memory in which each thread has elements
    /// of its own, if there is one.
    pub(super) fn lanes_together(&self, tv: TvId) -> Option<Loop> {
        let data = &self.scheduled.tensors[tv];
        let own = data.memory == Memory::Shared && data.tile.is_none();
        self.array_loops(tv).last().copied().filter(|last| own && last.parallel == ParallelType::Vectorize)
    }

    /// Whether a local tensor is one value in the loops that are open, and not an element of
    /// an array or a tile.
    pub(super) fn is_single(&self, tv: TvId) -> bool {
        let data = &self.scheduled.tensors[tv];
        data.tile.is_none() && !data.is_ring() && self.array_loops(tv).is_empty()
    }

    /// Whether a product has several uses, and a sum or a difference is one of them: joined with it in one
    /// operation, the product would be another number there than it is for the others, and `x - x` not 0.
    pub(super) fn is_rounded_alone(&self, tv: TvId) -> bool {
        let (mut uses, mut is_added) = (0, false);
        let mut names = vec![tv];
        while let Some(name) = names.pop() {
            for consumer in &self.consumers[name] {
                let Some(op) = &self.scheduled.tensors[*consumer].op else { continue };
                match op.compute {
                    Compute::Copy if !self.is_global(*consumer) => {
                        names.push(*consumer);
                        continue;
                    }
                    Compute::Binary(BinaryOp::Add | BinaryOp::Sub) | Compute::Ternary(TernaryOp::Lerp) => {
                        is_added = true;
                    }
                    _ => {}
                }
                uses += op.inputs.iter().filter(|operand| **operand == TvOperand::Tv(name)).count();
            }
        }
        is_added && uses > 1
    }

    /// The constant extent of a leaf that a local array runs over.
    pub(super) fn constant_extent(&self, leaf: AxisId) -> Result<i64> {
        self.scheduled.axes.constant_extent(leaf).ok_or_else(|| {
            let name = &self.scheduled.axes[leaf].name;
            Diagnostic::unsupported(
                code::SCHEDULE_VERB,
                format!("axis {name} has no constant extent, but a value is kept in registers along it"),
            )
            .note("order the loops so that it is shared by all users of the value, or split it by a constant")
        })
    }

    /// The most indices of an axis of a tile: it has room for them.
    pub(super) fn most_extent(&self, axis: AxisId) -> Result<i64> {
        self.scheduled.axes.most_extent(axis).map_or_else(|| self.constant_extent(axis), Ok)
    }

    /// The constant size of a thread axis; 1 where nothing is bound to it.
    pub(super) fn block_dim(&self, parallel: ParallelType) -> Result<i64> {
        let axis = self.places.get(&parallel).and_then(|axes| axes.first());
        axis.map_or(Ok(1), |axis| self.constant_extent(*axis))
    }

    /// Whether there may be more blocks along a loop's place than it has indices, since tensors bind several
    /// axes there.
    pub(super) fn is_guarded(&self, own: Loop) -> bool {
        own.parallel.is_block() && self.places.get(&own.parallel).is_some_and(|axes| axes.len() > 1)
    }

    /// Threads of a block.
    pub(super) fn block_threads(&self) -> Result<i64> {
        use ParallelType::{Tidx, Tidy, Tidz};
        Ok(self.block_dim(Tidx)? * self.block_dim(Tidy)? * self.block_dim(Tidz)?)
    }

    /// How often a loop runs, if that is known.
    pub(super) fn trips(&self, axis: AxisId) -> Option<i64> {
        match self.scheduled.axes[axis].extent {
            Extent::Const(extent) => Some(extent),
            Extent::Scalar(scalar) => match self.scheduled.fusion.const_scalar(scalar)? {
                Value::Int(extent) => Some(extent),
                _ => None,
            },
            Extent::CeilDiv(of, factor) => Some((self.trips(of)? + factor - 1) / factor),
            Extent::Product(a, b) => Some(self.trips(a)? * self.trips(b)?),
            Extent::Plus(of, more) => Some(self.trips(of)? + more),
            Extent::Times(of, times) => Some(self.trips(of)? * times),
            Extent::Share(..) | Extent::Shares(..) => None,
        }
    }

    /// Whether a loop is one in the kernel: it does not run just once.
    pub(super) fn repeats(&self, own: Loop) -> bool {
        own.parallel.is_loop() && self.trips(own.axis) != Some(1)
    }

    /// The loop whose iterations fill the stages of a ring in turn; none for other tensors.
    pub(super) fn ring_loop(&self, tv: TvId) -> Option<Loop> {
        let data = &self.scheduled.tensors[tv];
        let last = data.inline_at.checked_sub(1).filter(|_| data.is_ring())?;
        data.loops.get(last).copied()
    }

    /// The loads of a unit that its loop at `depth` makes some iterations ahead.
    pub(super) fn loaded_ahead(&self, unit: &[TvId], own: Loop, depth: usize) -> Vec<TvId> {
        let tensors = &self.scheduled.tensors;
        let is_ahead = |tv: &TvId| {
            tensors[*tv].stages > 0 && tensors[*tv].inline_at == depth + 1 && self.loaded_from(*tv).is_some()
        };
        if own.parallel.is_loop() { unit.iter().copied().filter(is_ahead).collect() } else { Vec::new() }
    }

    /// The elements that each thread has of a tensor.
    pub(super) fn batch_len(&self, tv: TvId) -> Result<i64> {
        self.array_loops(tv).iter().try_fold(1, |len, own| Ok(len * self.constant_extent(own.axis)?))
    }

    /// The steps that combine a tensor's batch over thread axes; exchanges are added.
    pub(super) fn steps(
        &self,
        tv: TvId,
        along: &[ParallelType],
        exchanges: &mut PrimaryMap<ExchangeId, Exchange>,
    ) -> Result<Vec<Step>> {
        let data = &self.scheduled.tensors[tv];
        let name = super::context::identifier(&data.name);
        let mut add = |suffix: &str, elements: i64| -> Result<ExchangeId> {
            let len = elements * self.batch_len(tv)?;
            Ok(exchanges.push(Exchange { name: format!("{name}_{suffix}"), dtype: data.dtype, len, place: None }))
        };
        let mut along = along.to_vec();
        along.sort();
        let [x, y, z] = [
            self.block_dim(ParallelType::Tidx)?,
            self.block_dim(ParallelType::Tidy)?,
            self.block_dim(ParallelType::Tidz)?,
        ];
        match along.as_slice() {
            [] => Ok(Vec::new()),
            [ParallelType::Tidx] if x < WARP => {
                if x & (x - 1) != 0 {
                    return Err(Diagnostic::bug(format!("{x} threads in x are neither warps nor a power of two")));
                }
                Ok(vec![Step::Shuffle { width: x }])
            }
            [ParallelType::Tidx] => {
                if x % WARP != 0 {
                    return Err(Diagnostic::bug(format!("{x} threads in x are not whole warps")));
                }
                let mut steps = vec![Step::Shuffle { width: WARP }];
                if x > WARP {
                    let warps = x / WARP;
                    let exchange = add("warps", y * z * warps)?;
                    steps.extend([Step::WriteWarps { exchange, warps }, Step::ReadWarps { exchange, warps }]);
                }
                Ok(steps)
            }
            [ParallelType::Tidy] if y == 1 => Ok(Vec::new()),
            [ParallelType::Tidy] => {
                if y & (y - 1) != 0 || z != 1 {
                    return Err(Diagnostic::bug(format!("{y} threads in y are not a power of two, or z is in use")));
                }
                let of = self.rows_of_warp()?;
                let mut steps = Vec::new();
                if of > 1 {
                    steps.push(Step::ShuffleRows { width: x, rows: of });
                }
                if y > of {
                    let exchange = add("rows", x * (y / of))?;
                    steps.push(Step::WriteRows { exchange, of });
                    let halves = std::iter::successors(Some(y / of / 2), |half| Some(half / 2));
                    let halves = halves.take_while(|half| *half >= 1);
                    steps.extend(halves.map(|half| Step::HalveRows { exchange, of, half }));
                    steps.push(Step::ReadRows { exchange });
                }
                Ok(steps)
            }
            _ => Err(Diagnostic::unsupported(
                code::SCHEDULE_VERB,
                format!("reduction of {name} over {} thread axes at once", along.len()),
            )
            .note("merge the axes, or reduce over one after the other")),
        }
    }

    /// Whether a batch that is combined along `threadIdx.x` ends in stores alone that lane 0 of each row makes. A
    /// batch of one value is named where all threads see it.
    pub(super) fn is_for_first_lane(&self, tv: TvId) -> Result<bool> {
        if self.is_single(tv) || self.cross_thread(tv).blocks {
            return Ok(false);
        }
        let mut open = self.consumers[tv].clone();
        while let Some(user) = open.pop() {
            let is_local = self.scheduled.tensors[user].memory == Memory::Local;
            if is_local && !self.scheduled.is_reduction(user) {
                open.extend(&self.consumers[user]);
            } else if !self.is_global(user) || !self.is_stored_by_first_lane(user)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether lane 0 of each row alone stores a tensor.
    fn is_stored_by_first_lane(&self, tv: TvId) -> Result<bool> {
        let foreign = self.scheduled.foreign_axes(tv)?.axes;
        let is_first = |own: &Loop| {
            own.parallel == ParallelType::Tidx && foreign.iter().any(|other| other.at_zero && other.axis == own.axis)
        };
        Ok(self.scheduled.tensors[tv].loops.iter().any(is_first))
    }

    /// Rows of threads along `y` that lie in one warp, where they fill warps.
    pub(super) fn rows_of_warp(&self) -> Result<i64> {
        let [x, y, z] = [
            self.block_dim(ParallelType::Tidx)?,
            self.block_dim(ParallelType::Tidy)?,
            self.block_dim(ParallelType::Tidz)?,
        ];
        let is_narrow = x < WARP && x & (x - 1) == 0 && y & (y - 1) == 0 && z == 1 && x * y >= WARP;
        Ok(if is_narrow { WARP / x } else { 1 })
    }

    /// Threads that combine what blocks have left for one result, where all blocks do: those along `x` of each warp for
    /// itself, since there is one value of each block, and of threads along `y` all.
    pub(super) fn combiners(&self, along: &[ParallelType]) -> Result<i64> {
        match along {
            [] => Ok(1),
            [ParallelType::Tidx] => Ok(self.block_dim(ParallelType::Tidx)?.min(WARP)),
            [other, ..] => self.block_dim(*other),
        }
    }

    /// Whether an axis is the innermost part of another one, divided by splits alone.
    pub(super) fn is_inner_part(&self, mut part: AxisId, of: Option<&AxisId>) -> bool {
        while Some(&part) != of {
            part = match self.scheduled.axes.def(part) {
                Some(Xform::Split { input, inner, .. }) if *inner == part => *input,
                _ => return false,
            };
        }
        true
    }

    /// Whether each run of `lanes` indices of an axis that begins at a multiple of them is one of another axis as well:
    /// both are parts, from multiples of the lanes on, of one dimension, or of merges with it innermost, in whose size the lanes
    /// go.
    pub(super) fn runs_together(&self, part: AxisId, other: AxisId, lanes: i64) -> bool {
        let of = self.innermost_dimension(part, lanes);
        of.is_some() && of == self.innermost_dimension(other, lanes)
    }

    fn innermost_dimension(&self, mut part: AxisId, lanes: i64) -> Option<AxisId> {
        loop {
            let Some(xform) = self.scheduled.axes.def(part) else { return Some(part) };
            part = match *xform {
                Xform::Split { input, inner, .. } if inner == part && self.divides(lanes, part) => input,
                Xform::Window { input, step, left, shift: None, .. }
                    if step.indices % lanes == 0 && left % lanes == 0 =>
                {
                    input
                }
                Xform::Merge { inner, .. } => {
                    return self.scheduled.axes.constant_size(inner).filter(|size| size % lanes == 0).map(|_| inner);
                }
                _ => return None,
            };
        }
    }

    fn divides(&self, lanes: i64, axis: AxisId) -> bool {
        self.scheduled.axes.constant_extent(axis).is_some_and(|extent| extent % lanes == 0)
    }

    /// Whether `b` is the maximum of `x` over `roots`, perhaps broadcast.
    pub(super) fn is_maximum_of(&self, b: TvId, x: TvId, roots: &BTreeSet<AxisId>) -> bool {
        let mut reduced = self.behind_moves(b);
        loop {
            let Some(TvOp { compute: Compute::Reduce { op: ReduceOp::Max, .. }, inputs }) =
                &self.scheduled.tensors[reduced].op
            else {
                return false;
            };
            let [TvOperand::Tv(from)] = *inputs.as_slice() else { return false };
            if self.scheduled.tensors[from].source != self.scheduled.tensors[reduced].source {
                // Copies for other users stem from the same tensor of the fusion.
                let source = |tv: TvId| self.scheduled.tensors[self.behind_moves(tv)].source;
                return self.reduced_roots(reduced) == *roots && source(from) == source(x);
            }
            // The last stage of a reduction that was split.
            reduced = self.behind_moves(from);
        }
    }

    /// The tensor that another one is only a copy of.
    pub(super) fn behind_moves(&self, tv: TvId) -> TvId {
        self.copied[tv].unwrap_or(tv)
    }
}

/// For each tensor that is a copy of another one in registers, the first of such
/// a chain of copies.
fn copies(scheduled: &ScheduledFusion) -> SecondaryMap<TvId, Option<TvId>> {
    let mut copied: SecondaryMap<TvId, Option<TvId>> = SecondaryMap::new();
    for tv in scheduled.topological() {
        if let Some(TvOp { compute: Compute::Copy, inputs }) = &scheduled.tensors[tv].op
            && let [TvOperand::Tv(from)] = *inputs.as_slice()
            && scheduled.tensors[from].memory != Memory::Global
            // Slices and reshapes have their elements at other indices.
            && scheduled.tensors[from].indexed().all(|axis| scheduled.tensors[tv].has_root(axis))
        {
            copied.set(tv, Some(copied[from].unwrap_or(from)));
        }
    }
    copied
}
