//! Normalisations over the last axes against loops and differences.

use super::super::checks::{check_close, check_gradient, check_refused, counting, dense, numbers, results};
use crate::num::DType;
use crate::tensor::HostTensor;

const EPS: f64 = 1e-2;
/// Elements of a row and rows, of sizes `[2, 3, 4]`.
const N: usize = 12;
const SIZES: [i64; 3] = [2, 3, 4];

/// Normalised rows, and each row's shift and factor.
fn normalised(x: &[f64], centre: bool) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut y, mut shifts, mut factors) = (Vec::new(), Vec::new(), Vec::new());
    for row in x.chunks(N) {
        let shift = if centre { row.iter().sum::<f64>() / N as f64 } else { 0.0 };
        let square = row.iter().map(|v| (v - shift).powi(2)).sum::<f64>() / N as f64;
        let factor = 1.0 / (square + EPS).sqrt();
        y.extend(row.iter().map(|v| (v - shift) * factor));
        shifts.push(shift);
        factors.push(factor);
    }
    (y, shifts, factors)
}

/// `normalised * weight + bias`.
fn affine(x: &[f64], weight: &[f64], bias: &[f64], centre: bool) -> Vec<f64> {
    let (y, ..) = normalised(x, centre);
    y.iter().enumerate().map(|(i, y)| y * weight[i % N] + bias[i % N]).collect()
}

fn full(values: &[f64]) -> HostTensor {
    dense(DType::F64, &SIZES, values)
}

fn row(values: &[f64]) -> HostTensor {
    dense(DType::F64, &SIZES[1..], values)
}

fn each(values: &[f64]) -> HostTensor {
    dense(DType::F64, &[2, 1, 1], values)
}

struct Sample {
    x: Vec<f64>,
    dy: Vec<f64>,
    weight: Vec<f64>,
    bias: Vec<f64>,
}

fn sample() -> Sample {
    Sample { x: numbers(2 * N, 5), dy: numbers(2 * N, 6), weight: numbers(N, 7), bias: numbers(N, 8) }
}

impl Sample {
    fn loss(&self, y: &[f64]) -> f64 {
        y.iter().zip(&self.dy).map(|(y, dy)| y * dy).sum()
    }
}

#[test]
fn rows_are_normalised_and_statistics_keep_their_axes() {
    let s = sample();
    let y = affine(&s.x, &s.weight, &s.bias, true);
    let (_, mean, factor) = normalised(&s.x, true);
    let inputs = [full(&s.x), row(&s.weight), row(&s.bias)];
    check_close("layer_norm", &results("%r = layer_norm %a, %b, %c eps(1e-2)", &inputs)[0], &y);
    let got = results("%r, %s, %t = layer_norm_forward %a, %b, %c, 1e-2 norm_dims(2)", &inputs);
    check_close("layer_norm_forward", &got[0], &y);
    check_close("mean", &got[1], &mean);
    check_close("invstd", &got[2], &factor);
    assert_eq!((got[1].sizes(), got[2].sizes()), (&[2, 1, 1][..], &[2, 1, 1][..]));

    let plain = normalised(&s.x, false);
    let got = results("%r, %s = rms_norm_forward %a eps(1e-2) norm_dims(2)", &inputs[..1]);
    check_close("rms_norm_forward", &got[0], &plain.0);
    check_close("invstd", &got[1], &plain.2);
    let weighted = affine(&s.x, &s.weight, &[0.0; N], false);
    check_close("rms_norm", &results("%r = rms_norm %a, %b, 1e-2", &inputs[..2])[0], &weighted);
}

