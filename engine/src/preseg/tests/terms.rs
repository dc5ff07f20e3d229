//! Reductions over a few positions.

use super::{arguments, check, only, presegment, whole};
use crate::refeval;
use crate::tensor::HostTensor;
use crate::text;

#[test]
fn a_sum_of_few_that_is_reduced_is_of_its_terms() {
    check(
        &["terms"],
        "%x: f32[4, 2, 5], %y: f32[4, 2, 5]",
        &[&[4, 2, 5], &[4, 2, 5]],
        "%1 = mul %x, %y\n%2 = sum %1 axes(1)\n%3 = sqrt %2\n%4 = max %3 axes(0, 1)\nreturn %4",
        "%0 = slice %x starts(0, 0, 0) ends(4, 1, 5) manual_normalization\n\
         %5 = slice %y starts(0, 0, 0) ends(4, 1, 5) manual_normalization\n\
         %6 = mul %0, %5\n\
         %7 = slice %x starts(0, 1, 0) ends(4, 2, 5) manual_normalization\n\
         %8 = slice %y starts(0, 1, 0) ends(4, 2, 5) manual_normalization\n\
         %9 = mul %7, %8\n%10 = sum_of %6, %9\n%2 = squeeze %10 flags(false, true, false)\n%3 = sqrt %2\n\
         %4 = max %3 axes(0, 1)\nreturn %4",
    );
}

#[test]
fn others_combine_two_by_two() {
    check(
        &["terms"],
        "%a: i32[4, 2], %b: i32[3, 2]",
        &[&[4, 2], &[3, 2]],
        "%1 = broadcast %a flags(false, true, false)\n%2 = broadcast %b flags(true, false, false)\n%3 = sub %1, %2\n\
         %4 = max %3 axes(2)\n%5 = min %4 axes(1) dtype(i32)\nreturn %5",
        "%0 = slice %a starts(0, 0) ends(4, 1) manual_normalization\n%6 = broadcast %0 flags(false, true, false)\n\
         %7 = slice %b starts(0, 0) ends(3, 1) manual_normalization\n%8 = broadcast %7 flags(true, false, false)\n\
         %9 = sub %6, %8\n\
         %10 = slice %a starts(0, 1) ends(4, 2) manual_normalization\n%11 = broadcast %10 flags(false, true, false)\n\
         %12 = slice %b starts(0, 1) ends(3, 2) manual_normalization\n%13 = broadcast %12 flags(true, false, false)\n\
         %14 = sub %11, %13\n%15 = maximum %9, %14\n%4 = squeeze %15 flags(false, false, true)\n\
         %5 = min %4 axes(1) dtype(i32)\nreturn %5",
    );
}

#[test]
fn what_is_stacked_for_a_sum_is_computed_before_it_is_stacked() {
    check(
        &["terms"],
        "%a: f32[?], %b: f32[?]",
        &[&[5], &[5]],
        "%1 = neg %a\n%2 = broadcast %1 flags(false, true)\n%3 = broadcast %b flags(false, true)\n\
         %4 = cat %2, %3 dim(1)\n%5 = mul %4, %4\n%6 = sum %5 axes(1)\n%7 = broadcast %6 flags(false, true)\n\
         %8 = mul %4, %7\nreturn %8",
        "%1 = neg %a\n%2 = broadcast %1 flags(false, true)\n%3 = broadcast %b flags(false, true)\n\
         %0 = mul %2, %2\n%9 = mul %3, %3\n%10 = sum_of %0, %9\n%6 = squeeze %10 flags(false, true)\n\
         %7 = broadcast %6 flags(false, true)\n%5 = mul %2, %7\n%11 = mul %3, %7\n%8 = cat %5, %11 dim(1)\nreturn %8",
    );
}

