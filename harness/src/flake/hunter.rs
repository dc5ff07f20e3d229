//! Which case is repeated next, and when a hunt is over. Pure: outcomes in, picks
//! out; a second hunt with the same seed and outcomes makes the same picks.
//!
//! Cases come in rounds. A round is a seeded shuffle, so that every case meets
//! other neighbours each time; each open case is in it about as often as it is
//! near a decision: once for one that only passes, up to [`MOST_COPIES`] times
//! for a suspect that is cheap to decide, less than once for one that takes far
//! longer than the others. A case that has just failed does not wait for the next
//! round. So a round costs little for the clean ones, and repeats go where they
//! decide most for their time.
//!
//! After all decisions, or when most of the budget is spent, the cases that
//! failed are run alone in fresh workers, then among others without and with
//! load, so that what they depend on can be tested. What that leaves of the
//! budget goes to the cases that are still open, and at its end to those that
//! have failed meanwhile, in the same way.

use super::class::{Conditions, LEVEL};
use super::rule::{Finding, Rule, Tally};
use crate::rng::Rng;
use crate::stats::fisher;
use std::collections::BTreeMap;

/// Most repeats of one case in a round.
const MOST_COPIES: usize = 8;
/// A case that has failed is repeated among about so many others until it is decided.
const SOON: usize = 64;
/// Share of the budget after which open cases wait for those that failed.
const MAIN_SHARE: f64 = 0.7;
/// Runs of a failed case under another condition.
const LEAST_AGAIN: u64 = 10;
const MOST_AGAIN: u64 = 300;
/// Times that the machine may fail a case before it is given up.
const MOST_INFRA: u32 = 5;

/// Under what a case is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arm {
    /// In warm workers, among all others.
    Warm,
    /// Alone in a fresh worker.
    Alone,
    /// Among others, without and with load.
    Quiet,
    Loaded,
    /// The hunt is over.
    Over,
}

/// What is wanted of a hunt.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) rule: Rule,
    pub(crate) seed: u64,
    /// Exactly so many repeats of each case, whatever they show.
    pub(crate) repeat: Option<u64>,
    /// The first failure ends the hunt.
    pub(crate) until_fail: bool,
    /// Arms besides the first, in their order.
    pub(crate) arms: Vec<Arm>,
    /// Names of the devices.
    pub(crate) devices: Vec<String>,
}

/// A repeat to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) case: usize,
    pub(crate) arm: Arm,
    /// The how manyth of the case.
    pub(crate) repeat: u32,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRepeat {
    Pick(Pick),
    /// Nothing until repeats that are under way have ended.
    Wait,
    Over,
}

/// How a repeat ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatEnd {
    Passed,
    Failed,
    /// The machine's fault.
    Spoiled,
    /// The case does not apply here.
    Skipped,
}

/// Why a hunt makes no more repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It knows what it wanted to know, as far as the machine let it.
    Own,
    /// The budget was over.
    Late,
    /// Nobody was left to make them: it was stopped, or lost its devices.
    Cut,
}

/// What is known of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseProgress {
    pub(crate) finding: Option<Finding>,
    /// Runs at the moment of the decision.
    pub(crate) decided_after: u64,
    pub(crate) conditions: Conditions,
    /// Failures by outcome.
    pub(crate) outcomes: BTreeMap<String, u64>,
    pub(crate) skipped: bool,
    /// Time of all warm repeats.
    pub(crate) spent_ns: u64,
    spoiled: u32,
    /// What the machine did to the last of those.
    spoiled_by: String,
    /// Runs wanted in each arm after the first.
    again: u64,
    /// Repeats handed out.
    handed: u32,
    in_flight: u64,
    /// Times that it is in the deck.
    dealt: usize,
}

impl CaseProgress {
    pub(crate) fn tally(&self) -> Tally {
        self.conditions.warm
    }
    /// Of all arms.
    pub(crate) fn all_runs(&self) -> u64 {
        let Conditions { warm, alone, quiet, loaded, .. } = &self.conditions;
        [warm, alone, quiet, loaded].iter().map(|tally| tally.runs()).sum()
    }
    /// What the machine did under it so often that it is not tried any more.
    pub(crate) fn given_up(&self) -> Option<&str> {
        (self.spoiled > MOST_INFRA).then_some(self.spoiled_by.as_str())
    }
    fn arm(&mut self, arm: Arm) -> &mut Tally {
        match arm {
            Arm::Alone => &mut self.conditions.alone,
            Arm::Quiet => &mut self.conditions.quiet,
            Arm::Loaded => &mut self.conditions.loaded,
            Arm::Warm | Arm::Over => &mut self.conditions.warm,
        }
    }
}

