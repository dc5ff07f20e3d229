//! The data of a scheduled fusion.

#![allow(missing_docs, reason = "fields of a variant are described by the variant")]

use crate::axes::{AxisGraph, AxisId, AxisRef, Derivation, ShiftId, Xform};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{Fusion, OpKind, Operand, ScalarId, TensorId};
use crate::kernel::CacheHint;
use crate::num::philox::Distribution;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};
use crate::util::{PrimaryMap, SecondaryMap, entity_id};
use std::collections::{BTreeMap, BTreeSet};

entity_id!(
    /// A tensor of the scheduled fusion.
    pub struct TvId, "T"
);

/// A fusion with a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledFusion {
    /// The program it computes; scalars and names refer to it.
    pub fusion: Fusion,
    /// All axes, and how they derive from each other.
    pub axes: AxisGraph,
    /// The shifts of aligned axes.
    pub shifts: PrimaryMap<ShiftId, RowShift>,
    /// What runs over an axis in the loops that tensors are given together.
    pub bindings: SecondaryMap<AxisId, ParallelType>,
    /// All tensors: those of the fusion, caches and partial reductions.
    pub tensors: PrimaryMap<TvId, Tv>,
    /// Blocks that should fit a multiprocessor at once, for the register budget.
    pub min_blocks: u32,
    /// The primitives that were applied.
    pub steps: Vec<Step>,
}

/// What runs over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParallelType {
    /// A loop.
    #[default]
    Serial,
    /// A loop that is unrolled; the extent is constant.
    Unroll,
    /// One wide access where memory allows, an unrolled loop elsewhere.
    Vectorize,
    /// `threadIdx.x`
    Tidx,
    /// `threadIdx.y`
    Tidy,
    /// `threadIdx.z`
    Tidz,
    /// `blockIdx.x`
    Bidx,
    /// `blockIdx.y`
    Bidy,
    /// `blockIdx.z`
    Bidz,
}

impl ParallelType {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Serial,
        Self::Unroll,
        Self::Vectorize,
        Self::Tidx,
        Self::Tidy,
        Self::Tidz,
        Self::Bidx,
        Self::Bidy,
        Self::Bidz,
    ];
    /// The name in printed schedules.
    pub const fn name(self) -> &'static str {
        match self {
            ParallelType::Serial => "serial",
            ParallelType::Unroll => "unroll",
            ParallelType::Vectorize => "vectorize",
            ParallelType::Tidx => "block_x",
            ParallelType::Tidy => "block_y",
            ParallelType::Tidz => "block_z",
            ParallelType::Bidx => "grid_x",
            ParallelType::Bidy => "grid_y",
            ParallelType::Bidz => "grid_z",
        }
    }
    /// Whether indices are threads of a block.
    pub const fn is_thread(self) -> bool {
        matches!(self, ParallelType::Tidx | ParallelType::Tidy | ParallelType::Tidz)
    }
    /// Whether indices are blocks of the grid.
    pub const fn is_block(self) -> bool {
        matches!(self, ParallelType::Bidx | ParallelType::Bidy | ParallelType::Bidz)
    }
    /// Whether there is a loop to emit.
    pub const fn is_loop(self) -> bool {
        !self.is_thread() && !self.is_block()
    }
}

/// By how much rows are shifted: the linear offset of `reference` at index 0 of the
/// shifted axis, modulo the vector. With `rows`, the reference is one dense run over that
/// axis outside the shifted one, so the shift depends on the row's index modulo the
/// vector only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShift {
    /// The tensor in global memory whose rows are aligned.
    pub reference: TvId,
    /// The axis of rows.
    pub rows: Option<AxisId>,
}

/// A loop of a tensor: an axis, and what runs over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loop {
    /// The axis.
    pub axis: AxisId,
    /// What runs over it.
    pub parallel: ParallelType,
}

/// Where a tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Memory {
    /// Device memory: fusion inputs and outputs, and what one phase of a kernel leaves to the next.
    Global,
    /// Memory of a block.
    Shared,
    /// Registers of a thread.
    Local,
}

