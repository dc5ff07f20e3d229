//! What the comparison finds and says.

use super::*;
use crate::fusion::bind;
use crate::fusion::sketch::Sketch;
use crate::fusion::{OpKind, Operand};
use crate::num::ReduceOp;
use crate::tensor::{ArgMeta, TensorMeta};

fn check_report(dtype: DType, actual: &[f64], expected: &[f64], tolerance: Tolerance, text: &str) {
    let sizes = [2, actual.len() as i64 / 2];
    let actual = HostTensor::from_f64(dtype, &sizes, actual).unwrap();
    let expected = HostTensor::from_f64(dtype, &sizes, expected).unwrap();
    assert_eq!(compare(&actual, &expected, tolerance).unwrap().to_string(), text);
}

#[test]
fn mismatches_are_counted_and_located() {
    let tolerance = Tolerance { abs: 0.125, rel: 0.0 };
    check_report(
        DType::F32,
        &[1.0, 2.0, 3.0, 4.0],
        &[1.125, 2.25, 3.0, 8.0],
        tolerance,
        "2 of 4 elements differ, max abs error 4.000e0, max rel error 5.000e-1, tolerance abs 1.250e-1 rel 0.000e0; \
         first at [0, 1]: 2.0, expected 2.25; worst at [1, 1]: 4.0, expected 8.0",
    );
    check_report(
        DType::F32,
        &[1.0, 2.0],
        &[1.125, 2.0],
        tolerance,
        "2 elements match, max abs error 1.250e-1, max rel error 1.111e-1",
    );
    // Of integers a distance that somebody asks for counts, and no share of what they are.
    check_report(
        DType::I32,
        &[1.0, 2.0],
        &[2.0, 4.0],
        Tolerance { abs: 1.0, rel: 9.0 },
        "1 of 2 elements differ, max abs error 2.000e0, max rel error 0.000e0, tolerance abs 1.000e0 rel 9.000e0; \
         first at [1, 0]: 2, expected 4; worst at [1, 0]: 2, expected 4",
    );
    check_report(
        DType::Bool,
        &[1.0, 0.0],
        &[1.0, 1.0],
        Tolerance { abs: 9.0, rel: 9.0 },
        "1 of 2 elements differ, max abs error 1.000e0, max rel error 0.000e0, tolerance abs 9.000e0 rel 9.000e0; \
         first at [1, 0]: false, expected true; worst at [1, 0]: false, expected true",
    );
}

#[test]
fn nan_and_infinity_match_only_themselves() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let wide = Tolerance { abs: 1e9, rel: 1e9 };
    let count = |actual: f64, expected: f64| {
        let tensor = |v| HostTensor::from_f64(DType::F32, &[], &[v]).unwrap();
        let report = compare(&tensor(actual), &tensor(expected), wide).unwrap();
        (report.mismatches, report.nonfinite_mismatches)
    };
    for (a, e, mismatches) in
        [(nan, nan, 0), (inf, inf, 0), (inf, -inf, 1), (nan, 1.0, 1), (1.0, nan, 1), (1.0, inf, 1), (inf, nan, 1)]
    {
        assert_eq!(count(a, e), (mismatches, mismatches), "{a} against {e}");
    }
}

