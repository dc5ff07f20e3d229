//! `bench` on a GPU against the history of such devices: which cases are slower than their noise allows, one by one and
//! all together; with `--baseline` by a second look (see `turns.rs`), also at what history says nothing of.
//!
//! Inputs: the history before the run, and the run's rows. Outputs: lines for people, a record, rows for `gate.csv`, and
//! whether the run ends with a regression.

use super::devices::Devices;
use super::run::options::RunOptions;
use super::turns::{Measurer, Taken};
use super::{Failure, runs};
use crate::escape::escape;
use crate::exit;
use crate::gate::{
    Blessing, InTurns, SecondLook, SecondVerdict, TimeFinding, TimeHistory, Timed, TimingGate, TimingRow,
};
use crate::proto::DeviceSpec;
use crate::record::{ALL, CaseRow, Found, FoundWord, History, RunStore, code as code_name, found_in_record};
use crate::report::{Column, table};
use crate::units::{counted, show_seconds};
use engine::diag::{Diagnostic, code};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Rows that are printed, and cases that were not measured.
const SHOWN: usize = 40;
const SHOWN_UNMEASURED: usize = 5;

const COLUMNS: [Column; 8] = [
    Column::new("  case").shortens(),
    Column::new("before us").right(),
    Column::new("now us").right(),
    Column::new("change").right(),
    Column::new("noise").right().spare(1),
    Column::new("p").right().spare(2),
    Column::new("in turns").right(),
    Column::new("found"),
];

/// What a bench on a GPU is held to, before anything is run.
pub(super) struct TimingCheck {
    history: TimeHistory,
    nvrtc: String,
    blessing: Option<Blessing>,
    kept: Option<PathBuf>,
    carried: Vec<CaseRow>,
}

/// What came of the times.
#[derive(Default)]
pub(super) struct TimingEnd {
    pub(super) text: String,
    pub(super) is_regression: bool,
    pub(super) record: Option<Value>,
    pub(super) found: Vec<Found>,
}

/// What a second look said, if there was one: of each case, and of all together.
#[derive(Default)]
struct Looked {
    cases: BTreeMap<String, SecondLook>,
    all: Option<SecondLook>,
    taken: Option<Taken>,
}

impl Looked {
    /// What the second look says of a case, where that decides: not where it was broken off.
    fn decides(&self, id: &str) -> Option<&SecondLook> {
        let broken =
            self.taken.as_ref().is_some_and(|taken| taken.failed.is_some() || taken.unmeasured.contains_key(id));
        self.cases.get(id).filter(|look| !(broken && look.verdict == SecondVerdict::Unknown))
    }
}

impl TimingCheck {
    /// Reads the history for a bench whose device has times; nothing for any other run.
    pub(super) fn of(
        options: &RunOptions,
        devices: &Devices,
        history: &History,
        nvrtc: Option<String>,
        blessing: Option<Blessing>,
        carried: Vec<CaseRow>,
    ) -> Result<Option<Self>, Failure> {
        let timed = devices.slots.first().is_some_and(|slot| {
            matches!(slot.device, DeviceSpec::Cuda { .. } | DeviceSpec::Played { times: Some(_), .. })
        });
        let kept = options.baseline.as_deref().map(program).transpose()?;
        if !options.measures() || !timed {
            return Ok(None);
        }
        Ok(Some(Self { history: history.times(), nvrtc: nvrtc.unwrap_or_default(), blessing, kept, carried }))
    }

    /// Judges the rows of the run. `looks` is whether there may be a second look: not where the run was stopped.
    pub(super) fn end(
        self,
        rows: &[CaseRow],
        options: &RunOptions,
        devices: &Devices,
        store: &RunStore,
        looks: bool,
    ) -> TimingEnd {
        let timed = self.carried.iter().chain(rows).filter_map(|row| {
            let digest = row.code_digest.map_or(String::new(), |digest| format!("{digest:032x}"));
            let crc = row.kernel_crc.map_or(String::new(), |crc| format!("{crc:08x}"));
            let ns = row.perf.as_ref()?.median_ns.filter(|ns| *ns > 0.0)?;
            Some((row.case_id.clone(), Timed { ns, code: code_name(&digest, &crc, &self.nvrtc) }))
        });
        let now: BTreeMap<String, Timed> = timed.collect();
        if now.is_empty() {
            return TimingEnd::default();
        }
        let mut gate = TimingGate::of(&self.history, &now);
        let to_look_at = gate.to_look_at();
        let looked = match &self.kept {
            Some(kept) if looks && !to_look_at.is_empty() => {
                let measurer = Measurer { kept, options, devices, work: &store.work_dir() };
                look(&gate, &to_look_at, &measurer)
            }
            _ => Looked::default(),
        };
        add_new(&mut gate, &now, &looked);
        let found = self.found(&gate, &looked);
        let is_regression = self.blessing.is_none() && found.iter().any(|found| found.finding == FoundWord::Slower);
        TimingEnd {
            text: self.text(&gate, &looked, is_regression),
            is_regression,
            record: Some(self.record(&gate, &looked, found_in_record(&store.id, store.commit(), &found))),
            found,
        }
    }

