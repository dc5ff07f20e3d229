//! Which form a function gets, by what becomes of its value.

use super::approximate;
use crate::kernel::{Kernel, parse, print, verify};
use crate::num::ApproxOp;

/// Statements after `v` was read from the input, on an output of a type.
fn kernel(out: &str, body: &str) -> Kernel {
    let text = format!(
        "kernel k index i32 {{
           param n: i32 = size(0, 0)
           param k: f32 = scalar(1)
           param *x = input(0)
           param *y = output(0)
           param *w = workspace
           global x: f32[n] align 4
           global y: {out}[n] align 8
           global w: f32[n] align 4
           shared s: f32[64] align 16
           local a: f32[4] align 16
           launch grid (1, 1, 1) block (64, 1, 1) max_threads 64 min_blocks 1
           let v: f32 = load x[threadIdx.x]
           {body}
         }}"
    );
    let kernel = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    kernel
}

/// The approximations in a kernel after the pass, in the order of the text.
#[track_caller]
fn check(out: &str, body: &str, expected: &[ApproxOp]) -> Kernel {
    let mut kernel = kernel(out, body);
    approximate(&mut kernel);
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    let text = print(&kernel);
    let mut found: Vec<_> = ApproxOp::ALL
        .iter()
        .flat_map(|&op| text.match_indices(&format!("{op}(")).map(move |(at, _)| (at, op)).collect::<Vec<_>>())
        .collect();
    found.sort_unstable();
    assert_eq!(found.into_iter().map(|(_, op)| op).collect::<Vec<_>>(), expected, "{text}");
    kernel
}

/// The function of a result `formula`, in which `e` is `exp(v)`.
#[track_caller]
fn check_exp(out: &str, formula: &str, expected: &[ApproxOp]) {
    check(out, &format!("let e: f32 = exp(v)\nstore y[threadIdx.x] = {formula}"), expected);
}

use ApproxOp::{
    Erf, ErfPlusOne, ExpFast, ExpFlush, GeluSlope, SigmoidFast, SigmoidFlush, SiluFast, SiluFlush, TanhPlusOne,
};

#[test]
fn results_of_16_bits_take_coarse_forms() {
    check_exp("bf16", "bf16(e)", &[ExpFlush]);
    check_exp("f16", "f16(neg(e) * 0.5f32)", &[ExpFlush]);
    check_exp("bf16", "bf16(where(v < 1.0f32, e, v))", &[ExpFlush]);
    check_exp("bf16", "bf16(maximum(e, 2.0f32))", &[ExpFlush]);
    check_exp("f32", "e", &[]);
    check_exp("f32", "f32(bf16(e))", &[]);
    check_exp("f64", "f64(e)", &[]);
}

#[test]
fn what_magnifies_a_small_number_keeps_it() {
    check_exp("bf16", "bf16(e * v)", &[ExpFast]);
    check_exp("bf16", "bf16(e * k)", &[ExpFast]);
    check_exp("bf16", "bf16(e * 1.2676506002282294e30f32)", &[ExpFast]);
    check_exp("bf16", "bf16(v / e)", &[ExpFast]);
    check_exp("bf16", "bf16(e / v)", &[ExpFast]);
    check_exp("bf16", "bf16(sqrt(e))", &[ExpFast]);
    // A term that is large enough beside it.
    check_exp("bf16", "bf16((e + 1.0f32) * v)", &[ExpFlush]);
    check_exp("bf16", "bf16(v / (e + 9.094947017729282e-13f32))", &[ExpFlush]);
    check_exp("bf16", "bf16(v / (e + 4.70197740328915e-38f32))", &[ExpFast]);
}

#[test]
fn what_enlarges_a_relative_error_takes_the_exact_form() {
    check_exp("bf16", "bf16(e - 1.0f32)", &[]);
    check_exp("bf16", "bf16(e + v)", &[]);
    check_exp("bf16", "bf16(log(e))", &[]);
    check_exp("bf16", "bf16(exp(e))", &[ExpFlush]);
    check_exp("bf16", "bf16(where(e < 2.0f32, 1.0f32, v))", &[]);
    check_exp("bf16", "bf16(f32(i32(e)))", &[]);
    check_exp("bf16", "bf16(e * e * e * e * e * e)", &[]);
    check("bf16", "let e: f32 = exp(v)\nif e < 1.0f32 {\nstore y[0] = 0.0bf16\n}", &[]);
    check("bf16", "let e: f32 = exp(v)\nstore y[as_index(i32(e))] = 0.0bf16", &[]);
}

