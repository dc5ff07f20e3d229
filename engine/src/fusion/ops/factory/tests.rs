use crate::fusion::ops::checks::{check_refused, check_value, counting};
use crate::fusion::{decompose, decomposes};
use crate::num::DType::*;
use crate::refeval::evaluate;
use crate::text::parse_one;

#[test]
fn numbers_count_up_by_a_step() {
    check_value("%0 = iota 4", &[], I64, &[4], &[0.0, 1.0, 2.0, 3.0]);
    check_value("%0 = iota 3, 5, -2 dtype(i32)", &[], I32, &[3], &[5.0, 3.0, 1.0]);
    check_value("%0 = iota 3, 0, 1", &[], I64, &[3], &[0.0, 1.0, 2.0]);
    check_value("%0 = iota 3, 0.5, 0.25 dtype(f64)", &[], F64, &[3], &[0.5, 0.75, 1.0]);
    check_value("%0 = iota 3 step(100) dtype(i8)", &[], I8, &[3], &[0.0, 100.0, -56.0]);
    // 2049 lies between two neighbours of f16.
    check_value("%0 = iota 2, 2048 dtype(f16)", &[], F16, &[2], &[2048.0, 2048.0]);
    check_value("%n = size %a axis(0)\n%0 = iota %n, 1", &[counting(F32, &[2])], I64, &[2], &[1.0, 2.0]);
    check_value("%0 = iota 0", &[], I64, &[0], &[]);
    check_refused("%0 = iota 3 step(0)", &[], "E0213: iota: the step is 0");
    check_refused("%0 = iota 3, inf dtype(f32)", &[], "E0213: iota: the start is inf");
    check_refused("%0 = iota 3, 0.5", &[], "E0106: iota: 0.5 is not a number of i64");
    check_refused("%0 = iota 3 dtype(bool)", &[], "E0202: iota: not defined on bool");
    check_refused("%0 = iota -1", &[], "E0204: iota: axis 0 of the result has the negative extent -1");
}

#[test]
fn matrices_of_one_and_zero() {
    check_value("%0 = eye 2 f32", &[], F32, &[2, 2], &[1.0, 0.0, 0.0, 1.0]);
    check_value("%0 = eye 2 cols(3) i32", &[], I32, &[2, 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    check_value("%0 = eye 0 cols(3) bool", &[], Bool, &[0, 3], &[]);
    check_value("%0 = zeros [2] bf16", &[], BF16, &[2], &[0.0; 2]);
    check_value("%0 = ones [] bool", &[], Bool, &[], &[1.0]);
    let x = [counting(I32, &[2, 1])];
    check_value("%0 = full_like %a, 7", &x, I32, &[2, 1], &[7.0; 2]);
    check_value("%0 = full_like %a, 0.5 dtype(f64)", &x, F64, &[2, 1], &[0.5; 2]);
    check_value("%0 = zeros_like %a", &x, I32, &[2, 1], &[0.0; 2]);
    check_value("%0 = ones_like %a", &x, I32, &[2, 1], &[1.0; 2]);
}

#[test]
fn ranges_end_before_their_end() {
    check_value("%0 = arange 0, 4", &[], I64, &[4], &[0.0, 1.0, 2.0, 3.0]);
    check_value("%0 = arange 7, 0, -3 dtype(i32)", &[], I32, &[3], &[7.0, 4.0, 1.0]);
    check_value("%0 = arange 6, 0, -3", &[], I64, &[2], &[6.0, 3.0]);
    check_value("%0 = arange 3, 3", &[], I64, &[0], &[]);
    check_value("%0 = arange 3, 0", &[], I64, &[0], &[]);
    // Against the step's direction, by less than a step.
    check_value("%0 = arange 1, 0, 2", &[], I64, &[0], &[]);
    check_value("%0 = arange 0, 1, -2", &[], I64, &[0], &[]);
    check_value("%n = size %a axis(0)\n%0 = arange 4, %n, 2", &[counting(F32, &[3])], I64, &[0], &[]);
    check_value("%n = size %a axis(0)\n%0 = arange 8, %n, -2", &[counting(F32, &[3])], I64, &[3], &[8.0, 6.0, 4.0]);
    check_value("%0 = arange 0, 1, 0.25 dtype(f32)", &[], F32, &[4], &[0.0, 0.25, 0.5, 0.75]);
    check_value("%n = size %a axis(0)\n%0 = arange 1, %n", &[counting(F32, &[3])], I64, &[2], &[1.0, 2.0]);
    check_refused("%0 = arange 0, 3, 0", &[], "E0213: arange: the step is 0");
    check_refused(
        "%0 = arange -9223372036854775808, 9223372036854775807",
        &[],
        "E0213: arange: the numbers from -9223372036854775808 to 9223372036854775807 are too many to count",
    );
}

#[test]
fn kernels_see_arithmetic_on_indices() {
    for statement in [
        "iota 5, 3, -2",
        "iota 5 step(100) dtype(i8)",
        "iota 70, 0.1, 0.3 dtype(f32)",
        "iota 2049, 1.5 dtype(bf16)",
        "iota 1",
        "iota 0",
        "eye 3 f32",
        "eye 3 cols(1) bool",
        "eye 1 cols(4) i32",
    ] {
        let fusion = parse_one(&format!("fusion @f() {{\n  %0 = {statement}\n  return %0\n}}\n")).unwrap();
        let steps = decompose(&fusion).unwrap().fusion;
        assert!(!decomposes(&steps) && decomposes(&fusion), "{statement}");
        let [whole, parts] = [&fusion, &steps].map(|fusion| evaluate(fusion, &[]).unwrap().remove(0));
        assert_eq!(whole, parts, "{statement}");
    }
}
