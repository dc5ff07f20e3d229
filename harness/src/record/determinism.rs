//! `determinism.csv`: how alike the results of a case's runs are, as far as
//! `--twice` has seen it.
//!
//! The class of a case is the worst that was accepted: results that vary may by
//! chance be alike. Another kernel starts anew where it is better.

use super::history::History;
use super::layout::replace;
use crate::os::FileLock;
use crate::verdict::Determinism;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// What a run saw of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) case_id: String,
    pub(crate) class: Determinism,
    pub(crate) kernel_crc: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    case_id: String,
    class: Determinism,
    kernel_crc: String,
    /// Runs that saw it.
    runs: u64,
    /// The run that saw the class first.
    run_id: String,
}

impl History {
    /// The classes of cases; nothing if there are none or the file is damaged.
    pub(crate) fn determinism(&self) -> BTreeMap<String, Determinism> {
        self.determinism_rows().into_iter().map(|row| (row.case_id, row.class)).collect()
    }

    fn determinism_rows(&self) -> Vec<Row> {
        let Ok(mut reader) = csv::Reader::from_path(self.dir().join("determinism.csv")) else { return Vec::new() };
        reader.deserialize().filter_map(Result::ok).collect()
    }

    /// Takes in what a run has accepted.
    pub(crate) fn learn_determinism(&self, run_id: &str, seen: &[Seen]) -> io::Result<()> {
        if seen.is_empty() {
            return Ok(());
        }
        std::fs::create_dir_all(self.dir())?;
        let _lock = FileLock::acquire(self.lock())?;
        let mut rows: BTreeMap<String, Row> =
            self.determinism_rows().into_iter().map(|row| (row.case_id.clone(), row)).collect();
        for seen in seen {
            learn(&mut rows, run_id, seen);
        }
        let mut writer = csv::Writer::from_writer(Vec::new());
        rows.into_values().try_for_each(|row| writer.serialize(row))?;
        replace(&self.dir().join("determinism.csv"), &writer.into_inner().map_err(|error| error.into_error())?)
    }
}

fn learn(rows: &mut BTreeMap<String, Row>, run_id: &str, seen: &Seen) {
    let kernel_crc = seen.kernel_crc.map_or(String::new(), |crc| format!("{crc:08x}"));
    let fresh = || Row {
        case_id: seen.case_id.clone(),
        class: seen.class,
        kernel_crc: kernel_crc.clone(),
        runs: 0,
        run_id: run_id.into(),
    };
    let row = rows.entry(seen.case_id.clone()).or_insert_with(fresh);
    if row.kernel_crc != kernel_crc || seen.class > row.class {
        *row = fresh();
    }
    row.runs += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(class: Determinism, crc: u32) -> Seen {
        Seen { case_id: "A.a".into(), class, kernel_crc: Some(crc) }
    }

    #[track_caller]
    fn check(history: &[Seen], wanted: (Determinism, u64, &str)) {
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
        let root = std::env::temp_dir().join(format!("harness-determinism-{}", std::process::id()));
        let history = History::of(&root, "simulator");
        assert!(history.determinism().is_empty());
        history.learn_determinism("r1", &[seen(Determinism::Order, 1)]).expect("learns");
        history.learn_determinism("r2", &[]).expect("nothing to learn");
        assert_eq!(history.determinism(), BTreeMap::from([("A.a".to_string(), Determinism::Order)]));
        let text = std::fs::read_to_string(root.join("history/simulator/determinism.csv")).expect("reads");
        assert_eq!(text, "case_id,class,kernel_crc,runs,run_id\nA.a,order,00000001,1,r1\n");
        std::fs::remove_dir_all(&root).expect("removes");
    }
}
