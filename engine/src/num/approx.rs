//! Approximations of functions on `f32`: what a GPU computes in few
//! instructions, bit for bit but for the hardware's `ex2` and `rcp`.
//!
//! Each has an error model against the operation that it stands for, and an
//! algorithm of which [`ApproxOp::eval`] is the one statement on the host; the
//! device library's section of the same name is the other. Products, sums and
//! fused multiply-adds are rounded alike on both. By the PTX ISA,
//! `ex2.approx.f32` is within 2^-22 of the power, and `rcp.approx.f32` within one
//! unit in the last place; with `ftz` subnormal operands and results become
//! zero, without it they are kept. Here both are exact but for one rounding, so
//! device and host differ by that much.

use super::op::UnaryOp;

/// How far an approximation `g` of `f` may be off, beyond the rounding of results
/// to `f32`: `|g(x) - f(x)| <= rel |f(x)| + abs`, for every `x`. NaN agrees, and so
/// do infinities, but for results within `rel` of the largest number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorModel {
    /// Relative to the result.
    pub rel: f64,
    /// Whatever the result: what a flush to zero loses.
    pub abs: f64,
}

/// The least normal number of `f32`.
const LEAST_NORMAL: f32 = f32::MIN_POSITIVE;

/// An approximation of a function on `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ApproxOp {
    /// `exp(x)` as a power of two; subnormal results are 0.
    ExpFlush,
    /// `exp(x)` as a power of two.
    ExpFast,
    /// `exp(x)` of what is not above 0 as a power of two, subnormal results are 0: for sums of exponentials below their
    /// maximum, of which that of the maximum is 1.
    ExpBelow,
    /// `sigmoid(x)`; subnormal results are 0.
    SigmoidFlush,
    /// `sigmoid(x)`.
    SigmoidFast,
    /// `x sigmoid(x)`; results are 0 where the sigmoid is subnormal.
    SiluFlush,
    /// `x sigmoid(x)`.
    SiluFast,
    /// `erf(x)` as a quotient of polynomials.
    Erf,
    /// `erf(x) + 1` without the cancellation of the sum.
    ErfPlusOne,
    /// The same to the digits of 16-bit floats.
    ErfPlusOneShort,
    /// `tanh(x) + 1` without the cancellation of the sum, as twice the sigmoid of `2 x`; subnormal results are 0.
    TanhPlusOne,
    /// The derivative of GELU, `(erf(x / sqrt(2)) + 1) / 2 + x exp(-x^2 / 2) / sqrt(2 pi)`.
    GeluSlope,
}

impl ApproxOp {
    /// Every approximation.
    pub const ALL: &[Self] = &[
        Self::ExpFlush,
        Self::ExpFast,
        Self::ExpBelow,
        Self::SigmoidFlush,
        Self::SigmoidFast,
        Self::SiluFlush,
        Self::SiluFast,
        Self::Erf,
        Self::ErfPlusOne,
        Self::ErfPlusOneShort,
        Self::TanhPlusOne,
        Self::GeluSlope,
    ];

