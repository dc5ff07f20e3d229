//! Records of runs. `runs/<id>/events.jsonl` is the truth: append-only, one
//! `write` for each record, each with its sequence number and checksum, so it is
//! readable after a kill at any byte. `history/<device>/*.csv` is derived.
//! A record that cannot be written is reported; it never changes a verdict.

mod audit;
mod clock;
mod determinism;
mod events;
pub(crate) mod export;
mod flakes;
mod gates;
mod header;
mod history;
pub(crate) mod join;
mod joined;
mod layout;
pub(crate) mod merge;
mod provenance;
pub(crate) mod prune;
mod reader;
pub(crate) mod rebuild;
mod recorded;
pub(crate) mod repair;
mod repro;
mod resume;
mod rows;
mod run_rows;
mod runs;
mod store;
mod syncer;
mod table;
mod times;
mod verified;

pub(crate) use clock::{seconds_of, today, utc_stamp};
pub(crate) use determinism::SeenClass;
pub use events::EventLog;
pub(crate) use flakes::FlakeRow;
pub(crate) use gates::{ALL, Found, FoundWord, code, found_in_record};
pub(crate) use header::{GpuChoice, Header, Provenance, RecordedNvidia, RecordedShard, Summary, nulls};
pub(crate) use history::History;
pub(crate) use layout::replace;
pub(crate) use layout::{ResultsFolder, check_id, names_run};
pub use reader::{Events, read as read_events};
pub(crate) use reader::{Health, scan};
pub(crate) use recorded::{Attempt, Concluded, Recorded, RecordedCase, is_failure, is_open};
pub(crate) use resume::{Done, Resumed};
pub(crate) use rows::CaseRow;
pub(crate) use runs::{RunInfo, RunState};
pub(crate) use store::RunStore;
