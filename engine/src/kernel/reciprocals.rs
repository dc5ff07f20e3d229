//! Divisions by sizes become multiplications.
//!
//! A GPU divides integers in some twenty instructions, and multiplies in one. A divisor that
//! only parameters decide is known when the kernel is launched, so the host gives the kernel
//! its *reciprocal* as a parameter of its own ([`ParamKind::Reciprocal`]). In: a kernel. Out:
//! the same with a parameter for each such divisor of index arithmetic in `i32`. What is
//! divided means what it did: who prints or runs a kernel may use the parameter or divide.
//!
//! For `d` of `1..2^31` let `l = ceil(log2 d)` and `m = floor(2^(31 + l) / d) + 1`, which has 32
//! bits. Then `n / d = (n m) >> (31 + l)` for every `n` of `0..2^31`: `m = (2^(31 + l) + e) / d` with
//! `0 < e <= d <= 2^l`, so the product is too large by `n e / (d 2^(31 + l)) < 1 / d`.

use super::ir::{Expr, ExprId, IndexOp, Kernel, Param, ParamId, ParamKind};
use super::visit::{for_each_stmt, statement_exprs};
use crate::num::DType;
use crate::util::SecondaryMap;

/// Reciprocals of a kernel, at most.
const MOST: usize = 16;
/// Bits of a numerator.
const NUMERATOR_BITS: u32 = 31;

/// The reciprocal of a divisor: `m` in the low word, `l` in the high one; 0 where there is none.
pub fn reciprocal(divisor: i64) -> i64 {
    if !(1..1 << NUMERATOR_BITS).contains(&divisor) {
        return 0;
    }
    let log = u64::BITS - (divisor as u64 - 1).leading_zeros();
    let multiplier = (1u64 << (NUMERATOR_BITS + log)) / divisor as u64 + 1;
    (multiplier | u64::from(log) << 32) as i64
}

/// Adds the reciprocals of a kernel's divisors.
pub fn add_reciprocals(kernel: &mut Kernel) {
    if kernel.index_type != DType::I32 {
        return;
    }
    for divisor in divisors(kernel) {
        let name = match kernel.exprs[divisor].expr {
            Expr::Param(param) => kernel.params[param].name.clone(),
            _ => "divisor".to_string(),
        };
        kernel.params.push(Param {
            name: format!("{name}_r"),
            dtype: Some(DType::I64),
            kind: ParamKind::Reciprocal(divisor),
            multiple_of: 1,
            at_most: None,
        });
    }
}

/// What the statements of a kernel divide by and sizes alone decide, in order of first use.
fn divisors(kernel: &Kernel) -> Vec<ExprId> {
    let mut search = Search { kernel, sized: SecondaryMap::new(), seen: SecondaryMap::new(), found: Vec::new() };
    for_each_stmt(&kernel.body, &mut |stmt| statement_exprs(&stmt.kind, &mut |expr| search.look(expr)));
    search.found.truncate(MOST);
    search.found
}

struct Search<'a> {
    kernel: &'a Kernel,
    /// Whether sizes decide an expression.
    sized: SecondaryMap<ExprId, Option<bool>>,
    seen: SecondaryMap<ExprId, bool>,
    found: Vec<ExprId>,
}

