//! The thread of one slot. It lives until the run ends, since the kernel kills
//! a worker when the thread that spawned it ends.

use super::handle::{Attempt, NoWorker, Worker};
use super::queue::{Job, Queue};
use super::{CaseResult, Death, Event, Isolation, RunPlan};
use crate::verdict::{Outcome, Verdict};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Spawns in a row that may fail before the slot gives up.
const SPAWN_TRIES: u32 = 3;
/// Workers in a row that may die on receiving one case, before it began.
const STRIKES: u32 = 3;

pub(super) struct Slot<'a> {
    pub(super) index: usize,
    pub(super) plan: &'a RunPlan,
    pub(super) queue: &'a Queue,
    pub(super) events: Sender<Event>,
    pub(super) started: Instant,
}

impl Slot<'_> {
    fn tell(&self, event: Event) {
        // The receiver lives as long as all slots; it only goes away on a panic.
        let _ = self.events.send(event);
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Takes cases until there are none, or until no worker can be had.
    pub(super) fn serve(self) {
        let mut worker: Option<Worker> = None;
        let mut spawned = 0;
        while self.plan.stop.load(Ordering::Relaxed) == 0 {
            let Some(job) = self.queue.pop() else { break };
            let live = match worker.take() {
                Some(live) => live,
                None => match self.spawn(&mut spawned) {
                    Some(live) => live,
                    None => return self.queue.put_back(job),
                },
            };
            worker = self.attempt(live, job);
        }
        if let Some(live) = worker {
            self.end(live, "the queue is empty");
        }
    }

    /// A fresh worker, or none after several tries: the slot is retired then.
    fn spawn(&self, spawned: &mut u32) -> Option<Worker> {
        let slot = &self.plan.slots[self.index];
        let mut last = String::new();
        for try_index in 0..SPAWN_TRIES {
            let id = format!("{}-w{}", slot.label, *spawned);
            *spawned += 1;
            let mut started = false;
            let told = |pid| {
                started = true;
                self.tell(Event::Spawned { slot: self.index, worker: id.clone(), pid });
            };
            let spawned = Worker::spawn(id.clone(), slot, self.plan, told);
            if let (true, Err(NoWorker::Unusable(_, reason) | NoWorker::Failed(reason))) = (started, &spawned) {
                let reason = reason.clone();
                self.tell(Event::Ended { slot: self.index, worker: id.clone(), reason, cases_run: 0 });
            }
            match spawned {
                Ok(worker) => {
                    let (device, notes, ready_ns) = (worker.device.clone(), worker.notes.clone(), worker.ready_ns);
                    self.tell(Event::Ready { slot: self.index, worker: id, device, notes, ready_ns });
                    return Some(worker);
                }
                Err(NoWorker::Unusable(code, reason)) => {
                    self.tell(Event::Retired { slot: self.index, code, reason });
                    return None;
                }
                Err(NoWorker::Failed(reason)) => last = reason,
            }
            if self.plan.stop.load(Ordering::Relaxed) != 0 {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50) * try_index);
        }
        self.tell(Event::Retired { slot: self.index, code: String::new(), reason: last });
        None
    }

    /// Runs one case; the worker comes back if it can go on.
    fn attempt(&self, mut live: Worker, mut job: Job) -> Option<Worker> {
        self.tell(Event::Started { slot: self.index, case: job.case.clone() });
        let start_ns = self.now();
        let position = live.cases_run;
        let number = job.strikes;
        let attempt = live.run(&job, number, self.plan);
        let finish = |outcome: Outcome, death: Option<Death>| {
            let dur_ns = self.now() - start_ns;
            let worker = live.id.clone();
            let case = job.case.clone();
            self.tell(Event::Finished(Box::new(CaseResult {
                case,
                slot: self.index,
                worker,
                attempt: number,
                position,
                start_ns,
                dur_ns,
                outcome,
                death,
            })));
        };
        match attempt {
            Attempt::Ended(outcome, tainted) => {
                finish(outcome, None);
                if tainted {
                    self.end(live, "tainted by a panic or a failed CUDA call");
                    return None;
                }
                if self.plan.isolation == Isolation::Case {
                    self.end(live, "one case a worker");
                    return None;
                }
                Some(live)
            }
            Attempt::Lost(outcome, death) => {
                let reason = outcome.outcome.clone();
                finish(outcome, Some(*death));
                self.gone(live, &reason);
                None
            }
            Attempt::NotBegun(why) => {
                job.strikes += 1;
                if job.strikes >= STRIKES {
                    let detail = format!("{STRIKES} workers died on receiving the case: {why}");
                    finish(Outcome::of(Verdict::Crash, "crash.before_begin", detail), None);
                } else {
                    self.queue.put_back(job);
                }
                self.gone(live, &why);
                None
            }
            Attempt::Stopped => {
                self.queue.put_back(job);
                self.gone(live, "the run was stopped");
                None
            }
        }
    }

    fn end(&self, live: Worker, reason: &str) {
        let (worker, cases_run) = (live.id.clone(), live.cases_run);
        live.retire();
        self.tell(Event::Ended { slot: self.index, worker, reason: reason.into(), cases_run });
    }

    fn gone(&self, live: Worker, reason: &str) {
        let (worker, cases_run) = (live.id.clone(), live.cases_run);
        drop(live);
        self.tell(Event::Ended { slot: self.index, worker, reason: reason.into(), cases_run });
    }
}
