//! A run as its records tell it: what reports, comparisons and `resume` work on.
//! Built from a log, or record by record while a run is under way.

use super::header::{Header, RunEnd};
use super::reader::{self, Health};
use crate::exit;
use crate::outcome::{CodeFrom, HeldTo};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// One attempt at one case. Fields that a record lacks are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Attempt {
    /// When it was recorded, since the start of the log.
    #[serde(skip_serializing)]
    pub(crate) t_ns: u64,
    #[serde(skip_serializing)]
    pub(crate) case_id: String,
    pub(crate) attempt: u32,
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    pub(crate) worker_id: String,
    /// Of an attempt of an earlier run: the slot of its worker, and that run.
    pub(crate) slot: String,
    pub(crate) carried_from: Option<String>,
    pub(crate) gpu_uuid: Option<String>,
    pub(crate) position: u64,
    pub(crate) start_ns: u64,
    pub(crate) dur_ns: u64,
    pub(crate) verdict: String,
    pub(crate) outcome: String,
    pub(crate) passed_by: Option<String>,
    pub(crate) detail: String,
    pub(crate) phases: BTreeMap<String, u64>,
    /// Where its kernel's machine code came from.
    pub(crate) code: Option<String>,
    pub(crate) kernel_crc: Option<String>,
    /// Of what it measured.
    pub(crate) code_digest: Option<String>,
    pub(crate) out_digest: Option<String>,
    /// What its outputs were held to.
    pub(crate) held_to: Option<String>,
    pub(crate) variation: Option<Value>,
    pub(crate) perf: Option<Value>,
    pub(crate) death: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) case_file: Option<String>,
    /// The keys of its crash, and the folder of its evidence from that of the run on: its own run's affair.
    #[serde(skip_serializing)]
    pub(crate) bucket: Option<String>,
    #[serde(skip_serializing)]
    pub(crate) family: Option<String>,
    #[serde(skip_serializing)]
    pub(crate) evidence: Option<String>,
}

impl Attempt {
    /// Whether it says something about the case: what the machine spoiled does not.
    pub(crate) fn judges(&self) -> bool {
        !matches!(self.verdict.as_str(), "" | "infra")
    }

    /// Whether its kernel was found compiled.
    pub(crate) fn is_cached(&self) -> bool {
        self.code.as_deref() == Some(CodeFrom::CACHED)
    }

    /// Whether its outputs had passed before.
    pub(crate) fn is_held_to_digest(&self) -> bool {
        self.held_to.as_deref() == Some(HeldTo::Digest.name())
    }
}

/// What a case came to.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Concluded {
    pub(crate) case_id: String,
    pub(crate) verdict: String,
    pub(crate) outcome: String,
    /// What a pass rests on.
    pub(crate) passed_by: Option<String>,
    pub(crate) detail: String,
    pub(crate) attempts: u64,
    pub(crate) failures: u64,
    pub(crate) outcomes: Vec<String>,
    pub(crate) dur_ns: u64,
    /// The attempt of this run that stands for the case, by its worker and place there.
    pub(crate) worker_id: Option<String>,
    pub(crate) position: u64,
    /// The run that this verdict was taken over from.
    pub(crate) carried_from: Option<String>,
    /// In a joined run, the shard's run that came to it.
    pub(crate) joined_from: Option<String>,
}

/// A case of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedCase {
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) concluded: Option<Concluded>,
}

impl RecordedCase {
    /// The verdict, its finer name and why. The last attempt decides where no verdict was recorded.
    pub(crate) fn verdict(&self) -> (&str, &str, &str) {
        let last = self.attempts.last();
        match &self.concluded {
            Some(concluded) => {
                // A verdict without words of its own has those of the attempt it rests on.
                let of = |a: &&Attempt| a.outcome == concluded.outcome && !a.detail.is_empty();
                let own = Some(concluded.detail.as_str()).filter(|text| !text.is_empty());
                let found = own.or_else(|| self.attempts.iter().rev().find(of).map(|a| a.detail.as_str()));
                // What is known of one that was stopped after a failure is that failure.
                let found = found.or_else(|| self.failed_so_far().map(|a| a.detail.as_str()));
                (&concluded.verdict, &concluded.outcome, found.unwrap_or_default())
            }
            None => last.map_or(("", "", ""), |a| (&a.verdict, &a.outcome, &a.detail)),
        }
    }

