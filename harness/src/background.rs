//! Cases run in the background, for a test runner in front: it asks for the
//! verdict of one case after the other while worker processes run ahead.

use crate::bless::Blessings;
use crate::case::Case;
use crate::dispatch::{self, Event, Queue, Retries, RunPlan, RunPolicy, SlotSpec};
use crate::outcome::{CaseResult, Verdict};
use crate::proto::DeviceSpec;
use crate::report::repro;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Cases that run.
pub struct Started {
    /// The verdicts to come, by id.
    pub pending: BTreeMap<String, Pending>,
    blessings: Arc<Mutex<Blessings>>,
}

impl Started {
    /// Rewrites what the cases expect of generated code, where that was asked for;
    /// returns what was done, in words. For when all verdicts have come.
    pub fn bless(&self) -> Vec<String> {
        self.blessings.lock().unwrap_or_else(std::sync::PoisonError::into_inner).apply()
    }
}

/// The verdict of one case, to be had once.
pub struct Pending(Mutex<Receiver<CaseResult>>);

/// How a case ended, for a test runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Passed.
    Passed,
    /// Skipped, or failed as declared, with the reason.
    Skipped(String),
    /// Anything else, with the reason and the command that repeats it.
    Failed(String),
}

impl Pending {
    /// Waits for the verdict.
    pub fn wait(&self) -> Conclusion {
        let receiver = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Ok(result) = receiver.recv() else {
            return Conclusion::Failed("the dispatcher ended without a verdict".into());
        };
        let outcome = result.outcome;
        match outcome.verdict {
            Verdict::Pass => Conclusion::Passed,
            Verdict::Skip => Conclusion::Skipped(outcome.detail),
            _ => {
                let again = repro("run", &result.case.id, " --sim 1");
                Conclusion::Failed(format!(
                    "{} at {}:{}\n{}\nagain: {again}",
                    outcome.outcome, result.case.file, result.case.line, outcome.detail
                ))
            }
        }
    }
}

/// Starts running cases on `workers` simulated devices, each in a process that
/// runs `exe`, the harness. Private files go below `work_dir`. Returns the
/// verdicts to come. With `bless`, what the cases expect can be rewritten after.
pub fn start(cases: Vec<Case>, exe: &Path, workers: usize, work_dir: &Path, bless: bool) -> Started {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) / workers.max(1);
    let slot = |ordinal| SlotSpec {
        gpu: None,
        device: DeviceSpec::Sim { ordinal, threads: threads.max(1) as u32 },
        label: format!("sim{ordinal}"),
        env: Vec::new(),
    };
    let slots = (0..workers.max(1)).map(slot).collect();
    let plan = RunPlan {
        default_timeout: Duration::from_secs(120),
        bless,
        ..RunPlan::plain(slots, exe.to_path_buf(), work_dir.to_path_buf())
    };
    let mut senders = BTreeMap::new();
    let mut pending = BTreeMap::new();
    let cases: Vec<Arc<Case>> = cases.into_iter().map(Arc::new).collect();
    for case in &cases {
        let (sender, receiver) = channel();
        senders.insert(case.id.clone(), sender);
        pending.insert(case.id.clone(), Pending(Mutex::new(receiver)));
    }
    // A test that passes only when it is repeated has not passed.
    let policy = RunPolicy {
        seed: 0,
        retries: Retries::NONE,
        retried_cases: 0,
        fail_fast: None,
        deadline: None,
        today: crate::record::today(),
        quarantine: Default::default(),
        slots: Vec::new(),
        learnt: BTreeMap::new(),
        tried: BTreeMap::new(),
        known: BTreeMap::new(),
        devices: plan.slots.iter().map(|slot| slot.label.clone()).collect(),
    };
    let queue = Queue::new(&cases, policy);
    let blessings = Arc::new(Mutex::new(Blessings::default()));
    let own = blessings.clone();
    std::thread::spawn(move || {
        dispatch::run(&plan, &queue, &mut |event| {
            let Event::Concluded(conclusion) = event else { return };
            if bless {
                let mut own = own.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                own.add(&conclusion.case, &conclusion.result.outcome);
            }
            if let Some(sender) = senders.remove(&conclusion.case.id) {
                let _ = sender.send(conclusion.result);
            }
        });
        let _ = std::fs::remove_dir_all(&plan.work_dir);
    });
    Started { pending, blessings }
}
