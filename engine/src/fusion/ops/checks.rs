//! What the tests of the families of operations share: one statement on some
//! arguments, through text, rules and evaluator.

use crate::diag::Result;
use crate::fusion::concretize::{concretize, facts};
use crate::fusion::{AxisKind, Fusion, Tensor, bind, decompose, decomposes, layouts, placements};
use crate::num::{DType, Value};
use crate::refeval::evaluate;
use crate::tensor::{Arg, ArgMeta, HostTensor, TensorMeta};
use crate::text::{parse_one, print};
use arbtest::arbitrary;

/// The text of a fusion of one or more statements on inputs `%a, %b, ...`, with
/// the results that are named before the last `=`.
fn text(statement: &str, inputs: &[HostTensor], constant: bool) -> String {
    let dim = |size: &i64| if constant || *size == 1 { size.to_string() } else { "?".into() };
    let input = |(i, tensor): (usize, &HostTensor)| {
        let dims: Vec<String> = tensor.sizes().iter().map(dim).collect();
        format!("%{}: {}[{}]", char::from(b'a' + i as u8), tensor.dtype(), dims.join(", "))
    };
    let inputs: Vec<String> = inputs.iter().enumerate().map(input).collect();
    let last = statement.lines().last().expect("there is a statement");
    let results = last.split_once('=').expect("a statement has results").0;
    format!("fusion @f({}) {{\n  {statement}\n  return {}\n}}\n", inputs.join(", "), results.trim())
}

fn fusion(text: &str) -> std::result::Result<Fusion, String> {
    let fusion = parse_one(text).map_err(|errors| format!("{}: {}", errors[0].code, errors[0].message))?;
    let printed = print(&fusion);
    assert_eq!(parse_one(&printed).as_ref(), Ok(&fusion), "{printed}");
    Ok(fusion)
}

/// The results of a statement. Its text survives printing; with symbolic and
/// with constant extents the results are the same, and so they are of the
/// concretised fusion; their strides are those of the rule.
pub(super) fn results(statement: &str, inputs: &[HostTensor]) -> Vec<HostTensor> {
    let args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
    let run = |constant: bool| {
        let text = text(statement, inputs, constant);
        let fusion = fusion(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let outputs = evaluate(&fusion, &args).unwrap_or_else(|error| panic!("{text}{error}"));
        check_strides(&fusion, &args, &outputs);
        check_concrete(&fusion, &args, &outputs);
        outputs
    };
    let outputs = run(false);
    for (a, b) in outputs.iter().zip(run(true)) {
        assert!(a.meta == b.meta && a.bits_equal(&b), "{statement}: symbolic and constant extents differ");
    }
    outputs
}

/// Holds a statement against the simpler operations that it is made of: equal bit for bit.
pub(super) fn check_steps(statement: &str, inputs: &[HostTensor]) {
    let args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
    for constant in [false, true] {
        let text = text(statement, inputs, constant);
        let fusion = fusion(&text).unwrap_or_else(|error| panic!("{text}{error}"));
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let bindings = bind(&fusion, &metas).unwrap_or_else(|error| panic!("{text}{error}"));
        let whole = concretize(&fusion, &facts(&fusion, &bindings)).expect("sizes are known").fusion;
        let steps = decompose(&whole).unwrap_or_else(|error| panic!("{text}{error}")).fusion;
        assert!(decomposes(&fusion) && !decomposes(&steps), "{}", print(&steps));
        let [whole, parts] = [&whole, &steps]
            .map(|fusion| evaluate(fusion, &args).unwrap_or_else(|error| panic!("{}{error}", print(fusion))));
        for (whole, parts) in whole.iter().zip(&parts) {
            assert_eq!((whole.dtype(), whole.sizes()), (parts.dtype(), parts.sizes()), "{text}");
            let values = || [whole, parts].map(HostTensor::to_f64);
            assert!(whole.bits_equal(parts), "{text}{inputs:?}: expected and found: {:?}", values());
        }
    }
}

/// The result of a statement that has one.
pub(super) fn result(statement: &str, inputs: &[HostTensor]) -> HostTensor {
    let mut outputs = results(statement, inputs);
    assert_eq!(outputs.len(), 1);
    outputs.remove(0)
}

/// A statement's result by type, sizes and values.
pub(super) fn check_value(statement: &str, inputs: &[HostTensor], dtype: DType, sizes: &[i64], values: &[f64]) {
    let output = result(statement, inputs);
    assert_eq!((output.dtype(), output.sizes()), (dtype, sizes), "{statement}");
    assert_eq!(output.to_f64(), values, "{statement}");
}

/// The refusal of a statement: by the text with constant extents, and, unless
/// the text with symbolic ones is refused too, by their arguments.
pub(super) fn check_refused(statement: &str, inputs: &[HostTensor], expected: &str) {
    let known = fusion(&text(statement, inputs, true)).expect_err("extents are known");
    assert_eq!(known, expected, "{statement}");
    let Ok(fusion) = fusion(&text(statement, inputs, false)) else { return };
    let args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
    let bound: Result<_> = evaluate(&fusion, &args);
    let message = bound.expect_err("arguments are known").message;
    let (_, expected) = expected.split_once(": ").expect("a code stands before the message");
    assert!(message.ends_with(expected), "{statement}: {message}");
}

/// Why a statement is refused: by its text, or by the values of its arguments.
pub(super) fn refusal(statement: &str, inputs: &[HostTensor]) -> String {
    let args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
    match fusion(&text(statement, inputs, true)) {
        Err(error) => error,
        Ok(fusion) => {
            let error = evaluate(&fusion, &args).expect_err("the arguments are wrong");
            format!("{}: {}", error.code, error.message)
        }
    }
}

/// The refusal of a statement that can be read, when it is evaluated.
pub(super) fn check_unevaluated(statement: &str, inputs: &[HostTensor], expected: &str) {
    let text = text(statement, inputs, false);
    let fusion = fusion(&text).unwrap_or_else(|error| panic!("{text}{error}"));
    let args: Vec<Arg> = inputs.iter().cloned().map(Arg::Tensor).collect();
    let error = evaluate(&fusion, &args).expect_err("it is not evaluated");
    assert_eq!(format!("{}: {}", error.code, error.message), expected, "{statement}");
}

/// The strides of outputs are those that the rules say; nvFuser has a place
/// for each of them too, dense but for axes that repeat and for views.
fn check_strides(fusion: &Fusion, args: &[Arg], outputs: &[HostTensor]) {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let bindings = bind(fusion, &metas).expect("the arguments were bound before");
    let layouts = layouts(fusion, &bindings, &metas).expect("rules of strides apply");
    for (&id, output) in fusion.outputs.iter().zip(outputs) {
        assert_eq!(output.meta, layouts[id], "the values of `%{}` and its rule", fusion.tensors[id].name);
    }
    for (placed, output) in placements(fusion, &bindings, &metas).expect("rules of places apply").iter().zip(outputs) {
        assert_eq!((placed.dtype, &placed.sizes), (output.dtype(), &output.meta.sizes));
        placed.check().expect("its strides are strides");
        if !output.sizes().contains(&0) {
            // Elements that differ lie in different places.
            let moved = HostTensor::strided(placed.clone(), |index| output.get(index)).expect("it is small");
            assert!(moved.bits_equal(output), "{placed:?} of {:?}", output.meta);
        }
    }
}

/// The concretised fusion gives the same. What has no element is laid out anew.
fn check_concrete(fusion: &Fusion, args: &[Arg], outputs: &[HostTensor]) {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let bindings = bind(fusion, &metas).expect("the arguments were bound before");
    let concrete = concretize(fusion, &facts(fusion, &bindings)).expect("sizes are known").fusion;
    let decided = |tensor: &Tensor| tensor.axes.iter().all(|axis| axis.kind != AxisKind::Symbolic);
    assert!(concrete.tensors.values().all(decided), "{}", print(&concrete));
    let again = evaluate(&concrete, args).unwrap_or_else(|error| panic!("{}{error}", print(&concrete)));
    for (a, b) in outputs.iter().zip(&again) {
        let same = a.sizes() == b.sizes() && a.bits_equal(b) && (a.numel() == 0 || a.meta == b.meta);
        assert!(same, "{} and concretised {}", print(fusion), print(&concrete));
    }
}

/// A tensor with any order of axes in memory, gaps between them, some expanded.
pub(super) fn strided(
    u: &mut arbitrary::Unstructured<'_>,
    dtype: DType,
    sizes: &[i64],
) -> arbitrary::Result<HostTensor> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, u.int_in_range(0..=i)?);
    }
    let mut strides = vec![0; sizes.len()];
    let mut step = 1;
    for axis in order {
        strides[axis] = if u.ratio(1u8, 8u8)? { 0 } else { step };
        step *= sizes[axis].max(1) + i64::from(u.ratio(1u8, 4u8)?);
    }
    let mut next = u.int_in_range(0..=16u32)?;
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides };
    let value = |_: &[i64]| {
        next = (next * 5 + 3) % 17;
        Value::Float(f64::from(next) - 8.0)
    };
    Ok(HostTensor::strided(meta, value).expect("sizes are small"))
}

