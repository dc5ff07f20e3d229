//! Changes of level in a series of nights, found on-line: after each night, from that night and those before.
//!
//! Inputs: one value a night, in order. Outputs: where the level changed, by how much, how sure that is, and after how many
//! nights it was told.
//!
//! The level before is the mean of the nights since the last change, at least [`LEAST`] and at most [`MOST`], without
//! those that stand apart; their spread is the noise. The last one, two, ... [`RECENT`] nights are held against it by
//! Student's t. What is beyond [`FIRST`] (one night), [`SECOND`] (two) or [`MORE`] standard deviations of a normal
//! distribution is told at once, as *new*. With [`SURE`] nights behind it, it is *confirmed* if it still stands beyond [`KEPT`], and else
//! withdrawn: a single bad night is no change of level. One that begins later and stands out more takes its place before
//! that. The test `false_alarms` measures both rates, and `power` how soon changes are told.
//!
//! How good that can be: two nights of a change of four standard deviations are off by a normal variable of mean 5.59 and
//! deviation 1 (against 80 nights before, with the noise known). A test that is as quiet as this one and looks at two nights alone
//! has its limit at 3.24, and tells 99.1 in 100 of them; with the noise learnt from 40 to 120 nights, by Student's t, which none
//! beats there, it is 98.4 (`the_limit`). This one tells 97.9: a part of its false alarms goes to telling half of these changes
//! on their first night. 0.4 of these are told in time and placed two nights early, where nights before stood out by
//! chance. To tell 999 in 1,000 the limit would have to be 2.50, where one case in 80 is told falsely each night.
//!
//! Invariant: what is told after a night does not depend on later nights, but that later nights confirm, withdraw, or move
//! its place by a night.

/// Nights that are needed before anything is told, and that are looked back at.
pub(crate) const LEAST: usize = 8;
const MOST: usize = 100;
/// The most nights after which a change is still looked for.
const RECENT: usize = 8;
/// Nights after which a change is confirmed or withdrawn.
pub(crate) const SURE: usize = 5;
/// Thresholds, in standard deviations: after one night, two, and more, which look back again and again; and to be confirmed.
const FIRST: f64 = 3.8;
const SECOND: f64 = 3.3;
const MORE: f64 = 4.1;
const KEPT: f64 = 4.0;
/// A smaller change is not told, whatever the noise.
const LEAST_RATIO: f64 = 0.002;
/// Nights this many robust standard deviations off the median do not make the level.
const APART: f64 = 4.0;
/// From the median absolute deviation to the standard deviation of a normal distribution.
pub const MAD_TO_SIGMA: f64 = 1.4826;

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    /// The first night at the new level.
    pub(crate) at: usize,
    /// The night after which it was told.
    pub(crate) told: usize,
    /// The level before, and since.
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// How far the new level is off, in standard deviations of its estimate.
    pub(crate) score: f64,
    /// [`SURE`] nights stand behind it.
    pub(crate) confirmed: bool,
}

impl Change {
    /// The change as a part of the level before.
    pub(crate) fn ratio(&self) -> f64 {
        self.after / self.before - 1.0
    }
}

/// The level of some nights.
#[derive(Clone, Copy)]
struct Level {
    mean: f64,
    sigma: f64,
    nights: f64,
}

impl Level {
    fn of(values: &[f64]) -> Self {
        let middle = median(&mut values.to_vec());
        let mut off: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        let far = APART * MAD_TO_SIGMA * median(&mut off);
        let kept: Vec<f64> = values.iter().copied().filter(|value| (value - middle).abs() <= far).collect();
        let kept = if kept.len() * 2 > values.len() { kept } else { values.to_vec() };
        let nights = kept.len() as f64;
        let mean = kept.iter().sum::<f64>() / nights;
        let square = kept.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (nights - 1.0).max(1.0);
        // Figures are written with few digits: without any noise the last one would be a change.
        Self { mean, sigma: square.sqrt().max(mean.abs() * LEAST_RATIO / 4.0).max(f64::MIN_POSITIVE), nights }
    }

