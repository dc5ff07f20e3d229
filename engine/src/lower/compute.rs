//! Element operations: values, accumulation, scalar accesses.

use super::combine::exp_below;
use super::context::{Lowering, identifier};
use super::tree::Load;
use crate::diag::{Diagnostic, Result};
use crate::kernel::{BufId, ExprId};
use crate::num::{BinaryOp, DType, TernaryOp, Value, eval};
use crate::schedule::{AxisId, Compute, Loop, ParallelType, TvId, TvOp, TvOperand};

impl<'a> Lowering<'a> {
    /// The neutral element of a reduction.
    pub(super) fn identity(&mut self, tv: TvId) -> Result<ExprId> {
        let op = self.facts.reduce_op(tv)?;
        let dtype = self.scheduled.tensors[tv].dtype;
        Ok(self.b.exprs().value(eval::reduce_identity(op, dtype), dtype))
    }

    /// What a register of a tensor holds for elements outside.
    pub(super) fn outside_value(&mut self, tv: TvId) -> ExprId {
        let dtype = self.scheduled.tensors[tv].dtype;
        let value = self.outside.fill_of(tv, dtype);
        self.b.exprs().value(value, dtype)
    }

    /// Sets every element of a reduction's array to the neutral element.
    pub(super) fn emit_identity(&mut self, tv: TvId) -> Result<()> {
        self.origin(tv, "init");
        let identity = self.identity(tv)?;
        self.values.set(tv, None);
        let array = self.local_array(tv)?;
        let loops = self.facts.array_loops(tv);
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

    /// Names the only value of a reduction's array, after the loops of the accumulation.
    pub(super) fn emit_finish(&mut self, tv: TvId) -> Result<()> {
        self.origin(tv, "accumulate");
        let array = self.local_array(tv)?;
        let zero = self.b.int(0);
        let value = self.b.load(identifier(&self.scheduled.tensors[tv].name), array, zero);
        self.note_bounds(tv, value);
        self.values.set(tv, Some(value));
        Ok(())
    }

    /// Computes one element of a tensor, all of whose loops are open.
    pub(super) fn emit_compute(&mut self, tv: TvId) -> Result<()> {
        let op = self.op_of(tv)?;
        let terms = self.copy_terms(tv)?;
        let inside = self.conjunction(&terms);
        if self.b.exprs().as_bool(inside) == Some(true) {
            return self.emit_value(tv, op);
        }
        // Outside of a tile there is nothing to read, and no place to write to.
        let (array, is_tile) = (self.local_array(tv)?, self.scheduled.tensors[tv].tile.is_some());
        let index = self.array_index(tv)?;
        self.values.set(tv, None);
        self.emit_either(
            (Some(tv), "compute"),
            inside,
            |l| {
                let value = l.value_of(tv, op)?;
                l.b.store(array, index, value);
                Ok(())
            },
            |l| {
                if !is_tile {
                    let value = l.outside_value(tv);
                    l.b.store(array, index, value);
                }
                Ok(())
            },
        )?;
        if self.facts.is_single(tv) {
            let name = identifier(&self.scheduled.tensors[tv].name);
            let value = self.b.load(name, array, index);
            self.values.set(tv, Some(value));
        }
        Ok(())
    }

    fn emit_value(&mut self, tv: TvId, op: &TvOp) -> Result<()> {
        let value = match op.compute {
            Compute::Random(_) => self.random_value(tv)?,
            _ => self.value_of(tv, op)?,
        };
        self.origin(tv, "compute");
        self.define(tv, value)
    }

    fn op_of(&self, tv: TvId) -> Result<&'a TvOp> {
        let data = &self.scheduled.tensors[tv];
        data.op.as_ref().ok_or_else(|| Diagnostic::bug(format!("{} has no operation", data.name)))
    }

    /// Records a local tensor's value: a named variable, or an array element.
    fn define(&mut self, tv: TvId, value: ExprId) -> Result<()> {
        if self.facts.is_single(tv) {
            let name = identifier(&self.scheduled.tensors[tv].name);
            let value = self.b.let_(name, value);
            self.values.set(tv, Some(value));
            return Ok(());
        }
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        self.b.store(array, index, value);
        Ok(())
    }

