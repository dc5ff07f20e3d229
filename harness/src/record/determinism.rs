//! `determinism.csv`: how alike the results of a case's runs are, as far as
//! `--twice` has seen it.
//!
//! The class of a case is the worst that was accepted: results that vary may by
//! chance be alike. Another kernel starts anew where it is better.

use super::audit::Judged;
use super::history::History;
use super::rebuild::Added;
use super::recorded::Recorded;
use super::rows::{TableRow, named, text};
use super::table::{Notes, Table};
use crate::outcome::Determinism;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// What a run saw of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenClass {
    pub(crate) case_id: String,
    pub(crate) class: Determinism,
    pub(crate) kernel_crc: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClassRow {
    #[serde(deserialize_with = "named")]
    case_id: String,
    class: Determinism,
    #[serde(deserialize_with = "text")]
    kernel_crc: String,
    /// Runs that saw it.
    runs: u64,
    /// The run that saw the class first.
    #[serde(deserialize_with = "named")]
    run_id: String,
}

impl TableRow for ClassRow {
    const COLUMNS: &'static [&'static str] = &["case_id", "class", "kernel_crc", "runs", "run_id"];
}

impl History {
    /// The classes of cases, as far as they can be read.
    pub(crate) fn determinism(&self) -> BTreeMap<String, Determinism> {
        self.determinism_rows().into_iter().map(|row| (row.case_id, row.class)).collect()
    }

    fn determinism_rows(&self) -> Vec<ClassRow> {
        self.table("determinism.csv").map_or_else(|_| Vec::new(), |table| table.rows)
    }

    /// Takes in what a run has accepted. Whoever calls holds the lock.
    pub(super) fn learn_determinism(&self, run_id: &str, seen: &[SeenClass]) -> io::Result<Notes> {
        if seen.is_empty() {
            return Ok(Notes::new());
        }
        std::fs::create_dir_all(self.dir())?;
        let mut table: Table<ClassRow> = self.table("determinism.csv")?;
        let old = std::mem::take(&mut table.rows).into_iter();
        let mut rows: BTreeMap<String, ClassRow> = old.map(|row| (row.case_id.clone(), row)).collect();
        for seen in seen {
            learn(&mut rows, run_id, seen);
        }
        table.write(rows.into_values())
    }
}

/// What a recorded run saw and accepted.
pub(super) fn seen(run: &Recorded) -> Vec<SeenClass> {
    let attempts = run
        .cases
        .values()
        .flat_map(|case| &case.attempts)
        .filter(|attempt| attempt.verdict == "pass" && attempt.carried_from.is_none());
    let seen = attempts.filter_map(|attempt| {
        Some(SeenClass {
            case_id: attempt.case_id.clone(),
            class: Determinism::deserialize(&attempt.variation.as_ref()?["class"]).ok()?,
            kernel_crc: attempt.kernel_crc.as_deref().and_then(|hex| u32::from_str_radix(hex, 16).ok()),
        })
    });
    seen.collect()
}

/// Judges rows whose class was first seen by a run that is here, and puts in the
/// cases that are lacking. How many runs saw it is not judged: the count begins
/// anew with each kernel.
pub(super) fn mend(table: &mut Vec<ClassRow>, runs: &[Added]) -> Judged {
    let mut derived = BTreeMap::new();
    for run in runs {
        run.seen.iter().for_each(|seen| learn(&mut derived, &run.run_id, seen));
    }
    let mut judged = Judged::default();
    table.retain_mut(|row| {
        let Some(run) = runs.iter().find(|run| run.run_id == row.run_id) else {
            judged.unjudged += 1;
            return true;
        };
        let is = |seen: &&SeenClass| {
            let fresh = ClassRow::fresh(&run.run_id, seen);
            (&fresh.case_id, fresh.class, &fresh.kernel_crc) == (&row.case_id, row.class, &row.kernel_crc)
        };
        if run.seen.iter().any(|seen| is(&seen)) {
            return true;
        }
        let whose = format!("{} of {}", row.case_id, row.run_id);
        let right = derived.get(&row.case_id);
        match right {
            Some(right) => judged.correct(&whose, row, right),
            None => judged.wrong.push(format!("{whose}: that run has no such row")),
        }
        right.is_some()
    });
    let told: BTreeSet<String> = table.iter().map(|row| row.case_id.clone()).collect();
    let lacking: Vec<ClassRow> = derived.into_values().filter(|row| !told.contains(&row.case_id)).collect();
    judged.added = lacking.len();
    table.extend(lacking);
    table.sort_by(|a, b| (&a.case_id, a.class.name(), &a.kernel_crc).cmp(&(&b.case_id, b.class.name(), &b.kernel_crc)));
    judged
}

