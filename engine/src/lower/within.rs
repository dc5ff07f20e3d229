//! Between which numbers values lie that a kernel computes of positions and constants.
//!
//! In: the operations of a tensor, and the sizes that are constants of the kernel. Out: an interval that holds every element
//! inside of the tensor's axes; outside of them nothing is said. Integers of which no more is known are those of their type.
//! Invariant: what is said of a floating-point value holds for any rounding of its operations, contracted ones among them,
//! and says that it is no NaN.

use super::facts::Facts;
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::schedule::{Compute, TvId, TvOperand};
use std::collections::BTreeMap;

/// Integers up to here are exact as they are held here, and their sums and differences are.
const EXACT: f64 = (1i64 << 52) as f64;
/// Integers up to here are numbers of `f32`.
const EXACT_F32: f64 = (1i64 << 24) as f64;
/// How far the ends of an interval of numbers are moved outward for each operation, of themselves.
const ROUNDING: f64 = 1e-6;

/// All numbers from `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Within {
    pub(super) lo: f64,
    pub(super) hi: f64,
}

/// What is known of tensors.
type Known = BTreeMap<TvId, Option<Within>>;

impl Within {
    fn of(ends: impl IntoIterator<Item = f64>) -> Self {
        let none = Self { lo: f64::INFINITY, hi: f64::NEG_INFINITY };
        ends.into_iter().fold(none, |all, end| Self { lo: all.lo.min(end), hi: all.hi.max(end) })
    }

    fn of_type(dtype: DType) -> Self {
        let (lo, hi) = dtype.int_range();
        Self { lo: lo as f64, hi: hi as f64 }
    }

    fn both(self, other: Self, op: impl Fn(f64, f64) -> f64) -> Self {
        Self::of([op(self.lo, other.lo), op(self.lo, other.hi), op(self.hi, other.lo), op(self.hi, other.hi)])
    }

    fn each(self, op: impl Fn(f64) -> f64) -> Self {
        Self::of([op(self.lo), op(self.hi)])
    }

    fn holds(self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }

    fn magnitude(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }
}

/// The result of an operation in a type: what may have wrapped is any integer, what may be infinite any number.
fn result(dtype: DType, exact: Option<Within>) -> Option<Within> {
    if is_integer(dtype) {
        let all = Within::of_type(dtype);
        let fits = |of: &Within| of.lo >= all.lo.max(-EXACT) && of.hi <= all.hi.min(EXACT);
        return Some(exact.filter(fits).unwrap_or(all));
    }
    let Within { lo, hi } = exact.filter(|of| dtype == DType::F32 && of.magnitude() <= EXACT)?;
    let beyond = |end: f64| end.abs() * ROUNDING + f64::from(f32::MIN_POSITIVE);
    Some(Within { lo: lo - beyond(lo), hi: hi + beyond(hi) })
}

/// Whether values are integers in the order of their numbers.
fn is_integer(dtype: DType) -> bool {
    dtype.is_int() && dtype != DType::U64
}

impl Facts<'_> {
    /// Between which numbers the elements of a tensor lie, if anything is known.
    pub(super) fn within(&self, tv: TvId) -> Option<Within> {
        let mut known = Known::new();
        // What a tensor is computed of comes first; chains may be longer than a thread's stack.
        let mut wanted = vec![tv];
        while let Some(&tv) = wanted.last() {
            let before = wanted.len();
            wanted.extend(self.scheduled.producers(tv).into_iter().filter(|from| !known.contains_key(from)));
            if wanted.len() == before {
                wanted.pop();
                known.insert(tv, self.known_within(tv, &known));
            }
        }
        known.get(&tv).copied().flatten()
    }

    /// The same of a tensor of whose operands that is known.
    fn known_within(&self, tv: TvId, known: &Known) -> Option<Within> {
        let dtype = self.scheduled.tensors[tv].dtype;
        let any = is_integer(dtype).then(|| Within::of_type(dtype));
        self.computed_within(tv, known).or(any)
    }

    fn computed_within(&self, tv: TvId, known: &Known) -> Option<Within> {
        let data = &self.scheduled.tensors[tv];
        let op = data.op.as_ref()?;
        // Constants of 64 bits without a sign are held as numbers with one.
        if data.dtype == DType::U64 {
            return None;
        }
        let mut operands = Vec::with_capacity(op.inputs.len());
        for operand in &op.inputs {
            operands.push(match operand {
                TvOperand::Tv(from) => known.get(from).copied().flatten(),
                TvOperand::Scalar(scalar) => match self.scheduled.fusion.constant(*scalar) {
                    Some(Value::Int(value)) => Some(Within::of([value as f64])),
                    Some(Value::Float(value)) if value.is_finite() && f64::from(value as f32) == value => {
                        Some(Within::of([value]))
                    }
                    _ => None,
                },
            });
        }
        let rounded = |of: Option<Within>| result(data.dtype, of);
        match (&op.compute, operands.as_slice()) {
            (Compute::Index { root: None }, _) => Some(Within::of([0.0])),
            (Compute::Index { root: Some(root) }, _) => {
                let extent = self.scheduled.axes.constant_size(*root)?;
                rounded(Some(Within { lo: 0.0, hi: (extent - 1).max(0) as f64 }))
            }
            (Compute::Copy, [Some(from)]) if is_integer(data.dtype) || data.dtype == DType::F32 => Some(*from),
            (Compute::Cast, [Some(from)]) if is_integer(data.dtype) => rounded(Some(from.each(f64::trunc))),
            (Compute::Cast, [Some(from)]) if data.dtype == DType::F32 && from.magnitude() <= EXACT_F32 => Some(*from),
            // The most negative integer has no magnitude.
            (Compute::Unary(op), [Some(x)]) if is_integer(data.dtype) => rounded(unary(*op, *x)),
            // None of these rounds.
            (Compute::Unary(op), [Some(x)]) => unary(*op, *x),
            (Compute::Binary(BinaryOp::Minimum), [Some(x), Some(y)]) => Some(x.both(*y, f64::min)),
            (Compute::Binary(BinaryOp::Maximum), [Some(x), Some(y)]) => Some(x.both(*y, f64::max)),
            (Compute::Binary(op), [Some(x), Some(y)]) => rounded(binary(*op, data.dtype, *x, *y)),
            (Compute::Ternary(TernaryOp::Where), [_, Some(x), Some(y)]) => Some(Within::of([x.lo, x.hi, y.lo, y.hi])),
            _ => None,
        }
    }
}

