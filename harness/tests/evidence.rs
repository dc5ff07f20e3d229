//! What is left of a worker that crashed or hangs, as a user finds it in the
//! records and in the folder of the run.

use crate::place::{CaseFile, GOOD, Place, ended};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(place: &Place, args: &[&str]) -> (i32, String) {
    place.run(&[&["--ref", "--with-faults", "--format", "plain"], args].concat())
}

/// Runs built-in faults; the last attempt at each, by id, and what was printed.
fn faults(place: &Place, names: &[&str], more: &[&str]) -> (Vec<Value>, String) {
    let ids: Vec<String> = names.iter().map(|name| format!("__fault.{name}")).collect();
    let mut args: Vec<&str> = ids.iter().flat_map(|id| ["--exact", id.as_str()]).collect();
    args.extend(more);
    let (code, text) = run(place, &args);
    assert_eq!(code, 103, "{text}");
    let records = place.records();
    let find = |id: &String| {
        let attempt = |r: &&Value| r["k"] == "attempt" && r["case_id"] == id.as_str();
        records.iter().rfind(attempt).unwrap_or_else(|| panic!("no {id}: {text}")).clone()
    };
    (ids.iter().map(find).collect(), text)
}

/// The functions of a stack, innermost first.
fn symbols(frames: &Value) -> Vec<&str> {
    let frames = frames.as_array().map_or(&[][..], Vec::as_slice);
    frames.iter().filter_map(|frame| frame["symbol"].as_str()).collect()
}

#[track_caller]
fn check_stack(frames: &Value, parts: &[&str]) {
    let symbols = symbols(frames);
    let mut rest = symbols.iter();
    for part in parts {
        assert!(rest.any(|symbol| symbol.contains(part)), "{part} is not in its place in {symbols:#?}");
    }
}

#[test]
fn a_crash_has_a_cause_and_a_stack() {
    let place = Place::good("crash", &[]);
    let (found, text) = faults(&place, &["segv", "bus", "abort"], &[]);
    let [segv, bus, abort] = [0, 1, 2].map(|i| &found[i]["death"]);
    assert_eq!((&segv["signal"], &segv["si_code"], &segv["fault_addr"]), (&"sigsegv".into(), &1.into(), &"0x8".into()));
    check_stack(&segv["frames"], &["write_unmapped", "fault::", "harness::worker::serve", "harness::worker", "main"]);
    assert!(text.contains("0x8 is not mapped"), "{text}");
    assert_eq!((&bus["signal"], &bus["si_code"]), (&"sigbus".into(), &2.into()));
    check_stack(&bus["frames"], &["read_past_end", "fault::"]);
    assert_eq!(abort["signal"], "sigabrt");
    assert!(abort["fault_addr"].is_null(), "{abort:#}");
    check_stack(&abort["frames"], &["abort", "fault::"]);
    // The project's own functions have files and lines.
    let frames = segv["frames"].as_array().expect("frames");
    let own = frames.iter().find(|f| f["symbol"].as_str().is_some_and(|s| s.contains("serve"))).expect("a frame");
    assert!(own["file"].as_str().is_some_and(|f| f.ends_with(".rs")) && own["line"].as_u64() > Some(0), "{own}");
    assert!(segv["thread"].as_str().is_some_and(|thread| thread.starts_with("harness-worker (")), "{segv:#}");
}

/// A thread that works beside the case has breadcrumbs of its own, and its crash
/// is told from there.
#[test]
fn a_crash_names_the_lane_of_its_thread() {
    let place = Place::good("lane", &[]);
    let (found, text) = faults(&place, &["segv-lane", "segv-thread"], &["--retries", "0"]);
    let [lane, thread] = [0, 1].map(|i| &found[i]["death"]);
    let crumb = &lane["crumb"];
    assert_eq!((&crumb["lane"], &crumb["phase"], &crumb["id"]), (&3.into(), &"schedule".into(), &5.into()), "{text}");
    assert_eq!(crumb["case"], "__fault.segv-lane");
    let crashed = lane["thread"].as_str().expect("a thread");
    assert!(crashed.ends_with(&format!("({})", crumb["thread"])), "{crashed}: {crumb:#}");
    // Where the case itself was is told too.
    assert_eq!((&lane["lanes"][0]["lane"], &lane["lanes"][0]["phase"]), (&0.into(), &"inputs".into()));
    // A thread without a lane belongs to the case.
    assert_eq!((&thread["crumb"]["lane"], &thread["crumb"]["phase"]), (&0.into(), &"inputs".into()));
    check_stack(&thread["frames"], &["write_unmapped", "std::sys"]);
}

