//! A figure over runs: its line with an interval, and marks where something changed.
//!
//! Runs stand side by side at equal distances, whether or not a night lies between them; one without the figure is a gap.
//! Where there are more runs than columns of a screen, neighbours are drawn as one: the least and the greatest of their
//! interval, and the median of the line.

use super::axis::{around, percent, room, short};
use super::svg::{Ink, SCALE, Svg};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One run's figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    /// The run's place on the axis.
    pub(crate) x: usize,
    pub(crate) low: f64,
    pub(crate) value: f64,
    pub(crate) high: f64,
}

/// Something to show at a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    /// The level changed by a part of it; worse or better.
    Change {
        x: usize,
        ratio: f64,
        worse: bool,
    },
    /// Other generated code, or another GPU, from this run on.
    Code(usize),
    Device(usize),
}

/// What is drawn.
pub(crate) struct Series<'a> {
    pub(crate) points: &'a [Point],
    pub(crate) marks: &'a [Mark],
    /// Labels of the places of the axis.
    pub(crate) labels: &'a [String],
    /// A value that is to be reached, or cannot be passed.
    pub(crate) goal: Option<f64>,
    /// The axis does not show a smaller part of the value than this.
    pub(crate) least_ratio: f64,
}

/// How large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Wide,
    Narrow,
    Small,
}

impl Size {
    fn pixels(self) -> (i32, i32) {
        match self {
            Size::Wide => (920, 250),
            Size::Narrow => (380, 210),
            Size::Small => (380, 150),
        }
    }
}

/// A drawing, and where its runs stand: from and to, in its own units, of the first and the last place.
pub(crate) struct Place {
    pub(crate) svg: String,
    pub(crate) size: (i32, i32),
    pub(crate) from: i32,
    pub(crate) to: i32,
}

const LEFT: i32 = 50;
const RIGHT: i32 = 14;
const TOP: i32 = 18;
const BOTTOM: i32 = 22;
const FONT: i32 = 11;

/// Draws. Nothing that is drawn can fail; an error of the library leaves the rest out.
pub(crate) fn series(given: &Series<'_>, size: Size) -> Place {
    let (width, height) = size.pixels();
    let mut svg = String::new();
    let drawn = draw(given, &mut svg, (width, height));
    debug_assert!(drawn.is_some(), "the backend refuses nothing");
    Place { svg, size: (width * SCALE, height * SCALE), from: LEFT * SCALE, to: (width - RIGHT) * SCALE }
}

