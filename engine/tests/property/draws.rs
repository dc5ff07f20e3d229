//! How many of a test's draws a run makes: with `FUSEWRIGHT_DRAWS=all`, as `.ci/run` has it, all, else one in five.
//! Who changes something waits for the tests, and the fifth finds most of what all find.

/// One in so many draws is made.
const ONE_IN: u64 = 5;
/// But as many as these, if there are so many.
const FEWEST: u64 = 20;

/// Whether a run makes all draws.
pub(crate) fn is_all() -> bool {
    std::env::var_os("FUSEWRIGHT_DRAWS").is_some_and(|value| value == "all")
}

/// The distance between two of `all` draws that are made.
pub(crate) fn step(all: u64) -> u64 {
    if is_all() { 1 } else { ONE_IN.min(all / FEWEST).max(1) }
}

/// The numbers below `all` of the draws that are made.
pub(crate) fn drawn(all: u64) -> Vec<u64> {
    (0..all).step_by(step(all) as usize).collect()
}
