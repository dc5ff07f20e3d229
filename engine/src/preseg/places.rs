//! What is read of an argument at places that follow from indices alone, by way of pads, reshapes and lookups in turn, is looked
//! up in one go.
//!
//! A reshape and a lookup read memory: a pad before them, or another lookup, is a kernel that stores what it makes. But where each
//! element comes from is a number that a few operations make of its own place, as is whether it comes from what a pad adds:
//! `reshape(pad(x))` is `where(inside, take(x, place), fill)`, which elementwise operations behind it have in their kernel.
//! So windows that are a step apart, as those of pooling, are read where they lie, and rows that a pad shifts.
//!
//! An index of a lookup is such a number as well, whatever makes it: two lookups in a row, along two axes, are one whose place
//! has both. One that data say is refused where it is no place of its axis: then no place is looked up of what is left of the argument.
//!
//! In: a result of moves that elementwise operations read, or that ends in a lookup. In the way: arguments that are not row-major, places
//! that an `i32` does not hold, pads of several values, and reductions in the same fusion, which read what is stored in wider accesses.

use super::known::{Known, Short};
use super::make::{broadcast, call as make, reshape, tensor};
use super::slices::{fill, ranges, widths};
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, IndexAxes, OpArg};
use crate::fusion::{AxisKind, Fusion, Op, OpKind, Operand, Rewriter, ScalarId, Src, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// Moves on the way from an argument, at most.
const MOST_MOVES: usize = 16;
/// Operations that make a place and the tests of it, at most.
const MOST_WORK: usize = 40;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    if !is_on(whole) {
        return Changes::new();
    }
    let made = Rc::new(RefCell::new(Made::default()));
    whole.each(&move |whole, op| {
        let found = rule(whole, op)?;
        let made = Rc::clone(&made);
        let change: Change<'a> = Box::new(move |r| found.write(r, whole, &mut made.borrow_mut()));
        Some(change)
    })
}

fn is_on(whole: &Whole<'_>) -> bool {
    whole.knows_sizes() && !whole.fusion.ops.values().any(|op| matches!(op.kind, OpKind::Reduce { .. }))
}

/// Whether a lookup is one of an argument by moves alone, so that another one behind it could be the same.
pub(super) fn may_be_one(whole: &Whole<'_>, lookup: &Op) -> bool {
    let mut root = operand(lookup);
    for _ in 0..MOST_MOVES {
        match root.and_then(|tensor| whole.maker(tensor)) {
            Some(maker) if matches!(maker.kind, OpKind::Call(_)) => root = operand(maker),
            Some(_) => return false,
            None => break,
        }
    }
    is_on(whole) && root.is_some_and(|root| whole.is_row_major(root))
}

/// What is looked up as the result of an operation: of the moves that it ends, or of their conversion to the type in which others
/// compute.
fn rule(whole: &Whole<'_>, op: &Op) -> Option<Found> {
    let widens = |op: &Op| matches!(op.kind, OpKind::Cast(DType::F32));
    let output = op.output();
    let moved = if widens(op) { operand(op)? } else { output };
    // A kernel has it, whoever reads it.
    let looks_up = whole.maker(moved).is_some_and(|maker| call(maker, Form::Lookup(IndexAxes::InPlace)).is_some());
    let computes = |reader: &Op| reader.kind.is_elementwise();
    let dtype = whole.fusion.tensors[moved].dtype;
    if !dtype.is_float() && !dtype.is_int() {
        return None;
    }
    let is_whole = |x: TensorId| !whole.is_empty(x) && whole.regroups(x);
    // Each conversion is one, where that is all that is done with it.
    let is_used = !whole.is_returned(moved) && whole.readers(moved).next().is_some();
    let is_end = (moved != output) == (is_used && whole.readers(moved).all(widens));
    let is_read = looks_up || is_used && whole.readers(moved).all(computes);
    if !is_whole(moved) || !is_end || !is_read || !stores(whole.fusion, moved, false) {
        return None;
    }
    let way = Way::of(whole, moved)?;
    let [lead, tail] = way.ends(whole, moved)?;
    let found = Found { output, moved, lead, tail, way };
    found.is_cheap(whole).then_some(found)
}

