//! Rows of the tables in `history/`, typed: what a cell is named is what its column is.
//!
//! Inputs: lines of CSV files of any run. Outputs: rows, and the same lines again: a
//! number that was written with fixed digits keeps its text, so that reading a table and
//! writing it changes no byte. A cell that cannot be what its column says is damage.

use crate::outcome::{Perf, Verdict};
use engine::options::Phase;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::io;

/// A row of a table.
pub(super) trait TableRow: Serialize + DeserializeOwned + Clone + PartialEq {
    /// The names of its columns, in the order of its fields.
    const COLUMNS: &'static [&'static str];

    /// Its cells as they are written.
    fn cells(&self) -> io::Result<csv::StringRecord> {
        let line = line(self)?;
        let mut record = csv::StringRecord::new();
        csv::ReaderBuilder::new().has_headers(false).from_reader(&*line).read_record(&mut record)?;
        Ok(record)
    }

    /// The row of a record; `None` if that is none.
    fn of(record: &csv::StringRecord) -> Option<Self> {
        let columns = csv::StringRecord::from(Self::COLUMNS.to_vec());
        if record.len() == columns.len() { record.deserialize(Some(&columns)).ok() } else { None }
    }
}

/// A row as a line of its table.
pub(super) fn line(row: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.serialize(row)?;
    writer.into_inner().map_err(|error| error.into_error())
}

/// A row that one run adds for one case.
pub(super) trait RowOfRun: TableRow {
    fn run_id(&self) -> &str;
    fn case_id(&self) -> &str;
}

macro_rules! rows_of_runs {
    ($($row:ty),*) => {$(
        impl RowOfRun for $row {
            fn run_id(&self) -> &str {
                &self.run_id
            }
            fn case_id(&self) -> &str {
                &self.case_id
            }
        }
    )*};
}

rows_of_runs!(VerdictRow, PerfRow);

/// What a run adds for one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseRow {
    pub(crate) case_id: String,
    pub(crate) verdict: Verdict,
    pub(crate) outcome: String,
    pub(crate) dur_ns: u64,
    pub(crate) perf: Option<Perf>,
    /// Nanoseconds of compile phases, for `perf.csv`.
    pub(crate) phases: std::collections::BTreeMap<String, u64>,
    /// Its kernel was found compiled: the compiler's time is in none of the figures.
    pub(crate) cached: bool,
    pub(crate) kernel_crc: Option<u32>,
}

impl CaseRow {
    /// Runs and smoothed microseconds of a case with this row: new = 3/4 old + 1/4
    /// measured. What the machine kept from running counts for no run. A run whose
    /// kernel was found compiled takes nothing off what is known: the next one, with
    /// an empty cache, compiles again.
    pub(super) fn counted(&self, runs: u64, dur_us: u64) -> (u64, u64) {
        let new_us = self.dur_ns / 1000;
        let smoothed = dur_us.saturating_mul(3).saturating_add(new_us) / 4;
        match runs {
            _ if self.verdict == Verdict::Infra => (runs, dur_us),
            0 => (1, new_us),
            _ if self.cached => (runs.saturating_add(1), smoothed.max(dur_us)),
            _ => (runs.saturating_add(1), smoothed),
        }
    }
}

/// `durations.csv`: what is known of the time of a case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct DurationRow {
    #[serde(deserialize_with = "named")]
    pub(super) case_id: String,
    pub(super) runs: u64,
    pub(super) dur_us: u64,
    #[serde(deserialize_with = "text")]
    pub(super) outcome: String,
}

impl TableRow for DurationRow {
    const COLUMNS: &'static [&'static str] = &["case_id", "runs", "dur_us", "outcome"];
}

impl DurationRow {
    /// What is expected; nothing of a case that never ran.
    pub(super) fn known_ns(&self) -> Option<u64> {
        (self.runs > 0).then(|| self.dur_us.saturating_mul(1000))
    }
}

/// `verdicts.csv`: a case that came to another outcome than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VerdictRow {
    #[serde(deserialize_with = "named")]
    pub(super) run_id: String,
    #[serde(deserialize_with = "text")]
    pub(super) commit: String,
    #[serde(deserialize_with = "named")]
    pub(super) case_id: String,
    pub(super) verdict: Verdict,
    /// The outcome before; empty where none is known.
    #[serde(deserialize_with = "text")]
    pub(super) before: String,
    #[serde(deserialize_with = "text")]
    pub(super) outcome: String,
}

impl TableRow for VerdictRow {
    const COLUMNS: &'static [&'static str] = &["run_id", "commit", "case_id", "verdict", "before", "outcome"];
}

impl VerdictRow {
    /// What a run makes of a case that came to `before` until then.
    pub(super) fn new(run_id: &str, commit: &str, row: &CaseRow, before: &str) -> Self {
        Self {
            run_id: run_id.into(),
            commit: commit.into(),
            case_id: row.case_id.clone(),
            verdict: row.verdict,
            before: before.into(),
            outcome: row.outcome.clone(),
        }
    }
}