    /// What a pass rests on, where the record says so: runs before schema 1.2 do not.
    pub(crate) fn passed_by(&self) -> Option<&str> {
        let told = match &self.concluded {
            Some(concluded) => concluded.passed_by.as_deref(),
            None => self.attempts.last().and_then(|attempt| attempt.passed_by.as_deref()),
        };
        told.filter(|_| self.verdict().0 == "pass")
    }

    /// The attempt that stands for the case: that which the verdict names, or the first
    /// failed one that has its outcome, which is the worst, or else the last.
    pub(crate) fn shown(&self) -> Option<&Attempt> {
        if let Some(named) = self.concluded.as_ref().and_then(|concluded| self.named(concluded)) {
            return Some(named);
        }
        let (verdict, outcome, _) = self.verdict();
        let failed = matches!(verdict, "flaky" | "quarantined") || self.failed();
        let failures = || self.attempts.iter().filter(|attempt| failed && is_failure(&attempt.verdict));
        let shown = failures().find(|attempt| attempt.outcome == outcome).or_else(|| failures().next());
        shown.or_else(|| self.failed_so_far()).or(self.attempts.last())
    }

    /// Where devices are compared, the last attempt is that of any of them.
    fn named(&self, concluded: &Concluded) -> Option<&Attempt> {
        let worker = concluded.worker_id.as_deref()?;
        let own = self.attempts.iter().filter(|attempt| attempt.carried_from.is_none());
        own.rev().find(|attempt| attempt.worker_id == worker && attempt.position == concluded.position)
    }

    /// The first failure of a case that was stopped before all its attempts.
    fn failed_so_far(&self) -> Option<&Attempt> {
        let open = self.concluded.as_ref().is_some_and(|concluded| is_open(&concluded.outcome));
        self.attempts.iter().find(|attempt| open && attempt.judges() && is_failure(&attempt.verdict))
    }

    /// Attempts, and how many of them failed.
    pub(crate) fn tried(&self) -> u64 {
        self.concluded.as_ref().map_or(0, |c| c.attempts).max(self.attempts.len() as u64)
    }

    pub(crate) fn failures(&self) -> u64 {
        let seen = self.attempts.iter().filter(|a| is_failure(&a.verdict)).count() as u64;
        self.concluded.as_ref().map_or(0, |c| c.failures).max(seen)
    }

    /// Whether it counts as failed.
    pub(crate) fn failed(&self) -> bool {
        is_failure(self.verdict().0)
    }

    /// Time of the attempt that stands for the case, in nanoseconds.
    pub(crate) fn dur_ns(&self) -> u64 {
        let told = self.concluded.as_ref().map_or(0, |concluded| concluded.dur_ns);
        self.shown().map_or(told, |attempt| attempt.dur_ns)
    }

    /// Outcomes of all attempts, in order.
    pub(crate) fn outcomes(&self) -> Vec<String> {
        match &self.concluded {
            Some(concluded) if !concluded.outcomes.is_empty() => concluded.outcomes.clone(),
            Some(concluded) if self.attempts.is_empty() => vec![concluded.outcome.clone()],
            _ => self.attempts.iter().map(|attempt| attempt.outcome.clone()).collect(),
        }
    }
}

/// The ids of a record of a part of them.
fn ids(record: &Value) -> impl Iterator<Item = String> {
    let ids = record["ids"].as_array().map(Vec::as_slice).unwrap_or_default();
    ids.iter().filter_map(Value::as_str).map(String::from)
}

