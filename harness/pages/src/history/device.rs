//! One device's history: its runs, and what each case did in them.

use super::Run;
use crate::detect::{self, Change};
use std::collections::BTreeMap;

/// A figure, by the name of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Metric(pub(crate) usize);

/// What one kind of device has recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    /// The folder's name: `nvidia-h200`, `simulator`.
    pub(crate) name: String,
    pub(crate) runs: Vec<Run>,
    /// Names of figures, in the order of the tables.
    pub(crate) metrics: Vec<String>,
    /// By case: the number in [`super::Names`].
    pub(crate) cases: BTreeMap<u32, CaseHistory>,
    pub(crate) flakes: Vec<Flake>,
    /// UUIDs that measurements name.
    pub(crate) gpus: Vec<String>,
    /// What a gate found of times, by the order of runs.
    pub(crate) gates: Vec<Gate>,
    /// What could not be read, in words.
    pub(crate) notes: Vec<String>,
}

/// What one case did on one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct CaseHistory {
    /// Runs with figures, in order, and behind each what its kernel's text was: 0 where nobody knows.
    pub(crate) runs: Vec<u32>,
    pub(crate) kernels: Vec<u32>,
    /// The GPU of each measurement, as its place in the names of the device and one more; 0 where nobody knows.
    pub(crate) gpus: Vec<u32>,
    /// A column a metric, as long as `runs`; shorter where a metric came up last.
    pub(crate) columns: Vec<Vec<f64>>,
    /// Runs in which the outcome became another one.
    pub(crate) turns: Vec<Turn>,
    /// Of the table of durations: runs, smoothed microseconds, last outcome.
    pub(crate) last: Option<(u64, u64, String)>,
}

/// An outcome that became another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub(crate) run: u32,
    pub(crate) verdict: String,
    pub(crate) before: String,
    pub(crate) outcome: String,
}

/// What the last hunt found of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Flake {
    pub(crate) case: u32,
    pub(crate) runs: u64,
    pub(crate) failures: u64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) finding: String,
    pub(crate) class: String,
    pub(crate) run: String,
}

/// What a gate found of a case's time in a run, or what was accepted of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gate {
    pub(crate) run: u32,
    /// `None`: of all cases together.
    pub(crate) case: Option<u32>,
    /// slower, faster, accepted, same code.
    pub(crate) finding: String,
    pub(crate) ratio: f64,
    /// history, or a kept binary that was measured in turns.
    pub(crate) by: String,
    pub(crate) reason: String,
}

impl Device {
    pub(crate) fn metric(&self, name: &str) -> Option<Metric> {
        self.metrics.iter().position(|known| known == name).map(Metric)
    }

    /// A simulator or the reference: no times of its own, and counters that are exact.
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.name.as_str(), "simulator" | "reference")
    }

    /// The product's name as people write it.
    pub(crate) fn shown(&self) -> String {
        match self.name.strip_prefix("nvidia-") {
            Some(rest) => format!("NVIDIA {}", rest.to_uppercase().replace('-', " ")),
            None => crate::figure::words(&self.name),
        }
    }
}

impl CaseHistory {
    /// A figure in the `at`-th of its runs.
    pub(crate) fn value(&self, metric: Metric, at: usize) -> f64 {
        self.columns.get(metric.0).and_then(|column| column.get(at)).copied().unwrap_or(f64::NAN)
    }

    /// Places and values of a figure where it was measured.
    pub(crate) fn points(&self, metric: Metric) -> Vec<(usize, f64)> {
        let column = self.columns.get(metric.0).map_or(&[][..], Vec::as_slice);
        column.iter().copied().enumerate().filter(|(_, value)| value.is_finite()).collect()
    }

    pub(crate) fn last_value(&self, metric: Metric) -> Option<f64> {
        let column = self.columns.get(metric.0)?;
        column.iter().rev().copied().find(|value| value.is_finite())
    }

