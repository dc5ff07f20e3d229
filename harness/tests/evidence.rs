//! What is left of a worker that crashed or hangs, as a user finds it in the
//! records and in the folder of the run.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A private folder with one case and room for results.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("evidence-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        let text = "---\nversion = 1\nsuite = \"PlaceTest\"\nabout = \"why\"\n---\nfusion @good(%x: f32[?]) {\n  %0 = add %x, %x\n  return %0\n}\n; inputs: x = normal[4]\n";
        std::fs::write(dir.join("cases/good.fuse"), text).expect("a file");
        Self(dir)
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        command
            .current_dir(&self.0)
            .env_remove("BLESS")
            .args(["--ref", "--with-faults", "--format", "plain"])
            .args(args);
        let Output { status, stdout, stderr } = command.output().expect("runs");
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code().unwrap_or(-1), text)
    }

    /// Runs built-in faults; the last attempt at each, by id, and what was printed.
    fn faults(&self, names: &[&str], more: &[&str]) -> (Vec<Value>, String) {
        let ids: Vec<String> = names.iter().map(|name| format!("__fault.{name}")).collect();
        let mut args: Vec<&str> = ids.iter().flat_map(|id| ["--exact", id.as_str()]).collect();
        args.extend(more);
        let (code, text) = self.run(&args);
        assert_eq!(code, 103, "{text}");
        let events = harness::record::read_events(&self.0.join("results/latest/events.jsonl")).expect("reads");
        let find = |id: &String| {
            let attempt = |r: &&Value| r["k"] == "attempt" && r["case_id"] == id.as_str();
            events.records.iter().rfind(attempt).unwrap_or_else(|| panic!("no {id}: {text}")).clone()
        };
        (ids.iter().map(find).collect(), text)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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
    let place = Place::new("crash");
    let (found, text) = place.faults(&["segv", "bus", "abort"], &[]);
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

#[test]
fn an_overflown_stack_is_walked_from_both_ends() {
    let place = Place::new("overflow");
    let (found, text) = place.faults(&["stack"], &[]);
    assert_eq!(found[0]["outcome"], "crash.stack_overflow", "{text}");
    let death = &found[0]["death"];
    assert_eq!((&death["signal"], &death["caught"]), (&"sigabrt".into(), &"sigsegv".into()));
    check_stack(&death["frames"], &["recurse", "recurse", "fault::", "harness::worker::serve", "main"]);
    assert!(death["frames_left_out"].as_u64() > Some(100), "{death:#}");
    assert!(text.contains(" times\n"), "{text}");
}

/// A hanging worker is asked where each of its threads is, before it is ended.
#[test]
fn a_hang_has_the_stacks_of_its_threads() {
    let place = Place::new("hang");
    let limits = ["--timeout", "800ms", "--grace", "200ms", "--retries", "0"];
    let (found, text) = place.faults(&["spin", "sleep", "stopped", "stubborn"], &limits);
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
    let place = Place::new("phase");
    let limits = ["--phase-timeout", "check=300ms", "--timeout", "60s", "--grace", "100ms", "--retries", "0"];
    let (found, text) = place.faults(&["spin"], &limits);
    assert_eq!(found[0]["outcome"], "hang.host", "{text}");
    assert!(text.contains("no end of phase check within 0.3 s"), "{text}");
    let (code, text) = place.run(&["--phase-timeout", "link=1s"]);
    assert!(code == 2 && text.contains("there is no phase `link`"), "{text}");
}