#[test]
fn an_overflown_stack_is_walked_from_both_ends() {
    let place = Place::good("overflow", &[]);
    let (found, text) = faults(&place, &["stack"], &[]);
    assert_eq!(found[0]["outcome"], "crash.stack_overflow", "{text}");
    let death = &found[0]["death"];
    assert_eq!((&death["signal"], &death["caught"]), (&"sigabrt".into(), &"sigsegv".into()));
    check_stack(&death["frames"], &["recurse", "recurse", "fault::", "harness::worker::serve", "main"]);
    assert!(death["frames_left_out"].as_u64() > Some(100), "{death:#}");
    assert!(text.contains(" calls left out\n"), "{text}");
}

/// The script of a failed case, from the folder of its evidence.
fn script(place: &Place, attempt: &Value) -> PathBuf {
    let folder = attempt["evidence"].as_str().expect("a folder");
    let folder = place.path("results/latest").canonicalize().expect("a run").join(folder);
    for file in ["outcome.txt", "../repro.sh"] {
        assert!(folder.join(file).is_file(), "{folder:?} lacks {file}");
    }
    folder.join("../repro.sh")
}

#[track_caller]
fn check_script(script: &Path, exit: i32, part: &str) {
    let text = std::fs::read_to_string(script).expect("a script");
    for mut command in [Command::new(script), pasted("sh", &text), pasted("bash", &text)] {
        // Nothing of the test's own surroundings may be needed.
        let Output { status, stdout, stderr } = command.current_dir("/").output().expect("runs");
        let output = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(exit), "{text}\n{output}");
        assert!(output.contains(part), "{text}\n{output}");
    }
}

fn pasted(shell: &str, text: &str) -> Command {
    let mut command = Command::new(shell);
    command.args(["-c", text]);
    command
}

/// Each failure leaves a script that repeats it, from any folder and whatever
/// characters are in its paths.
#[test]
fn scripts_repeat_failures() {
    let place = Place::good("it's \"a\" $HOME `place`", &[]);
    let (found, text) = faults(&place, &["segv", "fail"], &["--seed", "77", "--timeout", "20s", "--retries", "0"]);
    assert!(text.contains("repro: ") && text.contains("repro.sh"), "{text}");
    // Running them makes runs of their own.
    let scripts: Vec<PathBuf> = found.iter().map(|record| script(&place, record)).collect();
    check_script(&scripts[0], 103, "CRASH __fault.segv");
    check_script(&scripts[1], 100, "FAIL __fault.fail");
    let text = std::fs::read_to_string(&scripts[0]).expect("a script");
    assert!(text.contains(" --timeout 20s ") && text.contains(" --seed 77\n"), "{text}");
}

/// A failure that needs what its worker had run before is repeated with that.
#[test]
fn scripts_bring_the_neighbours_along() {
    let place = Place::good("neighbours", &[]);
    let args = ["--jobs", "1", "--exact", "__fault.pollute=A", "--exact", "__fault.victim=A"];
    let (code, text) = run(&place, &args);
    assert!(code == 0 && text.contains("FLAKY __fault.victim=A"), "{text}");
    let cases = place.path("results/latest/cases").canonicalize().expect("a folder");
    let folder = std::fs::read_dir(cases).expect("a folder").next().expect("one").expect("readable").path();
    check_script(&folder.join("repro.sh"), 100, "recurs in ");
    // What is printed finds the record of another folder too.
    let (_, text) = run(&place, &[&args[..], &["--results", "else where"]].concat());
    let line = text.lines().find(|line| line.contains("with its neighbours: ")).expect("a command");
    assert!(line.contains("--exact '__fault.victim=A'") || line.contains("--exact __fault.victim=A"), "{line}");
    assert!(line.ends_with(" --minimize --results 'else where'"), "{line}");
}

