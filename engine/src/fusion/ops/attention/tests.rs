use crate::fusion::ops::checks::{check_refused, check_unevaluated, counting, dense, results, strided};
use crate::fusion::{decompose, decomposes};
use crate::num::DType::{self, *};
use crate::num::Value;
use crate::tensor::{Arg, HostTensor};
use arbtest::arbitrary;

/// A score by the definition, with what is added to it.
fn score(q: &HostTensor, k: &HostTensor, batch: [i64; 2], i: i64, j: i64, scale: f64) -> f64 {
    let [n, h] = batch;
    let width = q.sizes()[3];
    scale * (0..width).map(|e| q.get(&[n, h, i, e]).as_f64() * k.get(&[n, h, j, e]).as_f64()).sum::<f64>()
}

/// Output and logarithm of one row from the scores of all keys; weights of
/// small floats are rounded before they are multiplied.
fn attend(scores: &[f64], v: &HostTensor, batch: [i64; 2], column: i64) -> (f64, f64) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return (0.0, f64::INFINITY);
    }
    let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let rounded = |weight: f64| match v.dtype() {
        F16 | BF16 => HostTensor::filled(v.dtype(), &[], Value::Float(weight)).unwrap().to_f64()[0],
        _ => weight,
    };
    let value = |j: usize| v.get(&[batch[0], batch[1], j as i64, column]).as_f64();
    let output: f64 = weights.iter().enumerate().map(|(j, &weight)| rounded(weight) * value(j)).sum();
    (output / sum, max + sum.ln())
}

fn check_near(actual: &HostTensor, tolerance: f64, expected: impl Fn(&[i64]) -> f64) {
    let expected = HostTensor::from_fn(F64, actual.sizes(), |index| Value::Float(expected(index))).unwrap();
    for (a, e) in actual.to_f64().into_iter().zip(expected.to_f64()) {
        assert!(a == e || (a - e).abs() <= tolerance * (1.0 + e.abs()), "{a} is not {e}");
    }
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        F64 => 1e-12,
        F32 => 1e-6,
        F16 => 1e-3,
        _ => 8e-3,
    }
}

#[test]
fn two_keys_by_hand() {
    let q = dense(F64, &[1, 1, 1, 1], &[1.0]);
    let k = dense(F64, &[1, 1, 2, 1], &[0.0, 3f64.ln()]);
    let v = dense(F64, &[1, 1, 2, 1], &[8.0, 4.0]);
    let outputs = results("%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c", &[q, k, v]);
    check_near(&outputs[0], 1e-15, |_| 5.0);
    check_near(&outputs[1], 1e-7, |_| 4f64.ln());
    assert_eq!((outputs[2].dtype(), outputs[2].sizes(), outputs[3].sizes()), (U64, &[2i64][..], &[][..]));
    assert_eq!(outputs[2].to_f64(), [0.0, 0.0]);
}

#[test]
fn forward_agrees_with_the_definition() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16])?;
        let mut size = |least| u.int_in_range(least..=4i64);
        let (n, h, l, s, e, v) = (size(0)?, size(1)?, size(0)?, size(0)?, size(1)?, size(0)?);
        let l = if u.ratio(1u8, 8u8)? { 70 } else { l };
        let q = strided(u, dtype, &[n, h, l, e])?;
        let (k, value) = (strided(u, dtype, &[n, h, s, e])?, strided(u, dtype, &[n, h, s, v])?);
        let causal: bool = u.arbitrary()?;
        let inputs = [q.clone(), k.clone(), value.clone()];
        let outputs =
            results(&format!("%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c is_causal({causal}) scale(0.05)"), &inputs);
        let scores = |at: &[i64]| -> Vec<f64> {
            let seen = |j: i64| !causal || j <= at[2] + s - l;
            let score = |j| if seen(j) { score(&q, &k, [at[0], at[1]], at[2], j, 0.05) } else { f64::NEG_INFINITY };
            (0..s).map(score).collect()
        };
        check_near(&outputs[0], tolerance(dtype), |at| attend(&scores(at), &value, [at[0], at[1]], at[3]).0);
        if v > 0 {
            check_near(&outputs[1], 1e-6, |at| attend(&scores(at), &value, [at[0], at[1]], 0).1);
        }
        Ok(())
    });
}

