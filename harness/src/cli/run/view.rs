//! Turns events into records, progress and counts.

use super::course::Course;
use crate::bless::Blessings;
use crate::cli::broken::Broken;
use crate::cli::counter_gate::CountersCheck;
use crate::cli::timing_gate::TimingCheck;
use crate::dispatch::{Event, RunPlan};
use crate::evidence::Keeper;
use crate::outcome::{CaseResult, CodeFrom, Conclusion, HeldTo, Outcome, PassedBy, Verdict};
use crate::record::{CaseRow, Done, RunStore, SeenClass};
use crate::report::{Help, Progress, Summary, WorkerSeen};
use crate::select::quarantine::Quarantine;
use crate::verified::PassedOutputs;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Instant;

/// Turns events into records, progress and counts.
pub(super) struct RunView<'a> {
    /// Whether expectations are rewritten.
    bless: bool,
    plan: &'a RunPlan,
    store: &'a mut RunStore,
    progress: Progress,
    course: Course,
    keeper: Keeper,
    summary: Summary,
    blessings: Blessings,
    rows: Vec<CaseRow>,
    quarantine: Quarantine,
    /// Cases in quarantine that passed.
    mended: Vec<String>,
    /// How alike the results of cases were that passed, or that are accepted.
    alike: Vec<SeenClass>,
    /// Codes with which slots refused their device.
    refused: Vec<String>,
    retired: Vec<String>,
}

/// What is left when the run is over.
pub(super) struct Closing {
    pub(super) summary: Summary,
    pub(super) course: Course,
    /// Crashes by families, for people.
    pub(super) families: String,
    pub(super) blessings: Blessings,
    pub(super) rows: Vec<CaseRow>,
    pub(super) alike: Vec<SeenClass>,
    /// Outputs that passed against the reference.
    pub(super) verified: BTreeMap<String, PassedOutputs>,
    /// Cases in quarantine that passed.
    pub(super) mended: Vec<String>,
    pub(super) refused: Vec<String>,
    /// Slots that were given up, and why.
    pub(super) retired: Vec<String>,
    /// Earlier failures that were not run again.
    pub(super) outstanding: Vec<String>,
    /// Case files that are left out.
    pub(super) broken: Option<Broken>,
    /// What holds the counters of a bench to those of before.
    pub(super) counters: Option<CountersCheck>,
    /// What holds the times of a bench on a GPU to those of before.
    pub(super) times: Option<TimingCheck>,
}

