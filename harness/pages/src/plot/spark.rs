//! A line beside a number: the shape of a series without axes.

use super::svg::{Ink, SCALE, Svg};
use plotters::prelude::*;

const SIZE: (i32, i32) = (96, 20);
/// Points that can be told apart.
const MOST: usize = 60;

/// The last values as an `svg` element; nothing of fewer than two.
pub(crate) fn spark(values: &[f64]) -> String {
    let values = &values[values.len().saturating_sub(MOST)..];
    let mut svg = String::new();
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(*v), h.max(*v)));
    if values.len() < 2 || draw(values, super::axis::around(low, high, 0.02), &mut svg).is_none() {
        return String::new();
    }
    let (width, height) = (SIZE.0 * SCALE, SIZE.1 * SCALE);
    maud::html! { svg.spark viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" { (maud::PreEscaped(svg)) } }.0
}

fn draw(values: &[f64], (from, to): (f64, f64), svg: &mut String) -> Option<()> {
    let area = Svg::new(svg, SIZE).into_drawing_area();
    let mut chart =
        ChartBuilder::on(&area).margin(2 * SCALE).build_cartesian_2d(0.0..(values.len() - 1) as f64, from..to).ok()?;
    let points: Vec<(f64, f64)> = values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
    let last = *points.last()?;
    chart.draw_series([PathElement::new(points, Ink::Line.color())]).ok()?;
    chart.draw_series([Circle::new(last, 2 * SCALE, Ink::Point.color().filled())]).ok()?;
    drop(chart);
    area.present().ok()
}
