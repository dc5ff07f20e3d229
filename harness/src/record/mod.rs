//! Records of runs. `runs/<id>/events.jsonl` is the truth: append-only, one
//! `write` for each record, each with its sequence number and checksum, so it is
//! readable after a kill at any byte. `history/<device>/*.csv` is derived.
//! A record that cannot be written is reported; it never changes a verdict.

mod clock;
mod determinism;
mod events;
mod history;
mod provenance;
mod repro;
mod store;

pub(crate) use clock::{today, utc_stamp};
pub(crate) use determinism::Seen;
pub use events::{Events, read as read_events};
pub(crate) use history::{History, Row};
pub(crate) use provenance::Provenance;
pub(crate) use store::{RunStore, replace};
