//! Fills the arrays of masks, and asks them.

use super::find::{at_lane, bound_in, matches, unrolled};
use super::substitute::variables;
use super::{End, LaneMasks, Unrolled, conjuncts};
use crate::kernel::exprs::ExprArena;
use crate::kernel::ir::{
    Access, Block, BufId, CacheHint, Expr, ExprId, IndexOp, Kernel, Origin, Stmt, StmtKind, Unroll, ValueKind, Var,
    VarId,
};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp};
use std::collections::BTreeSet;

/// The pass of its statements.
const PASS: &str = "lanes";

/// Puts the masks into a kernel.
pub(super) fn rewrite(kernel: &mut Kernel, masks: Vec<LaneMasks>) {
    let mut body: Block = masks.iter().map(|masks| fill(kernel, masks)).collect();
    let rest = std::mem::take(&mut kernel.body);
    let mut pass = Rewrite { kernel, masks, loops: Vec::new(), held: Vec::new() };
    body.extend(pass.block(rest));
    kernel.body = body;
}

/// What a test of two ends asks of a mask.
#[derive(Clone, Copy)]
enum Question {
    /// Whether one lane is inside.
    Lane(Unrolled),
    All,
    Some,
}

/// Two terms of a conjunction that ask something of masks.
struct Asked {
    /// Where the terms stand, in order.
    terms: [usize; 2],
    masks: usize,
    question: Question,
    /// The open loops over the vectors.
    vectors: Vec<Unrolled>,
}

/// A mask in a variable.
struct HeldMask {
    array: BufId,
    element: ExprId,
    /// What holds of all lanes, or none is set.
    given: Option<ExprId>,
    mask: ExprId,
}

struct Rewrite<'a> {
    kernel: &'a mut Kernel,
    masks: Vec<LaneMasks>,
    /// The unrolled loops that are open.
    loops: Vec<Unrolled>,
    /// The masks that variables hold here.
    held: Vec<HeldMask>,
}

