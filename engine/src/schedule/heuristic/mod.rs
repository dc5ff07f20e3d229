//! Heuristics: pure functions of the fusion, the device description and the
//! sizes to a schedule. Each is a row of the table in `choose`: whether it accepts
//! a fusion, and its plan, which first computes parameters (plain data, printed
//! beside the schedule), then drives the [`ScheduleBuilder`](super::ScheduleBuilder).
//!
//! | name | takes | shape of the kernel |
//! |---|---|---|
//! | `pointwise` | no reduction | 1-D, or 2-D around a break point where broadcasts change |
//! | `reduction` | reductions over one set of dimensions, nothing after them varies along it | rows of threads (inner), columns (outer); one block or several a result |
//! | `inner_persistent` | a value varies along the reduced dimensions after the reduction | a row a block, kept in registers |

mod choose;
mod coverage;
mod norm_inner;
mod pointwise;
mod recompute;
mod reduction;
mod residency;
mod row_choice;
mod sizes;
mod summary;
mod tile;
mod tuning;

pub use choose::{Planned, schedule};
pub use norm_inner::longest_row;
pub use sizes::Sizes;
pub use tuning::{SETTINGS, Setting};
