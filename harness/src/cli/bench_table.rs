//! The measurements of a run as a table for people; the record and `perf.csv`
//! hold all of it.
//!
//! Inputs: the rows of the run, and the measurements of the bench before it on such a device. Output: a line for
//! each measured case: on a GPU times, speed, and whether the case's goal is met; on the simulator what costs, and how many
//! sectors were moved for each that had to be; and how it changed.

use crate::outcome::Perf;
use crate::record::{CaseRow, ResultsFolder, RunInfo};
use crate::report::{Column, table};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

const ON_GPU: [Column; 9] = [
    Column::new("case").shortens(),
    Column::new("median us").right(),
    Column::new("p10").right().spare(3),
    Column::new("p90").right().spare(3),
    Column::new("GB/s").right().spare(2),
    Column::new("share").right(),
    Column::new("goal"),
    Column::new("host us").right().spare(1),
    Column::new("change").right(),
];
const ON_SIM: [Column; 7] = [
    Column::new("case").shortens(),
    Column::new("instructions").right(),
    Column::new("sectors").right().spare(2),
    Column::new("of ideal").right(),
    Column::new("conflicts").right(),
    Column::new("barriers").right().spare(1),
    Column::new("change").right(),
];

/// What the bench before on such a device measured.
#[derive(Default)]
pub(super) struct Before {
    run: String,
    perf: BTreeMap<String, Perf>,
}

impl Before {
    /// Of the last finished bench on that device but this one. A run that cannot be read is none.
    pub(super) fn of(results: &Path, own: &str, device: &str) -> Self {
        let all = ResultsFolder::open(results).and_then(|folder| folder.list()).unwrap_or_default();
        let like = |run: &&RunInfo| {
            run.finished()
                && run.id != own
                && run.header.mode() == "bench"
                && run.header.device().as_deref() == Some(device)
        };
        let Some(info) = all.iter().rev().find(like) else { return Self::default() };
        let cases = info.load().map(|run| run.cases).unwrap_or_default();
        let measured = cases.into_iter().filter_map(|(id, case)| {
            let perf = case.attempts.iter().rev().find_map(|attempt| attempt.perf.as_ref())?;
            Some((id, Perf::deserialize(perf).ok()?))
        });
        Self { run: info.id.clone(), perf: measured.collect() }
    }
}

/// One line for each measured case, in the order of ids, for so many columns.
pub(super) fn text(rows: &[CaseRow], before: &Before, room: usize) -> String {
    let mut measured: Vec<(&str, &Perf)> =
        rows.iter().filter_map(|row| Some((row.case_id.as_str(), row.perf.as_ref()?))).collect();
    measured.sort_by_key(|(id, _)| *id);
    if measured.is_empty() {
        return "nothing was measured\n".into();
    }
    let on_gpu = measured.iter().any(|(_, perf)| perf.median_ns.is_some());
    let cells = measured.into_iter().map(|(id, perf)| {
        let change = change(before.perf.get(id), perf);
        if on_gpu { gpu_cells(id, perf, change) } else { sim_cells(id, perf, change) }
    });
    let cells: Vec<Vec<String>> = cells.collect();
    let mut text = table(if on_gpu { &ON_GPU } else { &ON_SIM }, &cells, room);
    match before.run.is_empty() {
        true => text.push_str("no earlier bench on this device tells what changed\n"),
        false => text.push_str(&format!("change: against {}, the bench before on this device\n", before.run)),
    }
    text
}

fn gpu_cells(id: &str, perf: &Perf, change: String) -> Vec<String> {
    let us = |ns: Option<f64>| show(ns.map(|ns| ns / 1e3), 2);
    let goal = perf.goal_met.map_or("-", |met| if met { "met" } else { "missed" });
    vec![
        id.into(),
        us(perf.median_ns),
        us(perf.p10_ns),
        us(perf.p90_ns),
        show(perf.gbps, 1),
        show(perf.share, 3),
        goal.into(),
        show(perf.host_us, 1),
        change,
    ]
}

fn sim_cells(id: &str, perf: &Perf, change: String) -> Vec<String> {
    let count = |name: &str| perf.counters.get(name).copied();
    let sum = |names: [&str; 2]| names.into_iter().filter_map(count).reduce(u64::saturating_add);
    let cell = |count: Option<u64>| count.map_or_else(|| "-".into(), |count: u64| count.to_string());
    let sectors = sum(["load_sectors", "store_sectors"]);
    let ideal = sum(["load_sectors_ideal", "store_sectors_ideal"]).filter(|ideal| *ideal > 0);
    let ratio = sectors.zip(ideal).map(|(sectors, ideal)| sectors as f64 / ideal as f64);
    vec![
        id.into(),
        cell(count("instructions")),
        cell(sectors),
        ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}x")),
        cell(count("bank_conflicts")),
        cell(sum(["block_barriers", "grid_barriers"])),
        change,
    ]
}

/// The change of the median, or of the instructions; where these are as they were, whether anything else is not.
fn change(before: Option<&Perf>, now: &Perf) -> String {
    let Some(before) = before else { return "new".into() };
    let figure = |perf: &Perf| perf.median_ns.or_else(|| perf.counters.get("instructions").map(|n| *n as f64));
    match (figure(before).filter(|old| *old > 0.0), figure(now)) {
        (Some(old), Some(new)) if old != new => format!("{:+.1} %", 100.0 * (new / old - 1.0)),
        _ if before.counters != now.counters => "other counters".into(),
        _ => "=".into(),
    }
}

fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;

    fn row(perf: Perf) -> CaseRow {
        CaseRow {
            case_id: "A.a".into(),
            verdict: Verdict::Pass,
            outcome: "pass".into(),
            dur_ns: 1,
            perf: Some(perf),
            phases: BTreeMap::new(),
            cached: false,
            held_to_digest: false,
            kernel_crc: None,
            code_digest: None,
            gpu: String::new(),
        }
    }

    fn counted(instructions: u64, conflicts: u64) -> Perf {
        let counters = [
            ("instructions", instructions),
            ("load_sectors", 300),
            ("load_sectors_ideal", 100),
            ("store_sectors", 100),
            ("store_sectors_ideal", 100),
            ("bank_conflicts", conflicts),
        ];
        Perf { counters: counters.map(|(name, n)| (name.to_string(), n)).into(), ..Perf::default() }
    }

    #[track_caller]
    fn check(before: Option<Perf>, now: Perf, wanted: &str) {
        let run = if before.is_some() { "r1" } else { "" };
        let before = Before { run: run.into(), perf: before.map(|perf| ("A.a".into(), perf)).into_iter().collect() };
        let text = text(&[row(now)], &before, usize::MAX);
        let cells: Vec<&str> = text.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(cells.join(" "), wanted, "{text}");
    }

    #[test]
    fn costs_stand_beside_what_had_to_be_and_what_was() {
        check(None, counted(1000, 7), "A.a 1000 400 2.00x 7 - new");
        check(Some(counted(800, 7)), counted(1000, 7), "A.a 1000 400 2.00x 7 - +25.0 %");
        check(Some(counted(1000, 9)), counted(1000, 7), "A.a 1000 400 2.00x 7 - other counters");
        check(Some(counted(1000, 7)), counted(1000, 7), "A.a 1000 400 2.00x 7 - =");
        let timed = |ns, goal_met| Perf { median_ns: Some(ns), share: Some(0.5), goal_met, ..Perf::default() };
        check(Some(timed(2000.0, None)), timed(1000.0, Some(false)), "A.a 1.00 - - - 0.500 missed - -50.0 %");
    }
}
