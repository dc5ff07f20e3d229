//! Reads the tables of all devices.
//!
//! Any table with the columns `run_id` and `case_id` is one of figures: each of its other columns with numbers is a metric
//! by the column's name, and `counters` holds several as `name=value`. The other tables are known by their names.

use super::runs::headers;
use super::{Device, Flake, Gate, Run, Turn};
use crate::figure::{self, COMPILE, PHASES};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// Columns that are not figures.
const WORDS: [&str; 10] =
    ["run_id", "commit", "case_id", "verdict", "before", "outcome", "kernel_crc", "code_digest", "counters", "gpu"];

/// Names of cases, numbered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.into());
        self.numbers.insert(name.into(), number);
        number
    }

    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Numbers in the order of names.
    pub(crate) fn sorted(&self) -> Vec<u32> {
        let mut all: Vec<u32> = (0..self.names.len() as u32).collect();
        all.sort_by(|a, b| self.name(*a).cmp(self.name(*b)));
        all
    }
}

/// The histories of all devices below a folder of results: GPUs first, by name.
pub(crate) fn read_devices(results: &Path, names: &mut Names) -> io::Result<Vec<Device>> {
    let headers = headers(results);
    let mut folders = entries(&results.join("history"))?;
    folders.retain(|path| path.is_dir());
    let mut devices = Vec::new();
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut reading = Reading { device: Device { name, ..Device::default() }, names, runs: HashMap::new() };
        for path in tables(&folder)? {
            reading.table(&path)?;
        }
        reading.headers(&headers);
        devices.push(reading.finished());
    }
    devices.sort_by(|a, b| (a.is_exact(), &a.name).cmp(&(b.is_exact(), &b.name)));
    Ok(devices)
}

/// The tables of a folder, and of the folders in it: a long series is a table a month.
fn tables(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in entries(folder)? {
        all.extend(if path.is_dir() { entries(&path)? } else { vec![path] });
    }
    all.retain(|path| path.extension().is_some_and(|ext| ext == "csv"));
    Ok(all)
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    Ok(paths)
}

struct Reading<'a> {
    device: Device,
    names: &'a mut Names,
    runs: HashMap<String, u32>,
}

/// A line of a table, by the names of its columns.
struct Line<'a> {
    columns: &'a [String],
    cells: &'a csv::StringRecord,
}

impl<'a> Line<'a> {
    fn get(&self, column: &str) -> &'a str {
        let at = self.columns.iter().position(|known| known == column);
        at.and_then(|at| self.cells.get(at)).unwrap_or_default()
    }

    fn number(&self, column: &str) -> u64 {
        self.get(column).parse().unwrap_or(0)
    }
}

