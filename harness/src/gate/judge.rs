//! The counters of a run against the baseline.

use super::baseline::{Baseline, BaselineRow};
use super::counter::{CounterChange, CounterChanges};
use std::collections::{BTreeMap, BTreeSet};

/// What cases cost now, by id. Their rows have no reason.
pub(crate) type Counted = BTreeMap<String, BaselineRow>;

/// What became of the counters of a run's cases. A case is in one of the lists of ids at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterGate {
    /// Cases that were counted.
    pub(crate) counted: usize,
    /// Counters of cost that rose: a regression.
    pub(crate) dearer: CounterChanges,
    pub(crate) cheaper: CounterChanges,
    /// Counters that say how large the work is.
    pub(crate) other: CounterChanges,
    /// Cases with a change whose own text, or whose kernel's, is another than that of the baseline.
    pub(crate) other_case: BTreeSet<String>,
    pub(crate) other_kernel: BTreeSet<String>,
    /// Cases with another kernel that costs the same.
    pub(crate) same_cost: Vec<String>,
    /// Cases without a baseline, and rows of the baseline without a case.
    pub(crate) new: Vec<String>,
    pub(crate) gone: Vec<String>,
}

impl CounterGate {
    /// Judges what was counted. `gone` are the rows of the baseline that name no case.
    pub(crate) fn of(baseline: &Baseline, now: &Counted, gone: Vec<String>) -> Self {
        let mut found = Self { counted: now.len(), gone, ..Self::default() };
        for (id, row) in now {
            let Some(old) = baseline.0.get(id) else {
                found.new.push(id.clone());
                continue;
            };
            let changes: CounterChanges = CounterChange::between(id, &old.counters, &row.counters).collect();
            let other_kernel = old.kernel_crc != row.kernel_crc;
            if changes.is_empty() {
                found.same_cost.extend(other_kernel.then(|| id.clone()));
                continue;
            }
            found.other_kernel.extend(other_kernel.then(|| id.clone()));
            found.other_case.extend((old.case_crc != row.case_crc).then(|| id.clone()));
            for change in changes {
                let list = match () {
                    () if change.is_dearer() => &mut found.dearer,
                    () if change.is_cheaper() => &mut found.cheaper,
                    () => &mut found.other,
                };
                list.push(change);
            }
        }
        // What rose most is read first.
        let rise = |change: &CounterChange| change.ratio().unwrap_or(f64::INFINITY);
        found.dearer.sort_by(|a, b| rise(b).total_cmp(&rise(a)));
        found
    }

    /// Whether a case costs more than its baseline.
    pub(crate) fn is_regression(&self) -> bool {
        !self.dearer.is_empty()
    }

    /// How many cases are in the changes of a list.
    pub(crate) fn cases(changes: &[CounterChange]) -> usize {
        changes.iter().map(|change| change.id.as_str()).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 4] = ["instructions", "load_sectors", "bank_conflicts", "lane_operations"];

    fn row(counters: [u64; 4]) -> BaselineRow {
        let counters = NAMES.into_iter().zip(counters).map(|(name, n)| (name.to_string(), n)).collect();
        BaselineRow { case_crc: "1".into(), kernel_crc: "2".into(), counters, ..BaselineRow::default() }
    }

    /// What one case becomes: names of the counters that are dearer, cheaper and of neither.
    #[track_caller]
    fn check(now: BaselineRow, wanted: [&[&str]; 3]) -> CounterGate {
        let baseline = Baseline([("A.a".to_string(), row([1000, 64, 0, 5]))].into());
        let found = CounterGate::of(&baseline, &[("A.a".to_string(), now)].into(), Vec::new());
        let names = |changes: &CounterChanges| changes.iter().map(|change| change.counter.clone()).collect::<Vec<_>>();
        assert_eq!([&found.dearer, &found.cheaper, &found.other].map(names), wanted.map(|names| names.to_vec()));
        assert_eq!(found.is_regression(), !wanted[0].is_empty());
        found
    }

    #[test]
    fn more_of_a_cost_is_a_regression_and_less_is_told() {
        check(row([1000, 64, 0, 5]), [&[], &[], &[]]);
        check(row([1001, 64, 0, 5]), [&["instructions"], &[], &[]]);
        check(row([999, 64, 0, 5]), [&[], &["instructions"], &[]]);
        check(row([1000, 64, 0, 6]), [&[], &[], &["lane_operations"]]);
        // What is had for less of another cost is a regression until somebody says that it is meant.
        let found = check(row([900, 128, 3, 5]), [&["bank_conflicts", "load_sectors"], &["instructions"], &[]]);
        assert_eq!((found.dearer[0].ratio(), found.dearer[1].ratio()), (None, Some(2.0)));
    }

    #[test]
    fn another_text_is_told_and_gates_all_the_same() {
        let other = BaselineRow { case_crc: "8".into(), kernel_crc: "9".into(), ..row([1001, 64, 0, 5]) };
        let found = check(other, [&["instructions"], &[], &[]]);
        assert!(found.other_case.contains("A.a") && found.other_kernel.contains("A.a"));
        let same = BaselineRow { kernel_crc: "9".into(), ..row([1000, 64, 0, 5]) };
        assert_eq!(check(same, [&[], &[], &[]]).same_cost, ["A.a"]);
    }

    #[test]
    fn a_case_without_a_baseline_is_no_regression() {
        let now = [("A.new".to_string(), row([9, 9, 9, 9]))].into();
        let found = CounterGate::of(&Baseline::default(), &now, vec!["A.gone".into()]);
        assert_eq!(
            (found.is_regression(), found.new, found.gone),
            (false, vec!["A.new".into()], vec!["A.gone".into()])
        );
    }

    /// Of any cases, exactly those whose costs rose are named, each with what it was and is.
    #[test]
    fn what_rose_is_named_and_nothing_else() {
        crate::property::property(|u| {
            let (mut baseline, mut now, mut wanted) = (Baseline::default(), Counted::new(), BTreeMap::new());
            for i in 0..u.int_in_range(0..=12)? {
                let id = format!("A.c{i}");
                let old: [u64; 4] = [0; 4].map(|_| u.int_in_range(0..=1000).unwrap_or(7));
                let mut new = old;
                let at = u.choose_index(4)?;
                new[at] = u.int_in_range(0..=2000)?;
                if at < 3 && new[at] > old[at] {
                    wanted.insert((id.clone(), NAMES[at].to_string()), (old[at], new[at]));
                }
                baseline.0.insert(id.clone(), row(old));
                now.insert(id, row(new));
            }
            let found = CounterGate::of(&baseline, &now, Vec::new());
            let told: BTreeMap<_, _> =
                found.dearer.into_iter().map(|c| ((c.id, c.counter), (c.before, c.after))).collect();
            assert_eq!(told, wanted);
            Ok(())
        })
        .cases(500);
    }
}
