//! Everything that pages tell, found before the first is written: histories, changes, crashes, peers.

use crate::crash::Crash;
use crate::detect::{Change, LEAST};
use crate::figure::{self, Figure};
use crate::given::{CaseFact, Given};
use crate::history::{CaseHistory, Device, Names, Run, read_devices};
use crate::slug;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::io;

/// A smaller change between two runs is not told, whatever their intervals.
const LEAST_APART: f64 = 0.02;

pub(crate) struct Site {
    pub(crate) given: Given,
    pub(crate) names: Names,
    /// Numbers of cases in the order of their names.
    pub(crate) order: Vec<u32>,
    pub(crate) devices: Vec<Watched>,
    pub(crate) crashes: Vec<Crash>,
    pub(crate) once: Vec<Once>,
}

/// A table that grows by no run.
pub(crate) struct Once {
    /// From the folder of results on.
    pub(crate) file: String,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// A device with what was found in its history.
pub(crate) struct Watched {
    pub(crate) device: Device,
    /// Changes of each case, by time.
    pub(crate) changes: BTreeMap<u32, Vec<Found>>,
    /// By column: the runs in which any case has it.
    axes: BTreeMap<&'static str, Vec<u32>>,
    /// Runs that measured, and by run of how many cases.
    measured: Vec<u32>,
    measured_cases: Vec<usize>,
    pub(crate) peers: Vec<Peer>,
    /// By run: cases with another verdict, and with a figure at another level.
    pub(crate) turns: BTreeMap<u32, Vec<u32>>,
    pub(crate) by_run: BTreeMap<u32, Vec<u32>>,
}

/// A change of a figure of a case.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The column, and its figure where it is not a counter.
    pub(crate) column: String,
    /// The run at the new level, and the one in which it was told.
    pub(crate) run: u32,
    pub(crate) told: u32,
    pub(crate) before: f64,
    pub(crate) after: f64,
    pub(crate) score: f64,
    pub(crate) grade: Grade,
    pub(crate) worse: bool,
    pub(crate) cause: Cause,
}

/// How sure a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    /// Told, with too few nights behind it.
    New,
    /// Of a series too short for a level: the intervals of two runs lie apart.
    Apart,
    Confirmed,
    /// A count, which has no noise.
    Exact,
}

impl Grade {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Grade::New => "new",
            Grade::Apart => "intervals apart",
            Grade::Confirmed => "confirmed",
            Grade::Exact => "exact",
        }
    }
}

/// What else changed with a figure, as far as the record has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cause {
    /// The kernel's text before and after: 0 where nobody knows.
    pub(crate) kernels: (u32, u32),
    pub(crate) commits: (String, String),
    pub(crate) other_gpu: bool,
    pub(crate) other_driver: bool,
}

impl Cause {
    /// Whether the generated code is another one; `None` where that is not known.
    pub(crate) fn other_code(&self) -> Option<bool> {
        (self.kernels.0 != 0 && self.kernels.1 != 0).then_some(self.kernels.0 != self.kernels.1)
    }

    /// The generated code is the same byte for byte: then it is the machine, or its software.
    pub(crate) fn is_machine(&self) -> bool {
        self.other_code() == Some(false)
    }

    /// In words.
    pub(crate) fn text(&self) -> String {
        let mut words = Vec::new();
        match self.other_code() {
            Some(true) => words.push("other kernel text"),
            Some(false) => words.push("same kernel text"),
            None => {}
        }
        words.extend(self.other_gpu.then_some("other GPU"));
        words.extend(self.other_driver.then_some("other driver"));
        words.join(", ")
    }
}

/// What a system needs for a workload.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(crate) struct Peer {
    pub(crate) workload: String,
    pub(crate) size: String,
    pub(crate) dtype: String,
    pub(crate) system: String,
    pub(crate) median_us: Option<f64>,
    pub(crate) share_of_copy: Option<f64>,
    pub(crate) host_us: Option<f64>,
}

impl Peer {
    pub(crate) fn is_ours(&self) -> bool {
        self.system == "ours"
    }
}

