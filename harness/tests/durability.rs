//! What is left of a run when the harness is killed, the disk is full, the folder
//! cannot be written or goes away, or bytes are damaged. Drives the binary as a
//! user would.

use crate::place::{Place, check, ended, records};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Kills of one test run. `HARNESS_TEST_KILLS=500` for more.
const KILLS: u64 = 30;

/// A place with so many cases of one file.
pub(crate) fn with_cases(name: &str, cases: usize) -> Place {
    Place::good(name, &(1..=cases).collect::<Vec<_>>())
}

pub(crate) const PLAIN: [&str; 5] = ["--ref", "--jobs", "2", "--format", "plain"];

/// Ids of records of one kind. A case that was not run counts for none.
fn ids(events: &[Value], kind: &str) -> Vec<String> {
    let of = |record: &&Value| record["k"] == kind && record["outcome"] == "pass";
    events.iter().filter(of).map(|r| r["case_id"].as_str().expect("an id").to_string()).collect()
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
        let verdict = line.strip_prefix('[')?.split_once("] ")?.1;
        let id = |word: &&str| word.starts_with("PlaceTest.") || word.starts_with("__fault.");
        verdict.split_whitespace().find(id).map(String::from)
    });
    (status.map(|status| status.code().unwrap_or(-1)), told.collect())
}

/// Logs of all runs, by folder. A folder whose log is not there yet is none.
fn logs(place: &Place) -> BTreeMap<PathBuf, Vec<Value>> {
    let runs = std::fs::read_dir(place.path("results/runs")).into_iter().flatten().flatten();
    let runs = runs.map(|entry| entry.path()).filter(|dir| dir.join("events.jsonl").exists());
    runs.map(|dir| (dir.clone(), records(&dir))).collect()
}

/// What a run came to: the verdict on each case, and the outcomes of its attempts.
type Verdicts = BTreeMap<String, (Value, Value)>;

fn verdicts(log: &[Value]) -> Verdicts {
    let verdict = |r: &&Value| r["k"] == "verdict";
    let of = |r: &Value| {
        // Of one attempt the outcome is that of the verdict.
        let outcomes = if r["attempts"] == 1 { Value::from([r["outcome"].clone()]) } else { r["outcomes"].clone() };
        (r["case_id"].as_str().expect("an id").into(), (r["verdict"].clone(), outcomes))
    };
    log.iter().filter(verdict).map(of).collect()
}

