//! Many kernels at once: compiled, run, compared, counted.

use super::compile::{Build, HostCompiler, HostKernels};
use super::subject::Subject;
use engine::diag::Result;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Threads of a launch, and elements of its memory, beyond which a kernel takes
/// too long on a host.
const MOST_THREADS: u64 = 1 << 20;
const MOST_ELEMENTS: u64 = 1 << 22;

/// What came of comparing kernels.
pub struct Compared {
    /// The kernels by what their threads do together: with themselves alone, within a block, across blocks.
    pub alone: usize,
    /// See `alone`.
    pub within_blocks: usize,
    /// See `alone`.
    pub across_blocks: usize,
    /// Kernels that were not compared, with the reason.
    pub left: Vec<(String, &'static str)>,
    /// Of those that differ the position and what is wrong.
    pub wrong: Vec<(usize, String)>,
}

impl Compared {
    /// The kernels that were compared.
    pub fn count(&self) -> usize {
        self.alone + self.within_blocks + self.across_blocks
    }

    /// The count in words.
    pub fn summary(&self) -> String {
        let all = self.count() + self.left.len();
        let share = |n: usize| n as f64 * 100.0 / all.max(1) as f64;
        let mut text = format!(
            "{} of {all} kernels compared, {:.1} %: {} of threads by themselves ({:.1} %), {} within blocks, {} across blocks",
            self.count(),
            share(self.count()),
            self.alone,
            share(self.alone),
            self.within_blocks,
            self.across_blocks
        );
        for (name, reason) in &self.left {
            text.push_str(&format!("; not {name}: {reason}"));
        }
        text
    }
}

/// Why a kernel does not run on a host.
fn refusal(subject: &Subject) -> Option<&'static str> {
    if subject.needs.barrier {
        return Some("all of its blocks wait for each other");
    }
    let threads = subject.launch.blocks().saturating_mul(subject.launch.threads().into());
    let elements = subject.launch.buffer_lens.values().fold(0, |sum: u64, len| sum.saturating_add(*len));
    (threads > MOST_THREADS || elements > MOST_ELEMENTS).then_some("it is too large")
}

/// Runs kernel number `index` on its own arguments and on random ones; a text
/// says what is wrong.
fn judge(subject: &Subject, kernels: &HostKernels, index: usize) -> Result<Option<String>> {
    let mut wrong = subject.is_unexpected(kernels, index)?;
    for seed in 0..subject.draws {
        if wrong.is_none() {
            wrong = subject.differs(kernels, index, seed)?;
        }
    }
    Ok(wrong)
}

/// Judges all on as many threads: while one runs a text, others simulate.
fn judge_all(chosen: &[(usize, &Subject)], kernels: &HostKernels, jobs: usize) -> Result<Vec<(usize, String)>> {
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((position, subject)) = chosen.get(index) else { return };
            let judged = judge(subject, kernels, index);
            told.lock().unwrap_or_else(PoisonError::into_inner).push((*position, judged));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let mut told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    told.sort_by_key(|(position, _)| *position);
    let wrong = told.into_iter().filter_map(|(position, judged)| match judged {
        Ok(wrong) => wrong.map(|text| Ok((position, text))),
        Err(error) => Some(Err(error)),
    });
    wrong.collect()
}

/// Compiles kernels in a folder, which is removed again, and runs each on its
/// own arguments and on random ones.
pub fn compare(compiler: &HostCompiler, subjects: &[Subject], dir: &Path, build: Build) -> Result<Compared> {
    let refused = |subject: &Subject| refusal(subject).map(|reason| (subject.name.clone(), reason));
    let left: Vec<_> = subjects.iter().filter_map(refused).collect();
    let chosen: Vec<(usize, &Subject)> = subjects.iter().enumerate().filter(|(_, s)| refusal(s).is_none()).collect();
    let sources: Vec<_> = chosen.iter().map(|(_, subject)| subject.source.clone()).collect();
    let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernels = compiler.compile(&sources, dir, build, jobs);
    let _ = std::fs::remove_dir_all(dir);
    let count = |is: &dyn Fn(&Subject) -> bool| chosen.iter().filter(|(_, subject)| is(subject)).count();
    let alone = count(&|subject| subject.needs.is_nothing());
    let across_blocks = count(&|subject| subject.needs.grid);
    let within_blocks = chosen.len() - alone - across_blocks;
    let wrong = judge_all(&chosen, &kernels?, jobs)?;
    Ok(Compared { alone, within_blocks, across_blocks, left, wrong })
}
