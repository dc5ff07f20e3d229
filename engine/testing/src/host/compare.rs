//! Many kernels at once: compiled, run, compared, counted.

use super::compile::{Build, HostCompiler};
use super::subject::Subject;
use engine::diag::Result;
use std::path::Path;

/// Threads of a launch beyond which a kernel takes too long on a host.
const MOST_THREADS: u64 = 1 << 20;

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
    (threads > MOST_THREADS).then_some("it has too many threads")
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
    let kernels = kernels?;
    let mut compared = Compared { alone: 0, within_blocks: 0, across_blocks: 0, left, wrong: Vec::new() };
    for (index, (position, subject)) in chosen.into_iter().enumerate() {
        match subject.needs {
            needs if needs.is_nothing() => compared.alone += 1,
            needs if needs.grid => compared.across_blocks += 1,
            _ => compared.within_blocks += 1,
        }
        let mut wrong = subject.is_unexpected(&kernels, index)?;
        for seed in 0..subject.draws {
            if wrong.is_none() {
                wrong = subject.differs(&kernels, index, seed)?;
            }
        }
        compared.wrong.extend(wrong.map(|text| (position, text)));
    }
    Ok(compared)
}
