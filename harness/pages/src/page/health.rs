//! The first page: the last runs, what changed, what fails, what never ran.

use super::devices::drift;
use super::parts::{case_link, changes, counted, duration, gates, is_fine, outcome, run_link};
use super::plots::{labels, plain_plot};
use super::shell::{At, shell};
use crate::history::Run;
use crate::site::{Found, Grade, Site, Watched};
use maud::{Markup, html};

/// Rows of each list; the rest is counted.
const ROWS: usize = 25;
/// Runs that are listed in any case.
const LAST: usize = 8;
/// Runs back from the last in which a change counts as recent.
const RECENT: usize = 7;

pub(crate) fn health(site: &Site) -> String {
    let body = html! {
        h1 { "Health" }
        @if site.devices.is_empty() {
            p.empty { "Nothing is recorded yet. " code { "cargo run -p harness" } " runs every case; then make these pages again." }
        }
        @for watched in &site.devices { (device(site, watched)) }
    };
    shell(site, At::Top, "index.html", "Health", &body)
}

fn device(site: &Site, watched: &Watched) -> Markup {
    let failing: Vec<u32> = watched
        .device
        .cases
        .iter()
        .filter(|(_, case)| case.outcome().is_some_and(|word| !is_fine(word)))
        .map(|(case, _)| *case)
        .collect();
    let never = site.never_ran(watched);
    html! {
        section {
            h2 { (watched.device.shown()) }
            @for note in &watched.device.notes { p.note { (note) } }
            (tiles(site, watched, failing.len(), never.len()))
            (recent_changes(site, watched))
            (recent_gates(site, watched))
            div.cols {
                div { (last_runs(watched)) }
                div { (failing_now(site, watched, &failing)) }
                div { (recent_verdicts(site, watched)) }
            }
            div.multiples { (drift(watched)) (troubles(watched)) }
            (never_ran(site, &never))
        }
    }
}

fn tiles(site: &Site, watched: &Watched, failing: usize, never: usize) -> Markup {
    let cases = watched.device.cases.len();
    let level = |worse: bool| {
        recent(watched)
            .into_iter()
            .filter(|(_, found)| found.grade != Grade::New && found.worse == worse && !found.is_machine())
            .count()
    };
    let (worse, better) = (level(true), level(false));
    let known = watched.device.cases.keys().filter(|case| site.fact(**case).is_some()).count();
    html! {
        div.tiles {
            div.tile { span.name { "Cases" } span.value.num { (cases) }
                span.under { @if known < cases { (cases - known) " of them have no file now" } @else { "with a record here" } } }
            div.tile { span.name { "Not passing" } span class={ "value num " (if failing > 0 { "bad" } else { "good" }) } { (failing) } span.under { "in their last run" } }
            div.tile { span.name { "Worse" } span class={ "value num " (if worse > 0 { "bad" } else { "good" }) } { (worse) } span.under { "changes in the last " (RECENT) " measured runs" } }
            div.tile { span.name { "Better" } span.value.num { (better) } span.under { "changes in them" } }
            div.tile { span.name { "Never ran" } span.value.num { (never) } span.under { "of the cases there are now" } }
        }
    }
}

/// The last runs, and before them the last of each other command.
fn last_runs(watched: &Watched) -> Markup {
    let runs = &watched.device.runs;
    let mut rows: Vec<usize> = (runs.len().saturating_sub(LAST)..runs.len()).collect();
    for at in (0..runs.len()).rev() {
        if !rows.iter().any(|row| runs[*row].kind() == runs[at].kind()) {
            rows.push(at);
        }
    }
    rows.sort_unstable_by(|a, b| b.cmp(a));
    // Columns of which nothing is known of any of them are left out.
    let any = |known: fn(&Run) -> bool| rows.iter().any(|at| known(&runs[*at]));
    let (counts, took, on) =
        (any(|run| !run.counts.is_empty()), any(|run| run.elapsed_ns.is_some()), any(|run| !run.gpus.is_empty()));
    html! {
        h3 { "Last runs" }
        div.scroll { table {
            thead { tr { th { "Run" } th { "Command" } th.mid { "Commit" } th.right { "New verdicts" } th.right.mid { "Measured" }
                @if counts { th.wide { "Came to" } } @if took { th.wide { "Took" } } @if on { th.wide { "GPUs" } }
            } }
            tbody { @for at in rows {
                @let run = &runs[at];
                tr {
                    td { (run_link(At::Top, run)) }
                    td { (run.kind()) }
                    td.mid.mono { (run.short_commit()) }
                    td.right.num { (watched.turns.get(&(at as u32)).map_or(0, Vec::len)) }
                    td.right.num.mid { (watched.measured_cases(at as u32)) }
                    @if counts { td.wide { (came_to(run)) } }
                    @if took { td.wide.num { @if let Some(ns) = run.elapsed_ns { (duration(ns)) } @else { "–" } } }
                    @if on { td.wide.mono { (gpus(run)) } }
                }
            } }
        } }
    }
}

