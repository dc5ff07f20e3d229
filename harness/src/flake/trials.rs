//! Lists of cases, each run in order in one fresh worker: the last case is the
//! one that is watched, the others are its past.
//!
//! Whoever wants trials calls [`Trials::run`] from a thread of its own, while the
//! slots take the jobs: see [`with_trials`]. A trial whose worker is lost before
//! its time is told apart from one whose last case passed or failed.

use super::standards::Standards;
use crate::case::Case;
use crate::dispatch::{self, Event, Held, Job, RunPlan, Settled, Source, Take};
use crate::outcome::{CaseResult, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A case of a trial.
#[derive(Clone, Debug)]
pub(crate) struct TrialStep {
    pub(crate) case: Arc<Case>,
    pub(crate) seed: u64,
    pub(crate) repeat: u32,
    pub(crate) attempt: u32,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The last case ended so.
    Passed,
    Failed(String),
    /// The worker died at an earlier case, by its index.
    Early(usize, String),
    /// The machine's fault, or the last case does not apply.
    Spoiled(String),
}

impl Ending {
    pub(crate) fn failed(&self) -> bool {
        matches!(self, Ending::Failed(_))
    }
}

/// Why trials that were wanted were not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Their time was over.
    Late,
    /// The run was stopped, or no slot is left.
    Stopped,
}

impl Halt {
    pub(crate) fn why(self) -> &'static str {
        match self {
            Halt::Late => "the time of --budget was over",
            Halt::Stopped => "the run was stopped",
        }
    }
}

/// Times that a trial is begun again after a worker was lost between two cases.
const RESTARTS: u32 = 3;

/// The source of all trials.
pub(crate) struct Trials {
    standards: Standards,
    state: Mutex<TrialsState>,
    changed: Condvar,
}

struct TrialsState {
    waiting: VecDeque<Running>,
    /// What each slot is at.
    at: Vec<Option<Running>>,
    /// Jobs that each slot took of a trial that is over: they come first, and count for nothing.
    stale: Vec<usize>,
    ended: Vec<(usize, Ending)>,
    /// Slots that still take jobs.
    live: usize,
    over: bool,
}

struct Running {
    steps: Arc<Vec<TrialStep>>,
    /// The step that has not ended, and the one that has not been taken.
    next: usize,
    taken: usize,
    restarts: u32,
    /// Workers that died on receiving the next case, before it began.
    strikes: u32,
}

impl Running {
    /// The next step as a job.
    fn job(&mut self, slot: usize) -> Option<Job> {
        let step = self.steps.get(self.taken)?;
        let mut job = Job::new(step.case.clone(), step.seed);
        (job.repeat, job.attempt) = (step.repeat, step.attempt);
        job.fresh = self.taken == 0;
        if self.taken == self.next {
            job.strikes = self.strikes;
        }
        // The slot, so that a job that comes back is found again.
        job.pin = Some(slot);
        self.taken += 1;
        Some(job)
    }
}

