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

/// A run, and its pages, in two commands; the pages tell how a case failed and how it is run again.
#[test]
fn runs_become_pages() {
    let place = with_cases("pages", 3);
    std::fs::write(place.path("cases/bad.fuse"), BAD).expect("writes");
    check(&place, &["report", "--html", "pages"], 106, &["no FORMAT is in it"]);
    check(&place, &[&PLAIN[..], &["--run-id", "first"]].concat(), 100, &["3 passed", "1 failed"]);
    check(&place, &["report", "--html", "pages"], 0, &["of 4 cases and 1 run, ", "pages/index.html"]);
    let read = |name: &str| std::fs::read_to_string(place.path(name)).expect("reads");
    let health = read("pages/index.html");
    for told in ["fail.reference", "BadTest.Sum", "run/first.html", "3</span> pass"] {
        assert!(health.contains(told), "{told}: {health}");
    }
    let case = read("pages/case/BadTest.Sum.html");
    for told in ["--exact 'BadTest.Sum'", "../file/", "elements differ", "run/first.html"] {
        assert!(case.contains(told), "{told}: {case}");
    }
    // Once more over its own folder, but over no other, and with nothing that is for one run.
    check(&place, &["report", "--html", "pages"], 0, &["pages/index.html"]);
    check(&place, &["report", "--html", "cases"], 110, &["holds something that is not ours", "name another folder"]);
    for wrong in [&["report", "--html", "p", "latest"][..], &["report", "--html", "p", "--format", "md"]] {
        check(&place, wrong, 2, &["it takes no run, `--format`"]);
    }
    check(&place, &["compare", "--html", "p", "a", "b"], 2, &["`--html` belongs to `report`"]);
    // A mistake in a case file costs what that file says, not the pages.
    std::fs::write(place.path("cases/bad.fuse"), "---\nversion = 7\n---\n").expect("writes");
    check(&place, &["report", "--html", "pages"], 0, &["pages are made without what those files say", "of 4 cases"]);
}

/// A case that runs and whose values are others.
const BAD: &str = "---
version = 1
suite = \"BadTest\"
about = \"a mistake\"
---
fusion @Sum(%x: f32[?]) {
  %0 = add %x, 1.0
  return %0
}
; inputs: x = full(1)[3]
; values: [2.0, 2, 3]
";

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
    let columns = "run_id,command,started_utc,commit,dirty,host,gpus,driver,nvrtc,clocks,device,options";
    assert_eq!(rows[0], columns, "{written}");
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

/// Two runs by their commits and their day: the last of one command on one device, and clean ones first.
#[test]
fn runs_are_compared_by_commit_and_day() {
    let place = with_cases("by-commit", 2);
    let git = |words: &[&str]| {
        let mut git = place.program_here("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]).args(words);
        let output = git.output().expect("git runs");
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    let run = |id: &str| check(&place, &[&PLAIN[..], &["--run-id", id]].concat(), 0, &["2 passed"]);
    let bench = |id: &str| check(&place, &["bench", "--ref", "--filter", "*", "-q", "--run-id", id], 0, &["2 passed"]);
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "cases"]);
    git(&["commit", "-q", "-m", "first"]);
    run("early");
    bench("early-bench");
    place.file("cases/more.txt", "");
    git(&["add", "cases"]);
    run("changed");
    git(&["commit", "-q", "-m", "second"]);
    run("late");
    let names = |words: &[&str; 2]| {
        let text = check(&place, &["compare", words[0], words[1], "--format", "json"], 0, &[]);
        let found: Value = serde_json::from_str(&text).expect("JSON");
        ["before", "after"].map(|side| found[side]["run"].as_str().expect("a name").to_string())
    };
    let [first, second] = [git(&["rev-parse", "HEAD~1"]), git(&["rev-parse", "HEAD"])];
    assert_eq!(names(&["HEAD~1", "HEAD"]), ["early", "late"]);
    assert_eq!(names(&[&first[..8], "main"]), ["early", "late"]);
    assert_eq!(names(&["early-bench", &second]), ["early-bench", "late"]);
    let header: Value = serde_json::from_str(&place.read("results/runs/late/run.json")).expect("JSON");
    let day = header["started_utc"].as_str().expect("a time")[..10].to_string();
    assert_eq!(names(&[&day, "latest"]), ["changed", "late"]);
    check(&place, &["compare", "1999-12-31", "latest"], 106, &["`1999-12-31`: no finished run began then"]);
    check(&place, &["compare", "HEAD~7", "latest"], 106, &["there is no run `HEAD~7`"]);
    git(&["commit", "-q", "--allow-empty", "-m", "third"]);
    check(&place, &["compare", "HEAD", "latest"], 106, &["of which no finished run is recorded"]);
}

/// A folder whose tables an older version wrote, and whose runs are gone: everything that it says is kept, and told what is not known.
#[test]
fn tables_of_an_older_version_are_brought_up() {
    let place = with_cases("older", 2);
    let folder = "results/history/simulator";
    let bench =
        |id: &str| check(&place, &["bench", "--sim", "1", "--filter", "*", "-q", "--run-id", id], 0, &["2 passed"]);
    bench("first");
    let perf = place.read(&format!("{folder}/perf.csv"));
    let head = "run_id,commit,case_id,bytes,samples,median_ns,p10_ns,p90_ns,gbps,share_of_copy,copy_gbps,host_us,schedule_ms,\
        lower_ms,codegen_ms,load_ms,kernel_crc,counters";
    let row = "20250101T101112Z-abcdef,c0,PlaceTest.gone,64,1,,,,,,,,0.1,0.2,,,0a0b0c0d,blocks=2 instructions=7";
    place.file(&format!("{folder}/perf.csv"), &format!("{head}\n{row}\n"));
    std::fs::remove_file(place.path(&format!("{folder}/runs.csv"))).expect("removes");
    let older = "perf.csv: 3 rows of an older version to be given the columns of now, 2 rows to be put in from runs";
    check(&place, &["store", "verify"], 96, &[older, "runs.csv: 2 rows to be put in"]);
    check(&place, &["store", "repair"], 0, &["given the columns of now"]);
    let now = place.read(&format!("{folder}/perf.csv"));
    let lines: Vec<&str> = now.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, perf.lines().next().expect("a header")), "{now}");
    assert!(
        lines[1].starts_with("20250101T101112Z-abcdef,c0,PlaceTest.gone,64,1,") && lines[1].ends_with(",2"),
        "{now}"
    );
    let runs = place.read(&format!("{folder}/runs.csv"));
    assert!(runs.contains("20250101T101112Z-abcdef,,2025-01-01T10:11:12Z,c0,"), "{runs}");
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    // A run that adds to such a table brings it up by itself.
    place.file(&format!("{folder}/perf.csv"), &format!("{head}\n{row}\n"));
    let text = bench("second");
    assert!(text.contains("note: perf.csv had columns of before: its 1 row have those of now"), "{text}");
    // How long each case took in each run is there, also when the runs are gone.
    let month = std::fs::read_dir(place.path(&format!("{folder}/times"))).expect("a folder").flatten().next();
    let times = std::fs::read_to_string(month.expect("a table").path()).expect("reads");
    assert_eq!(times.lines().filter(|line| line.contains(",PlaceTest.")).count(), 4, "{times}");
    check(&place, &["store", "prune", "--keep", "1", "--yes"], 0, &["1 of 2 runs removed"]);
    check(&place, &["store", "repair"], 0, &[]);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    assert!(place.read(&format!("{folder}/runs.csv")).contains("\nfirst,bench,20"), "{times}");
}
