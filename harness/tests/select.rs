//! Selection as a user or a test runner asks for it: drives the binary.

use crate::place::{self, CaseFile, GOOD, Place, check, ended};
use std::collections::BTreeSet;

const WRONG: CaseFile<'_> =
    CaseFile { suite: "PickTest", front: "tags = [\"odd\"]\n[axes]\nn = [1, 2]\n", size: "$n", ..GOOD };

/// A place with three cases that pass, two that fail and one that no simulated
/// device can run.
fn with_cases(name: &str) -> Place {
    let place = Place::empty(name);
    place.case("good", CaseFile { front: "tags = [\"fine\"]\n[axes]\nn = [1, 2, 3]\n", ..WRONG });
    wrong(&place, "f32[7]");
    place.case("big", CaseFile { front: "[require]\narch = 100\nmemory = \"2GiB\"\n", size: "4", ..WRONG });
    place
}

/// Says of the wrong cases' output that it is this.
fn wrong(place: &Place, output: &str) {
    place.case("wrong", CaseFile { more: &format!("; outputs: {output}\n"), ..WRONG });
}

fn run_with(place: &Place, args: &[&str], env: &[(&str, &str)]) -> (i32, String) {
    ended(place.command(args).envs(env.iter().copied()).output().expect("runs"))
}

/// What `list` prints, which must end well.
#[track_caller]
fn list(place: &Place, args: &[&str], env: &[(&str, &str)]) -> Vec<String> {
    let (code, text) = run_with(place, &[&["list"], args].concat(), env);
    assert_eq!(code, 0, "{args:?} {env:?}: {text}");
    text.lines().map(String::from).collect()
}

const RUN: [&str; 5] = ["--ref", "--retries", "0", "--format", "plain"];

/// A run that goes on with a rerun knows what that one left out: its filter did.
#[test]
fn what_a_rerun_left_out_is_not_forgotten() {
    let place = Place::empty("outstanding");
    let three = CaseFile { front: "tags = [\"odd\"]\n[axes]\nn = [1, 2, 3]\n", ..WRONG };
    place.case("wrong", CaseFile { more: "; outputs: f32[7]\n", ..three });
    let run = |more: &[&str], exit, parts: &[&str]| {
        drop(check(&place, &[&RUN[..], &["--jobs", "1"], more].concat(), exit, parts));
    };
    run(&["--tag", "odd"], 100, &["0 passed, 3 failed"]);
    place.case("wrong", three);
    let left = "1 earlier failures were not run again: PickTest.wrong/n=1";
    run(&["--rerun", "failed", "--filter", "*n=2:*n=3", "--deadline", "1ms"], 5, &["skip.deadline", left]);
    check(&place, &["resume", "latest", "--format", "plain"], 5, &["goes on with", left]);
}

