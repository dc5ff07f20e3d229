//! Progress: one total bar and a line for each worker on a terminal, plain lines
//! elsewhere. Workers never draw; everything goes through here.
//!
//! Invariants: no line is wider than the terminal, so that a redraw never leaves
//! the rest of an old one behind; what cases and workers said is escaped; the
//! screen is drawn at most [`HZ`] times a second, and in one piece.

use super::width::{cut, shorten, width};
use crate::escape::escape;
use crate::outcome::{CaseResult, Conclusion, Verdict};
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
    /// Records on standard output and nothing else there.
    Jsonl,
}

/// Whether colours are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Color {
    /// On a terminal that knows them, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// Redraws a second.
const HZ: u8 = 20;
/// Lines for workers; more would not fit a screen.
const MAX_LINES: usize = 16;
/// Columns of a slot's line besides the id: margins, label and time.
const SLOT_COLUMNS: usize = 17;
/// Columns where nobody can tell.
const USUAL_COLUMNS: usize = 80;

/// The view of a run.
pub(crate) struct Progress {
    format: Format,
    bars: Option<Bars>,
    colors: bool,
    total: usize,
    done: usize,
    failed: usize,
    flaky: usize,
    labels: Vec<String>,
    plain_last: Instant,
}

struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    slots: Vec<SlotLine>,
    columns: usize,
}

/// The line of a slot.
struct SlotLine {
    bar: ProgressBar,
    id: String,
}

impl Progress {
    pub(crate) fn new(format: Format, color: Color, total: usize, labels: Vec<String>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        // Bars that nobody can see, or that cannot be drawn over, would hide the run.
        let wanted = matches!(format, Format::Auto | Format::Bar) && std::io::stderr().is_terminal() && !dumb;
        let bars = wanted.then(|| Bars::new(total, &labels));
        let seen = if bars.is_some() { true } else { std::io::stdout().is_terminal() };
        let colors = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => seen && !dumb && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        Self { format, bars, colors, total, done: 0, failed: 0, flaky: 0, labels, plain_last: Instant::now() }
    }

    /// A line above the bars, or a plain one.
    pub(crate) fn say(&self, line: &str) {
        let line = escape(line, "");
        match (&self.bars, self.format) {
            (Some(bars), _) => bars.println(&cut(&line, columns())),
            (None, Format::Jsonl) => drop(writeln!(std::io::stderr().lock(), "{line}")),
            (None, _) => drop(writeln!(std::io::stdout().lock(), "{line}")),
        }
    }

    pub(crate) fn started(&mut self, slot: usize, id: &str) {
        if let Some(bars) = &mut self.bars {
            bars.show(slot, id);
        }
    }

    pub(crate) fn idle(&mut self, slot: usize, what: &str) {
        if let Some(bars) = &mut self.bars {
            bars.show(slot, what);
        }
    }

    /// An attempt has ended; retries are told, not the repeats that learn a rate.
    pub(crate) fn attempted(&mut self, result: &CaseResult) {
        if let Some(slot) = result.slot {
            self.idle(slot, "waiting");
        }
        let outcome = &result.outcome;
        if result.attempt > 0 && result.repeat == 0 && self.lines() {
            let verdict = outcome.verdict.name();
            let n = result.attempt + 1;
            let id = escape(&result.case.id, "");
            let _ = writeln!(std::io::stdout().lock(), "    try {n} of {id}: {verdict}");
        }
    }

    /// Whether plain lines are printed.
    fn lines(&self) -> bool {
        self.bars.is_none() && self.format != Format::Jsonl
    }

    /// A verdict that was known before.
    pub(crate) fn carried(&mut self, conclusion: &Conclusion) {
        self.count(conclusion.verdict);
    }

    fn count(&mut self, verdict: Verdict) {
        self.done += 1;
        self.failed += usize::from(verdict.is_failure());
        self.flaky += usize::from(verdict == Verdict::Flaky);
        if let Some(bars) = &self.bars {
            bars.total.set_position(self.done as u64);
            let mut parts = Vec::new();
            for (count, what, color) in [(self.failed, "failed", RED), (self.flaky, "flaky", YELLOW)] {
                if count > 0 {
                    parts.push(paint(&format!("{count} {what}"), color, self.colors));
                }
            }
            bars.total.set_message(parts.join(" "));
        }
    }

