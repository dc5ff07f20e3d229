//! Flakes: how often a case fails, on what that depends, and which neighbours
//! are to blame.
//!
//! * [`hunter`] decides what is repeated next and when it is enough; [`hunt`]
//!   makes a source of work of it; [`class`] names what a flake depends on.
//! * [`trials`] runs lists of cases, each in a fresh worker, for [`search`] (how
//!   often a failure recurs, and with [`minimize`] the smallest set of neighbours
//!   that it needs) and [`factors`] (which condition changes its rate).
//!
//! What decides is pure and tested by simulation; what runs workers is thin.

#[cfg(test)]
mod acceptance;
pub(crate) mod burn;
pub(crate) mod class;
pub(crate) mod factors;
pub(crate) mod hunt;
pub(crate) mod hunter;
pub(crate) mod minimize;
pub(crate) mod rule;
pub(crate) mod search;
pub(crate) mod standards;
pub(crate) mod trials;
