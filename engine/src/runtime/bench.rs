//! Measuring a kernel on a GPU.

use crate::util::quantile;

/// How to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchOptions {
    /// Runs before measuring.
    pub warmup: u32,
    /// Measured runs.
    pub samples: u32,
    /// Whether the second-level cache is overwritten before each run.
    pub flush_l2: bool,
    /// Whether a plain copy of the same traffic is measured beside each run.
    pub copy_ceiling: bool,
    /// Millionths of a run's time that the device waits behind each run: a slowdown of a known size, for those who try what
    /// judges times. 0 for none.
    pub stretch_ppm: u32,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { warmup: 5, samples: 50, flush_l2: true, copy_ceiling: true, stretch_ppm: 0 }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchReport {
    /// Time of each run of the kernel in nanoseconds, by device events.
    pub kernel_ns: Vec<f64>,
    /// Time of each copy of the same traffic, in the same order; empty if not asked for.
    pub copy_ns: Vec<f64>,
    /// Where runs are stretched, the time of one without the wait beside each.
    pub unstretched_ns: Vec<f64>,
    /// Bytes of the inputs, each element once.
    pub bytes_read: u64,
    /// Bytes of the outputs.
    pub bytes_written: u64,
}

impl BenchReport {
    /// Median time of the kernel in nanoseconds.
    pub fn kernel_median_ns(&self) -> Option<f64> {
        quantile(&self.kernel_ns, 0.5)
    }
    /// Median time of the copy in nanoseconds.
    pub fn copy_median_ns(&self) -> Option<f64> {
        quantile(&self.copy_ns, 0.5)
    }
    /// Bytes moved for each nanosecond, which is GB/s, at the median.
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        Some((self.bytes_read + self.bytes_written) as f64 / self.kernel_median_ns()?)
    }
    /// The kernel's speed as a share of the copy's.
    pub fn share_of_copy(&self) -> Option<f64> {
        Some(self.copy_median_ns()? / self.kernel_median_ns()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_medians() {
        let report = BenchReport {
            kernel_ns: vec![400.0, 100.0, 200.0],
            copy_ns: vec![90.0, 110.0],
            bytes_read: 600,
            bytes_written: 400,
            ..BenchReport::default()
        };
        assert_eq!(report.kernel_median_ns(), Some(200.0));
        assert_eq!(report.gigabytes_per_second(), Some(5.0));
        assert_eq!(report.share_of_copy(), Some(0.5));
        assert_eq!(BenchReport::default().share_of_copy(), None);
    }
}
