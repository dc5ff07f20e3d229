//! The tests of the engine through its public interface, in one binary: each file
//! would otherwise link all of it once more.
//!
//! They may share a process: none changes its environment or leaves anything in it
//! but the ignored `fuzz_for_long`, which is run alone.

mod aliases;
mod axes;
mod blessed;
mod catalog;
mod compile_threads;
mod differential;
mod exchange;
mod few_kernels;
mod fusion_hash;
mod fuzz_lowering;
mod heuristics;
mod host_quotients;
mod host_random;
mod layers;
mod lowering;
mod memory_counts;
mod operations;
mod oracle;
mod pairs;
mod preseg;
mod property;
mod random_schedules;
mod rewrites;
mod rows;
mod rows_in_ring;
mod scaling;
mod schedule_steps;
mod segments;
mod shapes;
mod source;
mod templates;
mod texts;
