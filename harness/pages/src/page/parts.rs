//! Pieces that several pages have: links, outcomes, tables of changes.

use super::shell::At;
use crate::history::{Gate, Run};
use crate::page::run_page;
use crate::site::{Found, Grade, Site, Watched};
use maud::{Markup, html};

/// A link to a case; its id may break where words end.
pub(crate) fn case_link(site: &Site, at: At, case: u32) -> Markup {
    html! { a.id href={ (at.up()) (site.case_page(case)) } { (breakable(site.names.name(case))) } }
}

/// Marks places where a long id may go on in the next line.
pub(crate) fn breakable(id: &str) -> Markup {
    let mut parts = Vec::new();
    let mut rest = id;
    while let Some(at) = rest.find(['/', ',', '.']) {
        let (head, tail) = rest.split_at(at + 1);
        parts.push(head);
        rest = tail;
    }
    html! { @for part in parts { (part) wbr; } (rest) }
}

/// A link to a run, by its time.
pub(crate) fn run_link(at: At, run: &Run) -> Markup {
    html! { a.num href={ (at.up()) (run_page(&run.id)) } { (run.when()) } }
}

/// The colour of an outcome.
pub(crate) fn tone(outcome: &str) -> &'static str {
    match outcome.split('.').next().unwrap_or_default() {
        "pass" => "good",
        "skip" | "quarantined" | "not_run" | "" => "dim",
        "flaky" | "infra" => "warn",
        _ => "bad",
    }
}

/// An outcome as a word with a colour.
pub(crate) fn outcome(word: &str) -> Markup {
    let shown = if word.is_empty() { "never ran" } else { word };
    html! { span class={ "tag " (tone(word)) } { (shown) } }
}

pub(crate) fn is_fine(word: &str) -> bool {
    matches!(tone(word), "good" | "dim")
}

/// A change as coloured words.
pub(crate) fn size(found: &Found) -> Markup {
    let tone = match (found.worse, found.grade) {
        _ if found.is_machine() => "dim",
        (true, Grade::New) => "warn",
        (true, _) => "bad",
        (false, _) => "good",
    };
    html! { span class={ "num " (tone) } { (found.size()) } }
}

/// Changes as a table, with their cases where those are not one.
pub(crate) fn changes(site: &Site, at: At, watched: &Watched, rows: &[(Option<u32>, &Found)]) -> Markup {
    let cases = rows.iter().any(|(case, _)| case.is_some());
    html! {
        div.scroll { table {
            thead { tr {
                @if cases { th { "Case" } }
                th { "Figure" } th.right { "Change" } th.right.wide { "Before" } th.right.wide { "After" }
                th { "Since" } th.mid { "Commits" } th.mid { "With it" } th.wide { "Sure" }
            } }
            tbody { @for (case, found) in rows {
                tr {
                    @if let Some(case) = case { td.long { (case_link(site, at, *case)) } }
                    td { (found.name()) }
                    td.right { (size(found)) }
                    td.right.num.wide { (found.text(found.before)) }
                    td.right.num.wide { (found.text(found.after)) }
                    td { (run_link(at, watched.run(found.run))) }
                    td.mid.mono { (commits(found)) }
                    td.mid { (found.cause.text()) }
                    td.wide { (sure(watched, found)) }
                }
            } }
        } }
    }
}

fn commits(found: &Found) -> Markup {
    let (before, after) = &found.cause.commits;
    html! { @if before == after { (after) } @else { (before) wbr; "…" (after) } }
}

/// How sure a change is, and when it was told.
fn sure(watched: &Watched, found: &Found) -> Markup {
    let later = watched.run(found.told).when();
    html! {
        (found.grade.word())
        @if found.score.is_finite() { ", " span.num { (format!("{:.1}", found.score.abs())) "\u{202f}σ" } }
        @if found.told != found.run { ", told " span.num { (later) } }
    }
}

/// `1 case`, `3 cases`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Nanoseconds, seconds or minutes.
pub(crate) fn duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if seconds < 1.0 => format!("{:.0}\u{202f}ms", seconds * 1e3),
        _ if seconds < 120.0 => format!("{seconds:.1}\u{202f}s"),
        _ => format!("{:.0}\u{202f}min", seconds / 60.0),
    }
}

/// What a gate found of times, with what was accepted and why.
pub(crate) fn gates(site: &Site, at: At, watched: &Watched, rows: &[&Gate]) -> Markup {
    html! {
        div.scroll { table {
            thead { tr { th { "Case" } th { "Found" } th.right { "Time" } th { "Run" } th.mid { "By" } th.wide { "Accepted because" } } }
            tbody { @for gate in rows { tr {
                td.long { @match gate.case { Some(case) => (case_link(site, at, case)), None => "all cases together" } }
                td { span class={ "tag " (if gate.finding == "slower" { "bad" } else { "dim" }) } { (gate.finding) } }
                td.right.num { @if gate.ratio.is_finite() { (crate::plot::percent(gate.ratio - 1.0)) } }
                td { (run_link(at, watched.run(gate.run))) }
                td.mid { (gate.by) }
                td.wide.long { (gate.reason) }
            } } }
        } }
    }
}
