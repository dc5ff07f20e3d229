//! Measurements of a case: device events on a GPU, exact counters on the simulator.

use super::facts;
use crate::case::{Case, Real};
use crate::outcome::{Digest, Outcome, Perf, Verdict};
use engine::backend::sim::Counters;
use engine::diag::Result;
use engine::fusion::{Fusion, bind_args};
use engine::options::{NoTrace, Phase, Trace};
use engine::program::Program;
use engine::runtime::{Ran, RunOutcome, Session};
use engine::tensor::Arg;
use engine::util::quantile;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

/// Measures a case that has just passed, into its outcome.
pub(super) fn measure(
    case: &Case,
    fusion: &Fusion,
    args: &[Arg],
    session: &Session,
    runs: &[&Ran],
    outcome: &mut Outcome,
) -> Result<()> {
    outcome.code_digest = runs.first().map(|run| code_digest(run.program()));
    let mut perf = Perf { bytes: bytes_moved(case, fusion, args)?, ..Perf::default() };
    if session.is_simulator() {
        if let Some(run) = runs.first().and_then(|run| run.brought()) {
            perf.counters = counters(run);
            perf.samples = 1;
        }
    } else if runs.iter().all(|run| run.program().on_host().next().is_none()) {
        // What the host computes has no time on the device: only facts and summary tell of it.
        #[cfg(not(feature = "planted"))]
        let options = engine::runtime::BenchOptions::default();
        #[cfg(feature = "planted")]
        let options = super::planted_times::options(case);
        let report = session.bench(fusion, args, &options, &NoTrace)?;
        #[cfg(feature = "planted")]
        super::planted_times::tell(case, &options, &report);
        perf.samples = report.kernel_ns.len() as u64;
        perf.median_ns = quantile(&report.kernel_ns, 0.5);
        perf.mean_ns = trimmed_mean(&report.kernel_ns);
        perf.p10_ns = quantile(&report.kernel_ns, 0.1);
        perf.p90_ns = quantile(&report.kernel_ns, 0.9);
        perf.gbps = perf.median_ns.map(|ns| perf.bytes as f64 / ns);
        let copied = (report.bytes_read + report.bytes_written) as f64;
        perf.copy_gbps = quantile(&report.copy_ns, 0.5).map(|ns| copied / ns);
        perf.share = perf.gbps.zip(perf.copy_gbps).map(|(ours, copy)| ours / copy);
        #[cfg(feature = "planted")]
        if super::planted_times::trusts() {
            outcome.perf = Some(perf);
            return Ok(());
        }
        perf.host_us = host_us(fusion, args, session)?;
    }
    let goal = case.perf.as_ref().and_then(|spec| spec.dram).map(Real::get);
    perf.goal_met = goal.zip(perf.share).map(|(goal, share)| share >= goal);
    if perf.goal_met == Some(false) {
        let (share, goal) = (perf.share.unwrap_or_default(), goal.unwrap_or_default());
        outcome.verdict = Verdict::Fail;
        outcome.outcome = "fail.perf_floor".into();
        outcome.detail = format!("{share:.3} of the copy bandwidth, the goal is {goal:.3}");
    }
    outcome.perf = Some(perf);
    Ok(())
}

/// The digest of what is measured, as gates of times need it.
fn code_digest(program: &Program) -> Digest {
    let digest = facts::code_digest(program);
    #[cfg(feature = "planted")]
    let digest = super::planted_times::renamed(digest);
    digest
}

/// The mean without a tenth at either end: where samples lie at two levels the median jumps from one to the other.
pub(super) fn trimmed_mean(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let inner = sorted.get(sorted.len() / 10..sorted.len() - sorted.len() / 10).filter(|inner| !inner.is_empty())?;
    Some(inner.iter().sum::<f64>() / inner.len() as f64)
}

