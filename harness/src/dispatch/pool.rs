//! Runs a plan: starts the slots, passes their events on, and accounts for
//! every case: one that no slot could take is reported too.

use super::queue::Queue;
use super::slot::Slot;
use super::{CaseResult, Event, RunPlan};
use crate::verdict::{Outcome, Verdict};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Runs all cases. `on_event` is called on this thread, in the order of arrival.
pub(crate) fn run(plan: &RunPlan, on_event: &mut dyn FnMut(Event)) {
    let queue = Queue::new(&plan.cases);
    let started = Instant::now();
    let (sender, events) = channel();
    let mut reasons = Vec::new();
    std::thread::scope(|scope| {
        for index in 0..plan.slots.len() {
            let slot = Slot { index, plan, queue: &queue, events: sender.clone(), started };
            scope.spawn(move || slot.serve());
        }
        drop(sender);
        loop {
            match events.recv_timeout(Duration::from_millis(100)) {
                Ok(event) => {
                    if let Event::Retired { reason, .. } = &event {
                        reasons.push(reason.clone());
                    }
                    on_event(event);
                }
                Err(RecvTimeoutError::Timeout) => on_event(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let stopped = plan.stop.load(Ordering::Relaxed) != 0;
    let start_ns = started.elapsed().as_nanos() as u64;
    while let Some(job) = queue.pop() {
        let outcome = match stopped {
            true => Outcome::of(Verdict::Skip, "not_run.cancelled", "the run was stopped before this case"),
            false => Outcome::of(
                Verdict::Infra,
                "infra.worker_spawn",
                format!("no worker was left to run it: {}", reasons.join("; ")),
            ),
        };
        let (slot, worker) = (0, String::new());
        on_event(Event::Finished(Box::new(CaseResult {
            case: job.case,
            slot,
            worker,
            attempt: 0,
            position: 0,
            start_ns,
            dur_ns: 0,
            outcome,
            death: None,
        })));
    }
}
