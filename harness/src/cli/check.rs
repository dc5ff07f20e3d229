//! `check`: every selected case is read and its sizes are bound, for both kinds
//! of devices, without running anything: is the corpus in order?

use super::args::Args;
use super::{Failure, print, session};
use crate::case::{Case, Target};
use crate::units::show_seconds;
use crate::{exit, worker};
use engine::diag::render;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Failures that are printed.
const SHOWN: usize = 40;
/// Cases that a thread takes at a time.
const BATCH: usize = 32;

pub(super) fn check(args: &Args) -> Result<u8, Failure> {
    let started = Instant::now();
    let loaded = session::load_all(args, Target::Sim)?;
    let files = loaded.files;
    let mut cases = loaded.cases;
    // What is the same on a GPU is checked once.
    let ids: BTreeSet<String> = cases.iter().map(|case| case.id.clone()).collect();
    cases.extend(session::load_all(args, Target::Cuda)?.cases.into_iter().filter(|case| !ids.contains(&case.id)));
    let cases = session::select(args, cases)?;
    let mut wrong = read_all(&cases);
    wrong.sort();
    let mut text: String = wrong.iter().take(SHOWN).map(|(_, text)| text.as_str()).collect();
    let elapsed = started.elapsed().as_nanos() as u64;
    let count = cases.len();
    text.push_str(&format!(
        "{count} cases of {files} files read in {}, {} not as they say\n",
        show_seconds(elapsed),
        wrong.len()
    ));
    print(&text);
    Ok(if wrong.is_empty() { exit::OK } else { exit::FAILED })
}

/// The cases that do not read as they say, with their place in the list.
fn read_all(cases: &[Case]) -> Vec<(usize, String)> {
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let work = || {
        loop {
            let first = next.fetch_add(BATCH, Ordering::Relaxed);
            let Some(batch) = cases.get(first..(first + BATCH).min(cases.len())).filter(|batch| !batch.is_empty())
            else {
                return;
            };
            for (i, case) in batch.iter().enumerate() {
                if let Some(text) = complaint(case) {
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
    wrong.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn complaint(case: &Case) -> Option<String> {
    let refused = worker::read(case);
    if worker::reads_as_it_says(case, &refused) {
        return None;
    }
    let wanted: Vec<&str> = case.errors.iter().map(|spec| spec.code.as_str()).collect();
    let wanted = if wanted.is_empty() { "no refusal".to_string() } else { wanted.join(", ") };
    let shown: String = refused.iter().map(|error| render(error, &case.file, &case.text, case.line)).collect();
    Some(format!("{} ({}:{}): {wanted} expected\n{shown}", case.id, case.file, case.line))
}
