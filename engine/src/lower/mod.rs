//! Lowering: a scheduled fusion becomes kernel IR.
//!
//! Inputs: the [`ScheduledFusion`], and the class of the arguments. Output: a
//! [`Kernel`], to be verified. The parts:
//!
//! * `nest` orders the tensors and opens the loops that they share;
//! * `index` turns the indices of leaves into indices of roots and addresses,
//!   and finds the predicates that indivisible splits need;
//! * `compute` emits elementwise operations, accumulations and scalar accesses;
//! * `fill` decides what registers hold outside the tensor;
//! * `bounds` notes what is known of sums, for the choice of approximations;
//! * `prefetch` emits loops that load one iteration ahead;
//! * `vector` emits wide accesses with a checked tail;
//! * `tile` places tensors that all threads of a block reach, with the barriers that needs;
//! * `random` draws random numbers, a block of the generator at a time;
//! * `block_reduce` and `grid_reduce` combine across threads and blocks, through
//!   the shared memory that `exchange` hands out;
//! * `cleanup` joins equal predicates.
//!
//! Nothing here knows which heuristic made the schedule.

mod block_reduce;
mod bounds;
mod cleanup;
mod compile;
mod compute;
mod context;
mod exchange;
mod fill;
mod grid_reduce;
mod index;
mod nest;
mod params;
mod prefetch;
mod random;
mod tile;
mod vector;

pub use compile::{lower, lower_sharing};
