//! Rows of the tables in `history/`, typed: what a cell is named is what its column is.
//!
//! Inputs: lines of CSV files of any run. Outputs: rows, and the same lines again: a
//! number that was written with fixed digits keeps its text, so that reading a table and
//! writing it changes no byte. A cell that cannot be what its column says is damage.

use crate::outcome::{Digest, Perf, Verdict};
use engine::options::Phase;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::io;

/// A row of a table.
pub(super) trait TableRow: Serialize + DeserializeOwned + Clone + PartialEq {
    /// The names of its columns, in the order of its fields.
    const COLUMNS: &'static [&'static str];
    /// The columns that it had in versions before: a table with them is read, and written with those of now.
    const OLDER: &'static [&'static [&'static str]] = &[];

    /// The cells of now for a record of an older version. A column that it had not is empty.
    fn brought_up(header: &csv::StringRecord, record: &csv::StringRecord) -> csv::StringRecord {
        let cell = |name: &&str| Some(record.get(header.iter().position(|column| column == *name)?)?.to_string());
        Self::COLUMNS.iter().map(|name| cell(name).unwrap_or_default()).collect()
    }

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
    lines(std::slice::from_ref(row))
}

/// Rows as lines of their table.
pub(super) fn lines(rows: &[impl Serialize]) -> io::Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    rows.iter().try_for_each(|row| writer.serialize(row))?;
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

rows_of_runs!(VerdictRow, PerfRow, TimeRow);

/// What a run adds for one case.
#[derive(Clone, Debug)]
pub(crate) struct CaseRow {
    pub(crate) case_id: String,
    pub(crate) verdict: Verdict,
    pub(crate) outcome: String,
    pub(crate) dur_ns: u64,
    pub(crate) perf: Option<Perf>,
    /// Nanoseconds of compile phases, for `perf.csv`.
    pub(crate) phases: BTreeMap<String, u64>,
    /// Its kernel was found compiled: the compiler's time is in none of the figures.
    pub(crate) cached: bool,
    /// Its outputs had passed before: the reference's time is in none of them.
    pub(crate) held_to_digest: bool,
    pub(crate) kernel_crc: Option<u32>,
    pub(crate) code_digest: Option<Digest>,
    /// The UUID of its GPU, where it has one.
    pub(crate) gpu: String,
}

impl CaseRow {
    /// Runs and smoothed microseconds of a case with this row: new = 3/4 old + 1/4
    /// measured. What the machine kept from running counts for no run. A run whose
    /// kernel was found compiled, or whose outputs had passed before, takes nothing off
    /// what is known: the next one, with an empty cache or another build, does it again.
    pub(super) fn counted(&self, runs: u64, dur_us: u64) -> (u64, u64) {
        let new_us = self.dur_ns / 1000;
        let smoothed = dur_us.saturating_mul(3).saturating_add(new_us) / 4;
        match runs {
            _ if self.verdict == Verdict::Infra => (runs, dur_us),
            0 => (1, new_us),
            _ if self.cached || self.held_to_digest => (runs.saturating_add(1), smoothed.max(dur_us)),
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
    /// Of what was measured; nothing in rows of before it was recorded.
    #[serde(deserialize_with = "text")]
    pub(super) code_digest: String,
    /// The UUID of the GPU.
    #[serde(deserialize_with = "text")]
    pub(super) gpu: String,
    instructions: Option<u64>,
    lane_operations: Option<u64>,
    load_sectors: Option<u64>,
    load_sectors_ideal: Option<u64>,
    store_sectors: Option<u64>,
    store_sectors_ideal: Option<u64>,
    load_bytes: Option<u64>,
    store_bytes: Option<u64>,
    shared_wavefronts: Option<u64>,
    bank_conflicts: Option<u64>,
    block_barriers: Option<u64>,
    grid_barriers: Option<u64>,
    divergent_branches: Option<u64>,
    blocks: Option<u64>,
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
        "code_digest",
        "gpu",
        "instructions",
        "lane_operations",
        "load_sectors",
        "load_sectors_ideal",
        "store_sectors",
        "store_sectors_ideal",
        "load_bytes",
        "store_bytes",
        "shared_wavefronts",
        "bank_conflicts",
        "block_barriers",
        "grid_barriers",
        "divergent_branches",
        "blocks",
    ];
    const OLDER: &'static [&'static [&'static str]] = &[
        &[
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
        ],
        &[
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
            "gpu",
            "instructions",
            "lane_operations",
            "load_sectors",
            "load_sectors_ideal",
            "store_sectors",
            "store_sectors_ideal",
            "load_bytes",
            "store_bytes",
            "shared_wavefronts",
            "bank_conflicts",
            "block_barriers",
            "grid_barriers",
            "divergent_branches",
            "blocks",
        ],
    ];

    /// Counters were one cell: `name=value` with blanks between.
    fn brought_up(header: &csv::StringRecord, record: &csv::StringRecord) -> csv::StringRecord {
        let of = |name: &str| header.iter().position(|column| column == name).and_then(|at| record.get(at));
        let pairs = of("counters").unwrap_or_default().split_whitespace().filter_map(|pair| pair.split_once('='));
        let counters: BTreeMap<&str, &str> = pairs.collect();
        let cell = |name: &&str| of(name).or_else(|| counters.get(name).copied()).unwrap_or_default().to_string();
        Self::COLUMNS.iter().map(cell).collect()
    }
}

impl PerfRow {
    /// The median of kernel times in nanoseconds.
    pub(super) fn median(&self) -> Option<f64> {
        self.median_ns.as_ref()?.0.parse().ok()
    }

