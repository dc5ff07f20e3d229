//! What the harness itself costs: an empty case on a warm worker, from queue to
//! verdict, and one breadcrumb.
//!
//! `cargo bench -p harness --features bench --bench overhead`

use criterion::{Criterion, criterion_group, criterion_main};
use harness::background::start;
use harness::case::Case;
use harness::measure::Crumbs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Cases before the measured ones: the first waits for its worker.
const WARM: u64 = 20;

/// Time from the verdict of one empty case to that of the last of `count` more.
fn empty_cases(count: u64) -> Duration {
    let case = |i: u64| Case { id: format!("Empty.case/n={i}"), fault: Some("pass".into()), ..Case::default() };
    let cases = (0..WARM + count).map(case).collect();
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("overhead-{}", std::process::id()));
    let mut pending = start(cases, Path::new(env!("CARGO_BIN_EXE_harness")), 1, &work);
    let mut verdict = |i: u64| {
        let pending = pending.remove(&format!("Empty.case/n={i}")).expect("a verdict for each case");
        pending.wait()
    };
    // In the order of the queue: nothing is known about any of them.
    (0..WARM).for_each(|i| drop(verdict(i)));
    let started = Instant::now();
    (WARM..WARM + count).for_each(|i| drop(verdict(i)));
    started.elapsed()
}

fn overhead(c: &mut Criterion) {
    let mut group = c.benchmark_group("overhead");
    group.sample_size(10);
    group.bench_function("empty case", |b| b.iter_custom(empty_cases));
    let crumbs = Crumbs::new().expect("a breadcrumb page");
    group.bench_function("breadcrumb", |b| b.iter(|| crumbs.enter("index propagation")));
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
