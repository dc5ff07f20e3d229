//! A second look at times: a kept binary (A) and this one (B) measure cases in rounds of A B B A, each measurement in a
//! fresh process on the same GPU.
//!
//! Inputs: round by round what each case took. Outputs: which cases the next round measures, and what came of each.
//!
//! What varies between two processes is mostly where their buffers lie, and is more than what varies within one: so
//! a process is one value, and a case gets as many of them as it needs. A round gives the difference of the means of its two pairs,
//! which a steady drift does not move; noise is what pairs and rounds differ by, and cases with few rounds
//! borrow from the others (a moderated t-test). After each round a case is
//!
//! - *confirmed* as slower, if it is so by [`LEAST`] and more, with a false alarm in 100 looks as a whole at most: each look has its
//!   part of that, corrected for the number of cases; and its change is told as exactly as [`PRECISION`] asks;
//! - *refuted*, if it is slower by less than [`NEARLY`], with an error in 100 cases at most, of which each look has its part;
//! - measured on, until [`MOST_ROUNDS`], or until the time is over: what is confirmed by then is so less exactly, of the rest nobody can tell.
//!
//! When it stops may depend on what was seen, because each look pays for itself. A case of which both binaries have the same
//! code is not measured on, nor one that a measurement had no time of: of that counts what was measured before.

use super::timing::{ALARM, LEAST, Timed};
use crate::stats::{Level, Noise, Prior, Priors, benjamini_hochberg, student_above, student_quantile};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds before a case is confirmed, and before it is refuted where few others tell noise: processes that happen to agree
/// show none.
const CONFIRMS: usize = 3;
const REFUTES: usize = 2;
/// So many cases tell of each other how much processes vary: then one round may refute.
const ENOUGH: usize = 20;
const MOST_ROUNDS: usize = 24;
/// Half the width of the 95 % interval of a change that is told, as a share: then it is within one percentage point in 999
/// of 1,000.
const PRECISION: f64 = 0.005;
/// A slowdown below this is not looked for to the end.
const NEARLY: f64 = 1.02;
/// No case is believed to vary less from process to process, as a logarithm.
const FLOOR: f64 = 0.0005;

/// What a second look says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Confirmed,
    Refuted,
    /// Both binaries have the same code.
    SameCode,
    Unknown,
}

/// What came of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SecondLook {
    pub(crate) verdict: Verdict,
    /// What it takes by the kept binary, as a mean.
    pub(crate) kept_ns: f64,
    /// This binary's time for each unit of the kept one's.
    pub(crate) ratio: f64,
    /// Half the width of the 95 % interval of the ratio.
    pub(crate) half: f64,
    /// That it is not slower, corrected for the number of cases.
    pub(crate) p: f64,
    pub(crate) rounds: usize,
}

/// Logarithms of times, in the order of a round.
type Round = [f64; 4];

/// What is measured in turns so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct InTurns {
    cases: BTreeMap<String, Vec<Round>>,
    open: BTreeSet<String>,
    /// What was said of the others, and stays.
    said: BTreeMap<String, SecondLook>,
    same_code: BTreeSet<String>,
    /// What some measurement had no time of.
    lost: BTreeSet<String>,
    /// All cases together, where that is asked; nothing else is.
    whole: Option<Vec<Round>>,
    rounds: usize,
}

/// A change with its uncertainty.
#[derive(Clone, Copy)]
struct Estimate {
    change: f64,
    error: f64,
    df: f64,
}

impl Estimate {
    fn p_above(self, change: f64) -> f64 {
        student_above((self.change - change) / self.error, self.df)
    }
    /// Half the width of the interval at 95 %.
    fn half(self) -> f64 {
        student_quantile(0.025, self.df) * self.error
    }
}

fn difference(round: &Round) -> f64 {
    (round[1] + round[2] - round[0] - round[3]) / 2.0
}