    /// The rows of `gate.csv`: what is slower, or accepted as such, and faster.
    fn found(&self, gate: &TimingGate, looked: &Looked) -> Vec<Found> {
        let reason = self.blessing.as_ref().map_or(String::new(), |blessing| blessing.reason.clone());
        let word = |slower: bool| match (&self.blessing, slower) {
            (Some(_), true) => FoundWord::Accepted,
            (None, true) => FoundWord::Slower,
            (_, false) => FoundWord::Faster,
        };
        let all = self.is_slower_together(gate, looked);
        let mut found = Vec::new();
        for row in &gate.rows {
            // Where all are accepted, each has its level anew.
            let slower = self.is_slower(row, looked) || all && self.blessing.is_some();
            let finding = match row.finding {
                _ if slower => word(true),
                TimeFinding::Faster => word(false),
                TimeFinding::Machine => FoundWord::SameCode,
                _ => continue,
            };
            let (ratio, p, by) = match looked.decides(&row.id) {
                Some(look) if slower => (look.ratio, look.p, "baseline"),
                Some(_) => (row.ratio(), row.p, "baseline"),
                None => (row.ratio(), row.p, "history"),
            };
            let reason = if slower { reason.clone() } else { String::new() };
            found.push(Found { case_id: row.id.clone(), finding, ratio, p, by, reason });
        }
        if let Some(together) = gate.together.filter(|_| all) {
            let by = if looked.all.is_some() { "baseline" } else { "history" };
            let (ratio, p) = (together.ratio, together.p);
            found.push(Found { case_id: ALL.into(), finding: word(true), ratio, p, by, reason });
        }
        found
    }

    /// Whether a case counts as slower: by the second look where there was one that was not broken off.
    fn is_slower(&self, row: &TimingRow, looked: &Looked) -> bool {
        match looked.decides(&row.id) {
            Some(look) => look.verdict == SecondVerdict::Confirmed,
            None => row.finding == TimeFinding::Slower,
        }
    }

    fn is_slower_together(&self, gate: &TimingGate, looked: &Looked) -> bool {
        let by_history = gate.together.is_some_and(|all| all.is_slower);
        by_history && looked.all.is_none_or(|look| look.verdict == SecondVerdict::Confirmed)
    }

    fn text(&self, gate: &TimingGate, looked: &Looked, is_regression: bool) -> String {
        let mut text = String::new();
        let is_told = |row: &&TimingRow| {
            self.is_slower(row, looked) || !matches!(row.finding, TimeFinding::Same | TimeFinding::Unknown)
        };
        let mut told: Vec<&TimingRow> = gate.rows.iter().filter(is_told).collect();
        told.sort_by(|a, b| {
            (a.finding, b.ratio()).partial_cmp(&(b.finding, a.ratio())).unwrap_or(std::cmp::Ordering::Equal)
        });
        if !told.is_empty() {
            let cells: Vec<Vec<String>> = told.iter().take(SHOWN).map(|row| self.cells(row, looked)).collect();
            text.push_str(&table(&COLUMNS, &cells, runs::columns()));
            if let Some(more) = told.len().checked_sub(SHOWN).filter(|more| *more > 0) {
                text.push_str(&format!("  and {}, which the record has\n", counted(more, "more row")));
            }
        }
        let count = |finding: TimeFinding| gate.rows.iter().filter(|row| row.finding == finding).count();
        let kinds = [
            (TimeFinding::Slower, "slower"),
            (TimeFinding::Suspect, "perhaps slower"),
            (TimeFinding::Faster, "faster"),
            (TimeFinding::Machine, "slower with the same code (the machine)"),
            (TimeFinding::Same, "as they were"),
            (TimeFinding::Unknown, "of which nobody can tell"),
        ];
        let counts = kinds.iter().map(|(finding, what)| (count(*finding), what)).filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let new = if gate.new.is_empty() { String::new() } else { format!("; {} without a history", gate.new.len()) };
        let all = counted(gate.rows.len(), "case");
        text.push_str(&format!("times of {all} against their history: {}{new}\n", or_none(&counts.join(", "))));
        text.push_str(&turns_text(looked));
        text.push_str(&self.together_text(gate, looked));
        match (&self.blessing, is_regression, &self.kept) {
            (Some(_), ..) => text.push_str("what is slower is accepted, with the reason\n"),
            (None, true, None) => text.push_str(
                "where that is meant: harness bench --bless --reason TEXT; to look again: --baseline FILE, a kept binary\n",
            ),
            (None, true, Some(_)) => text.push_str("where that is meant: harness bench --bless --reason TEXT\n"),
            _ => {}
        }
        text
    }

