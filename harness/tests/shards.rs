//! Shards of one job, as machines without a common folder leave them, and what becomes of them when they are joined.
//! Drives the binary as a user would.

use crate::durability::with_cases;
use crate::place::{CaseFile, GOOD, Place, check, records};
use serde_json::Value;
use std::collections::BTreeSet;

/// Runs a shard into a folder of its own.
#[track_caller]
fn shard(place: &Place, of: &str, more: &[&str]) {
    let folder = format!("shard-{}", of.split('/').next().expect("a number"));
    let args = ["--ref", "--jobs", "1", "-q", "--shard", of, "--results", &folder];
    check(place, &[&args, more].concat(), 0, &["0 failed"]);
}

/// The folders of shards.
fn folders(indexes: &[usize]) -> Vec<String> {
    indexes.iter().map(|index| format!("shard-{index}")).collect()
}

#[track_caller]
fn join(place: &Place, indexes: &[usize], exit: i32, parts: &[&str]) -> String {
    let folders = folders(indexes);
    let words: Vec<&str> = ["store", "join"].into_iter().chain(folders.iter().map(String::as_str)).collect();
    check(place, &words, exit, parts)
}

/// Ids of records of a kind, which are each there once.
#[track_caller]
fn once(log: &[Value], kind: &str) -> BTreeSet<String> {
    let ids: Vec<&str> = log.iter().filter(|r| r["k"] == kind).filter_map(|r| r["case_id"].as_str()).collect();
    let unique: BTreeSet<String> = ids.iter().map(|id| id.to_string()).collect();
    assert_eq!(unique.len(), ids.len(), "{kind}: {ids:?}");
    unique
}

/// Four shards are one run: every case once, with its attempt, in the log, in reports and in the tables.
#[test]
fn shards_are_joined_into_one_run() {
    let place = with_cases("join", 10);
    for index in 1..=4 {
        shard(&place, &format!("{index}/4:hash"), &[]);
    }
    join(&place, &[1, 2, 3, 4], 0, &["run shard 4 of 4: ", "10 cases of 4 shards", "10 passed, 0 failed, 0 skipped"]);
    let log = place.records();
    assert_eq!((once(&log, "verdict").len(), once(&log, "attempt").len()), (10, 10));
    let header = &log[0];
    assert_eq!((header["joins"].as_array().map(Vec::len), header["shard"].is_null()), (Some(4), true));
    assert!(!header["argv"].to_string().contains("--shard"), "{header}");
    check(&place, &["report"], 0, &["passed", "| cases | pass | time |", "| 10 | 10 |"]);
    check(&place, &["store", "verify"], 0, &["1 runs", "0 problems"]);
    check(&place, &["store", "info"], 0, &["joins", "10 of 10 recorded"]);
    check(&place, &["report", "--format", "trace"], 0, &["\"s4.ref0-w0\""]);
    assert_eq!(place.read("results/history/reference/durations.csv").lines().count(), 11);
    assert_eq!(place.read("results/history/reference/runs.csv").lines().count(), 2);
    // The same once more is the same run; the shards themselves add nothing to what it tells.
    join(&place, &[1, 2, 3, 4], 0, &["is here already", "10 passed"]);
    let before = place.read("results/history/reference/durations.csv");
    check(&place, &["store", "merge", "shard-1", "shard-2"], 0, &["2 runs copied", "0 rows of history added"]);
    assert_eq!(place.read("results/history/reference/durations.csv"), before);
    check(&place, &["store", "verify"], 0, &["3 runs", "0 problems"]);
    // What told of itself before is not told again by the joined run.
    let here = Place::empty("join-after");
    let there = place.path("shard-1").display().to_string();
    check(&here, &["store", "merge", &there], 0, &["1 runs copied"]);
    let rows = here.read("results/history/reference/durations.csv");
    let all: Vec<String> = (1..=4).map(|index| place.path(&format!("shard-{index}")).display().to_string()).collect();
    let words: Vec<&str> = ["store", "join"].into_iter().chain(all.iter().map(String::as_str)).collect();
    check(&here, &words, 0, &["10 passed"]);
    let after = here.read("results/history/reference/durations.csv");
    assert!(rows.lines().all(|row| after.contains(row)) && after.lines().count() == 11, "{rows}\n{after}");
    check(&here, &["store", "verify"], 0, &["2 runs", "0 problems"]);
}

/// Kinds of crashes by their keys, as the folder of results has them.
fn crashes(place: &Place) -> Vec<Value> {
    let mut kinds: Vec<_> = std::fs::read_dir(place.path("results/crashes")).expect("a folder").flatten().collect();
    kinds.sort_by_key(std::fs::DirEntry::file_name);
    let read = |path: std::path::PathBuf| std::fs::read(path.join("bucket.json")).expect("a ledger");
    kinds.iter().map(|kind| serde_json::from_slice(&read(kind.path())).expect("JSON")).collect()
}

