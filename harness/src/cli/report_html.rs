//! `report --html DIR`: the recorded results as a folder of pages.

use super::args::Args;
use super::session::{self, Folders};
use super::{Failure, runs};
use crate::case::{Target, load};
use crate::console::{complain, print};
use crate::exit;
use crate::record::{Recorded, ResultsFolder, RunInfo, RunState};
use crate::report::html::{Known, given};
use crate::select::quarantine::QuarantineEntry;
use crate::units::{counted, show_bytes};
use engine::diag::{Diagnostic, code};
use std::collections::BTreeSet;
use std::path::Path;

/// Runs whose failures are told with their words.
const LATEST: usize = 8;

pub(super) fn html(args: &Args, dir: &Path) -> Result<u8, Failure> {
    if !args.operands.is_empty() || args.records.form.is_some() || args.output.file.is_some() || args.records.github {
        let message = "`--html` makes pages of all runs: it takes no run, `--format`, `--output` or `--github`";
        let diagnostic = Diagnostic::user(code::USAGE, message);
        return Err(Failure::diagnostic(exit::USAGE, &diagnostic.note("`harness report --html pages` is enough")));
    }
    write(&Folders::of(args), dir)?;
    Ok(exit::OK)
}

/// Writes the pages of a folder of results, and says what was written.
fn write(folders: &Folders, dir: &Path) -> Result<(), Failure> {
    // Refuses a folder of another version, and one that is not there.
    runs::layout(&folders.results)?;
    let (gpu, sim) = (load(&folders.cases, Target::Cuda), load(&folders.cases, Target::Sim));
    if let Some(error) = sim.errors.first() {
        let more = counted(sim.errors.len(), "error");
        complain(&format!("{error}\n{more} in case files: pages are made without what those files say"));
    }
    let quarantine = session::read_quarantine(folders)?;
    let latest = latest(&folders.results);
    let known = Known {
        results: &folders.results,
        cases_dir: &folders.cases,
        gpu: &gpu.cases,
        sim: &sim.cases,
        quarantine: quarantine.entries().map(quarantined).collect(),
        latest: &latest,
    };
    let written = pages::write(given(known), dir).map_err(|error| {
        let shown = crate::escape::path(dir);
        let message = format!("pages cannot be written to {shown}: {error}");
        Failure::diagnostic(exit::NO_RECORD, &Diagnostic::user(code::RESULTS, message).note("name another folder"))
    })?;
    let (pages, cases, runs) =
        (counted(written.pages, "page"), counted(written.cases, "case"), counted(written.runs, "run"));
    let size = show_bytes(written.bytes);
    print(&format!("{pages} of {cases} and {runs}, {size}: open {}\n", crate::escape::path(&dir.join("index.html"))));
    Ok(())
}

fn quarantined(entry: &QuarantineEntry) -> pages::Quarantined {
    let QuarantineEntry { id, owner, issue, reason, until } = entry.clone();
    pages::Quarantined { id, owner, issue, reason, until }
}

/// The newest run of each device and command, as far as records are here and can be read.
fn latest(results: &Path) -> Vec<Recorded> {
    let all = ResultsFolder::open(results).and_then(|folder| folder.list()).unwrap_or_default();
    let mut seen = BTreeSet::new();
    let newest = |info: &&RunInfo| {
        let kind = (info.header.device(), info.header.mode().to_string());
        info.state != RunState::Live && info.judges() && seen.insert(kind)
    };
    let mut newest: Vec<&RunInfo> = all.iter().rev().filter(newest).take(LATEST).collect();
    newest.reverse();
    newest.into_iter().filter_map(|info| info.load().ok()).collect()
}