/// One job over several lives, the last of which may end. Whatever was told is
/// recorded, and no later life runs it again. The verdicts are those of a run that
/// nobody killed, but for `victim`s, which fail or not by what their worker ran
/// before: what failed in one life and passes in another is flaky. Returns how many
/// lives went on.
fn lives(place: &Place, args: &[&str], wanted: &(i32, Verdicts), delays: &mut dyn FnMut() -> Duration) -> usize {
    let _ = std::fs::remove_dir_all(place.path("results"));
    let (mut finished, mut failed, mut resumed) = (Verdicts::new(), BTreeSet::new(), 0);
    for life in 0..4 {
        let before: BTreeSet<PathBuf> = logs(place).into_keys().collect();
        let mut args = args;
        if !before.is_empty() && logs(place).values().any(|log| log.iter().any(|r| r["k"] == "selected")) {
            args = &["resume", "--format", "plain"];
            resumed += 1;
        } else {
            assert!(finished.is_empty());
        }
        let delay = if life < 3 { delays() } else { Duration::from_secs(300) };
        let (code, told) = killed_after(place, args, delay);
        for (dir, log) in logs(place) {
            let here = verdicts(&log);
            let attempts = || log.iter().filter(|r| r["k"] == "attempt");
            if !before.contains(&dir) {
                let again: Vec<&Value> =
                    attempts().map(|r| &r["case_id"]).filter(|id| finished.contains_key(text(id))).collect();
                assert!(again.is_empty(), "life {life} ran again: {again:?}");
                let lost: Vec<&String> = told.iter().filter(|id| !here.contains_key(*id)).collect();
                assert!(lost.is_empty(), "life {life} lost: {lost:?}");
            }
            failed.extend(attempts().filter(|r| r["verdict"] == "fail").map(|r| text(&r["case_id"]).to_string()));
            finished.extend(here);
        }
        // Killed behind its last record, it is complete all the same.
        let ended = logs(place).values().any(|log| log.last().is_some_and(|record| record["k"] == "end"));
        if code.is_some() || ended {
            assert_eq!(code.unwrap_or(wanted.0), wanted.0, "life {life}, {args:?}");
            break;
        }
    }
    let by_chance = |id: &&String| id.contains("victim");
    for id in finished.keys().filter(by_chance) {
        let verdict = if failed.contains(id) { "flaky" } else { "pass" };
        assert_eq!(finished[id].0, verdict, "{id}: {:?}", finished[id]);
    }
    let certain = |all: &Verdicts| all.clone().into_iter().filter(|(id, _)| !by_chance(&id)).collect::<Verdicts>();
    assert_eq!((certain(&finished), finished.len()), (certain(&wanted.1), wanted.1.len()));
    resumed
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// The store opens, what was told is recorded, and going on runs nothing twice
/// and forgets no failure until all cases have their verdict.
#[test]
fn killed_at_any_moment_it_goes_on_without_running_a_case_again() {
    let place = with_cases("moments", 12);
    let kills: u64 = std::env::var("HARNESS_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let mut ids: Vec<String> = (1..=12).map(|m| format!("PlaceTest.good/m={m}")).collect();
    // Each victim fails in the worker of its polluter, and passes in a fresh one.
    let pairs = (1..=8).flat_map(|n| [format!("pollute=A@{n}"), format!("victim=A@{n}")]);
    let others = ["fail", "exit7", "flaky=0.5@a", "flaky=0.8"].map(String::from);
    ids.extend(pairs.chain(others).map(|fault| format!("__fault.{fault}")));
    let mut args = vec!["--ref", "--jobs", "1", "--format", "plain", "--with-faults"];
    args.extend(ids.iter().flat_map(|id| ["--exact", id]));
    let started = Instant::now();
    let code = place.run(&args).0;
    let whole = started.elapsed().as_micros() as u64;
    let wanted = (code, verdicts(&logs(&place).into_values().next().expect("a run")));
    let count = |name: &str| wanted.1.values().filter(|(verdict, _)| verdict == name).count();
    assert_eq!((code, count("fail"), count("crash"), count("flaky")), (103, 1, 1, 10), "{wanted:?}");
    let (mut state, mut killed, mut resumed, mut jobs) = (0x9E37_79B9_7F4A_7C15, 0, 0, 0);
    while killed < kills {
        jobs += 1;
        let mut moment = || {
            killed += 1;
            Duration::from_micros(next(&mut state) % whole)
        };
        resumed += lives(&place, &args, &wanted, &mut moment);
        check(&place, &["store", "repair"], 0, &[]);
        check(&place, &["store", "verify"], 0, &["0 problems"]);
        // What is left is one run that covers all.
        let (_, last) = place.run(&["report", "latest", "--format", "csv"]);
        assert_eq!(last.lines().count(), ids.len() + 1, "{last}");
    }
    eprintln!("{killed} moments in {jobs} jobs, {resumed} lives went on, {:.0?}", started.elapsed());
    assert!(resumed > 0, "no kill fell into a run");
}

/// Records beyond a limit on the size of files are counted as missing; nothing else changes.
#[test]
fn a_full_disk_costs_records_and_no_verdict() {
    let place = with_cases("full", 400);
    let mut child = place.command(&PLAIN).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for_verdicts(&place, 1);
    let log = logs(&place).into_keys().next().expect("a run").join("events.jsonl");
    let limit = Some(std::fs::metadata(&log).expect("a log").len() + 700);
    let pid = rustix::process::Pid::from_child(&child);
    let limits = rustix::process::Rlimit { current: limit, maximum: limit };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limits).expect("limits");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("reads");
    assert_eq!(child.wait().expect("ends").code(), Some(110), "{text}");
    assert!(text.ends_with("400 passed, 0 failed, 0 skipped\n"), "{text}");
    let line = text.lines().find(|line| line.contains("is not complete")).expect("a line");
    assert!(line.contains("records are missing: File too large"), "{line}");
    // A short record behind those that are lost may still have found room, the end even.
    let events = harness::record::read_events(&log).expect("reads");
    assert!(events.records.iter().any(|record| record["k"] == "verdict"));
    check(&place, &["store", "repair"], 0, &[]);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    check(&place, &["resume", "latest", "--format", "plain"], 0, &["400 passed, 0 failed, 0 skipped"]);
}

fn wait_for_verdicts(place: &Place, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !logs(place).values().any(|log| log.iter().filter(|r| r["k"] == "verdict").count() >= count) {
        assert!(Instant::now() < deadline, "no case ended");
    }
}

/// Starts a run and kills it when some cases have their verdicts. Returns the run's
/// name and the cases that passed.
fn killed_in_the_middle(place: &Place, args: &[&str]) -> (String, Vec<String>) {
    let mut child = place.command(args).stdout(Stdio::null()).spawn().expect("starts");
    wait_for_verdicts(place, 4);
    child.kill().expect("kills");
    child.wait().expect("reaps");
    let (dir, log) = logs(place).into_iter().next_back().expect("a run");
    (dir.file_name().and_then(|name| name.to_str()).expect("a name").into(), ids(&log, "verdict"))
}

/// The same on a file system that is really full, where one may be mounted.
#[test]
#[ignore = "needs a file system of its own, which root can mount"]
fn needs_mount_a_full_file_system_costs_records_and_no_verdict() {
    let place = with_cases("enospc", 150);
    std::fs::create_dir_all(place.path("results")).expect("a folder");
    let script = "mount -t tmpfs -o size=64k tmpfs results || exit 77; \
                  \"$0\" \"$@\"; echo code $?; df results | tail -1; \"$0\" store verify; echo code $?; \
                  \"$0\" store repair; mount -o remount,size=4m results; \"$0\" store repair; \"$0\" store verify";
    let mut command = place.program_here("unshare");
    command.args(["-m", "bash", "-c", script, env!("CARGO_BIN_EXE_harness")]).args(PLAIN);
    let output = match command.output() {
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => output,
        other => panic!("no file system can be mounted here: {other:?}"),
    };
    let (_, text) = ended(output);
    assert!(text.contains("No space left on device"), "{text}");
    assert!(text.contains("150 passed, 0 failed, 0 skipped\ncode 110\n"), "{text}");
    assert!(text.contains("records, 0 problems\n"), "{text}");
}

/// A file system that takes so many files and folders: workers that come and go
/// need no more of them than live ones, and find another place where there is none.
#[track_caller]
fn check_files(name: &str, files: usize, exit: i32) {
    let place = with_cases(name, 40);
    std::fs::create_dir_all(place.path("results")).expect("a folder");
    let script = format!("mount -t tmpfs -o nr_inodes={files} tmpfs results || exit 77; exec \"$0\" \"$@\"");
    let mut command = place.program_here("unshare");
    command.args(["-m", "bash", "-c", &script, env!("CARGO_BIN_EXE_harness")]).args(PLAIN);
    command.args(["--isolation", "case"]);
    let output = match command.output() {
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => output,
        other => panic!("no file system can be mounted here: {other:?}"),
    };
    let (code, text) = ended(output);
    assert!(text.ends_with("40 passed, 0 failed, 0 skipped\n"), "{text}");
    assert_eq!(code, exit, "{text}");
}

#[test]
#[ignore = "needs a file system of its own, which root can mount"]
fn needs_mount_workers_need_no_more_room_than_those_that_live() {
    check_files("inodes", 60, 0);
    check_files("no-inodes", 10, 110);
}

#[test]
fn a_folder_that_cannot_be_written_costs_the_record_only() {
    let place = with_cases("readonly", 3);
    place.file("file", "no folder");
    let parts = ["is not complete", "3 passed, 0 failed, 0 skipped"];
    check(&place, &[&PLAIN[..], &["--results", "file/below"]].concat(), 110, &parts);
    check(&place, &[&PLAIN[..], &["--results", "/proc/nothing"]].concat(), 110, &parts);
    // A report that cannot be written has the same code.
    check(
        &place,
        &[&PLAIN[..], &["--junit", "file/junit.xml"]].concat(),
        110,
        &["a report could not be written", "3 passed"],
    );
}

#[test]
fn a_folder_that_goes_away_is_written_again() {
    let place = with_cases("gone", 400);
    let mut child = place.command(&PLAIN).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for_verdicts(&place, 1);
    // Out of the way at once: the run would write into a folder that is being emptied.
    std::fs::rename(place.path("results/runs"), place.path("removed")).expect("moves");
    std::fs::remove_dir_all(place.path("removed")).expect("removes");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("reads");
    let code = child.wait().expect("ends").code();
    assert!(text.ends_with("400 passed, 0 failed, 0 skipped\n"), "{text}");
    let log = logs(&place).into_values().next().expect("a log");
    assert_eq!(ids(&log, "verdict").len(), 400);
    assert_eq!(code, Some(110), "{}", text.lines().rev().take(4).collect::<Vec<_>>().join("\n"));
    assert!(text.contains("its folder was removed in the middle"), "{text}");
}

#[test]
fn several_harnesses_write_into_one_folder() {
    let place = with_cases("together", 12);
    let start = |_| place.command(&PLAIN).stdout(Stdio::piped()).spawn().expect("starts");
    let children: Vec<_> = (0..4).map(start).collect();
    for child in children {
        let (code, text) = ended(child.wait_with_output().expect("ends"));
        assert!(code == 0 && text.ends_with("12 passed, 0 failed, 0 skipped\n"), "{code}\n{text}");
    }
    assert_eq!(logs(&place).len(), 4);
    check(&place, &["store", "verify"], 0, &["4 runs", "0 problems"]);
    let table = place.read("results/history/reference/durations.csv");
    assert!(table.lines().skip(1).all(|row| row.split(',').nth(1) == Some("4")), "{table}");
    let changes = place.read("results/history/reference/verdicts.csv");
    assert_eq!(changes.lines().count(), 13, "{changes}");
}

/// Damage is told, mended with what was there kept aside, and mended once.
#[test]
fn damage_is_told_and_mended() {
    let place = with_cases("damage", 10);
    check(&place, &PLAIN, 0, &["10 passed"]);
    let history = place.path("results/history/reference");
    let tables = ["verdicts.csv", "durations.csv"].map(|name| history.join(name));
    let before = tables.clone().map(|path| std::fs::read_to_string(path).expect("a table"));
    let dir = logs(&place).into_keys().next().expect("a run");
    let path = dir.join("events.jsonl");
    let mut bytes = std::fs::read(&path).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    bytes.truncate(bytes.len() - 9);
    std::fs::write(&path, &bytes).expect("writes");
    std::fs::write(dir.join("run.json"), "{\"run_id\": tru").expect("writes");
    std::fs::write(&tables[0], before[0].replace(",pass,,pass", ",pa\0s,,pass").as_bytes()).expect("writes");
    std::fs::remove_file(&tables[1]).expect("removes");
    std::fs::remove_file(place.path("results/latest")).expect("removes");
    check(
        &place,
        &["store", "verify"],
        96,
        &["1 damaged lines", "the last line is torn", "run.json cannot be read", "store repair"],
    );
    // A reader takes what is whole.
    let id = dir.file_name().expect("a name").to_str().expect("text");
    check(&place, &["report", id], 0, &["The record is damaged"]);
    let dry = check(&place, &["store", "repair", "--dry-run"], 0, &["would be mended"]);
    assert_eq!(std::fs::read(&path).expect("a log"), bytes, "{dry}");
    check(
        &place,
        &["store", "repair"],
        0,
        &["1 damaged lines taken out", "run.json made again", "kept as verdicts.csv.damaged-"],
    );
    check(&place, &["store", "repair"], 0, &["0 things mended"]);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    let names: Vec<String> = std::fs::read_dir(&dir)
        .expect("lists")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into())
        .collect();
    let aside = names.iter().find(|name| name.starts_with("events.jsonl.damaged-")).expect("kept aside");
    assert_eq!(std::fs::read(dir.join(aside)).expect("reads"), bytes);
    // The run lost records, so the tables are what the readable rows of before say.
    assert!(std::fs::read_to_string(&tables[0]).expect("a table").starts_with("run_id,"));
    // Of a whole run, tables come back as they were.
    let place = with_cases("tables", 10);
    check(&place, &PLAIN, 0, &["10 passed"]);
    let history = place.path("results/history/reference");
    let before =
        ["verdicts.csv", "durations.csv"].map(|name| std::fs::read_to_string(history.join(name)).expect("a table"));
    std::fs::remove_dir_all(place.path("results/history")).expect("removes");
    check(&place, &["store", "repair"], 0, &["rows put in from runs"]);
    let after =
        ["verdicts.csv", "durations.csv"].map(|name| std::fs::read_to_string(history.join(name)).expect("a table"));
    let sorted = |text: &str| text.lines().map(String::from).collect::<BTreeSet<_>>();
    assert_eq!(before.map(|t| sorted(&t)), after.map(|t| sorted(&t)));
}

