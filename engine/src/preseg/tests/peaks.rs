//! The greatest probability of a row.

use super::{check, check_values, only, presegment, whole};
use crate::num::{DType, Value};
use crate::tensor::{Arg, HostTensor};
use crate::text;

const SHARES: &str = "%0 = max %x axes(1)\n%1 = broadcast %0 flags(false, true)\n%2 = sub %x, %1\n%3 = exp %2\n\
                      %4 = sum %3 axes(1)\n%5 = broadcast %4 flags(false, true)\n";

/// What becomes of the maximum of what some steps make.
#[track_caller]
fn check_peak(steps: &str, peak: &str) {
    let before = format!("{SHARES}{steps}%m = max %p axes(1)\nreturn %m, %p");
    let after = format!("{SHARES}{steps}{peak} flags(false, true)\nreturn %m, %p");
    check(&["peaks"], "%x: f32[?, ?]", &[&[3, 40]], &before, &after);
}

#[test]
fn the_greatest_share_is_that_of_the_greatest_element() {
    check_peak(
        "%6 = reciprocal %5\n%p = mul %3, %6\n",
        "%7 = sub %1, %1\n%8 = exp %7\n%9 = mul %8, %6\n%m = squeeze %9",
    );
    check_peak("%p = truediv %3, %5\n", "%6 = sub %1, %1\n%7 = exp %6\n%8 = truediv %7, %5\n%m = squeeze %8");
    check_peak(
        "%6 = div %3, %5\n%7 = mul %6, 448.0\n%8 = cast %7 bf16\n%9 = cast %8 f32\n%p = abs %9\n",
        "%10 = sub %1, %1\n%11 = exp %10\n%12 = div %11, %5\n%13 = mul %12, 448.0\n%14 = cast %13 bf16\n\
         %15 = cast %14 f32\n%16 = abs %15\n%m = squeeze %16",
    );
    // Of a reciprocal that got its axis of size 1 behind; the sum's goes, and leaves its name.
    let spread = |rest: &str| SHARES.replace("%5 = broadcast %4 flags(false, true)\n", rest);
    let steps = "%6 = reciprocal %4\n%7 = broadcast %6 flags(false, true)\n%p = mul %3, %7\n";
    let peak = "%5 = sub %1, %1\n%8 = exp %5\n%9 = mul %8, %7\n%m = squeeze %9 flags(false, true)\n";
    check(
        &["peaks"],
        "%x: f32[?, ?]",
        &[&[3, 40]],
        &spread(&format!("{steps}%m = max %p axes(1)\nreturn %m, %p")),
        &spread(&format!("{steps}{peak}return %m, %p")),
    );
    // The same of logarithms, which are not above 0.
    check_peak("%6 = log %5\n%p = sub %2, %6\n", "%7 = sub %1, %1\n%8 = sub %7, %6\n%m = squeeze %8");
}

#[test]
fn what_may_fall_keeps_its_maximum() {
    // Least ones, over other axes, of what is below another row's maximum, by a number that may be negative or turns the order,
    // by a sum of something else, and of 8 bits, where what is too large is NaN.
    for end in [
        "%p = div %3, %5\n%m = min %p axes(1)",
        "%p = div %3, %5\n%m = max %p axes(0)",
        "%p = mul %3, -2.0\n%m = max %p axes(1)",
        "%p = mul %3, %s\n%m = max %p axes(1)",
        "%p = sub %3, %5\n%m = max %p axes(1)",
        "%p = div %2, %5\n%m = max %p axes(1)",
        "%6 = mul %3, 1.0\n%7 = reciprocal %5\n%p = mul %6, %7\n%m = max %p axes(1)",
        "%6 = mul %3, 1000.0\n%p = cast %6 f8e4m3fn\n%m = max %p axes(1)",
        "%6 = log %5\n%7 = sub %2, %6\n%p = cast %7 bf16\n%m = max %p axes(1)",
    ] {
        let kept = format!("{SHARES}{end}\nreturn %m, %p");
        let fusion = text::parse_one(&whole("%x: f32[?, ?], %s: f32", &kept)).expect("it reads");
        let x = HostTensor::from_fn(DType::F32, &[3, 5], |at| Value::Float((at[0] * 3 - at[1]) as f64));
        let args = [Arg::Tensor(x.expect("it fits")), Arg::Scalar(Value::Float(0.5))];
        let (fired, _) = presegment(&only(&["peaks"]), &fusion, &args).expect("passes do not fail");
        assert!(fired.is_empty(), "{kept}");
    }
    let empty = format!("{SHARES}%p = div %3, %5\n%m = max %p axes(1)\nreturn %m, %p");
    check(&["peaks"], "%x: f32[?, ?]", &[&[3, 0]], &empty, &empty);
}

#[test]
fn what_is_not_finite_stays() {
    let [nan, inf] = [f64::NAN, f64::INFINITY];
    let rows =
        [[nan, 1.0, 2.0], [inf, 1.0, -inf], [-inf, -inf, -inf], [-inf, 3.0, 3.0], [inf, inf, nan], [3e38, -3e38, 0.0]];
    for dtype in [DType::F32, DType::F16, DType::F64] {
        for end in ["%p = div %e, %s\n", "%r = reciprocal %s\n%p = mul %e, %r\n", "%l = log %s\n%p = sub %d, %l\n"] {
            let text = whole(
                &format!("%x: {dtype}[?, ?]"),
                &format!(
                    "%f = cast %x f32\n%g = max %f axes(1) keepdim\n%d = sub %f, %g\n%e = exp %d\n%s = sum %e axes(1) \
                     keepdim\n{end}%m = max %p axes(1)\nreturn %m, %p"
                ),
            );
            let fusion = text::parse_one(&text).expect("it reads");
            let x = HostTensor::from_fn(dtype, &[6, 3], |at| Value::Float(rows[at[0] as usize][at[1] as usize]));
            let args = [Arg::Tensor(x.expect("it fits"))];
            let (fired, made) = presegment(&only(&["peaks"]), &fusion, &args).expect("passes do not fail");
            assert_eq!(fired, ["peaks"], "{text}");
            check_values(&fusion, &made, &args);
        }
    }
}
