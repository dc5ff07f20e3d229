//! Whether every axis has one index: the invariant by which one loop serves all tensors.
//!
//! From the axes of a tensor, each free, transforms give indices to other axes. A *place* is
//! such an index in normal form: an offset, and digits of the free indices with their strides.
//! Where two ways lead to an axis, or back to one that is free, their places must be the same;
//! places that are not of one form count as different. So for the axes of each tensor an axis
//! has at most one index function, and loops over those axes never mean two indices of it.

use super::relations::{Group, Node, Origin, Relations, Resized};
use super::values::DraftId;
use crate::axes::sizes::Size;
use std::collections::{BTreeMap, BTreeSet};

/// Where a digit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    /// A free axis.
    Free(Node),
    /// A quotient (or a remainder) of which nothing better is known, by number.
    Opaque(usize),
}

/// `stride * ((start / step) % extent)`
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Digit {
    start: Start,
    step: Size,
    extent: Size,
    stride: Size,
}

/// A sum of digits that do not overlap, and an offset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    offset: Size,
    digits: Vec<Digit>,
}

/// A quotient (0) or remainder (1) that is no digit.
type Quotient = (Place, Size, usize);

/// The places of axes that follow from those of one tensor.
struct View<'a> {
    relations: &'a Relations<'a>,
    /// What operations make that has not been followed, in one direction or the other.
    groups: Vec<&'a Group>,
    resizes: Vec<&'a Resized>,
    places: BTreeMap<Node, Place>,
    opaque: BTreeMap<Quotient, usize>,
}

/// An axis with two indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The value whose axes are free.
    pub(super) value: DraftId,
    /// The axis.
    pub(super) node: Node,
}

impl Relations<'_> {
    /// The first axis that has two indices.
    pub(super) fn conflict(&self) -> Option<Conflict> {
        if self.groups.is_empty() && self.resizes.is_empty() {
            return None;
        }
        // Elements that are picked, each with the values that are computed from it.
        let picked: Vec<(Node, BTreeSet<DraftId>)> = self
            .resizes
            .iter()
            .filter_map(|resized| Some((resized.output, self.values.ahead_of(resized.picked?))))
            .collect();
        let mut seen: BTreeSet<(Vec<Node>, Vec<Node>)> = BTreeSet::new();
        self.parts().find_map(|value| {
            let axes = self.axes(value).filter(|axis| self.nodes[*axis].concrete);
            let mut free: Vec<Node> = axes.map(|axis| self.class(axis)).collect();
            free.sort_unstable();
            let behind: Vec<Node> =
                picked.iter().filter(|(_, values)| values.contains(&value)).map(|(node, _)| *node).collect();
            if !seen.insert((free.clone(), behind.clone())) {
                return None;
            }
            let mut view = View::new(self, &free);
            let node = view.conflict().or_else(|| view.pick(&behind))?;
            Some(Conflict { value, node })
        })
    }
}

impl<'a> View<'a> {
    fn new(relations: &'a Relations<'a>, free: &[Node]) -> Self {
        let made = |group: &&Group| group.origin != Origin::Derived;
        let mut view = Self {
            relations,
            groups: relations.groups.iter().filter(made).collect(),
            resizes: relations.resizes.iter().collect(),
            places: BTreeMap::new(),
            opaque: BTreeMap::new(),
        };
        for class in free {
            let place = Place::whole(Start::Free(*class), relations.class_size(*class).clone());
            view.places.insert(*class, place);
        }
        view
    }

    /// Follows all transforms that operations make; says where two indices meet.
    fn conflict(&mut self) -> Option<Node> {
        loop {
            let (groups, rest): (Vec<_>, Vec<_>) = self.groups.iter().partition(|group| self.leads_on(group));
            self.groups = rest;
            let (resizes, rest): (Vec<_>, Vec<_>) = self
                .resizes
                .iter()
                .partition(|resized| self.place(resized.input).is_some() || self.place(resized.output).is_some());
            self.resizes = rest;
            if groups.is_empty() && resizes.is_empty() {
                return None;
            }
            for group in groups {
                if let Some(node) = self.follow_group(group) {
                    return Some(node);
                }
            }
            for resized in resizes {
                if let Some(node) = self.follow_resize(resized) {
                    return Some(node);
                }
            }
        }
    }

    /// Gives elements that are picked their index. Where the value is computed for which one is
    /// picked, it has no other; elsewhere none may be in the way of another.
    fn pick(&mut self, behind: &[Node]) -> Option<Node> {
        let zero = Place { offset: Size::number(0), digits: Vec::new() };
        let wrong = |node: &&Node| self.place(**node).is_some_and(|place| *place != zero);
        if let Some(node) = behind.iter().find(wrong) {
            return Some(*node);
        }
        for resized in &self.relations.resizes {
            let class = self.relations.class(resized.output);
            if self.relations.class_size(class).known() == Some(1) {
                self.places.entry(class).or_insert_with(|| zero.clone());
            }
        }
        self.conflict()
    }

    fn place(&self, node: Node) -> Option<&Place> {
        self.places.get(&self.relations.class(node))
    }

