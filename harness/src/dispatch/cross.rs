//! `--cross`: every case on every device, with equal results and equal kernels.
//!
//! [`compare`] is the judgement, pure: attempts in, the mismatch out. [`Cross`]
//! is the source of jobs: one for each case and device, pinned. A case is tried
//! once on each device; retries would hide what is looked for.

use super::job::{CaseResult, Conclusion, Job};
use super::judge::rank;
use super::queue::Policy;
use super::source::{Settled, Source, Take};
use crate::case::Case;
use crate::verdict::{Determinism, Outcome, Verdict, apply_learnt, apply_xfail};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one device made of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The device, for people.
    pub(crate) device: String,
    pub(crate) kernel_crc: Option<u32>,
    pub(crate) out_crc: Option<u32>,
    /// How alike repeated runs on one device are, where that is known.
    pub(crate) class: Option<Determinism>,
}

/// The outcome and the reason where devices disagree about a case. A kernel that
/// is not the same text everywhere comes first: it explains other results.
/// Results that vary on one device are not compared between two.
pub(crate) fn compare(seen: &[Seen]) -> Option<(&'static str, String)> {
    let kernels = groups(seen, |seen| seen.kernel_crc);
    if kernels.len() > 1 {
        return Some(("fail.codegen_mismatch", format!("the kernel's text differs: {}", show(&kernels))));
    }
    if seen.iter().any(|seen| seen.class.is_some_and(|class| class > Determinism::Bitwise)) {
        return None;
    }
    let results = groups(seen, |seen| seen.out_crc);
    (results.len() > 1).then(|| ("fail.determinism", format!("results differ in their bits: {}", show(&results))))
}

/// The devices by what they have; those that have nothing are left out.
fn groups(seen: &[Seen], of: impl Fn(&Seen) -> Option<u32>) -> BTreeMap<u32, Vec<&str>> {
    let mut groups: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for seen in seen {
        if let Some(crc) = of(seen) {
            groups.entry(crc).or_default().push(&seen.device);
        }
    }
    groups
}

/// The largest group first.
fn show(groups: &BTreeMap<u32, Vec<&str>>) -> String {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by_key(|(crc, devices)| (std::cmp::Reverse(devices.len()), **crc));
    let parts: Vec<String> =
        groups.iter().map(|(crc, devices)| format!("{crc:08x} on {}", devices.join(", "))).collect();
    parts.join("; ")
}

