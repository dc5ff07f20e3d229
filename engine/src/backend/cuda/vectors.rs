//! What a thread computes of all elements of a vector at once, since one by one it takes more instructions.
//!
//! In: a loop over a thread's vector. Out: [`Steps`], which of its statements the printer takes out of the loop:
//!
//! * Quotients by what all elements have in common. Each takes a dozen instructions; with the reciprocal, and a test of all
//!   numerators at once, half as many. A loop before this one collects the numerators.
//! * Conversions to floats of 8 bits, where the loop ends. An instruction makes two of them, and whether they are too large is
//!   asked of all at once.
//!
//! Either gives the bits that the statements give one by one.
//!
//! Invariant: what is done before its time, to collect numerators, has no effects and reads nothing that the loop writes.

use super::plan::TextPlan;
use crate::kernel::{Block, BufId, Expr, ExprId, Kernel, Space, Stmt, StmtKind, Unroll, VarId, statement_exprs};
use crate::num::{BinaryOp, DType};
use crate::util::set_of;
use std::collections::BTreeSet;

/// Elements of a vector from which a reciprocal and a test for all of them pay.
const LEAST_LANES: i64 = 4;
/// As many as a thread's vectors have at most.
const MOST_LANES: i64 = 32;

/// A quotient that the statement at a position of the loop's body takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quotient {
    pub(super) position: usize,
    pub(super) quotient: ExprId,
    pub(super) numerator: ExprId,
    pub(super) divisor: ExprId,
}

impl Quotient {
    fn at(self, position: usize) -> Self {
        Self { position, ..self }
    }
}

/// A conversion: what is converted, and the array that gets the results, each at its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrowing {
    pub(super) position: usize,
    pub(super) conversion: ExprId,
    pub(super) value: ExprId,
    pub(super) to: BufId,
}

/// What is computed of all elements at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub(super) lanes: i64,
    pub(super) quotient: Option<Quotient>,
    pub(super) narrowing: Option<Narrowing>,
}

/// A loop as its statement has it.
#[derive(Clone, Copy)]
pub(super) struct Loop<'a> {
    pub(super) var: VarId,
    pub(super) range: (ExprId, ExprId, i64),
    pub(super) unroll: Unroll,
    pub(super) body: &'a Block,
}

/// Finds the steps of a loop, if it has some.
pub(super) fn steps(kernel: &Kernel, plan: &TextPlan, own: Loop<'_>) -> Option<Steps> {
    let (start, end, step) = own.range;
    let lanes = kernel.exprs.as_int(end)?;
    let is_vector = own.unroll == Unroll::Full && step == 1 && kernel.exprs.as_int(start) == Some(0);
    let is_flat =
        |stmt: &Stmt| matches!(stmt.kind, StmtKind::Let { .. } | StmtKind::Load { .. } | StmtKind::Store { .. });
    if !is_vector || !(LEAST_LANES..=MOST_LANES).contains(&lanes) || !own.body.iter().all(is_flat) {
        return None;
    }
    let (quotient, narrowing) = (quotient(kernel, plan, own), narrowing(kernel, plan, own).filter(|_| lanes % 2 == 0));
    (quotient.is_some() || narrowing.is_some()).then_some(Steps { lanes, quotient, narrowing })
}

/// The first quotient by what all turns of the loop have in common.
fn quotient(kernel: &Kernel, plan: &TextPlan, own: Loop<'_>) -> Option<Quotient> {
    let store = |stmt: &Stmt| match stmt.kind {
        StmtKind::Store { to, .. } => Some(to.buffer),
        _ => None,
    };
    let written: BTreeSet<BufId> = set_of(own.body.iter().filter_map(store));
    // What is bound within the loop, and of that what differs from turn to turn: a read that is printed where it is used need not.
    let (mut bound, mut varying) = (set_of([own.var]), set_of([own.var]));
    for (position, stmt) in own.body.iter().enumerate() {
        match stmt.kind {
            StmtKind::Load { var, from, .. } => {
                let is_usable = kernel.buffers[from.buffer].space == Space::Local && !written.contains(&from.buffer);
                if !is_usable {
                    return None;
                }
                bound.insert(var);
                if !plan.is_silent(var) || varies(kernel, from.index, &varying) {
                    varying.insert(var);
                }
            }
            StmtKind::Let { var, value } => {
                if let Some(found) = common(kernel, value, &bound, &varying) {
                    return Some(found.at(position));
                }
                bound.insert(var);
                varying.insert(var);
            }
            // Nothing is stored before its time.
            StmtKind::Store { value, .. } => {
                return common(kernel, value, &bound, &varying).map(|found| found.at(position));
            }
            _ => return None,
        }
    }
    None
}

/// A quotient, or a conversion of one, whose divisor is common to all turns.
fn common(kernel: &Kernel, value: ExprId, bound: &BTreeSet<VarId>, varying: &BTreeSet<VarId>) -> Option<Quotient> {
    let (quotient, numerator, divisor) = parts(kernel, value)?;
    // A formula has names for its parts only where its variables are bound.
    let is_leaf = kernel.exprs[kernel.exprs.plain(divisor)].expr.is_leaf();
    let is_common = !varies(kernel, divisor, if is_leaf { varying } else { bound });
    (is_common && varies(kernel, numerator, varying)).then_some(Quotient { position: 0, quotient, numerator, divisor })
}

