//! What the harness prints and writes for a repetition does repeat: scripts, `again:`
//! lines, and the options that `replay` and `why` take over from a run.

use crate::place::{self, CaseFile, GOOD, Place, check, ended};
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A place with a case that passes and one that fails.
fn with_cases(name: &str) -> Place {
    let place = Place::good(name, &[]);
    place.case("wrong", CaseFile { size: "2", more: "; values: [1.0, 1.0]\n", ..GOOD });
    place
}

/// Runs with fault cases of these ids, in this order.
fn faults(place: &Place, command: &[&str], ids: &[&str]) -> (i32, String) {
    let ids: Vec<String> = ids.iter().map(|id| format!("__fault.{id}")).collect();
    place.file("list.txt", &ids.join("\n"));
    let faults = ["--ref", "--jobs", "1", "--with-faults", "--format", "plain", "--from-file", "list.txt"];
    place.run(&[command, &faults].concat())
}

/// The arguments of the line that begins so, as a shell would read them.
#[track_caller]
fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let start = format!("{start} cargo run -p harness -- ");
    let found = text.lines().find_map(|line| line.trim_start().strip_prefix(start.as_str()));
    let words = found.unwrap_or_else(|| panic!("no line {start:?}:\n{text}"));
    words.split(' ').map(|word| word.trim_matches('\'')).collect()
}

fn header(place: &Place) -> Value {
    let text = std::fs::read_to_string(place.newest().join("run.json")).expect("a header");
    serde_json::from_str(&text).expect("JSON")
}

/// Variables with which a job runs one shard of a selection.
fn shard(command: &mut Command, index: usize) -> &mut Command {
    command.env("GTEST_TOTAL_SHARDS", "4").env("GTEST_SHARD_INDEX", index.to_string());
    command.env("HARNESS_FILTER", "*").env("HARNESS_EXPR", "tag(nothing)")
}

/// In a sharded job a failure is repeated as it was, by script and by line.
#[test]
fn repetitions_name_their_whole_selection() {
    let place = with_cases("shards");
    let run = ["--ref", "--format", "plain", "--retries", "0", "--seed", "3"];
    let text = check(&place, &run, 100, &["1 passed, 1 failed"]);
    // Reports of it have the same line.
    let told = line(&text, "again:").join(" ");
    assert!(told.ends_with("--retries 0 --seed 3"), "{told}");
    let report = check(&place, &["report", "--format", "md"], 0, &["--retries 0 --seed 3"]);
    assert_eq!(report.matches("--seed 3").count(), 1, "{report}");
    let scripts: Vec<PathBuf> = std::fs::read_dir(place.path("results/latest/cases"))
        .expect("evidence")
        .map(|entry| entry.expect("an entry").path().join("repro.sh"))
        .filter(|script| script.is_file())
        .collect();
    let [script] = &scripts[..] else { panic!("{scripts:?}") };
    let again = [&line(&text, "again:")[..], &["--format", "plain"]].concat();
    for index in 0..4 {
        let mut by_script = place.command(&[]);
        let mut by_script_sh = place.program_here("sh");
        by_script_sh.arg(script).current_dir("/").env("HARNESS", by_script.get_program());
        by_script_sh.env("HARNESS_STATE_DIR", &place.0);
        let outputs = [shard(&mut by_script_sh, index).output(), shard(by_script.args(&again), index).output()];
        for output in outputs {
            let (code, text) = ended(output.expect("runs"));
            assert!(code == 100 && text.contains("0 passed, 1 failed, 0 skipped"), "shard {index}: {code}\n{text}");
        }
    }
    // What selects more than one case still heeds them.
    let (code, text) = ended(shard(&mut place.command(&["--ref", "--format", "plain"]), 1).output().expect("runs"));
    assert_eq!(code, 94, "{text}");
}

/// A failure under a seed of its own, found by a hunt, is shown under that seed.
#[test]
fn lines_have_the_seed_of_the_attempt() {
    let place = with_cases("seeds");
    let (_, text) = faults(&place, &["hunt", "--repeat", "12", "--seed", "5"], &["flaky=0.3"]);
    let id = "__fault.flaky=0.3";
    let replay = ["replay", "--worker", &format!("W0@{}", run_id(&place)), "--exact", id, "--minimize"];
    let (code, told) = place.run(&[&replay[..], &["--format", "plain"]].concat());
    assert!(code == 100 && told.contains("recurs in"), "{text}\n{told}");
    let seed = header_seed(&line(&told, "shown by:"));
    let attempts = place::records(&place.newest());
    let failed = attempts.iter().find(|record| record["k"] == "attempt" && record["verdict"] == "fail");
    assert_eq!(failed.expect("an attempt")["seed"].as_u64(), Some(seed), "{told}");
    assert_ne!(seed, 5, "the first repeat must not fail here:\n{told}");
    assert_eq!(header_seed(&line(&told, "explained by:")), seed);
}

