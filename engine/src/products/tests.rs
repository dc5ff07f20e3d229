use super::find_product;
use crate::fusion::Fusion;
use crate::num::{DType, Value};
use crate::property::property;
use crate::refeval::evaluate;
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::text::parse_one;
use arbtest::arbitrary::{self, Unstructured};

/// Small integers in places that a layout says, so that sums are exact.
fn tensor(sizes: &[i64], strides: &[i64]) -> HostTensor {
    let meta = TensorMeta { dtype: DType::F32, sizes: sizes.to_vec(), strides: strides.to_vec() };
    let mut next = 1u32;
    let small = |_: &[i64]| {
        next = next.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        Value::Float(f64::from(next >> 28) - 7.0)
    };
    HostTensor::strided(meta, small).unwrap()
}

/// An operation on such operands, those axes of size 1 being broadcasts that may be.
fn fusion(operation: &str, operands: &[HostTensor]) -> Fusion {
    let axis = |(position, size): (usize, &i64), rank: usize| {
        if *size == 1 && position + 2 < rank { "1" } else { "?" }
    };
    let input = |(name, operand): (&&str, &HostTensor)| {
        let axes: Vec<&str> = operand.sizes().iter().enumerate().map(|each| axis(each, operand.rank())).collect();
        format!("%{name}: f32[{}]", axes.join(", "))
    };
    let inputs: Vec<String> = ["a", "b", "c"].iter().zip(operands).map(input).collect();
    parse_one(&format!("fusion @f({}) {{\n  %0 = {operation}\n  return %0\n}}", inputs.join(", "))).unwrap()
}

/// Element of the storage of a tensor, `at` elements behind element 0.
fn element(tensor: &HostTensor, at: i64) -> f64 {
    let start = tensor.first_byte() + 4 * at as usize;
    f64::from(f32::from_le_bytes(tensor.data[start..start + 4].try_into().unwrap()))
}

/// Computes a product by its numbers alone, and holds it to the reference.
#[track_caller]
fn check_product(operation: &str, operands: &[HostTensor]) {
    let fusion = fusion(operation, operands);
    let args: Vec<Arg> = operands.iter().cloned().map(Arg::Tensor).collect();
    let expected = evaluate(&fusion, &args).unwrap().remove(0);
    let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
    let op = fusion.ops.values().next().unwrap();
    let found = find_product(op, &metas, &[16; 3]).unwrap_or_else(|| panic!("{operation} {metas:?}"));
    let given: Vec<HostTensor> = operands
        .iter()
        .zip(&found.copied)
        .map(|(operand, copied)| if *copied { operand.to_contiguous() } else { operand.clone() })
        .collect();
    let product = &found.product;
    let mut result = vec![f64::NAN; expected.numel()];
    for start in product.starts() {
        for s in 0..product.stack {
            for i in 0..product.m {
                for j in 0..product.n {
                    let term = |l: i64| {
                        let a = element(&given[0], start[0] + product.a.place(s, i, l));
                        a * element(&given[1], start[1] + product.b.place(s, l, j))
                    };
                    let bias = if product.has_bias { element(&given[2], j) } else { 0.0 };
                    let place = &mut result[(start[2] + product.d.place(s, i, j)) as usize];
                    assert!(place.is_nan(), "{product:?} writes an element twice");
                    *place = (0..product.k).map(term).sum::<f64>() + bias;
                }
            }
        }
    }
    assert_eq!(result, expected.to_f64(), "{operation} {metas:?} as {product:?}");
}

/// A layout of these sizes whose axes lie in any order, with gaps and repeated axes.
fn drawn(u: &mut Unstructured<'_>, sizes: &[i64]) -> arbitrary::Result<HostTensor> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for i in (1..order.len()).rev() {
        if u.ratio(1u8, 2u8)? {
            order.swap(i, u.int_in_range(0..=i)?);
        }
    }
    let (mut strides, mut step) = (vec![0; sizes.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = if u.ratio(1u8, 10u8)? { 0 } else { step };
        step *= sizes[axis] + i64::from(u.ratio(1u8, 5u8)?);
    }
    Ok(tensor(sizes, &strides))
}

#[test]
fn products_of_any_layouts() {
    property(|u| {
        let (m, n, k) = (u.int_in_range(1..=4)?, u.int_in_range(1..=4)?, u.int_in_range(1..=4)?);
        let stack: Vec<i64> = (0..u.int_in_range(0..=3)?).map(|_| u.int_in_range(1..=3)).collect::<Result<_, _>>()?;
        let is_linear = u.ratio(1u8, 3u8)?;
        let mut own = |matrix: &[i64]| -> arbitrary::Result<Vec<i64>> {
            let mut sizes = stack[u.int_in_range(0..=stack.len())?..].to_vec();
            for size in &mut sizes {
                if u.ratio(1u8, 4u8)? {
                    *size = 1;
                }
            }
            sizes.extend(matrix);
            Ok(sizes)
        };
        let left = own(&[m, k])?;
        if is_linear {
            let (x, weight) = (drawn(u, &left)?, drawn(u, &[n, k])?);
            check_product("linear %a, %b", &[x.clone(), weight.clone()]);
            check_product("linear %a, %b bias(%c)", &[x, weight, drawn(u, &[n])?]);
        } else {
            let right = own(&[k, n])?;
            check_product("matmul %a, %b", &[drawn(u, &left)?, drawn(u, &right)?]);
        }
        Ok(())
    });
}

