//! What the outcome of a repeat is held to besides the case's own checks: the same
//! as in a run.

use crate::case::Case;
use crate::outcome::{Determinism, Outcome, apply_learnt, apply_xfail};
use std::collections::BTreeMap;

/// How alike results were so far, and the date, by which declarations run out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Standards {
    pub(crate) learnt: BTreeMap<String, Determinism>,
    pub(crate) today: String,
}

impl Standards {
    /// As a run judges: a declared failure is none.
    pub(crate) fn judge(&self, case: &Case, outcome: &mut Outcome) {
        self.compare(case, outcome);
        apply_xfail(outcome, case.xfail.as_ref(), &self.today);
    }

    /// For a failure that is looked at: it is one, whether it is declared or not.
    pub(crate) fn compare(&self, case: &Case, outcome: &mut Outcome) {
        apply_learnt(outcome, self.learnt.get(&case.id).copied());
    }
}
