//! What a run takes over from the one that it goes on with.

use crate::case::Case;
use crate::cli::{Failure, resume};
use crate::dispatch::{Conclusion, Job};
use crate::record::{Done, History, Resumed, RunStore};
use crate::select::Chosen;
use crate::verdict::{Outcome, Verdict};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use std::sync::Arc;

/// The cases that the earlier run had selected, if the case files are still the same.
pub(super) fn selected(resumed: &Resumed, cases: Vec<Case>, fingerprint: u32) -> Result<Chosen, Failure> {
    let (then, now) = (&resumed.cases_crc, format!("{fingerprint:08x}"));
    if *then != now {
        let why = format!("the case files have changed since (checksum {now}, then {then})");
        return Err(resume::refused(&resumed.run_id, &why, Some(resumed)));
    }
    let known = |case: &Case| resumed.selected.contains(&case.id);
    let chosen: Vec<Case> = cases.into_iter().filter(known).collect();
    if chosen.len() < resumed.selected.len() || chosen.is_empty() {
        let missing = resumed.selected.iter().find(|id| !chosen.iter().any(|case| case.id == **id));
        let which = missing.map_or("it had selected none", |id| id);
        return Err(resume::refused(&resumed.run_id, &format!("a selected case is not there: {which}"), Some(resumed)));
    }
    Ok(Chosen { cases: chosen, outstanding: Vec::new(), notes: Vec::new() })
}

/// Cases that are open, and the verdicts on the others.
pub(super) fn split(resumed: Option<&Resumed>, cases: Vec<Case>) -> (Vec<Case>, Vec<(Conclusion, Done)>) {
    let (mut open, mut carried) = (Vec::new(), Vec::new());
    for case in cases {
        let done = resumed.and_then(|resumed| resumed.done.get(&case.id));
        // A verdict that this version does not know is not taken over.
        match done.and_then(|done| Some((verdict(&done.verdict)?, done))) {
            Some((verdict, done)) => carried.push((conclusion(case, verdict, done), done.clone())),
            None => open.push(case),
        }
    }
    (open, carried)
}

fn verdict(name: &str) -> Option<Verdict> {
    Verdict::deserialize(StrDeserializer::<serde::de::value::Error>::new(name)).ok()
}

fn conclusion(case: Case, verdict: Verdict, done: &Done) -> Conclusion {
    let job = Job::new(Arc::new(case), 0);
    let mut result = job.result(Outcome::of(verdict, &done.outcome, done.detail.clone()));
    result.dur_ns = done.dur_ns;
    let outcomes = done.outcomes.clone();
    Conclusion { case: job.case, verdict, outcomes, failures: done.failures.min(u64::from(u32::MAX)) as u32, result }
}

/// Adds to the history what the earlier run did not live to add, under its own name.
pub(super) fn history(history: &History, resumed: &Resumed, store: &mut RunStore) {
    if resumed.rows.is_empty() {
        return;
    }
    let commit = resumed.git_sha.as_deref().unwrap_or_default();
    if let Err(error) = history.add(&resumed.run_id, commit, &resumed.rows) {
        store.fail("history", &error);
    }
}
