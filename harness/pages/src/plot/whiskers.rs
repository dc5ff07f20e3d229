//! Rates with their intervals, one below the other.

use super::svg::{Ink, SCALE, Svg};
use plotters::prelude::*;

/// A rate from 0 to 1 and its interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whisker {
    pub(crate) low: f64,
    pub(crate) rate: f64,
    pub(crate) high: f64,
}

/// The end of an axis that has room for all of some rates: a round one.
pub(crate) fn end_of(highest: f64) -> f64 {
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].into_iter().find(|end| highest <= *end).unwrap_or(1.0)
}

const SIZE: (i32, i32) = (180, 18);

/// One row: the interval as a line, the rate as a point, on the scale from 0 to `end` with ticks at quarters.
pub(crate) fn whiskers(given: Whisker, end: f64) -> String {
    let mut svg = String::new();
    if draw(given, end, &mut svg).is_none() {
        return String::new();
    }
    let (width, height) = (SIZE.0 * SCALE, SIZE.1 * SCALE);
    let said = format!("{:.1} %, from {:.1} to {:.1} %", given.rate * 100.0, given.low * 100.0, given.high * 100.0);
    maud::html! {
        svg.whisker viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(said) { (maud::PreEscaped(svg)) }
    }
    .0
}

fn draw(given: Whisker, end: f64, svg: &mut String) -> Option<()> {
    let area = Svg::new(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&area)
        .margin_left(6 * SCALE)
        .margin_right(6 * SCALE)
        .build_cartesian_2d(0.0..end, 0.0..1.0)
        .ok()?;
    chart.draw_series([PathElement::new([(0.0, 0.5), (end, 0.5)], Ink::Mesh.color())]).ok()?;
    for tick in [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| part * end) {
        chart.draw_series([PathElement::new([(tick, 0.3), (tick, 0.7)], Ink::Mesh.color())]).ok()?;
    }
    chart.draw_series([PathElement::new([(given.low, 0.5), (given.high, 0.5)], Ink::Line.color())]).ok()?;
    for bound in [given.low, given.high] {
        chart.draw_series([PathElement::new([(bound, 0.2), (bound, 0.8)], Ink::Line.color())]).ok()?;
    }
    chart.draw_series([Circle::new((given.rate, 0.5), 3 * SCALE, Ink::Point.color().filled())]).ok()?;
    drop(chart);
    area.present().ok()
}