/// What the pairs of a round and the rounds differ by.
fn noise(rounds: &[Round]) -> Noise {
    let pairs = rounds.iter().flat_map(|round| [[round[0], round[3]], [round[1], round[2]]]);
    let within = pairs.fold(Noise::default(), |sum, pair| sum.and(Noise::of(&pair)));
    within.and(Noise::of(&rounds.iter().map(difference).collect::<Vec<_>>()))
}

/// What the kept binary takes, as a logarithm.
fn kept(rounds: &[Round]) -> Option<f64> {
    Some(Level::of(&rounds.iter().flat_map(|round| [round[0], round[3]]).collect::<Vec<_>>())?.mean)
}

fn estimate(rounds: &[Round], prior: Option<Prior>) -> Option<Estimate> {
    let change = Level::of(&rounds.iter().map(difference).collect::<Vec<_>>())?.mean;
    let noise = noise(rounds);
    let (sigma, df) = noise.with(prior).or_else(|| noise.alone())?;
    Some(Estimate { change, error: sigma.max(FLOOR) / (rounds.len() as f64).sqrt(), df })
}

impl InTurns {
    /// Of these cases; `whole` asks for all of them together, too.
    pub(crate) fn new(ids: &BTreeSet<String>, whole: bool) -> Self {
        let cases = ids.iter().map(|id| (id.clone(), Vec::new())).collect();
        Self { cases, open: ids.clone(), whole: whole.then(Vec::new), ..Self::default() }
    }

    /// What the next round measures; nothing where all is said.
    pub(crate) fn next(&self) -> BTreeSet<String> {
        match self.whole_look(false).is_some_and(|look| look.verdict == Verdict::Unknown) && self.rounds < MOST_ROUNDS {
            true => self.cases.keys().filter(|id| !self.lost.contains(*id)).cloned().collect(),
            false => self.open.clone(),
        }
    }

    /// The same in the order of what they promise: first what is most likely slower. Where there is no time for all, the
    /// first of them can do; nothing where all are asked for together.
    pub(crate) fn most_likely(&self) -> Vec<String> {
        if self.whole.is_some() {
            return Vec::new();
        }
        let mut told = self.told();
        told.sort_by(|a, b| a.2.total_cmp(&b.2).then(b.1.change.total_cmp(&a.1.change)));
        told.into_iter().map(|(id, ..)| id).filter(|id| self.open.contains(*id)).cloned().collect()
    }

    /// Takes a round of these cases: of each of its measurements the times by case.
    pub(crate) fn add(&mut self, asked: &BTreeSet<String>, round: &[BTreeMap<String, Timed>; 4]) {
        self.rounds += 1;
        let mut whole = Vec::new();
        for (id, rounds) in self.cases.iter_mut().filter(|(id, _)| asked.contains(*id)) {
            let [Some(a), Some(b), Some(c), Some(d)] = [0, 1, 2, 3].map(|at| round[at].get(id)) else {
                self.lost.insert(id.clone());
                continue;
            };
            let logs = [a, b, c, d].map(|timed| timed.ns.ln());
            whole.push(logs);
            if a.code.is_same(&b.code) {
                self.same_code.insert(id.clone());
            }
            rounds.push(logs);
        }
        if let Some(rounds) = self.whole.as_mut().filter(|_| !whole.is_empty()) {
            let mean = |at: usize| whole.iter().map(|logs| logs[at]).sum::<f64>() / whole.len() as f64;
            rounds.push([0, 1, 2, 3].map(mean));
        }
        let is_last = self.rounds >= MOST_ROUNDS;
        let ends = |id: &String| is_last || self.lost.contains(id);
        // What was not measured has had its look.
        let says = |id: &String, look: &SecondLook| asked.contains(id) && look.verdict != Verdict::Unknown;
        let (looks, last_looks) = (self.look(false), self.look(true));
        let last = looks.into_iter().zip(last_looks.into_values());
        let said = last.filter_map(|((id, look), at_last)| {
            let look = if ends(&id) { at_last } else { look };
            (ends(&id) || says(&id, &look)).then_some((id, look))
        });
        for (id, look) in said.collect::<Vec<_>>() {
            self.open.remove(&id);
            self.said.entry(id).or_insert(look);
        }
        self.open.retain(|id| !is_last && !self.lost.contains(id));
    }