impl ClassRow {
    /// What a run that is the first to see it makes of it.
    fn fresh(run_id: &str, seen: &SeenClass) -> Self {
        let kernel_crc = seen.kernel_crc.map_or(String::new(), |crc| format!("{crc:08x}"));
        Self { case_id: seen.case_id.clone(), class: seen.class, kernel_crc, runs: 0, run_id: run_id.into() }
    }
}

fn learn(rows: &mut BTreeMap<String, ClassRow>, run_id: &str, seen: &SeenClass) {
    let fresh = ClassRow::fresh(run_id, seen);
    let row = rows.entry(seen.case_id.clone()).or_insert_with(|| fresh.clone());
    if row.kernel_crc != fresh.kernel_crc || seen.class > row.class {
        *row = fresh;
    }
    row.runs = row.runs.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn seen(class: Determinism, crc: u32) -> SeenClass {
        SeenClass { case_id: "A.a".into(), class, kernel_crc: Some(crc) }
    }

    #[track_caller]
    fn check(history: &[SeenClass], wanted: (Determinism, u64, &str)) {
        let mut rows = BTreeMap::new();
        for (number, seen) in history.iter().enumerate() {
            learn(&mut rows, &format!("r{number}"), seen);
        }
        let row = &rows["A.a"];
        assert_eq!((row.class, row.runs, row.run_id.as_str()), wanted);
    }

    #[test]
    fn the_worst_class_of_a_kernel_stays() {
        use Determinism::{Bitwise, Tolerance};
        check(&[seen(Bitwise, 1), seen(Bitwise, 1)], (Bitwise, 2, "r0"));
        check(&[seen(Tolerance, 1), seen(Bitwise, 1)], (Tolerance, 2, "r0"));
        check(&[seen(Bitwise, 1), seen(Tolerance, 1)], (Tolerance, 1, "r1"));
        check(&[seen(Tolerance, 1), seen(Bitwise, 2)], (Bitwise, 1, "r1"));
    }

    #[test]
    fn classes_are_kept_in_a_file() {
        let root = Scratch::new("determinism");
        let history = History::of(&root, "simulator");
        assert!(history.determinism().is_empty());
        history.learn_determinism("r1", &[seen(Determinism::Order, 1)]).expect("learns");
        history.learn_determinism("r2", &[]).expect("nothing to learn");
        assert_eq!(history.determinism(), BTreeMap::from([("A.a".to_string(), Determinism::Order)]));
        let path = root.join("history/simulator/determinism.csv");
        let text = std::fs::read_to_string(&path).expect("reads");
        assert_eq!(text, "case_id,class,kernel_crc,runs,run_id\nA.a,order,00000001,1,r1\n");
        // A letter that was changed costs no class: one that is lost would let results vary more.
        std::fs::write(&path, text.replace("kernel_crc", "kernel_crb")).expect("writes");
        assert_eq!(history.determinism().len(), 1);
        let other = SeenClass { case_id: "A.b".into(), ..seen(Determinism::Bitwise, 1) };
        assert_eq!(history.learn_determinism("r3", &[other]).expect("learns").len(), 1);
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), text + "A.b,bitwise,00000001,1,r3\n");
    }
}