    /// The textual name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExpFlush => "exp.flush",
            Self::ExpFast => "exp.fast",
            Self::ExpBelow => "exp.below",
            Self::SigmoidFlush => "sigmoid.flush",
            Self::SigmoidFast => "sigmoid.fast",
            Self::SiluFlush => "silu.flush",
            Self::SiluFast => "silu.fast",
            Self::Erf => "erf.fast",
            Self::ErfPlusOne => "erf.plus_one",
            Self::ErfPlusOneShort => "erf.plus_one_short",
            Self::TanhPlusOne => "tanh.plus_one",
            Self::GeluSlope => "gelu.slope",
        }
    }

    /// The approximation with this textual name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|op| op.name() == name)
    }

    /// The approximations of an operation, the fewest instructions first, that
    /// are only good enough for some uses.
    pub const fn coarse(op: UnaryOp) -> &'static [Self] {
        match op {
            UnaryOp::Exp => &[Self::ExpFlush, Self::ExpFast],
            UnaryOp::Sigmoid => &[Self::SigmoidFlush, Self::SigmoidFast],
            UnaryOp::Silu => &[Self::SiluFlush, Self::SiluFast],
            _ => &[],
        }
    }

    /// The error model. An exponential's argument `x log2(e)` is rounded, which
    /// moves the result by `|x| 2^-23.7` of itself: below 2^-16.9 where `exp(x)`
    /// is neither 0 nor infinite, `ex2` included. A flush loses less than the
    /// least normal number; times `x`, at most 88 of it, since from there on the
    /// product falls. Those of `erf` are as good as the operations that they
    /// stand for, at most two units in the last place each: of the sum, the
    /// larger operand's; the short form has an error of its own besides. That of `tanh` is within four, those
    /// of the power, the sum below the quotient, and the quotient. The slope of GELU has that of its sum, whose
    /// terms are below 1; where both are small, it is small against them, as in the sum: 2^-21, and what the
    /// exponential adds, which is flushed where it is subnormal.
    ///
    /// Of a sum of `n` exponentials below their maximum, that of the maximum among them, terms `exp(-d)` are off by
    /// `d 2^-23.7` of themselves, and less than all of it lies where `d > ln(n)`: so it is off by about `ln(n) 2^-23.7`, as
    /// much as sums of that length are by rounding. Each time that a larger maximum is met, `ex2` adds `2^-22`.
    pub fn model(self) -> ErrorModel {
        let least = f64::from(LEAST_NORMAL);
        let (rel, abs) = match self {
            Self::ExpFlush | Self::ExpBelow | Self::SigmoidFlush => (2f64.powi(-16), least),
            Self::SiluFlush => (2f64.powi(-16), 88.0 * least),
            Self::ExpFast | Self::SigmoidFast | Self::SiluFast => (2f64.powi(-16), 0.0),
            Self::Erf => (2f64.powi(-21), 0.0),
            Self::ErfPlusOne | Self::GeluSlope => (0.0, 2f64.powi(-22)),
            Self::TanhPlusOne => (0.0, 2f64.powi(-21)),
            Self::ErfPlusOneShort => (2f64.powf(-14.5), 2f64.powi(-22)),
        };
        ErrorModel { rel, abs }
    }

    /// What the device computes, as a function from `f32` to `f32`.
    pub fn eval(self) -> fn(f64) -> f64 {
        match self {
            Self::ExpFlush | Self::ExpBelow => |x| flushed(ex2(LOG2_E * x as f32)).into(),
            Self::ExpFast => |x| ex2(LOG2_E * x as f32).into(),
            Self::SigmoidFlush => |x| sigmoid_flush(x as f32).into(),
            Self::SigmoidFast => |x| sigmoid_fast(x as f32).into(),
            Self::SiluFlush => |x| (x as f32 * sigmoid_flush(x as f32)).into(),
            Self::SiluFast => |x| (x as f32 * sigmoid_fast(x as f32)).into(),
            Self::Erf => |x| erf(x as f32).into(),
            Self::ErfPlusOne => |x| erf_plus_one(x as f32, &ERFC).into(),
            Self::ErfPlusOneShort => |x| erf_plus_one(x as f32, &ERFC_SHORT).into(),
            Self::TanhPlusOne => |x| (2.0 * reciprocal(1.0 + flushed(ex2(-2.0 * LOG2_E * x as f32)))).into(),
            Self::GeluSlope => |x| gelu_slope(x as f32).into(),
        }
    }
}

impl std::fmt::Display for ApproxOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

const LOG2_E: f32 = std::f32::consts::LOG2_E;

fn ex2(x: f32) -> f32 {
    f64::from(x).exp2() as f32
}

fn flushed(x: f32) -> f32 {
    if x.abs() < LEAST_NORMAL { 0f32.copysign(x) } else { x }
}

/// `rcp.approx.ftz`.
fn reciprocal(x: f32) -> f32 {
    flushed(1.0 / flushed(x))
}

fn sigmoid_flush(x: f32) -> f32 {
    reciprocal(1.0 + flushed(ex2(-LOG2_E * x)))
}