impl Memory {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Global, Self::Shared, Self::Local];
    /// The name in printed schedules.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Shared => "shared",
            Self::Local => "local",
        }
    }
}

/// A tensor's place among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Io {
    /// `fusion.inputs[n]`.
    Input(u32),
    /// `fusion.outputs[n]`.
    Output(u32),
}

/// A tensor of the scheduled fusion and the operation that defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tv {
    /// Unique name: the fusion's, with a suffix for caches and partial results.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Logical axes, outer to inner.
    pub axes: Vec<AxisRef>,
    /// Leaves over which a partial reduction still has an element each.
    pub partial: Vec<AxisId>,
    /// Its place among the arguments.
    pub io: Option<Io>,
    /// The tensor of the fusion that it stems from.
    pub source: TensorId,
    /// Where it lives.
    pub memory: Memory,
    /// Its elements in shared memory, where all threads of a block reach them; none where each
    /// thread has elements of its own.
    pub tile: Option<Tile>,
    /// How it is computed; none for inputs.
    pub op: Option<TvOp>,
    /// Loops, outer to inner.
    pub loops: Vec<Loop>,
    /// Number of outer loops shared with the consumers, around what holds the value.
    pub inline_at: usize,
    /// Number of outer loops shared with the first consumer, where it is computed: more than with
    /// all of them, or none.
    pub compute_with: usize,
    /// Of what is loaded ahead, the iterations of the innermost shared loop that have a place at once: the elements of
    /// one are loaded while those of the ones before are in use, and with one place as soon as the element
    /// that lay there has been read for the last time. 0 for all others.
    pub stages: u32,
    /// Which caches its accesses to global memory use.
    pub cache_hint: CacheHint,
}

impl Tv {
    /// The same as a value in registers that is placed nowhere yet.
    pub(super) fn in_registers(self) -> Self {
        Self { memory: Memory::Local, io: None, tile: None, inline_at: 0, compute_with: 0, stages: 0, ..self }
    }

    /// The number of outer loops in which it is computed that are those of who reads it.
    pub fn computed_at(&self) -> usize {
        self.inline_at.max(self.compute_with)
    }

    /// Whether it lies in shared memory in stages, which asynchronous copies fill in turn.
    pub fn is_ring(&self) -> bool {
        self.memory == Memory::Shared && self.stages > 0
    }

    /// Whether it is a ring of one stage, where each element of the next iteration follows upon this one's.
    pub fn is_refilled(&self) -> bool {
        self.is_ring() && self.stages == 1
    }

    /// By how many iterations elements are loaded before their use.
    pub fn iterations_ahead(&self) -> u32 {
        self.stages.saturating_sub(1).max(u32::from(self.is_refilled()))
    }

    /// Whether an axis is one of the tensor's loops.
    pub fn has_loop(&self, axis: AxisId) -> bool {
        self.loops.iter().any(|own| own.axis == axis)
    }

    /// The axes of the tensor's loops.
    pub fn loop_axes(&self) -> impl DoubleEndedIterator<Item = AxisId> + ExactSizeIterator {
        self.loops.iter().map(|own| own.axis)
    }

    /// Whether the tensor has an element for each index of a root axis.
    pub fn has_root(&self, root: AxisId) -> bool {
        self.indexed().any(|axis| axis == root)
    }

    /// The axes along which the tensor has an element for each index, outer to inner.
    pub fn indexed(&self) -> impl Iterator<Item = AxisId> {
        self.axes.iter().filter_map(|axis| axis.indexed())
    }
}

/// Elements of a tensor in shared memory, by axes of constant extent, outer to inner.
///
/// `offset = outer * n + column(outer, inner)` over the innermost axis and those around it, with `n` indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The axes.
    pub axes: Vec<AxisId>,
    /// Where in its row an element lies.
    pub columns: Columns,
}

