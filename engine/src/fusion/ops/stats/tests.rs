//! Statistics against loops.

use super::super::checks::{check_close, check_refused, check_value, counting, dense, numbers, results};
use crate::num::DType;

/// Mean and sum of squared deviations of each row.
fn rows(x: &[f64], n: usize) -> Vec<(f64, f64)> {
    x.chunks(n)
        .map(|row| {
            let mean = row.iter().sum::<f64>() / n as f64;
            (mean, row.iter().map(|v| (v - mean).powi(2)).sum())
        })
        .collect()
}

#[test]
fn moments_are_those_of_the_rows() {
    let x = numbers(12, 1);
    let input = || [dense(DType::F64, &[3, 4], &x)];
    let (mean, sum): (Vec<f64>, Vec<f64>) = rows(&x, 4).into_iter().unzip();
    let scaled = |by: f64| sum.iter().map(|s| s / by).collect::<Vec<_>>();
    let roots = |values: Vec<f64>| values.into_iter().map(f64::sqrt).collect::<Vec<_>>();
    for name in ["var", "variance"] {
        check_close(name, &results(&format!("%r = {name} %a axes(1)"), &input())[0], &scaled(3.0));
        let statement = format!("%r = {name} %a axes(-1) correction(0) keepdim");
        let got = results(&statement, &input());
        assert_eq!(got[0].sizes(), [3, 1]);
        check_close(&statement, &got[0], &scaled(4.0));
    }
    for name in ["std", "standard_deviation"] {
        check_close(name, &results(&format!("%r = {name} %a axes(1)"), &input())[0], &roots(scaled(3.0)));
    }
    for name in ["var_mean", "variance_mean"] {
        let got = results(&format!("%r, %s = {name} %a axes(1) correction(2)"), &input());
        check_close(name, &got[0], &scaled(2.0));
        check_close(name, &got[1], &mean);
    }
}

#[test]
fn all_axes_and_no_axes_and_no_elements() {
    let x = || [dense(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 6.0])];
    check_value("%r = mean %a", &x(), DType::F32, &[], &[3.0]);
    check_value("%r = variance %a correction(0) keepdim", &x(), DType::F32, &[1, 1], &[3.5]);
    check_value("%r = var %a axes(1) correction(2)", &x(), DType::F32, &[2], &[f64::INFINITY; 2]);
    let small = [dense(DType::BF16, &[2], &[1.0, 2.0])];
    check_value("%r = std %a correction(0)", &small, DType::F32, &[], &[0.5]);
    let none = results("%r = mean %a axes(0)", &[dense(DType::F64, &[0, 2], &[])]);
    assert!(none[0].to_f64().iter().all(|v| v.is_nan()) && none[0].sizes() == [2]);
}

#[test]
fn axes_that_are_not_there_are_refused() {
    let x = [counting(DType::F32, &[2, 3])];
    check_refused("%r = variance %a axes(2)", &x, "E0205: var: axis 2 of an operand of rank 2");
    check_refused("%r, %s = variance_mean %a axes(0, -2)", &x, "E0205: var_mean: axis -2 is named twice");
}