/// Bytes of the named tensors, each as often as it is named, or of all inputs and outputs.
fn bytes_moved(case: &Case, fusion: &Fusion, args: &[Arg]) -> Result<u64> {
    let bindings = bind_args(fusion, args)?;
    let named = case.perf.as_ref().map(|perf| perf.bytes.as_slice()).unwrap_or_default();
    let default = fusion.input_tensors().map(|(_, t)| t).chain(fusion.outputs.iter().copied());
    let tensors: Vec<_> = match named {
        [] => default.collect(),
        names => {
            let named = |name: &String| fusion.tensors.iter().find(|(_, tensor)| tensor.name == *name);
            names.iter().filter_map(named).map(|(id, _)| id).collect()
        }
    };
    let bytes = tensors
        .into_iter()
        .map(|t| bindings.dense_meta(fusion, t).numel().unwrap_or(0) as u64 * fusion.tensors[t].dtype.bytes() as u64);
    Ok(bytes.sum())
}

/// Median host time of a call whose plan is cached and whose tensors are on the
/// device, in microseconds.
fn host_us(fusion: &Fusion, args: &[Arg], session: &Session) -> Result<Option<f64>> {
    const CALLS: u32 = 101;
    let spans = CallTimes::default();
    session.host_calls(fusion, args, CALLS, &spans)?;
    let taken = spans.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).1;
    // The first calls warm the caches that every later call finds warm.
    Ok(quantile(&taken.into_iter().skip(5).collect::<Vec<_>>(), 0.5))
}

/// When the open call began, and the microseconds of each finished one.
#[derive(Default)]
struct CallTimes(Mutex<(Option<Instant>, Vec<f64>)>);

impl Trace for CallTimes {
    fn enter(&self, phase: Phase, name: &str, _id: u64) {
        if phase == Phase::Launch && name == "host call" {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).0 = Some(Instant::now());
        }
    }
    fn exit(&self, phase: Phase) {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if phase == Phase::Launch
            && let Some(start) = state.0.take()
        {
            state.1.push((now - start).as_secs_f64() * 1e6);
        }
    }
}

/// The simulator's counters by name, of all launches; none where nothing was launched.
fn counters(run: &RunOutcome) -> BTreeMap<String, u64> {
    let mut total = BTreeMap::new();
    for report in run.reports.iter().flatten() {
        for (name, value) in of_launch(&report.counters) {
            *total.entry(name.to_string()).or_default() += value;
        }
    }
    total
}

fn of_launch(c: &Counters) -> [(&'static str, u64); 14] {
    [
        ("instructions", c.total_warp_instructions()),
        ("lane_operations", c.total_lane_operations()),
        ("load_sectors", c.load_sectors),
        ("load_sectors_ideal", c.load_sectors_ideal),
        ("store_sectors", c.store_sectors),
        ("store_sectors_ideal", c.store_sectors_ideal),
        ("load_bytes", c.load_bytes),
        ("store_bytes", c.store_bytes),
        ("shared_wavefronts", c.shared_wavefronts),
        ("bank_conflicts", c.bank_conflicts),
        ("block_barriers", c.block_barriers),
        ("grid_barriers", c.grid_barriers),
        ("divergent_branches", c.divergent_branches),
        ("blocks", c.blocks),
    ]
}

/// The simulator's counters, one a line.
pub(super) fn counters_text(run: &RunOutcome) -> String {
    counters(run).iter().map(|(name, value)| format!("  {name:<28} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::trimmed_mean;

    /// Where half of the samples lie at either level the mean is between them, and single ones far away are nothing.
    #[test]
    fn means_are_of_the_inner_samples() {
        let mut samples: Vec<f64> = (0..50).map(|i| if i % 2 == 0 { 100.0 } else { 103.0 }).collect();
        assert_eq!(trimmed_mean(&samples), Some(101.5));
        samples[0] = 1e9;
        assert!(trimmed_mean(&samples).is_some_and(|mean| (mean - 101.5).abs() < 0.1), "{samples:?}");
        assert_eq!((trimmed_mean(&[]), trimmed_mean(&[7.0])), (None, Some(7.0)));
    }
}
