//! Batch and instance normalisation against loops and differences.

use super::super::checks::{check_close, check_gradient, check_refused, counting, dense, numbers, results};
use crate::num::DType;
use crate::refeval::evaluate_all;
use crate::tensor::{Arg, HostTensor};
use crate::text::{parse_one, print};

const EPS: f64 = 1e-5;
/// Batch, channels, positions.
const SIZES: [usize; 3] = [2, 3, 4];
const LEN: usize = 24;

/// The group of statistics and the channel of an element.
fn place(i: usize, instance: bool, last: bool) -> (usize, usize) {
    let (batch, rest) = (i / 12, i % 12);
    let channel = if last { rest % 3 } else { rest / 4 };
    (if instance { batch * 3 + channel } else { channel }, channel)
}

/// Mean and sum of squares of each group, and its number of elements.
fn statistics(x: &[f64], instance: bool, last: bool) -> (Vec<f64>, Vec<f64>, f64) {
    let groups = if instance { 6 } else { 3 };
    let n = (LEN / groups) as f64;
    let mut mean = vec![0.0; groups];
    x.iter().enumerate().for_each(|(i, x)| mean[place(i, instance, last).0] += x / n);
    let mut sum = vec![0.0; groups];
    x.iter().enumerate().for_each(|(i, x)| {
        let group = place(i, instance, last).0;
        sum[group] += (x - mean[group]).powi(2);
    });
    (mean, sum, n)
}

fn normal(x: &[f64], weight: &[f64], bias: &[f64], instance: bool, last: bool) -> Vec<f64> {
    let (mean, sum, n) = statistics(x, instance, last);
    let value = |(i, x): (usize, &f64)| {
        let (group, channel) = place(i, instance, last);
        (x - mean[group]) / (sum[group] / n + EPS).sqrt() * weight[channel] + bias[channel]
    };
    x.iter().enumerate().map(value).collect()
}

fn roots(sum: &[f64], n: f64) -> Vec<f64> {
    sum.iter().map(|s| 1.0 / (s / n + EPS).sqrt()).collect()
}

fn tensor(values: &[f64], last: bool) -> HostTensor {
    let [batch, channels, positions] = SIZES.map(|size| size as i64);
    dense(DType::F64, &if last { [batch, positions, channels] } else { [batch, channels, positions] }, values)
}

fn channels(values: &[f64]) -> HostTensor {
    dense(DType::F64, &[3], values)
}

fn groups(values: &[f64], instance: bool) -> HostTensor {
    dense(DType::F64, if instance { &[2, 3] } else { &[3] }, values)
}

/// Every combination of the row, the place of the channels, and their words.
fn forms() -> impl Iterator<Item = (&'static str, bool, bool, &'static str)> {
    [("batch_norm", false), ("instance_norm", true)]
        .into_iter()
        .flat_map(|(name, instance)| [(name, instance, false, ""), (name, instance, true, "channels_last")])
}

#[test]
fn own_statistics_normalise() {
    let (x, weight, bias) = (numbers(LEN, 20), numbers(3, 21), numbers(3, 22));
    for (name, instance, last, word) in forms() {
        let inputs = [tensor(&x, last), channels(&weight), channels(&bias)];
        let got = results(&format!("%r, %s, %t = {name} %a, %b, %c {word}"), &inputs);
        let (mean, sum, n) = statistics(&x, instance, last);
        check_close(name, &got[0], &normal(&x, &weight, &bias, instance, last));
        check_close(name, &got[1], &mean);
        check_close(name, &got[2], &roots(&sum, n));
        let plain = results(&format!("%r, %s, %t = {name} %a {word}"), &inputs[..1]);
        check_close(name, &plain[0], &normal(&x, &[1.0; 3], &[0.0; 3], instance, last));
    }
}

/// Results and updates of a statement with running statistics of a type.
fn run(statement: &str, x: &HostTensor, running: [&[f64]; 2], dtype: DType) -> (Vec<HostTensor>, Vec<HostTensor>) {
    let head = format!("%x: f64[?, ?, ?], %m: {dtype}[?], %v: {dtype}[?]");
    let source = format!("fusion @f({head}) {{\n  %r, %s, %t = {statement}\n  return %r, %s, %t\n}}\n");
    let fusion = parse_one(&source).unwrap_or_else(|errors| panic!("{source}{errors:?}"));
    let printed = print(&fusion);
    assert_eq!(parse_one(&printed).as_ref(), Ok(&fusion), "{printed}");
    let args = [x.clone(), dense(dtype, &[3], running[0]), dense(dtype, &[3], running[1])].map(Arg::Tensor);
    let got = evaluate_all(&fusion, &args).unwrap();
    assert_eq!(got.updates.iter().map(|(input, _)| *input).collect::<Vec<_>>(), [1, 2][..got.updates.len()]);
    (got.outputs, got.updates.into_iter().map(|(_, tensor)| tensor).collect())
}

