//! `bench` on the simulator against the committed baseline of counters (`counters.csv` beside the cases): what cases
//! cost more than they did is a regression, until somebody accepts it with `--bless --reason TEXT`.
//!
//! Inputs: the cases that are meant and the rows of the run. Outputs: lines for people, a record, whether anything is
//! dearer, and under `--bless` the table. What is not selected is neither judged nor accepted.

use super::Failure;
use super::run::options::RunOptions;
use crate::case::Case;
use crate::escape::{self, short};
use crate::exit;
use crate::gate::{Baseline, BaselineRow, Blessing, Counted, CounterChange, CounterGate};
use crate::proto::DeviceSpec;
use crate::record::{CaseRow, Provenance, replace};
use crate::report::{Column, table};
use crate::units::counted;
use engine::diag::{Diagnostic, code};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "counters.csv";
/// Changes of one kind that are printed, and names.
const SHOWN: usize = 40;
const NAMED: usize = 3;
/// Characters of a commit.
const COMMIT: usize = 12;

const COLUMNS: [Column; 5] = [
    Column::new("  case").shortens(),
    Column::new("counter"),
    Column::new("baseline").right(),
    Column::new("now").right(),
    Column::new("ratio").right(),
];

/// The baseline and whom it is about, before anything is run.
pub(super) struct CountersCheck {
    path: PathBuf,
    /// Nothing where there is no table yet.
    baseline: Option<Baseline>,
    /// Checksums of the selected cases.
    selected: BTreeMap<String, String>,
    /// Rows of the baseline that name no case, where nothing narrowed the selection.
    gone: Vec<String>,
    blessing: Option<Blessing>,
    /// Rows of the run that this one goes on with.
    carried: Vec<CaseRow>,
}

/// What came of the counters.
#[derive(Default)]
pub(super) struct CountersEnd {
    pub(super) text: String,
    /// What the run ends with where nothing is worse: something is dearer, or the table cannot be written.
    pub(super) failed: Option<u8>,
    /// For the log.
    pub(super) record: Option<Value>,
}

impl CountersEnd {
    /// Where the table could not be written.
    pub(super) fn of(failure: Failure) -> Self {
        Self { text: format!("{}\n", failure.message), failed: Some(failure.exit), record: None }
    }
}

impl CountersCheck {
    /// Reads the baseline for a bench on simulated devices; nothing for any other run. `known` are all ids that there are.
    pub(super) fn of(
        options: &RunOptions,
        device: Option<&DeviceSpec>,
        known: &BTreeSet<String>,
        cases: &[Case],
        blessing: Option<Blessing>,
        carried: Vec<CaseRow>,
    ) -> Result<Option<Self>, Failure> {
        let dir = &options.cases.folders.cases;
        let simulated = matches!(device, Some(DeviceSpec::Sim { .. } | DeviceSpec::Played { .. }));
        // A single case file has nothing beside it that is meant.
        if !options.measures() || !simulated || dir.is_file() {
            return Ok(None);
        }
        let path = dir.join(FILE);
        let baseline = read(&path, blessing.is_some())?;
        let narrowed = options.cases.wanted.narrowed() || options.cases.wanted.shard.is_some();
        let rows = baseline.iter().flat_map(|table| table.0.keys());
        let gone = rows.filter(|id| !narrowed && !known.contains(*id)).cloned().collect();
        let selected = cases.iter().map(|case| (case.id.clone(), case_crc(case))).collect();
        Ok(Some(Self { path, baseline, selected, gone, blessing, carried }))
    }

    /// Judges the rows of the run, or accepts them.
    pub(super) fn end(self, rows: &[CaseRow]) -> Result<CountersEnd, Failure> {
        let now = self.counted(rows);
        let Some(baseline) = &self.baseline else {
            return match &self.blessing {
                Some(_) => self.accept(&Baseline::default(), &now),
                None => Ok(self.without(&now)),
            };
        };
        if self.blessing.is_some() {
            return self.accept(baseline, &now);
        }
        let found = CounterGate::of(baseline, &now, self.gone.clone());
        let missing = self.selected.keys().filter(|id| baseline.0.contains_key(*id) && !now.contains_key(*id));
        let missing: Vec<&str> = missing.map(String::as_str).collect();
        let mut text = self.text(&found);
        text.push_str(&named(&missing, "not counted in this run, so not judged"));
        let failed = found.is_regression().then_some(exit::REGRESSED);
        Ok(CountersEnd { text, failed, record: Some(self.record(&found, "judged")) })
    }

