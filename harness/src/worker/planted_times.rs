//! Slowdowns planted into what GPUs measure, to try the gates of times on: only in builds with the feature `planted`, and
//! there only where `PLANTED_TIMES` names a file.
//!
//! Input: its lines. `slow FACTOR CASE` stretches what is measured of a case (see the engine's `timing.rs`); `other` gives the
//! code of all cases another name, since of equal code nothing is told; `trust` leaves the comparison with the
//! reference and the host's times out, so that a measurement costs what measuring does; `tell FILE` names the table to which each
//! stretched measurement adds what was planted, by launches with and without it side by side in one process.

use crate::case::Case;
use crate::outcome::Digest;
use engine::runtime::{BenchOptions, BenchReport};
use engine::util::quantile;
use std::io::Write;

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "PLANTED_TIMES";

/// What stands behind a word that begins lines of the file.
fn lines(word: &str) -> Vec<String> {
    let text = std::env::var_os(VARIABLE).and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    let rest = text.lines().filter_map(|line| line.trim().strip_prefix(word));
    rest.filter(|rest| rest.is_empty() || rest.starts_with(' ')).map(|rest| rest.trim().to_string()).collect()
}

/// How a case is measured.
pub(super) fn options(case: &Case) -> BenchOptions {
    let factor = lines("slow").iter().find_map(|line| {
        let (factor, id) = line.split_once(' ')?;
        factor.parse::<f64>().ok().filter(|_| id.trim() == case.id)
    });
    let stretch_ppm = factor.map_or(0, |factor| ((factor - 1.0) * 1e6).round().clamp(0.0, 1e7) as u32);
    BenchOptions { stretch_ppm, ..BenchOptions::default() }
}

/// The name of a case's code.
pub(super) fn renamed(code: Digest) -> Digest {
    if lines("other").is_empty() { code } else { Digest(!code.0) }
}

/// Whether outputs pass as they are.
pub(super) fn trusts() -> bool {
    !lines("trust").is_empty()
}

/// Adds what was planted to the table: case, wanted share, pairs, share that it became, by the means, and by the median of pairs, mean without the wait.
pub(super) fn tell(case: &Case, options: &BenchOptions, report: &BenchReport) {
    let Some(file) = lines("tell").pop().filter(|_| !report.unstretched_ns.is_empty()) else { return };
    let pairs: Vec<f64> =
        report.kernel_ns.iter().zip(&report.unstretched_ns).map(|(with, plain)| with / plain).collect();
    let median = |values: &[f64]| quantile(values, 0.5).unwrap_or(f64::NAN);
    let mean = |values: &[f64]| super::bench::trimmed_mean(values).unwrap_or(f64::NAN);
    let of_means = mean(&report.kernel_ns) / mean(&report.unstretched_ns);
    let line = format!(
        "\"{}\",{},{},{:.6},{:.6},{:.1}\n",
        case.id,
        f64::from(options.stretch_ppm) / 1e6,
        pairs.len(),
        of_means - 1.0,
        median(&pairs) - 1.0,
        mean(&report.unstretched_ns)
    );
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
}