#[test]
fn errors_are_followed_through_memory_and_other_threads() {
    let through = |store: &str, load: &str| format!("let e: f32 = exp(v)\n{store}\nsync block\n{load}");
    for (store, load) in [
        ("store a[0] = e", "let r: f32 = load a[0]"),
        ("store s[threadIdx.x] = e", "let r: f32 = load s[3]"),
        ("store w[threadIdx.x] = e", "let r: f32 = load.global w[0]"),
        ("store s[threadIdx.x] = e", "move f32x4 a[0] = s[0]\nlet r: f32 = load a[1]"),
        ("let q: f32 = e * 0.5f32", "let r: f32 = shuffle xor q, 4"),
    ] {
        let code = through(store, load);
        check("bf16", &format!("{code}\nstore y[0] = bf16(r)"), &[ExpFlush]);
        check("bf16", &format!("{code}\nstore y[0] = bf16(r * v)"), &[ExpFast]);
        check("bf16", &format!("{code}\nstore y[0] = bf16(r - v)"), &[]);
    }
    check("f32", "let e: f32 = exp(v)\natomic add w[0], e\nlet r: f32 = load.global w[0]\nstore y[0] = r", &[]);
    check("bf16", "let e: f32 = exp(v)\natomic add w[0], e\nlet r: f32 = load.global w[0]\nstore y[0] = bf16(r)", &[]);
}

/// `e / sum(e)` with the sum combined in the thread, the warp and the block.
fn quotient_by_sum(fact: &str) -> String {
    format!(
        "let e: f32 = exp(v)
         store a[0] = 0.0f32
         for i: i32 in 0..n {{
           let t: f32 = load x[i]
           let before: f32 = load a[0]
           store a[0] = before + exp(t)
         }}
         let own: f32 = load a[0]
         let other: f32 = shuffle xor own, 16
         store a[0] = own + other
         let part: f32 = load a[0]
         store s[threadIdx.x] = part
         sync block
         let more: f32 = load s[1]
         store a[0] = part + more
         let sum: f32 = load a[0]{fact}
         store y[threadIdx.x] = bf16(e / sum)"
    )
}

#[test]
fn a_sum_that_is_large_enough_hides_what_its_terms_lost() {
    check("bf16", &quotient_by_sum(" at least 1.0f32"), &[ExpFlush, ExpFlush]);
    check("bf16", &quotient_by_sum(" at least 7.888609052210118e-31f32"), &[ExpFast, ExpFast]);
    check("bf16", &quotient_by_sum(""), &[ExpFast, ExpFast]);
}

#[test]
fn loops_that_multiply_errors_take_the_exact_form() {
    let looped = |formula: &str| {
        format!(
            "let e: f32 = exp(v)
             store a[0] = 1.0f32
             for i: i32 in 0..n {{
               let b: f32 = load a[0]
               store a[0] = {formula}
             }}
             let r: f32 = load a[0]
             store y[0] = bf16(r)"
        )
    };
    check("bf16", &looped("b * e"), &[]);
    // The sum of any number of small errors is not small.
    check("bf16", &looped("b + e").replace("= 1.0f32", "= 0.0f32"), &[ExpFast]);
    check("bf16", &looped("maximum(b, e)"), &[ExpFlush]);
}

#[test]
fn each_function_is_decided_by_itself() {
    check(
        "bf16",
        "let e: f32 = exp(v)\nlet f: f32 = exp(v + 1.0f32)\nstore y[0] = bf16(e)\nstore y[1] = bf16(f - v)\nlet g: f32 = exp(k)\nstore y[2] = bf16(g * v)",
        &[ExpFlush, ExpFast],
    );
}

#[test]
fn logistic_functions_are_judged_alike() {
    check("bf16", "store y[0] = bf16(sigmoid(v))", &[SigmoidFlush]);
    check("bf16", "store y[0] = bf16(sigmoid(v) * v)", &[SigmoidFast]);
    check("bf16", "store y[0] = bf16(silu(v))", &[SiluFlush]);
    check("bf16", "store y[0] = bf16(silu(v) * k)", &[SiluFast]);
    check("bf16", "store y[0] = bf16(1.0f32 - sigmoid(v))", &[]);
    check("f32", "store y[0] = silu(v) + sigmoid(v)", &[]);
}

