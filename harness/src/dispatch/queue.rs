//! The queue of `run`: one for all slots. It keeps the account of every case
//! from its first attempt to its verdict.

use super::SlotSpec;
use super::job::Job;
use super::judge::{Again, NextStep, Retries, Track};
use super::source::{Held, Settled, Source, Take};
use crate::case::Case;
use crate::outcome::{CaseResult, Conclusion, Determinism, Known, Outcome, Verdict, apply_learnt, apply_xfail};
use crate::select::quarantine::Quarantine;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How a run goes about its cases.
#[derive(Clone, Debug)]
pub(crate) struct RunPolicy {
    pub(crate) seed: u64,
    pub(crate) retries: Retries,
    /// Cases that may be retried: where everything fails, retries tell nothing.
    pub(crate) retried_cases: usize,
    /// Failed cases after which no further one is started.
    pub(crate) fail_fast: Option<usize>,
    /// Moment after which no further case is started.
    pub(crate) deadline: Option<Instant>,
    /// For declared failures that run out.
    pub(crate) today: String,
    /// Failures that do not gate.
    pub(crate) quarantine: Quarantine,
    /// How alike the results of cases were so far.
    pub(crate) learnt: BTreeMap<String, Determinism>,
    /// The device of each slot, by name: slots with equal names share one.
    pub(crate) devices: Vec<String>,
    /// The slots, for the requirements of cases; without them every case fits.
    pub(crate) slots: Vec<SlotSpec>,
    /// By case, what a run had tried that is gone on with: its failures count.
    pub(crate) tried: BTreeMap<String, Vec<CaseResult>>,
    /// What is known of cases from before, by id.
    pub(crate) known: BTreeMap<String, Known>,
}

impl RunPolicy {
    /// A failure of a case in quarantine counts otherwise.
    pub(super) fn allow(&self, conclusion: &mut Conclusion) {
        let Conclusion { case, verdict, result, .. } = conclusion;
        self.quarantine.apply(&case.id, verdict, &mut result.outcome, &self.today);
    }

    /// Why no further case is started after so many failed ones, if none is.
    pub(super) fn closed(&self, failed: usize) -> Option<(&'static str, String)> {
        if let Some(most) = self.fail_fast.filter(|most| failed >= *most) {
            let plural = if most == 1 { "one failure" } else { "the failures" };
            return Some(("not_run.fail_fast", format!("the run ends after {plural} that --fail-fast allows")));
        }
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        late.then(|| ("skip.deadline", "the time of --deadline was over".into()))
    }

    /// Whether the slot's device meets the case's requirements.
    pub(super) fn fits(&self, slot: usize, case: &Case) -> bool {
        self.slots.get(slot).is_none_or(|spec| spec.unfit(&case.require).is_none())
    }
}

/// A slot may hold so many times fewer jobs taken ahead than wait for each slot, and jobs that take
/// so many times less.
const HELD_SHARE: usize = 4;

/// The shared queue.
pub(crate) struct Queue {
    policy: RunPolicy,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Job>,
    /// Taken and neither settled nor put back.
    in_flight: usize,
    tracks: BTreeMap<String, Track>,
    retried: usize,
    failed: usize,
    /// Verdicts that follow from what was tried before, without another attempt.
    decided: Vec<Conclusion>,
    /// Slots that still take jobs.
    live: Vec<bool>,
}