    /// How far the mean of some nights is off, as a quantile of the normal distribution. Student's t is turned into one by
    /// Wallace's approximation, good to a hundredth from 5 degrees of freedom on.
    fn score(&self, recent: &[f64]) -> f64 {
        let count = recent.len() as f64;
        // From three on their median counts, which one bad night does not move; it is a quarter less sure.
        let wide = if recent.len() < 3 { 1.0 } else { 1.25 };
        let off = centre(recent) - self.mean;
        let t = off / (self.sigma * (wide * wide / count + 1.0 / self.nights).sqrt());
        let free = self.nights - 1.0;
        let normal = (free * (t * t / free).ln_1p()).sqrt() * (8.0 * free + 1.0) / (8.0 * free + 3.0);
        normal.copysign(t)
    }
}

/// Changes the order.
fn median(values: &mut [f64]) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let half = values.len() / 2;
    let (below, middle, _) = values.select_nth_unstable_by(half, f64::total_cmp);
    let middle = *middle;
    match below.iter().copied().reduce(f64::max).filter(|_| values.len().is_multiple_of(2)) {
        Some(below) => f64::midpoint(below, middle),
        None => middle,
    }
}

/// The mean of one or two, the median of more.
fn centre(recent: &[f64]) -> f64 {
    if recent.len() < 3 {
        return recent.iter().sum::<f64>() / recent.len() as f64;
    }
    median(&mut recent.to_vec())
}

/// All changes of a series, in order. The level since one is that of all nights up to the next.
pub(crate) fn changes(values: &[f64]) -> Vec<Change> {
    let mut watch = Watch::new(values);
    (0..values.len()).for_each(|night| watch.night(night));
    watch.found.extend(watch.open);
    let ends: Vec<usize> = watch.found.iter().skip(1).map(|next| next.at).chain([values.len()]).collect();
    for (change, end) in watch.found.iter_mut().zip(ends).filter(|(change, _)| change.confirmed) {
        change.after = Level::of(&values[change.at..end]).mean;
    }
    watch.found
}

/// The state after a night.
struct Watch<'a> {
    values: &'a [f64],
    found: Vec<Change>,
    /// The first night of the level that holds.
    since: usize,
    /// A change that is told and not confirmed.
    open: Option<Change>,
    /// By night, the level before it: each is looked at for [`RECENT`] nights.
    levels: Vec<Option<Level>>,
}

impl<'a> Watch<'a> {
    fn new(values: &'a [f64]) -> Self {
        Self { values, found: Vec::new(), since: 0, open: None, levels: vec![None; values.len()] }
    }

    fn night(&mut self, night: usize) {
        if let Some(open) = self.open.take() {
            self.go_on(open, night);
        } else if let Some(change) = self.look(night) {
            self.open = Some(Change { told: night, ..change });
        }
    }

    /// The change that the last nights show best.
    fn look(&mut self, night: usize) -> Option<Change> {
        let starts = (self.since + LEAST..=night).rev().take(RECENT);
        let changes = starts.filter_map(|at| {
            let change = self.change(at, night)?;
            let limit = match night - at {
                0 => FIRST,
                1 => SECOND,
                _ => MORE,
            };
            (change.score.abs() > limit && change.ratio().abs() > LEAST_RATIO).then_some(change)
        });
        let best = changes.max_by(|a, b| a.score.abs().total_cmp(&b.score.abs()))?;
        self.change(self.placed(&Change { told: night, ..best }, night), night)
    }

    /// What changed if it did so before the night `at`.
    fn change(&mut self, at: usize, night: usize) -> Option<Change> {
        let from = self.since.max(at.saturating_sub(MOST));
        if at < from + LEAST {
            return None;
        }
        let level = *self.levels[at].get_or_insert_with(|| Level::of(&self.values[from..at]));
        let recent = &self.values[at..=night];
        let score = level.score(recent);
        Some(Change { at, told: night, before: level.mean, after: centre(recent), score, confirmed: false })
    }

