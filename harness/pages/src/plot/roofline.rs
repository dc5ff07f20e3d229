//! Bandwidth over traffic, which is on a scale of powers of two, under the bandwidth of a copy.
//!
//! Every measured fusion moves far more bytes than it computes, so the roof is flat: the copy's bandwidth. What the second
//! axis of a usual roofline would tell, operations a byte, is not recorded; bytes tell where the time to start a kernel counts.

use super::axis::{room, short};
use super::svg::{Ink, SCALE, Svg};
use plotters::prelude::*;

/// A case's last measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dot {
    pub(crate) bytes: f64,
    pub(crate) gbps: f64,
    pub(crate) below_goal: bool,
}

/// Draws into a size in pixels; the roof is in GB/s. Nothing without dots.
pub(crate) fn roofline(dots: &[Dot], roof: Option<f64>, size: (i32, i32)) -> String {
    let mut svg = String::new();
    if dots.is_empty() || draw(dots, roof, size, &mut svg).is_none() {
        return String::new();
    }
    let (width, height) = (size.0 * SCALE, size.1 * SCALE);
    let said = format!("Bandwidth of {} cases over the bytes they move", dots.len());
    maud::html! {
        svg.plot viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(said) { (maud::PreEscaped(svg)) }
    }
    .0
}

/// A power of two as a size.
fn binary(power: f64) -> String {
    if (power - power.round()).abs() > 1e-6 {
        return String::new();
    }
    let power = power.round().max(0.0) as u32;
    let unit = ["B", "KiB", "MiB", "GiB", "TiB"][(power / 10).min(4) as usize];
    format!("{} {unit}", 1u64 << (power % 10))
}

fn draw(dots: &[Dot], roof: Option<f64>, size: (i32, i32), svg: &mut String) -> Option<()> {
    let area = Svg::new(svg, size).into_drawing_area();
    // Powers of two below, since sizes are; the roof near the top.
    let bytes = || dots.iter().map(|dot| dot.bytes.max(1.0).log2());
    let (low, high) = (bytes().fold(f64::INFINITY, f64::min), bytes().fold(0.0, f64::max));
    let (from, to) = ((low - 0.3).floor(), (high + 0.3).ceil());
    let top = 1.08 * dots.iter().map(|dot| dot.gbps).chain(roof).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .margin_top(10 * SCALE)
        .margin_right(14 * SCALE)
        .x_label_area_size(22 * SCALE)
        .y_label_area_size(50 * SCALE)
        .build_cartesian_2d(from..to, 0.0..top)
        .ok()?;
    let text = ("sans-serif", 11 * SCALE).into_font().color(&Ink::Label.color());
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .bold_line_style(Ink::Mesh.color())
        .axis_style(Ink::Axis.color())
        .x_labels(room(size.0 - 64, 52, 9).min((to - from) as usize + 1))
        .y_labels(5)
        .x_label_formatter(&|power| binary(*power))
        .y_label_formatter(&|rate| short(*rate))
        .label_style(text)
        .set_all_tick_mark_size(3 * SCALE)
        .draw()
        .ok()?;
    if let Some(roof) = roof {
        chart.draw_series([PathElement::new([(from, roof), (to, roof)], Ink::Roof.color())]).ok()?;
    }
    for dot in dots {
        let ink = if dot.below_goal { Ink::Bad } else { Ink::Point };
        chart
            .draw_series([Circle::new((dot.bytes.max(1.0).log2(), dot.gbps), 3 * SCALE, ink.color().filled())])
            .ok()?;
    }
    drop(chart);
    area.present().ok()
}
