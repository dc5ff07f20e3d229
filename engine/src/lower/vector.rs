//! Wide accesses. A copy between registers and global memory whose innermost
//! loop is a vector axis becomes one access where the elements are consecutive
//! and provably aligned. At the ends of a row a store falls back to single
//! elements, and a load reads over the end and replaces what is not its own.
//! A lookup is wide where its index is one for all lanes.
//! Where alignment cannot be proved, a load of an input takes the two words that it
//! touches, and a store to an output leaves words that two threads touch to one of them.
//! Of others an unrolled loop of single elements remains.

use super::context::Lowering;
use super::tree::Load;
use crate::diag::Result;
use crate::kernel::{
    Block, BufId, CacheHint, Expr, ExprId, IndexOp, MAX_ACCESS_BYTES, MIN_UNALIGNED_BYTES, ParamKind, StmtKind,
};
use crate::num::{BinaryOp, TernaryOp, UnaryOp};
use crate::schedule::{AxisId, Io, Loop, ParallelType, TvId, Xform};
use std::collections::BTreeSet;

/// A copy of one vector in the open loops.
pub(super) struct VectorCopy {
    pub(super) array: (BufId, ExprId),
    pub(super) memory: (BufId, ExprId),
    /// Elements of the vector axis.
    pub(super) lanes: i64,
    /// Its accesses.
    pub(super) width: Width,
    hint: CacheHint,
}

/// The accesses of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    /// Elements of one access: a vector of more than 16 bytes takes several.
    pub(super) chunk: i64,
    /// Whether each provably starts at a multiple of its size.
    pub(super) aligned: bool,
}

/// Tests of a vector's lanes.
pub(super) struct LaneEnds {
    /// Whether all lanes are inside, and whether some are.
    pub(super) all: ExprId,
    any: ExprId,
    /// Whether all lanes have the same tests.
    pub(super) uniform: bool,
    /// Whether the first lane may be outside at its lower end while others are inside.
    before: bool,
}

/// The loop over the lanes of a vector.
pub(super) fn lanes_of(leaf: AxisId) -> Loop {
    Loop { axis: leaf, parallel: ParallelType::Vectorize }
}