impl Search<'_> {
    /// Looks at an expression and all that it is made of, once each.
    fn look(&mut self, expr: ExprId) {
        let mut open = vec![expr];
        while let Some(id) = open.pop() {
            if self.seen[id] {
                continue;
            }
            self.seen.set(id, true);
            let expr = self.kernel.exprs[id].expr;
            if let Expr::Index(IndexOp::Div | IndexOp::Mod, _, divisor) = expr {
                let divisor = self.kernel.exprs.plain(divisor);
                let constant = self.kernel.exprs.as_int(divisor).is_some();
                if !constant && !self.found.contains(&divisor) && self.is_sized(divisor) {
                    self.found.push(divisor);
                }
            }
            let mut operands: Vec<ExprId> = expr.operands().collect();
            operands.reverse();
            open.extend(operands);
        }
    }

    /// Whether an expression in `i32` reads parameters only, and none that a scalar decides: those are
    /// replaced from call to call.
    fn is_sized(&mut self, root: ExprId) -> bool {
        if self.kernel.exprs.dtype(root) != DType::I32 {
            return false;
        }
        // An expression is answered behind its operands; a parameter behind what it is computed from.
        let mut open = vec![root];
        while let Some(&id) = open.last() {
            let (own, behind) = self.reads(self.kernel.exprs[id].expr);
            let missing: Vec<ExprId> = behind.iter().copied().filter(|id| self.sized[*id].is_none()).collect();
            if !own || missing.is_empty() {
                open.pop();
                let all = own && behind.iter().all(|id| self.sized[*id] == Some(true));
                self.sized.set(id, Some(all));
            } else {
                open.extend(missing);
            }
        }
        self.sized[root] == Some(true)
    }

    /// Whether sizes may decide an expression, as far as its own kind says, and what else it hangs on.
    fn reads(&self, expr: Expr) -> (bool, Vec<ExprId>) {
        let of_param = |param: ParamId| match self.kernel.params[param].kind {
            ParamKind::Size { .. } | ParamKind::Stride { .. } => (true, Vec::new()),
            ParamKind::Derived(value) => (true, vec![value]),
            _ => (false, Vec::new()),
        };
        match expr {
            Expr::Param(param) => of_param(param),
            Expr::Special(_) | Expr::Var(_) => (false, Vec::new()),
            other => (true, other.operands().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Dim, KernelBuilder};

    /// As a GPU does it: the high word of `2 n m`, shifted.
    fn quotient(n: u32, reciprocal: i64) -> u32 {
        let product = u64::from(n << 1) * u64::from(reciprocal as u32);
        (product >> 32 >> (reciprocal >> 32)) as u32
    }

    #[test]
    fn quotients_are_exact() {
        let check = |n: u32, d: u32| assert_eq!(quotient(n, reciprocal(d.into())), n / d, "{n} / {d}");
        let most = i32::MAX as u32;
        let powers = (0..31).map(|log| 1u32 << log);
        let edges: Vec<u32> =
            powers.flat_map(|p| [p.saturating_sub(1), p, p + 1]).chain([most, most - 1, 3, 7, 10, 641]).collect();
        for &d in edges.iter().filter(|d| (1..=most).contains(*d)) {
            for &n in edges.iter().filter(|n| **n <= most) {
                check(n, d);
            }
            let multiples = [1, 2, most / d / 2, most / d].map(|k| u64::from(k) * u64::from(d));
            for n in multiples.into_iter().flat_map(|n| [n.saturating_sub(1), n, n + 1]).filter(|n| *n <= most.into()) {
                check(n as u32, d);
            }
        }
        crate::property::property(|u| {
            check(u.int_in_range(0..=most)?, u.int_in_range(1..=most)?);
            check(u.int_in_range(0..=most)?, u.int_in_range(1..=5000)?);
            Ok(())
        });
        assert_eq!([reciprocal(0), reciprocal(-3), reciprocal(1 << 31)], [0; 3]);
    }

    #[test]
    fn divisors_are_what_sizes_decide() {
        let mut b = KernelBuilder::new("k", DType::I32);
        let (n, m) = (b.size("n", 0, 0), b.size("m", 0, 1));
        let by_call = b.scalar("s", 1, DType::I32);
        let by_call = b.exprs().as_index(by_call);
        let x = b.output("x", 0, DType::F32, n, 16);
        let double = b.exprs().add(n, n);
        let parts = b.derived("parts", double);
        let thread = b.exprs().thread_idx(Dim::X);
        let seven = b.int(7);
        let mut at = b.exprs().div(thread, seven);
        for divisor in [parts, by_call, thread, m, parts] {
            let quotient = b.exprs().div(thread, divisor);
            let rest = b.exprs().rem(quotient, divisor);
            at = b.exprs().add(at, rest);
        }
        let zero = b.exprs().value(crate::num::Value::Float(0.0), DType::F32);
        b.store(x, at, zero);
        let one = b.int(1);
        let mut kernel = b.finish_1d(one, 32);
        add_reciprocals(&mut kernel);
        let names: Vec<&str> = kernel.params.values().map(|param| param.name.as_str()).collect();
        assert_eq!(names[names.len() - 2..], ["parts_r", "m_r"], "{names:?}");
    }
}