/// By the stable name of a verdict.
pub(crate) fn is_failure(verdict: &str) -> bool {
    matches!(verdict, "fail" | "crash" | "hang" | "infra")
}

/// By the name of an outcome: whether the case was not run, and is still to be.
pub(crate) fn is_open(outcome: &str) -> bool {
    matches!(outcome, "" | "skip.deadline" | "infra.worker_spawn") || outcome.starts_with("not_run")
}

/// One worker process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worker {
    pub(crate) slot: String,
    pub(crate) pid: u64,
    pub(crate) spawned_ns: u64,
    pub(crate) ready_ns: Option<u64>,
    pub(crate) ended_ns: Option<u64>,
    pub(crate) reason: String,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// Of `run.json`, or of the log's first record.
    pub(crate) header: Header,
    /// Ids that were selected, where the record says so.
    pub(crate) selected: Vec<String>,
    /// Ids that a rerun was to run as well, and left out.
    pub(crate) outstanding: Vec<String>,
    /// Of a shard: what all shards together selected.
    pub(crate) job: Vec<String>,
    /// How many are selected, by the same records.
    pub(crate) selected_of: u64,
    pub(crate) cases: BTreeMap<String, RecordedCase>,
    pub(crate) workers: BTreeMap<String, Worker>,
    /// The `end` record.
    pub(crate) end: Option<RunEnd>,
    /// Time of the last record.
    pub(crate) last_ns: u64,
    /// Records of other kinds, as they are.
    pub(crate) others: Vec<Value>,
    pub(crate) health: Health,
}

impl Recorded {
    /// Reads the folder of a run.
    pub(crate) fn load(dir: &Path) -> io::Result<Self> {
        let mut run = Self::default();
        run.health = {
            let run = &mut run;
            reader::scan(&dir.join("events.jsonl"), |record| run.push(record))?
        };
        // The file is newer than the first record: it knows the end. A damaged one is no loss.
        let text = std::fs::read_to_string(dir.join("run.json")).unwrap_or_default();
        if let Ok(header) = serde_json::from_str(&text) {
            run.header = header;
        }
        run.header.check_schema()?;
        Ok(run)
    }

    /// Adds one record.
    pub(crate) fn push(&mut self, record: Value) {
        let t_ns = record["t_ns"].as_u64().unwrap_or(0);
        self.last_ns = self.last_ns.max(t_ns);
        match record["k"].as_str() {
            Some("run") => self.header = Header::of(record).unwrap_or_default(),
            Some("selected") => {
                self.selected.extend(ids(&record));
                self.selected_of = self.selected_of.max(record["of"].as_u64().unwrap_or(0));
            }
            Some("outstanding") => self.outstanding.extend(ids(&record)),
            Some("job") => self.job.extend(ids(&record)),
            Some("attempt") => match Attempt::deserialize(&record) {
                Ok(attempt) => self.cases.entry(attempt.case_id.clone()).or_default().attempts.push(attempt),
                Err(_) => self.others.push(record),
            },
            Some("earlier") => self.earlier(&record),
            Some("verdict") => match Concluded::deserialize(&record) {
                Ok(concluded) => {
                    let case = self.cases.entry(concluded.case_id.clone()).or_default();
                    case.concluded = Some(concluded);
                }
                Err(_) => self.others.push(record),
            },
            Some("worker") => self.worker(&record, t_ns),
            Some("end") => self.end = RunEnd::of(record),
            _ => self.others.push(record),
        }
    }

    /// Attempts that the run took over, of a case that had no verdict.
    fn earlier(&mut self, record: &Value) {
        let Some(id) = record["case_id"].as_str() else { return };
        let attempts: Vec<Attempt> = Vec::deserialize(&record["attempts"]).unwrap_or_default();
        let own = |attempt| Attempt { case_id: id.into(), t_ns: record["t_ns"].as_u64().unwrap_or(0), ..attempt };
        self.cases.entry(id.into()).or_default().attempts.extend(attempts.into_iter().map(own));
    }

