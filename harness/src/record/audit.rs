//! Whether rows of derived tables say what the runs say that they tell of. A row
//! of a run that is not here, or whose record has holes, cannot be judged; nor can
//! a sum to which such a run may have added.
//!
//! Inputs: the rows of a table and the runs of its device, the oldest first.
//! Outputs: rows put right in place, and what was wrong with them.

use super::rebuild::Added;
use super::rows::{CaseRow, DurationRow, PerfRow, RowOfRun, TableRow, VerdictRow};
use crate::escape::short;
use std::collections::{BTreeMap, BTreeSet};

/// Runs that ended in an unknown order: of so many each order is tried.
const ORDERS: usize = 5;

/// What was found in a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    /// Rows that disagree with their runs, in words.
    pub(super) wrong: Vec<String>,
    pub(super) unjudged: usize,
    pub(super) added: usize,
}

impl Judged {
    /// Puts a row right, and tells the first cell that was wrong. `whose` names it.
    pub(super) fn correct<R: TableRow>(&mut self, whose: &str, row: &mut R, right: &R) {
        if row == right {
            return;
        }
        let cells = |row: &R| row.cells().unwrap_or_default();
        let (told, wanted) = (cells(row), cells(right));
        let differs = told.iter().zip(&wanted).zip(R::COLUMNS).find(|((cell, wanted), _)| cell != wanted);
        let what = differs.map_or(String::new(), |((cell, wanted), column)| {
            format!(": {column} is `{}`, by the record `{}`", short(cell), short(wanted))
        });
        self.wrong.push(format!("{whose}{what}"));
        row.clone_from(right);
    }
}

/// Runs by name, with their rows by case.
fn by_name(runs: &[Added]) -> BTreeMap<&str, (&Added, BTreeMap<&str, &CaseRow>)> {
    let cases = runs.iter().map(|run| run.rows.iter().map(|row| (row.case_id.as_str(), row)).collect());
    runs.iter().zip(cases).map(|(run, cases)| (run.run_id.as_str(), (run, cases))).collect()
}

/// Judges rows that begin with run, commit and case; `right` gives what a row
/// should be, or nothing where the run has none for the case.
pub(super) fn of_runs<R: RowOfRun>(
    table: &mut Vec<R>,
    runs: &[Added],
    right: impl Fn(&Added, &CaseRow, &R) -> Option<R>,
) -> Judged {
    let (known, mut judged) = (by_name(runs), Judged::default());
    table.retain_mut(|row| {
        let Some((run, cases)) = known.get(row.run_id()) else {
            judged.unjudged += 1;
            return true;
        };
        let whose = format!("{} of {}", row.case_id(), row.run_id());
        let right = cases.get(row.case_id()).and_then(|case| right(run, case, row));
        match right {
            Some(right) => judged.correct(&whose, row, &right),
            None if run.silent.contains(row.case_id()) => judged.unjudged += 1,
            None => {
                judged.wrong.push(format!("{whose}: that run has no such row"));
                return false;
            }
        }
        true
    });
    judged
}

pub(super) fn perf(table: &mut Vec<PerfRow>, runs: &[Added]) -> Judged {
    of_runs(table, runs, |run, row, _| PerfRow::new(&run.run_id, &run.commit, row))
}

