//! Trials under one setting: which cases, on which slots, and how they ended.

use super::setting::{Neighbours, Setting, Workers};
use crate::cli::flakes::log::HuntLog;
use crate::dispatch::RunPlan;
use crate::flake::burn::Burners;
use crate::flake::rule::Tally;
use crate::flake::standards::Standards;
use crate::flake::trials::{Ending, Halt, TrialStep, with_trials};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// What every trial is made of.
pub(super) struct Stock<'a> {
    pub(super) plan: &'a RunPlan,
    /// What ran before the case when it failed.
    pub(super) priors: Vec<TrialStep>,
    /// Other cases in their place.
    pub(super) random: Vec<TrialStep>,
    pub(super) watched: TrialStep,
    /// The device of each slot, and the devices' names.
    pub(super) slots: Vec<usize>,
    pub(super) devices: Vec<String>,
    /// The slot that is at work where only one device is.
    pub(super) home: usize,
}

/// Where trials are made, until their time is over.
pub(super) struct Bench<'a> {
    pub(super) stock: Stock<'a>,
    standards: &'a Standards,
    log: HuntLog<'a>,
    deadline: Instant,
    /// Settings that were tried: each has workers with names of its own.
    settings: usize,
}

/// What came of trials.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) tally: Tally,
    pub(super) by_device: Vec<(String, Tally)>,
    pub(super) trials: u64,
    /// Trials that did not come to the case, by what happened.
    pub(super) unfinished: BTreeMap<String, u64>,
    /// Why not all were made.
    pub(super) halt: Option<Halt>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(stock: Stock<'a>, standards: &'a Standards, log: HuntLog<'a>, deadline: Instant) -> Self {
        Self { stock, standards, log, deadline, settings: 0 }
    }

    /// Tells people what is tried.
    pub(super) fn say(&self, text: &str) {
        self.log.progress.say(text);
    }

    /// Ends the view. Gives the codes with which slots refused their device, and why.
    pub(super) fn close(mut self) -> Vec<(String, String)> {
        self.log.progress.close();
        std::mem::take(&mut self.log.refused)
    }

    /// Runs trials under a setting.
    pub(super) fn measure(&mut self, setting: &Setting, runs: u64) -> Measured {
        let (plan, devices) = self.stock.plan_of(setting, self.settings);
        self.settings += 1;
        let mut burners = Burners::default();
        burners.set(setting.load);
        let (stock, log, deadline) = (&self.stock, &mut self.log, self.deadline);
        let batch = (plan.slots.len() as u64 * 2).max(4);
        let (endings, halt) = with_trials(&plan, self.standards, &mut |event| log.event(&event), |trials| {
            let (mut endings, mut halt) = (Vec::new(), None);
            while (endings.len() as u64) < runs && halt.is_none() {
                let at = endings.len() as u64;
                let lists = (at..runs.min(at + batch)).map(|trial| stock.list(setting, trial));
                let (ended, why) = trials.run(lists, deadline);
                endings.extend(ended);
                halt = why;
            }
            (endings, halt)
        });
        let by_device = stock.devices.iter().map(|name| (name.clone(), Tally::default())).collect();
        let mut measured = Measured { by_device, halt, ..Measured::default() };
        for (slot, ending) in endings {
            measured.add(devices.get(slot), ending);
        }
        measured
    }
}

impl Measured {
    fn add(&mut self, device: Option<&usize>, ending: Ending) {
        self.trials += 1;
        match ending {
            Ending::Passed | Ending::Failed(_) => {
                let failed = ending.failed();
                self.tally.add(failed);
                if let Some((_, tally)) = device.and_then(|device| self.by_device.get_mut(*device)) {
                    tally.add(failed);
                }
            }
            Ending::Early(_, why) | Ending::Spoiled(why) => *self.unfinished.entry(why).or_default() += 1,
        }
    }
}

impl Stock<'_> {
    /// The plan of a setting, and the device of each of its slots. Its workers get
    /// names of their own, by the setting's number.
    fn plan_of(&self, setting: &Setting, number: usize) -> (RunPlan, Vec<usize>) {
        let mut plan = self.plan.clone();
        plan.knobs = setting.knobs.clone();
        let mut devices = self.slots.clone();
        match setting.workers {
            Workers::All => {}
            Workers::One => {
                plan.slots = vec![plan.slots[self.home].clone()];
                devices = vec![devices[self.home]];
            }
            Workers::Shared => {
                let (slot, device) = (plan.slots[self.home].clone(), devices[self.home]);
                (plan.slots, devices) = (vec![slot.clone(), slot], vec![device; 2]);
                plan.slots[1].label.push('b');
            }
        }
        plan.slots.iter_mut().for_each(|slot| slot.label = format!("{}.{number}", slot.label));
        (plan, devices)
    }

    /// What a trial runs.
    fn list(&self, setting: &Setting, trial: u64) -> Arc<Vec<TrialStep>> {
        let before = match setting.neighbours {
            Neighbours::Same => self.priors.as_slice(),
            Neighbours::Random => self.random.as_slice(),
            Neighbours::None => &[],
        };
        let mut steps: Vec<TrialStep> = before.iter().chain([&self.watched]).cloned().collect();
        if setting.varied_seed {
            steps.iter_mut().for_each(|step| step.seed = step.seed.wrapping_add(trial));
        }
        Arc::new(steps)
    }
}
