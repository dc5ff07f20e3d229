//! Index maps against enumeration.

use super::brute::{Forwards, Point, consequences, is_contradictory, is_inside, points};
use super::draw::{Drawn, described, draw};
use super::numbers::Numbers;
use super::terms::{Term, Terms};
use crate::axes::{
    AxisId, AxisRef, Domain, DomainLoop, Extent, Foreign, IndexMap, Indexed, Offset, Place, ShiftId, Source, Storage,
    Xform,
};
use crate::diag::Result;
use crate::property::property;
use crate::util::EntityId;
use std::collections::BTreeSet;

const LIMIT: i64 = 400;

fn covered(drawn: &Drawn, storage: Storage) -> Result<Foreign> {
    let domain = Domain {
        logical: drawn.wanted.iter().map(|axis| AxisRef::Axis(*axis)).collect(),
        reduced: Vec::new(),
        loops: drawn.loops.iter().map(|axis| DomainLoop { axis: *axis, place: Place::Serial }).collect(),
        shared_loops: 0,
    };
    domain.covers(&drawn.numbers.graph, storage)
}

/// The index map of a domain, with a term for each question.
struct Mapped<'a> {
    terms: Terms<'a>,
    predicate: Vec<usize>,
    wanted: Vec<(AxisId, usize)>,
    foreign: Vec<(AxisId, usize)>,
    needed: BTreeSet<AxisId>,
    /// Whether an axis is divided into parts of which the last is not full.
    holes: bool,
    /// Whether windows overlap, in which elements lie twice.
    overlaps: bool,
}

/// `over`: a loop that may run past its end, as one that reads ahead.
fn mapped<'a>(drawn: &'a Drawn, foreign: &Foreign, over: Option<AxisId>) -> Mapped<'a> {
    let graph = &drawn.numbers.graph;
    let mut terms = Terms { numbers: &drawn.numbers, terms: Vec::new() };
    let mut bound = |axis: AxisId| (axis, terms.add_term(Term::Loop(axis)));
    let loops: Vec<_> = drawn.loops.iter().map(|axis| bound(*axis)).collect();
    let loops =
        loops.into_iter().map(|(axis, index)| (axis, Indexed { index, lower_ok: true, upper_ok: over != Some(axis) }));
    let mut map = IndexMap::new(graph, loops);
    let predicate = map.predicate(&mut terms, &drawn.wanted).unwrap();
    let wanted = drawn.wanted.iter().map(|axis| (*axis, map.index(&mut terms, *axis).unwrap())).collect();
    let foreign = foreign.axes.iter().map(|own| (own.axis, map.index(&mut terms, own.axis).unwrap())).collect();
    let needed = map.derivation().needed(graph, drawn.wanted.iter().copied());
    let holes = needed.iter().any(|axis| match map.derivation().source(*axis) {
        Source::Forward(xform) => match graph[xform] {
            Xform::Split { input, outer, inner, .. } => {
                let numbers = &drawn.numbers;
                numbers.extent(outer) * numbers.extent(inner) != numbers.extent(input)
            }
            _ => false,
        },
        _ => false,
    });
    let overlaps = needed.iter().any(|axis| match map.derivation().source(*axis) {
        Source::Backward(xform) => match graph[xform] {
            Xform::Window { inner, step, .. } => {
                drawn.numbers.extent(inner) > step.times(|of| drawn.numbers.extent(of))
            }
            _ => false,
        },
        _ => false,
    });
    Mapped { terms, predicate, wanted, foreign, needed, holes, overlaps }
}

/// What was met in the graphs of a test, so that none of it is missed.
#[derive(Debug, Default)]
struct Met {
    points: usize,
    elements: usize,
    tests: usize,
    failed: usize,
    foreign: usize,
    partial: usize,
    holes: usize,
    overlaps: usize,
    filled: usize,
}

