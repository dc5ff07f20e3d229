//! Devices that are in doubt prove themselves: their next worker runs a small kernel
//! with a known result.

use super::super::Event;
use super::super::health::Next;
use super::{Fleet, Tell};
use crate::proto::CanaryResult;
use serde_json::json;

/// What a worker is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dispatch) enum Canary {
    Plain,
    /// With a wrong result, as a sick GPU would give: a played one is sick.
    Spoilt,
}

impl Fleet<'_> {
    /// Whether the slot's device must prove itself before it takes cases.
    pub(in crate::dispatch) fn unproven(&self, slot: usize) -> bool {
        self.unit(slot).lock().health.unproven().is_some()
    }

    /// The canary that the slot's new worker must run before it takes cases, if it must.
    pub(in crate::dispatch) fn canary_due(&self, slot: usize) -> Option<Canary> {
        let unit = self.unit(slot);
        unit.lock().health.unproven()?;
        let sick = self.nvml().zip(unit.uuid()).is_some_and(|(nvml, uuid)| nvml.spoils_canary(uuid));
        Some(if sick { Canary::Spoilt } else { Canary::Plain })
    }

    /// The slot's new worker ran its canary, or `result` says why it did not end it.
    /// Whether it may take cases.
    pub(in crate::dispatch) fn canary_ended(
        &self,
        slot: usize,
        worker: &str,
        result: &Result<CanaryResult, String>,
        tell: Tell,
    ) -> bool {
        let unit = self.unit(slot);
        let mut state = unit.lock();
        let why = state.health.unproven().unwrap_or_default().to_string();
        let suspected = state.health.suspected() && state.tells_answer();
        let (verdict, detail) = match result {
            Ok(CanaryResult::Right) => ("ok", ""),
            Ok(CanaryResult::Skipped(why)) => ("skipped", why.as_str()),
            Ok(CanaryResult::Wrong(why)) | Err(why) => ("failed", why.as_str()),
        };
        let next = state.health.after_canary(result);
        drop(state);
        let say = match (&next, verdict) {
            (Next::Go, "ok") if suspected => {
                Some(format!("{}: {why}; its canary passes, so the cases are to blame", unit.label))
            }
            (Next::Go, _) => None,
            (Next::Canary(_), _) => {
                Some(format!("{}: the canary failed ({detail}); once more in a new worker", unit.label))
            }
            (Next::Retire(retirement), _) => Some(format!("{}: {}", unit.label, retirement.reason)),
        };
        let fields = json!({
            "event": "canary", "device": unit.label, "gpu_uuid": unit.uuid(), "worker_id": worker, "why": why,
            "canary": verdict, "detail": detail, "next": word(&next), "t_run_ns": self.now(),
        });
        tell(Event::Record { kind: "health", fields, say });
        next == Next::Go
    }
}

/// A decision as records have it.
pub(super) fn word(next: &Next) -> &'static str {
    match next {
        Next::Go => "go",
        Next::Canary(_) => "canary",
        Next::Retire(_) => "retire",
    }
}
