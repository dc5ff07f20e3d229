//! How long a run will take yet.
//!
//! Inputs: the recorded duration of each of its cases; one without is taken as the median of the others. Output: a
//! time, once there is something to judge by. The longest cases run first, so counts of cases would
//! promise far too much: what counts is expected time. How fast this machine is at it today is learnt from what is done.

use crate::outcome::Known;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time that the cases of a run are expected to take.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeLeft {
    by_case: BTreeMap<String, u64>,
    total: u64,
    done: u64,
    slots: u64,
    /// Whether any duration is recorded; else each case counts as much as another.
    known: bool,
}

impl TimeLeft {
    /// Of cases that are dealt out to so many slots.
    pub(crate) fn new<'a>(ids: impl Iterator<Item = &'a str>, known: &BTreeMap<String, Known>, slots: usize) -> Self {
        let ids: Vec<&str> = ids.collect();
        let dur = |id: &str| known.get(id).and_then(|known| known.dur_ns);
        let mut recorded: Vec<u64> = ids.iter().filter_map(|id| dur(id)).collect();
        recorded.sort_unstable();
        let usual = recorded.get(recorded.len() / 2).copied().unwrap_or(1).max(1);
        let by_case: BTreeMap<_, _> = ids.iter().map(|id| (id.to_string(), dur(id).unwrap_or(usual).max(1))).collect();
        let total = by_case.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        Self { by_case, total, done: 0, slots: slots.max(1) as u64, known: !recorded.is_empty() }
    }

    /// A case has its verdict.
    pub(super) fn conclude(&mut self, id: &str) {
        self.done = self.done.saturating_add(self.by_case.remove(id).unwrap_or(0)).min(self.total);
    }

    /// What a case is expected to take, if that is recorded.
    pub(super) fn of_case(&self, id: &str) -> Option<Duration> {
        self.by_case.get(id).filter(|_| self.known).map(|ns| Duration::from_nanos(*ns))
    }

    /// The time left after so much of it; nothing where there is nothing to judge by.
    pub(super) fn left(&self, elapsed: Duration) -> Option<Duration> {
        if self.total == 0 || (self.done == 0 && !self.known) {
            return None;
        }
        let (total, done) = (self.total as f64, self.done as f64);
        // Seconds for each expected second: little is known of it until something is done.
        let measured = if done > 0.0 { elapsed.as_secs_f64() * 1e9 * self.slots as f64 / done } else { 1.0 };
        let trust = if self.known { done / total } else { 1.0 };
        let pace = trust * measured + (1.0 - trust);
        Duration::try_from_secs_f64((total - done) * pace / self.slots as f64 / 1e9).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(durations: &[(&str, u64)]) -> BTreeMap<String, Known> {
        let known = |seconds: u64| Known { dur_ns: Some(seconds * 1_000_000_000), failed: false };
        durations.iter().map(|(id, seconds)| (id.to_string(), known(*seconds))).collect()
    }

    #[track_caller]
    fn check(left: &TimeLeft, elapsed: u64, wanted: Option<u64>) {
        let found = left.left(Duration::from_secs(elapsed)).map(|left| left.as_secs_f64().round() as u64);
        assert_eq!(found, wanted);
    }

    #[test]
    fn long_cases_that_ran_first_leave_little() {
        let ids = ["long", "a", "b", "new"];
        let known = known(&[("long", 97), ("a", 1), ("b", 1)]);
        let mut left = TimeLeft::new(ids.into_iter(), &known, 1);
        check(&left, 0, Some(100));
        left.conclude("long");
        // By counts it would be 291 s.
        check(&left, 97, Some(3));
        // A machine that takes twice as long.
        check(&left, 194, Some(6));
        let mut two = TimeLeft::new(ids.into_iter(), &known, 2);
        check(&two, 0, Some(50));
        ids.iter().for_each(|id| two.conclude(id));
        check(&two, 60, Some(0));
    }

    #[test]
    fn where_nothing_is_recorded_counts_decide() {
        let ids = ["a", "b", "c", "d"];
        let mut left = TimeLeft::new(ids.into_iter(), &BTreeMap::new(), 1);
        check(&left, 0, None);
        left.conclude("a");
        check(&left, 10, Some(30));
        assert_eq!(left.of_case("b"), None);
        // A case of which nobody spoke changes nothing.
        left.conclude("other");
        check(&left, 10, Some(30));
    }
}