/// Where a worker failed twice, each script is about its own case.
#[test]
fn scripts_watch_their_own_case() {
    let place = Place::good("own", &[]);
    let ids = ["__fault.pollute=A", "__fault.victim=A", "__fault.victim=A@2"].map(|id| ["--exact", id]).concat();
    let (code, text) = run(&place, &[&["--jobs", "1", "--retries", "0"], &ids[..]].concat());
    assert_eq!(code, 100, "{text}");
    let records = place.records();
    for id in ["__fault.victim=A", "__fault.victim=A@2"] {
        let attempt = records.iter().find(|r| r["k"] == "attempt" && r["case_id"] == id).expect("an attempt");
        let text = std::fs::read_to_string(script(&place, attempt)).expect("a script");
        let line = |head: &str| text.lines().find_map(|line| line.strip_prefix(head)).expect("a line").to_string();
        let replay = line("# With what its worker had run before: ");
        place.program("replay.sh", &format!("#!/bin/sh\nharness={}\n{replay}\n", line("harness=")));
        check_script(&place.path("replay.sh"), 100, &format!("then {id}, as worker ref0-w0"));
    }
}

/// The same crash has the same keys in each run, and the ledger adds up.
#[test]
fn crashes_are_counted_over_runs() {
    let place = Place::good("ledger", &[]);
    let keys = |records: &[Value]| -> Vec<String> {
        records.iter().map(|record| format!("{} {}", record["bucket"], record["family"])).collect()
    };
    let (first, text) = faults(&place, &["segv", "abort"], &["--retries", "0"]);
    assert!(text.contains("crashes by family") && text.contains("; new"), "{text}");
    assert_eq!(first[0]["family"], "crash.sigsegv in check");
    let (second, text) = faults(&place, &["segv", "abort"], &["--retries", "0"]);
    assert_eq!(keys(&first), keys(&second));
    assert_ne!(keys(&first)[0], keys(&first)[1]);
    assert!(text.contains("; 2 in 2 runs since "), "{text}");
    let leaf = first[0]["bucket"].as_str().expect("a leaf");
    let path = place.path("results/crashes").join(leaf).join("bucket.json");
    let ledger: Value = serde_json::from_slice(&std::fs::read(path).expect("a ledger")).expect("JSON");
    assert_eq!((&ledger["count"], &ledger["runs"]), (&2.into(), &2.into()));
    assert!(place.path("results").join(ledger["exemplar"].as_str().expect("a path")).join("crash.json").is_file());
}

/// What a worker prints may be anything and as much as it likes.
#[test]
fn output_is_bounded_escaped_and_kept() {
    let place = Place::good("output", &[]);
    let (found, text) = faults(&place, &["ansi"], &["--retries", "0"]);
    assert!(!text.contains('\x1b') && text.contains("\\x1b"), "{text}");
    let folder = place.path("results/latest").join(found[0]["evidence"].as_str().expect("a folder"));
    let kept = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
    let raw = [kept("stdout.txt"), kept("stderr.txt")].concat();
    assert!(raw.contains(&0x1b), "the file holds what came");
    assert!(std::str::from_utf8(&raw).is_err(), "and is not made valid");
}

/// A hanging worker is asked where each of its threads is, before it is ended.
#[test]
fn a_hang_has_the_stacks_of_its_threads() {
    let place = Place::good("hang", &[]);
    let limits = ["--timeout", "800ms", "--grace", "200ms", "--retries", "0"];
    let (found, text) = faults(&place, &["spin", "sleep", "stopped", "stubborn"], &limits);
    for (record, outcome) in found.iter().zip(["hang.host", "hang.deadlock", "hang.stopped", "hang.deadlock"]) {
        assert_eq!(record["outcome"], outcome, "{text}");
        let stacks = record["death"]["stacks"].as_array().expect("stacks");
        assert!(!stacks.is_empty() && stacks[0]["state"].as_str().is_some_and(|s| !s.is_empty()), "{record:#}");
        if outcome != "hang.stopped" {
            check_stack(&stacks[0]["frames"], &["fault::", "harness::worker::serve", "main"]);
        }
    }
    assert!(text.contains("hang.stopped") && text.contains("its threads are stopped"), "{text}");
}

