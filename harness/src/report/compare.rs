//! Two runs side by side: verdicts, durations, measurements and generated code.
//!
//! Inputs: two recorded runs, the older one first. Output: what differs, as values; `text` and `json` show it.
//!
//! A duration is told only where it stands out from the pace of the whole run, since a busier machine makes all cases slower
//! at once: by its own noise where the history knows it, else by that of the two runs. A kernel on a GPU is held to its noise as
//! `bench` does, also all of them together, and one that is slower is a regression. The simulator's counters are exact:
//! each that differs is told, and one of cost that rose is a regression. Of runs on two kinds of
//! devices only outcomes are compared: their times and counters say nothing of each other.

mod json;
mod text;

use crate::gate::{CounterChange, CounterChanges, PastTime, TimeFinding, TimeHistory, Timed, TimingGate, Together};
use crate::record::{Attempt, Recorded, RecordedCase, code};
use crate::units::show_time;
use engine::util::quantile;
use pages::MAD_TO_SIGMA;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A change below this is never told, whatever the noise: of durations, and of measured medians.
const LEAST_RATIO: f64 = 1.25;
const LEAST_PERF_RATIO: f64 = 1.02;
/// Nor is one of fewer nanoseconds, where nothing is known of the case's noise, and where it is.
const LEAST_NS: f64 = 20e6;
const LEAST_KNOWN_NS: f64 = 1e6;
/// Standard deviations of the logarithm of the ratio, estimated from the median deviation.
const SIGMAS: f64 = 5.0;
/// Fewer common cases say nothing about noise.
const LEAST_CASES: usize = 8;

/// What changed between two runs, by case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunComparison {
    pub(crate) sides: [Side; 2],
    /// Both ran on one kind of device, so that times and counters say something.
    pub(crate) comparable: bool,
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
    pub(crate) counters: CounterChanges,
    /// A kernel on a GPU is slower than its noise allows.
    pub(crate) is_slower: bool,
    /// All kernels together, where the history tells how runs as a whole vary.
    pub(crate) together: Option<Together>,
    /// All cases together: the second run's time for each unit of the first's.
    pub(crate) pace: Option<f64>,
}

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) run: String,
    pub(crate) cases: usize,
    pub(crate) command: String,
    pub(crate) device: Option<String>,
    pub(crate) driver: Option<String>,
    pub(crate) nvrtc: String,
    pub(crate) commit: String,
    pub(crate) dirty: bool,
    pub(crate) started_utc: Option<String>,
    /// The command line, and what the environment added.
    pub(crate) options: Vec<String>,
}

impl Side {
    fn of(run: &Recorded) -> Self {
        let header = &run.header;
        let words = header.argv.iter().chain(&header.from_env).flatten();
        Self {
            run: run.id().into(),
            cases: run.cases.len(),
            command: header.mode().into(),
            device: run.device(),
            driver: header.driver().map(String::from),
            nvrtc: header.nvrtc.clone().unwrap_or_default(),
            commit: header.commit().into(),
            dirty: header.is_dirty(),
            started_utc: header.started_utc.clone(),
            options: words.cloned().collect(),
        }
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CaseChange {
    pub(crate) id: String,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// What the history of their device says of how much cases vary.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    /// Times of kernels.
    pub(crate) kernels: TimeHistory,
    /// Standard deviations of the logarithms of durations.
    pub(crate) durations: BTreeMap<String, f64>,
}

/// Compares two runs, the older one first.
pub(crate) fn compare(before: &Recorded, after: &Recorded, learnt: Learnt) -> RunComparison {
    let sides = [Side::of(before), Side::of(after)];
    let comparable = sides[0].device == sides[1].device;
    let mut found = RunComparison { sides, comparable, ..RunComparison::default() };
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
        if comparable {
            texts(&mut found, id, old, new);
        }
    }
    if comparable {
        let judged = kernels(&mut found, &common, learnt.kernels);
        speeds(&mut found, &common, &judged, &learnt.durations);
    }
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
    found.counters.extend(CounterChange::between(id, &a, &b));
}

/// A case that both runs have.
type Pair<'r> = (&'r String, &'r RecordedCase, &'r RecordedCase);