#[test]
fn vectors_are_matrices_of_one_row_or_column() {
    let (vector, matrix) = (tensor(&[3], &[2]), tensor(&[2, 3], &[3, 1]));
    check_product("matmul %a, %b", &[vector.clone(), vector.clone()]);
    check_product("matmul %a, %b", &[matrix.clone(), vector.clone()]);
    check_product("matmul %a, %b", &[tensor(&[2], &[1]), matrix.clone()]);
    check_product("linear %a, %b", &[matrix.clone(), vector.clone()]);
    check_product("linear %a, %b", &[vector, matrix]);
}

#[track_caller]
fn check_numbers(operation: &str, operands: &[HostTensor], expected: [i64; 4], calls: usize) {
    check_product(operation, operands);
    let fusion = fusion(operation, operands);
    let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
    let product = find_product(fusion.ops.values().next().unwrap(), &metas, &[]).unwrap().product;
    assert_eq!(([product.stack, product.m, product.n, product.k], product.starts().len()), (expected, calls));
}

#[test]
fn stacks_become_rows_or_few_calls() {
    let weight = tensor(&[5, 4], &[4, 1]);
    check_numbers("linear %a, %b", &[tensor(&[2, 3, 4], &[12, 4, 1]), weight.clone()], [1, 6, 5, 4], 1);
    check_numbers("linear %a, %b", &[tensor(&[2, 3, 4], &[16, 4, 1]), weight], [2, 3, 5, 4], 1);
    let (heads, keys) = (tensor(&[2, 3, 4, 5], &[60, 20, 5, 1]), tensor(&[2, 3, 5, 4], &[60, 20, 1, 5]));
    check_numbers("matmul %a, %b", &[heads.clone(), keys], [6, 4, 4, 5], 1);
    // Queries of a layer whose heads lie side by side in a row.
    let across = tensor(&[2, 3, 4, 5], &[60, 5, 15, 1]);
    check_numbers("matmul %a, %b", &[across, tensor(&[2, 3, 5, 4], &[60, 5, 1, 15])], [3, 4, 4, 5], 2);
    check_numbers("matmul %a, %b", &[heads, tensor(&[3, 5, 4], &[20, 4, 1])], [3, 4, 4, 5], 2);
}

/// What is promised of addresses holds for each matrix of a stack, and a bias that starts at an odd place is copied.
#[test]
fn alignments_hold_for_every_matrix() {
    let found = |operation: &str, operands: &[HostTensor], aligns: &[u32]| {
        let fusion = fusion(operation, operands);
        let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
        find_product(fusion.ops.values().next().unwrap(), &metas, aligns).unwrap()
    };
    let (odd, even) = (tensor(&[2, 3, 3], &[9, 3, 1]), tensor(&[2, 4, 4], &[16, 4, 1]));
    let aligns = |product: &super::Product| [product.a.align, product.b.align, product.d.align];
    assert_eq!(aligns(&found("matmul %a, %b", &[odd.clone(), odd], &[16, 8]).product), [4, 4, 4]);
    assert_eq!(aligns(&found("matmul %a, %b", &[even.clone(), even], &[16, 8]).product), [16, 8, 16]);
    let layer = [tensor(&[2, 4], &[4, 1]), tensor(&[4, 4], &[4, 1]), tensor(&[4], &[1])];
    assert_eq!(found("linear %a, %b bias(%c)", &layer, &[16, 16, 16]).copied[..], [false, false, false]);
    assert_eq!(found("linear %a, %b bias(%c)", &layer, &[16, 16, 8]).copied[..], [false, false, true]);
}

#[test]
fn what_no_library_does_is_told() {
    let none = |operation: &str, operands: &[HostTensor]| {
        let fusion = fusion(operation, operands);
        let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
        find_product(fusion.ops.values().next().unwrap(), &metas, &[]).is_none()
    };
    assert!(none("matmul %a, %b", &[tensor(&[2, 0], &[1, 1]), tensor(&[0, 2], &[2, 1])]));
    assert!(none("linear %a, %b bias(%c)", &[tensor(&[2, 3], &[3, 1]), tensor(&[4, 3], &[3, 1]), tensor(&[1], &[1])]));
    assert!(none("add %a, %b", &[tensor(&[2], &[1]), tensor(&[2], &[1])]));
}
