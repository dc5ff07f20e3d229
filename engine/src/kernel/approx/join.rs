//! Several operations that one approximation stands for: `erf(z) + 1`, and the slope of GELU,
//! `(erf(x / sqrt(2)) + 1) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)`, which is that and an exponential of the same number; and
//! `tanh(z) + 1`, of which `1 - tanh(z)^2` is the product with what it lacks to 2.
//!
//! Only what nothing else uses is replaced: else it would be computed beside its replacement. The slope's terms are below
//! 2^-122 where its exponential is flushed to zero.

use super::reads::first_reads;
use super::{Uses, rewrite};
use crate::kernel::exprs::{ExprArena, ExprNode};
use crate::kernel::ir::{Block, Expr, ExprId, Kernel, StmtKind, VarId};
use crate::kernel::visit::statement_exprs;
use crate::num::{ApproxOp, BinaryOp, DType, UnaryOp, Value};
use crate::util::SecondaryMap;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Constants that `f32` rounds are those of the slope where they are this close.
const CLOSE: f64 = 1.0 / (1 << 22) as f64;

/// Joins what can be joined, in f32.
pub(super) fn join(kernel: &mut Kernel) {
    let mut uses = Uses::new(kernel);
    let is = |op: UnaryOp| {
        kernel
            .exprs
            .iter()
            .any(|(id, node)| uses.count[id] > 0 && matches!(node.expr, Expr::Unary(other, _) if other == op))
    };
    let (erf, exp, tanh) = (is(UnaryOp::Erf), is(UnaryOp::Exp), is(UnaryOp::Tanh));
    if tanh {
        join_tanh(kernel, uses);
        uses = Uses::new(kernel);
    }
    if !erf {
        return;
    }
    let parts = Parts { kernel, uses, first: SecondaryMap::new() };
    let joined = parts.joined(|id| parts.erf_plus_one(id).map(|z| Expr::Approx(ApproxOp::ErfPlusOne, z)));
    replace(kernel, &joined);
    if exp {
        let parts = Parts { kernel, uses: Uses::new(kernel), first: repeated_reads(kernel) };
        let joined = parts.joined(|id| parts.gelu_slope(id).map(|x| Expr::Approx(ApproxOp::GeluSlope, x)));
        replace(kernel, &joined);
    }
}

/// Makes `tanh(z) + 1` of each `tanh(z)` that is used so and in `1 - tanh(z)^2` alone.
fn join_tanh(kernel: &mut Kernel, uses: Uses) {
    let found = Parts { kernel, uses, first: SecondaryMap::new() }.tangents();
    let mut joined = Vec::new();
    for Tangent { id, of, read, sums, slopes } in found {
        let plus_one = Expr::Approx(ApproxOp::TanhPlusOne, of);
        joined.push((id, plus_one));
        let sum = if read == id { plus_one } else { kernel.exprs[read].expr };
        joined.extend(sums.into_iter().map(|own| (own, sum)));
        if !slopes.is_empty() {
            let two = kernel.exprs.intern(Expr::Const(Value::Float(2.0)), DType::F32);
            let lacks = kernel.exprs.intern(Expr::Binary(BinaryOp::Sub, two, read), DType::F32);
            joined.extend(slopes.into_iter().map(|own| (own, Expr::Binary(BinaryOp::Mul, read, lacks))));
        }
    }
    replace(kernel, &joined);
}

/// A hyperbolic tangent, by what it is used for.
struct Tangent {
    id: ExprId,
    of: ExprId,
    /// The variable that names it, or itself: what others read.
    read: ExprId,
    /// The sums with 1.
    sums: Vec<ExprId>,
    /// What its square lacks to 1.
    slopes: Vec<ExprId>,
}

/// Replaces sums, and removes the definitions that nothing uses then.
fn replace(kernel: &mut Kernel, joined: &[(ExprId, Expr)]) {
    if joined.is_empty() {
        return;
    }
    let mut with = SecondaryMap::<ExprId, Option<Expr>>::new();
    joined.iter().for_each(|&(sum, expr)| with.set(sum, Some(expr)));
    rewrite(kernel, |_, id, now| with[id].map(|expr| expr.map_operands(now)));
    let mut body = std::mem::take(&mut kernel.body);
    Used::default().sweep(&kernel.exprs, &mut body);
    kernel.body = body;
}

