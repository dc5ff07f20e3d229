//! Commits a fault by its name.

use super::table::{Scene, Spec};
use crate::crumb::{Lane, Own};
use crate::outcome::Outcome;

/// Commits what the fault does while its case is compiled ahead, if anything.
pub(crate) fn commit_ahead(spec: &str, lane: Lane<'_>) {
    if let Some(ahead) = Spec::parse(spec).and_then(|found| found.class.ahead) {
        ahead(lane);
    }
}

/// Commits the fault. Returns only where the fault is to return, with whether
/// the worker must be replaced.
pub(crate) fn commit(spec: &str, scene: &Scene<'_>) -> (Outcome, bool) {
    scene.crumbs.own(Own::Inputs, spec);
    let outcome = match Spec::parse(spec) {
        Some(found) => (found.class.commit)(scene, found.value),
        None => Outcome::fail("fail.assert", format!("there is no fault `{spec}`")),
    };
    (outcome, scene.tainted.get())
}
