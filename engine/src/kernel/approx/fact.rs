//! What is known of a value and of its error: the rules of each operation.

use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value};

/// Terms that no sum has: each enters it once, and a launch is shorter.
const MOST_TERMS: f64 = (1u64 << 63) as f64;
/// Some units in the last place of an `f32`.
const UNITS: f64 = 1.0 / (1 << 20) as f64;
/// Of a quotient as a product: two roundings of `f32`, and one that the quotient has.
const PRODUCT_REL: f64 = 3.0 / (1 << 24) as f64;
/// Some units of the least number of `f32`, and the greatest number whose reciprocal is normal.
const LEAST: f64 = f32::MIN_POSITIVE as f64 / (1 << 21) as f64;
const MOST_NORMAL: f64 = 1.0 / f32::MIN_POSITIVE as f64;
/// The greatest finite number of `f32`.
const MOST: f64 = f32::MAX as f64;
/// A root of `f32` that is finite is no greater.
const MOST_ROOT: f64 = (1u64 << 32) as f64 * (1u64 << 32) as f64;
/// Relative errors above this are not followed: their squares would matter.
const MOST_REL: f64 = 1.0 / 1024.0;

/// An interval that holds every value but NaN, and how far what is computed may
/// be from it: by `rel` of itself and `abs` besides. `rel` is infinite where
/// nothing is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fact {
    pub(super) lo: f64,
    pub(super) hi: f64,
    /// No finite value is above this, though it may be infinite.
    pub(super) most_finite: f64,
    pub(super) rel: f64,
    pub(super) abs: f64,
    /// Whether `abs` is that of each term of a sum with any number of terms.
    pub(super) sum: bool,
}

impl Fact {
    /// Computed exactly; any value.
    pub(super) const EXACT: Self = Self::between(f64::NEG_INFINITY, f64::INFINITY);
    /// Any value, with any error.
    pub(super) const LOST: Self = Self { rel: f64::INFINITY, ..Self::EXACT };

    pub(super) const fn between(lo: f64, hi: f64) -> Self {
        Self { lo, hi, most_finite: f64::INFINITY, rel: 0.0, abs: 0.0, sum: false }
    }

    pub(super) fn constant(value: Value) -> Self {
        match value {
            Value::Float(number) if !number.is_nan() => Self::between(number, number),
            _ => Self::EXACT,
        }
    }

    pub(super) fn is_exact(self) -> bool {
        self.rel == 0.0 && self.abs == 0.0
    }