/// A number that follows from the indices of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Its index along an axis.
    Index(usize),
    Number(i64),
    Plus(Box<Place>, Box<Place>),
    Times(Box<Place>, i64),
    /// The quotient and the remainder of what is not negative.
    Over(Box<Place>, i64),
    Rest(Box<Place>, i64),
    /// What an index holds at its index along an axis, between these.
    Held {
        index: TensorId,
        axis: usize,
        low: i64,
        high: i64,
    },
}

impl Place {
    fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.saturating_add(b)),
            (Self::Number(0), other) | (other, Self::Number(0)) => other,
            // Numbers stand behind, together.
            (number @ Self::Number(_), other) => other.plus(number),
            (Self::Plus(a, b), Self::Number(c)) if matches!(*b, Self::Number(_)) => a.plus(b.plus(Self::Number(c))),
            (Self::Plus(a, b), other) if matches!(*b, Self::Number(_)) => a.plus(other).plus(*b),
            (a, b) => Self::Plus(Box::new(a), Box::new(b)),
        }
    }

    fn times(self, by: i64) -> Self {
        match (self, by) {
            (_, 0) => Self::Number(0),
            (own, 1) => own,
            (Self::Number(a), by) => Self::Number(a.saturating_mul(by)),
            (Self::Times(a, own), by) => Self::Times(a, own.saturating_mul(by)),
            (Self::Plus(a, b), by) if matches!(*b, Self::Number(_)) => a.times(by).plus(b.times(by)),
            (own, by) => Self::Times(Box::new(own), by),
        }
    }

    fn over(self, by: i64, sizes: &[i64]) -> Self {
        match self.bounds(sizes) {
            (low, high) if low == high => Self::Number(low / by),
            (low, high) if low >= 0 && high < by => Self::Number(0),
            _ => Self::Over(Box::new(self), by),
        }
    }

    fn rest(self, by: i64, sizes: &[i64]) -> Self {
        match self.bounds(sizes) {
            (low, high) if low == high => Self::Number(low % by),
            (low, high) if low >= 0 && high < by => self,
            _ => Self::Rest(Box::new(self), by),
        }
    }

    /// The least and the greatest number that it may be, for a tensor of these sizes.
    fn bounds(&self, sizes: &[i64]) -> (i64, i64) {
        match self {
            Self::Index(axis) => (0, sizes[*axis] - 1),
            Self::Number(own) => (*own, *own),
            Self::Held { low, high, .. } => (*low, *high),
            Self::Plus(a, b) => {
                let (a, b) = (a.bounds(sizes), b.bounds(sizes));
                (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
            }
            Self::Times(a, by) => {
                let (low, high) = a.bounds(sizes);
                let (low, high) = (low.saturating_mul(*by), high.saturating_mul(*by));
                (low.min(high), low.max(high))
            }
            Self::Over(a, by) => {
                let (low, high) = a.bounds(sizes);
                (low / by, high / by)
            }
            Self::Rest(a, by) => {
                if a.bounds(sizes).0 < 0 {
                    (1 - by, by - 1)
                } else {
                    (0, by - 1)
                }
            }
        }
    }

    /// Whether it, and all that it is made of, are numbers of 32 bits.
    fn is_short(&self, sizes: &[i64]) -> bool {
        let (low, high) = self.bounds(sizes);
        let fits = |number: i64| i32::try_from(number).is_ok();
        let parts = match self {
            Self::Index(_) | Self::Number(_) | Self::Held { .. } => true,
            Self::Plus(a, b) => a.is_short(sizes) && b.is_short(sizes),
            Self::Times(a, by) | Self::Over(a, by) | Self::Rest(a, by) => a.is_short(sizes) && fits(*by),
        };
        parts && fits(low) && fits(high)
    }

    fn reads(&self, axis: usize) -> bool {
        match self {
            Self::Index(own) | Self::Held { axis: own, .. } => *own == axis,
            Self::Number(_) => false,
            Self::Plus(a, b) => a.reads(axis) || b.reads(axis),
            Self::Times(a, _) | Self::Over(a, _) | Self::Rest(a, _) => a.reads(axis),
        }
    }

    fn work(&self) -> usize {
        match self {
            Self::Index(_) | Self::Number(_) => 0,
            // It is often the same for many elements.
            Self::Held { .. } => 4,
            Self::Plus(a, b) => 1 + a.work() + b.work(),
            Self::Times(a, _) => 1 + a.work(),
            // A product and a shift; the remainder is what is left.
            Self::Over(a, _) => 3 + a.work(),
            Self::Rest(a, _) => 5 + a.work(),
        }
    }
}