#[test]
fn running_statistics_are_updated_in_place() {
    let x = numbers(LEN, 23);
    let (old_mean, old_var) = ([0.5, -1.0, 0.25], [1.0, 2.0, 0.5]);
    for (name, instance, last, word) in forms() {
        let statement = format!("{name} %x running_mean(%m) running_var(%v) momentum(0.25) {word}");
        let (outputs, updates) = run(&statement, &tensor(&x, last), [&old_mean, &old_var], DType::F64);
        let (mean, sum, n) = statistics(&x, instance, last);
        let moved = |old: &[f64; 3], own: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let batches = mean.len() / 3;
            let average = |c: usize| (0..batches).map(|b| own(b * 3 + c)).sum::<f64>() / batches as f64;
            (0..3).map(|c| old[c] * 0.75 + average(c) * 0.25).collect()
        };
        check_close(name, &outputs[1], &mean);
        check_close(name, &updates[0], &moved(&old_mean, &|group| mean[group]));
        check_close(name, &updates[1], &moved(&old_var, &|group| sum[group] / (n - 1.0)));
        let (_, small) = run(&statement, &tensor(&x, last), [&old_mean, &old_var], DType::BF16);
        for (small, exact) in small.iter().zip(&updates) {
            let exact = dense(DType::BF16, &[3], &exact.to_f64());
            assert_eq!(small.dtype(), DType::BF16);
            for (a, b) in small.to_f64().into_iter().zip(exact.to_f64()) {
                assert!((a - b).abs() <= b.abs() / 128.0, "{name}: {a} {b}");
            }
        }
    }
}

#[test]
fn running_statistics_stand_for_own_ones() {
    let x = numbers(LEN, 24);
    let (mean, var) = ([0.5, -1.0, 0.25], [1.0, 2.0, 0.5]);
    for (name, _, last, word) in forms() {
        let off = if name == "batch_norm" { "training(false)" } else { "use_input_stats(false)" };
        let statement = format!("{name} %x running_mean(%m) running_var(%v) {off} {word}");
        let (outputs, updates) = run(&statement, &tensor(&x, last), [&mean, &var], DType::F64);
        let value = |(i, x): (usize, &f64)| {
            let (_, channel) = place(i, false, last);
            (x - mean[channel]) / (var[channel] + EPS).sqrt()
        };
        assert!(updates.is_empty());
        check_close(name, &outputs[0], &x.iter().enumerate().map(value).collect::<Vec<_>>());
        check_close(name, &outputs[1], &mean);
        check_close(name, &outputs[2], &roots(&var, 1.0));
    }
}

#[test]
fn gradients_are_slopes() {
    let (x, dy) = (numbers(LEN, 25), numbers(LEN, 26));
    let (weight, bias) = (numbers(3, 27), [0.0; 3]);
    let loss = |y: Vec<f64>| -> f64 { y.iter().zip(&dy).map(|(y, dy)| y * dy).sum() };
    for (name, instance, last, word) in forms() {
        let (mean, sum, n) = statistics(&x, instance, last);
        let saved = [groups(&mean, instance), groups(&roots(&sum, n), instance)];
        let inputs = [vec![tensor(&x, last), tensor(&dy, last), channels(&weight)], saved.to_vec()].concat();
        let statement = format!("%r, %s, %t = {name}_backward %a, %b, %c save_mean(%d) save_invstd(%e) {word}");
        let got = results(&statement, &inputs);
        check_gradient(name, &got[0], &x, |x| loss(normal(x, &weight, &bias, instance, last)));
        check_gradient(name, &got[1], &weight, |w| loss(normal(&x, w, &bias, instance, last)));
        check_gradient(name, &got[2], &bias, |b| loss(normal(&x, &weight, b, instance, last)));
    }
}

#[test]
fn gradients_out_of_training_use_running_statistics() {
    let (x, dy) = (numbers(LEN, 28), numbers(LEN, 29));
    let (mean, var) = ([0.5, -1.0, 0.25], [1.0, 2.0, 0.5]);
    let weight = numbers(3, 30);
    for (name, _, last, word) in forms() {
        let value = |x: &[f64], weight: &[f64]| -> f64 {
            let y = |(i, x): (usize, &f64)| {
                let (_, c) = place(i, false, last);
                (x - mean[c]) / (var[c] + EPS).sqrt() * weight[c] * dy[i]
            };
            x.iter().enumerate().map(y).sum()
        };
        let inputs = [tensor(&x, last), tensor(&dy, last), channels(&weight), channels(&mean), channels(&var)];
        let statement = format!("%r, %s, %t = {name}_backward %a, %b, %c, %d, %e training(false) {word}");
        let got = results(&statement, &inputs);
        check_gradient(name, &got[0], &x, |x| value(x, &weight));
        check_gradient(name, &got[1], &weight, |weight| value(&x, weight));
    }
}

#[test]
fn what_is_missing_or_no_input_is_refused() {
    let x = [counting(DType::F32, &[2, 3]), counting(DType::F32, &[3]), counting(DType::F32, &[3])];
    let three = |right: &str| format!("%r, %s, %t = {right}");
    let check = |right: &str, expected: &str| check_refused(&three(right), &x, expected);
    check("batch_norm %b", "E0203: batch_norm: the operand has rank 1, at least 2 is needed");
    check("batch_norm %a running_mean(%b)", "E0201: batch_norm: `running_mean` is given without `running_var`");
    check("batch_norm_backward %a, %a", "E0201: batch_norm_backward: needs `save_mean` and `save_invstd` in training");
    check(
        "instance_norm_backward %a, %a training(false)",
        "E0201: instance_norm_backward: needs `running_mean` and `running_var` out of training",
    );
    let source = "fusion @f(%x: f32[?, ?], %m: f32[?]) {\n  %n = neg %m\n  %r, %s, %t = batch_norm %x running_mean(%n) running_var(%m)\n  return %r\n}\n";
    let errors = parse_one(source).unwrap_err();
    let expected = "batch_norm: a running statistic is no input of the fusion, it cannot be updated";
    assert_eq!(errors[0].message, expected);
}
