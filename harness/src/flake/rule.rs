//! When a case has been repeated often enough, and what it is then.
//!
//! The rule is Wald's sequential test of "fails in at most `p0` of runs" against
//! "in at least `p1`", with two additions: a case that is called flaky is
//! repeated on until its rate is known well enough, and one that never passes is
//! called broken.
//!
//! The defaults are not the usual 5 % for both errors. Out of 100 cases at `p1`,
//! 5 would be missed, and out of 100 that fail once in a thousand runs, 5 would
//! be called flaky: one alarm too many for every 20 cases of a machine that is
//! itself not perfect. So an alarm needs evidence of 10,000 to 1, and a case at
//! `p1` is missed in 2 of 100 hunts. A clean case pays 433 passes instead of 326.

use crate::stats::{Decision, FixedTest, Interval, Sprt, at_least_bound, clopper_pearson, fixed_test, upper_bound};
use std::ops::AddAssign;

/// What a hunt comes to for a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finding {
    /// Fails less often than the bound.
    Clean,
    /// Fails at least as often as the bound, and passes too.
    Flaky,
    /// Fails each time.
    Broken,
    /// The budget was over before a decision.
    Undecided,
}

impl Finding {
    /// The stable name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Finding::Clean => "clean",
            Finding::Flaky => "flaky",
            Finding::Broken => "broken",
            Finding::Undecided => "undecided",
        }
    }
}

/// Failures and passes of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) failures: u64,
    pub(crate) passes: u64,
}

impl Tally {
    pub(crate) fn runs(self) -> u64 {
        self.failures + self.passes
    }
    pub(crate) fn add(&mut self, failed: bool) {
        match failed {
            true => self.failures += 1,
            false => self.passes += 1,
        }
    }
    /// For tests of tables.
    pub(crate) fn count(self) -> (u64, u64) {
        (self.failures, self.runs())
    }
    pub(crate) fn rate(self) -> f64 {
        if self.runs() == 0 { 0.0 } else { self.failures as f64 / self.runs() as f64 }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.failures += more.failures;
        self.passes += more.passes;
    }
}

/// The rule with its bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) sprt: Sprt,
    /// Of the claims that are printed, for example 0.95.
    pub(crate) confidence: f64,
    /// The test with a fixed number of runs and the same errors.
    pub(crate) fixed: FixedTest,
}

/// The rate that is no flake: once in a thousand runs.
const P0: f64 = 0.001;
/// The rate that must be found, unless the user says otherwise.
const P1: f64 = 0.01;
/// Cases at `P0` that are called flaky.
const ALPHA: f64 = 1e-4;
/// Cases at `P1` that are missed.
const BETA: f64 = 0.02;
/// Straight failures after which a case is broken: its rate is above 74 % then, at 95 %.
const BROKEN: u64 = 10;
/// Failures after which a rate is known well enough: its interval reaches from
/// about 0.6 to 1.5 times the rate.
const ENOUGH_FAILURES: u64 = 20;

impl Default for Rule {
    fn default() -> Self {
        Self::new(Sprt::new(P0, P1, ALPHA, BETA).expect("the defaults are in range"), 0.95)
    }
}

impl Rule {
    fn new(sprt: Sprt, confidence: f64) -> Self {
        Self { sprt, confidence, fixed: fixed_test(&sprt) }
    }

    /// A case that fails in `bound` of its runs is found in `confidence` of all
    /// hunts. None if one of them is out of range.
    pub(crate) fn with_bound(bound: f64, confidence: f64) -> Option<Self> {
        let in_range = (0.0001..=0.5).contains(&bound) && (0.5..=0.9999).contains(&confidence);
        let sprt = in_range.then(|| Sprt::new(bound / 10.0, bound, ALPHA, 1.0 - confidence.min(0.9999)))??;
        Some(Self::new(sprt, confidence))
    }

    /// What the counts say; none while the case must be repeated for a decision.
    pub(crate) fn decide(&self, tally: Tally) -> Option<Finding> {
        match self.sprt.decide(tally.failures, tally.passes) {
            Decision::Low => Some(Finding::Clean),
            Decision::High if tally.passes > 0 => Some(Finding::Flaky),
            Decision::High if tally.failures >= BROKEN => Some(Finding::Broken),
            _ => None,
        }
    }

