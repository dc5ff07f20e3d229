//! What the script reads: names of cases, runs, and what each run came to.
//!
//! As scripts that set a name, not as JSON: a browser reads those also from a folder on the disk.

use super::runs::run_page;
use crate::figure::FIGURES;
use crate::page::cases::worst;
use crate::site::{Site, Watched};
use crate::slug;
use serde_json::{Value, json};

/// A script that calls `fill` with a value.
fn script(name: &str, value: &Value) -> String {
    // An end of a script within a name would end the script.
    format!("FUSE.fill({}, {});\n", json!(name), value).replace("</", "<\\/")
}

/// All cases: id, page, last outcome; by their places in this list other data name them.
pub(crate) fn all_cases(site: &Site) -> String {
    let entry = |case: &u32| {
        let (id, word) = (site.names.name(*case), worst(site, *case));
        json!([id, slug::case(id), if word == "pass" { "" } else { word }])
    };
    script("cases", &site.order.iter().map(entry).collect())
}

/// All runs by device, and for each figure which of them have it.
pub(crate) fn all_runs(site: &Site) -> String {
    let run = |run: &crate::history::Run| {
        json!([run.id, slug::case(&run.id), run.when(), run.short_commit(), run.kind(), run.gpus])
    };
    let device = |watched: &Watched| {
        let axes: serde_json::Map<String, Value> =
            FIGURES.iter().map(|figure| (figure.column.to_string(), json!(watched.axis(figure.column)))).collect();
        let runs: Vec<Value> = watched.device.runs.iter().map(run).collect();
        json!({ "name": watched.device.name, "shown": watched.device.shown(), "runs": runs, "axes": axes })
    };
    script("runs", &site.devices.iter().map(device).collect())
}

/// What each case of a device came to in a run, or had come to by then, by columns: places of cases as steps, outcomes, the
/// main figure with its interval in thousandths, and the number of its kernel’s text among those of the case. A figure that
/// was not measured is 0.
pub(crate) fn of_run(site: &Site, watched: &Watched, number: u32) -> String {
    let column = watched.main();
    let metric = watched.device.metric(column);
    let figure = FIGURES.iter().find(|figure| figure.column == column);
    let ends = figure.and_then(|figure| figure.interval);
    let ends = ends.and_then(|(low, high)| Some((watched.device.metric(low)?, watched.device.metric(high)?)));
    let mut words: Vec<&str> = Vec::new();
    let mut columns: [Vec<Value>; 6] = Default::default();
    // The place before the first case, so that the first step is like the others.
    let (mut from, mut last) = (0, None);
    for (place, case) in site.order.iter().enumerate() {
        let Some(history) = watched.device.cases.get(case) else { continue };
        let outcome = history.outcome_at(number);
        let at = history.runs.binary_search(&number).ok();
        let value = metric.zip(at).map(|(metric, at)| history.value(metric, at)).filter(|value| value.is_finite());
        if outcome.is_none() && value.is_none() {
            continue;
        }
        let word = outcome.unwrap_or("pass");
        let word = words.iter().position(|known| *known == word).unwrap_or_else(|| {
            words.push(word);
            words.len() - 1
        });
        let (mut shown, mut low, mut high, mut kernel) = (0.0, 0, 0, 0);
        if let (Some(value), Some(at)) = (value, at) {
            let off = |end: f64| if end.is_finite() { (1000.0 * (end / value - 1.0)).round() as i64 } else { 0 };
            (low, high) = ends.map_or((0, 0), |(a, b)| (off(history.value(a, at)), off(history.value(b, at))));
            shown = figure.map_or(value, |figure| digits(figure.scaled(value)));
            kernel = history.kernel_number(at);
        }
        let place = place as i64;
        let last = last.replace(place).unwrap_or_else(|| {
            from = place - 1;
            from
        });
        let row = [json!(place - last), json!(word), json!(shown), json!(low), json!(high), json!(kernel)];
        columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
    }
    // A column of which every cell is the same is that cell.
    let count = columns[0].len();
    let columns = columns.map(|column| match column.first() {
        Some(first) if column.iter().all(|cell| cell == first) => first.clone(),
        _ => Value::Array(column),
    });
    let unit = figure.map_or("", |figure| figure.unit);
    let name = figure.map_or_else(|| crate::figure::words(column), |figure| figure.name.into());
    let id = &watched.run(number).id;
    let less = figure.is_none_or(|figure| figure.less_is_better);
    let data = json!({ "page": run_page(id), "figure": name, "unit": unit, "less": less, "words": words, "from": from, "count": count, "columns": columns });
    script(&format!("run {id}"), &data)
}

/// Four digits that matter.
fn digits(value: f64) -> f64 {
    let power = 10f64.powi(3 - value.abs().log10().floor().clamp(-12.0, 15.0) as i32);
    (value * power).round() / power
}