    fn worker(&mut self, record: &Value, t_ns: u64) {
        let text = |key: &str| record[key].as_str().unwrap_or_default().to_string();
        let worker = self.workers.entry(text("worker_id")).or_default();
        match record["event"].as_str() {
            Some("spawned") => {
                (worker.slot, worker.spawned_ns) = (text("slot"), t_ns);
                worker.pid = record["pid"].as_u64().unwrap_or(0);
            }
            Some("ready") => worker.ready_ns = Some(t_ns),
            Some("ended") => (worker.ended_ns, worker.reason) = (Some(t_ns), text("reason")),
            _ => {}
        }
    }

    /// An error if not all ids that were selected are known: records of them are
    /// lost, or it was killed before it had written them.
    pub(crate) fn selection(&self) -> Result<(), String> {
        let (known, unnamed) = (self.selected.len() as u64, self.unnamed());
        match unnamed {
            0 => Ok(()),
            _ => {
                Err(format!("of the {} cases that it selected its record names {known}", known.saturating_add(unnamed)))
            }
        }
    }

    /// How many cases it selected whose ids are not known.
    pub(crate) fn unnamed(&self) -> u64 {
        let meant = self.header.cases_selected.unwrap_or(0).max(self.selected_of);
        meant.saturating_sub(self.selected.len() as u64)
    }

    /// Whether it comes to verdicts on cases: hunts and the like do not.
    pub(crate) fn judges(&self) -> bool {
        self.header.judges()
    }

    /// Whether it tries cases out, and comes to no verdicts.
    pub(crate) fn explores(&self) -> bool {
        self.header.explores()
    }

    /// What a hunt has found of a case: its record.
    pub(crate) fn hunted(&self, id: &str) -> Option<&Value> {
        self.others.iter().find(|record| record["k"] == "hunt" && record["case_id"] == id)
    }

    /// What its harness has counted at its end, and the record does not hold: the log
    /// has lost its tail, which leaves no gap. In words.
    pub(crate) fn cut_short(&self) -> Option<String> {
        let summary = self.header.summary.as_ref().or_else(|| self.end.as_ref()?.summary.as_ref())?;
        // Where nobody lived to count there is no exit code.
        summary.exit_code?;
        if !self.judges() {
            // Of what tries cases out, the last records tell what it found.
            let cut = self.end.as_ref().is_none_or(|end| end.repaired == Some(true));
            return cut.then(|| "its last records".into());
        }
        let counts = summary.counts.iter().flat_map(BTreeMap::values);
        let counted = counts.fold(0u64, |sum, count| sum.saturating_add(*count));
        let concluded = self.cases.values().filter(|case| case.concluded.is_some());
        let here = if self.header.records_verdicts() { concluded.count() } else { self.cases.len() } as u64;
        (here < counted).then(|| format!("{} of {counted} verdicts", counted - here))
    }

    /// The name of the run.
    pub(crate) fn id(&self) -> &str {
        self.header.run_id.as_deref().unwrap_or_default()
    }

    /// `complete`, `aborted`, or `running` where nobody wrote the end.
    pub(crate) fn status(&self) -> &str {
        let end = self.end.as_ref().and_then(|end| end.status.as_deref());
        end.or(self.header.status.as_deref()).unwrap_or("running")
    }

    /// What it came to, in a word: `passed` only where its exit code says so, or, of
    /// several runs, where every case has a verdict and none of them is a failure.
    pub(crate) fn word(&self) -> &str {
        let outcome = |case: &RecordedCase| is_open(case.verdict().1);
        let flaky = || self.cases.values().any(|case| case.verdict().0 == "flaky");
        let told = [self.end.as_ref().and_then(|end| end.summary.as_ref()), self.header.summary.as_ref()];
        let code = told.into_iter().flatten().find_map(|summary| summary.exit_code);
        match code.and_then(|code| u8::try_from(code).ok()) {
            _ if self.cases.values().any(RecordedCase::failed) => "failed",
            _ if self.status() != "complete" => self.status(),
            Some(exit::OK) => "passed",
            Some(exit::INCOMPLETE | exit::OUTSTANDING | exit::BAD_CASES) => "incomplete",
            Some(exit::REGRESSED) => "dearer",
            Some(exit::FLAKY) => "flaky",
            Some(_) => "failed",
            None if self.header.flaky_fails() && flaky() => "flaky",
            None if self.cases.values().any(outcome) => "incomplete",
            None => "passed",
        }
    }

