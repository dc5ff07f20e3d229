//! Exact statistics of rare failures, small enough to check against published
//! tables: intervals of a rate, exact tests of contingency tables, corrections
//! for many tests, the sequential test that decides when to stop, and measured values against their own noise.
//!
//! Inputs are counts, outputs are rates and probabilities; nothing here is
//! random, allocates much, or fails. The gamma function is that of `libm`, which
//! the engine needs anyway; a statistics crate would add 35 crates to the build
//! for what is 300 lines here.

mod exact;
mod multiple;
mod noise;
mod rate;
mod special;
mod sprt;

pub(crate) use exact::{fisher, freeman_halton};
pub(crate) use multiple::{benjamini_hochberg, holm};
pub(crate) use noise::{Level, Noise, Prior, Priors, student_above, student_quantile};
pub(crate) use rate::{Interval, at_least_bound, clopper_pearson, upper_bound};
pub(crate) use sprt::{Decision, FixedTest, Sprt, fixed_test};