    /// The change of each case that has other code, and how likely it would be, corrected for their number.
    fn told(&self) -> Vec<(&String, Estimate, f64)> {
        let told = self.cases.iter().filter(|(id, _)| !self.same_code.contains(*id));
        let noises: Vec<(Noise, f64)> =
            told.clone().filter_map(|(_, rounds)| Some((noise(rounds), kept(rounds)?))).collect();
        let priors = Priors::of(&noises, FLOOR);
        let prior = |rounds: &[Round]| priors.zip(kept(rounds)).map(|(priors, at)| priors.at(at));
        let told: Vec<(&String, Estimate)> =
            told.filter_map(|(id, rounds)| Some((id, estimate(rounds, prior(rounds))?))).collect();
        let p = benjamini_hochberg(&told.iter().map(|(_, found)| found.p_above(0.0)).collect::<Vec<_>>());
        told.into_iter().zip(p).map(|((id, found), p)| (id, found, p)).collect()
    }

    /// What can be said of each case; where nothing more will be measured, also of those that are not known exactly.
    pub(crate) fn look(&self, is_over: bool) -> BTreeMap<String, SecondLook> {
        let told = self.told();
        let refutes = if told.len() >= ENOUGH { 1 } else { REFUTES };
        let open = told.into_iter().filter(|(id, ..)| self.open.contains(*id));
        let looks = open.map(|(id, found, p)| (id, second_look(&self.cases[id], refutes, found, p, is_over)));
        let same = self.same_code.iter().filter_map(|id| {
            let look = second_look(&self.cases[id], REFUTES, estimate(&self.cases[id], None)?, 1.0, false);
            Some((id, SecondLook { verdict: Verdict::SameCode, ..look }))
        });
        let mut all = self.said.clone();
        all.extend(looks.chain(same).map(|(id, look)| (id.clone(), look)));
        all
    }

    /// What can be said of all cases together.
    pub(crate) fn whole_look(&self, is_over: bool) -> Option<SecondLook> {
        let rounds = self.whole.as_ref()?;
        let found = estimate(rounds, None);
        let unknown = SecondLook { verdict: Verdict::Unknown, kept_ns: 1.0, ratio: 1.0, half: 1.0, p: 1.0, rounds: 0 };
        Some(found.map_or(unknown, |found| second_look(rounds, REFUTES, found, found.p_above(0.0), is_over)))
    }
}

/// What of all errors the look after so many rounds may make. Slowdowns are not confirmed before some rounds, so each look may
/// make as many false alarms; refutations are made early, so the first looks may make most of them. Both sum up to one at most.
fn share(rounds: usize, confirms: bool) -> f64 {
    if confirms { 1.0 / MOST_ROUNDS as f64 } else { 1.0 / (rounds * (rounds + 1)) as f64 }
}

/// What a change after so many rounds says, of which `refutes` are needed to refute.
fn verdict(rounds: usize, refutes: usize, found: Estimate, p: f64, is_over: bool) -> Verdict {
    let is_slower = rounds >= CONFIRMS && found.change >= LEAST.ln() && p <= ALARM * share(rounds, true);
    match () {
        () if is_slower && (is_over || found.change.exp() * found.half() <= PRECISION) => Verdict::Confirmed,
        // That it is slower by so much would have been seen otherwise.
        () if rounds >= refutes && 1.0 - found.p_above(NEARLY.ln()) <= ALARM * share(rounds, false) => Verdict::Refuted,
        () => Verdict::Unknown,
    }
}

fn second_look(rounds: &[Round], refutes: usize, found: Estimate, p: f64, is_over: bool) -> SecondLook {
    let ratio = found.change.exp();
    SecondLook {
        verdict: verdict(rounds.len(), refutes, found, p, is_over),
        kept_ns: kept(rounds).unwrap_or_default().exp(),
        ratio,
        half: ratio * found.half(),
        p,
        rounds: rounds.len(),
    }
}

#[cfg(test)]
mod tests;