impl<'a> RunView<'a> {
    pub(super) fn new(
        bless: bool,
        plan: &'a RunPlan,
        store: &'a mut RunStore,
        progress: Progress,
        course: Course,
        keeper: Keeper,
        quarantine: Quarantine,
    ) -> Self {
        let (summary, blessings) = (Summary::default(), Blessings::default());
        Self {
            bless,
            plan,
            store,
            progress,
            course,
            keeper,
            summary,
            blessings,
            rows: Vec::new(),
            quarantine,
            mended: Vec::new(),
            alike: Vec::new(),
            refused: Vec::new(),
            retired: Vec::new(),
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        let begun = Instant::now();
        self.take(event);
        self.course.told(begun.elapsed());
    }

    fn take(&mut self, event: Event) {
        let told = self.plan.tell(&event);
        match event {
            Event::Tick => self.progress.tick(),
            Event::Started { slot, case } => self.progress.started(slot, &case.id),
            Event::Finished(result) => self.finished(&result),
            Event::Concluded(conclusion) => self.concluded(*conclusion),
            Event::Spawned { slot, worker, pid, page } => {
                self.progress.spawned(slot, WorkerSeen { id: worker, pid, page });
            }
            Event::Record { .. } => {}
            Event::Ready { slot, .. } => self.progress.idle(slot, "ready"),
            Event::Ended { slot, worker_end, .. } => {
                self.store.shared(worker_end.code.as_ref());
                self.progress.ended(slot);
            }
            Event::Retired { slot, code, reason } => {
                self.retired.push(format!("{}: {reason}", self.plan.label(slot)));
                self.refused.push(code);
            }
        }
        told.records.iter().for_each(|(kind, fields)| self.store.append(kind, fields));
        if told.urgent {
            self.store.sync();
        }
        told.lines.iter().for_each(|line| self.progress.say(&line.text));
    }

    /// Records an attempt.
    fn finished(&mut self, result: &CaseResult) {
        let outcome = &result.outcome;
        self.course.add(result);
        let kept = self.keeper.attempt(result);
        let mut fields = self.plan.attempt(result);
        let mut more = json!({
            "passed_by": outcome.passed_by(),
            "detail": outcome.detail,
            "phases": outcome.phases,
            "code": outcome.code,
            "facts": outcome.facts,
            "kernel_crc": outcome.kernel_crc.map(|crc| format!("{crc:08x}")),
            "code_digest": outcome.code_digest,
            "out_digest": outcome.out_digest,
            "variation": outcome.variation,
            "cuda_error": outcome.cuda_error,
            "numerics": outcome.numerics,
            "perf": outcome.perf,
            "death": result.death,
            "bucket": kept.bucket.as_ref().map(|bucket| &bucket.leaf),
            "family": kept.bucket.as_ref().map(|bucket| &bucket.family),
            "evidence": kept.folder,
            "stdout_bytes": result.output.stdout.total,
            "stderr_bytes": result.output.stderr.total,
            "output_cut": result.output.stdout.cut() + result.output.stderr.cut() > 0,
        });
        if let (Some(all), Some(more)) = (fields.as_object_mut(), more.as_object_mut()) {
            all.append(more);
        }
        self.store.append("attempt", &fields);
        if let (Verdict::Pass, Some(variation)) = (outcome.verdict, &outcome.variation) {
            let (case_id, class, kernel_crc) = (result.case.id.clone(), variation.class, outcome.kernel_crc);
            self.alike.push(SeenClass { case_id, class, kernel_crc });
        }
        self.progress.attempted(result);
    }

    /// Records a verdict.
    pub(super) fn concluded(&mut self, conclusion: Conclusion) {
        let Conclusion { case, verdict, outcomes, failures, result } = &conclusion;
        let failed = verdict.is_failure() || *verdict == Verdict::Flaky;
        let written = match failed && *verdict != Verdict::Infra {
            true => self.store.write_case(case, &result.outcome),
            false => None,
        };
        if self.bless {
            self.blessings.add(case, &result.outcome);
        }
        // The attempt that stands for the case, if one of this run does.
        let own = !result.worker.is_empty() && result.carried_from.is_none();
        let fields = json!({
            "case_id": case.id,
            "verdict": verdict,
            "outcome": result.outcome.outcome,
            "passed_by": conclusion.passed_by().map(PassedBy::name),
            "held_to": result.outcome.held_to,
            "worker_id": own.then_some(&result.worker),
            "position": result.position,
            "attempts": outcomes.len(),
            "failures": failures,
            "outcomes": if outcomes.len() > 1 { outcomes.as_slice() } else { &[] },
            "case_file": written,
        });
        self.store.append("verdict", &fields);
        if *verdict == Verdict::Pass && self.quarantine.entry(&case.id).is_some() {
            self.mended.push(case.id.clone());
        }
        let help = self.keeper.conclude(&conclusion);
        let passed_by = conclusion.passed_by().map(PassedBy::name);
        self.summary.add(&conclusion, written, help, passed_by);
        self.progress.concluded(&conclusion);
        if conclusion.result.slot.is_some() || conclusion.result.carried_from.is_some() {
            self.rows.push(row(&conclusion, self.plan));
        }
    }

    /// Records a verdict that the run goes on from.
    pub(super) fn carried(&mut self, conclusion: Conclusion, done: &Done) {
        let fields = json!({
            "case_id": conclusion.case.id,
            "verdict": conclusion.verdict,
            "outcome": done.outcome,
            "passed_by": done.passed_by,
            "detail": done.detail,
            "attempts": done.outcomes.len(),
            "failures": done.failures,
            "outcomes": done.outcomes,
            "dur_ns": done.dur_ns,
            "carried_from": done.run,
        });
        self.store.append("verdict", &fields);
        self.summary.add(&conclusion, None, Help::default(), done.passed_by.as_deref());
        self.progress.carried(&conclusion);
    }

    pub(super) fn close(mut self) -> Closing {
        self.progress.close();
        let families = self.keeper.close();
        if let Some(error) = &self.keeper.error {
            self.store.fail("evidence", error);
        }
        Closing {
            summary: self.summary,
            course: self.course,
            families,
            blessings: self.blessings,
            rows: self.rows,
            alike: self.alike,
            verified: learnt(self.plan),
            mended: self.mended,
            refused: self.refused,
            retired: self.retired,
            outstanding: Vec::new(),
            broken: None,
            counters: None,
            times: None,
        }
    }
}

/// Outputs that passed against the reference in this run.
fn learnt(plan: &RunPlan) -> BTreeMap<String, PassedOutputs> {
    plan.verified.as_ref().map(|verified| verified.learnt()).unwrap_or_default()
}

fn row(conclusion: &Conclusion, plan: &RunPlan) -> CaseRow {
    let result = &conclusion.result;
    let Outcome { outcome, perf, phases, code, held_to, kernel_crc, code_digest, .. } = &result.outcome;
    CaseRow {
        case_id: conclusion.case.id.clone(),
        verdict: conclusion.verdict,
        outcome: if conclusion.verdict == Verdict::Flaky { format!("flaky.{outcome}") } else { outcome.clone() },
        dur_ns: result.dur_ns,
        perf: perf.clone(),
        phases: phases.clone(),
        cached: *code == Some(CodeFrom::Cached),
        held_to_digest: *held_to == Some(HeldTo::Digest),
        kernel_crc: *kernel_crc,
        code_digest: *code_digest,
        gpu: result.slot.and_then(|slot| plan.uuid(slot)).unwrap_or_default().into(),
    }
}
