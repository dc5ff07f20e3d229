//! Families of measured cases against a copy and against others, the worst first.

use super::parts::{case_link, counted};
use super::shell::{At, shell};
use crate::plot::{Dot, percent, roofline, short, spark};
use crate::site::{Site, Watched};
use maud::{Markup, PreEscaped, html};
use std::collections::BTreeMap;

/// Cases of a family that stand on the page.
const ROWS: usize = 60;

pub(crate) fn performance(site: &Site) -> String {
    let with = |watched: &&Watched| !watched.measured().is_empty();
    let body = html! {
        h1 { "Performance" }
        @if !site.devices.iter().any(|watched| with(&watched)) {
            p.empty { "Nothing was measured yet. " code { "cargo run -p harness -- bench" } " measures: times on a GPU, exact counters on the simulator." }
        }
        @for watched in site.devices.iter().filter(with) { (device(site, watched)) }
        p { a href="once.html" { "Measured once" } ": " (counted(site.once.len(), "table")) " of sweeps and of what the harness costs." }
    };
    shell(site, At::Top, "performance.html", "Performance", &body)
}

/// A measured case, as it stands.
struct Row {
    case: u32,
    main: f64,
    share: Option<f64>,
    gbps: Option<f64>,
    bytes: Option<f64>,
    goal: Option<f64>,
    /// The quickest other system's time for each unit of ours.
    best: Option<(String, f64)>,
    /// Sectors moved for each that had to be.
    sectors: Option<f64>,
}

impl Row {
    fn missed(&self) -> bool {
        self.goal.zip(self.share).is_some_and(|(goal, share)| share < goal)
    }

    /// What sorts families: the share of what could be.
    fn rank(&self) -> f64 {
        self.share.or(self.sectors.map(f64::recip)).unwrap_or(f64::INFINITY)
    }
}

fn device(site: &Site, watched: &Watched) -> Markup {
    let main = watched.main();
    let mut families: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    for case in &site.order {
        if let Some(row) = row(site, watched, *case, main) {
            let id = site.names.name(*case);
            families.entry(id.split('/').next().unwrap_or(id)).or_default().push(row);
        }
    }
    let mut families: Vec<(&str, Vec<Row>)> = families.into_iter().collect();
    families.iter_mut().for_each(|(_, rows)| rows.sort_by(|a, b| a.rank().total_cmp(&b.rank())));
    families.sort_by(|a, b| a.1[0].rank().total_cmp(&b.1[0].rank()).then(a.0.cmp(b.0)));
    let all: Vec<&Row> = families.iter().flat_map(|(_, rows)| rows).collect();
    let missed = all.iter().filter(|row| row.missed()).count();
    html! {
        section {
            h2 { (watched.device.shown()) span.dim { " " (counted(all.len(), "case")) " in " (families.len()) @if families.len() == 1 { " family" } @else { " families" }
                @if !watched.device.is_exact() { ", " (missed) " below their goal" } } }
            (roof(watched, &all))
            @for (name, rows) in &families { (family(site, watched, name, rows, families.len() < 13)) }
        }
    }
}

fn row(site: &Site, watched: &Watched, case: u32, main: &str) -> Option<Row> {
    let last = |column: &str| watched.latest(case, column);
    let main = last(main)?;
    let others = watched.peers_of(site.names.name(case));
    let times =
        others.iter().filter(|peer| !peer.is_ours()).filter_map(|peer| Some((peer.system.clone(), peer.median_us?)));
    let best = times.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(system, us)| (system, us * 1e3 / main));
    let sum = |columns: [&str; 2]| Some(last(columns[0])? + last(columns[1])?);
    let sectors = sum(["load_sectors", "store_sectors"]).zip(sum(["load_sectors_ideal", "store_sectors_ideal"]));
    Some(Row {
        case,
        main,
        share: last("share_of_copy"),
        gbps: last("gbps"),
        bytes: last("bytes"),
        goal: site.fact(case).and_then(|fact| fact.goal),
        best: best.filter(|_| !watched.device.is_exact()),
        sectors: sectors.filter(|(_, ideal)| *ideal > 0.0).map(|(is, ideal)| is / ideal),
    })
}

