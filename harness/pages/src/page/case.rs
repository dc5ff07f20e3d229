//! The page of one case: what it is, and on each device its series, changes, measurements and verdicts.

use super::files::file_page;
use super::parts::{breakable, changes, gates, outcome, run_link};
use super::plots::figure_plot;
use super::shell::{At, shell};
use crate::figure::{self, FIGURES, PHASES};
use crate::given::CaseFact;
use crate::history::CaseHistory;
use crate::plot::{Size, percent, short};
use crate::site::{Found, Site, Watched};
use maud::{Markup, html};

/// Measurements and changes that a page lists.
const ROWS: usize = 10;
const CHANGES: usize = 20;

pub(crate) fn case(site: &Site, number: u32) -> String {
    let id = site.names.name(number);
    let fact = site.fact(number);
    let body = html! {
        article {
            h1.id { (breakable(id)) }
            (facts(site, id, fact))
            @for watched in &site.devices {
                @if let Some(history) = watched.device.cases.get(&number) {
                    (on_device(site, watched, number, history, fact))
                }
            }
            @if !site.devices.iter().any(|watched| watched.device.cases.contains_key(&number)) {
                p.empty { "Nothing is recorded of this case on any device." }
            }
        }
    };
    shell(site, At::Below, "cases.html", id, &body)
}

/// What the case is, where it stands, and how it is run again.
fn facts(site: &Site, id: &str, fact: Option<&CaseFact>) -> Markup {
    let again = again(site, id, fact);
    html! {
        @match fact {
            Some(fact) => {
                @if !fact.about.is_empty() { p.about { (fact.about) } }
                dl.facts {
                    div { dt { "File" } dd {
                        a.mono href={ "../" (file_page(&fact.file)) "#L" (fact.line) } { (fact.file) ":" (fact.line) }
                    } }
                    @if !fact.tags.is_empty() { div { dt { "Tags" } dd { (fact.tags.join(", ")) } } }
                    @if let Some(goal) = fact.goal { div { dt { "Goal" } dd.num { (goal) " of the copy" } } }
                    @if !fact.schedule.is_empty() { div { dt { "Schedule now" } dd { (fact.schedule) } } }
                    @if !fact.accepted.is_empty() { div { dt { "Counters accepted" } dd { (fact.accepted) } } }
                    @if !fact.launch.is_empty() { div { dt { "Launch now" } dd { (fact.launch) } } }
                }
            }
            None => p.about { "No case file has this case any more." }
        }
        div.again { span.dim { "Again" } code { (again) } button type="button" data-copy=(again) { "Copy" } }
        @for entry in site.given.quarantine.iter().filter(|entry| entry.id == id) {
            p.note { "In quarantine until " (entry.until) ": " (entry.reason) " (" (entry.owner) ", " (entry.issue) ")" }
        }
    }
}

/// The command that runs it, on the device that its first figures here are of.
fn again(site: &Site, id: &str, fact: Option<&CaseFact>) -> String {
    let here = |watched: &&crate::site::Watched| {
        site.names.find(id).is_some_and(|case| watched.device.cases.contains_key(&case))
    };
    let device = match site.devices.iter().find(here).map(|watched| watched.device.name.as_str()) {
        Some("simulator") => "--sim 1",
        Some("reference") => "--ref",
        None if !fact.is_none_or(|fact| fact.gpu) => "--sim 1",
        _ => "--gpus 1",
    };
    let measured = fact.is_some_and(|fact| fact.measured) && device != "--ref";
    let command = if measured { "bench" } else { "run" };
    format!("cargo run -p harness -- {command} {device} --exact '{id}'")
}

fn on_device(site: &Site, watched: &Watched, number: u32, case: &CaseHistory, fact: Option<&CaseFact>) -> Markup {
    let none = Vec::new();
    let found = watched.changes.get(&number).unwrap_or(&none);
    let goal = fact.and_then(|fact| fact.goal);
    html! {
        section {
            h2 { (watched.device.shown()) " " (outcome(case.outcome().unwrap_or_default())) }
            (tiles(watched, case, found, goal))
            (failure(site, watched, number))
            // Counts are what the simulator is for; its times are those of a host.
            @if watched.device.is_exact() { (counters(watched, case)) }
            (drawings(watched, case, found, goal))
            @if !found.is_empty() {
                h3 { "Changes" }
                @let last: Vec<_> = found.iter().rev().take(CHANGES).map(|found| (None, found)).collect();
                (changes(site, At::Below, watched, &last))
                @if found.len() > CHANGES { p.dim { "and " (found.len() - CHANGES) " earlier ones" } }
            }
            @let gated: Vec<_> = watched.device.gates.iter().rev().filter(|gate| gate.case == Some(number)).take(ROWS).collect();
            @if !gated.is_empty() { h3 { "Gate" span.dim { " what it found of the kernel’s time" } } (gates(site, At::Below, watched, &gated)) }
            (peers(site, watched, number, case))
            (measurements(watched, case))
            (verdicts(watched, case))
        }
    }
}

