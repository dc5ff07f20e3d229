//! One kind of page a file, each a function from what was found to the text of a file.

mod about;
mod case;
mod cases;
mod compare;
mod crashes;
mod data;
mod devices;
mod files;
mod flakes;
mod health;
mod once;
mod parts;
mod performance;
mod plots;
mod runs;
mod shell;

pub(crate) use about::about;
pub(crate) use case::case;
pub(crate) use cases::cases;
pub(crate) use compare::compare;
pub(crate) use crashes::crashes;
pub(crate) use data::{all_cases, all_runs, of_run};
pub(crate) use devices::devices;
pub(crate) use files::{file, file_page};
pub(crate) use flakes::flakes;
pub(crate) use health::health;
pub(crate) use once::once;
pub(crate) use performance::performance;
pub(crate) use runs::{run, run_page, runs};
