//! How far a result may be from the expected value.
//!
//! Integers, truth values and whatever only moves elements are equal. Results
//! of `f32` are expected in `f64` and rounded once, as the evaluator computes
//! them: they are equal but where two libraries' `f64` functions differ and the
//! rounding to `f32` falls to the other side, which is one unit in the last
//! place. Results of `f64` differ by what both libraries are off.

use engine::num::DType;

/// A distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Units in the last place of the element; for complex numbers, of the
    /// larger part.
    Ulps(u64),
    /// Relative to the largest magnitude of the expected tensor.
    Norm(f64),
}

/// Operations, result types (empty: every floating-point one), bound, reason.
type Row = (&'static [&'static str], &'static [DType], Bound, &'static str);

const FUNCTIONS: &[&str] = &[
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "div",
    "erf",
    "erfc",
    "erfcinv",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "pow",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "truediv",
];

const FORMULAS: &[&str] = &[
    "addcmul",
    "batch_norm",
    "batch_norm_backward",
    "dropout_backward",
    "fast_gelu",
    "gelu",
    "gelu_backward",
    "gelu_tanh",
    "instance_norm",
    "instance_norm_backward",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "leaky_relu",
    "log_softmax",
    "log_softmax_backward",
    "lstm",
    "mean",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_forward",
    "softmax",
    "softmax_backward",
    "softplus",
    "standard_deviation",
    "std",
    "tanh_backward",
    "tanh_gelu",
    "tanh_gelu_backward",
    "thunder_rms_norm_backward",
    "var",
    "var_mean",
    "variance",
    "variance_mean",
    "welford",
];

const ATTENTION: &[&str] = &["sdpfa_fwd", "sdpfa_bwd"];

#[rustfmt::skip]
const BOUNDS: &[Row] = &[
    (&["lgamma"], &[DType::F64], Bound::Ulps(128), "both are absolutely accurate at the roots between negative integers"),
    (FUNCTIONS, &[DType::F64], Bound::Ulps(2), "one unit of either library"),
    (FUNCTIONS, &[DType::C128], Bound::Ulps(16), "formulas of several functions, each a unit off"),
    (&["sum", "prod"], &[DType::F64], Bound::Ulps(4), "another order of the terms"),
    (&["sum", "prod"], &[DType::F32], Bound::Ulps(1), "another order of the terms, in f64"),
    (&["sum", "prod"], &[DType::C128], Bound::Ulps(16), "another order of the terms"),
    (&["sum", "prod"], &[DType::C64], Bound::Ulps(1), "another order of the terms, in f64"),
    (&["cumsum", "cumprod"], &[DType::C128], Bound::Ulps(16), "another formula of complex products"),
    (&["cumsum", "cumprod"], &[], Bound::Ulps(1), "running results in f64, each rounded"),
    (&["matmul", "linear", "grouped_mm", "scaled_mm"], &[DType::F64], Bound::Norm(1e-14), "another order of the terms"),
    (&["matmul"], &[DType::C64, DType::C128], Bound::Ulps(16), "another order of the terms"),
    (ATTENTION, &[DType::F64, DType::F32], Bound::Norm(4e-6), "the logarithms are f32, and what is computed from them"),
    (ATTENTION, &[DType::F16], Bound::Norm(2e-3), "gradients start from an output rounded to f16"),
    (ATTENTION, &[DType::BF16], Bound::Norm(2e-2), "gradients start from an output rounded to bf16"),
    (&["normal", "randn", "randn_like"], &[DType::F32], Bound::Norm(1e-6), "logarithm and sine of f32 arguments"),
    (FORMULAS, &[DType::C64, DType::C128], Bound::Ulps(4), "another order of operations"),
    (FORMULAS, &[DType::F64], Bound::Norm(1e-14), "another order of operations"),
    (FORMULAS, &[DType::F32], Bound::Norm(4e-6), "each operation rounds to f32, PyTorch computed in f64"),
    (FUNCTIONS, &[DType::C64], Bound::Ulps(1), "a rounding to either side; the sign of a part that is 0"),
];

/// The bound of an operation's results of a type.
pub fn bound(op: &str, dtype: DType) -> Bound {
    let matches = |(ops, dtypes, ..): &&Row| ops.contains(&op) && (dtypes.is_empty() || dtypes.contains(&dtype));
    BOUNDS.iter().find(matches).map_or(Bound::Ulps(0), |row| row.2)
}

/// Bits of a float as an integer of the same order, neighbours one apart; the
/// value itself for formats whose values are only moved and converted.
fn ordinal(dtype: DType, value: f64) -> Option<i64> {
    let (bits, least) = match dtype {
        DType::F64 => (value.to_bits().cast_signed(), i64::MIN),
        DType::F32 => ((value as f32).to_bits().cast_signed().into(), i64::from(i32::MIN)),
        _ => return None,
    };
    Some(if bits < 0 { least - bits } else { bits })
}

/// Units in the last place between two floats. NaNs are alike; 0 and -0 are
/// not, they are one apart; NaN and infinity are far from everything else.
pub fn ulps(dtype: DType, actual: f64, expected: f64) -> u64 {
    if actual.is_nan() && expected.is_nan() {
        return 0;
    }
    if actual.is_nan() || expected.is_nan() {
        return u64::MAX;
    }
    if actual == expected {
        return (actual.is_sign_negative() != expected.is_sign_negative()).into();
    }
    match (ordinal(dtype, actual), ordinal(dtype, expected)) {
        (Some(a), Some(e)) => a.abs_diff(e),
        _ => u64::MAX,
    }
}

/// The distance of two complex numbers in units in the last place of the larger
/// part of the expected one.
pub fn complex_ulps(dtype: DType, actual: (f64, f64), expected: (f64, f64)) -> u64 {
    let parts = [(actual.0, expected.0), (actual.1, expected.1)];
    let exact = parts.map(|(a, e)| ulps(dtype.part(), a, e));
    if exact.iter().all(|&distance| distance <= 1) || exact.contains(&u64::MAX) {
        return exact[0].max(exact[1]);
    }
    let magnitude = expected.0.abs().max(expected.1.abs());
    let spacing = match dtype.part() {
        DType::F64 => magnitude.next_up() - magnitude,
        _ => f64::from((magnitude as f32).next_up()) - f64::from(magnitude as f32),
    };
    let error = (actual.0 - expected.0).abs().max((actual.1 - expected.1).abs());
    if error.is_finite() { (error / spacing).ceil() as u64 } else { u64::MAX }
}