fn roof(watched: &Watched, rows: &[&Row]) -> Markup {
    let dot = |row: &&Row| Some(Dot { bytes: row.bytes?, gbps: row.gbps?, below_goal: row.missed() });
    let dots: Vec<Dot> = rows.iter().filter_map(dot).collect();
    let mut copies: Vec<f64> = rows.iter().filter_map(|row| watched.latest(row.case, "copy_gbps")).collect();
    copies.sort_by(f64::total_cmp);
    // What a copy reaches where it is large: small ones end before the memory is busy.
    let roof = copies.last().copied();
    html! {
        @if !dots.is_empty() {
            figure.plot.roof {
                figcaption { b { "Bandwidth under the roof of a copy" } " " span.dim { "GB/s over bytes moved; red: below its goal" } }
                span.at-wide { (PreEscaped(roofline(&dots, roof, (920, 280)))) }
                span.at-narrow { (PreEscaped(roofline(&dots, roof, (380, 240)))) }
            }
            @if let Some(roof) = roof { p.legend { span.key.roof { "fastest copy measured beside a case, " span.num { (short(roof)) " GB/s" } } } }
        }
    }
}

fn family(site: &Site, watched: &Watched, name: &str, rows: &[Row], open: bool) -> Markup {
    let exact = watched.device.is_exact();
    let shares: Vec<f64> = rows.iter().filter_map(|row| row.share).collect();
    let worst = shares.iter().copied().fold(f64::INFINITY, f64::min);
    html! {
        details.family open[open] {
            summary {
                b { (name) } " " span.dim { (counted(rows.len(), "case")) }
                @if worst.is_finite() { " " span.meter { (bar(worst)) } " " span.num { (format!("{worst:.2}")) } span.dim { " of a copy at worst" } }
                @if let Some(most) = rows.iter().filter_map(|row| row.sectors).reduce(f64::max) {
                    " " span.num { (format!("{most:.2}×")) } span.dim { " the sectors that had to move, at worst" }
                }
                @let missed = rows.iter().filter(|row| row.missed()).count();
                @if missed > 0 { " " span.tag.bad { (missed) " below goal" } }
            }
            div.scroll { table.timed[!exact] {
                thead { tr {
                    th { "Case" }
                    @if exact { th.right { "Instructions" } th.right { "Sectors, of ideal" } }
                    @else { th.right { "Kernel, µs" } th { "Share of copy" } th.right.mid { "Goal" } th.right.mid { "GB/s" } th.wide { "Best other, its time" } }
                    th.mid { "Trend" } th.mid { "Last change" }
                } }
                tbody { @for row in rows.iter().take(ROWS) { tr {
                    td.long { (case_link(site, At::Top, row.case)) }
                    @if exact {
                        td.right.num { (row.main) }
                        td.right.num { @if let Some(ratio) = row.sectors { (format!("{ratio:.2}×")) } @else { "–" } }
                    } @else {
                        td.right.num { (short(row.main / 1e3)) }
                        td { @if let Some(share) = row.share { span.meter { (bar(share)) } " " span class={ "num " (if row.missed() { "bad" } else { "" }) } { (format!("{share:.3}")) } } @else { "–" } }
                        td.right.num.mid { @if let Some(goal) = row.goal { (goal) } @else { "–" } }
                        td.right.num.mid { @if let Some(gbps) = row.gbps { (format!("{gbps:.0}")) } @else { "–" } }
                        td.wide { @if let Some((system, ratio)) = &row.best {
                            (system) " " span class={ "num " (if *ratio < 1.0 { "bad" } else { "good" }) } { (percent(ratio - 1.0)) }
                        } @else { "–" } }
                    }
                    td.mid { (trend(watched, row.case)) }
                    td.mid { @if let Some(found) = watched.changes.get(&row.case).and_then(|all| all.last()) { (super::parts::size(found)) " " span.dim.num { (day(watched.run(found.run))) } } }
                } } }
            } }
            @if rows.len() > ROWS { p.dim { "and " (rows.len() - ROWS) " better ones" } }
        }
    }
}

/// The day of a run; its page has the minute.
fn day(run: &crate::history::Run) -> String {
    run.when().chars().take(10).collect()
}

/// A share as a bar: full is as fast as a copy.
fn bar(share: f64) -> Markup {
    html! { svg.bar viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" {
        rect.rail x="0" y="0" width="100" height="8" {}
        rect.fill x="0" y="0" width=(format!("{:.1}", share.clamp(0.0, 1.0) * 100.0)) height="8" {}
    } }
}

fn trend(watched: &Watched, case: u32) -> Markup {
    let points = || {
        let history = watched.device.cases.get(&case)?;
        Some(history.points(watched.device.metric(watched.main())?))
    };
    let values: Vec<f64> = points().unwrap_or_default().into_iter().map(|(_, value)| value).collect();
    html! { (PreEscaped(spark(&values))) }
}
