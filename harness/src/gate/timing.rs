//! Times of kernels on a GPU against their own history.
//!
//! Inputs: what each case took in earlier runs on such devices, and what it takes now, each with a name of its code.
//! Output: a finding for each case, and one for all of them together.
//!
//! How much a case varies is learnt from runs of the same code, and from other cases where it has few. A case whose code is
//! the same is not blamed: its machine changed. Of the others those are named that stand out at a rate of false alarms
//! over all cases (Benjamini and Hochberg). Nothing is divided out that all cases have in common: if all get slower
//! together they are slower, which is a finding of its own, held to how much runs as a whole vary. What noise hides is
//! said to be unknown; a kept binary tells it (see `in_turns`).

use crate::stats::{Level, Noise, Prior, benjamini_hochberg};
use std::collections::{BTreeMap, BTreeSet};

/// Of what is called slower, a share of false alarms of so much at most; and of what is looked at again.
pub(crate) const ALARM: f64 = 0.01;
pub(crate) const SUSPECT: f64 = 0.10;
/// A smaller change is none, whatever the noise.
pub(crate) const LEAST: f64 = 1.01;
/// A change that must be seen: where noise hides it, nobody can tell.
const MATTERS: f64 = 1.05;
/// No case is believed to vary less, as a logarithm; nor do runs as a whole.
const FLOOR: f64 = 0.001;
const FLOOR_OF_RUNS: f64 = 0.002;
/// Fewer cases or runs say nothing about all together.
const LEAST_TOGETHER: usize = 4;

/// A name of machine code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Code {
    /// By all that it is made of: where it is equal, the code is.
    Known(String),
    /// Of a time from before that was recorded, by what the kernel was printed from. Where it is equal, times tell noise; but
    /// nobody knows that such code is the same as any other.
    Unknown(String),
}

impl Code {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        matches!(self, Self::Known(_)) && self == other
    }
}

#[cfg(test)]
impl From<&str> for Code {
    fn from(name: &str) -> Self {
        Self::Known(name.into())
    }
}

/// What a case took in one earlier run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PastTime {
    pub(crate) run: String,
    pub(crate) ns: f64,
    pub(crate) code: Code,
    /// Runs of one number have nothing between them that made the case faster or slower. Only such tell noise.
    pub(crate) epoch: u32,
    /// Whether it is what the case may take: not where it was found slower, nor before that was accepted.
    pub(crate) is_reference: bool,
}

impl PastTime {
    fn state(&self) -> (&Code, u32) {
        (&self.code, self.epoch)
    }
}

/// What a case takes now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timed {
    pub(crate) ns: f64,
    pub(crate) code: Code,
}

/// What became of the time of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimeFinding {
    Slower,
    /// It may be slower: not surely enough to say so without another look.
    Suspect,
    Faster,
    Same,
    /// Slower with the same code.
    Machine,
    /// Too little is known of it, or its noise hides what matters.
    Unknown,
}

/// A case.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimingRow {
    pub(crate) id: String,
    pub(crate) finding: TimeFinding,
    /// What it took, in the mean of so many runs of its last code.
    pub(crate) before_ns: f64,
    pub(crate) runs: usize,
    pub(crate) now_ns: f64,
    /// Corrected for the number of cases.
    pub(crate) p: f64,
    /// How much it varies from run to run, as a share; nothing where that is not known.
    pub(crate) noise: Option<f64>,
    /// Whether it has the code that it had.
    pub(crate) same_code: bool,
}

impl TimingRow {
    pub(crate) fn ratio(&self) -> f64 {
        self.now_ns / self.before_ns
    }
}

/// All cases together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Together {
    /// The mean ratio of their times.
    pub(crate) ratio: f64,
    pub(crate) p: f64,
    pub(crate) cases: usize,
    /// Of which so many have the code that they had.
    pub(crate) same_code: usize,
    pub(crate) is_slower: bool,
}