#[test]
fn reruns_follow_what_is_left() {
    let place = with_cases("rerun");
    let run = |more: &[&str], exit, parts: &[&str]| drop(check(&place, &[&RUN, more].concat(), exit, parts));
    run(&["--rerun", "failed"], 4, &["E0505", "no earlier run is recorded"]);
    run(&["--exact", "PickTest.good/n=1"], 0, &["1 passed, 0 failed"]);
    run(&["--rerun", "not-run", "-E", "last(never) & tag(odd)"], 100, &["0 passed, 2 failed"]);
    run(&["--rerun", "failed"], 100, &["2 of 6 cases selected", "0 passed, 2 failed"]);
    run(&["--rerun", "failed", "--filter", "*good*"], 4, &["but 2 others do"]);
    // Mended for one size only: the rerun of that one leaves the other.
    wrong(&place, "f32[2]");
    let left = "1 earlier failures were not run again: PickTest.wrong/n=1";
    run(&["--rerun", "failed", "--filter", "*n=2"], 5, &["1 passed, 0 failed", left]);
    run(&["--filter", "*n=2"], 0, &["2 passed, 0 failed"]);
    run(&["--rerun", "failed"], 100, &["1 of 6 cases selected"]);
    run(&["--rerun", "latest"], 100, &["1 of 6 cases selected"]);
    // Runs are named as everywhere.
    run(&["--rerun", "latest~1"], 100, &["1 of 6 cases selected"]);
    run(&["--exact", "PickTest.wrong/n=1", "--run-id", "nightly+3"], 100, &["0 passed, 1 failed"]);
    run(&["--rerun", "nightly+3"], 100, &["1 of 6 cases selected"]);
    // A name that is taken is refused before anything is run.
    let (code, text) = place.run(&[&RUN[..], &["--run-id", "nightly+3"]].concat());
    assert!(code == 2 && text.contains("there is a run of that name") && !text.contains("passed"), "{code}: {text}");
    place.case("wrong", WRONG);
    run(&["--rerun", "latest"], 0, &["1 passed, 0 failed"]);
    run(&["--rerun", "failed"], 0, &["nothing is left: no case failed last time", "0 passed, 0 failed, 0 skipped"]);
    run(&["--rerun", "20"], 106, &["there is no run `20`", "runs are named so"]);
    run(&["--rerun", "nosuchrun"], 106, &["there is no run `nosuchrun`"]);
    assert_eq!(list(&place, &["--ref", "--rerun", "not-run"], &[]), ["PickTest.big", "PickTest.good/n=3"]);
    // A hunt comes to no verdicts: it is not what `latest` means, and leaves nothing by itself.
    wrong(&place, "f32[2]");
    run(&["--tag", "odd"], 100, &["1 passed, 1 failed"]);
    let hunt = ["hunt", "--exact", "PickTest.good/n=1", "--repeat", "2", "--ref", "--format", "plain"];
    let (code, text) = place.run(&hunt);
    assert!([0, 6].contains(&code), "{code}: {text}");
    run(&["--rerun", "latest"], 100, &["1 of 6 cases selected"]);
    let header = |dir: &std::path::Path| std::fs::read_to_string(dir.join("run.json")).unwrap_or_default();
    let runs = std::fs::read_dir(place.path("results/runs")).expect("a folder").flatten().map(|entry| entry.path());
    let hunted = runs.into_iter().find(|dir| header(dir).contains(r#""mode": "hunt""#)).expect("a hunt");
    let hunted = hunted.file_name().and_then(|name| name.to_str()).expect("a name");
    run(&["--rerun", hunted], 106, &["E0702", "comes to no verdicts"]);
    // What is in quarantine is not waited for.
    wrong(&place, "f32[3]");
    run(&["--tag", "odd"], 100, &["0 passed, 2 failed"]);
    let known = ["--owner", "me", "--issue", "#1", "--reason", "a known one", "--until", "2999-01-31"];
    check(&place, &[&["quarantine", "add", "PickTest.wrong/n=1"][..], &known].concat(), 0, &["is in quarantine"]);
    place.case("wrong", WRONG);
    run(&["--rerun", "failed", "--filter", "*n=2"], 0, &["1 passed, 0 failed"]);
}

#[test]
fn shards_of_every_kind_cover_the_selection() {
    let place = with_cases("shards");
    let all: BTreeSet<String> = list(&place, &[], &[]).into_iter().collect();
    assert_eq!(all.len(), 6);
    let covers = |shard: &dyn Fn(usize) -> Vec<String>| {
        let shards: Vec<Vec<String>> = (0..4).map(shard).filter(|ids| !ids[0].starts_with("shard ")).collect();
        assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), all.len(), "{shards:?}");
        assert_eq!(shards.into_iter().flatten().collect::<BTreeSet<_>>(), all);
    };
    covers(&|i| list(&place, &["--shard", &format!("{}/4", i + 1)], &[]));
    covers(&|i| list(&place, &["--shard", &format!("{}/4:hash", i + 1)], &[]));
    for (index, total) in [("GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS"), ("TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS")] {
        covers(&|i| list(&place, &[], &[(index, &i.to_string()), (total, "4")]));
    }
    // Options win over variables, gtest's over Bazel's.
    let env = [
        ("GTEST_SHARD_INDEX", "1"),
        ("GTEST_TOTAL_SHARDS", "6"),
        ("TEST_SHARD_INDEX", "2"),
        ("TEST_TOTAL_SHARDS", "6"),
    ];
    assert_eq!(list(&place, &[], &env), ["PickTest.good/n=1"]);
    assert_eq!(list(&place, &["--shard", "1/6"], &env), ["PickTest.big"]);
}

