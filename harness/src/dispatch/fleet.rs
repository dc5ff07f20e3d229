//! The devices of a run while it runs. Slots tell it what begins and ends on
//! them, a thread of its own listens to NVML, and from both it decides which
//! results count, which device must prove itself, and which one is out of use.
//!
//! Simulated devices are looked after in the same way, as far as they go: no
//! NVML, so no Xids and no loss, but canaries and suspicion.

use super::health::{Findings, Gone, Health, Next};
use super::job::Job;
use super::turns::{Turn, Turns};
use super::{Death, Event, RunPlan};
use crate::device::{
    Attribution, CaseStep, Gpu, Heard, Nvml, Process, Ran, Silent, WINDOW, XidClass, attribute, strangers, worse,
    xid_facts,
};
use crate::proto::{DeviceSpec, Mode};
use crate::verdict::{Outcome, Verdict};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the listener looks up.
const TICK: Duration = Duration::from_millis(50);
/// How often GPUs are looked at for changes.
const LOOK: Duration = Duration::from_secs(1);
/// Until NVML's events are tried again after they failed.
const AGAIN: Duration = Duration::from_secs(5);
/// Cases kept for attribution after their end, and Xids of a device.
const KEPT: usize = 4096;
/// Cases of an Xid that its record names.
const NAMED: usize = 16;

type Tell<'t> = &'t dyn Fn(Event);

/// All devices.
pub(super) struct Fleet<'a> {
    plan: &'a RunPlan,
    started: Instant,
    units: Vec<Unit>,
    of_slot: Vec<usize>,
    /// Slots that still run.
    active: AtomicUsize,
    listening: AtomicBool,
    /// Times that the listener heard nothing.
    silences: AtomicU64,
    blind: AtomicBool,
    /// Cases that made a device unusable: no second one may follow.
    wedging: Mutex<BTreeSet<String>>,
}

/// A device.
struct Unit {
    label: String,
    /// As it was when it was chosen.
    gpu: Option<Gpu>,
    /// Whether it computes, so that a canary can sing.
    computes: bool,
    slots: usize,
    turns: Turns,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    health: Health,
    ran: VecDeque<Ran>,
    /// Processes of this run by slot.
    own: BTreeMap<usize, u32>,
    last: Option<Gpu>,
    xids: VecDeque<Seen>,
}

/// An Xid that a device reported.
#[derive(Clone, Debug)]
struct Seen {
    at_ns: u64,
    code: u64,
}

impl Unit {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uuid(&self) -> Option<&str> {
        self.gpu.as_ref().map(|gpu| gpu.uuid.as_str())
    }

    fn is(&self, uuid: &str) -> bool {
        self.gpu.as_ref().is_some_and(|gpu| gpu.uuid == uuid || gpu.parent.as_deref() == Some(uuid))
    }
}

