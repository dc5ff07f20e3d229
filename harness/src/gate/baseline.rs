//! The committed baseline: a line for each case, in the order of ids, with its counters and why they are what
//! they are.
//!
//! Inputs: the text of the table, and counters to accept with a reason. Outputs: rows by case id, and the text
//! again. A line stands for itself, so two changes of other cases merge, and a conflict is mended by hand: take either
//! line, and measure again. Lines are unique, and no column has a name twice.

use std::collections::{BTreeMap, BTreeSet};

/// What is known of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BaselineRow {
    /// Checksums of the case's own text, with its inputs, and of its kernel's text, in hex.
    pub(crate) case_crc: String,
    pub(crate) kernel_crc: String,
    pub(crate) counters: BTreeMap<String, u64>,
    /// The commit on which they were accepted, with a plus where there were local changes, and why.
    pub(crate) commit: String,
    pub(crate) reason: String,
}

/// Rows by case id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Baseline(pub(crate) BTreeMap<String, BaselineRow>);

/// Who accepts counters, and why.
#[derive(Clone, Debug)]
pub(crate) struct Blessing {
    pub(crate) commit: String,
    pub(crate) reason: String,
}

/// Columns in front of the counters and behind them.
const FRONT: [&str; 3] = ["case_id", "case_crc", "kernel_crc"];
const BACK: [&str; 2] = ["commit", "reason"];

impl Baseline {
    /// Reads the text of a table.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let columns = reader.headers().map_err(|error| format!("line 1: {error}"))?.clone();
        let columns: Vec<&str> = columns.iter().collect();
        let inner = columns.strip_prefix(&FRONT).and_then(|rest| rest.strip_suffix(&BACK));
        let Some(names) = inner.filter(|names| names.iter().collect::<BTreeSet<_>>().len() == names.len()) else {
            let wanted = [&FRONT[..], &["counters, each once"], &BACK].concat().join(", ");
            return Err(format!("line 1: the columns are {}, not {wanted}", columns.join(", ")));
        };
        let mut rows = BTreeMap::new();
        for (i, record) in reader.records().enumerate() {
            let at = |why: String| format!("line {}: {why}", i + 2);
            let record = record.map_err(|error| at(error.to_string()))?;
            let cell = |index: usize| record.get(index).unwrap_or_default().to_string();
            let mut counters = BTreeMap::new();
            for (j, name) in names.iter().enumerate() {
                let text = cell(FRONT.len() + j);
                if !text.is_empty() {
                    let count = text.parse().map_err(|_| at(format!("{name} is `{text}`, which is no count")))?;
                    counters.insert((*name).to_string(), count);
                }
            }
            let behind = FRONT.len() + names.len();
            let (commit, reason) = (cell(behind), cell(behind + 1));
            let row = BaselineRow { case_crc: cell(1), kernel_crc: cell(2), counters, commit, reason };
            if cell(0).is_empty() {
                return Err(at("a row without a case".into()));
            }
            if rows.insert(cell(0), row).is_some() {
                return Err(at(format!("`{}` stands there twice", cell(0))));
            }
        }
        Ok(Self(rows))
    }

    /// The table as text; [`Baseline::parse`] reads it back.
    pub(crate) fn text(&self) -> Result<String, String> {
        let names: BTreeSet<&str> = self.0.values().flat_map(|row| row.counters.keys().map(String::as_str)).collect();
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut put = |cells: Vec<&str>| writer.write_record(cells).map_err(|error| error.to_string());
        put(FRONT.into_iter().chain(names.iter().copied()).chain(BACK).collect())?;
        for (id, row) in &self.0 {
            let count = |name: &&str| row.counters.get(*name).map_or(String::new(), u64::to_string);
            let counts: Vec<String> = names.iter().map(count).collect();
            let front = [id.as_str(), &row.case_crc, &row.kernel_crc].into_iter();
            put(front.chain(counts.iter().map(String::as_str)).chain([row.commit.as_str(), &row.reason]).collect())?;
        }
        let bytes = writer.into_inner().map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|error| error.to_string())
    }

    /// Accepts what a case costs now. The reason is that of its counters: a row whose texts alone are others keeps
    /// it. Whether anything became another.
    pub(crate) fn accept(&mut self, id: &str, now: &BaselineRow, blessing: &Blessing) -> bool {
        let old = self.0.get(id);
        let kept = old.filter(|old| old.counters == now.counters);
        let (commit, reason) = match kept {
            Some(old) => (old.commit.clone(), old.reason.clone()),
            None => (blessing.commit.clone(), blessing.reason.clone()),
        };
        let row = BaselineRow { commit, reason, ..now.clone() };
        let changed = old != Some(&row);
        self.0.insert(id.into(), row);
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instructions: u64, reason: &str) -> BaselineRow {
        let counters = [("instructions", instructions), ("load_sectors", 7)].map(|(name, n)| (name.into(), n)).into();
        let (case_crc, kernel_crc) = ("01".into(), "02".into());
        BaselineRow { case_crc, kernel_crc, counters, commit: "abc+".into(), reason: reason.into() }
    }

    #[test]
    fn a_table_reads_as_it_is_written() {
        let other = BaselineRow { counters: [("blocks".to_string(), 1)].into(), ..row(1, "=1, \"so\"") };
        let table = Baseline([("B.b/m=1,n=2".to_string(), row(9, "why")), ("A.a".to_string(), other)].into());
        let text = table.text().expect("writes");
        assert!(text.starts_with("case_id,case_crc,kernel_crc,blocks,instructions,load_sectors,commit,reason\nA.a,"));
        assert_eq!(Baseline::parse(&text), Ok(table));
        let empty = Baseline::default().text().expect("writes");
        assert_eq!(Baseline::parse(&empty), Ok(Baseline::default()));
    }

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let why = Baseline::parse(text).expect_err("refused");
        assert!(why.contains(part), "{why}");
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_its_line() {
        check_refused("", "line 1: the columns are");
        check_refused("<<<<<<< ours\n", "line 1: the columns are");
        check_refused("case_id,case_crc,kernel_crc,a,a,commit,reason\n", "each once");
        let head = "case_id,case_crc,kernel_crc,instructions,commit,reason\n";
        check_refused(&format!("{head}A.a,1,2,3,c,r\nA.a,1,2,3,c,r\n"), "line 3: `A.a` stands there twice");
        check_refused(&format!("{head}A.a,1,2,-3,c,r\n"), "line 2: instructions is `-3`");
        check_refused(&format!("{head},1,2,3,c,r\n"), "line 2: a row without a case");
        check_refused(&format!("{head}A.a,1,2\n"), "line 2: ");
    }

    #[test]
    fn a_reason_stays_with_the_counters_that_it_is_about() {
        let blessing = Blessing { commit: "def".into(), reason: "later".into() };
        let mut table = Baseline([("A.a".to_string(), row(9, "first"))].into());
        assert!(!table.accept("A.a", &row(9, ""), &blessing));
        let other_kernel = BaselineRow { kernel_crc: "03".into(), ..row(9, "") };
        assert!(table.accept("A.a", &other_kernel, &blessing));
        assert_eq!((table.0["A.a"].reason.as_str(), table.0["A.a"].kernel_crc.as_str()), ("first", "03"));
        assert!(table.accept("A.a", &row(8, ""), &blessing));
        assert_eq!((table.0["A.a"].reason.as_str(), table.0["A.a"].commit.as_str()), ("later", "def"));
    }
}
