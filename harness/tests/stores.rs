//! What a folder of runs tells: which runs there are, what they were, how two of
//! them differ. Drives the binary as a user would.

use crate::durability::{PLAIN, with_cases};
use crate::place::{CaseFile, GOOD, Place, check};
use serde_json::Value;

/// A folder that was filled by a merge passes its own check, and a look mends nothing.
#[test]
fn a_folder_that_was_merged_into_is_whole() {
    let there = with_cases("merge-source", 3);
    check(&there, &[&PLAIN[..], &["--run-id", "one"]].concat(), 0, &["3 passed"]);
    let source = there.path("results");
    let source = source.to_str().expect("text");
    let here = Place::empty("merge-fresh");
    check(&here, &["store", "merge", source], 0, &["one: copied"]);
    check(&here, &["store", "verify"], 0, &["1 runs", "0 problems"]);
    check(&here, &["report"], 0, &["`one` passed"]);
    // What would be done is not worded as done.
    std::fs::remove_file(here.path("results/latest")).expect("removes");
    std::fs::remove_file(here.path("results/history/reference/durations.csv")).expect("removes");
    for args in [&["store", "verify"][..], &["store", "repair", "--dry-run"]] {
        let (_, text) = here.run(args);
        assert!(text.contains("durations.csv: 3 rows to be put in from runs"), "{text}");
        assert!(text.contains("latest: to name one, the last that ended"), "{text}");
    }
    check(&here, &["store", "repair"], 0, &["durations.csv: 3 rows put in from runs", "latest: names one now"]);
}

/// The runs of a folder tell their command, device and sources, to people and programs.
#[test]
fn a_list_of_runs_says_what_each_was() {
    let place = with_cases("listed", 3);
    check(&place, &["report"], 106, &["no FORMAT is in it"]);
    check(&place, &["hunt", "--ref", "--repeat", "2", "--format", "plain"], 0, &[]);
    // Not a word of an empty folder where there is a hunt.
    check(&place, &["report"], 106, &["of 1 run none is finished and came to verdicts"]);
    check(&place, &[&PLAIN[..], &["--run-id", "first"]].concat(), 0, &["3 passed"]);
    check(
        &place,
        &["bench", "--sim", "1", "--filter", "*", "--format", "plain", "--run-id", "measured"],
        0,
        &["3 passed"],
    );
    check(&place, &[&PLAIN[..], &["--run-id", "second"]].concat(), 0, &["3 passed"]);
    let text = check(&place, &["store", "list"], 0, &["second (latest)", "3 undecided", "3 pass"]);
    let row = |id: &str| text.lines().find(|line| line.starts_with(id)).expect("a row").to_string();
    assert!(row("measured").contains("bench") && row("measured").contains("simulator"), "{text}");
    assert!(row("first").contains("run") && row("first").contains("reference"), "{text}");
    let all: Value =
        serde_json::from_str(&check(&place, &["store", "list", "--format", "json"], 0, &[])).expect("JSON");
    let of = |id: &str| all.as_array().expect("a list").iter().find(|run| run["run"] == id).expect("a run").clone();
    assert_eq!((&of("measured")["command"], &of("measured")["device"]), (&"bench".into(), &"simulator".into()));
    assert_eq!((&of("second")["latest"], &of("first")["latest"]), (&true.into(), &false.into()));
    assert_eq!(of("second")["summary"]["counts"]["pass"], 3, "{all}");
    check(&place, &["store", "list", "--format", "csv"], 2, &["belongs to `store export`", "has plain, json"]);
    check(&place, &["store", "export", "--format", "json"], 2, &["belongs to `store list`", "csv, jsonl, folder"]);
    // The run before the latest is one of the same command.
    check(&place, &["compare", "latest~1", "latest"], 0, &["before first", "after  second"]);
    check(&place, &["report", "latest~2"], 106, &["only 2 runs of `run` finished"]);
}

