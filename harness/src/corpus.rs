//! All cases at once, without running any: does each read, and agree with its
//! sizes, as it says? Which kernels do they compile to?

use crate::case::Case;
use crate::worker;
use engine::compile::Plan;
use engine::diag::render;
use engine::kernel::BoundLaunch;
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::program::Program;
use engine::runtime::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Cases that a thread takes at a time.
const BATCH: usize = 32;

/// The cases that do not read as they say, in their order, in words. Nothing is
/// evaluated: refusals of evaluation, scheduling and launch are left to a run.
pub fn complaints(cases: &[Case]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        let mut last = worker::LastRead::default();
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = cases.get(first..(first + BATCH).min(cases.len())).filter(|batch| !batch.is_empty())
            else {
                return;
            };
            for (i, case) in batch.iter().enumerate() {
                if let Some(text) = complaint(case, &mut last) {
                    wrong.lock().unwrap_or_else(PoisonError::into_inner).push((first + i, text));
                }
            }
        }
    };
    on_all_threads(work);
    let mut wrong: Vec<(usize, String)> = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort();
    wrong.into_iter().map(|(_, text)| text).collect()
}

/// A kernel with the first case that compiles to it.
pub struct CaseKernel {
    /// The case.
    pub id: String,
    /// The case's plan for an H200.
    pub plan: Arc<Plan>,
    /// How the case launches it.
    pub launch: BoundLaunch,
    /// The case's place among all, its program, and the place of the launch in that.
    case: usize,
    program: Arc<Program>,
    step: usize,
}

/// The distinct kernels that cases compile to, in the order of the cases; those
/// that do not compile are left out.
pub fn kernels(cases: &[Case]) -> Vec<CaseKernel> {
    let next = AtomicUsize::new(0);
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let found: Mutex<BTreeMap<u128, CaseKernel>> = Mutex::default();
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(i) else { return };
            let Ok(program) = worker::program(case, &session) else { continue };
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            for (step, launch) in program.launches().enumerate() {
                let hash = launch.plan.kernel_hash().0;
                if found.get(&hash).is_none_or(|first| i < first.case) {
                    let (id, plan, launch) = (case.id.clone(), launch.plan.clone(), launch.launch.clone());
                    found.insert(hash, CaseKernel { id, plan, launch, case: i, program: program.clone(), step });
                }
            }
        }
    };
    on_all_threads(work);
    let mut found: Vec<_> = found.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect();
    found.sort_by_key(|kernel| (kernel.case, kernel.step));
    found
}

/// What became of kernels that were made again by the text of their schedules.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Kernels that are the same.
    pub same: usize,
    /// Those that are others, or refused, in words.
    pub other: Vec<String>,
}

/// Makes each of some [`kernels`] of these cases again by the text of its schedule. Left out are those that
/// read what another segment of their case computes, or write into a part of a tensor.
pub fn replayed(cases: &[Case], kernels: &[CaseKernel]) -> Replayed {
    let next = AtomicUsize::new(0);
    let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Options::default());
    let found = Mutex::new(Replayed::default());
    let work = || {
        while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (case, Some(launch)) = (&cases[kernel.case], kernel.program.launches().nth(kernel.step)) else {
                continue;
            };
            let made = worker::is_made_again(case, &session, &kernel.program, launch);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            match made {
                None => {}
                Some(Ok(true)) => found.same += 1,
                Some(Ok(false)) => found.other.push(format!("{}: another kernel", case.id)),
                Some(Err(error)) => found.other.push(format!("{}: {error}", case.id)),
            }
        }
    };
    on_all_threads(work);
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn on_all_threads(work: impl Fn() + Sync) {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

fn complaint(case: &Case, last: &mut worker::LastRead) -> Option<String> {
    let refused = worker::read(case, last);
    if worker::reads_as_it_says(case, &refused) {
        return None;
    }
    let wanted: Vec<&str> = case.refusals().iter().map(|spec| spec.code.as_str()).collect();
    let wanted = if wanted.is_empty() { "no refusal".to_string() } else { wanted.join(", ") };
    let shown: String = refused.iter().map(|error| render(error, &case.file, &case.text, case.line)).collect();
    Some(format!("{} ({}:{}): {wanted} expected\n{shown}", case.id, case.file, case.line))
}