/// Where an element of a row of a tile lies in it, so that a column of rows lies in different
/// banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Columns {
    /// At its index.
    InOrder,
    /// Moved on with the row: `(inner + by * (outer / every)) mod n`, by less than a row each time.
    Rotated { by: i64, every: i64 },
    /// Moved on with the row, rows behind it too: `inner + by * (outer / every)`, by a row at most each time. So elements that are a
    /// constant number of rows and columns apart are a constant number of places apart, if of rows whole times `every`.
    Skewed { by: i64, every: i64 },
    /// Groups of [`MAX_ACCESS_BYTES`](crate::kernel::MAX_ACCESS_BYTES) change places, `g` of them with
    /// `g ^ (outer / every mod groups)`: a power of two of groups, of which a row is a multiple.
    Swizzled { groups: i64, every: i64 },
}

impl Columns {
    /// Places of a tile of so many rows of so many elements; none if they are too many to count.
    pub fn places(self, rows: i64, row: i64) -> Option<i64> {
        let moved = match self {
            Self::Skewed { by, every } => by.checked_mul((rows - 1).max(0) / every)?,
            Self::InOrder | Self::Rotated { .. } | Self::Swizzled { .. } => 0,
        };
        rows.checked_mul(row)?.checked_add(moved)
    }
}

/// How a tensor is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TvOp {
    /// The operation.
    pub compute: Compute,
    /// What it reads.
    pub inputs: Vec<TvOperand>,
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TvOperand {
    /// A tensor.
    Tv(TvId),
    /// A scalar of the fusion.
    Scalar(ScalarId),
}

/// An operation on elements. Moves of axes (broadcast, squeeze, permute) are
/// copies here: axes are matched by root, not by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compute {
    /// One operand.
    Unary(UnaryOp),
    /// Two operands.
    Binary(BinaryOp),
    /// Three operands.
    Ternary(TernaryOp),
    /// `exp(a - b)` of an element and the maximum of those among which it is. Where the sum of all is a count of those that
    /// are near the maximum, it is approximated.
    ExpBelow { counts: bool },
    /// Conversion to the tensor's type.
    Cast,
    /// The operand, or a scalar everywhere. A slice or a reshape of it too: loops give the axes of
    /// both their indices.
    Copy,
    /// The first of the operands whose axes have an index here, as far as there are any in `within`; else
    /// the next operand, or 0 if there is none. What is padded or joined.
    Join { within: Vec<Vec<AxisId>> },
    /// The element of the first operand, which is in global memory, that the second one says: along its
    /// [`AxisRef::Indirect`] axis at that index, along the others where loops are.
    Lookup,
    /// The position along a root axis; 0 along one of size 1.
    Index { root: Option<AxisId> },
    /// Random numbers by element, counted in row-major order. Operands: the
    /// distribution's two parameters, seed and offset.
    Random(Distribution),
    /// Combination over `over`: root axes, or leaves once split by `rfactor`.
    Reduce { op: ReduceOp, over: Vec<AxisId> },
}

/// A recorded primitive. Tensors and axes are named, so that a schedule reads
/// and compares as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Split {
        axis: String,
        factor: i64,
        count: Option<i64>,
        exact: bool,
    },
    AtLeast {
        axis: String,
        least: i64,
    },
    SplitParts {
        axis: String,
        places: i64,
        beside: Option<String>,
        exact: bool,
    },
    SplitTurns {
        axis: String,
        places: i64,
        beside: Option<String>,
    },
    Merge {
        outer: String,
        inner: String,
    },
    Align {
        axis: String,
        vector: i64,
        reference: String,
        rows: Option<String>,
    },
    Window {
        axis: String,
        outer: String,
        step: i64,
        width: i64,
        left: i64,
        /// The vector and the tensor to whose rows windows are aligned.
        aligned: Option<(i64, String)>,
    },
    WindowsBeside {
        axis: String,
        outer: String,
        indices: i64,
        of: String,
    },
    CircularBuffer {
        tensor: String,
        stages: u32,
    },
    MinBlocks(u32),
    SetCacheHint {
        tensor: String,
        hint: CacheHint,
    },
    Parallelize {
        axis: String,
        parallel: ParallelType,
    },
    CacheAfter {
        tensor: String,
    },
    CacheBefore {
        tensor: String,
    },
    CacheFork {
        tensor: String,
        consumers: Vec<String>,
    },
    Rfactor {
        tensor: String,
        axes: Vec<String>,
    },
    RfactorMax {
        tensor: String,
        axes: Vec<String>,
    },
    SetMemory {
        tensor: String,
        memory: Memory,
    },
    /// Of one tensor, or of every one.
    Reorder {
        tensor: Option<String>,
        axes: Vec<String>,
    },
    InlineAt {
        tensor: String,
        position: usize,
    },
    ComputeWith {
        tensor: String,
        position: usize,
    },
    PhaseAfter {
        tensor: String,
    },
    /// Recorded as what it stands for: an `InlineAt` of each tensor.
    InlineMost {
        keep: Vec<(String, usize)>,
    },
    Loops {
        tensor: String,
        loops: Vec<(String, ParallelType)>,
    },
    Alloc {
        tensor: String,
        axes: Vec<String>,
        columns: Columns,
    },
    Propagate {
        order: Vec<String>,
    },
    RecomputeIn {
        tensor: String,
        axis: String,
    },
}

