//! Which axes are the same because transforms of the same axes are.
//!
//! To a fixpoint: equal parts have equal wholes; equal wholes with inner parts of equal extents
//! have equal parts; what is cut or padded equally from equal axes is equal, but not the other
//! way round, since what was cut off is not known from what is left. Groups of three axes are
//! found equal however they are nested: of `(a, (b, c))` follows `((a, b), c)`.

use super::relations::{Group, Node, Origin, Relations};
use crate::axes::sizes::Size;
use std::collections::{BTreeMap, BTreeSet};

/// How many groups may be derived for each that an operation makes.
const DERIVED: usize = 8;

impl Relations<'_> {
    /// Joins all classes that are equal.
    pub(super) fn close(&mut self) {
        let most = (self.groups.len() + 1) * DERIVED;
        loop {
            self.find_sizes();
            let joined = self.join_groups() | self.join_resizes();
            if !joined && !self.rotate(most) {
                return;
            }
        }
    }

    /// Joins two axes; says whether they were two.
    fn join(&mut self, a: Node, b: Node) -> bool {
        let new = self.class(a) != self.class(b);
        self.permissive.union(a, b);
        self.exact.union(a, b);
        new
    }

    fn join_groups(&mut self) -> bool {
        let mut joined = false;
        let mut by_parts: BTreeMap<(Node, Node), Node> = BTreeMap::new();
        let mut by_whole: BTreeMap<(Node, Size), (Node, Node)> = BTreeMap::new();
        for position in 0..self.groups.len() {
            let Group { outer, inner, whole, .. } = self.groups[position];
            let parts = (self.class(outer), self.class(inner));
            let other = *by_parts.entry(parts).or_insert(whole);
            joined |= self.join(whole, other);
            let size = self.class_size(inner).clone();
            let (o, i) = *by_whole.entry((self.class(whole), size)).or_insert((outer, inner));
            joined |= self.join(outer, o) | self.join(inner, i);
        }
        joined
    }

    fn join_resizes(&mut self) -> bool {
        let mut joined = false;
        let mut known: BTreeMap<(Node, (Size, Size)), Node> = BTreeMap::new();
        for position in 0..self.resizes.len() {
            let (input, output) = (self.resizes[position].input, self.resizes[position].output);
            let key = (self.class(input), self.resizes[position].key.clone());
            let other = *known.entry(key).or_insert(output);
            joined |= self.join(output, other);
        }
        joined
    }

    /// Of `w = (o, i)` and `i = (p, q)` follows `w = ((o, p), q)`; says whether any was new.
    fn rotate(&mut self, most: usize) -> bool {
        let mut by_whole: BTreeMap<Node, Vec<Group>> = BTreeMap::new();
        // What a class and an inner class make, and of which outer and inner class one consists.
        let mut known: BTreeSet<(Node, Node, Node)> = BTreeSet::new();
        let mut by_parts: BTreeMap<(Node, Node), Node> = BTreeMap::new();
        for group in &self.groups {
            let [whole, outer, inner] = [group.whole, group.outer, group.inner].map(|node| self.class(node));
            by_whole.entry(whole).or_default().push(*group);
            known.insert((whole, outer, inner));
            by_parts.insert((outer, inner), whole);
        }
        let before = self.groups.len();
        for position in 0..before {
            let outside = self.groups[position];
            let [whole, outer, inner] = [outside.whole, outside.outer, outside.inner].map(|node| self.class(node));
            for inside in by_whole.get(&inner).into_iter().flatten() {
                let [p, q] = [inside.outer, inside.inner].map(|node| self.class(node));
                let left = by_parts.get(&(outer, p)).copied();
                if inner == outer || left.is_some_and(|left| known.contains(&(whole, left, q))) {
                    continue;
                }
                if self.groups.len() >= most {
                    return self.groups.len() > before;
                }
                let left = self.merged(outside.outer, inside.outer, Origin::Derived);
                let (inner, whole) = (inside.inner, outside.whole);
                self.groups.push(Group { outer: left, inner, whole, origin: Origin::Derived });
            }
        }
        self.groups.len() > before
    }
}
