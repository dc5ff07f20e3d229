//! Hand-computed fusions, and random ones against a naive element-by-element
//! evaluation through `num::eval`.

use super::{Comparison, Tolerance, compare, evaluate};
use crate::fusion::sketch::Sketch;
use crate::fusion::{Fusion, OpKind, Operand, TensorId, bind_args};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value, eval};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use Operand::{Scalar as S, Tensor as T};

fn tensor(dtype: DType, sizes: &[i64], values: &[f64]) -> Arg {
    Arg::Tensor(HostTensor::from_f64(dtype, sizes, values).unwrap())
}

fn check_output(fusion: &Fusion, args: &[Arg], sizes: &[i64], expected: &[f64]) {
    let outputs = evaluate(fusion, args).unwrap();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].sizes(), sizes);
    assert_eq!(outputs[0].to_f64(), expected);
}

fn reduce(op: ReduceOp, axes: &[u32]) -> OpKind {
    OpKind::Reduce { op, axes: axes.to_vec() }
}

fn binary(op: BinaryOp) -> OpKind {
    OpKind::Binary(op)
}

#[test]
fn broadcasts_pair_rows_and_columns() {
    let mut s = Sketch::new();
    let (x, y) = (s.input("x", DType::F32, "m b"), s.input("y", DType::F32, "n"));
    let y = s.op(OpKind::Broadcast { flags: vec![true, false] }, &[T(y)]);
    s.op(binary(BinaryOp::Sub), &[T(x), T(y)]);
    let args = [tensor(DType::F32, &[2, 1], &[10.0, 20.0]), tensor(DType::F32, &[3], &[1.0, 2.0, 3.0])];
    check_output(&s.fusion, &args, &[2, 3], &[9.0, 8.0, 7.0, 19.0, 18.0, 17.0]);
}

