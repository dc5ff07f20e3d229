//! What a replay came to: in words, on record, and as an exit code.

use super::replay::Past;
use super::scene::Scene;
use crate::cli::args::Command;
use crate::exit;
use crate::flake::class::{p_value, shown};
use crate::flake::rule::{Tally, percent_above};
use crate::flake::search::Replayed;
use crate::report::quoted;
use crate::stats::upper_bound;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was found, and of what.
pub(super) struct ReplayReport<'a> {
    pub(super) found: &'a Replayed,
    pub(super) past: &'a Past,
    pub(super) minimized: bool,
}

impl ReplayReport<'_> {
    pub(super) fn text(&self, scene: &Scene) -> String {
        let mut text = self.recurs();
        text.push_str(&self.needs());
        text.push_str(&self.lines(scene));
        let _ = writeln!(text, "{} trials", self.found.trials);
        text
    }

    fn victim(&self) -> &str {
        &self.past.victim().case.id
    }

    fn id(&self, at: usize) -> &str {
        self.past.steps.get(at).map_or("", |step| &step.case.id)
    }

    fn ids(&self, set: &[usize]) -> Vec<&str> {
        set.iter().map(|at| self.id(*at)).collect()
    }

    /// How often it fails behind all that ran before it.
    fn recurs(&self) -> String {
        let Replayed { full, trials, .. } = self.found;
        let last = self.victim();
        let then = if self.past.outcome.is_empty() { String::new() } else { format!(", then {}", self.past.outcome) };
        let mut text = match full.failures {
            0 if *trials == 0 => format!("not seen: no replay of {last} came to its end{then}\n"),
            0 if full.runs() == 0 => format!("not seen: {last} was not reached{then}\n"),
            0 => format!(
                "does not recur: {last} passed {} times{then}; rate < {} at 95 %\n",
                full.runs(),
                percent_above(upper_bound(0, full.runs(), 0.95))
            ),
            _ => format!("recurs in {} of {} replays: {}{then}\n", full.failures, full.runs(), shown(*full)),
        };
        for (outcome, count) in self.found.endings.iter().filter(|_| full.failures > 0) {
            let _ = writeln!(text, "  {outcome}: {count} times in all trials");
        }
        for ((at, outcome), count) in &self.found.early {
            let _ = writeln!(text, "  {outcome} in {}, before {last} was reached: {count} times", self.id(*at));
        }
        text
    }

    /// Which prior cases it needs.
    fn needs(&self) -> String {
        let Replayed { alone, set, confirmed, doubt, gave_up, .. } = self.found;
        let last = self.victim();
        let mut text = String::new();
        if alone.runs() > 0 {
            let _ = writeln!(text, "alone in a fresh worker: fails in {} of {}", alone.failures, alone.runs());
        }
        let _ = match (set, doubt, gave_up) {
            (Some(set), ..) if set.is_empty() => writeln!(text, "no prior case is needed: {last} fails alone"),
            (Some(set), ..) => writeln!(
                text,
                "polluter set = {{{}}} of {} prior cases; after it, {last} fails in {} of {}: {}{}",
                self.ids(set).join(", "),
                self.past.steps.len() - 1,
                confirmed.failures,
                confirmed.runs(),
                shown(*confirmed),
                if alone.failures > 0 { "; it fails alone too, less often" } else { "" }
            ),
            (None, _, Some(why)) if self.minimized => writeln!(text, "the search ended early: {why}"),
            (None, _, Some(why)) => writeln!(text, "it ended early: {why}"),
            // Why no prior case is blamed.
            (None, Some((set, p)), None) => writeln!(
                text,
                "no prior case can be blamed: after {{{}}} it fails in {} of {}, alone in {} of {}, p = {}",
                self.ids(set).join(", "),
                confirmed.failures,
                confirmed.runs(),
                alone.failures,
                alone.runs(),
                p_value(*p)
            ),
            (None, None, None) => Ok(()),
        };
        text
    }

    /// The commands that show and explain it, or look for it otherwise.
    fn lines(&self, scene: &Scene) -> String {
        let victim = self.past.victim();
        let last = quoted(&victim.case.id);
        let tail = |command| scene.options.again.tail(&scene.devices.again, command, victim.seed);
        let mut text = String::new();
        if let Some(set) = &self.found.set {
            let priors: String = self.ids(set).iter().map(|id| format!(" --exact {}", quoted(id))).collect();
            let show = format!("replay{priors} --exact {last}{}", tail(Command::Replay));
            let _ = writeln!(text, "shown by: cargo run -p harness -- {show}");
            let explain = format!("why {last}{priors}{}", tail(Command::Why));
            let _ = writeln!(text, "explained by: cargo run -p harness -- {explain}");
            let other = set.iter().filter_map(|at| self.past.steps.get(*at)).find(|step| step.seed != victim.seed);
            if let Some(step) = other {
                let _ = writeln!(text, "  where {} has that seed too; it had {}", step.case.id, step.seed);
            }
        } else if self.found.full.failures == 0 && self.found.gave_up.is_none() {
            let hunt = format!("hunt --exact {last}{}", tail(Command::Hunt));
            let _ = writeln!(
                text,
                "a failure that depends on chance is hunted:\nhunted by: cargo run -p harness -- {hunt}"
            );
        }
        text
    }

    /// As a run would end in which the failure is seen.
    pub(super) fn exit_code(&self) -> u8 {
        let Replayed { full, endings, gave_up, .. } = self.found;
        let hard = endings.keys().any(|name| name.starts_with("crash") || name.starts_with("hang"));
        match () {
            () if full.failures > 0 && hard => exit::CRASHED,
            () if full.failures > 0 => exit::FAILED,
            () if gave_up.is_some() => exit::INCOMPLETE,
            () => exit::OK,
        }
    }

    pub(super) fn record(&self) -> serde_json::Value {
        let Replayed { full, alone, set, confirmed, trials, endings, early, doubt, gave_up } = self.found;
        let count = |tally: &Tally| json!([tally.failures, tally.runs()]);
        let early: BTreeMap<String, u64> =
            early.iter().map(|((at, outcome), count)| (format!("{outcome} in {}", self.id(*at)), *count)).collect();
        json!({
            "case_id": self.victim(),
            "origin": self.past.origin,
            "priors": self.past.steps.len() - 1,
            "full": count(full),
            "alone": count(alone),
            "polluters": set.as_ref().map(|set| self.ids(set)),
            "confirmed": count(confirmed),
            "trials": trials,
            "outcomes": endings,
            "early": early,
            "doubt": doubt.as_ref().map(|(set, p)| json!({ "polluters": self.ids(set), "p": p })),
            "gave_up": gave_up,
            "minimized": self.minimized,
        })
    }
}