impl Rewrite<'_> {
    fn block(&mut self, block: Block) -> Block {
        let outside = self.held.len();
        let mut out = Block::with_capacity(block.len());
        for mut stmt in block {
            let own = unrolled(self.kernel, &stmt.kind);
            // Loads stand before the loop over lanes that asks for them.
            self.prepare(&stmt, own, &mut out);
            match &mut stmt.kind {
                StmtKind::For { body, .. } => {
                    self.loops.extend(own);
                    *body = self.block(std::mem::take(body));
                    self.loops.truncate(self.loops.len() - usize::from(own.is_some()));
                }
                StmtKind::If { condition, then, otherwise } => {
                    *condition = self.condition(*condition, &stmt.origin, &mut out);
                    *then = self.block(std::mem::take(then));
                    *otherwise = self.block(std::mem::take(otherwise));
                }
                _ => {}
            }
            out.push(stmt);
        }
        self.held.truncate(outside);
        out
    }

    /// Loads the masks that the conditions directly in a loop over lanes ask for.
    fn prepare(&mut self, stmt: &Stmt, own: Option<Unrolled>, out: &mut Block) {
        let (StmtKind::For { body, .. }, Some(own)) = (&stmt.kind, own) else { return };
        self.loops.push(own);
        let inner = bound_in(own.counter, body);
        for test in body {
            if let StmtKind::If { condition, .. } = test.kind {
                self.prepare_condition(condition, (own, &inner), &stmt.origin, out);
            }
        }
        self.loops.pop();
    }

    fn prepare_condition(
        &mut self,
        condition: ExprId,
        (own, inner): (Unrolled, &BTreeSet<VarId>),
        origin: &Origin,
        out: &mut Block,
    ) {
        let mut terms = conjuncts(&self.kernel.exprs, condition);
        while let Some(asked) = self.asked(&terms) {
            let [first, second] = asked.terms;
            terms.remove(second);
            terms.remove(first);
            let given = self.given(&asked, &terms);
            let mut read = given.iter().flat_map(|given| variables(&self.kernel.exprs, *given));
            let of_lane = matches!(asked.question, Question::Lane(lane) if lane.counter == own.counter);
            if of_lane && !read.any(|var| inner.contains(&var)) {
                self.mask(&asked, given, origin, out);
            }
        }
        for term in terms {
            if let Expr::Unary(UnaryOp::LogicalNot, inverse) = self.kernel.exprs[term].expr {
                self.prepare_condition(inverse, (own, inner), origin, out);
            }
        }
    }

    /// A condition that asks masks where it can.
    fn condition(&mut self, condition: ExprId, origin: &Origin, out: &mut Block) -> ExprId {
        let mut terms = conjuncts(&self.kernel.exprs, condition);
        for term in &mut terms {
            if let Expr::Unary(UnaryOp::LogicalNot, inner) = self.kernel.exprs[*term].expr {
                let inner = self.condition(inner, origin, out);
                *term = self.kernel.exprs.unary(UnaryOp::LogicalNot, inner);
            }
        }
        while let Some(asked) = self.asked(&terms) {
            let [first, second] = asked.terms;
            terms.remove(second);
            terms.remove(first);
            let given = self.given(&asked, &terms);
            let mask = self.mask(&asked, given, origin, out);
            let answer = self.answer(mask, self.masks[asked.masks].width, asked.question);
            if given.is_some() {
                return answer;
            }
            terms.insert(first, answer);
        }
        let all = terms.into_iter().reduce(|all, term| self.kernel.exprs.and(all, term));
        all.unwrap_or(condition)
    }

    /// What else a test of lanes asks, all of which holds of all lanes or of none: it becomes part of the mask.
    fn given(&mut self, asked: &Asked, others: &[ExprId]) -> Option<ExprId> {
        let lane = match asked.question {
            Question::Lane(lane) => Some(lane.counter),
            Question::All => None,
            // Asked where loads begin, which is not where values are used.
            Question::Some => return None,
        };
        let varies = |term: &ExprId| variables(&self.kernel.exprs, *term).into_iter().any(|var| Some(var) == lane);
        if others.iter().any(varies) {
            return None;
        }
        others.iter().copied().reduce(|all, term| self.kernel.exprs.and(all, term))
    }

    /// The first two terms that ask something of masks.
    fn asked(&mut self, terms: &[ExprId]) -> Option<Asked> {
        let ends: Vec<Option<End>> = terms.iter().map(|term| End::of(&self.kernel.exprs, *term)).collect();
        for (lower, low) in ends.iter().enumerate() {
            let Some(End::Lower(low)) = *low else { continue };
            for (upper, high) in ends.iter().enumerate() {
                let Some(End::Upper(high, extent)) = *high else { continue };
                if let Some((masks, question, vectors)) = self.asked_by([low, high, extent]) {
                    return Some(Asked { terms: [lower.min(upper), lower.max(upper)], masks, question, vectors });
                }
            }
        }
        None
    }

    /// What `low >= 0 && high < extent` asks.
    fn asked_by(&mut self, [low, high, extent]: [ExprId; 3]) -> Option<(usize, Question, Vec<Unrolled>)> {
        let read: Vec<_> = [low, high, extent].iter().flat_map(|id| variables(&self.kernel.exprs, *id)).collect();
        let loops: Vec<Unrolled> = self.loops.iter().copied().filter(|own| read.contains(&own.counter)).collect();
        let lane = loops.last().copied().filter(|_| low == high);
        let (vectors, questions) = match lane {
            Some(lane) => {
                let ends = [0, lane.extent - 1].map(|at| at_lane(self.kernel, low, lane.counter, at));
                (&loops[..loops.len() - 1], vec![(ends, Question::Lane(lane))])
            }
            None => (&loops[..], vec![([low, high], Question::All), ([high, low], Question::Some)]),
        };
        for (at, masks) in self.masks.iter().enumerate() {
            for ([first, last], question) in &questions {
                let fits = lane.is_none_or(|lane| lane.extent == masks.width);
                if fits && matches(self.kernel, masks, vectors, &[*first, *last, extent]) {
                    return Some((at, *question, vectors.to_vec()));
                }
            }
        }
        None
    }

    /// A variable that holds a mask in the loops that are open, or nothing where `given` does not hold.
    fn mask(&mut self, asked: &Asked, given: Option<ExprId>, origin: &Origin, out: &mut Block) -> ExprId {
        let array = self.masks[asked.masks].array;
        let element = index_of(self.kernel, &asked.vectors);
        let is_held = |held: &&HeldMask| (held.array, held.element, held.given) == (array, element, given);
        if let Some(held) = self.held.iter().find(is_held) {
            return held.mask;
        }
        let var = self.kernel.vars.push(Var { name: "inside".into(), dtype: DType::I32, at_least: None });
        let mask = self.kernel.exprs.var(var, DType::I32, ValueKind::Data);
        let kind = match given {
            None => {
                let from = Access { buffer: array, index: element };
                StmtKind::Load { var, from, hint: CacheHint::Default }
            }
            Some(given) => {
                let all = self.mask(asked, None, origin, out);
                let none = self.kernel.exprs.int(0, DType::I32);
                StmtKind::Let { var, value: self.kernel.exprs.ternary(TernaryOp::Where, given, all, none) }
            }
        };
        out.push(Stmt { kind, origin: Origin { pass: PASS, ..*origin } });
        self.held.push(HeldMask { array, element, given, mask });
        mask
    }

    fn answer(&mut self, mask: ExprId, width: i64, question: Question) -> ExprId {
        let exprs = &mut self.kernel.exprs;
        let none = exprs.int(0, DType::I32);
        match question {
            Question::Lane(lane) => {
                let counter = exprs.var(lane.counter, self.kernel.vars[lane.counter].dtype, ValueKind::Index);
                let bit = power(exprs, counter);
                let set = exprs.binary(BinaryOp::BitwiseAnd, mask, bit);
                exprs.binary(BinaryOp::Ne, set, none)
            }
            Question::All => {
                let all = exprs.int((1 << width) - 1, DType::I32);
                exprs.binary(BinaryOp::Eq, mask, all)
            }
            Question::Some => exprs.binary(BinaryOp::Ne, mask, none),
        }
    }
}