    /// Whether a flaky case's rate is known well enough.
    pub(crate) fn is_tight(&self, tally: Tally) -> bool {
        tally.failures >= ENOUGH_FAILURES || tally.runs() >= 2 * self.fixed.runs
    }

    /// Runs that the case still needs, about: to a decision, or to a known rate.
    pub(crate) fn remaining(&self, tally: Tally, decided: bool) -> f64 {
        if decided {
            let missing = ENOUGH_FAILURES.saturating_sub(tally.failures) as f64;
            return (missing / tally.rate().max(self.sprt.p0)).max(1.0);
        }
        self.sprt.remaining(tally.failures, tally.passes, tally.rate())
    }

    /// The exact interval of the rate.
    pub(crate) fn interval(&self, tally: Tally) -> Interval {
        clopper_pearson(tally.failures, tally.runs(), self.confidence)
    }

    /// The finding in words: `clean: rate < 0.9 % at 95 %`.
    pub(crate) fn words(&self, finding: Finding, tally: Tally) -> String {
        let (failures, runs, level) = (tally.failures, tally.runs(), 100.0 * self.confidence);
        let below =
            || format!("rate < {} at {level:.0} %", percent_above(upper_bound(failures, runs, self.confidence)));
        let seen = if failures == 0 { String::new() } else { format!(" ({failures} of {runs} failed)") };
        match finding {
            Finding::Clean => format!("clean: {}{seen}", below()),
            Finding::Flaky => {
                let Interval { low, high } = self.interval(tally);
                format!("flaky {} [{}, {}]", percent(tally.rate()), number(100.0 * low), number(100.0 * high))
            }
            Finding::Broken => {
                let low = at_least_bound(failures, runs, self.confidence);
                format!("broken: {failures} of {runs} failed, rate > {} at {level:.0} %", percent_below(low))
            }
            Finding::Undecided if runs == 0 => "undecided: never run".into(),
            Finding::Undecided => format!("undecided: {failures} of {runs} failed, {}", below()),
        }
    }
}

/// `3.1 %`.
pub(crate) fn percent(rate: f64) -> String {
    format!("{} %", number(100.0 * rate))
}

/// The same, at least the rate: for a bound above it.
pub(crate) fn percent_above(rate: f64) -> String {
    format!("{} %", rounded(100.0 * rate, f64::ceil))
}

/// The same, at most the rate: for a bound below it.
fn percent_below(rate: f64) -> String {
    format!("{} %", rounded(100.0 * rate, f64::floor))
}

/// Two figures are enough for a rate: `0.92`, `3.1`, `47`; so are two of what is
/// missing from all, `99.87`. Only 0 is `0`, only 100 is `100`.
pub(crate) fn number(percent: f64) -> String {
    rounded(percent, f64::round)
}