/// What was before is told by the order in which runs ended, and rows are put in between later: it must be
/// something that the case came to at all.
pub(super) fn verdicts(table: &mut Vec<VerdictRow>, runs: &[Added]) -> Judged {
    let mut judged = of_runs(table, runs, |run, row, told: &VerdictRow| {
        Some(VerdictRow::new(&run.run_id, &run.commit, row, &told.before))
    });
    let here: BTreeSet<&str> = runs.iter().map(|run| run.run_id.as_str()).collect();
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let of_runs = runs.iter().flat_map(|run| &run.rows).map(|row| (&row.case_id, &row.outcome));
    for (case, outcome) in table.iter().map(|row| (&row.case_id, &row.outcome)).chain(of_runs) {
        known.entry(case.clone()).or_default().insert(outcome.clone());
    }
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for row in table.iter_mut() {
        let before = last.insert(row.case_id.clone(), row.outcome.clone());
        let strange = !row.before.is_empty() && !known[&row.case_id].contains(&row.before);
        // The first row of a case may rest on one that is not in this table.
        if let (true, true, Some(before)) = (strange, here.contains(row.run_id.as_str()), before) {
            let right = VerdictRow { before, ..row.clone() };
            let whose = format!("{} of {}", row.case_id, row.run_id);
            judged.correct(&whose, row, &right);
        }
    }
    judged
}

/// A row that knows of more runs than there are cannot be judged; one of fewer is replaced by what runs say.
pub(super) fn durations(table: &mut [DurationRow], runs: &[Added]) -> Judged {
    let mut of_case: BTreeMap<&str, Vec<(&Added, &CaseRow)>> = BTreeMap::new();
    for run in runs {
        run.rows.iter().for_each(|row| of_case.entry(&row.case_id).or_default().push((run, row)));
    }
    let mut judged = Judged::default();
    for row in table {
        let told = of_case.get(row.case_id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let (runs, dur_us, outcome) = fold(told.iter().map(|(_, row)| *row));
        let more = row.runs > runs;
        // A run that was cut short may have added to the table, or not.
        if told.is_empty() || more || told.iter().any(|(run, _)| run.ended.is_none()) {
            judged.unjudged += 1;
        } else if row.runs == runs && !possible(told, row.dur_us, &row.outcome) {
            let right = DurationRow { case_id: row.case_id.clone(), runs, dur_us, outcome: outcome.into() };
            judged.correct(&right.case_id, row, &right);
        }
    }
    judged
}

/// Runs, smoothed microseconds and last outcome of rows in the order of their ends.
pub(super) fn fold<'r>(rows: impl Iterator<Item = &'r CaseRow>) -> (u64, u64, &'r str) {
    rows.fold((0, 0, ""), |(runs, dur_us, _), row| {
        let (runs, dur_us) = row.counted(runs, dur_us);
        (runs, dur_us, &row.outcome)
    })
}

/// Whether the runs come to these cells in an order in which they may have ended.
fn possible(told: &[(&Added, &CaseRow)], dur_us: u64, outcome: &str) -> bool {
    let fits = |rows: &[&CaseRow]| {
        let (_, time, last) = fold(rows.iter().copied());
        time == dur_us && last == outcome
    };
    let begun: Vec<&CaseRow> = told.iter().map(|(_, row)| *row).collect();
    let mut ended = told.to_vec();
    ended.sort_by_key(|(run, _)| run.written);
    if fits(&begun) || fits(&ended.iter().map(|(_, row)| *row).collect::<Vec<_>>()) {
        return true;
    }
    // Times tell seconds: only where each run ended in a second before the next began is the order known.
    let clear = told.windows(2).all(|pair| pair[0].0.ended.as_ref().is_some_and(|ended| *ended < pair[1].0.when));
    match told.len() {
        _ if clear => false,
        0..=ORDERS => any_order(&mut begun.clone(), 0, &fits),
        _ => {
            let times = || begun.iter().map(|row| row.dur_ns / 1000);
            let within = |time: u64| times().min() <= Some(time) && Some(time) <= times().max();
            within(dur_us) && begun.iter().any(|row| row.outcome == outcome)
        }
    }
}

