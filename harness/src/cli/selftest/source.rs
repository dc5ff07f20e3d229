//! Gives the units to the slots, and keeps the account of what came of each job.

use super::matrix::{FaultOutcome, FaultRow};
use super::schedule::{FaultJob, Unit};
use crate::dispatch::{Event, Held, Job, RunPlan, Settled, Source, Take};
use crate::outcome::{CaseResult, Digest};
use crate::worker::fault::{FaultClass, FaultFacts};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reasons for which a worker ends that say nothing about its last case.
const ORDINARY: [&str; 4] = [
    "nothing is left to run",
    "the next case needs a fresh worker",
    "the case was to run alone",
    "its device must prove itself",
];

/// The source of a self-test.
pub(super) struct Faults {
    state: Mutex<SelftestState>,
    sharers: Vec<u32>,
    seed: u64,
}

struct SelftestState {
    units: VecDeque<Unit>,
    /// What is left of each slot's unit.
    at_hand: Vec<Unit>,
    /// Jobs that a slot took, to run or to prepare, and has not settled.
    out: Vec<(usize, FaultJob)>,
    results: Vec<FaultRun>,
    /// Of each worker: its entries in the order in which they ended.
    workers: BTreeMap<String, Vec<usize>>,
    /// Digests of the outputs of innocent cases, by id.
    outputs: BTreeMap<String, Digest>,
    planned: usize,
}

struct FaultRun {
    class: Option<&'static FaultClass>,
    case_id: String,
    expected: String,
    found: FaultOutcome,
}

impl SelftestState {
    /// The next job of the slot's unit.
    fn hand_out(&mut self, slot: usize) -> Option<Job> {
        let planned = self.at_hand[slot].pop_front()?;
        let job = planned.job.clone();
        self.out.push((slot, planned));
        Some(job)
    }

    /// What was planned of a job that is done with, and for which slot.
    fn take_back(&mut self, job: &Job) -> Option<(usize, FaultJob)> {
        let at = self.out.iter().position(|(_, planned)| planned.job.repeat == job.repeat)?;
        Some(self.out.swap_remove(at))
    }
}

impl Faults {
    pub(super) fn new(units: Vec<Unit>, plan: &RunPlan, seed: u64) -> Self {
        let slots = plan.slots.len();
        let planned = units.iter().map(VecDeque::len).sum();
        let state = SelftestState {
            units: units.into(),
            at_hand: vec![Unit::new(); slots],
            out: Vec::new(),
            results: Vec::new(),
            workers: BTreeMap::new(),
            outputs: BTreeMap::new(),
            planned,
        };
        let same = |slot: usize| plan.slots.iter().filter(|other| other.device == plan.slots[slot].device).count();
        let sharers = (0..slots).map(|slot| same(slot) as u32).collect();
        Self { state: Mutex::new(state), sharers, seed }
    }

    fn lock(&self) -> MutexGuard<'_, SelftestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the table expects of this attempt.
    fn expected(&self, state: &SelftestState, planned: &FaultJob, result: &CaseResult) -> String {
        let Some(class) = planned.class else { return "pass".into() };
        let before = state.workers.get(&result.worker).into_iter().flatten();
        let facts = FaultFacts {
            seed: self.seed,
            case_id: result.case.id.clone(),
            attempt: result.attempt,
            repeat: result.repeat,
            position: result.position,
            ran: Arc::new(before.map(|entry| state.results[*entry].case_id.clone()).collect()),
            sharers: result.slot.and_then(|slot| self.sharers.get(slot)).copied().unwrap_or(1),
        };
        match class.fails {
            Some(fails) if !fails(&facts, &planned.value) => "pass".into(),
            _ => FaultOutcome::name(class.expected, &[class.told]),
        }
    }

    /// Hears of workers that end.
    pub(super) fn event(&self, event: Event) {
        let Event::Ended { worker, reason, worker_end, .. } = event else { return };
        let mut state = self.lock();
        let Some(last) = state.workers.get(&worker).and_then(|entries| entries.last().copied()) else { return };
        let entry = &mut state.results[last];
        // One that dies when it is asked to end is lost, whatever it was asked for.
        entry.found.replaced = !ORDINARY.contains(&reason.as_str()) || worker_end.crash.is_some();
        entry.found.told.extend(worker_end.leaks.iter().map(|leak| leak.name.clone()));
        if let Some(crash) = worker_end.crash {
            let (outcome, death) = *crash;
            entry.found.told.push(outcome.outcome);
            entry.found.right_case &= death.prior_cases.last() == Some(&entry.case_id);
            entry.found.detail = outcome.detail;
        }
    }

    /// One row for each class, one for all innocent cases.
    pub(super) fn rows(&self) -> Vec<FaultRow> {
        let state = self.lock();
        let mut rows: BTreeMap<&str, FaultRow> = BTreeMap::new();
        for entry in &state.results {
            let name = entry.class.map_or("innocent", |class| class.name);
            let row = rows.entry(name).or_insert_with(|| FaultRow::new(name, entry.class));
            row.add(&entry.expected, &entry.found);
        }
        let lost = state.planned - state.results.len().min(state.planned);
        let mut rows: Vec<FaultRow> = rows.into_values().collect();
        rows.extend((lost > 0).then(|| FaultRow::lost(lost)));
        rows
    }
}

impl Source for Faults {
    fn take(&self, slot: usize) -> Take {
        let mut state = self.lock();
        if state.at_hand[slot].is_empty() {
            state.at_hand[slot] = state.units.pop_front().unwrap_or_default();
        }
        state.hand_out(slot).map_or(Take::Done, |job| Take::Job(Box::new(job)))
    }

    /// The rest of the slot's unit: what comes after it may be another slot's.
    fn ahead(&self, slot: usize, held: Held, wanted: usize) -> Vec<Job> {
        let mut state = self.lock();
        (held.jobs..wanted).map_while(|_| state.hand_out(slot)).collect()
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        let mut state = self.lock();
        let Some((_, planned)) = state.take_back(job) else { return Settled::Noted };
        let expected = self.expected(&state, &planned, result);
        let phase = planned.class.map_or("", |class| class.phase);
        let mut found = FaultOutcome::of(result, phase);
        if let (None, Some(digest)) = (planned.class, result.outcome.out_digest) {
            let first = *state.outputs.entry(result.case.id.clone()).or_insert(digest);
            found.changed = first != digest;
        }
        let index = state.results.len();
        let case_id = result.case.id.clone();
        state.results.push(FaultRun { class: planned.class, case_id, expected, found });
        state.workers.entry(result.worker.clone()).or_default().push(index);
        Settled::Noted
    }

    fn put_back(&self, job: Job) {
        let mut state = self.lock();
        let Some((slot, planned)) = state.take_back(&job) else { return };
        state.at_hand[slot].push_front(FaultJob { job, ..planned });
    }

    fn leave(&self, slot: usize) {
        // What this slot leaves, another one takes.
        let mut state = self.lock();
        let rest = std::mem::take(&mut state.at_hand[slot]);
        if !rest.is_empty() {
            state.units.push_front(rest);
        }
    }
}
