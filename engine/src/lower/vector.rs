//! Wide accesses. A copy between registers and global memory whose innermost
//! loop is a vector axis becomes one access where the elements are consecutive
//! and provably aligned. At the ends of a row a store falls back to single
//! elements, and a load reads over the end and replaces what is not its own.
//! Where alignment cannot be proved, an unrolled loop of single elements
//! remains.

use super::context::Lowering;
use crate::diag::Result;
use crate::kernel::{Block, BufId, CacheHint, Expr, ExprId, IndexOp, Origin, Stmt, StmtKind};
use crate::num::{BinaryOp, UnaryOp};
use crate::schedule::{AxisId, Compute, Loop, Memory, ParallelType, TvId, TvOp, TvOperand, Xform};

/// The widest access of a thread.
const MAX_ACCESS_BYTES: i64 = 16;

/// A copy of one vector in the open loops.
struct VectorCopy {
    array: (BufId, ExprId),
    memory: (BufId, ExprId),
    /// Elements of the vector axis.
    lanes: i64,
    /// Elements of one access: a vector of more than 16 bytes takes several.
    chunk: i64,
    is_load: bool,
    hint: CacheHint,
}

/// The loop over the lanes of a vector.
fn lanes_of(leaf: AxisId) -> Loop {
    Loop { axis: leaf, parallel: ParallelType::Vectorize }
}