    /// What holds for either.
    pub(super) fn join(self, other: Self) -> Self {
        let most_finite = self.most_finite().max(other.most_finite());
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi), most_finite, ..self.worse(other) }
    }

    /// The interval of `self` with the larger errors of the two.
    fn worse(self, other: Self) -> Self {
        let (rel, abs) = (self.rel.max(other.rel), self.abs.max(other.abs));
        Self { rel, abs, sum: self.sum || other.sum, ..self }.checked()
    }

    /// Forgets what still grows from `old` to `self`.
    pub(super) fn widen(self, old: Self) -> Self {
        if self.rel > old.rel || self.abs > old.abs {
            return Self::LOST;
        }
        let lo = if self.lo >= old.lo {
            self.lo
        } else if self.lo >= 0.0 {
            0.0
        } else {
            f64::NEG_INFINITY
        };
        let hi = if self.hi <= old.hi { self.hi } else { f64::INFINITY };
        let most_finite = if self.most_finite <= old.most_finite { self.most_finite } else { f64::INFINITY };
        Self { lo, hi, most_finite, ..self }
    }

    fn checked(self) -> Self {
        // What is not a number is not small either.
        if self.rel <= MOST_REL && self.abs < f64::INFINITY { self } else { Self::LOST }
    }

    /// The distance of the interval from zero.
    fn least_magnitude(self) -> f64 {
        self.lo.max(-self.hi).max(0.0)
    }

    fn most_finite(self) -> f64 {
        self.hi.min(self.most_finite)
    }

    /// No finite value is above this.
    fn with_most_finite(self, most_finite: f64) -> Self {
        Self { most_finite, ..self }
    }

    /// Whether reciprocals of all values are finite and of one sign.
    pub(super) fn has_reciprocal(self) -> bool {
        self.lo >= f32::MIN_POSITIVE.into()
    }

    fn most_magnitude(self) -> f64 {
        self.hi.abs().max(self.lo.abs())
    }

    /// With the absolute error as a relative one, where the value is large enough.
    pub(super) fn absorbed(self) -> Self {
        if self.abs == 0.0 {
            return self;
        }
        let abs = if self.sum { self.abs * MOST_TERMS } else { self.abs };
        let rel = self.rel + abs / self.least_magnitude();
        Self { rel, abs: 0.0, sum: false, ..self }.checked()
    }

    /// The same, unless too little would be left.
    fn settled(self) -> Self {
        let absorbed = self.absorbed();
        if absorbed.rel < f64::INFINITY { absorbed } else { self }
    }

    fn with_errors_of(self, other: Self) -> Self {
        Self { rel: other.rel, abs: other.abs, sum: other.sum, ..self }.checked()
    }

    /// The result of an approximation of an exact operand.
    pub(super) fn approximation(op: ApproxOp, operand: Self) -> Self {
        if !operand.is_exact() {
            return Self::LOST;
        }
        let model = op.model();
        let of = match op {
            ApproxOp::ExpFlush | ApproxOp::ExpFast => UnaryOp::Exp,
            ApproxOp::SigmoidFlush | ApproxOp::SigmoidFast => UnaryOp::Sigmoid,
            ApproxOp::SiluFlush | ApproxOp::SiluFast => UnaryOp::Silu,
            // The sum that it is part of is as good as sums are.
            ApproxOp::ExpBelow => return Self::between(0.0, 1.0),
            // As good as what they replace.
            ApproxOp::Erf => return Self::between(-1.0, 1.0),
            ApproxOp::ErfPlusOne | ApproxOp::TanhPlusOne => return Self::between(0.0, 2.0),
            // From -0.12890... to what that lacks to 1.
            ApproxOp::GeluSlope => return Self::between(-0.13, 1.13),
            // Besides, as good as what it replaces.
            ApproxOp::ErfPlusOneShort => return Self { rel: model.rel, ..Self::between(0.0, 2.0) },
        };
        Self { rel: model.rel, abs: model.abs, ..unary_range(of, operand) }
    }

    /// A unary operation on floats.
    pub(super) fn unary(op: UnaryOp, a: Self) -> Self {
        let range = unary_range(op, a);
        if a.is_exact() {
            return range;
        }
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu => range.with_errors_of(a),
            UnaryOp::Reciprocal | UnaryOp::Sqrt | UnaryOp::Rsqrt => {
                let a = a.absorbed();
                // Of 1 / x the square of the error too.
                Self { rel: a.rel * (1.0 + 2.0 * MOST_REL), ..range }.checked()
            }
            _ => Self::LOST,
        }
    }

    /// A conversion between floats. A rounding to fewer bits may fall to the other
    /// side, as with operations in another order; that is not counted.
    pub(super) fn cast(self, to: DType) -> Self {
        if !to.is_reduced_float() {
            return self;
        }
        if to.bytes() == 1 {
            // What is too large becomes NaN or the greatest number; `f8e8m0fnu` has no sign and no zero.
            let signless = to == DType::F8E8M0FNU;
            let lo = if self.lo >= 0.0 || signless { 0.0 } else { f64::NEG_INFINITY };
            let hi = if self.hi <= 0.0 && !signless { 0.0 } else { f64::INFINITY };
            return Self { lo, hi, most_finite: f64::INFINITY, ..self };
        }
        let slack = |bound: f64, up: f64| if bound.is_finite() { bound + bound.abs() * up } else { bound };
        let hi = if self.hi > 60_000.0 { f64::INFINITY } else { slack(self.hi, 0.01) };
        let lo = if self.lo < -60_000.0 { f64::NEG_INFINITY } else { slack(self.lo, -0.01) };
        // Small numbers may become zero.
        let lo = if self.lo > 0.0 && self.lo < 1e-4 { 0.0 } else { lo };
        let hi = if self.hi < 0.0 && self.hi > -1e-4 { 0.0 } else { hi };
        Self { lo, hi, most_finite: f64::INFINITY, ..self }
    }

    /// The interval of results that are rounded to `f32`: outward, so that it holds them
    /// however they are rounded; what is too large may be infinite, what is too small zero.
    pub(super) fn rounded(self, to: DType) -> Self {
        if to != DType::F32 {
            return self.with_most_finite(f64::INFINITY);
        }
        let (lo, hi) = (self.lo as f32, self.hi as f32);
        let lo = if f64::from(lo) > self.lo { lo.next_down() } else { lo };
        let hi = if f64::from(hi) < self.hi { hi.next_up() } else { hi };
        Self { lo: lo.into(), hi: hi.into(), most_finite: (self.most_finite * (1.0 + UNITS)).min(MOST), ..self }
    }

    /// A binary operation on floats; `same` says that the operands are one value.
    pub(super) fn binary(op: BinaryOp, a: Self, b: Self, same: bool) -> Self {
        let range = binary_range(op, a, b, same);
        if a.is_exact() && b.is_exact() {
            return range;
        }
        let alike = |a: Self, b: Self| a.lo >= 0.0 && b.lo >= 0.0 || a.hi <= 0.0 && b.hi <= 0.0;
        let negated = Self { lo: -b.hi, hi: -b.lo, ..b };
        match op {
            // Terms of one sign: no error grows against the sum.
            BinaryOp::Add if alike(a, b) => range.sum_of(a, b),
            BinaryOp::Sub if alike(a, negated) => range.sum_of(a, b),
            // Monotone in both.
            BinaryOp::Maximum | BinaryOp::Minimum => range.with_errors_of(a).worse(b),
            BinaryOp::Mul => {
                let rel = (a.rel + b.rel) * (1.0 + MOST_REL);
                let abs = product(a.abs, b.most_magnitude()) + product(b.abs, a.most_magnitude());
                let sum = a.sum || b.sum;
                // The product of two absolute errors is below either.
                Self { rel, abs: abs * (1.0 + MOST_REL), sum, ..range }.checked()
            }
            BinaryOp::Div | BinaryOp::Truediv => {
                let b = b.absorbed();
                let rel = (a.rel + b.rel) * (1.0 + 2.0 * MOST_REL);
                let abs = product(a.abs, 1.0 / b.least_magnitude()) * (1.0 + 2.0 * MOST_REL);
                Self { rel, abs, sum: a.sum, ..range }.checked()
            }
            _ => Self::LOST,
        }
    }

    /// `a (1 / b)`, where `b` has reciprocals, as `a / b`.
    pub(super) fn product_with_reciprocal(a: Self, b: Self) -> Self {
        let quotient = Self::binary(BinaryOp::Div, a, b, false);
        // A reciprocal that is subnormal is off by some of the least number, an infinite divisor's is zero as it should be.
        let lost = if b.most_finite() > MOST_NORMAL { product(a.most_magnitude(), LEAST) } else { 0.0 };
        Self { rel: quotient.rel + PRODUCT_REL, abs: quotient.abs + lost + LEAST, ..quotient }.checked()
    }

    fn sum_of(self, a: Self, b: Self) -> Self {
        let sum = a.sum || b.sum || a.abs > 0.0 && b.abs > 0.0;
        Self { sum, ..self.with_errors_of(a).worse(b) }.settled()
    }

    /// A ternary operation on floats, `a` being a condition for `Where`.
    pub(super) fn ternary(op: TernaryOp, a: Self, b: Self, c: Self) -> Self {
        match op {
            TernaryOp::Where if a.is_exact() => b.join(c),
            // The lesser one of `c` and the greater one of `a` and `b`, monotone in all.
            TernaryOp::Clamp => {
                let (lo, hi) = (a.lo.max(b.lo).min(c.lo), a.hi.max(b.hi).min(c.hi));
                Self::between(lo, hi).with_errors_of(a).worse(b).worse(c)
            }
            _ if a.is_exact() && b.is_exact() && c.is_exact() => Self::EXACT,
            _ => Self::LOST,
        }
    }

    /// Whether an output of a type may have this error: an eighth of the half
    /// unit to which 16-bit floats round, and a little above what they hold as
    /// normal numbers. Other types take none.
    pub(super) fn is_good_enough(self, dtype: DType) -> bool {
        let allowed =
            dtype.is_reduced_float() && self.rel <= 2f64.powi(-14) && self.abs <= 2f64.powi(-118) && !self.sum;
        allowed || self.is_exact()
    }
}