#[test]
fn permutes_squeezes_and_scalars() {
    let mut s = Sketch::new();
    let x = s.input("x", DType::I32, "b m n");
    let a = s.scalar_input("a", DType::I32);
    let x = s.op(OpKind::Squeeze { flags: vec![true, false, false] }, &[T(x)]);
    let x = s.op(OpKind::Permute { perm: vec![1, 0] }, &[T(x)]);
    s.op(binary(BinaryOp::Mul), &[S(a), T(x)]);
    let args = [tensor(DType::I32, &[1, 2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Arg::Scalar(Value::Int(-2))];
    check_output(&s.fusion, &args, &[3, 2], &[-2.0, -8.0, -4.0, -10.0, -6.0, -12.0]);
}

#[test]
fn reductions_over_each_axis() {
    let values: Vec<f64> = (0..24).map(f64::from).collect();
    for (op, axes, sizes, expected) in [
        (ReduceOp::Sum, &[2u32][..], &[2i64, 3][..], vec![6.0, 22.0, 38.0, 54.0, 70.0, 86.0]),
        (ReduceOp::Sum, &[0], &[3, 4], (0..12).map(|i| f64::from(2 * i + 12)).collect()),
        (ReduceOp::Sum, &[0, 2], &[3], vec![60.0, 92.0, 124.0]),
        (ReduceOp::Sum, &[0, 1, 2], &[], vec![276.0]),
        (ReduceOp::Max, &[1], &[2, 4], vec![8.0, 9.0, 10.0, 11.0, 20.0, 21.0, 22.0, 23.0]),
        (ReduceOp::Min, &[1, 2], &[2], vec![0.0, 12.0]),
        (ReduceOp::Prod, &[1, 2], &[2], vec![0.0, (12..24).map(f64::from).product::<f64>()]),
    ] {
        let mut s = Sketch::new();
        let x = s.input("x", DType::F64, "? ? ?");
        s.op(reduce(op, axes), &[T(x)]);
        check_output(&s.fusion, &[tensor(DType::F64, &[2, 3, 4], &values)], sizes, &expected);
    }
}

#[test]
fn empty_and_single_tensors() {
    let mut s = Sketch::new();
    let x = s.input("x", DType::F32, "? ?");
    s.op(reduce(ReduceOp::Max, &[1]), &[T(x)]);
    let run = |sizes: &[i64], out: &[i64], expected: &[f64]| {
        let count = sizes.iter().product::<i64>() as usize;
        check_output(&s.fusion, &[tensor(DType::F32, sizes, &vec![3.0; count])], out, expected);
    };
    run(&[2, 0], &[2], &[f64::NEG_INFINITY; 2]);
    run(&[0, 5], &[0], &[]);
    run(&[1, 1], &[1], &[3.0]);
    let mut s = Sketch::new();
    let x = s.input("x", DType::F32, "");
    s.op(OpKind::Unary(UnaryOp::Neg), &[T(x)]);
    check_output(&s.fusion, &[tensor(DType::F32, &[], &[3.0])], &[], &[-3.0]);
    // An empty view may point anywhere.
    let mut s = Sketch::new();
    s.input("x", DType::F32, "? ?");
    let x = s.fusion.input_tensors().next().unwrap().1;
    s.fusion.outputs.push(x);
    let meta = TensorMeta { dtype: DType::F32, sizes: vec![3, 0], strides: vec![0, 7] };
    let empty = HostTensor { meta, data: Vec::new().into(), offset: 99 };
    check_output(&s.fusion, &[Arg::Tensor(empty)], &[3, 0], &[]);
}

#[test]
fn results_are_rounded_to_their_type() {
    let mut s = Sketch::new();
    let x = s.input("x", DType::F32, "?");
    let half = s.op(OpKind::Cast(DType::BF16), &[T(x)]);
    s.op(OpKind::Cast(DType::F32), &[T(half)]);
    check_output(&s.fusion, &[tensor(DType::F32, &[2], &[1.003, 1.01])], &[2], &[1.0, 1.0078125]);
    let mut s = Sketch::new();
    let x = s.input("x", DType::I8, "?");
    s.op(reduce(ReduceOp::Sum, &[0]), &[T(x)]);
    check_output(&s.fusion, &[tensor(DType::I8, &[3], &[100.0, 100.0, 100.0])], &[], &[44.0]);
    // 2^24 + 1 + 1 ... is exact in f64 and would stick at 2^24 in f32.
    let mut s = Sketch::new();
    let x = s.input("x", DType::F32, "?");
    s.op(reduce(ReduceOp::Sum, &[0]), &[T(x)]);
    let mut values = vec![1.0; 5000];
    values[0] = 16_777_216.0;
    check_output(&s.fusion, &[tensor(DType::F32, &[5000], &values)], &[], &[16_782_216.0]);
}

#[test]
fn where_and_full_and_predicates() {
    let mut s = Sketch::new();
    let x = s.input("x", DType::BF16, "n");
    let zero = s.constant(DType::BF16, Value::Float(0.5));
    let n = s.fusion.tensors[x].axes[0].extent;
    let fill = s.full(zero, &[n]);
    let wide = s.op(OpKind::Cast(DType::F32), &[T(x)]);
    let nan = s.op(OpKind::Unary(UnaryOp::IsNan), &[T(wide)]);
    s.op(OpKind::Ternary(TernaryOp::Where), &[T(nan), T(fill), T(x)]);
    check_output(&s.fusion, &[tensor(DType::BF16, &[3], &[1.0, f64::NAN, -2.0])], &[3], &[1.0, 0.5, -2.0]);
}

/// `x - max`, `exp`, `/ sum`, over the last axis of a matrix, in f32.
fn softmax(dtype: DType) -> Fusion {
    let mut s = Sketch::new();
    let x = s.input("x", dtype, "? ?");
    let row = || OpKind::Broadcast { flags: vec![false, true] };
    let x = s.op(OpKind::Cast(DType::F32), &[T(x)]);
    let max = s.op(reduce(ReduceOp::Max, &[1]), &[T(x)]);
    let max = s.op(row(), &[T(max)]);
    let shifted = s.op(binary(BinaryOp::Sub), &[T(x), T(max)]);
    let exp = s.op(OpKind::Unary(UnaryOp::Exp), &[T(shifted)]);
    let sum = s.op(reduce(ReduceOp::Sum, &[1]), &[T(exp)]);
    let sum = s.op(row(), &[T(sum)]);
    let result = s.op(binary(BinaryOp::Div), &[T(exp), T(sum)]);
    s.op(OpKind::Cast(dtype), &[T(result)]);
    s.fusion
}

#[test]
fn softmax_matches_its_formula_within_the_default_tolerance() {
    let (rows, columns) = (3, 1500);
    let x = HostTensor::from_fn(DType::BF16, &[rows, columns], |i| {
        Value::Float(((i[0] * 7919 + i[1] * 104_729) % 1000) as f64 / 100.0 - 5.0)
    })
    .unwrap();
    let fusion = softmax(DType::BF16);
    let args = [Arg::Tensor(x.clone())];
    let result = &evaluate(&fusion, &args).unwrap()[0];
    let mut values = x.to_f64();
    for row in values.chunks_mut(columns as usize) {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
        row.iter_mut().for_each(|v| *v = (*v - max).exp() / sum);
    }
    let expected = HostTensor::from_f64(DType::BF16, &[rows, columns], &values).unwrap();
    let bindings = bind_args(&fusion, &args).unwrap();
    let tolerance = Tolerance::for_output(&fusion, &bindings, fusion.outputs[0]);
    let report = compare(result, &expected, tolerance).unwrap();
    assert!(report.passed(), "{report}");
}

/// One term after the other in `f32`, as no pairwise sum would be, passes; a product of rounded operands does not.
#[test]
fn products_may_be_summed_term_by_term() {
    let text = "fusion @f(%a: f32[?, ?], %b: f32[?, ?]) {\n  %0 = matmul %a, %b\n  return %0\n}";
    let fusion = crate::text::parse_one(text).unwrap();
    let (m, k) = (8, 4096);
    let number = |i: &[i64], by: f64| Value::Float(((i[0] * 8191 + i[1] * 127) as f64 * by).sin() + 0.5);
    let a = HostTensor::from_fn(DType::F32, &[m, k], |i| number(i, 0.37)).unwrap();
    let b = HostTensor::from_fn(DType::F32, &[k, m], |i| number(i, 0.73)).unwrap();
    let args = [Arg::Tensor(a.clone()), Arg::Tensor(b.clone())];
    let expected = &evaluate(&fusion, &args).unwrap()[0];
    let bindings = bind_args(&fusion, &args).unwrap();
    let tolerance = Tolerance::for_output(&fusion, &bindings, fusion.outputs[0]);
    let summed = |rounded: fn(f64) -> f32| {
        let element = |i: &[i64]| {
            let term = |l: i64| rounded(a.get(&[i[0], l]).as_f64()) * rounded(b.get(&[l, i[1]]).as_f64());
            Value::Float((0..k).fold(0f32, |sum, l| sum + term(l)).into())
        };
        let found = HostTensor::from_fn(DType::F32, &[m, m], element).unwrap();
        compare(&found, expected, tolerance).unwrap()
    };
    let exact = summed(|x| x as f32);
    assert!(exact.passed(), "{exact}");
    // Ten bits, as TF32 has them.
    let coarse = summed(|x| f32::from_bits((x as f32).to_bits() & !0x1fff));
    assert!(!coarse.passed(), "{coarse}");
}

#[test]
fn results_do_not_depend_on_threads() {
    let fusion = softmax(DType::F32);
    let x = HostTensor::from_fn(DType::F32, &[3, 40_000], |i| Value::Float((i[1] as f64 * 0.37 + i[0] as f64).sin()))
        .unwrap();
    let args = [Arg::Tensor(x)];
    let mut results = [1, 2, 7].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| evaluate(&fusion, &args)).unwrap().remove(0)
    });
    let first = results[0].clone();
    assert!(results.iter_mut().all(|other| other.bits_equal(&first)));
}

