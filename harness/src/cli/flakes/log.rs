//! Events of repeated cases as records and progress. There are many of them and
//! most pass: a pass is recorded with what a replay needs, and no more.

use crate::dispatch::{CaseResult, Event, RunPlan};
use crate::record::RunStore;
use crate::report::Progress;
use crate::verdict::Verdict;
use serde_json::json;

/// The record and the view of a run.
pub(super) struct Log<'a> {
    plan: &'a RunPlan,
    store: &'a mut RunStore,
    pub(super) progress: Progress,
    /// Attempts that were recorded.
    pub(super) attempts: u64,
    /// Codes with which slots refused their device, and why.
    pub(super) refused: Vec<(String, String)>,
}

impl<'a> Log<'a> {
    pub(super) fn new(plan: &'a RunPlan, store: &'a mut RunStore, progress: Progress) -> Self {
        Self { plan, store, progress, attempts: 0, refused: Vec::new() }
    }

    pub(super) fn event(&mut self, event: &Event) {
        if let Some((kind, fields)) = self.plan.record(event) {
            self.store.append(kind, &fields);
        }
        match event {
            Event::Started { slot, case } => self.progress.started(*slot, &case.id),
            Event::Finished(result) => self.attempt(result),
            Event::Ended { slot, worker, farewell, .. } => {
                for (kind, fields) in farewell.records(worker) {
                    self.store.append(kind, &fields);
                }
                self.progress.idle(*slot, "");
            }
            Event::Retired { slot, code, reason } => {
                let label = self.plan.label(*slot);
                self.progress.say(&format!("{label} takes no more cases: {reason}"));
                self.refused.push((code.clone(), reason.clone()));
            }
            _ => {}
        }
    }

    fn attempt(&mut self, result: &CaseResult) {
        self.attempts += 1;
        let outcome = &result.outcome;
        let mut fields = self.plan.attempt(result);
        if outcome.verdict != Verdict::Pass {
            fields["detail"] = json!(outcome.detail);
            fields["phases"] = json!(outcome.phases);
            fields["numerics"] = json!(outcome.numerics);
            fields["death"] = json!(result.death);
        }
        self.store.append("attempt", &fields);
        if result.death.is_some() {
            self.store.sync();
        }
    }
}