impl<'a> Fleet<'a> {
    pub(super) fn new(plan: &'a RunPlan, started: Instant) -> Self {
        let mut units: Vec<Unit> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut of_slot = Vec::new();
        for slot in &plan.slots {
            let name = slot.device_name();
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                let label = slot.label.split('.').next().unwrap_or_default().to_string();
                let state = State { last: slot.gpu.clone(), ..State::default() };
                units.push(Unit {
                    label,
                    gpu: slot.gpu.clone(),
                    computes: slot.device != DeviceSpec::Reference,
                    slots: 0,
                    turns: Turns::default(),
                    state: Mutex::new(state),
                });
                names.push(name);
                units.len() - 1
            });
            units[at].slots += 1;
            of_slot.push(at);
        }
        Self {
            plan,
            started,
            units,
            of_slot,
            active: AtomicUsize::new(plan.slots.len()),
            listening: AtomicBool::new(false),
            silences: AtomicU64::new(0),
            blind: AtomicBool::new(false),
            wedging: Mutex::new(BTreeSet::new()),
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn unit(&self, slot: usize) -> &Unit {
        &self.units[self.of_slot[slot]]
    }

    fn nvml(&self) -> Option<&dyn Nvml> {
        self.plan.nvml.as_deref()
    }

    /// Why the slot's device is out of use, if it is.
    pub(super) fn gone(&self, slot: usize) -> Option<Gone> {
        self.unit(slot).lock().health.gone().cloned()
    }

    /// Takes the slot's device out of use.
    pub(super) fn retire(&self, slot: usize, code: &'static str, reason: &str) {
        self.unit(slot).lock().health.retire(code, reason.into());
    }

    /// A worker of the slot has started.
    pub(super) fn born(&self, slot: usize, pid: u32) {
        self.unit(slot).lock().own.insert(slot, pid);
    }

    /// The slot takes no more cases.
    pub(super) fn left(&self, slot: usize) {
        self.unit(slot).lock().own.remove(&slot);
        self.active.fetch_sub(1, Ordering::SeqCst);
    }

    /// A worker of the slot is gone, and with it whatever it ran.
    pub(super) fn buried(&self, slot: usize, worker: &str) {
        let now = self.now();
        let mut state = self.unit(slot).lock();
        state.own.remove(&slot);
        let left = state.ran.iter_mut().filter(|ran| ran.worker == worker && ran.end_ns.is_none());
        left.for_each(|ran| ran.end_ns = Some(now));
    }

    /// Whether the slot's device must prove itself before it takes cases.
    pub(super) fn unproven(&self, slot: usize) -> bool {
        self.unit(slot).lock().health.unproven().is_some()
    }

    /// Whether the slot's new worker must sing first: then, whether it is to sing wrongly.
    pub(super) fn audition(&self, slot: usize) -> Option<bool> {
        let unit = self.unit(slot);
        unit.lock().health.unproven()?;
        match (self.nvml(), unit.uuid()) {
            (Some(nvml), Some(uuid)) => Some(nvml.spoils_canary(uuid)),
            _ => Some(false),
        }
    }

    /// The slot's new worker sang, or failed to. Whether it may take cases.
    pub(super) fn sang(
        &self,
        slot: usize,
        worker: &str,
        result: Result<(Option<bool>, String), String>,
        tell: Tell,
    ) -> bool {
        let unit = self.unit(slot);
        let mut state = unit.lock();
        let why = state.health.unproven().unwrap_or_default().to_string();
        let suspected = state.health.suspected();
        let (verdict, detail) = match &result {
            Ok((Some(true), _)) => ("ok", String::new()),
            Ok((None, detail)) => ("skipped", detail.clone()),
            Ok((Some(false), detail)) | Err(detail) => ("failed", detail.clone()),
        };
        let judged = match result {
            Ok((Some(false), detail)) => Err(detail),
            Ok((ok, _)) => Ok(ok),
            Err(detail) => Err(detail),
        };
        let next = state.health.after_canary(judged);
        drop(state);
        let say = match (&next, verdict) {
            (Next::Go, "ok") if suspected => {
                Some(format!("{}: {why}; its canary sings, so the cases are to blame", unit.label))
            }
            (Next::Go, _) => None,
            (Next::Canary(_), _) => {
                Some(format!("{}: the canary failed ({detail}); once more in a new worker", unit.label))
            }
            (Next::Retire(gone), _) => Some(format!("{}: {}", unit.label, gone.reason)),
        };
        let fields = json!({
            "event": "canary", "device": unit.label, "gpu_uuid": unit.uuid(), "worker_id": worker, "why": why,
            "canary": verdict, "detail": detail, "next": word(&next), "t_run_ns": self.now(),
        });
        tell(Event::Record { kind: "health", fields, say });
        next == Next::Go
    }

    /// Whether a case must have its device alone: measurements, and what needs
    /// more memory than its share.
    fn alone(&self, unit: &Unit, job: &Job) -> bool {
        let share = unit.gpu.as_ref().and_then(Gpu::mem_free_bytes).map(|free| free / unit.slots as u64);
        let big = matches!((job.case.require.memory, share), (Some(needed), Some(share)) if needed > share);
        self.plan.mode == Mode::Bench || job.case.perf.is_some() || big
    }

    /// Waits until the case may run on the slot's device; `None` if `give_up` says so first.
    pub(super) fn turn(&self, slot: usize, job: &Job, give_up: &dyn Fn() -> bool) -> Option<Turn<'_>> {
        let unit = self.unit(slot);
        unit.turns.take(self.alone(unit, job), give_up)
    }

    /// A case begins.
    pub(super) fn began(&self, slot: usize, worker: &str, job: &Job) {
        let unit = self.unit(slot);
        let now = self.now();
        let mut state = unit.lock();
        while state.ran.len() >= KEPT
            || state.ran.front().is_some_and(|ran| ran.end_ns.is_some_and(|end| end + 3 * WINDOW < now))
        {
            state.ran.pop_front();
        }
        state.ran.push_back(Ran {
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
    pub(super) fn void(&self, slot: usize, start_ns: u64) -> Option<Outcome> {
        let unit = self.unit(slot);
        let state = unit.lock();
        let since = |seen: &&Seen| seen.at_ns >= start_ns;
        let xid = state.xids.iter().filter(since).find_map(|seen| Some((seen.code, xid_facts(seen.code).outcome?)));
        if let Some(gone) = state.health.gone() {
            let detail = format!("{} was lost while the case ran: {}", unit.label, gone.reason);
            return Some(Outcome::of(Verdict::Infra, gone.code, detail));
        }
        let (code, name) = xid?;
        let detail = format!("{} reported Xid {code} ({}) while the case ran", unit.label, xid_facts(code).words);
        Some(Outcome::of(Verdict::Infra, name, detail))
    }

    /// A case has ended: what it comes to in the light of its device. Returns
    /// the Xids that are its own.
    pub(super) fn ended(&self, slot: usize, end: &End<'_>, outcome: &mut Outcome, tell: Tell) -> Vec<u64> {
        let unit = self.unit(slot);
        let now = self.now();
        {
            let mut state = unit.lock();
            let ran = state.ran.iter_mut().rev().find(|ran| ran.worker == end.worker && ran.end_ns.is_none());
            if let Some(ran) = ran {
                (ran.end_ns, ran.outcome) = (Some(now), Some(outcome.outcome.clone()));
            }
        }
        let xids = self.judge(slot, end, outcome, tell);
        self.step(unit, CaseStep::Ended);
        xids
    }

    fn judge(&self, slot: usize, end: &End<'_>, outcome: &mut Outcome, tell: Tell) -> Vec<u64> {
        let unit = self.unit(slot);
        if outcome.verdict == Verdict::Infra {
            return Vec::new();
        }
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
        let own: Vec<u32> = unit.lock().own.values().copied().collect();
        let came = strangers(before, &now, &own);
        let words: Vec<String> = came.iter().map(Process::words).collect();
        (!words.is_empty()).then(|| format!("others came to {} since the run began: {}", unit.label, words.join(", ")))
    }

    /// A case that a device did not survive keeps its own outcome from the
    /// second device on, so that it does not go through all of them.
    fn wedges_again(&self, unit: &Unit, end: &End<'_>, outcome: &Outcome) -> bool {
        let wedged = unit.lock().health.gone().is_some_and(|gone| gone.code == "infra.gpu_wedged");
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
                    let own: Vec<u32> = state.own.values().copied().collect();
                    changes = state.last.as_ref().map(|last| worse(last, &gpu, &own)).unwrap_or_default();
                    state.last = Some(gpu);
                }
                Err(Silent::Lost(why)) => lost = Some(why),
                Err(Silent::Failed(_)) => {}
            }
        }
        let mut state = unit.lock();
        let xids: Vec<u64> =
            state.xids.iter().filter(|seen| seen.at_ns >= end.start_ns).map(|seen| seen.code).collect();
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
        drop(state);
        let say = match &next {
            Next::Retire(gone) => Some(format!("{}: {}", unit.label, gone.reason)),
            Next::Canary(why) if suspected => {
                Some(format!("{}: {why}; suspecting the device, a canary must sing", unit.label))
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
        let xids: Vec<u64> =
            state.xids.iter().filter(|seen| seen.at_ns >= end.start_ns).map(|seen| seen.code).collect();
        drop(state);
        if let (Verdict::Pass, Some(code)) = (outcome.verdict, xids.first()) {
            let note = format!("Xid {code} ({}) came on {} while it ran", xid_facts(*code).words, unit.label);
            outcome.detail = if outcome.detail.is_empty() { note } else { format!("{}\n{note}", outcome.detail) };
        }
        if let ("oom.device", Some(words)) = (outcome.outcome.as_str(), self.robbed(unit)) {
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

    /// Whether there is anything to listen to.
    pub(super) fn listens(&self) -> bool {
        self.plan.nvml.is_some() && self.units.iter().any(|unit| unit.gpu.is_some())
    }

    /// Listens until all slots have left. The body of a thread.
    pub(super) fn listen(&self, tell: Tell) {
        let Some(nvml) = self.nvml() else { return };
        let uuids: Vec<String> = self.units.iter().filter_map(|unit| unit.uuid().map(String::from)).collect();
        let mut looked = Instant::now();
        // After the last slot there is one more silence, for late news.
        let mut last_round = false;
        while !last_round {
            self.listening.store(true, Ordering::SeqCst);
            nvml.listen(&uuids, TICK, &mut |heard| {
                let over = self.active.load(Ordering::SeqCst) == 0;
                let silent = heard == Heard::Nothing;
                self.heard(heard, tell);
                if looked.elapsed() >= LOOK && !over {
                    looked = Instant::now();
                    self.look_around(nvml, tell);
                }
                if silent {
                    self.silences.fetch_add(1, Ordering::SeqCst);
                    last_round = over;
                }
                !last_round
            });
            self.listening.store(false, Ordering::SeqCst);
            let failed = Instant::now();
            while !last_round && failed.elapsed() < AGAIN {
                last_round = self.active.load(Ordering::SeqCst) == 0;
                std::thread::sleep(TICK);
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    self.look_around(nvml, tell);
                }
            }
        }
    }

    fn heard(&self, heard: Heard, tell: Tell) {
        match heard {
            Heard::Nothing => {}
            Heard::Xid { uuid, code } => {
                for unit in self.units.iter().filter(|unit| unit.is(&uuid)) {
                    self.xid(unit, code, tell);
                }
            }
            Heard::Lost { uuid: Some(uuid) } => {
                for unit in self.units.iter().filter(|unit| unit.is(&uuid)) {
                    self.lost(unit, "NVML: the GPU is lost", tell);
                }
            }
            Heard::Lost { uuid: None } => {
                if let Some(nvml) = self.nvml() {
                    self.look_around(nvml, tell);
                }
            }
            Heard::Failed(why) => self.blinded(&why, tell),
        }
    }

    /// NVML failed, which says nothing about the GPUs: canaries remain.
    fn blinded(&self, why: &str, tell: Tell) {
        if !self.blind.swap(true, Ordering::SeqCst) {
            let say = format!("NVML tells no events ({why}): Xids are not seen, failed canaries are");
            let fields = json!({ "event": "blind", "why": why, "t_run_ns": self.now() });
            tell(Event::Record { kind: "health", fields, say: Some(say) });
        }
    }

    fn lost(&self, unit: &Unit, why: &str, tell: Tell) {
        let mut state = unit.lock();
        if state.health.gone().is_some() {
            return;
        }
        state.health.after_loss(why);
        drop(state);
        let fields = json!({
            "event": "lost", "device": unit.label, "gpu_uuid": unit.uuid(), "why": why, "next": "retire",
            "t_run_ns": self.now(),
        });
        let say = Some(format!("{}: {why}; its cases go to the other devices", unit.label));
        tell(Event::Record { kind: "health", fields, say });
    }

    fn xid(&self, unit: &Unit, code: u64, tell: Tell) {
        let now = self.now();
        let facts = xid_facts(code);
        let mut state = unit.lock();
        let (how, cases) = attribute(state.ran.make_contiguous(), now);
        let next = state.health.after_xid(code);
        if state.xids.len() >= KEPT {
            state.xids.pop_front();
        }
        state.xids.push_back(Seen { at_ns: now, code });
        drop(state);
        let passed = |ran: &&Ran| facts.class == XidClass::Application && ran.outcome.as_deref() == Some("pass");
        let fields = json!({
            "device": unit.label, "gpu_uuid": unit.uuid(), "code": code, "class": facts.class, "words": facts.words,
            "outcome": facts.outcome, "attribution": how, "cases": cases.iter().take(NAMED).collect::<Vec<_>>(),
            "cases_in_window": cases.len(),
            "passed": cases.iter().filter(passed).take(NAMED).map(|ran| &ran.case_id).collect::<Vec<_>>(),
            "next": word(&next), "t_run_ns": now,
        });
        let names: Vec<&str> = cases.iter().take(3).map(|ran| ran.case_id.as_str()).collect();
        let more = if cases.len() > 3 { format!(" and {} more", cases.len() - 3) } else { String::new() };
        let whose = match how {
            Attribution::Exact => format!("by {}", names.join(" ")),
            Attribution::Window => format!("by one of {}{more}", names.join(", ")),
            Attribution::Ambiguous => format!("by one of {}{more} (several workers share the GPU)", names.join(", ")),
            Attribution::None => "by no case of this run".into(),
        };
        let say = Some(format!("{}: Xid {code}, {}, {whose}", unit.label, facts.words));
        tell(Event::Record { kind: "xid", fields, say });
    }

    /// Looks at each GPU for what nobody reports: strangers, clocks, ECC errors, loss.
    fn look_around(&self, nvml: &dyn Nvml, tell: Tell) {
        for unit in &self.units {
            let Some(uuid) = unit.uuid() else { continue };
            if unit.lock().health.gone().is_some() {
                continue;
            }
            match nvml.look(uuid) {
                Ok(gpu) => self.changed(unit, gpu, tell),
                Err(Silent::Lost(why)) => self.lost(unit, &format!("NVML: {why}"), tell),
                Err(Silent::Failed(why)) => self.blinded(&why, tell),
            }
        }
    }

    fn changed(&self, unit: &Unit, gpu: Gpu, tell: Tell) {
        let mut state = unit.lock();
        let own: Vec<u32> = state.own.values().copied().collect();
        let Some(last) = state.last.replace(gpu.clone()) else { return };
        let changes = worse(&last, &gpu, &own);
        if changes.is_empty() {
            return;
        }
        let more_errors = gpu.ecc_uncorrected > last.ecc_uncorrected && last.ecc_uncorrected.is_some();
        let now = self.now();
        // Usually an Xid tells of it too, and then it is one doubt, not two.
        let told =
            state.xids.iter().any(|seen| xid_facts(seen.code).outcome.is_some() && seen.at_ns + 3 * WINDOW > now);
        drop(state);
        let loud = more_errors || !strangers(&last, &gpu, &own).is_empty();
        let mut fields = serde_json::to_value(&gpu).unwrap_or_default();
        fields["event"] = "changed".into();
        fields["changes"] = changes.clone().into();
        fields["t_run_ns"] = now.into();
        let say = loud.then(|| format!("{}: {}", unit.label, changes.join(", ")));
        tell(Event::Record { kind: "gpu", fields, say });
        if more_errors && !told {
            self.xid(unit, 48, tell);
        }
    }
}

/// The end of a case as its slot saw it.
pub(super) struct End<'e> {
    pub(super) job: &'e Job,
    pub(super) worker: &'e str,
    pub(super) start_ns: u64,
    pub(super) death: Option<&'e Death>,
    /// The worker lives, but is not to be trusted.
    pub(super) tainted: bool,
}

/// A decision as records have it.
fn word(next: &Next) -> &'static str {
    match next {
        Next::Go => "go",
        Next::Canary(_) => "canary",
        Next::Retire(_) => "retire",
    }
}