#[test]
fn reduction_order_does_not_depend_on_layout() {
    // The same logical values, dense and transposed in memory, take the two
    // loop orders of the reduction.
    let value = |i: &[i64]| Value::Float(((i[0] * 31 + i[1] * 17) as f64).sin());
    let dense = HostTensor::from_fn(DType::F64, &[5, 3000], value).unwrap();
    let meta = TensorMeta { dtype: DType::F64, sizes: vec![5, 3000], strides: vec![1, 5] };
    let transposed = HostTensor::strided(meta, value).unwrap();
    for op in [ReduceOp::Sum, ReduceOp::Prod] {
        let mut s = Sketch::new();
        let x = s.input("x", DType::F64, "? ?");
        s.op(reduce(op, &[1]), &[T(x)]);
        let run = |x: &HostTensor| evaluate(&s.fusion, &[Arg::Tensor(x.clone())]).unwrap().remove(0);
        assert!(run(&dense).bits_equal(&run(&transposed)), "{op}");
    }
}

#[test]
fn tensors_beyond_the_limit_are_refused() {
    let mut s = Sketch::new();
    let (x, y) = (s.input("x", DType::I8, "? b"), s.input("y", DType::I8, "b ?"));
    s.op(binary(BinaryOp::Add), &[T(x), T(y)]);
    let long = |sizes: &[i64], strides: &[i64]| {
        let meta = TensorMeta { dtype: DType::I8, sizes: sizes.to_vec(), strides: strides.to_vec() };
        Arg::Tensor(HostTensor::new(meta, vec![0], 0).unwrap())
    };
    let error = evaluate(&s.fusion, &[long(&[1 << 20, 1], &[0, 0]), long(&[1, 1 << 20], &[0, 0])]).unwrap_err();
    assert_eq!(error.code.0, "E0308");
    assert!(error.message.starts_with("`%0`: a tensor of f64 [1048576, 1048576] takes 8796093022208 bytes"));
}

