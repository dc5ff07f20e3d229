use super::{Activation, Bias, find_activation, find_product};
use crate::fusion::Fusion;
use crate::num::{DType, Value};
use crate::property::property;
use crate::refeval::evaluate;
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::text::parse_one;
use arbtest::arbitrary::{self, Unstructured};

/// Small integers in places that a layout says, so that sums are exact.
fn tensor(sizes: &[i64], strides: &[i64]) -> HostTensor {
    typed(DType::F32, sizes, strides)
}

fn typed(dtype: DType, sizes: &[i64], strides: &[i64]) -> HostTensor {
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides: strides.to_vec() };
    let mut next = 1u32;
    let small = |_: &[i64]| {
        next = next.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        Value::Float(f64::from(next >> 28) - 7.0)
    };
    HostTensor::strided(meta, small).unwrap()
}

/// An operation on such operands, those axes of size 1 being broadcasts that may be: a bias of size 1 is one.
fn fusion(operation: &str, operands: &[HostTensor]) -> Fusion {
    let input = |(name, operand): (&&str, &HostTensor)| {
        let may_repeat = |position: usize| *name == "c" || position + 2 < operand.rank();
        let axis = |(position, size): (usize, &i64)| if *size == 1 && may_repeat(position) { "1" } else { "?" };
        let axes: Vec<&str> = operand.sizes().iter().enumerate().map(axis).collect();
        format!("%{name}: {}[{}]", operand.dtype(), axes.join(", "))
    };
    let inputs: Vec<String> = ["a", "b", "c"].iter().zip(operands).map(input).collect();
    parse_one(&format!("fusion @f({}) {{\n  %0 = {operation}\n  return %0\n}}", inputs.join(", "))).unwrap()
}

/// Element of the storage of a tensor, `at` elements behind element 0.
fn element(tensor: &HostTensor, at: i64) -> f64 {
    let width = tensor.dtype().bytes();
    let start = tensor.first_byte() + width * at as usize;
    let bytes = &tensor.data[start..start + width];
    match tensor.dtype() {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        _ => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
    }
}

/// Computes a product by its numbers alone, and holds it to the reference.
#[track_caller]
fn check_product(operation: &str, operands: &[HostTensor]) {
    let fusion = fusion(operation, operands);
    let args: Vec<Arg> = operands.iter().cloned().map(Arg::Tensor).collect();
    let expected = evaluate(&fusion, &args).unwrap().remove(0);
    let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
    let op = fusion.ops.values().next().unwrap();
    let found = find_product(op, Activation::None, &metas, &[16; 3]);
    let found = found.unwrap_or_else(|| panic!("{operation} {metas:?}"));
    let mut seen = operands.to_vec();
    if let Some(bias) = &found.bias {
        seen[2].meta = bias.clone();
    }
    let given: Vec<HostTensor> = seen
        .into_iter()
        .zip(&found.copied)
        .map(|(operand, copied)| if *copied { operand.to_contiguous() } else { operand })
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
                    let place = start[2] + product.d.place(s, i, j);
                    let bias = match product.bias {
                        Bias::None => 0.0,
                        Bias::Row => element(&given[2], j),
                        Bias::Full => element(&given[2], place),
                    };
                    let place = &mut result[place as usize];
                    assert!(place.is_nan(), "{product:?} writes an element twice");
                    *place = (0..product.k).map(term).sum::<f64>() + bias;
                }
            }
        }
    }
    assert_eq!(result, expected.to_f64(), "{operation} {metas:?} as {product:?}");
}