    /// The first operand whose axes have an index here, from the last one on: what is joined or padded.
    fn joined(&mut self, tv: TvId, within: &[Vec<AxisId>], values: &[ExprId]) -> Result<ExprId> {
        let dtype = self.scheduled.tensors[tv].dtype;
        let mut value = match values.get(within.len()) {
            Some(rest) => *rest,
            None => self.b.exprs().value(eval::cast(DType::Bool, dtype, Value::Bool(false)), dtype),
        };
        for (axes, part) in within.iter().zip(values).rev() {
            let terms = match self.terms_of_lanes(tv, axes)? {
                Some(terms) => terms,
                None => self.predicate_terms(axes)?,
            };
            let inside = self.conjunction(&terms);
            value = self.b.exprs().ternary(TernaryOp::Where, inside, *part, value);
        }
        Ok(value)
    }

    /// The terms under which the indices of axes are valid in all lanes of the vector that is open, if no lane has others.
    fn terms_of_lanes(&mut self, tv: TvId, axes: &[AxisId]) -> Result<Option<Vec<ExprId>>> {
        let vector = self.scheduled.tensors[tv].loops.last().filter(|own| own.parallel == ParallelType::Vectorize);
        let Some(leaf) = vector.map(|own| own.axis) else { return Ok(None) };
        let lanes = self.facts.constant_extent(leaf)?;
        let mut ends = [Vec::new(), Vec::new()];
        for (lane, terms) in [0, lanes - 1].into_iter().zip(&mut ends) {
            let lane = self.b.int(lane);
            self.with_leaf(leaf, lane, |lowering| {
                *terms = lowering.predicate_terms(axes)?;
                Ok(())
            })?;
        }
        let [first, mut last] = ends;
        self.join_lanes(&first, &mut last, lanes);
        // Where neither end is inside, lanes between them may be.
        let is_outside = first.iter().any(|term| self.b.exprs().as_bool(*term) == Some(false));
        Ok((first == last && !is_outside).then_some(first))
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
        if let Compute::Join { within } = &op.compute {
            return self.joined(tv, within, &operands);
        }
        let dtype = self.scheduled.tensors[tv].dtype;
        let exprs = self.b.exprs();
        let value = match (&op.compute, operands.as_slice()) {
            (Compute::Unary(op), [a]) => exprs.unary(*op, *a),
            (Compute::Binary(op), [a, b]) => {
                let value = exprs.binary(*op, *a, *b);
                if *op == BinaryOp::Mul && self.facts.is_rounded_alone(tv) { exprs.rounded(value) } else { value }
            }
            (Compute::Ternary(op), [a, b, c]) => exprs.ternary(*op, *a, *b, *c),
            (Compute::ExpBelow { counts }, [a, max]) => exp_below(&mut self.b, *a, *max, *counts),
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
        if self.facts.is_global(tv) {
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
    pub(super) fn emit_load(&mut self, load: Load) -> Result<()> {
        let Load { tv, from, .. } = load;
        if self.facts.ring_loop(tv).is_some() {
            return self.emit_copy(load);
        }
        self.origin(tv, "load");
        let terms = self.access_terms(tv)?;
        let inside = self.conjunction(&terms);
        let buffer = self.global(from)?;
        let address = self.looking_up(tv, |l| l.address(from))?;
        self.origin(tv, "load");
        let name = identifier(&self.scheduled.tensors[tv].name);
        let hint = self.scheduled.tensors[tv].cache_hint;
        let unguarded = self.b.exprs().as_bool(inside) == Some(true);
        // A twin is read by the next iteration, where no variable reaches.
        let single = self.facts.is_single(tv) && !load.twin;
        if unguarded && single {
            let value = self.b.load_hinted(name, buffer, address, hint);
            self.values.set(tv, Some(value));
            return Ok(());
        }
        let array = self.loaded_array(load)?;
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
        if single {
            let value = self.b.load(name, array, index);
            self.values.set(tv, Some(value));
        }
        Ok(())
    }

    /// The array that a load fills.
    pub(super) fn loaded_array(&mut self, load: Load) -> Result<BufId> {
        if load.twin { self.twin(load.tv) } else { self.local_array(load.tv) }
    }

    /// Writes one element of an output.
    pub(super) fn emit_store(&mut self, tv: TvId, firsts: &[AxisId]) -> Result<()> {
        let op = self.op_of(tv)?;
        let of_tile = self.copy_terms(tv)?;
        let hint = self.scheduled.tensors[tv].cache_hint;
        if !of_tile.is_empty() {
            // Outside of a tile there is nothing to read.
            let mut terms = self.store_terms(tv, firsts)?;
            of_tile.into_iter().for_each(|term| self.add_term(term, &mut terms));
            let inside = self.conjunction(&terms);
            let (buffer, address) = (self.global(tv)?, self.address(tv)?);
            let store = |l: &mut Self| {
                let value = l.value_of(tv, op)?;
                l.origin(tv, "store");
                l.b.store_hinted(buffer, address, value, hint);
                Ok(())
            };
            return self.emit_either((Some(tv), "store"), inside, store, |_| Ok(()));
        }
        let value = self.value_of(tv, op)?;
        self.origin(tv, "store");
        let terms = self.store_terms(tv, firsts)?;
        let inside = self.conjunction(&terms);
        let buffer = self.global(tv)?;
        let address = self.address(tv)?;
        self.b.if_(inside, |b| b.store_hinted(buffer, address, value, hint));
        Ok(())
    }

    /// The condition under which all lanes of a vector pass the tests of
    /// some accumulations, and whether no lane passes any where it does not
    /// hold; nothing if no test depends on the lane.
    pub(super) fn all_inside(&mut self, tested: &[TvId], leaf: AxisId) -> Result<Option<(ExprId, bool)>> {
        let last_lane = self.facts.constant_extent(leaf)? - 1;
        let operands: Vec<TvId> = tested.iter().flat_map(|tv| self.scheduled.producers(*tv)).collect();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (lane, lists) in [(0, &mut first), (last_lane, &mut last)] {
            let lane = self.b.int(lane);
            self.with_leaf(leaf, lane, |lowering| {
                for operand in &operands {
                    lists.push(lowering.access_terms(*operand)?);
                }
                Ok(())
            })?;
        }
        let one_test = first.windows(2).all(|pair| pair[0] == pair[1]);
        let (first, mut last) = (first.concat(), last.concat());
        if first == last {
            return Ok(None);
        }
        self.join_lanes(&first, &mut last, last_lane + 1);
        let terms = self.range_terms(&first, &last);
        Ok(Some((self.conjunction(&terms), one_test && first == last)))
    }

    /// `acc = acc op x`; with a test, where the indices are inside.
    pub(super) fn emit_accumulate(&mut self, tv: TvId, tested: bool) -> Result<()> {
        let [TvOperand::Tv(from)] = *self.op_of(tv)?.inputs.as_slice() else {
            return Err(Diagnostic::bug("a reduction has one tensor operand"));
        };
        let combine = self.facts.combine_of(tv)?;
        let value = self.read(from)?;
        self.origin(tv, "accumulate");
        let terms = if tested { self.access_terms(from)? } else { Vec::new() };
        let inside = self.conjunction(&terms);
        let array = self.local_array(tv)?;
        let index = self.array_index(tv)?;
        let name = identifier(&self.scheduled.tensors[tv].name);
        self.b.if_(inside, |b| {
            let before = b.load(name.clone(), array, index);
            let after = combine.apply(b, &name, before, value);
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
    /// valid, and those of the axes `firsts` are 0.
    pub(super) fn store_terms(&mut self, tv: TvId, firsts: &[AxisId]) -> Result<Vec<ExprId>> {
        let mut terms = self.access_terms(tv)?;
        for axis in firsts {
            let index = self.index_of(*axis)?;
            let zero = self.b.int(0);
            let first = self.b.exprs().binary(crate::num::BinaryOp::Eq, index, zero);
            if !terms.contains(&first) {
                terms.push(first);
            }
        }
        Ok(terms)
    }
}
