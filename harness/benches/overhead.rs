//! What the harness itself costs: an empty case on a warm worker, from queue to
//! verdict and in a whole run with its records, and one breadcrumb.
//!
//! `cargo bench -p harness --features bench --bench overhead`

use criterion::{Criterion, criterion_group, criterion_main};
use harness::background::start;
use harness::case::Case;
use harness::measure::Crumbs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Cases before the measured ones: the first waits for its worker.
const WARM: u64 = 20;
const HARNESS: &str = env!("CARGO_BIN_EXE_harness");

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

/// Time from the verdict of one empty case to that of the last of `count` more.
fn empty_cases(count: u64) -> Duration {
    let case = |i: u64| Case { id: format!("Empty.case/n={i}"), fault: Some("pass".into()), ..Case::default() };
    let cases = (0..WARM + count).map(case).collect();
    let mut pending = start(cases, Path::new(HARNESS), 1, &place("overhead"), false).pending;
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

/// Time of `count` empty cases in the middle of what a user runs, by its record:
/// verdicts printed to a file, every record written.
fn run(count: u64) -> Duration {
    let place = place("overhead-run");
    std::fs::create_dir_all(place.join("cases")).expect("a folder");
    let ids: String = (0..WARM + count + 1).map(|i| format!("__fault.pass@{i}\n")).collect();
    std::fs::write(place.join("ids"), ids).expect("a file");
    // A folder without a case is a mistake.
    let case = "---\nversion = 1\nsuite = \"OverheadTest\"\nabout = \"why\"\n---\n\
                fusion @good(%x: f32[?]) {\n  %0 = add %x, %x\n  return %0\n}\n; inputs: x = normal[4]\n";
    std::fs::write(place.join("cases/good.fuse"), case).expect("a file");
    let status = Command::new(HARNESS)
        .args(["run", "--ref", "--jobs", "1", "--format", "plain", "--with-faults", "--from-file", "ids"])
        .current_dir(&place)
        .stdout(File::create(place.join("out")).expect("a file"))
        .status();
    assert!(status.is_ok_and(|status| status.success()), "see {}", place.display());
    let events = harness::record::read_events(&place.join("results/latest/events.jsonl")).expect("records");
    let starts = events.records.iter().filter(|record| record["k"] == "attempt");
    let starts: Vec<u64> = starts.filter_map(|record| record["start_ns"].as_u64()).collect();
    std::fs::remove_dir_all(&place).expect("removes");
    let at = |case: u64| starts[case as usize];
    Duration::from_nanos(at(WARM + count) - at(WARM))
}

fn overhead(c: &mut Criterion) {
    let mut group = c.benchmark_group("overhead");
    group.sample_size(10);
    group.bench_function("empty case", |b| b.iter_custom(empty_cases));
    group.bench_function("empty case of a run", |b| b.iter_custom(run));
    let crumbs = Crumbs::new().expect("a breadcrumb page");
    group.bench_function("breadcrumb", |b| b.iter(|| crumbs.enter("index propagation")));
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
