//! The last pass: kernel IR from the tree, in one walk.
//!
//! In: the finished tree, the memory of its values, and what is known outside. Out: the
//! statements of the kernel. Each axis that a loop runs over is bound to an index while the
//! loop's body is emitted; addresses and tests follow from those (`index`). Nothing is emitted
//! twice, and no node is emitted in another way because of what stands around it.

use super::alloc::Array;
use super::context::{Bound, Lowering};
use super::ring;
use super::tree::{Body, Iteration, LoopTree, Node, NodeId, Wide};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{Dim, Expr, ExprId, KernelBuilder, Scope, Special, StmtKind, Unroll};
use crate::num::DType;
use crate::schedule::{AxisId, Loop, ParallelType, TvId};

impl Lowering<'_> {
    /// Emits the nodes of a body in order.
    pub(super) fn emit_body(&mut self, tree: &LoopTree, body: &Body) -> Result<()> {
        body.iter().try_for_each(|node| self.emit_node(tree, *node))
    }

    /// Whether accumulations under their tests are all that remains of some nodes: other values are named, not kept.
    fn only_accumulates(&self, tree: &LoopTree, body: &Body) -> bool {
        tree.inside(body).into_iter().all(|node| match tree.nodes[node] {
            Node::Loop { .. } | Node::Accumulate { tested: true, .. } => true,
            Node::Compute { tv } => matches!(self.storage.arrays[tv], None | Some(Array::Registers(1))),
            _ => false,
        })
    }

    fn emit_node(&mut self, tree: &LoopTree, node: NodeId) -> Result<()> {
        match &tree.nodes[node] {
            Node::Loop { own, unroll, body } => self.emit_over(*own, *unroll, |l| l.emit_body(tree, body)),
            Node::Ahead { axis, at, loads, body } => self.emit_ahead(*axis, *at, loads, |l| l.emit_body(tree, body)),
            Node::Advance { loads } => self.emit_advance(loads),
            Node::Fill { axis, at, body } => self.emit_ring_fill(*axis, *at, |l| l.emit_body(tree, body)),
            Node::Commit => self.emit_in_pass(ring::PASS, |b| b.commit_group()),
            Node::Wait { open, .. } => self.emit_in_pass(ring::PASS, |b| b.wait_group(*open)),
            Node::Init { tv } => self.emit_identity(*tv),
            Node::Accumulate { tv, tested } => self.emit_accumulate(*tv, *tested),
            Node::Finish { tv } => self.emit_finish(*tv),
            Node::Compute { tv } => self.emit_compute(*tv),
            Node::Load { load } => self.emit_load(*load),
            Node::Store { tv, firsts } => self.emit_store(*tv, firsts),
            Node::Wide { wide, own, single } => match self.try_wide(wide, *own)? {
                true => Ok(()),
                false => self.emit_node(tree, *single),
            },
            Node::Repair { tv, body } if self.partial.contains(tv) => self.emit_body(tree, body),
            Node::Repair { .. } => Ok(()),
            Node::RepairLanes { load, own, is_relied_on } => self.emit_lane_repair(*load, *own, *is_relied_on),
            Node::Lanes { own, tested, inside, otherwise } => match self.all_inside(tested, own.axis)? {
                None => self.emit_body(tree, otherwise),
                Some((all, is_uniform)) => {
                    let nothing = is_uniform && self.only_accumulates(tree, otherwise);
                    self.emit_either(
                        (None, "accumulate"),
                        all,
                        |l| l.emit_body(tree, inside),
                        |l| if nothing { Ok(()) } else { l.emit_body(tree, otherwise) },
                    )
                }
            },
            Node::Reduce { tv, pass, step } => self.emit_step(tree, *tv, pass, *step),
            Node::Grid { tvs, body } => self.emit_grid(tvs[0], |l| l.emit_body(tree, body)),
            Node::LastBlock { body } => {
                let condition = self.is_last_block()?;
                let then = self.block_of(|l| l.emit_body(tree, body))?;
                self.b.emit(StmtKind::If { condition, then, otherwise: Vec::new() });
                Ok(())
            }
            Node::GridBarrier { of_teams } => {
                let scope = if *of_teams { Scope::Team } else { Scope::Grid };
                self.emit_in_pass("phase", |b| b.sync(scope))
            }
            Node::Barrier { tv, pass } => {
                self.origin(*tv, pass);
                self.b.sync(Scope::Block);
                Ok(())
            }
        }
    }

    /// A statement of no tensor's.
    fn emit_in_pass(&mut self, pass: &'static str, emit: impl FnOnce(&mut KernelBuilder)) -> Result<()> {
        self.b.set_origin(None, pass);
        emit(&mut self.b);
        Ok(())
    }

    /// Moves or draws all lanes of a loop at once, if that is proved possible.
    fn try_wide(&mut self, wide: &Wide, own: Loop) -> Result<bool> {
        match wide {
            Wide::Load(load) => self.try_load_vector(*load, own),
            Wide::Store { tv, from, firsts } => self.try_store_vector(*tv, *from, firsts, own),
            Wide::Tile { tv, from } => self.try_move_tile_vector(*tv, *from, own),
            Wide::Random { tv } => self.try_draw_vector(*tv, own),
        }
    }

    /// Reductions across blocks, with the place of each block among those that share a result.
    fn emit_grid(&mut self, tv: TvId, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let place = self.grid_place(tv)?;
        let outer = self.grid.replace(place);
        let result = body(self);
        self.grid = outer;
        result
    }

    /// One of two blocks, or what is known of them. The branch belongs to a tensor and a pass.
    pub(super) fn emit_either(
        &mut self,
        (tv, pass): (Option<TvId>, &'static str),
        condition: ExprId,
        then: impl FnOnce(&mut Self) -> Result<()>,
        otherwise: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match self.b.exprs().as_bool(condition) {
            Some(true) => then(self),
            Some(false) => otherwise(self),
            None => {
                let (then, otherwise) = (self.block_of(then)?, self.block_of(otherwise)?);
                self.b.set_origin(tv.map(|tv| self.scheduled.tensors[tv].source), pass);
                self.b.emit(StmtKind::If { condition, then, otherwise });
                Ok(())
            }
        }
    }

    /// A block that `body` emits.
    pub(super) fn block_of(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<crate::kernel::Block> {
        self.b.open();
        let result = body(self);
        let block = self.b.close();
        result.map(|()| block)
    }

    fn emit_over(&mut self, own: Loop, unroll: Unroll, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if own.parallel.is_loop() {
            return self.emit_loop_as(own, unroll, body);
        }
        let single = self.scheduled.axes.constant_extent(own.axis) == Some(1);
        let index = if single { self.b.int(0) } else { self.launch_index(own.parallel)? };
        if !self.facts.is_guarded(own) {
            return self.with_leaf(own.axis, index, body);
        }
        // Other tensors have more blocks there.
        let (block, extent) = (self.launch_index(own.parallel)?, self.extent(own.axis)?);
        let inside = self.b.exprs().lt(block, extent);
        let body = |l: &mut Self| l.with_leaf(own.axis, index, body);
        self.emit_either((None, "phase"), inside, body, |_| Ok(()))
    }

    /// Opens a loop over a leaf, unrolled where its place says so.
    pub(super) fn emit_loop(&mut self, own: Loop, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let unroll = match own.parallel {
            ParallelType::Unroll | ParallelType::Vectorize => Unroll::Full,
            _ => Unroll::No,
        };
        self.emit_loop_as(own, unroll, body)
    }

    fn emit_loop_as(&mut self, own: Loop, unroll: Unroll, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let leaf = own.axis;
        let extent = self.extent(leaf)?;
        let constant = self.b.exprs().as_int(extent);
        if constant == Some(1) {
            let zero = self.b.int(0);
            return self.with_leaf(leaf, zero, body);
        }
        let unroll = if constant.is_some() { unroll } else { Unroll::No };
        let dtype = self.b.index_type();
        let (var, counter) = self.b.counter(loop_name(own.parallel), dtype);
        let body = self.block_of(|l| l.with_leaf(leaf, counter, body))?;
        let start = self.b.int(0);
        self.b.emit(StmtKind::For { var, start, end: extent, step: 1, unroll, body });
        Ok(())
    }

    /// Loads the next iteration's elements into twins, the repair of what lies outside waits
    /// until they are used.
    fn emit_ahead(
        &mut self,
        axis: AxisId,
        at: Iteration,
        loads: &[TvId],
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if let Iteration::Before(_) = at {
            loads.iter().try_for_each(|tv| self.declare_twin(*tv))?;
        }
        let index = self.index_ahead(axis, at)?;
        self.with_bound(axis, Bound { index, overflows: true, below: false }, body)
    }

    /// The index of an iteration ahead.
    pub(super) fn index_ahead(&mut self, axis: AxisId, at: Iteration) -> Result<ExprId> {
        Ok(match at {
            Iteration::Before(index) => self.b.int(index),
            Iteration::After(steps) => {
                let (current, steps) = (self.leaf(axis)?, self.b.int(steps));
                self.b.exprs().add(current, steps)
            }
        })
    }

    /// Copies twins to the arrays.
    fn emit_advance(&mut self, loads: &[TvId]) -> Result<()> {
        for tv in loads {
            let (array, twin) = (self.local_array(*tv)?, self.twin(*tv)?);
            self.origin(*tv, "prefetch");
            let end = self.b.buffer(array).len;
            let name = self.b.buffer(array).name.clone();
            self.b.count("k", end, Unroll::Full, |b, index| {
                let value = b.load(name, twin, index);
                b.store(array, index, value);
            });
        }
        Ok(())
    }

    /// Binds a leaf to an index while `body` runs.
    pub(super) fn with_leaf(
        &mut self,
        leaf: AxisId,
        index: ExprId,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.with_bound(leaf, Bound::inside(index), body)
    }

    pub(super) fn with_bound(
        &mut self,
        leaf: AxisId,
        bound: Bound,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let before = self.bound[leaf];
        self.bound.set(leaf, Some(bound));
        let result = body(self);
        self.bound.set(leaf, before);
        result
    }

    /// The index of a thread or block axis, of the index type.
    pub(super) fn launch_index(&mut self, parallel: ParallelType) -> Result<ExprId> {
        let special = match parallel {
            ParallelType::Tidx => Special::ThreadIdx(Dim::X),
            ParallelType::Tidy => Special::ThreadIdx(Dim::Y),
            ParallelType::Tidz => Special::ThreadIdx(Dim::Z),
            ParallelType::Bidx => Special::BlockIdx(Dim::X),
            ParallelType::Bidy => Special::BlockIdx(Dim::Y),
            ParallelType::Bidz => Special::BlockIdx(Dim::Z),
            _ => return Err(Diagnostic::bug(format!("{} is not a place in the launch", parallel.name()))),
        };
        let index = self.b.exprs().intern(Expr::Special(special), DType::I32);
        Ok(self.as_index(index))
    }
}

/// The counter's name.
fn loop_name(parallel: ParallelType) -> &'static str {
    match parallel {
        ParallelType::Vectorize => "v",
        ParallelType::Unroll => "u",
        _ => "i",
    }
}