fn rounded(percent: f64, round: fn(f64) -> f64) -> String {
    let two_of = |part: f64| (1.0 - part.log10().floor()).clamp(2.0, 15.0) as usize;
    let digits = match percent {
        p if p <= 0.0 || p >= 100.0 => 0,
        p if p >= 99.5 => two_of(100.0 - p),
        p if p >= 9.95 => 0,
        p if p >= 0.995 => 1,
        p => two_of(p),
    };
    let scale = 10f64.powi(digits as i32);
    // What is a figure of that length already is not moved by the last bit of its product.
    let (scaled, near) = (percent * scale, (percent * scale).round());
    let whole = if (scaled - near).abs() < 1e-9 * near.max(1.0) { near } else { round(scaled) };
    let text = format!("{:.digits$}", whole / scale);
    match digits {
        3.. => text.trim_end_matches('0').trim_end_matches('.').into(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(failures: u64, passes: u64) -> Tally {
        Tally { failures, passes }
    }

    #[test]
    fn decisions() {
        let rule = Rule::default();
        assert_eq!(rule.decide(tally(0, 432)), None);
        assert_eq!(rule.decide(tally(0, 433)), Some(Finding::Clean));
        assert_eq!(rule.decide(tally(4, 30)), None);
        assert_eq!(rule.decide(tally(4, 1)), Some(Finding::Flaky));
        assert_eq!(rule.decide(tally(4, 0)), None);
        assert_eq!(rule.decide(tally(9, 0)), None);
        assert_eq!(rule.decide(tally(10, 0)), Some(Finding::Broken));
        assert_eq!(rule.decide(tally(10, 1)), Some(Finding::Flaky));
        assert!(rule.is_tight(tally(20, 600)) && !rule.is_tight(tally(19, 600)));
    }

    /// Exactly, by following the distribution of all undecided counts: 2.0 of 100
    /// cases at the bound are missed, and 5 of 100,000 at `p0` are called flaky.
    #[test]
    fn errors_of_the_default() {
        let rule = Rule::default();
        let high = |p: f64| {
            let mut open = vec![1.0];
            let mut high = 0.0;
            for runs in 1..6000u64 {
                let mut next = vec![0.0; (open.len() + 1).min(40)];
                for (failures, weight) in open.iter().enumerate() {
                    next[failures] += weight * (1.0 - p);
                    if let Some(more) = next.get_mut(failures + 1) {
                        *more += weight * p;
                    }
                }
                for (failures, weight) in next.iter_mut().enumerate() {
                    let failures = failures as u64;
                    match rule.sprt.decide(failures, runs.saturating_sub(failures)) {
                        Decision::Open => continue,
                        Decision::High => high += *weight,
                        Decision::Low => {}
                    }
                    *weight = 0.0;
                }
                open = next;
            }
            high
        };
        let (found, accused) = (high(rule.sprt.p1), high(rule.sprt.p0));
        assert!((0.9800..0.9810).contains(&found), "{found}");
        assert!(accused < 5e-5, "{accused}");
    }

    #[test]
    fn words_say_rate_and_level() {
        let rule = Rule::default();
        let cases = [
            (Finding::Clean, tally(0, 326), "clean: rate < 0.92 % at 95 %"),
            (Finding::Clean, tally(1, 689), "clean: rate < 0.69 % at 95 % (1 of 690 failed)"),
            (Finding::Flaky, tally(20, 625), "flaky 3.1 % [1.9, 4.7]"),
            // A claim is never better than its bound, and never certain.
            (Finding::Clean, tally(0, 100_000), "clean: rate < 0.003 % at 95 %"),
            (Finding::Broken, tally(10, 0), "broken: 10 of 10 failed, rate > 74 % at 95 %"),
            (Finding::Undecided, tally(0, 0), "undecided: never run"),
            (Finding::Undecided, tally(1, 28), "undecided: 1 of 29 failed, rate < 16 % at 95 %"),
        ];
        for (finding, tally, words) in cases {
            assert_eq!(rule.words(finding, tally), words);
        }
    }

    #[test]
    fn two_figures_at_both_ends() {
        let cases = [
            (0.0, "0"),
            (0.0029957, "0.003"),
            (0.0042, "0.0042"),
            (0.05, "0.05"),
            (0.5, "0.50"),
            (0.917, "0.92"),
            (3.12, "3.1"),
            (47.2, "47"),
            (99.4, "99"),
            (99.5, "99.50"),
            (99.87, "99.87"),
            (99.9997, "99.9997"),
            (100.0, "100"),
        ];
        for (percent, text) in cases {
            assert_eq!(number(percent), text, "{percent}");
        }
        for (rate, above, below) in [
            (0.00002996, "0.003 %", "0.0029 %"),
            (0.009147, "0.92 %", "0.91 %"),
            (0.1501, "16 %", "15 %"),
            (0.09, "9.0 %", "9.0 %"),
            (0.9958, "99.58 %", "99.58 %"),
            (0.99581, "99.59 %", "99.58 %"),
            (1.0, "100 %", "100 %"),
        ] {
            assert_eq!((percent_above(rate).as_str(), percent_below(rate).as_str()), (above, below), "{rate}");
        }
    }

    #[test]
    fn bounds_of_the_user() {
        let rule = Rule::with_bound(0.05, 0.95).expect("in range");
        assert_eq!((rule.sprt.p1, rule.sprt.p0), (0.05, 0.005));
        assert!(rule.sprt.straight_passes() < 70);
        for (bound, confidence) in [(0.0, 0.95), (0.7, 0.95), (0.01, 1.0), (0.01, 0.1), (f64::NAN, 0.9)] {
            assert!(Rule::with_bound(bound, confidence).is_none(), "{bound} {confidence}");
        }
    }
}
