use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, result, strided};
use crate::num::DType::{self, *};
use crate::num::Value;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

#[test]
fn vectors_and_matrices() {
    let v = |values: &[f64]| dense(F32, &[values.len() as i64], values);
    let a = dense(F32, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let b = dense(F32, &[3, 2], &[1.0, -1.0, 0.5, 2.0, 0.0, 3.0]);
    let (x, y) = (v(&[1.0, 2.0, 3.0]), v(&[2.0, -1.0]));
    check_value("%0 = matmul %a, %b", &[x.clone(), x.clone()], F32, &[], &[14.0]);
    check_value("%0 = matmul %a, %b", &[a.clone(), x.clone()], F32, &[2], &[14.0, 32.0]);
    check_value("%0 = matmul %a, %b", &[y.clone(), a.clone()], F32, &[3], &[-2.0, -1.0, 0.0]);
    check_value("%0 = matmul %a, %b", &[a.clone(), b.clone()], F32, &[2, 2], &[2.0, 12.0, 6.5, 24.0]);
    check_value("%0 = linear %a, %b", &[a.clone(), a.clone()], F32, &[2, 2], &[14.0, 32.0, 32.0, 77.0]);
    check_value("%0 = linear %a, %b bias(%c)", &[a.clone(), a.clone(), y], F32, &[2, 2], &[16.0, 31.0, 34.0, 76.0]);
    check_value("%0 = linear %a, %b", &[a.clone(), x.clone()], F32, &[2], &[14.0, 32.0]);
    let half = dense(F32, &[], &[0.5]);
    check_value("%0 = linear %a, %b bias(%c)", &[a.clone(), x.clone(), half], F32, &[2], &[14.5, 32.5]);
    let one = v(&[100.0]);
    check_value("%0 = linear %a, %b bias(%c)", &[x, a, one], F32, &[2], &[114.0, 132.0]);
}

#[test]
fn empty_products_are_zero() {
    check_value("%0 = matmul %a, %b", &[counting(F16, &[2, 0]), counting(F16, &[0, 3])], F16, &[2, 3], &[0.0; 6]);
    check_value("%0 = matmul %a, %b", &[counting(F64, &[0]), counting(F64, &[0])], F64, &[], &[0.0]);
    check_value("%0 = matmul %a, %b", &[counting(F32, &[0, 2]), counting(F32, &[2, 3])], F32, &[0, 3], &[]);
    let bias = dense(F32, &[2], &[1.0, 2.0]);
    let inputs = [counting(F32, &[2, 0]), counting(F32, &[2, 0]), bias];
    check_value("%0 = linear %a, %b bias(%c)", &inputs, F32, &[2, 2], &[1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn sums_are_rounded_once() {
    // In f16, 2048 + 1 is 2048; the bias is added before rounding too.
    let a = dense(F16, &[1, 4], &[2048.0, 1.0, 1.0, 1.0]);
    check_value("%0 = matmul %a, %b", &[a.clone(), dense(F16, &[4], &[1.0; 4])], F16, &[1], &[2052.0]);
    let inputs = [a, dense(F16, &[1, 4], &[1.0, 0.0, 0.0, 1.0]), dense(F16, &[1], &[-2048.0])];
    check_value("%0 = linear %a, %b bias(%c)", &inputs, F16, &[1, 1], &[1.0]);
    // 2^24 + 1 - 2^24 in f32, and what overflows stays where it is.
    let a = dense(F32, &[3], &[16_777_216.0, 1.0, -16_777_216.0]);
    check_value("%0 = matmul %a, %b", &[a, dense(F32, &[3], &[1.0; 3])], F32, &[], &[1.0]);
    let inf = f64::INFINITY;
    let a = dense(BF16, &[2, 2], &[inf, 1.0, 0.0, 1.0]);
    let out = result("%0 = matmul %a, %b", &[a, dense(BF16, &[2, 1], &[0.0, 2.0])]).to_f64();
    assert!(out[0].is_nan() && out[1] == 2.0);
}

#[test]
fn products_of_few_bits_may_be_wider() {
    let a = dense(F16, &[1, 2], &[2048.0, 1.0]);
    let b = dense(F16, &[2], &[1.0, 1.0 / 1024.0]);
    check_value("%0 = matmul %a, %b dtype(f32)", &[a.clone(), b.clone()], F32, &[1], &[2048.0 + 1.0 / 1024.0]);
    check_value("%0 = matmul %a, %b dtype(f16)", &[a.clone(), b.clone()], F16, &[1], &[2048.0]);
    let refused = |dtype| format!("E0202: matmul: the product of f16 cannot be {dtype}");
    check_refused("%0 = matmul %a, %b dtype(bf16)", &[a.clone(), b.clone()], &refused("bf16"));
    check_refused("%0 = matmul %a, %b dtype(f64)", &[a, b], &refused("f64"));
    let wide = [counting(F64, &[2]), counting(F64, &[2])];
    check_refused("%0 = matmul %a, %b dtype(f32)", &wide, "E0202: matmul: the product of f64 cannot be f32");
}

#[test]
fn complex_numbers_are_multiplied_without_conjugation() {
    let complex = |dtype, sizes: &[i64], parts: &[(f64, f64)]| {
        let mut parts = parts.iter();
        HostTensor::from_fn(dtype, sizes, |_| parts.next().map(|&(re, im)| Value::Complex(re, im)).unwrap()).unwrap()
    };
    for dtype in [C64, C128] {
        let a = complex(dtype, &[1, 2], &[(1.0, 2.0), (0.0, -1.0)]);
        let b = complex(dtype, &[2, 2], &[(3.0, 0.0), (0.0, 1.0), (0.5, 0.5), (4.0, 0.0)]);
        let product = result("%0 = matmul %a, %b", &[a.clone(), b.clone()]);
        assert_eq!(product.values().collect::<Vec<_>>(), [Value::Complex(3.5, 5.5), Value::Complex(-2.0, -3.0)]);
        let bias = complex(dtype, &[2], &[(1.0, 1.0), (0.0, -1.0)]);
        let shifted = result("%0 = linear %a, %b bias(%c)", &[a, b.permuted(&[1, 0]).unwrap(), bias]);
        assert_eq!(shifted.values().collect::<Vec<_>>(), [Value::Complex(4.5, 6.5), Value::Complex(-2.0, -4.0)]);
    }
}

/// The element of a product, by the definition, on values that are exact.
fn naive(a: &HostTensor, b: &HostTensor, index: &[i64]) -> f64 {
    let mut index = index.to_vec();
    let n = if b.rank() > 1 { index.pop() } else { None };
    let m = if a.rank() > 1 { index.pop() } else { None };
    let own = |tensor: &HostTensor| -> Vec<i64> {
        let rank = tensor.rank().saturating_sub(2);
        let batch = &index[index.len() - rank..];
        batch.iter().zip(tensor.sizes()).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect()
    };
    let (outer_a, outer_b) = (own(a), own(b));
    let k = *a.sizes().last().unwrap();
    let at = |tensor: &HostTensor, outer: &[i64], matrix: &[Option<i64>]| {
        let index: Vec<i64> = outer.iter().copied().chain(matrix.iter().copied().flatten()).collect();
        tensor.get(&index).as_f64()
    };
    let product = |k| at(a, &outer_a, &[m, Some(k)]) * at(b, &outer_b, &[Some(k), n]);
    (0..k).fold(0.0, |sum, k| sum + product(k))
}

fn check_naive(output: &HostTensor, a: &HostTensor, b: &HostTensor) {
    let expected = HostTensor::from_fn(output.dtype(), output.sizes(), |i| Value::Float(naive(a, b, i))).unwrap();
    assert!(output.bits_equal(&expected), "{:?} times {:?}", a.meta, b.meta);
}

#[test]
fn products_of_any_ranks_and_strides() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16])?;
        let k = u.int_in_range(0..=6)?;
        let batch: Vec<i64> = (0..u.int_in_range(0..=3)?).map(|_| u.int_in_range(0..=3)).collect::<Result<_, _>>()?;
        let mut sizes = |matrix: [i64; 2], vector: i64| -> arbitrary::Result<Vec<i64>> {
            if u.ratio(1u8, 6u8)? {
                return Ok(vec![vector]);
            }
            let mut own = batch[u.int_in_range(0..=batch.len())?..].to_vec();
            for size in &mut own {
                if u.ratio(1u8, 4u8)? {
                    *size = 1;
                }
            }
            own.extend(matrix);
            Ok(own)
        };
        let (sizes_a, sizes_b) = (sizes([3, k], k)?, sizes([k, 5], k)?);
        let (a, b) = (strided(u, dtype, &sizes_a)?, strided(u, dtype, &sizes_b)?);
        let output = result("%0 = matmul %a, %b", &[a.clone(), b.clone()]);
        check_naive(&output, &a, &b);
        Ok(())
    });
}

