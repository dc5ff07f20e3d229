//! Several operations that one approximation stands for: `erf(z) + 1`, and the slope of GELU,
//! `(erf(x / sqrt(2)) + 1) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)`, which is that and an exponential of the same number.
//!
//! Only what nothing else uses is replaced: else it would be computed beside its replacement.

use super::{Uses, rewrite};
use crate::kernel::ir::{Access, Block, Expr, ExprId, Kernel, Space, StmtKind, VarId};
use crate::kernel::visit::for_each_stmt;
use crate::num::{ApproxOp, BinaryOp, DType, UnaryOp, Value};
use crate::util::SecondaryMap;
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// Constants this close are those of the slope, rounded.
const CLOSE: f64 = 1.0 / (1 << 22) as f64;

/// Joins what can be joined, in f32.
pub(super) fn join(kernel: &mut Kernel) {
    replace(kernel, |parts, id| parts.erf_plus_one(id).map(|z| Expr::Approx(ApproxOp::ErfPlusOne, z)));
    replace(kernel, |parts, id| parts.gelu_slope(id).map(|x| Expr::Approx(ApproxOp::GeluSlope, x)));
}

/// Replaces sums, and removes the definitions that nothing uses then.
fn replace(kernel: &mut Kernel, with: impl Fn(&Parts<'_>, ExprId) -> Option<Expr>) {
    let parts = Parts { kernel, uses: Uses::new(kernel), first: first_reads(kernel) };
    let mut joined = SecondaryMap::<ExprId, Option<Expr>>::new();
    let mut any = false;
    for (id, node) in kernel.exprs.iter().filter(|(id, node)| node.dtype == DType::F32 && parts.uses.count[*id] > 0) {
        if let (Expr::Binary(BinaryOp::Add, ..), Some(expr)) = (node.expr, with(&parts, id)) {
            joined.set(id, Some(expr));
            any = true;
        }
    }
    let before = parts.uses;
    if any {
        rewrite(kernel, |_, id| joined[id]);
        remove_unused(kernel, &before);
    }
}

/// For each variable that is read from a thread's own memory again, unchanged since, the one that was read there first:
/// both as expressions.
fn first_reads(kernel: &Kernel) -> SecondaryMap<ExprId, Option<ExprId>> {
    let mut again = Vec::new();
    in_block(kernel, &kernel.body, &mut again);
    let mut first = SecondaryMap::new();
    if again.is_empty() {
        return first;
    }
    let mut of_var = SecondaryMap::<VarId, Option<ExprId>>::new();
    for (id, node) in kernel.exprs.iter() {
        if let Expr::Var(var) = node.expr {
            of_var.set(var, Some(id));
        }
    }
    for (later, earlier) in again {
        if let (Some(later), Some(earlier)) = (of_var[later], of_var[earlier]) {
            first.set(later, Some(earlier));
        }
    }
    first
}

/// Adds the variables of a block that are read again, each with the first.
fn in_block(kernel: &Kernel, block: &Block, again: &mut Vec<(VarId, VarId)>) {
    let mut known: Vec<(Access, VarId)> = Vec::new();
    for stmt in block {
        match &stmt.kind {
            StmtKind::Load { var, from, .. } if kernel.buffers[from.buffer].space == Space::Local => {
                match known.iter().find(|(place, _)| place == from) {
                    Some((_, first)) => again.push((*var, *first)),
                    None => known.push((*from, *var)),
                }
            }
            StmtKind::Store { to, .. } | StmtKind::Move { to, .. } => {
                known.retain(|(place, _)| place.buffer != to.buffer);
            }
            StmtKind::For { body, .. } => {
                known.clear();
                in_block(kernel, body, again);
            }
            StmtKind::If { then, otherwise, .. } => {
                known.clear();
                in_block(kernel, then, again);
                in_block(kernel, otherwise, again);
            }
            _ => {}
        }
    }
}

/// Removes definitions that were used before, and what only they use.
fn remove_unused(kernel: &mut Kernel, before: &Uses) {
    loop {
        let now = Uses::new(kernel);
        let is_used = |uses: &Uses, var: VarId| {
            kernel.exprs.iter().any(|(id, node)| node.expr == Expr::Var(var) && uses.count[id] > 0)
        };
        let mut unused = Vec::new();
        for_each_stmt(&kernel.body, &mut |stmt| {
            if let StmtKind::Let { var, .. } | StmtKind::Load { var, .. } = stmt.kind
                && !is_used(&now, var)
                && is_used(before, var)
            {
                unused.push(var);
            }
        });
        if unused.is_empty() {
            return;
        }
        remove_definitions(&mut kernel.body, &unused);
    }
}

fn remove_definitions(block: &mut Block, unused: &[VarId]) {
    let defines = |kind: &StmtKind| match kind {
        StmtKind::Let { var, .. } | StmtKind::Load { var, .. } => unused.contains(var),
        _ => false,
    };
    block.retain(|stmt| !defines(&stmt.kind));
    for stmt in block {
        match &mut stmt.kind {
            StmtKind::For { body, .. } => remove_definitions(body, unused),
            StmtKind::If { then, otherwise, .. } => {
                remove_definitions(then, unused);
                remove_definitions(otherwise, unused);
            }
            _ => {}
        }
    }
}

/// A product as its factors that are no constants, and the product of those that are.
struct Product {
    factors: Vec<ExprId>,
    constant: f64,
}

impl Product {
    /// Whether it has these factors, in any order, and about this constant.
    fn is(&self, mut factors: Vec<ExprId>, constant: f64) -> bool {
        let mut own = self.factors.clone();
        own.sort_unstable();
        factors.sort_unstable();
        own == factors && (self.constant / constant - 1.0).abs() <= CLOSE
    }
}

/// What sums are looked for in.
struct Parts<'a> {
    kernel: &'a Kernel,
    uses: Uses,
    first: SecondaryMap<ExprId, Option<ExprId>>,
}

impl Parts<'_> {
    /// The `z` of `erf(z) + 1`.
    fn erf_plus_one(&self, sum: ExprId) -> Option<ExprId> {
        let Expr::Binary(_, a, b) = self.kernel.exprs[sum].expr else { return None };
        let is_one = |id: ExprId| constant(self.kernel, id) == Some(1.0);
        let erf = match (is_one(a), is_one(b)) {
            (_, true) => a,
            (true, _) => b,
            _ => return None,
        };
        match self.sole(erf)? {
            Expr::Unary(UnaryOp::Erf, z) => Some(z),
            _ => None,
        }
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
        let [x] = self.product(z).factors[..] else { return None };
        let along = self.product(along);
        let exp = along.factors.iter().copied().find(|factor| *factor != x)?;
        let Expr::Unary(UnaryOp::Exp, power) = self.sole(exp)? else { return None };
        let is_slope = cdf.is(vec![gate], 0.5)
            && self.product(z).is(vec![x], FRAC_1_SQRT_2)
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
