//! Cases that fail only sometimes, with the interval of their rate.

use super::parts::{case_link, counted};
use super::shell::{At, shell};
use crate::history::Flake;
use crate::plot::{Whisker, end_of, whiskers};
use crate::site::{Site, Watched};
use maud::{Markup, PreEscaped, html};

pub(crate) fn flakes(site: &Site) -> String {
    let any = site.devices.iter().any(|watched| !watched.device.flakes.is_empty());
    let body = html! {
        h1 { "Flakes" }
        @if any {
            p.lead { "What the last hunt of each case found: failures of all its runs, with the exact interval of the rate." }
        } @else {
            p.empty { "No hunt is recorded. " code { "cargo run -p harness -- hunt" } " repeats cases until each is clean or known to be flaky." }
        }
        @for watched in site.devices.iter().filter(|watched| !watched.device.flakes.is_empty()) { (of_device(site, watched)) }
        (now_flaky(site))
        (quarantine(site))
    };
    shell(site, At::Top, "flakes.html", "Flakes", &body)
}

fn of_device(site: &Site, watched: &Watched) -> Markup {
    let mut all: Vec<&Flake> = watched.device.flakes.iter().collect();
    let rate = |flake: &Flake| flake.failures as f64 / flake.runs.max(1) as f64;
    all.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then_with(|| site.names.name(a.case).cmp(site.names.name(b.case))));
    let clean = all.iter().filter(|flake| flake.finding == "clean").count();
    let end = end_of(all.iter().map(|flake| flake.high).fold(0.0, f64::max));
    html! {
        section {
            h2 { (watched.device.shown()) span.dim { " " (counted(all.len() - clean, "case")) " not clean, " (clean) " clean" } }
            div.scroll { table {
                thead { tr { th { "Case" } th { "Found" } th.right { "Failed" } th { "Rate, 0 to " (100.0 * end) " %" } th.wide { "Interval" } th.wide { "Depends on" } th.mid { "Hunt" } } }
                tbody { @for flake in all.iter().take(500) {
                    tr {
                        td.long { (case_link(site, At::Top, flake.case)) }
                        td { span class={ "tag " (if flake.finding == "clean" { "good" } else { "warn" }) } { (flake.finding) } }
                        td.right.num { (flake.failures) " of " (flake.runs) }
                        td { (PreEscaped(whiskers(Whisker { low: flake.low, rate: rate(flake), high: flake.high }, end))) }
                        td.num.wide { (format!("{:.1} to {:.1} %", flake.low * 100.0, flake.high * 100.0)) }
                        td.wide { (flake.class) }
                        td.mid.num { (when(watched, &flake.run)) }
                    }
                } }
            } }
            @if all.len() > 500 { p.dim { "and " (all.len() - 500) " more" } }
        }
    }
}

fn when(watched: &Watched, id: &str) -> String {
    watched.device.runs.iter().find(|run| run.id == id).map_or_else(|| id.to_string(), crate::history::Run::when)
}

/// Cases whose last run passed only when it was tried again.
fn now_flaky(site: &Site) -> Markup {
    let of = |watched: &Watched| -> Vec<u32> {
        let flaky = watched
            .device
            .cases
            .iter()
            .filter(|(_, case)| case.turns.last().is_some_and(|turn| turn.verdict == "flaky"));
        flaky.map(|(case, _)| *case).collect()
    };
    html! {
        @for watched in &site.devices {
            @let cases = of(watched);
            @if !cases.is_empty() {
                h2 { "Flaky in the last run, " (watched.device.shown()) }
                ul.cases { @for case in cases { li { (case_link(site, At::Top, case)) } } }
            }
        }
    }
}

fn quarantine(site: &Site) -> Markup {
    html! {
        @if !site.given.quarantine.is_empty() {
            h2 { "Quarantine" }
            div.scroll { table {
                thead { tr { th { "Case" } th { "Until" } th.wide { "Owner" } th.mid { "Issue" } th { "Reason" } } }
                tbody { @for entry in &site.given.quarantine {
                    tr {
                        td.long { @match site.names.find(&entry.id) {
                            Some(case) => (case_link(site, At::Top, case)),
                            None => span.id { (entry.id) },
                        } }
                        td.num { (entry.until) } td.wide { (entry.owner) } td.mid { (entry.issue) } td { (entry.reason) }
                    }
                } }
            } }
        }
    }
}