/// The last figures, large.
fn tiles(watched: &Watched, case: &CaseHistory, found: &[Found], goal: Option<f64>) -> Markup {
    let last = |column: &str| case.last_value(watched.device.metric(column)?);
    html! {
        div.tiles {
            @for figure in FIGURES.iter().filter(|figure| figure.column != "copy_gbps") {
                @if let Some(value) = last(figure.column) {
                    div.tile {
                        span.name { (figure.name) }
                        span.value.num { (figure.text(value)) }
                        @if let (true, Some(goal)) = (figure.column == "share_of_copy", goal) {
                            span class={ "under " (if value >= goal { "good" } else { "bad" }) } {
                                "goal " (goal) @if value >= goal { " met" } @else { " missed" }
                            }
                        } @else if let Some(change) = found.iter().rfind(|found| found.column == figure.column) {
                            span.under { (super::parts::size(change)) " since " (watched.run(change.run).when()) }
                        } @else if let Some((low, high)) = figure.interval.and_then(|(a, b)| Some((last(a)?, last(b)?))) {
                            span.under.num { (short(figure.scaled(low))) " to " (short(figure.scaled(high))) }
                        }
                    }
                }
            }
            @if let (None, Some((runs, us, _))) = (last("dur_us"), &case.last) {
                div.tile {
                    span.name { "Whole case" }
                    span.value.num { (short(*us as f64 / 1e3)) "\u{202f}ms" }
                    span.under { "smoothed over " (super::parts::counted(*runs as usize, "run")) }
                }
            }
        }
    }
}

/// How it failed, where that is here.
fn failure(site: &Site, watched: &Watched, number: u32) -> Markup {
    let id = site.names.name(number);
    let of_device = |run: &str| watched.device.runs.iter().find(|known| known.id == run);
    let failed = site.given.failures.iter().rev().filter(|failed| failed.case == id);
    let failed = failed.filter_map(|failed| Some((failed, of_device(&failed.run)?)));
    html! {
        @for (failed, run) in failed.take(3) {
            div.failed { p { (outcome(&failed.outcome)) " in the run of " (run_link(At::Below, run)) } pre { (failed.detail) } }
        }
    }
}

fn drawings(watched: &Watched, case: &CaseHistory, found: &[Found], goal: Option<f64>) -> Markup {
    let main =
        FIGURES.iter().find(|figure| watched.device.metric(figure.column).is_some_and(|m| !case.points(m).is_empty()));
    let Some(main) = main else { return html! {} };
    // The simulator has no figure that stands for a case.
    let large = Some(main).filter(|_| !watched.device.is_exact());
    let shown =
        |column: &str| !matches!(column, "gbps" | "copy_gbps") && large.is_none_or(|main| main.column != column);
    let goal_of = |column: &str| goal.filter(|_| column == "share_of_copy");
    html! {
        @if let Some(main) = large {
            @if let Some(plot) = figure_plot(watched, case, found, main, &[Size::Wide, Size::Narrow], goal_of(main.column)) {
                (plot)
                (legend(watched, main.column))
            }
        }
        div.multiples {
            @for figure in FIGURES.iter().filter(|figure| shown(figure.column)) {
                @if let Some(plot) = figure_plot(watched, case, found, figure, &[Size::Small], goal_of(figure.column)) { (plot) }
            }
        }
    }
}

/// What the marks mean.
fn legend(watched: &Watched, column: &str) -> Markup {
    html! {
        p.legend {
            span.key.bad { "changed for the worse" } span.key.good { "for the better" }
            span.key.code { "other kernel text" }
            @if watched.tells_gpus(watched.axis(column)) { span.key.other { "other GPU than the run before" } }
            span.dim { "Point at a run, or focus the drawing and use the arrow keys." }
        }
    }
}

fn peers(site: &Site, watched: &Watched, number: u32, case: &CaseHistory) -> Markup {
    let peers = watched.peers_of(site.names.name(number));
    let ours = watched.device.metric("median_ns").and_then(|metric| case.last_value(metric)).map(|ns| ns / 1e3);
    html! {
        @if !peers.is_empty() {
            h3 { "Others, same work, same model of GPU" }
            div.scroll { table {
                thead { tr { th { "System" } th.right { "Kernel, µs" } th.right { "Share of copy" } th.right { "Host, µs" }
                    th.right { "Against our last" } } }
                tbody { @for peer in peers {
                    tr {
                        td { (peer.system) @if peer.is_ours() { span.dim { " in that run" } } }
                        td.right.num { (number_or_dash(peer.median_us)) }
                        td.right.num { (number_or_dash(peer.share_of_copy)) }
                        td.right.num { (number_or_dash(peer.host_us)) }
                        td.right.num {
                            @if let (Some(peer), Some(ours)) = (peer.median_us, ours) { (percent(peer / ours - 1.0)) }
                        }
                    }
                } }
            } }
        }
    }
}

