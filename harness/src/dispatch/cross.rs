//! `--cross`: every case on every device, with equal results and equal kernels.
//!
//! [`compare`] is the judgement, pure: what devices gave in, the mismatch out.
//! [`Cross`] is the source of jobs: one for each case and device, pinned. A
//! failure on one device is tried again there, as in any run; what devices
//! disagree about is run again on all of them. So it is a failure if they disagree
//! each time, and flaky if they agree once.
//!
//! Invariant: a slot waits as long as a case that it takes part in may come again,
//! and never for a slot that has left.

use super::job::Job;
use super::judge::{Again, NextStep, Track};
use super::queue::RunPolicy;
use super::source::{Settled, Source, Take};
use crate::case::Case;
use crate::outcome::{CaseResult, Conclusion, Determinism, Digest, Outcome, Verdict, apply_learnt, apply_xfail};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::LowerHex;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one device made of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceResult {
    /// The device, for people.
    pub(crate) device: String,
    /// Product and compute capability: kernels are written for them.
    pub(crate) model: String,
    pub(crate) kernel_crc: Option<u32>,
    pub(crate) out_digest: Option<Digest>,
    /// How alike repeated runs on one device are, where that is known.
    pub(crate) class: Option<Determinism>,
}

/// The outcome and the reason where devices disagree about a case. A kernel that
/// is not the same text on all devices of a model comes first: it explains other
/// results. Results are compared between devices whose kernels are the same text,
/// unless they vary on one device already.
pub(crate) fn compare(seen: &[DeviceResult]) -> Option<(&'static str, String)> {
    for of_model in parts(seen, |seen| seen.model.as_str()) {
        let kernels = groups(&of_model, |seen| seen.kernel_crc);
        if kernels.len() > 1 {
            return Some(("fail.codegen_mismatch", format!("the kernel's text differs: {}", show(&kernels))));
        }
    }
    if seen.iter().any(|seen| seen.class.is_some_and(|class| class > Determinism::Bitwise)) {
        return None;
    }
    let differing = parts(seen, |seen| seen.kernel_crc).into_iter().find_map(|of_kernel| {
        let results = groups(&of_kernel, |seen| seen.out_digest);
        (results.len() > 1).then(|| show(&results))
    });
    differing.map(|results| ("fail.determinism", format!("results differ in their bits: {results}")))
}

/// What is alike in something.
fn parts<'s, K: Ord>(seen: &'s [DeviceResult], of: impl Fn(&'s DeviceResult) -> K) -> Vec<Vec<&'s DeviceResult>> {
    let mut parts: BTreeMap<K, Vec<&DeviceResult>> = BTreeMap::new();
    seen.iter().for_each(|seen| parts.entry(of(seen)).or_default().push(seen));
    parts.into_values().collect()
}

/// The devices by what they have; those that have nothing are left out.
fn groups<'s, K: Ord>(seen: &[&'s DeviceResult], of: impl Fn(&DeviceResult) -> Option<K>) -> BTreeMap<K, Vec<&'s str>> {
    let mut groups: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for seen in seen {
        if let Some(digest) = of(seen) {
            groups.entry(digest).or_default().push(&seen.device);
        }
    }
    groups
}

/// The largest group first.
fn show<K: Ord + Copy + LowerHex>(groups: &BTreeMap<K, Vec<&str>>) -> String {
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by_key(|(digest, devices)| (std::cmp::Reverse(devices.len()), **digest));
    let parts: Vec<String> =
        groups.iter().map(|(digest, devices)| format!("{digest:08x} on {}", devices.join(", "))).collect();
    parts.join("; ")
}

/// What a verdict on one device says about the case as a whole.
fn weight(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Crash => 5,
        Verdict::Hang => 4,
        Verdict::Fail => 3,
        Verdict::Flaky => 2,
        Verdict::Infra => 1,
        _ => 0,
    }
}