/// Two runs of a bench between which a case's input was laid out by columns: each counter that differs is told in full, a cost
/// that rose has an exit code of its own, and a run on another device is not compared by times.
#[test]
fn a_case_that_costs_more_is_a_regression() {
    let place = Place::empty("dearer");
    let rows = CaseFile { input: "f32[?, ?]", op: "sum %x axes(1)", size: "64, 256", ..GOOD };
    let bench = ["bench", "--sim", "1", "--filter", "*", "--format", "plain"];
    place.case("sum", rows);
    check(&place, &bench, 0, &["instructions", "of ideal", "1.00x", "no earlier bench on this device"]);
    check(&place, &bench, 0, &["=\n", "change: against "]);
    check(&place, &["compare", "latest~1", "latest"], 0, &["bench, simulator", "no differences"]);
    place.case("sum", CaseFile { size: "64, 256] strides [1, 64", ..rows });
    check(&place, &[&bench[..], &["--run-id", "simulated"]].concat(), 0, &["change: against "]);
    let text = check(&place, &["compare", "latest~1", "latest"], 10, &["other counters: ", "instructions", " %"]);
    assert!(!text.contains("..."), "{text}");
    let json: Value =
        serde_json::from_str(&check(&place, &["compare", "latest~1", "latest", "--format", "json"], 10, &[]))
            .expect("JSON");
    let dearer = |change: &&Value| change["dearer"] == true && change["case_id"] == "PlaceTest.sum";
    assert!(json["counters"].as_array().is_some_and(|all| all.iter().find(dearer).is_some()), "{json}");
    assert!(
        json["after"]["options"].as_array().is_some_and(|words| words.iter().any(|word| word == "bench")),
        "{json}"
    );
    check(&place, &["bench", "--ref", "--filter", "*", "--format", "plain", "--run-id", "other"], 0, &[]);
    let note = "simulator and reference: only outcomes are compared";
    check(&place, &["compare", "simulated", "other"], 0, &[note]);
    // The counters are columns of the table for other tools, too.
    let table = check(&place, &["store", "export"], 0, &[]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|column| *column == name).expect("a column");
    let cell = |row: &[&str], name: &str| row[column(name)].to_string();
    let counted = lines.iter().find(|row| row[0] == "simulated").expect("a row");
    assert!(cell(counted, "instructions").parse::<u64>().is_ok_and(|n| n > 0), "{table}");
    assert_eq!(cell(counted, "command"), "bench", "{table}");
}

/// Rows of tables name their run; what that was, its time and sources, is known also when the run is gone.
#[test]
fn a_history_says_what_its_runs_were() {
    let place = with_cases("provenance", 3);
    check(&place, &[&PLAIN[..], &["--run-id", "one"]].concat(), 0, &["3 passed"]);
    check(&place, &[&PLAIN[..], &["--run-id", "two", "--seed", "7"]].concat(), 0, &["3 passed"]);
    let table = "results/history/reference/runs.csv";
    let written = place.read(table);
    let rows: Vec<&str> = written.lines().collect();
    assert_eq!(rows.len(), 3, "{written}");
    assert!(rows[0].starts_with("run_id,command,started_utc,commit,dirty,host,gpus,driver,options"), "{written}");
    assert!(rows[1].starts_with("one,run,20") && rows[2].ends_with("--run-id two --seed 7"), "{written}");
    // A pruned run leaves its row; one that is here puts its own right.
    check(&place, &["store", "prune", "--keep", "1", "--yes"], 0, &["1 of 2 runs removed"]);
    assert_eq!(place.read(table), written);
    place.file(table, &written.replace("two,run,", "two,bench,"));
    check(&place, &["store", "verify"], 96, &["two: command is `bench`, by the record `run`"]);
    check(&place, &["store", "repair"], 0, &["1 rows put right"]);
    assert_eq!(place.read(table), written);
    // A folder that was filled by a merge has it too.
    let fresh = Place::empty("provenance-fresh");
    check(&fresh, &["store", "merge", place.path("results").to_str().expect("text")], 0, &["two: copied"]);
    assert!(fresh.read(table).contains("\ntwo,run,20"), "{}", fresh.read(table));
}
