//! Events of repeated cases as records and progress. There are many of them and
//! most pass: a pass is recorded with what a replay needs, and no more.

use crate::dispatch::{Event, RunPlan};
use crate::outcome::{CaseResult, Verdict};
use crate::record::RunStore;
use crate::report::{Progress, WorkerSeen};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The record and the view of a run.
pub(super) struct HuntLog<'a> {
    plan: &'a RunPlan,
    store: &'a mut RunStore,
    pub(super) progress: Progress,
    /// Attempts that were recorded.
    pub(super) attempts: u64,
    /// Codes with which slots refused their device, and why.
    pub(super) refused: Vec<(String, String)>,
    /// What people were told: a thousand repeats do the same a thousand times, and
    /// every one is in the record.
    said: BTreeSet<String>,
}

impl<'a> HuntLog<'a> {
    pub(super) fn new(plan: &'a RunPlan, store: &'a mut RunStore, progress: Progress) -> Self {
        Self { plan, store, progress, attempts: 0, refused: Vec::new(), said: BTreeSet::new() }
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Tick => self.progress.tick(),
            Event::Spawned { slot, worker, pid, page } => {
                self.progress.spawned(*slot, WorkerSeen { id: worker.clone(), pid: *pid, page: Arc::clone(page) });
            }
            Event::Started { slot, case } => self.progress.started(*slot, &case.id),
            Event::Finished(result) => self.attempt(result),
            Event::Ended { slot, worker_end, .. } => {
                self.store.shared(worker_end.code.as_ref());
                self.progress.ended(*slot);
            }
            Event::Retired { code, reason, .. } => self.refused.push((code.clone(), reason.clone())),
            _ => {}
        }
        let told = self.plan.tell(event);
        told.records.iter().for_each(|(kind, fields)| self.store.append(kind, fields));
        if told.urgent {
            self.store.sync();
        }
        for line in told.lines {
            if self.said.insert(line.gist) {
                self.progress.say(&line.text);
            }
        }
    }

    fn attempt(&mut self, result: &CaseResult) {
        self.attempts += 1;
        let outcome = &result.outcome;
        let mut fields = self.plan.attempt(result);
        if outcome.verdict != Verdict::Pass {
            fields["detail"] = json!(outcome.detail);
            fields["phases"] = json!(outcome.phases);
            fields["code"] = json!(outcome.code);
            fields["numerics"] = json!(outcome.numerics);
            fields["death"] = json!(result.death);
        }
        self.store.append("attempt", &fields);
    }
}
