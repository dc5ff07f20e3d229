//! Which masks a kernel's tests ask for.

use super::substitute::{substitute, variables};
use super::{End, LaneMasks, MOST_LANES, MOST_MASKS, Unrolled, conjuncts};
use crate::kernel::ir::{Block, Buffer, Expr, ExprId, IndexOp, Kernel, Space, StmtKind, Unroll, ValueKind, Var, VarId};
use crate::kernel::visit::for_each_stmt;
use crate::num::{DType, UnaryOp};
use crate::util::{map_of, set_of};
use std::collections::{BTreeMap, BTreeSet};

/// Finds the masks, and declares their arrays.
pub(super) fn find(kernel: &mut Kernel) -> Vec<LaneMasks> {
    let body = std::mem::take(&mut kernel.body);
    let mut search = Search { kernel, loops: Vec::new(), masks: Vec::new() };
    search.block(&body);
    let masks = search.masks;
    kernel.body = body;
    masks
}

/// The unrolled loop that a statement is.
pub(in crate::kernel) fn unrolled(kernel: &Kernel, kind: &StmtKind) -> Option<Unrolled> {
    let StmtKind::For { var, start, end, step: 1, unroll: Unroll::Full, .. } = *kind else { return None };
    let extent = kernel.exprs.as_int(end)?;
    (kernel.exprs.as_int(start) == Some(0)).then_some(Unrolled { counter: var, extent })
}

struct Search<'a> {
    kernel: &'a mut Kernel,
    /// The unrolled loops that are open.
    loops: Vec<Unrolled>,
    masks: Vec<LaneMasks>,
}

impl Search<'_> {
    fn block(&mut self, block: &Block) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::For { body, .. } => {
                    let own = unrolled(self.kernel, &stmt.kind);
                    self.loops.extend(own);
                    self.block(body);
                    self.loops.truncate(self.loops.len() - usize::from(own.is_some()));
                }
                StmtKind::If { condition, then, otherwise } => {
                    self.condition(*condition);
                    self.block(then);
                    self.block(otherwise);
                }
                _ => {}
            }
        }
    }

    fn condition(&mut self, condition: ExprId) {
        let terms = conjuncts(&self.kernel.exprs, condition);
        let ends: Vec<End> = terms.iter().filter_map(|term| End::of(&self.kernel.exprs, *term)).collect();
        for end in &ends {
            if let End::Upper(index, extent) = *end
                && ends.contains(&End::Lower(index))
                && let Some(lane) = self.lane_of(index)
            {
                self.add(index, extent, lane);
            }
        }
        for term in terms {
            if let Expr::Unary(UnaryOp::LogicalNot, inner) = self.kernel.exprs[term].expr {
                self.condition(inner);
            }
        }
    }

    /// The loop over lanes of which an index is `e + v`.
    fn lane_of(&self, index: ExprId) -> Option<Unrolled> {
        let mut at = index;
        let exprs = &self.kernel.exprs;
        let own = |var: VarId| self.loops.iter().copied().find(|own| own.counter == var);
        loop {
            let has_loop = |id: ExprId, of: Unrolled| variables(exprs, id).contains(&of.counter);
            let (a, b, is_sum) = match exprs[at].expr {
                Expr::Var(var) => return own(var).filter(|own| (2..=MOST_LANES).contains(&own.extent)),
                Expr::Index(IndexOp::Add, a, b) => (a, b, true),
                Expr::Index(IndexOp::Sub, a, b) => (a, b, false),
                _ => return None,
            };
            // The lane is the innermost loop.
            let innermost = self.loops.last().copied()?;
            at = match (has_loop(a, innermost), has_loop(b, innermost)) {
                (true, false) => a,
                (false, true) if is_sum => b,
                _ => return None,
            };
        }
    }

    /// Adds the masks of a test of lanes `0 <= index < extent`, if they are new and known at the start.
    fn add(&mut self, index: ExprId, extent: ExprId, lane: Unrolled) {
        let exprs = &self.kernel.exprs;
        let read: Vec<VarId> = [index, extent].iter().flat_map(|expr| variables(exprs, *expr)).collect();
        let loops: Vec<Unrolled> = self.loops.iter().copied().filter(|own| read.contains(&own.counter)).collect();
        let is_known = |var: &VarId| loops.iter().any(|own| own.counter == *var);
        let vectors: Vec<Unrolled> = loops.iter().copied().filter(|own| own.counter != lane.counter).collect();
        let count: i64 = vectors.iter().map(|own| own.extent).product();
        if !read.iter().all(is_known) || variables(exprs, extent).contains(&lane.counter) || count > MOST_MASKS {
            return;
        }
        let test = [0, lane.extent - 1].map(|at| at_lane(self.kernel, index, lane.counter, at));
        if self.masks.iter().any(|masks| matches(self.kernel, masks, &vectors, &[test[0], test[1], extent])) {
            return;
        }
        self.declare(test, extent, lane.extent, &vectors);
    }

    fn declare(&mut self, [first, last]: [ExprId; 2], extent: ExprId, width: i64, vectors: &[Unrolled]) {
        let mut counters = BTreeMap::new();
        let mut loops = Vec::new();
        for own in vectors {
            let counter = self.kernel.vars.push(Var { at_least: None, ..self.kernel.vars[own.counter].clone() });
            let dtype = self.kernel.vars[counter].dtype;
            counters.insert(own.counter, self.kernel.exprs.var(counter, dtype, ValueKind::Index));
            loops.push(Unrolled { counter, extent: own.extent });
        }
        let [first, last, extent] =
            [first, last, extent].map(|expr| substitute(&mut self.kernel.exprs, expr, &counters));
        let len = loops.iter().map(|own| own.extent).product();
        let index_type = self.kernel.index_type;
        let array = self.kernel.buffers.push(Buffer {
            name: "lanes".into(),
            dtype: DType::I32,
            space: Space::Local,
            len: self.kernel.exprs.int(len, index_type),
            align: DType::I32.bytes() as u32,
            start: 0,
            zeroed: false,
        });
        self.masks.push(LaneMasks { first, last, extent, width, loops, array });
    }
}

