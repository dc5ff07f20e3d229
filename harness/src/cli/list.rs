//! `list`: the selected cases as names, as a table or as JSON, with what
//! earlier runs say about each.

use super::args::{Args, Listing};
use super::broken::{Broken, code_with, or_malformed};
use super::session::{self, CaseOptions};
use super::{Failure, devices, runs};
use crate::case::{Case, Require};
use crate::escape::escape;
use crate::exit;
use crate::outcome::Last;
use crate::report::{self, Column};
use crate::select::Past;
use crate::select::quarantine::Quarantine;
use crate::units::{show_bytes, show_time};
use serde_json::{Value, json};

pub(super) fn list(args: &Args) -> Result<u8, Failure> {
    // GPU sizes only when GPUs are asked for: listing must not depend on the machine.
    let options = CaseOptions::of(args);
    let loaded = session::load_sound(&options, devices::target(&args.devices))?;
    let broken = Broken::of(&options.wanted, &loaded.errors, "are listed");
    let chosen = session::choose(&options, loaded.cases, options.history);
    let chosen = chosen.map_err(|why| or_malformed(&loaded.errors, why))?;
    // Standard output is for programs.
    broken.iter().for_each(|broken| crate::console::complain(&broken.text));
    let past = || session::past(&options.folders.results, options.history);
    let text = match args.output.listing {
        Listing::Usual | Listing::Names => chosen.cases.iter().map(|case| name(case, args.output.about)).collect(),
        Listing::Table => table(&chosen.cases, &past(), args.output.about),
        Listing::Json => json_text(&chosen.cases, &past(), &session::read_quarantine(&options.folders)?),
    };
    crate::console::print(&text);
    // Why there is nothing on it is for people, too.
    if chosen.cases.is_empty() {
        chosen.notes.iter().for_each(|note| crate::console::complain(note));
    }
    Ok(code_with(broken.as_ref(), exit::OK))
}

fn name(case: &Case, about: bool) -> String {
    match about {
        true => format!("{}  {}\n", case.id, escape(&case.about, "")),
        false => format!("{}\n", case.id),
    }
}

fn table(cases: &[Case], past: &Past, about: bool) -> String {
    let row = |case: &Case| {
        let last = past.last(&case.id);
        let mut row = vec![
            case.id.clone(),
            escape(&case.tags.join(" "), "").into_owned(),
            needs(&case.require),
            last.map_or("never", |last| last.verdict().name()).to_string(),
            last.and_then(|last| last.dur_ns).map_or("?".into(), show_time),
        ];
        if about {
            row.push(escape(&case.about, "").into_owned());
        }
        row
    };
    let mut columns = vec![
        Column::new("case").shortens(),
        Column::new("tags").spare(2),
        Column::new("needs").spare(1),
        Column::new("last"),
        Column::new("expected").right(),
    ];
    if about {
        columns.push(Column::new("about").shortens());
    }
    report::table(&columns, &cases.iter().map(row).collect::<Vec<_>>(), runs::columns())
}

/// Requirements in a few words; `-` for none.
fn needs(require: &Require) -> String {
    let mut words = Vec::new();
    if !require.device.is_empty() {
        words.push(escape(&require.device.join("|"), "").into_owned());
    }
    words.extend(require.arch.map(|arch| format!("arch>={arch}")));
    words.extend(require.gpus.map(|gpus| format!("gpus>={gpus}")));
    words.extend(require.memory.map(|bytes| format!("mem>={}", show_bytes(bytes).replace(' ', ""))));
    if words.is_empty() { "-".into() } else { words.join(" ") }
}

/// One array with an object a line.
fn json_text(cases: &[Case], past: &Past, quarantine: &Quarantine) -> String {
    let lines: Vec<String> = cases.iter().map(|case| entry(case, past, quarantine).to_string()).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

fn entry(case: &Case, past: &Past, quarantine: &Quarantine) -> Value {
    let last = past.last(&case.id);
    json!({
        "id": case.id,
        "suite": case.suite,
        "name": case.name,
        "tags": case.tags,
        "about": case.about,
        "file": case.file,
        "line": case.line,
        "inputs": case.inputs.len(),
        "require": { "device": case.require.device, "arch": case.require.arch, "memory": case.require.memory, "gpus": case.require.gpus },
        "timeout_ms": case.timeout_ms,
        "perf": case.perf.is_some(),
        "refusal": !case.refusals().is_empty(),
        "xfail": case.xfail.is_some(),
        "quarantined": quarantine.entry(&case.id).is_some(),
        "last": last.map(verdict),
        "expected_ns": last.and_then(|last| last.dur_ns),
    })
}

/// A case's last run.
pub(super) fn verdict(last: &Last) -> Value {
    json!({ "verdict": last.verdict().name(), "outcome": last.outcome, "runs": last.runs })
}
