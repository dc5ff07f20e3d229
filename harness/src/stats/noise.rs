//! Measured values against their own noise: how much a value varies where nothing changed, and how likely a
//! new one is if nothing changed.
//!
//! Inputs: groups of values between which nothing changed, such as the times of one kernel in several runs. Outputs:
//! standard deviations with the degrees of freedom that they rest on, and p-values. Values are logarithms where ratios
//! are asked for. With few values of its own a subject borrows from the others (a moderated t-test, Smyth 2004), but is never taken to
//! be quieter than it was seen.

use super::special::{beta_cdf, digamma, trigamma};

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

/// Where few subjects are known: as many values of its own count as much as what all others tell.
const PRIOR_DF: f64 = 4.0;
/// With fewer degrees of freedom in all nothing is known of noise.
const LEAST_DF: f64 = 4.0;
/// So many subjects tell how much they differ in their noise; and what they tell counts as so many values, whatever that is.
const FITTED_OF: usize = 20;
const FITTED_DF: [f64; 2] = [0.5, 32.0];

/// The same by where the values of a subject lie: short times vary more, as shares, than long ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Priors {
    /// The mean of where values lie, and the logarithm of the variance there.
    middle: f64,
    log_variance: f64,
    slope: f64,
    least: f64,
    df: f64,
}

impl Prior {
    /// Of all subjects, wherever their values lie.
    pub(crate) fn of(all: &[Noise], floor: f64) -> Option<Self> {
        let all: Vec<(Noise, f64)> = all.iter().map(|noise| (*noise, 0.0)).collect();
        Priors::of(&all, floor).map(|priors| priors.at(0.0))
    }
}

impl Priors {
    /// Of all subjects, each with where its values lie. Of many, by how much their noises differ more than the values that each
    /// has, and where they lie, let expect (Smyth 2004, section 6.2, with a trend): where they are much alike all others tell much of one, and
    /// where they are not some loud ones do not stand for the others. Of few, the pooled variance. None where there is too little
    /// of it. `floor` is the least standard deviation that is believed.
    pub(crate) fn of(all: &[(Noise, f64)], floor: f64) -> Option<Self> {
        let least = floor * floor;
        let known: Vec<[f64; 3]> =
            all.iter().filter_map(|(noise, at)| Some([noise.variance()?.max(least), noise.df, *at])).collect();
        if known.len() >= FITTED_OF {
            return Some(Self::fitted(&known, least));
        }
        let pooled = all.iter().fold(Noise::default(), |sum, (noise, _)| sum.and(*noise));
        let variance = pooled.variance().filter(|_| pooled.df >= LEAST_DF)?;
        Some(Self { middle: 0.0, log_variance: variance.max(least).ln(), slope: 0.0, least, df: PRIOR_DF })
    }

    /// What all others tell of a subject whose values lie there.
    pub(crate) fn at(self, at: f64) -> Prior {
        let log_variance = self.log_variance + self.slope * (at - self.middle);
        Prior { variance: log_variance.exp().max(self.least), df: self.df }
    }

    /// Of variances with their degrees of freedom and places: the mean and the variance of their logarithms about the trend
    /// are those of the prior.
    fn fitted(known: &[[f64; 3]], least: f64) -> Self {
        let count = known.len() as f64;
        let logs: Vec<f64> =
            known.iter().map(|[variance, df, _]| variance.ln() - digamma(df / 2.0) + (df / 2.0).ln()).collect();
        let [mean, middle] = [logs.iter().sum::<f64>() / count, known.iter().map(|[.., at]| at).sum::<f64>() / count];
        let width = known.iter().map(|[.., at]| (at - middle).powi(2)).sum::<f64>();
        let along = known.iter().zip(&logs).map(|([.., at], log)| (at - middle) * (log - mean)).sum::<f64>();
        let slope = if width > 0.0 { along / width } else { 0.0 };
        let about = known.iter().zip(&logs).map(|([.., at], log)| (log - mean - slope * (at - middle)).powi(2));
        let seen = about.sum::<f64>() / (count - 1.0 - f64::from(u8::from(width > 0.0)));
        let spread = seen - known.iter().map(|[_, df, _]| trigamma(df / 2.0)).sum::<f64>() / count;
        // The function falls.
        let [mut low, mut high] = FITTED_DF.map(|df| df / 2.0);
        for _ in 0..60 {
            let between = f64::midpoint(low, high);
            if trigamma(between) > spread { low = between } else { high = between }
        }
        Self { middle, log_variance: mean + digamma(low) - low.ln(), slope, least, df: 2.0 * low }
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

    /// Of many subjects: those that are all as loud tell as much as may be, and of those that are not a few loud ones do not
    /// stand for the others.
    #[test]
    fn a_prior_is_fitted_to_many() {
        let mut rng = Rng::new(11);
        let mut prior = |sigma: &dyn Fn(usize) -> f64| {
            let noise = |i: usize| Noise::of(&(0..4).map(|_| sigma(i) * rng.normal()).collect::<Vec<_>>());
            Prior::of(&(0..4000).map(noise).collect::<Vec<_>>(), 1e-6).expect("enough")
        };
        let alike = prior(&|_| 0.3);
        assert!(alike.df > 20.0 && (alike.variance.sqrt() / 0.3 - 1.0).abs() < 0.05, "{alike:?}");
        // Drawn from a prior of 4 degrees of freedom about 1, it is that; scaled inverse chi squares of four.
        let mut draws = Rng::new(5);
        let sigmas: Vec<f64> =
            (0..4000).map(|_| (4.0 / (0..4).map(|_| draws.normal().powi(2)).sum::<f64>()).sqrt()).collect();
        let drawn = prior(&|i| sigmas[i]);
        assert!((drawn.df - 4.0).abs() < 0.6 && (drawn.variance - 1.0).abs() < 0.1, "{drawn:?}");
        let one_in_ten = prior(&|i| if i % 10 == 0 { 10.0 } else { 0.3 });
        assert!(one_in_ten.df < 3.0 && one_in_ten.variance.sqrt() < 0.5, "{one_in_ten:?}");
        // Where noise falls with where values lie, those that lie alike tell of each other.
        let lies = |i: usize| (i % 10) as f64 / 2.0;
        let mut draws = Rng::new(12);
        let mut noise = |i: usize| {
            let sigma = 0.05 * (-0.9 * lies(i)).exp();
            (Noise::of(&(0..4).map(|_| sigma * draws.normal()).collect::<Vec<_>>()), lies(i))
        };
        let all: Vec<(Noise, f64)> = (0..4000).map(&mut noise).collect();
        let priors = Priors::of(&all, 1e-6).expect("enough");
        for at in [0.0, 2.0, 4.5] {
            let prior = priors.at(at);
            let wanted = 0.05 * (-0.9 * at).exp();
            assert!(prior.df > 20.0 && (prior.variance.sqrt() / wanted - 1.0).abs() < 0.05, "{prior:?} at {at}");
        }
        let floor = Prior::of(&vec![Noise::of(&[1.0; 4]); 30], 0.5).expect("enough");
        assert!((0.5..0.6).contains(&floor.variance.sqrt()) && floor.df > 31.0, "{floor:?}");
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