/// Evaluates one operation element by element.
fn naive(fusion: &Fusion, kind: &OpKind, operands: &[HostTensor], output: TensorId, sizes: &[i64]) -> HostTensor {
    let dtype = operands.last().unwrap().dtype();
    let at = |operand: &HostTensor, index: &[i64]| {
        let clamped: Vec<_> = index.iter().zip(operand.sizes()).map(|(&i, &size)| i.min(size - 1)).collect();
        operand.get(&clamped)
    };
    HostTensor::from_fn(fusion.tensors[output].dtype, sizes, |i| match kind {
        OpKind::Unary(op) => eval::unary(*op, dtype, at(&operands[0], i)),
        OpKind::Binary(op) => eval::binary(*op, dtype, at(&operands[0], i), at(&operands[1], i)),
        OpKind::Ternary(op) => eval::ternary(*op, dtype, at(&operands[0], i), at(&operands[1], i), at(&operands[2], i)),
        OpKind::Cast(to) => eval::cast(dtype, *to, at(&operands[0], i)),
        other => panic!("{other:?} is not elementwise"),
    })
    .unwrap()
}

type Unstructured<'a> = arbtest::arbitrary::Unstructured<'a>;

/// A tensor whose strides leave gaps, repeat, or are permuted.
fn arbitrary_tensor(u: &mut Unstructured<'_>, dtype: DType, sizes: &[i64]) -> arbtest::arbitrary::Result<HostTensor> {
    let mut strides = vec![0; sizes.len()];
    let mut stride = u.int_in_range(1..=2)?;
    let mut axes: Vec<_> = (0..sizes.len()).collect();
    if u.arbitrary()? {
        axes.reverse();
    }
    for axis in axes {
        if !u.ratio(1, 4)? {
            strides[axis] = stride;
            stride *= sizes[axis].max(1) + i64::from(u.ratio(1, 4)?);
        }
    }
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides };
    let mut words = Vec::new();
    for _ in 0..16 {
        words.push(u.arbitrary::<u64>()?);
    }
    let mut next = 0;
    let tensor = HostTensor::strided(meta, |_| {
        next += 1;
        let small = (words[next % 16] % 19) as i64 - 9;
        let bits = words[next % 16].rotate_left(next as u32 / 16);
        let bits = u128::from(bits) | u128::from(bits.rotate_left(29)) << 64;
        let any = crate::num::storage::read(dtype, &bits.to_le_bytes(), 0).unwrap();
        if next % 3 == 0 { any } else { Value::Float(small as f64 / 2.0) }
    });
    Ok(tensor.unwrap())
}