/// Counts of a run's verdicts, where its header is here.
pub(crate) fn came_to(run: &Run) -> Markup {
    html! {
        @if run.counts.is_empty() { span.dim { "–" } }
        @for (verdict, count) in &run.counts { span class={ "tag " (super::parts::tone(verdict)) } { span.num { (count) } " " (verdict) } " " }
        @if run.status == "aborted" { span.tag.warn { "stopped" } }
    }
}

/// The beginnings of UUIDs: enough to tell GPUs apart.
pub(crate) fn gpus(run: &Run) -> String {
    let short: Vec<String> = run.gpus.split_whitespace().map(|uuid| uuid.chars().take(12).collect()).collect();
    if short.is_empty() { "–".into() } else { short.join(" ") }
}

/// The first of the last runs that measured, or of the last runs where none did.
fn recent_from(watched: &Watched) -> u32 {
    let measured = watched.measured();
    match measured.len() {
        0 => watched.device.runs.len().saturating_sub(RECENT) as u32,
        count => measured[count.saturating_sub(RECENT)],
    }
}

/// Changes told in the last runs.
fn recent(watched: &Watched) -> Vec<(u32, &Found)> {
    let from = recent_from(watched);
    let all = watched.changes.iter().flat_map(|(case, found)| found.iter().map(|found| (*case, found)));
    let mut all: Vec<(u32, &Found)> = all.filter(|(_, found)| found.told >= from).collect();
    let weight = |found: &Found| (found.worse, found.grade != Grade::New, found.ratio().abs());
    all.sort_by(|a, b| {
        let ((worse_a, sure_a, by_a), (worse_b, sure_b, by_b)) = (weight(a.1), weight(b.1));
        (sure_b, worse_b).cmp(&(sure_a, worse_a)).then(by_b.total_cmp(&by_a)).then(a.0.cmp(&b.0))
    });
    all
}

fn recent_changes(site: &Site, watched: &Watched) -> Markup {
    let all = recent(watched);
    let (new, sure): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, found)| found.grade == Grade::New);
    let (machine, sure): (Vec<_>, Vec<_>) = sure.into_iter().partition(|(_, found)| found.is_machine());
    let rows = |list: &[(u32, &'_ Found)]| -> Markup {
        let rows: Vec<_> = list.iter().take(ROWS).map(|(case, found)| (Some(*case), *found)).collect();
        html! {
            (changes(site, At::Top, watched, &rows))
            @if list.len() > ROWS { p.dim { "and " (counted(list.len() - ROWS, "smaller one")) } }
        }
    };
    html! {
        h3 { "What changed" span.dim { " told in the last " (RECENT) " measured runs" } }
        @if sure.is_empty() { p.empty { "No figure left its level with other code." } } @else { (rows(&sure)) }
        @if !machine.is_empty() {
            details open[sure.is_empty()] { summary { (counted(machine.len(), "change")) " under the same kernel text" span.dim { " the machine’s, not the compiler’s" } }
                (rows(&machine)) }
        }
        @if !new.is_empty() {
            details { summary { (counted(new.len(), "change")) " too new to be sure of" span.dim { " confirmed or withdrawn within " (crate::SURE) " nights" } }
                (rows(&new)) }
        }
    }
}

