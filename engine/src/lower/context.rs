//! State of one lowering.

use super::exchange::{Exchange, Sharing};
use super::fill::copies;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ScalarId;
use crate::kernel::{BufId, ExprId, KernelBuilder};
use crate::num::{DType, ReduceOp};
use crate::schedule::{ArgClass, AxisId, Loop, Memory, ParallelType, ScheduledFusion, TvId};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// Tiles are read and written by wide accesses.
const TILE_ALIGN: u32 = 16;

/// Everything that the emitting parts share.
pub(super) struct Lowering<'a> {
    pub(super) scheduled: &'a ScheduledFusion,
    /// For each tensor those that read it.
    pub(super) consumers: SecondaryMap<TvId, Vec<TvId>>,
    pub(super) class: &'a ArgClass,
    pub(super) b: KernelBuilder,
    /// The index of each axis that an open loop runs over.
    pub(super) leaf_index: SecondaryMap<AxisId, Option<ExprId>>,
    /// Extents of axes, as parameters or constants.
    pub(super) extents: SecondaryMap<AxisId, Option<ExprId>>,
    /// Scalars of the fusion as kernel expressions.
    pub(super) scalars: SecondaryMap<ScalarId, Option<ExprId>>,
    /// Arrays: global tensors, and local ones that are more than one value.
    pub(super) buffers: SecondaryMap<TvId, Option<BufId>>,
    /// Values that are one variable in the loops that are open now.
    pub(super) values: SecondaryMap<TvId, Option<ExprId>>,
    /// Block axes over which only the last block goes on.
    pub(super) last_block: BTreeSet<AxisId>,
    /// The axis behind each place in the launch; of several that take turns there, one.
    pub(super) places: BTreeMap<ParallelType, AxisId>,
    /// The reduction whose neutral element fills registers outside the tensor.
    pub(super) fill: Option<ReduceOp>,
    /// Accumulations that the fill makes harmless outside.
    pub(super) untested: BTreeSet<TvId>,
    /// Loads whose vectors reach outside and need a fix-up.
    pub(super) to_fix: BTreeSet<TvId>,
    /// The load whose fix-up is being emitted.
    pub(super) fixing: Option<TvId>,
    /// The leaf whose index is one iteration ahead, while a prefetch is emitted.
    pub(super) ahead: Option<AxisId>,
    /// The counter of the only open loop that runs more than once, if there is just one.
    pub(super) repeat: Option<ExprId>,
    /// Whether all lanes of the vector at hand are known to be inside.
    pub(super) all_lanes_inside: bool,
    /// For each copy of another tensor in registers, that tensor.
    pub(super) copied: SecondaryMap<TvId, Option<TvId>>,
    /// Number of loops open now that run more than once.
    pub(super) open_loops: u32,
    /// Tiles that were written, and are not to be read before a barrier.
    pub(super) unsettled_tiles: BTreeSet<TvId>,
    /// Shared memory through which threads exchange values.
    pub(super) exchange: Exchange,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        scheduled: &'a ScheduledFusion,
        class: &'a ArgClass,
        name: &str,
        sharing: Sharing,
    ) -> Result<Self> {
        let index_type = if class.index64 { DType::I64 } else { DType::I32 };
        Ok(Self {
            scheduled,
            consumers: scheduled.all_consumers(),
            class,
            b: KernelBuilder::new(name, index_type),
            leaf_index: SecondaryMap::new(),
            extents: SecondaryMap::new(),
            scalars: SecondaryMap::new(),
            buffers: SecondaryMap::new(),
            values: SecondaryMap::new(),
            last_block: BTreeSet::new(),
            places: places(scheduled)?,
            fill: None,
            untested: BTreeSet::new(),
            to_fix: BTreeSet::new(),
            fixing: None,
            ahead: None,
            repeat: None,
            all_lanes_inside: false,
            copied: copies(scheduled),
            open_loops: 0,
            unsettled_tiles: BTreeSet::new(),
            exchange: Exchange::new(sharing),
        })
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

    /// The local array of a tensor, declared on first use.
    pub(super) fn local_array(&mut self, tv: TvId) -> Result<BufId> {
        if let Some(buffer) = self.buffers[tv] {
            return Ok(buffer);
        }
        let mut len = 1;
        if self.scheduled.tensors[tv].tile.is_none() {
            for own in self.array_loops(tv) {
                len *= self.constant_extent(own.axis)?;
            }
        }
        let data = &self.scheduled.tensors[tv];
        let name = identifier(&data.name);
        let buffer = if let Some(tile) = &data.tile {
            let mut len = 1;
            for axis in &tile.axes {
                len *= self.constant_extent(*axis)?;
            }
            self.b.shared(name, data.dtype, len, TILE_ALIGN)
        } else if data.memory == Memory::Shared {
            let threads = self.block_threads()?;
            self.b.shared(name, data.dtype, len * threads, data.dtype.bytes() as u32)
        } else {
            self.b.local(name, data.dtype, len)
        };
        self.buffers.set(tv, Some(buffer));
        Ok(buffer)
    }

    /// The element of a local tensor's array in the loops that are open now:
    /// `((i0 * n1 + i1) * n2 + i2) ...` over its array loops, and in shared memory
    /// over the threads of the block, so that neighbours do not meet in a bank.
    pub(super) fn array_index(&mut self, tv: TvId) -> Result<ExprId> {
        if self.scheduled.tensors[tv].tile.is_some() {
            return self.tile_index(tv);
        }
        let mut index = self.b.int(0);
        for own in self.array_loops(tv) {
            let extent = self.constant_extent(own.axis)?;
            let extent = self.b.int(extent);
            let position = self.leaf(own.axis)?;
            let scaled = self.b.exprs().mul(index, extent);
            index = self.b.exprs().add(scaled, position);
        }
        if self.scheduled.tensors[tv].memory == Memory::Shared {
            for parallel in [ParallelType::Tidz, ParallelType::Tidy, ParallelType::Tidx] {
                let extent = self.block_dim(parallel)?;
                if extent > 1 {
                    let (extent, position) = (self.b.int(extent), self.launch_index(parallel)?);
                    let scaled = self.b.exprs().mul(index, extent);
                    index = self.b.exprs().add(scaled, position);
                }
            }
        }
        Ok(index)
    }

    /// Whether a local tensor is one value in the loops that are open, and not an element of
    /// an array or a tile.
    pub(super) fn is_single(&self, tv: TvId) -> bool {
        self.scheduled.tensors[tv].tile.is_none() && self.array_loops(tv).is_empty()
    }

    /// The index of a leaf that an open loop binds.
    pub(super) fn leaf(&self, leaf: AxisId) -> Result<ExprId> {
        self.leaf_index[leaf]
            .ok_or_else(|| Diagnostic::bug(format!("no open loop binds axis {}", self.scheduled.axes[leaf].name)))
    }

    /// Whether a tensor is in global memory.
    pub(super) fn is_global(&self, tv: TvId) -> bool {
        self.scheduled.tensors[tv].memory == Memory::Global
    }

    /// Sets the origin of the statements that follow.
    pub(super) fn origin(&mut self, tv: TvId, pass: &'static str) {
        self.b.set_origin(Some(self.scheduled.tensors[tv].source), pass);
    }
}

/// The axis behind each place in the launch. Tensors may bind different axes of one length to
/// threads; blocks are those of one axis.
fn places(scheduled: &ScheduledFusion) -> Result<BTreeMap<ParallelType, AxisId>> {
    let mut places = BTreeMap::new();
    for own in scheduled.tensors.values().flat_map(|data| &data.loops).filter(|own| !own.parallel.is_loop()) {
        let first = *places.entry(own.parallel).or_insert(own.axis);
        let threads = [first, own.axis].map(|axis| scheduled.axes.constant_extent(axis));
        if first != own.axis && (own.parallel.is_block() || threads[0] != threads[1]) {
            let [first, own_name] = [first, own.axis].map(|axis| &scheduled.axes[axis].name);
            let message = format!("{} is bound to {first} and to {own_name}", own.parallel.name());
            return Err(Diagnostic::unsupported(code::SCHEDULE_VERB, message)
                .note("tensors may share threads along axes of one constant length, blocks along one axis"));
        }
    }
    Ok(places)
}

/// A C identifier for a tensor's name: decimal names get a letter.
pub(super) fn identifier(name: &str) -> String {
    let mut text: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        text.insert(0, 'T');
    }
    text
}
