//! The conditions of a trial, and every change of one of them that is possible.

use super::trials::Stock;
use crate::cli::run::setup::on_gpus;
use crate::code_cache::CodeCache;
use crate::dispatch::RunPlan;
use crate::proto::Knobs;
use std::path::PathBuf;

/// Threads that compile ahead where the run had none.
const COMPILE_THREADS: u32 = 4;
/// Seed of the jitter that is tried.
const JITTER: u64 = 1;

/// What runs in the worker before the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Neighbours {
    Same,
    None,
    Random,
}

/// Which slots are at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workers {
    All,
    One,
    /// Two on one device.
    Shared,
}

impl Workers {
    /// Whether only one device is at work: its rate must not be compared with that of all.
    pub(super) fn are_on_one_device(self) -> bool {
        self != Workers::All
    }
}

/// All conditions of a trial.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) neighbours: Neighbours,
    pub(super) workers: Workers,
    pub(super) knobs: Knobs,
    pub(super) load: bool,
    pub(super) varied_seed: bool,
}

/// A change of one condition: its name, both levels in words, and the setting.
pub(super) struct Level {
    pub(super) factor: &'static str,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) setting: Setting,
    /// Whether this takes away what may be needed, or adds stress.
    pub(super) calms: bool,
}

impl Setting {
    /// Changes the condition of a level as this does, and no other.
    pub(super) fn take(&mut self, level: &Level) {
        let to = &level.setting;
        match level.factor {
            "isolation" | "neighbours" => self.neighbours = to.neighbours,
            "compile_threads" => self.knobs.compile_threads = to.knobs.compile_threads,
            "workers" | "workers_per_device" => self.workers = to.workers,
            "load" => self.load = to.load,
            "jitter" => self.knobs.jitter = to.knobs.jitter,
            "code_cache" => self.knobs.code_cache.clone_from(&to.knobs.code_cache),
            "seed" => self.varied_seed = to.varied_seed,
            _ => self.knobs.twice = to.knobs.twice,
        }
    }
}

impl Stock<'_> {
    /// The conditions of the failure.
    pub(super) fn base(&self) -> Setting {
        Setting {
            neighbours: if self.priors.is_empty() { Neighbours::None } else { Neighbours::Same },
            workers: if self.plan.slots.len() > 1 { Workers::All } else { Workers::One },
            knobs: self.plan.knobs.clone(),
            load: false,
            varied_seed: false,
        }
    }

    /// Every change of one condition that is possible here.
    pub(super) fn levels(&self, base: &Setting) -> Vec<Level> {
        let mut levels = Vec::new();
        let mut add = |factor, from: &str, to: &str, calms, setting| {
            levels.push(Level { factor, from: from.into(), to: to.into(), setting, calms });
        };
        let with = |change: &dyn Fn(&mut Setting)| {
            let mut setting = base.clone();
            change(&mut setting);
            setting
        };
        if base.neighbours == Neighbours::Same {
            add("isolation", "worker", "case", true, with(&|s| s.neighbours = Neighbours::None));
        }
        if !self.random.is_empty() {
            let from = if base.neighbours == Neighbours::Same { "same" } else { "none" };
            add("neighbours", from, "random", false, with(&|s| s.neighbours = Neighbours::Random));
        }
        let threads = base.knobs.compile_threads;
        match threads {
            0 => {
                let to = COMPILE_THREADS.to_string();
                add("compile_threads", "0", &to, false, with(&|s| s.knobs.compile_threads = COMPILE_THREADS));
            }
            _ => add("compile_threads", &threads.to_string(), "0", true, with(&|s| s.knobs.compile_threads = 0)),
        }
        let all = self.plan.slots.len().to_string();
        if base.workers == Workers::All {
            add("workers", &all, "1", true, with(&|s| s.workers = Workers::One));
        }
        if self.sharers() < 2 {
            add("workers_per_device", "1", "2", false, with(&|s| s.workers = Workers::Shared));
        }
        add("load", "off", "on", false, with(&|s| s.load = true));
        match base.knobs.jitter {
            None => add("jitter", "off", &JITTER.to_string(), false, with(&|s| s.knobs.jitter = Some(JITTER))),
            Some(seed) => add("jitter", &seed.to_string(), "off", true, with(&|s| s.knobs.jitter = None)),
        }
        // What others compiled, or this worker itself.
        if let Some((from, to, dir)) = other_cache(self.plan, base.knobs.code_cache.is_some()) {
            let calms = dir.is_none();
            add("code_cache", from, to, calms, with(&|s| s.knobs.code_cache.clone_from(&dir)));
        }
        if base.knobs.twice {
            add("twice", "on", "off", true, with(&|s| s.knobs.twice = false));
        }
        add("seed", "fixed", "varied", false, with(&|s| s.varied_seed = true));
        levels
    }

    /// Workers of the busiest device.
    fn sharers(&self) -> usize {
        (0..self.devices.len())
            .map(|device| self.slots.iter().filter(|slot| **slot == device).count())
            .max()
            .unwrap_or(0)
    }
}