fn draw(given: &Series<'_>, svg: &mut String, (width, height): (i32, i32)) -> Option<()> {
    let area = Svg::new(svg, (width, height)).into_drawing_area();
    let finite = || given.points.iter().filter(|point| point.value.is_finite());
    let low = finite().map(|point| point.low.min(point.value)).chain(given.goal).fold(f64::INFINITY, f64::min);
    let high = finite().map(|point| point.high.max(point.value)).chain(given.goal).fold(f64::NEG_INFINITY, f64::max);
    let (from, to) = around(low, high, given.least_ratio);
    let last = given.labels.len().saturating_sub(1).max(1) as f64;
    let columns = width - LEFT - RIGHT;
    let mut chart = ChartBuilder::on(&area)
        .margin_top(TOP * SCALE)
        .margin_right(RIGHT * SCALE)
        .x_label_area_size(BOTTOM * SCALE)
        .y_label_area_size(LEFT * SCALE)
        .build_cartesian_2d(0.0..last, from..to)
        .ok()?;
    let text = ("sans-serif", FONT * SCALE).into_font().color(&Ink::Label.color());
    let letters = given.labels.iter().map(String::len).max().unwrap_or(0) as i32;
    let label = |x: &f64| {
        let whole = (x - x.round()).abs() < 1e-6;
        given.labels.get(x.round() as usize).filter(|_| whole && *x >= 0.0).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(ShapeStyle { color: plotters::style::TRANSPARENT, filled: false, stroke_width: 0 })
        .max_light_lines(0)
        .bold_line_style(Ink::Mesh.color())
        .axis_style(Ink::Axis.color())
        .x_labels(room(columns, letters * 6, 9).min(given.labels.len().max(2)))
        .y_labels((height / 45).max(3) as usize)
        .x_label_formatter(&label)
        .y_label_formatter(&|y| short(*y))
        .label_style(text.clone())
        .set_all_tick_mark_size(3 * SCALE)
        .draw()
        .ok()?;
    if let Some(goal) = given.goal {
        chart.draw_series([PathElement::new([(0.0, goal), (last, goal)], Ink::Goal.color())]).ok()?;
    }
    marks(&mut chart, given, (from, to), columns)?;
    for part in parts(&thinned(given.points, (columns as f64 / 1.6) as usize)) {
        let at = |point: &Point| point.x as f64;
        let few = given.points.len() <= 40;
        if part.iter().any(|point| point.low < point.high) && !few {
            let there = part.iter().map(|point| (at(point), point.high));
            let back = part.iter().rev().map(|point| (at(point), point.low));
            chart
                .draw_series([Polygon::new(there.chain(back).collect::<Vec<_>>(), Ink::Band.color().filled())])
                .ok()?;
        }
        let line: Vec<(f64, f64)> = part.iter().map(|point| (at(point), point.value)).collect();
        if line.len() > 1 {
            chart.draw_series([PathElement::new(line, Ink::Line.color())]).ok()?;
        }
        if few || part.len() == 1 {
            let whisker =
                |point: &Point| PathElement::new([(at(point), point.low), (at(point), point.high)], Ink::Line.color());
            chart.draw_series(part.iter().filter(|point| point.low < point.high).map(whisker)).ok()?;
            let dot = |point: &Point| Circle::new((at(point), point.value), 3 * SCALE, Ink::Point.color().filled());
            chart.draw_series(part.iter().map(dot)).ok()?;
        }
    }
    drop(chart);
    area.present().ok()
}

type Chart<'a, 'b> = ChartContext<
    'a,
    Svg<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

/// Changes of level over the whole height with their size on top, other code and other GPUs as ticks below.
fn marks(chart: &mut Chart<'_, '_>, given: &Series<'_>, (from, to): (f64, f64), columns: i32) -> Option<()> {
    let tick = (to - from) * 0.06;
    let last = given.labels.len().saturating_sub(1).max(1) as f64;
    let mut free = f64::NEG_INFINITY;
    for mark in given.marks {
        match *mark {
            Mark::Change { x, ratio, worse } => {
                let (line, word) = if worse { (Ink::Bad, Ink::BadText) } else { (Ink::Good, Ink::GoodText) };
                let x = x as f64;
                chart.draw_series([PathElement::new([(x, from), (x, to)], line.color())]).ok()?;
                // Words that would touch those before are left to the table.
                let pixel = x / last * f64::from(columns);
                if pixel > free + 46.0 {
                    free = pixel;
                    let side = match pixel {
                        _ if pixel < 24.0 => HPos::Left,
                        _ if pixel > f64::from(columns) - 24.0 => HPos::Right,
                        _ => HPos::Center,
                    };
                    let font = ("sans-serif", FONT * SCALE).into_font().color(&word.color());
                    let style = font.pos(Pos::new(side, VPos::Bottom));
                    chart.draw_series([Text::new(percent(ratio), (x, to), style)]).ok()?;
                }
            }
            Mark::Code(x) => {
                let x = x as f64;
                chart.draw_series([PathElement::new([(x, from), (x, from + tick)], Ink::Code.color())]).ok()?;
            }
            Mark::Device(x) => {
                let x = x as f64;
                chart.draw_series([PathElement::new([(x, to - tick), (x, to)], Ink::Other.color())]).ok()?;
            }
        }
    }
    Some(())
}

/// Parts without gaps. A gap is a place of the axis without a value, where every place has one otherwise.
fn parts(points: &[Point]) -> Vec<Vec<Point>> {
    let mut parts: Vec<Vec<Point>> = Vec::new();
    let usual = points.windows(2).map(|pair| pair[1].x - pair[0].x).min().unwrap_or(1).max(1);
    for point in points.iter().filter(|point| point.value.is_finite()) {
        match parts.last_mut() {
            Some(part) if part.last().is_some_and(|last| point.x - last.x <= 2 * usual) => part.push(*point),
            _ => parts.push(vec![*point]),
        }
    }
    parts
}

/// At most so many points: neighbours become one.
fn thinned(points: &[Point], most: usize) -> Vec<Point> {
    let most = most.max(1);
    if points.len() <= most {
        return points.to_vec();
    }
    let step = points.len().div_ceil(most);
    points.chunks(step).map(joined).collect()
}

fn joined(chunk: &[Point]) -> Point {
    let mut values: Vec<f64> = chunk.iter().map(|point| point.value).filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let bound = |each: fn(&Point) -> f64, pick: fn(f64, f64) -> f64, start| chunk.iter().map(each).fold(start, pick);
    Point {
        x: chunk[chunk.len() / 2].x,
        low: bound(|point| point.low, f64::min, f64::INFINITY),
        value: values.get(values.len() / 2).copied().unwrap_or(f64::NAN),
        high: bound(|point| point.high, f64::max, f64::NEG_INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<Point> {
        let point = |(x, value): (usize, &f64)| Point { x, low: value - 1.0, value: *value, high: value + 1.0 };
        values.iter().enumerate().map(point).collect()
    }

    #[test]
    fn an_envelope_keeps_the_extremes() {
        let mut values = vec![10.0; 4000];
        (values[1234], values[3001]) = (90.0, -50.0);
        let thin = thinned(&points(&values), 100);
        assert!(thin.len() <= 100);
        let (low, high) = thin.iter().fold((0.0f64, 0.0f64), |(low, high), p| (low.min(p.low), high.max(p.high)));
        assert_eq!((low, high), (-51.0, 91.0));
    }

    #[test]
    fn a_gap_parts_the_line() {
        let all = points(&[1.0; 20]);
        let kept: Vec<Point> = all.into_iter().filter(|point| !(5..9).contains(&point.x)).collect();
        assert_eq!(parts(&kept).iter().map(Vec::len).collect::<Vec<_>>(), [5, 11]);
    }

    #[test]
    fn a_drawing_is_small_and_has_what_is_given() {
        let values: Vec<f64> = (0..400).map(|i| 100.0 + f64::from(i % 7)).collect();
        let labels: Vec<String> = (0..400).map(|i| format!("d{i:05}")).collect();
        let marks = [Mark::Change { x: 200, ratio: 0.05, worse: true }, Mark::Code(100), Mark::Device(300)];
        let given =
            Series { points: &points(&values), marks: &marks, labels: &labels, goal: Some(104.0), least_ratio: 0.02 };
        let place = series(&given, Size::Wide);
        assert!(place.svg.len() < 12_000, "{}", place.svg.len());
        for part in ["+5.0", "class=\"w\"", "class=\"k\"", "class=\"o\"", "class=\"q\"", "class=\"b\"", "d00000"] {
            assert!(place.svg.contains(part), "{part}: {}", place.svg);
        }
        for empty in [&[][..], &points(&[5.0])] {
            let given = Series { points: empty, marks: &[], labels: &[], goal: None, least_ratio: 0.02 };
            series(&given, Size::Small);
        }
    }
}