/// Equal bit for bit, but that any NaN equals any.
fn check_same(actual: &HostTensor, expected: &HostTensor, what: &OpKind) {
    let report: Comparison = compare(actual, expected, Tolerance::EXACT).unwrap();
    assert!(report.passed(), "{what:?}: {report}");
}

/// Draws sizes, layouts, broadcasts and elements for one operation on one type.
fn check_elementwise(kind: &OpKind, arity: usize, dtype: DType) {
    let property = |u: &mut Unstructured<'_>| {
        let mut sizes = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            sizes.push(i64::from(u.int_in_range(1..=5u8)?) % 5);
        }
        let mut s = Sketch::new();
        let (mut operands, mut arguments) = (Vec::new(), Vec::new());
        for n in 0..arity {
            let condition = n == 0 && *kind == OpKind::Ternary(TernaryOp::Where);
            let dtype = if condition { DType::Bool } else { dtype };
            let (mut words, mut own) = (Vec::new(), Vec::new());
            for (axis, &size) in sizes.iter().enumerate() {
                // At least one operand iterates.
                let repeats = n > 0 && u.ratio(1, 4)?;
                words.push(if repeats { "b".to_owned() } else { format!("s{axis}") });
                own.push(if repeats { 1 } else { size });
            }
            operands.push(T(s.input(&format!("x{n}"), dtype, &words.join(" "))));
            arguments.push(arbitrary_tensor(u, dtype, &own)?);
        }
        let output = s.op(kind.clone(), &operands);
        let expected = naive(&s.fusion, kind, &arguments, output, &sizes);
        let args: Vec<_> = arguments.into_iter().map(Arg::Tensor).collect();
        check_same(&evaluate(&s.fusion, &args).unwrap()[0], &expected, kind);
        Ok(())
    };
    crate::property::property(property).bytes(600..=65_536).cases(3);
}

#[test]
fn every_elementwise_operation_agrees_with_the_scalar_meaning() {
    for &dtype in DType::FUSION {
        let unary = UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)).map(|&op| (OpKind::Unary(op), 1));
        let binary = BinaryOp::ALL.iter().filter(|op| op.accepts(dtype)).map(|&op| (OpKind::Binary(op), 2));
        let ternary = TernaryOp::ALL.iter().filter(|op| op.accepts(dtype)).map(|&op| (OpKind::Ternary(op), 3));
        let casts = DType::FUSION.iter().map(|&to| (OpKind::Cast(to), 1));
        for (kind, arity) in unary.chain(binary).chain(ternary).chain(casts) {
            check_elementwise(&kind, arity, dtype);
        }
    }
}