/// Cuts the end off the log of a run that ended well: that leaves no gap in it, is
/// told all the same, and costs no row of history.
#[track_caller]
fn check_cut(name: &str, cut: impl Fn(&[u8]) -> usize, told: &str) {
    let place = with_cases(name, 10);
    check(&place, &[&PLAIN[..], &["--run-id", "one"]].concat(), 0, &["10 passed"]);
    let tables = ["verdicts.csv", "durations.csv"].map(|name| format!("results/history/reference/{name}"));
    let before = tables.clone().map(|table| place.read(&table));
    let log = place.path("results/runs/one/events.jsonl");
    let bytes = std::fs::read(&log).expect("a log");
    std::fs::write(&log, &bytes[..cut(&bytes)]).expect("writes");
    check(&place, &["store", "verify"], 96, &[&format!("one: its record lacks its tail{told}\n")]);
    check(&place, &["store", "repair"], 0, &["its end is put in from run.json"]);
    assert_eq!(tables.clone().map(|table| place.read(&table)), before);
    check(&place, &["store", "repair"], 0, &["0 things mended"]);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    let info = check(&place, &["store", "info", "one"], 0, &["complete"]);
    assert_eq!(info.contains("not whole  mended: "), !told.is_empty(), "{info}");
}

#[test]
fn a_record_without_its_tail_is_told_and_costs_no_history() {
    let lines = |bytes: &[u8]| bytes.split_inclusive(|b| *b == b'\n').map(<[u8]>::len).collect::<Vec<_>>();
    let after_verdicts = |bytes: &[u8], count: usize| {
        let verdict = |line: &[u8]| line.windows(12).any(|part| part == b"\"k\":\"verdict");
        let at = bytes.split_inclusive(|b| *b == b'\n').enumerate().filter(|(_, line)| verdict(line));
        let last = at.map(|(number, _)| number).nth(count - 1).expect("so many verdicts");
        lines(bytes)[..=last].iter().sum::<usize>()
    };
    let missing = ": 4 of 10 verdicts are missing";
    check_cut("tail-lines", |bytes| after_verdicts(bytes, 6), missing);
    check_cut("tail-torn", |bytes| after_verdicts(bytes, 6) + 9, missing);
    // Only its end, which run.json knows.
    check_cut("tail-end", |bytes| bytes.len() - lines(bytes).last().expect("a line"), "");
}