/// Which variables statements need, and the expressions that were looked through for them.
#[derive(Default)]
struct Used {
    vars: SecondaryMap<VarId, bool>,
    seen: SecondaryMap<ExprId, bool>,
}

impl Used {
    /// Adds what a statement needs.
    fn add(&mut self, exprs: &ExprArena, kind: &StmtKind) {
        let mut left = Vec::new();
        statement_exprs(kind, &mut |expr| left.push(expr));
        while let Some(id) = left.pop() {
            if !std::mem::replace(&mut self.seen[id], true) {
                if let Expr::Var(var) = exprs[id].expr {
                    self.vars.set(var, true);
                }
                left.extend(exprs[id].expr.operands());
            }
        }
    }

    /// Removes from a block the definitions that nothing behind them uses, the last ones first, so that what
    /// only they use goes too. Behind the block is what `self` has.
    fn sweep(&mut self, exprs: &ExprArena, block: &mut Block) {
        let mut kept: Vec<_> = Vec::with_capacity(block.len());
        for mut stmt in std::mem::take(block).into_iter().rev() {
            match &mut stmt.kind {
                StmtKind::Let { var, .. } | StmtKind::Load { var, .. } if !self.vars[*var] => continue,
                StmtKind::For { body, .. } => self.sweep(exprs, body),
                StmtKind::If { then, otherwise, .. } => {
                    self.sweep(exprs, then);
                    self.sweep(exprs, otherwise);
                }
                _ => {}
            }
            self.add(exprs, &stmt.kind);
            kept.push(stmt);
        }
        kept.reverse();
        *block = kept;
    }
}

/// The variables that are read again from a thread's own memory, each with the first: both as expressions.
fn repeated_reads(kernel: &Kernel) -> SecondaryMap<ExprId, Option<ExprId>> {
    let first = first_reads(kernel, &|_| false);
    let (mut of_var, mut repeated) = (SecondaryMap::<VarId, Option<ExprId>>::new(), SecondaryMap::new());
    let vars = || {
        kernel.exprs.iter().filter_map(|(id, node)| match node.expr {
            Expr::Var(var) => Some((id, var)),
            _ => None,
        })
    };
    vars().for_each(|(id, var)| of_var.set(var, Some(id)));
    vars().for_each(|(id, var)| repeated.set(id, first[var].and_then(|first| of_var[first])));
    repeated
}

/// A product as its factors that are no constants, and the product of those that are.
struct Product {
    factors: Vec<ExprId>,
    constant: f64,
}

impl Product {
    /// Whether it has these factors, in any order, and this constant, as far as `f32` holds it.
    fn is(&self, mut factors: Vec<ExprId>, constant: f64) -> bool {
        let mut own = self.factors.clone();
        own.sort_unstable();
        factors.sort_unstable();
        let is_held = f64::from(constant as f32) == constant;
        let off = (self.constant / constant - 1.0).abs();
        own == factors && off <= if is_held { 0.0 } else { CLOSE }
    }
}

/// What sums are looked for in.
struct Parts<'a> {
    kernel: &'a Kernel,
    uses: Uses,
    first: SecondaryMap<ExprId, Option<ExprId>>,
}

