//! Runs a plan: starts the slots, passes their events on, and accounts for
//! every case: one that no slot could take is reported too.

use super::compilers::Compilers;
use super::fleet::Fleet;
use super::slot::Slot;
use super::source::Source;
use super::{Conclusion, Event, RunPlan};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Lots of events that wait for `on_event`, each of about one case; beyond it slots
/// wait, so that a slow disk costs time and not memory.
const WAITING_LOTS: usize = 96;
/// How often compiler processes that died are replaced.
const TENDING: Duration = Duration::from_millis(500);

/// Runs what `source` gives. `on_event` is called on this thread, in the order of arrival.
pub(crate) fn run(plan: &RunPlan, source: &dyn Source, on_event: &mut dyn FnMut(Event)) {
    super::farewell::adopt_orphans();
    super::farewell::has_workers_only();
    let started = Instant::now();
    let mut compilers = Compilers::of(plan);
    let address = compilers.as_ref().map(|compilers| compilers.address().to_string());
    let compilers_at = address.as_deref();
    let mut tended = started;
    let (sender, events) = sync_channel(WAITING_LOTS);
    let fleet = Fleet::new(plan, started);
    let mut reasons = Vec::new();
    let mut codes = Vec::new();
    // Told of what has no thread: this one is not to wait for room among events.
    let missing = RefCell::new(Vec::new());
    std::thread::scope(|scope| {
        for index in 0..plan.slots.len() {
            let (events, held, settled) = (sender.clone(), RefCell::default(), Cell::default());
            let slot = Slot { index, plan, source, fleet: &fleet, compilers_at, events, held, started, settled };
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, move || slot.serve()) {
                let reason = format!("no thread can be started for the slot: {error}");
                missing.borrow_mut().push(Event::Retired { slot: index, code: String::new(), reason });
                drop(fleet.seat());
                source.leave(index);
            }
        }
        if fleet.listens() {
            let (fleet, events) = (&fleet, sender.clone());
            let listen = move || fleet.listen(&|event| drop(events.send(vec![event])));
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, listen) {
                let why = format!("no thread can be started for them: {error}");
                fleet.blinded(&why, &|event| missing.borrow_mut().push(event));
            }
        }
        drop(sender);
        // Goes away on a panic: nobody must wait for room then.
        let events = events;
        let mut missing = missing.take().into_iter();
        loop {
            if tended.elapsed() >= TENDING {
                compilers.iter_mut().for_each(Compilers::tend);
                tended = Instant::now();
            }
            let next = missing
                .next()
                .map(|event| vec![event])
                .map_or_else(|| events.recv_timeout(Duration::from_millis(100)), Ok);
            match next {
                Ok(lot) => {
                    for event in lot {
                        if let Event::Retired { code, reason, .. } = &event {
                            reasons.push(reason.clone());
                            codes.push(code.clone());
                        }
                        on_event(event);
                    }
                }
                Err(RecvTimeoutError::Timeout) => on_event(Event::Tick),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let stopped = plan.stop.load(Ordering::Relaxed) != 0;
    for mut conclusion in source.rest(stopped, &reasons.join("; ")) {
        blame(&mut conclusion, &codes);
        on_event(Event::Concluded(Box::new(conclusion)));
    }
}

/// A case that no worker was left for has the name of what took the devices, if
/// that is one thing.
fn blame(conclusion: &mut Conclusion, codes: &[String]) {
    let spawn = "infra.worker_spawn";
    let Some(code) = codes.first().filter(|code| code.starts_with("infra.")) else { return };
    if conclusion.result.outcome.outcome != spawn || codes.iter().any(|other| other != code) {
        return;
    }
    conclusion.result.outcome.outcome.clone_from(code);
    conclusion.outcomes.iter_mut().filter(|name| *name == spawn).for_each(|name| name.clone_from(code));
}
