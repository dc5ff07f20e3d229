//! What is done to a fusion as a whole before it is cut: a table of passes, each of which
//! says the same in fewer or cheaper operations.
//!
//! In: a fusion as written, bound to its arguments. Out: [`Presegmented`]: a fusion with the
//! same inputs, outputs and updates, and the numbers of the definition's values in it.
//!
//! * `table` lists the passes and runs them; `seen` is what they see of sizes, `whole` what
//!   their rules may ask, and makes the fusion again where rules found something; `make` is
//!   what several make.
//! * `finest` cuts axes for `regroup`, `windows` makes parts of what is computed for `slices`.
//! * The others are passes, a file each, in the order of the table.
//!
//! Dead code is no pass: every rewrite ends in the canonical form of a fusion, in which each
//! operation leads to an output. Composites are expanded and axes are decided behind the passes
//! (`compile::prepare`, `segment`): rules are about what is written (`repeat`, not its steps), and
//! a fusion in which none fires is compiled as it stands, so that its kernels are what they were.
//!
//! Invariants:
//!
//! * Values are the same bit for bit, as `refeval` has them: also signs of zeros, and which
//!   elements are no numbers, though not the payloads of those. Random numbers are those of the definition, since seed and
//!   offset are operands.
//! * A rule may ask for what is seen of sizes, and for scalars that follow from these; never
//!   for values of scalar inputs, which are others in the next call.
//! * A tensor that survives keeps its name, and the axes of what stands for it are of the same
//!   kinds and sizes: operations behind it find what they found before.
//! * What is returned, or written into an input, stays a result of an operation of its own.

mod casts;
mod cats;
mod counts;
mod empty;
mod finest;
mod known;
mod lookups;
mod make;
mod meetings;
mod mirrors;
mod moves;
mod overlaps;
mod peaks;
mod pitches;
mod places;
mod products;
mod puts;
mod regroup;
mod repeats;
mod rolls;
mod scans;
mod scatters;
mod seen;
mod shifts;
mod slices;
mod splits;
mod stacks;
mod steps;
mod table;
mod tallies;
mod terms;
#[cfg(test)]
mod tests;
mod thin;
mod tops;
mod twins;
mod whole;
mod windows;

pub use seen::SeenSizes;
pub use table::{PASSES, Pass, Presegmented, run};