/// A digit that changed in a table is found by the records, as long as they are here.
#[test]
fn a_changed_digit_is_found_and_put_right() {
    let place = with_cases("digit", 3);
    check(&place, &PLAIN, 0, &["3 passed"]);
    let hunt = ["hunt", "--ref", "--with-faults", "--exact", "__fault.fail", "--repeat", "3", "--format", "plain"];
    check(&place, &hunt, 11, &[]);
    check(&place, &["store", "verify"], 0, &["2 runs", "0 problems"]);
    // What it found is told, and no verdict made up of its attempts.
    let id = place.newest().file_name().and_then(|name| name.to_str()).expect("a name").to_string();
    check(&place, &["report", &id], 0, &["hunt complete", "| `__fault.fail` | undecided | 3 | 3 | `fail.assert` |"]);
    check(&place, &["report", &id, "--format", "junit"], 106, &["E0507", "comes to no verdicts", "--format md"]);
    check(&place, &["report", &id, "--format", "csv"], 0, &["__fault.fail,undecided,,,3,3,"]);
    let tables = ["durations.csv", "verdicts.csv", "flake.csv"].map(|name| format!("results/history/reference/{name}"));
    let right = tables.clone().map(|table| place.read(&table));
    let of = |text: &str, case: &str| text.lines().find(|line| line.contains(case)).expect("a row").to_string();
    let wrong = [
        right[0].replace("PlaceTest.good/m=2,1,", "PlaceTest.good/m=2,1,9"),
        right[1].replace("PlaceTest.good/m=2,pass", "PlaceTest.good/m=2,fail"),
        right[2].replace("__fault.fail,3,3,", "__fault.fail,3,2,"),
    ];
    tables.iter().zip(&wrong).for_each(|(table, text)| place.file(table, text));
    let parts = [
        "PlaceTest.good/m=2: dur_us is `9",
        "verdict is `fail`, by the record `pass`",
        "failures is `2`",
        "3 problems",
    ];
    check(&place, &["store", "verify"], 96, &parts);
    check(&place, &["store", "repair"], 0, &["1 rows put right", "kept as flake.csv.damaged-", "3 things mended"]);
    assert_eq!(tables.clone().map(|table| place.read(&table)), right);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    // What hunts found comes back from their records.
    std::fs::remove_file(place.path(&tables[2])).expect("removes");
    check(&place, &["store", "repair"], 0, &["flake.csv: 1 rows put in from runs"]);
    assert_eq!(place.read(&tables[2]), right[2]);
    // Without its run, a row is what it is, also that which says what the run was.
    place.file(&tables[2], &wrong[2]);
    std::fs::remove_dir_all(place.newest()).expect("removes");
    check(&place, &["store", "verify"], 0, &["2 of 12 rows of history cannot be judged", "0 problems"]);
    assert_eq!(of(&place.read(&tables[2]), "__fault.fail"), of(&wrong[2], "__fault.fail"));
}