/// `a b`, where zero times anything is zero.
fn product(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

fn unary_range(op: UnaryOp, a: Fact) -> Fact {
    let infinity = f64::INFINITY;
    match op {
        // A device's own may be some units above.
        UnaryOp::Exp | UnaryOp::Exp2 => Fact::between(0.0, if a.hi <= 0.0 { 1.0 + UNITS } else { infinity }),
        UnaryOp::Sigmoid => Fact::between(0.0, 1.0),
        // Its least value is -0.2784...
        UnaryOp::Silu => Fact::between(if a.lo >= 0.0 { 0.0 } else { -0.28 }, a.hi.max(0.0)),
        UnaryOp::Abs => Fact::between(a.least_magnitude(), a.most_magnitude()),
        UnaryOp::Neg => Fact::between(-a.hi, -a.lo),
        UnaryOp::Relu => Fact::between(a.lo.max(0.0), a.hi.max(0.0)),
        UnaryOp::Reciprocal if a.lo > 0.0 => Fact::between(1.0 / a.hi, 1.0 / a.lo),
        UnaryOp::Sqrt => Fact::between(a.lo.max(0.0).sqrt(), a.hi.max(0.0).sqrt()).with_most_finite(MOST_ROOT),
        // That of -0 is negative.
        UnaryOp::Rsqrt if a.lo > 0.0 => Fact::between(0.0, infinity),
        UnaryOp::Erf | UnaryOp::Tanh | UnaryOp::Sin | UnaryOp::Cos => Fact::between(-1.0, 1.0),
        _ => Fact::EXACT,
    }
}

fn binary_range(op: BinaryOp, a: Fact, b: Fact, same: bool) -> Fact {
    let between = |lo: f64, hi: f64| if lo.is_nan() || hi.is_nan() { Fact::EXACT } else { Fact::between(lo, hi) };
    let corners = |f: fn(f64, f64) -> f64| {
        let all = [f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)];
        between(all.into_iter().fold(f64::INFINITY, f64::min), all.into_iter().fold(f64::NEG_INFINITY, f64::max))
    };
    match op {
        BinaryOp::Add => between(a.lo + b.lo, a.hi + b.hi).with_most_finite(a.most_finite() + b.most_finite()),
        BinaryOp::Sub => between(a.lo - b.hi, a.hi - b.lo),
        BinaryOp::Mul if same => Fact::between(0.0, f64::INFINITY),
        // What is finite is made of what is finite, or is 0.
        BinaryOp::Mul if a.lo >= 0.0 && b.lo >= 0.0 => {
            corners(product).with_most_finite(product(a.most_finite(), b.most_finite()))
        }
        BinaryOp::Mul => corners(product),
        BinaryOp::Div | BinaryOp::Truediv if b.lo > 0.0 => {
            // What is below 0 comes as near to 0 as it likes.
            let most = product(a.most_finite().max(0.0), 1.0 / b.lo);
            corners(|x, y| product(x, 1.0 / y)).with_most_finite(most)
        }
        BinaryOp::Div | BinaryOp::Truediv if a.lo >= 0.0 && b.lo >= 0.0 => Fact::between(0.0, f64::INFINITY),
        BinaryOp::Maximum => {
            between(a.lo.max(b.lo), a.hi.max(b.hi)).with_most_finite(a.most_finite().max(b.most_finite()))
        }
        BinaryOp::Minimum => between(a.lo.min(b.lo), a.hi.min(b.hi)),
        _ => Fact::EXACT,
    }
}