/// The state of a hunt.
#[derive(Debug)]
pub(crate) struct Hunter {
    options: Options,
    entries: Vec<CaseProgress>,
    rng: Rng,
    arm: Arm,
    /// The rest of the round, the next one last.
    deck: Vec<usize>,
    in_flight: usize,
    rounds: u64,
    /// Share of the budget at which open cases wait for those that failed.
    turn: f64,
    /// Cases found to fail whose dependences no arm has been run for.
    untested: usize,
    /// Whether the end of the budget ended it.
    late: bool,
}

impl Hunter {
    pub(crate) fn new(cases: usize, options: Options) -> Self {
        let devices: Vec<_> = options.devices.iter().map(|name| (name.clone(), Tally::default())).collect();
        let conditions = Conditions { devices, ..Conditions::default() };
        let entries = vec![CaseProgress { conditions, ..CaseProgress::default() }; cases];
        let rng = Rng::new(options.seed);
        let (deck, turn) = (Vec::new(), MAIN_SHARE);
        Self { options, entries, rng, arm: Arm::Warm, deck, in_flight: 0, rounds: 0, turn, untested: 0, late: false }
    }

    pub(crate) fn entries(&self) -> &[CaseProgress] {
        &self.entries
    }

    /// Under what repeats are made now.
    pub(crate) fn arm(&self) -> Arm {
        self.arm
    }

    /// Why there are no more repeats.
    pub(crate) fn end(&self) -> End {
        match self.arm {
            Arm::Over if self.late => End::Late,
            Arm::Over => End::Own,
            _ => End::Cut,
        }
    }

    /// Ends the hunt: what is under way still counts.
    pub(crate) fn stop(&mut self) {
        self.arm = Arm::Over;
        self.deck.clear();
    }

    /// The next repeat. `spent` is the share of the budget that is gone.
    pub(crate) fn next(&mut self, spent: f64) -> NextRepeat {
        if spent >= 1.0 && self.arm != Arm::Over {
            self.late = true;
            self.stop();
        }
        loop {
            if self.arm == Arm::Over {
                return NextRepeat::Over;
            }
            let late = self.is_late(spent);
            if late {
                // The rest of a round may be longer than the rest of the budget.
                self.deck.drain(..).for_each(|case| self.entries[case].dealt = 0);
            }
            while let Some(case) = self.deck.pop() {
                self.entries[case].dealt = self.entries[case].dealt.saturating_sub(1);
                if self.wants(case) || self.arm > Arm::Alone {
                    return NextRepeat::Pick(self.hand_out(case));
                }
            }
            if !late {
                self.deal();
            }
            if self.deck.is_empty() {
                // The next arm starts when this one has ended: load must not leak.
                if self.in_flight > 0 {
                    return NextRepeat::Wait;
                }
                self.next_arm(spent);
            }
        }
    }

    /// Whether most of the budget is spent, and something has failed that is to be
    /// run under other conditions.
    fn is_late(&self, spent: f64) -> bool {
        self.arm == Arm::Warm && spent >= self.turn && self.untested > 0 && self.options.arms.len() > 1
    }

    fn next_arm(&mut self, spent: f64) {
        if self.arm == Arm::Warm {
            self.plan_again();
        }
        let at = self.options.arms.iter().position(|arm| *arm == self.arm);
        self.arm = match self.options.arms.get(at.map_or(0, |at| at + 1)) {
            Some(arm) => *arm,
            // All have had their turn: what is left belongs to what is open.
            None if self.arm > Arm::Warm && self.is_open() => {
                self.turn = spent + MAIN_SHARE * (1.0 - spent).max(0.0);
                Arm::Warm
            }
            None => Arm::Over,
        };
    }

    /// Whether a warm repeat of any case would tell something.
    fn is_open(&self) -> bool {
        (0..self.entries.len()).any(|case| self.wants_in(case, Arm::Warm))
    }