/// The job once more, on that device.
fn once_more(job: &Job, slot: usize, again: Again) -> Job {
    let (attempt, repeat) = if again.repeat { (job.attempt, job.repeat + 1) } else { (job.attempt + 1, job.repeat) };
    let Again { fresh, alone, .. } = again;
    Job { attempt, repeat, fresh, alone, strikes: 0, pin: Some(slot), ..job.clone() }
}

/// The first slot of each device. `devices` are those of all slots.
pub(crate) fn one_of_each(devices: &[String]) -> Vec<usize> {
    let first = |slot: &usize| devices.iter().position(|other| *other == devices[*slot]) == Some(*slot);
    (0..devices.len()).filter(first).collect()
}

/// The source of a run across devices.
pub(crate) struct Cross {
    policy: RunPolicy,
    /// One slot of each device, with its name.
    members: Vec<(usize, String)>,
    state: Mutex<AcrossState>,
}

#[derive(Default)]
struct AcrossState {
    waiting: VecDeque<Job>,
    /// Cases without a verdict.
    open: BTreeMap<String, Open>,
    failed: usize,
    /// Cases that were tried more than once.
    retried: usize,
    /// Slots that left.
    left: Vec<usize>,
    /// Verdicts that follow from what was tried before, without another attempt.
    decided: Vec<Conclusion>,
}

/// A case that is under way.
struct Open {
    case: Arc<Case>,
    slots: Vec<usize>,
    /// Slots that are at it, with what happened there in this round.
    tracks: BTreeMap<usize, Track>,
    /// Verdicts of the others.
    ended: Vec<Conclusion>,
    /// Outcomes and failed attempts of earlier rounds.
    outcomes: Vec<String>,
    failures: u32,
    /// The first round in which devices disagreed, and how many there were.
    disagreed: Option<CaseResult>,
    rounds: u32,
}

impl Open {
    fn new(case: Arc<Case>, slots: Vec<usize>) -> Self {
        let tracks = slots.iter().map(|slot| (*slot, Track::default())).collect();
        let (ended, outcomes) = (Vec::new(), Vec::new());
        Self { case, slots, tracks, ended, outcomes, failures: 0, disagreed: None, rounds: 0 }
    }

    /// All devices run it again.
    fn again(&mut self) {
        for ended in std::mem::take(&mut self.ended) {
            self.failures += ended.failures;
            self.outcomes.extend(ended.outcomes);
        }
        self.tracks = self.slots.iter().map(|slot| (*slot, Track::default())).collect();
    }

    /// The verdict, with `result` standing for the case.
    fn conclude(mut self, verdict: Verdict, result: CaseResult) -> Conclusion {
        self.again();
        let failures = self.failures + self.rounds;
        Conclusion { case: self.case, verdict, outcomes: self.outcomes, failures, result }
    }
}

impl Cross {
    /// `labels` are the names of the slots, for people.
    pub(crate) fn new(cases: &[Arc<Case>], policy: RunPolicy, labels: &[String]) -> Self {
        let named = |slot: usize| (slot, labels.get(slot).cloned().unwrap_or_default());
        let members: Vec<(usize, String)> = one_of_each(&policy.devices).into_iter().map(named).collect();
        let mut state = AcrossState::default();
        for case in cases {
            let slots: Vec<usize> = members.iter().map(|(slot, _)| *slot).filter(|s| policy.fits(*s, case)).collect();
            if slots.is_empty() {
                continue;
            }
            let job = |slot: &usize| Job { pin: Some(*slot), ..Job::new(case.clone(), policy.seed) };
            state.waiting.extend(slots.iter().map(job));
            state.open.insert(case.id.clone(), Open::new(case.clone(), slots));
        }
        let cross = Self { policy, members, state: Mutex::new(state) };
        cases.iter().for_each(|case| cross.go_on(&case.id));
        cross
    }

