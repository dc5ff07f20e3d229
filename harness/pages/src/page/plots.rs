//! A figure over runs as a drawing with what the script needs to read it out.

use crate::figure::Figure;
use crate::history::CaseHistory;
use crate::plot::{Mark, Place, Point, Series, Size, series};
use crate::site::{Found, Watched};
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

/// A case's figure, drawn in some sizes; nothing where it was never measured.
pub(crate) fn figure_plot(
    watched: &Watched,
    case: &CaseHistory,
    found: &[Found],
    figure: &Figure,
    sizes: &[Size],
    goal: Option<f64>,
) -> Option<Markup> {
    let metric = watched.device.metric(figure.column)?;
    let axis = watched.axis(figure.column);
    let ends =
        figure.interval.and_then(|(low, high)| Some((watched.device.metric(low)?, watched.device.metric(high)?)));
    let mut kernels = Vec::new();
    let (mut points, mut last_kernel) = (Vec::new(), 0);
    for (at, value) in case.points(metric) {
        let Ok(x) = axis.binary_search(&case.runs[at]) else { continue };
        let end = |low: bool| ends.map(|(a, b)| case.value(if low { a } else { b }, at)).filter(|end| end.is_finite());
        let scaled = |end: Option<f64>| figure.scaled(end.unwrap_or(value));
        points.push(Point { x, low: scaled(end(true)), value: figure.scaled(value), high: scaled(end(false)) });
        let kernel = case.kernels[at];
        if kernel != 0 && last_kernel != 0 && kernel != last_kernel {
            kernels.push(x);
        }
        last_kernel = if kernel == 0 { last_kernel } else { kernel };
    }
    if points.is_empty() {
        return None;
    }
    let place = |run| axis.binary_search(&run).ok();
    let own = found.iter().filter(|found| found.column == figure.column);
    let change = |found: &Found| Some(Mark::Change { x: place(found.run)?, ratio: found.ratio(), worse: found.worse });
    let mut marks: Vec<Mark> = own.filter_map(change).collect();
    marks.extend(kernels.iter().copied().map(Mark::Code));
    // Where nearly every run is on another GPU of a pool, marks of it tell nothing.
    let turns = watched.gpu_turns(axis);
    marks.extend(turns.into_iter().filter(|_| watched.tells_gpus(axis)).map(Mark::Device));
    let given = Series { points: &points, marks: &marks, labels: &labels(watched, axis), goal, least_ratio: 0.02 };
    let drawings: Vec<(Size, Place)> = sizes.iter().map(|size| (*size, series(&given, *size))).collect();
    let data = data(watched, figure, &points, &kernels);
    let said = format!("{} over {} runs", figure.name, points.len());
    Some(html! {
        figure.plot tabindex="0" {
            figcaption {
                b { (figure.name) } " " span.dim { (figure.unit) @if figure.interval.is_some() { ", median, 10th to 90th percentile" } }
            }
            @for (size, place) in &drawings { (drawing(*size, place, &said)) }
            output.read {}
            script type="application/json" { (PreEscaped(data.to_string().replace('<', "\\u003c"))) }
        }
    })
}

/// An `svg` element that knows where its runs stand.
pub(crate) fn drawing(size: Size, place: &Place, said: &str) -> Markup {
    let class = match size {
        Size::Wide => "at-wide",
        Size::Narrow => "at-narrow",
        Size::Small => "",
    };
    html! {
        svg class=(class) viewBox={ "0 0 " (place.size.0) " " (place.size.1) } role="img" aria-label=(said)
            data-from=(place.from) data-to=(place.to) { (PreEscaped(&place.svg)) }
    }
}

/// Labels of runs on an axis: hours where all are of two days, days else, with the year where there are many.
pub(crate) fn labels(watched: &Watched, axis: &[u32]) -> Vec<String> {
    let started = |run: &u32| watched.run(*run).started.as_str();
    let day = |run: &u32| started(run).get(..10).map(String::from);
    let mut days: Vec<Option<String>> = axis.iter().map(day).collect();
    days.dedup();
    let years = axis.first().map(started).and_then(|text| text.get(..4))
        != axis.last().map(started).and_then(|text| text.get(..4));
    let part = match days.len() {
        0..=2 => 11..16,
        _ if years => 0..10,
        _ => 5..10,
    };
    axis.iter().map(|run| started(run).get(part.clone()).unwrap_or_default().to_string()).collect()
}

/// Values as steps from one to the next, in units of their fourth digit; the ends of intervals in thousandths of the value.
fn data(watched: &Watched, figure: &Figure, points: &[Point], kernels: &[usize]) -> Value {
    let most = points.iter().map(|point| point.value.abs()).fold(0.0, f64::max);
    let power = 3 - most.log10().floor().clamp(-12.0, 15.0) as i32;
    let whole = |value: f64| (value * 10f64.powi(power)).round() as i64;
    let off = |end: f64, value: f64| (1000.0 * (end - value) / value).round() as i64;
    let mut ranges: Vec<[usize; 2]> = Vec::new();
    for point in points {
        match ranges.last_mut() {
            Some([from, count]) if *from + *count == point.x => *count += 1,
            _ => ranges.push([point.x, 1]),
        }
    }
    let before = std::iter::once(0).chain(points.iter().map(|point| whole(point.value)));
    let steps: Vec<i64> = points.iter().zip(before).map(|(point, before)| whole(point.value) - before).collect();
    let mut data = json!({
        "device": watched.device.name, "column": figure.column, "unit": figure.unit, "x": ranges, "power": power,
        "v": steps, "k": kernels, "n": watched.axis(figure.column).len(),
    });
    if figure.interval.is_some() {
        data["lo"] = points.iter().map(|point| off(point.low, point.value)).collect();
        data["hi"] = points.iter().map(|point| off(point.high, point.value)).collect();
    }
    data
}

/// A figure over all runs that is not of one case.
pub(crate) fn plain_plot(name: &str, unit: &str, labels: &[String], values: &[f64], goal: Option<f64>) -> Markup {
    let point = |(x, value): (usize, &f64)| Point { x, low: *value, value: *value, high: *value };
    let points: Vec<Point> = values.iter().enumerate().filter(|(_, value)| value.is_finite()).map(point).collect();
    let given = Series { points: &points, marks: &[], labels, goal, least_ratio: 0.02 };
    let place = series(&given, Size::Small);
    let said = format!("{name} over {} runs", points.len());
    html! {
        figure.plot {
            figcaption { b { (name) } " " span.dim { (unit) } }
            (drawing(Size::Small, &place, &said))
        }
    }
}
