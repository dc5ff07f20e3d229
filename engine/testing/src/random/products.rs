//! Products of matrices that lie in any way, on small integers, so that sums are exact in every type, with
//! biases of any kind and what is computed of them: activations that a library may compute with them, and others.

use crate::Draw;
use engine::fusion::Fusion;
use engine::num::{DType, Value};
use engine::tensor::{Arg, HostTensor, TensorMeta};
use engine::text::parse_one;

/// A drawn product, and what is computed of it.
pub struct DrawnProduct {
    /// The fusion.
    pub fusion: Fusion,
    /// Its arguments.
    pub args: Vec<Arg>,
}

const TYPES: [DType; 6] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C64, DType::C128];
/// Sizes of matrices: those that vectors divide, and those beside them.
const SIZES: [i64; 12] = [1, 2, 3, 7, 8, 16, 17, 31, 32, 64, 65, 96];

/// Those for which libraries have other algorithms.
const LARGE: [i64; 4] = [256, 264, 512, 768];

/// Draws a product; always the same for a seed.
pub fn draw_product(seed: u64) -> DrawnProduct {
    let mut draw = Draw::new(seed);
    let dtype = draw.choose(&TYPES);
    let mut sizes = SIZES.to_vec();
    if draw.once_in(16) {
        sizes.extend(LARGE);
    }
    let [m, n, k] = [(); 3].map(|()| draw.choose(&sizes));
    let stack: Vec<i64> = (0..draw.below(4)).map(|_| draw.choose(&[1, 2, 3])).collect();
    let is_linear = draw.once_in(3);
    let left = with_stack(&mut draw, &stack, &[m, k]);
    let right = if is_linear { vec![n, k] } else { with_stack(&mut draw, &stack, &[k, n]) };
    let mut sizes = vec![vector(&mut draw, left, 0), vector(&mut draw, right, usize::from(!is_linear))];
    // A vector on the right has one column, whose axis the result lacks.
    let has_bias = is_linear && draw.once_in(2);
    if has_bias {
        // A bias of size 1 is the same for all columns.
        let size = if draw.once_in(4) { 1 } else { n };
        sizes.push(if sizes[1].len() == 2 { vec![size] } else { Vec::new() });
    }
    let operation = match (is_linear, has_bias) {
        (false, _) => "matmul %a, %b",
        (true, false) => "linear %a, %b",
        (true, true) => "linear %a, %b bias(%c)",
    };
    let behind = if dtype.is_complex() { "%1 = neg %0" } else { draw.choose(&ACTIVATIONS) };
    let inputs: Vec<String> = ["a", "b"]
        .iter()
        .zip(&sizes)
        .map(|(name, sizes)| format!("%{name}: {dtype}[{}]", axes(sizes)))
        .chain(sizes.get(2).map(|bias| format!("%c: {dtype}[{}]", bias_axes(bias))))
        .collect();
    let rounded = if draw.once_in(4) { "set %1".into() } else { format!("cast %1 {dtype}") };
    let returned = if draw.once_in(3) { "%0, %2" } else { "%2" };
    let lines = format!("  %0 = {operation}\n  {behind}\n  %2 = {rounded}\n  return {returned}\n");
    let text = format!("fusion @product({}) {{\n{lines}}}\n", inputs.join(", "));
    let fusion = parse_one(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let mut args: Vec<HostTensor> = sizes.iter().map(|sizes| tensor(&mut draw, dtype, sizes)).collect();
    if !dtype.is_complex() && draw.once_in(4) {
        let value = draw.choose(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        let operand = draw.below(args.len());
        set_some(&mut draw, &mut args[operand], value);
    }
    DrawnProduct { fusion, args: args.into_iter().map(Arg::Tensor).collect() }
}

/// What is computed of a product.
const ACTIVATIONS: [&str; 9] = [
    "%1 = neg %0",
    "%1 = abs %0",
    "%1 = relu %0",
    "%1 = gelu %0",
    "%1 = gelu_tanh %0",
    "%1 = threshold %0, 0.0, 0.0",
    "%1 = threshold %0, 1.0, 0.0",
    "%3 = gt %0, 0.0\n  %1 = where %3, %0, 0.0",
    "%3 = lt %0, 0.0\n  %1 = where %3, 0.0, %0",
];

/// Gives one element of a tensor a value.
fn set_some(draw: &mut Draw, tensor: &mut HostTensor, value: f64) {
    let index: Vec<i64> = tensor.sizes().iter().map(|size| draw.below(*size as usize) as i64).collect();
    assert!(tensor.set(&index, Value::Float(value)), "{index:?} is an element of {:?}", tensor.meta);
}

/// The type of the axis of a bias, if it has one: one of size 1 is a broadcast.
fn bias_axes(sizes: &[i64]) -> &'static str {
    match sizes {
        [] => "",
        [1] => "1",
        _ => "?",
    }
}

/// A matrix with the last axes of a stack, some of size 1.
fn with_stack(draw: &mut Draw, stack: &[i64], matrix: &[i64]) -> Vec<i64> {
    let own = &stack[draw.below(stack.len() + 1)..];
    own.iter().map(|size| if draw.once_in(4) { 1 } else { *size }).chain(matrix.iter().copied()).collect()
}

/// A matrix, or sometimes one vector of it, without the axis that `dropped` says.
fn vector(draw: &mut Draw, mut sizes: Vec<i64>, dropped: usize) -> Vec<i64> {
    if sizes.len() == 2 && draw.once_in(8) {
        sizes.remove(dropped);
    }
    sizes
}

/// Types of axes: one of size 1 before a matrix is a broadcast.
fn axes(sizes: &[i64]) -> String {
    let axis = |(position, size): (usize, &i64)| if *size == 1 && position + 2 < sizes.len() { "1" } else { "?" };
    sizes.iter().enumerate().map(axis).collect::<Vec<_>>().join(", ")
}

/// Axes in any order, with gaps, repeated axes, and elements before the first.
fn tensor(draw: &mut Draw, dtype: DType, sizes: &[i64]) -> HostTensor {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for i in (1..order.len()).rev() {
        if draw.once_in(3) {
            order.swap(i, draw.below(i + 1));
        }
    }
    let (mut strides, mut step) = (vec![0; sizes.len()], 1);
    for &axis in order.iter().rev() {
        strides[axis] = if draw.once_in(12) { 0 } else { step };
        step *= sizes[axis] + if draw.once_in(5) { draw.choose(&[1, 2, 8]) } else { 0 };
    }
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides };
    let mut small = || draw.below(7) as f64 - 3.0;
    let made = HostTensor::strided(meta, |_| {
        if dtype.is_complex() { Value::Complex(small(), small()) } else { Value::Float(small()) }
    });
    let mut tensor = made.unwrap_or_else(|error| panic!("{error}"));
    if draw.once_in(4) {
        let ahead = draw.choose(&[1, 2, 4, 8]);
        let bytes = vec![0; ahead * dtype.bytes()];
        tensor.data.own().splice(0..0, bytes);
        tensor.offset += ahead;
    }
    tensor
}
