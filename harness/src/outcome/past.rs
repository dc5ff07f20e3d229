//! What earlier runs say about a case.

/// What became of a case when it last ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastVerdict {
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

impl LastVerdict {
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
    pub fn verdict(&self) -> LastVerdict {
        LastVerdict::of(&self.outcome)
    }
}

/// What the order of a run is decided by.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) dur_ns: Option<u64>,
    pub(crate) failed: bool,
}
