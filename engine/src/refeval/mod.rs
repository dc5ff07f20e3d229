//! The reference evaluator: what a fusion means, computed on the host. It is
//! the oracle of both back ends.
//!
//! Operations run one after the other, each in parallel over its elements. Every
//! result is rounded to its tensor's type, as if stored. Reductions accumulate
//! in `f64` (floats) or wrapping `i64` (integers) in an order that depends on
//! sizes only, so results are equal bit for bit on any number of threads.
//!
//! [`compare`] holds a device's result against the reference.

mod compare;
mod elementwise;
mod evaluate;
mod reduce;

pub use compare::{Comparison, Mismatch, Tolerance, compare};
pub use evaluate::{Evaluation, evaluate, evaluate_all, updated};

#[cfg(test)]
mod tests;