    /// Where the level of a figure changed: `at` and `told` are places in `runs`.
    pub(crate) fn changes(&self, metric: Metric) -> Vec<Change> {
        let points = self.points(metric);
        let values: Vec<f64> = points.iter().map(|(_, value)| *value).collect();
        let place = |change: Change| Change { at: points[change.at].0, told: points[change.told].0, ..change };
        detect::changes(&values).into_iter().map(place).collect()
    }

    /// The last outcome: that of the last turn, which names its run, or else of the table of durations.
    pub(crate) fn outcome(&self) -> Option<&str> {
        let told = || self.last.as_ref().map(|(_, _, outcome)| outcome.as_str()).filter(|word| !word.is_empty());
        self.turns.last().map(|turn| turn.outcome.as_str()).or_else(told)
    }
    /// The outcome after a run, if it had run by then.
    pub(crate) fn outcome_at(&self, run: u32) -> Option<&str> {
        self.turns.iter().take_while(|turn| turn.run <= run).last().map(|turn| turn.outcome.as_str())
    }

    /// The number of a run's kernel text among those of the case, from 1; 0 where nobody knows.
    pub(crate) fn kernel_number(&self, at: usize) -> usize {
        if self.kernels[at] == 0 {
            return 0;
        }
        let mut seen: Vec<u32> = Vec::new();
        for kernel in self.kernels[..=at].iter().filter(|kernel| **kernel != 0) {
            if !seen.contains(kernel) {
                seen.push(*kernel);
            }
        }
        1 + seen.iter().position(|kernel| *kernel == self.kernels[at]).unwrap_or(0)
    }

    /// The place of a run, which is put in at the end if it is not there.
    pub(crate) fn place(&mut self, run: u32) -> usize {
        // Tables are in order of time but for runs that were merged later.
        if self.runs.last() == Some(&run) {
            return self.runs.len() - 1;
        }
        if let Some(at) = self.runs.iter().rposition(|known| *known == run) {
            return at;
        }
        self.runs.push(run);
        self.kernels.push(0);
        self.gpus.push(0);
        self.runs.len() - 1
    }

    pub(crate) fn set(&mut self, metric: usize, at: usize, value: f64) {
        if self.columns.len() <= metric {
            self.columns.resize(metric + 1, Vec::new());
        }
        let column = &mut self.columns[metric];
        if column.len() <= at {
            column.resize(at + 1, f64::NAN);
        }
        column[at] = value;
    }

    /// A figure that is the sum of others, where all of them are known.
    pub(crate) fn sum(&mut self, parts: &[Metric], sum: usize) {
        for at in 0..self.runs.len() {
            let value: f64 = parts.iter().map(|part| self.value(*part, at)).sum();
            if value.is_finite() {
                self.set(sum, at, value);
            }
        }
    }

    /// Gives runs their places in time, `order[old] = new`.
    pub(crate) fn renumber(&mut self, order: &[u32]) {
        self.turns.iter_mut().for_each(|turn| turn.run = order[turn.run as usize]);
        self.turns.sort_by_key(|turn| turn.run);
        self.runs.iter_mut().for_each(|run| *run = order[*run as usize]);
        let length = self.runs.len();
        self.columns.iter_mut().for_each(|column| column.resize(length, f64::NAN));
        if self.runs.is_sorted() {
            return;
        }
        let mut by_time: Vec<usize> = (0..length).collect();
        by_time.sort_by_key(|at| self.runs[*at]);
        let sorted = |column: &[f64]| by_time.iter().map(|at| column[*at]).collect();
        self.columns = self.columns.iter().map(|column| sorted(column)).collect();
        self.kernels = by_time.iter().map(|at| self.kernels[*at]).collect();
        self.gpus = by_time.iter().map(|at| self.gpus[*at]).collect();
        self.runs = by_time.iter().map(|at| self.runs[*at]).collect();
    }
}
