//! Which cases: gtest filters, expressions over properties, what earlier runs
//! left, lists of ids, shards.
//!
//! In: cases in the order of their files, what earlier runs say about them
//! ([`Past`]), and what is asked for ([`Wanted`]). Out: the chosen cases in the
//! same order, or a diagnostic that names what is wrong and a way out.
//!
//! Invariants: nothing is run or written here; time is linear in the number of
//! cases; the shards of a selection are disjoint and together complete.

mod choose;
pub mod expr;
mod glob;
mod gtest;
mod idlist;
mod past;
pub(crate) mod quarantine;
mod rerun;
mod shard;

pub use crate::outcome::{Last, LastVerdict};
pub(crate) use choose::nearest;
pub use choose::{Chosen, Wanted, choose};
pub use expr::FilterExpr;
pub use gtest::{Filter, selected};
pub(crate) use idlist::IdList;
pub use past::Past;
pub use rerun::FromRun;
pub(crate) use rerun::Rerun;
pub use shard::{Part, Shard, Split};
