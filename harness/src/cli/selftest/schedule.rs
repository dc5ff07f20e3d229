//! In which order faults and innocent cases are run: units of jobs that one slot
//! runs one after the other, shuffled by a seed.

use crate::case::Case;
use crate::dispatch::Job;
use crate::rng::shuffle;
use crate::worker::fault::{FaultClass, Spec};
use crate::worker::mix;
use std::collections::VecDeque;
use std::sync::Arc;

/// A job and the class of fault that it commits, if any.
#[derive(Clone)]
pub(super) struct FaultJob {
    pub(super) job: Job,
    pub(super) class: Option<&'static FaultClass>,
    /// The class's parameter.
    pub(super) value: String,
}

/// Jobs that one slot runs one after the other.
pub(super) type Unit = VecDeque<FaultJob>;

/// Innocent cases between two faults, on average.
const COMPANY: usize = 1;
/// More cases than after which `position` fails.
const WARM: usize = 5;

/// All units of all repeats.
pub(super) fn units(classes: &[&'static FaultClass], innocent: &[Arc<Case>], repeats: u32, seed: u64) -> Vec<Unit> {
    let mut all = Vec::new();
    for repeat in 0..repeats {
        let mut units = one_repeat(classes, innocent, repeat, seed);
        shuffle(&mut units, mix(seed ^ mix(u64::from(repeat))));
        all.extend(units);
    }
    // Two slots may run the same case at a time: the number tells the jobs apart.
    for (number, planned) in all.iter_mut().flatten().enumerate() {
        planned.job.repeat = number as u32;
    }
    all
}

fn one_repeat(classes: &[&'static FaultClass], innocent: &[Arc<Case>], repeat: u32, seed: u64) -> Vec<Unit> {
    let mut next = repeat as usize;
    let mut clean = || {
        next += 1;
        let case = innocent[next % innocent.len()].clone();
        FaultJob { job: Job::new(case, seed), class: None, value: String::new() }
    };
    let fault = |text: &str| {
        let spec = Spec::parse(text)?;
        let job = Job::new(Arc::new(Spec::case(text)?), seed);
        Some(FaultJob { job, class: Some(spec.class), value: spec.value.into() })
    };
    let mut units = Vec::new();
    let mut add = |jobs: Vec<Option<FaultJob>>| units.push(jobs.into_iter().flatten().collect::<Unit>());
    for class in classes {
        let spec = class.spec();
        match class.name {
            // Once where it must fail, once where it must not.
            "victim" => {
                let label = class.sample;
                add(vec![fault(&format!("pollute={label}")), Some(clean()), fault(&spec)]);
                let alone = fault(&spec).map(|mut planned| {
                    planned.job.fresh = true;
                    planned
                });
                add(vec![alone]);
            }
            "pollute" => {}
            "position" => {
                let warm = (0..WARM).map(|_| Some(clean()));
                add(warm.chain([fault(&spec)]).collect());
                add(vec![fault(&spec)]);
            }
            // Time to be compiled ahead, where there are threads for that.
            "segv-ahead" | "hang-ahead" => add(vec![Some(clean()), fault(&spec), Some(clean())]),
            // Told when the worker ends, so it must end right after its case.
            "exit-crash" | "exit-hang" => {
                add(vec![fault(&spec).map(|mut planned| {
                    planned.job.alone = true;
                    planned
                })]);
            }
            _ => add(vec![fault(&spec), Some(clean())]),
        }
        (0..COMPANY).for_each(|_| add(vec![Some(clean())]));
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fault::classes;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn every_class_is_run_in_every_repeat() {
        let all: Vec<&'static FaultClass> = classes().collect();
        let innocent = [Arc::new(Case { id: "Innocent.a".into(), ..Case::default() })];
        let units = units(&all, &innocent, 3, 7);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let mut clean = 0;
        for planned in units.iter().flatten() {
            match planned.class {
                Some(class) => *counts.entry(class.name).or_default() += 1,
                None => clean += 1,
            }
        }
        for class in &all {
            assert!(counts.get(class.name).is_some_and(|count| *count >= 3 && count % 3 == 0), "{}", class.name);
        }
        assert!(clean >= 3 * all.len());
        let numbers: BTreeSet<u32> = units.iter().flatten().map(|planned| planned.job.repeat).collect();
        assert_eq!(numbers.len(), units.iter().flatten().count());
        // Another seed is another order.
        let order = |seed| {
            let units = super::units(&all, &innocent, 1, seed);
            units.iter().flatten().map(|planned| planned.job.case.id.clone()).collect::<Vec<_>>()
        };
        assert_ne!(order(1), order(2));
        assert_eq!(order(1), order(1));
    }
}
