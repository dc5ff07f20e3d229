//! The list of runs, and the page of each: what it was, and what changed since the run before.

use super::health::{came_to, gpus};
use super::parts::{case_link, changes, counted, duration, gates, is_fine, outcome, run_link};
use super::shell::{At, shell};
use crate::figure;
use crate::history::{Run, Turn};
use crate::site::{Found, Site, Watched};
use crate::slug;
use maud::{Markup, html};

/// Rows of a list.
const ROWS: usize = 40;

/// The page of a run, from the top folder on.
pub(crate) fn run_page(id: &str) -> String {
    format!("run/{}.html", slug::case(id))
}

pub(crate) fn runs(site: &Site) -> String {
    let body = html! {
        h1 { "Runs" }
        @for watched in &site.devices {
            section {
                h2 { (watched.device.shown()) span.dim { " " (counted(watched.device.runs.len(), "run")) } }
                div.scroll { table {
                    thead { tr { th { "Run" } th { "Command" } th { "Commit" } th.right { "Other verdicts" } th.right { "Changes" } th.wide { "Came to" } th.wide { "Took" } th.wide { "GPUs" } th.wide { "Host" } } }
                    tbody { @for (number, run) in watched.device.runs.iter().enumerate().rev() { (line(watched, number as u32, run)) } }
                } }
            }
        }
    };
    shell(site, At::Top, "runs.html", "Runs", &body)
}

fn line(watched: &Watched, number: u32, run: &Run) -> Markup {
    let turns = watched.turns.get(&number).map_or(0, Vec::len);
    let found = watched.at_run(number);
    let worse = found.iter().filter(|(_, found)| found.worse).count();
    html! { tr {
        td { (run_link(At::Top, run)) }
        td { (run.kind()) }
        td.mono { (run.short_commit()) }
        td.right.num { @if turns > 0 { (turns) } }
        td.right.num { @if !found.is_empty() { (found.len()) @if worse > 0 { span.bad { " (" (worse) " worse)" } } } }
        td.wide { (came_to(run)) }
        td.wide.num { @if let Some(ns) = run.elapsed_ns { (duration(ns)) } }
        td.wide.mono { (gpus(run)) }
        td.wide { (run.host) }
    } }
}

pub(crate) fn run(site: &Site, watched: &Watched, number: u32) -> String {
    let run = watched.run(number);
    let title = format!("{} of {}", run.kind(), run.when());
    let before = watched.before(number);
    let body = html! {
        h1 { "Run of " span.num { (run.when()) } " " span.dim { (watched.device.shown()) } }
        (facts(watched, run))
        @if let Some(before) = before {
            p { a href={ "../compare.html?a=" (watched.run(before).id) "&b=" (run.id) } { "Side by side" } " with the one before, of " (run_link(At::Below, watched.run(before))) "." }
        }
        (verdicts(site, watched, number))
        @let gated: Vec<_> = watched.device.gates.iter().filter(|gate| gate.run == number).collect();
        @if !gated.is_empty() { h2 { "What the gate found" } (gates(site, At::Below, watched, &gated)) }
        (levels(site, watched, number))
        @if let Some(before) = before { (steps(site, watched, before, number)) }
        (failures(site, run))
    };
    shell(site, At::Below, "runs.html", &title, &body)
}

fn facts(watched: &Watched, run: &Run) -> Markup {
    let row = |name: &str, value: &str| html! { @if !value.is_empty() { div { dt { (name) } dd { (value) } } } };
    html! {
        dl.facts {
            div { dt { "Name" } dd.mono { (run.id) } }
            (row("Command", run.kind()))
            @if !run.commit.is_empty() { div { dt { "Commit" } dd.mono { (run.commit) @if run.dirty { " with local changes" } } } }
            (row("Host", &run.host)) (row("Driver", &run.driver))
            @if !run.gpus.is_empty() { div { dt { "GPUs" } dd.mono { (run.gpus) } } }
            @if !run.options.is_empty() { div { dt { "Options" } dd.mono { (run.options) } } }
            @if let Some(ns) = run.elapsed_ns { div { dt { "Took" } dd.num { (duration(ns)) } } }
            @if !run.counts.is_empty() { div { dt { "Came to" } dd { (came_to(run)) } } }
            @if run.gpus.is_empty() && !watched.device.is_exact() { div { dt { "GPU" } dd { "not recorded" } } }
        }
    }
}

