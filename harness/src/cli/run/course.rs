//! Where the time of a run goes: until its first case, with cases, and after the last one.
//!
//! Inputs: attempts with their times. Outputs: fields of the end's record, and a line for people. More devices make only
//! the time with cases shorter, so the rest is what bounds a run on many of them.

use crate::outcome::CaseResult;
use crate::units::show_seconds;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Of a shorter run nobody asks.
const LEAST_TOLD: Duration = Duration::from_secs(5);

/// What the start and the end of a run consist of, and how long each part took.
#[derive(Debug)]
pub(super) struct Steps {
    since: Instant,
    taken_ns: BTreeMap<&'static str, u64>,
}

impl Steps {
    /// The first part began then.
    pub(super) fn begin(since: Instant) -> Self {
        Self { since, taken_ns: BTreeMap::new() }
    }

    /// A part of this name is over, and the next one begins.
    pub(super) fn over(&mut self, name: &'static str) {
        let now = Instant::now();
        self.add(name, now - self.since);
        self.since = now;
    }

    /// A part that went on beside others took so long.
    pub(super) fn add(&mut self, name: &'static str, taken: Duration) {
        self.taken_ns.insert(name, taken.as_nanos() as u64);
    }
}

/// What something gives, and how long it took.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = work();
    (done, begun.elapsed())
}

/// When cases ran, in nanoseconds since the command began.
#[derive(Debug)]
pub(super) struct Course {
    /// Of what is before and after cases.
    pub(super) steps: Steps,
    /// When cases were handed out: from then on attempts count their times.
    dispatched_ns: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    /// With attempts, by slot.
    busy_ns: Vec<u64>,
    /// Of these, in each phase of cases, by those who say so.
    phases_ns: BTreeMap<String, u64>,
    /// In which this thread told and recorded what came of cases. While it does, slots may wait for it.
    telling_ns: u64,
}

impl Course {
    /// Cases are handed out to so many slots from now on.
    pub(super) fn begin(started: Instant, slots: usize, mut steps: Steps) -> Self {
        steps.over("set up");
        let dispatched_ns = started.elapsed().as_nanos() as u64;
        let (busy_ns, phases_ns) = (vec![0; slots], BTreeMap::new());
        Self { steps, dispatched_ns, first_ns: None, last_ns: 0, busy_ns, phases_ns, telling_ns: 0 }
    }

    /// An attempt is over.
    pub(super) fn add(&mut self, result: &CaseResult) {
        let Some(busy) = result.slot.and_then(|slot| self.busy_ns.get_mut(slot)) else { return };
        *busy += result.dur_ns;
        for (phase, ns) in &result.outcome.phases {
            match self.phases_ns.get_mut(phase) {
                Some(sum) => *sum = sum.saturating_add(*ns),
                None => drop(self.phases_ns.insert(phase.clone(), *ns)),
            }
        }
        let start = self.dispatched_ns + result.start_ns;
        self.first_ns = Some(self.first_ns.map_or(start, |first| first.min(start)));
        self.last_ns = self.last_ns.max(start + result.dur_ns);
    }

    /// Something was told and recorded.
    pub(super) fn told(&mut self, taken: Duration) {
        self.telling_ns += taken.as_nanos() as u64;
    }

    /// What workers were busy with and no phase has: to hand cases over and results back, and cases that tell no phases.
    fn between_ns(&self) -> u64 {
        let sum = |ns: &mut dyn Iterator<Item = &u64>| ns.fold(0u64, |sum, ns| sum.saturating_add(*ns));
        sum(&mut self.busy_ns.iter()).saturating_sub(sum(&mut self.phases_ns.values()))
    }

