//! Case files with mistakes: commands that select cases leave them out, and say so at their start and their end, in the
//! record and by the exit code. One broken file does not cost the verdicts on all others.
//!
//! Inputs: the mistakes and the selection. Outputs: lines for people, a record, an exit code.

use super::{Failure, session};
use crate::case::CaseError;
use crate::escape::short;
use crate::exit;
use crate::select::Wanted;
use crate::units::counted;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Mistakes that are printed, and files that the last lines name.
const SHOWN: usize = 20;
const NAMED: usize = 3;

/// What is left out.
pub(super) struct Broken {
    /// For the start of a command, and for its end.
    pub(super) text: String,
    pub(super) last: String,
    pub(super) record: Value,
    /// Whether cases may be missing that were meant.
    pub(super) counts: bool,
}

impl Broken {
    /// Nothing where all files are well. `others` says what becomes of those that are.
    pub(super) fn of(wanted: &Wanted, errors: &[CaseError], others: &str) -> Option<Self> {
        let files: Vec<&str> =
            errors.iter().map(|error| error.file.as_str()).collect::<BTreeSet<_>>().into_iter().collect();
        if files.is_empty() {
            return None;
        }
        let counts = !is_by_name(wanted);
        let named: Vec<_> = files.iter().take(NAMED).map(|file| short(file)).collect();
        let more = if files.len() > NAMED { ", ..." } else { "" };
        let (all, were) = (counted(files.len(), "case file"), if files.len() == 1 { "was" } else { "were" });
        let last = format!("{all} {were} left out as malformed: {}{more}", named.join(", "));
        let mistake = |error: &CaseError| {
            json!({ "file": error.file, "line": error.line, "col": error.col, "code": error.code,
                "message": error.message })
        };
        Some(Self {
            text: format!(
                "{} in case files; the files are left out, the others {others}",
                session::told(errors, SHOWN)
            ),
            last,
            record: json!({ "files": files, "errors": errors.iter().map(mistake).collect::<Vec<_>>() }),
            counts,
        })
    }
}

/// An exit code with that files were left out: it outranks all but failures.
pub(super) fn code_with(broken: Option<&Broken>, code: u8) -> u8 {
    match (code, broken) {
        (exit::OK | exit::INCOMPLETE | exit::OUTSTANDING | exit::REGRESSED | exit::FLAKY, Some(broken))
            if broken.counts =>
        {
            exit::BAD_CASES
        }
        _ => code,
    }
}

/// Why a selection is not had: what it misses may be in a file that is broken, whose mistakes are told then.
pub(super) fn or_malformed(errors: &[CaseError], why: Failure) -> Failure {
    if errors.is_empty() { why } else { session::malformed(errors) }
}

/// Whether the cases that are meant are named one by one, and so are all there.
fn is_by_name(wanted: &Wanted) -> bool {
    let others = wanted.filters.is_empty() && wanted.tags.is_empty() && wanted.exprs.is_empty();
    others && (!wanted.exact.is_empty() || wanted.listed.is_some())
}
