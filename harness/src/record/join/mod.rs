//! Shards as one run: each case once, with the attempts and the verdict of the shard that had it.
//!
//! Inputs: runs whose headers say of which job they are a part. Outputs: a run of its own among the others, with records
//! of the same form, which every report, comparison and page takes as any run, and `resume` goes on with.
//!
//! Invariants: shards of different jobs are never joined; of a shard that is there twice nothing is guessed; a case that no
//! shard judged stays selected and without a verdict; the same runs give the same joined run; the tables of history have each
//! measurement once, whichever of the runs are in a folder.
//!
//! - `parts.rs`: which runs make a job, and what of it is missing;
//! - `log.rs`: their records as those of one run; `header.rs`: its header;
//! - `write.rs`: its folder, and what tables have of it.

mod header;
mod log;
mod parts;
mod write;

pub(crate) use parts::{Job, Refused, jobs};
pub(super) use write::Told;
pub(crate) use write::{Joined, told, write};