impl Queue {
    pub(crate) fn new(cases: &[Arc<Case>], policy: RunPolicy) -> Self {
        let mut state = QueueState { live: vec![true; policy.devices.len()], ..QueueState::default() };
        let mut begun = VecDeque::new();
        for case in cases {
            let known = policy.known.get(&case.id).copied().unwrap_or_default();
            let (expected_ns, failed_before) = (known.dur_ns.unwrap_or(0), known.failed);
            let job = Job { expected_ns, failed_before, ..Job::new(case.clone(), policy.seed) };
            match policy.tried.get(&case.id) {
                Some(tried) => begun.extend(state.go_on(job, tried, &policy)),
                None => state.waiting.push_back(job),
            }
        }
        // As in the run that began them: what is tried again comes first.
        begun.append(&mut state.waiting);
        state.waiting = begun;
        Self { policy, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the slot should leave the job to another one.
    fn unsuited(&self, state: &QueueState, slot: usize, job: &Job) -> bool {
        let device = |slot: usize| self.policy.devices.get(slot);
        let others = |suited: &dyn Fn(usize) -> bool| {
            state.live.iter().enumerate().any(|(other, live)| *live && other != slot && suited(other))
        };
        if !self.policy.fits(slot, &job.case) {
            return true;
        }
        let others =
            |suited: &dyn Fn(usize) -> bool| others(&|other| suited(other) && self.policy.fits(other, &job.case));
        if let Some(pin) = job.pin
            && pin != slot
        {
            return others(&|other| other == pin);
        }
        job.avoid.is_some_and(|avoid| device(avoid) == device(slot) && others(&|other| device(other) != device(avoid)))
    }

    /// Whether the slot should take long jobs only when no other is left: half of several slots on GPUs take those, the
    /// longest first, while others take the rest.
    fn leaves_long(&self, state: &QueueState, slot: usize) -> bool {
        let on_gpus = !self.policy.slots.is_empty() && self.policy.slots.iter().all(|spec| spec.gpu.is_some());
        let live = |slots: &[bool]| slots.iter().filter(|live| **live).count();
        let before = live(&state.live[..slot.min(state.live.len())]);
        on_gpus && before >= (live(&state.live) / 2).max(1)
    }

    /// The place of the first waiting job for the slot that `suits`.
    fn first(&self, state: &QueueState, slot: usize, suits: impl Fn(&Job) -> bool) -> Option<usize> {
        let suits = |job: &Job| suits(job) && !self.unsuited(state, slot, job);
        let leaves_long = self.leaves_long(state, slot);
        let choice = state.waiting.iter().position(|job| suits(job) && !(leaves_long && job.is_long()));
        choice.or_else(|| state.waiting.iter().position(suits))
    }

    fn pop(&self, state: &mut QueueState, slot: usize) -> Option<Job> {
        let at = self.first(state, slot, |_| true)?;
        let job = state.waiting.remove(at)?;
        state.in_flight += 1;
        Some(job)
    }
}

impl QueueState {
    /// Enters an attempt into the account of its case: the job that follows, or the verdict.
    fn enter(&mut self, job: &Job, result: &CaseResult, policy: &RunPolicy) -> Result<Job, Box<Conclusion>> {
        let mut track = self.tracks.remove(&job.case.id).unwrap_or_default();
        let again_before = track.retried();
        let may_retry = again_before || self.retried < policy.retried_cases;
        match track.step(result, &policy.retries, may_retry) {
            NextStep::Again(again) => {
                self.retried += usize::from(!again_before && result.outcome.verdict != Verdict::Infra);
                self.tracks.insert(job.case.id.clone(), track);
                Ok(next(job, result, again))
            }
            NextStep::Conclude(mut conclusion) => {
                policy.allow(&mut conclusion);
                let failed = conclusion.verdict.is_failure() && conclusion.verdict != Verdict::Flaky;
                self.failed += usize::from(failed);
                Err(conclusion)
            }
        }
    }

    /// Enters what an earlier run had tried of a case. Returns the job that is left.
    fn go_on(&mut self, mut job: Job, tried: &[CaseResult], policy: &RunPolicy) -> Option<Job> {
        for result in tried {
            (job.attempt, job.repeat) = (result.attempt, result.repeat);
            match self.enter(&job, result, policy) {
                Ok(next) => job = next,
                Err(conclusion) => {
                    self.decided.push(*conclusion);
                    return None;
                }
            }
        }
        Some(job)
    }
}

/// The job that follows on an attempt.
fn next(job: &Job, result: &CaseResult, again: Again) -> Job {
    let mut next = job.clone();
    match again.repeat {
        true => next.repeat += 1,
        false => next.attempt += 1,
    }
    (next.fresh, next.alone, next.strikes) = (again.fresh, again.alone, 0);
    next.avoid = result.slot.filter(|_| again.elsewhere);
    next
}

impl Source for Queue {
    fn take(&self, slot: usize) -> Take {
        let mut state = self.lock();
        if self.policy.closed(state.failed).is_some() {
            return Take::Done;
        }
        match self.pop(&mut state, slot) {
            Some(job) => Take::Job(Box::new(job)),
            None if state.in_flight == 0 && !state.waiting.iter().any(|job| self.policy.fits(slot, &job.case)) => {
                Take::Done
            }
            None => Take::Wait,
        }
    }

    fn closed(&self) -> bool {
        self.policy.closed(self.lock().failed).is_some()
    }

    fn in_any_order(&self) -> bool {
        true
    }

    fn ahead_a_thread(&self) -> usize {
        // Most kernels are new, and while a long case runs many can be compiled.
        24
    }

    fn ahead(&self, slot: usize, held: Held, wanted: usize) -> Vec<Job> {
        let mut state = self.lock();
        if self.policy.closed(state.failed).is_some() {
            return Vec::new();
        }
        // Near the end of the run, what one slot holds might keep another one idle: with each
        // case it may hold fewer. None at all would have it compile the last hundreds itself.
        let parts = HELD_SHARE * state.live.iter().filter(|live| **live).count().max(1);
        let waiting_ns = state.waiting.iter().fold(0u64, |sum, job| sum.saturating_add(job.expected_ns));
        let (mut held_ns, fair_ns) = (held.expected_ns, waiting_ns / parts as u64);
        let plain = |job: &Job| !job.fresh && !job.alone && job.attempt == 0 && job.repeat == 0;
        let mut jobs = Vec::new();
        while held.jobs + jobs.len() < wanted.min(state.waiting.len() / parts) {
            // The longest first, as others do. Once they take its share of the time, short ones from the end keep the
            // compiling threads at work.
            let at = match held_ns < fair_ns || fair_ns == 0 {
                true => self.first(&state, slot, plain),
                false => {
                    let is_short = |job: &Job| job.expected_ns <= fair_ns / wanted as u64;
                    let suits = |job: &Job| plain(job) && is_short(job) && !self.unsuited(&state, slot, job);
                    state.waiting.iter().rposition(suits)
                }
            };
            let Some(job) = at.and_then(|at| state.waiting.remove(at)) else { break };
            state.in_flight += 1;
            held_ns += job.expected_ns;
            jobs.push(job);
        }
        jobs
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        apply_learnt(&mut result.outcome, self.policy.learnt.get(&job.case.id).copied());
        apply_xfail(&mut result.outcome, job.case.xfail.as_ref(), &self.policy.today);
        let mut state = self.lock();
        state.in_flight -= 1;
        match state.enter(job, result, &self.policy) {
            Ok(next) => {
                state.waiting.push_front(next);
                Settled::Again
            }
            Err(conclusion) => Settled::Concluded(conclusion),
        }
    }

    fn put_back(&self, job: Job) {
        let mut state = self.lock();
        state.in_flight -= 1;
        state.waiting.push_front(job);
    }

    fn leave(&self, slot: usize) {
        if let Some(live) = self.lock().live.get_mut(slot) {
            *live = false;
        }
    }

    fn rest(&self, stopped: bool, reason: &str) -> Vec<Conclusion> {
        let mut state = self.lock();
        let outcome = match (stopped, self.policy.closed(state.failed)) {
            (true, _) => Outcome::of(Verdict::Skip, "not_run.cancelled", "the run was stopped before this case"),
            (_, Some((name, why))) => Outcome::of(Verdict::Skip, name, why),
            _ => Outcome::of(Verdict::Infra, "infra.worker_spawn", format!("no worker was left to run it: {reason}")),
        };
        let (jobs, decided) = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.decided));
        let conclude = |job: Job| {
            // What earlier attempts showed is not forgotten for want of another one.
            let earlier = state.tracks.remove(&job.case.id).and_then(Track::so_far);
            // One that has also passed is flaky, whatever the attempts that are left would show.
            let earlier = earlier.map(|so_far| match so_far.verdict {
                verdict if stopped && verdict != Verdict::Flaky => so_far.interrupted(),
                _ => so_far,
            });
            let mut conclusion = earlier.unwrap_or_else(|| Conclusion::single(job.result(outcome.clone())));
            self.policy.allow(&mut conclusion);
            conclusion
        };
        decided.into_iter().chain(jobs.into_iter().map(conclude)).collect()
    }
}

