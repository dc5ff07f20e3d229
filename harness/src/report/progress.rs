//! Progress: one total bar and a line for each worker on a terminal, plain lines
//! elsewhere. Workers never draw; everything goes through here.
//!
//! Inputs: what happens in a run. Outputs: bars, lines, and on request (SIGUSR1, the key `t`) what each slot is at.
//! Invariants: no line of the bars is wider than the terminal; what cases and workers said is escaped; the
//! screen is drawn at most 20 times a second, and in one piece.

mod bars;
mod left;
mod state;

pub(crate) use left::TimeLeft;
pub(crate) use state::WorkerSeen;

use super::width::{fit, shorten, width};
use crate::escape::escape;
use crate::os::Keys;
use crate::outcome::{CaseResult, Conclusion, Verdict};
use crate::units::show_time;
use bars::{Bars, Part, columns};
use state::SlotState;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// How much is told while cases run. Notes, failures at the end and the last lines always are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Each verdict.
    #[default]
    All,
    /// Verdicts that somebody has to look at.
    Failures,
    /// None: no lines, no bars.
    Quiet,
}

/// How a run is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) format: Format,
    pub(crate) color: Color,
    pub(crate) detail: Detail,
}

/// The view of a run.
pub(crate) struct Progress {
    look: Look,
    bars: Option<Bars>,
    colors: bool,
    total: usize,
    done: usize,
    passed: usize,
    failed: usize,
    flaky: usize,
    slots: Vec<SlotState>,
    labels: Vec<String>,
    left: TimeLeft,
    started: Instant,
    plain_last: Instant,
    drawn: Instant,
    /// Somebody asks what the run is at.
    asked: Arc<AtomicBool>,
    /// Listens for the key that asks, where there is somebody to press it.
    keys: Option<Keys>,
}

/// How often the time left is said anew where nothing else changes.
const REFRESH: Duration = Duration::from_secs(1);

