//! What the tables of `results/history/` say, in columns in memory.
//!
//! Inputs: folders of tables, read line by line and by the names of their columns, so that a table of another version
//! gives what it has. Outputs: for each device its runs in order, and for each case a column a figure.
//!
//! Invariants: runs are sorted by their time, and a case has at most one row a run. A figure that was not measured is NaN.

mod device;
mod read;
mod runs;

pub(crate) use device::{CaseHistory, Device, Flake, Gate, Turn};
pub(crate) use read::{Names, read_devices};
pub(crate) use runs::Run;