#[test]
fn bias_and_mask_repeat_and_hide() {
    crate::property::property(|u| {
        let (n, h, l, s) = (2, 2, 3, 4);
        let (q, k, v) =
            (strided(u, F32, &[n, h, l, 2])?, strided(u, F32, &[n, h, s, 2])?, strided(u, F32, &[n, h, s, 3])?);
        let mut thin = || -> arbitrary::Result<Vec<i64>> {
            [n, h, l, s].iter().map(|&size| Ok(if u.ratio(1u8, 3u8)? { 1 } else { size })).collect()
        };
        let (bias_sizes, mask_sizes) = (thin()?, thin()?);
        let bias = strided(u, F32, &bias_sizes)?;
        let mask =
            HostTensor::from_fn(Bool, &mask_sizes, |index| Value::Bool(index.iter().sum::<i64>() % 3 != 1)).unwrap();
        let inputs = [q.clone(), k.clone(), v.clone(), bias.clone(), mask.clone()];
        let outputs = results("%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c bias(%d) mask(%e) scale(0.1)", &inputs);
        let own = |x: &HostTensor, at: [i64; 4]| {
            let index: Vec<i64> = at.iter().zip(x.sizes()).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect();
            x.get(&index)
        };
        let scores = |at: &[i64]| -> Vec<f64> {
            let one = |j| {
                let place = [at[0], at[1], at[2], j];
                let shown = own(&mask, place).as_bool();
                let score = score(&q, &k, [at[0], at[1]], at[2], j, 0.1) + own(&bias, place).as_f64();
                if shown { score } else { f64::NEG_INFINITY }
            };
            (0..s).map(one).collect()
        };
        check_near(&outputs[0], 1e-6, |at| attend(&scores(at), &v, [at[0], at[1]], at[3]).0);
        check_near(&outputs[1], 1e-6, |at| attend(&scores(at), &v, [at[0], at[1]], 0).1);
        Ok(())
    });
}

const BACKWARD: &str = "%0, %1, %2 = sdpfa_bwd %a, %b, %c, %d, %e, %f, 0.0, CAUSAL, %g, %h scale(0.07)";

/// The derivative of `sum(grad * output)` by an element of query, key or value,
/// from outputs a small step to both sides.
fn slope(inputs: &[HostTensor; 3], which: usize, at: &[i64], grad: &HostTensor, forward: &str) -> f64 {
    let step = 1e-4;
    let loss = |by: f64| -> f64 {
        let mut moved = inputs.clone();
        let value = moved[which].get(at).as_f64() + by;
        moved[which].set(at, Value::Float(value));
        let output = &results(forward, &moved)[0];
        output.to_f64().iter().zip(grad.to_f64()).map(|(a, b)| a * b).sum()
    };
    (loss(step) - loss(-step)) / (2.0 * step)
}

#[test]
fn backward_is_the_derivative() {
    for (causal, [l, s]) in [(false, [3, 4]), (true, [4, 3]), (true, [2, 5])] {
        let scaled = |sizes: &[i64], by: f64| {
            let values: Vec<f64> = counting(F64, sizes).to_f64().iter().map(|v| v * by).collect();
            dense(F64, sizes, &values)
        };
        let inputs = [scaled(&[1, 2, l, 2], 0.5), scaled(&[1, 2, s, 2], 0.3), scaled(&[1, 2, s, 3], 0.25)];
        let grad = scaled(&[1, 2, l, 3], -0.2);
        let forward = format!("%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c is_causal({causal}) scale(0.07)");
        let [output, log, seed, offset] = <[HostTensor; 4]>::try_from(results(&forward, &inputs)).unwrap();
        let [q, k, v] = inputs.clone();
        let gradients = results(
            &BACKWARD.replace("CAUSAL", &causal.to_string()),
            &[grad.clone(), q, k, v, output, log, seed, offset],
        );
        for (which, gradient) in gradients.iter().enumerate() {
            check_near(gradient, 1e-6, |at| slope(&inputs, which, at, &grad, &forward));
        }
    }
}

