//! Compares outputs with the reference.
//!
//! An element is right if `|a - b| <= abs + rel * |b|`, both NaN, or equal.
//! Unless the case says otherwise `rel` follows from the data type and from the
//! longest reduction (`n` terms summed in another order differ by about
//! `eps * sqrt(n)`), and `abs` is `rel` times the output's root mean square,
//! since where terms cancel the error is relative to the terms, not to the sum.

use crate::case::{Check, Real};
use crate::verdict::Numerics;
use engine::fusion::{Bindings, Fusion, OpKind, TensorId};
use engine::num::{DType, Value};
use engine::tensor::HostTensor;
use engine::util::SecondaryMap;

/// The longest reduction of a fusion, at least 1. Chains multiply.
pub(super) fn reduction_length(fusion: &Fusion, bindings: &Bindings) -> f64 {
    let mut length: SecondaryMap<TensorId, f64> = SecondaryMap::new();
    let mut longest = 1.0f64;
    for (id, op) in fusion.ops.iter() {
        let mut n = fusion.tensor_inputs(id).map(|t| length[t]).fold(1.0, f64::max);
        if let (OpKind::Reduce { axes, .. }, Some(x)) = (&op.kind, fusion.tensor_inputs(id).next()) {
            let sizes = bindings.sizes(fusion, x);
            let terms = axes.iter().filter_map(|axis| sizes.get(*axis as usize)).map(|n| *n as f64);
            n *= terms.product::<f64>().max(1.0);
        }
        length.set(op.output, n);
        longest = longest.max(n);
    }
    longest
}

/// `(rel, abs / rms)` by data type: a few rounding errors of the type itself,
/// and those of the accumulation in the compute type.
fn default_tolerance(dtype: DType, length: f64) -> f64 {
    let (base, eps) = match dtype {
        DType::F64 => (1e-11, f64::EPSILON),
        DType::F32 => (1e-5, f64::from(f32::EPSILON)),
        DType::F16 => (2e-3, f64::from(f32::EPSILON)),
        DType::BF16 => (1.6e-2, f64::from(f32::EPSILON)),
        _ => return 0.0,
    };
    base + 4.0 * eps * length.sqrt()
}

/// Compares one output; the text describes the first mismatches.
pub(super) fn compare(
    name: &str,
    wanted: &HostTensor,
    got: &HostTensor,
    check: &Check,
    length: f64,
) -> (Numerics, Option<String>) {
    let mut numerics = Numerics::default();
    if wanted.dtype() != got.dtype() || wanted.sizes() != got.sizes() {
        let text = format!(
            "output %{name}: {}{:?} expected, {}{:?} given",
            wanted.dtype(), wanted.sizes(), got.dtype(), got.sizes()
        );
        return (numerics, Some(text));
    }
    let exact = check.exact || !wanted.dtype().is_float();
    let rel = check.rel.map_or_else(|| default_tolerance(wanted.dtype(), length), Real::get);
    let abs = check.abs.map_or_else(|| rel * root_mean_square(wanted), Real::get);
    let mut first = Vec::new();
    for (i, (a, b)) in wanted.values().zip(got.values()).enumerate() {
        numerics.elements += 1;
        let (wrong, error, share) = judge(a, b, exact, rel, abs);
        if error.is_finite() {
            numerics.max_abs = numerics.max_abs.max(error);
        }
        if share.is_finite() {
            numerics.worst = numerics.worst.max(share);
        }
        if wrong {
            numerics.wrong += 1;
            if first.len() < 4 {
                first.push(format!("{:?}: {} expected, {} given", index_of(i, wanted.sizes()), show(a), show(b)));
            }
        }
    }
    if numerics.wrong == 0 {
        return (numerics, None);
    }
    let how = if exact { "exactly".to_string() } else { format!("within rel {rel:.3e}, abs {abs:.3e}") };
    let text = format!(
        "output %{name}: {} of {} elements differ ({how}; largest error {:.3e})\n    {}",
        numerics.wrong, numerics.elements, numerics.max_abs, first.join("\n    ")
    );
    (numerics, Some(text))
}

