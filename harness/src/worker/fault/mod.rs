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

mod commit;
mod device;
mod host;
mod process;
mod protocol;
mod resource;
mod statistics;
mod table;

pub(crate) use commit::{commit, commit_ahead};
pub(crate) use resource::tidy;
pub(crate) use table::{
    FaultClass, FaultFacts, FaultKind, FaultPast, FaultTarget, Scene, Spares, Spec, cases, classes, named,
};