/// The way from a tensor back to the argument that it shows.
struct Way {
    argument: TensorId,
    /// Where each element is along each axis of it.
    places: Vec<Place>,
    /// What is within these bounds, if it is not from a pad.
    tests: Vec<(Place, Range<i64>)>,
    /// What pads add; nothing if it is 0.
    fill: Option<ScalarId>,
    /// Indices that data say, along an axis of the moved, and of how many elements they are places.
    looked: Vec<(TensorId, usize, i64)>,
}

impl Way {
    /// The way, if something on it would be stored only to be read by what follows.
    fn of(whole: &Whole<'_>, moved: TensorId) -> Option<Self> {
        let sizes = whole.sizes(moved);
        let index = |axis: usize| if sizes[axis] == 1 { Place::Number(0) } else { Place::Index(axis) };
        let places = (0..sizes.len()).map(index).collect();
        let mut way = Self { argument: moved, places, tests: Vec::new(), fill: None, looked: Vec::new() };
        let (mut reads_memory, mut is_stored, mut fill) = (false, false, None);
        for _ in 0..MOST_MOVES {
            let Some(maker) = whole.maker(way.argument) else { break };
            let x = operand(maker).filter(|_| maker.outputs.len() == 1)?;
            if way.argument != moved && whole.is_returned(way.argument) {
                return None;
            }
            let step = Step::of(whole, maker)?;
            is_stored |= reads_memory && step.computes();
            reads_memory |= matches!(step, Step::Reshape | Step::Stride(..) | Step::Look { .. });
            if let Step::Pad(_, own) = &step
                && *fill.get_or_insert(*own) != *own
            {
                return None;
            }
            way.back(whole, &step, x, sizes)?;
            way.argument = x;
        }
        way.fill = fill.flatten();
        let is_argument = whole.maker(way.argument).is_none() && whole.is_row_major(way.argument);
        (is_argument && is_stored).then_some(way)
    }

    /// Goes one step back, to what it is made of.
    fn back(&mut self, whole: &Whole<'_>, step: &Step, x: TensorId, sizes: &[i64]) -> Option<()> {
        let own = whole.sizes(x);
        match step {
            Step::Slice(ranges) => self.shift(ranges.iter().map(|range| range.0)),
            Step::Pad(widths, _) => {
                self.shift(widths.iter().map(|width| -width.0));
                let tests = self.places.iter().zip(own).filter(|(place, size)| {
                    let (low, high) = place.bounds(sizes);
                    low < 0 || high >= **size
                });
                let tests: Vec<_> = tests.map(|(place, size)| (place.clone(), 0..*size)).collect();
                self.tests.extend(tests);
            }
            Step::Stride(dim, start, by) => {
                let place = std::mem::replace(&mut self.places[*dim], Place::Number(0));
                self.places[*dim] = place.times(*by).plus(Place::Number(*start));
            }
            Step::Look { dim, index, bounds } => {
                // Along one of its own axes, in order, and all of it: what is cut or padded there has another length.
                let Place::Index(axis) = self.places[*dim] else { return None };
                if whole.sizes(*index) != [sizes[axis]] {
                    return None;
                }
                let (low, high) = bounds.unwrap_or((0, own[*dim] - 1));
                self.places[*dim] = Place::Held { index: *index, axis, low, high };
                if bounds.is_none() {
                    self.looked.push((*index, axis, own[*dim]));
                }
            }
            Step::Select(dim, at) => self.places.insert(*dim, Place::Number(*at)),
            Step::Reshape => self.places = regrouped(&self.places, whole.sizes(self.argument), own, sizes)?,
        }
        Some(())
    }

    fn shift(&mut self, by: impl Iterator<Item = i64>) {
        for (place, by) in self.places.iter_mut().zip(by) {
            *place = std::mem::replace(place, Place::Number(0)).plus(Place::Number(by));
        }
    }