/// Holds one graph to what its transforms mean.
fn check(drawn: &Drawn, over: Option<AxisId>, met: &mut Met) {
    let numbers = &drawn.numbers;
    let foreign = covered(drawn, Storage::Registers).unwrap();
    let mapped = mapped(drawn, &foreign, over);
    met.tests += mapped.predicate.len();
    met.foreign += foreign.axes.len();
    met.partial += foreign.partial.len();
    met.holes += usize::from(mapped.holes);
    met.overlaps += usize::from(mapped.overlaps);
    let mut hit: BTreeSet<Vec<i64>> = BTreeSet::new();
    let mut all = points(numbers, &drawn.loops);
    if let Some(over) = over {
        let past = |mut point: Point| {
            point.entry(over).and_modify(|index| *index += 2);
            point
        };
        all = all.into_iter().map(past).collect();
    }
    for point in all {
        let known = consequences(numbers, &point, Forwards::Unaligned);
        let at = |axis: AxisId| point[&axis];
        let holds = mapped.predicate.iter().all(|term| mapped.terms.value(*term, &at) == 1);
        let inside = |axis: &AxisId| known.get(axis).is_some_and(|index| is_inside(numbers, *axis, *index));
        if mapped.needed.iter().all(inside) {
            assert!(holds, "{point:?} is left out");
        }
        met.points += 1;
        if !holds {
            met.failed += 1;
            continue;
        }
        for (axis, term) in &mapped.wanted {
            assert!(inside(axis), "{point:?} is outside of {axis}: {known:?}");
            assert_eq!(mapped.terms.value(*term, &at), known[axis], "the index of {axis} at {point:?}");
        }
        let mut at_zero = true;
        for (axis, term) in &mapped.foreign {
            let index = mapped.terms.value(*term, &at);
            assert_eq!(Some(&index), known.get(axis), "the index of foreign {axis} at {point:?}");
            at_zero &= index == 0;
        }
        if at_zero {
            let element: Vec<i64> = drawn.wanted.iter().map(|axis| known[axis]).collect();
            assert!(hit.insert(element) || mapped.overlaps, "{point:?} is an element that was there before");
        }
    }
    met.elements += hit.len();
    if over.is_none() && foreign.partial.is_empty() && foreign.axes.iter().all(|own| numbers.extent(own.axis) > 0) {
        met.filled += 1;
        check_all_hit(drawn, &foreign, &mapped, &hit);
    }
}

/// Every element is hit, but what stands in no full part.
fn check_all_hit(drawn: &Drawn, foreign: &Foreign, mapped: &Mapped<'_>, hit: &BTreeSet<Vec<i64>>) {
    let numbers = &drawn.numbers;
    for element in points(numbers, &drawn.wanted) {
        if hit.contains(&drawn.wanted.iter().map(|axis| element[axis]).collect::<Vec<_>>()) {
            continue;
        }
        let mut given = element.clone();
        given.extend(foreign.axes.iter().map(|own| (own.axis, 0)));
        let known = consequences(numbers, &given, Forwards::All);
        let outside = |axis: &AxisId| known.get(axis).is_some_and(|index| !is_inside(numbers, *axis, *index));
        let hole = mapped.holes && mapped.needed.iter().any(outside);
        assert!(hole, "no loop computes {element:?}");
    }
}

/// Whether the loops have few points.
fn small(drawn: &Drawn) -> bool {
    let extents = drawn.loops.iter().map(|axis| drawn.numbers.extent(*axis));
    extents.fold(1i64, |n, extent| n.saturating_mul(extent.max(1))) <= LIMIT
}

/// The same; a failure tells the graph.
fn explained(drawn: &Drawn, over: Option<AxisId>, met: &mut Met) {
    let run = std::panic::AssertUnwindSafe(|| check(drawn, over, met));
    if let Err(panic) = std::panic::catch_unwind(run) {
        let (loops, wanted) = (&drawn.loops, &drawn.wanted);
        let text = described(&drawn.numbers);
        eprintln!("{text}\nloops {loops:?} wanted {wanted:?} over {over:?}");
        std::panic::resume_unwind(panic);
    }
}

/// What the map of some loops says of axes: indices, then the predicate.
#[track_caller]
fn check_text(numbers: &Numbers, loops: &[AxisId], wanted: &[AxisId], text: &str) {
    let mut terms = Terms { numbers, terms: Vec::new() };
    let bound: Vec<_> = loops.iter().map(|axis| (*axis, Indexed::inside(terms.add_term(Term::Loop(*axis))))).collect();
    let mut map = IndexMap::new(&numbers.graph, bound);
    let predicate = map.predicate(&mut terms, wanted).unwrap();
    let indices: Vec<usize> = wanted.iter().map(|axis| map.index(&mut terms, *axis).unwrap()).collect();
    let shown = |list: Vec<usize>| list.into_iter().map(|term| terms.text(term)).collect::<Vec<_>>().join(", ");
    assert_eq!(format!("{} if {}", shown(indices), shown(predicate)), text);
}