    fn hand_out(&mut self, case: usize) -> Pick {
        self.in_flight += 1;
        let entry = &mut self.entries[case];
        entry.in_flight += 1;
        let repeat = entry.handed;
        entry.handed += 1;
        Pick { case, arm: self.arm, repeat }
    }

    /// A repeat that was not made.
    pub(crate) fn put_back(&mut self, case: usize) {
        self.in_flight -= 1;
        self.entries[case].in_flight -= 1;
        if self.arm != Arm::Over {
            self.deck.push(case);
            self.entries[case].dealt += 1;
        }
    }

    /// A repeat that was made, on the device with that index. Returns the finding
    /// if it is one now.
    pub(crate) fn record(
        &mut self,
        pick: (usize, Arm),
        device: usize,
        ended: RepeatEnd,
        outcome: &str,
        dur_ns: u64,
    ) -> Option<Finding> {
        let (case, arm) = pick;
        self.in_flight -= 1;
        let entry = &mut self.entries[case];
        entry.in_flight -= 1;
        let failed = match ended {
            RepeatEnd::Passed => false,
            RepeatEnd::Failed => true,
            RepeatEnd::Skipped => {
                entry.skipped = true;
                return None;
            }
            RepeatEnd::Spoiled => {
                entry.spoiled += 1;
                entry.spoiled_by = outcome.to_string();
                return None;
            }
        };
        entry.arm(arm).add(failed);
        if failed {
            *entry.outcomes.entry(outcome.to_string()).or_default() += 1;
        }
        if arm != Arm::Warm {
            return None;
        }
        entry.spent_ns += dur_ns;
        if let Some((_, tally)) = entry.conditions.devices.get_mut(device) {
            tally.add(failed);
        }
        let known = self.fails(case);
        let decided = self.decide(case);
        self.untested += usize::from(!known && self.fails(case));
        self.deal_soon(case);
        if failed && self.options.until_fail {
            self.stop();
        }
        decided
    }

    /// A suspect does not wait for the next round: it comes again soon, still among others.
    fn deal_soon(&mut self, case: usize) {
        let entry = &self.entries[case];
        let suspect = entry.finding.is_none() && entry.tally().failures > 0 && self.options.repeat.is_none();
        if !suspect || self.arm != Arm::Warm || entry.dealt >= MOST_COPIES / 2 {
            return;
        }
        for _ in entry.dealt..MOST_COPIES {
            let at = self.deck.len() - self.rng.below(self.deck.len().min(SOON) + 1);
            self.deck.insert(at, case);
        }
        self.entries[case].dealt = MOST_COPIES;
    }

    /// Returns the finding if it is new, or another one than before.
    fn decide(&mut self, case: usize) -> Option<Finding> {
        let rule = &self.options.rule;
        let entry = &mut self.entries[case];
        let tally = entry.tally();
        match entry.finding {
            None => {
                entry.finding = rule.decide(tally);
                entry.decided_after = tally.runs();
                entry.finding
            }
            // A plain count goes on, and what all of its runs say is the finding.
            Some(before) if self.options.repeat.is_some() => {
                let now = rule.decide(tally).filter(|now| *now != before)?;
                entry.finding = Some(now);
                entry.finding
            }
            // Repeats that were under way at the decision may show that it also passes, or fails.
            Some(Finding::Broken) if tally.passes > 0 => {
                entry.finding = Some(Finding::Flaky);
                entry.finding
            }
            Some(_) => None,
        }
    }

    /// Whether its dependences are worth a test.
    fn fails(&self, case: usize) -> bool {
        matches!(self.entries[case].finding, Some(Finding::Flaky | Finding::Broken))
    }

    fn failed(&self) -> impl Iterator<Item = usize> {
        (0..self.entries.len()).filter(|case| self.fails(*case))
    }

    /// Whether a further repeat of the case would tell something now.
    fn wants(&self, case: usize) -> bool {
        self.wants_in(case, self.arm)
    }