impl Lowering<'_> {
    /// Emits a load of all lanes as wide accesses, if it is provably aligned. Returns whether
    /// it did.
    pub(super) fn try_load_vector(&mut self, load: Load, own: Loop) -> Result<bool> {
        if self.facts.ring_loop(load.tv).is_some() {
            return self.try_copy_vector(load, own);
        }
        if self.looks_up_along(load.tv, own.axis) {
            return Ok(false);
        }
        let mut emitted = false;
        self.looking_up(load.tv, |lowering| {
            lowering.with_copy(load.from, own, |lowering, memory, width| {
                // What others write is read in whole words only.
                let is_input = matches!(lowering.scheduled.tensors[load.from].io, Some(Io::Input(_)));
                if width.aligned || is_input {
                    let array = (lowering.loaded_array(load)?, lowering.array_index(load.tv)?);
                    let copy = lowering.vector_copy(load.tv, own, (array, memory), width)?;
                    emitted = lowering.emit_vector_load(load, own.axis, &copy)?;
                }
                Ok(())
            })
        })?;
        Ok(emitted)
    }

    /// The same for a store of registers.
    pub(super) fn try_store_vector(&mut self, tv: TvId, from: TvId, firsts: &[AxisId], own: Loop) -> Result<bool> {
        let mut emitted = false;
        self.with_copy(tv, own, |lowering, memory, width| {
            let array = (lowering.local_array(from)?, lowering.array_index(from)?);
            let copy = lowering.vector_copy(tv, own, (array, memory), width)?;
            emitted = lowering.emit_vector_store(tv, firsts, own.axis, &copy)?;
            Ok(())
        })?;
        Ok(emitted)
    }

    /// The same that a load was, where its vectors at the end of the buffer are loaded and what it read outside is replaced. In the
    /// loops here the load was made with wide accesses.
    pub(super) fn emit_lane_repair(&mut self, load: Load, own: Loop, is_relied_on: bool) -> Result<()> {
        self.with_copy(load.from, own, |lowering, memory, width| {
            let array = (lowering.loaded_array(load)?, lowering.array_index(load.tv)?);
            let copy = lowering.vector_copy(load.tv, own, (array, memory), width)?;
            lowering.origin(load.tv, "load");
            let ends = lowering.lane_ends(own.axis, &copy, |l| l.access_terms(load.tv))?;
            if width.aligned && load.ends_later {
                let within = lowering.is_within(&copy, &ends);
                let outside = lowering.b.exprs().unary(UnaryOp::LogicalNot, within);
                let at_end = lowering.b.exprs().and(ends.any, outside);
                lowering.emit_at_end(load, own.axis, at_end)?;
            }
            match is_relied_on {
                true => lowering.emit_fix_up(load.tv, own.axis, &copy, ends.all, ends.any),
                false => Ok(()),
            }
        })
    }

    /// Calls `body` with the address of lane 0, to which the leaf is bound, and the accesses that
    /// the vector takes there, if neighbours along the leaf are neighbours in memory.
    pub(super) fn with_copy(
        &mut self,
        global: TvId,
        own: Loop,
        body: impl FnOnce(&mut Self, (BufId, ExprId), Width) -> Result<()>,
    ) -> Result<()> {
        let zero = self.b.int(0);
        self.with_leaf(own.axis, zero, |lowering| {
            if !lowering.runs_along(global, own.axis)? {
                return Ok(());
            }
            let address = lowering.address(global)?;
            let buffer = lowering.global(global)?;
            match lowering.width(global, own, (buffer, address))? {
                Some(width) => body(lowering, (buffer, address), width),
                None => Ok(()),
            }
        })
    }

    /// The accesses of a vector whose first lane lies at an address of a tensor: as wide as it has lanes or an
    /// access can be. None for single elements.
    fn width(&mut self, global: TvId, own: Loop, (buffer, address): (BufId, ExprId)) -> Result<Option<Width>> {
        let lanes = self.facts.constant_extent(own.axis)?;
        let data = &self.scheduled.tensors[global];
        let (bytes, is_argument) = (data.dtype.bytes() as i64, data.io.is_some());
        let chunk = lanes.min(MAX_ACCESS_BYTES / bytes);
        if chunk < 2 || lanes % chunk != 0 {
            return Ok(None);
        }
        let aligned =
            self.multiple_of(address) % chunk == 0 && i64::from(self.b.buffer(buffer).align) % (chunk * bytes) == 0;
        // Two words take the place of more elements than two.
        let has_words = chunk > 2 && chunk * bytes >= MIN_UNALIGNED_BYTES && (chunk * bytes).count_ones() == 1;
        Ok((aligned || is_argument && has_words).then_some(Width { chunk, aligned }))
    }

    pub(super) fn vector_copy(
        &self,
        tv: TvId,
        own: Loop,
        (array, memory): ((BufId, ExprId), (BufId, ExprId)),
        width: Width,
    ) -> Result<VectorCopy> {
        let lanes = self.facts.constant_extent(own.axis)?;
        Ok(VectorCopy { array, memory, lanes, width, hint: self.scheduled.tensors[tv].cache_hint })
    }

    /// Where the first and the last lane are inside. The leaf is bound to 0.
    pub(super) fn lane_ends(
        &mut self,
        leaf: AxisId,
        copy: &VectorCopy,
        terms: impl Fn(&mut Self) -> Result<Vec<ExprId>>,
    ) -> Result<LaneEnds> {
        let first = terms(self)?;
        let mut last = Vec::new();
        let end = self.b.int(copy.lanes - 1);
        self.with_leaf(leaf, end, |lowering| {
            last = terms(lowering)?;
            Ok(())
        })?;
        self.join_lanes(&first, &mut last, copy.lanes);
        let fails = |l: &mut Self| first.iter().chain(&last).any(|term| l.b.exprs().as_bool(*term) == Some(false));
        let all = if fails(self) {
            self.b.exprs().bool(false)
        } else {
            let all = self.range_terms(&first, &last);
            self.conjunction(&all)
        };
        let any = match self.b.exprs().as_bool(all) {
            Some(known) => self.b.exprs().bool(known),
            None => {
                let any = self.range_terms(&last, &first);
                self.conjunction(&any)
            }
        };
        let before = first.iter().any(|term| !self.is_upper(*term) && !last.contains(term));
        Ok(LaneEnds { all, any, uniform: first == last, before })
    }

    /// Where the first lane is below an extent, and both the extent and its index are multiples of the lanes, so is
    /// the last: `n k < n m` exactly if `n k + n - 1 < n m`. And `n k >= n m` exactly if `n k + n - 1 >= n m`.
    pub(super) fn join_lanes(&mut self, first: &[ExprId], last: &mut [ExprId], lanes: i64) {
        for term in last {
            let Expr::Binary(op @ (BinaryOp::Lt | BinaryOp::Ge), index, extent) = self.b.exprs()[*term].expr else {
                continue;
            };
            let same = first.iter().copied().find(|other| match self.b.exprs()[*other].expr {
                Expr::Binary(same, low, end) => same == op && end == extent && self.is_sum(index, low, lanes - 1),
                _ => false,
            });
            let Some(same) = same else { continue };
            let Expr::Binary(_, low, _) = self.b.exprs()[same].expr else { continue };
            if self.multiple_of(low) % lanes == 0 && self.multiple_of(extent) % lanes == 0 {
                *term = same;
            }
        }
    }

    /// Whether an index is visibly another one and a constant: `sum = of + constant`.
    fn is_sum(&mut self, sum: ExprId, of: ExprId, constant: i64) -> bool {
        let both = [sum, of].map(|id| self.b.exprs()[id].expr);
        if let [Expr::Index(IndexOp::Sub, a, less), Expr::Index(IndexOp::Sub, b, same)] = both
            && less == same
        {
            return self.is_sum(a, b, constant);
        }
        let Expr::Index(IndexOp::Add, a, b) = self.b.exprs()[sum].expr else {
            return self.b.exprs().as_int(of) == Some(0) && self.b.exprs().as_int(sum) == Some(constant);
        };
        if a == of && self.b.exprs().as_int(b) == Some(constant) {
            return true;
        }
        match self.b.exprs()[of].expr {
            Expr::Index(IndexOp::Add, c, d) => a == c && self.is_sum(b, d, constant),
            _ => false,
        }
    }

    /// A wide access where all lanes are inside, and what fills them where not; nothing,
    /// and `false`, if they never are.
    fn emit_vector_load(&mut self, load: Load, leaf: AxisId, copy: &VectorCopy) -> Result<bool> {
        self.origin(load.tv, "load");
        let ends = self.lane_ends(leaf, copy, |l| l.access_terms(load.tv))?;
        match (self.b.exprs().as_bool(ends.all), ends.uniform) {
            (known, _) if known != Some(false) && !copy.width.aligned => {
                if ends.before && self.divides(copy.memory.1) {
                    return Ok(false);
                }
                self.emit_unaligned_load(load.tv, leaf, copy, &ends)?;
            }
            (Some(true), _) => self.emit_accesses(copy, true),
            (Some(false), _) => return Ok(false),
            (None, true) => self.emit_uniform_load(load.tv, leaf, copy, ends.all)?,
            (None, false) => self.emit_partial_load(load, leaf, copy, &ends)?,
        }
        Ok(true)
    }

    /// The same for a store.
    fn emit_vector_store(&mut self, tv: TvId, firsts: &[AxisId], leaf: AxisId, copy: &VectorCopy) -> Result<bool> {
        self.origin(tv, "store");
        let ends = self.lane_ends(leaf, copy, |l| l.store_terms(tv, firsts))?;
        match self.b.exprs().as_bool(ends.all) {
            Some(true) => self.emit_accesses(copy, false),
            Some(false) => return Ok(false),
            None => self.emit_partial_store(tv, firsts, leaf, copy, &ends)?,
        }
        Ok(true)
    }

    /// `if inside { wide } else { fill }`.
    fn emit_uniform_load(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, inside: ExprId) -> Result<()> {
        let wide = |l: &mut Self| {
            l.emit_accesses(copy, true);
            Ok(())
        };
        self.emit_either((Some(tv), "load"), inside, wide, |l| l.emit_fill(tv, leaf, copy))
    }

    /// Whether an index is made of quotients or remainders of what may be below 0, where they have no meaning; beside tiles of any:
    /// there registers are full of what goes through these, and few such loads are under way.
    fn divides(&mut self, index: ExprId) -> bool {
        let has_tiles = self.scheduled.tensors.values().any(|data| data.tile.is_some());
        let (mut open, mut seen) = (vec![index], BTreeSet::new());
        while let Some(id) = open.pop() {
            let node = self.b.exprs()[id].expr;
            if let Expr::Index(IndexOp::Div | IndexOp::Mod | IndexOp::CeilDiv, divided, by) = node
                && !self.b.exprs().as_int(by).is_some_and(|by| by > 0 && by.count_ones() == 1)
                && (has_tiles || !self.is_place(divided))
            {
                return true;
            }
            open.extend(node.operands().filter(|operand| seen.insert(*operand)));
        }
        false
    }

    /// Whether an index is visibly no less than 0: made of places in the launch, constants and their sums, products and quotients.
    fn is_place(&mut self, index: ExprId) -> bool {
        let (mut open, mut seen) = (vec![index], BTreeSet::new());
        while let Some(id) = open.pop() {
            let node = self.b.exprs()[id].expr;
            let is_number = match node {
                Expr::Special(_) => true,
                Expr::Const(_) => self.b.exprs().as_int(id).is_some_and(|value| value >= 0),
                Expr::Param(param) => match self.b.param(param).kind {
                    ParamKind::Derived(value) => {
                        open.push(value);
                        true
                    }
                    kind => matches!(kind, ParamKind::Size { .. } | ParamKind::Stride { .. }),
                },
                Expr::Index(op, ..) => op != IndexOp::Sub,
                _ => false,
            };
            if !is_number {
                return false;
            }
            open.extend(node.operands().filter(|operand| seen.insert(*operand)));
        }
        true
    }

    /// Where some lanes are inside, all are read, without a branch, so that many are under way. Elements
    /// outside are replaced: here if all are, otherwise by [`Self::emit_fix_up`].
    fn emit_unaligned_load(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, ends: &LaneEnds) -> Result<()> {
        let (buffer, address) = copy.memory;
        // Neither of the two words there has anything of the buffer.
        let outside = self.b.int(-2 * MAX_ACCESS_BYTES);
        let from = self.b.exprs().ternary(TernaryOp::Where, ends.any, address, outside);
        self.emit_accesses(&VectorCopy { memory: (buffer, from), ..*copy }, true);
        if ends.uniform && self.b.exprs().as_bool(ends.all).is_none() {
            let fill = self.block_of(|l| l.emit_fill(tv, leaf, copy))?;
            let not_all = self.b.exprs().unary(UnaryOp::LogicalNot, ends.all);
            self.b.emit(StmtKind::If { condition: not_all, then: fill, otherwise: Vec::new() });
        } else if !ends.uniform {
            self.partial.insert(tv);
        }
        Ok(())
    }

    /// A vector that reaches over an end of a row is read whole where it stays
    /// within the buffer: its other elements belong to the neighbouring row.
    /// A vector that is not a multiple of its lanes away from the start of the buffer may begin before it.
    /// So the wide accesses of all vectors are issued before any is waited for;
    /// vectors at the end of the buffer are loaded afterwards, and elements outside replaced: see [`Self::emit_lane_repair`].
    fn emit_partial_load(&mut self, load: Load, leaf: AxisId, copy: &VectorCopy, ends: &LaneEnds) -> Result<()> {
        self.partial.insert(load.tv);
        let within = self.is_within(copy, ends);
        let readable = self.b.exprs().and(ends.any, within);
        let wide = self.accesses_block(copy, true);
        let at_end = match load.ends_later {
            true => Vec::new(),
            false => self.block_of(|l| l.emit_at_end(load, leaf, ends.any))?,
        };
        let mut otherwise = self.block_of(|l| l.emit_fill(load.tv, leaf, copy))?;
        otherwise.extend(at_end);
        self.origin(load.tv, "load");
        self.b.emit(StmtKind::If { condition: readable, then: wide, otherwise });
        Ok(())
    }

    /// Whether a vector lies within its buffer.
    fn is_within(&mut self, copy: &VectorCopy, ends: &LaneEnds) -> ExprId {
        let lanes = self.b.int(copy.lanes);
        let end = self.b.exprs().add(copy.memory.1, lanes);
        let len = self.b.buffer(copy.memory.0).len;
        let mut within = self.b.exprs().binary(BinaryOp::Le, end, len);
        if ends.before && self.multiple_of(copy.memory.1) % copy.lanes != 0 {
            let zero = self.b.int(0);
            let begins = self.b.exprs().binary(BinaryOp::Ge, copy.memory.1, zero);
            within = self.b.exprs().and(within, begins);
        }
        within
    }

    /// `if condition { for each lane { array = inside ? memory : fill } }`.
    fn emit_at_end(&mut self, load: Load, leaf: AxisId, condition: ExprId) -> Result<()> {
        let then = self.block_of(|l| l.emit_loop(lanes_of(leaf), |l| l.emit_load(load)))?;
        self.origin(load.tv, "load");
        self.b.emit(StmtKind::If { condition, then, otherwise: Vec::new() });
        Ok(())
    }

    /// Replaces what was read outside a row: `if some outside { for each lane
    /// outside { array = fill } }`. Where none is inside, an aligned load has filled all.
    fn emit_fix_up(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy, all: ExprId, any: ExprId) -> Result<()> {
        self.origin(tv, "fill");
        let fill = self.outside_value(tv);
        let then = self.block_of(|lowering| {
            lowering.emit_loop(lanes_of(leaf), |lowering| {
                let terms = lowering.access_terms(tv)?;
                let inside = lowering.conjunction(&terms);
                let outside = lowering.b.exprs().unary(UnaryOp::LogicalNot, inside);
                let index = lowering.array_index(tv)?;
                lowering.b.if_(outside, |b| b.store(copy.array.0, index, fill));
                Ok(())
            })
        })?;
        let not_all = self.b.exprs().unary(UnaryOp::LogicalNot, all);
        let replaced = if copy.width.aligned { self.b.exprs().and(any, not_all) } else { not_all };
        self.b.emit(StmtKind::If { condition: replaced, then, otherwise: Vec::new() });
        Ok(())
    }

    /// `if all inside { wide } else { single elements }`.
    fn emit_partial_store(
        &mut self,
        tv: TvId,
        firsts: &[AxisId],
        leaf: AxisId,
        copy: &VectorCopy,
        ends: &LaneEnds,
    ) -> Result<()> {
        let wide = |l: &mut Self| {
            l.emit_accesses(copy, false);
            Ok(())
        };
        self.emit_either((Some(tv), "store"), ends.all, wide, |lowering| match ends.uniform {
            true => Ok(()),
            false => lowering.emit_loop(lanes_of(leaf), |lowering| lowering.emit_store(tv, firsts)),
        })
    }

    /// Sets all lanes to the fill.
    pub(super) fn emit_fill(&mut self, tv: TvId, leaf: AxisId, copy: &VectorCopy) -> Result<()> {
        let fill = self.outside_value(tv);
        self.emit_loop(lanes_of(leaf), |lowering| {
            let index = lowering.array_index(tv)?;
            lowering.b.store(copy.array.0, index, fill);
            Ok(())
        })
    }

    fn accesses_block(&mut self, copy: &VectorCopy, is_load: bool) -> Block {
        self.b.open();
        self.emit_accesses(copy, is_load);
        self.b.close()
    }

    /// The terms for a whole range of lanes from those of its ends: indices grow
    /// with the lane, so upper bounds are tested at the high end and lower
    /// bounds at the low one. With the ends exchanged, the terms under which
    /// some lane is inside. A test that a constant lane fails is an upper bound.
    pub(super) fn range_terms(&mut self, low: &[ExprId], high: &[ExprId]) -> Vec<ExprId> {
        let mut terms = Vec::new();
        for term in low {
            if high.contains(term) || !self.is_upper(*term) {
                terms.push(*term);
            }
        }
        for term in high {
            if self.is_upper(*term) && !terms.contains(term) {
                terms.push(*term);
            }
        }
        terms
    }

    fn is_upper(&mut self, term: ExprId) -> bool {
        matches!(self.b.exprs()[term].expr, Expr::Binary(BinaryOp::Lt, ..) | Expr::Const(_))
    }

    fn emit_accesses(&mut self, copy: &VectorCopy, is_load: bool) {
        let hint = copy.hint;
        let Width { chunk, aligned } = copy.width;
        for first in (0..copy.lanes).step_by(chunk as usize) {
            let first = self.b.int(first);
            let array = self.b.exprs().add(copy.array.1, first);
            let address = self.b.exprs().add(copy.memory.1, first);
            let (array, memory) = ((copy.array.0, array), (copy.memory.0, address));
            let (to, from) = if is_load { (array, memory) } else { (memory, array) };
            match aligned {
                true => self.b.mov(to, from, chunk as u32, hint),
                false => self.b.mov_unaligned(to, from, chunk as u32, hint),
            }
        }
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
        if data.indexed().any(|axis| self.scheduled.shift_varies(axis, leaf, |output| self.is_open(output))) {
            return Ok(false);
        }
        self.is_along(leaf, axis)
    }

    /// Whether neighbours along a leaf, of which the first lane is open, are neighbours along an axis.
    fn is_along(&mut self, leaf: AxisId, axis: AxisId) -> Result<bool> {
        let (mut seen, mut open) = (Vec::new(), vec![leaf]);
        while let Some(part) = open.pop() {
            if part == axis {
                return Ok(true);
            }
            if seen.contains(&part) {
                continue;
            }
            seen.push(part);
            let defs: Vec<Xform> = self.scheduled.axes.defs(part).copied().collect();
            for xform in defs {
                match xform {
                    Xform::Split { input, inner, .. } => open.extend((inner == part).then_some(input)),
                    Xform::Align { input, .. } | Xform::Window { input, .. } | Xform::Resize { input, .. } => {
                        open.push(input);
                    }
                    Xform::Merge { inner, .. } => {
                        let is_new = !seen.contains(&inner) && self.is_open(part);
                        if is_new && self.lanes_stay_within(leaf, part, inner)? {
                            open.push(inner);
                        }
                    }
                }
            }
            let axes = &self.scheduled.axes;
            // What the program makes of it goes on as it does.
            if axes.has_program_xforms() {
                open.extend(axes.uses(part).filter_map(|xform| match *xform {
                    Xform::Merge { inner, output, .. } if inner == part && !self.is_open(output) => Some(output),
                    Xform::Resize { output, .. } if !self.is_open(output) => Some(output),
                    _ => None,
                }));
            }
        }
        Ok(false)
    }

    /// Whether no vector of lanes, the first of which is open, reaches over an end of the inner one of two merged axes, of which
    /// it has the remainder as its index: whether the lanes divide the merged index and the extent.
    fn lanes_stay_within(&mut self, leaf: AxisId, merged: AxisId, inner: AxisId) -> Result<bool> {
        let lanes = self.facts.constant_extent(leaf)?;
        let extent = self.extent(inner)?;
        if self.multiple_of(extent) % lanes != 0 {
            return Ok(false);
        }
        let index = self.index_of(merged)?;
        Ok(self.multiple_of(index) % lanes == 0)
    }

    /// A power of two (at most 16) that divides an index expression, from the
    /// facts about parameters.
    pub(super) fn multiple_of(&mut self, expr: ExprId) -> i64 {
        const MOST: i64 = 16;
        if let Some(value) = self.b.exprs().as_int(expr) {
            return if value == 0 { MOST } else { 1 << value.trailing_zeros().min(4) };
        }
        let node = self.b.exprs()[expr].expr;
        match node {
            Expr::Param(param) => {
                let param = self.b.param(param);
                match (param.multiple_of, param.kind) {
                    (0, _) => MOST,
                    (1, ParamKind::Derived(value)) => self.multiple_of(value),
                    (fact, _) => 1 << fact.trailing_zeros().min(4),
                }
            }
            Expr::Index(IndexOp::Mul, a, b) => (self.multiple_of(a) * self.multiple_of(b)).min(MOST),
            Expr::Index(IndexOp::Add | IndexOp::Sub | IndexOp::Mod | IndexOp::Xor, a, b) => {
                self.multiple_of(a).min(self.multiple_of(b))
            }
            // Integers wrap at powers of two, so these divide what is left as well.
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Minimum | BinaryOp::Maximum, a, b)
                if self.b.exprs().dtype(expr).is_int() =>
            {
                self.multiple_of(a).min(self.multiple_of(b))
            }
            Expr::AsIndex(a) | Expr::AsData(a) => self.multiple_of(a),
            Expr::Cast(a) if [a, expr].map(|id| self.b.exprs().dtype(id).is_int()) == [true; 2] => self.multiple_of(a),
            _ => 1,
        }
    }
}
