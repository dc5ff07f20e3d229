//! `store list`: the runs of a folder, as a table for people and as JSON for programs.
//!
//! Inputs: what the headers of the runs say; no log is read. A field that a run lacks is `-` or `null`.

use super::super::args::Form;
use super::super::runs;
use crate::console::print;
use crate::escape::{escape, short};
use crate::record::{Header, RunInfo, Summary};
use crate::report::{self, Column};
use crate::units::{counted, show_bytes};
use serde_json::{Value, json};

/// Characters of a commit that tell it from others.
const COMMIT: usize = 9;

/// The size goes first where there is no room, then what the run's name and `store info` tell as well.
const COLUMNS: [Column; 8] = [
    Column::new("run").shortens(),
    Column::new("state"),
    Column::new("command"),
    Column::new("device").spare(1),
    Column::new("commit").spare(2),
    Column::new("started").spare(3),
    Column::new("size").right().spare(4),
    Column::new("came to").shortens(),
];

/// Prints the runs, the oldest first. `latest` is the one that this word means.
pub(super) fn list(all: &[RunInfo], latest: Option<&str>, form: Form) {
    if form == Form::Json {
        let lines: Vec<String> = all.iter().map(|run| entry(run, latest).to_string()).collect();
        print(&format!("[\n{}\n]\n", lines.join(",\n")));
        return;
    }
    let rows: Vec<Vec<String>> = all.iter().map(|run| row(run, latest)).collect();
    let total: u64 = all.iter().map(|run| run.bytes).sum();
    let table = report::table(&COLUMNS, &rows, runs::columns());
    print(&format!("{table}{}, {}\n", counted(all.len(), "run"), show_bytes(total)));
}

fn row(run: &RunInfo, latest: Option<&str>) -> Vec<String> {
    let header = &run.header;
    let mark = if latest == Some(&run.id) { " (latest)" } else { "" };
    let started = run.started().replace('T', " ").replace('Z', "");
    vec![
        format!("{}{mark}", escape(&run.id, "")),
        run.state.name().into(),
        or_dash(short(header.mode())),
        or_dash(short(&header.device().unwrap_or_default())),
        or_dash(commit(header)),
        or_dash(escape(&started, "").chars().take(16).collect::<String>()),
        show_bytes(run.bytes),
        came_to(header.summary.as_ref()),
    ]
}

fn or_dash(text: impl Into<String>) -> String {
    let text = text.into();
    if text.is_empty() { "-".into() } else { text }
}

/// A few characters of the commit, with a plus where there were local changes.
fn commit(header: &Header) -> String {
    let short: String = escape(header.commit(), "").chars().take(COMMIT).collect();
    if header.is_dirty() { short + "+" } else { short }
}

/// What a run came to: verdicts, or of one that tries cases out what it found.
fn came_to(summary: Option<&Summary>) -> String {
    let Some(summary) = summary else { return "-".into() };
    let found = summary.other.get("findings").and_then(Value::as_object);
    let found = found.into_iter().flatten().filter_map(|(name, n)| Some((name.as_str(), n.as_u64()?)));
    let counts = summary.counts.iter().flatten().map(|(name, n)| (name.as_str(), *n));
    let trials = summary.other.get("trials").and_then(Value::as_u64).map(|trials| ("trials", trials));
    let parts: Vec<String> =
        counts.chain(found).chain(trials).map(|(name, n)| format!("{n} {}", short(name))).collect();
    or_dash(parts.join(", "))
}

fn entry(run: &RunInfo, latest: Option<&str>) -> Value {
    let header = &run.header;
    let told = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    json!({
        "run": run.id,
        "folder": run.dir,
        "state": run.state.name(),
        "latest": latest == Some(&run.id),
        "command": told(header.mode()),
        "argv": header.argv,
        "device": header.device(),
        "commit": told(header.commit()),
        "dirty": header.provenance.as_ref().and_then(|source| source.git_dirty),
        "host": told(header.host()),
        "started_utc": told(&run.started()),
        "ended_utc": header.ended_utc,
        "bytes": run.bytes,
        "cases_selected": header.cases_selected,
        "resumes": header.resumes,
        "shard": header.shard.as_ref().map(|shard| json!({ "index": shard.index, "count": shard.count })),
        "joins": header.joins.as_ref().map(|joins| joins.iter().map(|part| &part.run_id).collect::<Vec<_>>()),
        "summary": header.summary,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_says_what_it_was_and_came_to() {
        let header = |value| Header::of(value).expect("an object");
        let hunt = header(json!({ "mode": "hunt", "history": "simulator",
            "provenance": { "git_sha": "0123456789abcdef", "git_dirty": true },
            "summary": { "findings": { "clean": 3, "flaky": 1 }, "repeats": 9 } }));
        assert_eq!(
            (commit(&hunt).as_str(), came_to(hunt.summary.as_ref()).as_str()),
            ("012345678+", "3 clean, 1 flaky")
        );
        let replay = header(json!({ "summary": { "trials": 7 } }));
        assert_eq!((commit(&replay).as_str(), came_to(replay.summary.as_ref()).as_str()), ("", "7 trials"));
        let run = header(json!({ "summary": { "counts": { "pass": 2, "skip": 1 } } }));
        assert_eq!(came_to(run.summary.as_ref()), "2 pass, 1 skip");
        assert_eq!(came_to(None), "-");
    }
}