/// What crashed in shards is counted with the joined run, once, and its evidence is there.
#[test]
fn crashes_of_shards_are_those_of_the_joined_run() {
    let place = with_cases("join-crashes", 2);
    let cases = ["--exact", "__fault.segv", "--exact", "__fault.abort", "--with-faults", "--retries", "0"];
    for of in ["1/2", "2/2"] {
        let folder = format!("shard-{}", &of[..1]);
        let args = ["--ref", "--jobs", "1", "-q", "--shard", of, "--results", &folder];
        check(&place, &[&args[..], &cases].concat(), 103, &["1 failed", "; new"]);
    }
    join(&place, &[1, 2], 103, &["2 cases of 2 shards", "CRASH __fault.segv  (crash.sigsegv)"]);
    let joined = crashes(&place);
    let run = &place.records()[0]["run_id"];
    let families: BTreeSet<_> = joined.iter().filter_map(|crash| crash["family"].as_str()).collect();
    assert_eq!(families, BTreeSet::from(["crash.abort in check", "crash.sigsegv in check"]));
    for crash in &joined {
        assert_eq!((&crash["count"], &crash["runs"], &crash["devices"]["ref0"]), (&1.into(), &1.into(), &1.into()));
        assert_eq!(
            (&crash["first"]["run"], crash["calls"].as_array().is_some_and(|calls| !calls.is_empty())),
            (run, true)
        );
        let exemplar = place.path("results").join(crash["exemplar"].as_str().expect("a path"));
        assert!(exemplar.join("crash.json").is_file(), "{}", exemplar.display());
    }
    // Once more, or by their own names: the same crashes.
    join(&place, &[1, 2], 103, &["is here already"]);
    check(&place, &["store", "merge", "shard-1"], 0, &["1 runs copied"]);
    assert_eq!(crashes(&place), joined);
    // Merged first, a shard tells of its crash itself.
    let here = Place::empty("join-crashes-after");
    let there = place.path("shard-1").display().to_string();
    check(&here, &["store", "merge", &there], 0, &["1 runs copied"]);
    let first = crashes(&here);
    let all = [there, place.path("shard-2").display().to_string()];
    check(&here, &["store", "join", &all[0], &all[1]], 103, &["2 cases of 2 shards"]);
    let both = crashes(&here);
    assert!(first.len() == 1 && both.len() == 2 && both.contains(&first[0]), "{first:?} {both:?}");
}

/// A shard that is not there makes the run incomplete; what it had is known, and run by whoever goes on.
#[test]
fn a_missing_shard_makes_the_run_incomplete() {
    let place = with_cases("join-missing", 6);
    shard(&place, "1/3", &[]);
    shard(&place, "3/3", &[]);
    let told = ["run shard 2 of 3 is missing", "incomplete: 2 of 6 selected cases came to no verdict", "4 passed"];
    join(&place, &[1, 3], 6, &told);
    check(&place, &["report"], 0, &["incomplete", "4 of 6 selected cases came to a verdict"]);
    check(&place, &["report", "--format", "junit"], 0, &["tests=\"6\"", "not_run"]);
    check(&place, &["resume"], 0, &["4 are done, 2 open", "6 passed, 0 failed"]);
    let log = place.records();
    assert_eq!((once(&log, "verdict").len(), once(&log, "attempt").len()), (6, 2));
    check(&place, &["store", "verify"], 0, &["2 runs", "0 problems"]);
    // The shard comes after all.
    shard(&place, "2/3", &[]);
    join(&place, &[1, 2, 3], 0, &["6 cases of 3 shards", "6 passed"]);
    check(&place, &["store", "verify"], 0, &["3 runs", "0 problems"]);
}

/// A shard that was stopped and gone on with is one; a failure in any shard is one of all.
#[test]
fn a_shard_that_was_gone_on_with_is_one_shard() {
    let place = with_cases("join-resumed", 6);
    place.case("a_wrong", CaseFile { suite: "WrongTest", more: "; values: [7, 7, 7, 7]\n", ..GOOD });
    // The first case of the shard fails, and ends it.
    let first = ["--ref", "--jobs", "1", "-q", "--shard", "1/2", "--results", "shard-1"];
    check(&place, &[&first[..], &["--fail-fast", "--run-id", "stopped"]].concat(), 100, &["1 failed, 3 skipped"]);
    shard(&place, "2/2", &[]);
    join(&place, &[1, 2], 100, &["incomplete: 3 of 7 selected cases", "FAIL WrongTest.a_wrong  (fail.reference)"]);
    check(
        &place,
        &["resume", "stopped", "--results", "shard-1", "-q", "--run-id", "again"],
        100,
        &["3 passed, 1 failed"],
    );
    join(&place, &[1, 2], 100, &["run shard 1 of 2: stopped, then again", "6 passed, 1 failed, 0 skipped"]);
    let log = place.records();
    assert_eq!(once(&log, "verdict").len(), 7);
    // The evidence has come along.
    let failed = log.iter().find(|r| r["k"] == "attempt" && r["verdict"] == "fail").expect("a failure");
    let folder = place.path("results/latest").join(failed["evidence"].as_str().expect("a folder"));
    assert!(folder.join("outcome.txt").is_file(), "{}", folder.display());
    let written = log.iter().find_map(|r| r["case_file"].as_str()).expect("a case file");
    assert!(place.path(written).is_file(), "{written}");
}