/// A quotient in `f32`, or the one that a value is converted from, with numerator and divisor, unless it is as cheap as a product.
fn parts(kernel: &Kernel, mut value: ExprId) -> Option<(ExprId, ExprId, ExprId)> {
    let is_power = |divisor: ExprId| kernel.exprs.as_float(divisor).is_some_and(|by| (by as f32).to_bits() << 9 == 0);
    while let Expr::Cast(from) = kernel.exprs[value].expr {
        value = from;
    }
    match kernel.exprs[value].expr {
        Expr::Binary(BinaryOp::Div | BinaryOp::Truediv, a, b) if kernel.exprs.dtype(value) == DType::F32 => {
            (!is_power(b)).then_some((value, a, b))
        }
        _ => None,
    }
}

/// Whether an expression has one of these variables.
fn varies(kernel: &Kernel, root: ExprId, varying: &BTreeSet<VarId>) -> bool {
    let (mut open, mut seen) = (vec![root], BTreeSet::new());
    while let Some(id) = open.pop() {
        let expr = kernel.exprs[id].expr;
        if matches!(expr, Expr::Var(var) if varying.contains(&var)) {
            return true;
        }
        open.extend(expr.operands().filter(|operand| seen.insert(*operand)));
    }
    false
}

/// The conversion to floats of 8 bits with which a loop ends, if nothing else of the loop writes or reads the array.
fn narrowing(kernel: &Kernel, plan: &TextPlan, own: Loop<'_>) -> Option<Narrowing> {
    let position = own.body.len().checked_sub(1)?;
    let StmtKind::Store { to, value, .. } = own.body.get(position)?.kind else { return None };
    let (conversion, buffer) = (kernel.exprs.plain(value), &kernel.buffers[to.buffer]);
    let Expr::Cast(from) = kernel.exprs[conversion].expr else { return None };
    let is_narrow = matches!(kernel.exprs.dtype(conversion), DType::F8E4M3FN | DType::F8E5M2);
    // Pairs are written as words, which arrays of bytes are aligned to where vectors are moved.
    let is_aligned = buffer.align >= 2 && plan.vector.contains(&to.buffer);
    let is_own = buffer.space == Space::Local && buffer.dtype == kernel.exprs.dtype(conversion) && is_aligned;
    let is_counted = matches!(kernel.exprs[kernel.exprs.plain(to.index)].expr, Expr::Var(var) if var == own.var);
    let is_other = |stmt: &Stmt| match stmt.kind {
        StmtKind::Store { to: other, .. } => other.buffer != to.buffer,
        StmtKind::Load { from, .. } => from.buffer != to.buffer,
        _ => true,
    };
    // A conversion that something else uses has a name, before this statement.
    let mut uses = 0;
    own.body.iter().for_each(|stmt| statement_exprs(&stmt.kind, &mut |expr| uses += usize::from(expr == value)));
    let is_whole = is_narrow && kernel.exprs.dtype(from) == DType::F32 && is_own && is_counted && uses == 1;
    let is_alone = own.body.iter().take(position).all(is_other);
    (is_whole && is_alone).then_some(Narrowing { position, conversion, value: from, to: to.buffer })
}

#[cfg(test)]
mod tests {
    /// The quotient as `quotients` of the library computes it.
    fn quotient(x: f32, by: f32) -> f32 {
        let reciprocal = 1.0 / by;
        let q = x * reciprocal;
        q.mul_add(by, -x).mul_add(-reciprocal, q)
    }

    #[track_caller]
    fn check(x: f32, by: f32) {
        assert_eq!(quotient(x, by).to_bits(), (x / by).to_bits(), "{x:e} / {by:e}");
    }

    #[test]
    fn a_product_with_its_remainder_is_the_quotient_of_all_fractions() {
        for by in [1.0f32, 1.000_000_1, 1.999_999_9, 1.333_333_4, 1.434_217_3, 1.743_718_3] {
            (1 << 23..1 << 24).for_each(|fraction| check(fraction as f32, by));
        }
    }

    #[test]
    fn a_product_with_its_remainder_is_the_quotient_up_to_the_ends() {
        let power = |exponent: i32, fraction: u32| f32::from_bits(((127 + exponent) as u32) << 23 | fraction);
        let fractions: Vec<u32> = (0..24).map(|bit| 0x7f_ffff >> bit).chain((0..23).map(|bit| 1 << bit)).collect();
        for (exponent, fraction) in (-60..24).flat_map(|exponent| fractions.iter().map(move |own| (exponent, *own))) {
            let by = power(exponent, fraction);
            [0.0, -0.0, power(64, 0), -power(64, 0)].into_iter().for_each(|x| check(x, by));
            for (exponent, fraction) in
                [-100, -99, -37, 0, 63].into_iter().flat_map(|e| fractions.iter().map(move |own| (e, *own)))
            {
                check(power(exponent, fraction), by);
                check(-power(exponent, fraction), by);
            }
        }
        check(power(-100, 1), power(24, 0));
    }
}