/// The loops that fill an array of masks.
fn fill(kernel: &mut Kernel, masks: &LaneMasks) -> Stmt {
    let origin = Origin { tensor: None, pass: PASS };
    let exprs = &mut kernel.exprs;
    let zero = exprs.int(0, exprs.dtype(masks.first));
    let (before, all) = (exprs.sub(zero, masks.first), exprs.sub(masks.extent, masks.first));
    let (below, inside) = (bits(exprs, before, masks.width), bits(exprs, all, masks.width));
    let not_below = exprs.unary(UnaryOp::BitwiseNot, below);
    let value = exprs.binary(BinaryOp::BitwiseAnd, inside, not_below);
    let index = index_of(kernel, &masks.loops);
    let to = Access { buffer: masks.array, index };
    let mut stmt = Stmt { kind: StmtKind::Store { to, value, hint: CacheHint::Held }, origin };
    for own in masks.loops.iter().rev() {
        let dtype = kernel.vars[own.counter].dtype;
        let (start, end) = (kernel.exprs.int(0, dtype), kernel.exprs.int(own.extent, dtype));
        let kind = StmtKind::For { var: own.counter, start, end, step: 1, unroll: Unroll::Full, body: vec![stmt] };
        stmt = Stmt { kind, origin };
    }
    stmt
}

/// `(u0 * n1 + u1) * n2 + ...`: which of an array's masks that of the vector is in which loops are.
fn index_of(kernel: &mut Kernel, vectors: &[Unrolled]) -> ExprId {
    let (exprs, index_type) = (&mut kernel.exprs, kernel.index_type);
    let mut index = exprs.int(0, index_type);
    for own in vectors {
        let extent = exprs.int(own.extent, index_type);
        let position = exprs.var(own.counter, kernel.vars[own.counter].dtype, ValueKind::Index);
        let position = exprs.cast(position, index_type);
        index = exprs.mul(index, extent);
        index = exprs.add(index, position);
    }
    index
}

/// `2^k - 1`, `k` a number of lanes, bounded to 0 and `width`.
fn bits(exprs: &mut ExprArena, lanes: ExprId, width: i64) -> ExprId {
    let dtype = exprs.dtype(lanes);
    let (zero, most, one) = (exprs.int(0, dtype), exprs.int(width, dtype), exprs.int(1, DType::I32));
    let some = exprs.index(IndexOp::Max, lanes, zero);
    let some = exprs.index(IndexOp::Min, some, most);
    let power = power(exprs, some);
    exprs.binary(BinaryOp::Sub, power, one)
}

/// `2^k`.
fn power(exprs: &mut ExprArena, exponent: ExprId) -> ExprId {
    let (one, exponent) = (exprs.int(1, DType::I32), exprs.cast(exponent, DType::I32));
    let exponent = exprs.as_data(exponent);
    exprs.binary(BinaryOp::ShiftLeft, one, exponent)
}
