//! Measured values against their own noise: how much a value varies where nothing changed, and how likely a
//! new one is if nothing changed.
//!
//! Inputs: groups of values between which nothing changed, such as the times of one kernel in several runs. Outputs:
//! standard deviations with the degrees of freedom that they rest on, and p-values. Values are logarithms where ratios
//! are asked for. With few values of its own a subject borrows from the others (a moderated t-test, Smyth 2004), but is never taken to
//! be quieter than it was seen.

use super::special::beta_cdf;

/// The probability that Student's t with so many degrees of freedom is at least `t`.
pub(crate) fn student_above(t: f64, df: f64) -> f64 {
    if df <= 0.0 || df.is_nan() || t.is_nan() {
        return 1.0;
    }
    let tail = beta_cdf(df / 2.0, 0.5, df / (df + t * t)) / 2.0;
    if t >= 0.0 { tail } else { 1.0 - tail }
}

/// What Student's t exceeds with that probability, below one half.
pub(crate) fn student_quantile(p: f64, df: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while student_above(high, df) > p && high < 1e12 {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if student_above(middle, df) > p { low = middle } else { high = middle }
    }
    high
}

/// A variance within groups, pooled.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Noise {
    squares: f64,
    df: f64,
}

impl Noise {
    /// Of values between which nothing changed.
    pub(crate) fn of(values: &[f64]) -> Self {
        let Some(level) = Level::of(values) else { return Self::default() };
        let squares = values.iter().map(|value| (value - level.mean).powi(2)).sum();
        Self { squares, df: values.len() as f64 - 1.0 }
    }

    /// Of this and another group.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { squares: self.squares + other.squares, df: self.df + other.df }
    }

    fn variance(self) -> Option<f64> {
        (self.df > 0.0).then(|| self.squares / self.df)
    }

    /// The standard deviation and its degrees of freedom.
    pub(crate) fn alone(self) -> Option<(f64, f64)> {
        self.variance().map(|variance| (variance.sqrt(), self.df))
    }

    /// The standard deviation with what others tell, and the degrees of freedom; `None` where nobody tells anything.
    pub(crate) fn with(self, prior: Option<Prior>) -> Option<(f64, f64)> {
        let (own, prior) = (self.variance(), prior?);
        let both = (self.squares + prior.variance * prior.df) / (self.df + prior.df);
        // What is known to be louder than the others is not made quieter by them.
        let variance = own.filter(|_| self.df >= prior.df).map_or(both, |own| both.max(own));
        Some((variance.sqrt(), self.df + prior.df))
    }
}

/// What the noise of all subjects says of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prior {
    variance: f64,
    df: f64,
}

/// As many values of its own count as much as what all others tell.
const PRIOR_DF: f64 = 4.0;
/// With fewer degrees of freedom in all nothing is known of noise.
const LEAST_DF: f64 = 4.0;

impl Prior {
    /// Of all subjects: the pooled variance. None where there is too little of it. `floor` is the least standard deviation that is believed.
    pub(crate) fn of(all: &[Noise], floor: f64) -> Option<Self> {
        let pooled = all.iter().fold(Noise::default(), |sum, noise| sum.and(*noise));
        let variance = pooled.variance().filter(|_| pooled.df >= LEAST_DF)?;
        Some(Self { variance: variance.max(floor * floor), df: PRIOR_DF })
    }
}

/// Where values lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Level {
    pub(crate) mean: f64,
    pub(crate) count: usize,
}

impl Level {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then_some(Self { mean, count: values.len() })
    }

    /// The probability that one more value (or the mean of so many) is as far above the level as this one, if nothing
    /// changed.
    pub(crate) fn p_above(self, value: f64, values: usize, (sigma, df): (f64, f64)) -> f64 {
        let spread = sigma * (1.0 / values as f64 + 1.0 / self.count as f64).sqrt();
        student_above((value - self.mean) / spread, df)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Student's t at 97.5 % and 99 %, from the printed tables.
    #[test]
    fn tails_are_those_of_the_tables() {
        for (df, t, p) in [(1.0, 12.706_204_736, 0.025), (5.0, 2.570_581_836, 0.025), (10.0, 2.763_769_458, 0.01)] {
            assert!((student_above(t, df) - p).abs() < 1e-9);
            assert!((student_above(-t, df) - (1.0 - p)).abs() < 1e-9);
        }
        for (df, t, p) in [(1.0, 12.706_204_736, 0.025), (10.0, 2.763_769_458, 0.01), (4.0, 0.0, 0.5)] {
            assert!((student_quantile(p, df) - t).abs() < 1e-6);
        }
        assert_eq!((student_above(0.0, 3.0), student_above(1.0, 0.0), student_above(f64::NAN, 3.0)), (0.5, 1.0, 1.0));
    }

    #[test]
    fn variances_within_groups_are_pooled() {
        // Two groups at other levels: 2 and 8 squares in 1 and 2 degrees of freedom.
        let noise = Noise::of(&[1.0, 3.0]).and(Noise::of(&[10.0, 12.0, 14.0])).and(Noise::of(&[7.0]));
        assert_eq!((noise.variance(), noise.df), (Some(10.0 / 3.0), 3.0));
        assert_eq!(Noise::of(&[5.0]).with(None), None);
        assert_eq!(Prior::of(&[noise], 0.0), None, "three are too few");
        let prior = Prior::of(&[noise, Noise::of(&[1.0, 2.0])], 0.0).expect("enough");
        assert_eq!(prior.variance, 10.5 / 4.0);
        // Without values of its own a subject has the noise of the others.
        assert_eq!(Noise::default().with(Some(prior)), Some((prior.variance.sqrt(), PRIOR_DF)));
        // A quiet one is a little quieter, a loud one as loud as it was seen.
        let quiet = Noise::of(&[1.0; 9]).with(Some(prior)).expect("known").0;
        assert!(quiet > 0.0 && quiet < prior.variance.sqrt());
        let loud = Noise::of(&[0.0, 100.0, 0.0, 100.0, 0.0, 100.0]);
        assert_eq!(loud.with(Some(prior)).expect("known").0, loud.variance().expect("known").sqrt());
        assert_eq!(Prior::of(&[Noise::of(&[1.0; 9])], 0.5).expect("enough").variance, 0.25);
    }

    /// A value that nothing changed is beyond a level as often as the level says, whatever noise and numbers.
    #[test]
    fn p_values_are_as_likely_as_they_say() {
        let mut rng = Rng::new(3);
        for (count, sigma) in [(2, 0.5), (5, 0.01), (20, 3.0)] {
            let (mut hits, trials) = (0, 4000);
            for _ in 0..trials {
                let values: Vec<f64> = (0..count).map(|_| 5.0 + sigma * rng.normal()).collect();
                let level = Level::of(&values).expect("values");
                let noise = Noise::of(&values);
                let sigma_seen = noise.variance().expect("several").sqrt();
                let p = level.p_above(5.0 + sigma * rng.normal(), 1, (sigma_seen, noise.df));
                hits += usize::from(p < 0.05);
            }
            // Three standard deviations of the count.
            let bound = 3.0 * (f64::from(trials) * 0.05 * 0.95).sqrt();
            assert!((hits as f64 - f64::from(trials) * 0.05).abs() < bound, "{hits} of {trials} with {count} values");
        }
    }
}
