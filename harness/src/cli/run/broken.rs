//! Case files with mistakes: they are left out of a run, which says so at its start and its end, in its record and by
//! its exit code. One broken file does not cost the verdicts on all others.
//!
//! Inputs: the mistakes and the selection. Outputs: lines for people and a record.

use super::options::RunOptions;
use crate::case::CaseError;
use crate::cli::session;
use crate::escape::short;
use crate::select::Wanted;
use crate::units::counted;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Mistakes that are printed, and files that the last lines name.
const SHOWN: usize = 20;
const NAMED: usize = 3;

/// What is left out.
pub(super) struct Broken {
    /// For the start of a run, and for its end.
    pub(super) text: String,
    pub(super) last: String,
    pub(super) record: Value,
    /// Whether cases may be missing that were meant.
    pub(super) counts: bool,
}

impl Broken {
    /// Nothing where all files are well.
    pub(super) fn of(options: &RunOptions, errors: &[CaseError]) -> Option<Self> {
        let files: Vec<&str> =
            errors.iter().map(|error| error.file.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
        if files.is_empty() {
            return None;
        }
        let counts = !is_by_name(&options.cases.wanted);
        let named: Vec<_> = files.iter().take(NAMED).map(|file| short(file)).collect();
        let more = if files.len() > NAMED { ", ..." } else { "" };
        let (all, were) = (counted(files.len(), "case file"), if files.len() == 1 { "was" } else { "were" });
        let last = format!("{all} {were} left out as malformed: {}{more}", named.join(", "));
        let mistake = |error: &CaseError| {
            json!({ "file": error.file, "line": error.line, "col": error.col, "code": error.code,
                "message": error.message })
        };
        Some(Self {
            text: format!("{} in case files; the files are left out, the others run", session::told(errors, SHOWN)),
            last,
            record: json!({ "files": files, "errors": errors.iter().map(mistake).collect::<Vec<_>>() }),
            counts,
        })
    }
}

/// Whether the cases that are meant are named one by one, and so are all there.
fn is_by_name(wanted: &Wanted) -> bool {
    let others = wanted.filters.is_empty() && wanted.tags.is_empty() && wanted.exprs.is_empty();
    others && (!wanted.exact.is_empty() || wanted.listed.is_some())
}