impl Site {
    /// Reads all that is in the folder of results.
    pub(crate) fn read(given: Given) -> io::Result<Self> {
        let mut names = Names::default();
        for id in given.cases.keys() {
            names.number(id);
        }
        let devices = read_devices(&given.results, &mut names)?;
        let order = names.sorted();
        let watched = |device: Device| {
            let peers = given.results.join("peers").join(format!("{}.csv", device.name));
            let peers = match csv::Reader::from_path(&peers) {
                Ok(mut reader) => reader.deserialize().filter_map(Result::ok).collect(),
                Err(_) => Vec::new(),
            };
            Watched::new(device, &given.costs, peers)
        };
        let devices = devices.into_iter().map(watched).collect();
        let crashes = crashes(&given.results.join("crashes"));
        let once = ["sweeps", "harness"].iter().flat_map(|folder| once(&given.results, folder)).collect();
        Ok(Self { given, names, order, devices, crashes, once })
    }

    pub(crate) fn fact(&self, case: u32) -> Option<&CaseFact> {
        self.given.cases.get(self.names.name(case))
    }

    /// The page of a case, from the top folder on.
    pub(crate) fn case_page(&self, case: u32) -> String {
        format!("case/{}.html", slug::case(self.names.name(case)))
    }

    /// Cases that are to run on a device and of which nothing is recorded there.
    pub(crate) fn never_ran(&self, watched: &Watched) -> Vec<u32> {
        let expected = |fact: &CaseFact| if watched.device.is_exact() { fact.sim } else { fact.gpu };
        let missing = |case: &u32| !watched.device.cases.contains_key(case) && self.fact(*case).is_some_and(expected);
        self.order.iter().copied().filter(missing).collect()
    }
}

/// Entries that cannot be read are left out: `store verify` tells them.
fn crashes(folder: &std::path::Path) -> Vec<Crash> {
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let read = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("bucket.json")).ok();
    let mut all: Vec<Crash> =
        folders.filter_map(read).filter_map(|bytes| serde_json::from_slice(&bytes).ok()).collect();
    all.sort_by(|a, b| (&b.last.utc, b.count, &a.leaf).cmp(&(&a.last.utc, a.count, &b.leaf)));
    all
}

/// The tables of a folder, as far as they can be read; lines of another length than the first are left out.
fn once(results: &std::path::Path, folder: &str) -> Vec<Once> {
    let entries = std::fs::read_dir(results.join(folder)).into_iter().flatten().flatten();
    let mut paths: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ext| ext == "csv")).collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let mut reader = csv::Reader::from_path(&path).ok()?;
        let cells = |record: &csv::StringRecord| record.iter().map(String::from).collect::<Vec<_>>();
        let columns = cells(reader.headers().ok()?);
        let rows = reader.records().filter_map(Result::ok).map(|record| cells(&record)).collect();
        Some(Once { file: format!("{folder}/{}", path.file_name()?.to_string_lossy()), columns, rows })
    };
    paths.into_iter().filter_map(read).collect()
}

impl Watched {
    fn new(device: Device, costs: &[String], peers: Vec<Peer>) -> Self {
        // Each case's figures are looked at in every night: the long part of reading.
        let changes = device.cases.par_iter().map(|(case, history)| (*case, found(&device, history, costs)));
        let changes: BTreeMap<u32, Vec<Found>> = changes.filter(|(_, found)| !found.is_empty()).collect();
        let (mut turns, mut by_run) = (BTreeMap::<u32, Vec<u32>>::new(), BTreeMap::<u32, Vec<u32>>::new());
        for (case, history) in &device.cases {
            history.turns.iter().for_each(|turn| turns.entry(turn.run).or_default().push(*case));
        }
        for (case, found) in &changes {
            found.iter().for_each(|found| by_run.entry(found.run).or_default().push(*case));
        }
        by_run.values_mut().for_each(Vec::dedup);
        let axes = figure::FIGURES.iter().map(|figure| (figure.column, axis(&device, figure.column))).collect();
        // A run of the suite has times of whole cases: measured is what has the main figure.
        let mut measured_cases = vec![0; device.runs.len()];
        let has = |metric: &_| device.cases.values().any(|case| case.last_value(*metric).is_some());
        let main = ["median_ns", "instructions"].into_iter().find_map(|column| device.metric(column).filter(has));
        for case in device.cases.values() {
            let points = main.map_or_else(Vec::new, |main| case.points(main));
            points.iter().for_each(|(at, _)| measured_cases[case.runs[*at] as usize] += 1);
        }
        let measured = (0..device.runs.len() as u32).filter(|run| measured_cases[*run as usize] > 0).collect();
        Self { device, changes, axes, peers, turns, by_run, measured, measured_cases }
    }

