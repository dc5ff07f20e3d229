//! What each slot is at: for the lines of the terminal, and for whoever asks a run what it is busy with.
//!
//! Inputs: what slots tell, and the breadcrumbs of their workers. Output: a line for each slot.

use super::left::TimeLeft;
use crate::crumb::Page;
use crate::escape::escape;
use crate::units::show_time;
use std::sync::Arc;
use std::time::Instant;

/// A worker process of a slot.
pub(crate) struct WorkerSeen {
    pub(crate) id: String,
    pub(crate) pid: u32,
    /// Where it says what it is at.
    pub(crate) page: Arc<Page>,
}

/// What a slot is at.
pub(super) struct SlotState {
    label: String,
    worker: Option<WorkerSeen>,
    /// The case, and when it began.
    case: Option<(String, Instant)>,
    /// What it does without a case.
    idle: String,
}

impl SlotState {
    pub(super) fn new(label: &str) -> Self {
        Self { label: label.into(), worker: None, case: None, idle: "no worker yet".into() }
    }

    pub(super) fn spawned(&mut self, worker: WorkerSeen) {
        self.worker = Some(worker);
        self.idle = "its worker starts".into();
    }

    pub(super) fn started(&mut self, id: &str) {
        self.case = Some((id.into(), Instant::now()));
    }

    pub(super) fn idle(&mut self, what: &str) {
        self.case = None;
        self.idle = what.into();
    }

    /// The worker has ended.
    pub(super) fn ended(&mut self) {
        self.worker = None;
        self.idle("no worker");
    }

    /// What it is at, in a line.
    pub(super) fn text(&self, left: &TimeLeft) -> String {
        let label = &self.label;
        let Some((id, began)) = &self.case else { return format!("  {label}: {}", self.idle) };
        let usual = left.of_case(id).map_or(String::new(), |time| format!(", usually {}", show_time(nanos(time))));
        let mut text = format!("  {label}: {} for {}{usual}", escape(id, ""), show_time(nanos(began.elapsed())));
        if let Some(worker) = &self.worker {
            let crumb = worker.page.case();
            let name = if crumb.name.is_empty() { String::new() } else { format!(" ({})", escape(&crumb.name, "")) };
            let since = show_time(crumb.age_ns);
            text.push_str(&format!(
                "; worker {} (pid {}) in phase {}{name}, last sign of life {since} ago",
                worker.id, worker.pid, crumb.phase
            ));
        }
        text
    }
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