#[test]
fn test_runners_are_understood() {
    let place = with_cases("runners");
    assert_eq!(list(&place, &[], &[("GTEST_FILTER", "*good*-*n=2")]), ["PickTest.good/n=1", "PickTest.good/n=3"]);
    assert_eq!(list(&place, &[], &[("TESTBRIDGE_TEST_ONLY", "*big")]), ["PickTest.big"]);
    assert_eq!(list(&place, &["--gtest_filter=*big"], &[("GTEST_FILTER", "*good*")]), ["PickTest.big"]);
    // What narrows a run without standing on its command line is told, in its first lines.
    let narrowed = [("GTEST_FILTER", "*big"), ("TEST_SHARD_INDEX", "0"), ("TEST_TOTAL_SHARDS", "1")];
    let (code, text) = run_with(&place, &RUN, &narrowed);
    let told = "selected by the environment: GTEST_FILTER=*big TEST_SHARD_INDEX=0 TEST_TOTAL_SHARDS=1\n";
    assert!(code == 0 && text.find(told) < text.find("1 of 6 cases selected") && text.contains(told), "{text}");
    let (code, text) = run_with(&place, &RUN, &[("GTEST_FILTER", "Nope*")]);
    assert!(code != 0 && text.contains("note: selected by the environment: GTEST_FILTER=Nope*"), "{text}");
    let (_, text) = run_with(&place, &[&RUN[..], &["--filter", "*big"]].concat(), &[("GTEST_FILTER", "*good*")]);
    assert!(!text.contains("selected by the environment"), "{text}");
    let status = place.path("status");
    let name = status.to_str().expect("UTF-8");
    let env = [("TEST_SHARD_INDEX", "6"), ("TEST_TOTAL_SHARDS", "7"), ("TEST_SHARD_STATUS_FILE", name)];
    let (code, text) = run_with(&place, &RUN, &env);
    assert!(code == 0 && text.contains("shard 7/7: 0 of 6 selected cases; with fewer cases than shards"), "{text}");
    assert!(text.contains("0 passed, 0 failed, 0 skipped") && status.is_file(), "{text}");
    let (code, text) = run_with(&place, &["list"], &[("TEST_SHARD_INDEX", "1")]);
    assert!(code == 2 && text.contains("`TEST_SHARD_INDEX` is set without `TEST_TOTAL_SHARDS`"), "{text}");
    let (code, text) = run_with(&place, &["list"], &[("GTEST_SHARD_INDEX", "4"), ("GTEST_TOTAL_SHARDS", "4")]);
    assert!(code == 2 && text.contains("counts from 0"), "{text}");
    let (code, text) = run_with(&place, &["list"], &[("HARNESS_EXPR", "tag(fime)")]);
    assert!(code == 94 && text.contains("did you mean `fine`?"), "{text}");
}

#[test]
fn lists_tell_what_is_known() {
    let place = with_cases("list");
    check(&place, &RUN, 100, &["4 passed, 2 failed, 0 skipped"]);
    let table = list(&place, &["--ref", "--format", "table"], &[]);
    assert_eq!(table[0].split_whitespace().collect::<Vec<_>>(), ["case", "tags", "needs", "last", "expected"]);
    let row = |id: &str| {
        table.iter().find(|line| line.starts_with(id)).expect("a row").split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("PickTest.big")[..4], ["PickTest.big", "arch>=100", "mem>=2.0GiB", "pass"]);
    // Another kind of device has a past of its own.
    let elsewhere = list(&place, &["--sim", "1", "--format", "table", "--filter", "*big"], &[]);
    assert!(elsewhere[1].ends_with("?") && elsewhere[1].contains("never"), "{elsewhere:?}");
    assert_eq!(row("PickTest.wrong/n=1")[..4], ["PickTest.wrong/n=1", "odd", "-", "fail"]);
    let (code, text) = place.run(&["list", "--ref", "--format", "json", "-E", "tag(fine) | memory > 1GiB"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, json.as_array().map(Vec::len)), (0, Some(4)), "{text}");
    assert_eq!((&json[0]["require"]["arch"], &json[0]["timeout_ms"]), (&100.into(), &serde_json::Value::Null));
    assert_eq!((&json[1]["last"]["verdict"], &json[1]["tags"][0]), (&"pass".into(), &"fine".into()));
    assert!(json[1]["expected_ns"].as_u64().is_some_and(|ns| ns > 0), "{text}");
}