    /// For the record; nothing where no case ran. `label` names a slot.
    pub(super) fn record<'l>(&self, label: impl Fn(usize) -> &'l str) -> Option<Value> {
        let first = self.first_ns?;
        let busy: Map<String, Value> =
            (0..).zip(&self.busy_ns).map(|(slot, busy)| (label(slot).to_string(), (*busy).into())).collect();
        Some(json!({
            "first_case_ns": first,
            "last_case_ns": self.last_ns,
            "busy_ns": busy,
            "phases_ns": self.phases_ns,
            "between_ns": self.between_ns(),
            "telling_ns": self.telling_ns,
            "steps_ns": self.steps.taken_ns,
        }))
    }

    /// For people, of a run that was over after `elapsed_ns`.
    pub(super) fn line(&self, elapsed_ns: u64) -> Option<String> {
        let first = self.first_ns.filter(|_| u128::from(elapsed_ns) >= LEAST_TOLD.as_nanos())?;
        let between = self.last_ns.saturating_sub(first).max(1);
        let shares = || self.busy_ns.iter().map(|busy| (100.0 * *busy as f64 / between as f64).round() as u64);
        let busy = match (shares().min()?, shares().max()?) {
            (least, most) if least == most => format!("{most} %"),
            (least, most) => format!("{least} to {most} %"),
        };
        let [before, with, after] = [first, between, elapsed_ns.saturating_sub(self.last_ns)].map(show_seconds);
        let telling = (100.0 * self.telling_ns as f64 / between as f64).round();
        let [phases, at] = [self.phases(), format!("{telling} % of the time at records")];
        Some(format!(
            "{before} until the first case, {with} with cases, workers busy for {busy} of it, {after} after the last\n\
             of the workers' time {phases}; the dispatcher {at}"
        ))
    }

    /// What workers were busy with, what takes longest first.
    fn phases(&self) -> String {
        let between = ("between cases and dispatcher", self.between_ns());
        let phases = self.phases_ns.iter().map(|(phase, ns)| (phase.as_str(), *ns));
        let mut all: Vec<(&str, u64)> = phases.chain([between]).collect();
        all.sort_by_key(|(phase, ns)| (Reverse(*ns), *phase));
        let whole = self.busy_ns.iter().sum::<u64>().max(1);
        let shares = all.iter().map(|(phase, ns)| (phase, (100.0 * *ns as f64 / whole as f64).round() as u64));
        let told: Vec<String> =
            shares.filter(|(_, share)| *share > 0).map(|(phase, share)| format!("{share} % {phase}")).collect();
        told.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::dispatch::Job;
    use crate::outcome::{Outcome, Verdict};
    use std::sync::Arc;

    const MS: u64 = 1_000_000;

    #[test]
    fn time_is_before_with_and_after_cases() {
        let steps = Steps::begin(Instant::now());
        let mut course = Course { dispatched_ns: 500 * MS, ..Course::begin(Instant::now(), 2, steps) };
        course.steps.taken_ns = [("cases", 60 * MS)].into();
        assert!(course.record(|_| "gpu0").is_none() && course.line(9000 * MS).is_none());
        for (slot, start_ms, dur_ms) in [(Some(1), 100, 4000), (Some(0), 200, 3000), (None, 0, 9000)] {
            let job = Job::new(Arc::new(Case::default()), 0);
            let mut result = job.result(Outcome::of(Verdict::Pass, "pass", ""));
            result.outcome.phases =
                [("launch", 1500 * MS), ("upload", 20 * MS)].map(|(name, ns)| (name.into(), ns)).into();
            course.add(&CaseResult { slot, start_ns: start_ms * MS, dur_ns: dur_ms * MS, ..result });
        }
        course.told(Duration::from_millis(90));
        course.told(Duration::from_millis(30));
        let wanted = "0.60 s until the first case, 4.00 s with cases, workers busy for 75 to 100 % of it, 0.40 s after the \
                      last\nof the workers' time 57 % between cases and dispatcher, 43 % launch, 1 % upload; the dispatcher \
                      3 % of the time at records";
        assert_eq!(course.line(5000 * MS).as_deref(), Some(wanted));
        assert_eq!(course.line(4999 * MS), None);
        let record = course.record(|slot| ["gpu0", "gpu1"][slot]).expect("cases ran");
        let busy = json!({ "gpu0": 3000 * MS, "gpu1": 4000 * MS });
        let phases = json!({ "launch": 3000 * MS, "upload": 40 * MS });
        let wanted = json!({
            "first_case_ns": 600 * MS, "last_case_ns": 4600 * MS, "busy_ns": busy, "phases_ns": phases,
            "between_ns": 3960 * MS, "telling_ns": 120 * MS, "steps_ns": { "cases": 60 * MS },
        });
        assert_eq!(record, wanted);
    }
}