fn unary(op: UnaryOp, x: Within) -> Option<Within> {
    Some(match op {
        UnaryOp::Abs if x.holds(0.0) => Within { lo: 0.0, hi: x.each(f64::abs).hi },
        UnaryOp::Abs => x.each(f64::abs),
        UnaryOp::Neg => x.each(|end| -end),
        UnaryOp::Relu => x.each(|end| end.max(0.0)),
        UnaryOp::Floor => x.each(f64::floor),
        UnaryOp::Ceil => x.each(f64::ceil),
        UnaryOp::Trunc => x.each(f64::trunc),
        UnaryOp::Round => x.each(f64::round_ties_even),
        _ => return None,
    })
}

fn binary(op: BinaryOp, dtype: DType, x: Within, y: Within) -> Option<Within> {
    Some(match op {
        BinaryOp::Add => x.both(y, |x, y| x + y),
        BinaryOp::Sub => x.both(y, |x, y| x - y),
        BinaryOp::Mul => x.both(y, |x, y| x * y),
        BinaryOp::Div if dtype.is_int() && y.lo > 0.0 => x.both(y, |x, y| (x / y).trunc()),
        BinaryOp::Mod if x.lo >= 0.0 && y.lo > 0.0 && dtype.is_int() => Within { lo: 0.0, hi: x.hi.min(y.hi - 1.0) },
        BinaryOp::Remainder if y.lo > 0.0 && dtype.is_int() => Within { lo: 0.0, hi: y.hi - 1.0 },
        BinaryOp::BitwiseAnd if x.lo >= 0.0 && y.lo >= 0.0 => Within { lo: 0.0, hi: x.hi.min(y.hi) },
        BinaryOp::BitwiseAnd if x.lo >= 0.0 => Within { lo: 0.0, hi: x.hi },
        BinaryOp::BitwiseAnd if y.lo >= 0.0 => Within { lo: 0.0, hi: y.hi },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn from(lo: f64, hi: f64) -> Within {
        Within { lo, hi }
    }

    #[test]
    fn integers_that_may_wrap_are_any() {
        let all = Within::of_type(DType::I32);
        let sum = |x: Within, y: Within| result(DType::I32, binary(BinaryOp::Add, DType::I32, x, y));
        assert_eq!(sum(from(-3.0, 4.0), from(1.0, 2.0)), Some(from(-2.0, 6.0)));
        assert_eq!(sum(all, from(0.0, 0.0)), Some(all));
        assert_eq!(sum(from(0.0, 2e9), from(0.0, 2e9)), Some(all));
        // The most negative integer has no magnitude.
        assert_eq!(result(DType::I32, unary(UnaryOp::Abs, all)), Some(all));
        assert_eq!(result(DType::I32, unary(UnaryOp::Abs, from(-3.0, 1.0))), Some(from(0.0, 3.0)));
        assert_eq!(result(DType::I32, unary(UnaryOp::Abs, from(-3.0, -1.0))), Some(from(1.0, 3.0)));
        // Of 64 bits only what is exact here is known.
        let long = Within::of_type(DType::I64);
        let product = binary(BinaryOp::Mul, DType::I64, from(0.0, EXACT), from(0.0, 2.0));
        assert_eq!(result(DType::I64, product), Some(long));
    }

    #[test]
    fn quotients_and_remainders_are_those_of_positive_divisors() {
        let of = |op, x, y| binary(op, DType::I32, x, y);
        assert_eq!(of(BinaryOp::Div, from(-7.0, 7.0), from(2.0, 2.0)), Some(from(-3.0, 3.0)));
        assert_eq!(of(BinaryOp::Div, from(1.0, 7.0), from(-1.0, 2.0)), None);
        assert_eq!(of(BinaryOp::Mod, from(0.0, 7.0), from(5.0, 5.0)), Some(from(0.0, 4.0)));
        assert_eq!(of(BinaryOp::Mod, from(-1.0, 7.0), from(5.0, 5.0)), None);
        assert_eq!(of(BinaryOp::Remainder, from(-9.0, 7.0), from(5.0, 5.0)), Some(from(0.0, 4.0)));
        assert_eq!(binary(BinaryOp::Div, DType::F32, from(1.0, 7.0), from(2.0, 2.0)), None);
    }

    #[test]
    fn numbers_lie_a_little_beyond_what_was_computed() {
        let sum = binary(BinaryOp::Add, DType::F32, from(0.0, 63.0), from(0.5, 0.5));
        let Some(Within { lo, hi }) = result(DType::F32, sum) else { panic!("it is known") };
        assert!(lo < 0.5 && lo > 0.49 && hi > 63.5 && hi < 63.6, "{lo} {hi}");
        assert_eq!(unary(UnaryOp::Floor, from(lo, hi)), Some(from(0.0, 63.0)));
        // Other types round more, and what is huge may be infinite.
        assert_eq!(result(DType::BF16, sum), None);
        assert_eq!(result(DType::F32, Some(from(0.0, f64::INFINITY))), None);
    }
}