#[test]
fn erf_and_its_sum_with_one_are_replaced_everywhere() {
    check("f32", "store y[0] = erf(v) - v", &[Erf]);
    let joined = check("f32", "let e: f32 = erf(v)\nlet t: f32 = e + 1.0f32\nstore y[0] = t * v", &[ErfPlusOne]);
    assert!(!print(&joined).contains("let e"), "{}", print(&joined));
    check("f32", "store y[0] = 1.0f32 + erf(v * k)", &[ErfPlusOne]);
    check("f32", "let e: f32 = erf(v)\nlet t: f32 = e + 1.0f32\nstore y[0] = t * e", &[Erf]);
    check("f64", "store y[0] = erf(f64(v)) + 1.0f64", &[]);
}

#[test]
fn tanh_and_what_its_square_lacks_are_one_quotient() {
    let joined = check("f32", "let t: f32 = tanh(v)\nlet h: f32 = t + 1.0f32\nstore y[0] = h * v", &[TanhPlusOne]);
    assert!(!print(&joined).contains("+ 1.0f32"), "{}", print(&joined));
    check("f32", "store y[0] = 1.0f32 + tanh(v * k)", &[TanhPlusOne]);
    let both = "let t: f32 = tanh(v)\nlet g: f32 = 1.0f32 + t\nlet q: f32 = t * t\nlet h: f32 = 1.0f32 - q\n\
        store y[0] = g * k + h * v";
    let joined = print(&check("f32", both, &[TanhPlusOne]));
    assert!(joined.contains("t * (2.0f32 - t)") && !joined.contains("let q"), "{joined}");
    // Used otherwise too, or only in its square.
    check("f32", "let t: f32 = tanh(v)\nlet h: f32 = t + 1.0f32\nstore y[0] = h * t", &[]);
    check(
        "f32",
        "let t: f32 = tanh(v)\nlet q: f32 = t * t\nlet h: f32 = t + 1.0f32\nstore y[0] = h * (1.0f32 - q) + q",
        &[],
    );
    check("f32", "let t: f32 = tanh(v)\nstore y[0] = 1.0f32 - t * t", &[]);
    check("f32", "let t: f32 = tanh(v)\nstore y[0] = t + 2.0f32", &[]);
    check("f64", "store y[0] = tanh(f64(v)) + 1.0f64", &[]);
}

/// The slope of GELU by the given parts, in which `u` is the number.
#[track_caller]
fn check_slope(parts: [&str; 5], expected: &[ApproxOp]) {
    let [z, gate, square, power, sum] = parts;
    let body = format!(
        "let u: f32 = v + k
         let z: f32 = {z}
         let gate: f32 = {gate}
         let square: f32 = {square}
         let e: f32 = exp({power})
         let sum: f32 = {sum}
         store y[0] = sum * v"
    );
    let kernel = check("f32", &body, expected);
    if expected == [GeluSlope] {
        let text = print(&kernel);
        assert!(["let z", "let gate", "let square", "let e"].iter().all(|name| !text.contains(name)), "{text}");
    }
}

#[test]
fn the_slope_of_gelu_is_one_function() {
    let (z, gate, square, power) = ("u * 0.7071067690849304f32", "erf(z) + 1.0f32", "u * u", "square * -0.5f32");
    let sum = "gate * 0.5f32 + u * (e * 0.3989422917366028f32)";
    check_slope([z, gate, square, power, sum], &[GeluSlope]);
    check_slope(
        [z, gate, square, "neg(square) * 0.5f32", "0.3989422917366028f32 * u * e + 0.5f32 * gate"],
        &[GeluSlope],
    );
    // Other numbers, or what is used elsewhere too.
    for [a, b] in [
        ["u * u", "u * v"],
        ["-0.5f32", "-0.25f32"],
        ["0.3989422917366028f32", "0.375f32"],
        ["0.7071067690849304f32", "0.75f32"],
    ] {
        check_slope(
            [z, gate, square, power, sum].map(|part| part.replace(a, b)).each_ref().map(String::as_str),
            &[ErfPlusOne],
        );
    }
    check_slope([z, gate, square, power, "(gate * 0.5f32 + u * (e * 0.3989422917366028f32)) * e"], &[ErfPlusOne]);
    check_slope([z, gate, square, power, "(gate * 0.5f32 + u * (e * 0.3989422917366028f32)) * gate"], &[ErfPlusOne]);
}