impl Trials {
    fn new(slots: usize, standards: Standards) -> Self {
        let at = (0..slots).map(|_| None).collect();
        let state = TrialsState {
            waiting: VecDeque::new(),
            at,
            stale: vec![0; slots],
            ended: Vec::new(),
            live: slots,
            over: false,
        };
        Self { standards, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, TrialsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs each list once, on all slots at once. Gives how each ended, with its
    /// slot, in the order of their ends. None is begun after the deadline, or when
    /// the run is stopped; what had ended by then is given all the same.
    pub(crate) fn run(
        &self,
        lists: impl Iterator<Item = Arc<Vec<TrialStep>>>,
        deadline: Instant,
    ) -> (Vec<(usize, Ending)>, Option<Halt>) {
        let mut state = self.lock();
        let mut count = 0;
        for steps in lists {
            count += 1;
            state.waiting.push_back(Running { steps, next: 0, taken: 0, restarts: 0, strikes: 0 });
        }
        loop {
            if state.ended.len() >= count {
                return (std::mem::take(&mut state.ended), None);
            }
            if state.live == 0 || state.over {
                state.over = true;
                state.waiting.clear();
                return (std::mem::take(&mut state.ended), Some(Halt::Stopped));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            state = if left.is_zero() {
                state.waiting.clear();
                if state.at.iter().all(Option::is_none) {
                    return (std::mem::take(&mut state.ended), Some(Halt::Late));
                }
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn close(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }

    fn end(&self, state: &mut TrialsState, slot: usize, ending: Ending) {
        if let Some(running) = state.at[slot].take() {
            state.stale[slot] += running.taken - running.next - 1;
        }
        state.ended.push((slot, ending));
        self.changed.notify_all();
    }
}

/// Ends the trials also when what wanted them panics: slots must not wait for ever.
struct Closing<'a>(&'a Trials);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Lets `body` run trials on the plan's slots. Events come on this thread.
pub(crate) fn with_trials<T: Send>(
    plan: &RunPlan,
    standards: &Standards,
    on_event: &mut dyn FnMut(Event),
    body: impl FnOnce(&Trials) -> T + Send,
) -> T {
    let trials = Trials::new(plan.slots.len(), standards.clone());
    std::thread::scope(|scope| {
        let wanting = scope.spawn(|| {
            let closing = Closing(&trials);
            body(closing.0)
        });
        dispatch::run(plan, &trials, on_event);
        wanting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Source for Trials {
    fn take(&self, slot: usize) -> Take {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.over {
            return Take::Done;
        }
        if state.at[slot].is_none() {
            state.at[slot] = state.waiting.pop_front();
        }
        let Some(running) = &mut state.at[slot] else { return Take::Wait };
        running.job(slot).map_or(Take::Wait, |job| Take::Job(Box::new(job)))
    }

    fn ahead(&self, slot: usize, held: Held, wanted: usize) -> Vec<Job> {
        let mut state = self.lock();
        let Some(running) = &mut state.at[slot] else { return Vec::new() };
        (held.jobs..wanted).map_while(|_| running.job(slot)).collect()
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        self.standards.compare(&job.case, &mut result.outcome);
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(slot) = result.slot else { return Settled::Noted };
        if state.stale.get(slot).is_some_and(|stale| *stale > 0) {
            state.stale[slot] -= 1;
            return Settled::Noted;
        }
        let Some(running) = state.at.get_mut(slot).and_then(Option::as_mut) else { return Settled::Noted };
        let outcome = &result.outcome;
        let lost = matches!(outcome.verdict, Verdict::Crash | Verdict::Hang) || result.death.is_some();
        // A case that kills the worker while it is compiled ahead is not the one that runs.
        let same = |at: &usize| Arc::ptr_eq(&running.steps[*at].case, &job.case);
        let at = (running.next..running.taken).find(same).unwrap_or(running.next);
        let last = at + 1 == running.steps.len();
        running.strikes = 0;
        // A worker that was replaced in the middle has not run what came before.
        if result.position != running.next as u64 {
            let at = running.next.saturating_sub(1);
            self.end(state, slot, Ending::Early(at, "worker replaced".into()));
            return Settled::Noted;
        }
        match outcome.verdict {
            Verdict::Infra => self.end(state, slot, Ending::Spoiled(outcome.outcome.clone())),
            Verdict::Skip if last => self.end(state, slot, Ending::Spoiled(outcome.outcome.clone())),
            verdict if last => {
                let ending = match verdict.is_failure() {
                    true => Ending::Failed(outcome.outcome.clone()),
                    false => Ending::Passed,
                };
                self.end(state, slot, ending);
            }
            _ if lost => {
                let ending = Ending::Early(at, outcome.outcome.clone());
                self.end(state, slot, ending);
            }
            _ => running.next += 1,
        }
        Settled::Noted
    }

    /// The worker is gone, and the past of the trial with it.
    fn put_back(&self, job: Job) {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(slot) = job.pin else { return };
        if state.stale.get(slot).is_some_and(|stale| *stale > 0) {
            state.stale[slot] -= 1;
            return;
        }
        let Some(mut running) = state.at.get_mut(slot).and_then(Option::take) else { return };
        state.stale[slot] += running.taken - running.next - 1;
        running.restarts += 1;
        (running.next, running.taken, running.strikes) = (0, 0, job.strikes);
        if running.restarts > RESTARTS {
            state.ended.push((slot, Ending::Spoiled("infra.worker_lost".into())));
        } else {
            state.waiting.push_front(running);
        }
        self.changed.notify_all();
    }

    fn leave(&self, slot: usize) {
        let mut state = self.lock();
        if let Some(mut running) = state.at[slot].take() {
            (running.next, running.taken) = (0, 0);
            state.waiting.push_front(running);
        }
        state.live -= 1;
        self.changed.notify_all();
    }
}
