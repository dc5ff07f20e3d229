//! All cases by suite, with their last outcome.

use super::parts::{breakable, counted, is_fine, outcome};
use super::shell::{At, shell};
use crate::plot::percent;
use crate::site::{Grade, Site};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(crate) fn cases(site: &Site) -> String {
    let mut suites: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for case in &site.order {
        let id = site.names.name(*case);
        suites.entry(id.split(['.', '/']).next().unwrap_or(id)).or_default().push(*case);
    }
    let body = html! {
        h1 { "Cases" }
        p.lead { (counted(site.order.len(), "case")) " in " (counted(suites.len(), "suite"))
            ". What stands in the search above narrows this list." }
        p #nothing hidden { "No case has all of these words." }
        @for (suite, cases) in &suites {
            @let open = suites.len() < 4;
            details.suite open[open] {
                summary { b { (suite) } " " span.dim { (counted(cases.len(), "case")) } (troubles(site, cases)) }
                ul.cases { @for case in cases { (row(site, *case)) } }
            }
        }
    };
    shell(site, At::Top, "cases.html", "Cases", &body)
}

/// The worst last outcome of a case on any device.
pub(crate) fn worst(site: &Site, case: u32) -> &str {
    let outcomes = site.devices.iter().filter_map(|watched| watched.device.cases.get(&case)?.outcome());
    outcomes.max_by_key(|word| !is_fine(word)).unwrap_or_default()
}

fn troubles(site: &Site, cases: &[u32]) -> Markup {
    let bad = cases.iter().filter(|case| !is_fine(worst(site, **case))).count();
    html! { @if bad > 0 { " " span.tag.bad { (bad) " not passing" } } }
}

fn row(site: &Site, case: u32) -> Markup {
    let id = site.names.name(case);
    let word = worst(site, case);
    let mut last = site.devices.iter().filter_map(|watched| watched.changes.get(&case)?.last());
    let change = last.rfind(|found| found.grade != Grade::New);
    html! {
        li {
            a.id href=(site.case_page(case)) { (breakable(id)) }
            @if let Some(found) = change {
                span class={ "num " (if found.worse { "bad" } else { "good" }) } { (percent(found.ratio())) }
            }
            @if word != "pass" { (outcome(word)) }
        }
    }
}
