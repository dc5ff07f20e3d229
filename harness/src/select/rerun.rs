//! `--rerun`: the cases that earlier runs left.

use super::past::{Past, is_word_of};
use crate::escape::short;
use crate::outcome::LastVerdict;
use crate::record::{Recorded, is_open, names_run};
use engine::diag::{Diagnostic, Result, code};
use std::collections::BTreeSet;

/// What to run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rerun {
    /// Cases whose last verdict is a failure.
    Failed,
    /// Cases that never ran, or that the latest run did not come to.
    NotRun,
    /// Cases that passed and failed.
    Flaky,
    /// What did not pass in one run.
    Run(String),
}

impl Rerun {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "failed" => Ok(Self::Failed),
            "not-run" => Ok(Self::NotRun),
            "flaky" => Ok(Self::Flaky),
            // As every command that takes a run.
            _ if names_run(text) => Ok(Self::Run(text.into())),
            _ => {
                let message = format!("`--rerun` does not know `{}`", short(text));
                Err(Diagnostic::user(code::USAGE, message).note("failed, not-run, flaky, latest, or the id of a run"))
            }
        }
    }

    /// The run whose record is needed.
    pub(crate) fn run(&self) -> Option<&str> {
        match self {
            Self::Run(id) => Some(id),
            Self::NotRun => Some("latest"),
            Self::Failed | Self::Flaky => None,
        }
    }

    /// Whether the case is one of them.
    pub(super) fn takes(&self, id: &str, past: &Past, run: &FromRun) -> bool {
        let last = past.last(id);
        match self {
            Self::Failed => last.is_some_and(|last| last.verdict().is_failure()),
            Self::Flaky => last.is_some_and(|last| is_word_of(last, "flaky")),
            Self::NotRun => last.is_none_or(|last| last.runs == 0) || run.not_run.contains(id),
            Self::Run(_) => run.not_run.contains(id) || run.failed.contains(id),
        }
    }

    /// What they have in common, for messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Failed => "failed last time".into(),
            Self::Flaky => "was flaky last time".into(),
            Self::NotRun => "is still to run".into(),
            Self::Run(id) => format!("was left by run {id}"),
        }
    }
}

/// What the record of a run says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromRun {
    /// Cases that did not pass.
    pub(crate) failed: BTreeSet<String>,
    /// Cases that were selected and did not come to a verdict.
    pub(crate) not_run: BTreeSet<String>,
}

impl FromRun {
    /// What a run came to. A case is done when it has a verdict of its own: one
    /// that a deadline or a signal kept from running is not. An error says why
    /// the record cannot tell.
    pub(crate) fn of(run: &Recorded) -> std::result::Result<Self, String> {
        if !run.judges() {
            return Err("it is no run of `run` or `bench`: it comes to no verdicts on cases".into());
        }
        run.selection()?;
        let mut of = Self { not_run: run.selected.iter().cloned().collect(), ..Self::default() };
        for (id, case) in run.cases.iter().filter(|(_, case)| case.concluded.is_some()) {
            let (verdict, outcome, _) = case.verdict();
            let verdict = LastVerdict::of(verdict);
            if verdict == LastVerdict::Infra || is_open(outcome) {
                continue;
            }
            of.not_run.remove(id);
            if verdict.is_failure() || verdict == LastVerdict::Flaky {
                of.failed.insert(id.clone());
            }
        }
        Ok(of)
    }
}
