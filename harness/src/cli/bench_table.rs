//! The measurements of a run as a table for people; the record and `perf.csv`
//! hold all of it.

use crate::outcome::Perf;
use crate::record::CaseRow;

/// One line for each measured case, in the order of ids.
pub(super) fn table(rows: &[CaseRow]) -> String {
    let mut measured: Vec<(&str, &Perf)> =
        rows.iter().filter_map(|row| Some((row.case_id.as_str(), row.perf.as_ref()?))).collect();
    measured.sort_by_key(|(id, _)| *id);
    if measured.is_empty() {
        return "nothing was measured\n".into();
    }
    let width = measured.iter().map(|(id, _)| id.len()).max().unwrap_or(0).min(90);
    let on_gpu = measured.iter().any(|(_, perf)| perf.median_ns.is_some());
    let mut text = match on_gpu {
        true => format!(
            "{:width$} {:>10} {:>10} {:>10} {:>9} {:>7} {:>9}\n",
            "case", "median us", "p10", "p90", "GB/s", "share", "host us"
        ),
        false => format!("{:width$} counters\n", "case"),
    };
    for (id, perf) in measured {
        if on_gpu {
            let us = |ns: Option<f64>| show(ns.map(|ns| ns / 1e3), 2);
            text.push_str(&format!(
                "{id:width$} {:>10} {:>10} {:>10} {:>9} {:>7} {:>9}\n",
                us(perf.median_ns),
                us(perf.p10_ns),
                us(perf.p90_ns),
                show(perf.gbps, 1),
                show(perf.share, 3),
                show(perf.host_us, 1)
            ));
        } else {
            let counters: Vec<String> = perf.counters.iter().map(|(name, value)| format!("{name}={value}")).collect();
            text.push_str(&format!("{id:width$} {}\n", counters.join(" ")));
        }
    }
    text
}

fn show(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.digits$}"))
}
