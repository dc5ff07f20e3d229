use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, result, results, strided};
use crate::num::DType::*;
use crate::num::Value;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

fn one(x: &HostTensor) -> &[HostTensor] {
    std::slice::from_ref(x)
}

#[test]
fn prefixes_are_combined_along_an_axis() {
    let x = dense(F32, &[2, 3], &[1.0, 3.0, 2.0, 4.0, -1.0, 0.5]);
    check_value("%0 = cumsum %a dim(1)", one(&x), F32, &[2, 3], &[1.0, 4.0, 6.0, 4.0, 3.0, 3.5]);
    check_value("%0 = cumsum %a dim(-2)", one(&x), F32, &[2, 3], &[1.0, 3.0, 2.0, 5.0, 2.0, 2.5]);
    check_value("%0 = cumprod %a dim(1)", one(&x), F32, &[2, 3], &[1.0, 3.0, 6.0, 4.0, -4.0, -2.0]);
    check_value("%0 = cummax %a dim(1)", one(&x), F32, &[2, 3], &[1.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
    check_value("%0 = cummin %a dim(1)", one(&x), F32, &[2, 3], &[1.0, 1.0, 1.0, 4.0, -1.0, -1.0]);
    check_value("%0 = cumsum %a dim(0)", &[counting(F32, &[0, 2])], F32, &[0, 2], &[]);
}

#[test]
fn from_the_last_to_the_first() {
    let x = dense(F32, &[2, 3], &[1.0, 3.0, 2.0, 4.0, -1.0, 0.5]);
    check_value("%0 = cumsum %a dim(1) reverse", one(&x), F32, &[2, 3], &[6.0, 5.0, 2.0, 3.5, -0.5, 0.5]);
    check_value("%0 = cumsum %a dim(0) reverse", one(&x), F32, &[2, 3], &[5.0, 2.0, 2.5, 4.0, -1.0, 0.5]);
    check_value("%0 = cumprod %a dim(1) reverse", one(&x), F32, &[2, 3], &[6.0, 6.0, 2.0, -2.0, -0.5, 0.5]);
    check_value("%0 = cummax %a dim(1) reverse", one(&x), F32, &[2, 3], &[3.0, 3.0, 2.0, 4.0, 0.5, 0.5]);
    check_value("%0 = cummin %a dim(-1) reverse", one(&x), F32, &[2, 3], &[1.0, 2.0, 2.0, -1.0, -1.0, 0.5]);
    check_value("%0 = cumsum %a dim(0) reverse", &[dense(I8, &[3], &[100.0; 3])], I8, &[3], &[44.0, -56.0, 100.0]);
    let half = dense(F16, &[4], &[1.0, 1.0, 1.0, 2048.0]);
    check_value("%0 = cumsum %a dim(0) reverse", &[half], F16, &[4], &[2052.0, 2050.0, 2048.0, 2048.0]);
    check_value("%0 = cumsum %a dim(1) reverse", &[counting(F32, &[2, 0])], F32, &[2, 0], &[]);
}

#[test]
fn types_stay_and_prefixes_are_rounded_once() {
    check_value("%0 = cumsum %a dim(0)", &[dense(I8, &[3], &[100.0; 3])], I8, &[3], &[100.0, -56.0, 44.0]);
    check_value("%0 = cumsum %a dim(0)", &[dense(Bool, &[3], &[0.0, 1.0, 1.0])], Bool, &[3], &[0.0, 1.0, 1.0]);
    check_value("%0 = cumprod %a dim(0)", &[dense(Bool, &[3], &[1.0, 0.0, 1.0])], Bool, &[3], &[1.0, 0.0, 0.0]);
    let half = dense(F16, &[4], &[2048.0, 1.0, 1.0, 1.0]);
    check_value("%0 = cumsum %a dim(0)", &[half], F16, &[4], &[2048.0, 2048.0, 2050.0, 2052.0]);
    let nan = result("%0 = cummax %a dim(0)", &[dense(F32, &[3], &[1.0, f64::NAN, 2.0])]).to_f64();
    assert!(nan[0] == 1.0 && nan[1].is_nan() && nan[2].is_nan(), "{nan:?}");
    let mut parts = [(1.0, 1.0), (0.0, 2.0)].into_iter();
    let pair = HostTensor::from_fn(C64, &[2], |_| parts.next().map(|(re, im)| Value::Complex(re, im)).unwrap());
    let product = result("%0 = cumprod %a dim(0)", &[pair.unwrap()]);
    assert_eq!(product.values().collect::<Vec<_>>(), [Value::Complex(1.0, 1.0), Value::Complex(-2.0, 2.0)]);
}

#[test]
fn only_the_neutral_start_is_possible() {
    let x = dense(F32, &[2], &[1.0, 2.0]);
    check_value("%0 = cumsum %a dim(0) init(0.0)", one(&x), F32, &[2], &[1.0, 3.0]);
    check_value("%0 = cummax %a dim(0) init(-inf)", one(&x), F32, &[2], &[1.0, 2.0]);
    check_refused("%0 = cumsum %a dim(0) init(1)", one(&x), "E0213: cumsum: starts with 1.0");
    check_refused("%0 = cumsum %a dim(0)", &[dense(F32, &[], &[1.0])], "E0205: cumsum: axis 0 of an operand of rank 0");
    check_refused("%0 = cummax %a dim(0)", &[counting(C64, &[2])], "E0202: cummax: not defined on c64");
}

#[test]
fn moments() {
    let x = dense(F16, &[2, 2], &[1.0, 3.0, 5.0, 5.0]);
    let parts = results("%0, %1, %2 = welford %a axes(1)", one(&x));
    assert_eq!(parts.iter().map(HostTensor::to_f64).collect::<Vec<_>>(), [[2.0, 5.0], [2.0, 0.0], [2.0, 2.0]]);
    assert_eq!(parts.iter().map(HostTensor::dtype).collect::<Vec<_>>(), [F32, F32, Index]);
    let all = results("%0, %1, %2 = welford %a axes(0, 1)", one(&x));
    assert_eq!(all.iter().map(|part| part.to_f64()[0]).collect::<Vec<_>>(), [3.5, 11.0, 4.0]);
    check_refused("%0, %1, %2 = welford %a axes(2)", one(&x), "E0205: welford: axis 2 of an operand of rank 2");
    check_refused("%0, %1, %2 = welford %a axes(0)", &[counting(I32, &[2])], "E0202: welford: not defined on i32");
}

#[test]
fn any_layout_is_scanned() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=4)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(0..=4)).collect::<arbitrary::Result<_>>()?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let x = strided(u, F64, &sizes)?;
        for (name, combine) in [
            ("cumsum", (|a, b| a + b) as fn(f64, f64) -> f64),
            ("cumprod", |a, b| a * b),
            ("cummin", f64::min),
            ("cummax", f64::max),
        ] {
            let out = result(&format!("%0 = {name} %a dim({dim})"), one(&x));
            let expected = HostTensor::from_fn(F64, &sizes, |at| {
                let along = (0..=at[dim]).map(|i| {
                    let mut at = at.to_vec();
                    at[dim] = i;
                    x.get(&at).as_f64()
                });
                Value::Float(along.reduce(combine).unwrap())
            });
            assert_eq!(out.to_f64(), expected.unwrap().to_f64(), "{name}");
        }
        Ok(())
    });
}