/// Times of kernels against the noise that their history tells. Returns the cases that it could judge.
fn kernels(found: &mut RunComparison, common: &[Pair<'_>], mut history: TimeHistory) -> BTreeSet<String> {
    let [a, b] = [&found.sides[0], &found.sides[1]].map(|side| (side.run.clone(), side.nvrtc.clone()));
    let mut now = BTreeMap::new();
    history.values_mut().flatten().for_each(|time| time.is_reference = false);
    for (id, old, new) in common {
        let time = |case: &RecordedCase, nvrtc: &str| {
            let last = case.attempts.last()?;
            let [digest, crc] = [&last.code_digest, &last.kernel_crc].map(|name| name.as_deref().unwrap_or_default());
            let code = code(digest, crc, nvrtc);
            interval(case).map(|[_, ns, _]| Timed { ns, code })
        };
        let (Some(then), Some(after)) = (time(old, &a.1), time(new, &b.1)) else { continue };
        // What the older run measured is what it is held to; the rest of its history tells noise.
        let past = history.entry((*id).clone()).or_default();
        past.retain(|time| time.run != b.0);
        let epoch = past.iter().find(|time| time.run == a.0).map_or(u32::MAX, |time| time.epoch);
        past.retain(|time| time.run != a.0);
        past.push(PastTime { run: a.0.clone(), ns: then.ns, code: then.code, epoch, is_reference: true });
        now.insert((*id).clone(), after);
    }
    let gate = TimingGate::of(&history, &now);
    let us = |ns: f64| format!("{:.2} us on the device", ns / 1e3);
    for row in &gate.rows {
        let list = match row.finding {
            TimeFinding::Slower | TimeFinding::Machine => &mut found.slower,
            TimeFinding::Faster => &mut found.faster,
            _ => continue,
        };
        list.push(change(&row.id, us(row.before_ns), us(row.now_ns)));
    }
    found.is_slower = gate.rows.iter().any(|row| row.finding == TimeFinding::Slower);
    found.together = gate.together;
    let known = gate.rows.into_iter().filter(|row| row.noise.is_some());
    known.map(|row| row.id).collect()
}

fn speeds(found: &mut RunComparison, common: &[Pair<'_>], judged: &BTreeSet<String>, noise: &BTreeMap<String, f64>) {
    let mut measured = Vec::new();
    for (id, old, new) in common.iter().filter(|(_, old, new)| old.verdict().0 == "pass" && new.verdict().0 == "pass") {
        if let (Some(a), Some(b), false) = (interval(old), interval(new), judged.contains(*id)) {
            perf(found, id, a, b);
        }
        // What was done in one and found done in the other tells nothing.
        if let (Some((a, found)), Some((b, also))) = (typical(old), typical(new))
            && found == also
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
        let (beyond, least) = match noise.get(*id) {
            // Of the difference of two runs.
            Some(own) => (LEAST_RATIO.ln().max(SIGMAS * own * std::f64::consts::SQRT_2), LEAST_KNOWN_NS),
            None => (beyond, LEAST_NS),
        };
        if (log - middle).abs() > beyond && excess.abs() > least {
            let list = if excess > 0.0 { &mut found.slower } else { &mut found.faster };
            list.push(change(id, show_time(*a as u64), show_time(*b as u64)));
        }
    }
}

/// A typical duration of the attempts that passed, and what they found done: their
/// kernel compiled, their outputs compared. Those that did most count.
fn typical(case: &RecordedCase) -> Option<(f64, [bool; 2])> {
    let passed = || case.attempts.iter().filter(|a| a.verdict == "pass" && a.dur_ns > 0);
    let found = |a: &Attempt| [a.is_cached(), a.is_held_to_digest()];
    let least = passed().map(found).min()?;
    let times: Vec<f64> = passed().filter(|a| found(a) == least).map(|a| a.dur_ns as f64).collect();
    quantile(&times, 0.5).map(|middle| (middle, least))
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

impl RunComparison {
    fn lists(&self) -> [(&'static str, &Vec<CaseChange>); 9] {
        [
            ("newly failing", &self.failing),
            ("fixed", &self.fixed),
            ("now flaky", &self.flaky),
            ("other outcome", &self.other),
            ("slower", &self.slower),
            ("faster", &self.faster),
            ("other generated code", &self.code),
            ("new", &self.new),
            ("gone", &self.gone),
        ]
    }

    /// Whether a case fails that did not.
    pub(crate) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// Whether an exact counter of cost rose, or kernels are slower than noise allows. Durations do not say so: they are those
    /// of a machine.
    pub(crate) fn is_dearer(&self) -> bool {
        let slower = self.is_slower || self.together.is_some_and(|all| all.is_slower);
        slower || self.counters.iter().any(CounterChange::is_dearer)
    }

    fn is_same(&self) -> bool {
        let slower = self.together.is_some_and(|all| all.is_slower);
        !slower && self.counters.is_empty() && self.lists().iter().all(|(_, changes)| changes.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(before: &Recorded, after: &Recorded) -> RunComparison {
        super::compare(before, after, Learnt::default())
    }

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
        assert!(found.is_failing() && !compare(&after, &after).is_failing());
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
            assert_eq!((ids(list(&found)), found.is_failing()), (vec!["A.a"], worse), "{}", found.plain(80));
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
                let held_to = if code == "held" { "digest" } else { "reference" };
                run.push(json!({
                    "k": "attempt", "case_id": format!("A.c{number}"), "verdict": "pass", "outcome": "pass",
                    "dur_ns": ms * 1_000_000, "worker_id": "w", "code": code, "held_to": held_to,
                }));
            }
            run
        };
        let slower = |odd, then| ids(&compare(&cases(odd), &cases(then)).slower).len();
        assert_eq!(slower((100, "cached"), (300, "compiled")), 0);
        assert_eq!(slower((100, "compiled"), (300, "compiled")), 1);
        assert_eq!(slower((100, "cached"), (300, "cached")), 1);
        assert_eq!([slower((100, "held"), (300, "compiled")), slower((100, "held"), (300, "held"))], [0, 1]);
    }

    /// A run on a device with these counters of one case.
    fn counted(device: &str, counters: &[(&str, u64)]) -> Recorded {
        let header = json!({ "k": "run", "run_id": "r", "mode": "bench", "history": device,
            "provenance": { "git_sha": "0123456789abcdef", "git_dirty": true } });
        let counters: serde_json::Map<String, Value> =
            counters.iter().map(|(name, n)| ((*name).into(), (*n).into())).collect();
        let mut run = Recorded::default();
        run.push(header);
        run.push(json!({ "k": "attempt", "case_id": "A.a/m=1", "verdict": "pass", "outcome": "pass", "worker_id": "w",
            "perf": { "counters": counters } }));
        run
    }

    #[test]
    fn each_counter_is_a_row_and_a_cost_that_rose_is_a_regression() {
        let before = counted("simulator", &[("instructions", 24_864), ("bank_conflicts", 0), ("load_bytes", 64)]);
        let after = counted("simulator", &[("instructions", 78_807), ("bank_conflicts", 4896), ("load_bytes", 64)]);
        let found = compare(&before, &after);
        assert!(found.is_dearer() && !found.is_failing());
        for room in [60, 80, 120, usize::MAX] {
            let text = found.plain(room);
            for part in ["instructions", "24864", "78807", "+217.0 %", "bank_conflicts", "4896"] {
                assert!(text.contains(part), "{part} in {room} columns: {text}");
            }
        }
        assert!(
            found.plain(120).contains("bench, simulator, commit 012345678 with local changes"),
            "{}",
            found.plain(120)
        );
        assert!(found.markdown().contains("| `A.a/m=1` | instructions | 24864 | 78807 | +217.0 % |"));
        let json = found.json();
        assert_eq!(
            (&json["counters"][0]["after"], &json["counters"][0]["dearer"]),
            (&json!(4896), &json!(true)),
            "{json}"
        );
        // Less of a cost, and more of what is none, are no regressions.
        assert!(!compare(&after, &before).is_dearer());
        let larger = counted("simulator", &[("instructions", 24_864), ("bank_conflicts", 0), ("load_bytes", 128)]);
        assert!(!compare(&before, &larger).is_dearer());
    }

    #[test]
    fn on_another_device_only_outcomes_are_compared() {
        let (sim, reference) =
            (counted("simulator", &[("instructions", 1)]), counted("reference", &[("instructions", 2)]));
        let found = compare(&sim, &reference);
        assert!(!found.comparable && !found.is_dearer() && found.pace.is_none());
        assert!(found.plain(80).contains("simulator and reference"), "{}", found.plain(80));
        assert_eq!(found.json()["comparable"], false);
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