#[test]
fn gradients_lie_in_memory_like_their_operands() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F32, BF16])?;
        let mut size = |least| u.int_in_range(least..=4i64);
        let (n, h, l, s, e, v) = (size(0)?, size(1)?, size(0)?, size(0)?, size(0)?, size(0)?);
        let mut tensor = |sizes: &[i64]| strided(u, dtype, sizes);
        let (q, k, value) = (tensor(&[n, h, l, e])?, tensor(&[n, h, s, e])?, tensor(&[n, h, s, v])?);
        let (grad, output) = (tensor(&[n, h, l, v])?, tensor(&[n, h, l, v])?);
        let log = strided(u, F32, &[n, h, l])?;
        let (seed, offset) = (counting(U64, &[2]), counting(U64, &[]));
        // The helper compares strides with the rule; sizes and types are checked here.
        let inputs = [grad, q, k, value, output, log, seed, offset];
        let gradients = results(&BACKWARD.replace("CAUSAL", "false"), &inputs);
        for (gradient, operand) in gradients.iter().zip(&inputs[1..4]) {
            assert_eq!((gradient.dtype(), gradient.sizes()), (dtype, operand.sizes()));
        }
        Ok(())
    });
}

#[test]
fn outputs_keep_the_memory_order_of_the_query() {
    // [N, L, H, E] seen as [N, H, L, E], as the projections of a model give it.
    let head = |sizes: &[i64]| counting(F16, sizes).permuted(&[0, 2, 1, 3]).unwrap();
    let inputs = [head(&[2, 5, 3, 8]), head(&[2, 7, 3, 8]), head(&[2, 7, 3, 4])];
    let outputs = results("%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c", &inputs);
    assert_eq!((outputs[0].sizes(), outputs[0].strides()), (&[2i64, 3, 5, 4][..], &[60i64, 4, 12, 1][..]));
    assert_eq!(outputs[1].strides(), [15, 5, 1]);
}

#[test]
fn more_batch_axes_are_batches() {
    let (q, kv) = ([2, 3, 2, 4, 2], [2, 3, 2, 5, 2]);
    let flat = |sizes: &[i64; 5]| [6, sizes[2], sizes[3], sizes[4]];
    let inputs = [counting(F32, &q), counting(F32, &kv), counting(F32, &kv)];
    let flattened = [&q, &kv, &kv].map(|sizes| counting(F32, &flat(sizes)));
    let forward = "%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c scale(0.1)";
    let (deep, shallow) = (results(forward, &inputs), results(forward, &flattened));
    assert_eq!((deep[0].sizes(), deep[1].sizes()), (&q[..], &q[..4]));
    assert_eq!(deep[0].to_f64(), shallow[0].to_f64());
    assert_eq!(deep[1].to_f64(), shallow[1].to_f64());
    let backward = BACKWARD.replace("CAUSAL", "true");
    let all = |x: &[HostTensor; 3], out: &[HostTensor]| {
        let [q, k, v] = x.clone();
        results(&backward, &[q.clone(), q, k, v, out[0].clone(), out[1].clone(), out[2].clone(), out[3].clone()])
    };
    for (deep, shallow) in all(&inputs, &deep).iter().zip(all(&flattened, &shallow)) {
        assert_eq!(deep.to_f64(), shallow.to_f64());
    }
}

#[test]
fn scalars_may_be_inputs() {
    let text = "fusion @f(%q: f64[1, 1, ?, ?], %p: f64, %causal: bool, %s: f64) {
        %0, %1, %2, %3 = sdpfa_fwd %q, %q, %q dropout_p(%p) is_causal(%causal) scale(%s)
        return %0
    }";
    let fusion = crate::text::parse_one(text).unwrap();
    let q = dense(F64, &[1, 1, 2, 1], &[1.0, 2.0]);
    let run = |p: f64, causal: bool, scale: f64| {
        use crate::tensor::Arg::{Scalar, Tensor};
        let args =
            [Tensor(q.clone()), Scalar(Value::Float(p)), Scalar(Value::Bool(causal)), Scalar(Value::Float(scale))];
        crate::refeval::evaluate(&fusion, &args).map(|outputs| outputs[0].to_f64())
    };
    assert_eq!(run(0.0, true, 0.0).unwrap(), [1.0, 1.5]);
    assert_eq!(run(0.0, false, 0.0).unwrap(), [1.5, 1.5]);
    assert_eq!(run(0.5, false, 0.0).unwrap_err().code, crate::diag::code::NOT_EVALUATED);
    assert_eq!(run(1.5, false, 0.0).unwrap_err().code, crate::diag::code::VALUE);
}