    /// How many axes before and behind the others the argument has as they are; those are one place in what is left of it.
    fn ends(&self, whole: &Whole<'_>, moved: TensorId) -> Option<[usize; 2]> {
        let (sizes, own) = (whole.sizes(moved), whole.sizes(self.argument));
        // An axis of the argument, which is one of the moved.
        let is_same = |at: usize, axis: usize| {
            let is_one = sizes[axis] == 1 && self.places[at] == Place::Number(0);
            let is_index = is_one || self.places[at] == Place::Index(axis);
            let others = self.places.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, place)| place);
            let mut others = others.chain(self.tests.iter().map(|(place, _)| place));
            sizes[axis] == own[at] && is_index && !others.any(|place| place.reads(axis))
        };
        let most = sizes.len().min(own.len());
        let lead = (0..most).take_while(|axis| is_same(*axis, *axis)).count();
        let behind = 1..(most - lead).max(1);
        let tail = behind.take_while(|behind| is_same(own.len() - behind, sizes.len() - behind)).count();
        let place = self.flat(whole, [lead, tail]);
        let reads_all = (lead..sizes.len() - tail).all(|axis| sizes[axis] == 1 || place.reads(axis));
        (lead < most && reads_all).then_some([lead, tail])
    }

    /// The axes of the argument that are looked up.
    fn looked_up<'w>(&self, whole: &'w Whole<'_>, [lead, tail]: [usize; 2]) -> &'w [i64] {
        let sizes = whole.sizes(self.argument);
        &sizes[lead..sizes.len() - tail]
    }

    /// The place in what is left of the argument between its first and its last axes.
    fn flat(&self, whole: &Whole<'_>, ends: [usize; 2]) -> Place {
        let rest = self.places[ends[0]..].iter().zip(self.looked_up(whole, ends));
        rest.fold(Place::Number(0), |flat, (place, size)| flat.times(*size).plus(place.clone()))
    }
}

/// A move.
enum Step {
    Slice(Vec<(i64, i64)>),
    Pad(Vec<(i64, i64)>, Option<ScalarId>),
    /// Elements along an axis, from one on so many apart.
    Stride(usize, i64, i64),
    /// Those that a vector says along an axis: positions between these, if it follows from sizes.
    Look {
        dim: usize,
        index: TensorId,
        bounds: Option<(i64, i64)>,
    },
    Select(usize, i64),
    Reshape,
}

impl Step {
    fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        if let Some(ranges) = ranges(whole, op) {
            return Some(Self::Slice(ranges));
        }
        if let Some(widths) = widths(whole, op) {
            return Some(Self::Pad(widths, fill(op)));
        }
        if call(op, Form::Reshape).is_some() {
            return Some(Self::Reshape);
        }
        if let Some(select) = call(op, Form::Select) {
            let (dim, size) = (select.axis("dim"), whole.sizes(operand(op)?));
            let at = *whole.numbers(op, select, "index")?.first()?;
            return Some(Self::Select(dim, if at < 0 { at + size[dim] } else { at }));
        }
        let lookup = call(op, Form::Lookup(IndexAxes::InPlace))?.lookup()?;
        let Some(Operand::Tensor(index)) = op.inputs.get(lookup.index).copied() else { return None };
        let (dim, size) = (lookup.axis, whole.sizes(operand(op)?)[lookup.axis]);
        if let Some((start, by)) = progression(whole, index, size) {
            return Some(Self::Stride(dim, start, by));
        }
        if let Some(known) = Known::of(whole, index) {
            // Others are refused where they are looked up.
            let bounds = known.bounds().filter(|(low, high)| *low >= 0 && *high < size)?;
            return Some(match known.progression() {
                Some((start, by)) => Self::Stride(dim, start, by),
                None => Self::Look { dim, index, bounds: Some(bounds) },
            });
        }
        let is_vector = whole.rank(index) == 1 && whole.kind(index, 0) == AxisKind::Iteration;
        is_vector.then_some(Self::Look { dim, index, bounds: None })
    }

    /// Whether a kernel makes it, whatever reads it.
    fn computes(&self) -> bool {
        match self {
            Self::Pad(widths, _) => widths.iter().any(|width| width.0 > 0 || width.1 > 0),
            Self::Stride(..) | Self::Look { .. } => true,
            Self::Slice(_) | Self::Select(..) | Self::Reshape => false,
        }
    }
}

