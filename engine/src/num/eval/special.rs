//! Special functions that neither the standard library nor `libm` has.

use crate::num::DType;
use crate::num::convert::{bf16_to_f64, f16_to_f64, f64_to_bf16, f64_to_f16};
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

/// Inverse of `erf`; NaN outside [-1, 1].
pub(super) fn erfinv(p: f64) -> f64 {
    if p.abs() > 0.5 {
        // 1 - |p| is exact here.
        return erfcinv(1.0 - p.abs()).copysign(p);
    }
    let x = estimate(p);
    // A step on erf(x) - p, whose derivative is 2/sqrt(pi) exp(-x^2).
    let refine = |x: f64| halley(x, (libm::erf(x) - p) / (FRAC_2_SQRT_PI * (-x * x).exp()));
    let x = refine(refine(x));
    if p == 0.0 { p } else { x }
}

/// Inverse of `erfc`; infinite at 0 and 2, NaN outside.
pub(super) fn erfcinv(q: f64) -> f64 {
    if !(0.0..=2.0).contains(&q) {
        return f64::NAN;
    }
    if q == 0.0 {
        return f64::INFINITY;
    }
    if q > 1.0 {
        // 2 - q is exact here.
        return -erfcinv(2.0 - q);
    }
    if q >= 0.5 {
        // 1 - q is exact here.
        return erfinv(1.0 - q);
    }
    if q < 1e-280 {
        return erfcinv_tiny(q);
    }
    // Newton on ln(erfc(x)) - ln(q), which is close to a parabola far out,
    // where erfc itself is too steep for a step.
    let mut x = estimate_upper(q);
    for _ in 0..4 {
        let erfc = libm::erfc(x);
        x += (erfc / q).ln() * erfc / (FRAC_2_SQRT_PI * (-x * x).exp());
    }
    x
}

/// Halley's step for a function whose second derivative is -2x times its
/// first, given the Newton step `step`.
fn halley(x: f64, step: f64) -> f64 {
    x - step / (1.0 + x * step)
}

/// Winitzki's closed form, good to 2e-3.
fn estimate(p: f64) -> f64 {
    const A: f64 = 0.147;
    let log = (-p * p).ln_1p();
    let half = 2.0 / (PI * A) + log / 2.0;
    ((half * half - log / A).sqrt() - half).sqrt().copysign(p)
}

/// The same in terms of `q = 1 - p`, for which `1 - p^2` is `q (2 - q)`.
fn estimate_upper(q: f64) -> f64 {
    const A: f64 = 0.147;
    let log = (q * (2.0 - q)).ln();
    let half = 2.0 / (PI * A) + log / 2.0;
    ((half * half - log / A).sqrt() - half).sqrt()
}

/// Where `erfc` itself is near underflow: solves the logarithm of its
/// asymptotic series `exp(-x^2) / (x sqrt(pi)) * (1 - t + 3t^2 - 15t^3 ...)`,
/// `t = 1 / (2 x^2)`, by iteration, which contracts by `t < 1e-3`.
fn erfcinv_tiny(q: f64) -> f64 {
    let log_q = q.ln();
    let mut x = (-log_q).sqrt();
    for _ in 0..8 {
        let t = 0.5 / (x * x);
        let series = 1.0 - t * (1.0 - 3.0 * t * (1.0 - 5.0 * t * (1.0 - 7.0 * t * (1.0 - 9.0 * t))));
        x = (-log_q - (x * PI.sqrt()).ln() + series.ln()).sqrt();
    }
    x
}

/// The next value of a type after `a` towards `b`. The patterns of one sign are
/// ordered like the magnitudes, so a step is 1 in the pattern.
pub(super) fn nextafter(dtype: DType, a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    if a == b {
        return b;
    }
    let away = if a == 0.0 { true } else { (b > a) == (a > 0.0) };
    let sign = if a == 0.0 { b } else { a };
    let step = |pattern: u64| if away { pattern + 1 } else { pattern - 1 };
    let magnitude = a.abs();
    let next = match dtype {
        DType::F64 => f64::from_bits(step(magnitude.to_bits())),
        DType::F16 => f16_to_f64(step(f64_to_f16(magnitude).into()) as u16),
        DType::BF16 => bf16_to_f64(step(f64_to_bf16(magnitude).into()) as u16),
        _ => f64::from(f32::from_bits(step((magnitude as f32).to_bits().into()) as u32)),
    };
    next.copysign(sign)
}
