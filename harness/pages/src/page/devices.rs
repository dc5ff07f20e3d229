//! The devices of which results are recorded: each model, and each GPU of it.

use super::parts::counted;
use super::plots::{labels, plain_plot};
use super::shell::{At, shell};
use crate::site::{Site, Watched};
use maud::{Markup, html};
use std::collections::BTreeMap;

pub(crate) fn devices(site: &Site) -> String {
    let body = html! {
        h1 { "Devices" }
        @if site.devices.is_empty() { p.empty { "No history is recorded yet." } }
        @for watched in &site.devices { (device(watched)) }
    };
    shell(site, At::Top, "devices.html", "Devices", &body)
}

/// What one physical GPU was used for.
#[derive(Default)]
struct Gpu {
    runs: usize,
    first: String,
    last: String,
    drivers: Vec<String>,
    hosts: Vec<String>,
}

fn device(watched: &Watched) -> Markup {
    let runs = &watched.device.runs;
    let mut gpus: BTreeMap<&str, Gpu> = BTreeMap::new();
    let mut unknown = 0;
    for run in runs {
        unknown += usize::from(run.gpus.is_empty());
        for uuid in run.gpus.split_whitespace() {
            let gpu = gpus.entry(uuid).or_default();
            gpu.runs += 1;
            gpu.last = run.when();
            if gpu.first.is_empty() {
                gpu.first = run.when();
            }
            for (list, name) in [(&mut gpu.drivers, &run.driver), (&mut gpu.hosts, &run.host)] {
                if !name.is_empty() && !list.contains(name) {
                    list.push(name.clone());
                }
            }
        }
    }
    let span = runs.first().zip(runs.last());
    html! {
        section {
            h2 { (watched.device.shown()) span.dim { " " (counted(runs.len(), "run")) ", " (counted(watched.device.cases.len(), "case"))
                @if let Some((first, last)) = span { ", " (first.when()) " to " (last.when()) } } }
            @for note in &watched.device.notes { p.note { (note) } }
            div.multiples { (ceiling(watched)) (drift(watched)) }
            @if !gpus.is_empty() {
                div.scroll { table {
                    thead { tr { th { "GPU" } th.right { "Runs" } th { "First" } th { "Last" } th.mid { "Driver" } th.wide { "Host" } } }
                    tbody { @for (uuid, gpu) in &gpus {
                        tr { td.mono.long { (uuid) } td.right.num { (gpu.runs) } td.num { (gpu.first) } td.num { (gpu.last) }
                            td.mid { (gpu.drivers.join(", ")) } td.wide { (gpu.hosts.join(", ")) } }
                    } }
                } }
            }
            @if unknown > 0 && !watched.device.is_exact() {
                p.dim { "Of " (counted(unknown, "run")) " nobody wrote down on which GPU, with which driver and by which command they ran: "
                    "a step between two of them may be one between two GPUs." }
            }
        }
    }
}

/// The bandwidth of a copy, measured beside every case: a GPU that gets slower shows here first.
fn ceiling(watched: &Watched) -> Markup {
    let values = of_all(watched, "copy_gbps", |mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    });
    html! { @if let Some(values) = values {
        (plain_plot("Bandwidth of a copy", "GB/s, median of the cases of a run", &labels(watched, watched.axis("copy_gbps")), &values, None))
    } }
}

/// All cases together against their own levels.
pub(crate) fn drift(watched: &Watched) -> Markup {
    let column = "median_ns";
    let Some(metric) = watched.device.metric(column) else { return html! {} };
    let axis = watched.axis(column);
    let (mut sums, mut counts) = (vec![0.0; axis.len()], vec![0usize; axis.len()]);
    for case in watched.device.cases.values() {
        let points = case.points(metric);
        let Some((_, first)) = points.first().copied() else { continue };
        // Logarithms: a case that takes twice as long and one that takes half cancel out.
        for (at, value) in points {
            if let (Ok(x), true) = (axis.binary_search(&case.runs[at]), value > 0.0 && first > 0.0) {
                sums[x] += (value / first).ln();
                counts[x] += 1;
            }
        }
    }
    let values: Vec<f64> = sums.iter().zip(&counts).map(|(sum, count)| 100.0 * (sum / *count as f64).exp()).collect();
    html! { @if axis.len() > 1 {
        (plain_plot("Kernel time of all cases together", "% of each case’s first, geometric mean", &labels(watched, axis), &values, Some(100.0)))
    } }
}

/// A figure of each run made of that of all its cases.
fn of_all(watched: &Watched, column: &str, merge: fn(Vec<f64>) -> f64) -> Option<Vec<f64>> {
    let metric = watched.device.metric(column)?;
    let axis = watched.axis(column);
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); axis.len()];
    for case in watched.device.cases.values() {
        for (at, value) in case.points(metric) {
            if let Ok(x) = axis.binary_search(&case.runs[at]) {
                all[x].push(value);
            }
        }
    }
    (axis.len() > 1).then(|| all.into_iter().map(merge).collect())
}
