//! A comparison for people: in columns of a terminal, or as Markdown.

use super::super::markdown::code;
use super::super::width::shorten;
use super::super::{Column, table};
use super::{CounterChange, RunComparison, Side};
use crate::escape::escape;
use std::fmt::Write;

/// Rows of one kind that are printed; the JSON form has all.
const ROWS: usize = 100;
/// Characters of a commit.
const COMMIT: usize = 9;
/// A change of the whole run's time below this is not worth a word of warning.
const PACE: f64 = 1.25;

const COUNTERS: [Column; 5] = [
    Column::new("  case").shortens(),
    Column::new("counter"),
    Column::new("before").right(),
    Column::new("after").right(),
    Column::new("change").right(),
];

impl Side {
    /// The command, device and sources in a line.
    fn words(&self) -> String {
        let commit: String = self.commit.chars().take(COMMIT).collect();
        let changes = if self.dirty { " with local changes" } else { "" };
        let parts = [
            Some(self.command.clone()),
            self.device.clone(),
            self.driver.as_ref().map(|driver| format!("driver {driver}")),
            Some(format!("commit {commit}{changes}")).filter(|_| !commit.is_empty()),
            self.started_utc.clone(),
            Some(self.options.join(" ")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        escape(&parts.join(", "), "").into_owned()
    }
}

impl RunComparison {
    /// What has to be known of the two runs before their differences are read.
    fn notes(&self) -> Vec<String> {
        let [before, after] = &self.sides;
        let mut notes = Vec::new();
        if !self.comparable {
            let name = |side: &Side| escape(side.device.as_deref().unwrap_or("an unknown device"), "").into_owned();
            let [a, b] = [name(before), name(after)];
            notes.push(format!("the runs are of {a} and {b}: only outcomes are compared, no times and no counters"));
        }
        if before.command != after.command {
            let [a, b] = [before, after].map(|side| escape(&side.command, "").into_owned());
            notes.push(format!("one is a `{a}` and the other a `{b}`, which may select other cases"));
        }
        notes
    }

    /// How the whole run's time changed, which no single case tells.
    fn pace_text(&self) -> Option<String> {
        if let Some(all) = self.together.filter(|all| all.is_slower) {
            let percent = (all.ratio - 1.0) * 100.0;
            return Some(format!("all kernels together: {percent:+.1} % time, slower as a whole (p = {:.1e})", all.p));
        }
        let pace = self.pace?;
        let percent = (pace - 1.0) * 100.0;
        Some(match !(1.0 / PACE..=PACE).contains(&pace) {
            true => format!("all cases together: {percent:+.0} % time: the machine or everything that ran"),
            false => format!("all cases together: {percent:+.0} % time; only what stands out from that is told"),
        })
    }

    /// For a terminal of so many columns.
    pub(crate) fn plain(&self, columns: usize) -> String {
        let mut text = String::new();
        for (name, side) in ["before", "after "].into_iter().zip(&self.sides) {
            let _ = writeln!(text, "{name} {} ({} cases)", side.run, side.cases);
            let _ = writeln!(text, "       {}", shorten(&side.words(), columns.saturating_sub(7)));
        }
        for note in self.notes() {
            let _ = writeln!(text, "note: {note}");
        }
        for (title, changes) in self.lists().iter().filter(|(_, changes)| !changes.is_empty()) {
            let _ = writeln!(text, "\n{title}: {}", changes.len());
            for row in changes.iter().take(ROWS) {
                let arrow = match (row.before.is_empty(), row.after.is_empty()) {
                    (false, false) => format!("{} -> {}", row.before, row.after),
                    _ => format!("{}{}", row.before, row.after),
                };
                let arrow = shorten(&escape(&arrow, ""), columns / 2);
                let room = columns.saturating_sub(4 + arrow.len()).max(16);
                let _ = writeln!(text, "  {}  {arrow}", shorten(&escape(&row.id, ""), room));
            }
            text.push_str(&more(changes.len(), "  "));
        }
        if !self.counters.is_empty() {
            let _ = writeln!(text, "\n{}", self.counters_title());
            let rows = self.shown_counters().into_iter().map(|change| {
                let CounterChange { id, counter, before, after } = change;
                let id = format!("  {}", escape(id, ""));
                vec![id, escape(counter, "").into_owned(), before.to_string(), after.to_string(), percent(change)]
            });
            text.push_str(&table(&COUNTERS, &rows.collect::<Vec<_>>(), columns));
            text.push_str(&more(self.counters.len(), "  "));
        }
        if self.is_same() {
            text.push_str("\nno differences\n");
        }
        if let Some(pace) = self.pace_text() {
            let _ = writeln!(text, "\n{pace}");
        }
        text
    }

    /// Those that got worse first.
    fn shown_counters(&self) -> Vec<&CounterChange> {
        let mut all: Vec<&CounterChange> = self.counters.iter().collect();
        all.sort_by_key(|change| !change.is_dearer());
        all.truncate(ROWS);
        all
    }

    fn counters_title(&self) -> String {
        let dearer = self.counters.iter().filter(|change| change.is_dearer()).count();
        format!("other counters: {}, of which {dearer} of costs that rose", self.counters.len())
    }

    /// As Markdown.
    pub(crate) fn markdown(&self) -> String {
        let [before, after] = &self.sides;
        let mut text = format!("## {} and {}\n\n", code(&before.run), code(&after.run));
        for (name, side) in ["before", "after"].into_iter().zip(&self.sides) {
            let _ = writeln!(text, "* {name}: {} cases, {}", side.cases, code(&side.words()));
        }
        for note in self.notes() {
            let _ = writeln!(text, "* note: {note}");
        }
        text.push('\n');
        for (title, changes) in self.lists().iter().filter(|(_, changes)| !changes.is_empty()) {
            let _ = writeln!(text, "### {title}: {}\n\n| case | before | after |\n| --- | --- | --- |", changes.len());
            for row in changes.iter().take(ROWS) {
                let cell = |text: &str| if text.is_empty() { String::new() } else { code(text) };
                let _ = writeln!(text, "| {} | {} | {} |", code(&row.id), cell(&row.before), cell(&row.after));
            }
            text.push_str(&more(changes.len(), "\n"));
            text.push('\n');
        }
        if !self.counters.is_empty() {
            let _ = writeln!(text, "### {}\n\n| case | counter | before | after | change |", self.counters_title());
            text.push_str("| --- | --- | ---: | ---: | ---: |\n");
            for change in self.shown_counters() {
                let CounterChange { id, counter, before, after } = change;
                let counter = escape(counter, "");
                let _ = writeln!(text, "| {} | {counter} | {before} | {after} | {} |", code(id), percent(change));
            }
            text.push_str(&more(self.counters.len(), "\n"));
            text.push('\n');
        }
        if self.is_same() {
            text.push_str("No differences.\n");
        }
        if let Some(pace) = self.pace_text() {
            let _ = writeln!(text, "{pace}");
        }
        text
    }
}

fn percent(change: &CounterChange) -> String {
    change.percent().map_or_else(|| "from 0".into(), |percent| format!("{percent:+.1} %"))
}

/// That a list is longer than what is shown.
fn more(rows: usize, margin: &str) -> String {
    match rows.checked_sub(ROWS).filter(|more| *more > 0) {
        Some(more) => format!("{margin}and {more} more, which `--format json` has\n"),
        None => String::new(),
    }
}