#[test]
fn a_phase_has_its_own_limit() {
    let place = Place::good("phase", &[]);
    let limits = ["--phase-timeout", "check=300ms", "--timeout", "60s", "--grace", "100ms", "--retries", "0"];
    let (found, text) = faults(&place, &["spin"], &limits);
    assert_eq!(found[0]["outcome"], "hang.host", "{text}");
    assert!(text.contains("no end of phase check within 0.3 s"), "{text}");
    let (code, text) = run(&place, &["--phase-timeout", "link=1s"]);
    assert!(code == 2 && text.contains("there is no phase `link`"), "{text}");
}

/// A stand-in for the tool: runs the worker as its child and writes a report in
/// the tool's form, with an error where a case asks for one.
const TOOL: &str = r#"#!/bin/sh
log=
while [ $# -gt 0 ]; do
    case "$1" in
    --log-file) log=$2; shift 2 ;;
    --tool) tool=$2; shift 2 ;;
    --target-processes | --report-api-errors | --print-limit) shift 2 ;;
    -*) echo "unknown option $1"; exit 9 ;;
    *) break ;;
    esac
done
[ "$REPORT" = none ] || echo "========= COMPUTE-SANITIZER" > "$log"
"$@"
code=$?
[ "$REPORT" = none ] && exit $code
cat "$(dirname "$0")/report" >> "$log"
exit $code
"#;

#[test]
fn a_sanitizer_around_workers_gives_outcomes() {
    let place = Place::good("sanitizer", &[]);
    place.program("bin/compute-sanitizer", TOOL);
    place.file("machine.toml", "[[gpu]]\n");
    let more = "; sim: schedules (lockstep)\n";
    place.case("many", CaseFile { front: "[axes]\nm = [1, 2, 3, 4]\n", size: "$m", more, ..GOOD });
    let report = |text: &str| place.file("bin/report", text);
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap_or_default());
    let run = |path: &str, args: &[&str]| {
        let args = [&["--format", "plain", "--retries", "0"], args].concat();
        ended(place.command(&args).env("PATH", path).output().expect("runs"))
    };
    let on_gpu = ["--nvml", "machine.toml", "--gpus", "1"];
    report("========= ERROR SUMMARY: 0 errors\n");
    let (code, text) = run(&path, &[&on_gpu[..], &["--sanitize", "memcheck"]].concat());
    assert!(code == 0 && text.contains("5 passed, 0 failed") && text.contains("under /"), "{text}");
    report(
        "========= Invalid __global__ write of size 4 bytes\n=========     at kernel_pointwise+0x90 in /tmp/kernel_pointwise.cu:12\n=========     by thread (3,0,0) in block (1,0,0)\n========= ERROR SUMMARY: 1 error\n",
    );
    let (code, text) = run(&path, &[&on_gpu[..], &["--sanitize", "memcheck=40%", "--seed", "2"]].concat());
    assert!(code == 100 && text.contains(" of 5 selected cases, by seed 2"), "{text}");
    let wanted = "Invalid __global__ write of size 4 bytes in kernel_pointwise at /tmp/kernel_pointwise.cu:12; by thread (3,0,0)";
    assert!(text.contains("(fail.sanitizer.memcheck") && text.contains(wanted), "{text}");
    // Elsewhere the simulator's own detectors do it, or nothing can.
    let (code, text) = run(&path, &["--sim", "1", "--sanitize", "racecheck", "--filter", "*good*"]);
    assert!(code == 0 && text.contains("its own detectors (race) stand for it"), "{text}");
    let (code, text) = run(&path, &["--ref", "--sanitize", "racecheck"]);
    assert!(code == 2 && text.contains("E0510"), "{text}");
    let empty = place.path("cases").display().to_string();
    let (code, text) = run(&empty, &[&on_gpu[..], &["--sanitize", "memcheck"]].concat());
    assert!(code == 2 && text.contains("E0510") && text.contains("cases/compute-sanitizer"), "{text}");
    let (code, text) = run(&path, &["--sanitize", "memchk"]);
    assert!(code == 2 && text.contains("racecheck"), "{text}");
}
