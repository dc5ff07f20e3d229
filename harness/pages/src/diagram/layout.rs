//! Where boxes and ways of a diagram are.
//!
//! A box stands one layer below the lowest that leads to it. A way over several layers has a place in each of those
//! between, as if it were a narrow box, so that it passes between boxes. Places of a layer are put in the order of the mean
//! of what they are tied to, up and down in turns; then they are moved as near to these means as they may without overlap.

use super::{Diagram, columns};

/// Pixels of a column of text, of a line, and around the text of a box.
pub(super) const COLUMN: usize = 8;
pub(super) const LINE: usize = 17;
pub(super) const PAD: usize = 9;
/// Pixels between boxes of a layer, and between layers.
pub(super) const ASIDE: f64 = 22.0;
const BELOW: usize = 34;
/// How often a drawing is gone through, down and up, until it is put up with.
const ROUNDS: usize = 12;

/// A drawing's places, in pixels.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Of each box.
    pub(super) boxes: Vec<Rect>,
    /// Of each way, from the lower end of the upper box to the upper end of the lower one.
    pub(super) ways: Vec<Vec<(usize, usize)>>,
}

/// The place of a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
}

/// A box, or what a way takes of a layer that it only passes.
struct Spot {
    layer: usize,
    width: f64,
    center: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

struct Layers {
    /// Boxes come first, by their numbers.
    spots: Vec<Spot>,
    /// Spots from left to right.
    rows: Vec<Vec<usize>>,
    /// The spots that each way leads through, its ends included.
    ways: Vec<Vec<usize>>,
}

pub(super) fn place(diagram: &Diagram) -> Places {
    let mut layers = Layers::new(diagram);
    for round in 0..ROUNDS {
        layers.order(round % 2 == 0);
    }
    layers.pack();
    for round in 0..ROUNDS {
        layers.settle(round % 2 == 0);
    }
    layers.places(diagram)
}

/// The layer of each box. One that nothing leads to stands directly above what it leads to.
fn layers_of(diagram: &Diagram) -> Vec<usize> {
    let mut layer = vec![0; diagram.boxes.len()];
    for &(from, to) in &diagram.ways {
        layer[to] = layer[to].max(layer[from] + 1);
    }
    for id in 0..layer.len() {
        if !diagram.ways.iter().any(|(_, to)| *to == id) {
            let next = diagram.ways.iter().filter(|(from, _)| *from == id).map(|(_, to)| layer[*to]);
            layer[id] = next.min().map_or(0, |next| next - 1);
        }
    }
    layer
}

impl Layers {
    fn new(diagram: &Diagram) -> Self {
        let layers = layers_of(diagram);
        let width = |columns: usize| (columns * COLUMN + 2 * PAD) as f64;
        let spot = |layer, width| Spot { layer, width, center: 0.0, above: Vec::new(), below: Vec::new() };
        let boxes = diagram.boxes.iter().zip(&layers);
        let mut spots: Vec<Spot> = boxes.map(|(one, layer)| spot(*layer, width(one.columns()))).collect();
        let mut ways = Vec::new();
        for &(from, to) in &diagram.ways {
            let mut way = vec![from];
            for layer in layers[from] + 1..layers[to] {
                way.push(spots.len());
                spots.push(spot(layer, 2.0));
            }
            way.push(to);
            for pair in way.windows(2) {
                spots[pair[0]].below.push(pair[1]);
                spots[pair[1]].above.push(pair[0]);
            }
            ways.push(way);
        }
        let mut rows = vec![Vec::new(); spots.iter().map(|spot| spot.layer + 1).max().unwrap_or(0)];
        for (id, spot) in spots.iter().enumerate() {
            rows[spot.layer].push(id);
        }
        Self { spots, rows, ways }
    }

    /// Rows in the order in which they are gone through.
    fn turns(&self, down: bool) -> Vec<usize> {
        if down { (0..self.rows.len()).collect() } else { (0..self.rows.len()).rev().collect() }
    }

    /// The mean of a figure of what a spot is tied to, above or below it.
    fn mean(&self, id: usize, down: bool, figure: impl Fn(usize) -> f64) -> Option<f64> {
        let tied = if down { &self.spots[id].above } else { &self.spots[id].below };
        (!tied.is_empty()).then(|| tied.iter().map(|other| figure(*other)).sum::<f64>() / tied.len() as f64)
    }