fn run_id(place: &Place) -> String {
    place.newest().file_name().expect("a name").to_string_lossy().into_owned()
}

fn header_seed(words: &[&str]) -> u64 {
    let at = words.iter().position(|word| *word == "--seed").expect("a seed");
    assert_eq!(words.iter().filter(|word| **word == "--seed").count(), 1, "{words:?}");
    words[at + 1].parse().expect("a number")
}

/// The lines of a replay take what their commands take, and do what they say.
#[test]
fn lines_of_a_replay_are_for_their_commands() {
    let place = with_cases("commands");
    let ids = ["pass@1", "pollute=A", "pass@2", "victim=A"];
    let (code, text) = faults(&place, &["run", "--retries", "1", "--timeout", "50s", "--run-id", "r+1"], &ids);
    assert_eq!(code, 0, "{text}");
    let replay = ["replay", "--worker", "W0@r+1", "--exact", "__fault.victim=A", "--minimize", "--timeout", "40s"];
    let text = check(&place, &[&replay[..], &["--format", "plain"]].concat(), 100, &["__fault.pollute=A"]);
    let show = line(&text, "shown by:");
    assert!(show.windows(2).any(|pair| pair == ["--timeout", "40s"]) && !show.contains(&"50s"), "{show:?}");
    check(&place, &show, 100, &["recurs in 3 of 3 replays"]);
    let why = [&line(&text, "explained by:")[..], &["--repeat", "8"]].concat();
    check(&place, &why, 0, &["as it failed: 100 %", "* isolation worker -> case"]);
    // A hunt's own lines, with its folder of records.
    let hunt = ["hunt", "--repeat", "4", "--shuffle=1", "--results", "elsewhere", "--timeout", "30s"];
    let (_, text) = faults(&place, &hunt, &ids);
    let near = line(&text, "with its neighbours:");
    check(&place, &near, 100, &["polluter set = {__fault.pollute=A}"]);
}

/// What is said now counts, also where the run did not say it.
#[test]
fn options_of_now_are_used() {
    let place = with_cases("options");
    let (code, text) = faults(&place, &["run", "--retries", "0", "--compile-threads", "2"], &["pass", "segv"]);
    assert_eq!(code, 103, "{text}");
    check(&place, &["replay", "--twice", "--seed", "4", "--format", "plain"], 103, &["recurs in 3 of 3", "seed 4"]);
    let knobs = header(&place)["knobs"].clone();
    assert_eq!((&knobs["twice"], &knobs["compile_threads"]), (&true.into(), &2.into()));
    // A tool that cannot check is refused, not left out.
    check(&place, &["replay", "--sanitize", "memcheck"], 2, &["nothing to check on the reference evaluator"]);
    // A record of a replay is enough to repeat it.
    let replay = ["replay", "--worker", &format!("W0@{}", run_id(&place)), "--format", "plain"];
    check(&place, &replay, 103, &["recurs in 3 of 3", "seed 4"]);
    assert_eq!(header(&place)["knobs"]["compile_threads"], 2);
}

/// The run's options come from its log where its header is gone; without both it is refused.
#[test]
fn options_are_never_made_up() {
    let place = with_cases("torn");
    let run = ["run", "--retries", "0", "--compile-threads", "2", "--seed", "77", "--run-id", "torn"];
    let (code, text) = faults(&place, &run, &["pass", "segv"]);
    assert_eq!(code, 103, "{text}");
    std::fs::remove_file(place.path("results/runs/torn/run.json")).expect("removes");
    let replay = ["replay", "--worker", "W0@torn", "--format", "plain"];
    check(&place, &replay, 103, &["seed 77", "reference evaluator, 1 worker"]);
    assert_eq!(header(&place)["knobs"]["compile_threads"], 2);
    let log = place.read("results/runs/torn/events.jsonl");
    let rest = log.split_once('\n').expect("lines").1;
    place.file("results/runs/torn/events.jsonl", &format!("{{\"k\":\"run\",\"argv\":\"lost\n{rest}"));
    check(&place, &replay, 106, &["the options of run `torn` cannot be read"]);
    check(&place, &["why", "__fault.segv", "--run", "torn", "--ref"], 106, &["the options of run `torn`"]);
}