    fn leads_on(&self, group: &Group) -> bool {
        self.place(group.whole).is_some() || (self.place(group.outer).is_some() && self.place(group.inner).is_some())
    }

    /// Notes an index of an axis; says so if it has another one. Too large a form counts as another.
    fn meet(&mut self, node: Node, place: Option<Place>) -> Option<Node> {
        let class = self.relations.class(node);
        match (place, self.places.get(&class)) {
            (Some(place), None) => {
                self.places.insert(class, place);
                None
            }
            (Some(place), Some(known)) if place == *known => None,
            _ => Some(node),
        }
    }

    fn follow_group(&mut self, group: &Group) -> Option<Node> {
        let n = self.relations.class_size(group.inner).clone();
        match (self.place(group.outer), self.place(group.inner)) {
            (Some(outer), Some(inner)) => {
                let place = outer.grouped(inner, &n);
                self.meet(group.whole, place)
            }
            _ => {
                let whole = self.place(group.whole)?.clone();
                let parts = [group.outer, group.inner].map(|node| self.relations.class_size(node).clone());
                let [outer, inner] = whole.parts(&n).unwrap_or_else(|| self.opaque_parts(&whole, &n, parts));
                let conflict = self.meet(group.outer, Some(outer));
                conflict.or_else(|| self.meet(group.inner, Some(inner)))
            }
        }
    }

    fn follow_resize(&mut self, resized: &Resized) -> Option<Node> {
        let by = &resized.key.0;
        match (self.place(resized.input), self.place(resized.output)) {
            (Some(place), _) => {
                let place = place.moved(by);
                self.meet(resized.output, place)
            }
            (None, Some(place)) => {
                let place = by.negated().and_then(|by| place.moved(&by));
                self.meet(resized.input, place)
            }
            (None, None) => None,
        }
    }

    /// Quotient and remainder of what does not divide into digits.
    fn opaque_parts(&mut self, whole: &Place, n: &Size, extents: [Size; 2]) -> [Place; 2] {
        let mut number = 0;
        extents.map(|extent| {
            let next = self.opaque.len();
            let opaque = *self.opaque.entry((whole.clone(), n.clone(), number)).or_insert(next);
            number += 1;
            Place::whole(Start::Opaque(opaque), extent)
        })
    }
}

impl Place {
    /// All indices of an extent, from a start.
    fn whole(start: Start, extent: Size) -> Self {
        let one = Size::number(1);
        let digit = Digit { start, step: one.clone(), extent: extent.clone(), stride: one.clone() };
        Self { offset: Size::number(0), digits: if extent == one { Vec::new() } else { vec![digit] } }
    }

    fn moved(&self, by: &Size) -> Option<Self> {
        Some(Self { offset: self.offset.plus(by)?, digits: self.digits.clone() })
    }

    /// `self * n + inner`, where the inner place is below `n`.
    fn grouped(&self, inner: &Self, n: &Size) -> Option<Self> {
        let offset = self.offset.times(n)?.plus(&inner.offset)?;
        let mut digits = inner.digits.clone();
        for digit in &self.digits {
            digits.push(Digit { stride: digit.stride.times(n)?, ..digit.clone() });
        }
        Some(Self { offset, digits }.normal())
    }

    /// `self / n` and `self % n`, if that leaves digits.
    fn parts(&self, n: &Size) -> Option<[Self; 2]> {
        let zero = Size::number(0);
        let mut outer = Self { offset: self.offset.exact_quotient(n)?, digits: Vec::new() };
        let mut inner = Self { offset: zero, digits: Vec::new() };
        for digit in &self.digits {
            if let Some(stride) = digit.stride.exact_quotient(n) {
                outer.digits.push(Digit { stride, ..digit.clone() });
            } else if n.exact_quotient(&digit.stride.times(&digit.extent)?).is_some() {
                inner.digits.push(digit.clone());
            } else {
                let low = n.exact_quotient(&digit.stride)?;
                let high = digit.extent.exact_quotient(&low)?;
                let step = digit.step.times(&low)?;
                outer.digits.push(Digit { step, extent: high, stride: Size::number(1), ..digit.clone() });
                inner.digits.push(Digit { extent: low, ..digit.clone() });
            }
        }
        Some([outer.normal(), inner.normal()])
    }

    /// Digits of one start that stand side by side become one, and all stand in order.
    fn normal(mut self) -> Self {
        while let Some((low, high)) = self.neighbours() {
            let above = self.digits[high].extent.clone();
            let Some(extent) = self.digits[low].extent.times(&above) else { break };
            self.digits[low].extent = extent;
            self.digits.remove(high);
        }
        self.digits.sort();
        self
    }

    /// Two digits of which one goes on where the other ends.
    fn neighbours(&self) -> Option<(usize, usize)> {
        let follows = |low: &Digit, high: &Digit| {
            low.start == high.start
                && low.step.times(&low.extent).as_ref() == Some(&high.step)
                && low.stride.times(&low.extent).as_ref() == Some(&high.stride)
        };
        let pairs = |low: usize| (0..self.digits.len()).map(move |high| (low, high));
        (0..self.digits.len()).flat_map(pairs).find(|(low, high)| follows(&self.digits[*low], &self.digits[*high]))
    }
}
