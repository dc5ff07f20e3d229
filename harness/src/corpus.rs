//! All cases at once, without running any: does each read, and agree with its
//! sizes, as it says?

use crate::case::Case;
use crate::worker;
use engine::diag::render;
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
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let mut wrong: Vec<(usize, String)> = wrong.into_inner().unwrap_or_else(PoisonError::into_inner);
    wrong.sort();
    wrong.into_iter().map(|(_, text)| text).collect()
}

fn complaint(case: &Case, last: &mut worker::LastRead) -> Option<String> {
    let refused = worker::read(case, last);
    if worker::reads_as_it_says(case, &refused) {
        return None;
    }
    let wanted: Vec<&str> = case.errors.iter().map(|spec| spec.code.as_str()).collect();
    let wanted = if wanted.is_empty() { "no refusal".to_string() } else { wanted.join(", ") };
    let shown: String = refused.iter().map(|error| render(error, &case.file, &case.text, case.line)).collect();
    Some(format!("{} ({}:{}): {wanted} expected\n{shown}", case.id, case.file, case.line))
}