/// The number is read from memory of the thread for each use; `between` is what happens before the last one.
#[track_caller]
fn check_slope_of_reads(between: &str, expected: &[ApproxOp]) {
    let body = format!(
        "store a[0] = v
         let x1: f32 = load a[0]
         let gate: f32 = erf(x1 * 0.7071067690849304f32) + 1.0f32
         let x2: f32 = load a[0]
         let x3: f32 = load a[0]
         let e: f32 = exp(x2 * x3 * -0.5f32)
         {between}
         let x4: f32 = load a[0]
         store y[0] = gate * 0.5f32 + x4 * (e * 0.3989422917366028f32)"
    );
    let kernel = check("f32", &body, expected);
    let reads = print(&kernel).matches("load a[0]").count();
    assert_eq!(reads, if expected == [GeluSlope] { 1 } else { 4 }, "{}", print(&kernel));
}

#[test]
fn what_is_read_again_is_the_same_number_unless_it_was_written() {
    check_slope_of_reads("", &[GeluSlope]);
    check_slope_of_reads("store s[threadIdx.x] = v", &[GeluSlope]);
    check_slope_of_reads("store a[1] = v", &[ErfPlusOne]);
    check_slope_of_reads("if v < 1.0f32 {\nstore a[0] = k\n}", &[ErfPlusOne]);
}

/// What a comparison becomes.
#[track_caller]
fn check_comparison(formula: &str, expected: &str) {
    let mut kernel = kernel(
        "bool",
        &format!("let again: f32 = load x[threadIdx.x]\nlet e: f32 = abs(v)\nstore y[threadIdx.x] = {formula}"),
    );
    approximate(&mut kernel);
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    let text = print(&kernel);
    assert!(text.contains(&format!("store y[threadIdx.x] = {expected}\n")), "{formula} is not {expected}:\n{text}");
}

#[test]
fn a_comparison_that_all_numbers_pass_asks_for_a_number() {
    check_comparison("e >= -1.0f32", "e == e");
    check_comparison("e > -1.0f32", "e == e");
    check_comparison("e >= 0.0f32", "e == e");
    check_comparison("-3.0f32 <= e", "e == e");
    check_comparison("neg(e) < 1.0f32", "neg(e) == neg(e)");
    check_comparison("sin(v) < 2.0f32", "sin(v) == sin(v)");
    check_comparison("v * again > -2.0f32", "v * again == v * again");
    check_comparison("e + 2.0f32 > 1.0f32", "e + 2.0f32 == e + 2.0f32");
    check_comparison("e + 2.0f32 >= 2.0f32", "e + 2.0f32 == e + 2.0f32");
    for same in ["e > 0.0f32", "e >= 1.0f32", "e < -1.0f32", "v >= -1.0f32", "e != -1.0f32", "e + 2.0f32 > 2.0f32"] {
        check_comparison(same, same);
    }
}

#[test]
fn intervals_hold_what_is_rounded() {
    for same in [
        // It becomes zero, and infinite.
        "maximum(v, 7.888609052210118e-31f32) * 7.888609052210118e-31f32 > 0.0f32",
        "minimum(v, -7.888609052210118e-31f32) * 7.888609052210118e-31f32 < 0.0f32",
        "reciprocal(minimum(maximum(v, 1.0f32), 1.7014118346046923e38f32) * 4.0f32) > 0.0f32",
        // One is lost against what it is added to.
        "minimum(maximum(v, 1.0f32), 2.0f32) + 16777216.0f32 - 16777216.0f32 > 0.5f32",
        // Of -0 it is negative.
        "rsqrt(e) >= 0.0f32",
    ] {
        let mut kernel = kernel("bool", &format!("let e: f32 = abs(v)\nstore y[threadIdx.x] = {same}"));
        let before = print(&kernel);
        approximate(&mut kernel);
        assert_eq!(print(&kernel), before, "{same}");
    }
}

