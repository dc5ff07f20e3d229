//! What earlier runs on a kind of device say about cases.

use super::glob::{glob, is_glob};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Words that `last(...)` knows; finer names have a dot.
pub(super) const VERDICTS: [&str; 8] = ["pass", "fail", "crash", "hang", "flaky", "skip", "infra", "never"];

/// What became of a case when it last ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdicts {
    /// Everything held.
    Pass,
    /// Judged against by a living worker.
    Fail,
    /// The worker died.
    Crash,
    /// It did not end in time.
    Hang,
    /// It passed and failed.
    Flaky,
    /// Not run, or failed as declared.
    Skip,
    /// The machine failed.
    Infra,
}

impl Verdicts {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Flaky => "flaky",
            Self::Skip => "skip",
            Self::Infra => "infra",
        }
    }

    /// From the name of an outcome, such as `crash.sigsegv`.
    pub fn of(outcome: &str) -> Self {
        match outcome.split('.').next().unwrap_or(outcome) {
            "pass" => Self::Pass,
            "skip" | "xfail" | "quarantined" => Self::Skip,
            "crash" | "gpu" => Self::Crash,
            "hang" | "timeout" => Self::Hang,
            "flaky" => Self::Flaky,
            "infra" | "not_run" => Self::Infra,
            _ => Self::Fail,
        }
    }

    /// Whether a rerun of failures takes it.
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Pass | Self::Skip | Self::Flaky)
    }
}

/// A case's last run.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// Its outcome's stable name.
    pub outcome: String,
    /// Expected duration in nanoseconds.
    pub dur_ns: Option<u64>,
    /// Runs so far; none if the machine kept it from running.
    pub runs: u64,
}

impl Last {
    /// The verdict.
    pub fn verdict(&self) -> Verdicts {
        Verdicts::of(&self.outcome)
    }

    /// Whether a word of `last(...)` fits: a verdict, an outcome or a pattern.
    pub(super) fn is(&self, word: &str) -> bool {
        word == self.verdict().name() || word == self.outcome || (is_glob(word) && glob(word, &self.outcome))
    }
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// By id; a case that never ran is not there.
    pub cases: HashMap<String, Last>,
    /// Ids in quarantine.
    pub quarantined: BTreeSet<String>,
    /// Ids of cases that changed, by the revision or run since when.
    pub changed: BTreeMap<String, BTreeSet<String>>,
}

impl Past {
    /// A case's last run.
    pub fn last(&self, id: &str) -> Option<&Last> {
        self.cases.get(id)
    }
}
