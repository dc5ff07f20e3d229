//! Random numbers against straightforward loops, and their two definitions
//! against each other.

use super::*;
use crate::fusion::Dim;
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

/// The value of a row by its evaluator and by its decomposition.
fn both(name: &str, dtype: DType, sizes: &[i64], params: [f64; 2], seed: i64, offset: i64) -> [HostTensor; 2] {
    let row = table::find(name).unwrap();
    [row.build, row.primitive.unwrap().decompose.unwrap()].map(|build| {
        let mut b = FusionBuilder::new("f");
        let seed_input = b.scalar("seed", DType::I64).unwrap();
        let like = b.tensor("x", DType::Bool, &vec![Dim::Symbolic; sizes.len()]).unwrap();
        let extents = (0..sizes.len() as i64).map(|axis| b.size(like, axis).unwrap().into()).collect();
        let args = Args::new(row)
            .value(row.params[0].name, params[0])
            .value(row.params[1].name, params[1])
            .with("shape", Arg::Values(extents))
            .value("rng_seed", seed_input)
            .value("rng_offset", offset)
            .with("dtype", Arg::DType(dtype));
        let result = build(&mut b, &args).unwrap()[0];
        b.output(result).unwrap();
        let count = sizes.iter().product::<i64>() as usize;
        let x = HostTensor::from_f64(DType::Bool, sizes, &vec![0.0; count]).unwrap();
        let args = [Argument::Scalar(crate::num::Value::Int(seed)), Argument::Tensor(x)];
        evaluate(&b.finish().unwrap(), &args).unwrap().remove(0)
    })
}

#[test]
fn evaluator_and_decomposition_agree_bit_for_bit() {
    for name in ["uniform", "normal"] {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            for sizes in [&[][..], &[1], &[7], &[1, 1], &[3, 1, 5], &[0, 4], &[2, 3, 11]] {
                for (seed, offset) in [(0, 0), (-1, i64::MAX), (0x1234_5678_9ABC, 0x7_0000_0001)] {
                    let [direct, steps] = both(name, dtype, sizes, [-1.25, 3.0], seed, offset);
                    assert_eq!(direct, steps, "{name} {dtype} {sizes:?} {seed} {offset}");
                }
            }
        }
    }
}

#[test]
fn what_rounds_to_the_end_of_the_range_is_its_start() {
    for dtype in [DType::F16, DType::BF16] {
        let [direct, steps] = both("uniform", dtype, &[20_000], [1.0, 1.125], 5, 1);
        assert_eq!(direct, steps);
        assert!(direct.to_f64().into_iter().all(|v| (1.0..1.125).contains(&v)), "{dtype}");
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