#[test]
fn other_types_or_sizes_cannot_be_compared() {
    let zeros = |dtype, sizes: &[i64]| HostTensor::zeros(dtype, sizes).unwrap();
    let error = compare(&zeros(DType::F32, &[2]), &zeros(DType::F32, &[3]), Tolerance::EXACT).unwrap_err();
    assert_eq!(error.message, "the result is f32 [2], the reference f32 [3]");
    assert!(compare(&zeros(DType::F32, &[2]), &zeros(DType::I32, &[2]), Tolerance::EXACT).is_err());
    let transposed =
        HostTensor::from_f64(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap().permuted(&[1, 0]).unwrap();
    assert!(compare(&transposed, &transposed.to_contiguous(), Tolerance::EXACT).unwrap().passed());
}

/// The default tolerance of `sum` over `terms` elements of `x`, cast through types.
fn tolerance_of(dtype: DType, before: &[DType], terms: i64, after: &[DType]) -> Tolerance {
    let mut s = Sketch::new();
    let mut x = s.input("x", dtype, "? ?");
    for &to in before {
        x = s.op(OpKind::Cast(to), &[Operand::Tensor(x)]);
    }
    x = s.op(OpKind::Reduce { op: ReduceOp::Sum, axes: vec![1] }, &[Operand::Tensor(x)]);
    for &to in after {
        x = s.op(OpKind::Cast(to), &[Operand::Tensor(x)]);
    }
    let bindings = bind(&s.fusion, &[ArgMeta::Tensor(TensorMeta::contiguous(dtype, &[3, terms]))]).unwrap();
    Tolerance::for_output(&s.fusion, &bindings, x)
}

#[test]
fn default_tolerance_follows_types_and_reduction_length() {
    use DType::*;
    let e = f64::from(f32::EPSILON);
    assert_eq!(tolerance_of(F32, &[], 1024, &[]), Tolerance { abs: e * (32.0 + 256.0), rel: 16.0 * e });
    assert_eq!(tolerance_of(I32, &[], 1024, &[]), Tolerance::EXACT);
    let stored = tolerance_of(BF16, &[F32], 16, &[BF16]);
    assert_eq!(stored, Tolerance { abs: e * 64.0, rel: 16.0 * e + 2.0 / 128.0 });
    let inside = tolerance_of(F32, &[F16, F32], 16, &[]);
    assert!(inside.abs > 1.0 / 1024.0 && inside.rel > 1.0 / 1024.0);
    let narrow = tolerance_of(F32, &[], 16, &[F64]);
    assert_eq!(narrow, tolerance_of(F32, &[], 16, &[]));
    assert!(tolerance_of(F64, &[], 16, &[]).abs < 1e-13);
}

#[test]
fn complex_numbers_are_as_far_as_they_are_in_the_plane() {
    let tensor = |values: [(f64, f64); 2]| {
        HostTensor::from_fn(DType::C64, &[2], |index| {
            let (re, im) = values[index[0] as usize];
            Value::Complex(re, im)
        })
        .unwrap()
    };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let check = |actual, expected, text: &str| {
        let tolerance = Tolerance { abs: 0.0, rel: 0.5 };
        assert_eq!(compare(&tensor(actual), &tensor(expected), tolerance).unwrap().to_string(), text);
    };
    // Far in the small part, near as a whole.
    check(
        [(8.0, 3.0), (nan, 1.0)],
        [(8.0, 1.0), (nan, 1.0)],
        "2 elements match, max abs error 2.000e0, max rel error 2.481e-1",
    );
    check(
        [(4.0, -3.0), (inf, 1.0)],
        [(4.0, 3.0), (1.0, inf)],
        "2 of 2 elements differ (1 by NaN or infinity), max abs error 6.000e0, max rel error 1.200e0, \
         tolerance abs 0.000e0 rel 5.000e-1; first at [0]: 4.0-3.0i, expected 4.0+3.0i; \
         worst at [1]: inf+1.0i, expected 1.0+infi",
    );
}

#[test]
fn unsigned_numbers_are_shown_and_subtracted_as_such() {
    let tensor = |value| HostTensor::from_i64(DType::U64, &[1], &[value]).unwrap();
    let report = compare(&tensor(-1), &tensor(-2), Tolerance::EXACT).unwrap();
    assert_eq!(
        report.to_string(),
        "1 of 1 elements differ, max abs error 1.000e0, max rel error 0.000e0, tolerance abs 0.000e0 rel 0.000e0; \
         first at [0]: 18446744073709551615, expected 18446744073709551614; \
         worst at [0]: 18446744073709551615, expected 18446744073709551614"
    );
}

/// Both tensors in every order of their axes: the outcome is that of the dense ones, places included.
#[test]
fn layouts_do_not_change_the_outcome() {
    // Of more than one range.
    let sizes = [3, 5, 5000];
    let pairs = [
        ([0, 1, 2], [2, 1, 0]),
        ([2, 1, 0], [2, 1, 0]),
        ([1, 2, 0], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 2, 1], [1, 2, 0]),
    ];
    let in_order = |dense: &HostTensor, order: [usize; 3], gap: i64| {
        let mut strides = vec![0; 3];
        let mut step = gap;
        for &axis in order.iter().rev() {
            (strides[axis], step) = (step, step * (sizes[axis] + gap - 1));
        }
        let meta = TensorMeta { dtype: dense.dtype(), sizes: sizes.to_vec(), strides };
        HostTensor::strided(meta, |index| dense.try_get(index).unwrap()).unwrap()
    };
    for dtype in [DType::F32, DType::BF16, DType::I32, DType::C64, DType::Bool] {
        let value = |i: usize| if i % 97 == 96 { f64::NAN } else { (i % 13) as f64 };
        let numbers: Vec<f64> = (0..3 * 5 * 5000).map(value).collect();
        let expected = HostTensor::from_f64(dtype, &sizes, &numbers).unwrap();
        // Blocks of equal elements, of elements within the tolerance, and of mismatches, some as bad as others.
        let off = |(i, v): (usize, &f64)| match i {
            40 | 3000 | 3001 | 40_000 | 70_000 => v + 8.0,
            500..600 => v + 0.25,
            _ => *v,
        };
        let numbers: Vec<f64> = numbers.iter().enumerate().map(off).collect();
        let actual = HostTensor::from_f64(dtype, &sizes, &numbers).unwrap();
        let tolerance = Tolerance { abs: 0.5, rel: 0.0 };
        let wanted = compare(&actual, &expected, tolerance).unwrap();
        assert!(!wanted.passed() && wanted.elements == 3 * 5 * 5000, "{dtype}: {wanted}");
        for (one, other) in pairs {
            for gap in [1, 2] {
                let found = compare(&in_order(&actual, one, gap), &in_order(&expected, other, 1), tolerance).unwrap();
                assert_eq!(found, wanted, "{dtype} {one:?} {other:?}");
            }
        }
    }
}
