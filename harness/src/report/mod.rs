//! What people and other tools see: progress while it runs, the summary, and
//! recorded runs as JUnit, Markdown, a timeline, or a comparison.

mod compare;
pub(crate) mod html;
mod junit;
mod markdown;
mod progress;
mod summary;
mod table;
mod trace;
mod width;

pub(crate) use compare::{Learnt, compare};
pub(crate) use junit::junit;
pub(crate) use markdown::markdown;
pub(crate) use progress::{Color, Detail, Format, Look, Progress, TimeLeft, WorkerSeen};
pub(crate) use summary::{Help, Summary, held_text, passed_text, quoted, repro};
pub(crate) use table::{Column, table};
pub(crate) use trace::trace;
pub(crate) use width::fit;
