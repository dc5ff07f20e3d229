//! Heuristics: pure functions of the fusion, the device description and the
//! sizes to a schedule, in two steps. [`decide`] asks the rows of the table in `choose`
//! which of them accepts the fusion, and has it compute parameters (plain data, printed
//! beside the schedule); [`schedule`] drives the
//! [`ScheduleBuilder`](super::ScheduleBuilder) as the [`Decision`] says, and sees no size.
//!
//! In the order in which they are asked:
//!
//! | name | takes | shape of the kernel |
//! |---|---|---|
//! | `transpose` | no reduction, large tensors along two different dimensions, or several short ones in two orders | a tile a block, through shared memory |
//! | `stacked` | no reduction, results along a short axis that no input has | a vector of each part a thread, for a few rows |
//! | `stacked_rows` | reductions over rows, whose results lie along a short axis that no input has | a row a few threads of a warp, which have the same vectors of each part |
//! | `pointwise` | no reduction | 1-D, or 2-D around a break point where broadcasts change |
//! | `short_rows` | reductions over many short rows that are no whole vectors | runs of rows through shared memory, a row a few threads |
//! | `short_columns` | reductions over a short dimension that is not the fastest one | a thread a column, or a vector of columns; several threads where columns are longer |
//! | `folded_columns` | reductions over columns of rows that are no whole vectors | several rows as one of whole vectors; a sum of each lane in registers, then those of all blocks |
//! | `reduction` | reductions over one set of dimensions, nothing after them varies along it | rows of threads (inner), columns (outer); one block or several a result |
//! | `grid_persistent` | a value varies along the reduced dimensions after the reduction, and rows are longer than the registers of a block hold, long and fewer than multiprocessors, or run across memory | a row several blocks, which wait for each other, or one, in shared memory |
//! | `inner_persistent` | a value varies along the reduced dimensions after the reduction | a row a block, kept in registers |
//! | `inner_outer` | reductions over rows, and over columns of the same tensors | rows in turn, held, short ones several at once; sums of columns in registers, then those of all blocks |
//! | `summed_rows` | reductions over a few positions, and then over rows of what these made | a row a block, or several short ones; a thread adds up the same vectors of the few |

mod beside;
mod boxes;
mod choose;
mod column_ways;
mod columns;
mod coverage;
mod cuts;
mod folded_columns;
mod grid_persistent;
mod heads;
mod idle;
mod images;
mod inner_outer;
mod norm_inner;
mod phases;
mod pointwise;
mod recompute;
mod reduced_tile;
mod reduction;
mod residency;
mod row_choice;
mod shared_tile;
mod short;
mod short_columns;
mod short_rows;
mod sizes;
mod spread;
mod stacked;
mod stacked_rows;
mod structure;
mod summary;
mod summed_rows;
mod tile;
mod transpose;
mod tuning;
mod typical;

pub use choose::{Decision, Planned, decide, schedule};
pub use column_ways::may_add_columns;
pub use coverage::{is_uneven, may_reduce_again};
pub use grid_persistent::{longest_shared_row, may_share_columns};
pub use norm_inner::longest_row;
pub use short_columns::may_hold_columns;
pub use sizes::Sizes;
pub use structure::Unscheduled;
pub use summed_rows::{LONGEST_SUMMED_ROW, MOST_SUMMED};
pub use tuning::{SETTINGS, Setting};
