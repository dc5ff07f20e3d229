//! A comparison for programs: everything that the texts for people say, and the rows that they leave out.

use super::{CaseChange, RunComparison, Side};
use serde_json::{Map, Value, json};

impl RunComparison {
    /// One object; lists are named as in the texts, with underscores.
    pub(crate) fn json(&self) -> Value {
        let [before, after] = &self.sides;
        let counters = self.counters.iter().map(|change| {
            json!({ "case_id": change.id, "counter": change.counter, "before": change.before, "after": change.after,
                "dearer": change.is_dearer() })
        });
        let mut object = Map::new();
        object.insert("before".into(), side(before));
        object.insert("after".into(), side(after));
        object.insert("comparable".into(), self.comparable.into());
        for (title, changes) in self.lists() {
            object.insert(title.replace(' ', "_"), changes.iter().map(row).collect());
        }
        object.insert("counters".into(), counters.collect());
        object.insert("slower_together".into(), self.together.map(|all| all.is_slower).into());
        object.insert("pace".into(), self.pace.into());
        object.into()
    }
}

fn row(change: &CaseChange) -> Value {
    let told = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
    json!({ "case_id": change.id, "before": told(&change.before), "after": told(&change.after) })
}

fn side(side: &Side) -> Value {
    let Side { run, cases, command, device, driver, nvrtc, commit, dirty, started_utc, options } = side;
    json!({ "run": run, "cases": cases, "command": command, "device": device, "driver": driver, "nvrtc": nvrtc, "commit": commit,
        "dirty": dirty, "started_utc": started_utc, "options": options })
}