#[test]
fn refusals_name_operands_axes_and_numbers() {
    let x = |sizes: &[i64]| counting(F16, sizes);
    let forward = "%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c";
    let good = [x(&[2, 3, 4, 8]), x(&[2, 3, 5, 8]), x(&[2, 3, 5, 6])];
    let with = |place: usize, other: HostTensor| {
        let mut inputs = good.clone();
        inputs[place] = other;
        inputs
    };
    let check = |inputs: &[HostTensor], expected: &str| check_refused(forward, inputs, expected);
    check(&with(0, x(&[3, 4, 8])), "E0203: sdpfa_fwd: `query` has rank 3, it needs at least 4");
    check(&with(2, x(&[2, 3, 5])), "E0203: sdpfa_fwd: `value` has rank 3, it needs 4");
    check(&with(1, counting(F32, &[2, 3, 5, 8])), "E0202: sdpfa_fwd: operands of types f16 and f32");
    let complex = [counting(C64, &[1, 1, 2, 2]), counting(C64, &[1, 1, 2, 2]), counting(C64, &[1, 1, 2, 2])];
    check(&complex, "E0202: sdpfa_fwd: not defined on c64");
    check(&with(1, x(&[2, 7, 5, 8])), "E0204: sdpfa_fwd: axis 1 of `query` and of `key`: 3 and 7 must be equal");
    check(&with(1, x(&[2, 3, 5, 9])), "E0204: sdpfa_fwd: axis 3 of `query` and of `key`: 8 and 9 must be equal");
    check(&with(2, x(&[2, 3, 6, 6])), "E0204: sdpfa_fwd: axis 2 of `key` and of `value`: 5 and 6 must be equal");
    let mut more = good.to_vec();
    more.push(counting(F32, &[2, 3, 4, 5]));
    check_refused(&format!("{forward} bias(%d)"), &more, "E0202: sdpfa_fwd: `bias` is f32, it must be f16");
    more[3] = x(&[2, 3, 4, 6]);
    check_refused(
        &format!("{forward} bias(%d)"),
        &more,
        "E0204: sdpfa_fwd: axis 3 of `bias` and of the scores: 6 and 5 must be equal",
    );
    more[3] = x(&[2, 3, 4, 5]);
    check_refused(
        &format!("{forward} bias(%d) is_causal(true)"),
        &more,
        "E0213: sdpfa_fwd: is_causal is true and a bias or mask is given",
    );
    check_refused(
        &format!("{forward} dropout_p(1.5)"),
        &good,
        "E0213: sdpfa_fwd: dropout_p is 1.5, a probability is from 0 to 1",
    );
    check_unevaluated(
        &format!("{forward} dropout_p(0.25)"),
        &good,
        "U0201: sdpfa_fwd: dropout_p 0.25 is not evaluated: which elements are dropped depends on the tiles of the kernel",
    );
}

#[test]
fn operands_of_the_backward_pass_are_checked() {
    let x = |sizes: &[i64]| counting(F16, sizes);
    let (q, kv) = (x(&[1, 1, 4, 8]), x(&[1, 1, 5, 8]));
    let (seed, offset) = (counting(U64, &[2]), counting(U64, &[]));
    let inputs = |grad: HostTensor, log: HostTensor| {
        [grad, q.clone(), kv.clone(), kv.clone(), q.clone(), log, seed.clone(), offset.clone()]
    };
    let backward = BACKWARD.replace("CAUSAL", "false");
    let log = counting(F32, &[1, 1, 4]);
    assert_eq!(results(&backward, &inputs(q.clone(), log.clone())).len(), 3);
    check_refused(
        &backward,
        &inputs(x(&[1, 1, 4, 9]), log.clone()),
        "E0204: sdpfa_bwd: axis 3 of `grad_output` and of `value`: 9 and 8 must be equal",
    );
    check_refused(&backward, &inputs(q.clone(), x(&[1, 1, 4])), "E0202: sdpfa_bwd: `logsumexp` is f16, it must be f32");
    check_refused(
        &backward,
        &inputs(q.clone(), counting(F32, &[1, 1, 4, 1])),
        "E0203: sdpfa_bwd: `logsumexp` has rank 4, it needs 3",
    );
}