    /// The measurement of a case, if it has one.
    pub(super) fn new(run_id: &str, commit: &str, row: &CaseRow) -> Option<Self> {
        let perf = row.perf.as_ref()?;
        let real = |value: Option<f64>, digits: usize| value.map(|value| Decimal::of(value, digits));
        // What a found kernel did not take is no measurement of the compiler.
        let measured = |phase: Phase| row.phases.get(phase.name()).filter(|_| !(row.cached && phase == Phase::Codegen));
        let phase = |phase: Phase| measured(phase).map(|ns| Decimal::of(*ns as f64 / 1e6, 3));
        let count = |name: &str| perf.counters.get(name).copied();
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
            code_digest: row.code_digest.map_or(String::new(), |digest| format!("{digest:032x}")),
            gpu: row.gpu.clone(),
            instructions: count("instructions"),
            lane_operations: count("lane_operations"),
            load_sectors: count("load_sectors"),
            load_sectors_ideal: count("load_sectors_ideal"),
            store_sectors: count("store_sectors"),
            store_sectors_ideal: count("store_sectors_ideal"),
            load_bytes: count("load_bytes"),
            store_bytes: count("store_bytes"),
            shared_wavefronts: count("shared_wavefronts"),
            bank_conflicts: count("bank_conflicts"),
            block_barriers: count("block_barriers"),
            grid_barriers: count("grid_barriers"),
            divergent_branches: count("divergent_branches"),
            blocks: count("blocks"),
        })
    }
}

/// `times/<month>.csv`: how long a case took in a run, and where in the compiler, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TimeRow {
    #[serde(deserialize_with = "named")]
    run_id: String,
    #[serde(deserialize_with = "named")]
    case_id: String,
    dur_us: u64,
    schedule_us: Option<u64>,
    lower_us: Option<u64>,
    /// Nothing where the kernel was found compiled.
    codegen_us: Option<u64>,
    load_us: Option<u64>,
    launch_us: Option<u64>,
}

impl TableRow for TimeRow {
    const COLUMNS: &'static [&'static str] =
        &["run_id", "case_id", "dur_us", "schedule_us", "lower_us", "codegen_us", "load_us", "launch_us"];
}

impl TimeRow {
    /// The case, whether its kernel was compiled in the run, and the logarithm of its duration.
    pub(super) fn measured(self) -> (String, bool, f64) {
        (self.case_id, self.codegen_us.is_some(), (self.dur_us.max(1) as f64).ln())
    }

    /// The times of a case; nothing of what the machine kept from running.
    pub(super) fn new(run_id: &str, row: &CaseRow) -> Option<Self> {
        let measured = |phase: Phase| row.phases.get(phase.name()).filter(|_| !(row.cached && phase == Phase::Codegen));
        let us = |phase: Phase| measured(phase).map(|ns| ns / 1000);
        (row.verdict != Verdict::Infra).then(|| Self {
            run_id: run_id.into(),
            case_id: row.case_id.clone(),
            dur_us: row.dur_ns / 1000,
            schedule_us: us(Phase::Schedule),
            lower_us: us(Phase::Lower),
            codegen_us: us(Phase::Codegen),
            load_us: us(Phase::Load),
            launch_us: us(Phase::Launch),
        })
    }
}

/// A number with the digits with which it stands in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal(String);

impl Decimal {
    pub(super) fn of(value: f64, digits: usize) -> Self {
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
        check_committed::<super::super::run_rows::RunRow>("runs.csv");
    }

    /// A table of the version before keeps what it says: counters that were one cell are columns.
    #[test]
    fn a_row_of_an_older_table_is_one_of_now() {
        let header = PerfRow::OLDER[0].join(",");
        let text = format!(
            "{header}\nr,c,A.a,64,1,,,,,,,,,,,,0a0b0c0d,blocks=2 instructions=7\nr,c,A.b,64,9,1.5,,,,,,,,,,,0a0b0c0d,\n"
        );
        let (rows, damaged) = super::super::table::parse::<PerfRow>(text.as_bytes()).expect("columns of before");
        let first = rows[0].cells().expect("writes");
        let cell =
            |name: &str| first[PerfRow::COLUMNS.iter().position(|column| *column == name).expect("there")].to_string();
        assert_eq!((rows.len(), damaged), (2, 0));
        assert_eq!(["instructions", "blocks", "gpu", "kernel_crc"].map(cell), ["7", "2", "", "0a0b0c0d"]);
        assert_eq!(rows[1].median_ns, Some(Decimal("1.5".into())));
        // One without digests of code.
        let header = PerfRow::OLDER[1].join(",");
        let cells = PerfRow::OLDER[1].iter().map(|column| match *column {
            "run_id" | "case_id" => "a",
            "bytes" | "samples" | "blocks" => "9",
            "kernel_crc" => "0a0b0c0d",
            "gpu" => "GPU-1",
            _ => "",
        });
        let text = format!("{header}\n{}\n", cells.collect::<Vec<_>>().join(","));
        let (rows, damaged) = super::super::table::parse::<PerfRow>(text.as_bytes()).expect("columns of before");
        assert_eq!(
            (damaged, rows[0].code_digest.as_str(), rows[0].gpu.as_str(), rows[0].blocks),
            (0, "", "GPU-1", Some(9))
        );
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
