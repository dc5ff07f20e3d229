//! The header of a run, typed: the first record of its log, and `run.json`, which is
//! written again at the end with what the run came to.
//!
//! Inputs: a header of any run of this major [`SCHEMA`]. Outputs: its fields, and the same
//! header again. A field that a run lacks, or has in a form of another version, is `None`;
//! the latter, and fields that are not known here, stay as they are, so that a header that
//! is mended loses nothing. A field without a value is left out, unless it is asked for.

use super::events::SCHEMA;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;

/// What only a record of the log has: its place there.
const OF_RECORD: [&str; 5] = ["v", "seq", "t_ns", "k", "crc"];

/// An object of a record with typed fields, all of which may be missing.
macro_rules! recorded {
    ($(#[$about:meta])* $struct:ident { $($(#[$doc:meta])* $name:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub(crate) struct $struct {
            $($(#[$doc])* pub(crate) $name: Option<$type>,)*
            /// All other fields.
            pub(crate) other: Map<String, Value>,
        }

        impl $struct {
            /// Of an object; `None` of any other value.
            pub(crate) fn of(value: Value) -> Option<Self> {
                let Value::Object(mut other) = value else { return None };
                OF_RECORD.iter().for_each(|key| drop(other.remove(*key)));
                Some(Self { $($name: take(&mut other, stringify!($name)),)* other })
            }

            /// As it is written.
            pub(crate) fn to_value(&self) -> Value {
                let mut fields = self.other.clone();
                $(put(&mut fields, stringify!($name), &self.$name);)*
                Value::Object(fields)
            }
        }

        impl Serialize for $struct {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.to_value().serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $struct {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::of(Value::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no object"))
            }
        }
    };
}

/// Fields that have no value, and of which that is to be said: `null`. A typed field that
/// has one counts.
pub(crate) fn nulls(keys: &[&str]) -> Map<String, Value> {
    keys.iter().map(|key| ((*key).into(), Value::Null)).collect()
}

/// Takes a field out of an object if it has the form that is expected.
fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, key: &str) -> Option<T> {
    let value = T::deserialize(fields.get(key).filter(|value| !value.is_null())?).ok()?;
    fields.remove(key);
    Some(value)
}

fn put<T: Serialize>(fields: &mut Map<String, Value>, key: &str, value: &Option<T>) {
    if let Some(value) = value.as_ref().and_then(|value| serde_json::to_value(value).ok()) {
        fields.insert(key.into(), value);
    }
}

recorded! {
    /// The header of a run.
    Header {
        run_id: String,
        schema: Schema,
        /// When it began and ended, as RFC 3339.
        started_utc: String,
        ended_utc: String,
        pid: u64,
        /// The command: `run`, `bench`, `hunt`, ...
        mode: String,
        /// The command line, and what the environment added.
        argv: Vec<String>,
        from_env: Vec<String>,
        /// The folder in which it was given.
        cwd: String,
        /// Names the history of the device.
        history: String,
        /// The options that make a repeated case the same.
        again: String,
        /// `fail` where flaky cases are failures.
        flaky: String,
        provenance: Provenance,
        seed: u64,
        jitter: u64,
        knobs: Value,
        code_cache: String,
        /// Whether the reference is evaluated `always`, or `once` for the same outputs.
        reference: String,
        isolation: String,
        /// Names of the slots.
        devices: Vec<String>,
        /// GPUs that were left, and that were taken, with the reason.
        left: Vec<GpuChoice>,
        chosen: Vec<GpuChoice>,
        nvidia: RecordedNvidia,
        /// The version of the run-time compiler.
        nvrtc: String,
        cases_dir: String,
        case_files: u64,
        /// CRC of the case files.
        cases_crc: String,
        cases_selected: u64,
        /// The run that this one goes on with.
        resumes: String,
        /// Of which job it is a part.
        shard: RecordedShard,
        /// The runs of which it was joined.
        joins: Vec<JoinedPart>,
        /// `running`, `complete`, `aborted`.
        status: String,
        /// What is missing in the record.
        record_error: String,
        summary: Summary,
    }
}

recorded! {
    /// A part of a selection, one of several.
    RecordedShard {
        /// From 1.
        index: u64,
        count: u64,
        /// `slice`, `hash` or `time`.
        split: String,
        /// CRC of all selected ids with the shard of each: equal in all shards of a job.
        dealt: String,
    }
}

recorded! {
    /// A run that was joined with others.
    JoinedPart {
        run_id: String,
        shard: u64,
        /// The run under whose name the tables of history have what this one found, where that is not the joined one.
        told_by: String,
    }
}

recorded! {
    /// The last record of a log.
    RunEnd {
        status: String,
        summary: Summary,
        /// It was put in later.
        repaired: bool,
    }
}

recorded! {
    /// What a run came to. Where nobody lived to count there is no exit code.
    Summary {
        exit_code: u64,
        elapsed_ns: u64,
        /// Cases by verdict.
        counts: BTreeMap<String, u64>,
        /// Cases that passed, by what their passes rest on.
        passed_by: BTreeMap<String, u64>,
    }
}

recorded! {
    /// The version of a record.
    Schema {
        major: u64,
        minor: u64,
    }
}

recorded! {
    /// Where results come from: sources, tools and machine.
    Provenance {
        harness_version: String,
        rustc: String,
        profile: String,
        /// Tells this binary from others: the sources that git sees may not be those it was built from.
        build: String,
        git_sha: String,
        git_branch: String,
        git_dirty: bool,
        host: String,
        kernel: String,
        cpu_model: String,
        cpus: u64,
        mem_bytes: u64,
    }
}

recorded! {
    /// A GPU and why it was taken or left.
    GpuChoice {
        uuid: String,
        why: String,
    }
}

recorded! {
    /// What NVML said.
    RecordedNvidia {
        gpus: Vec<RecordedGpu>,
    }
}

recorded! {
    /// A GPU as NVML described it.
    RecordedGpu {
        uuid: String,
        name: String,
    }
}

impl Header {
    /// The command, or nothing.
    pub(crate) fn mode(&self) -> &str {
        self.mode.as_deref().unwrap_or_default()
    }

    /// The commit of the sources, or nothing.
    pub(crate) fn commit(&self) -> &str {
        self.provenance.as_ref().and_then(|source| source.git_sha.as_deref()).unwrap_or_default()
    }

    /// Whether the sources had changes that no commit has.
    pub(crate) fn is_dirty(&self) -> bool {
        self.provenance.as_ref().is_some_and(|source| source.git_dirty == Some(true))
    }

    /// The driver of the GPUs, where NVML told it.
    pub(crate) fn driver(&self) -> Option<&str> {
        self.nvidia.as_ref()?.other.get("driver")?.as_str()
    }

    /// MHz of the multiprocessors of the chosen GPUs when the run began; `-` where nobody told.
    pub(crate) fn clocks(&self) -> Vec<String> {
        let gpus = self.nvidia.as_ref().and_then(|nvidia| nvidia.gpus.as_deref()).unwrap_or_default();
        let clock = |uuid: &Option<String>| {
            let gpu = gpus.iter().find(|gpu| gpu.uuid == *uuid)?;
            Some(gpu.other.get("sm_clock_mhz")?.as_u64()?.to_string())
        };
        let chosen = self.chosen.iter().flatten();
        chosen.map(|choice| clock(&choice.uuid).unwrap_or_else(|| "-".into())).collect()
    }

    /// The machine, or nothing.
    pub(crate) fn host(&self) -> &str {
        self.provenance.as_ref().and_then(|source| source.host.as_deref()).unwrap_or_default()
    }

    /// Whether a run comes to verdicts on cases.
    pub(crate) fn judges(&self) -> bool {
        matches!(self.mode(), "run" | "bench")
    }

    /// Whether a run tries cases out, and comes to no verdicts. `latest` never means one.
    pub(crate) fn explores(&self) -> bool {
        matches!(self.mode(), "hunt" | "why" | "replay")
    }

    /// Whether flaky cases are failures.
    pub(crate) fn flaky_fails(&self) -> bool {
        self.flaky.as_deref() == Some("fail")
    }

    /// Whether its log has verdicts: before minor version 1 they were attempts.
    pub(crate) fn records_verdicts(&self) -> bool {
        self.schema.as_ref().and_then(|schema| schema.minor) >= Some(1)
    }

    /// Names the history of its device: `simulator`, `reference`, or a product.
    pub(crate) fn device(&self) -> Option<String> {
        if let Some(name) = &self.history {
            return Some(name.clone());
        }
        match self.devices.as_ref()?.first()? {
            label if label.starts_with("sim") => Some("simulator".into()),
            label if label.starts_with("ref") => Some("reference".into()),
            _ => {
                let uuid = &self.chosen.as_ref()?.first()?.uuid;
                let gpus = self.nvidia.as_ref()?.gpus.as_ref()?;
                gpus.iter().find(|gpu| gpu.uuid == *uuid)?.name.clone()
            }
        }
    }

    /// An error if a run is of another major version of the schema.
    pub(crate) fn check_schema(&self) -> io::Result<()> {
        match self.schema.as_ref().and_then(|schema| schema.major) {
            Some(major) if major != u64::from(SCHEMA) => {
                let message = format!("its header is of schema {major}, this harness reads {SCHEMA}");
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is read of a header is written back as it was, but for its place in the log.
    #[track_caller]
    fn check_kept(header: &Value) -> Header {
        let read = Header::of(header.clone()).expect("an object");
        assert_eq!(read.to_value(), *header);
        read
    }

    #[test]
    fn a_header_of_any_version_comes_back_as_it_was() {
        let first = json!({
            "run_id": "r", "mode": "run", "argv": ["run"], "devices": ["gpu0"], "cwd": null, "jitter": null,
            "chosen": [{ "uuid": "GPU-1", "why": "idle", "score": 3 }],
            "nvidia": { "driver": "1", "gpus": [{ "uuid": "GPU-1", "name": "NVIDIA H200", "mig": [] }] },
        });
        let read = check_kept(&first);
        assert_eq!((read.device().as_deref(), read.records_verdicts()), (Some("NVIDIA H200"), false));
        let now = json!({
            "run_id": "r", "schema": { "major": 1, "minor": 2 }, "mode": "bench", "history": "simulator",
            "provenance": { "git_sha": "abc", "git_dirty": true, "later": [1] }, "record_error": null,
            "summary": { "counts": { "pass": 3 }, "exit_code": 0, "slowest": "A.a" }, "later": { "a": 1 },
        });
        let read = check_kept(&now);
        assert!(read.judges() && read.records_verdicts() && read.check_schema().is_ok());
        assert_eq!((read.commit(), read.summary.as_ref().and_then(|summary| summary.exit_code)), ("abc", Some(0)));
    }

    #[test]
    fn a_field_of_another_form_is_none_and_stays() {
        let strange = json!({ "seed": "7", "argv": ["run", 3], "provenance": [], "cases_selected": -1 });
        let read = check_kept(&strange);
        assert_eq!((read.seed, read.argv, read.provenance, read.cases_selected), (None, None, None, None));
        let of_log = json!({ "v": 1, "seq": 0, "t_ns": 5, "k": "run", "run_id": "r", "crc": "00000000" });
        assert_eq!(Header::of(of_log).expect("an object").to_value(), json!({ "run_id": "r" }));
        assert_eq!(Header::of(Value::Null), None);
    }

    #[test]
    fn another_major_version_is_refused() {
        let other = Header::of(json!({ "schema": { "major": 2, "minor": 0 } })).expect("an object");
        assert!(other.check_schema().is_err_and(|error| error.to_string().contains("schema 2")));
    }
}