    /// Puts each row in the order of what its spots are tied to.
    fn order(&mut self, down: bool) {
        let mut at = vec![0.0; self.spots.len()];
        for row in &self.rows {
            row.iter().enumerate().for_each(|(position, id)| at[*id] = position as f64);
        }
        for turn in self.turns(down) {
            let mut row = std::mem::take(&mut self.rows[turn]);
            let wanted = |id: usize| self.mean(id, down, |other| at[other]).unwrap_or(at[id]);
            row.sort_by(|a, b| wanted(*a).total_cmp(&wanted(*b)));
            row.iter().enumerate().for_each(|(position, id)| at[*id] = position as f64);
            self.rows[turn] = row;
        }
    }

    /// Puts the spots of each row side by side.
    fn pack(&mut self) {
        for row in &self.rows {
            let mut edge = 0.0;
            for id in row {
                let spot = &mut self.spots[*id];
                spot.center = edge + spot.width / 2.0;
                edge += spot.width + ASIDE;
            }
        }
    }

    /// Moves the spots of each row to the mean of what they are tied to, as far as the order
    /// and widths let them: the least squares of what is missing.
    fn settle(&mut self, down: bool) {
        for turn in self.turns(down) {
            let row = &self.rows[turn];
            let (mut offsets, mut edge) = (Vec::new(), 0.0);
            for id in row {
                offsets.push(edge + self.spots[*id].width / 2.0);
                edge += self.spots[*id].width + ASIDE;
            }
            let center = |other: usize| self.spots[other].center;
            let wanted = row.iter().map(|id| self.mean(*id, down, center).unwrap_or(self.spots[*id].center));
            let moved = ascending(wanted.zip(&offsets).map(|(wanted, offset)| wanted - offset));
            for ((id, moved), offset) in row.clone().into_iter().zip(moved).zip(offsets) {
                self.spots[id].center = moved + offset;
            }
        }
    }

    fn places(&self, diagram: &Diagram) -> Places {
        let left = self.spots.iter().map(|spot| spot.center - spot.width / 2.0).fold(f64::INFINITY, f64::min);
        let margin = if left.is_finite() { ASIDE - left } else { ASIDE };
        let x = |id: usize| (self.spots[id].center + margin).round() as usize;
        let height = |id: usize| diagram.boxes.get(id).map_or(0, |one| one.lines.len() * LINE + 2 * PAD);
        let (mut tops, mut ends, mut y) = (Vec::new(), Vec::new(), 3 * LINE + BELOW / 2);
        for row in &self.rows {
            tops.push(y);
            y += row.iter().map(|id| height(*id)).max().unwrap_or(0);
            ends.push(y);
            y += BELOW;
        }
        let rect = |id: usize| {
            let width = self.spots[id].width as usize;
            Rect { x: x(id).saturating_sub(width / 2), y: tops[self.spots[id].layer], width, height: height(id) }
        };
        let boxes: Vec<Rect> = (0..diagram.boxes.len()).map(rect).collect();
        let way = |way: &Vec<usize>| {
            let points = way.iter().flat_map(|id| {
                let layer = self.spots[*id].layer;
                [(x(*id), tops[layer]), (x(*id), ends[layer])]
            });
            let first = boxes[way[0]];
            let start = std::iter::once((x(way[0]), first.y + first.height));
            start.chain(points.skip(1).take(2 * way.len() - 2)).collect()
        };
        let heads = [&diagram.title, &diagram.about].map(|text| ASIDE as usize + columns(text) * COLUMN);
        let rights = boxes.iter().map(|one| one.x + one.width).chain(self.ways.iter().flatten().map(|id| x(*id)));
        let width = rights.chain(heads).max().unwrap_or(0) + ASIDE as usize;
        Places { width, height: y, ways: self.ways.iter().map(way).collect(), boxes }
    }
}

/// The ascending numbers with the least squares of differences from the given ones: those that
/// would descend become their mean.
pub(super) fn ascending(wanted: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut blocks: Vec<(f64, usize)> = Vec::new();
    for value in wanted {
        let mut last = (value, 1);
        while let Some(&(sum, count)) = blocks.last() {
            if sum / count as f64 <= last.0 / last.1 as f64 {
                break;
            }
            blocks.pop();
            last = (last.0 + sum, last.1 + count);
        }
        blocks.push(last);
    }
    blocks.into_iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / count as f64, count)).collect()
}
