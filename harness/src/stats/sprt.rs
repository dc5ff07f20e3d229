//! Wald's sequential probability ratio test of a failure rate, and the test with
//! a fixed number of runs that has the same errors, to compare with.

use super::special::beta_cdf;

/// The state of a sequential test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The rate is at most `p0`, as far as `beta` allows.
    Low,
    /// The rate is at least `p1`, as far as `alpha` allows.
    High,
    /// Neither yet.
    Open,
}

/// A test of "the rate is `p0`" against "the rate is `p1`": each run adds to a
/// log-likelihood ratio, and the first bound that is crossed decides. Of cases at
/// `p0`, about `alpha` are called high; of cases at `p1`, about `beta` low.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sprt {
    pub(crate) p0: f64,
    pub(crate) p1: f64,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// What a failure and a pass add.
    failure: f64,
    pass: f64,
    high: f64,
    low: f64,
}

impl Sprt {
    /// None unless `0 < p0 < p1 < 1` and the errors are above 0 and below 1/2.
    pub(crate) fn new(p0: f64, p1: f64, alpha: f64, beta: f64) -> Option<Self> {
        let error = |e: f64| e > 0.0 && e < 0.5;
        if !(p0 > 0.0 && p0 < p1 && p1 < 1.0 && error(alpha) && error(beta)) {
            return None;
        }
        Some(Self {
            p0,
            p1,
            alpha,
            beta,
            failure: (p1 / p0).ln(),
            pass: (-p1).ln_1p() - (-p0).ln_1p(),
            high: ((1.0 - beta) / alpha).ln(),
            low: (beta / (1.0 - alpha)).ln(),
        })
    }

    /// The log-likelihood ratio of these counts.
    pub(crate) fn ratio(&self, failures: u64, passes: u64) -> f64 {
        failures as f64 * self.failure + passes as f64 * self.pass
    }

    /// The decision if these are the counts; a caller stops at the first one.
    pub(crate) fn decide(&self, failures: u64, passes: u64) -> Decision {
        let ratio = self.ratio(failures, passes);
        if ratio >= self.high {
            Decision::High
        } else if ratio <= self.low {
            Decision::Low
        } else {
            Decision::Open
        }
    }

    /// Passes in a row that a case without failure needs to be called low.
    pub(crate) fn straight_passes(&self) -> u64 {
        (self.low / self.pass).ceil() as u64
    }

    /// How many more runs a decision takes, about, if the rate is `p`.
    pub(crate) fn remaining(&self, failures: u64, passes: u64, p: f64) -> f64 {
        let drift = p * self.failure + (1.0 - p) * self.pass;
        let ratio = self.ratio(failures, passes);
        let distance = if drift > 0.0 { self.high - ratio } else { ratio - self.low };
        // Between the two rates the drift vanishes, not the time to leave.
        (distance.max(0.0) / drift.abs().max(self.pass.abs() / 4.0)).max(1.0)
    }
}

/// A test that runs a fixed number of times and calls a case high if more than
/// `allowed` runs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedTest {
    pub(crate) runs: u64,
    pub(crate) allowed: u64,
}

/// The shortest fixed test with at most these errors.
pub(crate) fn fixed_test(sprt: &Sprt) -> FixedTest {
    let mut allowed = 0;
    loop {
        let runs = runs_for(allowed, sprt.p1, sprt.beta);
        if more_than(allowed, runs, sprt.p0) <= sprt.alpha {
            return FixedTest { runs, allowed };
        }
        allowed += 1;
    }
}