/// A layout of these sizes whose axes lie in any order, with gaps and repeated axes.
fn drawn(u: &mut Unstructured<'_>, dtype: DType, sizes: &[i64]) -> arbitrary::Result<HostTensor> {
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
    Ok(typed(dtype, sizes, &strides))
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
            let dtype = if u.ratio(1u8, 3u8)? { DType::F64 } else { DType::F32 };
            let (x, weight) = (drawn(u, dtype, &left)?, drawn(u, dtype, &[n, k])?);
            check_product("linear %a, %b", &[x.clone(), weight.clone()]);
            let bias = if u.ratio(1u8, 4u8)? { 1 } else { n };
            check_product("linear %a, %b bias(%c)", &[x, weight, drawn(u, dtype, &[bias])?]);
        } else {
            let right = own(&[k, n])?;
            check_product("matmul %a, %b", &[drawn(u, DType::F32, &left)?, drawn(u, DType::F32, &right)?]);
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
    check_product("linear %a, %b", &[vector.clone(), matrix.clone()]);
    check_product("linear %a, %b bias(%c)", &[matrix, vector, tensor(&[], &[])]);
}

#[track_caller]
fn check_numbers(operation: &str, operands: &[HostTensor], expected: [i64; 4], calls: usize) {
    check_product(operation, operands);
    let fusion = fusion(operation, operands);
    let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
    let product = find_product(fusion.ops.values().next().unwrap(), Activation::None, &metas, &[]).unwrap().product;
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
        find_product(fusion.ops.values().next().unwrap(), Activation::None, &metas, aligns).unwrap()
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
        find_product(fusion.ops.values().next().unwrap(), Activation::None, &metas, &[]).is_none()
    };
    assert!(none("matmul %a, %b", &[tensor(&[2, 0], &[1, 1]), tensor(&[0, 2], &[2, 1])]));
    assert!(none("add %a, %b", &[tensor(&[2], &[1]), tensor(&[2], &[1])]));
}

/// What is added lies as the library takes it: a vector where it takes vectors, else a matrix.
#[test]
fn biases_are_repeated() {
    #[track_caller]
    fn check_bias(dtype: DType, bias: &HostTensor, expected: (Bias, &[i64], &[i64], bool)) {
        let operands = [typed(dtype, &[2, 3], &[3, 1]), typed(dtype, &[4, 3], &[3, 1]), bias.clone()];
        let fusion = fusion("linear %a, %b bias(%c)", &operands);
        let metas: Vec<TensorMeta> = operands.iter().map(|operand| operand.meta.clone()).collect();
        let op = fusion.ops.values().next().unwrap();
        let found = find_product(op, Activation::None, &metas, &[16; 3]).unwrap();
        let bias = found.bias.unwrap();
        assert_eq!((found.product.bias, &bias.sizes[..], &bias.strides[..], found.copied[2]), expected);
    }
    check_bias(DType::F32, &typed(DType::F32, &[4], &[1]), (Bias::Row, &[4], &[1], false));
    check_bias(DType::F32, &typed(DType::F32, &[4], &[2]), (Bias::Row, &[4], &[2], true));
    check_bias(DType::F16, &typed(DType::F16, &[1], &[1]), (Bias::Row, &[4], &[0], true));
    check_bias(DType::F64, &typed(DType::F64, &[4], &[1]), (Bias::Full, &[2, 4], &[0, 1], true));
    check_bias(DType::C64, &typed(DType::C64, &[1], &[1]), (Bias::Full, &[2, 4], &[0, 0], true));
}

/// What is found behind the first operation of a fusion on `%x` and `%w` of a type, and a bias `%b`.
#[track_caller]
fn check_activation(dtype: &str, lines: &str, expected: Option<(Activation, usize)>) {
    let inputs = format!("%x: {dtype}[?, ?], %w: {dtype}[?, ?], %b: {dtype}[?]");
    let written = parse_one(&format!("fusion @f({inputs}) {{\n{lines}\n}}")).unwrap_or_else(|e| panic!("{e:?}"));
    let fusion = crate::fusion::decompose(&written).unwrap().fusion;
    let kept = |tensor| fusion.outputs.contains(&tensor);
    let found = find_activation(&fusion, fusion.ops.ids().next().unwrap(), &fusion.readers(), &kept);
    assert_eq!(found.map(|found| (found.activation, found.ops.len())), expected, "{dtype}\n{lines}");
}

