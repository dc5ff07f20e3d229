//! A case file with a mistake among others: what is said, what still runs, and how it ends. Drives the binary as a
//! user would.

use crate::place::{CaseFile, GOOD, Place, check};

const RUN: [&str; 3] = ["run", "--ref", "--format=plain"];

/// A folder with a case that passes, and a file whose second line is none.
fn with_broken(name: &str) -> Place {
    let place = Place::good(name, &[4, 5]);
    place.file("cases/broken.fuse", "---\nversion = what\n---\n");
    place
}

#[test]
fn a_broken_file_does_not_stop_the_others() {
    let place = with_broken("broken");
    let note = "the files are left out, the others run";
    let last = "1 case file was left out as malformed: cases/broken.fuse\n";
    let text = check(&place, &RUN, 96, &["cases/broken.fuse:2:", note, last, "2 passed, 0 failed, 0 skipped"]);
    assert!(text.find(note) < text.find("[1/2] PASS"), "{text}");
    check(&place, &["run", "--ref", "-q"], 96, &[note, last]);
    check(&place, &["bench", "--sim", "1", "--filter", "*"], 96, &[note, "2 passed"]);
    // What reports say of it, too.
    check(
        &place,
        &["report", "--format", "md"],
        0,
        &["incomplete", "### Left out: 1 malformed case files", "`cases/broken.fuse:2`"],
    );
    let junit = check(&place, &["report", "--format", "junit"], 0, &["cases/broken.fuse:2: "]);
    assert!(junit.contains("errors=\"1\"") && junit.contains("tests=\"3\""), "{junit}");
    // A failure counts more; cases that are named are all there.
    place.case("wrong", CaseFile { more: "; values: [7, 7, 7, 7]\n", ..GOOD });
    check(&place, &RUN, 100, &[last]);
    check(&place, &[&RUN[..], &["--exact", "PlaceTest.good/m=4"]].concat(), 0, &[note, "1 passed"]);
}

#[test]
fn where_nothing_is_left_nothing_is_run() {
    let place = with_broken("broken-all");
    // A case that is not there may be in the broken file: its mistakes are told.
    check(
        &place,
        &[&RUN[..], &["--exact", "PlaceTest.other"]].concat(),
        96,
        &["cases/broken.fuse:2:", "nothing was run"],
    );
    check(&place, &[&RUN[..], &["--cases", "cases/broken.fuse"]].concat(), 96, &["nothing was run"]);
    check(&place, &["check"], 96, &["nothing was run"]);
    // A file that takes another's id is the broken one.
    std::fs::copy(place.path("cases/good.fuse"), place.path("cases/later.fuse")).expect("copies");
    let text = check(&place, &RUN, 96, &["already taken by cases/good.fuse", "2 case files were left out", "2 passed"]);
    assert!(!text.contains("cases/good.fuse was left out"), "{text}");
}

/// What selects cases for other ends does without the broken file, too, and says it beside what programs read.
#[test]
fn a_broken_file_does_not_stop_lists_plans_and_hunts() {
    let place = with_broken("broken-others");
    let output = place.command(&["list"]).output().expect("runs");
    assert_eq!(output.status.code(), Some(96));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "PlaceTest.good/m=4\nPlaceTest.good/m=5\n");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("cases/broken.fuse:2:") && told.contains("the others are listed"), "{told}");
    check(&place, &["plan", "--ref"], 96, &["2 of 2 cases would run", "the others are planned"]);
    let json = place.command(&["plan", "--ref", "--format", "json"]).output().expect("runs");
    assert!(serde_json::from_slice::<serde_json::Value>(&json.stdout).is_ok() && json.status.code() == Some(96));
    let hunt = ["hunt", "--ref", "--repeat", "2", "--format", "plain"];
    let last = "1 case file was left out as malformed: cases/broken.fuse\n";
    check(&place, &hunt, 96, &["cases/broken.fuse:2:", "the files are left out, the others run", last, "2 undecided"]);
    // Cases that are named are all there; one that is not may be in the broken file.
    for args in [&["list"][..], &["plan", "--ref"], &["hunt", "--ref", "--repeat", "2"]] {
        check(&place, &[args, &["--exact", "PlaceTest.good/m=4"]].concat(), 0, &["the files are left out"]);
        check(&place, &[args, &["--exact", "PlaceTest.other"]].concat(), 96, &["nothing was run"]);
    }
    // Its own code: there is nothing to explain about a case that passes, so it looks until its time is over.
    check(&place, &["why", "PlaceTest.good/m=4", "--ref", "--budget", "1s"], 6, &["the others run"]);
    // What holds all cases to something still wants all of them.
    for args in [&["check"][..], &["kernels"]] {
        check(&place, args, 96, &["cases/broken.fuse:2:", "nothing was run"]);
    }
}
