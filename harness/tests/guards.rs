//! What a run finds in a kernel's treatment of memory, in what it leaves behind,
//! and in results that are not alike. Drives the binary as a user would.

use crate::place::{self, Place};

fn with_cases(name: &str) -> Place {
    Place::good(name, &[1, 5])
}

/// Runs cases by id and gives the exit code, what was printed, and the last run's records.
fn run(place: &Place, more: &[&str], ids: &[&str]) -> (i32, String, Vec<serde_json::Value>) {
    let mut args = [&["run", "--format", "plain", "--with-faults"], more].concat();
    ids.iter().for_each(|id| args.extend(["--exact", id]));
    let (code, text) = place.run(&args);
    (code, text, place.records())
}

const GOOD: [&str; 2] = ["PlaceTest.good/m=1", "PlaceTest.good/m=5"];

/// One case fails with the outcome, and its detail has the parts; the good cases pass.
#[track_caller]
fn check(name: &str, more: &[&str], fault: &str, outcome: &str, parts: &[&str]) {
    let place = with_cases(name);
    let (_, text, records) = run(&place, more, &[GOOD[0], fault, GOOD[1]]);
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
    let place = with_cases("learnt");
    let twice = ["--sim", "1", "--twice", "--retries", "0"];
    let (code, text, _) = run(&place, &twice, &[GOOD[1]]);
    assert_eq!(code, 0, "{text}");
    let table = place.path("results/history/simulator/determinism.csv");
    let learnt = std::fs::read_to_string(&table).expect("a table");
    assert!(learnt.contains("PlaceTest.good/m=5,bitwise,"), "{learnt}");
    // What varies more than the table says is a failure, and changes nothing in the table.
    std::fs::write(&table, format!("{learnt}__fault.sim_varying,bitwise,,1,r\n")).expect("writes");
    let (code, text, _) = run(&place, &twice, &["__fault.sim_varying"]);
    assert_eq!(code, 100, "{text}");
    assert!(text.contains("fail.determinism") && text.contains("alike by tolerance, so far by bitwise"), "{text}");
    assert!(std::fs::read_to_string(&table).expect("a table").contains("__fault.sim_varying,bitwise"));
    // To accept it is to learn it anew.
    let (code, text, _) = run(&place, &[&twice[..], &["--bless"]].concat(), &["__fault.sim_varying"]);
    assert_eq!(code, 0, "{text}");
    let (code, text, _) = run(&place, &twice, &["__fault.sim_varying"]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn devices_must_agree() {
    let place = with_cases("cross");
    let ids = [GOOD[0], "__fault.sim_per_device", GOOD[1]];
    let (code, text, records) = run(&place, &["--sim", "3", "--cross"], &ids);
    assert_eq!(code, 100, "{text}");
    assert!(text.contains("fail.determinism") && text.contains("results differ in their bits"), "{text}");
    assert!(text.contains(" on sim0") && text.contains("sim2"), "{text}");
    let of = |kind: &str| records.iter().filter(|record| record["k"] == kind).count();
    // What they disagree about is run again on all of them, twice.
    assert_eq!((of("attempt"), of("verdict")), (15, 3), "{text}");
    let (code, _, records) = run(&place, &["--sim", "3", "--cross", "--retries", "0"], &ids);
    assert_eq!((code, records.iter().filter(|record| record["k"] == "attempt").count()), (100, 9));
    // On one device there is nothing to compare, and one that has no worker is not compared.
    let (code, text, _) = run(&place, &["--sim", "1"], &ids);
    assert_eq!(code, 0, "{text}");
    let one = "`--cross` compares devices, and one is chosen";
    place::check(&place, &["--sim", "1", "--jobs", "3", "--cross"], 2, &[one]);
    place::check(&place, &["--ref", "--jobs", "1", "--cross"], 2, &[one]);
    place::check(&place, &["--sim", "3", "--jobs", "1", "--cross"], 2, &["each of 3 devices", "leaves workers for 1"]);
    place::check(&place, &["--sim", "3", "--jobs", "2", "--cross"], 2, &["each of 3 devices", "--jobs 3 or more"]);
}

/// Each device has a first attempt at the case, and keeps its evidence to itself.
#[test]
fn devices_have_evidence_of_their_own() {
    let place = with_cases("apart");
    let (code, text, records) = run(&place, &["--sim", "2", "--cross"], &["__fault.exit7"]);
    assert_eq!(code, 103, "{text}");
    let dir = place.path("results/latest");
    let folder = |r: &serde_json::Value| dir.join(r["evidence"].as_str().expect("a folder"));
    let folders: std::collections::BTreeSet<_> = records.iter().filter(|r| r["k"] == "attempt").map(folder).collect();
    // Three attempts on each.
    assert_eq!(folders.len(), 6, "{folders:?}\n{text}");
    assert!(folders.iter().all(|folder| folder.join("crash.json").is_file()), "{folders:?}");
}