/// The source of a run across devices.
pub(crate) struct Cross {
    policy: Policy,
    /// One slot of each device, with its name.
    members: Vec<(usize, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// What devices gave of the cases that are under way, and how many are missing.
    open: BTreeMap<String, Open>,
    failed: usize,
}

#[derive(Default)]
struct Open {
    results: Vec<CaseResult>,
    missing: usize,
}

impl Cross {
    /// `labels` are the names of the slots, for people.
    pub(crate) fn new(cases: &[Arc<Case>], policy: Policy, labels: &[String]) -> Self {
        let mut members: Vec<(usize, String)> = Vec::new();
        for (slot, device) in policy.devices.iter().enumerate() {
            if policy.devices.iter().position(|other| other == device) == Some(slot) {
                members.push((slot, labels.get(slot).cloned().unwrap_or_default()));
            }
        }
        let mut state = State::default();
        for case in cases {
            // A device on which the case failed before a kill is not asked again.
            let tried = policy.tried.get(&case.id).map(Vec::as_slice).unwrap_or_default();
            let failed: Vec<&CaseResult> = tried.iter().filter(|r| r.outcome.verdict.is_failure()).collect();
            if !failed.is_empty() {
                let open = state.open.entry(case.id.clone()).or_default();
                open.results.extend(failed.iter().map(|result| (*result).clone()));
            }
            let fitting = members.iter().filter(|(slot, _)| policy.fits(*slot, case));
            for (slot, _) in fitting.filter(|(slot, _)| !failed.iter().any(|result| result.slot == *slot)) {
                let job = Job { pin: Some(*slot), ..Job::new(case.clone(), policy.seed) };
                state.waiting.push_back(job);
                state.open.entry(case.id.clone()).or_default().missing += 1;
            }
        }
        Self { policy, members, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, slot: usize) -> String {
        let member = self.members.iter().find(|(member, _)| *member == slot);
        member.map_or_else(|| format!("slot {slot}"), |(_, label)| label.clone())
    }

    /// The verdict from what the devices gave.
    fn conclude(&self, results: Vec<CaseResult>) -> Option<Conclusion> {
        let failed = |result: &&CaseResult| result.outcome.verdict.is_failure();
        let seen: Vec<Seen> = results
            .iter()
            .filter(|result| result.outcome.verdict == Verdict::Pass)
            .map(|result| Seen {
                device: self.device(result.slot),
                kernel_crc: result.outcome.kernel_crc,
                out_crc: result.outcome.out_crc,
                class: self.class(result),
            })
            .collect();
        let outcomes = results.iter().map(|result| result.outcome.outcome.clone()).collect();
        let mut failures = results.iter().filter(failed).count() as u32;
        // The first of the worst.
        let worst = results.iter().filter(failed).rev().max_by_key(|result| rank(result.outcome.verdict));
        let mut shown = worst.or(results.last()).cloned()?;
        if failures == 0
            && let Some((name, why)) = compare(&seen)
        {
            let judged = Outcome::fail(name, why);
            let outcome = &mut shown.outcome;
            (outcome.verdict, outcome.outcome, outcome.detail) = (judged.verdict, judged.outcome, judged.detail);
            apply_xfail(outcome, shown.case.xfail.as_ref(), &self.policy.today);
            failures = 1;
        } else if failures > 0 && shown.slot != usize::MAX {
            shown.outcome.detail = format!("on {}: {}", self.device(shown.slot), shown.outcome.detail);
        }
        let (case, verdict) = (shown.case.clone(), shown.outcome.verdict);
        let mut conclusion = Conclusion { case, verdict, outcomes, failures, result: shown };
        self.policy.allow(&mut conclusion);
        Some(conclusion)
    }

    fn class(&self, result: &CaseResult) -> Option<Determinism> {
        let found = result.outcome.variation.as_ref().map(|variation| variation.class);
        found.max(self.policy.learnt.get(&result.case.id).copied())
    }
}

impl Source for Cross {
    fn take(&self, slot: usize) -> Take {
        let mut state = self.lock();
        if self.policy.closed(state.failed).is_some() {
            return Take::Done;
        }
        let at = state.waiting.iter().position(|job| job.pin == Some(slot));
        at.and_then(|at| state.waiting.remove(at)).map_or(Take::Done, |job| Take::Job(Box::new(job)))
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        apply_learnt(&mut result.outcome, self.policy.learnt.get(&job.case.id).copied());
        apply_xfail(&mut result.outcome, job.case.xfail.as_ref(), &self.policy.today);
        let mut state = self.lock();
        let open = state.open.entry(job.case.id.clone()).or_default();
        open.results.push(result.clone());
        open.missing = open.missing.saturating_sub(1);
        if open.missing > 0 {
            return Settled::Again;
        }
        let results = state.open.remove(&job.case.id).map(|open| open.results).unwrap_or_default();
        let Some(conclusion) = self.conclude(results) else { return Settled::Noted };
        state.failed += usize::from(conclusion.verdict.is_failure());
        Settled::Concluded(Box::new(conclusion))
    }

    fn put_back(&self, job: Job) {
        self.lock().waiting.push_front(job);
    }

