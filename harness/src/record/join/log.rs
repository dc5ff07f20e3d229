//! The records of shards as those of one run.
//!
//! Of each case only the records of the run that decided it are taken. Workers and slots get the name of their shard in
//! front, times count from the start of the first shard, to the second, and files are where the joined run has them.

use super::super::clock::seconds_of;
use super::super::events::render;
use super::super::recorded::Recorded;
use super::super::{header::Header, reader};
use super::parts::{Job, ShardRuns};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Kinds that the joined run has of its own, or once for all.
const OWN: [&str; 7] = ["run", "end", "selected", "outstanding", "job", "repair", "broken"];
/// Kinds that tell of one case.
const OF_CASE: [&str; 3] = ["attempt", "verdict", "earlier"];
/// What only a record of a log has.
const PLACE: [&str; 4] = ["v", "seq", "k", "crc"];

/// A record of the joined log.
struct JoinedRecord {
    t_ns: u64,
    kind: String,
    fields: Map<String, Value>,
}

/// The joined records, and the run as they tell it.
pub(super) struct JoinedLog {
    records: Vec<JoinedRecord>,
    pub(super) run: Recorded,
}

impl JoinedLog {
    /// Reads the logs of all parts. `place` is the folder that the joined run will have.
    pub(super) fn read(job: &Job, header: &Header, place: &Path) -> io::Result<Self> {
        let mut log = Self { records: Vec::new(), run: Recorded::default() };
        log.push(0, "run", fields_of(header.to_value()));
        log.selection(job);
        let began =
            |shard: &ShardRuns, at: usize| shard.runs[at].run.header.started_utc.as_deref().and_then(seconds_of);
        let first = job.parts().filter_map(|(shard, at, _)| began(shard, at)).min().unwrap_or(0);
        let mut rest = Vec::new();
        for (shard, at, name) in job.parts() {
            let since = u64::try_from(began(shard, at).unwrap_or(first) - first).unwrap_or(0);
            let part =
                PartOfLog { shard, at, name, place, offset_ns: since.saturating_mul(1_000_000_000), id: log.run.id() };
            reader::scan(&shard.runs[at].info.dir.join("events.jsonl"), |record| rest.extend(part.joined(record)))?;
        }
        // Case files are the same in all shards, and so is what is wrong with them.
        let broken = job.first().run.others.iter().find(|record| record["k"] == "broken");
        rest.extend(broken.map(|record| JoinedRecord {
            t_ns: 0,
            kind: "broken".into(),
            fields: fields_of(record.clone()),
        }));
        rest.sort_by_key(|record| record.t_ns);
        rest.into_iter().for_each(|record| log.push(record.t_ns, &record.kind, record.fields));
        Ok(log)
    }

    pub(super) fn push(&mut self, t_ns: u64, kind: &str, fields: Map<String, Value>) {
        let mut record = Value::Object(fields.clone());
        (record["k"], record["t_ns"]) = (kind.into(), t_ns.into());
        self.run.push(record);
        self.records.push(JoinedRecord { t_ns, kind: kind.into(), fields });
    }

    /// What the job selected, also in shards that are not there, and what its rerun left out.
    fn selection(&mut self, job: &Job) {
        let mut seen = BTreeSet::new();
        let parts = || job.parts().map(|(shard, at, _)| &shard.runs[at].run);
        let all = parts().flat_map(|run| run.job.iter().chain(&run.selected));
        let ids: Vec<&String> = all.filter(|id| seen.insert(*id)).collect();
        let outstanding: BTreeSet<&String> = parts().flat_map(|run| &run.outstanding).collect();
        let left: Vec<&String> = outstanding.into_iter().filter(|id| !seen.contains(id)).collect();
        for (kind, ids) in [("outstanding", left), ("selected", ids)] {
            if !ids.is_empty() {
                self.push(0, kind, fields_of(json!({ "from": 0, "ids": ids, "of": ids.len() })));
            }
        }
    }

    /// The log as it is written.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let (mut bytes, mut line) = (Vec::new(), Vec::new());
        for (seq, record) in (0..).zip(&self.records) {
            render(&mut line, seq, record.t_ns, &record.kind, &record.fields)?;
            bytes.extend_from_slice(&line);
        }
        Ok(bytes)
    }
}

pub(super) fn fields_of(record: Value) -> Map<String, Value> {
    let Value::Object(mut fields) = record else { return Map::new() };
    PLACE.iter().chain(&["t_ns"]).for_each(|key| drop(fields.remove(*key)));
    fields
}

/// One run among those that are joined.
struct PartOfLog<'a> {
    shard: &'a ShardRuns,
    at: usize,
    /// In front of its workers and slots.
    name: String,
    place: &'a Path,
    offset_ns: u64,
    /// Of the joined run.
    id: &'a str,
}

impl PartOfLog<'_> {
    /// A record as the joined run has it, if it has it.
    fn joined(&self, record: Value) -> Option<JoinedRecord> {
        let kind = record["k"].as_str()?.to_string();
        let t_ns = record["t_ns"].as_u64().unwrap_or(0).saturating_add(self.offset_ns);
        let part = &self.shard.runs[self.at].info.id;
        if OWN.contains(&kind.as_str()) {
            return None;
        }
        let of_case = OF_CASE.contains(&kind.as_str());
        if of_case && self.shard.decider(record["case_id"].as_str()?) != Some(self.at) {
            return None;
        }
        let mut record = Value::Object(fields_of(record));
        // Attempts of an earlier run have the names that they had there.
        if kind != "earlier" {
            self.rename(&mut record);
        }
        self.shift(&mut record);
        if let Some(file) = record["case_file"].as_str() {
            record["case_file"] = self.moved(file, part).into();
        }
        if kind == "verdict" {
            record["joined_from"] = part.as_str().into();
            if let Some(fields) = record.as_object_mut() {
                fields.remove("carried_from");
            }
        }
        if kind == "gate" {
            for row in record["found"].as_array_mut().into_iter().flatten().filter(|row| row.is_object()) {
                (row["joined_from"], row["run_id"]) = (part.as_str().into(), self.id.into());
            }
        }
        Some(JoinedRecord { t_ns, kind, fields: fields_of(record) })
    }

    /// Puts the shard's name in front of workers and slots.
    fn rename(&self, record: &mut Value) {
        for key in ["worker_id", "worker", "slot"] {
            if let Some(name) = record[key].as_str().filter(|name| !name.is_empty()) {
                record[key] = format!("{}.{name}", self.name).into();
            }
        }
        record["cases"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter(|case| case.is_object())
            .for_each(|case| self.rename(case));
        // Asking for a key that is not there has made it.
        if let Some(fields) = record.as_object_mut() {
            fields.retain(|key, value| {
                !(value.is_null() && ["worker_id", "worker", "slot", "cases"].contains(&key.as_str()))
            });
        }
    }

    fn shift(&self, record: &mut Value) {
        let Some(fields) = record.as_object_mut() else { return };
        for key in ["start_ns", "t_run_ns"] {
            if let Some(ns) = fields.get(key).and_then(Value::as_u64) {
                fields.insert(key.into(), ns.saturating_add(self.offset_ns).into());
            }
        }
    }

    /// Where a file of the part's folder is in the joined one.
    fn moved(&self, file: &str, part: &str) -> String {
        match file.split_once(&format!("runs/{part}/")) {
            Some((_, rest)) => self.place.join(rest).display().to_string(),
            None => file.into(),
        }
    }
}
