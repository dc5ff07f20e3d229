//! Places of drawings hold what `diagram` says of them.

use super::layout::{Rect, ascending, place};
use super::{BoxId, Diagram, Look};

/// A graph of boxes with ends anywhere before them, different for each seed.
fn graph(seed: u64) -> Diagram {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut diagram = Diagram::new("title", "about");
    let mut known: Vec<BoxId> = Vec::new();
    for _ in 0..2 + draw(40) {
        let from: Vec<BoxId> =
            (0..draw(4)).filter_map(|_| known.get(draw(known.len().max(1) as u64) as usize).copied()).collect();
        let lines = (0..1 + draw(4)).map(|_| "x".repeat(1 + draw(30) as usize)).collect();
        known.push(diagram.add(Look::Work, lines, "", &from));
    }
    diagram
}

fn apart(a: Rect, b: Rect) -> bool {
    a.x + a.width < b.x || b.x + b.width < a.x || a.y + a.height < b.y || b.y + b.height < a.y
}

#[test]
fn boxes_are_apart_and_on_the_page() {
    for seed in 0..200 {
        let places = place(&graph(seed));
        for (at, one) in places.boxes.iter().enumerate() {
            assert!(one.x + one.width <= places.width && one.y + one.height <= places.height, "{seed}: {places:?}");
            for other in &places.boxes[..at] {
                assert!(apart(*one, *other), "{seed}: {one:?} {other:?}");
            }
        }
    }
}

#[test]
fn ways_lead_from_box_to_box_and_cross_none() {
    for seed in 0..200 {
        let diagram = graph(seed);
        let places = place(&diagram);
        for (way, &(from, to)) in places.ways.iter().zip(&diagram.ways) {
            let (upper, lower) = (places.boxes[from], places.boxes[to]);
            let ends = (way[0].1, way[way.len() - 1].1);
            assert_eq!(ends, (upper.y + upper.height, lower.y), "{seed}");
            // Straight parts are all that is beside boxes: bends lie between layers.
            for straight in way.chunks(2).filter(|pair| pair.len() == 2) {
                let (x, top, end) = (straight[0].0, straight[0].1, straight[1].1);
                let crossed =
                    |one: &Rect| one.x <= x && x <= one.x + one.width && one.y < end && top < one.y + one.height;
                assert_eq!(places.boxes.iter().filter(|one| crossed(one)).count(), 0, "{seed}: {straight:?}");
            }
        }
    }
}

#[test]
fn what_would_descend_becomes_its_mean() {
    let made = ascending([1.0, 5.0, 3.0, 4.0, 9.0].into_iter());
    assert_eq!(made, [1.0, 4.0, 4.0, 4.0, 9.0]);
}

#[test]
fn nothing_is_a_page_too() {
    let places = place(&Diagram::new("title", ""));
    assert!(places.boxes.is_empty() && places.width > 40 && places.height > 0);
}
