//! Finding and selecting 10,000 cases: files to cases, then cases to a selection.
//! The limit is 300 ms for both together.
//!
//! `cargo bench -p harness --features bench --bench discovery`

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use harness::case::{Case, Target, load};
use harness::select::{Filter, FilterExpr, FromRun, Last, Past, Wanted, choose};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const CASES: usize = 10_000;

/// A folder with so many files, which expand to 10,000 cases of the usual size.
fn folder(files: usize) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("discovery-{files}-{}", std::process::id()));
    let ids = CASES / files;
    let fusions = 2;
    let sizes: Vec<String> = (0..ids / fusions / 2).map(|n| format!("{{ m = {}, n = 1024 }}", n + 1)).collect();
    for i in 0..files {
        let mut text = format!(
            "---\nversion = 1\nsuite = \"Bench{i}Test\"\ntags = [\"reduction\", \"group{}\"]\nabout = \"a case of \
             the usual size\"\n[axes]\ndtype = [\"f32\", \"bf16\"]\nsize = [{}]\n[limits]\ntimeout = \"60s\"\n---\n",
            i % 7,
            sizes.join(", ")
        );
        for f in 0..fusions {
            let _ = write!(
                text,
                "fusion @Sum{f}(%x: $dtype[?, ?], %y: $dtype[?, ?]) {{\n  %0 = cast %x f32\n  %1 = cast %y f32\n  \
                 %2 = add %0, %1\n  %3 = mul %2, 0.5\n  %4 = sum %3 dims(1)\n  %5 = cast %4 $dtype\n  return %5\n}}\n\
                 ; inputs: x = normal[$m, $n], y = uniform(-1, 1)[$m, $n]\n; check: rel 1e-2, abs 1e-3\n\
                 ; expect: scheduler = reduction\n; perf: goal dram 0.8\n"
            );
        }
        let path = dir.join(format!("group{}", i % 7)).join(format!("f{i}.fuse"));
        std::fs::create_dir_all(path.parent().expect("has one")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
    dir
}

fn all(dir: &Path) -> Vec<Case> {
    let loaded = load(dir, Target::Sim);
    assert_eq!((loaded.errors.as_slice(), loaded.cases.len()), (&[][..], CASES));
    loaded.cases
}

/// A third of the cases failed, all took some time.
fn past(cases: &[Case]) -> Past {
    let last = |i: usize| {
        let outcome = if i.is_multiple_of(3) { "fail.numerics" } else { "pass" };
        Last { outcome: outcome.into(), dur_ns: Some(i as u64 * 1000), runs: 3 }
    };
    let known = cases.iter().enumerate().map(|(i, case)| (case.id.clone(), last(i)));
    Past { cases: known.collect(), ..Past::default() }
}

fn discovery(c: &mut Criterion) {
    let mut group = c.benchmark_group("10,000 cases");
    group.sample_size(20);
    let (few, many) = (folder(100), folder(2500));
    let past = past(&all(&few));
    let (mut filter, mut expr) = (Wanted::default(), Wanted::default());
    filter.filters.push(Filter::parse("*Sum1*dtype=bf16*").expect("a good filter"));
    let text = "tag(group3) & last(fail) & dur < 5ms & axis(m) > 2 & !name(*n=7*) & file(*.fuse)";
    expr.exprs.push(FilterExpr::parse(text).expect("a good expression"));
    let chosen = |wanted: &Wanted, cases| {
        let chosen = choose(wanted, cases, &past, &FromRun::default()).expect("chooses").cases.len();
        assert!(chosen > 0 && chosen < CASES);
        chosen
    };
    group.bench_function("found in 100 files", |b| b.iter(|| all(&few)));
    group.bench_function("found in 2,500 files", |b| b.iter(|| all(&many)));
    group.bench_function("found in 100 files and filtered", |b| b.iter(|| chosen(&filter, all(&few))));
    let cases = all(&few);
    group.bench_function("filtered by globs", |b| {
        b.iter_batched(|| cases.clone(), |cases| chosen(&filter, cases), BatchSize::LargeInput);
    });
    group.bench_function("filtered by an expression", |b| {
        b.iter_batched(|| cases.clone(), |cases| chosen(&expr, cases), BatchSize::LargeInput);
    });
    group.finish();
    for dir in [few, many] {
        let _ = std::fs::remove_dir_all(dir);
    }
}

criterion_group!(benches, discovery);
criterion_main!(benches);
