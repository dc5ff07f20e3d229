//! A night by the script that cron calls: its steps, its summary and its code.

use crate::durability::with_cases;
use crate::launcher::with_cluster;
use crate::place::{CaseFile, GOOD, Place, ended};
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/nightly/nightly.sh");

/// A night without a build and a sweep. Gives its code and what it said.
fn night(place: &Place, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("bash");
    let base = [SCRIPT, "--harness", env!("CARGO_BIN_EXE_harness"), "--pages", "pages", "--summary", "night.md"];
    crate::place::unswayed(command.args(base).args(more).current_dir(&place.0)).env_remove("GITHUB_STEP_SUMMARY");
    let output = command.output().expect("bash runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[track_caller]
fn check_night(place: &Place, code: i32, told: &[&str]) {
    let devices = ["--hunt", "1s", "--", "--sim", "1", "--filter", "*"];
    let (ended, text) = night(place, &devices);
    let summary = std::fs::read_to_string(place.path("night.md")).expect("a summary");
    assert_eq!(ended, Some(code), "{text}");
    for words in told {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    assert!(place.path("pages/index.html").exists());
}

#[test]
fn a_night_tells_what_changed_since_the_last() {
    let place = with_cases("nightly", 3);
    check_night(&place, 0, &["Ends with 0", "there is no earlier run", "| suite | 0 |", "| hunt | "]);
    place.case("wrong", CaseFile { more: "; values: [9.0, 9, 9, 9]\n", ..GOOD });
    check_night(&place, 100, &["Ends with 100", "| suite | 100 |", "newly failing", "| pages | 0 |"]);
    std::fs::remove_file(place.path("cases/wrong.fuse")).expect("removes");
    check_night(&place, 0, &["Ends with 0", "gone"]);
}

#[test]
fn a_night_refuses_what_it_does_not_know() {
    let place = with_cases("nightly-wrong", 1);
    for wrong in [&["--gpus", "all"][..], &["--hunt"]] {
        let (code, text) = night(&place, wrong);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--results DIR"), "{text}");
    }
    std::fs::remove_dir_all(place.path("cases")).expect("removes");
    let (code, text) = night(&place, &[]);
    assert!(code == Some(2) && text.contains("root of a checkout"), "{text}");
}

/// A night of an array of shards: one run with all cases, and pages of it.
#[test]
fn shards_of_a_cluster_are_one_night() {
    let place = with_cluster("nightly-slurm", 6);
    let script = Path::new(SCRIPT).with_file_name("slurm.sh");
    let night = || {
        let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").unwrap_or_default());
        let mut command = place.program_here("bash");
        command.arg(&script).args(["3", "night", "--partition=gpu", "--time=5"]).env("PATH", path);
        command.env("HARNESS", env!("CARGO_BIN_EXE_harness")).env("DEVICES", "--sim 1");
        ended(command.output().expect("bash runs"))
    };
    let (code, text) = night();
    assert!(
        code == 0 && text.contains("6 cases of 3 shards") && text.contains("of 6 cases and 1 run"),
        "{code}: {text}"
    );
    assert_eq!(place.read("partitions"), "--partition=gpu\n");
    place.file("lost", "2\n");
    place.file("persist", "9\n");
    let (code, text) = night();
    assert!(code == 6 && text.contains("run shard 2 of 3 is missing"), "{code}: {text}");
}

/// The scripts are in order as far as bash reads them.
#[test]
fn scripts_are_well_formed() {
    for name in ["nightly.sh", "slurm.sh", "../slurm_cluster.sh"] {
        let path = Path::new(SCRIPT).with_file_name(name);
        assert!(Command::new("bash").arg("-n").arg(&path).status().expect("bash runs").success(), "{name}");
    }
}