fn number_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), short)
}

/// The last measurements with all their figures.
fn measurements(watched: &Watched, case: &CaseHistory) -> Markup {
    let columns: Vec<_> = FIGURES
        .iter()
        .filter_map(|figure| Some((figure, watched.device.metric(figure.column)?)))
        .filter(|(_, metric)| case.last_value(*metric).is_some())
        .collect();
    if columns.is_empty() {
        return html! {};
    }
    let (first, count) = (case.runs.len().saturating_sub(ROWS), case.runs.len());
    let kernel = |at: usize| if case.kernels[at] == 0 { String::new() } else { format!("{:08x}", case.kernels[at]) };
    html! {
        h3 { "Measurements" @if count > ROWS { span.dim { " the last " (ROWS) " of " (count) } } }
        div.scroll { table {
            thead { tr {
                th { "Run" } th.mid { "Command" } th.mid { "Commit" }
                @for (at, (figure, _)) in columns.iter().enumerate() {
                    th.right.wide[at > 1] { (figure.name) br; span.dim { (figure.unit) } }
                }
                th.mid { "Kernel text" }
            } }
            tbody { @for at in (first..count).rev() {
                @let run = watched.run(case.runs[at]);
                tr {
                    td { (run_link(At::Below, run)) }
                    td.mid { (run.kind()) }
                    td.mid.mono { (run.short_commit()) }
                    @for (place, (figure, metric)) in columns.iter().enumerate() {
                        @let value = case.value(*metric, at);
                        td.right.num.wide[place > 1] { @if value.is_finite() { (short(figure.scaled(value))) } @else { "–" } }
                    }
                    td.mid.mono { @if at > 0 && case.kernels[at] != case.kernels[at - 1] { b { (kernel(at)) } } @else { (kernel(at)) } }
                }
            } }
        } }
        (phases(watched, case))
    }
}

/// Where the time of compiling went, last.
fn phases(watched: &Watched, case: &CaseHistory) -> Markup {
    let last = |column: &'static str| Some((column, case.last_value(watched.device.metric(column)?)?));
    let parts: Vec<_> = PHASES.into_iter().filter_map(last).collect();
    html! {
        @if !parts.is_empty() {
            p.dim { "Compiling, last: "
                @for (at, (column, ms)) in parts.iter().enumerate() {
                    @if at > 0 { ", " }
                    (column.trim_end_matches("_ms")) " " span.num { (short(*ms)) "\u{202f}ms" }
                }
            }
        }
    }
}

/// The simulator's exact counts: now, and when they last changed.
fn counters(watched: &Watched, case: &CaseHistory) -> Markup {
    let counters = watched.device.metrics.iter().filter(|column| figure::is_counter(column));
    let rows: Vec<_> = counters
        .filter_map(|column| {
            let points = case.points(watched.device.metric(column)?);
            let (_, now) = *points.last()?;
            let turn = points.windows(2).rev().find(|pair| pair[0].1 != pair[1].1);
            Some((column, now, turn.map(|pair| (pair[0].1, case.runs[pair[1].0])), points.len()))
        })
        .collect();
    html! {
        @if !rows.is_empty() {
            h3 { "Counters" span.dim { " exact, of the simulator" } }
            div.scroll { table {
                thead { tr { th { "Counter" } th.right { "Now" } th.right { "Before" } th { "Since" } } }
                tbody { @for (column, now, turn, count) in rows {
                    tr {
                        td { (figure::words(column)) }
                        td.right.num { (now) }
                        @match turn {
                            Some((before, run)) => {
                                td.right.num { (before) }
                                td { (run_link(At::Below, watched.run(run))) }
                            }
                            None => { td.right.dim { "–" } td.dim { "the same in " (super::parts::counted(count, "run")) } }
                        }
                    }
                } }
            } }
        }
    }
}

fn verdicts(watched: &Watched, case: &CaseHistory) -> Markup {
    html! {
        @if !case.turns.is_empty() {
            h3 { "Verdicts" span.dim { " where they changed" } }
            div.scroll { table {
                thead { tr { th { "Run" } th.mid { "Commit" } th { "From" } th { "To" } } }
                tbody { @for turn in case.turns.iter().rev().take(CHANGES) {
                    @let run = watched.run(turn.run);
                    tr {
                        td { (run_link(At::Below, run)) }
                        td.mid.mono { (run.short_commit()) }
                        td { @if turn.before.is_empty() { span.dim { "first run" } } @else { (outcome(&turn.before)) } }
                        td { (outcome(&turn.outcome)) }
                    }
                } }
            } }
        }
    }
}