    pub(crate) fn run(&self, run: u32) -> &Run {
        &self.device.runs[run as usize]
    }

    /// The runs in which any case has a figure.
    pub(crate) fn axis(&self, column: &str) -> &[u32] {
        self.axes.get(column).map_or(&[], Vec::as_slice)
    }

    /// The runs in which any case was measured: its kernel's time, or the simulator's counts.
    pub(crate) fn measured(&self) -> &[u32] {
        &self.measured
    }

    /// How many cases were measured in a run.
    pub(crate) fn measured_cases(&self, run: u32) -> usize {
        self.measured_cases[run as usize]
    }

    /// The figure that a case is known by here.
    pub(crate) fn main(&self) -> &str {
        if self.device.metric("median_ns").is_some() && !self.axis("median_ns").is_empty() {
            "median_ns"
        } else {
            "instructions"
        }
    }

    /// The last measurement of a case: run, figure.
    pub(crate) fn latest(&self, case: u32, column: &str) -> Option<f64> {
        self.device.cases.get(&case)?.last_value(self.device.metric(column)?)
    }

    /// What others need for the same work: by the fusion's name and the sizes `m` and `n` in the id.
    pub(crate) fn peers_of(&self, id: &str) -> Vec<&Peer> {
        let (name, axes) = id.split_once('/').unwrap_or((id, ""));
        let workload = name.split_once('.').map_or(name, |(_, name)| name);
        let axis = |name: &str| axes.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let (Some(m), Some(n)) = (axis("m"), axis("n")) else { return Vec::new() };
        let size = format!("{m}x{n}");
        let same = |peer: &&Peer| {
            peer.workload == workload && peer.size == size && axis("dtype").is_none_or(|dtype| dtype == peer.dtype)
        };
        self.peers.iter().filter(same).collect()
    }

    /// Whether runs on another GPU than the run before are few enough to be marked.
    pub(crate) fn tells_gpus(&self, axis: &[u32]) -> bool {
        (1..=axis.len() / 8 + 4).contains(&self.gpu_turns(axis).len())
    }

    /// The device's runs with another GPU than the run before, on an axis.
    pub(crate) fn gpu_turns(&self, axis: &[u32]) -> Vec<usize> {
        let gpus = |at: usize| self.run(axis[at]).gpus.as_str();
        let other = |at: &usize| !gpus(*at).is_empty() && !gpus(at - 1).is_empty() && gpus(*at) != gpus(at - 1);
        (1..axis.len()).filter(other).collect()
    }
}

fn axis(device: &Device, column: &str) -> Vec<u32> {
    let Some(metric) = device.metric(column) else { return Vec::new() };
    let mut has = vec![false; device.runs.len()];
    for case in device.cases.values() {
        for (at, _) in case.points(metric) {
            has[case.runs[at] as usize] = true;
        }
    }
    (0..has.len() as u32).filter(|run| has[*run as usize]).collect()
}

/// All changes of a case, by time.
fn found(device: &Device, case: &CaseHistory, costs: &[String]) -> Vec<Found> {
    let mut all = Vec::new();
    for column in &device.metrics {
        match figure::of(column) {
            // Times of the simulator are those of whichever host it was on: drawn, not judged.
            Some(figure) if figure.watched && !device.is_exact() => all.extend(levels(device, case, figure)),
            None if figure::is_counter(column) => all.extend(counts(device, case, column, costs)),
            _ => {}
        }
    }
    all.sort_by(|a, b| (a.run, &a.column).cmp(&(b.run, &b.column)));
    all
}