    /// What cases cost now. The last row of a case counts.
    fn counted(&self, rows: &[CaseRow]) -> Counted {
        let all = self.carried.iter().chain(rows);
        let measured = all.filter_map(|row| {
            let counters = &row.perf.as_ref()?.counters;
            let case_crc = self.selected.get(&row.case_id)?.clone();
            let kernel_crc = row.kernel_crc.map_or(String::new(), |crc| format!("{crc:08x}"));
            let cost = BaselineRow { case_crc, kernel_crc, counters: counters.clone(), ..BaselineRow::default() };
            (!counters.is_empty()).then(|| (row.case_id.clone(), cost))
        });
        measured.collect()
    }

    fn without(&self, now: &Counted) -> CountersEnd {
        let text = match now.is_empty() {
            true => String::new(),
            false => format!(
                "no {} holds the counters: `harness bench --bless --reason TEXT` writes it\n",
                escape::path(&self.path)
            ),
        };
        CountersEnd { text, ..CountersEnd::default() }
    }

    /// Writes what cases cost now.
    fn accept(&self, baseline: &Baseline, now: &Counted) -> Result<CountersEnd, Failure> {
        let Some(blessing) = &self.blessing else { return Ok(CountersEnd::default()) };
        let found = CounterGate::of(baseline, now, self.gone.clone());
        let mut table = baseline.clone();
        let rewritten = now.iter().filter(|(id, row)| table.accept(id, row, blessing)).count();
        table.0.retain(|id, _| !self.gone.contains(id));
        let text =
            table.text().and_then(|text| replace(&self.path, text.as_bytes()).map_err(|error| error.to_string()));
        text.map_err(|why| Failure::new(exit::BAD_CASES, format!("cannot write {}: {why}", self.path.display())))?;
        let mut text = self.text(&found);
        let (path, gone) = (escape::path(&self.path), self.gone.len());
        text.push_str(&format!("{path}: {} rewritten, {gone} taken out\n", counted(rewritten, "row")));
        Ok(CountersEnd { text, failed: None, record: Some(self.record(&found, "accepted")) })
    }

    /// For people: what is a regression first, then what else is to be known.
    fn text(&self, found: &CounterGate) -> String {
        let mut text = String::new();
        let room = super::runs::columns();
        let kinds = [
            (&found.dearer, "dearer"),
            (&found.cheaper, "cheaper"),
            (&found.other, "with other counters, which are no costs"),
        ];
        for (changes, title) in kinds.into_iter().filter(|(changes, _)| !changes.is_empty()) {
            text.push_str(&format!("{} {title}:\n", counted(CounterGate::cases(changes), "case")));
            text.push_str(&table(&COLUMNS, &changes.iter().take(SHOWN).map(cells).collect::<Vec<_>>(), room));
            if let Some(more) = changes.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                text.push_str(&format!("  and {}, which the record has\n", counted(more, "more row")));
            }
        }
        for (ids, what) in [(&found.other_case, "the text of the case"), (&found.other_kernel, "the kernel")] {
            if !ids.is_empty() {
                text.push_str(&format!("of those, in {} {what} is another too\n", counted(ids.len(), "case")));
            }
        }
        text.push_str(&named(&found.same_cost, "with another kernel at the same cost"));
        text.push_str(&named(&found.new, "without a baseline"));
        text.push_str(&named(&found.gone, "in the baseline, and no case any more"));
        let judged = found.counted - found.new.len();
        let path = escape::path(&self.path);
        let changed: BTreeSet<&str> =
            found.dearer.iter().chain(&found.cheaper).chain(&found.other).map(|change| change.id.as_str()).collect();
        let same = judged - changed.len();
        text.push_str(&format!("counters of {} against {path}: {same} as they were", counted(judged, "case")));
        if changed.is_empty() {
            text.push('\n');
        } else {
            let dearer = CounterGate::cases(&found.dearer);
            text.push_str(&format!(", {} other, {dearer} dearer\n", changed.len()));
        }
        if self.blessing.is_none() && (!changed.is_empty() || found.new.len() + found.gone.len() > 0) {
            let gain = if found.cheaper.is_empty() { "" } else { ", and to hold what was gained" };
            text.push_str(&format!("where that is meant{gain}: harness bench --bless --reason TEXT\n"));
        }
        text
    }

    /// For the log: all of it.
    fn record(&self, found: &CounterGate, how: &str) -> Value {
        let list = |changes: &[CounterChange]| -> Value {
            let row = |change: &CounterChange| json!({ "case_id": change.id, "counter": change.counter, "before": change.before, "after": change.after });
            changes.iter().map(row).collect()
        };
        json!({
            "of": "counters",
            "how": how,
            "baseline": self.path.display().to_string(),
            "reason": self.blessing.as_ref().map(|blessing| &blessing.reason),
            "counted": found.counted,
            "dearer": list(&found.dearer),
            "cheaper": list(&found.cheaper),
            "other": list(&found.other),
            "other_case": found.other_case,
            "other_kernel": found.other_kernel,
            "same_cost": found.same_cost,
            "new": found.new,
            "gone": found.gone,
        })
    }
}