/// Whether the element is wrong, the absolute error, and its share of the tolerance.
fn judge(wanted: Value, got: Value, exact: bool, rel: f64, abs: f64) -> (bool, f64, f64) {
    let (Value::Float(a), Value::Float(b)) = (wanted, got) else {
        let error = (wanted.as_f64() - got.as_f64()).abs();
        return (wanted != got, error, 0.0);
    };
    if a.is_nan() && b.is_nan() {
        return (false, 0.0, 0.0);
    }
    if exact {
        return (a.to_bits() != b.to_bits(), (a - b).abs(), 0.0);
    }
    if a == b {
        return (false, 0.0, 0.0);
    }
    let error = (a - b).abs();
    let allowed = abs + rel * a.abs();
    // Written so that a NaN on either side is wrong.
    let right = error <= allowed && a.is_finite() && b.is_finite();
    (!right, error, error / allowed)
}

fn root_mean_square(tensor: &HostTensor) -> f64 {
    let (mut sum, mut count) = (0.0, 0u64);
    for value in tensor.values().map(Value::as_f64).filter(|v| v.is_finite()) {
        sum += value * value;
        count += 1;
    }
    if count == 0 { 0.0 } else { (sum / count as f64).sqrt().min(1e300) }
}

fn index_of(mut linear: usize, sizes: &[i64]) -> Vec<usize> {
    let mut index = vec![0; sizes.len()];
    for (at, size) in index.iter_mut().zip(sizes).rev() {
        let size = (*size).max(1) as usize;
        *at = linear % size;
        linear /= size;
    }
    index
}

pub(super) fn show(value: Value) -> String {
    match value {
        Value::Float(v) => format!("{v:?}"),
        Value::Int(v) => v.to_string(),
        Value::Bool(v) => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> HostTensor {
        HostTensor::from_f64(DType::F32, &[values.len() as i64], values).expect("made")
    }

    #[track_caller]
    fn check(wanted: &[f64], got: &[f64], check: Check, wrong: u64) {
        let (numerics, text) = compare("y", &of(wanted), &of(got), &check, 1.0);
        assert_eq!(numerics.wrong, wrong, "{text:?}");
        assert_eq!(text.is_some(), wrong > 0);
    }

    #[test]
    fn tolerance_and_special_values() {
        let by_type = Check::default();
        check(&[1.0, 2.0], &[1.000005, 2.0], by_type, 0);
        check(&[1.0, 2.0], &[1.001, 2.0], by_type, 1);
        check(&[f64::NAN, f64::INFINITY], &[f64::NAN, f64::INFINITY], by_type, 0);
        check(&[1.0, 1.0, f64::INFINITY], &[f64::NAN, f64::INFINITY, 1.0], by_type, 3);
        check(&[f64::INFINITY], &[f64::NEG_INFINITY], by_type, 1);
        // Cancellation: a small element among large ones is judged by their scale.
        check(&[1000.0, 1e-6], &[1000.0, 2e-6], by_type, 0);
        let exact = Check { exact: true, ..Check::default() };
        check(&[0.0], &[-0.0], exact, 1);
        check(&[f64::NAN], &[f64::NAN], exact, 0);
        check(&[0.0], &[-0.0], by_type, 0);
        check(&[], &[], by_type, 0);
        let loose = Check { abs: Some(Real::new(0.5)), rel: Some(Real::new(0.0)), exact: false };
        check(&[1.0], &[1.4], loose, 0);
    }

    #[test]
    fn shapes_must_agree() {
        let (_, text) = compare("y", &of(&[1.0]), &of(&[1.0, 2.0]), &Check::default(), 1.0);
        assert_eq!(text.as_deref(), Some("output %y: f32[1] expected, f32[2] given"));
    }
}