/// Runs that are no shards of one job are not joined, and it is said what differs.
#[test]
fn shards_of_different_jobs_are_not_joined() {
    let place = with_cases("join-refused", 6);
    check(&place, &["--ref", "-q", "--run-id", "whole"], 0, &["6 passed"]);
    check(&place, &["store", "join"], 2, &["needs shards"]);
    check(&place, &["store", "join", "whole"], 106, &["E0705", "does not say that it is a shard"]);
    check(&place, &["store", "join", "results"], 106, &["E0705", "there is no shard"]);
    shard(&place, "1/2", &[]);
    shard(&place, "2/3", &[]);
    join(&place, &[1, 2], 106, &["E0705", "the number of shards is 3, there 2", "store join RUN"]);
    shard(&place, "2/2", &["--seed", "5", "--run-id", "seeded"]);
    check(&place, &["store", "join", "shard-1", "shard-2/runs/seeded"], 106, &["its seed is 5, there 0"]);
    shard(&place, "2/2:hash", &["--run-id", "hashed"]);
    check(
        &place,
        &["store", "join", "shard-1", "shard-2/runs/hashed"],
        106,
        &["who has which is", "`:hash` needs none"],
    );
    // A shard twice.
    shard(&place, "1/2", &[]);
    join(&place, &[1], 106, &["shard 1 is there twice", "name the runs that are meant"]);
    assert!(!place.path("results/runs").join("latest").exists());
    // Cases that changed meanwhile.
    place.case("more", CaseFile { suite: "MoreTest", ..GOOD });
    shard(&place, "2/2", &["--run-id", "later"]);
    let first = std::fs::read_dir(place.path("shard-1/runs")).expect("a folder").flatten().next().expect("a run");
    let first = format!("shard-1/runs/{}", first.file_name().to_string_lossy());
    check(&place, &["store", "join", &first, "shard-2/runs/later"], 106, &["its case files have the checksum"]);
}

/// By recorded durations each shard has as much to do; without any, cases are dealt out in turn, and that is said.
#[test]
fn shards_have_as_much_to_do_by_recorded_durations() {
    let place = with_cases("join-time", 6);
    let ids = |of: &str| {
        let (code, text) = place.run(&["list", "--shard", of]);
        assert_eq!(code, 0, "{text}");
        text.lines().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!((ids("1/2:time"), ids("1/2:time").len()), (ids("1/2"), 3));
    check(&place, &["plan", "--sim", "1", "--shard", "1/2:time"], 0, &["no duration is recorded", "dealt out in turn"]);
    std::fs::create_dir_all(place.path("results/history/simulator")).expect("a folder");
    place.file("results/FORMAT", "harness-store 1\n");
    let rows = [(1, 10), (2, 10), (3, 10), (4, 10), (5, 10), (6, 50)];
    let rows: String = rows.iter().map(|(m, us)| format!("PlaceTest.good/m={m},1,{us},pass\n")).collect();
    place.file("results/history/simulator/durations.csv", &format!("case_id,runs,dur_us,outcome\n{rows}"));
    assert_eq!((ids("1/2:time"), ids("2/2:time").len()), (vec!["PlaceTest.good/m=6".into()], 5));
}

/// The measurements of shards are those of one bench, and a case that costs more in one of them fails all.
#[test]
fn shards_of_a_bench_are_one_bench() {
    let place = with_cases("join-bench", 4);
    let bench = |index: usize| {
        let (of, folder) = (format!("{index}/2"), format!("shard-{index}"));
        let args = ["bench", "--sim", "1", "--filter", "*", "-q", "--shard", &of, "--results", &folder];
        check(&place, &args, 0, &["2 passed"]);
        check(&place, &["run", "--sim", "1", "-q", "--shard", &of, "--results", &folder], 0, &["2 passed"]);
    };
    bench(1);
    bench(2);
    // Of each command one run.
    join(&place, &[1, 2], 0, &["bench shard 2 of 2", "run shard 2 of 2"]);
    let runs = std::fs::read_dir(place.path("results/runs")).expect("a folder").flatten();
    let logs: Vec<Vec<Value>> = runs.map(|run| records(&run.path())).collect();
    assert!(logs.len() == 2 && logs.iter().all(|log| once(log, "verdict").len() == 4));
    assert_eq!(place.read("results/history/simulator/perf.csv").lines().count(), 5);
    check(&place, &["store", "verify"], 0, &["2 runs", "0 problems"]);
    check(&place, &["report", "--html", "pages"], 0, &["of 4 cases and 2 runs"]);
}
