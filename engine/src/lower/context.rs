//! State of the emission of one kernel.

use super::alloc::{Array, Storage};
use super::facts::Facts;
use super::grid_reduce::Place;
use super::outside::Outside;
use super::scalars::Scalars;
use super::tree::SharedId;
use crate::axes::Offset;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ExprId, KernelBuilder};
use crate::schedule::{ArgClass, AxisId, Loop, ParallelType, ScheduledFusion, TvId};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that the emitting parts share.
pub(super) struct Lowering<'a> {
    pub(super) facts: &'a Facts<'a>,
    pub(super) scheduled: &'a ScheduledFusion,
    pub(super) class: &'a ArgClass,
    pub(super) b: KernelBuilder,
    /// The index of each axis that an open loop runs over.
    pub(super) bound: SecondaryMap<AxisId, Option<Bound>>,
    /// Extents of axes, as parameters or constants.
    pub(super) extents: SecondaryMap<AxisId, Option<ExprId>>,
    /// How far axes are moved, as parameters or constants.
    pub(super) offsets: BTreeMap<Offset, ExprId>,
    /// Scalars of the fusion as kernel expressions.
    pub(super) scalars: Scalars<'a>,
    /// Arrays: global tensors, and local ones that are more than one value.
    pub(super) buffers: SecondaryMap<TvId, Option<BufId>>,
    /// Arrays of shared memory that are declared.
    shared: SecondaryMap<SharedId, Option<BufId>>,
    /// Arrays that are loaded one iteration ahead.
    twins: SecondaryMap<TvId, Option<BufId>>,
    /// Values that are one variable in the loops that are open now.
    pub(super) values: SecondaryMap<TvId, Option<ExprId>>,
    /// What is known of values outside.
    pub(super) outside: Outside,
    /// The memory of values.
    pub(super) storage: Storage,
    /// The index at which the lookup that is made reads its table.
    pub(super) found: Option<ExprId>,
    /// Loads some of whose vectors reach outside.
    pub(super) partial: BTreeSet<TvId>,
    /// Where blocks and threads stand in the grid reduction at hand.
    pub(super) grid: Option<Place>,
    /// Scratch memory of grid reductions.
    pub(super) scratch: SecondaryMap<TvId, Option<BufId>>,
    /// Where a block leaves the number of those before it.
    pub(super) flag: Option<BufId>,
}

/// The index of an axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) index: ExprId,
    /// Whether it may reach the axis's extent.
    pub(super) overflows: bool,
    /// Whether it may be less than 0.
    pub(super) below: bool,
}