fn levels(device: &Device, case: &CaseHistory, figure: &Figure) -> Vec<Found> {
    let Some(metric) = device.metric(figure.column) else { return Vec::new() };
    let points = case.points(metric);
    let turned = |change: &Change, grade| {
        let at = with_code(case, &points, change.at);
        let before = points.iter().take_while(|(place, _)| *place < at).last().map_or(at, |(place, _)| *place);
        Found {
            column: figure.column.into(),
            run: case.runs[at],
            told: case.runs[change.told.max(at)],
            before: change.before,
            after: change.after,
            score: change.score,
            grade,
            worse: (change.after > change.before) == figure.less_is_better,
            cause: cause(device, case, before, at),
        }
    };
    if points.len() > LEAST {
        let grade = |change: &Change| if change.confirmed { Grade::Confirmed } else { Grade::New };
        let changes = case.changes(metric);
        let large = changes.iter().filter(|change| change.ratio().abs() >= figure.least);
        return large.map(|change| turned(change, grade(change))).collect();
    }
    let ends = figure.interval.and_then(|(low, high)| Some((device.metric(low)?, device.metric(high)?)));
    let Some((low, high)) = ends else { return Vec::new() };
    let pairs = points.windows(2).filter_map(|pair| {
        let [(a, before), (b, after)] = *pair else { return None };
        let apart = case.value(low, b) > case.value(high, a) || case.value(high, b) < case.value(low, a);
        let change = Change { at: b, told: b, before, after, score: f64::NAN, confirmed: false };
        (apart && change.ratio().abs() > LEAST_APART).then(|| turned(&change, Grade::Apart))
    });
    pairs.collect()
}

/// The place of a change: where the kernel's text became another one up to two nights before or after, that is where it began.
/// Noise may have moved it.
fn with_code(case: &CaseHistory, points: &[(usize, f64)], at: usize) -> usize {
    let Some(place) = points.iter().position(|(known, _)| *known == at) else { return at };
    let other = |place: &usize| {
        let kernel = |place: usize| points.get(place).map_or(0, |(at, _)| case.kernels[*at]);
        let (before, here) = (place.checked_sub(1).map_or(0, kernel), kernel(*place));
        before != 0 && here != 0 && before != here
    };
    let near = [place, place.saturating_sub(1), place + 1, place.saturating_sub(2), place + 2];
    near.iter().find(|place| other(place)).and_then(|place| points.get(*place)).map_or(at, |(at, _)| *at)
}

fn counts(device: &Device, case: &CaseHistory, column: &str, costs: &[String]) -> Vec<Found> {
    let Some(metric) = device.metric(column) else { return Vec::new() };
    let points = case.points(metric);
    let turns = points.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| {
        let ((a, before), (b, after)) = (pair[0], pair[1]);
        Found {
            column: column.into(),
            run: case.runs[b],
            told: case.runs[b],
            before,
            after,
            score: f64::NAN,
            grade: Grade::Exact,
            worse: after > before && costs.iter().any(|cost| cost == column),
            cause: cause(device, case, a, b),
        }
    });
    turns.collect()
}

/// What differs between two runs of a case, by their places.
fn cause(device: &Device, case: &CaseHistory, before: usize, after: usize) -> Cause {
    let [a, b] = [before, after].map(|at| &device.runs[case.runs[at] as usize]);
    let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
    Cause {
        kernels: (case.kernels[before], case.kernels[after]),
        commits: (a.short_commit(), b.short_commit()),
        other_gpu: match (case.gpus[before], case.gpus[after]) {
            (0, _) | (_, 0) => differ(&a.gpus, &b.gpus),
            (before, after) => before != after,
        },
        other_driver: differ(&a.driver, &b.driver),
    }
}

impl Found {
    /// A time that changed under the same code. Figures of the host and the compiler are not the kernel's.
    pub(crate) fn is_machine(&self) -> bool {
        self.column == "median_ns" && self.cause.is_machine()
    }

    pub(crate) fn ratio(&self) -> f64 {
        self.after / self.before - 1.0
    }

    /// The change as people read it: a part of the level, or of a count both values.
    pub(crate) fn size(&self) -> String {
        if self.before == 0.0 {
            return format!("from 0 to {}", crate::plot::short(self.after));
        }
        crate::plot::percent(self.ratio())
    }

    /// The name of what changed.
    pub(crate) fn name(&self) -> String {
        figure::of(&self.column).map_or_else(|| figure::words(&self.column), |figure| figure.name.to_string())
    }

    /// A value as it is shown.
    pub(crate) fn text(&self, value: f64) -> String {
        figure::of(&self.column).map_or_else(|| format!("{value}"), |figure| figure.text(value))
    }
}
