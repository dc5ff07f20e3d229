//! Two runs side by side: verdicts, durations, measurements and generated code.
//!
//! A duration is told only where it stands out: noise is learnt from the two runs
//! themselves, since a busier machine makes all cases slower at once.

use super::markdown::code;
use super::width::shorten;
use crate::outcome::CodeFrom;
use crate::record::{Recorded, RecordedCase};
use crate::units::show_seconds;
use engine::util::quantile;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A change below this is never told, whatever the noise: of durations, and of measured medians.
const LEAST_RATIO: f64 = 1.25;
const LEAST_PERF_RATIO: f64 = 1.02;
/// Nor is one of fewer nanoseconds.
const LEAST_NS: f64 = 20e6;
/// Standard deviations of the logarithm of the ratio, estimated from the median deviation.
const SIGMAS: f64 = 5.0;
/// From the median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Fewer common cases say nothing about noise.
const LEAST_CASES: usize = 8;

/// What changed between two runs, by case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunComparison {
    pub(crate) names: [String; 2],
    pub(crate) totals: [usize; 2],
    /// New cases that fail are among them.
    pub(crate) failing: Vec<CaseChange>,
    /// Failed and passes.
    pub(crate) fixed: Vec<CaseChange>,
    pub(crate) flaky: Vec<CaseChange>,
    /// The outcome differs without turning good or bad.
    pub(crate) other: Vec<CaseChange>,
    pub(crate) new: Vec<CaseChange>,
    pub(crate) gone: Vec<CaseChange>,
    pub(crate) slower: Vec<CaseChange>,
    pub(crate) faster: Vec<CaseChange>,
    /// The kernel's text differs.
    pub(crate) code: Vec<CaseChange>,
    /// The simulator counts something else.
    pub(crate) counters: Vec<CaseChange>,
    /// All cases together: the second run's time for each unit of the first's.
    pub(crate) pace: Option<f64>,
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CaseChange {
    pub(crate) id: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// Compares two runs, the older one first.
pub(crate) fn compare(before: &Recorded, after: &Recorded) -> RunComparison {
    let mut found = RunComparison {
        names: [before.id().into(), after.id().into()],
        totals: [before.cases.len(), after.cases.len()],
        ..RunComparison::default()
    };
    let common: Vec<_> = before.cases.iter().filter_map(|(id, old)| Some((id, old, after.cases.get(id)?))).collect();
    for (id, case) in after.cases.iter().filter(|(id, _)| !before.cases.contains_key(*id)) {
        let list = if case.failed() { &mut found.failing } else { &mut found.new };
        list.push(change(id, String::new(), case.verdict().1.into()));
    }
    for (id, case) in before.cases.iter().filter(|(id, _)| !after.cases.contains_key(*id)) {
        found.gone.push(change(id, case.verdict().1.into(), String::new()));
    }
    for (id, old, new) in &common {
        verdicts(&mut found, id, old, new);
        texts(&mut found, id, old, new);
    }
    speeds(&mut found, &common);
    found
}

fn change(id: &str, before: String, after: String) -> CaseChange {
    CaseChange { id: id.into(), before, after }
}

fn verdicts(found: &mut RunComparison, id: &str, old: &RecordedCase, new: &RecordedCase) {
    let ((old_verdict, old_outcome, _), (verdict, new_outcome, _)) = (old.verdict(), new.verdict());
    if (old_verdict, old_outcome) == (verdict, new_outcome) {
        return;
    }
    let list = match (old.failed(), new.failed()) {
        _ if verdict == "flaky" => &mut found.flaky,
        // What the machine spoiled is no verdict: nobody knew that it fails.
        (true, true) if old_verdict == "infra" && verdict != "infra" => &mut found.failing,
        (false, true) => &mut found.failing,
        (true, false) if verdict == "pass" => &mut found.fixed,
        _ => &mut found.other,
    };
    // One outcome under two verdicts: a failure that is in quarantine or flaky, for one.
    let told = |verdict: &str, outcome: &str| match old_outcome == new_outcome {
        true => format!("{verdict} ({outcome})"),
        false => outcome.to_string(),
    };
    list.push(change(id, told(old_verdict, old_outcome), told(verdict, new_outcome)));
}

/// Generated code and exact counters.
fn texts(found: &mut RunComparison, id: &str, old: &RecordedCase, new: &RecordedCase) {
    let last = |case: &RecordedCase| case.attempts.last().cloned().unwrap_or_default();
    let (old, new) = (last(old), last(new));
    if let (Some(a), Some(b)) = (&old.kernel_crc, &new.kernel_crc)
        && a != b
    {
        found.code.push(change(id, a.clone(), b.clone()));
    }
    let counters = |perf: &Option<Value>| -> BTreeMap<String, u64> {
        let map = perf.as_ref().and_then(|perf| perf["counters"].as_object());
        map.into_iter().flatten().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect()
    };
    let (a, b) = (counters(&old.perf), counters(&new.perf));
    if a.is_empty() || b.is_empty() || a == b {
        return;
    }
    let differing = a.iter().filter_map(|(name, x)| b.get(name).filter(|y| *y != x).map(|y| (name, x, y)));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (name, x, y) in differing {
        left.push(format!("{name}={x}"));
        right.push(format!("{name}={y}"));
    }
    if !left.is_empty() {
        found.counters.push(change(id, left.join(" "), right.join(" ")));
    }
}

fn speeds(found: &mut RunComparison, common: &[(&String, &RecordedCase, &RecordedCase)]) {
    let mut measured = Vec::new();
    for (id, old, new) in common.iter().filter(|(_, old, new)| old.verdict().0 == "pass" && new.verdict().0 == "pass") {
        if let (Some(a), Some(b)) = (interval(old), interval(new)) {
            perf(found, id, a, b);
        }
        // One that was compiled and one that was found compiled tell nothing of each other.
        if let (Some((a, cached)), Some((b, also))) = (typical(old), typical(new))
            && cached == also
        {
            measured.push((*id, a, b));
        }
    }
    if measured.len() < LEAST_CASES {
        return;
    }
    let logs: Vec<f64> = measured.iter().map(|(_, a, b)| (b / a).ln()).collect();
    let middle = quantile(&logs, 0.5).unwrap_or(0.0);
    let distances: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let sigma = MAD_TO_SIGMA * quantile(&distances, 0.5).unwrap_or(0.0);
    found.pace = Some(middle.exp());
    let beyond = LEAST_RATIO.ln().max(SIGMAS * sigma);
    for ((id, a, b), log) in measured.iter().zip(&logs) {
        // Against what the pace of the whole run makes one expect.
        let excess = b - a * middle.exp();
        if (log - middle).abs() > beyond && excess.abs() > LEAST_NS {
            let list = if excess > 0.0 { &mut found.slower } else { &mut found.faster };
            list.push(change(id, show_seconds(*a as u64), show_seconds(*b as u64)));
        }
    }
}

/// A typical duration of the attempts that passed, and whether their kernel was
/// found compiled; those where it was not count first.
fn typical(case: &RecordedCase) -> Option<(f64, bool)> {
    let passed = case.attempts.iter().filter(|a| a.verdict == "pass" && a.dur_ns > 0);
    let (cached, own): (Vec<_>, Vec<_>) = passed.partition(|a| a.code.as_deref() == Some(CodeFrom::CACHED));
    let (taken, found) = if own.is_empty() { (cached, true) } else { (own, false) };
    let times: Vec<f64> = taken.iter().map(|a| a.dur_ns as f64).collect();
    quantile(&times, 0.5).map(|middle| (middle, found))
}

/// The 10th percentile, the median and the 90th percentile of a measured kernel.
fn interval(case: &RecordedCase) -> Option<[f64; 3]> {
    let perf = case.attempts.last()?.perf.as_ref()?;
    let figure = |key: &str| perf[key].as_f64().filter(|ns| *ns > 0.0);
    Some([figure("p10_ns")?, figure("median_ns")?, figure("p90_ns")?])
}

/// Kernel times differ when the intervals do not even touch.
fn perf(found: &mut RunComparison, id: &str, [a10, a50, a90]: [f64; 3], [b10, b50, b90]: [f64; 3]) {
    let list = match () {
        () if b10 > a90 && b50 / a50 > LEAST_PERF_RATIO => &mut found.slower,
        () if b90 < a10 && a50 / b50 > LEAST_PERF_RATIO => &mut found.faster,
        () => return,
    };
    let us = |ns: f64| format!("{:.2} us on the device", ns / 1e3);
    list.push(change(id, us(a50), us(b50)));
}

/// Rows of one kind that are printed.
const ROWS: usize = 100;

impl RunComparison {
    fn lists(&self) -> [(&'static str, &Vec<CaseChange>); 10] {
        [
            ("newly failing", &self.failing),
            ("fixed", &self.fixed),
            ("now flaky", &self.flaky),
            ("other outcome", &self.other),
            ("slower", &self.slower),
            ("faster", &self.faster),
            ("other generated code", &self.code),
            ("other counters", &self.counters),
            ("new", &self.new),
            ("gone", &self.gone),
        ]
    }

    /// Whether something got worse.
    pub(crate) fn is_worse(&self) -> bool {
        !self.failing.is_empty()
    }

    fn pace_text(&self) -> Option<String> {
        let pace = self.pace?;
        let percent = (pace - 1.0) * 100.0;
        Some(format!("all cases together: {percent:+.0} % time; only what stands out from that is told"))
    }

    /// For a terminal of so many columns.
    pub(crate) fn plain(&self, columns: usize) -> String {
        let mut text = format!(
            "before {} ({} cases)\nafter  {} ({} cases)\n",
            self.names[0], self.totals[0], self.names[1], self.totals[1]
        );
        for (title, changes) in self.lists().iter().filter(|(_, changes)| !changes.is_empty()) {
            let _ = writeln!(text, "\n{title}: {}", changes.len());
            for row in changes.iter().take(ROWS) {
                let arrow = match (row.before.is_empty(), row.after.is_empty()) {
                    (false, false) => format!("{} -> {}", row.before, row.after),
                    _ => format!("{}{}", row.before, row.after),
                };
                let arrow = shorten(&crate::escape::escape(&arrow, ""), columns / 2);
                let room = columns.saturating_sub(4 + arrow.len()).max(16);
                let _ = writeln!(text, "  {}  {arrow}", shorten(&crate::escape::escape(&row.id, ""), room));
            }
            if let Some(more) = changes.len().checked_sub(ROWS).filter(|more| *more > 0) {
                let _ = writeln!(text, "  and {more} more");
            }
        }
        if self.lists().iter().all(|(_, changes)| changes.is_empty()) {
            text.push_str("\nno differences\n");
        }
        if let Some(pace) = self.pace_text() {
            let _ = writeln!(text, "\n{pace}");
        }
        text
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("## {} and {}\n\n", code(&self.names[0]), code(&self.names[1]));
        for (title, changes) in self.lists().iter().filter(|(_, changes)| !changes.is_empty()) {
            let _ = writeln!(text, "### {title}: {}\n\n| case | before | after |\n| --- | --- | --- |", changes.len());
            for row in changes.iter().take(ROWS) {
                let cell = |text: &str| if text.is_empty() { String::new() } else { code(text) };
                let _ = writeln!(text, "| {} | {} | {} |", code(&row.id), cell(&row.before), cell(&row.after));
            }
            if let Some(more) = changes.len().checked_sub(ROWS).filter(|more| *more > 0) {
                let _ = writeln!(text, "\nand {more} more");
            }
            text.push('\n');
        }
        if self.lists().iter().all(|(_, changes)| changes.is_empty()) {
            text.push_str("No differences.\n");
        }
        if let Some(pace) = self.pace_text() {
            let _ = writeln!(text, "{pace}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A run with cases of an outcome and milliseconds each.
    fn run(cases: &[(&str, &str, u64)]) -> Recorded {
        let mut run = Recorded::default();
        for (id, outcome, ms) in cases {
            let verdict = outcome.split('.').next();
            run.push(json!({
                "k": "attempt", "case_id": id, "verdict": verdict, "outcome": outcome, "dur_ns": ms * 1_000_000,
                "worker_id": "w", "kernel_crc": format!("{ms:08x}"),
            }));
        }
        run
    }

    fn ids(changes: &[CaseChange]) -> Vec<&str> {
        changes.iter().map(|change| change.id.as_str()).collect()
    }

    #[test]
    fn outcomes_fall_into_their_lists() {
        let before = run(&[
            ("A.a", "pass", 1),
            ("A.b", "fail.numerics", 1),
            ("A.c", "pass", 1),
            ("A.gone", "pass", 1),
            ("A.x", "fail.race", 1),
        ]);
        let after = run(&[
            ("A.a", "crash.sigsegv", 1),
            ("A.b", "pass", 1),
            ("A.c", "flaky", 2),
            ("A.new", "pass", 1),
            ("A.x", "fail.numerics", 1),
        ]);
        let found = compare(&before, &after);
        assert_eq!(
            (ids(&found.failing), ids(&found.fixed), ids(&found.flaky)),
            (vec!["A.a"], vec!["A.b"], vec!["A.c"])
        );
        assert_eq!(
            (ids(&found.new), ids(&found.gone), ids(&found.other)),
            (vec!["A.new"], vec!["A.gone"], vec!["A.x"])
        );
        assert_eq!(ids(&found.code), ["A.c"]);
        assert!(found.is_worse() && !compare(&after, &after).is_worse());
        assert!(compare(&after, &after).plain(80).contains("no differences"));
    }

    #[test]
    fn a_verdict_changes_where_its_outcome_stays() {
        let told = |verdict: &str| {
            let mut run = Recorded::default();
            run.push(
                json!({ "k": "verdict", "case_id": "A.a", "verdict": verdict, "outcome": "fail.numerics", "attempts": 1 }),
            );
            run
        };
        let check = |before: &Recorded, after: &Recorded, list: fn(&RunComparison) -> &Vec<CaseChange>, worse: bool| {
            let found = compare(before, after);
            assert_eq!((ids(list(&found)), found.is_worse()), (vec!["A.a"], worse), "{}", found.plain(80));
        };
        check(&told("quarantined"), &told("fail"), |found| &found.failing, true);
        check(&told("fail"), &told("flaky"), |found| &found.flaky, false);
        check(&told("fail"), &told("quarantined"), |found| &found.other, false);
        check(&Recorded::default(), &told("fail"), |found| &found.failing, true);
        for verdict in ["fail", "crash", "hang"] {
            check(&told("infra"), &told(verdict), |found| &found.failing, true);
        }
        check(&told("infra"), &told("pass"), |found| &found.fixed, false);
        check(&told("fail"), &told("infra"), |found| &found.other, false);
        let text = compare(&told("quarantined"), &told("fail")).plain(200);
        assert!(text.contains("quarantined (fail.numerics) -> fail (fail.numerics)"), "{text}");
    }

    /// Everything takes 40 % longer on a busy machine; one case three times as long.
    #[test]
    fn a_busy_machine_is_no_change_and_an_outlier_is() {
        let names: Vec<String> = (0..40).map(|i| format!("A.c{i}")).collect();
        let cases = |factor: f64, odd: f64| {
            let each = |(i, id): (usize, &String)| {
                let ms =
                    (100.0 + 7.0 * (i % 9) as f64) * factor * if i == 17 { odd } else { 1.0 + 0.02 * (i % 3) as f64 };
                (id.clone(), ms as u64)
            };
            let all: Vec<(String, u64)> = names.iter().enumerate().map(each).collect();
            run(&all.iter().map(|(id, ms)| (id.as_str(), "pass", *ms)).collect::<Vec<_>>())
        };
        let found = compare(&cases(1.0, 1.0), &cases(1.4, 3.0));
        assert_eq!((ids(&found.slower), ids(&found.faster)), (vec!["A.c17"], vec![]));
        let back = compare(&cases(1.4, 3.0), &cases(1.0, 1.0));
        assert_eq!((ids(&back.slower), ids(&back.faster)), (vec![], vec!["A.c17"]));
    }

    /// One case takes three times as long where its kernel was compiled, and found
    /// compiled in the other run.
    #[test]
    fn what_was_found_compiled_is_not_compared_with_what_was_not() {
        let cases = |odd: (u64, &str)| {
            let mut run = Recorded::default();
            for number in 0..20 {
                let (ms, code) = if number == 7 { odd } else { (100 + number % 3, "compiled") };
                run.push(json!({
                    "k": "attempt", "case_id": format!("A.c{number}"), "verdict": "pass", "outcome": "pass",
                    "dur_ns": ms * 1_000_000, "worker_id": "w", "code": code,
                }));
            }
            run
        };
        let slower = |odd, then| ids(&compare(&cases(odd), &cases(then)).slower).len();
        assert_eq!(slower((100, "cached"), (300, "compiled")), 0);
        assert_eq!(slower((100, "compiled"), (300, "compiled")), 1);
        assert_eq!(slower((100, "cached"), (300, "cached")), 1);
    }

    #[test]
    fn tables_fit_their_room() {
        let long = format!("Suite.{}", "x".repeat(300));
        let found = compare(&run(&[(&long, "pass", 1)]), &run(&[(&long, "fail.numerics", 1)]));
        for columns in [40, 80, 200] {
            assert!(found.plain(columns).lines().all(|line| line.len() <= columns), "{}", found.plain(columns));
        }
        assert!(found.markdown().contains("| `fail.numerics` |"));
    }
}
