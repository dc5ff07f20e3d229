//! Softmax and its gradients against loops and differences.

use super::super::checks::{check_close, check_gradient, check_refused, counting, dense, numbers, result};
use crate::num::DType;

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|v| (v - most).exp()).sum();
    row.iter().map(|v| (v - most).exp() / sum).collect()
}

fn by_rows(x: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(4).flat_map(f).collect()
}

fn log(row: &[f64]) -> Vec<f64> {
    softmax(row).into_iter().map(f64::ln).collect()
}

#[test]
fn rows_and_their_gradients() {
    let (x, dy) = (numbers(12, 3), numbers(12, 4));
    let tensor = |values: &[f64]| dense(DType::F64, &[3, 4], values);
    for (name, f) in [("softmax", softmax as fn(&[f64]) -> Vec<f64>), ("log_softmax", log)] {
        let y = by_rows(&x, f);
        check_close(name, &result(&format!("%r = {name} %a axis(1)"), &[tensor(&x)]), &y);
        let loss = |x: &[f64]| by_rows(x, f).iter().zip(&dy).map(|(y, dy)| y * dy).sum();
        let got = result(&format!("%r = {name}_backward %a, %b"), &[tensor(&dy), tensor(&y)]);
        check_gradient(name, &got, &x, loss);
    }
}

#[test]
fn gradients_along_an_outer_axis_and_of_small_floats() {
    let y: Vec<f64> = [[0.25, 0.5], [0.75, 0.5]].concat();
    let inputs = [dense(DType::BF16, &[2, 2], &[1.0, 2.0, 3.0, 4.0]), dense(DType::BF16, &[2, 2], &y)];
    let got = result("%r = softmax_backward %a, %b axis(0)", &inputs);
    assert_eq!((got.dtype(), got.to_f64()), (DType::F32, vec![-0.375, -0.5, 0.375, 0.5]));
}

#[test]
fn axes_and_extents_that_do_not_fit_are_refused() {
    let x = [counting(DType::F32, &[2, 3]), counting(DType::F32, &[2, 4])];
    check_refused(
        "%r = softmax_backward %a, %a axis(2)",
        &x,
        "E0205: softmax_backward: axis 2 of an operand of rank 2",
    );
    check_refused("%r = softmax_backward %a, %b", &x, "E0204: mul: axis 1 of operand 1 is 4, not 3");
}