/// Whether any order of the rows from `at` on fits.
fn any_order(rows: &mut [&CaseRow], at: usize, fits: &dyn Fn(&[&CaseRow]) -> bool) -> bool {
    if at == rows.len() {
        return fits(rows);
    }
    (at..rows.len()).any(|other| {
        rows.swap(at, other);
        let found = any_order(rows, at + 1, fits);
        rows.swap(at, other);
        found
    })
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::rebuild::tests::{FIRST, SECOND, THIRD, added, row};
    use super::super::table::parse;
    use super::super::times;
    use super::*;
    use crate::outcome::Perf;
    use crate::scratch::Scratch;

    #[track_caller]
    fn check(judged: &Judged, wrong: &[&str], unjudged: usize) {
        assert_eq!(
            (&judged.wrong[..], judged.unjudged),
            (&wrong.iter().map(|w| w.to_string()).collect::<Vec<_>>()[..], unjudged)
        );
    }

    #[test]
    fn a_row_says_what_its_run_says() {
        let mut runs = [added(FIRST, &[("A.a", "pass")]), added(SECOND, &[("A.a", "fail.x")])];
        runs[1].silent.insert("A.s".into());
        let right: Vec<VerdictRow> =
            vec![row(&format!("{FIRST},c,A.a,pass,,pass")), row(&format!("{SECOND},c,A.a,fail,pass,fail.x"))];
        let mut table = right.clone();
        check(&verdicts(&mut table, &runs), &[], 0);
        for (at, column, text) in [(0, 1, "d"), (0, 5, "pasz"), (1, 3, "pass"), (1, 4, "pazz"), (1, 5, "fail.y")] {
            let mut table = right.clone();
            table[at] = with_cell(&table[at], column, text).expect("a row");
            assert_eq!(verdicts(&mut table, &runs).wrong.len(), 1, "{column}");
            assert_eq!(table, right, "{column}");
        }
        // A case that the run knows without a row, one that it does not know, and a run that is not here.
        let others = [
            format!("{SECOND},c,A.s,pass,,pass"),
            format!("{SECOND},c,A.b,pass,,pass"),
            format!("{THIRD},d,A.a,pass,zz,pass"),
        ];
        let mut table = [right.clone(), others.iter().map(|line| row(line)).collect()].concat();
        let wrong = format!("A.b of {SECOND}: that run has no such row");
        check(&verdicts(&mut table, &runs), &[&wrong], 2);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn a_sum_is_judged_where_all_its_runs_are_here() {
        let with = |run_id: &str, us: u64| {
            let mut run = added(run_id, &[("A.a", "pass")]);
            run.rows[0].dur_ns = us * 1000;
            run
        };
        let mut runs = [with(FIRST, 100), with(SECOND, 200)];
        let judge = |line: &str, runs: &[Added]| {
            let mut table = vec![row::<DurationRow>(line)];
            let judged = durations(&mut table, runs);
            let cells = table[0].cells().expect("writes");
            (judged.wrong.len(), judged.unjudged, cells.iter().collect::<Vec<_>>().join(","))
        };
        assert_eq!(judge("A.a,2,125,pass", &runs), (0, 0, "A.a,2,125,pass".into()));
        assert_eq!(judge("A.a,2,175,pass", &runs), (1, 0, "A.a,2,125,pass".into()));
        assert_eq!(judge("A.a,2,125,fail.x", &runs), (1, 0, "A.a,2,125,pass".into()));
        assert_eq!(judge("A.a,3,175,pass", &runs), (0, 1, "A.a,3,175,pass".into()));
        assert_eq!(judge("A.z,1,175,pass", &runs), (0, 1, "A.z,1,175,pass".into()));
        // Of fewer runs: what it lacks is put in by who calls.
        assert_eq!(judge("A.a,1,100,pass", &runs), (0, 0, "A.a,1,100,pass".into()));
        // Where they ran at the same time, any order may be the right one.
        runs[0].ended = Some(runs[1].when.clone());
        assert_eq!(judge("A.a,2,175,pass", &runs).0, 0);
        assert_eq!(judge("A.a,2,174,pass", &runs).0, 1);
        // One that was cut short may be in it or not.
        runs[0].ended = None;
        assert_eq!(judge("A.a,2,174,pass", &runs), (0, 1, "A.a,2,174,pass".into()));
    }

    /// The row with another cell; `None` if that is no row.
    fn with_cell<R: TableRow>(row: &R, column: usize, text: &str) -> Option<R> {
        let cells = row.cells().expect("writes");
        R::of(&cells.iter().enumerate().map(|(at, cell)| if at == column { text } else { cell }).collect())
    }

    /// Whether the table of a folder is right, and a changed letter of one of its rows wrong.
    fn check_table<R: TableRow + std::fmt::Debug>(
        u: &mut arbtest::arbitrary::Unstructured<'_>,
        root: &std::path::Path,
        name: &str,
        judge: impl Fn(&mut Vec<R>) -> Judged,
    ) -> arbtest::arbitrary::Result<()> {
        let bytes = std::fs::read(root.join("history/simulator").join(name)).unwrap_or_default();
        let (mut table, damaged) = parse::<R>(&bytes).expect("ours");
        assert_eq!(damaged, 0);
        let before = table.clone();
        let judged = judge(&mut table);
        assert_eq!((judged.wrong, &table), (Vec::new(), &before), "{name}");
        if table.is_empty() || judged.unjudged > 0 {
            return Ok(());
        }
        let at = u.choose_index(table.len())?;
        let column = u.choose_index(R::COLUMNS.len())?;
        // The name of the row itself, and a count of runs, lead to other rows.
        let skipped = ["run_id", "case_id", "runs", "before"].contains(&R::COLUMNS[column]);
        let mut cell = table[at].cells().expect("writes")[column].to_string();
        if skipped || cell.is_empty() {
            return Ok(());
        }
        let last = cell.pop();
        cell.push(if last == Some('7') { '8' } else { '7' });
        // What is no row any more is damage, and is found as such.
        if let Some(changed) = with_cell(&table[at], column, &cell) {
            table[at] = changed;
            assert_eq!(judge(&mut table).wrong.len(), 1, "{name} {}", R::COLUMNS[column]);
            assert_eq!(table, before, "{name}");
        }
        Ok(())
    }

    /// Whatever runs add, in whatever order, is right as long as nobody changes it,
    /// also when old runs are gone; any changed letter of a row of a run that is here is found.
    #[test]
    fn what_runs_add_is_right_and_a_changed_letter_is_wrong() {
        crate::property::property(|u| {
            let root = Scratch::new("audit");
            let history = History::of(&root, "simulator");
            let mut runs = Vec::new();
            for day in 1..=u.int_in_range(1..=4)? {
                let mut run = added(&format!("202601{day:02}T000000Z-aaaaaa"), &[]);
                for case in ["A.a", "A.b", "A.c"] {
                    let outcome = *u.choose(&["pass", "fail.x", "fail.y"])?;
                    if u.arbitrary()? {
                        continue;
                    }
                    let mut rows = added(FIRST, &[(case, outcome)]).rows;
                    rows[0].dur_ns = u.int_in_range(1000..=90_000_000)?;
                    let median_ns = Some(f64::from(u.int_in_range(1..=900_000u32)?) / 10.0);
                    rows[0].perf = u.arbitrary::<bool>()?.then(|| Perf { median_ns, ..Perf::default() });
                    run.rows.extend(rows);
                }
                history.add(&run.run_id, "c", &run.rows).expect("adds");
                history.add_times(&root.join("none"), &run.run_id, &run.rows).expect("adds");
                runs.push(run);
            }
            runs.drain(..u.int_in_range(0..=runs.len() - 1)?);
            check_table(u, &root, "verdicts.csv", |table| verdicts(table, &runs))?;
            check_table(u, &root, "perf.csv", |table| perf(table, &runs))?;
            check_table(u, &root, "durations.csv", |table| durations(table, &runs))?;
            check_table(u, &root, "times/2026-01.csv", |table| times::mend(table, "times/2026-01.csv", &runs))?;
            Ok(())
        })
        .cases(400);
    }
}
