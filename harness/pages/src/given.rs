//! What the tables of results do not say and the harness knows: cases, their files, peers' figures.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything that pages are made of.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The folder of results.
    pub results: PathBuf,
    /// Heading of all pages.
    pub title: String,
    /// When they are made, and from which sources.
    pub made: String,
    /// Every case there is, by id; of all devices.
    pub cases: BTreeMap<String, CaseFact>,
    /// Text of case files, by the name that cases give.
    pub files: BTreeMap<String, String>,
    pub quarantine: Vec<Quarantined>,
    /// Counters of which more is worse.
    pub costs: Vec<String>,
    /// How the latest runs failed, by run and case.
    pub failures: Vec<Failed>,
}

/// A case of a case file.
#[derive(Clone, Debug, Default)]
pub struct CaseFact {
    pub suite: String,
    pub tags: Vec<String>,
    pub about: String,
    pub file: String,
    pub line: usize,
    /// The share of the copy that it is to reach.
    pub goal: Option<f64>,
    /// It is measured.
    pub measured: bool,
    /// Devices whose sizes it has: it is expected to run there.
    pub gpu: bool,
    pub sim: bool,
    /// How its kernel is scheduled for an H200, by the committed list.
    pub schedule: String,
    pub launch: String,
    /// Why its counters are what they are, by the committed baseline.
    pub accepted: String,
}

/// A known failure.
#[derive(Clone, Debug, Default)]
pub struct Quarantined {
    pub id: String,
    pub owner: String,
    pub issue: String,
    pub reason: String,
    pub until: String,
}

/// A case that did not pass in a run whose records are here.
#[derive(Clone, Debug, Default)]
pub struct Failed {
    pub run: String,
    pub case: String,
    pub outcome: String,
    pub detail: String,
}