    fn together_text(&self, gate: &TimingGate, looked: &Looked) -> String {
        let Some(all) = gate.together else { return String::new() };
        let mut text = format!("all cases together: {} (p = {:.2e})", percent(all.ratio), all.p);
        if all.is_slower {
            let same = match all.same_code {
                0 => String::new(),
                same if same == all.cases => ", all with the same code: look at the machine first".into(),
                same => format!(", {same} of {} with the same code", all.cases),
            };
            text.push_str(&format!(": slower as a whole{same}"));
        }
        if let Some(look) = looked.all {
            text.push_str(&format!("; in turns {}: {}", in_turns(&look), word(look.verdict)));
        }
        text + "\n"
    }

    fn cells(&self, row: &TimingRow, looked: &Looked) -> Vec<String> {
        let us = |ns: f64| format!("{:.2}", ns / 1e3);
        let turns = looked.cases.get(&row.id).map_or_else(|| "-".into(), in_turns);
        let found = looked.decides(&row.id).map_or_else(|| finding_word(row.finding), |look| word(look.verdict));
        vec![
            format!("  {}", escape(&row.id, "")),
            us(row.before_ns),
            us(row.now_ns),
            percent(row.ratio()),
            row.noise.map_or_else(|| "-".into(), |noise| format!("{:.2} %", 100.0 * noise)),
            format!("{:.1e}", row.p),
            turns,
            found.into(),
        ]
    }

    /// For the log: all of it.
    fn record(&self, gate: &TimingGate, looked: &Looked, found: Value) -> Value {
        let row = |row: &TimingRow| {
            let turns = looked.cases.get(&row.id);
            json!({ "case_id": row.id, "found": finding_word(row.finding), "before_ns": row.before_ns, "runs": row.runs,
                "now_ns": row.now_ns, "p": row.p, "noise": row.noise, "in_turns": turns.map(|look| look.ratio),
                "half": turns.map(|look| look.half), "rounds": turns.map(|look| look.rounds),
                "p_in_turns": turns.map(|look| look.p), "second_look": turns.map(|look| word(look.verdict)) })
        };
        json!({
            "of": "times",
            "how": if self.blessing.is_some() { "accepted" } else { "judged" },
            "reason": self.blessing.as_ref().map(|blessing| &blessing.reason),
            "baseline": self.kept.as_ref().map(|path| path.display().to_string()),
            "rows": gate.rows.iter().map(row).collect::<Vec<_>>(),
            "together": gate.together.map(|all| json!({ "ratio": all.ratio, "p": all.p, "cases": all.cases,
                "same_code": all.same_code, "slower": all.is_slower, "second_look": looked.all.map(|look| word(look.verdict)) })),
            "turns": looked.taken.as_ref().map(|taken| json!({ "ms": taken.time.as_millis() as u64,
                "budget_ms": taken.budget.as_millis() as u64, "cut": taken.is_cut, "failed": taken.failed,
                "unmeasured": taken.unmeasured })),
            "new": gate.new,
            "found": found,
        })
    }
}

/// Measures cases again, and says of each and of all what came of it.
fn look(gate: &TimingGate, ids: &BTreeSet<String>, measurer: &Measurer<'_>) -> Looked {
    let whole = gate.together.is_some_and(|all| all.is_slower);
    let taken = measurer.take(InTurns::new(ids, whole));
    let whole = taken.turns.whole_look(true);
    let all =
        whole.filter(|look| look.rounds > 0 && (taken.failed.is_none() || look.verdict != SecondVerdict::Unknown));
    Looked { cases: taken.turns.look(true), all, taken: Some(taken) }
}

