//! Multiple-of facts: a number that divides an index expression.
//!
//! Starts from constants, from what parameters promise
//! ([`Param::multiple_of`](super::Param)), and from loop steps. Index
//! arithmetic does not overflow; arithmetic on data wraps at a power of two, so
//! only powers of two survive it. The largest divisor of zero is written 0,
//! which every number divides.

use super::ir::{Expr, ExprId, IndexOp, Kernel, ParamKind, Special, ValueKind, VarId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::SecondaryMap;

/// Divisors of expressions. Facts about variables are told by a walk over the
/// statements, before the first question about an expression that reads them.
#[derive(Clone, Debug)]
pub struct Multiples<'a> {
    kernel: &'a Kernel,
    vars: SecondaryMap<VarId, Option<i64>>,
    memo: SecondaryMap<ExprId, Option<i64>>,
}

/// Greatest common divisor of magnitudes; 0 is neutral.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // Only |i64::MIN| does not fit; 1 is always a divisor.
    i64::try_from(a).unwrap_or(1)
}

impl<'a> Multiples<'a> {
    /// Nothing is known of variables yet.
    pub fn new(kernel: &'a Kernel) -> Self {
        Self { kernel, vars: SecondaryMap::new(), memo: SecondaryMap::new() }
    }
    /// States a divisor of a variable.
    pub fn set_var(&mut self, var: VarId, divisor: i64) {
        self.vars.set(var, Some(divisor));
    }
    /// Whether `factor` divides the expression for certain.
    pub fn is_multiple(&mut self, id: ExprId, factor: i64) -> bool {
        factor != 0 && self.of(id) % factor == 0
    }
    /// A divisor of the expression; 0 if it is zero.
    pub fn of(&mut self, id: ExprId) -> i64 {
        if let Some(known) = self.memo[id] {
            return known;
        }
        let divisor = self.compute(id);
        self.memo.set(id, Some(divisor));
        divisor
    }

    fn compute(&mut self, id: ExprId) -> i64 {
        match self.kernel.exprs[id].expr {
            // Of `u64` it is the bits, which only powers of two divide as they do the number.
            Expr::Const(Value::Int(value)) if value < 0 && self.kernel.exprs.dtype(id) == DType::U64 => {
                power_of_two_part(gcd(value, 0))
            }
            Expr::Const(Value::Int(value)) => gcd(value, 0),
            Expr::Const(_) => 1,
            Expr::Param(param) => {
                let promised = self.kernel.params[param].multiple_of.max(1);
                match self.kernel.params[param].kind {
                    // Both facts hold; the larger one is kept.
                    ParamKind::Derived(value) => match self.of(value) {
                        0 => 0,
                        derived => derived.max(promised),
                    },
                    _ => promised,
                }
            }
            Expr::Special(Special::BlockDim(dim)) => self.of(self.kernel.launch.block[dim as usize]),
            Expr::Special(Special::GridDim(dim)) => self.of(self.kernel.launch.grid[dim as usize]),
            Expr::Special(Special::ThreadIdx(dim)) => self.place(self.kernel.launch.block[dim as usize]),
            Expr::Special(Special::BlockIdx(dim)) => self.place(self.kernel.launch.grid[dim as usize]),
            Expr::Var(var) => self.vars[var].unwrap_or(1),
            Expr::Index(op, a, b) => self.index(op, a, b),
            Expr::AsData(a) | Expr::AsIndex(a) => self.of(a),
            // A narrower type keeps the low bits; an index fits its type.
            Expr::Cast(a) if self.is_int(a) && self.is_int(id) => match self.kernel.exprs.kind(a) {
                ValueKind::Data => power_of_two_part(self.of(a)),
                ValueKind::Index | ValueKind::Constant => self.of(a),
            },
            Expr::Unary(UnaryOp::Neg | UnaryOp::Abs, a) if self.is_int(a) => power_of_two_part(self.of(a)),
            Expr::Unary(..) | Expr::Approx(..) | Expr::Rounded(_) | Expr::Cast(_) => 1,
            Expr::Binary(op, a, b) if self.is_int(a) => self.binary(op, a, b),
            Expr::Ternary(TernaryOp::Where, _, a, b) if self.is_int(a) => gcd(self.of(a), self.of(b)),
            Expr::Binary(..) | Expr::Ternary(..) => 1,
        }
    }

    fn is_int(&self, id: ExprId) -> bool {
        self.kernel.exprs.dtype(id).is_int()
    }

    /// An index below an extent: 0 if the extent is 1.
    fn place(&self, extent: ExprId) -> i64 {
        if self.kernel.exprs.as_int(extent) == Some(1) { 0 } else { 1 }
    }

    fn index(&mut self, op: IndexOp, a: ExprId, b: ExprId) -> i64 {
        use IndexOp::*;
        match op {
            // a = g k, b = g l: each of a + b, a - b, max, min, a mod b is g times an integer.
            Add | Sub | Min | Max | Mod => gcd(self.of(a), self.of(b)),
            Mul => {
                let (x, y) = (self.of(a), self.of(b));
                x.checked_mul(y).unwrap_or(x.max(y))
            }
            // Zeros at the end of both stay.
            Xor => power_of_two_part(gcd(self.of(a), self.of(b))),
            // a = g k and c divides g: a / c = (g / c) k.
            Div | CeilDiv => match self.kernel.exprs.as_int(b) {
                Some(c) if c > 0 && self.of(a) % c == 0 => self.of(a) / c,
                _ => 1,
            },
        }
    }