/// Small floats as a flash kernel multiplies them: weights are rounded first.
#[test]
fn weights_of_small_floats_are_rounded_before_products() {
    let x = |sizes: [i64; 4], values: &[f64]| dense(BF16, &sizes, values);
    // Weights 1 and exp(-1) = 0.36788, which rounds to 0.3671875: nothing is left.
    let (q, k) = (x([1, 1, 1, 1], &[1.0]), x([1, 1, 2, 1], &[0.0, -1.0]));
    let v = x([1, 1, 2, 1], &[-0.3671875, 1.0]);
    let inputs = [q, k, v];
    let forward = "%0, %1, %2, %3 = sdpfa_fwd %a, %b, %c scale(1.0)";
    assert_eq!(results(forward, &inputs)[0].to_f64(), [0.0]);
    // Through f32 with a bias: (0.36788 - 0.3671875) / 1.36788.
    let biased = [inputs.as_slice(), &[x([1, 1, 1, 1], &[0.0])]].concat();
    let output = results(&format!("{forward} bias(%d)"), &biased)[0].to_f64()[0];
    assert!((output - 5.06e-4).abs() < 5e-6, "{output}");
}

#[test]
fn weights_and_slopes_of_small_floats_are_rounded_before_products() {
    let x = |sizes: [i64; 4], values: &[f64]| dense(BF16, &sizes, values);
    let two = |values: &[f64]| x([1, 1, 2, 1], values);
    // Both queries give key 1 the weight 1 / (1 + e) = 0.268941, in bf16
    // 138 / 512; slopes are it times 1 and -1.0078125, in bf16 138 and -139 / 512.
    let inputs = [
        two(&[1.0, -1.0078125]),
        two(&[1.0, 1.0]),
        two(&[0.0, -1.0]),
        two(&[0.0, 1.0]),
        two(&[0.0, 0.0]),
        dense(F32, &[1, 1, 2], &[(-1.0f64).exp().ln_1p(), (-1.0f64).exp().ln_1p()]),
        dense(U64, &[2], &[0.0, 0.0]),
        dense(U64, &[], &[0.0]),
    ];
    let outputs = results("%0, %1, %2 = sdpfa_bwd %a, %b, %c, %d, %e, %f, 0.0, false, %g, %h scale(1.0)", &inputs);
    assert_eq!(outputs[1].to_f64()[1], -1.0 / 512.0);
    // 138 / 512 * (1 - 1.0078125)
    assert_eq!(outputs[2].to_f64()[1], -138.0 / 512.0 / 128.0);
}

/// Holds attention in simpler operations against itself, up to the rounding of `f32`.
fn check_steps(fusion: &str, args: &[Arg]) {
    let fusion = crate::text::parse_one(fusion).unwrap();
    let steps = decompose(&fusion).unwrap().fusion;
    assert!(decomposes(&fusion) && !decomposes(&steps));
    let [whole, parts] = [&fusion, &steps].map(|fusion| crate::refeval::evaluate(fusion, args).unwrap());
    for (whole, parts) in whole.iter().zip(&parts) {
        assert_eq!((whole.dtype(), whole.sizes()), (parts.dtype(), parts.sizes()));
        // Sums of `f32`, and weights of few bits that may be rounded to the other side.
        let tolerance = if whole.dtype() == F32 { 1e-5 } else { 2.0 * tolerance(whole.dtype()) };
        check_near(parts, tolerance, |at| whole.get(at).as_f64());
    }
}

