//! Activations and their gradients against formulas and differences.

use super::super::checks::{check_close, check_gradient, check_value, dense, numbers, result};
use crate::num::DType;

fn gelu(x: f64) -> f64 {
    x * 0.5 * (1.0 + libm::erf(x / 2f64.sqrt()))
}

fn gelu_tanh(x: f64) -> f64 {
    x * 0.5 * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

#[test]
fn values_are_the_formulas() {
    let x = numbers(20, 9);
    let check = |statement: &str, f: &dyn Fn(f64) -> f64| {
        let expected: Vec<f64> = x.iter().map(|&x| f(x)).collect();
        check_close(statement, &result(&format!("%r = {statement}"), &[dense(DType::F64, &[4, 5], &x)]), &expected);
    };
    check("gelu %a", &gelu);
    for name in ["gelu_tanh", "tanh_gelu", "fast_gelu"] {
        check(&format!("{name} %a"), &gelu_tanh);
    }
    check("leaky_relu %a", &|x| if x >= 0.0 { x } else { 0.01 * x });
    check("leaky_relu %a, -2.0", &|x| if x >= 0.0 { x } else { -2.0 * x });
    check("softplus %a", &|x| x.exp().ln_1p());
    check("softplus %a beta(2.0)", &|x| (2.0 * x).exp().ln_1p() / 2.0);
    check("softplus %a, 2.0, 1.0", &|x| if 2.0 * x > 1.0 { x } else { (2.0 * x).exp().ln_1p() / 2.0 });
}

#[test]
fn large_arguments_of_softplus_are_themselves() {
    let x = dense(DType::F32, &[5], &[-200.0, -0.0, 20.5, 200.0, f64::INFINITY]);
    let ln2 = f64::from(std::f32::consts::LN_2);
    check_value("%r = softplus %a", &[x], DType::F32, &[5], &[0.0, ln2, 20.5, 200.0, f64::INFINITY]);
    let nan = result("%r = softplus %a", &[dense(DType::F32, &[1], &[f64::NAN])]);
    assert!(nan.to_f64()[0].is_nan());
}

#[test]
fn gradients_are_slopes() {
    let (x, dy) = (numbers(20, 10), numbers(20, 11));
    let tensor = |values: &[f64]| dense(DType::F64, &[20], values);
    let check = |statement: &str, second: &[f64], f: fn(f64) -> f64| {
        let got = result(&format!("%r = {statement} %a, %b"), &[tensor(&dy), tensor(second)]);
        check_gradient(statement, &got, &x, |x| x.iter().zip(&dy).map(|(&x, dy)| f(x) * dy).sum());
    };
    check("gelu_backward", &x, gelu);
    check("tanh_gelu_backward", &x, gelu_tanh);
    let tanh: Vec<f64> = x.iter().map(|x| x.tanh()).collect();
    check("tanh_backward", &tanh, f64::tanh);
}
