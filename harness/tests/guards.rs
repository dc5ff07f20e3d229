//! What a run finds in a kernel's treatment of memory, in what it leaves behind,
//! and in results that are not alike. Drives the binary as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A private folder with one good case and room for results.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        let text = "---\nversion = 1\nsuite = \"PlaceTest\"\nabout = \"why\"\n[axes]\nm = [1, 5]\n---\n\
                    fusion @good(%x: f32[?]) {\n  %0 = add %x, %x\n  return %0\n}\n; inputs: x = normal[$m]\n";
        std::fs::write(dir.join("cases/good.fuse"), text).expect("a file");
        Self(dir)
    }

    /// Runs cases by id and gives the exit code, what was printed, and the last run's records.
    fn run(&self, more: &[&str], ids: &[&str]) -> (i32, String, Vec<serde_json::Value>) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        command.current_dir(&self.0).env_remove("BLESS").args(["run", "--format", "plain", "--with-faults"]).args(more);
        for id in ids {
            command.args(["--exact", id]);
        }
        let Output { status, stdout, stderr } = command.output().expect("runs");
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        let events = harness::record::read_events(&self.0.join("results/latest/events.jsonl"));
        (status.code().unwrap_or(-1), text, events.expect("records").records)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const GOOD: [&str; 2] = ["PlaceTest.good/m=1", "PlaceTest.good/m=5"];

/// One case fails with the outcome, and its detail has the parts; the good cases pass.
#[track_caller]
fn check(name: &str, more: &[&str], fault: &str, outcome: &str, parts: &[&str]) {
    let place = Place::new(name);
    let (_, text, records) = place.run(more, &[GOOD[0], fault, GOOD[1]]);
    let verdicts: Vec<_> = records.iter().filter(|record| record["k"] == "verdict").collect();
    assert_eq!(verdicts.len(), 3, "{text}");
    for verdict in verdicts {
        let wanted = if verdict["case_id"] == fault { outcome } else { "pass" };
        assert_eq!(verdict["outcome"], wanted, "{text}");
    }
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
}

#[test]
fn a_fault_of_the_device_is_the_fault_of_its_case() {
    let options = &["--sim", "1", "--retries", "0"];
    check("unwritten", options, "__fault.sim_unwritten", "fail.unwritten", &["68 elements of output 0", "32, 33, 34"]);
    check("changed", options, "__fault.sim_input_changed", "fail.input_changed", &["bytes of input 0, the first at"]);
    check("leak", options, "__fault.sim_leak", "fail.leak.device_mem", &["8388608 bytes of device memory"]);
    check("infinite", options, "__fault.sim_infinite", "fail.deadlock", &["exceeds the limit of 20000 steps"]);
}

#[test]
fn results_that_vary_are_named() {
    let options = &["--sim", "1", "--retries", "0"];
    check("order", options, "__fault.sim_order", "fail.determinism", &["other bits in", "so far by bitwise"]);
}

#[test]
fn classes_are_learnt_and_may_not_get_worse() {
    let place = Place::new("learnt");
    let twice = ["--sim", "1", "--twice", "--retries", "0"];
    let (code, text, _) = place.run(&twice, &[GOOD[1]]);
    assert_eq!(code, 0, "{text}");
    let table = place.0.join("results/history/simulator/determinism.csv");
    let learnt = std::fs::read_to_string(&table).expect("a table");
    assert!(learnt.contains("PlaceTest.good/m=5,bitwise,"), "{learnt}");
    // What varies more than the table says is a failure, and changes nothing in the table.
    std::fs::write(&table, format!("{learnt}__fault.sim_varying,bitwise,,1,r\n")).expect("writes");
    let (code, text, _) = place.run(&twice, &["__fault.sim_varying"]);
    assert_eq!(code, 100, "{text}");
    assert!(text.contains("fail.determinism") && text.contains("alike by tolerance, so far by bitwise"), "{text}");
    assert!(std::fs::read_to_string(&table).expect("a table").contains("__fault.sim_varying,bitwise"));
    // To accept it is to learn it anew.
    let (code, text, _) = place.run(&[&twice[..], &["--bless"]].concat(), &["__fault.sim_varying"]);
    assert_eq!(code, 0, "{text}");
    let (code, text, _) = place.run(&twice, &["__fault.sim_varying"]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn devices_must_agree() {
    let place = Place::new("cross");
    let ids = [GOOD[0], "__fault.sim_per_device", GOOD[1]];
    let (code, text, records) = place.run(&["--sim", "3", "--cross"], &ids);
    assert_eq!(code, 100, "{text}");
    assert!(text.contains("fail.determinism") && text.contains("results differ in their bits"), "{text}");
    assert!(text.contains(" on sim0") && text.contains("sim2"), "{text}");
    let of = |kind: &str| records.iter().filter(|record| record["k"] == kind).count();
    assert_eq!((of("attempt"), of("verdict")), (9, 3), "{text}");
    // On one device there is nothing to compare.
    let (code, text, _) = place.run(&["--sim", "1"], &ids);
    assert_eq!(code, 0, "{text}");
}