/// Failed first, then unknown ones, then the longest first, so that no long case
/// is left for the end; ties keep the order of the files.
pub(crate) fn order(cases: &mut [Arc<Case>], known: &BTreeMap<String, Known>) {
    cases.sort_by_cached_key(|case| {
        let known = known.get(&case.id).copied().unwrap_or_default();
        (!known.failed, std::cmp::Reverse(known.dur_ns.unwrap_or(u64::MAX)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(id: &str) -> Arc<Case> {
        Arc::new(Case { id: id.into(), ..Case::default() })
    }

    fn queue(ids: &[&str], devices: &[&str], change: impl FnOnce(&mut RunPolicy)) -> Queue {
        let mut policy = RunPolicy {
            seed: 7,
            retries: Retries { flaky_runs: 0, ..Retries::USUAL },
            retried_cases: 50,
            fail_fast: None,
            deadline: None,
            today: String::new(),
            quarantine: Quarantine::default(),
            learnt: BTreeMap::new(),
            devices: devices.iter().map(|name| (*name).to_string()).collect(),
            slots: Vec::new(),
            tried: BTreeMap::new(),
            known: BTreeMap::new(),
        };
        change(&mut policy);
        Queue::new(&ids.iter().map(|id| case(id)).collect::<Vec<_>>(), policy)
    }

    #[track_caller]
    fn take(queue: &Queue, slot: usize, wanted: &str) -> Job {
        match queue.take(slot) {
            Take::Job(job) => {
                assert_eq!(job.case.id, wanted);
                *job
            }
            other => panic!("{other:?} instead of {wanted}"),
        }
    }

    fn settle(queue: &Queue, slot: usize, job: &Job, verdict: Verdict) -> Option<Verdict> {
        let mut result = job.result(Outcome::of(verdict, verdict.name(), ""));
        result.slot = Some(slot);
        match queue.settle(job, &mut result) {
            Settled::Concluded(conclusion) => Some(conclusion.verdict),
            _ => None,
        }
    }

    #[test]
    fn failed_then_unknown_then_longest() {
        let mut cases: Vec<_> = ["short", "new", "long", "broken", "newer"].map(case).to_vec();
        let entry = |id: &str, dur_ns, failed| (id.to_string(), Known { dur_ns: Some(dur_ns), failed });
        let known = BTreeMap::from([entry("short", 1, false), entry("long", 9, false), entry("broken", 5, true)]);
        order(&mut cases, &known);
        let ids: Vec<&str> = cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids, ["broken", "new", "newer", "long", "short"]);
    }

    #[test]
    fn the_second_retry_goes_to_another_device_if_one_is_left() {
        let queue = queue(&["a"], &["g0", "g0", "g1"], |_| {});
        let first = take(&queue, 0, "a");
        assert!(matches!(queue.take(2), Take::Wait));
        assert_eq!(settle(&queue, 0, &first, Verdict::Fail), None);
        let second = take(&queue, 0, "a");
        assert!(second.fresh && second.attempt == 1);
        assert_eq!(settle(&queue, 0, &second, Verdict::Fail), None);
        assert!(matches!(queue.take(1), Take::Wait));
        let third = take(&queue, 2, "a");
        queue.put_back(third);
        queue.leave(2);
        let third = take(&queue, 1, "a");
        assert_eq!(settle(&queue, 1, &third, Verdict::Fail), Some(Verdict::Fail));
        assert!(matches!(queue.take(0), Take::Done));
    }

    /// A slot on a GPU.
    fn slot(uuid: &str, arch: u32) -> SlotSpec {
        let gpu = crate::device::Gpu { uuid: uuid.into(), arch: Some(arch), ..Default::default() };
        let device = crate::proto::DeviceSpec::Played { uuid: uuid.into(), threads: 1, times: None };
        SlotSpec { device, label: uuid.into(), env: Vec::new(), gpu: Some(gpu) }
    }

    #[test]
    fn half_of_the_gpus_take_the_cases_that_use_the_host() {
        let ids = ["longest", "long", "longer", "short", "shorter"];
        let made = |slots: &[SlotSpec]| {
            queue(&ids, &["g0", "g1", "g2", "g3"][..slots.len().max(2)], |policy| {
                policy.slots = slots.to_vec();
                let of = |id: &str| Known {
                    dur_ns: Some(if id.contains("long") { 90_000_000 } else { 1_000 }),
                    failed: false,
                };
                policy.known = ids.iter().map(|id| (id.to_string(), of(id))).collect();
            })
        };
        let shared = made(&[slot("g0", 90), slot("g1", 90)]);
        take(&shared, 1, "short");
        take(&shared, 0, "longest");
        take(&shared, 1, "shorter");
        // Nothing else is left, and nobody is idle.
        take(&shared, 1, "long");
        // Who takes them goes away.
        let left = made(&[slot("g0", 90), slot("g1", 90)]);
        left.leave(0);
        take(&left, 1, "longest");
        let four = made(&["g0", "g1", "g2", "g3"].map(|uuid| slot(uuid, 90)));
        take(&four, 3, "short");
        take(&four, 1, "longest");
        take(&four, 2, "shorter");
        take(&four, 0, "long");
        // One of three.
        let three = made(&["g0", "g1", "g2"].map(|uuid| slot(uuid, 90)));
        take(&three, 1, "short");
        // Simulated devices have threads of their own.
        take(&made(&[]), 1, "longest");
    }

    #[test]
    fn a_case_waits_for_a_device_that_fits_and_no_slot_waits_in_vain() {
        let mut new = Case { id: "new".into(), ..Case::default() };
        new.require.arch = Some(90);
        let queue = queue(&[], &["old", "new"], |policy| {
            policy.slots = vec![slot("old", 80), slot("new", 90)];
        });
        queue.lock().waiting = [Arc::new(new), case("any")].into_iter().map(|case| Job::new(case, 0)).collect();
        let any = take(&queue, 0, "any");
        assert!(matches!(queue.take(0), Take::Wait));
        assert_eq!(settle(&queue, 0, &any, Verdict::Pass), Some(Verdict::Pass));
        // What is left never fits the first slot.
        assert!(matches!(queue.take(0), Take::Done));
        let new = take(&queue, 1, "new");
        queue.put_back(new);
        queue.leave(1);
        assert!(matches!(queue.take(0), Take::Done));
        assert_eq!(queue.rest(false, "lost")[0].verdict, Verdict::Infra);
    }

    #[test]
    fn fail_fast_and_deadline_close_the_queue() {
        let fast = queue(&["a", "b"], &["g0"], |policy| {
            (policy.fail_fast, policy.retries) = (Some(1), Retries::NONE);
        });
        let job = take(&fast, 0, "a");
        assert_eq!(settle(&fast, 0, &job, Verdict::Crash), Some(Verdict::Crash));
        assert!(matches!(fast.take(0), Take::Done));
        assert!(fast.closed() && fast.ahead(0, Held::default(), 8).is_empty());
        let rest = fast.rest(false, "");
        assert_eq!((rest.len(), rest[0].outcomes[0].as_str()), (1, "not_run.fail_fast"));
        let late = queue(&["a"], &["g0"], |policy| policy.deadline = Some(Instant::now()));
        assert!(matches!(late.take(0), Take::Done));
        assert_eq!(late.rest(false, "")[0].outcomes[0], "skip.deadline");
    }

    #[test]
    fn what_failed_before_the_devices_were_lost_is_a_failure() {
        let queue = queue(&["a", "b"], &["g0"], |_| {});
        let job = take(&queue, 0, "a");
        assert_eq!(settle(&queue, 0, &job, Verdict::Fail), None);
        queue.leave(0);
        let verdicts: Vec<_> =
            queue.rest(false, "the GPU is gone").iter().map(|c| (c.case.id.clone(), c.verdict)).collect();
        assert_eq!(verdicts, [("a".to_string(), Verdict::Fail), ("b".to_string(), Verdict::Infra)]);
    }

    /// Outcome and failures of each case when the run is stopped after attempts at it.
    #[track_caller]
    fn check_stopped(attempts: &[Verdict], wanted: (Verdict, &str, u32)) {
        let queue = queue(&["a"], &["g0"], |policy| policy.retries.flaky_runs = 5);
        for verdict in attempts {
            let job = take(&queue, 0, "a");
            assert_eq!(settle(&queue, 0, &job, *verdict), None);
        }
        let rest = queue.rest(true, "");
        let Conclusion { verdict, result, failures, outcomes, .. } = &rest[0];
        assert_eq!((*verdict, result.outcome.outcome.as_str(), *failures), wanted);
        assert_eq!(outcomes.len(), attempts.len().max(1));
    }

    #[test]
    fn a_failure_whose_retries_a_stop_prevents_is_no_verdict() {
        use Verdict::{Crash, Fail, Flaky, Infra, Pass, Skip};
        check_stopped(&[], (Skip, "not_run.cancelled", 0));
        check_stopped(&[Infra], (Skip, "not_run.cancelled", 0));
        check_stopped(&[Fail], (Skip, "not_run.interrupted", 1));
        check_stopped(&[Fail, Infra, Crash], (Skip, "not_run.interrupted", 2));
        // Nothing that follows could make it anything else.
        check_stopped(&[Fail, Pass], (Flaky, "fail", 1));
    }

    /// What an earlier run had of a case: verdicts of attempts, all retries.
    fn tried(id: &str, verdicts: &[Verdict]) -> (String, Vec<CaseResult>) {
        let attempt = |(number, verdict): (u32, &Verdict)| {
            let job = Job { attempt: number, ..Job::new(case(id), 7) };
            CaseResult { slot: Some(0), ..job.result(Outcome::of(*verdict, verdict.name(), "")) }
        };
        (id.into(), (0..).zip(verdicts).map(attempt).collect())
    }

    #[test]
    fn what_failed_before_a_kill_is_never_a_pass() {
        use Verdict::{Crash, Fail, Flaky, Pass};
        let queue = queue(&["new", "once", "crashed", "twice", "all", "decided"], &["g0", "g1"], |policy| {
            let earlier: [(&str, &[Verdict]); 5] = [
                ("once", &[Fail]),
                ("crashed", &[Crash, Crash]),
                ("twice", &[Fail, Fail]),
                ("all", &[Fail, Crash, Fail]),
                ("decided", &[Fail, Pass]),
            ];
            policy.tried = earlier.iter().map(|(id, verdicts)| tried(id, verdicts)).collect();
        });
        let once = take(&queue, 0, "once");
        assert!((once.attempt, once.fresh, once.alone) == (1, true, false));
        assert_eq!(settle(&queue, 0, &once, Pass), Some(Flaky));
        // The second retry goes to another device, alone where it killed its workers.
        let twice = take(&queue, 0, "new");
        assert_eq!(settle(&queue, 0, &twice, Pass), Some(Pass));
        let crashed = take(&queue, 1, "crashed");
        assert!((crashed.attempt, crashed.alone, crashed.avoid) == (2, true, Some(0)));
        assert_eq!(settle(&queue, 1, &crashed, Crash), Some(Crash));
        // No further attempt is lost for want of a device; what is decided needs none.
        queue.leave(1);
        let rest: Vec<_> = queue.rest(false, "").iter().map(|c| (c.case.id.clone(), c.verdict, c.failures)).collect();
        let wanted = [("all", Crash, 3), ("decided", Flaky, 1), ("twice", Fail, 2)];
        assert_eq!(rest, wanted.map(|(id, verdict, failures)| (id.to_string(), verdict, failures)));
    }

    #[test]
    fn fewer_jobs_are_held_ahead_the_fewer_wait() {
        let ids: Vec<String> = (0..80).map(|i| i.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let queue = queue(&ids, &["g0", "g1"], |_| {});
        let held = |jobs| Held { jobs, expected_ns: 0 };
        assert_eq!(queue.ahead(0, held(0), 4).len(), 4);
        // 76 wait: 9 for each slot, of which it has some.
        assert_eq!(queue.ahead(0, held(4), 48).len(), 5);
        assert_eq!(queue.ahead(0, held(9), 48).len(), 0);
        while let Take::Job(job) = queue.take(1) {
            let more = queue.ahead(1, Held::default(), 48);
            let waiting = queue.lock().waiting.len();
            assert!(more.len() <= 9.min(1 + waiting / 8), "{} with {waiting}", more.len());
            settle(&queue, 1, &job, Verdict::Pass);
            for job in more {
                assert_eq!(settle(&queue, 1, &job, Verdict::Pass), Some(Verdict::Pass));
            }
        }
        // A slot that is gone leaves the rest to the other.
        let queue = super::tests::queue(&ids, &["g0", "g1"], |_| {});
        queue.leave(1);
        assert_eq!(queue.ahead(0, Held::default(), 48).len(), 16);
    }

    #[test]
    fn a_slot_holds_no_more_time_than_its_share() {
        // Ten that take 100 each, and 190 that take 1.
        let ids: Vec<String> = (0..200).map(|i| i.to_string()).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let queue = queue(&ids, &["g0", "g1"], |policy| {
            let of = |(at, id): (usize, &&str)| {
                let dur_ns = Some(if at < 10 { 100_000 } else { 1_000 });
                (id.to_string(), Known { dur_ns, failed: false })
            };
            policy.known = ids.iter().enumerate().map(of).collect();
        });
        let ahead = |slot, jobs, expected_ns| {
            let jobs = queue.ahead(slot, Held { jobs, expected_ns }, 24);
            (jobs.len(), jobs.iter().filter(|job| job.expected_ns == 100_000).count())
        };
        // An eighth of 1190 are 148: two long ones reach that, and short ones are for the threads that compile.
        assert_eq!(ahead(0, 0, 0), (22, 2));
        // What is under way counts; so another slot has the long ones.
        assert_eq!(ahead(0, 10, 600_000), (11, 0));
        assert_eq!(ahead(1, 0, 100_000).1, 1);
    }

    #[test]
    fn what_is_tried_again_is_not_held_and_holds_nothing_up() {
        let queue = queue(&["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"], &["g0"], |_| {});
        let job = take(&queue, 0, "0");
        assert_eq!(settle(&queue, 0, &job, Verdict::Fail), None);
        let held: Vec<String> = queue.ahead(0, Held::default(), 48).iter().map(|job| job.case.id.clone()).collect();
        assert_eq!(held, ["1", "2"]);
        assert!(take(&queue, 0, "0").fresh);
    }
}