/// `perf.csv`: one measurement. What was not measured is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PerfRow {
    #[serde(deserialize_with = "named")]
    pub(super) run_id: String,
    #[serde(deserialize_with = "text")]
    pub(super) commit: String,
    #[serde(deserialize_with = "named")]
    pub(super) case_id: String,
    pub(super) bytes: u64,
    pub(super) samples: u64,
    pub(super) median_ns: Option<Decimal>,
    pub(super) p10_ns: Option<Decimal>,
    pub(super) p90_ns: Option<Decimal>,
    pub(super) gbps: Option<Decimal>,
    pub(super) share_of_copy: Option<Decimal>,
    pub(super) copy_gbps: Option<Decimal>,
    pub(super) host_us: Option<Decimal>,
    pub(super) schedule_ms: Option<Decimal>,
    pub(super) lower_ms: Option<Decimal>,
    pub(super) codegen_ms: Option<Decimal>,
    pub(super) load_ms: Option<Decimal>,
    #[serde(deserialize_with = "text")]
    pub(super) kernel_crc: String,
    /// The simulator's counters, as `name=value` with blanks between.
    #[serde(deserialize_with = "text")]
    pub(super) counters: String,
}

impl TableRow for PerfRow {
    const COLUMNS: &'static [&'static str] = &[
        "run_id",
        "commit",
        "case_id",
        "bytes",
        "samples",
        "median_ns",
        "p10_ns",
        "p90_ns",
        "gbps",
        "share_of_copy",
        "copy_gbps",
        "host_us",
        "schedule_ms",
        "lower_ms",
        "codegen_ms",
        "load_ms",
        "kernel_crc",
        "counters",
    ];
}

impl PerfRow {
    /// The measurement of a case, if it has one.
    pub(super) fn new(run_id: &str, commit: &str, row: &CaseRow) -> Option<Self> {
        let perf = row.perf.as_ref()?;
        let real = |value: Option<f64>, digits: usize| value.map(|value| Decimal::of(value, digits));
        // What a found kernel did not take is no measurement of the compiler.
        let measured = |phase: Phase| row.phases.get(phase.name()).filter(|_| !(row.cached && phase == Phase::Codegen));
        let phase = |phase: Phase| measured(phase).map(|ns| Decimal::of(*ns as f64 / 1e6, 3));
        let counters: Vec<String> = perf.counters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Some(Self {
            run_id: run_id.into(),
            commit: commit.into(),
            case_id: row.case_id.clone(),
            bytes: perf.bytes,
            samples: perf.samples,
            median_ns: real(perf.median_ns, 1),
            p10_ns: real(perf.p10_ns, 1),
            p90_ns: real(perf.p90_ns, 1),
            gbps: real(perf.gbps, 2),
            share_of_copy: real(perf.share, 4),
            copy_gbps: real(perf.copy_gbps, 2),
            host_us: real(perf.host_us, 2),
            schedule_ms: phase(Phase::Schedule),
            lower_ms: phase(Phase::Lower),
            codegen_ms: phase(Phase::Codegen),
            load_ms: phase(Phase::Load),
            kernel_crc: row.kernel_crc.map_or(String::new(), |crc| format!("{crc:08x}")),
            counters: counters.join(" "),
        })
    }
}

/// A number with the digits with which it stands in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal(String);

impl Decimal {
    fn of(value: f64, digits: usize) -> Self {
        Self(format!("{value:.digits$}"))
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse::<f64>() {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(D::Error::custom(error)),
        }
    }
}

/// A name: something must stand there.
pub(super) fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = text(deserializer)?;
    if text.is_empty() { Err(D::Error::custom("a row without a name")) } else { Ok(text) }
}

/// Any text but what a disk leaves of a lost block.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.contains('\0') { Err(D::Error::custom("a cell with a zero byte")) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The committed tables come back byte for byte.
    #[track_caller]
    fn check_committed<R: TableRow>(name: &str) {
        let history = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/history");
        let mut tables = 0;
        for device in std::fs::read_dir(history).expect("a folder").flatten() {
            let Ok(bytes) = std::fs::read(device.path().join(name)) else { continue };
            let (rows, damaged) = super::super::table::parse::<R>(&bytes).expect("columns of ours");
            assert_eq!(damaged, 0, "{name}");
            let mut written = line(&R::COLUMNS).expect("writes");
            rows.iter().for_each(|row| written.extend(line(row).expect("writes")));
            assert!(written == bytes, "{name} of {}", device.path().display());
            tables += 1;
        }
        assert!(tables > 0, "no {name} is committed");
    }

    #[test]
    fn committed_tables_are_read_and_written_without_loss() {
        check_committed::<DurationRow>("durations.csv");
        check_committed::<VerdictRow>("verdicts.csv");
        check_committed::<PerfRow>("perf.csv");
    }

    #[test]
    fn a_cell_that_is_not_what_its_column_says_is_no_row() {
        let row = |cells: &str| VerdictRow::of(&csv::StringRecord::from(cells.split(',').collect::<Vec<_>>()));
        assert!(row("r,c,A.a,pass,,pass").is_some());
        for cells in [",c,A.a,pass,,pass", "r,c,,pass,,pass", "r,c,A.a,pazz,,pass", "r,c,A.a,pass,,pass,more"] {
            assert_eq!(row(cells), None, "{cells}");
        }
    }
}