impl Progress {
    /// A view for `total` things, on slots of these names.
    pub(crate) fn new(look: Look, total: usize, labels: Vec<String>, left: TimeLeft) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
        // Bars that nobody can see, or that cannot be drawn over, would hide the run.
        let wanted = matches!(look.format, Format::Auto | Format::Bar) && look.detail != Detail::Quiet;
        let bars = (wanted && std::io::stderr().is_terminal() && !dumb).then(|| Bars::new(total, &labels));
        let seen = if bars.is_some() { true } else { std::io::stdout().is_terminal() };
        let colors = match look.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => seen && !dumb && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let asked = Arc::new(AtomicBool::new(false));
        // Where that fails, nobody can ask; the run goes on.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&asked));
        let keys = bars.as_ref().and_then(|_| {
            let asked = Arc::clone(&asked);
            Keys::listen(move |key| {
                if key == b't' {
                    asked.store(true, Ordering::Relaxed);
                }
            })
        });
        let now = Instant::now();
        Self {
            look,
            bars,
            colors,
            total,
            done: 0,
            passed: 0,
            failed: 0,
            flaky: 0,
            slots: labels.iter().map(|label| SlotState::new(label)).collect(),
            labels,
            left,
            started: now,
            plain_last: now,
            drawn: now,
            asked,
            keys,
        }
    }

    /// A line above the bars, or a plain one.
    pub(crate) fn say(&self, line: &str) {
        let line = escape(line, "");
        match (&self.bars, self.look.format) {
            // A line that is too long goes on in the next one: nothing of it is lost.
            (Some(bars), _) => fit(&line, columns()).lines().for_each(|line| bars.println(line)),
            (None, Format::Jsonl) => drop(writeln!(std::io::stderr().lock(), "{line}")),
            (None, _) => drop(writeln!(std::io::stdout().lock(), "{line}")),
        }
    }

    /// A slot has a new worker.
    pub(crate) fn spawned(&mut self, slot: usize, worker: WorkerSeen) {
        if let Some(state) = self.slots.get_mut(slot) {
            state.spawned(worker);
        }
    }

    pub(crate) fn started(&mut self, slot: usize, id: &str) {
        if let Some(state) = self.slots.get_mut(slot) {
            state.started(id);
        }
        if let Some(bars) = &mut self.bars {
            bars.show(slot, id);
        }
        self.answer();
    }

    pub(crate) fn idle(&mut self, slot: usize, what: &str) {
        if let Some(state) = self.slots.get_mut(slot) {
            state.idle(what);
        }
        if let Some(bars) = &mut self.bars {
            bars.show(slot, what);
        }
    }

    /// The worker of a slot has ended.
    pub(crate) fn ended(&mut self, slot: usize) {
        self.idle(slot, "");
        if let Some(state) = self.slots.get_mut(slot) {
            state.ended();
        }
    }

    /// An attempt has ended; retries are told, not the repeats that learn a rate.
    pub(crate) fn attempted(&mut self, result: &CaseResult) {
        if let Some(slot) = result.slot {
            self.idle(slot, "waiting");
        }
        let outcome = &result.outcome;
        if result.attempt > 0 && result.repeat == 0 && self.lines() && self.look.detail == Detail::All {
            let verdict = outcome.verdict.name();
            let n = result.attempt + 1;
            let id = escape(&result.case.id, "");
            let _ = writeln!(std::io::stdout().lock(), "    try {n} of {id}: {verdict}");
        }
    }

    /// Whether plain lines are printed.
    fn lines(&self) -> bool {
        self.bars.is_none() && self.look.format != Format::Jsonl && self.look.detail != Detail::Quiet
    }

    /// A verdict that was known before.
    pub(crate) fn carried(&mut self, conclusion: &Conclusion) {
        self.count(conclusion);
    }

    fn count(&mut self, conclusion: &Conclusion) {
        let verdict = conclusion.verdict;
        self.done += 1;
        self.passed += usize::from(verdict == Verdict::Pass);
        self.failed += usize::from(verdict.is_failure());
        self.flaky += usize::from(verdict == Verdict::Flaky);
        self.left.conclude(&conclusion.case.id);
        self.draw();
    }

    /// The total's line.
    fn draw(&mut self) {
        self.drawn = Instant::now();
        let part = |text: String, color: Option<u8>, place| {
            let painted = color.map_or(text.clone(), |color| paint(&text, color, self.colors));
            Part { text, painted, place }
        };
        let counted = |count: usize, what: &str| if count > 0 { format!("{count} {what}") } else { String::new() };
        let left = self.left.left(self.started.elapsed()).filter(|_| self.done < self.total);
        let parts = vec![
            part(counted(self.failed, "failed"), Some(RED), 1),
            part(counted(self.flaky, "flaky"), Some(YELLOW), 2),
            part(left.map_or(String::new(), |left| format!("{} left", rough(left))), None, 3),
            part(counted(self.passed, "passed"), None, 0),
        ];
        if let Some(bars) = &mut self.bars {
            bars.at(self.done, parts);
        }
    }

    /// The verdict on a case is known.
    pub(crate) fn concluded(&mut self, conclusion: &Conclusion) {
        let (verdict, result) = (conclusion.verdict, &conclusion.result);
        self.count(conclusion);
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
            None if self.lines() && (shown || self.look.detail == Detail::All && !was_not_reached(conclusion)) => {
                let digits = self.total.to_string().len();
                let label = result.slot.and_then(|slot| self.labels.get(slot)).map_or("", String::as_str);
                let why = if verdict == Verdict::Pass { String::new() } else { format!("  ({outcome})") };
                let time = show_time(result.dur_ns);
                let counter = format!("[{:digits$}/{}]", self.done, self.total);
                let _ = writeln!(std::io::stdout().lock(), "{counter} {name} {time:>8} {label:5} {id}{why}");
                self.plain_last = Instant::now();
            }
            None => {}
        }
        self.answer();
    }

    /// How far it is, where cases do not end one by one.
    pub(crate) fn at(&mut self, done: usize, message: &str) {
        self.done = done;
        let lines = self.lines();
        match &mut self.bars {
            Some(bars) => {
                let text = escape(message, "").into_owned();
                bars.at(done, vec![Part { painted: text.clone(), text, place: 0 }]);
            }
            None if lines && self.plain_last.elapsed() > Duration::from_secs(10) => {
                self.plain_last = Instant::now();
                let _ = writeln!(std::io::stdout().lock(), "... {done} of {} decided, {message}", self.total);
            }
            None => {}
        }
        self.answer();
    }

    /// Called every now and then; says on a silent log that the run lives, and
    /// fits lines to a terminal that changed its size.
    pub(crate) fn tick(&mut self) {
        self.answer();
        if let Some(bars) = &mut self.bars {
            bars.fit();
        } else if self.lines() && self.plain_last.elapsed() > Duration::from_secs(30) {
            self.plain_last = Instant::now();
            let _ = writeln!(std::io::stdout().lock(), "... {}", self.how_far());
        }
        if self.passed + self.failed > 0 && self.drawn.elapsed() > REFRESH {
            self.draw();
        }
    }

    /// `17 of 400 done after 3.1 s, 40 s left`.
    fn how_far(&self) -> String {
        let elapsed = self.started.elapsed();
        let left = self.left.left(elapsed).map_or(String::new(), |left| format!(", about {} left", rough(left)));
        format!("{} of {} done after {}{left}", self.done, self.total, rough(elapsed))
    }

    /// Tells what each slot is at, if somebody has asked.
    fn answer(&self) {
        if !self.asked.swap(false, Ordering::Relaxed) {
            return;
        }
        self.say(&self.how_far());
        self.slots.iter().for_each(|slot| self.say(&slot.text(&self.left)));
    }

    pub(crate) fn close(&mut self) {
        self.keys = None;
        if let Some(bars) = &self.bars {
            bars.close();
        }
    }
}

/// Whether a case was not reached before the run ended. There may be thousands of them, and the summary counts them.
fn was_not_reached(conclusion: &Conclusion) -> bool {
    let outcome = conclusion.result.outcome.outcome.as_str();
    conclusion.failures == 0 && (outcome.starts_with("not_run") || outcome == "skip.deadline")
}

/// A time as it is said of what is to come: `40 s`, `2 m 05 s`.
fn rough(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 60.0 => format!("{s:.0} s"),
        s => format!("{} m {:02} s", (s / 60.0) as u64, (s % 60.0) as u64),
    }
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
