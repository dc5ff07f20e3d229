//! Random numbers against straightforward loops.

use super::*;
use crate::num::philox::philox;
use crate::refeval::evaluate;
use crate::tensor::{Arg as Argument, HostTensor};
use crate::text::{parse_one, print};

fn run(source: &str, args: &[Argument]) -> HostTensor {
    let fusion = parse_one(source).unwrap_or_else(|errors| panic!("{errors:?}"));
    let printed = print(&fusion);
    assert_eq!(parse_one(&printed).as_ref(), Ok(&fusion), "{printed}");
    evaluate(&fusion, args).unwrap().remove(0)
}

fn check_refused(statement: &str, expected: &str) {
    let errors = parse_one(&format!("fusion @f(%x: i32[?], %h: f32[?]) {{\n %r = {statement}\n return %r\n}}"));
    assert_eq!(errors.unwrap_err()[0].message, expected);
}

/// The word of an element of a result of small type.
fn word(seed: u64, offset: u64, element: u64) -> u32 {
    let key = [seed as u32, (seed >> 32) as u32];
    let counter = [offset as u32, (offset >> 32) as u32, (element / 4) as u32, ((element / 4) >> 32) as u32];
    philox(key, counter)[(element % 4) as usize]
}

#[test]
fn uniform_numbers_are_words_scaled_to_the_range() {
    let (seed, offset) = (0x1234_5678_9ABC_DEF0_u64, 0x10_0000_0003_u64);
    let source = "fusion @f(%s: i64, %o: i64, %n: i64) {
        %r = uniform [%n, 3] -2.0, 5.5, %s, %o
        return %r
    }";
    let scalar = |v: u64| Argument::Scalar(crate::num::Value::Int(v.cast_signed()));
    let got = run(source, &[scalar(seed), scalar(offset), scalar(7)]);
    assert_eq!(got.sizes(), [7, 3]);
    for (e, value) in got.to_f64().into_iter().enumerate() {
        let unit = f64::from(word(seed, offset, e as u64)) / 4_294_967_296.0;
        assert!((value - (-2.0 + 7.5 * unit)).abs() < 1e-6, "element {e}: {value}, unit {unit}");
    }
}

#[test]
fn normal_numbers_are_box_muller_pairs() {
    let got = run("fusion @f() {\n %r = normal [41] 1.0, 0.5, 7, 2\n return %r\n}", &[]).to_f64();
    for (e, value) in got.into_iter().enumerate() {
        let unit = |e: usize| (f64::from(word(7, 2, e as u64)) + 0.5) / 4_294_967_296.0;
        let (u, v) = (unit(e / 2 * 2), unit(e / 2 * 2 + 1) * std::f64::consts::TAU);
        let wave = if e % 2 == 0 { v.sin() } else { v.cos() };
        let expected = (-2.0 * u.ln()).sqrt() * wave * 0.5 + 1.0;
        assert!((value - expected).abs() < 1e-5, "element {e}: {value}, not {expected}");
    }
}

#[test]
fn like_rows_take_extents_and_type_of_their_operand() {
    let x = || Argument::Tensor(HostTensor::from_f64(DType::BF16, &[2, 5], &[0.0; 10]).unwrap());
    for (like, row, params) in [("rand_like", "uniform", "0, 1"), ("randn_like", "normal", "0.0, 1.0")] {
        let head = "fusion @f(%x: bf16[?, ?]) {\n";
        let got = run(&format!("{head} %r = {like} %x, 3, 4\n return %r\n}}"), &[x()]);
        let same = run(&format!("{head} %r = {row} [2, 5] {params}, 3, 4 dtype(bf16)\n return %r\n}}"), &[x()]);
        assert_eq!(got, same, "{like}");
        let plain = like.strip_suffix("_like").unwrap();
        let again = run(&format!("{head} %r = {plain} [2, 5] 3, 4 dtype(bf16)\n return %r\n}}"), &[x()]);
        assert_eq!(got, again, "{plain}");
        assert_eq!((got.dtype(), got.sizes()), (DType::BF16, &[2, 5][..]));
    }
}

#[test]
fn moments_of_many_numbers_are_those_of_the_distribution() {
    let check = |op: &str, dtype: &str, mean: f64, variance: f64| {
        let source = format!("fusion @f() {{\n %r = {op} [200, 500] 0.0, 1.0, 11, 0 dtype({dtype})\n return %r\n}}");
        let values = run(&source, &[]).to_f64();
        let n = values.len() as f64;
        let got_mean = values.iter().sum::<f64>() / n;
        let got_variance = values.iter().map(|v| (v - got_mean).powi(2)).sum::<f64>() / n;
        assert!((got_mean - mean).abs() < 0.01 && (got_variance - variance).abs() < 0.015, "{op} {dtype}");
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(op == "normal" || (least >= 0.0 && most < 1.0), "{least} {most}");
    };
    for dtype in ["f64", "f32", "f16", "bf16"] {
        check("uniform", dtype, 0.5, 1.0 / 12.0);
        check("normal", dtype, 0.0, 1.0);
    }
}

#[test]
fn what_rounds_to_the_end_of_the_range_is_its_start() {
    for dtype in ["f16", "bf16"] {
        let source = format!("fusion @f() {{\n %r = uniform [20000] 1.0, 1.125, 5, 1 dtype({dtype})\n return %r\n}}");
        let values = run(&source, &[]).to_f64();
        assert!(values.into_iter().all(|v| (1.0..1.125).contains(&v)), "{dtype}");
    }
}

#[test]
fn refusals_name_the_operand() {
    check_refused("uniform [4] 0, 1, 3.5, 0", "uniform: `rng_seed` is a f64, not an integer");
    check_refused("normal [4] 0, 1, 0, 0 dtype(i32)", "normal: random numbers of type i32 do not exist");
    check_refused("rand_like %x, 0, 0", "rand_like: random numbers of type i32 do not exist");
    check_refused("uniform [-4] 0, 1, 0, 0", "uniform: axis 0 of the result has the negative extent -4");
    check_refused("uniform [4] 0, %h, 0, 0", "uniform: a tensor stands where a scalar is needed");
    check_refused("rand_like %h", "rand_like: takes 3 operands, 1 was given");
}
