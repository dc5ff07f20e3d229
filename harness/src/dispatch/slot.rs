//! The thread of one slot. It lives until the run ends, since the kernel kills
//! a worker when the thread that spawned it ends.

use super::fleet::{End, Fleet};
use super::handle::{Attempt, NoWorker, Worker};
use super::job::Job;
use super::source::{Held, Settled, Source, Take};
use super::{Event, RunPlan, WorkerEnd};
use crate::crumb::Crumb;
use crate::outcome::{CaseResult, Death, Outcome, Verdict, WorkerOutput};
use crate::proto::Unprepared;
use engine::diag::{Code, code};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

/// Between spawns in a row that fail: another process may have a device's memory, or
/// all processes of a user, for seconds. After them the slot gives up.
const SPAWN_PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];
/// Errors of a device that do not go away.
const LASTING: [Code; 3] = [code::NO_GPU, code::NO_DRIVER, code::NO_NVRTC];
/// Fresh workers in a row that may die on receiving one case, before it began.
const STRIKES: u32 = 3;
/// So many short jobs take about as long as a long one.
const MOST_SHORT: u32 = 64;
/// How long a slot without work sleeps before it asks again, at most.
const MAX_NAP: Duration = Duration::from_millis(20);

pub(super) struct Slot<'a> {
    pub(super) index: usize,
    pub(super) plan: &'a RunPlan,
    pub(super) source: &'a dyn Source,
    pub(super) fleet: &'a Fleet<'a>,
    /// Where workers reach the compiler processes, if there are any.
    pub(super) compilers_at: Option<&'a str>,
    pub(super) events: SyncSender<Vec<Event>>,
    /// Events of the case that has ended and of the next one, told together once
    /// the worker is at work again: until then it would only wait for them. Nothing
    /// is held back while the slot waits for anything.
    pub(super) held: RefCell<Vec<Event>>,
    pub(super) started: Instant,
    /// The job at hand until it is accounted for, settled or put back, exactly once.
    pub(super) open: Cell<Option<Job>>,
}

/// What the slot holds between two cases.
#[derive(Default)]
struct Hand {
    worker: Option<Worker>,
    /// Jobs taken ahead, which the worker prepares.
    ahead: VecDeque<Job>,
    /// Short jobs since the last long one.
    short_in_a_row: u32,
    spawned: u32,
}

/// Whether a job could be served.
enum Served {
    Yes,
    /// No worker can be had: the slot ends.
    NoWorker,
}

/// When an attempt was, and whose, whatever came of it.
struct AttemptFacts {
    worker: String,
    /// Cases that the worker had run before.
    position: u64,
    start_ns: u64,
    dur_ns: u64,
    /// What the worker wrote, for the first result.
    output: Cell<WorkerOutput>,
}

/// Whose compilation killed a worker: it is charged, and not what ran meanwhile.
#[derive(Debug)]
enum Compiling {
    /// Nobody's: the thread that died did not compile ahead.
    Nothing,
    /// That of the job at hand, which may not have begun.
    AtHand,
    /// That of a job taken ahead.
    Ahead(Job),
}

fn compiling(death: &Death, at_hand: &Job, ahead: &mut VecDeque<Job>) -> Compiling {
    let Crumb { lane, case, case_crc, .. } = &death.crumb;
    if *lane == 0 || case.is_empty() {
        return Compiling::Nothing;
    }
    let same = |job: &Job| crc32fast::hash(job.case.id.as_bytes()) == *case_crc;
    if same(at_hand) {
        return Compiling::AtHand;
    }
    let at = ahead.iter().position(same);
    at.and_then(|at| ahead.remove(at)).map_or(Compiling::Nothing, Compiling::Ahead)
}