/// A dense tensor of given values.
pub(super) fn dense(dtype: DType, sizes: &[i64], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(dtype, sizes, values).expect("sizes are small")
}

/// A dense tensor of small integers.
pub(super) fn counting(dtype: DType, sizes: &[i64]) -> HostTensor {
    let len: i64 = sizes.iter().product();
    let values: Vec<f64> = (0..len).map(|i| ((i * 37) % 11) as f64 - 4.0).collect();
    dense(dtype, sizes, &values)
}

/// Values agree but for the rounding of `f64` formulas.
pub(super) fn check_close(what: &str, got: &HostTensor, expected: &[f64]) {
    let values = got.to_f64();
    assert_eq!(values.len(), expected.len(), "{what}");
    for (i, (got, expected)) in values.into_iter().zip(expected).enumerate() {
        let slack = 1e-9 * (1.0 + expected.abs());
        assert!((got - expected).abs() <= slack, "{what}: element {i} is {got}, not {expected}");
    }
}

/// A gradient agrees with central differences of `loss`.
pub(super) fn check_gradient(what: &str, got: &HostTensor, x: &[f64], loss: impl Fn(&[f64]) -> f64) {
    const STEP: f64 = 1e-5;
    let values = got.to_f64();
    assert_eq!(values.len(), x.len(), "{what}");
    let mut at = x.to_vec();
    for (i, got) in values.into_iter().enumerate() {
        at[i] = x[i] + STEP;
        let above = loss(&at);
        at[i] = x[i] - STEP;
        let slope = (above - loss(&at)) / (2.0 * STEP);
        at[i] = x[i];
        assert!((got - slope).abs() <= 1e-7 * (1.0 + slope.abs()), "{what}: element {i} is {got}, not {slope}");
    }
}

/// Numbers between -1.5 and 1.5 that follow no simple pattern.
pub(super) fn numbers(len: usize, salt: u32) -> Vec<f64> {
    (0..len as u32).map(|i| f64::from((i * 7919 + salt * 104_729 + 13) % 1009) / 336.0 - 1.5).collect()
}
