//! What a flake depends on, each by an exact test: on what its worker ran before,
//! on load, on the device, or, as far as these can tell, on none of them.

use super::rule::{Tally, percent};
use crate::stats::{clopper_pearson, fisher, freeman_halton, holm};

/// What a flake depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlakeClass {
    /// The rate differs between warm workers and workers that ran nothing before.
    State,
    /// The rate differs under load.
    Load,
    /// The rate differs between devices.
    Device,
    /// None of the tests that could be made is significant.
    Intrinsic,
    /// No test could be made.
    Untested,
}

impl FlakeClass {
    /// The stable name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FlakeClass::State => "state-dependent",
            FlakeClass::Load => "load-dependent",
            FlakeClass::Device => "device-dependent",
            FlakeClass::Intrinsic => "intrinsic",
            FlakeClass::Untested => "untested",
        }
    }
}

/// The chance of a false class, over all tests of a case.
pub(crate) const LEVEL: f64 = 0.01;

/// Counts of a case under the conditions that are compared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) warm: Tally,
    pub(crate) alone: Tally,
    pub(crate) quiet: Tally,
    pub(crate) loaded: Tally,
    /// By device, warm.
    pub(crate) devices: Vec<(String, Tally)>,
}

/// One comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClassComparison {
    pub(crate) class: FlakeClass,
    /// The conditions with their counts.
    pub(crate) counts: Vec<(String, Tally)>,
    pub(crate) p: f64,
    /// After Holm's correction for the tests of this case.
    pub(crate) corrected: f64,
}

impl ClassComparison {
    /// `warm 77 % [65, 87], alone 0 % [0, 1.2], p = 3e-21`.
    pub(crate) fn words(&self) -> String {
        let shown: Vec<String> = self.counts.iter().map(|(name, tally)| format!("{name} {}", shown(*tally))).collect();
        format!("{}, p = {}", shown.join(", "), p_value(self.corrected))
    }
}

/// `77 % [65, 87]`, with the exact interval at 95 %.
pub(crate) fn shown(tally: Tally) -> String {
    let interval = clopper_pearson(tally.failures, tally.runs(), 0.95);
    let number = |rate: f64| super::rule::number(100.0 * rate);
    format!("{} [{}, {}]", percent(tally.rate()), number(interval.low), number(interval.high))
}

/// `0.03`, `0.004`, `3e-6`.
pub(crate) fn p_value(p: f64) -> String {
    match p {
        0.01.. => format!("{p:.2}"),
        0.001.. => format!("{p:.3}"),
        _ => format!("{p:.0e}"),
    }
}