/// Whether something on the way back from a tensor, by moves alone, is stored to be looked up, or seen otherwise, behind it; or would
/// be, if what is computed of one tensor on the way were computed behind (`lookups`).
fn stores(fusion: &Fusion, moved: TensorId, computes: bool) -> bool {
    let (mut at, mut reads_memory) = (moved, false);
    for _ in 0..MOST_MOVES {
        let Some(maker) = fusion.definition(at).map(|op| &fusion.ops[op]) else { return false };
        let Some(x) = operand(maker) else { return false };
        let is_one = maker.inputs.iter().filter(|input| matches!(input, Operand::Tensor(_))).count() == 1;
        if computes && maker.kind.is_elementwise() && is_one {
            at = x;
            continue;
        }
        let OpKind::Call(moves) = &maker.kind else { return false };
        let looks_up = moves.movement().form == Some(Form::Lookup(IndexAxes::InPlace));
        match moves.movement().form {
            Some(Form::Pad) if reads_memory => return true,
            _ if looks_up && reads_memory => return true,
            Some(Form::Reshape) => reads_memory = true,
            _ if looks_up => reads_memory = true,
            Some(Form::Pad | Form::Slice | Form::Select) => {}
            _ => return false,
        }
        at = x;
    }
    false
}

/// Whether a fusion has lookups behind lookups, so that its sizes have to be seen.
pub(super) fn may_find(fusion: &Fusion) -> bool {
    let looks_up = |op: &Op| call(op, Form::Lookup(IndexAxes::InPlace)).is_some();
    fusion.ops.values().any(|op| looks_up(op) && stores(fusion, op.output(), true))
}

/// The first of numbers that are so far apart, if all are positions of an axis of this size: others are refused where they are
/// looked up.
pub(super) fn progression(whole: &Whole<'_>, index: TensorId, size: i64) -> Option<(i64, i64)> {
    let maker = whole.maker(index)?;
    let call = call(maker, Form::Progression)?;
    let dtype = whole.fusion.tensors[index].dtype;
    let &[length] = whole.sizes(index) else { return None };
    // Narrower types may be too narrow for the numbers.
    if !matches!(dtype, DType::I32 | DType::I64) || length < 1 {
        return None;
    }
    let number = |param: &str, default: i64| match whole.numbers(maker, call, param)?.as_slice() {
        [] => Some(default),
        [number] => Some(*number),
        _ => None,
    };
    let (start, by) = (number("start", 0)?, number("step", 1)?);
    let last = start.checked_add(by.checked_mul(length - 1)?)?;
    let is_position =
        |number: i64| (0..size).contains(&number) && (dtype == DType::I64 || i32::try_from(number).is_ok());
    (is_position(start) && is_position(last)).then_some((start, by))
}

/// Places along other axes of as many elements in the same order.
fn regrouped(places: &[Place], from: &[i64], to: &[i64], sizes: &[i64]) -> Option<Vec<Place>> {
    let several = |sizes: &[i64]| -> Vec<usize> { (0..sizes.len()).filter(|axis| sizes[*axis] != 1).collect() };
    let (own, others) = (several(from), several(to));
    let mut made = vec![Place::Number(0); to.len()];
    let (mut i, mut j) = (0, 0);
    while i < own.len() {
        // The fewest axes of both that have the same elements.
        let (first, start) = (i, j);
        let (mut a, mut b) = (from[own[i]], to[*others.get(j)?]);
        (i, j) = (i + 1, j + 1);
        while a != b {
            if a < b {
                a = a.checked_mul(from[*own.get(i)?])?;
                i += 1;
            } else {
                b = b.checked_mul(to[*others.get(j)?])?;
                j += 1;
            }
        }
        let flat = own[first..i]
            .iter()
            .fold(Place::Number(0), |flat, axis| flat.times(from[*axis]).plus(places[*axis].clone()));
        let group: Vec<i64> = others[start..j].iter().map(|axis| to[*axis]).collect();
        for (axis, place) in others[start..j].iter().zip(cut(&flat, &group, sizes)) {
            made[*axis] = place;
        }
    }
    Some(made)
}

/// Places along axes of one place in all of their elements.
fn cut(flat: &Place, to: &[i64], sizes: &[i64]) -> Vec<Place> {
    let place = |axis: usize| {
        let behind: i64 = to[axis + 1..].iter().product();
        let quotient = if behind == 1 { flat.clone() } else { flat.clone().over(behind, sizes) };
        if axis == 0 { quotient } else { quotient.rest(to[axis], sizes) }
    };
    (0..to.len()).map(place).collect()
}