fn sigmoid_fast(x: f32) -> f32 {
    let power = ex2(-LOG2_E * x.abs());
    let r = reciprocal(1.0 + power);
    if x < 0.0 { power * r } else { r }
}

/// The polynomial with the given coefficients, the highest first.
fn polynomial(coefficients: &[f32], x: f32) -> f32 {
    coefficients.iter().copied().reduce(|sum, next| sum.mul_add(x, next)).unwrap_or(0.0)
}

/// The smaller one; NaN wins.
fn min_nan(a: f32, b: f32) -> f32 {
    if a.is_nan() || a <= b { a } else { b }
}

fn erf(x: f32) -> f32 {
    let a = min_nan(x.abs(), 3.85);
    let t = a * a;
    let p = polynomial(
        &[
            2.108_261_3e-6,
            2.856_748_5e-4,
            3.673_971_2e-3,
            5.247_983e-2,
            1.878_987_7e-1,
            std::f32::consts::FRAC_2_SQRT_PI,
        ],
        t,
    );
    let q = polynomial(&[3.873_172_7e-5, 1.145_509_1e-3, 1.478_497_5e-2, 1.131_293_9e-1, 4.998_538_2e-1, 1.0], t);
    min_nan(a * p * reciprocal(q), 1.0).copysign(x)
}

/// Coefficients of `log2(erfc(a)) / a` on `[0, 4]`, and fewer of them.
const ERFC: [f32; 10] = [
    -5.892_190_4e-7,
    1.322_680_8e-5,
    -1.271_640_8e-4,
    6.608_515_4e-4,
    -1.728_599_1e-3,
    -7.603_603_3e-4,
    2.845_201_6e-2,
    -1.486_423_6e-1,
    -9.183_711_4e-1,
    -1.627_912_3,
];
const ERFC_SHORT: [f32; 5] = [-2.193_542e-3, 2.582_963_8e-2, -1.422_408_7e-1, -9.227_92e-1, -1.627_010_2];

fn erf_plus_one(x: f32, coefficients: &[f32]) -> f32 {
    let a = min_nan(x.abs(), 4.0);
    let q = polynomial(coefficients, a);
    let r = if x.abs() > 4.0 { 0.0 } else { flushed(ex2(q * a)) };
    if x < 0.0 { r } else { 2.0 - r }
}

/// Coefficients of `exp(a^2 / 2) erfc(a / sqrt(2)) / 2` as a polynomial in `1 / (1 + 0.255 a)`.
const MILLS: [f32; 7] =
    [-0.082_916_826, 0.285_157_53, -0.184_380_7, 0.221_248_12, 0.050_253_466, 0.109_459, 0.101_179_39];

