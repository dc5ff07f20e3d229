//! The sweep: trials as it failed, then with each condition changed, compared by
//! exact tests and corrected for their number; at last, what is needed alone.

use super::setting::{Level, Setting};
use super::told::Done;
use super::trials::{Bench, Measured};
use crate::flake::factors::{FactorChange, correct, runs_needed};
use crate::flake::rule::Tally;
use crate::flake::trials::Halt;

/// Trials under the conditions of the failure: until so many failures, and at
/// least and at most so many.
const BASE_FAILURES: u64 = 12;
const BASE_LEAST: u64 = 20;
const BASE_MOST: u64 = 200;
/// Trials of each change at most.
const MOST: u64 = 200;

/// The experiment.
pub(super) struct Sweep<'s, 'a> {
    bench: &'s mut Bench<'a>,
    /// Trials of each setting, where the user says how many.
    count: Option<u64>,
    base: Setting,
    done: Done,
}

impl<'s, 'a> Sweep<'s, 'a> {
    pub(super) fn new(bench: &'s mut Bench<'a>, count: Option<u64>) -> Self {
        let base = bench.stock.base();
        Self { bench, count, base, done: Done::default() }
    }

    pub(super) fn go(mut self) -> Done {
        let mut halted = self.sweep().err();
        self.done.changes = correct(std::mem::take(&mut self.done.changes));
        if halted.is_none() {
            halted = self.check_enough().err();
        }
        self.done.gave_up = halted.map(Halt::why);
        self.done
    }

    fn sweep(&mut self) -> Result<(), Halt> {
        self.as_it_failed()?;
        let levels = self.bench.stock.levels(&self.base);
        let changes = levels.len() + self.done.changes.len();
        self.done.runs_each = self.runs_against(self.done.base.all, changes);
        for level in levels {
            let before = self.before(&level.setting);
            let runs = self.runs_against(before, changes);
            self.bench.say(&format!("{} {} -> {}", level.factor, level.from, level.to));
            let Measured { tally: after, halt, .. } = self.measure(&level.setting, runs);
            // What has ended counts, however few there are.
            if halt.is_none() || after.runs() > 0 {
                self.done.changes.push(FactorChange::new(level.factor, &level.from, &level.to, before, after));
            }
            goes_on(halt)?;
        }
        Ok(())
    }

    /// The rate under the conditions of the failure, and whether devices differ in it.
    fn as_it_failed(&mut self) -> Result<(), Halt> {
        self.bench.say("as it failed");
        // A trial that does not come to its end counts for nothing, but ends this too.
        let most = self.count.unwrap_or(BASE_MOST);
        while self.done.trials < most && (self.count.is_some() || self.is_vague()) {
            let more = self.count.unwrap_or(BASE_LEAST).min(most - self.done.trials);
            let measured = self.measure(&self.base.clone(), more);
            self.done.base.add(measured.tally, measured.by_device);
            goes_on(measured.halt)?;
        }
        let stock = &mut self.bench.stock;
        stock.home = self.done.base.home(&stock.slots);
        self.done.changes.extend(self.done.base.devices());
        Ok(())
    }

    /// The trials as it failed with which those under a setting are compared.
    fn before(&self, setting: &Setting) -> Tally {
        let stock = &self.bench.stock;
        self.done.base.of(setting.workers, stock.slots.get(stock.home))
    }

    /// Trials of a change, so that the end of the failure shows.
    fn runs_against(&self, before: Tally, changes: usize) -> u64 {
        self.count.unwrap_or_else(|| match before.failures {
            0 => BASE_LEAST,
            _ => runs_needed(before, changes, MOST),
        })
    }

    /// Whether too little is known of the rate under the conditions of the failure.
    fn is_vague(&self) -> bool {
        self.done.base.all.runs() < BASE_LEAST || self.done.base.all.failures < BASE_FAILURES
    }

    /// What is needed, with everything else calm.
    fn check_enough(&mut self) -> Result<(), Halt> {
        let levels: Vec<Level> = self.bench.stock.levels(&self.base).into_iter().filter(|level| level.calms).collect();
        let is_needed = |level: &Level| {
            self.done.changes.iter().any(|c| c.factor == level.factor && c.to == level.to && c.needed())
        };
        let (needed, others): (Vec<Level>, Vec<Level>) = levels.into_iter().partition(is_needed);
        if needed.is_empty() {
            return Ok(());
        }
        let mut setting = self.base.clone();
        for level in others.iter().filter(|level| !needed.iter().any(|n| n.factor == level.factor)) {
            setting.take(level);
        }
        let names: Vec<String> = needed.iter().map(|level| format!("{} {}", level.factor, level.from)).collect();
        self.bench.say(&format!("only {}", names.join(" and ")));
        let Measured { tally, halt, .. } = self.measure(&setting, self.done.runs_each.max(BASE_LEAST));
        goes_on(halt)?;
        self.done.enough = Some((self.before(&setting), tally, names));
        Ok(())
    }

    /// Runs trials, and counts them.
    fn measure(&mut self, setting: &Setting, runs: u64) -> Measured {
        let mut measured = self.bench.measure(setting, runs);
        self.done.trials += measured.trials;
        for (why, count) in std::mem::take(&mut measured.unfinished) {
            *self.done.unfinished.entry(why).or_default() += count;
        }
        measured
    }
}

fn goes_on(halt: Option<Halt>) -> Result<(), Halt> {
    halt.map_or(Ok(()), Err)
}