const LINEAR: &str = "%0 = linear %x, %w bias(%b)\n";

#[test]
fn activations_that_libraries_compute() {
    let gelu = |ops: usize| Some((Activation::Gelu, ops));
    check_activation("f32", &format!("{LINEAR}%1 = gelu_tanh %0\nreturn %1"), gelu(9));
    // Another way to write it.
    let factored = "%1 = pow %0, 2.0\n%2 = mul %1, 0.044715\n%3 = add 1.0, %2\n%4 = mul %0, 0.7978845608\n\
                    %5 = mul %4, %3\n%6 = tanh %5\n%7 = div %6, 2.0\n%8 = add %7, 0.5\n%9 = mul %8, %0\nreturn %9";
    check_activation("f32", &format!("{LINEAR}{factored}"), gelu(9));
}

/// A library rounds once, has one form of gelu, and its algorithms disagree about relu of NaN.
#[test]
fn activations_that_are_others() {
    let none = |dtype: &str, lines: &str| check_activation(dtype, &format!("{LINEAR}{lines}"), None);
    none("f32", "return %0");
    for condition in ["lt %0, 0.0", "le %0, 0.0", "gt 0.0, %0"] {
        none("f32", &format!("%1 = {condition}\n%2 = where %1, 0.0, %0\n%3 = exp %2\nreturn %3"));
    }
    for one in ["relu %0", "maximum %0, 0.0", "maximum 0.0, %0"] {
        check_activation("f32", &format!("%0 = matmul %x, %w\n%1 = {one}\nreturn %1"), None);
    }
    none("f32", "%1 = threshold %0, 0.0, 0.0\nreturn %1");
    none("f32", "%1 = gt %0, 0.0\n%2 = where %1, %0, 0.0\nreturn %2");
    none("f32", "%1 = gelu %0\nreturn %1");
    none("f32", "%1 = lt %0, 1.0\n%2 = where %1, 0.0, %0\nreturn %2");
    none("f32", "%1 = lt %0, 0.0\n%2 = where %1, -1.0, %0\nreturn %2");
    none("f32", "%1 = lt %0, 0.0\n%2 = where %1, %0, 0.0\nreturn %2");
    none("f32", "%1 = minimum %0, 0.0\nreturn %1");
    none("f32", "%1 = gt %0, 0.0\n%2 = where %1, 0.0, %0\nreturn %2");
    none("f64", "%1 = relu %0\nreturn %1");
    // What is returned, or read by others, is in memory.
    none("f32", "%1 = relu %0\nreturn %1, %0");
    none("f32", "%1 = lt %0, 0.0\n%2 = where %1, 0.0, %0\nreturn %1, %2");
    none("f32", "%1 = lt %0, 0.0\n%2 = where %1, 0.0, %0\n%3 = add %2, %0\nreturn %3");
    none("f32", "%1 = gelu_tanh %0\n%2 = sum %0 axes(0)\nreturn %1, %2");
    for dtype in ["f16", "bf16"] {
        let rounded = format!("%1 = lt %0, 0.0\n%2 = where %1, 0.0, %0\n%3 = cast %2 {dtype}\nreturn %3");
        none(dtype, &rounded);
        none(dtype, &format!("%1 = relu %0\n%2 = cast %1 {dtype}\nreturn %2"));
    }
    // The sum would not be rounded to 16 bits.
    none("bf16", "%1 = relu %0\nreturn %1");
    none("bf16", "%1 = relu %0\n%2 = cast %1 f16\nreturn %2");
    none("bf16", "%1 = gelu_tanh %0\n%2 = cast %1 bf16\nreturn %2");
    // Other constants.
    none("f32", "%1 = mul %0, 0.7978846\n%2 = tanh %1\n%3 = add %2, 1.0\n%4 = mul %3, %0\n%5 = mul %4, 0.5\nreturn %5");
}