    fn wants_in(&self, case: usize, arm: Arm) -> bool {
        let entry = &self.entries[case];
        if entry.skipped || entry.given_up().is_some() {
            return false;
        }
        let rule = &self.options.rule;
        match arm {
            Arm::Warm => match (self.options.repeat, entry.finding) {
                (Some(count), _) => entry.tally().runs() + entry.in_flight < count,
                (None, None) => true,
                (None, Some(Finding::Flaky)) => !rule.is_tight(entry.tally()),
                (None, Some(_)) => false,
            },
            arm => self.runs_in(case, arm) < entry.again,
        }
    }

    fn runs_in(&self, case: usize, arm: Arm) -> u64 {
        let entry = &self.entries[case];
        let Conditions { warm, alone, quiet, loaded, .. } = &entry.conditions;
        let tally = match arm {
            Arm::Alone => alone,
            Arm::Quiet => quiet,
            Arm::Loaded => loaded,
            Arm::Warm | Arm::Over => warm,
        };
        tally.runs() + entry.in_flight
    }

    /// Sets how often failed cases are run under another condition: if they never
    /// fail there, the difference must be significant, as far as the bound allows.
    fn plan_again(&mut self) {
        self.untested = 0;
        let failed: Vec<usize> = self.failed().collect();
        for case in failed {
            let warm = self.entries[case].tally();
            let clear = |n: u64| {
                let same = ((warm.rate() * n as f64) as u64, n);
                fisher(warm.count(), (0, n)).max(fisher(same, (0, n))) < LEVEL / 3.0
            };
            let (mut low, mut high) = (LEAST_AGAIN, MOST_AGAIN);
            while low < high {
                let middle = (low + high) / 2;
                if clear(middle) {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            self.entries[case].again = low;
        }
    }

    /// Makes a round for the arm; leaves the deck empty if nothing is wanted.
    fn deal(&mut self) {
        self.rounds += 1;
        match self.arm {
            Arm::Warm => self.deal_warm(),
            Arm::Alone => {
                let wanted: Vec<usize> = self.failed().filter(|case| self.wants(*case)).collect();
                self.deck.extend(wanted);
            }
            Arm::Quiet | Arm::Loaded => self.deal_among_others(),
            Arm::Over => {}
        }
        self.rng.shuffle(&mut self.deck);
        self.deck.iter().for_each(|case| self.entries[*case].dealt += 1);
    }

    fn deal_warm(&mut self) {
        let mean = self.mean_ns();
        let reference = 1.0 / (self.options.rule.sprt.straight_passes() as f64 * mean);
        for case in 0..self.entries.len() {
            if !self.wants(case) {
                continue;
            }
            let entry = &self.entries[case];
            let runs = entry.tally().runs();
            let cost = if runs == 0 { mean } else { entry.spent_ns.max(1) as f64 / runs as f64 };
            let left = self.options.rule.remaining(entry.tally(), entry.finding.is_some());
            let weight = 1.0 / (left * cost) / reference;
            let copies = match self.options.repeat {
                Some(_) => 1.0,
                // The first rounds give each case its turn.
                None if runs < 3 => 1.0,
                None => weight.clamp(1.0 / 16.0, MOST_COPIES as f64),
            };
            let whole = copies as usize + usize::from(self.rng.unit() < copies.fract());
            self.deck.extend(std::iter::repeat_n(case, whole));
        }
        // Only slow cases are open, and chance left all of them out.
        if self.deck.is_empty() {
            let open = (0..self.entries.len()).filter(|case| self.wants(*case));
            self.deck = open.collect();
        }
    }

    /// The failed cases that still want repeats, each with a neighbour drawn from all.
    fn deal_among_others(&mut self) {
        // What fails each time, fails under load too: not worth the time of its crashes or hangs.
        let flaky = |case: &usize| self.entries[*case].finding == Some(Finding::Flaky);
        let wanted: Vec<usize> = self.failed().filter(flaky).filter(|case| self.wants(*case)).collect();
        for case in wanted {
            self.deck.push(case);
            let neighbour = self.rng.below(self.entries.len());
            if !self.entries[neighbour].skipped {
                self.deck.push(neighbour);
            }
        }
    }

    fn mean_ns(&self) -> f64 {
        let sum = |(runs, ns): (u64, u64), entry: &CaseProgress| (runs + entry.tally().runs(), ns + entry.spent_ns);
        let (runs, ns) = self.entries.iter().fold((0, 0), sum);
        if runs == 0 { 1.0 } else { (ns as f64 / runs as f64).max(1.0) }
    }
}
