//! Devices that are in doubt prove themselves: their next worker runs a small kernel
//! with a known result.

use super::super::Event;
use super::super::health::Next;
use super::{Fleet, Tell};
use serde_json::json;

impl Fleet<'_> {
    /// Whether the slot's device must prove itself before it takes cases.
    pub(in crate::dispatch) fn unproven(&self, slot: usize) -> bool {
        self.unit(slot).lock().health.unproven().is_some()
    }

    /// Whether the slot's new worker must sing first: then, whether it is to sing wrongly.
    pub(in crate::dispatch) fn audition(&self, slot: usize) -> Option<bool> {
        let unit = self.unit(slot);
        unit.lock().health.unproven()?;
        match (self.nvml(), unit.uuid()) {
            (Some(nvml), Some(uuid)) => Some(nvml.spoils_canary(uuid)),
            _ => Some(false),
        }
    }

    /// The slot's new worker sang, or failed to. Whether it may take cases.
    pub(in crate::dispatch) fn sang(
        &self,
        slot: usize,
        worker: &str,
        result: Result<(Option<bool>, String), String>,
        tell: Tell,
    ) -> bool {
        let unit = self.unit(slot);
        let mut state = unit.lock();
        let why = state.health.unproven().unwrap_or_default().to_string();
        let suspected = state.health.suspected() && state.tells_answer();
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
}

/// A decision as records have it.
pub(super) fn word(next: &Next) -> &'static str {
    match next {
        Next::Go => "go",
        Next::Canary(_) => "canary",
        Next::Retire(_) => "retire",
    }
}
