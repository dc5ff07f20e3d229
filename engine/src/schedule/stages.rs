//! Stages of a computation: everything between two reductions.
//!
//! A value that depends on a finished reduction belongs to a later stage than
//! the values that were reduced; no loop can hold both. Inputs: the scheduled
//! fusion. Outputs: for each tensor the stage in which its loop stands, and
//! whether its value *crosses* stages, that is, must be kept from one loop nest
//! to another.

use super::ir::{ScheduledFusion, TvId};
use crate::util::SecondaryMap;

/// The stage of each tensor.
#[derive(Clone, Debug)]
pub struct Stages {
    /// The earliest stage in which the value can be computed.
    earliest: SecondaryMap<TvId, u32>,
    /// The stage in which it is computed: that of its users, where they agree.
    placed: SecondaryMap<TvId, u32>,
    crosses: SecondaryMap<TvId, bool>,
}

impl Stages {
    /// Computes the stages of all tensors.
    pub fn new(scheduled: &ScheduledFusion) -> Self {
        let order = scheduled.topological();
        let mut earliest: SecondaryMap<TvId, u32> = SecondaryMap::new();
        for tv in &order {
            let stage = scheduled
                .producers(*tv)
                .into_iter()
                .map(|producer| earliest[producer] + u32::from(scheduled.is_reduction(producer)))
                .max()
                .unwrap_or(0);
            earliest.set(*tv, stage);
        }
        let mut placed: SecondaryMap<TvId, u32> = SecondaryMap::new();
        let mut crosses = SecondaryMap::new();
        let consumers = scheduled.all_consumers();
        for tv in order.iter().rev() {
            let mut users = consumers[*tv].iter().map(|user| placed[*user]);
            let first = users.next();
            let agree = first.is_some_and(|first| users.all(|user| user == first));
            let reduction = scheduled.is_reduction(*tv);
            placed.set(*tv, if agree && !reduction { first.unwrap_or(0) } else { earliest[*tv] });
            crosses.set(*tv, first.is_some() && !agree);
        }
        Self { earliest, placed, crosses }
    }

    /// The earliest stage in which the value can be computed.
    pub fn earliest(&self, tv: TvId) -> u32 {
        self.earliest[tv]
    }

    /// The stage in which the value is computed.
    pub fn placed(&self, tv: TvId) -> u32 {
        self.placed[tv]
    }

    /// Whether users in different stages read the value.
    pub fn crosses(&self, tv: TvId) -> bool {
        self.crosses[tv]
    }
}