#[test]
fn integer_reductions_agree_with_the_scalar_meaning() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=3)?;
        let mut sizes = Vec::new();
        for _ in 0..rank {
            sizes.push(u.int_in_range(0..=5)?);
        }
        let (op, dtype) =
            (*u.choose(ReduceOp::ALL)?, *u.choose(&[DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool])?);
        let mut axes: Vec<u32> = Vec::new();
        for axis in 0..rank {
            if u.arbitrary()? {
                axes.push(axis);
            }
        }
        if axes.is_empty() || !op.accepts(dtype) {
            return Ok(());
        }
        let argument = arbitrary_tensor(u, dtype, &sizes)?;
        let mut s = Sketch::new();
        let x = s.input("x", dtype, &vec!["?"; rank as usize].join(" "));
        let kind = reduce(op, &axes);
        s.op(kind.clone(), &[T(x)]);
        let kept = |i: &[i64]| -> Vec<i64> {
            (0..i.len()).filter(|axis| !axes.contains(&(*axis as u32))).map(|axis| i[axis]).collect()
        };
        let mut expected = HostTensor::filled(dtype, &kept(&sizes), eval::reduce_identity(op, dtype)).unwrap();
        HostTensor::from_fn(dtype, &sizes, |index| {
            let place = kept(index);
            let value = eval::combine(op, dtype, expected.get(&place), argument.get(index));
            expected.set(&place, value);
            value
        })
        .unwrap();
        check_same(&evaluate(&s.fusion, &[Arg::Tensor(argument)]).unwrap()[0], &expected, &kind);
        Ok(())
    })
    .bytes(600..=65_536);
}

/// Results may take the place of operands: only of those that nothing reads later.
#[test]
fn what_is_read_later_is_not_overwritten() {
    let check = |body: &str, returned: &str, expected: &[&[f64]]| {
        let text = format!("fusion @f(%x: f32[?, ?], %y: f32[?, 1]) {{\n{body}\n return {returned}\n}}");
        let fusion = crate::text::parse_one(&text).unwrap();
        let args = [tensor(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]), tensor(DType::F32, &[2, 1], &[10.0, 20.0])];
        let outputs: Vec<Vec<f64>> = evaluate(&fusion, &args).unwrap().iter().map(HostTensor::to_f64).collect();
        assert_eq!(outputs, expected, "{body}");
    };
    check("%0 = neg %x\n%1 = neg %0", "%0, %1", &[&[-1.0, -2.0, -3.0, -4.0], &[1.0, 2.0, 3.0, 4.0]]);
    check("%0 = sub %x, %y\n%1 = sub %y, %0", "%1", &[&[19.0, 18.0, 37.0, 36.0]]);
    check("%0 = neg %x\n%1 = mul %0, %0\n%2 = sub %1, %0", "%2", &[&[2.0, 6.0, 12.0, 20.0]]);
    let transposed = "%0 = neg %x\n%1 = permute %0 dims(1, 0)\n%2 = abs %0\n%3 = sub %2, %1";
    check(transposed, "%3", &[&[2.0, 5.0, 5.0, 8.0]]);
    check("%0 = permute %x dims(1, 0)\n%1 = neg %0\n%2 = sub 1.0, %1", "%2", &[&[2.0, 4.0, 3.0, 5.0]]);
    check("%0 = expand [2, 2] %y\n%1 = neg %0\n%2 = sub %x, %1", "%2", &[&[11.0, 12.0, 23.0, 24.0]]);
}

