//! `--launcher slurm`: a run as an array of tasks on an existing Slurm cluster.
//!
//! Inputs: the options of a run, and a cluster whose nodes see this folder, the folder of records and this program at the
//! same places. Output: one run in the folder of records, joined of the shards, with its summary and exit code.
//!
//! Each task runs its shard into a folder of its own, so that no file system has to lock, beside a copy of the history, so
//! that all deal the cases out alike. A task whose record has no end (its node was lost, its time was over) is queued again and
//! goes on with that record. Slurm's own requeueing is turned off: it waits minutes, and would run beside ours.
//!
//! Invariants: no case is in the joined run twice, and none that was selected is left out unsaid; what a task has recorded is
//! never run again; a signal ends the tasks too.
//!
//! - `go.rs`: the course; `plan.rs`: what is launched, and the folder of the job;
//! - `slurm.rs`: the cluster's programs; `task.rs`: what a task does on its node.

mod go;
mod plan;
mod slurm;
mod task;

pub(super) use go::launch;
pub(super) use task::main as task;