/// What every kind of end adds to the tables is what its record says.
#[test]
fn tables_agree_with_records_of_all_kinds() {
    let place = with_cases("kinds", 3);
    let faults = "*PlaceTest*:__fault.fail:__fault.segv:__fault.exit7:__fault.noisy:__fault.flaky=0.5";
    let kinds = ["--ref", "--jobs", "2", "--with-faults", "--format", "plain", "--filter", faults];
    for seed in ["1", "2", "3"] {
        let (code, text) = place.run(&[&kinds[..], &["--seed", seed]].concat());
        assert_eq!(code, 103, "{text}");
    }
    let twice = ["--sim", "2", "--twice", "--format", "plain"];
    check(&place, &twice, 0, &["3 passed"]);
    check(&place, &["bench", "--sim", "1", "--filter", "*", "--format", "plain"], 0, &["3 passed"]);
    check(&place, &["store", "verify"], 0, &["5 runs", "0 problems"]);
    let tables = ["simulator/determinism.csv", "simulator/perf.csv", "reference/durations.csv"];
    let before = tables.map(|table| place.read(&format!("results/history/{table}")));
    assert!(before.iter().all(|table| table.lines().count() > 3), "{before:?}");
    std::fs::remove_dir_all(place.path("results/history")).expect("removes");
    check(&place, &["store", "repair"], 0, &["rows put in from runs"]);
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    let after = tables.map(|table| place.read(&format!("results/history/{table}")));
    // Rows of one run may stand in another order.
    let sorted = |text: &String| text.lines().map(String::from).collect::<BTreeSet<_>>();
    assert_eq!(before.each_ref().map(sorted), after.each_ref().map(sorted));
}

/// Compared on three devices, a case has three attempts, of which one gives the row.
#[test]
fn tables_agree_with_records_of_compared_devices() {
    let place = with_cases("compared", 30);
    check(&place, &["--sim", "3", "--cross", "--format", "plain"], 0, &["30 passed"]);
    check(&place, &["store", "verify"], 0, &["1 runs", "0 problems"]);
}

#[test]
fn a_run_under_way_is_left_alone_and_others_are_pruned() {
    let place = with_cases("prune", 2);
    check(&place, &PLAIN, 0, &["2 passed"]);
    check(&place, &PLAIN, 0, &["2 passed"]);
    let args = [
        "--ref",
        "--with-faults",
        "--filter",
        "__fault.sleep",
        "--timeout",
        "60s",
        "--run-id",
        "asleep",
        "--format",
        "plain",
    ];
    let mut child = place.command(&args).stdout(Stdio::null()).spawn().expect("starts");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !place.path("results/runs/asleep/run.json").exists() {
        assert!(Instant::now() < deadline, "the run did not begin");
    }
    let listed = check(&place, &["store", "list"], 0, &["live"]);
    check(&place, &["resume", "asleep"], 106, &["E0703", "is running it at this moment"]);
    check(&place, &["store", "repair"], 0, &["0 things mended"]);
    check(&place, &["store", "prune"], 2, &["--older-than 30d"]);
    for (args, takers) in [
        (&["merge", "elsewhere", "--dry-run"][..], "`store prune` and `store repair`"),
        (&["list", "--format", "csv"], "`store export`"),
        (&["verify", "--output", "x"], "`store export`"),
        (&["repair", "--yes"], "`store prune`"),
        (&["info", "--keep", "1"], "`store prune`"),
        (&["export", "--older-than", "1d"], "`store prune`"),
    ] {
        let parts = ["E0506", takers, &format!("not to `store {}`", args[0])];
        check(&place, &[&["store"], args].concat(), 2, &parts);
    }
    let dry = check(&place, &["store", "prune", "--keep", "0"], 0, &["1 of 3 runs would go"]);
    assert_eq!(logs(&place).len(), 3, "{listed}{dry}");
    check(&place, &["store", "prune", "--keep", "0", "--yes"], 0, &["1 of 3 runs removed"]);
    assert!(place.path("results/runs/asleep/events.jsonl").exists());
    // The one that `latest` names stays too.
    check(&place, &["store", "info"], 0, &["complete", "2 of 2 recorded"]);
    child.kill().expect("kills");
    child.wait().expect("reaps");
    check(&place, &["store", "list"], 0, &["killed"]);
    check(&place, &["store", "prune", "--max-size", "0B", "--yes"], 0, &["1 of 2 runs removed"]);
    check(&place, &["--ref", "--run-id", "../x"], 2, &["a name for a folder"]);
}

