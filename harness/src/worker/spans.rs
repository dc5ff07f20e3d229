//! Where the time of a case goes in its worker.
//!
//! In: spans of the engine and of the harness, as they begin and end. Out: breadcrumbs, of which the dispatcher sees what a
//! worker is at, and the nanoseconds of each phase.
//!
//! Invariant: each moment since the case came counts for one phase, so that the phases add up to all of its time here.

use super::device::Device;
use super::jitter::Jitter;
use crate::crumb::{CrumbWriter, Own};
use crate::outcome::CodeFrom;
use engine::options::{Phase, Trace};
use engine::runtime::CACHED;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What no phase has of the time between the first and the last.
const REST: &str = "rest";

/// Spans that go to the breadcrumbs and to the account of a case's time.
pub(super) struct Spans<'a> {
    crumbs: &'a CrumbWriter,
    account: Mutex<Account>,
    jitter: Option<Jitter>,
    /// Whether the kernel's code was found in the store that workers share.
    cached: AtomicBool,
}

/// Where the time of a case goes: each moment counts for one phase, that which was entered last of those that have not
/// ended. So all of them together are the time since the case came.
struct Account {
    /// Until then time is accounted for.
    until: Instant,
    open: Vec<&'static str>,
    /// The phase of what is in none.
    outside: &'static str,
    spent: BTreeMap<&'static str, Duration>,
}

impl Account {
    fn new(began: Instant) -> Self {
        Self { until: began, open: Vec::new(), outside: Own::Begin.name(), spent: BTreeMap::new() }
    }

    fn count(&mut self, now: Instant) {
        let phase = self.open.last().unwrap_or(&self.outside);
        *self.spent.entry(phase).or_default() += now.saturating_duration_since(self.until);
        self.until = now;
    }

    fn enter(&mut self, phase: &'static str, now: Instant) {
        self.count(now);
        self.spent.entry(phase).or_default();
        self.open.push(phase);
        self.outside = REST;
    }

    fn exit(&mut self, phase: &'static str, now: Instant) {
        self.count(now);
        if let Some(at) = self.open.iter().rposition(|open| *open == phase) {
            self.open.remove(at);
        }
    }
}

impl<'a> Spans<'a> {
    pub(super) fn new(crumbs: &'a CrumbWriter, jitter: Option<Jitter>, began: Instant) -> Self {
        Self { crumbs, account: Mutex::new(Account::new(began)), jitter, cached: AtomicBool::new(false) }
    }

    fn disturb(&self) {
        if let Some(jitter) = &self.jitter {
            jitter.point();
        }
    }

    pub(super) fn engine<T>(&self, phase: Phase, name: &str, body: impl FnOnce() -> T) -> T {
        self.enter(phase, name, 0);
        let result = body();
        self.exit(phase);
        result
    }

    pub(super) fn own<T>(&self, phase: Own, name: &str, body: impl FnOnce() -> T) -> T {
        self.crumbs.own(phase, name);
        self.disturb();
        self.lock().enter(phase.name(), Instant::now());
        let result = body();
        self.lock().exit(phase.name(), Instant::now());
        self.disturb();
        result
    }

    /// The case was evaluated: what comes now is told of it, or given back.
    pub(super) fn report(&self) {
        self.crumbs.own(Own::Report, "outcome");
        self.lock().enter(Own::Report.name(), Instant::now());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where the kernel's code came from, if it was launched on a GPU.
    pub(super) fn code(&self, device: &Device) -> Option<CodeFrom> {
        let on_gpu = matches!(device, Device::Session { session, .. } if !session.is_simulator());
        let entered = |phase: Phase| self.lock().spent.contains_key(phase.name());
        match () {
            () if !on_gpu => None,
            () if self.cached.load(Ordering::Relaxed) => Some(CodeFrom::Cached),
            () if entered(Phase::Load) => Some(CodeFrom::Compiled),
            () => entered(Phase::Launch).then_some(CodeFrom::Held),
        }
    }

    /// The nanoseconds of each phase, up to now.
    pub(super) fn phases(&self) -> BTreeMap<String, u64> {
        let mut account = self.lock();
        account.count(Instant::now());
        account.spent.iter().map(|(name, time)| (name.to_string(), time.as_nanos() as u64)).collect()
    }
}

impl Trace for Spans<'_> {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.crumbs.enter(phase, name, id);
        self.lock().enter(phase.name(), Instant::now());
        if phase == Phase::Codegen && name == CACHED {
            self.cached.store(true, Ordering::Relaxed);
        }
        self.disturb();
    }
    fn exit(&self, phase: Phase) {
        self.disturb();
        self.lock().exit(phase.name(), Instant::now());
        self.crumbs.exit(phase);
    }
}

/// Counts the time of a case that its phases do not have, all of which came behind them, for the phase in which it is
/// reported. A case without phases has none.
pub(super) fn report_until_now(phases: &mut BTreeMap<String, u64>, began: Instant) {
    let known: u64 = phases.values().sum();
    if let Some(report) = phases.get_mut(Own::Report.name()) {
        *report += (began.elapsed().as_nanos() as u64).saturating_sub(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_counts_for_one_phase() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut account = Account::new(began);
        account.enter("plan", at(2));
        account.enter("lower", at(3));
        account.exit("lower", at(7));
        account.exit("plan", at(8));
        account.exit("load", at(8));
        account.enter("launch", at(10));
        account.exit("launch", at(15));
        account.enter("report", at(15));
        account.count(at(21));
        let ms = |ms| Duration::from_millis(ms);
        let wanted = [("begin", 2), ("launch", 5), ("lower", 4), ("plan", 2), ("report", 6), ("rest", 2)];
        assert_eq!(account.spent, wanted.map(|(phase, spent)| (phase, ms(spent))).into());
        let mut phases: BTreeMap<String, u64> = [("report".to_string(), 1), ("launch".to_string(), 1)].into();
        report_until_now(&mut phases, began);
        assert!(phases["launch"] == 1 && phases["report"] > 1, "{phases:?}");
        let mut none = BTreeMap::new();
        report_until_now(&mut none, began);
        assert!(none.is_empty());
    }
}
