//! What the compiler itself takes for each case of the corpus, from text to CUDA, in a session that has met nothing; the
//! run-time compiler is not in it. The limit is 5 ms for the 95th percentile. And what chains of operations
//! take: twice the length, at most 2.3 times.
//!
//! `cargo bench -p harness --features bench --bench compile_times`

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::backend::cuda::emit;
use engine::num::DType;
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::{PhaseTimes, Session};
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;
use harness::case::{Target, load};
use harness::measure::own_compile_time;
use std::path::Path;
use std::time::{Duration, Instant};

/// Times of which the least counts, of a case and of a chain.
const REPEATS: usize = 3;
const CHAIN_REPEATS: usize = 9;

fn main() {
    corpus();
    chains();
}

fn corpus() {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), Target::Cuda).cases;
    let least = |case| (0..REPEATS).filter_map(|_| own_compile_time(case)).min();
    let mut times: Vec<(Duration, &str)> =
        cases.iter().filter_map(|case| Some((least(case)?, case.id.as_str()))).collect();
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].0;
    println!("{} cases with kernels: median {:?}, p95 {:?}, p99 {:?}", times.len(), at(0.5), at(0.95), at(0.99));
    for (time, id) in times.iter().rev().take(12) {
        println!("  {time:?} {id}");
    }
}

fn chains() {
    let mut before: Option<Duration> = None;
    for length in [125, 250, 500, 1000] {
        let steps: String = (1..length).map(|i| format!("  %{i} = neg %{}\n", i - 1)).collect();
        let text = format!(
            "fusion @Chain(%x: f32[?, ?], %y: f32[?, ?]) {{\n  %0 = add %x, %y\n{steps}  return %{}\n}}\n",
            length - 1
        );
        let time = (0..CHAIN_REPEATS).map(|_| chain(&text)).min().unwrap_or_default();
        let ratio = before.map_or(0.0, |before| time.as_secs_f64() / before.as_secs_f64());
        println!("chain of {length}: {time:?}, {ratio:.2} times the one before");
        before = Some(time);
    }
}

fn chain(text: &str) -> Duration {
    let started = Instant::now();
    let fusion = text::parse_one(text).expect("the fusion is well-formed");
    let args = vec![ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[1024, 1024])); 2];
    let options = Options { self_check: false, ..Options::default() };
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), options);
    let times = PhaseTimes::new(move || started.elapsed());
    let plan = session.compile(&fusion, &args, &times).expect("the chain compiles");
    assert!(emit(plan.kernel()).text().contains("__global__"), "it has a text");
    started.elapsed()
}