/// What is looked up, and where.
struct Found {
    output: TensorId,
    moved: TensorId,
    way: Way,
    /// Axes of the table before the one that is looked up, and behind it.
    lead: usize,
    tail: usize,
}

/// What was made.
#[derive(Default)]
struct Made {
    /// Of places, for a tensor of these sizes.
    places: BTreeMap<(Vec<i64>, Place), TensorId>,
    short: Short,
}

impl Found {
    /// Whether the place is made by few operations on numbers of 32 bits.
    fn is_cheap(&self, whole: &Whole<'_>) -> bool {
        let sizes = whole.sizes(self.moved);
        let flat = self.way.flat(whole, self.ends());
        let elements = self.elements(whole);
        let tests: usize = self.way.tests.iter().map(|(place, _)| 2 + place.work()).sum();
        let varies = |place: &Place| !matches!(place, Place::Number(_));
        let are_short = self.way.tests.iter().all(|(place, _)| varies(place) && place.is_short(sizes));
        are_short
            && varies(&flat)
            && flat.is_short(sizes)
            && i32::try_from(elements).is_ok()
            && flat.work() + tests <= MOST_WORK
    }

    fn ends(&self) -> [usize; 2] {
        [self.lead, self.tail]
    }

    /// How many places the axis has that is looked up.
    fn elements(&self, whole: &Whole<'_>) -> i64 {
        self.way.looked_up(whole, self.ends()).iter().fold(1, |n, size| n.saturating_mul(*size))
    }

    fn write(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, made: &mut Made) -> Result<TensorId> {
        let (sizes, dtype) = (whole.sizes(self.moved), whole.fusion.tensors[self.output].dtype);
        let table = self.table(r, whole)?;
        let elements = self.elements(whole);
        let flat = self.way.flat(whole, self.ends());
        let (low, high) = flat.bounds(sizes);
        let mut place = number(r, whole, made, sizes, &flat)?;
        // What comes from a pad is read from anywhere.
        if low < 0 {
            place = tensor(r.builder.binary(BinaryOp::Maximum, place, 0)?)?;
        }
        if high >= elements {
            place = tensor(r.builder.binary(BinaryOp::Minimum, place, elements - 1)?)?;
        }
        for &(index, axis, size) in &self.way.looked {
            place = self.held_to(r, whole, place, (index, axis, size))?;
        }
        let dim = OpArg::Int((sizes.len() - self.tail) as i64 - 1);
        let mut read = make(&mut r.builder, "take_along_axis", |args| {
            args.value("x", table).value("index", place).with("dim", dim)
        })?;
        if let Some(inside) = self.inside(r, whole, made)? {
            let own = whole.fusion.tensors[self.moved].dtype;
            let zero: Src = if own.is_float() { 0.0.into() } else { 0.into() };
            let fill = self.way.fill.map_or(zero, |fill| r.scalar(fill).into());
            let fill = r.builder.cast(fill, own)?;
            read = tensor(r.builder.ternary(TernaryOp::Where, inside, read, fill)?)?;
        }
        tensor(r.builder.cast(read, dtype)?)
    }

    /// A place, where an index that data say holds one of its axis; else none.
    fn held_to(
        &self,
        r: &mut Rewriter<'_>,
        whole: &Whole<'_>,
        place: TensorId,
        (index, axis, size): (TensorId, usize, i64),
    ) -> Result<TensorId> {
        let own = r.tensor(index)?;
        let own = along(r, own, axis, whole.rank(self.moved))?;
        let b = &mut r.builder;
        let own = b.cast(own, DType::I64)?;
        let (is_high, is_low) = (b.binary(BinaryOp::Ge, own, 0)?, b.binary(BinaryOp::Lt, own, size)?);
        let is_place = b.binary(BinaryOp::LogicalAnd, is_high, is_low)?;
        tensor(b.ternary(TernaryOp::Where, is_place, place, -1)?)
    }

