//! The end of a run: history, record, summary, exit code.

use super::options::{RecordOptions, RunOptions};
use super::view::Closing;
use crate::cli::args::Command;
use crate::cli::bench_table::{self, Before};
use crate::cli::counter_gate::CountersEnd;
use crate::cli::devices::Devices;
use crate::cli::{broken, ending, report, runs};
use crate::exit;
use crate::outcome::Verdict;
use crate::record::{Found, History, Recorded, RunStore};
use crate::report::{junit, markdown, repro};
use crate::units::{counted, show_seconds};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Ends the record and prints the summary. Returns the exit code.
pub(super) fn finish(
    options: &RunOptions,
    devices: &Devices,
    history: &History,
    mut store: RunStore,
    mut closing: Closing,
    stopped: usize,
    started: Instant,
) -> u8 {
    let counters = match closing.counters.take().map(|check| check.end(&closing.rows)).transpose() {
        Ok(end) => end.unwrap_or_default(),
        Err(failure) => CountersEnd::of(failure),
    };
    let times = closing.times.take();
    let looks = stopped == 0 && store.error().is_none();
    let times = times.map(|check| check.end(&closing.rows, options, devices, &store, looks));
    let times = times.unwrap_or_default();
    closing.course.steps.over("cases, workers' ends");
    let damage = add_to_history(history, &mut store, &closing, &times.found);
    closing.course.steps.over("tables");
    for gpu in devices.now() {
        store.append("gpu", &gpu);
    }
    closing.course.steps.over("devices at the end");
    let Closing { summary, rows, .. } = &closing;
    for record in counters.record.iter().chain(&times.record) {
        store.append("gate", record);
    }
    let regressed = times.is_regression.then_some(exit::REGRESSED).or(counters.failed);
    let counts: BTreeMap<&str, usize> = summary.counts.iter().map(|(verdict, n)| (verdict.name(), *n)).collect();
    let course = closing.course.record(|slot| devices.slots.get(slot).map_or("", |slot| &slot.label));
    let ended = ending::end(
        &mut store,
        stopped,
        started,
        broken::code_with(
            closing.broken.as_ref(),
            with_gates(exit_code(options.repeat.flaky_fails, &closing), regressed),
        ),
        json!({ "counts": counts, "passed_by": summary.passed_by, "held_to_digest": summary.held_to_digest, "course": course }),
    );
    let mut text = String::new();
    if options.command == Command::Bench {
        let before = Before::of(&options.cases.folders.results, &store.id, &devices.history);
        text.push_str(&bench_table::text(rows, &before, runs::columns()));
        text.push_str(&counters.text);
        text.push_str(&times.text);
    }
    let tail = options.again.tail(&devices.again, options.command, options.repeat.seed);
    let again = |id: &str| repro(options.command.word(), id, &tail);
    text.push_str(&summary.failures_text(&store.id, &options.again.results(), again));
    text.push_str(&notes(&closing));
    damage.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    text.push_str(&ended.text);
    let code = match store.mirrored().map_or(Ok(()), |run| reports(&options.record, run)) {
        Ok(()) => ended.code,
        Err(why) => {
            text.push_str(&format!("a report could not be written: {why}\n"));
            ending::without_record(ended.code)
        }
    };
    let (total, time) = (counted(summary.total(), "case"), show_seconds(ended.elapsed_ns));
    text.extend(closing.course.line(ended.elapsed_ns).map(|line| format!("{line}\n")));
    text.push_str(&format!("{total} in {time}\n{}{}\n", summary.other_lines(), summary.line()));
    runs::conclude(options.record.form, &text);
    code
}

/// Tables are derived from records: where there is no record, there is no row.
/// Returns what was wrong with them.
fn add_to_history(history: &History, store: &mut RunStore, closing: &Closing, found: &[Found]) -> Vec<String> {
    let mut notes = Vec::new();
    if store.error().is_some() {
        return notes;
    }
    match history.add_once(store.dir(), &store.id, store.commit(), &closing.rows, &closing.alike) {
        Ok(more) => notes.extend(more),
        Err(error) => store.fail("history", &error),
    }
    match history.add_findings(&store.id, store.commit(), found) {
        Ok(more) => notes.extend(more),
        Err(error) => store.fail("history", &error),
    }
    match history.learn_verified(&store.id, &closing.verified) {
        Ok(more) => notes.extend(more),
        // Nothing is lost with it but time.
        Err(error) => notes.push(format!("verified.csv: {error}: what passed is compared again next time")),
    }
    notes
}

/// The exit code by what happened to cases and devices.
fn exit_code(flaky_fails: bool, closing: &Closing) -> u8 {
    let Closing { refused, rows, outstanding, summary, .. } = closing;
    let ran = rows.iter().any(|row| row.verdict != Verdict::Infra);
    if !refused.is_empty() && refused.iter().all(|code| code.starts_with("E05")) && !ran {
        return exit::NO_GPU;
    }
    match summary.exit_code(flaky_fails) {
        exit::OK | exit::INCOMPLETE if !outstanding.is_empty() => exit::OUTSTANDING,
        code => code,
    }
}

/// The exit code with what counters and times say: a regression outranks that not all ran, and no failure.
fn with_gates(code: u8, regressed: Option<u8>) -> u8 {
    match (code, regressed) {
        (exit::OK | exit::INCOMPLETE | exit::OUTSTANDING, Some(failed)) => failed,
        _ => code,
    }
}

/// What else is to be known, a line each.
fn notes(closing: &Closing) -> String {
    let mut text = closing.families.clone();
    for line in closing.blessings.apply() {
        text.push_str(&format!("blessed {line}\n"));
    }
    let passed = "passed although in quarantine: harness quarantine list shows why they are there";
    let left = "earlier failures were not run again";
    for (ids, what) in [(&closing.mended, passed), (&closing.outstanding, left)] {
        if let Some(first) = ids.first() {
            let more = if ids.len() > 1 { " ..." } else { "" };
            text.push_str(&format!("{} {what}: {first}{more}\n", ids.len()));
        }
    }
    if let Some(broken) = &closing.broken {
        text.push_str(&format!("{}\n", broken.last));
    }
    for slot in &closing.retired {
        text.push_str(&format!("warning: {slot}; it took no more cases\n"));
    }
    text
}

/// Writes what `--junit` and `--github` ask for, from memory: the record may be on a full disk.
pub(in crate::cli) fn reports(options: &RecordOptions, run: &Recorded) -> Result<(), String> {
    if let Some(path) = &options.junit {
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = written.and_then(|()| std::fs::write(path, junit(run)));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if options.github {
        let text = markdown(run, |id| report::again(run, id));
        report::summarise(&text).map_err(|(path, error)| format!("{path}: {error}"))?;
    }
    Ok(())
}