/// What was never measured before, and now was beside a kept binary, has what that takes as its time before.
fn add_new(gate: &mut TimingGate, now: &BTreeMap<String, Timed>, looked: &Looked) {
    let (known, new) = std::mem::take(&mut gate.new).into_iter().partition(|id| looked.cases.contains_key(id));
    gate.new = new;
    let known: Vec<String> = known;
    gate.rows.extend(known.into_iter().filter_map(|id| {
        let (look, timed) = (looked.cases.get(&id)?, now.get(&id)?);
        let finding = match look.verdict {
            SecondVerdict::Confirmed => TimeFinding::Slower,
            SecondVerdict::Refuted | SecondVerdict::SameCode => TimeFinding::Same,
            SecondVerdict::Unknown => TimeFinding::Unknown,
        };
        let runs = 0;
        let (before_ns, now_ns, same_code) = (look.kept_ns, timed.ns, look.verdict == SecondVerdict::SameCode);
        Some(TimingRow { id, finding, before_ns, runs, now_ns, p: look.p, noise: None, same_code })
    }));
    gate.rows.sort_by(|a, b| a.id.cmp(&b.id));
}

/// How the second look ended, by counts, and what it could not measure.
fn turns_text(looked: &Looked) -> String {
    let Some(taken) = &looked.taken else { return String::new() };
    let mut text = if looked.cases.is_empty() { String::new() } else { counts_text(looked, taken) };
    for (id, what) in taken.unmeasured.iter().take(SHOWN_UNMEASURED) {
        text.push_str(&format!("in turns no longer measured: {}: {}\n", escape(id, ""), escape(what, "")));
    }
    if let Some(more) = taken.unmeasured.len().checked_sub(SHOWN_UNMEASURED).filter(|more| *more > 0) {
        text.push_str(&format!("and {}, which the record has\n", counted(more, "more case")));
    }
    if let Some(why) = &taken.failed {
        text.push_str(&format!("in turns no further round could be measured: {why}\n"));
    }
    text
}

fn counts_text(looked: &Looked, taken: &Taken) -> String {
    let verdicts = [SecondVerdict::Confirmed, SecondVerdict::Refuted, SecondVerdict::SameCode, SecondVerdict::Unknown];
    let counts = verdicts.into_iter().filter_map(|verdict| {
        let count = looked.cases.values().filter(|look| look.verdict == verdict).count();
        (count > 0).then(|| format!("{count} {}", word(verdict)))
    });
    let counts: Vec<String> = counts.collect();
    let rounds = looked.cases.values().map(|look| look.rounds).max().unwrap_or(0);
    let (cases, rounds) = (counted(looked.cases.len(), "case"), counted(rounds, "round"));
    let [time, budget] = [taken.time, taken.budget].map(|time| show_seconds(time.as_nanos() as u64));
    let cut = if taken.is_cut { ", which were over (--budget)" } else { "" };
    let counts = counts.join(", ");
    format!("in turns with the kept binary: {cases} in up to {rounds} of A B B A: {counts}; {time} of {budget}{cut}\n")
}

fn finding_word(finding: TimeFinding) -> &'static str {
    match finding {
        TimeFinding::Slower => "slower",
        TimeFinding::Suspect => "perhaps slower",
        TimeFinding::Faster => "faster",
        TimeFinding::Same => "same",
        TimeFinding::Machine => "same code",
        TimeFinding::Unknown => "unknown",
    }
}

fn word(verdict: SecondVerdict) -> &'static str {
    match verdict {
        SecondVerdict::Confirmed => "confirmed",
        SecondVerdict::Refuted => "refuted",
        SecondVerdict::SameCode => "same code",
        SecondVerdict::Unknown => "cannot tell",
    }
}

fn in_turns(look: &SecondLook) -> String {
    format!("{} +-{:.1}", percent(look.ratio), 100.0 * look.half)
}

fn percent(ratio: f64) -> String {
    format!("{:+.1} %", 100.0 * (ratio - 1.0))
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none has one" } else { text }
}

/// A kept binary, which must be there.
fn program(path: &Path) -> Result<PathBuf, Failure> {
    let runs = std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if runs {
        return Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()));
    }
    let message = format!("`--baseline` {}: there is no program", crate::escape::path(path));
    let note = "keep a copy of the harness as it was built before the change, and name it";
    Err(Failure::diagnostic(exit::USAGE, &Diagnostic::user(code::USAGE, message).note(note)))
}