#[test]
fn stores_are_united_and_carried_away() {
    let (here, there) = (with_cases("here", 3), with_cases("there", 4));
    check(&here, &[&PLAIN[..], &["--run-id", "one"]].concat(), 0, &["3 passed"]);
    check(&there, &[&PLAIN[..], &["--run-id", "two"]].concat(), 0, &["4 passed"]);
    let other = there.path("results");
    let other = other.to_str().expect("text");
    check(&here, &["store", "merge", other], 0, &["two: copied", "1 runs copied"]);
    check(&here, &["store", "merge", other], 0, &["two: is here already", "0 runs copied"]);
    assert!(here.path("results/runs/two/origin.json").exists());
    let table = here.read("results/history/reference/durations.csv");
    assert!(table.contains("PlaceTest.good/m=4,1,") && table.contains("PlaceTest.good/m=1,2,"), "{table}");
    check(&here, &["store", "export", "--format", "folder", "--output", "carry"], 0, &["2 runs in carry"]);
    check(
        &there,
        &["store", "merge", here.path("carry").to_str().expect("text")],
        0,
        &["one: copied", "two: is here already"],
    );
    // The same name with other records is refused, and changes nothing.
    check(&there, &["store", "prune", "--keep", "0", "--yes"], 0, &[]);
    check(&here, &[&PLAIN[..], &["--results", "third", "--run-id", "two"]].concat(), 0, &["3 passed"]);
    check(&here, &["store", "merge", "third"], 96, &["E0704", "other records is here"]);
    let csv = check(&here, &["store", "export"], 0, &["run_id,started_utc,host"]);
    assert_eq!(csv.lines().count(), 8, "{csv}");
    // A header of another major version is told and read by nobody.
    let (path, ours) = ("results/runs/two/run.json", here.read("results/runs/two/run.json"));
    here.file(path, &ours.replace("\"major\": 1", "\"major\": 7"));
    let why = "its header is of schema 7, this harness reads 1";
    check(&here, &["report", "two"], 106, &[why]);
    check(&here, &["compare", "one", "two"], 106, &[why]);
    check(&here, &["replay", "--worker", "W0@two", "--exact", "PlaceTest.good/m=1"], 106, &[why]);
    check(&here, &["store", "verify"], 96, &[&format!("two: {why}"), "1 problems"]);
    here.file(path, &ours);
    let lines = check(&here, &["store", "export", "two", "--format", "jsonl"], 0, &[]);
    assert!(
        lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|v| v["run_id"] == "two")),
        "{lines}"
    );
}

#[test]
fn what_cannot_be_gone_on_with_is_refused_with_a_way_out() {
    let place = with_cases("refused", 400);
    check(&place, &["resume"], 106, &["E0702"]);
    let (killed, _) = killed_in_the_middle(&place, &PLAIN);
    check(&place, &["report", &killed], 0, &["` killed\n", "of 400 selected cases came to a verdict"]);
    check(&place, &["report", &killed, "--format", "junit"], 0, &["tests=\"400\" failures=\"0\"", "type=\"not_run\""]);
    let whole = place.read("cases/good.fuse");
    place.file("cases/good.fuse", &whole.replace(", 400]", "]"));
    check(
        &place,
        &["resume", "--format", "plain"],
        106,
        &["E0703", "case files have changed", "all of it anew: harness --ref --jobs 2"],
    );
    place.file("cases/good.fuse", &whole);
    // What a pass rests on is taken over with it.
    let whole =
        ["goes on with", "of those that passed: 400 ran on the reference only", "400 passed, 0 failed, 0 skipped"];
    check(&place, &["resume", "--format", "plain"], 0, &whole);
    // Gone on with once more, the killed run does not count twice.
    let killed = logs(&place).into_iter().find(|(_, log)| log.iter().all(|r| r["k"] != "end")).expect("a killed run");
    let done = ids(&killed.1, "verdict");
    let killed = killed.0.file_name().and_then(|name| name.to_str()).expect("a name").to_string();
    check(&place, &["resume", &killed, "--format", "plain"], 0, &["400 passed, 0 failed, 0 skipped"]);
    let table = std::fs::read_to_string(place.path("results/history/reference/durations.csv")).expect("a table");
    for id in &done {
        assert!(table.contains(&format!("{id},1,")), "{id}: {table}");
    }
    check(&place, &["resume"], 106, &["E0703", "is open"]);
    check(&place, &["resume", "latest"], 106, &["it is complete"]);
}