/// The class and the comparisons that led to it: what a worker ran before, if that
/// matters, then the clearest. Repeats in a warm worker share what it ran before, so
/// where that matters they are no independent trials of load or device.
pub(crate) fn classify(conditions: &Conditions) -> (FlakeClass, Vec<ClassComparison>) {
    let pair = |class, a: (&str, Tally), b: (&str, Tally)| {
        let counts = vec![(a.0.to_string(), a.1), (b.0.to_string(), b.1)];
        let ran = a.1.runs() > 0 && b.1.runs() > 0;
        ran.then(|| ClassComparison { class, counts, p: fisher(a.1.count(), b.1.count()), corrected: 1.0 })
    };
    let devices: Vec<_> = conditions.devices.iter().filter(|(_, tally)| tally.runs() > 0).cloned().collect();
    let by_device = (devices.len() > 1).then(|| {
        let counts: Vec<(u64, u64)> = devices.iter().map(|(_, tally)| tally.count()).collect();
        ClassComparison { class: FlakeClass::Device, counts: devices, p: freeman_halton(&counts), corrected: 1.0 }
    });
    let state = pair(FlakeClass::State, ("warm", conditions.warm), ("alone", conditions.alone));
    let load = pair(FlakeClass::Load, ("loaded", conditions.loaded), ("quiet", conditions.quiet));
    let mut all: Vec<ClassComparison> = [state, load, by_device].into_iter().flatten().collect();
    let corrected = holm(&all.iter().map(|test| test.p).collect::<Vec<f64>>());
    all.iter_mut().zip(corrected).for_each(|(test, p)| test.corrected = p);
    let by_state = |test: &ClassComparison| test.class == FlakeClass::State && test.corrected < LEVEL;
    all.sort_by(|a, b| by_state(b).cmp(&by_state(a)).then(a.p.total_cmp(&b.p)));
    let class = match all.first() {
        None => FlakeClass::Untested,
        Some(test) if test.corrected < LEVEL => test.class,
        Some(_) => FlakeClass::Intrinsic,
    };
    (class, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(failures: u64, runs: u64) -> Tally {
        Tally { failures, passes: runs - failures }
    }

    #[track_caller]
    fn check(conditions: &Conditions, class: FlakeClass, words: &str) {
        let (got, tests) = classify(conditions);
        assert_eq!(got, class, "{tests:?}");
        assert_eq!(tests.first().map(ClassComparison::words).unwrap_or_default(), words);
    }

    #[test]
    fn each_class_has_its_evidence() {
        let none = Conditions::default();
        check(&none, FlakeClass::Untested, "");
        let flat = Conditions { warm: tally(20, 600), alone: tally(5, 150), ..none.clone() };
        check(&flat, FlakeClass::Intrinsic, "warm 3.3 % [2.0, 5.1], alone 3.3 % [1.1, 7.6], p = 1.00");
        let state = Conditions { warm: tally(47, 61), alone: tally(0, 300), ..flat.clone() };
        check(&state, FlakeClass::State, "warm 77 % [65, 87], alone 0 % [0, 1.2], p = 8e-47");
        let load = Conditions { loaded: tally(15, 60), quiet: tally(0, 60), ..flat.clone() };
        check(&load, FlakeClass::Load, "loaded 25 % [15, 38], quiet 0 % [0, 6.0], p = 4e-5");
        // Workers that the polluter came to late passed, and more of them while it was quiet.
        let both = Conditions {
            warm: tally(27, 31),
            alone: tally(0, 10),
            loaded: tally(90, 91),
            quiet: tally(46, 70),
            ..none
        };
        check(&both, FlakeClass::State, "warm 87 % [70, 96], alone 0 % [0, 31], p = 9e-7");
        let devices =
            vec![("gpu0".into(), tally(0, 200)), ("gpu1".into(), tally(9, 200)), ("gpu2".into(), tally(11, 200))];
        let device = Conditions { devices, ..flat };
        check(
            &device,
            FlakeClass::Device,
            "gpu0 0 % [0, 1.8], gpu1 4.5 % [2.1, 8.4], gpu2 5.5 % [2.8, 9.6], p = 0.002",
        );
    }

    #[test]
    fn small_chances_keep_a_figure() {
        for (p, shown) in [(1.0, "1.00"), (0.0123, "0.01"), (0.0049, "0.005"), (0.0014, "0.001"), (0.00099, "1e-3")] {
            assert_eq!(p_value(p), shown);
        }
    }

    /// Without any effect, a class is named in at most 1 % of cases.
    #[test]
    fn classes_are_not_invented() {
        let mut rng = crate::rng::Rng::new(5);
        let mut draw = |runs: u64| tally((0..runs).filter(|_| rng.unit() < 0.1).count() as u64, runs);
        let mut named = 0;
        for _ in 0..300 {
            let devices = vec![("a".into(), draw(60)), ("b".into(), draw(60))];
            let (warm, alone, quiet, loaded) = (draw(120), draw(60), draw(60), draw(60));
            let (class, _) = classify(&Conditions { warm, alone, quiet, loaded, devices });
            named += u32::from(class != FlakeClass::Intrinsic);
        }
        assert!(named <= 6, "{named} of 300");
    }
}