/// What became of all times.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TimingGate {
    pub(crate) rows: Vec<TimingRow>,
    pub(crate) together: Option<Together>,
    /// Cases that were never measured before.
    pub(crate) new: Vec<String>,
}

/// A case that has a level to be held to.
struct Held<'c> {
    id: &'c str,
    now: &'c Timed,
    level: Level,
    same_code: bool,
    /// Its noise with the degrees of freedom that this rests on.
    sigma: Option<(f64, f64)>,
}

impl Held<'_> {
    fn change(&self) -> f64 {
        self.now.ns.ln() - self.level.mean
    }

    /// The probabilities that it is as slow, and as fast, if nothing changed.
    fn p(&self) -> [f64; 2] {
        let above = self.sigma.map(|sigma| self.level.p_above(self.now.ns.ln(), 1, sigma));
        above.map_or([1.0, 1.0], |above| [above, 1.0 - above])
    }

    /// Whether a change that matters would be seen.
    fn is_telling(&self) -> bool {
        let p = self.sigma.map(|sigma| self.level.p_above(self.level.mean + MATTERS.ln(), 1, sigma));
        p.is_some_and(|p| p < ALARM)
    }
}

/// History by case: the runs of a case in their order.
pub(crate) type TimeHistory = BTreeMap<String, Vec<PastTime>>;

impl TimingGate {
    pub(crate) fn of(history: &TimeHistory, now: &BTreeMap<String, Timed>) -> Self {
        let noises: BTreeMap<&str, Noise> = history.iter().map(|(id, past)| (id.as_str(), noise(past))).collect();
        let prior = Prior::of(&noises.values().copied().collect::<Vec<_>>(), FLOOR);
        let mut found = Self::default();
        let mut held = Vec::new();
        for (id, timed) in now {
            let past = history.get(id).map(Vec::as_slice).unwrap_or_default();
            let references: Vec<&PastTime> = past.iter().filter(|time| time.is_reference).collect();
            let Some(last) = references.last() else {
                found.new.push(id.clone());
                continue;
            };
            let alike = references.iter().filter(|time| time.state() == last.state());
            let logs: Vec<f64> = alike.map(|time| time.ns.ln()).collect();
            let Some(level) = Level::of(&logs) else { continue };
            let sigma = noises.get(id.as_str()).and_then(|noise| noise.with(prior));
            held.push(Held { id, now: timed, level, same_code: last.code.is_same(&timed.code), sigma });
        }
        found.rows = rows(&held);
        found.together = together(history, &held);
        found
    }

    /// The cases that history makes suspect, or all where all are slower together.
    pub(crate) fn suspects(&self) -> BTreeSet<String> {
        let all = self.together.is_some_and(|all| all.is_slower);
        let suspect = |row: &&TimingRow| all || matches!(row.finding, TimeFinding::Slower | TimeFinding::Suspect);
        self.rows.iter().filter(suspect).map(|row| row.id.clone()).collect()
    }

    /// The cases that another look is about: those, and what has other code than it had, or was never measured. A
    /// history, of other days and other GPUs, hides what two binaries side by side show.
    pub(crate) fn to_look_at(&self) -> BTreeSet<String> {
        let other = self.rows.iter().filter(|row| !row.same_code).map(|row| row.id.clone());
        self.suspects().into_iter().chain(other).chain(self.new.iter().cloned()).collect()
    }
}

/// How much a case varies between runs of one code.
fn noise(past: &[PastTime]) -> Noise {
    by_state(past).values().fold(Noise::default(), |sum, logs| sum.and(Noise::of(logs)))
}

fn by_state(past: &[PastTime]) -> BTreeMap<(&Code, u32), Vec<f64>> {
    let mut groups: BTreeMap<(&Code, u32), Vec<f64>> = BTreeMap::new();
    past.iter().for_each(|time| groups.entry(time.state()).or_default().push(time.ns.ln()));
    groups
}