/// What gates found in the last runs that measured.
fn recent_gates(site: &Site, watched: &Watched) -> Markup {
    let from = recent_from(watched);
    let rows: Vec<_> = watched.device.gates.iter().rev().filter(|gate| gate.run >= from).take(ROWS).collect();
    html! { @if !rows.is_empty() {
        h3 { "What gates found" span.dim { " of times in the last " (RECENT) " measured runs" } }
        (gates(site, At::Top, watched, &rows))
    } }
}

fn recent_verdicts(site: &Site, watched: &Watched) -> Markup {
    let last = watched.device.runs.len().saturating_sub(RECENT) as u32;
    let turns = watched.device.cases.iter().flat_map(|(case, history)| history.turns.iter().map(|turn| (*case, turn)));
    let mut turns: Vec<_> = turns.filter(|(_, turn)| turn.run >= last && !turn.before.is_empty()).collect();
    turns.sort_by_key(|(case, turn)| (std::cmp::Reverse(turn.run), is_fine(&turn.outcome), *case));
    html! {
        @if !turns.is_empty() {
            h3 { "Other verdicts" span.dim { " in the last " (RECENT) " runs" } }
            div.scroll { table {
                thead { tr { th { "Case" } th { "From" } th { "To" } th { "Run" } th.mid { "Commit" } } }
                tbody { @for (case, turn) in turns.iter().take(ROWS) { tr {
                    td.long { (case_link(site, At::Top, *case)) }
                    td { (outcome(&turn.before)) } td { (outcome(&turn.outcome)) }
                    td { (run_link(At::Top, watched.run(turn.run))) } td.mid.mono { (watched.run(turn.run).short_commit()) }
                } } }
            } }
            @if turns.len() > ROWS { p.dim { "and " (turns.len() - ROWS) " more" } }
        }
    }
}

fn failing_now(site: &Site, watched: &Watched, failing: &[u32]) -> Markup {
    let since = |case: &u32| watched.device.cases[case].turns.last().map(|turn| turn.run);
    let detail = |case: &u32| site.given.failures.iter().rev().find(|failed| failed.case == site.names.name(*case));
    let any = failing.iter().any(|case| detail(case).is_some());
    html! {
        @if !failing.is_empty() {
            h3 { "Not passing" }
            div.scroll { table {
                thead { tr { th { "Case" } th { "Outcome" } th { "Since" } @if any { th.wide { "Why" } } } }
                tbody { @for case in failing.iter().take(4 * ROWS) { tr {
                    td.long { (case_link(site, At::Top, *case)) }
                    td { (outcome(watched.device.cases[case].outcome().unwrap_or_default())) }
                    td { @if let Some(run) = since(case) { (run_link(At::Top, watched.run(run))) } }
                    @if any { td.wide.long { @if let Some(failed) = detail(case) { (failed.detail.lines().next().unwrap_or_default()) } } }
                } } }
            } }
            @if failing.len() > 4 * ROWS { p.dim { "and " (failing.len() - 4 * ROWS) " more" } }
        }
    }
}

/// How many cases were not passing after each run.
fn troubles(watched: &Watched) -> Markup {
    let runs = watched.device.runs.len();
    let mut steps = vec![0i64; runs];
    for case in watched.device.cases.values() {
        let mut bad = false;
        for turn in &case.turns {
            let now = !is_fine(&turn.outcome);
            steps[turn.run as usize] += i64::from(now) - i64::from(bad);
            bad = now;
        }
    }
    let sum = steps.iter().scan(0i64, |sum, step| {
        *sum += step;
        Some(*sum as f64)
    });
    let values: Vec<f64> = sum.collect();
    let axis: Vec<u32> = (0..runs as u32).collect();
    html! { @if runs > 1 { (plain_plot("Cases that do not pass", "after each run, of all commands", &labels(watched, &axis), &values, None)) } }
}

fn never_ran(site: &Site, never: &[u32]) -> Markup {
    html! {
        @if !never.is_empty() {
            details {
                summary { (counted(never.len(), "case")) " never ran here" span.dim { " or has other sizes than when it did" } }
                ul.cases { @for case in never.iter().take(2000) { li { (case_link(site, At::Top, *case)) } } }
                @if never.len() > 2000 { p.dim { "and " (never.len() - 2000) " more" } }
            }
        }
    }
}
