//! Begin and end of cases on devices: what an attempt comes to in the light of
//! its device, and what is to be done with the device.

use super::super::Event;
use super::super::health::{Findings, Next};
use super::super::job::Job;
use super::unit::Unit;
use super::{Fleet, TICK, Tell, word};
use crate::device::{CaseStep, Gpu, Process, RanCase, Silent, strangers, worse, xid_facts};
use crate::outcome::{Death, Outcome, Verdict};
use crate::worker::UNSEEN;
use serde_json::json;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Why memory may have gone that nobody in the run took.
fn excused(others: &[Process]) -> Option<String> {
    let words: Vec<String> = others.iter().map(Process::words).collect();
    (!words.is_empty()).then(|| format!("this is not held against the case: others use the GPU: {}", words.join(", ")))
}

/// The end of a case as its slot saw it.
pub(in crate::dispatch) struct End<'e> {
    pub(in crate::dispatch) job: &'e Job,
    pub(in crate::dispatch) worker: &'e str,
    pub(in crate::dispatch) start_ns: u64,
    pub(in crate::dispatch) death: Option<&'e Death>,
    /// The worker lives, but is not to be trusted.
    pub(in crate::dispatch) tainted: bool,
}

impl Fleet<'_> {
    /// A case begins.
    pub(in crate::dispatch) fn began(&self, slot: usize, worker: &str, job: &Job) {
        let unit = self.unit(slot);
        let now = self.now();
        let mut state = unit.lock();
        state.begin(RanCase {
            case_id: job.case.id.clone(),
            attempt: job.attempt,
            worker: worker.into(),
            start_ns: now,
            end_ns: None,
            outcome: None,
        });
        drop(state);
        self.step(unit, CaseStep::Began { case_id: &job.case.id });
    }

    /// A played GPU's script goes on; what it makes happen is heard at once.
    fn step(&self, unit: &Unit, step: CaseStep<'_>) {
        if let (Some(nvml), Some(uuid)) = (self.nvml(), unit.uuid())
            && nvml.step(uuid, step)
        {
            self.drain();
        }
    }

    /// Waits until the listener has heard all there is by now.
    fn drain(&self) {
        let wanted = self.silences.load(Ordering::SeqCst) + 2;
        let deadline = Instant::now() + 4 * TICK;
        while self.listening.load(Ordering::SeqCst)
            && self.silences.load(Ordering::SeqCst) < wanted
            && Instant::now() < deadline
        {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Why a case that began at `start_ns` on the slot's device is void, if it is.
    pub(in crate::dispatch) fn void(&self, slot: usize, start_ns: u64) -> Option<Outcome> {
        let unit = self.unit(slot);
        let state = unit.lock();
        let since = state.xids_since(start_ns);
        let xid = since.into_iter().find_map(|code| Some((code, xid_facts(code).outcome?)));
        if let Some(retirement) = state.health.retirement() {
            let detail = format!("{} was lost while the case ran: {}", unit.label, retirement.reason);
            return Some(Outcome::of(Verdict::Infra, retirement.code, detail));
        }
        let (code, name) = xid?;
        let detail = format!("{} reported Xid {code} ({}) while the case ran", unit.label, xid_facts(code).words);
        Some(Outcome::of(Verdict::Infra, name, detail))
    }

    /// A case has ended: what it comes to in the light of its device. Returns
    /// the Xids that are its own.
    pub(in crate::dispatch) fn ended(&self, slot: usize, end: &End<'_>, outcome: &mut Outcome, tell: Tell) -> Vec<u64> {
        let unit = self.unit(slot);
        let now = self.now();
        unit.lock().ended(end.worker, (&end.job.case.id, end.job.attempt), now, &outcome.outcome);
        let xids = self.judge(slot, end, outcome, tell);
        self.step(unit, CaseStep::Ended);
        xids
    }

    fn judge(&self, slot: usize, end: &End<'_>, outcome: &mut Outcome, tell: Tell) -> Vec<u64> {
        let unit = self.unit(slot);
        if outcome.verdict == Verdict::Infra {
            return Vec::new();
        }
        self.excuse(unit, outcome);
        let abnormal = end.death.is_some() || (end.tainted && outcome.verdict.is_failure());
        let changes = if abnormal && unit.computes { self.examine(slot, end, outcome, tell) } else { Vec::new() };
        if let Some(void) = self.void(slot, end.start_ns).filter(|_| !self.wedges_again(unit, end, outcome)) {
            let was = format!("{}; the attempt itself: {}", void.detail, outcome.outcome);
            *outcome = Outcome { detail: was, ..void };
        }
        self.annotate(unit, end, outcome, &changes)
    }

    /// Who took memory of a GPU since it was chosen, for a case that had too little.
    fn robbed(&self, unit: &Unit) -> Option<String> {
        let (nvml, before) = (self.nvml()?, unit.gpu.as_ref()?);
        let now = nvml.look(&before.uuid).ok()?;
        let own = unit.lock().own();
        let came = strangers(before, &now, &own);
        let words: Vec<String> = came.iter().map(Process::words).collect();
        (!words.is_empty()).then(|| format!("others came to {} since the run began: {}", unit.label, words.join(", ")))
    }

    /// Memory that went while others use the GPU may be theirs: no failure of the case.
    fn excuse(&self, unit: &Unit, outcome: &mut Outcome) {
        if outcome.outcome != "fail.leak.device_mem" || !outcome.facts.contains_key(UNSEEN) {
            return;
        }
        let Some(now) = self.nvml().zip(unit.uuid()).and_then(|(nvml, uuid)| nvml.look(uuid).ok()) else { return };
        let own = unit.lock().own();
        let others = strangers(&Gpu::default(), &now, &own);
        if let Some(words) = excused(&others) {
            (outcome.verdict, outcome.outcome) = (Verdict::Pass, "pass".into());
            outcome.detail = format!("{}; {words}", outcome.detail);
        }
    }

    /// A case that a device did not survive keeps its own outcome from the
    /// second device on, so that it does not go through all of them.
    fn wedges_again(&self, unit: &Unit, end: &End<'_>, outcome: &Outcome) -> bool {
        let wedged = unit.lock().health.retirement().is_some_and(|retirement| retirement.code == "infra.gpu_wedged");
        if !wedged || !end.death.is_some_and(|death| death.unkillable) {
            return false;
        }
        let mut wedging = self.wedging.lock().unwrap_or_else(PoisonError::into_inner);
        !wedging.insert(end.job.case.id.clone()) && outcome.verdict.is_failure()
    }

    /// After an abnormal end: what became worse, and what is to be done.
    fn examine(&self, slot: usize, end: &End<'_>, outcome: &Outcome, tell: Tell) -> Vec<String> {
        let unit = self.unit(slot);
        let mut changes = Vec::new();
        let mut lost = None;
        if let (Some(nvml), Some(uuid)) = (self.nvml(), unit.uuid()) {
            self.drain();
            match nvml.look(uuid) {
                Ok(gpu) => {
                    let mut state = unit.lock();
                    let own = state.own();
                    changes = state.last.as_ref().map(|last| worse(last, &gpu, &own)).unwrap_or_default();
                    state.last = Some(gpu);
                }
                Err(Silent::Lost(why)) => lost = Some(why),
                Err(Silent::Failed(_)) => {}
            }
        }
        let mut state = unit.lock();
        let xids = state.xids_since(end.start_ns);
        let next = state.health.after_death(&Findings {
            now_ns: self.now(),
            case_id: &end.job.case.id,
            outcome: &outcome.outcome,
            killed: end.death.is_some(),
            // A simulated device is no hardware that a process could block.
            unkillable: unit.gpu.is_some() && end.death.is_some_and(|death| death.unkillable),
            changes: &changes,
            lost: lost.as_deref(),
        });
        let suspected = state.health.suspected();
        let tells = suspected && state.tells(self.now());
        drop(state);
        let say = match &next {
            Next::Retire(retirement) => Some(format!("{}: {}", unit.label, retirement.reason)),
            Next::Canary(why) if tells => {
                Some(format!("{}: {why}; suspecting the device, a canary must run", unit.label))
            }
            _ => None,
        };
        let fields = json!({
            "event": if suspected { "suspect" } else { "death" }, "device": unit.label, "gpu_uuid": unit.uuid(),
            "worker_id": end.worker, "case_id": end.job.case.id, "outcome": outcome.outcome, "changes": changes,
            "xids": xids, "next": word(&next), "t_run_ns": self.now(),
        });
        tell(Event::Record { kind: "health", fields, say });
        changes
    }

    /// Notes on an outcome: Xids of programs, clocks of a measurement.
    fn annotate(&self, unit: &Unit, end: &End<'_>, outcome: &mut Outcome, changes: &[String]) -> Vec<u64> {
        let state = unit.lock();
        let xids = state.xids_since(end.start_ns);
        drop(state);
        if let (Verdict::Pass, Some(code)) = (outcome.verdict, xids.first()) {
            let note = format!("Xid {code} ({}) came on {} while it ran", xid_facts(*code).words, unit.label);
            outcome.detail = if outcome.detail.is_empty() { note } else { format!("{}\n{note}", outcome.detail) };
        }
        if outcome.outcome == "oom.device"
            && let Some(words) = self.robbed(unit)
        {
            outcome.detail = format!("{}\n{words}", outcome.detail);
        }
        if !changes.is_empty() {
            outcome.facts.insert("device_changes".into(), changes.join("; "));
        }
        if let (true, Some(nvml), Some(uuid)) = (outcome.perf.is_some(), self.nvml(), unit.uuid())
            && let Ok(gpu) = nvml.look(uuid)
            && !gpu.clock_event_reasons.is_empty()
        {
            outcome.facts.insert("clocks".into(), gpu.clock_event_reasons.join(" "));
        }
        xids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Case;
    use crate::device::{Nvidia, Nvml, NvmlNews};
    use crate::dispatch::{RunPlan, SlotSpec};
    use crate::proto::DeviceSpec;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    /// Counts how often a GPU is looked at.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Nvml for Counted {
        fn survey(&self) -> Nvidia {
            Nvidia::default()
        }
        fn look(&self, _uuid: &str) -> Result<Gpu, Silent> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Gpu::default())
        }
        fn listen(&self, _uuids: &[String], _tick: Duration, _hear: &mut dyn FnMut(NvmlNews) -> bool) {}
        fn worker_device(&self, uuid: &str, threads: u32) -> DeviceSpec {
            DeviceSpec::Played { uuid: uuid.into(), threads, times: None }
        }
    }

    /// How often the GPU is looked at for a case with an outcome.
    #[track_caller]
    fn check_looks(outcome: &str, verdict: Verdict, wanted: usize) {
        let nvml = Arc::new(Counted::default());
        let gpu = Gpu { uuid: "GPU-a".into(), ..Gpu::default() };
        let device = nvml.worker_device("GPU-a", 1);
        let slot = SlotSpec { device, label: "gpu0".into(), env: Vec::new(), gpu: Some(gpu) };
        let mut plan = RunPlan::plain(vec![slot], "harness".into(), "none".into());
        plan.nvml = Some(nvml.clone());
        let fleet = Fleet::new(&plan, Instant::now());
        let job = Job::new(Arc::new(Case { id: "A.b".into(), ..Case::default() }), 0);
        fleet.began(0, "w0", &job);
        let end = End { job: &job, worker: "w0", start_ns: 0, death: None, tainted: false };
        fleet.ended(0, &end, &mut Outcome::of(verdict, outcome, ""), &|_| {});
        assert_eq!(nvml.0.load(Ordering::SeqCst), wanted, "{outcome}");
    }

    #[test]
    fn only_a_case_in_trouble_asks_nvml() {
        // An answer takes half a millisecond, and more with several GPUs: as long as most cases.
        check_looks("pass", Verdict::Pass, 0);
        check_looks("fail.numerics", Verdict::Fail, 0);
        check_looks("oom.device", Verdict::Fail, 1);
    }

    #[test]
    fn memory_is_only_missed_where_nobody_else_is() {
        assert_eq!(excused(&[]), None);
        let words = excused(&[Process { pid: 17, mem_bytes: Some(1 << 30) }]).expect("somebody");
        assert!(words.ends_with("others use the GPU: process 17 with 1.0 GiB"), "{words}");
    }
}