/// Paths of the run mean what they meant, from another folder too.
#[test]
fn paths_of_the_run_are_from_its_folder() {
    let place = with_cases("paths");
    for folder in ["mine", "other/cases"] {
        std::fs::create_dir_all(place.path(folder)).expect("a folder");
    }
    std::fs::rename(place.path("cases/wrong.fuse"), place.path("mine/wrong.fuse")).expect("renames");
    let args = ["run", "--ref", "--retries", "0", "--cases", "mine", "--jobs", "1"];
    check(&place, &args, 100, &["1 failed"]);
    let replay = ["replay", "--worker", "W0@latest", "--results", "../results", "--format", "plain"];
    let mut command = place.command(&replay);
    let (code, text) = ended(command.current_dir(place.path("other")).output().expect("runs"));
    assert!(code == 100 && text.contains("recurs in 3 of 3"), "{code}\n{text}");
}

/// Standard output is for records alone.
#[test]
fn records_are_not_mixed_with_prose() {
    let place = with_cases("jsonl");
    let commands: [&[&str]; 3] = [
        &["hunt", "--ref", "--repeat", "3"],
        &["replay", "--ref", "--exact", "PlaceTest.good", "--exact", "PlaceTest.wrong"],
        &["why", "PlaceTest.wrong", "--ref", "--jobs", "1", "--repeat", "4"],
    ];
    for args in commands {
        let output = place.command(&[args, &["--format", "jsonl"]].concat()).output().expect("runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let kinds: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line:?}"))["k"].clone())
            .collect();
        assert!(kinds.contains(&"attempt".into()), "{kinds:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(told.contains("record "), "{told}");
    }
}

/// What a replay saw before its time was over, or it was stopped, is what it tells.
#[test]
fn replays_end_in_time_and_tell_what_they_saw() {
    let place = with_cases("time");
    let args = ["replay", "--exact", "__fault.fail", "--with-faults", "--ref", "--jobs", "1", "--format", "plain"];
    let many = [&args[..], &["--repeat", "1000000"]].concat();
    let begun = Instant::now();
    let text = check(&place, &[&many[..], &["--budget", "2s"]].concat(), 100, &["recurs in", "--budget was over"]);
    assert!(begun.elapsed() < Duration::from_secs(60), "{text}");
    let why = ["why", "__fault.fail", "--with-faults", "--ref", "--jobs", "1", "--format", "plain"];
    let parts = ["as it failed: 100 %", "the sweep is not complete: the time of --budget was over"];
    check(&place, &[&why[..], &["--repeat", "1000000", "--budget", "2s"]].concat(), 6, &parts);
    let first = place.newest();
    let child = place.command(&many).stdout(std::process::Stdio::piped()).spawn().expect("starts");
    let log = |dir: PathBuf| std::fs::read_to_string(dir.join("events.jsonl")).unwrap_or_default();
    let seen = || place.newest() != first && log(place.newest()).contains("\"k\":\"attempt\"");
    while !seen() && begun.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(place::signal(child.id(), Signal::INT));
    let (code, text) = ended(child.wait_with_output().expect("ends"));
    assert!(code == 130 && text.contains("recurs in") && text.contains("the run was stopped"), "{code}\n{text}");
}

/// A hunt judges as a run does: a declared failure is none, and is told.
#[test]
fn declared_failures_do_not_spoil_a_hunt() {
    let place = with_cases("declared");
    let more = "; values: [1.0, 1.0]\n; xfail(reason = \"known\", issue = \"1\")\n";
    place.case("wrong", CaseFile { size: "2", more, ..GOOD });
    check(&place, &["run", "--ref"], 0, &["1 passed, 0 failed, 1 skipped"]);
    let hunt = ["hunt", "--ref", "--jobs", "1", "--bound", "0.2@95", "--format", "plain"];
    check(&place, &hunt, 0, &["1 clean, 0 flaky, 0 broken", "skipped PlaceTest.wrong: xfail: known (fail."]);
    // One that passes all the same is a failure, as in a run.
    place.case("wrong", CaseFile { more: "; xfail(reason = \"known\", issue = \"1\")\n", ..GOOD });
    check(&place, &hunt, 100, &["1 broken", "xpass"]);
    // What is looked at on purpose is a failure, declared or not.
    place.case("wrong", CaseFile { size: "2", more, ..GOOD });
    check(&place, &["replay", "--ref", "--exact", "PlaceTest.wrong", "--format", "plain"], 100, &["recurs in 3 of 3"]);
}
