//! Definitions in nvFuser's form with recorded runs of them: arrays, records,
//! arguments made of both, and the comparison of what a run gives.

mod arguments;
mod check;
mod inner;
mod npz;
mod place;
mod quotients;
mod record;
mod ties;

pub(crate) use arguments::arguments;
pub(crate) use check::{RunResult, check};
pub(crate) use npz::read as read_arrays;
pub(crate) use place::placed;
pub(crate) use record::find as find_record;