/// An index of a lane.
pub(in crate::kernel) fn at_lane(kernel: &mut Kernel, index: ExprId, counter: VarId, lane: i64) -> ExprId {
    let lane = kernel.exprs.int(lane, kernel.vars[counter].dtype);
    substitute(&mut kernel.exprs, index, &map_of([(counter, lane)]))
}

/// Whether expressions of the counters of some loops are the first lane, the last lane and the extent of masks.
pub(super) fn matches(
    kernel: &mut Kernel,
    masks: &LaneMasks,
    loops: &[Unrolled],
    [first, last, extent]: &[ExprId; 3],
) -> bool {
    let alike = loops.len() == masks.loops.len() && loops.iter().zip(&masks.loops).all(|(a, b)| a.extent == b.extent);
    if !alike {
        return false;
    }
    let pairs = loops.iter().zip(&masks.loops);
    let counters = map_of(pairs.map(|(own, of)| {
        let dtype = kernel.vars[of.counter].dtype;
        (own.counter, kernel.exprs.var(of.counter, dtype, ValueKind::Index))
    }));
    [(*first, masks.first), (*last, masks.last), (*extent, masks.extent)]
        .into_iter()
        .all(|(own, of)| substitute(&mut kernel.exprs, own, &counters) == of)
}

/// A loop's counter, and the variables that are bound inside of the loop.
pub(in crate::kernel) fn bound_in(counter: VarId, body: &Block) -> BTreeSet<VarId> {
    let mut bound = set_of([counter]);
    for_each_stmt(body, &mut |stmt| match &stmt.kind {
        StmtKind::Let { var, .. }
        | StmtKind::Load { var, .. }
        | StmtKind::For { var, .. }
        | StmtKind::Shuffle { var, .. }
        | StmtKind::Atomic { var: Some(var), .. } => {
            bound.insert(*var);
        }
        StmtKind::Random { vars, .. } => bound.extend(vars),
        _ => {}
    });
    bound
}