impl Reading<'_> {
    fn table(&mut self, path: &Path) -> io::Result<()> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_path(path)?;
        let columns: Vec<String> = reader.headers()?.iter().map(String::from).collect();
        let has = |name: &str| columns.iter().any(|column| column == name);
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let take: fn(&mut Self, &Line<'_>) = match file.as_str() {
            "runs.csv" => Self::run,
            "durations.csv" if !has("run_id") => Self::last,
            "verdicts.csv" => Self::turn,
            "flake.csv" => Self::flake,
            "gate.csv" => Self::gate,
            "determinism.csv" => return Ok(()),
            _ if has("run_id") && has("case_id") => return self.figures(&mut reader, &columns, &file),
            _ => return Ok(()),
        };
        let (mut cells, mut bad) = (csv::StringRecord::new(), 0u64);
        while next(&mut reader, &mut cells, &mut bad)? {
            take(self, &Line { columns: &columns, cells: &cells });
        }
        self.damaged(&file, bad);
        Ok(())
    }

    fn damaged(&mut self, file: &str, lines: u64) {
        if lines > 0 {
            self.device
                .notes
                .push(format!("{file}: {lines} damaged lines are left out; `harness store repair` mends it"));
        }
    }

    fn run_number(&mut self, id: &str, commit: &str) -> u32 {
        if let Some(number) = self.runs.get(id) {
            return *number;
        }
        let number = self.device.runs.len() as u32;
        self.device.runs.push(Run { commit: commit.into(), ..Run::named(id) });
        self.runs.insert(id.into(), number);
        number
    }

    fn run(&mut self, line: &Line<'_>) {
        let number = self.run_number(line.get("run_id"), line.get("commit"));
        let run = &mut self.device.runs[number as usize];
        let text = |column: &str| line.get(column).to_string();
        run.command = text("command");
        run.started = if line.get("started_utc").is_empty() { run.started.clone() } else { text("started_utc") };
        run.commit = text("commit");
        run.dirty = line.get("dirty") == "true";
        (run.host, run.gpus, run.driver) = (text("host"), text("gpus"), text("driver"));
        // A quote in front keeps spreadsheets from taking it for a formula.
        run.options = line.get("options").trim_start_matches('\'').to_string();
    }

    fn last(&mut self, line: &Line<'_>) {
        let case = self.names.number(line.get("case_id"));
        let last = (line.number("runs"), line.number("dur_us"), line.get("outcome").to_string());
        self.device.cases.entry(case).or_default().last = Some(last);
    }

    fn turn(&mut self, line: &Line<'_>) {
        let run = self.run_number(line.get("run_id"), line.get("commit"));
        let case = self.names.number(line.get("case_id"));
        let text = |column: &str| line.get(column).to_string();
        let turn = Turn { run, verdict: text("verdict"), before: text("before"), outcome: text("outcome") };
        self.device.cases.entry(case).or_default().turns.push(turn);
    }

    fn flake(&mut self, line: &Line<'_>) {
        let rate = |column: &str| line.get(column).parse().unwrap_or(f64::NAN);
        let flake = Flake {
            case: self.names.number(line.get("case_id")),
            runs: line.number("runs"),
            failures: line.number("failures"),
            low: rate("low"),
            high: rate("high"),
            finding: line.get("finding").into(),
            class: line.get("class").into(),
            run: line.get("last_run").into(),
        };
        self.device.flakes.push(flake);
    }

    fn gate(&mut self, line: &Line<'_>) {
        let run = self.run_number(line.get("run_id"), line.get("commit"));
        let case = Some(line.get("case_id")).filter(|id| !id.starts_with('(')).map(|id| self.names.number(id));
        let text = |column: &str| line.get(column).to_string();
        let (finding, by, reason) = (text("finding"), text("by"), text("reason"));
        let ratio = line.get("ratio").parse().unwrap_or(f64::NAN);
        self.device.gates.push(Gate { run, case, finding, ratio, by, reason });
    }

    /// A table of figures: the long ones. Columns are looked up once.
    fn figures(&mut self, reader: &mut csv::Reader<std::fs::File>, columns: &[String], file: &str) -> io::Result<()> {
        let at = |name: &str| columns.iter().position(|column| column == name);
        let (Some(run_at), Some(case_at)) = (at("run_id"), at("case_id")) else { return Ok(()) };
        let (commit_at, kernel_at, counters_at) = (at("commit"), at("kernel_crc"), at("counters"));
        let (gpu_at, launch_at, compile_at) = (at("gpu"), at("launch_us"), at("codegen_us"));
        let whole = at("dur_us");
        let figures: Vec<(usize, usize)> = (0..columns.len())
            .filter(|at| !WORDS.contains(&columns[*at].as_str()) && figure::is_shown(&columns[*at]))
            .map(|at| (at, self.metric(&columns[at])))
            .collect();
        let (mut cells, mut bad) = (csv::StringRecord::new(), 0u64);
        while next(reader, &mut cells, &mut bad)? {
            let cell = |at: Option<usize>| at.and_then(|at| cells.get(at)).unwrap_or_default();
            let (run, case) = (cell(Some(run_at)), cell(Some(case_at)));
            if run.is_empty() || case.is_empty() {
                bad += 1;
                continue;
            }
            let (run, case) = (self.run_number(run, cell(commit_at)), self.names.number(case));
            let counters: Vec<(usize, f64)> = cell(counters_at)
                .split_ascii_whitespace()
                .filter_map(|word| {
                    let (name, value) = word.split_once('=')?;
                    Some((self.metric(name), value.parse().ok()?))
                })
                .collect();
            let gpu = self.gpu(cell(gpu_at));
            // A run that found the kernel compiled is no measure of the whole case.
            let found_compiled = !cell(launch_at).is_empty() && compile_at.is_some() && cell(compile_at).is_empty();
            let history = self.device.cases.entry(case).or_default();
            let place = history.place(run);
            if let Ok(kernel) = u32::from_str_radix(cell(kernel_at), 16) {
                history.kernels[place] = kernel;
            }
            if gpu != 0 {
                history.gpus[place] = gpu;
            }
            for (at, metric) in figures.iter().filter(|(at, _)| !(found_compiled && Some(*at) == whole)) {
                if let Some(value) = cells.get(*at).and_then(|cell| cell.parse::<f64>().ok()) {
                    history.set(*metric, place, value);
                }
            }
            counters.into_iter().for_each(|(metric, value)| history.set(metric, place, value));
        }
        self.damaged(file, bad);
        Ok(())
    }

    fn gpu(&mut self, uuid: &str) -> u32 {
        if uuid.is_empty() {
            return 0;
        }
        let known = self.device.gpus.iter().position(|known| known == uuid);
        known.map_or_else(
            || {
                self.device.gpus.push(uuid.into());
                self.device.gpus.len() as u32
            },
            |at| at as u32 + 1,
        )
    }

    fn metric(&mut self, name: &str) -> usize {
        let known = self.device.metrics.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.device.metrics.push(name.into());
            self.device.metrics.len() - 1
        })
    }

    /// What headers of runs know of runs on this device.
    fn headers(&mut self, headers: &BTreeMap<String, Value>) {
        for (id, header) in headers {
            let device = header["history"].as_str().unwrap_or_default();
            if crate::slug::device(device) == self.device.name {
                let number = self.run_number(id, "");
                self.device.runs[number as usize].know(header);
            }
        }
    }

    fn finished(mut self) -> Device {
        let device = &mut self.device;
        let mut by_time: Vec<usize> = (0..device.runs.len()).collect();
        by_time.sort_by(|a, b| {
            let key = |at: usize| (&device.runs[at].started, &device.runs[at].id);
            key(*a).cmp(&key(*b))
        });
        let mut order = vec![0; by_time.len()];
        by_time.iter().enumerate().for_each(|(new, old)| order[*old] = new as u32);
        device.runs = by_time.iter().map(|at| device.runs[*at].clone()).collect();
        device.cases.values_mut().for_each(|case| case.renumber(&order));
        device.gates.iter_mut().for_each(|gate| gate.run = order[gate.run as usize]);
        device.gates.sort_by_key(|gate| (gate.run, gate.case));
        let phases: Vec<_> = PHASES.iter().filter_map(|name| device.metric(name)).collect();
        if phases.len() == PHASES.len() {
            let compile = self.metric(COMPILE);
            self.device.cases.values_mut().for_each(|case| case.sum(&phases, compile));
        }
        self.device
    }
}

