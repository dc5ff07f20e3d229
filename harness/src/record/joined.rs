//! Several runs as one, and what a run did not reach.
//!
//! Shards of one job, or a run and the one that went on with it: where a case is in
//! several, the later run decides. A case that one of them had selected and none has
//! judged stays in sight.

use super::recorded::{Recorded, is_open};
use std::collections::BTreeSet;

impl Recorded {
    /// Selected ids that came to no verdict: a killed run did not reach them, or had
    /// just tried them. One that failed without a verdict is told as that failure.
    pub(crate) fn without_verdict(&self) -> Vec<&str> {
        let verdicts = self.header.records_verdicts();
        let open = |id: &&String| match self.cases.get(*id) {
            Some(case) => verdicts && case.concluded.is_none() && !case.failed(),
            None => true,
        };
        match self.explores() {
            true => Vec::new(),
            false => self.selected.iter().filter(open).map(String::as_str).collect(),
        }
    }

    /// How many selected cases came to no verdict that stands: also those that a deadline or a stop kept from being run.
    pub(crate) fn unjudged(&self) -> usize {
        let open = self.cases.values().filter(|case| case.concluded.is_some() && is_open(case.verdict().1));
        self.without_verdict().len() + open.count()
    }

    /// Several runs as one.
    pub(crate) fn join(runs: &[Self]) -> Self {
        let mut joined = runs.first().cloned().unwrap_or_default();
        for run in runs.iter().skip(1) {
            for (id, case) in &run.cases {
                let entry = joined.cases.entry(id.clone()).or_default();
                entry.attempts.extend(case.attempts.iter().cloned());
                entry.concluded = case.concluded.clone().or(entry.concluded.take());
            }
            joined
                .workers
                .extend(run.workers.iter().map(|(id, worker)| (format!("{}/{id}", run.id()), worker.clone())));
            joined.last_ns = joined.last_ns.max(run.last_ns);
            joined.others.extend(run.others.iter().cloned());
        }
        if runs.len() > 1 {
            joined.head_of_all(runs);
        }
        joined
    }

    /// What the header of several runs says.
    fn head_of_all(&mut self, runs: &[Self]) {
        let selected: BTreeSet<&String> = runs.iter().flat_map(|run| &run.selected).collect();
        self.selected = selected.into_iter().cloned().collect();
        // What each had selected and did not live to name.
        let unnamed = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.unnamed()));
        self.selected_of = unnamed.saturating_add(self.selected.len() as u64);
        self.header.cases_selected = Some(self.selected_of);
        let ids: Vec<&str> = runs.iter().map(Self::id).collect();
        self.header.run_id = Some(ids.join("+"));
        self.end = None;
        // What the first one came to is not what all did.
        self.header.summary = None;
        if runs.iter().any(|run| run.header.flaky_fails()) {
            self.header.flaky = Some("fail".into());
        }
        if let Some(open) = runs.iter().map(Self::status).find(|status| *status != "complete") {
            self.header.status = Some(open.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A shard that selected these cases and came to verdicts on the first `done`.
    fn shard(id: &str, ids: &[&str], done: usize, meant: usize) -> Recorded {
        let mut run = Recorded::default();
        let schema = json!({ "major": 1, "minor": 1 });
        run.push(json!({ "k": "run", "run_id": id, "mode": "run", "cases_selected": meant, "schema": schema }));
        run.push(json!({ "k": "selected", "ids": ids, "of": meant }));
        for id in &ids[..done] {
            run.push(json!({ "k": "verdict", "case_id": id, "verdict": "pass", "outcome": "pass", "attempts": 1 }));
        }
        run
    }

    #[test]
    fn what_no_shard_has_judged_stays_in_sight() {
        let [one, two] = [shard("1", &["A.a", "A.b"], 1, 2), shard("2", &["A.c", "A.d"], 0, 4)];
        assert_eq!(one.without_verdict(), ["A.b"]);
        let joined = Recorded::join(&[one.clone(), two]);
        assert_eq!((joined.without_verdict(), joined.unnamed()), (vec!["A.b", "A.c", "A.d"], 2));
        // The run that went on with it has judged all.
        let joined = Recorded::join(&[one, shard("3", &["A.a", "A.b"], 2, 2)]);
        assert_eq!((joined.without_verdict().len(), joined.unnamed()), (0, 0));
    }

    #[test]
    fn an_attempt_is_no_verdict_unless_it_failed() {
        let mut run = shard("1", &["A.a", "A.b"], 0, 2);
        run.push(json!({ "k": "attempt", "case_id": "A.a", "verdict": "pass", "outcome": "pass" }));
        run.push(json!({ "k": "attempt", "case_id": "A.b", "verdict": "fail", "outcome": "fail.x" }));
        assert_eq!(run.without_verdict(), ["A.a"]);
    }
}
