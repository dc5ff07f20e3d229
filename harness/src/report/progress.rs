//! Progress: one total bar and a line for each worker on a terminal, plain lines
//! elsewhere. Workers never draw; everything goes through here.

use crate::dispatch::{CaseResult, Conclusion};
use crate::verdict::Verdict;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Bars on a terminal, plain lines elsewhere.
    #[default]
    Auto,
    /// As `Auto`.
    Bar,
    Plain,
}

/// Redraws a second.
const HZ: u8 = 20;
/// Lines for workers; more would not fit a screen.
const MAX_LINES: usize = 16;

/// The view of a run.
pub(crate) struct Progress {
    bars: Option<Bars>,
    total: usize,
    done: usize,
    failed: usize,
    labels: Vec<String>,
    plain_last: Instant,
}

struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    slots: Vec<ProgressBar>,
}

impl Progress {
    pub(crate) fn new(format: Format, total: usize, labels: Vec<String>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        // Bars that nobody can see would hide the run.
        let wanted = format != Format::Plain && terminal;
        let bars = wanted.then(|| Bars::new(total, &labels));
        Self { bars, total, done: 0, failed: 0, labels, plain_last: Instant::now() }
    }

    /// A line above the bars, or a plain one.
    pub(crate) fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => drop(bars.all.println(line)),
            None => drop(writeln!(std::io::stdout().lock(), "{line}")),
        }
    }

    pub(crate) fn started(&self, slot: usize, id: &str) {
        if let Some(bar) = self.bars.as_ref().and_then(|bars| bars.slots.get(slot)) {
            bar.set_message(id.to_string());
            bar.reset_elapsed();
        }
    }

    pub(crate) fn idle(&self, slot: usize, what: &str) {
        if let Some(bar) = self.bars.as_ref().and_then(|bars| bars.slots.get(slot)) {
            bar.set_message(what.to_string());
        }
    }

    /// An attempt has ended; only one that is to be followed by another is told.
    pub(crate) fn attempted(&mut self, result: &CaseResult) {
        let outcome = &result.outcome;
        if result.attempt + result.repeat > 0 && self.bars.is_none() {
            let verdict = outcome.verdict.name();
            let n = result.attempt + result.repeat + 1;
            let _ = writeln!(std::io::stdout().lock(), "    try {n} of {}: {verdict}", result.case.id);
        }
    }

    /// The verdict on a case is known.
    pub(crate) fn concluded(&mut self, conclusion: &Conclusion) {
        self.done += 1;
        let (verdict, result) = (conclusion.verdict, &conclusion.result);
        self.failed += usize::from(verdict.is_failure());
        let name = verdict.name().to_uppercase();
        let seconds = result.dur_ns as f64 / 1e9;
        let id = &conclusion.case.id;
        let shown = verdict.is_failure() || matches!(verdict, Verdict::Flaky | Verdict::Quarantined);
        match &self.bars {
            Some(bars) => {
                bars.total.set_position(self.done as u64);
                bars.total.set_message(if self.failed > 0 { format!("{} failed", self.failed) } else { String::new() });
                if shown {
                    let _ = bars.all.println(format!("{name:5} {id}  ({})", result.outcome.outcome));
                }
            }
            None => {
                let width = self.total.to_string().len();
                let label = self.labels.get(result.slot).map_or("", String::as_str);
                let why =
                    if verdict == Verdict::Pass { String::new() } else { format!("  ({})", result.outcome.outcome) };
                let _ = writeln!(
                    std::io::stdout().lock(),
                    "[{:width$}/{}] {name:5} {seconds:6.2}s {label:5} {id}{why}",
                    self.done,
                    self.total
                );
                self.plain_last = Instant::now();
            }
        }
    }

    /// Called every now and then; says on a silent log that the run lives.
    pub(crate) fn tick(&mut self) {
        if self.bars.is_none() && self.plain_last.elapsed() > Duration::from_secs(30) {
            self.plain_last = Instant::now();
            let _ = writeln!(std::io::stdout().lock(), "... {} of {} done", self.done, self.total);
        }
    }

    pub(crate) fn close(&self) {
        if let Some(bars) = &self.bars {
            bars.slots.iter().for_each(ProgressBar::finish_and_clear);
            bars.total.finish_and_clear();
        }
    }
}

impl Bars {
    fn new(total: usize, labels: &[String]) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(HZ));
        let style =
            |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = all.add(ProgressBar::new(total as u64));
        bar.set_style(style("[{elapsed_precise}] {bar:40} {pos}/{len} {per_sec:.0} eta {eta} {msg}"));
        bar.enable_steady_tick(Duration::from_millis(200));
        let slots = labels.iter().take(MAX_LINES).map(|label| {
            let line = all.add(ProgressBar::new_spinner());
            line.set_style(style("  {prefix:6} {elapsed:>4} {wide_msg}"));
            line.set_prefix(label.clone());
            line.set_message("starting");
            line.enable_steady_tick(Duration::from_millis(200));
            line
        });
        let slots = slots.collect();
        Self { all, total: bar, slots }
    }
}