impl Bound {
    /// An index that is one of its axis.
    pub(super) fn inside(index: ExprId) -> Self {
        Self { index, overflows: false, below: false }
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn new(facts: &'a Facts<'a>, name: &str, outside: Outside, storage: Storage) -> Self {
        Self {
            facts,
            scheduled: facts.scheduled,
            class: facts.class,
            b: KernelBuilder::new(name, facts.class.index_type()),
            bound: SecondaryMap::new(),
            extents: SecondaryMap::new(),
            offsets: BTreeMap::new(),
            scalars: Scalars::new(&facts.scheduled.fusion, facts.class),
            buffers: SecondaryMap::new(),
            shared: SecondaryMap::new(),
            twins: SecondaryMap::new(),
            values: SecondaryMap::new(),
            outside,
            storage,
            found: None,
            partial: BTreeSet::new(),
            grid: None,
            scratch: SecondaryMap::new(),
            flag: None,
        }
    }

    /// The local array of a tensor, declared on first use.
    pub(super) fn local_array(&mut self, tv: TvId) -> Result<BufId> {
        if let Some(buffer) = self.buffers[tv] {
            return Ok(buffer);
        }
        let data = &self.scheduled.tensors[tv];
        let buffer = match self.storage.arrays[tv] {
            Some(Array::Registers(len)) => self.b.local(identifier(&data.name), data.dtype, len),
            Some(Array::PerThread(shared) | Array::Tile(shared)) => self.shared_array(shared),
            None => return Err(Diagnostic::bug(format!("{} has no memory in a block", data.name))),
        };
        self.buffers.set(tv, Some(buffer));
        Ok(buffer)
    }

    /// An array of shared memory, declared on first use.
    pub(super) fn shared_array(&mut self, id: SharedId) -> BufId {
        if let Some(buffer) = self.shared[id] {
            return buffer;
        }
        let shared = &self.storage.shared[id];
        let buffer = self.b.shared(shared.name.clone(), shared.dtype, shared.len, shared.align);
        self.shared.set(id, Some(buffer));
        buffer
    }

    /// Declares a tensor's array and its twin.
    pub(super) fn declare_twin(&mut self, tv: TvId) -> Result<()> {
        let array = self.local_array(tv)?;
        let data = &self.scheduled.tensors[tv];
        let len = self.b.buffer(array).len;
        let unknown = || Diagnostic::bug(format!("the array of {} has no constant length", data.name));
        let len = self.b.exprs().as_int(len).ok_or_else(unknown)?;
        let twin = self.b.local(format!("{}_next", identifier(&data.name)), data.dtype, len);
        self.twins.set(tv, Some(twin));
        Ok(())
    }

    pub(super) fn twin(&self, tv: TvId) -> Result<BufId> {
        self.twins[tv].ok_or_else(|| Diagnostic::bug(format!("{} has no twin", self.scheduled.tensors[tv].name)))
    }

    /// The element of a local tensor's array in the loops that are open now:
    /// `((i0 * n1 + i1) * n2 + i2) ...` over its array loops, and in shared memory
    /// over the threads of the block, so that neighbours do not meet in a bank. Stages of a ring
    /// are outermost, and the lanes of vectors innermost, since they are moved together.
    pub(super) fn array_index(&mut self, tv: TvId) -> Result<ExprId> {
        let array = self.storage.arrays[tv];
        let stage = self.stage(tv)?;
        if let Some(Array::Tile(shared)) = array {
            let index = self.tile_index(tv)?;
            let Some((stage, stages)) = stage else { return Ok(index) };
            let len = self.b.int(self.storage.shared[shared].len / stages);
            let start = self.b.exprs().mul(stage, len);
            return Ok(self.b.exprs().add(start, index));
        }
        let mut loops = self.facts.array_loops(tv);
        let lanes = self.facts.lanes_together(tv);
        loops.truncate(loops.len() - usize::from(lanes.is_some()));
        let mut index = stage.map_or_else(|| self.b.int(0), |(stage, _)| stage);
        for own in loops {
            index = self.index_within(index, own)?;
        }
        if matches!(array, Some(Array::PerThread(_))) {
            for parallel in [ParallelType::Tidz, ParallelType::Tidy, ParallelType::Tidx] {
                let extent = self.facts.block_dim(parallel)?;
                if extent > 1 {
                    let (extent, position) = (self.b.int(extent), self.launch_index(parallel)?);
                    let scaled = self.b.exprs().mul(index, extent);
                    index = self.b.exprs().add(scaled, position);
                }
            }
        }
        lanes.map_or(Ok(index), |own| self.index_within(index, own))
    }

    /// `index * extent + position` of a loop that is open, or of a part of one.
    fn index_within(&mut self, index: ExprId, own: Loop) -> Result<ExprId> {
        let extent = self.facts.constant_extent(own.axis)?;
        let extent = self.b.int(extent);
        let position = self.index_of(own.axis)?;
        let scaled = self.b.exprs().mul(index, extent);
        Ok(self.b.exprs().add(scaled, position))
    }

    /// The stage of a ring in the iteration that is open, `i mod stages`, and the number of stages.
    fn stage(&mut self, tv: TvId) -> Result<Option<(ExprId, i64)>> {
        let Some(own) = self.facts.ring_loop(tv) else { return Ok(None) };
        let data = &self.scheduled.tensors[tv];
        if data.is_refilled() {
            return Ok(None);
        }
        let stages = i64::from(data.stages);
        let (iteration, count) = (self.leaf(own.axis)?, self.b.int(stages));
        Ok(Some((self.b.exprs().rem(iteration, count), stages)))
    }

    /// The index of a leaf that an open loop binds.
    pub(super) fn leaf(&self, leaf: AxisId) -> Result<ExprId> {
        self.bound[leaf]
            .map(|bound| bound.index)
            .ok_or_else(|| Diagnostic::bug(format!("no open loop binds axis {}", self.scheduled.axes[leaf].name)))
    }

    /// Sets the origin of the statements that follow.
    pub(super) fn origin(&mut self, tv: TvId, pass: &'static str) {
        self.b.set_origin(Some(self.scheduled.tensors[tv].source), pass);
    }
}

/// A C identifier for a tensor's name: decimal names get a letter.
pub(crate) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, 'T');
    }
    text
}
