//! What NVML tells while a run lasts: Xids, lost GPUs, strangers, held clocks.

use super::super::Event;
use super::unit::{SeenXid, Unit};
use super::{Fleet, TICK, Tell, word};
use crate::device::{
    Attribution, Gpu, Nvml, NvmlNews, RanCase, Silent, WINDOW, attribute, strangers, worse, xid_facts,
};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often GPUs are looked at for changes.
const LOOK: Duration = Duration::from_secs(1);
/// Until NVML's events are tried again after they failed.
const AGAIN: Duration = Duration::from_secs(5);
/// Late news are waited for this long after the last slot, where no silence comes:
/// the wait for events of a lost GPU fails for ever.
const LATE: Duration = Duration::from_millis(500);
/// Cases of an Xid that its record names.
const NAMED: usize = 16;

impl Fleet<'_> {
    /// Whether there is anything to listen to.
    pub(in crate::dispatch) fn listens(&self) -> bool {
        self.plan.nvml.is_some() && self.units.iter().any(|unit| unit.gpu.is_some())
    }

    /// Listens until all slots have left. The body of a thread.
    pub(in crate::dispatch) fn listen(&self, tell: Tell) {
        let Some(nvml) = self.nvml() else { return };
        let mut looked = Instant::now();
        // After the last slot there is one more silence, for late news.
        let mut last_round = false;
        let mut over_since = None;
        while !last_round {
            let uuids = self.left();
            let mut lost = false;
            self.listening.store(true, Ordering::SeqCst);
            nvml.listen(&uuids, TICK, &mut |heard| {
                let over = self.active.load(Ordering::SeqCst) == 0;
                let silent = heard == NvmlNews::Nothing;
                lost |= matches!(heard, NvmlNews::Lost { .. });
                self.on_news(heard, tell);
                if looked.elapsed() >= LOOK && !over {
                    looked = Instant::now();
                    self.poll_gpus(nvml, tell);
                }
                if silent {
                    self.silences.fetch_add(1, Ordering::SeqCst);
                }
                let late = over && over_since.get_or_insert_with(Instant::now).elapsed() >= LATE;
                last_round = late || (over && silent);
                !last_round
            });
            self.listening.store(false, Ordering::SeqCst);
            // The others' events are heard again without the one that is lost.
            let pause = if lost { TICK } else { AGAIN };
            let failed = Instant::now();
            while !last_round && failed.elapsed() < pause {
                last_round = self.active.load(Ordering::SeqCst) == 0;
                std::thread::sleep(TICK);
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    self.poll_gpus(nvml, tell);
                }
            }
        }
    }

    /// The GPUs that are not lost.
    fn left(&self) -> Vec<String> {
        let there = self.units.iter().filter(|unit| unit.lock().health.retirement().is_none());
        there.filter_map(|unit| unit.uuid().map(String::from)).collect()
    }

    fn on_news(&self, heard: NvmlNews, tell: Tell) {
        match heard {
            NvmlNews::Nothing => {}
            NvmlNews::Xid { uuid, code } => {
                for unit in self.units.iter().filter(|unit| unit.is(&uuid)) {
                    self.on_xid(unit, code, tell);
                }
            }
            NvmlNews::Lost { uuid: Some(uuid) } => {
                for unit in self.units.iter().filter(|unit| unit.is(&uuid)) {
                    self.on_loss(unit, "NVML: the GPU is lost", tell);
                }
            }
            NvmlNews::Lost { uuid: None } => {
                if let Some(nvml) = self.nvml() {
                    self.poll_gpus(nvml, tell);
                }
            }
            NvmlNews::NoEvents { uuid, why } => {
                for unit in self.units.iter().filter(|unit| unit.is(&uuid)) {
                    self.no_events_of(unit, &why, tell);
                }
            }
            NvmlNews::Failed(why) => self.events_failed(&why, tell),
        }
    }

    /// NVML failed, which says nothing about the GPUs: canaries remain.
    pub(in crate::dispatch) fn events_failed(&self, why: &str, tell: Tell) {
        if !self.events_have_failed.swap(true, Ordering::SeqCst) {
            let say = format!("NVML tells no events ({why}): Xids are not seen, failed canaries are");
            let fields = json!({ "event": "blind", "why": why, "t_run_ns": self.now() });
            tell(Event::Record { kind: "health", fields, say: Some(say) });
        }
    }

    /// The same for one GPU; told once.
    fn no_events_of(&self, unit: &Unit, why: &str, tell: Tell) {
        if !std::mem::replace(&mut unit.lock().without_events, true) {
            let say =
                format!("{}: NVML tells no events of it ({why}): Xids are not seen, failed canaries are", unit.label);
            let fields = json!({
                "event": "blind", "device": unit.label, "gpu_uuid": unit.uuid(), "why": why, "t_run_ns": self.now(),
            });
            tell(Event::Record { kind: "health", fields, say: Some(say) });
        }
    }

    fn on_loss(&self, unit: &Unit, why: &str, tell: Tell) {
        let mut state = unit.lock();
        if state.health.retirement().is_some() {
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

    fn on_xid(&self, unit: &Unit, code: u64, tell: Tell) {
        let now = self.now();
        let facts = xid_facts(code);
        let mut state = unit.lock();
        let (how, cases) = attribute(state.ran.make_contiguous(), now);
        let next = state.health.after_xid(code);
        state.xid(SeenXid { at_ns: now, code });
        drop(state);
        let passed = |ran: &&RanCase| ran.outcome.as_deref() == Some("pass");
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
    fn poll_gpus(&self, nvml: &dyn Nvml, tell: Tell) {
        for unit in &self.units {
            let Some(uuid) = unit.uuid() else { continue };
            if unit.lock().health.retirement().is_some() {
                continue;
            }
            match nvml.look(uuid) {
                Ok(gpu) => self.on_change(unit, gpu, tell),
                Err(Silent::Lost(why)) => self.on_loss(unit, &format!("NVML: {why}"), tell),
                Err(Silent::Failed(why)) => self.events_failed(&why, tell),
            }
        }
    }

    fn on_change(&self, unit: &Unit, gpu: Gpu, tell: Tell) {
        let mut state = unit.lock();
        let own = state.own();
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
            self.on_xid(unit, 48, tell);
        }
    }
}