impl Hand {
    /// The next of the jobs that were taken ahead, of those that the worker has prepared if there are any: what failed
    /// before, then short ones, since they make room for others, which it prepares while a long one runs. Among many
    /// short ones a long one comes now and then, so that none are left for the end.
    fn pick(&mut self) -> Option<Job> {
        let at = pick(&self.ahead, self.worker.as_ref().map(|live| &live.unprepared), self.short_in_a_row);
        let job = self.ahead.remove(at)?;
        self.short_in_a_row = if job.is_long() { 0 } else { self.short_in_a_row + 1 };
        Some(job)
    }
}

/// The place of the next job: [`Hand::pick`].
fn pick(ahead: &VecDeque<Job>, unprepared: Option<&Unprepared>, short_in_a_row: u32) -> usize {
    let begun = ahead.len().saturating_sub(unprepared.map_or(ahead.len(), |unprepared| unprepared.waiting));
    let is_under_way = |job: &Job| unprepared.is_some_and(|unprepared| unprepared.under_way.contains(&job.case.id));
    let prepared =
        |wanted: &dyn Fn(&Job) -> bool| ahead.iter().take(begun).position(|job| wanted(job) && !is_under_way(job));
    let wants_long = short_in_a_row >= MOST_SHORT;
    prepared(&|job| job.failed_before)
        .or_else(|| prepared(&|job| job.is_long() == wants_long))
        .or_else(|| prepared(&|_| true))
        .unwrap_or(0)
}

/// Why no later case may use a worker.
fn spoilt_by(outcome: &Outcome) -> String {
    match &outcome.cuda_error {
        Some(error) if error.sticky => format!("poisoned by {}", error.name),
        Some(error) => format!("tainted by {}", error.name),
        None if outcome.verdict.is_failure() || outcome.leaks.is_empty() => format!("tainted by {}", outcome.outcome),
        None => format!("tainted by {}", outcome.leaks[0].name),
    }
}