    /// Cases that lack a device: what the others gave, or that nobody ran them.
    fn rest(&self, stopped: bool, reason: &str) -> Vec<Conclusion> {
        let mut state = self.lock();
        let closed = self.policy.closed(state.failed);
        let open = std::mem::take(&mut state.open);
        let mut results: BTreeMap<String, Vec<CaseResult>> =
            open.into_iter().map(|(id, open)| (id, open.results)).collect();
        for job in std::mem::take(&mut state.waiting) {
            let device = job.pin.map_or(String::new(), |slot| self.device(slot));
            let outcome = match (stopped, &closed) {
                (true, _) => Outcome::of(Verdict::Skip, "not_run.cancelled", "the run was stopped before this case"),
                (_, Some((name, why))) => Outcome::of(Verdict::Skip, name, why.as_str()),
                _ => Outcome::of(Verdict::Infra, "infra.worker_spawn", format!("not run on {device}: {reason}")),
            };
            results.entry(job.case.id.clone()).or_default().push(job.result(outcome));
        }
        results.into_values().filter_map(|results| self.conclude(results)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Retries;
    use crate::verdict::Variation;

    fn seen(device: &str, kernel: u32, out: u32, class: Option<Determinism>) -> Seen {
        Seen { device: device.into(), kernel_crc: Some(kernel), out_crc: Some(out), class }
    }

    #[track_caller]
    fn check(seen: &[Seen], wanted: Option<(&str, &str)>) {
        let found = compare(seen);
        assert_eq!(found.as_ref().map(|(name, why)| (*name, why.as_str())), wanted);
    }

    #[test]
    fn devices_must_agree() {
        use Determinism::{Bitwise, Tolerance};
        check(&[], None);
        check(&[seen("gpu0", 1, 2, None), seen("gpu1", 1, 2, Some(Bitwise))], None);
        let three = [seen("gpu0", 1, 2, None), seen("gpu1", 1, 0xab, None), seen("gpu2", 1, 0xab, None)];
        let why = "results differ in their bits: 000000ab on gpu1, gpu2; 00000002 on gpu0";
        check(&three, Some(("fail.determinism", why)));
        // Another kernel explains another result.
        let why = "the kernel's text differs: 00000001 on gpu0; 00000003 on gpu1";
        check(&[seen("gpu0", 1, 2, None), seen("gpu1", 3, 4, None)], Some(("fail.codegen_mismatch", why)));
        // What varies on one device is not compared between two; its kernel is.
        check(&[seen("gpu0", 1, 2, Some(Tolerance)), seen("gpu1", 1, 4, None)], None);
        let varying = [seen("gpu0", 1, 2, Some(Tolerance)), seen("gpu1", 3, 2, None)];
        assert_eq!(compare(&varying).map(|found| found.0), Some("fail.codegen_mismatch"));
        // A refusal has neither kernel nor result.
        let nothing = Seen { kernel_crc: None, out_crc: None, ..seen("gpu1", 0, 0, None) };
        check(&[seen("gpu0", 1, 2, None), nothing], None);
    }

    fn cross(ids: &[&str], devices: &[&str]) -> Cross {
        resumed(ids, devices, BTreeMap::new())
    }

    /// With what an earlier run had tried.
    fn resumed(ids: &[&str], devices: &[&str], tried: BTreeMap<String, Vec<CaseResult>>) -> Cross {
        let cases: Vec<_> = ids.iter().map(|id| Arc::new(Case { id: (*id).into(), ..Case::default() })).collect();
        let names: Vec<String> = devices.iter().map(|name| (*name).to_string()).collect();
        let policy = Policy {
            slots: Vec::new(),
            seed: 1,
            retries: Retries::NONE,
            retried_cases: 0,
            fail_fast: None,
            deadline: None,
            today: String::new(),
            quarantine: Default::default(),
            devices: names.clone(),
            learnt: BTreeMap::new(),
            tried,
        };
        Cross::new(&cases, policy, &names)
    }

    fn take(cross: &Cross, slot: usize) -> Job {
        match cross.take(slot) {
            Take::Job(job) => *job,
            other => panic!("{other:?}"),
        }
    }

    fn settle(cross: &Cross, slot: usize, outcome: Outcome) -> Option<Conclusion> {
        let job = take(cross, slot);
        let mut result = CaseResult { slot, ..job.result(outcome) };
        match cross.settle(&job, &mut result) {
            Settled::Concluded(conclusion) => Some(*conclusion),
            _ => None,
        }
    }

    fn passed(out_crc: u32) -> Outcome {
        Outcome { kernel_crc: Some(7), out_crc: Some(out_crc), ..Outcome::pass() }
    }

    #[test]
    fn each_device_runs_each_case_once() {
        let cross = cross(&["a", "b"], &["g0", "g0", "g1"]);
        // The second worker of a device has nothing to add.
        assert!(matches!(cross.take(1), Take::Done));
        assert!(settle(&cross, 0, passed(1)).is_none());
        assert!(settle(&cross, 0, passed(1)).is_none());
        assert!(matches!(cross.take(0), Take::Done));
        let first = settle(&cross, 2, passed(1)).expect("both have run it");
        assert_eq!((first.case.id.as_str(), first.verdict, first.failures), ("a", Verdict::Pass, 0));
        let second = settle(&cross, 2, passed(2)).expect("both have run it");
        assert_eq!((second.verdict, second.result.outcome.outcome.as_str()), (Verdict::Fail, "fail.determinism"));
        assert_eq!(second.result.outcome.detail, "results differ in their bits: 00000001 on g0; 00000002 on g1");
        assert!(cross.rest(false, "").is_empty());
    }

    #[test]
    fn a_failure_on_one_device_names_it() {
        let cross = cross(&["a"], &["g0", "g1"]);
        assert!(settle(&cross, 1, Outcome::fail("fail.numerics", "off")).is_none());
        let found = settle(&cross, 0, passed(1)).expect("both have run it");
        assert_eq!((found.failures, found.result.outcome.outcome.as_str()), (1, "fail.numerics"));
        assert_eq!(found.result.outcome.detail, "on g1: off");
    }

    #[test]
    fn what_failed_on_a_device_before_a_kill_is_not_asked_again() {
        let job = Job::new(Arc::new(Case { id: "a".into(), ..Case::default() }), 1);
        let failed = CaseResult { slot: 1, ..job.result(Outcome::fail("fail.numerics", "off")) };
        let passed_before = CaseResult { slot: 0, ..job.result(passed(1)) };
        let tried = BTreeMap::from([("a".to_string(), vec![passed_before, failed])]);
        let cross = resumed(&["a"], &["g0", "g1"], tried);
        assert!(matches!(cross.take(1), Take::Done));
        let found = settle(&cross, 0, passed(1)).expect("both have run it");
        assert_eq!((found.verdict, found.failures, found.result.slot), (Verdict::Fail, 1, 1));
    }

    #[test]
    fn a_device_that_is_lost_leaves_its_cases_open() {
        let cross = cross(&["a", "b"], &["g0", "g1"]);
        assert!(settle(&cross, 0, passed(1)).is_none());
        let job = take(&cross, 1);
        cross.put_back(job);
        let rest = cross.rest(false, "the GPU is gone");
        assert_eq!(rest.len(), 2);
        assert!(rest.iter().all(|conclusion| conclusion.verdict == Verdict::Infra));
        assert!(rest[0].result.outcome.detail.contains("not run on g1: the GPU is gone"));
    }

    #[test]
    fn failures_close_the_run_and_say_so() {
        let mut cross = cross(&["a", "b"], &["g0", "g1"]);
        cross.policy.fail_fast = Some(1);
        assert!(settle(&cross, 0, Outcome::fail("fail.numerics", "off")).is_none());
        assert!(settle(&cross, 1, passed(1)).is_some());
        assert!(matches!(cross.take(0), Take::Done));
        let rest = cross.rest(false, "");
        assert_eq!((rest.len(), rest[0].result.outcome.outcome.as_str()), (1, "not_run.fail_fast"));
    }

    /// Devices agree exactly if no two of them differ in what is compared.
    #[test]
    fn agreement_is_of_each_pair() {
        arbtest::arbtest(|u| {
            let mut seen = Vec::new();
            for number in 0..u.int_in_range(0..=4)? {
                let class = u.arbitrary::<bool>()?.then_some(Determinism::Tolerance);
                let (kernel_crc, out_crc) = (u.int_in_range(0..=2)?, u.int_in_range(0..=2)?);
                let some = |crc: u32| crc.checked_sub(1);
                seen.push(Seen {
                    device: format!("g{number}"),
                    kernel_crc: some(kernel_crc),
                    out_crc: some(out_crc),
                    class,
                });
            }
            let differ = |of: &dyn Fn(&Seen) -> Option<u32>| {
                let pairs = seen.iter().flat_map(|a| seen.iter().map(move |b| (of(a), of(b))));
                pairs.into_iter().any(|(a, b)| a.is_some() && b.is_some() && a != b)
            };
            let varies = seen.iter().any(|seen| seen.class.is_some());
            let wanted = match (differ(&|seen| seen.kernel_crc), differ(&|seen| seen.out_crc) && !varies) {
                (true, _) => Some("fail.codegen_mismatch"),
                (false, true) => Some("fail.determinism"),
                _ => None,
            };
            assert_eq!(compare(&seen).map(|found| found.0), wanted, "{seen:?}");
            Ok(())
        });
    }

    #[test]
    fn results_that_vary_are_not_compared() {
        let cross = cross(&["a"], &["g0", "g1"]);
        let variation = Some(Variation { class: Determinism::Tolerance, detail: String::new() });
        assert!(settle(&cross, 0, Outcome { variation, ..passed(1) }).is_none());
        assert_eq!(settle(&cross, 1, passed(2)).expect("both have run it").verdict, Verdict::Pass);
    }
}
