//! Many threads that compile and run random programs at once, on sessions that they share and on
//! fresh ones: whoever compiles, texts and results are the same.

use crate::Draw;
use crate::check::{program_limits, segment_limits};
use crate::fusions::{arguments, generate};
use engine::backend::cuda::print_cuda;
use engine::diag::{DiagnosticKind, Result};
use engine::fusion::Fusion;
use engine::options::{DeviceDesc, NoTrace, Options, SimOptions};
use engine::runtime::Session;
use engine::tensor::Arg;
use engine::util::StableHasher;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often each draw is compiled: by whoever comes next.
const TIMES: u64 = 4;

/// What became of all draws.
#[derive(Debug, Default)]
pub struct Threads {
    /// Programs that were made and run.
    pub ran: AtomicU64,
    /// Kernels in them.
    pub kernels: AtomicU64,
    /// Draws that are no use, or refused by all alike.
    pub refused: AtomicU64,
    /// What differs, crashes or hangs nobody: in words.
    pub wrong: Mutex<Vec<String>>,
}

/// What somebody saw of a draw: hashes of texts and of results, or the refusal.
type Seen = std::result::Result<(u64, u64), String>;

/// Options that threads with the same draws have beside each other.
fn option_sets() -> Vec<Options> {
    let plain = Options::default;
    vec![
        plain(),
        Options { self_check: true, ..plain() },
        Options { force_index64: true, ..plain() },
        Options { fmad: false, ..plain() },
        Options { disabled_passes: ["moves", "casts"].map(String::from).into(), ..plain() },
        Options { line_info: true, ..plain() },
        Options { compile_threads: 1, ..plain() },
    ]
}

fn session(options: &Options) -> Session {
    let sim = SimOptions { threads: 1, count: false, ..SimOptions::default() };
    Session::simulator(DeviceDesc::h200(), sim, options.clone())
}

/// Compiles and runs `count` times, from a seed on.
pub fn compile_and_run(threads: usize, seed: u64, count: u64) -> Threads {
    let (told, next, sets) = (Threads::default(), AtomicU64::new(0), option_sets());
    let shared: Vec<Session> = sets.iter().map(session).collect();
    let seen: Mutex<BTreeMap<u64, (Seen, u64)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let drawn = seed + number / TIMES;
                    let set = (drawn % sets.len() as u64) as usize;
                    let own = number % 2 == 1;
                    let found = if own {
                        run_draw(&session(&sets[set]), drawn, &told)
                    } else {
                        run_draw(&shared[set], drawn, &told)
                    };
                    compare_with_seen(&seen, drawn, found, &told);
                }
            });
        }
    });
    told
}

/// Holds what was seen of a draw against what others saw.
fn compare_with_seen(seen: &Mutex<BTreeMap<u64, (Seen, u64)>>, drawn: u64, found: Seen, told: &Threads) {
    let mut seen = lock(seen);
    let (first, times) = seen.entry(drawn).or_insert_with(|| (found.clone(), 0));
    *times += 1;
    if *first != found {
        lock(&told.wrong).push(format!("draw {drawn}: {first:?} and {found:?}"));
    }
    if *times == TIMES {
        seen.remove(&drawn);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes and runs the program of a draw.
fn run_draw(session: &Session, drawn: u64, told: &Threads) -> Seen {
    let mut draw = Draw::new(drawn);
    let bytes = draw.bytes(24 + drawn as usize % 200);
    let generated = generate(&bytes, &if drawn % 2 == 1 { program_limits() } else { segment_limits() });
    let args = arguments(&generated, &mut draw);
    match run(session, &generated.fusion, &args, told) {
        Ok(hashes) => Ok(hashes),
        Err(error) => {
            told.refused.fetch_add(1, Ordering::Relaxed);
            if error.kind == DiagnosticKind::Bug {
                lock(&told.wrong).push(format!("draw {drawn}: {error}"));
            }
            Err(error.to_string())
        }
    }
}

fn run(session: &Session, fusion: &Fusion, args: &[Arg], told: &Threads) -> Result<(u64, u64)> {
    let run = session.run(fusion, args, &NoTrace)?;
    let (mut texts, mut results) = (StableHasher::new(), StableHasher::new());
    for launch in run.program.launches() {
        print_cuda(launch.plan.kernel()).hash(&mut texts);
        told.kernels.fetch_add(1, Ordering::Relaxed);
    }
    for output in &run.outputs {
        output.meta.hash(&mut results);
        output.data.hash(&mut results);
    }
    told.ran.fetch_add(1, Ordering::Relaxed);
    Ok((texts.finish(), results.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `threads 64 640000` is the same in full.
    #[test]
    fn whoever_compiles_texts_and_results_are_the_same() {
        let told = compile_and_run(16, 1, 2_000);
        assert_eq!(*lock(&told.wrong), Vec::<String>::new());
        let (ran, kernels) = (told.ran.into_inner(), told.kernels.into_inner());
        assert!(ran > 1_500 && kernels > 1_000, "{ran} ran, {kernels} kernels");
    }
}
