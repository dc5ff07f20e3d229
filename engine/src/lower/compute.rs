//! Element operations: values, accumulation, scalar accesses.

use super::context::{Lowering, identifier};
use crate::diag::{Diagnostic, Result};
use crate::kernel::{ExprId, StmtKind};
use crate::num::{ReduceOp, Value, eval};
use crate::schedule::{AxisId, Compute, Loop, ParallelType, TvId, TvOp, TvOperand, Xform};

impl Lowering<'_> {
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

    /// The neutral element of a reduction.
    pub(super) fn identity(&mut self, tv: TvId) -> Result<ExprId> {
        let op = self.reduce_op(tv)?;
        let dtype = self.scheduled.tensors[tv].dtype;
        Ok(self.b.exprs().value(eval::reduce_identity(op, dtype), dtype))
    }

    /// What a register of a tensor holds for elements outside.
    pub(super) fn outside_value(&mut self, tv: TvId) -> ExprId {
        let dtype = self.scheduled.tensors[tv].dtype;
        let value = self.fill_value(dtype, self.fill);
        self.b.exprs().value(value, dtype)
    }

    /// Sets every element of a reduction's array to the neutral element.
    pub(super) fn emit_identity(&mut self, tv: TvId) -> Result<()> {
        self.origin(tv, "init");
        let identity = self.identity(tv)?;
        self.values.set(tv, None);
        let array = self.local_array(tv)?;
        let loops = self.array_loops(tv);
        self.emit_array_nest(&loops, &mut |lowering| {
            let index = lowering.array_index(tv)?;
            lowering.b.store(array, index, identity);
            Ok(())
        })
    }

    /// Loops over the given leaves, outer to inner.
    pub(super) fn emit_array_nest(
        &mut self,
        loops: &[Loop],
        body: &mut dyn FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        match loops.split_first() {
            None => body(self),
            Some((own, rest)) => self.emit_loop(*own, |lowering| lowering.emit_array_nest(rest, body)),
        }
    }

    /// After the loops of an accumulation closed, a single value gets a name.
    pub(super) fn finish_accumulators(&mut self, unit: &[TvId], depth: usize) -> Result<()> {
        for tv in unit {
            if self.accumulates(*tv) && self.scheduled.tensors[*tv].inline_at == depth && self.is_single(*tv) {
                self.origin(*tv, "accumulate");
                let array = self.local_array(*tv)?;
                let zero = self.b.int(0);
                let value = self.b.load(identifier(&self.scheduled.tensors[*tv].name), array, zero);
                self.note_bounds(*tv, value);
                self.values.set(*tv, Some(value));
            }
        }
        Ok(())
    }

    /// Computes one element of a tensor, all of whose loops are open.
    pub(super) fn emit_value(&mut self, tv: TvId) -> Result<()> {
        let data = &self.scheduled.tensors[tv];
        let Some(op) = data.op.clone() else { return Ok(()) };
        if let Compute::Reduce { .. } = op.compute {
            return self.emit_accumulate(tv, &op);
        }
        if self.is_global(tv) {
            return self.emit_store(tv, &op);
        }
        if let (Compute::Copy, [TvOperand::Tv(from)]) = (&op.compute, op.inputs.as_slice())
            && self.is_global(*from)
        {
            return self.emit_load(tv, *from);
        }
        let value = match op.compute {
            Compute::Random(_) => self.random_value(tv)?,
            _ => self.value_of(tv, &op)?,
        };
        self.origin(tv, "compute");
        self.define(tv, value)
    }

    /// Records a local tensor's value: a named variable, or an array element.
    fn define(&mut self, tv: TvId, value: ExprId) -> Result<()> {
        if self.is_single(tv) {
            let name = identifier(&self.scheduled.tensors[tv].name);
            let value = self.b.let_(name, value);
            self.values.set(tv, Some(value));
            return Ok(());
        }
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        self.b.store(array, index, value);
        self.write_tile(tv)
    }

    /// The expression of an elementwise operation.
    fn value_of(&mut self, tv: TvId, op: &TvOp) -> Result<ExprId> {
        let mut operands = Vec::with_capacity(op.inputs.len());
        for operand in &op.inputs {
            operands.push(match operand {
                TvOperand::Tv(producer) => self.read(*producer)?,
                TvOperand::Scalar(scalar) => self.scalar(*scalar)?,
            });
        }
        let dtype = self.scheduled.tensors[tv].dtype;
        let exprs = self.b.exprs();
        let value = match (&op.compute, operands.as_slice()) {
            (Compute::Unary(op), [a]) => exprs.unary(*op, *a),
            (Compute::Binary(op), [a, b]) => exprs.binary(*op, *a, *b),
            (Compute::Ternary(op), [a, b, c]) => exprs.ternary(*op, *a, *b, *c),
            (Compute::Cast | Compute::Copy, [a]) => exprs.cast(*a, dtype),
            (Compute::Index { root: None }, []) => exprs.value(Value::Int(0), dtype),
            (Compute::Index { root: Some(root) }, []) => {
                let index = self.index_of(*root)?;
                let index = self.b.exprs().as_data(index);
                self.b.exprs().cast(index, dtype)
            }
            _ => {
                let name = &self.scheduled.tensors[tv].name;
                return Err(Diagnostic::bug(format!("{name} has {} operands", operands.len())));
            }
        };
        Ok(value)
    }

    /// A tensor's element in the open loops. Global tensors are read in place.
    pub(super) fn read(&mut self, tv: TvId) -> Result<ExprId> {
        if let Some(value) = self.values[tv] {
            return Ok(value);
        }
        let name = identifier(&self.scheduled.tensors[tv].name);
        if self.is_global(tv) {
            return Err(Diagnostic::bug(format!("{name} is read without a register copy")));
        }
        self.origin(tv, "read");
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        let value = self.b.load(name, array, index);
        self.note_bounds(tv, value);
        Ok(value)
    }

    /// `array = inside ? memory : fill`, one element.
    pub(super) fn emit_load(&mut self, tv: TvId, from: TvId) -> Result<()> {
        self.origin(tv, "load");
        let terms = self.access_terms(tv)?;
        let inside = self.conjunction(&terms);
        let buffer = self.global(from)?;
        let address = self.address(from)?;
        let name = identifier(&self.scheduled.tensors[tv].name);
        let hint = self.scheduled.tensors[tv].cache_hint;
        let unguarded = self.b.exprs().as_bool(inside) == Some(true);
        if unguarded && self.is_single(tv) {
            let value = self.b.load_hinted(name, buffer, address, hint);
            self.values.set(tv, Some(value));
            return Ok(());
        }
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        let zero = self.outside_value(tv);
        self.b.if_else(
            inside,
            |b| {
                let value = b.load_hinted(name.clone(), buffer, address, hint);
                b.store(array, index, value);
            },
            |b| b.store(array, index, zero),
        );
        if self.is_single(tv) {
            let value = self.b.load(name, array, index);
            self.values.set(tv, Some(value));
        }
        Ok(())
    }

    /// Writes one element of an output.
    fn emit_store(&mut self, tv: TvId, op: &TvOp) -> Result<()> {
        let value = self.value_of(tv, op)?;
        self.origin(tv, "store");
        let terms = self.store_terms(tv)?;
        let inside = self.conjunction(&terms);
        let buffer = self.global(tv)?;
        let address = self.address(tv)?;
        let hint = self.scheduled.tensors[tv].cache_hint;
        self.b.if_(inside, |b| b.store_hinted(buffer, address, value, hint));
        Ok(())
    }

    /// Whether an accumulation must test its indices: its operand is no partial
    /// result, and holds no neutral element outside.
    fn is_tested(&self, tv: TvId) -> bool {
        let complete =
            self.scheduled.producers(tv).iter().any(|from| !self.scheduled.tensors[*from].partial.is_empty());
        self.accumulates(tv) && !complete && !self.untested.contains(&tv)
    }

    /// A loop over the lanes of a vector, or any other. Where accumulations test
    /// each lane, the lanes of a vector that lies inside as a whole, which is
    /// most of them, are taken without tests.
    pub(super) fn emit_lane_loop(&mut self, unit: &[TvId], own: Loop, depth: usize) -> Result<()> {
        let inside = if own.parallel == ParallelType::Vectorize && !self.all_lanes_inside {
            self.all_inside(unit, own.axis)?
        } else {
            None
        };
        let Some(inside) = inside else {
            return self.emit_loop(own, |lowering| lowering.emit_level(unit, depth + 1));
        };
        self.b.open();
        self.all_lanes_inside = true;
        let result = self.emit_loop(own, |lowering| lowering.emit_level(unit, depth + 1));
        self.all_lanes_inside = false;
        let then = self.b.close();
        result?;
        self.b.open();
        let result = self.emit_loop(own, |lowering| lowering.emit_level(unit, depth + 1));
        let otherwise = self.b.close();
        result?;
        self.b.set_origin(None, "accumulate");
        self.b.emit(StmtKind::If { condition: inside, then, otherwise });
        Ok(())
    }

    /// The condition under which all lanes of a vector pass the tests of a
    /// unit's accumulations; none if there are no tests, or none that depend on
    /// the lane.
    fn all_inside(&mut self, unit: &[TvId], leaf: AxisId) -> Result<Option<ExprId>> {
        let last_lane = self.constant_extent(leaf)? - 1;
        let tested: Vec<TvId> = unit.iter().copied().filter(|tv| self.is_tested(*tv)).collect();
        if tested.iter().any(|tv| self.scheduled.tensors[*tv].loop_axes().next_back() != Some(leaf)) {
            return Ok(None); // Loops inside the lanes have tests of their own.
        }
        let operands: Vec<TvId> = tested.iter().flat_map(|tv| self.scheduled.producers(*tv)).collect();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (lane, terms) in [(0, &mut first), (last_lane, &mut last)] {
            let lane = self.b.int(lane);
            self.with_leaf(leaf, lane, |lowering| {
                for operand in &operands {
                    terms.extend(lowering.access_terms(*operand)?);
                }
                Ok(())
            })?;
        }
        if first == last {
            return Ok(None);
        }
        let terms = self.range_terms(&first, &last);
        Ok(Some(self.conjunction(&terms)))
    }

    /// `acc = acc op x`, where the indices are inside. Partial results are
    /// complete by construction and need no test.
    fn emit_accumulate(&mut self, tv: TvId, op: &TvOp) -> Result<()> {
        let [TvOperand::Tv(from)] = *op.inputs.as_slice() else {
            return Err(Diagnostic::bug("a reduction has one tensor operand"));
        };
        let combine = self.reduce_op(tv)?.combine();
        let value = self.read(from)?;
        self.origin(tv, "accumulate");
        let tested = self.is_tested(tv) && !self.all_lanes_inside;
        let terms = if tested { self.access_terms(from)? } else { Vec::new() };
        let inside = self.conjunction(&terms);
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        let name = identifier(&self.scheduled.tensors[tv].name);
        self.b.if_(inside, |b| {
            let before = b.load(name, array, index);
            let after = b.exprs().binary(combine, before, value);
            b.store(array, index, after);
        });
        Ok(())
    }

    /// The terms under which a tensor's own indices are valid.
    pub(super) fn access_terms(&mut self, tv: TvId) -> Result<Vec<ExprId>> {
        let roots: Vec<AxisId> = self.scheduled.tensors[tv].indexed().collect();
        self.predicate_terms(&roots)
    }

    /// The terms under which this thread writes an element: its indices are
    /// valid, and of all places in the loops that hold the same element it is
    /// the first, at 0 of every axis that the tensor does not have.
    pub(super) fn store_terms(&mut self, tv: TvId) -> Result<Vec<ExprId>> {
        let mut terms = self.access_terms(tv)?;
        let mut firsts: Vec<AxisId> = Vec::new();
        for leaf in self.scheduled.tensors[tv].loop_axes().filter(|leaf| !self.last_block.contains(leaf)) {
            self.lacking_axes(tv, leaf, &mut firsts);
        }
        firsts.sort();
        firsts.dedup();
        for axis in firsts {
            if self.scheduled.axes[axis].extent == crate::schedule::Extent::Const(1) {
                continue;
            }
            let index = self.index_of(axis)?;
            let zero = self.b.int(0);
            let first = self.b.exprs().binary(crate::num::BinaryOp::Eq, index, zero);
            if !terms.contains(&first) {
                terms.push(first);
            }
        }
        Ok(terms)
    }

    /// The axes that an axis derives from, itself included, of which a tensor
    /// has no part: where it is merged of some that the tensor has and others
    /// that it has not, those others.
    fn lacking_axes(&self, tv: TvId, axis: AxisId, found: &mut Vec<AxisId>) {
        let has = |root: &AxisId| self.scheduled.tensors[tv].has_root(*root);
        let roots = self.scheduled.axes.roots_of(axis);
        if !roots.iter().any(has) {
            found.push(axis);
        } else if !roots.iter().all(has) {
            for input in self.scheduled.axes.def(axis).map(Xform::inputs).unwrap_or_default() {
                self.lacking_axes(tv, input, found);
            }
        }
    }
}
