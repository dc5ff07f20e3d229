use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, result, results, strided};
use crate::num::DType::*;
use crate::num::Value;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

const NAN: f64 = f64::NAN;

fn one(x: &HostTensor) -> &[HostTensor] {
    std::slice::from_ref(x)
}

#[test]
fn positions_are_in_order() {
    let x = dense(F32, &[2, 3], &[2.0, -1.0, 0.5, 1.0, 1.0, 0.0]);
    check_value("%0 = argsort %a dim(1) stable", one(&x), I64, &[2, 3], &[1.0, 2.0, 0.0, 2.0, 0.0, 1.0]);
    check_value("%0 = argsort %a dim(0)", one(&x), I64, &[2, 3], &[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    // Equal elements stay in their order both ways.
    let turned = [0.0, 2.0, 1.0, 0.0, 1.0, 2.0];
    check_value("%0 = argsort %a dim(-1) descending stable", one(&x), I64, &[2, 3], &turned);
    let odd = dense(F32, &[5], &[NAN, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY]);
    check_value("%0 = argsort %a dim(0) stable", one(&odd), I64, &[5], &[4.0, 2.0, 3.0, 1.0, 0.0]);
    check_value("%0 = argsort %a dim(0) descending stable", one(&odd), I64, &[5], &[0.0, 1.0, 2.0, 3.0, 4.0]);
    check_value("%0 = argsort %a dim(-1)", &[dense(F32, &[], &[3.0])], I64, &[], &[0.0]);
    check_value("%0 = argsort %a dim(0)", &[counting(F32, &[0])], I64, &[0], &[]);
    check_value("%0 = argsort %a dim(0) stable", &[dense(Bool, &[3], &[1.0, 0.0, 1.0])], I64, &[3], &[1.0, 0.0, 2.0]);
    let wide = HostTensor::from_i64(U64, &[2], &[-1, 5]).unwrap();
    check_value("%0 = argsort %a dim(0)", &[wide], I64, &[2], &[1.0, 0.0]);
    let lies = dense(F32, &[3, 2], &[2.0, 1.0, -1.0, 1.0, 0.5, 0.0]).permuted(&[1, 0]).unwrap();
    assert_eq!(result("%0 = argsort %a dim(1)", &[lies]).strides(), [1, 2]);
    check_refused("%0 = argsort %a dim(1)", &[counting(F32, &[3])], "E0205: argsort: axis 1 of an operand of rank 1");
    check_refused(
        "%0 = argsort %a dim(0)",
        &[counting(C64, &[3])],
        "E0202: argsort: the elements of a c64 have no order",
    );
}

#[test]
fn the_greatest_and_least_are_found() {
    let x = dense(I32, &[2, 4], &[3.0, 9.0, 3.0, 1.0, 7.0, 7.0, 8.0, 7.0]);
    let pair = |statement: &str| {
        let parts = results(statement, one(&x));
        assert_eq!((parts[0].dtype(), parts[1].dtype()), (I32, I64));
        (parts[0].to_f64(), parts[1].to_f64())
    };
    assert_eq!(pair("%0, %1 = topk %a, 2"), (vec![9.0, 3.0, 8.0, 7.0], vec![1.0, 0.0, 2.0, 0.0]));
    assert_eq!(pair("%0, %1 = topk %a, 2 largest(false)"), (vec![1.0, 3.0, 7.0, 7.0], vec![3.0, 0.0, 0.0, 1.0]));
    assert_eq!(pair("%0, %1 = topk %a, 1 dim(0) sorted"), (vec![7.0, 9.0, 8.0, 7.0], vec![1.0, 0.0, 1.0, 1.0]));
    assert_eq!(pair("%n = size %a axis(0)\n%0, %1 = topk %a, %n").0, [9.0, 3.0, 8.0, 7.0]);
    let nan = results("%0, %1 = topk %a, 2", &[dense(F32, &[3], &[1.0, NAN, f64::INFINITY])]);
    assert_eq!(nan[1].to_f64(), [1.0, 2.0]);
    assert!(nan[0].to_f64()[0].is_nan());
    let point = results("%0, %1 = topk %a, 1", &[dense(F32, &[], &[5.0])]);
    assert_eq!((point[0].to_f64(), point[1].to_f64()), (vec![5.0], vec![0.0]));
    let none = results("%0, %1 = topk %a, 0 dim(1)", one(&x));
    assert_eq!((none[0].sizes(), none[1].sizes()), (&[2, 0][..], &[2, 0][..]));
    check_refused("%0, %1 = topk %a, 5", one(&x), "E0213: topk: k is 5, of 4 elements along axis 1");
    check_refused("%0, %1 = topk %a, -1", one(&x), "E0213: topk: k is -1, of 4 elements along axis 1");
}

#[test]
fn equal_elements_come_as_from_a_gpu() {
    let x = dense(I32, &[6], &[2.0, 7.0, 2.0, 9.0, 7.0, 2.0]);
    let places = |statement: &str| results(statement, one(&x)).pop().unwrap().to_f64();
    // First what is greater than the last one kept, then the equal ones, by position.
    assert_eq!(places("%0, %1 = topk %a, 4"), [1.0, 3.0, 4.0, 0.0]);
    assert_eq!(places("%0, %1 = topk %a, 4 sorted"), [3.0, 4.0, 1.0, 0.0]);
    assert_eq!(places("%0 = argsort %a dim(0) descending stable"), [3.0, 1.0, 4.0, 0.0, 2.0, 5.0]);
    let long = counting(I32, &[40]).to_f64().iter().map(|v| v % 2.0).collect::<Vec<_>>();
    let line = dense(I32, &[40], &long);
    let stable = result("%0 = argsort %a dim(0) stable", one(&line)).to_f64();
    assert_eq!(result("%0 = argsort %a dim(0)", one(&line)).to_f64(), stable, "longer lines are stable");
}

#[test]
fn any_layout_is_sorted() {
    crate::property::property(|u| {
        let rank = u.int_in_range(1..=3)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(0..=5)).collect::<arbitrary::Result<_>>()?;
        let dim = u.int_in_range(0..=rank - 1)?;
        let x = strided(u, F32, &sizes)?;
        let (word, down) = if u.arbitrary()? { (" descending", true) } else { ("", false) };
        let sorted = result(&format!("%0 = argsort %a dim({dim}){word} stable"), one(&x));
        let line = |at: &[i64]| -> Vec<(f64, i64)> {
            let place = |i| {
                let mut at = at.to_vec();
                at[dim] = i;
                x.get(&at).as_f64()
            };
            let mut line: Vec<(f64, i64)> = (0..sizes[dim]).map(|i| (place(i), i)).collect();
            line.sort_by(|a, b| if down { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
            line
        };
        let expected = HostTensor::from_fn(I64, &sizes, |at| Value::Int(line(at)[at[dim] as usize].1)).unwrap();
        assert_eq!(sorted.to_f64(), expected.to_f64());
        let k = u.int_in_range(0..=sizes[dim])?;
        let parts = results(&format!("%0, %1 = topk %a, {k} dim({dim}) largest({down}) sorted"), one(&x));
        let mut kept = sizes.clone();
        kept[dim] = k;
        let values = HostTensor::from_fn(F32, &kept, |at| Value::Float(line(at)[at[dim] as usize].0)).unwrap();
        assert_eq!(parts[0].to_f64(), values.to_f64());
        Ok(())
    });
}