impl Lowering<'_> {
    /// Emits a copy as a wide access, if `leaf` is its vector axis and the
    /// access is provably aligned. Returns whether it did.
    pub(super) fn try_emit_vector(&mut self, tv: TvId, own: Loop, depth: usize) -> Result<bool> {
        let leaf = own.axis;
        let data = &self.scheduled.tensors[tv];
        let Some(TvOp { compute: Compute::Copy, inputs }) = &data.op else { return Ok(false) };
        let [TvOperand::Tv(from)] = *inputs.as_slice() else { return Ok(false) };
        let is_load = self.is_global(from);
        let (global, local) = if is_load { (from, tv) } else { (tv, from) };
        let innermost = depth + 1 == data.loops.len() && own.parallel == ParallelType::Vectorize;
        if !innermost || !self.is_global(global) || self.is_global(local) || !self.runs_along(global, leaf)? {
            return Ok(false);
        }
        // The register side must be an array whose innermost loop is the vector.
        let shared = self.scheduled.tensors[local].memory == Memory::Shared;
        if shared || self.array_loops(local).last() != Some(&own) || self.values[local].is_some() {
            return Ok(false);
        }
        let lanes = self.constant_extent(leaf)?;
        let hint = self.scheduled.tensors[tv].cache_hint;
        let size = self.scheduled.tensors[tv].dtype.bytes() as i64;
        let chunk = lanes.min(MAX_ACCESS_BYTES / size);
        let zero = self.b.int(0);
        let mut emitted = false;
        self.with_leaf(leaf, zero, |lowering| {
            let address = lowering.address(global)?;
            let buffer = lowering.global(global)?;
            let aligned = lowering.multiple_of(address) % chunk == 0
                && i64::from(lowering.b.buffer(buffer).align) % (chunk * size) == 0;
            if !aligned || chunk < 2 || lanes % chunk != 0 {
                return Ok(());
            }
            let array = lowering.local_array(local)?;
            let index = lowering.array_index(local)?;
            let copy = VectorCopy { array: (array, index), memory: (buffer, address), lanes, chunk, is_load, hint };
            emitted = lowering.emit_vector(tv, leaf, &copy)?;
            Ok(())
        })?;
        Ok(emitted)
    }

    /// One wide access where the first and the last element are inside; nothing,
    /// and `false`, if they never are. The leaf is bound to 0.
    fn emit_vector(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy) -> Result<bool> {
        self.origin(tv, if copy.is_load { "load" } else { "store" });
        let first = self.lane_terms(tv, copy.is_load)?;
        let mut last = Vec::new();
        let end = self.b.int(copy.lanes - 1);
        self.with_leaf(leaf, end, |lowering| {
            last = lowering.lane_terms(tv, copy.is_load)?;
            Ok(())
        })?;
        let all = self.range_terms(&first, &last);
        let all = self.conjunction(&all);
        match self.b.exprs().as_bool(all) {
            Some(true) => {
                self.emit_accesses(copy);
                return Ok(true);
            }
            Some(false) => return Ok(false),
            None => {}
        }
        let any = self.range_terms(&last, &first);
        let any = self.conjunction(&any);
        match (copy.is_load, first == last) {
            (true, true) => self.emit_uniform_load(tv, leaf, copy, all),
            (true, false) => self.emit_partial_load(tv, leaf, copy, all, any),
            (false, uniform) => self.emit_partial_store(tv, leaf, copy, all, uniform),
        }?;
        Ok(true)
    }

    /// `if inside { wide } else { fill }`.
    fn emit_uniform_load(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, inside: ExprId) -> Result<()> {
        let wide = self.accesses_block(copy);
        self.b.open();
        let result = self.emit_fill(tv, leaf, copy);
        let otherwise = self.b.close();
        result?;
        self.b.emit(StmtKind::If { condition: inside, then: wide, otherwise });
        Ok(())
    }

    /// A vector that reaches over the end of a row is read whole where it stays
    /// within the buffer: its other elements belong to the neighbouring row.
    /// So the wide accesses of all vectors are issued before any is waited for;
    /// elements outside are replaced afterwards, by [`Self::emit_fix_up`].
    fn emit_partial_load(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, all: ExprId, any: ExprId) -> Result<()> {
        if self.fixing == Some(tv) {
            return self.emit_fix_up(tv, leaf, copy, all, any);
        }
        if !self.untested.is_empty() {
            self.to_fix.insert(tv);
        }
        let lanes = self.b.int(copy.lanes);
        let end = self.b.exprs().add(copy.memory.1, lanes);
        let len = self.b.buffer(copy.memory.0).len;
        let within = self.b.exprs().binary(BinaryOp::Le, end, len);
        let readable = self.b.exprs().and(any, within);
        let wide = self.accesses_block(copy);
        self.b.open();
        let result = self.emit_loop(lanes_of(leaf), |lowering| lowering.emit_value(tv));
        let single = self.b.close();
        result?;
        self.b.open();
        let result = self.emit_fill(tv, leaf, copy);
        let mut otherwise = self.b.close();
        result?;
        let origin = Origin { tensor: Some(self.scheduled.tensors[tv].source), pass: "load" };
        let at_end = Stmt { kind: StmtKind::If { condition: any, then: single, otherwise: Vec::new() }, origin };
        otherwise.push(at_end);
        self.origin(tv, "load");
        self.b.emit(StmtKind::If { condition: readable, then: wide, otherwise });
        Ok(())
    }

    /// Replaces what was read outside a row: `if some outside { for each lane
    /// outside { array = fill } }`.
    fn emit_fix_up(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, all: ExprId, any: ExprId) -> Result<()> {
        self.origin(tv, "fill");
        let fill = self.outside_value(tv);
        self.b.open();
        let result = self.emit_loop(lanes_of(leaf), |lowering| {
            let terms = lowering.access_terms(tv)?;
            let inside = lowering.conjunction(&terms);
            let outside = lowering.b.exprs().unary(UnaryOp::LogicalNot, inside);
            let index = lowering.array_index(tv)?;
            lowering.b.if_(outside, |b| b.store(copy.array.0, index, fill));
            Ok(())
        });
        let then = self.b.close();
        result?;
        let not_all = self.b.exprs().unary(UnaryOp::LogicalNot, all);
        let partly = self.b.exprs().and(any, not_all);
        self.b.emit(StmtKind::If { condition: partly, then, otherwise: Vec::new() });
        Ok(())
    }

    /// `if all inside { wide } else { single elements }`.
    fn emit_partial_store(
        &mut self,
        tv: TvId,
        leaf: AxisId,
        copy: &VectorCopy,
        all: ExprId,
        uniform: bool,
    ) -> Result<()> {
        let wide = self.accesses_block(copy);
        self.b.open();
        let result = if uniform { Ok(()) } else { self.emit_loop(lanes_of(leaf), |lowering| lowering.emit_value(tv)) };
        let otherwise = self.b.close();
        result?;
        self.origin(tv, "store");
        self.b.emit(StmtKind::If { condition: all, then: wide, otherwise });
        Ok(())
    }

    /// Sets all lanes to the fill.
    fn emit_fill(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy) -> Result<()> {
        let fill = self.outside_value(tv);
        self.emit_loop(lanes_of(leaf), |lowering| {
            let index = lowering.array_index(tv)?;
            lowering.b.store(copy.array.0, index, fill);
            Ok(())
        })
    }

    fn accesses_block(&mut self, copy: &VectorCopy) -> Block {
        self.b.open();
        self.emit_accesses(copy);
        self.b.close()
    }

    /// The terms for a whole range of lanes from those of its ends: indices grow
    /// with the lane, so upper bounds are tested at the high end and lower
    /// bounds at the low one. With the ends exchanged, the terms under which
    /// some lane is inside. A test that a constant lane fails is an upper bound.
    pub(super) fn range_terms(&mut self, low: &[ExprId], high: &[ExprId]) -> Vec<ExprId> {
        let is_upper = |lowering: &mut Self, term: &ExprId| {
            matches!(lowering.b.exprs()[*term].expr, Expr::Binary(BinaryOp::Lt, ..) | Expr::Const(_))
        };
        let mut terms = Vec::new();
        for term in low {
            if high.contains(term) || !is_upper(self, term) {
                terms.push(*term);
            }
        }
        for term in high {
            if is_upper(self, term) && !terms.contains(term) {
                terms.push(*term);
            }
        }
        terms
    }

    fn emit_accesses(&mut self, copy: &VectorCopy) {
        let hint = copy.hint;
        for first in (0..copy.lanes).step_by(copy.chunk as usize) {
            let first = self.b.int(first);
            let array = self.b.exprs().add(copy.array.1, first);
            let address = self.b.exprs().add(copy.memory.1, first);
            let (array, memory) = ((copy.array.0, array), (copy.memory.0, address));
            let (to, from) = if copy.is_load { (array, memory) } else { (memory, array) };
            self.b.mov(to, from, copy.chunk as u32, hint);
        }
    }

    fn lane_terms(&mut self, tv: TvId, is_load: bool) -> Result<Vec<ExprId>> {
        if is_load { self.access_terms(tv) } else { self.store_terms(tv) }
    }

    /// Whether neighbours along a leaf are neighbours in a tensor's memory: the
    /// leaf is the innermost part of the axis that walks the tensor's innermost
    /// memory run, whose stride is 1.
    pub(super) fn runs_along(&mut self, tv: TvId, leaf: AxisId) -> Result<bool> {
        let layout = self.layout(tv)?;
        let Some((axis, stride)) = self.innermost_run(tv, &layout)? else { return Ok(false) };
        if self.b.exprs().as_int(stride) != Some(1) {
            return Ok(false);
        }
        // A shift that varies from lane to lane moves each to a place of its own.
        let data = &self.scheduled.tensors[tv];
        if data.indexed().any(|axis| self.scheduled.shift_varies(axis, leaf)) {
            return Ok(false);
        }
        let mut part = leaf;
        while part != axis {
            part = match self.scheduled.axes.def(part) {
                Some(Xform::Split { input, inner, .. }) if *inner == part => *input,
                Some(Xform::Align { input, .. }) => *input,
                // Of a merged axis the tensor walks less: its index is a remainder.
                _ => return Ok(false),
            };
        }
        Ok(true)
    }

    /// A power of two (at most 16) that divides an index expression, from the
    /// facts about parameters.
    pub(super) fn multiple_of(&mut self, expr: ExprId) -> i64 {
        const MOST: i64 = 16;
        if let Some(value) = self.b.exprs().as_int(expr) {
            return if value == 0 { MOST } else { 1 << value.trailing_zeros().min(4) };
        }
        match self.b.exprs()[expr].expr {
            Expr::Param(param) => {
                let fact = self.b.param(param).multiple_of;
                if fact == 0 { MOST } else { 1 << fact.trailing_zeros().min(4) }
            }
            Expr::Index(IndexOp::Mul, a, b) => (self.multiple_of(a) * self.multiple_of(b)).min(MOST),
            Expr::Index(IndexOp::Add | IndexOp::Sub | IndexOp::Mod, a, b) => {
                self.multiple_of(a).min(self.multiple_of(b))
            }
            Expr::Cast(a) | Expr::AsIndex(a) => self.multiple_of(a),
            _ => 1,
        }
    }
}
