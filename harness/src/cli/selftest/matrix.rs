//! The confusion matrix: what was expected against what was found.

use crate::escape::escape;
use crate::outcome::CaseResult;
use crate::worker::fault::{FaultClass, FaultKind, Spares};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Differing findings that are shown with their details.
const SHOWN: usize = 3;

/// What came of one attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultOutcome {
    pub(super) outcome: String,
    /// What was told besides: leaks, crashes of the worker outside any case.
    pub(super) told: Vec<String>,
    /// Whether breadcrumbs or the worker's account name this case.
    pub(super) right_case: bool,
    /// Whether the worker was lost or replaced because of it.
    pub(super) replaced: bool,
    /// Whether an innocent case gave other results than before.
    pub(super) changed: bool,
    pub(super) detail: String,
}

impl FaultOutcome {
    /// Of a finished attempt, whose worker must have been in this phase if it died.
    pub(super) fn of(result: &CaseResult, phase: &str) -> Self {
        let right_case = match &result.death {
            // Empty where the fault's own phase is not known beforehand.
            Some(death) => death.crumb.case == result.case.id && (phase.is_empty() || death.crumb.phase == phase),
            None => true,
        };
        Self {
            outcome: result.outcome.outcome.clone(),
            told: result.outcome.leaks.iter().map(|leak| leak.name.clone()).collect(),
            right_case,
            replaced: result.death.is_some(),
            changed: false,
            detail: result.outcome.detail.clone(),
        }
    }

    /// `crash.sigsegv + leak.process`.
    pub(super) fn name(outcome: &str, told: &[&str]) -> String {
        let mut names: Vec<&str> = told.iter().copied().filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        std::iter::once(outcome).chain(names).collect::<Vec<_>>().join(" + ")
    }

    fn full_name(&self) -> String {
        let told: Vec<&str> = self.told.iter().map(String::as_str).collect();
        Self::name(&self.outcome, &told)
    }
}

/// All attempts of a class, or all innocent cases.
#[derive(Clone, Debug)]
pub(super) struct FaultRow {
    pub(super) name: String,
    kind: Option<FaultKind>,
    spares: Option<Spares>,
    runs: usize,
    /// Expected a failure or a leak, and found one of any kind.
    faulty: usize,
    detected: usize,
    right_class: usize,
    right_case: usize,
    /// Expected nothing, found something.
    false_alarms: usize,
    /// Without a result, or with another one than before.
    lost_or_changed: usize,
    /// Workers that should have gone on, or should have been replaced.
    wrong_end: usize,
    cells: BTreeMap<(String, String), usize>,
    examples: Vec<String>,
}

const CLEAN: &str = "pass";

impl FaultRow {
    pub(super) fn new(name: &str, class: Option<&'static FaultClass>) -> Self {
        Self {
            name: name.into(),
            kind: class.map(|class| class.kind),
            spares: class.map(|class| class.spares),
            runs: 0,
            faulty: 0,
            detected: 0,
            right_class: 0,
            right_case: 0,
            false_alarms: 0,
            lost_or_changed: 0,
            wrong_end: 0,
            cells: BTreeMap::new(),
            examples: Vec::new(),
        }
    }

    /// Cases that were never settled.
    pub(super) fn lost(count: usize) -> Self {
        let cells = BTreeMap::from([(("a result".to_string(), "none".to_string()), count)]);
        Self { runs: count, lost_or_changed: count, cells, ..Self::new("lost", None) }
    }

    pub(super) fn add(&mut self, expected: &str, found: &FaultOutcome) {
        let name = found.full_name();
        let right = name == expected;
        let faulty = expected != CLEAN;
        self.runs += 1;
        self.faulty += usize::from(faulty);
        self.detected += usize::from(faulty && name != CLEAN);
        self.right_class += usize::from(right);
        self.right_case += usize::from(found.right_case);
        self.false_alarms += usize::from(!faulty && name != CLEAN);
        self.lost_or_changed += usize::from(found.changed || self.spares.is_none() && !right);
        let wrong_end = match self.spares {
            None | Some(Spares::Worker) => found.replaced,
            // A class that fails at times only costs its worker only then.
            Some(Spares::Others) => faulty && !found.replaced,
        };
        self.wrong_end += usize::from(wrong_end);
        if (!right || !found.right_case || found.changed || wrong_end) && self.examples.len() < SHOWN {
            let first = found.detail.lines().next().unwrap_or_default();
            let mut example = format!("expected {expected}, found {name}");
            for (wrong, what) in [
                (!found.right_case, "charged to another case or phase"),
                (found.changed, "other results than before"),
                (wrong_end && found.replaced, "its worker was replaced"),
                (wrong_end && !found.replaced, "its worker went on"),
            ] {
                if wrong {
                    example.push_str(&format!(", {what}"));
                }
            }
            self.examples.push(format!("{example}: {}", escape(first, "")));
        }
        *self.cells.entry((expected.into(), name)).or_default() += 1;
    }

    fn is_perfect(&self) -> bool {
        self.right_class == self.runs
            && self.right_case == self.runs
            && self.detected == self.faulty
            && self.false_alarms + self.lost_or_changed + self.wrong_end == 0
    }

    pub(super) fn record(&self) -> serde_json::Value {
        let cells: Vec<_> = self
            .cells
            .iter()
            .map(|((expected, found), count)| json!({ "expected": expected, "found": found, "count": count }))
            .collect();
        json!({
            "class": self.name,
            "kind": self.kind.map(|kind| format!("{kind:?}").to_lowercase()),
            "runs": self.runs,
            "detected": self.detected,
            "right_class": self.right_class,
            "right_case": self.right_case,
            "false_alarms": self.false_alarms,
            "lost_or_changed": self.lost_or_changed,
            "wrong_end": self.wrong_end,
            "cells": cells,
            "examples": self.examples,
        })
    }
}

