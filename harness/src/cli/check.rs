//! `check`: every selected case is read and its sizes are bound, for both kinds
//! of devices, without running anything: is the corpus in order?

use super::Failure;
use super::args::Args;
use super::session::{self, CaseOptions};
use crate::case::Target;
use crate::console::print;
use crate::corpus::complaints;
use crate::exit;
use crate::units::{counted, show_seconds};
use std::collections::BTreeSet;
use std::time::Instant;

/// Failures that are printed.
const SHOWN: usize = 40;

pub(super) fn check(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let options = CaseOptions::of(args);
    let loaded = session::load_all(&options, Target::Sim)?;
    let files = loaded.files;
    let mut cases = loaded.cases;
    // What is the same on a GPU is checked once.
    let ids: BTreeSet<String> = cases.iter().map(|case| case.id.clone()).collect();
    cases.extend(session::load_all(&options, Target::Cuda)?.cases.into_iter().filter(|case| !ids.contains(&case.id)));
    let cases = session::select(&options, cases)?;
    let wrong = complaints(&cases);
    let mut text = wrong.iter().take(SHOWN).map(String::as_str).collect::<String>();
    let elapsed = started.elapsed().as_nanos() as u64;
    let count = cases.len();
    text.push_str(&format!(
        "{} of {} read in {}, {} of them wrong\n",
        counted(count, "case"),
        counted(files, "file"),
        show_seconds(elapsed),
        wrong.len()
    ));
    print(&text);
    Ok(if wrong.is_empty() { exit::OK } else { exit::FAILED })
}