    /// Cases by verdict.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for case in self.cases.values() {
            *counts.entry(case.verdict().0.to_string()).or_default() += 1;
        }
        counts
    }

    /// Cases that passed, by what their passes rest on. Those of which nobody said so are in none.
    pub(crate) fn passed_by(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for by in self.cases.values().filter_map(RecordedCase::passed_by) {
            *counts.entry(by.to_string()).or_default() += 1;
        }
        counts
    }

    /// Time from the start to the last record.
    pub(crate) fn elapsed_ns(&self) -> u64 {
        let told = self.end.as_ref().and_then(|end| end.summary.as_ref()?.elapsed_ns);
        told.unwrap_or(self.last_ns)
    }

    /// Names the history of its device: `simulator`, `reference`, or a product.
    pub(crate) fn device(&self) -> Option<String> {
        self.header.device()
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::Summary;
    use super::*;
    use serde_json::json;

    /// A run of cases with these verdicts and outcomes, and what it ended with.
    fn ended(verdicts: &[(&str, &str)], exit_code: Option<u8>, flaky: &str) -> Recorded {
        let mut run = Recorded {
            header: Header { run_id: Some("r".into()), flaky: Some(flaky.into()), ..Header::default() },
            ..Recorded::default()
        };
        for (number, (verdict, outcome)) in verdicts.iter().enumerate() {
            let id = format!("A.{number}");
            run.push(json!({ "k": "verdict", "case_id": id, "verdict": verdict, "outcome": outcome }));
        }
        if let Some(code) = exit_code {
            run.push(json!({ "k": "end", "status": "complete", "summary": { "exit_code": code } }));
        }
        run
    }

    #[test]
    fn a_run_is_called_what_its_exit_code_says() {
        let [pass, flaky, late] = [("pass", "pass"), ("flaky", "fail.x"), ("skip", "skip.deadline")];
        let check = |run: &Recorded, word: &str| assert_eq!(run.word(), word, "{run:?}");
        check(&ended(&[pass], Some(0), "pass"), "passed");
        check(&ended(&[pass, late], Some(6), "pass"), "incomplete");
        check(&ended(&[pass], Some(5), "pass"), "incomplete");
        check(&ended(&[pass], Some(96), "pass"), "incomplete");
        check(&ended(&[pass], Some(10), "pass"), "dearer");
        check(&ended(&[pass, flaky], Some(0), "pass"), "passed");
        check(&ended(&[pass, flaky], Some(11), "fail"), "flaky");
        check(&ended(&[pass, ("crash", "crash.sigsegv")], Some(103), "pass"), "failed");
        check(&ended(&[pass], Some(21), "pass"), "failed");
        check(&ended(&[pass], None, "pass"), "running");
        // Several runs: what one of them came to is not what all did.
        let join = |other: Recorded| {
            let mut other = other;
            other.cases = other.cases.into_iter().map(|(id, case)| (id + "b", case)).collect();
            let mut first = ended(&[pass], Some(0), "pass");
            first.header.status = Some("complete".into());
            first.header.summary = Some(Summary { exit_code: Some(0), ..Summary::default() });
            Recorded::join(&[first, other])
        };
        check(&join(ended(&[pass], Some(0), "pass")), "passed");
        check(&join(ended(&[late], Some(6), "pass")), "incomplete");
        check(&join(ended(&[flaky], Some(11), "fail")), "flaky");
        check(&join(ended(&[pass], None, "pass")), "running");
    }
}