impl ScheduledFusion {
    /// Whether what a thread holds of a tensor varies along a leaf: the tensor
    /// has a dimension there, or one that is aligned by an amount that varies.
    pub fn depends(&self, tv: TvId, leaf: AxisId) -> bool {
        let data = &self.tensors[tv];
        let follows = |axis: AxisId| match self.axes.has_program_xforms() {
            // By way of the program's transforms axes may derive from each other in a circle.
            true => self.loops_behind(&[axis], &data.loop_axes().collect::<Vec<_>>()).contains(&leaf),
            false => self.axes.derives_from(leaf, axis),
        };
        data.partial.contains(&leaf)
            || data.indexed().any(|axis| follows(axis) || self.shift_varies(axis, leaf, |_| true))
    }

    /// Those of some loops that a tensor would depend on.
    pub(super) fn depends_among(&self, tv: TvId, loops: &[AxisId]) -> Vec<AxisId> {
        let data = &self.tensors[tv];
        let axes: Vec<AxisId> = data.indexed().collect();
        let behind = match self.axes.has_program_xforms() {
            true => self.loops_behind(&axes, loops),
            false => BTreeSet::new(),
        };
        let depends = |leaf: &AxisId| match self.axes.has_program_xforms() {
            true => {
                let varies = || axes.iter().any(|axis| self.shift_varies(*axis, *leaf, |_| true));
                behind.contains(leaf) || data.partial.contains(leaf) || varies()
            }
            false => self.depends(tv, *leaf),
        };
        loops.iter().copied().filter(depends).collect()
    }

    /// Those of some loops on which the indices of axes depend.
    fn loops_behind(&self, axes: &[AxisId], loops: &[AxisId]) -> BTreeSet<AxisId> {
        if axes.is_empty() {
            return BTreeSet::new();
        }
        let derivation = Derivation::new(&self.axes, loops.iter().copied());
        axes.iter().flat_map(|axis| derivation.loops_of(&self.axes, *axis)).collect()
    }

    /// Whether the amount by which a root is aligned varies along a leaf, by a transform whose
    /// result is used.
    pub fn shift_varies(&self, root: AxisId, leaf: AxisId, is_used: impl Fn(AxisId) -> bool) -> bool {
        self.merges_of(root).into_iter().any(|axis| {
            self.axes.uses(axis).any(|xform| match *xform {
                Xform::Align { output, vector, shift, .. } => {
                    is_used(output) && self.shift_varies_by(axis, leaf, vector, self.shifts[shift])
                }
                _ => false,
            })
        })
    }

    /// An axis, and what it was merged to, is a part of or has as a part, and so on.
    fn merges_of(&self, axis: AxisId) -> Vec<AxisId> {
        let mut all = vec![axis];
        let mut at = 0;
        while let Some(axis) = all.get(at).copied() {
            at += 1;
            let made = self.axes.uses(axis).filter_map(|xform| match *xform {
                Xform::Merge { output, .. } | Xform::Resize { output, .. } => Some(output),
                _ => None,
            });
            let parts = self.axes.defs(axis).filter_map(|xform| match *xform {
                Xform::Resize { input, .. } => Some(input),
                _ => None,
            });
            let more: Vec<AxisId> = made.chain(parts).filter(|axis| !all.contains(axis)).collect();
            all.extend(more);
        }
        all
    }