/// The fewest runs in which at most `allowed` fail with at most probability `beta`.
fn runs_for(allowed: u64, p: f64, beta: f64) -> u64 {
    let enough = |runs: u64| 1.0 - more_than(allowed, runs, p) <= beta;
    let mut high = allowed + 1;
    while !enough(high) {
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The probability of more than `allowed` failures.
fn more_than(allowed: u64, runs: u64, p: f64) -> f64 {
    if runs <= allowed { 0.0 } else { beta_cdf((allowed + 1) as f64, (runs - allowed) as f64, p) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sprt(p0: f64, p1: f64, alpha: f64, beta: f64) -> Sprt {
        Sprt::new(p0, p1, alpha, beta).expect("a test")
    }

    /// Wald's example of inspecting lots (p0 = 0.1, p1 = 0.3, alpha = 0.02, beta =
    /// 0.03): lots are accepted below -2.58 + 0.186 n failures and rejected above 2.87 + 0.186 n.
    #[test]
    fn the_lines_of_the_published_example() {
        let test = sprt(0.1, 0.3, 0.02, 0.03);
        for runs in 1..200u64 {
            for failures in 0..=runs {
                let (n, k) = (runs as f64, failures as f64);
                let wanted = match () {
                    () if k >= 2.875_33 + 0.186_16 * n => Decision::High,
                    () if k <= -2.582_5 + 0.186_16 * n => Decision::Low,
                    () => Decision::Open,
                };
                let near = |line: f64| (k - line - 0.186_16 * n).abs() < 2e-3;
                if !near(2.875_33) && !near(-2.582_5) {
                    assert_eq!(test.decide(failures, runs - failures), wanted, "{failures} of {runs}");
                }
            }
        }
    }

    #[test]
    fn straight_passes() {
        assert_eq!(sprt(0.001, 0.01, 0.05, 0.05).straight_passes(), 326);
        assert_eq!(sprt(0.001, 0.05, 0.05, 0.05).straight_passes(), 59);
        assert_eq!(sprt(0.001, 0.02, 0.01, 0.05).straight_passes(), 156);
        // One failure costs about 250 passes.
        let test = sprt(0.001, 0.01, 0.05, 0.05);
        assert!((test.ratio(1, 254)).abs() < 0.01, "{}", test.ratio(1, 254));
    }

    #[test]
    fn nonsense_is_refused() {
        for (p0, p1, alpha, beta) in [
            (0.0, 0.1, 0.1, 0.1),
            (0.1, 0.1, 0.1, 0.1),
            (0.1, 1.0, 0.1, 0.1),
            (0.1, 0.2, 0.0, 0.1),
            (0.1, 0.2, 0.1, 0.5),
        ] {
            assert_eq!(Sprt::new(p0, p1, alpha, beta), None);
        }
        assert_eq!(Sprt::new(f64::NAN, 0.1, 0.1, 0.1), None);
    }

    /// The exact errors, by following the distribution of all undecided paths.
    #[test]
    fn errors_are_near_what_was_asked() {
        let test = sprt(0.02, 0.1, 0.05, 0.05);
        for (p, low) in [(0.02, true), (0.1, false)] {
            let mut open = vec![1.0];
            let (mut wrong, mut right) = (0.0, 0.0);
            for runs in 1..4000u64 {
                let mut next = vec![0.0; open.len() + 1];
                for (failures, weight) in open.iter().enumerate() {
                    next[failures] += weight * (1.0 - p);
                    next[failures + 1] += weight * p;
                }
                for (failures, weight) in next.iter_mut().enumerate() {
                    match test.decide(failures as u64, runs.saturating_sub(failures as u64)) {
                        Decision::Open => continue,
                        decision if (decision == Decision::Low) == low => right += *weight,
                        _ => wrong += *weight,
                    }
                    *weight = 0.0;
                }
                open = next;
            }
            assert!(wrong < 0.0527 && wrong > 0.01, "rate {p}: {wrong}");
            assert!(wrong + right > 0.9999, "rate {p}: {right}");
        }
    }

    /// Fixed tests as tables of acceptance sampling give them, by their property:
    /// one run less would miss too much, one allowed failure less would alarm too often.
    #[test]
    fn the_fixed_test_is_the_shortest() {
        let test = sprt(0.001, 0.01, 0.05, 0.05);
        let fixed = fixed_test(&test);
        assert_eq!(fixed, FixedTest { runs: 628, allowed: 2 });
        assert!(1.0 - more_than(2, 627, 0.01) > 0.05 && more_than(1, runs_for(1, 0.01, 0.05), 0.001) > 0.05);
        // Without allowed failures: the runs that see one failure.
        assert_eq!(runs_for(0, 0.01, 0.05), 299);
    }
}
