//! What a bench found of counters and times, and which case files were left out, as Markdown.

use super::{ROWS, code, plain};
use crate::record::Recorded;
use serde_json::Value;
use std::fmt::Write;

/// Tables of what costs more than it may; nothing where nothing does.
pub(super) fn regressions(text: &mut String, run: &Recorded) {
    let gates = run.others.iter().filter(|record| record["k"] == "gate" && record["how"] == "judged");
    for gate in gates {
        let (rows, title) = match gate["of"].as_str() {
            Some("counters") => (dearer(gate), "Dearer than the baseline"),
            Some("times") => (slower(gate), "Slower than the history"),
            _ => continue,
        };
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "### {title}\n\n| case | what | before | now | change |\n| --- | --- | ---: | ---: | ---: |"
        );
        for [id, what, before, now, change] in rows.iter().take(ROWS) {
            let _ = writeln!(text, "| {} | {} | {before} | {now} | {change} |", code(id), plain(what));
        }
        if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
            let _ = writeln!(text, "\nand {more} more.");
        }
        text.push('\n');
    }
}

/// Case, counter, before, now, change.
type CostRow = [String; 5];

fn list<'r>(record: &'r Value, key: &str) -> &'r [Value] {
    record[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn name(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

fn dearer(gate: &Value) -> Vec<CostRow> {
    let row = |change: &Value| {
        let [before, after] = ["before", "after"].map(|key| change[key].as_u64().unwrap_or(0));
        let ratio = match before {
            0 => "from 0".into(),
            _ => format!("{:+.1} %", 100.0 * (after as f64 / before as f64 - 1.0)),
        };
        [name(&change["case_id"]), name(&change["counter"]), before.to_string(), after.to_string(), ratio]
    };
    list(gate, "dearer").iter().map(row).collect()
}

/// What `gate.csv` calls slower: by the second look where there was one.
fn slower(gate: &Value) -> Vec<CostRow> {
    let found = list(gate, "found").iter().filter(|row| row["finding"] == "slower");
    let row = |row: &Value| {
        let id = name(&row["case_id"]);
        let times = list(gate, "rows").iter().find(|times| times["case_id"] == row["case_id"]);
        let us = |key: &str| {
            times.and_then(|times| times[key].as_f64()).map_or("-".into(), |ns| format!("{:.2} us", ns / 1e3))
        };
        let ratio = row["ratio"].as_str().and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
        let change = format!("{:+.1} %", 100.0 * (ratio - 1.0));
        [id, format!("time, by {}", name(&row["by"])), us("before_ns"), us("now_ns"), change]
    };
    found.map(row).collect()
}

/// Case files that were left out.
pub(super) fn left_out(text: &mut String, run: &Recorded) {
    for record in run.others.iter().filter(|record| record["k"] == "broken") {
        let errors = list(record, "errors");
        let _ = writeln!(text, "### Left out: {} malformed case files\n", list(record, "files").len());
        for error in errors.iter().take(ROWS) {
            let (file, line) = (name(&error["file"]), error["line"].as_u64().unwrap_or(0));
            let _ = writeln!(text, "* {}: {}", code(&format!("{file}:{line}")), plain(&name(&error["message"])));
        }
        if let Some(more) = errors.len().checked_sub(ROWS).filter(|more| *more > 0) {
            let _ = writeln!(text, "* and {more} more");
        }
        text.push('\n');
    }
}