#[test]
fn counters_are_known_and_what_is_made_of_them_is_not() {
    let counted = |out: &str| format!("let e: f32 = exp(v)\nfor i: i32 in 0..n {{\n store y[i] = {out}\n}}");
    check("f32", &counted("e * f32(as_data(i))"), &[]);
    check("f32", &counted("where(i < 3, e, 0.0f32)"), &[]);
    let sum = "store a[0] = 0.0f32
         for i: i32 in 0..n {
           let t: f32 = load a[0]
           store a[0] = t + where(i < 3, v, 0.0f32)
         }
         let sum: f32 = load a[0]
         store y[0] = sum >= 0.0f32";
    let mut kernel = kernel("bool", sum);
    approximate(&mut kernel);
    assert!(print(&kernel).contains("store y[0] = sum >= 0.0f32"), "{}", print(&kernel));
}

/// What a quotient becomes where `r` is the root of a sum of squares and `e` a power.
#[track_caller]
fn check_quotient(out: &str, formula: &str, expected: &str) {
    let body = format!(
        "let q: f32 = v * v
         let r: f32 = maximum(sqrt(q), 7.888609052210118e-31f32)
         let e: f32 = exp(v)
         store y[threadIdx.x] = {out}({formula})"
    );
    let mut kernel = kernel(out, &body);
    approximate(&mut kernel);
    verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
    let text = print(&kernel);
    assert!(text.contains(&format!("store y[threadIdx.x] = {out}({expected})\n")), "{formula}:\n{text}");
}

#[test]
fn quotients_are_products_where_results_do_not_show_it() {
    check_quotient("bf16", "v / r", "v * reciprocal(r)");
    check_quotient("f16", "v / r + 1.0f32", "v / r + 1.0f32");
    check_quotient("bf16", "abs(v) / r + 1.0f32", "abs(v) * reciprocal(r) + 1.0f32");
    check_quotient("bf16", "v / 3.0f32", "v * reciprocal(3.0f32)");
    check_quotient(
        "bf16",
        "v / (sqrt(q / f32(as_data(n))) + 0.5f32)",
        "v * reciprocal(sqrt(q / f32(as_data(n))) + 0.5f32)",
    );
    // A share of what is finite has a reciprocal that is a normal number: scales of what is quantised are such.
    for dtype in ["bf16", "f8e4m3fn"] {
        check_quotient(dtype, "v / (maximum(q, 1.0f32) * 0.125f32)", "v * reciprocal(maximum(q, 1.0f32) * 0.125f32)");
        check_quotient(
            dtype,
            "v / (maximum(abs(v), 7.888609052210118e-31f32) / 448.0f32)",
            "v * reciprocal(maximum(abs(v), 7.888609052210118e-31f32) * reciprocal(448.0f32))",
        );
    }
    // What is small is lost, or the divisor may be zero, or its reciprocal is no normal number and the dividend is large.
    for same in ["v / sqrt(q)", "v / v", "v / (q + 1.0f32)", "v / -3.0f32", "v / (maximum(q, 1.0f32) * 0.5f32)"] {
        check_quotient("bf16", same, same);
    }
    check_quotient("bf16", "sigmoid(v) / (q + 1.0f32)", "sigmoid.flush(v) * reciprocal(q + 1.0f32)");
    for exact in ["f32", "i32"] {
        check_quotient(exact, "v / r", "v / r");
    }
}

#[test]
fn conversions_of_what_is_not_too_large_are_known() {
    let check = |formula: &str, within: bool| {
        let kernel = kernel("f8e4m3fn", &format!("store y[threadIdx.x] = f8e4m3fn({formula})"));
        let found = super::casts_within(&kernel);
        assert_eq!(kernel.exprs.iter().any(|(id, _)| found[id]), within, "{formula}");
    };
    check("minimum(maximum(v, -448.0f32), 448.0f32)", true);
    check("clamp(v, -448.0f32, 448.0f32)", true);
    check("clamp(v, -448.0f32, 500.0f32)", false);
    check("sigmoid(v) * 400.0f32", true);
    check("minimum(maximum(v, -449.0f32), 448.0f32)", false);
    check("minimum(v, 448.0f32)", false);
    check("v", false);
}