fn verdicts(site: &Site, watched: &Watched, number: u32) -> Markup {
    let none = Vec::new();
    let turns = watched.turns.get(&number).unwrap_or(&none);
    let of = |case: u32| watched.device.cases[&case].turns.iter().find(|turn| turn.run == number);
    let mut rows: Vec<(u32, &Turn)> = turns.iter().filter_map(|case| Some((*case, of(*case)?))).collect();
    let firsts = rows.iter().filter(|(_, turn)| turn.before.is_empty() && is_fine(&turn.outcome)).count();
    rows.retain(|(_, turn)| !(turn.before.is_empty() && is_fine(&turn.outcome)));
    rows.sort_by_key(|(case, turn)| (is_fine(&turn.outcome), *case));
    html! {
        h2 { "Verdicts" }
        @if firsts > 0 { p { (counted(firsts, "case")) " ran here for the first time, and did not fail." } }
        @if rows.is_empty() { p.empty { "No other case came to another verdict than in the run before." } }
        @else {
            div.scroll { table {
                thead { tr { th { "Case" } th { "From" } th { "To" } } }
                tbody { @for (case, turn) in rows.iter().take(4 * ROWS) { tr {
                    td.long { (case_link(site, At::Below, *case)) }
                    td { @if turn.before.is_empty() { span.dim { "first run" } } @else { (outcome(&turn.before)) } }
                    td { (outcome(&turn.outcome)) }
                } } }
            } }
            @if rows.len() > 4 * ROWS { p.dim { "and " (rows.len() - 4 * ROWS) " more" } }
        }
    }
}

fn levels(site: &Site, watched: &Watched, number: u32) -> Markup {
    let found = watched.at_run(number);
    let rows: Vec<(Option<u32>, &Found)> = found.iter().take(ROWS).map(|(case, found)| (Some(*case), *found)).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "Figures that changed their level here" }
            (changes(site, At::Below, watched, &rows))
            @if found.len() > ROWS { p.dim { "and " (found.len() - ROWS) " smaller ones" } }
        }
    }
}

/// The largest steps of the main figure from one run to the next, whether or not they are beyond noise.
fn steps(site: &Site, watched: &Watched, before: u32, number: u32) -> Markup {
    let column = watched.main();
    let Some(metric) = watched.device.metric(column) else { return html! {} };
    let value = |case: &crate::history::CaseHistory, run: u32| {
        let at = case.runs.binary_search(&run).ok()?;
        Some(case.value(metric, at)).filter(|value| value.is_finite() && *value > 0.0)
    };
    let cases = watched.device.cases.iter();
    let mut rows: Vec<(u32, f64, f64)> =
        cases.filter_map(|(case, history)| Some((*case, value(history, before)?, value(history, number)?))).collect();
    let compared = rows.len();
    rows.retain(|row| row.1 != row.2);
    let apart = |row: &(u32, f64, f64)| (row.2 / row.1).ln().abs();
    rows.sort_by(|a, b| apart(b).total_cmp(&apart(a)).then(a.0.cmp(&b.0)));
    let figure = figure::of(column);
    let name = figure.map_or_else(|| figure::words(column), |figure| figure.name.into());
    let text = |value: f64| figure.map_or_else(|| format!("{value}"), |figure| figure.text(value));
    html! {
        @if compared > 0 {
            h2 { "Largest steps since the run before" span.dim { " " (name) ", of " (counted(compared, "case")) } }
            @if rows.is_empty() { p.empty { "None: all are the same." } } @else {
            div.scroll { table {
                thead { tr { th { "Case" } th.right { "Step" } th.right.mid { "Before" } th.right { "Here" } } }
                tbody { @for (case, a, b) in rows.iter().take(12) { tr {
                    td.long { (case_link(site, At::Below, *case)) }
                    td.right.num { (crate::plot::percent(b / a - 1.0)) }
                    td.right.num.mid { (text(*a)) } td.right.num { (text(*b)) }
                } } }
            } } }
        }
    }
}

fn failures(site: &Site, run: &Run) -> Markup {
    let rows: Vec<_> = site.given.failures.iter().filter(|failed| failed.run == run.id).collect();
    html! {
        @if !rows.is_empty() {
            h2 { "What failed" }
            @for failed in rows.iter().take(ROWS) {
                div.failed {
                    p { @match site.names.find(&failed.case) { Some(case) => (case_link(site, At::Below, case)), None => span.id { (failed.case) } } " " (outcome(&failed.outcome)) }
                    pre { (failed.detail) }
                }
            }
        }
    }
}

impl Watched {
    /// The run before of the same kind.
    fn before(&self, number: u32) -> Option<u32> {
        let kind = self.run(number).kind();
        let measured = |run: u32| self.measured().binary_search(&run).is_ok();
        // Of old runs nobody wrote down what they were: those that measured stand in one line.
        (0..number).rev().find(|run| self.run(*run).kind() == kind && measured(*run) == measured(number))
    }

    /// Changes of level at a run, the largest first.
    fn at_run(&self, number: u32) -> Vec<(u32, &Found)> {
        let of =
            |case: &u32| self.changes.get(case).into_iter().flatten().map(|found| (*case, found)).collect::<Vec<_>>();
        let cases = self.by_run.get(&number).into_iter().flatten();
        let mut all: Vec<(u32, &Found)> = cases.flat_map(of).filter(|(_, found)| found.run == number).collect();
        all.sort_by(|a, b| {
            b.1.worse.cmp(&a.1.worse).then(b.1.ratio().abs().total_cmp(&a.1.ratio().abs())).then(a.0.cmp(&b.0))
        });
        all
    }
}