fn gelu_slope(x: f32) -> f32 {
    let a = x.abs();
    let t = reciprocal(0.255f32.mul_add(a, 1.0));
    let terms = polynomial(&MILLS, t).mul_add(t, a * -0.398_942_3);
    let power = flushed(ex2(x * x * -0.721_347_5));
    if x < 0.0 { power * terms } else { (-power).mul_add(terms, 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::eval::unary_f64;

    /// The result is within the model of the operation, and one rounding, at
    /// points of all magnitudes up to `limit`.
    fn check_model(op: ApproxOp, exact: impl Fn(f64) -> f64, limit: f64) {
        let model = op.model();
        for step in -60_000..=60_000 {
            let x = f64::from((f64::from(step) / 60_000.0 * limit) as f32);
            for x in [x, f64::from((x * 1e-3) as f32), f64::from((x * 1e-20) as f32)] {
                let (approx, exact) = (op.eval()(x), exact(x));
                // Half a unit in the last place, or of the least subnormal.
                // The product with `x` magnifies that of the sigmoid.
                let rounding = exact.abs() * 2f64.powi(-23) + 2f64.powi(-149) * x.abs().max(1.0);
                let bound = model.rel * exact.abs() + model.abs + rounding;
                let limit = f64::from(f32::MAX);
                let same = exact.abs() > limit && approx.abs() >= limit * (1.0 - model.rel);
                assert!(same || (approx - exact).abs() <= bound, "{op}({x}) is {approx}, exactly {exact}");
            }
        }
    }

    #[test]
    fn approximations_keep_their_error_models() {
        for (of, approximations) in [UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Silu].map(|op| (op, ApproxOp::coarse(op)))
        {
            for &op in approximations {
                check_model(op, unary_f64(of), 120.0);
            }
        }
        check_model(ApproxOp::Erf, libm::erf, 6.0);
        check_model(ApproxOp::ErfPlusOne, |x| libm::erfc(-x), 6.0);
        check_model(ApproxOp::ErfPlusOneShort, |x| libm::erfc(-x), 6.0);
        check_model(ApproxOp::TanhPlusOne, |x| 2.0 / (1.0 + (-2.0 * x).exp()), 60.0);
    }

    /// Its two terms, which cancel where it is small.
    fn slope_terms(x: f64) -> (f64, f64) {
        (
            libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) / 2.0,
            x * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt(),
        )
    }

    #[test]
    fn the_slope_of_gelu_is_as_good_as_its_terms() {
        let op = ApproxOp::GeluSlope;
        check_model(op, |x| slope_terms(x).0 + slope_terms(x).1, 12.0);
        for step in 0..=130_000 {
            let x = f64::from(-step as f32 / 10_000.0);
            let (cdf, along) = slope_terms(x);
            let rel = 2f64.powi(-21) * 1.25 + x * x * 2f64.powi(-24);
            let bound = (cdf + along.abs()) * rel + 8.0 * f64::from(LEAST_NORMAL);
            let found = op.eval()(x);
            assert!((found - cdf - along).abs() <= bound, "{x}: {found}, exactly {}", cdf + along);
        }
        assert_eq!([-20.0, -0.0, 0.0, 20.0, 1e30].map(op.eval()), [0.0, 0.5, 0.5, 1.0, 1.0]);
        assert!([f64::NAN, f64::INFINITY, -f64::INFINITY].map(op.eval()).iter().all(|slope| slope.is_nan()));
    }

    #[test]
    fn special_values_follow_the_operations() {
        let infinity = f64::INFINITY;
        for &op in ApproxOp::ALL {
            assert!(op.eval()(f64::NAN).is_nan(), "{op}");
            assert_eq!(ApproxOp::from_name(op.name()), Some(op));
        }
        for of in [UnaryOp::Exp, UnaryOp::Sigmoid, UnaryOp::Silu] {
            for &op in ApproxOp::coarse(of) {
                for x in [0.0, -0.0, infinity, -infinity] {
                    let (approx, exact) = (op.eval()(x), unary_f64(of)(x));
                    assert!(approx == exact || approx.is_nan() && exact.is_nan(), "{op}({x}) is {approx}, not {exact}");
                }
            }
        }
        for op in [ApproxOp::ErfPlusOne, ApproxOp::ErfPlusOneShort] {
            assert_eq!([-infinity, -5.0, 0.0, 5.0, infinity].map(op.eval()), [0.0, 0.0, 1.0, 2.0, 2.0], "{op}");
        }
        assert_eq!(
            [-infinity, -60.0, 0.0, 20.0, infinity].map(ApproxOp::TanhPlusOne.eval()),
            [0.0, 0.0, 1.0, 2.0, 2.0]
        );
        assert_eq!([-infinity, infinity].map(ApproxOp::Erf.eval()), [-1.0, 1.0]);
        assert!(ApproxOp::Erf.eval()(-0.0).is_sign_negative());
    }

    #[test]
    fn only_the_flushing_forms_lose_subnormals() {
        assert_eq!(ApproxOp::ExpFlush.eval()(-90.0), 0.0);
        assert!((ApproxOp::ExpFast.eval()(-90.0) / (-90f64).exp() - 1.0).abs() < 1e-4);
        assert_eq!(ApproxOp::SigmoidFlush.eval()(-90.0), 0.0);
        assert!((ApproxOp::SigmoidFast.eval()(-95.0) / (-95f64).exp() - 1.0).abs() < 1e-3);
        assert!((ApproxOp::SiluFast.eval()(-100.0) / (-100.0 * (-100f64).exp()) - 1.0).abs() < 0.1);
    }
}
