use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, refusal, result, strided};
use crate::num::DType::*;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

fn line(n: i64) -> HostTensor {
    dense(F32, &[n], &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

#[test]
fn elements_are_regrouped_in_row_major_order() {
    let values: Vec<f64> = (0..6).map(f64::from).collect();
    let x = dense(I32, &[2, 3], &values);
    check_value("%0 = reshape [3, 2] %a", std::slice::from_ref(&x), I32, &[3, 2], &values);
    check_value("%0 = reshape [-1] %a", std::slice::from_ref(&x), I32, &[6], &values);
    check_value("%0 = reshape [1, -1, 2] %a", std::slice::from_ref(&x), I32, &[1, 3, 2], &values);
    let turned = x.permuted(&[1, 0]).unwrap();
    check_value("%0 = reshape [6] %a", &[turned], I32, &[6], &[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    check_value("%0 = reshape [] %a", &[line(1)], F32, &[], &[0.0]);
    check_value("%0 = reshape [1, 1] %a", &[dense(F32, &[], &[7.0])], F32, &[1, 1], &[7.0]);
    check_value("%0 = reshape [0, 5] %a", &[counting(F32, &[3, 0])], F32, &[0, 5], &[]);
    check_value("%0 = reshape [0, -1] %a", &[counting(F32, &[3, 0])], F32, &[0, 0], &[]);
}

#[test]
fn an_inferred_extent_is_what_is_left() {
    let x = counting(F32, &[2, 3, 4]);
    for (statement, sizes) in [
        ("%n = size %a axis(0)\n%0 = reshape [%n, -1] %a", vec![2, 12]),
        ("%n = size %a axis(1)\n%0 = reshape [-1, %n] %a", vec![8, 3]),
        ("%n = size %a axis(1)\n%m = mul %n, 2\n%0 = reshape [%m, -1] %a", vec![6, 4]),
        ("%0 = reshape [2, 2, -1, 2] %a", vec![2, 2, 3, 2]),
    ] {
        assert_eq!(result(statement, std::slice::from_ref(&x)).sizes(), sizes);
    }
}

#[test]
fn shapes_that_do_not_fit_are_refused() {
    let x = counting(F32, &[2, 3]);
    let check = |statement: &str, expected: &str| check_refused(statement, std::slice::from_ref(&x), expected);
    check("%0 = reshape [4, 2] %a", "E0204: reshape: the 6 elements of [2, 3] do not fill [4, 2], which has 8");
    check("%0 = reshape [4, -1] %a", "E0204: reshape: the 6 elements of [2, 3] do not fill [4, 1], which has 4");
    check("%0 = reshape [-1, -1] %a", "E0213: reshape: extents 0 and 1 are both -1");
    check("%0 = reshape [-3] %a", "E0213: reshape: extent 0 is -3, which is negative");
    check("%0 = reshape [0, -1] %a", "E0204: reshape: the 6 elements of [2, 3] do not fill [0, 0], which has 0");
    check("%0 = reshape [1.5] %a", "E0202: reshape: extent 0 is a f64, not an integer");
    check("%0 = flatten %a start(1) end(0)", "E0205: flatten: start 1 comes after end 0");
    check("%0 = repeat %a counts(2)", "E0203: repeat: 1 counts for an operand of rank 2");
    let far = "E0307: repeat: the size mul(3, 4611686018427387904) overflows i64";
    assert_eq!(refusal("%0 = repeat %a counts(1, 4611686018427387904)", std::slice::from_ref(&x)), far);
    check("%0 = repeat %a counts(2, -1)", "E0213: repeat: count 1 is -1, which is negative");
}

#[test]
fn axes_merge() {
    let x = counting(F32, &[2, 3, 4]);
    let flat = |statement: &str| result(statement, std::slice::from_ref(&x)).sizes().to_vec();
    assert_eq!(flat("%0 = flatten %a"), [24]);
    assert_eq!(flat("%0 = flatten %a start(1)"), [2, 12]);
    assert_eq!(flat("%0 = flatten %a start(-3) end(-2)"), [6, 4]);
    assert_eq!(flat("%0 = flatten %a start(1) end(1)"), [2, 3, 4]);
    assert_eq!(result("%0 = flatten %a", &[dense(F32, &[], &[1.0])]).sizes(), [1]);
}

#[test]
fn copies_follow_each_other() {
    let x = dense(U8, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let expected = [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0];
    check_value("%0 = repeat %a counts(2, 2)", std::slice::from_ref(&x), U8, &[4, 4], &expected);
    check_value("%0 = repeat %a counts(2, 1, 0)", std::slice::from_ref(&x), U8, &[2, 2, 0], &[]);
    check_value("%0 = repeat %a counts(2, 1, 1)", &[x], U8, &[2, 2, 2], &[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    check_value("%0 = repeat %a counts(3)", &[dense(Bool, &[1], &[1.0])], Bool, &[3], &[1.0; 3]);
}

#[test]
fn any_layout_reshapes_and_repeats_like_its_dense_copy() {
    crate::property::property(|u| {
        let rank = u.int_in_range(0..=4)?;
        let sizes: Vec<i64> =
            (0..rank).map(|_| u.choose(&[1, 2, 3, 4, 1, 2, 0]).copied()).collect::<arbitrary::Result<_>>()?;
        let x = strided(u, F32, &sizes)?;
        // The sizes split and merged again, in order.
        let mut to = Vec::new();
        for &size in &sizes {
            match u.int_in_range(0..=3)? {
                0 if size == 4 => to.extend([2, 2]),
                1 => to.extend([size, 1]),
                2 if !to.is_empty() => *to.last_mut().unwrap() *= size,
                _ => to.push(size),
            }
        }
        let shape: Vec<String> = to.iter().map(i64::to_string).collect();
        let out = result(&format!("%0 = reshape [{}] %a", shape.join(", ")), std::slice::from_ref(&x));
        assert_eq!((out.sizes(), out.to_f64()), (&to[..], x.to_f64()));
        let counts: Vec<i64> = (0..rank).map(|_| u.int_in_range(0..=2)).collect::<arbitrary::Result<_>>()?;
        let text: Vec<String> = counts.iter().map(i64::to_string).collect();
        let out = result(&format!("%0 = repeat %a counts({})", text.join(", ")), std::slice::from_ref(&x));
        let expected = HostTensor::from_fn(F32, out.sizes(), |index| {
            let own: Vec<i64> = index.iter().zip(&sizes).map(|(i, n)| i % n).collect();
            x.get(&own)
        });
        assert_eq!(out.to_f64(), expected.unwrap().to_f64());
        Ok(())
    });
}