    /// The dimensions of a tensor that an axis is, or that were merged to it, outer to inner; none if it
    /// is made of anything else.
    pub fn dimensions_of(&self, tv: TvId, axis: AxisId) -> Option<Vec<AxisId>> {
        let (mut found, mut open) = (Vec::new(), vec![axis]);
        while let Some(axis) = open.pop() {
            if self.tensors[tv].has_root(axis) {
                found.push(axis);
                continue;
            }
            match self.axes.def(axis) {
                Some(Xform::Merge { outer, inner, .. }) => open.extend([*inner, *outer]),
                _ => return None,
            }
        }
        Some(found)
    }

    fn shift_varies_by(&self, root: AxisId, leaf: AxisId, vector: i64, shift: RowShift) -> bool {
        let own = self.dimensions_of(shift.reference, root).unwrap_or_default();
        let in_rows = self.tensors[shift.reference]
            .indexed()
            .any(|axis| !own.contains(&axis) && self.axes.derives_from(leaf, axis));
        in_rows && shift.rows.is_none_or(|rows| self.step_of(leaf, rows).is_none_or(|step| step % vector != 0))
    }

    /// How many indices of `axis` one index of a leaf steps over, if the leaf
    /// derives from the axis by splits alone.
    fn step_of(&self, leaf: AxisId, axis: AxisId) -> Option<i64> {
        let (mut current, mut step) = (leaf, 1i64);
        while current != axis {
            match *self.axes.def(current)? {
                Xform::Split { input, outer, inner, .. } => {
                    if current == outer {
                        step = step.saturating_mul(self.axes.constant_extent(inner)?);
                    }
                    current = input;
                }
                _ => return None,
            }
        }
        Some(step)
    }

    /// What a reduction combines over: those of its loops, or the leaves of its axes
    /// before it has loops; empty for other tensors.
    pub fn reduced_leaves(&self, tv: TvId) -> Vec<AxisId> {
        let data = &self.tensors[tv];
        match data.loops.is_empty() {
            true => self.reduced_parts(tv, |axis| self.axes.leaves(axis)),
            false => self.reduced_in(tv, &data.loop_axes().collect::<Vec<_>>()),
        }
    }

    /// The same of some loops.
    pub(super) fn reduced_in(&self, tv: TvId, loops: &[AxisId]) -> Vec<AxisId> {
        let is_loop = |axis: AxisId| loops.contains(&axis);
        self.reduced_parts(tv, |axis| {
            if !self.axes.has_program_xforms() || self.axes.covers(axis, &is_loop) {
                return self.axes.loops_of(axis, is_loop);
            }
            let behind = self.loops_behind(&[axis], loops);
            loops.iter().copied().filter(|own| behind.contains(own)).collect()
        })
    }

    /// Parts of the axes that a reduction combines over, each once: roots that were merged share theirs.
    fn reduced_parts(&self, tv: TvId, parts: impl Fn(AxisId) -> Vec<AxisId>) -> Vec<AxisId> {
        let Some(TvOp { compute: Compute::Reduce { over, .. }, .. }) = &self.tensors[tv].op else { return Vec::new() };
        let mut leaves: Vec<AxisId> = Vec::new();
        for leaf in over.iter().flat_map(|axis| parts(*axis)) {
            if !leaves.contains(&leaf) {
                leaves.push(leaf);
            }
        }
        leaves
    }

    /// What runs over an axis in the loops of a tensor; none if it is no loop of the tensor.
    pub fn parallel_of(&self, tv: TvId, axis: AxisId) -> Option<ParallelType> {
        self.tensors[tv].loops.iter().find(|own| own.axis == axis).map(|own| own.parallel)
    }