/// What a killed run had seen of how its results vary is learnt, once, by who goes on
/// with it; that another build judged some of the cases is told.
#[test]
fn a_killed_run_is_learnt_from_and_another_build_is_told() {
    let place = with_cases("learnt", 150);
    let (killed, done) = killed_in_the_middle(&place, &["--sim", "2", "--twice", "--format", "plain"]);
    let path = format!("results/runs/{killed}/run.json");
    let mut header: Value = serde_json::from_str(&place.read(&path)).expect("JSON");
    assert!(header["provenance"]["build"].is_string(), "{header}");
    header["provenance"]["build"] = "another".into();
    place.file(&path, &header.to_string());
    let told = format!("{} verdicts are of a harness that was built otherwise: another binary\n", done.len());
    check(&place, &["resume", "--format", "plain"], 0, &[&told, "150 passed, 0 failed, 0 skipped"]);
    let learnt = || place.read("results/history/simulator/determinism.csv");
    let seen_once = |text: &str| text.lines().filter(|row| row.split(',').nth(3) == Some("1")).count();
    assert_eq!((learnt().lines().count(), seen_once(&learnt())), (151, 150), "{}", learnt());
    // Gone on with once more, it is not learnt from twice.
    check(&place, &["resume", &killed, "--format", "plain"], 0, &["150 passed"]);
    let once = |id: &&String| learnt().lines().any(|row| row.starts_with(&format!("{id},")) && row.contains(",1,"));
    assert_eq!(done.iter().filter(once).count(), done.len(), "{}", learnt());
}

/// What a merge has put into the tables is not put in again by who goes on.
#[test]
fn a_killed_run_that_was_merged_counts_once() {
    let (here, there) = (with_cases("merged-here", 400), with_cases("merged-there", 400));
    let (killed, done) = killed_in_the_middle(&there, &PLAIN);
    check(&here, &[&PLAIN[..], &["--filter", "*/m=1"]].concat(), 0, &["1 passed"]);
    check(&here, &["store", "merge", there.path("results").to_str().expect("text")], 0, &["1 runs copied"]);
    check(&here, &["resume", &killed, "--format", "plain"], 0, &["400 passed, 0 failed, 0 skipped"]);
    let table = here.read("results/history/reference/durations.csv");
    for id in done.iter().filter(|id| !id.ends_with("/m=1")) {
        assert!(table.contains(&format!("{id},1,")), "{id}: {table}");
    }
}

/// What cannot be looked at is told, and a lock that cannot be had keeps nobody from looking.
#[test]
fn what_cannot_be_looked_at_is_no_good_news() {
    let place = with_cases("looked", 3);
    check(&place, &PLAIN, 0, &["3 passed"]);
    let table = "results/history/reference/durations.csv";
    let right = place.read(table);
    place.file(table, &right.replace("PlaceTest.good/m=2,1,", "PlaceTest.good/m=2,1,9"));
    std::fs::remove_file(place.path("results/lock")).expect("removes");
    std::fs::create_dir(place.path("results/lock")).expect("a folder");
    check(&place, &["store", "verify"], 96, &["PlaceTest.good/m=2: dur_us is `9", "1 problems"]);
    std::fs::remove_file(place.path(table)).expect("removes");
    std::fs::create_dir(place.path(table)).expect("a folder");
    check(&place, &["store", "verify"], 96, &["history: Is a directory", "1 problems"]);
}

/// What the deadline kept from running is open; a list of cases may be gone, and
/// paths that are given now mean the folder of now.
#[test]
fn what_a_deadline_left_is_run_from_another_folder() {
    let place = with_cases("deadline", 3);
    place.file("list", "PlaceTest.good/m=1\nPlaceTest.good/m=2\nPlaceTest.good/m=3\n");
    let args = ["--ref", "--jobs", "1", "--format", "plain", "--from-file", "list", "--deadline", "1ms"];
    check(&place, &args, 6, &["skip.deadline"]);
    check(&place, &["report", "--format", "md"], 0, &["` incomplete\n"]);
    check(&place, &["list", "--ref", "--rerun", "latest"], 0, &["PlaceTest.good/m=3\n"]);
    std::fs::remove_file(place.path("list")).expect("removes");
    std::fs::create_dir(place.path("elsewhere")).expect("a folder");
    let args = ["resume", "latest", "--results", "../results", "--junit", "out.xml", "--format", "plain"];
    let mut command = place.command(&args);
    let (code, text) = ended(command.current_dir(place.path("elsewhere")).output().expect("runs"));
    assert!([0, 6].contains(&code) && text.contains("goes on with"), "{code}: {text}");
    assert!(place.path("elsewhere/out.xml").exists(), "{text}");
}

