//! What several commands share: where files are, and which cases are meant.

use super::Failure;
use super::args::Args;
use crate::case::{Case, Loaded, Target, load, suggest};
use crate::exit;
use crate::filter::selected;
use crate::worker::fault;
use engine::diag::{Diagnostic, code};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The folder that holds `cases` and `results`: this one, or the nearest above
/// it with a `Cargo.toml` and `cases` beside each other.
fn root() -> PathBuf {
    if Path::new("cases").is_dir() {
        return PathBuf::new();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().find(|dir| dir.join("cases").is_dir() && dir.join("Cargo.toml").is_file());
    found.map_or_else(PathBuf::new, Path::to_path_buf)
}

pub(super) fn cases_dir(args: &Args) -> PathBuf {
    args.select.cases.clone().unwrap_or_else(|| root().join("cases"))
}

pub(super) fn results_dir(args: &Args) -> PathBuf {
    args.output.results.clone().unwrap_or_else(|| root().join("results"))
}

/// All cases, or all errors of all files.
pub(super) fn load_all(args: &Args, target: Target) -> Result<Loaded, Failure> {
    let mut loaded = load(&cases_dir(args), target);
    if !loaded.errors.is_empty() {
        let lines: Vec<String> = loaded.errors.iter().map(|error| format!("{error}\n")).collect();
        let count = lines.len();
        let code = loaded.errors[0].code;
        let more = format!("`harness explain {code}` says more about the first");
        let text = format!("{}{count} error(s) in case files; nothing was run; {more}", lines.concat());
        return Err(Failure::new(exit::BAD_CASES, text));
    }
    if args.select.faults {
        loaded.cases.extend(fault::cases());
    }
    Ok(loaded)
}

/// The cases that filters, tags and exact ids select; selecting nothing is an error.
pub(super) fn select(args: &Args, cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
    let total = cases.len();
    let ids: Vec<String> = cases.iter().map(|case| case.id.clone()).collect();
    for id in &args.select.exact {
        if !ids.contains(id) {
            let hint = suggest(id, nearest_suite(id, &ids));
            return Err(nothing(format!("there is no case `{id}`"), hint));
        }
    }
    for tag in &args.select.tags {
        let known: BTreeSet<&str> = cases.iter().flat_map(|case| &case.tags).map(String::as_str).collect();
        if !known.contains(tag.as_str()) {
            return Err(nothing(format!("no case has the tag `{tag}`"), suggest(tag, known.into_iter())));
        }
    }
    let wanted = |case: &Case| {
        let tagged = args.select.tags.iter().all(|tag| case.tags.contains(tag));
        let by_filter = !args.select.filters.is_empty() && selected(&args.select.filters, &case.id);
        // A tag alone selects all that have it, exact ids alone nothing else.
        let all = args.select.filters.is_empty() && (args.select.exact.is_empty() || !args.select.tags.is_empty());
        tagged && (all || by_filter) || args.select.exact.contains(&case.id)
    };
    let chosen: Vec<Case> = cases.into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        let note = match total {
            0 => format!("{} holds no case file (*.fuse)", cases_dir(args).display()),
            _ => "`harness list` prints the ids; `*` matches any run of characters".into(),
        };
        return Err(nothing(format!("nothing selected: none of {total} cases matches"), note));
    }
    Ok(chosen)
}

/// Ids worth proposing: those that share the name before the first slash, or all.
fn nearest_suite<'a>(id: &str, ids: &'a [String]) -> impl Iterator<Item = &'a str> {
    let stem = id.split('/').next().unwrap_or(id).to_string();
    let related: Vec<&str> = ids.iter().map(String::as_str).filter(|other| other.starts_with(&stem)).take(8).collect();
    let list: Vec<&str> =
        if related.is_empty() { ids.iter().map(String::as_str).take(2000).collect() } else { related };
    let shown = if list.len() > 8 { nearest(id, list) } else { list };
    shown.into_iter()
}

/// The few nearest by common beginning, so that a note stays short.
fn nearest<'a>(id: &str, mut list: Vec<&'a str>) -> Vec<&'a str> {
    let common = |other: &str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    list.sort_by_key(|other| std::cmp::Reverse(common(other)));
    list.truncate(4);
    list
}

fn nothing(message: String, note: String) -> Failure {
    let diagnostic = Diagnostic::user(code::NOTHING_SELECTED, message).note(note);
    Failure::new(exit::NOTHING_SELECTED, diagnostic.to_string())
}
