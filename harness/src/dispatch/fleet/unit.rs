//! One device: what is known of it, and what ran there lately.

use super::super::SlotSpec;
use super::super::health::Health;
use super::super::turns::Turns;
use crate::device::{Gpu, RanCase, WINDOW};
use crate::proto::DeviceSpec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Cases kept for attribution after their end, and Xids.
const KEPT: usize = 4096;

/// A device.
pub(super) struct Unit {
    pub(super) label: String,
    /// As it was when it was chosen.
    pub(super) gpu: Option<Gpu>,
    /// Whether it computes, so that it can run a canary.
    pub(super) computes: bool,
    pub(super) slots: usize,
    pub(super) turns: Turns,
    state: Mutex<DeviceState>,
}

#[derive(Default)]
pub(super) struct DeviceState {
    pub(super) health: Health,
    pub(super) ran: VecDeque<RanCase>,
    /// Processes of this run by slot.
    pub(super) own: BTreeMap<usize, u32>,
    pub(super) last: Option<Gpu>,
    pub(super) xids: VecDeque<SeenXid>,
    /// When people were last told of a suspicion.
    told_ns: Option<u64>,
    asked: bool,
    /// People know that it tells no events.
    pub(super) without_events: bool,
}

/// An Xid that a device reported.
#[derive(Clone, Debug)]
pub(super) struct SeenXid {
    pub(super) at_ns: u64,
    pub(super) code: u64,
}

impl Unit {
    /// The device of a slot, before any slot was counted.
    pub(super) fn new(slot: &SlotSpec) -> Self {
        Self {
            label: slot.label.split('.').next().unwrap_or_default().to_string(),
            gpu: slot.gpu.clone(),
            computes: slot.device != DeviceSpec::Reference,
            slots: 0,
            turns: Turns::default(),
            state: Mutex::new(DeviceState { last: slot.gpu.clone(), ..DeviceState::default() }),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn uuid(&self) -> Option<&str> {
        self.gpu.as_ref().map(|gpu| gpu.uuid.as_str())
    }

    pub(super) fn is(&self, uuid: &str) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.uuid == uuid || gpu.parent.as_deref() == Some(uuid))
    }
}

impl DeviceState {
    /// Notes a case that begins, and forgets those that ended long ago.
    pub(super) fn begin(&mut self, ran: RanCase) {
        let old = |kept: &RanCase| kept.end_ns.is_some_and(|end| end + 3 * WINDOW < ran.start_ns);
        while self.ran.len() >= KEPT || self.ran.front().is_some_and(old) {
            self.ran.pop_front();
        }
        self.ran.push_back(ran);
    }

    /// Notes the end of what the worker ran. A case that it only compiled ahead
    /// may have ended it: then the outcome is that case's, and Xids are too.
    pub(super) fn ended(&mut self, worker: &str, (case_id, attempt): (&str, u32), now: u64, outcome: &str) {
        let ran = self.ran.iter_mut().rev().find(|ran| ran.worker == worker && ran.end_ns.is_none());
        let Some(ran) = ran else { return };
        ran.end_ns = Some(now);
        if ran.case_id == case_id {
            ran.outcome = Some(outcome.into());
            return;
        }
        let guilty = RanCase { case_id: case_id.into(), attempt, outcome: Some(outcome.into()), ..ran.clone() };
        self.ran.push_back(guilty);
    }

    pub(super) fn xid(&mut self, seen: SeenXid) {
        if self.xids.len() >= KEPT {
            self.xids.pop_front();
        }
        self.xids.push_back(seen);
    }

    /// Xids that came since a moment.
    pub(super) fn xids_since(&self, start_ns: u64) -> Vec<u64> {
        self.xids.iter().filter(|seen| seen.at_ns >= start_ns).map(|seen| seen.code).collect()
    }

    /// Whether people should hear of a suspicion: once a minute is enough, every
    /// one is in the record.
    pub(super) fn tells(&mut self, now_ns: u64) -> bool {
        let tells = self.told_ns.is_none_or(|told| now_ns - told > 60_000_000_000);
        if tells {
            self.told_ns = Some(now_ns);
            self.asked = true;
        }
        tells
    }

    /// Whether people heard of the suspicion that a canary answers: once for each.
    pub(super) fn tells_answer(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }

    /// Processes of this run on the device.
    pub(super) fn own(&self) -> Vec<u32> {
        self.own.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Attribution, attribute};

    fn begun(case_id: &str) -> DeviceState {
        let mut state = DeviceState::default();
        let (case_id, worker) = (case_id.into(), "w0".into());
        state.begin(RanCase { case_id, attempt: 0, worker, start_ns: 10, end_ns: None, outcome: None });
        state
    }

    #[track_caller]
    fn check_guilty(state: &mut DeviceState, id: &str) {
        let (how, cases) = attribute(state.ran.make_contiguous(), 30);
        assert_eq!((how, cases.len(), cases[0].case_id.as_str()), (Attribution::Exact, 1, id));
    }

    #[test]
    fn an_xid_belongs_to_the_case_that_ended_the_worker() {
        let mut state = begun("running");
        state.ended("w0", ("running", 0), 20, "crash.sigsegv");
        check_guilty(&mut state, "running");
        let mut state = begun("running");
        state.ended("w0", ("ahead", 0), 20, "crash.sigsegv");
        check_guilty(&mut state, "ahead");
        assert_eq!((state.ran[0].end_ns, &state.ran[0].outcome), (Some(20), &None));
        state.ended("w0", ("late", 0), 25, "pass");
        assert_eq!(state.ran.len(), 2);
    }
}