/// The other way to have kernels compiled, in words and as a folder, where any are.
fn other_cache(plan: &RunPlan, shared: bool) -> Option<(&'static str, &'static str, Option<PathBuf>)> {
    match shared {
        _ if !on_gpus(&plan.slots) => None,
        true => Some(("shared", "off", None)),
        false => Some(("off", "shared", CodeCache::Run.folder(&plan.work_dir))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::SlotSpec;
    use crate::flake::trials::TrialStep;
    use crate::proto::DeviceSpec;
    use std::sync::Arc;

    #[track_caller]
    fn check_cache(device: DeviceSpec, shared: bool, wanted: Option<(&str, &str, bool)>) {
        let slot = SlotSpec { device, label: "d0".into(), env: Vec::new(), gpu: None };
        let plan = RunPlan::plain(vec![slot], "harness".into(), "work".into());
        let found = other_cache(&plan, shared);
        assert_eq!(found.as_ref().map(|(from, to, dir)| (*from, *to, dir.is_some())), wanted);
        assert!(found.and_then(|(_, _, dir)| dir).is_none_or(|dir| dir.is_absolute() && dir.ends_with("work/code")));
    }

    #[test]
    fn the_code_cache_is_varied_where_code_is_compiled() {
        let gpu = || DeviceSpec::Cuda { uuid: "GPU-0".into(), nvrtc: Vec::new() };
        check_cache(gpu(), true, Some(("shared", "off", false)));
        check_cache(gpu(), false, Some(("off", "shared", true)));
        check_cache(DeviceSpec::Sim { ordinal: 0, threads: 1 }, false, None);
        check_cache(DeviceSpec::Reference, false, None);
    }

    #[test]
    fn a_level_is_one_condition_and_can_be_taken_alone() {
        let slot = |ordinal| {
            let device = DeviceSpec::Cuda { uuid: format!("GPU-{ordinal}"), nvrtc: Vec::new() };
            SlotSpec { device, label: "g".into(), env: Vec::new(), gpu: None }
        };
        let step = || TrialStep { case: Arc::default(), seed: 0, repeat: 0, attempt: 0 };
        let mut plan = RunPlan::plain(vec![slot(0), slot(1)], "harness".into(), "work".into());
        plan.knobs = Knobs { compile_threads: 2, jitter: Some(3), twice: true, ..Knobs::default() };
        let (slots, devices) = (vec![0, 1], vec!["g0".into(), "g1".into()]);
        let (priors, random, watched) = (vec![step()], vec![step()], step());
        let stock = Stock { plan: &plan, priors, random, watched, slots, devices, home: 0 };
        let base = stock.base();
        let levels = stock.levels(&base);
        assert_eq!(levels.len(), 10);
        for level in levels {
            let mut setting = base.clone();
            setting.take(&level);
            assert_ne!(setting, base, "{}", level.factor);
            assert_eq!(setting, level.setting, "{}", level.factor);
        }
    }
}