impl Parts<'_> {
    /// The sums that are something else, and what.
    fn joined(&self, with: impl Fn(ExprId) -> Option<Expr>) -> Vec<(ExprId, Expr)> {
        let sums = self.kernel.exprs.iter().filter(|(id, node)| {
            node.dtype == DType::F32 && self.uses.count[*id] > 0 && matches!(node.expr, Expr::Binary(BinaryOp::Add, ..))
        });
        sums.filter_map(|(id, _)| Some((id, with(id)?))).collect()
    }

    /// The `z` of `erf(z) + 1`.
    fn erf_plus_one(&self, sum: ExprId) -> Option<ExprId> {
        let Expr::Binary(_, a, b) = self.kernel.exprs[sum].expr else { return None };
        let erf = match (self.is_one(a), self.is_one(b)) {
            (_, true) => a,
            (true, _) => b,
            _ => return None,
        };
        match self.sole(erf)? {
            Expr::Unary(UnaryOp::Erf, z) => Some(z),
            _ => None,
        }
    }

    /// The hyperbolic tangents that are used for nothing but sums with 1 and what their squares lack to 1; several times only
    /// under a name.
    fn tangents(&self) -> Vec<Tangent> {
        let exprs = &self.kernel.exprs;
        let mut names = SecondaryMap::<ExprId, Option<ExprId>>::new();
        // By what they are of.
        let (mut sums, mut slopes) = (SecondaryMap::<ExprId, Vec<_>>::new(), SecondaryMap::<ExprId, Vec<_>>::new());
        for (id, node) in exprs.iter().filter(|(id, _)| self.uses.count[*id] > 0) {
            match node.expr {
                Expr::Var(var) => {
                    if let Some(definition) = self.uses.lets[var] {
                        names.set(definition, Some(id));
                    }
                }
                Expr::Binary(BinaryOp::Add, one, x) | Expr::Binary(BinaryOp::Add, x, one) if self.is_one(one) => {
                    sums[x].push(id);
                }
                Expr::Binary(BinaryOp::Sub, one, square) if self.is_one(one) => match self.sole(square) {
                    Some(Expr::Binary(BinaryOp::Mul, x, y)) if x == y => slopes[x].push(id),
                    _ => {}
                },
                _ => {}
            }
        }
        let tangent = |(id, node): (ExprId, &ExprNode)| {
            let Expr::Unary(UnaryOp::Tanh, of) = node.expr else { return None };
            let read = names[id].unwrap_or(id);
            let found = Tangent { id, of, read, sums: sums[read].clone(), slopes: slopes[read].clone() };
            let is_known = found.sums.len() + 2 * found.slopes.len() == self.uses.count[read] as usize;
            let is_named = read != id || found.slopes.is_empty();
            let is_single = node.dtype == DType::F32 && self.uses.count[id] == 1;
            (is_single && is_known && is_named && !found.sums.is_empty()).then_some(found)
        };
        exprs.iter().filter_map(tangent).collect()
    }

    fn is_one(&self, id: ExprId) -> bool {
        constant(self.kernel, id) == Some(1.0)
    }

    /// The `x` of the slope of GELU.
    fn gelu_slope(&self, sum: ExprId) -> Option<ExprId> {
        let Expr::Binary(_, a, b) = self.kernel.exprs[sum].expr else { return None };
        self.slope_of(a, b).or_else(|| self.slope_of(b, a))
    }

    fn slope_of(&self, cdf: ExprId, along: ExprId) -> Option<ExprId> {
        let cdf = self.product(cdf);
        let [gate] = cdf.factors[..] else { return None };
        let Expr::Approx(ApproxOp::ErfPlusOne, z) = self.sole(gate)? else { return None };
        let scaled = self.product(z);
        let [x] = scaled.factors[..] else { return None };
        let along = self.product(along);
        let exp = along.factors.iter().copied().find(|factor| *factor != x)?;
        let Expr::Unary(UnaryOp::Exp, power) = self.sole(exp)? else { return None };
        let is_slope = cdf.is(vec![gate], 0.5)
            && scaled.is(vec![x], FRAC_1_SQRT_2)
            && along.is(vec![x, exp], 1.0 / (2.0 * PI).sqrt())
            && self.product(power).is(vec![x, x], -0.5);
        is_slope.then_some(x)
    }

    /// What an expression is, where nothing else uses it.
    fn sole(&self, id: ExprId) -> Option<Expr> {
        self.uses.sole_definition(self.kernel, id).map(|definition| self.kernel.exprs[definition].expr)
    }

    /// An expression as a product, as far as nothing else uses its parts.
    fn product(&self, id: ExprId) -> Product {
        let mut product = Product { factors: Vec::new(), constant: 1.0 };
        let mut left = vec![id];
        while let Some(id) = left.pop() {
            if let Some(number) = constant(self.kernel, id) {
                product.constant *= number;
                continue;
            }
            match self.sole(id) {
                Some(Expr::Binary(BinaryOp::Mul, a, b)) => left.extend([a, b]),
                Some(Expr::Unary(UnaryOp::Neg, a)) => {
                    product.constant = -product.constant;
                    left.push(a);
                }
                _ => product.factors.push(self.first[id].unwrap_or(id)),
            }
        }
        product
    }
}

fn constant(kernel: &Kernel, id: ExprId) -> Option<f64> {
    match kernel.exprs[id].expr {
        Expr::Const(Value::Float(number)) => Some(number),
        _ => None,
    }
}