/// The sums.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Total {
    pub(super) classes: usize,
    repeats: u32,
    runs: usize,
    innocent: usize,
    faulty: usize,
    detected: usize,
    right_class: usize,
    right_case: usize,
    lost_or_changed: usize,
    false_alarms: usize,
    wrong_end: usize,
}

impl Total {
    pub(super) fn of(rows: &[FaultRow], repeats: u32) -> Self {
        let sum = |field: fn(&FaultRow) -> usize| rows.iter().map(field).sum();
        let of_classes =
            |field: fn(&FaultRow) -> usize| rows.iter().filter(|row| row.spares.is_some()).map(field).sum();
        Self {
            classes: rows.iter().filter(|row| row.spares.is_some()).count(),
            repeats,
            runs: of_classes(|row| row.runs),
            innocent: rows.iter().filter(|row| row.name == "innocent").map(|row| row.runs).sum(),
            faulty: of_classes(|row| row.faulty),
            detected: of_classes(|row| row.detected),
            right_class: of_classes(|row| row.right_class),
            right_case: of_classes(|row| row.right_case),
            lost_or_changed: sum(|row| row.lost_or_changed),
            false_alarms: sum(|row| row.false_alarms),
            wrong_end: sum(|row| row.wrong_end),
        }
    }

    pub(super) fn is_perfect(&self) -> bool {
        self.detected == self.faulty
            && self.right_class == self.runs
            && self.right_case == self.runs
            && self.lost_or_changed + self.false_alarms + self.wrong_end == 0
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} classes x {} repeats among {} innocent cases: detected {}/{}, right class {}/{}, right case {}/{}, \
             results lost or changed {}, false alarms {}, workers ended or kept wrongly {}",
            self.classes,
            self.repeats,
            self.innocent,
            self.detected,
            self.faulty,
            self.right_class,
            self.runs,
            self.right_case,
            self.runs,
            self.lost_or_changed,
            self.false_alarms,
            self.wrong_end,
        )
    }
}

/// The matrix: what was expected and found, and how often; rows that differ in full.
pub(super) fn text(rows: &[FaultRow]) -> String {
    let mut text = String::new();
    let mut right: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        for ((expected, _), count) in row.cells.iter().filter(|((expected, found), _)| expected == found) {
            *right.entry(expected).or_default() += count;
        }
    }
    for (name, count) in &right {
        text.push_str(&format!("{count:>6} x {name}\n"));
    }
    text + &differing(rows)
}

/// Rows that differ from what was expected, in full.
pub(super) fn differing(rows: &[FaultRow]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| !row.is_perfect()) {
        text.push_str(&format!("differs: {} ({} of {} right)\n", row.name, row.right_class, row.runs));
        for example in &row.examples {
            text.push_str(&format!("  {example}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fault::Spec;

    fn found(outcome: &str, told: &[&str]) -> FaultOutcome {
        let told = told.iter().map(|name| name.to_string()).collect();
        FaultOutcome { outcome: outcome.into(), told, right_case: true, ..FaultOutcome::default() }
    }

    fn row(name: &str) -> FaultRow {
        FaultRow::new(name, Spec::parse(name).map(|spec| spec.class))
    }

    #[test]
    fn what_is_right_is_perfect() {
        let mut segv = row("segv");
        segv.add("crash.sigsegv", &FaultOutcome { replaced: true, ..found("crash.sigsegv", &[]) });
        let mut daemon = row("daemon-segv");
        let killed = FaultOutcome { replaced: true, ..found("crash.sigsegv", &["leak.process"]) };
        daemon.add("crash.sigsegv + leak.process", &killed);
        let mut innocent = row("innocent");
        innocent.add("pass", &found("pass", &[]));
        let total = Total::of(&[segv, daemon, innocent], 1);
        assert!(total.is_perfect());
        assert_eq!(
            total.to_string(),
            "2 classes x 1 repeats among 1 innocent cases: detected 2/2, right class 2/2, right case 2/2, \
             results lost or changed 0, false alarms 0, workers ended or kept wrongly 0"
        );
    }

    #[track_caller]
    fn check_spoiled(name: &str, expected: &str, found: FaultOutcome, part: &str) {
        let mut bad = row(name);
        bad.add(expected, &found);
        let rows = [bad];
        assert!(!Total::of(&rows, 1).is_perfect());
        assert!(text(&rows).contains(part), "{}", text(&rows));
    }

    #[test]
    fn each_mistake_spoils_the_result() {
        check_spoiled("segv", "crash.sigsegv", found("pass", &[]), "expected crash.sigsegv, found pass");
        check_spoiled("segv", "crash.sigsegv", found("crash.sigbus", &[]), "found crash.sigbus");
        check_spoiled(
            "segv",
            "crash.sigsegv",
            FaultOutcome { right_case: false, ..found("crash.sigsegv", &[]) },
            "charged to another case",
        );
        check_spoiled("fd", "pass + leak.fd", found("pass", &[]), "found pass");
        check_spoiled("pass", "pass", found("pass", &["leak.fd"]), "found pass + leak.fd");
        check_spoiled("pass", "pass", FaultOutcome { replaced: true, ..found("pass", &[]) }, "its worker was replaced");
        check_spoiled("segv", "crash.sigsegv", found("crash.sigsegv", &[]), "its worker went on");
        check_spoiled("innocent", "pass", found("crash.protocol", &[]), "found crash.protocol");
        check_spoiled("innocent", "pass", FaultOutcome { changed: true, ..found("pass", &[]) }, "other results");
        let lost = [FaultRow::lost(2)];
        assert!(!Total::of(&lost, 1).is_perfect());
    }
}
