//! The axes of a reshape: which stay, and how the others are merged and split.
//!
//! Elements keep their order, so both sides are walked from the outside: where as many elements
//! have been passed on both, a group ends. In a group the old axes are consumed from the outside:
//! a new axis is an old one, or the outer part of one that it divides, or old ones are merged
//! until one of these holds.

use super::relations::{Group, Node, NodeExtent, Origin, Relations};
use crate::axes::sizes::Size;

impl Relations<'_> {
    /// Relates the axes of a reshape's operand and result. Broadcasts have no part in it.
    pub(super) fn reshape(&mut self, from: &[Node], to: &[Node]) {
        let with_index = |relations: &Self, axes: &[Node]| -> Vec<Node> {
            axes.iter().copied().filter(|axis| relations.nodes[*axis].concrete).collect()
        };
        let (from, to) = (with_index(self, from), with_index(self, to));
        let (mut from, mut to) = (from.as_slice(), to.as_slice());
        while !from.is_empty() && !to.is_empty() {
            let (old, new) = self.group(from, to);
            self.regroup(&from[..old], &to[..new]);
            (from, to) = (&from[old..], &to[new..]);
        }
    }

    /// How many axes of each side make the first group: the fewest that have as many elements.
    /// If those are not found, or the rest would have no partner, all are one group.
    fn group(&self, from: &[Node], to: &[Node]) -> (usize, usize) {
        let products = |axes: &[Node]| -> Vec<Option<Size>> {
            let mut product = Some(Size::number(1));
            let mut next = |axis: &Node| {
                product = product.take().and_then(|product| product.times(&self.size(*axis)));
                product.clone()
            };
            axes.iter().map(&mut next).collect()
        };
        let (old, new) = (products(from), products(to));
        for (n, size) in old.iter().enumerate() {
            let same = new.iter().position(|other| size.is_some() && other == size);
            if let Some(m) = same
                && (n + 1 == from.len()) == (m + 1 == to.len())
            {
                return (n + 1, m + 1);
            }
        }
        (from.len(), to.len())
    }

    /// Relates the axes of one group.
    fn regroup(&mut self, from: &[Node], to: &[Node]) {
        let mut old = from.iter().copied();
        let Some(mut current) = old.next() else { return };
        for (position, new) in to.iter().enumerate() {
            let is_last = position + 1 == to.len();
            loop {
                if is_last {
                    current = self.with_all(current, &mut old);
                    self.pair(current, *new);
                    return;
                }
                if self.size(current) == self.size(*new)
                    && let Some(next) = old.clone().next()
                {
                    self.pair(current, *new);
                    old.next();
                    current = next;
                    break;
                }
                if let Some(rest) = self.divided(current, *new) {
                    current = rest;
                    break;
                }
                match old.next() {
                    Some(next) => current = self.merged(current, next, Origin::Merge),
                    // All that is left of the new axes is in it.
                    None => return self.split(current, &to[position..]),
                }
            }
        }
    }

    fn with_all(&mut self, first: Node, rest: &mut impl Iterator<Item = Node>) -> Node {
        let mut whole = first;
        for next in rest {
            whole = self.merged(whole, next, Origin::Merge);
        }
        whole
    }

    /// The inner part of an axis whose outer part is another one, if that divides it.
    fn divided(&mut self, whole: Node, outer: Node) -> Option<Node> {
        let quotient = self.size(whole).exact_quotient(&self.size(outer))?;
        let extent = match (quotient.known(), quotient.as_atom()) {
            (Some(n), _) if n > 1 => NodeExtent::Const(n),
            (None, Some(scalar)) => NodeExtent::Scalar(scalar),
            _ => return None,
        };
        let inner = self.between(extent);
        self.groups.push(Group { outer, inner, whole, origin: Origin::Split });
        Some(inner)
    }

    /// Splits an axis into all of some.
    fn split(&mut self, whole: Node, parts: &[Node]) {
        let mut current = whole;
        // From the inside: what is left outside is the product of the others.
        for (position, inner) in parts.iter().enumerate().skip(1).rev() {
            let outer = match position {
                1 => parts[0],
                _ => self.product(&parts[..position]),
            };
            self.groups.push(Group { outer, inner: *inner, whole: current, origin: Origin::Split });
            current = outer;
        }
    }

    /// An axis with as many indices as some have together.
    fn product(&mut self, parts: &[Node]) -> Node {
        let mut extent = parts[0];
        for part in &parts[1..] {
            extent = self.between(self.product_extent(extent, *part));
        }
        extent
    }
}