impl Slot<'_> {
    fn tell(&self, event: Event) {
        self.hold(event);
        self.tell_held();
    }

    /// To be told as soon as the worker is at work, or the slot waits.
    fn hold(&self, event: Event) {
        self.held.borrow_mut().push(event);
    }

    fn tell_held(&self) {
        let events = self.held.take();
        if !events.is_empty() {
            // The receiver lives as long as all slots; it only goes away on a panic.
            let _ = self.events.send(events);
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn stopped(&self) -> bool {
        self.plan.stop.load(Ordering::Relaxed) != 0
    }

    /// Whether the slot is to end, whatever is left to run.
    fn gives_up(&self) -> bool {
        self.stopped() || self.fleet.retirement(self.index).is_some()
    }

    /// The same, asked again and again while the slot waits.
    fn gives_up_waiting(&self) -> bool {
        self.tell_held();
        self.gives_up()
    }

    /// Takes jobs until there are none, or until no worker can be had.
    pub(super) fn serve(self) {
        let _active = self.fleet.active_slot();
        let mut hand = Hand::default();
        while let Some(job) = self.next(&mut hand) {
            match catch_unwind(AssertUnwindSafe(|| self.run_job(job, &mut hand))) {
                Ok(Served::Yes) => {}
                Ok(Served::NoWorker) => break,
                Err(panic) => self.settle_panicked(&panic),
            }
        }
        self.tell_held();
        // The first of them was to be the next one.
        hand.ahead.into_iter().rev().for_each(|job| self.source.put_back(job));
        self.source.leave(self.index);
        if let Some(retirement) = self.fleet.retirement(self.index) {
            self.tell(Event::Retired { slot: self.index, code: retirement.code.into(), reason: retirement.reason });
        }
        if let Some(live) = hand.worker {
            self.retire(live, "nothing is left to run");
        }
    }

    /// Runs one job, or puts it back where no worker can be had for it.
    fn run_job(&self, job: Job, hand: &mut Hand) -> Served {
        self.open.set(Some(job.clone()));
        let Some(live) = self.worker_for(&job, hand) else {
            self.put_back(job);
            return Served::NoWorker;
        };
        hand.worker = self.attempt(live, job, &mut hand.ahead);
        Served::Yes
    }

    /// A panic of the harness itself costs the job at hand, not the run: nobody
    /// may wait for a job that is neither settled nor put back.
    fn settle_panicked(&self, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        if let Some(job) = self.open.take() {
            let detail = format!("the harness itself panicked: {text}; please report it");
            let mut result = job.result(Outcome::of(Verdict::Infra, "infra.harness", detail));
            result.slot = Some(self.index);
            self.settle(&job, result);
        }
    }

    /// The job goes back to the source.
    fn put_back(&self, job: Job) {
        self.account_for(&job);
        self.source.put_back(job);
    }

    /// The job is not open any more, if it is the one at hand and not one taken ahead.
    fn account_for(&self, job: &Job) {
        self.open.set(self.open.take().filter(|open| !open.is(job)));
    }

    /// The next job; waits while there may be one.
    fn next(&self, hand: &mut Hand) -> Option<Job> {
        let mut nap = Duration::from_micros(200);
        while !self.gives_up() && !self.source.closed() {
            let job = match self.source.in_any_order() {
                true => hand.pick(),
                false => hand.ahead.pop_front(),
            };
            if job.is_some() {
                return job;
            }
            match self.source.take(self.index) {
                Take::Job(job) => return Some(*job),
                Take::Done => return None,
                Take::Wait => {
                    self.tell_held();
                    std::thread::sleep(nap);
                    nap = (2 * nap).min(MAX_NAP);
                }
            }
        }
        None
    }

    /// The worker at hand if it suits the job, else a new one.
    fn worker_for(&self, job: &Job, hand: &mut Hand) -> Option<Worker> {
        match hand.worker.take() {
            Some(live) if (job.fresh || job.alone) && live.cases_run > 0 => {
                self.retire(live, "the next case needs a fresh worker");
            }
            Some(live) if self.fleet.unproven(self.index) => self.retire(live, "its device must prove itself"),
            Some(live) => return Some(live),
            None => {}
        }
        self.spawn(&mut hand.spawned)
    }

    /// A fresh worker, or none after several tries: the slot is retired then.
    fn spawn(&self, spawned: &mut u32) -> Option<Worker> {
        self.tell_held();
        let slot = &self.plan.slots[self.index];
        let mut last = String::new();
        let _turn = self.fleet.share(self.index, &|| self.gives_up_waiting())?;
        let mut last_code = String::new();
        for pause in SPAWN_PAUSES.map(Some).into_iter().chain([None]) {
            let id = format!("{}-w{}", slot.label, *spawned);
            *spawned += 1;
            let mut started = false;
            let told = |pid, page| {
                started = true;
                self.fleet.worker_started(self.index, pid);
                self.tell(Event::Spawned { slot: self.index, worker: id.clone(), pid, page });
            };
            let spawned =
                Worker::spawn(id.clone(), slot, self.plan, self.compilers_at, &|| self.gives_up_waiting(), told);
            if let (true, Err(NoWorker::Unusable(_, reason) | NoWorker::Failed(reason) | NoWorker::Unpinned(reason))) =
                (started, &spawned)
            {
                let reason = reason.clone();
                self.tell(Event::Ended {
                    slot: self.index,
                    worker: id.clone(),
                    reason,
                    cases_run: 0,
                    worker_end: WorkerEnd::default(),
                });
            }
            match spawned {
                Ok(worker) => {
                    let (device, notes, ready_ns) = (worker.device.clone(), worker.notes.clone(), worker.ready_ns);
                    self.tell(Event::Ready { slot: self.index, worker: id, device, notes, ready_ns });
                    match self.run_due_canary(worker) {
                        Some(worker) => return Some(worker),
                        None => (last_code, last) = (String::new(), "its canary failed".into()),
                    }
                }
                // Told when the slot ends.
                Err(NoWorker::Unpinned(reason)) => self.fleet.retire(self.index, "infra.driver", &reason),
                Err(NoWorker::Unusable(code, reason)) if LASTING.iter().any(|lasts| lasts.to_string() == code) => {
                    self.tell(Event::Retired { slot: self.index, code, reason });
                    return None;
                }
                Err(NoWorker::Unusable(code, reason)) => (last_code, last) = (code, reason),
                Err(NoWorker::Failed(reason)) => (last_code, last) = (String::new(), reason),
            }
            if self.gives_up() {
                return None;
            }
            let until = Instant::now() + pause.unwrap_or_default();
            while Instant::now() < until && !self.gives_up() {
                std::thread::sleep(MAX_NAP);
            }
        }
        self.tell(Event::Retired { slot: self.index, code: last_code, reason: last });
        None
    }

    /// The new worker, once its canary has shown that its device works, where that is in doubt.
    fn run_due_canary(&self, mut live: Worker) -> Option<Worker> {
        let Some(canary) = self.fleet.canary_due(self.index) else { return Some(live) };
        let result = live.run_canary(canary, &|| self.gives_up_waiting());
        if result.is_err() && self.gives_up() {
            // Cut short, which says nothing about the device.
            self.dismiss(live, "the run was stopped, or its device lost");
            return None;
        }
        if self.fleet.canary_ended(self.index, &live.id, &result, &|event| self.tell(event)) {
            return Some(live);
        }
        self.dismiss(live, "its canary failed");
        None
    }

    /// Runs one case; the worker comes back if it can go on.
    fn attempt(&self, mut live: Worker, job: Job, ahead: &mut VecDeque<Job>) -> Option<Worker> {
        let Some(turn) = self.fleet.turn(self.index, &job, &|| self.gives_up_waiting()) else {
            self.put_back(job);
            return Some(live);
        };
        self.hold(Event::Started { slot: self.index, case: job.case.clone() });
        if !job.alone {
            self.look_ahead(&mut live, &job, ahead);
        }
        let start_ns = self.now();
        let position = live.cases_run;
        self.fleet.began(self.index, &live.id, &job);
        let void = || self.fleet.void(self.index, start_ns);
        let attempt = live.run(&job, self.plan, &|| self.tell_held(), &void);
        let dur_ns = self.now() - start_ns;
        drop(turn);
        let output = std::mem::take(&mut live.output);
        let facts = AttemptFacts { worker: live.id.clone(), position, start_ns, dur_ns, output: Cell::new(output) };
        match attempt {
            Attempt::Ended(outcome, tainted) => {
                let spoilt = tainted.then(|| spoilt_by(&outcome));
                self.finish(&facts, &job, outcome, None, tainted);
                return self.keep(live, spoilt, job.alone);
            }
            Attempt::Lost(outcome, death) => {
                let reason = outcome.outcome.clone();
                match compiling(&death, &job, ahead) {
                    Compiling::Ahead(other) => {
                        self.finish(&facts, &other, outcome, Some(*death), true);
                        self.put_back(job);
                    }
                    Compiling::AtHand | Compiling::Nothing => self.finish(&facts, &job, outcome, Some(*death), true),
                }
                self.dismiss(live, &reason);
            }
            Attempt::NotBegun(why, death) => {
                if self.not_begun(&facts, job, &why, death, ahead) {
                    live.ending = None;
                }
                self.dismiss(live, &why);
            }
            Attempt::Void(outcome) => {
                let reason = outcome.outcome.clone();
                self.finish(&facts, &job, outcome, None, false);
                self.dismiss(live, &reason);
            }
            Attempt::Stopped => {
                self.put_back(job);
                self.dismiss(live, "the run was stopped");
            }
        }
        None
    }

    /// The worker was gone before the case began. Whether the end of the worker is
    /// charged to a case.
    fn not_begun(
        &self,
        facts: &AttemptFacts,
        mut job: Job,
        why: &str,
        death: Option<(Outcome, Box<Death>)>,
        ahead: &mut VecDeque<Job>,
    ) -> bool {
        match death.map(|(outcome, death)| (compiling(&death, &job, ahead), outcome, death)) {
            Some((Compiling::Ahead(other), outcome, death)) => {
                self.finish(facts, &other, outcome, Some(*death), true);
                self.put_back(job);
                return true;
            }
            Some((Compiling::AtHand, outcome, death)) => {
                self.finish(facts, &job, outcome, Some(*death), true);
                return true;
            }
            Some((Compiling::Nothing, ..)) | None => {}
        }
        if facts.position == 0 && job.strikes + 1 >= STRIKES {
            let detail = format!("{STRIKES} workers died on receiving the case: {why}");
            self.finish(facts, &job, Outcome::of(Verdict::Crash, "crash.before_begin", detail), None, true);
        } else {
            // A worker that has run others may have died of one of them.
            job.strikes += u32::from(facts.position == 0);
            job.fresh = true;
            self.put_back(job);
        }
        false
    }

    /// The attempt has an outcome, which its device may change.
    fn finish(&self, facts: &AttemptFacts, job: &Job, mut outcome: Outcome, mut death: Option<Death>, tainted: bool) {
        let AttemptFacts { worker, position, start_ns, dur_ns, output } = facts;
        let end = End { job, worker, start_ns: *start_ns, death: death.as_ref(), tainted };
        let xids = self.fleet.ended(self.index, &end, &mut outcome, &|event| self.tell(event));
        if let Some(death) = &mut death {
            death.xids = xids;
        }
        let mut result = job.result(outcome);
        (result.slot, result.worker, result.position) = (Some(self.index), worker.clone(), *position);
        (result.start_ns, result.dur_ns, result.death) = (*start_ns, *dur_ns, death);
        result.output = Box::new(output.take());
        self.settle(job, result);
    }

    /// Has the worker prepare cases that come behind one, if it has threads for that.
    fn look_ahead(&self, live: &mut Worker, job: &Job, ahead: &mut VecDeque<Job>) {
        let wanted = self.source.ahead_a_thread() * self.plan.knobs.compile_threads as usize;
        // A new worker knows of none, however many were taken for the one before.
        let known = if live.cases_run > 0 { ahead.len() } else { 0 };
        if 2 * known >= wanted {
            return;
        }
        self.tell_held();
        let expected_ns = ahead.iter().fold(job.expected_ns, |sum, job| sum.saturating_add(job.expected_ns));
        ahead.extend(self.source.ahead(self.index, Held { jobs: ahead.len(), expected_ns }, wanted));
        live.prepare(ahead.iter().skip(known).map(|job| &*job.case));
    }

    fn settle(&self, job: &Job, mut result: CaseResult) {
        // What the worker wrote is for the record alone: sources keep results, and it may be long.
        let output = std::mem::take(&mut result.output);
        self.account_for(job);
        let settled = self.source.settle(job, &mut result);
        result.output = output;
        self.hold(Event::Finished(Box::new(result)));
        if let Settled::Concluded(conclusion) = settled {
            self.hold(Event::Concluded(conclusion));
        }
    }

    /// The worker, unless it is to be replaced.
    fn keep(&self, live: Worker, spoilt: Option<String>, alone: bool) -> Option<Worker> {
        let limit = self.plan.isolation.limit().min(self.plan.recycle.unwrap_or(u64::MAX));
        let reason = match live.cases_run {
            _ if spoilt.is_some() => spoilt.unwrap_or_default(),
            _ if alone => "the case was to run alone".into(),
            1 if limit == 1 => "one case a worker".into(),
            run if run >= limit => format!("{limit} cases a worker"),
            _ => return Some(live),
        };
        self.retire(live, &reason);
        None
    }

    fn retire(&self, live: Worker, reason: &str) {
        self.tell_held();
        self.fleet.worker_ended(self.index, &live.id);
        let (worker, cases_run) = (live.id.clone(), live.cases_run);
        let worker_end = live.retire(self.plan);
        self.tell(Event::Ended { slot: self.index, worker, reason: reason.into(), cases_run, worker_end });
    }

    fn dismiss(&self, live: Worker, reason: &str) {
        self.tell_held();
        self.fleet.worker_ended(self.index, &live.id);
        let (worker, cases_run) = (live.id.clone(), live.cases_run);
        let worker_end = live.dismiss(self.plan);
        self.tell(Event::Ended { slot: self.index, worker, reason: reason.into(), cases_run, worker_end });
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::LONG_NS;
    use super::*;
    use crate::case::Case;
    use std::sync::Arc;

    fn job(id: &str) -> Job {
        Job::new(Arc::new(Case { id: id.into(), ..Case::default() }), 0)
    }

    /// A death on a lane that worked for a case, while `running` ran and `a`, `b`, `c` were prepared.
    #[track_caller]
    fn check_charged(lane: usize, case: &str, running: &str, charged_id: Option<&str>) {
        let case_crc = crc32fast::hash(case.as_bytes());
        let death =
            Death { crumb: Crumb { lane, case: case.into(), case_crc, ..Crumb::default() }, ..Death::default() };
        let mut ahead: VecDeque<Job> = ["a", "b", "c"].map(job).into();
        let found = match compiling(&death, &job(running), &mut ahead) {
            Compiling::Nothing => None,
            Compiling::AtHand => Some(running.to_string()),
            Compiling::Ahead(job) => Some(job.case.id.clone()),
        };
        assert_eq!(found.as_deref(), charged_id);
        let left: Vec<&str> = ahead.iter().map(|job| job.case.id.as_str()).collect();
        let wanted: Vec<&str> = ["a", "b", "c"].into_iter().filter(|id| Some(*id) != charged_id).collect();
        assert_eq!(left, wanted, "the others are still prepared");
    }

    /// The jobs in the order in which they are picked, while the last are unprepared and some others under way.
    #[track_caller]
    fn check_picked(waiting: usize, under_way: &[&str], short_in_a_row: u32, wanted: &[&str]) {
        let of = |id: &str| Job {
            expected_ns: if id.starts_with("long") { LONG_NS } else { 1_000 },
            failed_before: id.ends_with("failed"),
            ..job(id)
        };
        let mut ahead: VecDeque<Job> = ["long a", "a", "long b", "b", "long failed"].map(of).into();
        let unprepared = Unprepared { waiting, under_way: under_way.iter().map(|id| id.to_string()).collect() };
        let picked = std::iter::from_fn(|| ahead.remove(pick(&ahead, Some(&unprepared), short_in_a_row)));
        let picked: Vec<String> = picked.map(|job| job.case.id.clone()).collect();
        assert_eq!(picked, wanted, "{waiting} waiting, {under_way:?} under way");
    }

    #[test]
    fn short_cases_that_are_prepared_come_before_long_ones() {
        check_picked(0, &[], 0, &["long failed", "a", "b", "long a", "long b"]);
        check_picked(0, &["a", "b"], 0, &["long failed", "long a", "long b", "a", "b"]);
        check_picked(1, &[], 0, &["a", "b", "long a", "long b", "long failed"]);
        check_picked(2, &["long a"], 0, &["a", "long b", "long a", "b", "long failed"]);
        // After many of them a long one.
        check_picked(1, &[], MOST_SHORT, &["long a", "long b", "a", "b", "long failed"]);
        // Where none is prepared, as they were taken.
        check_picked(5, &[], 0, &["long a", "a", "long b", "b", "long failed"]);
        assert_eq!(pick(&["x", "y"].map(job).into(), None, 0), 0);
    }

    #[test]
    fn a_death_is_charged_to_the_case_that_the_thread_worked_for() {
        check_charged(2, "b", "x", Some("b"));
        // Compiled ahead until its turn came, when it may not have begun.
        check_charged(2, "x", "x", Some("x"));
        // The case's own thread, no case, one that is not there.
        check_charged(0, "b", "x", None);
        check_charged(2, "", "x", None);
        check_charged(2, "gone", "x", None);
    }
}
