//! What a run takes over from the one that it goes on with.

use crate::case::Case;
use crate::cli::{Failure, resume};
use crate::dispatch::{Job, RunPlan};
use crate::escape::short;
use crate::outcome::{CaseResult, CodeFrom, Conclusion, Digest, HeldTo, Outcome, Perf, Variation, Verdict};
use crate::record::{Attempt, Done, History, Provenance, Resumed, RunStore, is_failure};
use crate::select::Chosen;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An error if the devices are not of the kind on which the earlier run was: its
/// verdicts would stand for theirs, and in their history.
pub(super) fn fits(resumed: &Resumed, device: &str) -> Result<(), Failure> {
    match &resumed.device {
        Some(then) if then != device => {
            let why = format!("it ran on `{}`, and the device is `{}` now", short(then), short(device));
            Err(resume::refused(&resumed.run_id, &why, Some(resumed)))
        }
        _ => Ok(()),
    }
}

/// In words, how the harness of the earlier run differs from this one, whose
/// verdicts are to stand beside its own.
pub(super) fn built_otherwise(then: &Provenance, now: &Provenance) -> Option<String> {
    let text = |sha: &Option<String>| sha.as_deref().unwrap_or("none").chars().take(12).collect::<String>();
    let mut parts = Vec::new();
    let [(commit, dirty), (commit_now, dirty_now)] = [then, now].map(|of| (&of.git_sha, of.git_dirty == Some(true)));
    if commit != commit_now {
        parts.push(format!("commit {} then, {} now", short(&text(commit)), text(commit_now)));
    }
    if dirty != dirty_now {
        parts.push(format!("local changes {}", if dirty { "then, none now" } else { "now, none then" }));
    }
    // Records of before have no name of the binary.
    if then.build.is_some() && then.build != now.build {
        parts.push("another binary".into());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

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
    Ok(Chosen { cases: chosen, outstanding: resumed.outstanding.clone(), ..Chosen::default() })
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

/// What the earlier run tried of cases that are open, noted in the record of this one:
/// a failure stays one, whatever the attempts that follow show.
pub(super) fn tried(
    cross: bool,
    resumed: &Resumed,
    cases: &[Arc<Case>],
    plan: &RunPlan,
    store: &mut RunStore,
) -> BTreeMap<String, Vec<CaseResult>> {
    let mut tried = BTreeMap::new();
    for case in cases {
        let attempts = resumed.tried.get(&case.id).map(Vec::as_slice).unwrap_or_default();
        let attempts = counted(attempts, cross);
        if attempts.is_empty() {
            continue;
        }
        store.append("earlier", &json!({ "case_id": case.id, "attempts": attempts }));
        tried.insert(case.id.clone(), attempts.iter().map(|attempt| result(case, attempt, plan)).collect());
    }
    tried
}

/// What counts of attempts without a verdict: from the first failure on. A pass
/// would have been the verdict, had its harness lived to say so; the case is run
/// again. All of them, where devices are compared.
fn counted(attempts: &[Attempt], cross: bool) -> &[Attempt] {
    let first = attempts.iter().position(|attempt| cross || is_failure(&attempt.verdict));
    first.map_or(&[], |first| &attempts[first..])
}

/// An attempt as the run that made it had it, as far as its record tells.
fn result(case: &Arc<Case>, attempt: &Attempt, plan: &RunPlan) -> CaseResult {
    // A verdict that this version does not know was not a pass, or it would.
    let verdict = verdict(&attempt.verdict).unwrap_or(Verdict::Fail);
    let crc = |hex: &Option<String>| u32::from_str_radix(hex.as_deref()?, 16).ok();
    let outcome = Outcome {
        phases: attempt.phases.clone(),
        kernel_crc: crc(&attempt.kernel_crc),
        code_digest: attempt.code_digest.as_deref().and_then(Digest::read),
        code: attempt.is_cached().then_some(CodeFrom::Cached),
        held_to: attempt.is_held_to_digest().then_some(HeldTo::Digest),
        out_digest: attempt.out_digest.as_deref().and_then(Digest::read),
        variation: attempt.variation.as_ref().and_then(|variation| Variation::deserialize(variation).ok()),
        perf: attempt.perf.as_ref().and_then(|perf| Perf::deserialize(perf).ok()),
        ..Outcome::of(verdict, &attempt.outcome, attempt.detail.clone())
    };
    CaseResult {
        slot: plan.slots.iter().position(|slot| slot.label == attempt.slot),
        worker: attempt.worker_id.clone(),
        attempt: attempt.attempt,
        repeat: attempt.repeat,
        position: attempt.position,
        dur_ns: attempt.dur_ns,
        carried_from: attempt.carried_from.clone(),
        ..Job::new(case.clone(), attempt.seed).result(outcome)
    }
}

/// Adds to the history what the earlier run did not live to add, under its own name.
/// Returns what is to be said.
pub(super) fn history(history: &History, resumed: &Resumed, store: &mut RunStore) -> Vec<String> {
    let commit = resumed.git_sha.as_deref().unwrap_or_default();
    let added = history.add_once(&resumed.dir, &resumed.run_id, commit, &resumed.rows, &resumed.seen);
    added.unwrap_or_else(|error| {
        store.fail("history", &error);
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_is_told() {
        let of = |sha: &str, dirty: bool, build: Option<&str>| Provenance {
            git_sha: Some(sha.into()),
            git_dirty: Some(dirty),
            build: build.map(String::from),
            ..Provenance::default()
        };
        let check = |then: Provenance, wanted: Option<&str>| {
            let now = of("0123456789abcdef", false, Some("b1"));
            assert_eq!(built_otherwise(&then, &now).as_deref(), wanted);
        };
        check(of("0123456789abcdef", false, Some("b1")), None);
        check(of("0123456789abcdef", false, None), None);
        check(of("0123456789abcdef", false, Some("b2")), Some("another binary"));
        check(of("0123456789abcdef", true, Some("b1")), Some("local changes then, none now"));
        check(of("ffff", false, None), Some("commit ffff then, 0123456789ab now"));
    }

    /// A pass of one life, and a failure of the next: the pass was no verdict.
    #[test]
    fn attempts_count_from_the_first_failure_on() {
        let attempts = |letters: &str| -> Vec<Attempt> {
            let verdict = |letter| if letter == 'p' { "pass".into() } else { "fail".into() };
            letters.chars().map(|letter| Attempt { verdict: verdict(letter), ..Attempt::default() }).collect()
        };
        for (letters, cross, count) in [("", false, 0), ("pp", false, 0), ("pfp", false, 2), ("pfp", true, 3)] {
            assert_eq!(counted(&attempts(letters), cross).len(), count, "{letters}");
        }
    }
}