#[test]
fn a_plan_runs_nothing() {
    let place = with_cases("plan");
    check(
        &place,
        &["plan", "--sim", "2"],
        0,
        &["5 of 6 cases would run on 2 slots, 1 be skipped", "no duration is recorded"],
    );
    assert!(!place.path("results").exists());
    check(&place, &[&RUN, &["--exact", "PickTest.good/n=3"][..]].concat(), 0, &[]);
    check(&place, &[&RUN, &["--exact", "PickTest.wrong/n=2"][..]].concat(), 100, &[]);
    let parts = ["predicted time", "4 cases never ran and are taken as", "ref1", "PickTest.good/n=3"];
    check(&place, &["plan", "--ref", "--jobs", "2"], 0, &parts);
    check(
        &place,
        &["plan", "--sim", "2", "--exact", "PickTest.big"],
        0,
        &["skip.requires.arch", "needs compute capability 100"],
    );
    check(&place, &["plan", "--sim", "2", "--ref"], 2, &["only one of"]);
    let (_, text) = place.run(&["plan", "--ref", "--jobs", "2", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((json["slots"].as_array().map(Vec::len), &json["unknown"]), (Some(2), &4.into()), "{text}");
    // What failed comes first, then what never ran, then the longest.
    let order: Vec<&str> = json["order"].as_array().expect("a list").iter().filter_map(|o| o["id"].as_str()).collect();
    assert_eq!((order.len(), order[0], order[5]), (6, "PickTest.wrong/n=2", "PickTest.good/n=3"), "{text}");
    assert!(json["predicted_ns"].as_u64().is_some_and(|ns| ns > 0), "{text}");
    check(&place, &["plan", "--ref", "--format", "names", "--exact", "PickTest.big"], 0, &["PickTest.big\n"]);
}

/// What changed, case by case: in the files since a revision, in the kernels since a run.
#[test]
fn what_changed_is_selected() {
    let place = with_cases("changed");
    let git = |args: &[&str]| {
        let mut git = std::process::Command::new("git");
        place::unswayed(&mut git).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        git.current_dir(&place.0).args(["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]);
        let (code, text) = ended(git.args(args).output().expect("git is there"));
        assert_eq!(code, 0, "{text}");
    };
    let good = |axis: &str| place.case("good", CaseFile { front: &format!("[axes]\nn = {axis}\n"), ..WRONG });
    // Not yet in a checkout.
    let mut command = place.command(&["list", "-E", "changed(HEAD)"]);
    let outside = command.env("GIT_CEILING_DIRECTORIES", place.0.parent().expect("a folder"));
    let (code, text) = ended(outside.output().expect("runs"));
    assert!(code == 94 && text.contains("not a git repository") && text.contains("must be in a checkout"), "{text}");
    git(&["init", "-q"]);
    good("[1, 2, 3]");
    git(&["add", "cases"]);
    git(&["commit", "-q", "-m", "first"]);
    let changed = |since: &str| list(&place, &["-E", &format!("changed({since}) | none"), "--filter", "*"], &[]);
    let nothing = |since: &str| check(&place, &["list", "-E", &format!("changed({since})")], 4, &["none of "]);
    nothing("HEAD");
    // Another size is another case; words for people change nothing; a new file is new.
    good("[1, 2, 4]");
    let text = place.read("cases/big.fuse").replace("about = \"why\"", "about = \"why not\"");
    place.file("cases/big.fuse", &format!("{text}\n"));
    place.case("new", CaseFile { suite: "PickTest", ..GOOD });
    assert_eq!(changed("HEAD"), ["PickTest.good/n=4", "PickTest.new"]);
    git(&["add", "cases"]);
    git(&["commit", "-q", "-m", "second"]);
    nothing("HEAD");
    assert_eq!(changed("HEAD~1"), changed("main^"));
    assert_eq!(changed("HEAD~1"), ["PickTest.good/n=4", "PickTest.new"]);
    // Since a run: what its cases are at its commit, and the kernels that it recorded.
    let run = ["run", "--sim", "1", "--filter", "*good*", "--run-id", "before", "--format", "plain"];
    check(&place, &run, 0, &["3 passed"]);
    nothing("latest");
    // A run that recorded another kernel for one of them: the compiler has changed.
    let other = place.path("results/runs/other");
    std::fs::create_dir(&other).expect("a folder");
    let mut log = harness::record::EventLog::create(&other.join("events.jsonl")).expect("a log");
    for mut record in place::records(&place.path("results/runs/before")) {
        if record["k"] == "attempt" && record["case_id"] == "PickTest.good/n=2" {
            record["kernel_crc"] = "00000000".into();
        }
        let kind = record["k"].as_str().expect("a kind").to_string();
        ["v", "seq", "t_ns", "k", "crc"]
            .iter()
            .for_each(|key| drop(record.as_object_mut().expect("fields").remove(*key)));
        log.append(&kind, &record).expect("writes");
    }
    drop(log);
    assert_eq!(changed("other"), ["PickTest.good/n=2"]);
    good("[1, 2, 5]");
    assert_eq!(changed("before"), ["PickTest.good/n=5"]);
    place.case("wrong", CaseFile { op: "abs %x", ..WRONG });
    assert_eq!(changed("latest"), ["PickTest.good/n=5", "PickTest.wrong/n=1", "PickTest.wrong/n=2"]);
    // Mistakes, and no git.
    check(&place, &["list", "-E", "tag(odd) & changed(nosuch)"], 94, &["Needed a single revision", "^^^^^^^^^^^^^^^"]);
    check(&place, &["list", "-E", "changed(latest~7)"], 94, &["there is no run `latest~7`", "whole name"]);
    check(&place, &["list", "-E", "changed(-x)"], 94, &["no revision"]);
    let mut command = place.command(&["list", "-E", "changed(HEAD)"]);
    let (code, text) = ended(command.env("PATH", place.path("cases")).output().expect("runs"));
    assert!(code == 94 && text.contains("git, which is not there"), "{text}");
}