#[test]
fn layer_norm_has_its_gradient() {
    let s = sample();
    let (normal, mean, factor) = normalised(&s.x, true);
    let inputs = [full(&s.dy), full(&s.x), each(&mean), each(&factor), row(&s.weight)];
    let got = results("%r, %s, %t = layer_norm_backward %a, %b, %c, %d, %e", &inputs);
    check_gradient("dx", &got[0], &s.x, |x| s.loss(&affine(x, &s.weight, &s.bias, true)));
    check_gradient("dw", &got[1], &s.weight, |w| s.loss(&affine(&s.x, w, &s.bias, true)));
    check_gradient("db", &got[2], &s.bias, |b| s.loss(&affine(&s.x, &s.weight, b, true)));
    let got = results("%r, %s, %t = layer_norm_backward %a, %b, %c, %d norm_dims(2)", &inputs[..4]);
    check_gradient("dx", &got[0], &s.x, |x| s.loss(&normalised(x, true).0));
    assert_eq!(normal.len(), 2 * N);
}

#[test]
fn rms_norm_has_its_gradient_where_it_is_asked_for() {
    let s = sample();
    let (_, _, factor) = normalised(&s.x, false);
    let root: Vec<f64> = factor.iter().map(|f| 1.0 / f).collect();
    let loss = |x: &[f64]| s.loss(&affine(x, &s.weight, &[0.0; N], false));
    for (name, statistic) in [("rms_norm_backward", &factor), ("thunder_rms_norm_backward", &root)] {
        let inputs = [full(&s.dy), full(&s.x), each(statistic), row(&s.weight)];
        let exact = results(&format!("%r, %s = {name} %a, %b, %c, %d exact"), &inputs);
        check_gradient(name, &exact[0], &s.x, loss);
        check_gradient(name, &exact[1], &s.weight, |w| s.loss(&affine(&s.x, w, &[0.0; N], false)));
        // What nvFuser computes differs in one term of the gradient for x.
        let own = results(&format!("%r, %s = {name} %a, %b, %c, %d"), &inputs);
        check_close(name, &own[1], &exact[1].to_f64());
        let g: Vec<f64> = s.dy.iter().enumerate().map(|(i, dy)| dy * s.weight[i % N]).collect();
        let mut expected = exact[0].to_f64();
        for (r, factor) in factor.iter().enumerate() {
            let range = r * N..(r + 1) * N;
            let sum: f64 = g[range.clone()].iter().sum();
            let dot: f64 = range.clone().map(|i| g[i] * s.x[i]).sum();
            for i in range {
                expected[i] += match name {
                    "rms_norm_backward" => -factor * sum / N as f64,
                    _ => s.x[i] * factor.powi(3) * dot / (2 * N) as f64,
                };
            }
        }
        check_close(name, &own[0], &expected);
    }
}

#[test]
fn small_floats_are_normalised_in_f32() {
    let inputs = [dense(DType::BF16, &[1, 2], &[3.0, 1.0]), dense(DType::F16, &[2], &[2.0, 0.5])];
    let got = results("%r, %s, %t = layer_norm_forward %a, %b eps(0)", &inputs);
    assert_eq!((got[0].dtype(), got[0].to_f64()), (DType::F32, vec![2.0, -0.5]));
    assert_eq!((got[1].to_f64(), got[2].to_f64()), (vec![2.0], vec![1.0]));
}

#[test]
fn ranks_that_do_not_fit_are_refused() {
    let x = [counting(DType::F32, &[2, 3]), counting(DType::F32, &[3])];
    check_refused(
        "%r = layer_norm %a, %b norm_dims(2)",
        &x,
        "E0203: layer_norm: norm_dims is 2, the weight or bias has rank 1",
    );
    check_refused("%r = rms_norm %a norm_dims(3)", &x, "E0203: rms_norm: normalises 3 axes of an operand of rank 2");
    check_refused("%r = rms_norm %b, %a", &x, "E0203: rms_norm: normalises 2 axes of an operand of rank 1");
    check_refused(
        "%r, %s = rms_norm_backward %a, %a, %a norm_dims(0)",
        &x,
        "E0203: rms_norm_backward: normalises 0 axes of an operand of rank 2",
    );
}