/// A stop in order in the middle of retries: the failures are told and kept, and are
/// no verdict; whoever goes on tries from there.
#[test]
fn a_stop_in_the_middle_of_retries_leaves_the_case_open() {
    let place = with_cases("retries", 1);
    // By its seed it passes for the first time after many failures.
    let case = "__fault.flaky=0.98@7";
    let args = ["--ref", "--jobs", "1", "--with-faults", "--exact", case, "--retries", "100", "--format", "plain"];
    let child = place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let attempts = |log: &[Value]| log.iter().filter(|r| r["k"] == "attempt").count();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !logs(&place).values().any(|log| attempts(log) > 0) {
        assert!(Instant::now() < deadline, "no attempt ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("signals");
    let (code, text) = ended(child.wait_with_output().expect("ends"));
    assert_eq!(code, 130, "{text}");
    assert!(text.contains(&format!("SKIP {case}  (not_run.interrupted")) && text.contains("by fail.assert"), "{text}");
    assert!(text.ends_with("0 passed, 0 failed, 1 skipped\n"), "{text}");
    let stopped = place.records();
    let (_, csv) = place.run(&["report", "latest", "--format", "csv"]);
    assert!(csv.contains("not_run.interrupted") && csv.contains("fails here"), "{csv}");
    check(&place, &["store", "verify"], 0, &["0 problems"]);
    check(&place, &["resume", "--format", "plain"], 0, &["0 are done, 1 open", "FLAKY", "1 flaky"]);
    let resumed = place.records();
    let earlier = resumed.iter().find(|r| r["k"] == "earlier").expect("what was tried before");
    assert_eq!(earlier["attempts"].as_array().map(Vec::len), Some(attempts(&stopped)), "{earlier}");
    let first = resumed.iter().find(|r| r["k"] == "attempt").expect("an attempt");
    assert_eq!(first["attempt"], attempts(&stopped), "{first}");
}

/// Reports tell all.
#[test]
fn reports_are_read_by_their_readers() {
    let place = with_cases("reports", 3);
    let filter = "*PlaceTest*:__fault.fail:__fault.segv:__fault.exit7:__fault.noisy";
    let args = [
        "--ref",
        "--jobs",
        "2",
        "--with-faults",
        "--filter",
        filter,
        "--retries",
        "1",
        "--junit",
        "out/junit.xml",
        "--format",
        "jsonl",
    ];
    let output = place.command(&args).output().expect("runs");
    assert_eq!(output.status.code(), Some(103));
    let stdout = String::from_utf8_lossy(&output.stdout);
    let records: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("a record")).collect();
    assert_eq!((&records[0]["k"], &records[records.len() - 1]["k"]), (&Value::from("run"), &Value::from("end")));
    assert!(String::from_utf8_lossy(&output.stderr).ends_with("4 passed, 3 failed, 0 skipped\n"));
    let check_junit = |text: &str| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let root = document.root_element();
        let number = |name: &str| root.attribute(name).and_then(|n| n.parse::<u32>().ok());
        assert_eq!((number("tests"), number("failures"), number("errors")), (Some(7), Some(1), Some(2)), "{text}");
        let cases = document.descendants().filter(|node| node.has_tag_name("testcase")).count();
        let again = document.descendants().filter(|node| node.tag_name().name().starts_with("rerun")).count();
        assert_eq!((cases, again), (7, 3), "{text}");
        let error = document.descendants().find(|node| node.has_tag_name("error")).expect("an error");
        assert!(error.attribute("type").is_some_and(|kind| kind.starts_with("crash.")), "{text}");
    };
    check_junit(&place.read("out/junit.xml"));
    check_junit(&place.run(&["report", "--format", "junit"]).1);
    let trace: Value = serde_json::from_str(&place.run(&["report", "--format", "trace"]).1).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    assert!(events.iter().any(|e| e["name"] == "__fault.segv" && e["ph"] == "X" && e["dur"].as_f64() > Some(0.0)));
    assert!(events.iter().any(|e| e["cat"] == "worker" && e["ph"] == "X"));
    let (_, md) = place.run(&["report", "--format", "md"]);
    assert!(md.contains("### Failed") && md.contains("| `__fault.segv` | `crash.sigsegv` |"), "{md}");
    let flaky =
        ["--ref", "--jobs", "1", "--with-faults", "--exact", "__fault.pollute=A", "--exact", "__fault.victim=A"];
    check(&place, &[&flaky[..], &["--flaky", "fail", "--results", "other"]].concat(), 11, &["1 flaky"]);
    check(&place, &["report", "--format", "md", "--results", "other"], 0, &["` flaky\n"]);
    check(&place, &PLAIN, 0, &["3 passed"]);
    check(&place, &["report", "--format", "md"], 0, &["` passed\n"]);
    check(&place, &["compare", "latest~1", "latest"], 0, &["gone: 4"]);
    check(&place, &["compare", "latest", "latest~1"], 100, &["newly failing: 3", "new: 1"]);
    let summary = place.path("summary.md");
    let mut command = place.command(&[&PLAIN[..], &["--github"]].concat());
    let (code, text) = ended(command.env("GITHUB_STEP_SUMMARY", &summary).output().expect("runs"));
    assert!(code == 0 && std::fs::read_to_string(&summary).is_ok_and(|md| md.contains("passed")), "{text}");
}

/// A full disk behind standard output is said beside it; a reader that went away is not.
#[test]
fn what_cannot_be_printed_is_no_silence() {
    let place = with_cases("printed", 3);
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a full device");
    let output = place.command(&PLAIN).stdout(full).output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("standard output cannot be written: No space left"), "{text}");
    assert!(logs(&place).values().any(|log| ids(log, "verdict").len() == 3), "the record is whole");
}