    /// The argument, with all that is left between its first and last axes as one.
    fn table(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>) -> Result<TensorId> {
        let (argument, rank) = (self.way.argument, whole.rank(self.moved));
        let axes = &whole.fusion.tensors[argument].axes;
        let mut shape: Vec<Src> = axes[..self.lead].iter().map(|axis| r.scalar(axis.extent).into()).collect();
        shape.resize(rank - self.tail - 1, 1.into());
        shape.push(self.elements(whole).into());
        shape.extend(axes[axes.len() - self.tail..].iter().map(|axis| Src::from(r.scalar(axis.extent))));
        let x = r.tensor(argument)?;
        reshape(&mut r.builder, x, shape)
    }

    /// Whether an element is not from a pad; none where all are not.
    fn inside(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>, made: &mut Made) -> Result<Option<TensorId>> {
        let sizes = whole.sizes(self.moved);
        let mut all: Option<TensorId> = None;
        for (place, range) in &self.way.tests {
            let (low, high) = place.bounds(sizes);
            let own = number(r, whole, made, sizes, place)?;
            let b = &mut r.builder;
            let mut tests = Vec::new();
            if low < range.start {
                tests.push(b.binary(BinaryOp::Ge, own, range.start)?);
            }
            if high >= range.end {
                tests.push(b.binary(BinaryOp::Lt, own, range.end)?);
            }
            for test in tests {
                all = Some(match all {
                    None => tensor(test)?,
                    Some(others) => tensor(r.builder.binary(BinaryOp::LogicalAnd, others, test)?)?,
                });
            }
        }
        Ok(all)
    }
}

/// A vector that lies along one of so many axes.
fn along(r: &mut Rewriter<'_>, line: TensorId, axis: usize, rank: usize) -> Result<TensorId> {
    let flags: Vec<bool> = (0..rank).map(|other| other != axis).collect();
    broadcast(&mut r.builder, line, &flags)
}

/// For each element of a tensor of these sizes, as far as it depends on that, the number that a place is.
fn number(r: &mut Rewriter<'_>, whole: &Whole<'_>, made: &mut Made, sizes: &[i64], place: &Place) -> Result<TensorId> {
    let key = (sizes.to_vec(), place.clone());
    if let Some(known) = made.places.get(&key) {
        return Ok(*known);
    }
    let bug = || Diagnostic::bug("a place is the same everywhere");
    let number = match place {
        Place::Index(axis) => {
            let mut shape: Vec<Src> = vec![1.into(); sizes.len()];
            shape[*axis] = sizes[*axis].into();
            let index = r.builder.index(&shape, *axis as i64)?;
            tensor(r.builder.cast(index, DType::I32)?)?
        }
        Place::Number(_) => return Err(bug()),
        Place::Held { index, axis, low, high } => {
            let line = match Known::of(whole, *index) {
                Some(known) => {
                    let (least, most) = known.sure(*index);
                    let mut line = known.write(r, *index, &mut made.short)?;
                    if least < *low {
                        line = tensor(r.builder.binary(BinaryOp::Maximum, line, *low)?)?;
                    }
                    if most > *high {
                        line = tensor(r.builder.binary(BinaryOp::Minimum, line, *high)?)?;
                    }
                    line
                }
                None => {
                    let own = r.tensor(*index)?;
                    tensor(r.builder.cast(own, DType::I32)?)?
                }
            };
            along(r, line, *axis, sizes.len())?
        }
        Place::Plus(a, b) => {
            let own = self::number(r, whole, made, sizes, a)?;
            let other: Src = match &**b {
                Place::Number(by) => (*by).into(),
                other => self::number(r, whole, made, sizes, other)?.into(),
            };
            tensor(r.builder.binary(BinaryOp::Add, own, other)?)?
        }
        Place::Times(a, by) => {
            let own = self::number(r, whole, made, sizes, a)?;
            tensor(r.builder.binary(BinaryOp::Mul, own, *by)?)?
        }
        Place::Over(a, by) => {
            let own = self::number(r, whole, made, sizes, a)?;
            tensor(r.builder.binary(BinaryOp::Div, own, *by)?)?
        }
        Place::Rest(a, by) => {
            let own = self::number(r, whole, made, sizes, a)?;
            let quotient = self::number(r, whole, made, sizes, &Place::Over(a.clone(), *by))?;
            let whole = r.builder.binary(BinaryOp::Mul, quotient, *by)?;
            tensor(r.builder.binary(BinaryOp::Sub, own, whole)?)?
        }
    };
    made.places.insert(key, number);
    Ok(number)
}
