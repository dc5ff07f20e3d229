//! Runs a plan: starts the slots, passes their events on, and accounts for
//! every case: one that no slot could take is reported too.

use super::compilers::Compilers;
use super::fleet::Fleet;
use super::slot::Slot;
use super::source::Source;
use super::{Event, RunPlan};
use crate::outcome::Conclusion;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Lots of events that wait for `on_event`, each of about one case; beyond it slots
/// wait, so that a slow disk costs time and not memory.
const WAITING_LOTS: usize = 96;

/// Runs what `source` gives. `on_event` is called on this thread, in the order of arrival.
pub(crate) fn run(plan: &RunPlan, source: &dyn Source, on_event: &mut dyn FnMut(Event)) {
    super::worker_end::adopt_orphans();
    super::worker_end::has_workers_only();
    let started = Instant::now();
    let compilers = Compilers::of(plan);
    let address = compilers.as_ref().map(|compilers| compilers.address().to_string());
    let (sender, events) = sync_channel(WAITING_LOTS);
    let fleet = Fleet::new(plan, started);
    let mut retired = Retired::default();
    std::thread::scope(|scope| {
        let missing = start(scope, plan, source, &fleet, address.as_deref(), &sender, started);
        drop(sender);
        let mut on_event = |event: Event| {
            retired.note(&event);
            on_event(event);
        };
        pass_on(events, missing, compilers, &mut on_event);
    });
    let stopped = plan.stop.load(Ordering::Relaxed) != 0;
    for mut conclusion in source.rest(stopped, &retired.reasons.join("; ")) {
        blame(&mut conclusion, &retired.codes);
        on_event(Event::Concluded(Box::new(conclusion)));
    }
}

/// Slots that took no more cases.
#[derive(Default)]
struct Retired {
    reasons: Vec<String>,
    codes: Vec<String>,
}

impl Retired {
    fn note(&mut self, event: &Event) {
        if let Event::Retired { code, reason, .. } = event {
            self.reasons.push(reason.clone());
            self.codes.push(code.clone());
        }
    }
}

/// Starts a thread for each slot, and the one that listens. Returns what is to be told
/// of those that could not be started: this thread is not to wait for room among events.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    plan: &'env RunPlan,
    source: &'env dyn Source,
    fleet: &'env Fleet<'env>,
    compilers_at: Option<&'env str>,
    sender: &SyncSender<Vec<Event>>,
    started: Instant,
) -> Vec<Event> {
    let missing = RefCell::new(Vec::new());
    for index in 0..plan.slots.len() {
        let (events, held, open) = (sender.clone(), RefCell::default(), Cell::default());
        let slot = Slot { index, plan, source, fleet, compilers_at, events, held, started, open };
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, move || slot.serve()) {
            let reason = format!("no thread can be started for the slot: {error}");
            missing.borrow_mut().push(Event::Retired { slot: index, code: String::new(), reason });
            drop(fleet.active_slot());
            source.leave(index);
        }
    }
    if fleet.listens() {
        let events = sender.clone();
        let listen = move || fleet.listen(&|event| drop(events.send(vec![event])));
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, listen) {
            let why = format!("no thread can be started for them: {error}");
            fleet.events_failed(&why, &|event| missing.borrow_mut().push(event));
        }
    }
    missing.into_inner()
}

/// Passes events on until all slots have ended, first those of `missing` threads. The
/// receiver goes away on a panic: nobody must wait for room then.
fn pass_on(
    events: Receiver<Vec<Event>>,
    missing: Vec<Event>,
    mut compilers: Option<Compilers>,
    on_event: &mut dyn FnMut(Event),
) {
    let mut missing = missing.into_iter();
    loop {
        compilers = compilers.and_then(|mut compilers| compilers.look_after().then_some(compilers));
        let next = missing.next().map(|event| vec![event]);
        match next.map_or_else(|| events.recv_timeout(Duration::from_millis(100)), Ok) {
            Ok(lot) => lot.into_iter().for_each(&mut *on_event),
            Err(RecvTimeoutError::Timeout) => on_event(Event::Tick),
            Err(RecvTimeoutError::Disconnected) => return,
        }
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
