//! The hunt as a source of work: picks become jobs, results become counts.

use super::burn::Burners;
use super::hunter::{Arm, CaseProgress, End, Hunter, NextRepeat, Options, Pick, RepeatEnd};
use super::rule::{Finding, Tally};
use super::standards::Standards;
use crate::case::Case;
use crate::dispatch::{Held, Job, Settled, Source, Take};
use crate::outcome::{CaseResult, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A failure to show: the first of its case.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) outcome: String,
    pub(crate) detail: String,
    pub(crate) worker: String,
    pub(crate) position: u64,
    pub(crate) seed: u64,
    pub(crate) slot: Option<usize>,
}

/// What has been decided and not yet been told.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) case: usize,
    pub(crate) finding: Finding,
    pub(crate) tally: Tally,
    /// False for a finding that corrects another.
    pub(crate) first: bool,
}

/// What is known of a case at the end.
pub(crate) struct Hunted {
    pub(crate) case: Arc<Case>,
    pub(crate) entry: CaseProgress,
    pub(crate) example: Option<Example>,
    /// Why it was left out: it does not apply here, or fails as is declared.
    pub(crate) left_out: Option<String>,
}

/// A hunt through cases.
pub(crate) struct Hunt {
    cases: Vec<Arc<Case>>,
    standards: Standards,
    /// Seed of the first repeat of each case; later ones count up from it.
    seed: u64,
    /// The index of each slot's device.
    devices: Vec<usize>,
    budget: Option<Duration>,
    started: Instant,
    state: Mutex<HuntState>,
}

struct HuntState {
    hunter: Hunter,
    /// What each slot is at, and has taken ahead.
    at: Vec<VecDeque<Pick>>,
    /// Workers in a row that died on receiving each case, before it began.
    strikes: Vec<u32>,
    burners: Burners,
    examples: Vec<Option<Example>>,
    left_out: Vec<Option<String>>,
    news: Vec<News>,
}

impl Hunt {
    pub(crate) fn new(
        cases: Vec<Arc<Case>>,
        standards: Standards,
        options: Options,
        devices: Vec<usize>,
        seed: u64,
        budget: Option<Duration>,
    ) -> Self {
        let state = HuntState {
            hunter: Hunter::new(cases.len(), options),
            at: vec![VecDeque::new(); devices.len()],
            strikes: vec![0; cases.len()],
            burners: Burners::default(),
            examples: vec![None; cases.len()],
            left_out: vec![None; cases.len()],
            news: Vec::new(),
        };
        Self { cases, standards, seed, devices, budget, started: Instant::now(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, HuntState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Findings since the last call, and under what repeats are made now.
    pub(crate) fn news(&self) -> (Vec<News>, Arm) {
        let mut state = self.lock();
        (std::mem::take(&mut state.news), state.hunter.arm())
    }

    /// What is known at the end, by case, and why it is the end.
    pub(crate) fn close(self) -> (Vec<Hunted>, End) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let end = state.hunter.end();
        let entries = state.hunter.entries().to_vec();
        let known = self.cases.into_iter().zip(entries).zip(state.examples).zip(state.left_out);
        let hunted = |(((case, entry), example), left_out)| Hunted { case, entry, example, left_out };
        (known.map(hunted).collect(), end)
    }

    /// The share of the budget that is gone.
    fn spent(&self) -> f64 {
        self.budget.map_or(0.0, |budget| self.started.elapsed().as_secs_f64() / budget.as_secs_f64())
    }

    /// The pick of a job, which no slot is at any more.
    fn taken(&self, state: &mut HuntState, job: &Job) -> Option<Pick> {
        let same = |pick: &Pick| pick.repeat == job.repeat && Arc::ptr_eq(&self.cases[pick.case], &job.case);
        state.at.iter_mut().find_map(|at| at.iter().position(same).and_then(|index| at.remove(index)))
    }

    fn job(&self, pick: Pick, strikes: u32) -> Job {
        let mut job = Job::new(self.cases[pick.case].clone(), self.seed.wrapping_add(u64::from(pick.repeat)));
        (job.repeat, job.strikes) = (pick.repeat, strikes);
        (job.fresh, job.alone) = (pick.arm == Arm::Alone, pick.arm == Arm::Alone);
        job
    }
}

fn ended(verdict: Verdict) -> RepeatEnd {
    match verdict {
        Verdict::Infra => RepeatEnd::Spoiled,
        Verdict::Skip => RepeatEnd::Skipped,
        Verdict::Pass | Verdict::Flaky | Verdict::Quarantined => RepeatEnd::Passed,
        Verdict::Fail | Verdict::Crash | Verdict::Hang => RepeatEnd::Failed,
    }
}

impl Source for Hunt {
    fn take(&self, slot: usize) -> Take {
        let mut state = self.lock();
        let next = state.hunter.next(self.spent());
        let loaded = state.hunter.arm() == Arm::Loaded;
        state.burners.set(loaded);
        match next {
            NextRepeat::Over => Take::Done,
            NextRepeat::Wait => Take::Wait,
            NextRepeat::Pick(pick) => {
                state.at[slot].push_back(pick);
                let strikes = state.strikes[pick.case];
                drop(state);
                Take::Job(Box::new(self.job(pick, strikes)))
            }
        }
    }

    fn ahead(&self, slot: usize, held: Held, wanted: usize) -> Vec<Job> {
        let mut state = self.lock();
        let mut picks = Vec::new();
        while held.jobs + picks.len() < wanted && state.hunter.arm() != Arm::Alone {
            let NextRepeat::Pick(pick) = state.hunter.next(self.spent()) else { break };
            state.at[slot].push_back(pick);
            picks.push((pick, state.strikes[pick.case]));
        }
        drop(state);
        picks.into_iter().map(|(pick, strikes)| self.job(pick, strikes)).collect()
    }

    fn settle(&self, job: &Job, result: &mut CaseResult) -> Settled {
        self.standards.judge(&job.case, &mut result.outcome);
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(pick) = self.taken(state, job) else { return Settled::Noted };
        state.strikes[pick.case] = 0;
        let ended = ended(result.outcome.verdict);
        let outcome = &result.outcome;
        if ended == RepeatEnd::Skipped {
            let why = outcome.detail.lines().next().unwrap_or_default();
            state.left_out[pick.case] = Some(format!("{}: {why}", outcome.outcome));
        }
        if ended == RepeatEnd::Failed && state.examples[pick.case].is_none() {
            state.examples[pick.case] = Some(Example {
                outcome: outcome.outcome.clone(),
                detail: outcome.detail.lines().next().unwrap_or_default().to_string(),
                worker: result.worker.clone(),
                position: result.position,
                seed: job.seed,
                slot: result.slot,
            });
        }
        let before = state.hunter.entries()[pick.case].finding;
        let device = result.slot.and_then(|slot| self.devices.get(slot)).copied().unwrap_or(0);
        let decided = state.hunter.record((pick.case, pick.arm), device, ended, &outcome.outcome, result.dur_ns);
        if let Some(finding) = decided {
            let tally = state.hunter.entries()[pick.case].tally();
            state.news.push(News { case: pick.case, finding, tally, first: before.is_none() });
        }
        Settled::Noted
    }

    fn put_back(&self, job: Job) {
        let mut guard = self.lock();
        let state = &mut *guard;
        if let Some(pick) = self.taken(state, &job) {
            state.strikes[pick.case] = job.strikes;
            state.hunter.put_back(pick.case);
        }
    }
}