    /// The axes behind each place in the launch: of threads one of those of one length that take turns there,
    /// of blocks each that tensors bind, of which the longest says how many there are. Inputs have loops
    /// as well, though nothing computes them.
    pub fn launch_axes(&self) -> Result<BTreeMap<ParallelType, Vec<AxisId>>> {
        let mut places: BTreeMap<ParallelType, Vec<AxisId>> = BTreeMap::new();
        for own in self.tensors.values().flat_map(|data| &data.loops).filter(|own| !own.parallel.is_loop()) {
            let known = places.entry(own.parallel).or_default();
            if known.contains(&own.axis) {
                continue;
            }
            if let (Some(first), true) = (known.first(), own.parallel.is_thread()) {
                let threads = [*first, own.axis].map(|axis| self.axes.constant_extent(axis));
                if threads[0] == threads[1] {
                    continue;
                }
                let [first, other] = [*first, own.axis].map(|axis| &self.axes[axis].name);
                let message = format!("{} is bound to {first} and to {other}", own.parallel.name());
                return Err(Diagnostic::unsupported(code::SCHEDULE_VERB, message)
                    .note("tensors may share threads along axes of one constant length"));
            }
            known.push(own.axis);
        }
        Ok(places)
    }

    /// Whether a tensor lies in memory of the device that a call has for it alone.
    pub fn is_workspace(&self, tv: TvId) -> bool {
        let data = &self.tensors[tv];
        data.memory == Memory::Global && data.io.is_none()
    }