#[test]
fn indices_read_as_they_always_did() {
    let mut n = Numbers { shifts: vec![3], ..Numbers::default() };
    let (a, b) = (n.root(5), n.root(6));
    let m = n.graph.merge(a, b);
    let (o, i) = n.graph.split(m, |_| Extent::CeilDiv(m, 4), Extent::Const(4), false);
    let (io, ii) = n.graph.split(i, |_| Extent::CeilDiv(i, 3), Extent::Const(3), false);
    let index = "((d0*d1.o * |d0*d1.i|) + ((d0*d1.i.o * |d0*d1.i.i|) + d0*d1.i.i))";
    let inner = "(((d0*d1.i.o * |d0*d1.i.i|) + d0*d1.i.i) < |d0*d1.i|)";
    let text = format!("({index} / |d1|), ({index} % |d1|) if {inner}, ({index} < |d0*d1|)");
    check_text(&n, &[o, io, ii], &[a, b], &text);
    let p = n.graph.align(a, 4, ShiftId::from_index(0));
    let (o, i) = n.graph.split(p, |_| Extent::CeilDiv(p, 4), Extent::Const(4), true);
    let index = "(((d0.a.o * |d0.a.i|) + d0.a.i) - 3)";
    check_text(&n, &[o, i], &[a], &format!("{index} if ({index} >= 0), ({index} < |d0|)"));
    let cut = n.graph.resize(a, Extent::Const(3), Offset::constant(-2), Offset::constant(0));
    check_text(&n, &[cut], &[a], "(d0.r + 2) if ");
    check_text(&n, &[a], &[cut], "(d0 - 2) if ((d0 - 2) >= 0)");
}

#[test]
fn every_element_has_one_point_of_the_loops_and_right_indices() {
    let (mut held, mut left, mut met) = (0, 0, Met::default());
    property(|u| {
        let drawn = draw(u, LIMIT)?;
        if !small(&drawn) {
            left += 1;
            return Ok(());
        }
        explained(&drawn, None, &mut met);
        if !drawn.loops.is_empty() && u.ratio(1, 4)? {
            let over = drawn.loops[u.choose_index(drawn.loops.len())?];
            explained(&drawn, Some(over), &mut met);
        }
        held += 1;
        Ok(())
    })
    .bytes(48..=512)
    .cases(10_000);
    assert!(left * 5 < held, "{left} of {} graphs were too large", held + left);
    let Met { points, elements, tests, failed, foreign, partial, holes, overlaps, filled } = met;
    let few = [points / 20, elements / 10, tests, failed / 5, foreign, partial, holes, 5 * overlaps, filled];
    assert!(few.into_iter().all(|count| count * 10 > held), "too little was met: {met:?} in {held}");
}

#[test]
fn what_covers_takes_has_every_element_once() {
    let (mut taken, mut refused, mut met) = (0, 0, Met::default());
    property(|u| {
        let mut drawn = draw(u, LIMIT)?;
        for _ in 0..u.int_in_range(1..=2)? {
            let axis = drawn.numbers.graph.ids().nth(u.choose_index(drawn.numbers.graph.len())?);
            let list = if u.arbitrary()? { &mut drawn.loops } else { &mut drawn.wanted };
            if !list.is_empty() && u.arbitrary()? {
                list.swap_remove(u.choose_index(list.len())?);
            }
            if u.arbitrary()? {
                list.extend(axis);
            }
        }
        if !small(&drawn) {
            return Ok(());
        }
        let contradictory =
            |point: &Point| is_contradictory(&drawn.numbers, &consequences(&drawn.numbers, point, Forwards::Unaligned));
        match covered(&drawn, Storage::Global) {
            // Loops of a program do not contradict each other, where a tensor does not care either.
            Ok(_) if points(&drawn.numbers, &drawn.loops).iter().any(contradictory) => {}
            Ok(_) => {
                explained(&drawn, None, &mut met);
                taken += 1;
            }
            Err(_) => refused += 1,
        }
        Ok(())
    })
    .bytes(48..=512)
    .cases(10_000);
    assert!(taken * 10 > refused && refused * 10 > taken, "{taken} were taken and {refused} refused");
    assert!(met.filled * 10 > taken, "too little was met: {met:?} in {taken}");
}
