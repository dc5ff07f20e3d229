//! GPU fusion compiler and runtime.
//!
//! See `ARCHITECTURE.md` for the map. The stages, in order: a [`fusion`] says
//! what is computed; a schedule says how; lowering turns both into a
//! [`kernel`]; the back ends print it as CUDA C++ or run it on the simulator.

#![warn(missing_docs)]

pub mod array;
pub mod axes;
pub mod backend;
pub mod compile;
pub mod diag;
pub mod fusion;
pub mod kernel;
pub mod lower;
pub mod num;
pub mod options;
pub mod preseg;
pub mod products;
pub mod program;
#[cfg(test)]
#[path = "../tests/property/mod.rs"]
mod property;
pub mod refeval;
pub mod runtime;
pub mod schedule;
pub mod segment;
pub mod template;
pub mod tensor;
pub mod text;
pub mod util;

/// The program of the README, which must keep compiling and running.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