    /// The table of a lookup in global memory, and the tensor that holds its index; none of other tensors.
    pub fn lookup_of(&self, tv: TvId) -> Option<(TvId, TvId)> {
        match &self.tensors[tv].op {
            Some(TvOp { compute: Compute::Lookup, inputs }) => match *inputs.as_slice() {
                [TvOperand::Tv(table), TvOperand::Tv(index)] => Some((table, index)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The lookup that reads a tensor as its table, if one does.
    pub fn lookup_in(&self, table: TvId) -> Option<TvId> {
        self.tensors.ids().find(|tv| self.lookup_of(*tv).is_some_and(|(read, _)| read == table))
    }

    /// Whether a tensor is a reduction.
    pub fn is_reduction(&self, tv: TvId) -> bool {
        matches!(&self.tensors[tv].op, Some(TvOp { compute: Compute::Reduce { .. }, .. }))
    }

    /// Whether a tensor is reduced by [`ReduceOp::MaxSumExp`].
    pub fn reduces_pairs(&self, tv: TvId) -> bool {
        let op = self.tensors[tv].op.as_ref().map(|op| &op.compute);
        matches!(op, Some(Compute::Reduce { op: ReduceOp::MaxSumExp, .. }))
    }

    /// Whether it is reduced so of pairs `(x, 1)`, or is a part of that.
    pub fn counts_pairs(&self, tv: TvId) -> bool {
        let fusion = &self.fusion;
        let made = |tensor: TensorId| fusion.definition(tensor).map(|op| &fusion.ops[op]);
        let Some(op) = made(self.tensors[tv].source) else { return false };
        let OpKind::Reduce { op: ReduceOp::MaxSumExp, .. } = op.kind else { return false };
        let Some(Operand::Tensor(pairs)) = op.inputs.first() else { return false };
        let is_one = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => fusion.const_scalar(scalar).is_some_and(|value| value.as_f64() == 1.0),
            Operand::Tensor(_) => false,
        };
        made(*pairs).is_some_and(|made| made.kind == OpKind::Binary(BinaryOp::Complex) && is_one(&made.inputs[1]))
    }

    /// Tensor operands.
    pub fn producers(&self, tv: TvId) -> Vec<TvId> {
        let Some(op) = &self.tensors[tv].op else { return Vec::new() };
        op.inputs
            .iter()
            .filter_map(|operand| match operand {
                TvOperand::Tv(tv) => Some(*tv),
                TvOperand::Scalar(_) => None,
            })
            .collect()
    }

    /// For each tensor those that read it, in id order: in one pass, for who asks
    /// for all of them.
    pub fn all_consumers(&self) -> SecondaryMap<TvId, Vec<TvId>> {
        let mut consumers: SecondaryMap<TvId, Vec<TvId>> = SecondaryMap::new();
        for tv in self.tensors.ids() {
            for producer in self.producers(tv) {
                if consumers[producer].last() != Some(&tv) {
                    consumers[producer].push(tv);
                }
            }
        }
        consumers
    }

    /// The tensors that read a tensor, in id order.
    pub fn consumers(&self, tv: TvId) -> Vec<TvId> {
        let read = |operand: &TvOperand| matches!(operand, TvOperand::Tv(read) if *read == tv);
        let reads = |data: &Tv| data.op.as_ref().is_some_and(|op| op.inputs.iter().any(read));
        self.tensors.iter().filter(|(_, data)| reads(data)).map(|(consumer, _)| consumer).collect()
    }

    /// All tensors, definitions before uses, as sweeps in id order meet them: a
    /// tensor stands in the first sweep in which its operands were met.
    pub fn topological(&self) -> Vec<TvId> {
        let consumers = self.all_consumers();
        let mut waiting: SecondaryMap<TvId, usize> = SecondaryMap::new();
        for consumer in self.tensors.ids().flat_map(|tv| &consumers[tv]) {
            waiting[*consumer] += 1;
        }
        let mut sweep: SecondaryMap<TvId, usize> = SecondaryMap::new();
        let mut met: Vec<TvId> = self.tensors.ids().filter(|tv| waiting[*tv] == 0).collect();
        // What a cycle holds back is never met. It cannot be built; lowering
        // reports the missing tensors.
        let mut at = 0;
        while let Some(&tv) = met.get(at) {
            at += 1;
            for &consumer in &consumers[tv] {
                sweep[consumer] = sweep[consumer].max(sweep[tv] + usize::from(tv > consumer));
                waiting[consumer] -= 1;
                if waiting[consumer] == 0 {
                    met.push(consumer);
                }
            }
        }
        met.sort_unstable_by_key(|tv| (sweep[*tv], *tv));
        met
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{ScheduleBuilder, scheduled_fusion};

    /// Repeated sweeps in id order over what is not met yet.
    fn sweeps(scheduled: &ScheduledFusion) -> Vec<TvId> {
        let mut order: Vec<TvId> = Vec::new();
        while order.len() < scheduled.tensors.len() {
            for tv in scheduled.tensors.ids() {
                if !order.contains(&tv) && scheduled.producers(tv).iter().all(|producer| order.contains(producer)) {
                    order.push(tv);
                }
            }
        }
        order
    }

    fn check(scheduled: &ScheduledFusion) {
        assert_eq!(scheduled.topological(), sweeps(scheduled));
        let consumers = scheduled.all_consumers();
        assert!(scheduled.tensors.ids().all(|tv| consumers[tv] == scheduled.consumers(tv)));
    }

    #[test]
    fn tensors_are_met_in_sweeps() {
        let text = "fusion @f(%x: f32[?, ?], %y: f32[?, ?]) {\n  %0 = softmax %x axis(1)\n  %1 = mul %0, %0\n  \
                    %2 = add %1, %y\n  %3 = sub %2, %0\n  return %3, %1\n}";
        crate::property::property(|u| {
            let fusion = crate::text::parse_one(text).expect("the text is right");
            let mut builder = ScheduleBuilder::new(scheduled_fusion(&fusion).expect("it has kernels"));
            for _ in 0..u.int_in_range(0..=12)? {
                let tensors: Vec<TvId> = builder.state().tensors.ids().collect();
                let tv = *u.choose(&tensors)?;
                let users = builder.state().consumers(tv);
                // New tensors stand last, before users with lower ids.
                match users.is_empty() {
                    true => continue,
                    false if u.arbitrary()? => builder.cache_after(tv),
                    false => builder.cache_fork(tv, &[*u.choose(&users)?]),
                }
                .expect("something reads it");
                check(builder.state());
            }
            check(builder.state());
            Ok(())
        });
    }
}
