//! Built-in failures of a worker, for tests of the harness: each is what it
//! says, not an imitation.
//!
//! One table ([`classes`]) names every class of fault with what the harness must
//! make of it: the outcome of its case, the phase in the breadcrumb, what is told
//! about its worker, what it must leave alone. `harness selftest` runs the table;
//! `--with-faults` adds a case `__fault.NAME` for each row to the loaded ones.
//!
//! Inputs: a [`Spec`] such as `segv` or `flaky=0.05` and the [`Scene`] in which it
//! happens. Output: an outcome, where the fault returns at all.
//!
//! Invariant: a row's `expected` is what happens, checked by `harness selftest`;
//! a class that cannot happen on a device is not run there, never imitated.

mod device;
mod host;
mod process;
mod protocol;
mod resource;
mod statistics;
mod table;

pub(crate) use resource::tidy;
pub(crate) use table::{Class, Facts, Kind, Past, Place, Scene, Spares, Spec, cases, classes, named};

use crate::crumb::Lane;
use crate::verdict::Outcome;

/// Commits what the fault does while its case is compiled ahead, if anything.
pub(crate) fn commit_ahead(spec: &str, lane: Lane<'_>) {
    if let Some(ahead) = Spec::parse(spec).and_then(|found| found.class.ahead) {
        ahead(lane);
    }
}

/// Commits the fault. Returns only where the fault is to return, with whether
/// the worker must be replaced.
pub(crate) fn commit(spec: &str, scene: &Scene<'_>) -> (Outcome, bool) {
    scene.crumbs.own(crate::crumb::Own::Inputs, spec);
    let outcome = match Spec::parse(spec) {
        Some(found) => (found.class.commit)(scene, found.value),
        None => Outcome::fail("fail.assert", format!("there is no fault `{spec}`")),
    };
    (outcome, scene.tainted.get())
}
