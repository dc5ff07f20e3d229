//! Lowering: a scheduled fusion becomes kernel IR, in passes over a loop tree.
//!
//! Inputs: the [`ScheduledFusion`], and the class of the arguments. Output: a
//! [`Kernel`], to be verified. `facts` is what the schedule says, `tree` the tree. The passes,
//! in order:
//!
//! 1. `place`: tensors to nests, by loops and inline positions;
//! 2. `predicate`: where tests and repairs are needed, from what `outside` knows of registers
//!    outside a tensor;
//! 3. `pipeline`: loops that load some iterations ahead;
//! 4. `together`: reductions that share a barrier;
//! 5. `alloc`: arrays of registers and shared memory, and who uses them in turn;
//! 6. `sync`: barriers, from hazards between threads;
//! 7. `emit`: one walk, which makes statements.
//!
//! A pass decides by the schedule alone. What takes expressions is asked for by `emit`, node by node:
//!
//! * `index` turns the indices of loops into indices of roots and addresses,
//!   and finds the terms of tests;
//! * `compute` emits elementwise operations, accumulations and scalar accesses;
//! * `vector` emits wide accesses with a checked tail, `tile` those of tiles, `ring` asynchronous copies;
//! * `random` draws random numbers, a block of the generator at a time;
//! * `block_reduce` and `grid_reduce` emit the steps of reductions across threads and blocks;
//! * `params` and `scalars` declare parameters, `bounds` notes what is known of sums, for the choice of approximations.
//!
//! At last `cleanup` joins equal predicates. Nothing here knows which heuristic made the schedule.

mod alloc;
mod block_reduce;
mod bounds;
mod cleanup;
mod combine;
mod compile;
mod compute;
mod context;
mod emit;
mod facts;
mod grid_reduce;
mod index;
mod lookup;
mod outside;
mod params;
mod pipeline;
mod place;
mod predicate;
mod random;
mod ring;
mod scalars;
mod sync;
mod tile;
mod together;
mod tree;
mod vector;
mod within;

pub use compile::{lower, lower_sharing};
pub(crate) use context::identifier;
pub(crate) use scalars::{Scalars, hoist, input_name};