    /// Where a change began: from there on nights are, taken together, furthest on the new level's side of the middle of both,
    /// which on normal noise is the likeliest place. It may be a few nights off what stood out most.
    fn placed(&self, open: &Change, night: usize) -> usize {
        let (middle, sign) = (f64::midpoint(open.before, open.after), (open.after - open.before).signum());
        let earliest = (self.since + LEAST).max(open.at.saturating_sub(SURE)).min(open.at);
        let mut side = 0.0;
        let sums = (earliest..=night).rev().map(|at| {
            side += sign * (self.values[at] - middle);
            (at, side)
        });
        let best = sums.filter(|(at, _)| *at <= open.told).max_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(open.at, |(at, _)| at)
    }

    /// One more night behind a change that is told.
    fn go_on(&mut self, open: Change, night: usize) {
        let Some(best) = self.change(self.placed(&open, night), night) else { return };
        let now = Change { told: open.told, ..best };
        if night + 1 < now.at + SURE {
            // A false one must not hide a change that begins meanwhile.
            let better = |later: &Change| later.at > now.at + 1 && later.score.abs() > now.score.abs();
            let later = self.look(night).filter(better).map(|later| Change { told: night, ..later });
            self.open = Some(later.unwrap_or(now));
        } else if now.score.abs() > KEPT && now.ratio().abs() > LEAST_RATIO {
            self.since = now.at;
            self.levels.fill(None);
            self.found.push(Change { confirmed: true, ..now });
        } else if let Some(later) = self.look(night).filter(|later| later.at > now.at + 1) {
            self.open = Some(Change { told: night, ..later });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of a normal distribution, the same each time: splitmix64, then Box and Muller.
    struct Normal(u64);

    impl Normal {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
        fn next(&mut self) -> f64 {
            let (a, b) = (1.0 - self.uniform(), self.uniform());
            (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
        }
        fn nights(&mut self, count: usize, level: f64, sigma: f64) -> Vec<f64> {
            (0..count).map(|_| level + sigma * self.next()).collect()
        }
    }

    /// On quiet series of 400 nights: how often a night tells a change, and how often one is confirmed. These are the rates
    /// that the page on reading states.
    #[test]
    fn false_alarms() {
        let (mut noise, mut told, mut confirmed, mut nights) = (Normal(7), 0, 0, 0);
        for _ in 0..500 {
            let series = noise.nights(400, 100.0, 1.0);
            nights += series.len() - LEAST;
            confirmed += changes(&series).iter().filter(|change| change.confirmed).count();
            // What stands after a night, whether or not it is withdrawn later.
            let mut watch = Watch::new(&series);
            for night in 0..series.len() {
                watch.night(night);
                told += usize::from(watch.open.is_some_and(|change| change.told == night));
            }
        }
        let (told, confirmed) = (told as f64 / nights as f64, confirmed as f64 / nights as f64);
        println!("a night of a case tells a change falsely: {told:.6}, confirmed {confirmed:.7}");
        assert!(told < crate::FALSE_NEW, "{told}");
        assert!(confirmed < crate::FALSE_CONFIRMED, "{confirmed}");
    }

    /// A change of some standard deviations, equally likely in a range, is told on its night or the next, is placed within a
    /// night, and stays.
    #[track_caller]
    fn check_power((from, to): (f64, f64), least: f64, least_placed: f64) {
        let (mut noise, trials) = (Normal(from.to_bits()), 4000);
        let (mut at_once, mut soon, mut placed) = (0, 0, 0);
        for trial in 0..trials {
            let (at, sign) = (40 + trial % 80, if trial % 2 == 0 { 1.0 } else { -1.0 });
            let sigmas = from + (to - from) * noise.uniform();
            let mut series = noise.nights(at, 100.0, 1.0);
            series.extend(noise.nights(40, 100.0 + sign * sigmas, 1.0));
            let near = |change: &Change| change.at.abs_diff(at) <= 1;
            at_once += usize::from(changes(&series[..at + 1]).iter().any(near));
            soon += usize::from(changes(&series[..at + 2]).iter().any(near));
            placed += usize::from(changes(&series).iter().any(|change| near(change) && change.confirmed));
        }
        let [at_once, soon, placed] = [at_once, soon, placed].map(|count| count as f64 / trials as f64);
        println!(
            "{from} to {to} sigma: told on its night {at_once:.4}, by the next {soon:.4}; confirmed within a night of its place {placed:.4}"
        );
        assert!(soon >= least && placed >= least_placed, "{from} sigma: {soon}, {placed}");
    }

    #[test]
    fn power() {
        check_power((4.0, 4.0), 0.97, 0.985);
        check_power((5.0, 5.0), 0.996, 0.995);
        check_power((8.0, 8.0), 0.998, 0.998);
        // As the history of 400 nights is made up, in which `tests/site/scale.rs` counts marks.
        check_power((4.0, 10.0), 0.996, 0.996);
    }

    /// What Student's t tells of a change of four standard deviations by two nights, as quiet as all of this detector is.
    #[test]
    fn the_limit() {
        let (mut noise, mut told, trials) = (Normal(21), 0, 20_000);
        for trial in 0..trials {
            let before = noise.nights(40 + trial % 80, 100.0, 1.0);
            let nights = before.len() as f64;
            let mean = before.iter().sum::<f64>() / nights;
            let square = before.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (nights - 1.0);
            let level = Level { mean, sigma: square.sqrt(), nights };
            told += usize::from(level.score(&noise.nights(2, 104.0, 1.0)) > 3.24);
        }
        let told = f64::from(told as u32) / trials as f64;
        println!("the limit with learnt noise: {told:.4}");
        assert!((told - 0.984).abs() < 0.003, "{told}");
    }

    /// A night that is told falsely keeps no change that follows it from being told.
    #[test]
    fn a_false_alarm_hides_nothing() {
        let mut series = Normal(5).nights(60, 100.0, 1.0);
        series[50] = 104.5;
        series[52..].iter_mut().for_each(|value| *value -= 6.0);
        let told = |nights: usize| changes(&series[..nights]).last().map(|change| change.at);
        assert!(told(51).is_some_and(|at| at.abs_diff(50) <= 1), "{:?}", told(51));
        assert_eq!(told(54), Some(52));
    }

    #[test]
    fn one_bad_night_is_no_change_of_level() {
        let mut series = Normal(3).nights(40, 100.0, 1.0);
        series[30] = 130.0;
        assert_eq!(changes(&series[..31]).iter().map(|change| change.at).collect::<Vec<_>>(), [30]);
        assert_eq!(changes(&series), []);
    }

    #[test]
    fn levels_come_one_after_the_other() {
        let mut noise = Normal(11);
        let series: Vec<f64> =
            [100.0, 112.0, 104.0].into_iter().flat_map(|level| noise.nights(30, level, 1.0)).collect();
        let found = changes(&series);
        assert_eq!(
            found.iter().map(|change| (change.at, change.confirmed)).collect::<Vec<_>>(),
            [(30, true), (60, true)]
        );
        assert!((found[0].ratio() - 0.12).abs() < 0.01 && (found[1].after - 104.0).abs() < 1.0, "{found:?}");
    }

    #[test]
    fn exact_and_short_series() {
        assert_eq!(changes(&[]), []);
        assert_eq!(changes(&[1.0; 50]), []);
        assert_eq!(changes(&[5.0, 9.0, 5.0, 9.0]), []);
        let step: Vec<f64> = [vec![10.0; 12], vec![11.0; 6]].concat();
        assert_eq!(changes(&step).iter().map(|change| change.at).collect::<Vec<_>>(), [12]);
    }
}
