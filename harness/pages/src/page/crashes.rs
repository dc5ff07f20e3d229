//! Kinds of crashes over all runs, the last seen first.

use super::parts::{case_link, counted};
use super::shell::{At, shell};
use crate::crash::Crash;
use crate::site::Site;
use maud::{Markup, html};

/// Cases that a bucket names.
const CASES: usize = 8;

pub(crate) fn crashes(site: &Site) -> String {
    let body = html! {
        h1 { "Crashes" }
        @if site.crashes.is_empty() {
            p.empty { "No crash, hang or device error is recorded in this folder of results." }
        } @else {
            p.lead { (counted(site.crashes.len(), "kind")) " of crash, by the place in our own code. One family may have several." }
            @for crash in &site.crashes { (bucket(site, crash)) }
        }
    };
    shell(site, At::Top, "crashes.html", "Crashes", &body)
}

fn bucket(site: &Site, crash: &Crash) -> Markup {
    html! {
        section.bucket id=(crash.leaf) {
            h2 { (crash.family) @if !crash.cuda_error.is_empty() { " " span.tag.bad { (crash.cuda_error) } } }
            dl.facts {
                div { dt { "Seen" } dd.num { (counted(crash.count as usize, "time")) " in " (counted(crash.runs as usize, "run")) } }
                div { dt { "First" } dd.num { (crash.first.utc) " " span.mono { (short(&crash.first.commit)) } } }
                div { dt { "Last" } dd.num { (crash.last.utc) " " span.mono { (short(&crash.last.commit)) } } }
                div { dt { "Devices" } dd { @for (name, count) in &crash.devices { (name) " " span.dim.num { "×" (count) } " " } } }
                @if !crash.exemplar.is_empty() { div { dt { "Evidence" } dd.mono { "results/" (crash.exemplar) } } }
            }
            @if !crash.calls.is_empty() { ol.calls { @for call in &crash.calls { li.mono { (call) } } } }
            ul.plain { @for (id, count) in crash.cases.iter().take(CASES) {
                li {
                    @match site.names.find(id) {
                        Some(case) => (case_link(site, At::Top, case)),
                        None => span.id { (id) },
                    }
                    " " span.dim.num { "×" (count) }
                }
            } }
            @if crash.cases.len() > CASES { p.dim { "and " (counted(crash.cases.len() - CASES, "other case")) } }
        }
    }
}

fn short(commit: &str) -> String {
    commit.chars().take(7).collect()
}