#[test]
fn steps_of_both_passes_agree_with_what_is_evaluated() {
    crate::property::property(|u| {
        let dtype = *u.choose(&[F64, F32, F16, BF16])?;
        let mut size = |least| u.int_in_range(least..=4i64);
        let (n, h, l, s, e, v) = (size(1)?, size(1)?, size(1)?, size(0)?, size(1)?, size(1)?);
        // Small, so that differences of rounded numbers stay so.
        let mut small = |sizes: &[i64]| -> arbitrary::Result<HostTensor> {
            let x = strided(u, dtype, sizes)?;
            Ok(HostTensor::strided(x.meta.clone(), |at| Value::Float(x.get(at).as_f64() / 8.0)).unwrap())
        };
        let (q, k, value) = (small(&[n, h, l, e])?, small(&[n, h, s, e])?, small(&[n, h, s, v])?);
        let grad = small(&[n, h, l, v])?;
        let mask = HostTensor::from_fn(Bool, &[n, 1, l, s], |at| Value::Bool((at[2] + at[3]) % 3 != 0)).unwrap();
        let more = *u.choose(&["", "is_causal(true)", "is_causal(%p)", "mask(%m)", "bias(%g2) mask(%m)"])?;
        let bias = strided(u, dtype, &[1, h, 1, s])?;
        let head = format!("%q: {dtype}[?, ?, ?, ?], %k: {dtype}[?, ?, ?, ?], %v: {dtype}[?, ?, ?, ?]");
        let mut args: Vec<Arg> = [&q, &k, &value].into_iter().cloned().map(Arg::Tensor).collect();
        let forward = format!(
            "fusion @f({head}, %m: bool[?, 1, ?, ?], %g2: {dtype}[1, ?, 1, ?], %p: bool) {{
                %0, %1, %2, %3 = sdpfa_fwd %q, %k, %v scale(0.05) {more}
                return %0, %1, %2, %3
            }}"
        );
        args.extend([Arg::Tensor(mask), Arg::Tensor(bias), Arg::Scalar(Value::Bool(u.arbitrary()?))]);
        check_steps(&forward, &args);
        let causal = *u.choose(&["true", "false", "%p"])?;
        let backward = format!(
            "fusion @f(%g: {dtype}[?, ?, ?, ?], {head}, %p: bool) {{
                %0, %1, %2, %3 = sdpfa_fwd %q, %k, %v is_causal({causal}) scale(0.05)
                %4, %5, %6 = sdpfa_bwd %g, %q, %k, %v, %0, %1, 0.0, {causal}, %2, %3 scale(0.05)
                return %4, %5, %6
            }}"
        );
        let tensors = [grad, q, k, value].map(Arg::Tensor);
        check_steps(&backward, &[tensors.as_slice(), &[Arg::Scalar(Value::Bool(u.arbitrary()?))]].concat());
        Ok(())
    });
}

#[test]
fn what_steps_cannot_say_stays_one_operation() {
    let decomposes = |inputs: &str, more: &str| {
        let step = format!("%0, %1, %2, %3 = sdpfa_fwd %q, %q, %q {more}");
        let text = format!("fusion @f(%q: f16[1, 1, ?, ?]{inputs}) {{\n{step}\nreturn %0\n}}");
        decomposes(&crate::text::parse_one(&text).unwrap())
    };
    assert!(decomposes("", "dropout_p(0.0)") && decomposes(", %c: bool", "is_causal(%c)"));
    assert!(!decomposes(", %p: f64", "dropout_p(%p)") && !decomposes("", "dropout_p(0.5)"));
    assert!(!decomposes(", %m: bool[1, 1, ?, ?], %c: bool", "mask(%m) is_causal(%c)"));
}

#[test]
fn results_keep_the_kinds_of_axes() {
    // A batch of one that repeats in some operands only: the result has the query's, and loses it.
    for (query, key, value, steps) in [("1", "1", "1", true), ("1", "?", "?", false), ("1", "1", "?", false)] {
        let head = format!("%q: f16[{query}, 1, ?, ?], %k: f16[{key}, 1, ?, ?], %v: f16[{value}, 1, ?, ?]");
        let step = "%0, %1, %2, %3 = sdpfa_fwd %q, %k, %v\n%4 = squeeze %0 flags(true, false, false, false)";
        let text = format!("fusion @f({head}) {{\n{step}\nreturn %4\n}}");
        let fusion = crate::text::parse_one(&text).unwrap();
        assert_eq!(decomposes(&fusion), steps, "{text}");
        let args: Vec<Arg> = (0..3).map(|_| Arg::Tensor(counting(F16, &[1, 1, 2, 2]))).collect();
        let parts = decompose(&fusion).unwrap().fusion;
        let [whole, parts] = [&fusion, &parts].map(|fusion| crate::refeval::evaluate(fusion, &args).unwrap());
        assert_eq!(whole[0].sizes(), parts[0].sizes());
    }
}
