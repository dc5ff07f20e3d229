//! Threads that compile and run random programs at once, on the simulator.
//!
//!     threads [THREADS] [COUNT] [SEED]
//!
//! Ends with 1 where texts or results differ between two that did the same.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;
use testing::threads::compile_and_run;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut number = |otherwise: u64| match numbers.next() {
        Some(Ok(number)) => number,
        Some(Err(_)) => 0,
        None => otherwise,
    };
    let (threads, count, seed) = (number(64), number(2_000), number(0));
    if threads == 0 || count == 0 {
        println!("threads [THREADS] [COUNT] [SEED], all numbers, the first two above 0");
        return ExitCode::FAILURE;
    }
    let started = Instant::now();
    let told = compile_and_run(threads as usize, seed, count);
    let wrong = told.wrong.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    wrong.iter().take(10).for_each(|wrong| println!("{wrong}"));
    println!(
        "{} of {count} programs ran in {threads} threads, {} kernels; {} refused alike, {} wrong; {:.1} s",
        told.ran.load(Ordering::Relaxed),
        told.kernels.load(Ordering::Relaxed),
        told.refused.load(Ordering::Relaxed),
        wrong.len(),
        started.elapsed().as_secs_f64()
    );
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