fn rows(held: &[Held<'_>]) -> Vec<TimingRow> {
    // Each question has its own number of cases that it is asked of.
    let asked = |same_code: bool, side: usize| -> BTreeMap<&str, f64> {
        let of: Vec<&Held<'_>> =
            held.iter().filter(|case| case.same_code == same_code && case.sigma.is_some()).collect();
        let p: Vec<f64> = of.iter().map(|case| case.p()[side]).collect();
        of.iter().map(|case| case.id).zip(benjamini_hochberg(&p)).collect()
    };
    let up: BTreeMap<&str, f64> = asked(false, 0).into_iter().chain(asked(true, 0)).collect();
    let down: BTreeMap<&str, f64> = asked(false, 1).into_iter().chain(asked(true, 1)).collect();
    let row = |case: &Held<'_>| {
        let p = |side: &BTreeMap<&str, f64>| side.get(case.id).copied().unwrap_or(1.0);
        let (up, down, change) = (p(&up), p(&down), case.change());
        let finding = match () {
            () if change >= LEAST.ln() && up <= ALARM && case.same_code => TimeFinding::Machine,
            () if change >= LEAST.ln() && up <= ALARM => TimeFinding::Slower,
            () if change >= LEAST.ln() && up <= SUSPECT && !case.same_code => TimeFinding::Suspect,
            () if change <= -LEAST.ln() && down <= ALARM => TimeFinding::Faster,
            () if !case.is_telling() => TimeFinding::Unknown,
            () => TimeFinding::Same,
        };
        TimingRow {
            id: case.id.into(),
            finding,
            before_ns: case.level.mean.exp(),
            runs: case.level.count,
            now_ns: case.now.ns,
            p: if change >= 0.0 { up } else { down },
            noise: case.sigma.map(|(sigma, _)| sigma),
            same_code: case.same_code,
        }
    };
    held.iter().map(row).collect()
}

/// All cases as one: how much the mean of their changes stands out from how much runs as a whole vary.
fn together(history: &TimeHistory, held: &[Held<'_>]) -> Option<Together> {
    // By run, how far each case was from the mean where nothing changed.
    let mut distances: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for case in held {
        let past = history.get(case.id).map(Vec::as_slice).unwrap_or_default();
        let groups = by_state(past);
        for time in past {
            let logs = groups.get(&time.state()).map(Vec::as_slice).unwrap_or_default();
            let (Some(level), count) = (Level::of(logs), logs.len() as f64) else { continue };
            if count > 1.0 {
                // The mean has some of it, too.
                let scale = (count / (count - 1.0)).sqrt();
                distances.entry(&time.run).or_default().push((time.ns.ln() - level.mean) * scale);
            }
        }
    }
    let whole = distances.values().filter(|of_run| of_run.len() >= LEAST_TOGETHER);
    let runs: Vec<f64> = whole.filter_map(|of_run| Some(Level::of(of_run)?.mean)).collect();
    if runs.len() < LEAST_TOGETHER || held.len() < LEAST_TOGETHER {
        return None;
    }
    let sigma = Noise::of(&runs).with(Prior::of(&[Noise::of(&runs)], FLOOR_OF_RUNS)).map(|(sigma, _)| sigma);
    let sigma = sigma.unwrap_or(FLOOR_OF_RUNS).max(FLOOR_OF_RUNS);
    let df = runs.len() as f64 - 1.0;
    let change = Level::of(&held.iter().map(Held::change).collect::<Vec<_>>())?.mean;
    // The level of each case is a mean of few runs.
    let least = held.iter().map(|case| case.level.count).min().unwrap_or(1);
    let p = Level { mean: 0.0, count: least }.p_above(change, 1, (sigma, df));
    Some(Together {
        ratio: change.exp(),
        p,
        cases: held.len(),
        same_code: held.iter().filter(|case| case.same_code).count(),
        is_slower: p <= ALARM && change >= LEAST.ln(),
    })
}

#[cfg(test)]
mod tests;