fn cells(change: &CounterChange) -> Vec<String> {
    let CounterChange { id, counter, before, after } = change;
    let ratio = change.ratio().map_or_else(|| "from 0".into(), |ratio| format!("{ratio:.3}"));
    let shown = |text: &str| escape::escape(text, "").into_owned();
    vec![format!("  {}", shown(id)), shown(counter), before.to_string(), after.to_string(), ratio]
}

/// `3 cases WHAT: A.a, A.b, ...`; nothing of none.
fn named(ids: &[impl AsRef<str>], what: &str) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let some: Vec<_> = ids.iter().take(NAMED).map(|id| short(id.as_ref())).collect();
    let more = if ids.len() > NAMED { ", ..." } else { "" };
    format!("{} {what}: {}{more}\n", counted(ids.len(), "case"), some.join(", "))
}

/// Tells whether a case asks for something else than it did: its fusion or its arguments.
fn case_crc(case: &Case) -> String {
    let inputs = serde_json::to_string(&case.inputs).unwrap_or_default();
    format!("{:08x}", crc32fast::hash(format!("{}\n{inputs}", case.text.trim_end()).as_bytes()))
}

fn misused(message: &str) -> Failure {
    let note = "the reason is kept beside the counters; `run --bless` rewrites expectations in case files alone";
    Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message).note(note))
}

/// Who accepts what a bench measures, under `--bless`, which has to say why.
pub(super) fn blessing(
    options: &RunOptions,
    device: Option<&DeviceSpec>,
    provenance: &Provenance,
) -> Result<Option<Blessing>, Failure> {
    if options.reason.is_some() && !options.bless {
        return Err(misused("`--reason` says why `--bless` accepts what is measured, and stands beside it"));
    }
    if !options.bless || !options.measures() || matches!(device, Some(DeviceSpec::Reference)) {
        return Ok(None);
    }
    let Some(reason) = options.reason.clone() else {
        return Err(misused("`bench --bless` accepts what the cases cost, and needs --reason TEXT"));
    };
    let commit: String = provenance.git_sha.as_deref().unwrap_or_default().chars().take(COMMIT).collect();
    let changes = if provenance.git_dirty == Some(true) { "+" } else { "" };
    Ok(Some(Blessing { commit: format!("{commit}{changes}"), reason }))
}

/// The table; nothing where there is none. One that is to be written anew may hold the marks of a conflict.
fn read(path: &Path, anew: bool) -> Result<Option<Baseline>, Failure> {
    let parsed = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error.to_string()),
        Ok(bytes) => {
            String::from_utf8(bytes).map_err(|error| error.to_string()).and_then(|text| Baseline::parse(&text))
        }
    };
    match parsed {
        Ok(table) => Ok(Some(table)),
        Err(why) => {
            let message = format!("{}: {why}", escape::path(path));
            let note = match anew {
                true => "mend the line by hand, or take the file away to write all of it",
                false => {
                    "mend the line by hand; after a merge take either side's and `harness bench --bless --reason TEXT`"
                }
            };
            Err(Failure::diagnostic(exit::BAD_CASES, &Diagnostic::user(code::CASE_PATH, message).note(note)))
        }
    }
}