    /// The verdict on a case is known.
    pub(crate) fn concluded(&mut self, conclusion: &Conclusion) {
        let (verdict, result) = (conclusion.verdict, &conclusion.result);
        self.count(verdict);
        let name = paint(&format!("{:5}", verdict.name().to_uppercase()), color(verdict), self.colors);
        let id = escape(&conclusion.case.id, "");
        let outcome = escape(&result.outcome.outcome, "");
        let shown = verdict.is_failure() || matches!(verdict, Verdict::Flaky | Verdict::Quarantined);
        match &self.bars {
            Some(bars) if shown => {
                // The verdict, a space and two before the outcome with its brackets.
                let room = columns().saturating_sub(verdict.name().len().max(5) + 5 + width(&outcome));
                bars.println(&format!("{name} {}  ({outcome})", shorten(&id, room)));
            }
            Some(_) => {}
            None if self.lines() => {
                let digits = self.total.to_string().len();
                let label = result.slot.and_then(|slot| self.labels.get(slot)).map_or("", String::as_str);
                let why = if verdict == Verdict::Pass { String::new() } else { format!("  ({outcome})") };
                let seconds = result.dur_ns as f64 / 1e9;
                let counter = format!("[{:digits$}/{}]", self.done, self.total);
                let _ = writeln!(std::io::stdout().lock(), "{counter} {name} {seconds:6.2}s {label:5} {id}{why}");
                self.plain_last = Instant::now();
            }
            None => {}
        }
    }

    /// How far it is, where cases do not end one by one.
    pub(crate) fn at(&mut self, done: usize, message: &str) {
        self.done = done;
        let lines = self.lines();
        match &self.bars {
            Some(bars) => {
                bars.total.set_position(done as u64);
                bars.total.set_message(escape(message, "").into_owned());
            }
            None if lines && self.plain_last.elapsed() > Duration::from_secs(10) => {
                self.plain_last = Instant::now();
                let _ = writeln!(std::io::stdout().lock(), "... {done} of {} decided, {message}", self.total);
            }
            None => {}
        }
    }

    /// Called every now and then; says on a silent log that the run lives, and
    /// fits lines to a terminal that changed its size.
    pub(crate) fn tick(&mut self) {
        let lines = self.lines();
        match &mut self.bars {
            Some(bars) => bars.fit(),
            None if lines && self.plain_last.elapsed() > Duration::from_secs(30) => {
                self.plain_last = Instant::now();
                let _ = writeln!(std::io::stdout().lock(), "... {} of {} done", self.done, self.total);
            }
            None => {}
        }
    }

    pub(crate) fn close(&self) {
        if let Some(bars) = &self.bars {
            bars.slots.iter().for_each(|line| line.bar.finish_and_clear());
            bars.total.finish_and_clear();
        }
    }
}

impl Bars {
    fn new(total: usize, labels: &[String]) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(HZ));
        let columns = columns();
        let bar = all.add(ProgressBar::new(total as u64));
        bar.set_style(style(total_template(columns)));
        bar.enable_steady_tick(Duration::from_millis(500));
        let slots = labels.iter().take(MAX_LINES).map(|label| {
            let bar = all.add(ProgressBar::new_spinner());
            bar.set_style(style("  {prefix:8} {elapsed:>4} {msg}"));
            bar.set_prefix(shorten(label, 8));
            bar.set_message("starting");
            bar.enable_steady_tick(Duration::from_secs(1));
            SlotLine { bar, id: "starting".into() }
        });
        let slots = slots.collect();
        Self { all, total: bar, slots, columns }
    }

    fn println(&self, line: &str) {
        let _ = self.all.println(line);
    }

    fn show(&mut self, slot: usize, what: &str) {
        let columns = self.columns;
        if let Some(line) = self.slots.get_mut(slot) {
            line.id = escape(what, "").into_owned();
            line.bar.set_message(shorten(&line.id, columns.saturating_sub(SLOT_COLUMNS)));
            line.bar.reset_elapsed();
        }
    }

    fn fit(&mut self) {
        let now = columns();
        if now == self.columns {
            return;
        }
        self.columns = now;
        self.total.set_style(style(total_template(now)));
        for line in &self.slots {
            line.bar.set_message(shorten(&line.id, now.saturating_sub(SLOT_COLUMNS)));
        }
    }
}

/// The total's line, with less of it on a narrow terminal.
fn total_template(columns: usize) -> &'static str {
    match columns {
        0..=39 => "{pos}/{len} {msg}",
        40..=79 => "[{elapsed_precise}] {pos}/{len} {msg}",
        80..=119 => "[{elapsed_precise}] {bar:20} {pos}/{len} eta {eta} {msg}",
        _ => "[{elapsed_precise}] {bar:40} {pos}/{len} eta {eta} {msg}",
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Columns of the terminal that the bars are drawn on.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

const RED: u8 = 31;
const GREEN: u8 = 32;
const YELLOW: u8 = 33;
const MAGENTA: u8 = 35;
const GREY: u8 = 90;

fn color(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Pass => GREEN,
        Verdict::Fail => RED,
        Verdict::Crash | Verdict::Hang | Verdict::Infra => MAGENTA,
        Verdict::Flaky | Verdict::Quarantined => YELLOW,
        Verdict::Skip => GREY,
    }
}

fn paint(text: &str, color: u8, on: bool) -> String {
    if on { format!("\x1b[{color}m{text}\x1b[0m") } else { text.to_string() }
}
