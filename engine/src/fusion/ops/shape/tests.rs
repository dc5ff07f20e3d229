use crate::fusion::ops::checks::{check_refused, check_value, counting, dense, result, strided};
use crate::num::DType::*;
use crate::tensor::HostTensor;
use arbtest::arbitrary;

fn one(x: &HostTensor) -> &[HostTensor] {
    std::slice::from_ref(x)
}

#[test]
fn axes_are_dropped() {
    let x = dense(F32, &[1, 2, 1], &[1.0, 2.0]);
    for statement in [
        "%0 = squeeze %a dims(0, 2)",
        "%0 = squeeze %a dims(-1, 0, 2)",
        "%0 = squeeze %a flags(true, false, true)",
        "%0 = squeeze %a dims(0, 2) squeeze_expanded",
    ] {
        check_value(statement, one(&x), F32, &[2], &[1.0, 2.0]);
    }
    check_value("%0 = squeeze %a dims()", one(&x), F32, &[1, 2, 1], &[1.0, 2.0]);
    check_refused("%0 = squeeze %a dims(1)", one(&x), "E0209: squeeze: axis 1 is not a broadcast axis");
    check_refused("%0 = squeeze %a dims(3)", one(&x), "E0205: squeeze: axis 3 of an operand of rank 3");
    check_refused("%0 = squeeze %a", one(&x), "E0206: squeeze: needs either `dims(...)` or `flags(...)`");
    check_refused("%0 = squeeze %a flags(true)", one(&x), "E0203: squeeze: 1 flags for an operand of rank 3");
    // An axis that could have different elements is no expanded one.
    check_refused(
        "%0 = squeeze %a dims(1) squeeze_expanded",
        one(&x),
        "E0209: squeeze: axis 1 is not a broadcast axis",
    );
}

#[test]
fn expanded_axes_are_dropped_when_asked_for() {
    let x = dense(F32, &[1, 2], &[1.0, 2.0]);
    for before in [
        "%e = expand [3, 2] %a\n",
        "%n = size %a axis(1)\n%e = expand [%n, 2] %a\n",
        "%i = expand [3, 2] %a\n%e = neg %i\n",
    ] {
        let sign = if before.contains("neg") { -1.0 } else { 1.0 };
        let statement = format!("{before}%0 = squeeze %e dims(0) squeeze_expanded");
        check_value(&statement, one(&x), F32, &[2], &[sign, 2.0 * sign]);
    }
    let moved = "%i = expand [3, 2] %a\n%p = permute %i dims(1, 0)\n%e = broadcast %p flags(false, true, false)\n";
    check_value(&format!("{moved}%0 = squeeze %e dims(1, 2) squeeze_expanded"), one(&x), F32, &[2], &[1.0, 2.0]);
    check_refused(
        "%e = expand [3, 2] %a\n%0 = squeeze %e dims(0)",
        one(&x),
        "E0209: squeeze: axis 0 is not a broadcast axis",
    );
}

#[test]
fn an_axis_whose_size_is_open_is_no_expanded_one() {
    // As long as the result, the reshaped axis has elements of its own.
    let (x, n) = (counting(F32, &[6]), counting(F32, &[3]));
    let open = "%n = size %b axis(0)\n%r = reshape [%n, 2] %a\n%e = expand [%n, 2] %r\n";
    let statement = format!("{open}%0 = squeeze %e dims(0) squeeze_expanded");
    check_refused(&statement, &[x, n], "E0209: squeeze: axis 0 is not a broadcast axis");
    // Of size 1 it is dropped.
    check_value(&statement, &[dense(F32, &[2], &[1.0, 2.0]), counting(F32, &[1])], F32, &[2], &[1.0, 2.0]);
}

#[test]
fn axes_are_placed_and_expanded() {
    let x = dense(F32, &[2], &[1.0, 2.0]);
    check_value("%0 = broadcast_in_dim [2, 3] %a dims(0)", one(&x), F32, &[2, 3], &[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
    check_value("%0 = broadcast_in_dim [2, 2] %a dims(-1)", one(&x), F32, &[2, 2], &[1.0, 2.0, 1.0, 2.0]);
    check_value("%0 = broadcast_in_dim [1, -1] %a dims(1)", one(&x), F32, &[1, 2], &[1.0, 2.0]);
    let s = "%n = size %a axis(0)\n";
    let wide = [1.0, 2.0, 1.0, 2.0];
    check_value(&format!("{s}%0 = broadcast_in_dim [%n, 1, %n] %a dims(2)"), one(&x), F32, &[2, 1, 2], &wide);
    assert_eq!(result("%0 = broadcast_in_dim [2, 3] %a dims(0)", one(&x)).strides(), [1, 0]);
    check_value("%0 = expand [2, -1] %a", one(&x), F32, &[2, 2], &wide);
    let one_row = dense(F32, &[1], &[4.0]);
    check_value("%0 = broadcast_in_dim [3] %a dims(0)", &[one_row], F32, &[3], &[4.0; 3]);
    check_refused(
        "%0 = broadcast_in_dim [2, 3] %a dims(0, 1)",
        one(&x),
        "E0203: broadcast_in_dim: 2 positions for an operand of rank 1",
    );
    check_refused(
        "%0 = broadcast_in_dim [2, 3, 4] %b dims(1, -2)",
        &[x.clone(), counting(F32, &[3, 4])],
        "E0205: broadcast_in_dim: axis -2 is named twice",
    );
    check_refused("%0 = expand [] %a", one(&x), "E0203: expand: 0 extents for an operand of rank 1");
}

#[test]
fn copies_keep_their_order() {
    crate::property::property(|u| {
        let rank = u.int_in_range(0..=4)?;
        let sizes: Vec<i64> = (0..rank).map(|_| u.int_in_range(0..=3)).collect::<arbitrary::Result<_>>()?;
        let x = strided(u, F32, &sizes)?;
        for statement in ["%0 = segment_set %a", "%0 = set %a", "%0 = triu %a"] {
            if rank >= 2 || !statement.contains("triu") {
                let out = result(statement, one(&x));
                assert_eq!(out.sizes(), sizes);
                assert!(statement.contains("triu") || out.to_f64() == x.to_f64());
            }
        }
        Ok(())
    });
}
