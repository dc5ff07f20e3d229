//! The cost of records: one attempt as `run` writes it, and the results of 10,000
//! cases, with everything on the disk at the end.
//!
//! `cargo bench -p harness --features bench --bench records`

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use harness::record::{EventLog, read_events};
use serde_json::{Value, json};
use std::path::PathBuf;

const CASES: u32 = 10_000;

/// Fields of the size that an attempt at a usual case has.
fn attempt(n: u32) -> Value {
    json!({
        "case_id": format!("PointwiseTest.add/dtype=f32,m={n},n=4096"),
        "attempt": 0, "repeat": 0, "seed": 0, "worker_id": "sim0-w0", "gpu_uuid": null, "position": n,
        "start_ns": u64::from(n) * 1_000_000, "dur_ns": 912_345, "verdict": "pass", "outcome": "pass", "detail": "",
        "phases": { "parse": 21_000, "inputs": 101_000, "reference": 93_000, "schedule": 44_000, "lower": 61_000,
            "codegen": 38_000, "launch": 410_000, "verify": 21_000, "compare": 57_000 },
        "facts": { "scheduler": "pointwise", "vector": "4", "threads": "128", "blocks": "32", "segments": "1" },
        "kernel_crc": "8f3a11c0",
        "numerics": { "elements": 16_384, "wrong": 0, "max_abs": 0.0, "max_rel": 0.0 },
        "perf": null, "death": null,
    })
}

fn verdict(n: u32) -> Value {
    json!({
        "case_id": format!("PointwiseTest.add/dtype=f32,m={n},n=4096"),
        "verdict": "pass", "outcome": "pass", "attempts": 1, "failures": 0, "outcomes": [], "case_file": null,
    })
}

fn fresh() -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join(format!("records-{}.jsonl", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

fn records(c: &mut Criterion) {
    let path = fresh();
    let mut log = EventLog::create(&path).expect("creates");
    let fields = attempt(1);
    c.bench_function("one attempt", |b| b.iter(|| log.append("attempt", &fields).expect("writes")));
    drop(log);

    let results: Vec<(Value, Value)> = (0..CASES).map(|n| (attempt(n), verdict(n))).collect();
    let mut group = c.benchmark_group("10,000 cases");
    group.throughput(Throughput::Elements(u64::from(CASES))).sample_size(10);
    group.bench_function("written and synced", |b| {
        b.iter_batched(
            || EventLog::create(&fresh()).expect("creates"),
            |mut log| {
                for (attempt, verdict) in &results {
                    log.append("attempt", attempt).expect("writes");
                    log.append("verdict", verdict).expect("writes");
                }
                log.end(&json!({ "status": "complete" })).expect("syncs");
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("read", |b| b.iter(|| read_events(&path).expect("reads").records.len()));
    group.finish();
    let _ = std::fs::remove_file(&path);
}

criterion_group!(benches, records);
criterion_main!(benches);
