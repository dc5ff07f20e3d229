//! The bars of a terminal: one for the whole run, a line for each slot.
//!
//! Invariant: no line is wider than the terminal, so that a redraw never leaves the rest of an old one behind.

use super::super::width::{shorten, width};
use crate::escape::escape;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Redraws a second.
const HZ: u8 = 20;
/// Lines for workers; more would not fit a screen.
const MAX_LINES: usize = 16;
/// Columns of a slot's line besides the id: margins, label and time.
const SLOT_COLUMNS: usize = 17;
/// Columns where nobody can tell.
const USUAL_COLUMNS: usize = 80;
/// Columns of the elapsed time with its brackets and blank.
const ELAPSED: usize = 11;

pub(super) struct Bars {
    all: MultiProgress,
    total: ProgressBar,
    slots: Vec<SlotLine>,
    columns: usize,
    /// What stands behind the counter, the most important first, with the place where each is shown.
    parts: Vec<Part>,
}

/// The line of a slot.
struct SlotLine {
    bar: ProgressBar,
    id: String,
}

/// A part of the total's message.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) text: String,
    /// As it is painted, in columns of `text`.
    pub(super) painted: String,
    /// Where it stands among the others.
    pub(super) place: usize,
}

impl Bars {
    pub(super) fn new(total: usize, labels: &[String]) -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(HZ));
        let columns = columns();
        let bar = all.add(ProgressBar::new(total as u64));
        bar.set_style(style(&total_template(columns)));
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
        Self { all, total: bar, slots, columns, parts: Vec::new() }
    }

    /// A line above the bars.
    pub(super) fn println(&self, line: &str) {
        let _ = self.all.println(line);
    }

    pub(super) fn show(&mut self, slot: usize, what: &str) {
        let columns = self.columns;
        if let Some(line) = self.slots.get_mut(slot) {
            line.id = escape(what, "").into_owned();
            line.bar.set_message(shorten(&line.id, columns.saturating_sub(SLOT_COLUMNS)));
            line.bar.reset_elapsed();
        }
    }

    /// How far the run is; `parts` are the most important first, and those that do not fit are left out.
    pub(super) fn at(&mut self, done: usize, parts: Vec<Part>) {
        self.total.set_position(done as u64);
        self.parts = parts;
        self.message();
    }

    fn message(&self) {
        let count = |n: Option<u64>| n.unwrap_or(0).to_string().len();
        let counter = count(self.total.length()) + count(Some(self.total.position())) + 2;
        let used = if self.columns < 40 { counter } else { ELAPSED + bar_columns(self.columns) + counter };
        self.total.set_message(fitting(&self.parts, self.columns.saturating_sub(used)));
    }

    /// Fits the lines to a terminal that changed its size.
    pub(super) fn fit(&mut self) {
        let now = columns();
        if now == self.columns {
            return;
        }
        self.columns = now;
        self.total.set_style(style(&total_template(now)));
        self.message();
        for line in &self.slots {
            line.bar.set_message(shorten(&line.id, now.saturating_sub(SLOT_COLUMNS)));
        }
    }

    pub(super) fn close(&self) {
        self.slots.iter().for_each(|line| line.bar.finish_and_clear());
        self.total.finish_and_clear();
    }
}

/// The parts that fit, in their places.
fn fitting(parts: &[Part], room: usize) -> String {
    let (mut taken, mut used): (Vec<&Part>, usize) = (Vec::new(), 0);
    for part in parts.iter().filter(|part| !part.text.is_empty()) {
        let columns = width(&part.text) + usize::from(!taken.is_empty());
        if used + columns <= room {
            used += columns;
            taken.push(part);
        }
    }
    taken.sort_by_key(|part| part.place);
    taken.iter().map(|part| part.painted.as_str()).collect::<Vec<_>>().join(" ")
}

/// Columns of the bar with a blank: a third of a wide terminal, none on a narrow one.
fn bar_columns(columns: usize) -> usize {
    match columns {
        0..=79 => 0,
        80..=119 => 21,
        wide => wide / 3 + 1,
    }
}

/// The total's line, with less of it on a narrow terminal.
fn total_template(columns: usize) -> String {
    match (columns, bar_columns(columns)) {
        (0..=39, _) => "{pos}/{len} {msg}".into(),
        (_, 0) => "[{elapsed_precise}] {pos}/{len} {msg}".into(),
        (_, bar) => format!("[{{elapsed_precise}}] {{bar:{}}} {{pos}}/{{len}} {{msg}}", bar - 1),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Columns of the terminal that the bars are drawn on.
pub(super) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_most_is_shown_where_not_all_fits() {
        let part = |text: &str, place| Part { text: text.into(), painted: text.into(), place };
        let parts = [part("2 failed", 1), part("", 2), part("12 s left", 3), part("4123 passed", 0)];
        assert_eq!(fitting(&parts, 80), "4123 passed 2 failed 12 s left");
        assert_eq!(fitting(&parts, 20), "2 failed 12 s left");
        assert_eq!(fitting(&parts, 9), "2 failed");
        assert_eq!(fitting(&parts, 3), "");
    }
}