    /// Arithmetic on data: as on indices where the result cannot wrap.
    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> i64 {
        use BinaryOp::*;
        match op {
            Minimum | Maximum | Mod | Remainder | Gcd => gcd(self.of(a), self.of(b)),
            Add | Sub => power_of_two_part(gcd(self.of(a), self.of(b))),
            Mul => {
                let (x, y) = (power_of_two_part(self.of(a)), power_of_two_part(self.of(b)));
                x.checked_mul(y).unwrap_or(x.max(y))
            }
            Div | CeilDiv => self.index(IndexOp::Div, a, b),
            ShiftLeft => match self.kernel.exprs.as_int(b) {
                Some(k @ 0..=31) => self.of(a).checked_mul(1 << k).unwrap_or(1 << k),
                _ => 1,
            },
            // The trailing zeros of either side are zeros of the result.
            BitwiseAnd => match (power_of_two_part(self.of(a)), power_of_two_part(self.of(b))) {
                (0, _) | (_, 0) => 0,
                (x, y) => x.max(y),
            },
            _ => 1,
        }
    }
}

fn power_of_two_part(n: i64) -> i64 {
    n & n.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Dim, KernelBuilder, Unroll};

    #[test]
    fn divisors_follow_index_arithmetic() {
        let mut b = KernelBuilder::new("k", DType::I32);
        let n = b.size("n", 0, 0);
        b.assume_multiple_of(n, 12);
        let m = b.size("m", 0, 1);
        let (four, eight, three) = (b.int(4), b.int(8), b.int(3));
        let tx = b.exprs().thread_idx(Dim::X);
        let by_four = b.exprs().mul(tx, four);
        let row = b.exprs().mul(m, n);
        let sum = b.exprs().add(by_four, row);
        let quotient = b.exprs().div(n, three);
        let remainder = b.exprs().rem(by_four, eight);
        let m_data = b.exprs().as_data(m);
        let masked = b.exprs().binary(BinaryOp::BitwiseAnd, m_data, eight);
        let n_data = b.exprs().as_data(n);
        // 12 k * 4 may wrap, which keeps the power of two only.
        let scaled = b.exprs().binary(BinaryOp::Mul, n_data, four);
        let mut counter = None;
        b.for_("i", (eight, n, 4), Unroll::No, |_, i| counter = Some(i));
        let ty = b.exprs().thread_idx(Dim::Y);
        let kernel = b.finish_1d(four, 32);
        let mut facts = Multiples::new(&kernel);
        for (expr, expected) in [
            (n, 12),
            (by_four, 4),
            (row, 12),
            (sum, 4),
            (quotient, 4),
            (remainder, 4),
            (masked, 8),
            (scaled, 16),
            (ty, 0),
        ] {
            assert_eq!(facts.of(expr), expected);
        }
        assert!(facts.is_multiple(ty, 16) && !facts.is_multiple(sum, 8));
        let Expr::Var(var) = kernel.exprs[counter.unwrap()].expr else { panic!("the counter is a variable") };
        let divisor = gcd(facts.of(eight), 4);
        facts.set_var(var, divisor);
        assert_eq!(facts.of(counter.unwrap()), 4);
    }

    /// Thread 0..8, multiples of it and constants; brute force over all threads.
    #[test]
    fn divisors_divide_every_value() {
        use crate::kernel::IndexOp::{Add, Max, Min, Mod, Mul, Xor};
        crate::property::property(|u| {
            let mut b = KernelBuilder::new("k", DType::I32);
            let mut pool = vec![(b.exprs().thread_idx(Dim::X), (0..8).collect::<Vec<i64>>())];
            for _ in 0..u.int_in_range(1..=8)? {
                let value = u.int_in_range(0i64..=48)?;
                pool.push((b.int(value), vec![value; 8]));
                let (x, y) = (u.choose(&pool)?.clone(), u.choose(&pool)?.clone());
                let op = *u.choose(&[Add, Mul, Mul, Min, Max, Mod, Xor, Xor])?;
                if op == Mod && y.1.contains(&0) {
                    continue;
                }
                let of = |(&a, &b): (&i64, &i64)| match op {
                    Add => a + b,
                    Mul => a * b,
                    Min => a.min(b),
                    Max => a.max(b),
                    Mod => a % b,
                    _ => a ^ b,
                };
                let values: Vec<i64> = x.1.iter().zip(&y.1).map(of).collect();
                if values.iter().all(|value| *value < 1 << 20) {
                    let (x, y) = (b.exprs().as_index(x.0), b.exprs().as_index(y.0));
                    pool.push((b.exprs().index(op, x, y), values));
                }
            }
            let one = b.int(1);
            let kernel = b.finish_1d(one, 8);
            let mut facts = Multiples::new(&kernel);
            for (expr, values) in pool {
                let divisor = facts.of(expr);
                let divides = |value: &i64| if divisor == 0 { *value == 0 } else { value % divisor == 0 };
                assert!(values.iter().all(divides), "{divisor} does not divide one of {values:?}");
            }
            Ok(())
        });
    }

    #[test]
    fn divisors_hold_on_random_values() {
        crate::property::property(|u| {
            let (x, y) = (u.int_in_range(-60..=60)?, u.int_in_range(-60..=60)?);
            let g = gcd(x, y);
            assert!(if g == 0 { x == 0 && y == 0 } else { x % g == 0 && y % g == 0 });
            Ok(())
        });
    }
}
