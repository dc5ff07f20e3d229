//! The independent checker of order over the kernels of all cases: each of them is right, so there is no alarm.

use crate::draws;
use engine::kernel::check_order;
use harness::case::{Case, Target, load};
use harness::corpus::{self, CaseKernel};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Cases of the simulator and the kernels that a run looks at, compiled once for all tests that ask.
pub(crate) fn corpus() -> (&'static [Case], &'static [CaseKernel]) {
    static CORPUS: OnceLock<(Vec<Case>, Vec<CaseKernel>)> = OnceLock::new();
    let (cases, kernels) = CORPUS.get_or_init(|| {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases");
        let loaded = load(&dir, Target::Sim);
        assert_eq!(loaded.errors, []);
        let cases = if draws::is_all() { loaded.cases } else { drawn(loaded.cases, &dir.join("kernels.csv")) };
        let kernels = corpus::kernels(&cases);
        (cases, kernels)
    });
    (cases, kernels)
}

/// The cases that have some of each scheduler's kernels, by the committed list, so that no others need be compiled; and those that
/// are not in it. Which these are goes by the sums of the names of the kernels' first cases, so that a new case does not put others
/// into the place of old ones.
fn drawn(mut cases: Vec<Case>, list: &Path) -> Vec<Case> {
    #[derive(serde::Deserialize)]
    struct Row {
        case: String,
        scheduler: String,
        kernel: String,
    }
    let rows = csv::Reader::from_path(list).expect("the list of kernels").into_deserialize();
    let rows = rows.collect::<Result<Vec<Row>, _>>().expect("rows of kernels");
    // Of several kernels of a case each has its place behind the name.
    let mut kernels_of: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        let case = row.case.rsplit_once('#').map_or(row.case.as_str(), |(case, _)| case);
        kernels_of.entry(case).or_default().push(row);
    }
    let mut first_of: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (place, case) in cases.iter().enumerate() {
        for row in kernels_of.get(case.id.as_str()).into_iter().flatten().filter(|row| !row.kernel.is_empty()) {
            first_of.entry((&row.scheduler, &row.kernel)).or_insert(place);
        }
    }
    let mut of_scheduler: BTreeMap<&str, u64> = BTreeMap::new();
    for (scheduler, _) in first_of.keys() {
        *of_scheduler.entry(scheduler).or_default() += 1;
    }
    let mut is_drawn: Vec<bool> = cases.iter().map(|case| !kernels_of.contains_key(case.id.as_str())).collect();
    for ((scheduler, _), place) in first_of {
        let sum = u64::from(crc32fast::hash(cases[place].id.as_bytes()));
        is_drawn[place] |= sum.is_multiple_of(draws::step(of_scheduler[scheduler]));
    }
    let mut is_drawn = is_drawn.into_iter();
    cases.retain(|_| is_drawn.next() == Some(true));
    cases
}

/// What `f` makes of each item, in order; on all cores.
pub(crate) fn on_each<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(i) else { return };
                    let result = f(item);
                    made.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
                }
            });
        }
    });
    let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    made.sort_by_key(|(i, _)| *i);
    made.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn the_checker_of_order_raises_no_alarm_on_kernels_of_cases() {
    let kernels = corpus().1;
    let reports = on_each(kernels, |found| check_order(found.plan.kernel(), &found.launch));
    let (mut open, mut by_data, mut wrong) = (Vec::new(), 0, String::new());
    let mut by_places = 0;
    for (found, report) in kernels.iter().zip(&reports) {
        let report = report.as_ref().unwrap_or_else(|error| panic!("{}: {error}", found.id));
        assert!(!report.cut, "{} has too much to look at", found.id);
        if report.by_data {
            // Groups, runs of places, and the positions that a block of those owns end where data say; the simulator watches these as
            // it does all others.
            let is_known = matches!(found.plan.scheduler(), "groups" | "put" | "runs");
            assert!(is_known, "{} has loops that run as often as data say", found.id);
            by_data += 1;
            continue;
        }
        // Positions are stored where the places of all before them say: that these differ follows from counts, not from indices. The
        // greatest of those of a place, and how many they are, is kept by atomics of integers, wherever an index says that it is.
        match report.is_proof() {
            true => {}
            false if matches!(found.plan.scheduler(), "runs" | "last" | "counts") => by_places += 1,
            false => open.push(found.id.as_str()),
        }
        if let Some(alarm) = report.alarms.first() {
            wrong.push_str(&format!("{}: {alarm}\n", found.id));
        }
    }
    // Past the capture of tests that pass: the count is a result.
    let looked_at = kernels.len() - by_data - by_places;
    let proven = looked_at - open.len();
    let _ = writeln!(
        std::io::stderr(),
        "{proven} of {looked_at} launches are in order whatever memory holds; of {by_data} more it is not known, and of \
         {by_places} that store where counts say"
    );
    assert!(wrong.is_empty(), "{wrong}");
    assert!(proven * 100 >= looked_at * 99, "{proven} of {looked_at} are proven; not so: {}", open.join(" "));
}