/// The next whole line; damaged ones are counted.
fn next(reader: &mut csv::Reader<std::fs::File>, cells: &mut csv::StringRecord, bad: &mut u64) -> io::Result<bool> {
    loop {
        match reader.read_record(cells) {
            Ok(more) => return Ok(more),
            Err(error) if error.is_io_error() => return Err(error.into()),
            Err(_) => *bad += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of results with these tables of one device, read.
    fn read(name: &str, tables: &[(&str, &str)]) -> (Device, Names) {
        let root = std::env::temp_dir().join(format!("pages-{name}-{}", std::process::id()));
        for (path, text) in tables {
            let path = root.join("history/nvidia-h200").join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("writes");
        }
        let mut names = Names::default();
        let mut devices = read_devices(&root, &mut names).expect("reads");
        std::fs::remove_dir_all(&root).expect("removes");
        (devices.remove(0), names)
    }

    const OLD: &str = "20260101T000000Z-aaaaaa";
    const NEW: &str = "20260102T000000Z-bbbbbb";

    #[test]
    fn columns_are_read_by_their_names_in_any_version() {
        // A run that was merged later stands behind a newer one; counters were one cell once.
        let perf = format!(
            "run_id,case_id,median_ns,counters,kernel_crc\n{NEW},A.a,20,,0000000b\n{OLD},A.a,10,sectors=7 blocks=2,0000000a\n"
        );
        let (device, names) = read("old", &[("perf.csv", &perf)]);
        let case = &device.cases[&names.find("A.a").expect("a case")];
        let value = |column: &str, at| case.value(device.metric(column).expect("a column"), at);
        assert_eq!(device.runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), [OLD, NEW]);
        assert_eq!((value("median_ns", 0), value("median_ns", 1), value("sectors", 0)), (10.0, 20.0, 7.0));
        assert_eq!((case.kernels.as_slice(), value("sectors", 1).is_nan()), (&[10, 11][..], true));
        let perf = format!("run_id,case_id,median_ns,gpu,later,sectors\n{OLD},A.a,10,GPU-1,words,8\n");
        let (device, names) = read("new", &[("perf.csv", &perf)]);
        let case = &device.cases[&names.find("A.a").expect("a case")];
        assert_eq!((device.gpus.as_slice(), case.gpus.as_slice()), (&["GPU-1".to_string()][..], &[1][..]));
        assert_eq!(case.last_value(device.metric("sectors").expect("a column")), Some(8.0));
    }

    #[test]
    fn months_of_times_are_one_series_and_found_kernels_are_no_measure() {
        let times = |rows: &str| format!("run_id,case_id,dur_us,codegen_us,launch_us\n{rows}");
        let first = times(&format!("{OLD},A.a,100,50,1\n{OLD},A.refused,7,,\n"));
        let second = times(&format!("{NEW},A.a,40,,1\n{NEW},A.refused,8,,\n"));
        let (device, names) = read("times", &[("times/2026-01.csv", &first), ("times/2026-02.csv", &second)]);
        let points = |name: &str| {
            let case = &device.cases[&names.find(name).expect("a case")];
            case.points(device.metric("dur_us").expect("a column"))
        };
        assert_eq!((points("A.a"), points("A.refused")), (vec![(0, 100.0)], vec![(0, 7.0), (1, 8.0)]));
        assert_eq!(device.metric("launch_us"), None);
    }

    #[test]
    fn findings_of_a_gate_are_no_figures_and_damage_is_told() {
        let gate = format!(
            "run_id,commit,case_id,finding,ratio,p,by,reason\n{NEW},c,(all),slower,1.1,0.01,history,\n{NEW},c,A.a,accepted,1.2,,,\"meant, since\"\n"
        );
        let perf = format!("run_id,case_id,median_ns\n{OLD},A.a,10\n,A.a,11\n{OLD}\n");
        let (device, names) = read("gate", &[("gate.csv", &gate), ("perf.csv", &perf)]);
        let told: Vec<_> =
            device.gates.iter().map(|gate| (gate.case, gate.finding.as_str(), gate.reason.as_str())).collect();
        assert_eq!(told, [(None, "slower", ""), (names.find("A.a"), "accepted", "meant, since")]);
        assert_eq!(device.metrics, ["median_ns"]);
        assert_eq!(device.notes, ["perf.csv: 2 damaged lines are left out; `harness store repair` mends it"]);
    }
}