#[test]
fn rows_that_are_held_stay_sums() {
    let held = "%1 = mul %x, %x\n%2 = sum %1 axes(1)\n%3 = broadcast %2 flags(false, true)\n%4 = mul %x, %3\n\
                %5 = sum %4 axes(0)\nreturn %4, %5";
    let same_axis = "%1 = max %x axes(1)\n%2 = broadcast %1 flags(false, true)\n%3 = sub %x, %2\n%4 = exp %3\n\
                     %5 = sum %4 axes(1)\nreturn %5";
    let returned = "%1 = mul %x, %x\n%2 = sum %1 axes(1)\n%3 = sum %2 axes(0)\nreturn %2, %3";
    for kept in [held, same_axis, returned] {
        check(&["terms"], "%x: f32[?, ?]", &[&[5, 3]], kept, kept);
    }
    let long = "%1 = mul %x, %x\n%2 = sum %1 axes(1)\n%3 = sum %2 axes(0)\nreturn %3";
    for size in [1, 9] {
        check(&["terms"], "%x: f32[?, ?]", &[&[5, size]], long, long);
    }
}

#[test]
fn terms_are_added_as_sums_are() {
    let body =
        "%1 = mul %x, %x\n%2 = mul %1, %x\n%3 = sum %2 axes(1)\n%4 = truediv 1.0, %3\n%5 = max %4 axes(0)\nreturn %5";
    let fusion = text::parse_one(&whole("%x: f32[?, ?]", body)).expect("it reads");
    for sizes in [[1, 2], [7, 3], [0, 8]] {
        let mut args = arguments(&fusion, &[&sizes]);
        if let Some(crate::tensor::Arg::Tensor(x)) = args.first_mut() {
            let special = [-0.0, 1e-30, f64::NAN, f64::INFINITY, 3e38, -3e38, 1.5];
            let element = |at: &[i64]| crate::num::Value::Float(special[(at[0] * 3 + at[1]) as usize % special.len()]);
            *x = HostTensor::from_fn(x.dtype(), &sizes, element).expect("it fits");
        }
        let (fired, made) = presegment(&only(&["terms"]), &fusion, &args).expect("passes do not fail");
        assert_eq!(fired.is_empty(), sizes.contains(&0), "{sizes:?}");
        let shown = |fusion| {
            let results = refeval::evaluate(fusion, &args).expect("it evaluates");
            results[0].values().map(|value| value.shown(results[0].dtype()).to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&fusion), shown(&made));
    }
}

#[test]
fn neighbours_in_rows_that_are_reduced_are_of_neighbours_in_memory() {
    check(
        &["regroup", "slices"],
        "%x: f32[?, 6]",
        &[&[5, 6]],
        "%1 = max %x axes(1)\n%2 = broadcast %1 flags(false, true)\n%3 = sub %x, %2\n%4 = reshape [5, 3, 2] %3\n\
         %5 = select %4, 0 dim(2)\n%6 = select %4, 1 dim(2)\n%7 = mul %5, %6\nreturn %7",
        "%s0 = size %x axis(0)\n%0 = reshape [%s0, 3, 2] %x\n%1 = max %0 axes(1, 2)\n\
         %2 = broadcast %1 flags(false, true, true)\n\
         %4 = slice %0 starts(0, 0, 0) ends(%s0, 3, 1) manual_normalization\n%8 = sub %4, %2\n\
         %5 = squeeze %8 flags(false, false, true)\n\
         %9 = slice %0 starts(0, 0, 1) ends(%s0, 3, 2) manual_normalization\n%10 = sub %9, %2\n\
         %6 = squeeze %10 flags(false, false, true)\n%7 = mul %5, %6\nreturn %7",
    );
}

#[test]
fn rows_are_looked_up_where_an_index_is_spread_over_them() {
    check(
        &["lookups"],
        "%x: bf16[?, ?], %i: i64[?, 1]",
        &[&[7, 5], &[3, 1]],
        "%j = remainder %i, 7\n%1 = expand [3, 5] %j\n%2 = gather %x, %1 dim(0)\n%3 = cast %2 f32\nreturn %3",
        "%j = remainder %i, 7\n%0 = squeeze %j flags(false, true)\n%2 = index_select %x, %0 dim(0)\n%3 = cast %2 f32\nreturn %3",
    );
}

#[test]
fn views_of_inputs_that_are_written_twice_are_one() {
    check(
        &["twins"],
        "%x: f32[?, 2]",
        &[&[5, 2]],
        "%1 = select %x, 0 dim(1)\n%2 = neg %1\n%3 = select %x, 0 dim(1)\n%4 = exp %3\nreturn %2, %4",
        "%1 = select %x, 0 dim(1)\n%2 = neg %1\n%4 = exp %1\nreturn %2, %4",
    );
}
