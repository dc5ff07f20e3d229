//! The end of a run: history, record, summary, exit code.

use super::view::Closing;
use crate::cli::args::{Args, Command, Form};
use crate::cli::devices::Devices;
use crate::cli::{report, runs};
use crate::exit;
use crate::record::{History, RunStore, utc_stamp};
use crate::report::{junit, markdown, quoted, repro};
use crate::units::show_seconds;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Ends the record and prints the summary. Returns the exit code.
pub(super) fn finish(
    args: &Args,
    devices: &Devices,
    history: &History,
    mut store: RunStore,
    closing: Closing,
    stopped: usize,
    started: Instant,
) -> u8 {
    let Closing { summary, families, blessings, rows, alike, refused, retired, outstanding, mended } = closing;
    // Tables are derived from records: where there is no record, there is no row.
    if store.error().is_none() {
        let added = history.add(&store.id, store.commit(), &rows);
        let added = added.and_then(|()| history.learn_determinism(&store.id, &alike));
        if let Err(error) = added {
            store.fail("history", &error);
        }
    }
    let ran = rows.iter().any(|row| row.verdict != "infra");
    let device_refused = !refused.is_empty() && refused.iter().all(|code| code.starts_with("E05")) && !ran;
    let code = match stopped {
        0 if device_refused => exit::NO_GPU,
        0 => match summary.exit_code(args.repeat.flaky_fails) {
            exit::OK | exit::INCOMPLETE if !outstanding.is_empty() => exit::OUTSTANDING,
            code => code,
        },
        signal => exit::SIGNAL_BASE + signal as u8,
    };
    let counts: BTreeMap<&str, usize> = summary.counts.iter().map(|(verdict, n)| (verdict.name(), *n)).collect();
    for gpu in devices.now() {
        store.append("gpu", &gpu);
    }
    let status = if stopped == 0 { "complete" } else { "aborted" };
    let elapsed = started.elapsed().as_nanos() as u64;
    store.finish(
        status,
        &json!({ "counts": counts, "exit_code": code, "elapsed_ns": elapsed, "ended": utc_stamp(false) }),
    );
    let reports = reports(args, &store);
    let mut text = String::new();
    if args.command == Command::Bench {
        text.push_str(&crate::cli::bench_table::table(&rows));
    }
    text.push_str(&summary.failures_text(&store.id, |id| repro(args.command.word(), id, &again(args, devices))));
    text.push_str(&families);
    for line in blessings.apply() {
        text.push_str(&format!("blessed {line}\n"));
    }
    if let Some(first) = mended.first() {
        let more = if mended.len() > 1 { " ..." } else { "" };
        let what = "passed although in quarantine: harness quarantine list shows why they are there";
        text.push_str(&format!("{} {what}: {first}{more}\n", mended.len()));
    }
    if let Some(first) = outstanding.first() {
        let more = if outstanding.len() > 1 { " ..." } else { "" };
        text.push_str(&format!("{} earlier failures were not run again: {first}{more}\n", outstanding.len()));
    }
    for slot in &retired {
        text.push_str(&format!("warning: {slot}; it took no more cases\n"));
    }
    text.push_str(&store.shared_text());
    if stopped != 0 {
        text.push_str(&format!("stopped by signal {stopped}\n"));
    }
    let code = match store.error() {
        None => {
            text.push_str(&format!("record {}\n", store.dir().display()));
            code
        }
        Some(error) => {
            text.push_str(&format!("the record in {} is not complete: {error}\n", store.root().display()));
            // Outranks all that is not a failure.
            if code < exit::INFRA { exit::NO_RECORD } else { code }
        }
    };
    let code = match reports {
        Ok(()) => code,
        Err(why) => {
            text.push_str(&format!("a report could not be written: {why}\n"));
            if code < exit::INFRA { exit::NO_RECORD } else { code }
        }
    };
    text.push_str(&format!(
        "{} cases in {}\n{}{}\n",
        summary.total(),
        show_seconds(elapsed),
        summary.other_lines(),
        summary.line()
    ));
    match args.records.form {
        // Standard output is for records alone.
        Some(Form::Jsonl) => drop(std::io::Write::write_all(&mut std::io::stderr().lock(), text.as_bytes())),
        _ => crate::cli::print(&runs::fitted(&text)),
    }
    code
}

/// Writes what `--junit` and `--github` ask for, from memory: the record may be on a full disk.
fn reports(args: &Args, store: &RunStore) -> Result<(), String> {
    let Some(run) = store.mirrored() else { return Ok(()) };
    if let Some(path) = &args.records.junit {
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = written.and_then(|()| std::fs::write(path, junit(run)));
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if args.records.github {
        let text = markdown(run, |id| report::again(run, id));
        report::summarise(&text).map_err(|(path, error)| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// The options that make a repeated case the same one.
pub(in crate::cli) fn again(args: &Args, devices: &Devices) -> String {
    let mut tail = devices.again.clone();
    if let Some(dir) = &args.select.cases {
        tail.push_str(&format!(" --cases {}", quoted(&dir.display().to_string())));
    }
    for word in args.again.iter().flatten() {
        tail.push_str(&format!(" {}", quoted(word)));
    }
    tail
}