    /// Enters what an earlier run had tried of a case: it goes on from there.
    fn go_on(&self, id: &str) {
        let mut state = self.lock();
        for result in self.policy.tried.get(id).into_iter().flatten() {
            let at =
                state.waiting.iter().position(|job| job.case.id == id && job.pin.is_some() && job.pin == result.slot);
            let Some(job) = at.and_then(|at| state.waiting.remove(at)) else {
                // A failure counts although its device is not here any more.
                let open = state.open.get_mut(id).filter(|_| result.outcome.verdict.is_failure());
                open.into_iter().for_each(|open| open.ended.push(Conclusion::single(result.clone())));
                continue;
            };
            let job = Job { attempt: result.attempt, repeat: result.repeat, ..job };
            if let Settled::Concluded(conclusion) = self.enter(&mut state, &job, result) {
                state.decided.push(*conclusion);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, AcrossState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, slot: usize) -> String {
        let member = self.members.iter().find(|(member, _)| *member == slot);
        member.map_or_else(|| format!("slot {slot}"), |(_, label)| label.clone())
    }

    /// How the devices that passed disagree about a case.
    fn mismatch(&self, open: &Open) -> Option<(&'static str, String)> {
        let passed = open.ended.iter().filter(|ended| ended.verdict == Verdict::Pass);
        let seen = passed.map(|Conclusion { result, .. }| {
            let gpu = result.slot.and_then(|slot| self.policy.slots.get(slot)?.gpu.as_ref());
            DeviceResult {
                device: result.slot.map_or_else(String::new, |slot| self.device(slot)),
                model: gpu.map_or(String::new(), |gpu| format!("{} {:?}", gpu.name, gpu.arch)),
                kernel_crc: result.outcome.kernel_crc,
                out_digest: result.outcome.out_digest,
                class: self.class(result),
            }
        });
        compare(&seen.collect::<Vec<_>>())
    }

    /// The verdict, now that all devices have one; nothing if they disagree and
    /// `may_retry` allows another round.
    fn judge(&self, open: &mut Open, may_retry: bool) -> Option<(Verdict, CaseResult)> {
        open.ended.sort_by_key(|ended| ended.result.slot);
        // The first of the worst, else the last.
        let worst = open.ended.iter().rev().max_by_key(|ended| weight(ended.verdict));
        let worst = worst.filter(|worst| weight(worst.verdict) > 0).or(open.ended.last());
        let (verdict, mut shown) = worst.map(|worst| (worst.verdict, worst.result.clone()))?;
        let failed = weight(verdict) >= weight(Verdict::Fail);
        if failed || open.disagreed.is_none() && weight(verdict) > 0 && self.mismatch(open).is_none() {
            if let Some(slot) = shown.slot {
                shown.outcome.detail = format!("on {}: {}", self.device(slot), shown.outcome.detail);
            }
            return Some((verdict, shown));
        }
        let Some((name, why)) = self.mismatch(open) else {
            // What devices once disagreed about is not reliable.
            return Some(open.disagreed.take().map_or((verdict, shown), |first| (Verdict::Flaky, first)));
        };
        let judged = Outcome::fail(name, why);
        let outcome = &mut shown.outcome;
        (outcome.verdict, outcome.outcome, outcome.detail) = (judged.verdict, judged.outcome, judged.detail);
        apply_xfail(outcome, shown.case.xfail.as_ref(), &self.policy.today);
        open.rounds += 1;
        let first = open.disagreed.get_or_insert(shown).clone();
        let again = first.outcome.verdict.is_failure() && may_retry && open.rounds <= self.policy.retries.after_failure;
        (!again).then_some((first.outcome.verdict, first))
    }

    fn class(&self, result: &CaseResult) -> Option<Determinism> {
        let found = result.outcome.variation.as_ref().map(|variation| variation.class);
        found.max(self.policy.learnt.get(&result.case.id).copied())
    }

    /// All devices have a verdict on the case of `job`.
    fn round(&self, state: &mut AcrossState, job: &Job) -> Settled {
        let Some(mut open) = state.open.remove(&job.case.id) else { return Settled::Noted };
        let here = open.slots.iter().all(|slot| !state.left.contains(slot));
        let before = open.rounds;
        let may_retry = here && (before > 0 || state.retried < self.policy.retried_cases);
        let Some((verdict, result)) = self.judge(&mut open, may_retry) else {
            state.retried += usize::from(before == 0);
            open.again();
            for slot in open.slots.iter().rev() {
                let again = Again { fresh: true, alone: false, elsewhere: false, repeat: false };
                state.waiting.push_front(once_more(job, *slot, again));
            }
            state.open.insert(job.case.id.clone(), open);
            return Settled::Again;
        };
        let mut conclusion = open.conclude(verdict, result);
        self.policy.allow(&mut conclusion);
        state.failed += usize::from(conclusion.verdict.is_failure());
        Settled::Concluded(Box::new(conclusion))
    }

    /// Enters an attempt into the account of its case.
    fn enter(&self, state: &mut AcrossState, job: &Job, result: &CaseResult) -> Settled {
        let (Some(open), Some(slot)) = (state.open.get_mut(&job.case.id), job.pin) else { return Settled::Noted };
        let mut track = open.tracks.remove(&slot).unwrap_or_default();
        let before = track.retried();
        let may_retry = before || state.retried < self.policy.retried_cases;
        match track.step(result, &self.policy.retries, may_retry) {
            NextStep::Again(again) => {
                open.tracks.insert(slot, track);
                state.retried += usize::from(!before && result.outcome.verdict != Verdict::Infra);
                state.waiting.push_front(once_more(job, slot, again));
                return Settled::Again;
            }
            NextStep::Conclude(conclusion) => open.ended.push(*conclusion),
        }
        if open.tracks.is_empty() { self.round(state, job) } else { Settled::Again }
    }
}

impl Source for Cross {
    fn take(&self, slot: usize) -> Take {
        let mut state = self.lock();
        if self.policy.closed(state.failed).is_some() {
            return Take::Done;
        }
        let at = state.waiting.iter().position(|job| job.pin == Some(slot));
        if let Some(job) = at.and_then(|at| state.waiting.remove(at)) {
            return Take::Job(Box::new(job));
        }
        // It may be asked again by the end of any case of its own that can end.
        let may_come = |open: &Open| {
            let live = open.tracks.keys().all(|other| !state.left.contains(other));
            live && open.slots.contains(&slot) && !open.tracks.is_empty()
        };
        if state.open.values().any(may_come) { Take::Wait } else { Take::Done }
    }

    fn closed(&self) -> bool {
        self.policy.closed(self.lock().failed).is_some()
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        apply_learnt(&mut result.outcome, self.policy.learnt.get(&job.case.id).copied());
        apply_xfail(&mut result.outcome, job.case.xfail.as_ref(), &self.policy.today);
        self.enter(&mut self.lock(), job, result)
    }

    fn put_back(&self, job: Job) {
        self.lock().waiting.push_front(job);
    }

    fn leave(&self, slot: usize) {
        self.lock().left.push(slot);
    }

    /// Cases that lack a device: what the others gave, or that nobody ran them.
    fn rest(&self, stopped: bool, reason: &str) -> Vec<Conclusion> {
        let mut state = self.lock();
        let closed = self.policy.closed(state.failed);
        state.waiting.clear();
        let decided = std::mem::take(&mut state.decided);
        let open = std::mem::take(&mut state.open).into_values();
        let rest = open.filter_map(|mut open| {
            for (slot, track) in std::mem::take(&mut open.tracks) {
                let outcome = match (stopped, &closed) {
                    (true, _) => {
                        Outcome::of(Verdict::Skip, "not_run.cancelled", "the run was stopped before this case")
                    }
                    (_, Some((name, why))) => Outcome::of(Verdict::Skip, name, why.as_str()),
                    _ => {
                        let why = format!("not run on {}: {reason}", self.device(slot));
                        Outcome::of(Verdict::Infra, "infra.worker_spawn", why)
                    }
                };
                let none = || Conclusion::single(Job::new(open.case.clone(), self.policy.seed).result(outcome));
                open.ended.push(track.so_far().unwrap_or_else(none));
            }
            // What devices disagreed about stays so, for want of another round.
            let shown = open.disagreed.clone().map(|first| (first.outcome.verdict, first));
            let (verdict, result) = shown.or_else(|| self.judge(&mut open, false))?;
            let mut conclusion = open.conclude(verdict, result);
            if stopped && conclusion.failures > 0 {
                // Whatever it is so far: not all devices have run it.
                conclusion = conclusion.interrupted();
            }
            self.policy.allow(&mut conclusion);
            Some(conclusion)
        });
        decided.into_iter().chain(rest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Retries;
    use crate::outcome::Variation;

    fn seen(device: &str, kernel: u32, out: u128, class: Option<Determinism>) -> DeviceResult {
        DeviceResult {
            device: device.into(),
            kernel_crc: Some(kernel),
            out_digest: Some(Digest(out)),
            class,
            ..DeviceResult::default()
        }
    }

    #[track_caller]
    fn check(seen: &[DeviceResult], wanted: Option<(&str, &str)>) {
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
        let nothing = DeviceResult { kernel_crc: None, out_digest: None, ..seen("gpu1", 0, 0, None) };
        check(&[seen("gpu0", 1, 2, None), nothing], None);
        // Each model has kernels of its own; what the same kernel gives must be the same.
        let of =
            |model: &str, device, kernel, out| DeviceResult { model: model.into(), ..seen(device, kernel, out, None) };
        check(&[of("A", "gpu0", 1, 2), of("B", "gpu1", 3, 4), of("A", "gpu2", 1, 2)], None);
        let why = "the kernel's text differs: 00000003 on gpu1; 00000004 on gpu2";
        check(
            &[of("A", "gpu0", 1, 2), of("B", "gpu1", 3, 4), of("B", "gpu2", 4, 4)],
            Some(("fail.codegen_mismatch", why)),
        );
        let why = "results differ in their bits: 00000002 on gpu0; 00000004 on gpu1";
        check(&[of("A", "gpu0", 1, 2), of("B", "gpu1", 1, 4)], Some(("fail.determinism", why)));
    }

    fn cross(ids: &[&str], devices: &[&str]) -> Cross {
        resumed(ids, devices, BTreeMap::new())
    }

    /// With what an earlier run had tried.
    fn resumed(ids: &[&str], devices: &[&str], tried: BTreeMap<String, Vec<CaseResult>>) -> Cross {
        let cases: Vec<_> = ids.iter().map(|id| Arc::new(Case { id: (*id).into(), ..Case::default() })).collect();
        let names: Vec<String> = devices.iter().map(|name| (*name).to_string()).collect();
        let policy = RunPolicy {
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
            known: BTreeMap::new(),
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
        let mut result = CaseResult { slot: Some(slot), ..job.result(outcome) };
        match cross.settle(&job, &mut result) {
            Settled::Concluded(conclusion) => Some(*conclusion),
            _ => None,
        }
    }

    fn passed(outputs: u128) -> Outcome {
        Outcome { kernel_crc: Some(7), out_digest: Some(Digest(outputs)), ..Outcome::pass() }
    }

    #[test]
    fn each_device_runs_each_case_once() {
        let cross = cross(&["a", "b"], &["g0", "g0", "g1"]);
        // The second worker of a device has nothing to add.
        assert!(matches!(cross.take(1), Take::Done));
        assert!(settle(&cross, 0, passed(1)).is_none());
        assert!(settle(&cross, 0, passed(1)).is_none());
        assert!(matches!(cross.take(0), Take::Wait));
        let first = settle(&cross, 2, passed(1)).expect("both have run it");
        assert_eq!((first.case.id.as_str(), first.verdict, first.failures), ("a", Verdict::Pass, 0));
        let second = settle(&cross, 2, passed(2)).expect("both have run it");
        assert_eq!((second.verdict, second.result.outcome.outcome.as_str()), (Verdict::Fail, "fail.determinism"));
        assert_eq!(second.result.outcome.detail, "results differ in their bits: 00000001 on g0; 00000002 on g1");
        assert!(matches!((cross.take(0), cross.take(2)), (Take::Done, Take::Done)));
        assert!(cross.rest(false, "").is_empty());
    }

    fn retrying(devices: &[&str]) -> Cross {
        let mut cross = cross(&["a"], devices);
        (cross.policy.retries, cross.policy.retried_cases) = (Retries { flaky_runs: 2, ..Retries::USUAL }, 9);
        cross
    }

    #[test]
    fn a_failure_is_tried_again_where_it_was() {
        let off = || Outcome::fail("fail.numerics", "off");
        let cross = retrying(&["g0", "g1"]);
        assert!(settle(&cross, 1, passed(1)).is_none());
        for _ in 0..2 {
            assert!(matches!(cross.take(1), Take::Wait));
            assert!(settle(&cross, 0, off()).is_none());
        }
        let found = settle(&cross, 0, off()).expect("it failed each time");
        assert_eq!((found.verdict, found.failures, found.outcomes.len()), (Verdict::Fail, 3, 4));
        assert_eq!(found.result.outcome.detail, "on g0: off");
        let cross = retrying(&["g0", "g1"]);
        assert!(settle(&cross, 0, off()).is_none());
        assert!(settle(&cross, 0, passed(1)).is_none());
        let found = settle(&cross, 1, passed(1)).expect("both have a verdict");
        assert_eq!((found.verdict, found.failures, found.outcomes.len()), (Verdict::Flaky, 1, 3));
    }

    #[test]
    fn what_devices_disagree_about_is_run_again_on_all() {
        let round = |cross: &Cross, other: u128| {
            assert!(settle(cross, 0, passed(1)).is_none());
            settle(cross, 1, passed(other))
        };
        let disagreeing = retrying(&["g0", "g1"]);
        assert!(round(&disagreeing, 2).is_none() && round(&disagreeing, 3).is_none());
        let found = round(&disagreeing, 2).expect("they disagree each time");
        assert_eq!((found.verdict, found.failures, found.outcomes.len()), (Verdict::Fail, 3, 6));
        assert_eq!(found.result.outcome.detail, "results differ in their bits: 00000001 on g0; 00000002 on g1");
        let agreeing = retrying(&["g0", "g1"]);
        assert!(round(&agreeing, 2).is_none());
        let found = round(&agreeing, 1).expect("they agree");
        assert_eq!((found.verdict, found.result.outcome.outcome.as_str()), (Verdict::Flaky, "fail.determinism"));
        // Without one of them there is no other round, and nobody waits for it.
        let lonely = retrying(&["g0", "g1"]);
        assert!(settle(&lonely, 0, passed(1)).is_none());
        let (job, mut result) = (take(&lonely, 1), None);
        lonely.leave(0);
        let settled = lonely.settle(&job, result.insert(CaseResult { slot: Some(1), ..job.result(passed(2)) }));
        assert!(matches!(settled, Settled::Concluded(found) if found.verdict == Verdict::Fail));
        let cut = retrying(&["g0", "g1"]);
        assert!(round(&cut, 2).is_none());
        cut.leave(1);
        assert!(settle(&cut, 0, passed(1)).is_none());
        assert!(matches!(cut.take(0), Take::Done));
        assert_eq!(cut.rest(false, "gone")[0].result.outcome.outcome, "fail.determinism");
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
    fn what_devices_did_before_a_kill_is_not_asked_again() {
        let tried = |id: &str, results: &[(usize, Outcome)]| {
            let job = Job::new(Arc::new(Case { id: id.into(), ..Case::default() }), 1);
            let result =
                |(slot, outcome): &(usize, Outcome)| CaseResult { slot: Some(*slot), ..job.result(outcome.clone()) };
            (id.to_string(), results.iter().map(result).collect::<Vec<_>>())
        };
        let off = || Outcome::fail("fail.numerics", "off");
        let three = [
            tried("half", &[(1, off())]),
            tried("other", &[(0, passed(1)), (1, passed(2))]),
            // A device that is not here any more.
            tried("gone", &[(7, off())]),
        ];
        let cross = resumed(&["half", "other", "gone"], &["g0", "g1"], three.into());
        let half = settle(&cross, 0, passed(1)).expect("both have run it");
        assert_eq!((half.verdict, half.failures, half.result.slot), (Verdict::Fail, 1, Some(1)));
        assert!(settle(&cross, 0, passed(1)).is_none());
        let gone = settle(&cross, 1, passed(1)).expect("both have run it");
        assert_eq!((gone.case.id.as_str(), gone.verdict, gone.outcomes.len()), ("gone", Verdict::Fail, 3));
        // That they disagreed follows from what was recorded.
        let rest = cross.rest(false, "");
        assert_eq!((rest.len(), rest[0].result.outcome.outcome.as_str()), (1, "fail.determinism"));
        // With nothing left to run nobody waits.
        let cross = resumed(&["both"], &["g0", "g1"], [tried("both", &[(0, off()), (1, off())])].into());
        assert!(matches!((cross.take(0), cross.take(1)), (Take::Done, Take::Done)));
        assert_eq!(cross.rest(false, "")[0].failures, 2);
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

    /// One device has a verdict, or all disagreed and were to run it again: after a stop
    /// the case is as open as one that nobody ran.
    #[test]
    fn a_stop_leaves_open_what_not_all_devices_have_run() {
        let names = |cross: &Cross| -> Vec<(Verdict, String, u32)> {
            let rest = cross.rest(true, "").into_iter();
            rest.map(|c| (c.verdict, c.result.outcome.outcome, c.failures)).collect()
        };
        let one = cross(&["a", "b"], &["g0", "g1"]);
        assert!(settle(&one, 0, Outcome::fail("fail.numerics", "off")).is_none());
        let wanted = [("not_run.interrupted", 1), ("not_run.cancelled", 0)];
        assert_eq!(names(&one), wanted.map(|(name, failures)| (Verdict::Skip, name.to_string(), failures)));
        let mut apart = cross(&["a"], &["g0", "g1"]);
        (apart.policy.retries, apart.policy.retried_cases) = (Retries::USUAL, 50);
        assert!(settle(&apart, 0, passed(1)).is_none() && settle(&apart, 1, passed(2)).is_none());
        assert_eq!(names(&apart), [(Verdict::Skip, "not_run.interrupted".to_string(), 1)]);
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
        crate::property::property(|u| {
            let mut seen = Vec::new();
            for number in 0..u.int_in_range(0..=4)? {
                let class = u.arbitrary::<bool>()?.then_some(Determinism::Tolerance);
                let (kernel, out) = (u.int_in_range(0..=2u32)?, u.int_in_range(0..=2u128)?);
                seen.push(DeviceResult {
                    device: format!("g{number}"),
                    model: (*u.choose(&["A", "B"])?).into(),
                    kernel_crc: kernel.checked_sub(1),
                    out_digest: out.checked_sub(1).map(Digest),
                    class,
                });
            }
            let pairs = || seen.iter().flat_map(|a| seen.iter().map(move |b| (a, b)));
            fn differ<K: PartialEq>(a: Option<K>, b: Option<K>) -> bool {
                a.is_some() && b.is_some() && a != b
            }
            let texts = pairs().any(|(a, b)| a.model == b.model && differ(a.kernel_crc, b.kernel_crc));
            let results = pairs().any(|(a, b)| a.kernel_crc == b.kernel_crc && differ(a.out_digest, b.out_digest));
            let varies = seen.iter().any(|seen| seen.class.is_some());
            let wanted = match (texts, results && !varies) {
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
