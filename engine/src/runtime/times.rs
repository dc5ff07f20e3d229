//! Time spent in each phase.

use crate::options::{Phase, Trace};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// A trace that adds up the time of each phase. The caller brings the clock:
/// `let start = Instant::now(); PhaseTimes::new(move || start.elapsed())`.
/// A phase lasts as long as some span of it is open, in whatever thread; spans of
/// different phases each count their whole length.
pub struct PhaseTimes<C> {
    clock: C,
    state: Mutex<PhaseState>,
}

#[derive(Default)]
struct PhaseState {
    /// Of each phase: its open spans, and since when there are any.
    open: BTreeMap<Phase, (usize, Duration)>,
    total: BTreeMap<Phase, Duration>,
}

impl<C: Fn() -> Duration + Send + Sync> PhaseTimes<C> {
    /// No time spent yet.
    pub fn new(clock: C) -> Self {
        Self { clock, state: Mutex::default() }
    }
    /// The time of each phase that was entered, in order of phases.
    pub fn totals(&self) -> Vec<(Phase, Duration)> {
        self.lock().total.iter().map(|(&phase, &time)| (phase, time)).collect()
    }
    /// The time of one phase.
    pub fn total(&self, phase: Phase) -> Duration {
        self.lock().total.get(&phase).copied().unwrap_or_default()
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, PhaseState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<C: Fn() -> Duration + Send + Sync> Trace for PhaseTimes<C> {
    fn enter(&self, phase: Phase, _name: &str, _id: u64) {
        let now = (self.clock)();
        self.lock().open.entry(phase).or_insert((0, now)).0 += 1;
    }
    fn exit(&self, phase: Phase) {
        let now = (self.clock)();
        let mut state = self.lock();
        let Some((spans, start)) = state.open.get_mut(&phase) else { return };
        *spans -= 1;
        if let (0, start) = (*spans, *start) {
            state.open.remove(&phase);
            *state.total.entry(phase).or_default() += now.saturating_sub(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn spans_of_a_phase_add_up_once() {
        let ticks = AtomicU64::new(0);
        let times = PhaseTimes::new(|| Duration::from_millis(ticks.fetch_add(1, Ordering::Relaxed)));
        times.enter(Phase::Lower, "a", 0); // 0
        times.enter(Phase::Lower, "b", 0); // 1
        times.enter(Phase::Codegen, "c", 0); // 2
        times.exit(Phase::Codegen); // 3
        times.exit(Phase::Lower); // 4
        times.exit(Phase::Lower); // 5
        times.exit(Phase::Load); // never entered
        let expected = [(Phase::Lower, Duration::from_millis(5)), (Phase::Codegen, Duration::from_millis(1))];
        assert_eq!(times.totals(), expected);
    }

    #[test]
    fn a_phase_of_several_threads_lasts_from_the_first_to_the_last() {
        let ticks = AtomicU64::new(0);
        let times = PhaseTimes::new(|| Duration::from_millis(ticks.fetch_add(1, Ordering::Relaxed)));
        std::thread::scope(|scope| {
            times.enter(Phase::Lower, "a", 0); // 0
            scope.spawn(|| times.enter(Phase::Lower, "b", 1)).join().unwrap(); // 1
            times.exit(Phase::Lower); // 2
            scope.spawn(|| times.exit(Phase::Lower)).join().unwrap(); // 3
        });
        assert_eq!(times.total(Phase::Lower), Duration::from_millis(3));
    }
}
