//! What is left of a run when the harness is killed, the disk is full, the folder
//! cannot be written or goes away, or bytes are damaged. Drives the binary as a
//! user would.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Kills of one test run. `HARNESS_TEST_KILLS=500` for more.
const KILLS: u64 = 30;

/// A private folder with cases and room for results.
struct Place(PathBuf);

impl Place {
    /// With so many cases of one file.
    fn new(name: &str, cases: usize) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        let place = Self(dir);
        place.write("cases/good.fuse", &cases_file(cases));
        place
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("writes");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        command.current_dir(&self.0).env_remove("BLESS").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        ended(self.command(args).output().expect("runs"))
    }

    /// The harness below limits that `ulimit` sets.
    fn limited(&self, limit: &str, args: &[&str]) -> (i32, String) {
        let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
        let mut command = Command::new("bash");
        command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_harness")).args(args).current_dir(&self.0);
        ended(command.output().expect("runs"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cases_file(cases: usize) -> String {
    let sizes: Vec<String> = (1..=cases).map(|n| n.to_string()).collect();
    format!(
        "---\nversion = 1\nsuite = \"PlaceTest\"\nabout = \"why\"\n[axes]\nm = [{}]\n---\nfusion @good(%x: f32[?]) {{\n  %0 = add %x, %x\n  return %0\n}}\n; inputs: x = normal[$m]\n",
        sizes.join(", ")
    )
}

fn ended(Output { status, stdout, stderr }: Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert!(!text.contains("panicked at"), "{text}");
    (status.code().unwrap_or(-1), text)
}

#[track_caller]
fn check(place: &Place, args: &[&str], exit: i32, parts: &[&str]) -> String {
    let (code, text) = place.run(args);
    assert_eq!(code, exit, "{args:?}:\n{text}");
    for part in parts {
        assert!(text.contains(part), "{args:?} lacks {part:?}:\n{text}");
    }
    text
}

const PLAIN: [&str; 5] = ["--ref", "--jobs", "2", "--format", "plain"];

/// Ids of records of one kind. A case that was not run counts for none.
fn ids(events: &[Value], kind: &str) -> Vec<String> {
    let of = |record: &&Value| record["k"] == kind && record["outcome"] == "pass";
    events.iter().filter(of).map(|r| r["case_id"].as_str().expect("an id").to_string()).collect()
}

fn read(dir: &Path) -> Vec<Value> {
    let events = harness::record::read_events(&dir.join("events.jsonl")).expect("reads");
    assert_eq!(events.problems, Vec::<String>::new());
    events.records
}

/// A generator of moments: any will do.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Starts the command and kills it after a while. Returns its exit code, if it
/// ended before, and the ids of the cases whose end it had told.
fn killed_after(place: &Place, args: &[&str], delay: Duration) -> (Option<i32>, Vec<String>) {
    let mut child = place.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    let mut out = child.stdout.take().expect("a pipe");
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        out.read_to_end(&mut text).map(|_| text)
    });
    let start = Instant::now();
    let mut status = None;
    while start.elapsed() < delay && status.is_none() {
        status = child.try_wait().expect("can be asked");
        std::thread::sleep(Duration::from_micros(200));
    }
    let _ = child.kill();
    let _ = child.wait();
    let text = reader.join().expect("a thread").expect("reads");
    // The last line may be cut anywhere.
    let whole = text.split_inclusive(|b| *b == b'\n').filter(|line| line.ends_with(b"\n"));
    let told = whole.filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        line.contains("] PASS ").then(|| line.split_whitespace().last().map(String::from)).flatten()
    });
    (status.map(|status| status.code().unwrap_or(-1)), told.collect())
}

/// Logs of all runs, by folder. A folder whose log is not there yet is none.
fn logs(place: &Place) -> BTreeMap<PathBuf, Vec<Value>> {
    let runs = std::fs::read_dir(place.path("results/runs")).into_iter().flatten().flatten();
    let runs = runs.map(|entry| entry.path()).filter(|dir| dir.join("events.jsonl").exists());
    runs.map(|dir| (dir.clone(), read(&dir))).collect()
}

/// One job over several lives, the last of which may end. Whatever was told is
/// recorded; no later life runs it again. Returns how many lives went on.
fn lives(place: &Place, cases: usize, delays: &mut dyn FnMut() -> Duration) -> usize {
    let _ = std::fs::remove_dir_all(place.path("results"));
    let (mut finished, mut resumed) = (BTreeSet::new(), 0);
    for life in 0..4 {
        let before: BTreeSet<PathBuf> = logs(place).into_keys().collect();
        let mut args = PLAIN.to_vec();
        if !before.is_empty() && logs(place).values().any(|log| log.iter().any(|r| r["k"] == "selected")) {
            args = vec!["resume", "--format", "plain"];
            resumed += 1;
        } else {
            assert!(finished.is_empty());
        }
        let delay = if life < 3 { delays() } else { Duration::from_secs(300) };
        let (code, told) = killed_after(place, &args, delay);
        for (dir, log) in logs(place) {
            let verdicts: BTreeSet<String> = ids(&log, "verdict").into_iter().collect();
            if !before.contains(&dir) {
                let again: Vec<String> = ids(&log, "attempt").into_iter().filter(|id| finished.contains(id)).collect();
                assert!(again.is_empty(), "life {life} ran again: {again:?}");
                let lost: Vec<&String> = told.iter().filter(|id| !verdicts.contains(*id)).collect();
                assert!(lost.is_empty(), "life {life} lost: {lost:?}");
            }
            finished.extend(verdicts);
        }
        // Killed behind its last record, it is complete all the same.
        let ended = logs(place).values().any(|log| log.last().is_some_and(|record| record["k"] == "end"));
        if code.is_some() || ended {
            assert_eq!((code.unwrap_or(0), finished.len()), (0, cases), "life {life}, {args:?}");
            break;
        }
    }
    assert_eq!(finished.len(), cases);
    resumed
}

/// The store opens, what was told is recorded, and going on runs nothing twice
/// until all cases have their verdict.
#[test]
fn killed_at_any_moment_it_goes_on_without_running_a_case_again() {
    let place = Place::new("moments", 24);
    let kills: u64 = std::env::var("HARNESS_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let started = Instant::now();
    check(&place, &PLAIN, 0, &["24 passed, 0 failed, 0 skipped"]);
    let whole = started.elapsed().as_micros() as u64;
    let (mut state, mut killed, mut resumed) = (0x9E37_79B9_7F4A_7C15, 0, 0);
    while killed < kills {
        let mut moment = || {
            killed += 1;
            Duration::from_micros(next(&mut state) % whole)
        };
        resumed += lives(&place, 24, &mut moment);
        check(&place, &["store", "repair"], 0, &[]);
        check(&place, &["store", "verify"], 0, &["0 problems"]);
        // What is left is one run that covers all.
        let (_, last) = place.run(&["report", "latest", "--format", "csv"]);
        assert_eq!(last.lines().count(), 25, "{last}");
    }
    assert!(resumed > 0, "no kill fell into a run");
}