/// An argument may repeat one element as often as it likes, and takes no memory.
#[test]
fn what_would_read_too_many_elements_is_refused() {
    const MANY: i64 = 1 << 40;
    let long = |dtype: DType, sizes: &[i64]| {
        let axes = sizes.iter().map(|&size| i64::from(size != MANY)).collect();
        let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides: axes };
        Arg::Tensor(HostTensor::new(meta, vec![0; dtype.bytes() * 8], 0).unwrap())
    };
    let run = |parameters: &str, body: &str, args: &[Arg]| {
        let text = format!("fusion @f({parameters}) {{\n{body}\n return %r\n}}");
        evaluate(&crate::text::parse_one(&text).unwrap(), args)
    };
    let check = |parameters: &str, body: &str, args: &[Arg], guilty: &str, reader: &str| {
        let error = run(parameters, body, args).unwrap_err();
        let told = format!("`%{guilty}`, of which {reader} reads every element: a tensor of");
        assert_eq!(error.code, crate::diag::code::TENSOR_TOO_LARGE, "{error}");
        assert!(error.message.starts_with(&told) && !error.notes.is_empty(), "{error}");
    };
    let (x, i) = (long(DType::F32, &[MANY]), long(DType::I64, &[MANY]));
    let (few, places) = (tensor(DType::F32, &[2, 0], &[]), tensor(DType::I64, &[2], &[0.0, 1.0]));
    let one = "%x: f32[?]";
    check(one, "%r, %i = topk %x, 1", std::slice::from_ref(&x), "x", "topk");
    check(one, "%r = sum %x", std::slice::from_ref(&x), "x", "sum");
    check("%x: f32[?, 1]", "%p = permute %x dims(1, 0)\n%r = sum %p", &[long(DType::F32, &[MANY, 1])], "p", "sum");
    let put = "%r = index_put_accumulate %x, %i, %v";
    let (acc, value) = (long(DType::F32, &[MANY]), tensor(DType::F32, &[2], &[1.0, 2.0]));
    check("%x: f32[?], %i: i64[?], %v: f32[?]", put, &[acc, places.clone(), value], "x", "index_put_accumulate");
    // No element of the result, but positions to look at.
    check("%x: f32[?, ?], %i: i64[?]", "%r = index_select %x, %i dim(0)", &[few, i], "i", "index_select");
    // Few elements of many are no burden.
    for body in ["%r = slice %x starts(0) ends(2)", "%r = index_select %x, %i dim(0)"] {
        let outputs = run("%x: f32[?], %i: i64[?]", body, &[x.clone(), places.clone()]).unwrap();
        assert_eq!(outputs[0].to_f64(), [0.0, 0.0], "{body}");
    }
}

/// Gaps of any width are no part of what is computed, nor of how results lie in memory.
#[test]
fn gaps_between_elements_change_nothing() {
    let mut s = Sketch::new();
    let (x, y) = (s.input("x", DType::I16, "m n k"), s.input("y", DType::I16, "m n k"));
    let sum = s.op(binary(BinaryOp::Sub), &[T(x), T(y)]);
    let cast = s.op(OpKind::Cast(DType::F32), &[T(x)]);
    let last = s.op(reduce(ReduceOp::Max, &[1]), &[T(y)]);
    s.fusion.outputs = vec![sum, cast, last];
    let made = |sizes: [i64; 3], strides: [i64; 3], seed: i64| {
        let meta = TensorMeta { dtype: DType::I16, sizes: sizes.to_vec(), strides: strides.to_vec() };
        let value = |at: &[i64]| Value::Int(seed * (at[0] * 7 + at[1] * 31 + at[2] * 11) % 101);
        Arg::Tensor(HostTensor::strided(meta, value).unwrap())
    };
    // Of the first of each pair every gap is read; the second has the same order of axes.
    let layouts = [
        ([16, 5, 1], [90_000, 5, 1]),
        ([1, 11, 2], [1, 50_000, 2]),
        ([5, 10, 1], [700, 5_000, 40]),
        ([15, 1, 3], [2_000, 300, 900]),
    ];
    let layouts_of_columns =
        [([16, 1, 3], [90_000, 1, 3]), ([16, 90, 3], [900, 90_000, 3]), ([1, 40, 3], [1, 500, 300])];
    for (sizes, layouts) in [([2, 3, 5], &layouts[..]), ([2, 1, 5], &layouts_of_columns)] {
        for (near, far) in layouts {
            for (near_y, far_y) in layouts {
                let expected = evaluate(&s.fusion, &[made(sizes, *near, 3), made(sizes, *near_y, 5)]).unwrap();
                let found = evaluate(&s.fusion, &[made(sizes, *far, 3), made(sizes, *far_y, 5)]).unwrap();
                assert_eq!(found, expected, "{far:?} {far_y:?}");
            }
        }
    }
}
