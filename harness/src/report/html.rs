//! What the crate `pages` cannot read from tables: cases and their files, schedules, quarantine, why the latest runs failed.
//!
//! Inputs: cases of both kinds of device, entries of the quarantine file, recorded runs. Output: what `pages::write` takes.

use crate::case::Case;
use crate::gate::COSTS;
use crate::record::Recorded;
use pages::{CaseFact, Failed, Given, Quarantined};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Failures that one run's pages tell with their words.
const FAILURES: usize = 500;

/// What pages are made of.
pub(crate) struct Known<'a> {
    pub(crate) results: &'a Path,
    pub(crate) cases_dir: &'a Path,
    pub(crate) gpu: &'a [Case],
    pub(crate) sim: &'a [Case],
    pub(crate) quarantine: Vec<Quarantined>,
    /// Runs whose records are here and whose failures are told.
    pub(crate) latest: &'a [Recorded],
}

/// Everything in the form that pages take.
pub(crate) fn given(known: Known<'_>) -> Given {
    let mut cases: BTreeMap<String, CaseFact> = BTreeMap::new();
    for (list, gpu) in [(known.gpu, true), (known.sim, false)] {
        for case in list {
            let fact = cases.entry(case.id.clone()).or_insert_with(|| fact(case));
            if gpu {
                fact.gpu = true;
            } else {
                fact.sim = true;
            }
        }
    }
    schedules(known.cases_dir, &mut cases);
    accepted(known.cases_dir, &mut cases);
    let paths: BTreeSet<&str> = cases.values().map(|fact| fact.file.as_str()).collect();
    let read = |path: &&str| Some((path.to_string(), std::fs::read_to_string(path).ok()?));
    let files: BTreeMap<String, String> = paths.iter().filter_map(read).collect();
    Given {
        results: known.results.to_path_buf(),
        title: "Fusewright".into(),
        made: format!("harness {}", env!("CARGO_PKG_VERSION")),
        quarantine: known.quarantine,
        costs: COSTS.map(String::from).to_vec(),
        failures: known.latest.iter().flat_map(failures).collect(),
        files,
        cases,
    }
}

fn fact(case: &Case) -> CaseFact {
    CaseFact {
        suite: case.suite.clone(),
        tags: case.tags.clone(),
        about: case.about.clone(),
        file: case.file.clone(),
        line: case.line,
        goal: case.perf.as_ref().and_then(|perf| perf.dram).map(crate::case::Real::get),
        measured: case.perf.is_some(),
        ..CaseFact::default()
    }
}

/// How each kernel is scheduled, by the committed list beside the cases; nothing where there is none.
fn schedules(cases_dir: &Path, cases: &mut BTreeMap<String, CaseFact>) {
    let Ok(mut reader) = csv::Reader::from_path(cases_dir.join("kernels.csv")) else { return };
    for row in reader.deserialize::<BTreeMap<String, String>>().filter_map(Result::ok) {
        let cell = |name: &str| row.get(name).map(String::as_str).unwrap_or_default();
        if let Some(fact) = cases.get_mut(cell("case")) {
            fact.schedule = [cell("scheduler"), cell("parameters")].join(" ").trim().to_string();
            fact.launch = cell("launch").to_string();
        }
    }
}

/// Why counters are what they are, by the committed baseline beside the cases; nothing where there is none.
fn accepted(cases_dir: &Path, cases: &mut BTreeMap<String, CaseFact>) {
    let Ok(mut reader) = csv::Reader::from_path(cases_dir.join("counters.csv")) else { return };
    for row in reader.deserialize::<BTreeMap<String, String>>().filter_map(Result::ok) {
        let cell = |name: &str| row.get(name).map(String::as_str).unwrap_or_default();
        if let Some(fact) = cases.get_mut(cell("case_id")) {
            fact.accepted = format!("{} ({})", cell("reason"), cell("commit"));
        }
    }
}

fn failures(run: &Recorded) -> Vec<Failed> {
    let failed = run.cases.iter().filter(|(_, case)| case.failed() || case.verdict().0 == "flaky");
    let told = failed.take(FAILURES).map(|(id, case)| {
        let (_, outcome, detail) = case.verdict();
        Failed { run: run.id().into(), case: id.clone(), outcome: outcome.into(), detail: detail.into() }
    });
    told.collect()
}
