//! What came of the sweep, as text for people and as records.

use super::base::Base;
use crate::flake::class::shown;
use crate::flake::factors::{FactorChange, LEVEL, unseen};
use crate::flake::rule::Tally;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What came of the sweep.
#[derive(Default)]
pub(super) struct Done {
    /// As it failed, on all devices and on each.
    pub(super) base: Base,
    pub(super) changes: Vec<FactorChange>,
    pub(super) runs_each: u64,
    /// As it failed on the devices that were at work, with only what is needed there, and what that is.
    pub(super) enough: Option<(Tally, Tally, Vec<String>)>,
    pub(super) trials: u64,
    /// Trials that did not come to the case, by what happened.
    pub(super) unfinished: BTreeMap<String, u64>,
    pub(super) gave_up: Option<&'static str>,
}

impl Done {
    pub(super) fn text(&self, id: &str) -> String {
        let base = self.base.all;
        let mut text = format!("\n{id} as it failed: {} in {} runs\n", shown(base), base.runs());
        let width = self.changes.iter().map(|c| c.factor.len() + c.from.len() + c.to.len() + 6).max().unwrap_or(0);
        for change in &self.changes {
            let words = change.words();
            let (head, tail) = words.split_once(": ").unwrap_or((&words, ""));
            let mark = if change.significant() { "*" } else { " " };
            let _ = writeln!(text, "{mark} {:width$} {tail}", format!("{head}:"));
        }
        if let Some((before, tally, names)) = &self.enough {
            let ratio = tally.rate() / before.rate().max(f64::MIN_POSITIVE);
            let verdict =
                if ratio > 0.5 { "enough" } else { "not enough: a condition that was not varied matters too" };
            let _ = writeln!(text, "needs {}; with all else calm {}: {verdict}", names.join(" and "), shown(*tally));
        }
        let raised = self.changes.iter().filter(|c| c.significant() && c.after.rate() > c.before.rate());
        for change in raised {
            let _ = writeln!(text, "{} {} raises the rate", change.factor, change.to);
        }
        if !self.changes.iter().any(FactorChange::significant) && !self.changes.is_empty() {
            let open = unseen(base, self.runs_each, self.changes.len());
            let _ = writeln!(text, "nothing is significant: {open}");
        }
        if base.failures == 0 {
            text.push_str("it did not fail under these conditions: name the run with --run, or hunt for it first\n");
        }
        for (what, count) in &self.unfinished {
            let _ = writeln!(text, "{count} trials did not come to the case: {what}");
        }
        if let Some(why) = self.gave_up {
            let _ = writeln!(text, "the sweep is not complete: {why}");
        }
        let _ = writeln!(text, "{} trials; * significant at {:.0} %", self.trials, 100.0 * LEVEL);
        text
    }
}

/// A change as a record.
pub(super) fn record(id: &str, change: &FactorChange) -> serde_json::Value {
    let count = |tally: Tally| json!([tally.failures, tally.runs()]);
    json!({
        "case_id": id,
        "factor": change.factor,
        "from": change.from,
        "to": change.to,
        "before": count(change.before),
        "after": count(change.after),
        "p": change.p,
        "p_corrected": change.corrected,
        "significant": change.significant(),
    })
}
