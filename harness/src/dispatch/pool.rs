//! Runs a plan: starts the slots, passes their events on, and accounts for
//! every case: one that no slot could take is reported too.

use super::slot::Slot;
use super::source::Source;
use super::{Event, RunPlan};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Runs what `source` gives. `on_event` is called on this thread, in the order of arrival.
pub(crate) fn run(plan: &RunPlan, source: &dyn Source, on_event: &mut dyn FnMut(Event)) {
    let started = Instant::now();
    let (sender, events) = channel();
    let mut reasons = Vec::new();
    std::thread::scope(|scope| {
        for index in 0..plan.slots.len() {
            let slot = Slot { index, plan, source, events: sender.clone(), started };
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
    for conclusion in source.rest(stopped, &reasons.join("; ")) {
        on_event(Event::Concluded(Box::new(conclusion)));
    }
}