#[test]
fn linear_is_a_product_with_the_transposed_weight() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16])?;
        let (k, n) = (u.int_in_range(0..=3)?, u.int_in_range(0..=4)?);
        let mut sizes: Vec<i64> =
            (0..u.int_in_range(0..=3)?).map(|_| u.int_in_range(0..=3)).collect::<Result<_, _>>()?;
        sizes.push(k);
        let (x, weight) = (strided(u, dtype, &sizes)?, strided(u, dtype, &[n, k])?);
        let output = result("%0 = linear %a, %b", &[x.clone(), weight.clone()]);
        check_naive(&output, &x, &weight.clone().permuted(&[1, 0]).unwrap());
        let bias = strided(u, dtype, &[n])?;
        let shifted = result("%0 = linear %a, %b bias(%c)", &[x, weight, bias.clone()]);
        let expected = HostTensor::from_fn(dtype, output.sizes(), |index| {
            let out = bias.get(&index[index.len() - 1..]).as_f64();
            Value::Float(output.get(index).as_f64() + out)
        });
        assert!(shifted.bits_equal(&expected.unwrap()));
        Ok(())
    });
}

#[test]
fn refusals_name_axes_and_numbers() {
    let f32 = |sizes: &[i64]| counting(F32, sizes);
    check_refused(
        "%0 = matmul %a, %b",
        &[f32(&[2, 3]), f32(&[4, 5])],
        "E0204: matmul: the last axis of `a` and axis 0 of `b`: 3 and 4 must be equal",
    );
    check_refused(
        "%0 = matmul %a, %b",
        &[f32(&[6, 2, 3]), f32(&[7, 3, 5])],
        "E0204: matmul: axis 0 of the stacks of matrices: 6 and 7 do not broadcast",
    );
    check_refused("%0 = matmul %a, %b", &[f32(&[]), f32(&[3])], "E0203: matmul: `a` has rank 0, it needs at least 1");
    check_refused(
        "%0 = matmul %a, %b",
        &[f32(&[3]), counting(F16, &[3])],
        "E0202: matmul: operands of types f32 and f16",
    );
    check_refused(
        "%0 = matmul %a, %b",
        &[counting(I32, &[3]), counting(I32, &[3])],
        "E0202: matmul: not defined on i32",
    );
    check_refused(
        "%0 = linear %a, %b",
        &[f32(&[2, 3]), f32(&[4, 5])],
        "E0204: linear: the last axis of `x` and axis 1 of `weight`: 3 and 5 must be equal",
    );
    check_refused(
        "%0 = linear %a, %b",
        &[f32(&[2, 3]), f32(&[2, 4, 3])],
        "E0203: linear: `weight` has rank 3, it needs 1 to 2",
    );
    check_refused(
        "%0 = linear %a, %b bias(%c)",
        &[f32(&[2, 3]), f32(&[4, 3]), f32(&[5])],
        "E0204: linear: axis 0 of `weight` and of `bias`: 4 and 5 must be equal",
    );
    check_refused(
        "%0 = linear %a, %b bias(%c)",
        &[f32(&[2, 3]), f32(&[3]), f32(&[1])],
        "E0203: linear: `bias` has rank 1, it needs 0",
    );
}

#[test]
fn operands_that_are_no_tensors_are_refused() {
    let error = crate::text::parse_one("fusion @f(%x: f32[?]) {\n %0 = matmul %x, 2.0\n return %0\n}").unwrap_err();
    assert_eq!(error[0].message, "matmul: the operand is a scalar, a tensor is needed");
}

/// A type that another test does not draw is no reason to forget it.
#[test]
fn every_type_is_multiplied_or_refused() {
    for &dtype in DType::ALL {
        let text = format!("fusion @f(%x: {dtype}[?]) {{\n %0 = matmul %x, %x\n return %0\n}}");
        let accepted = dtype.is_complex() || (dtype.is_float() && dtype.bytes() > 1);
        assert_eq!(crate::text::parse_one(&text).is_ok(), accepted, "{dtype}");
    }
}
