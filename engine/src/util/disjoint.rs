//! Disjoint sets, for classes of things that are found to be one.

/// Disjoint sets over `0..n`; a set is named by its least member, whatever the
/// order in which it was made.
#[derive(Clone, Debug)]
pub struct DisjointSets {
    parent: Vec<usize>,
}

impl DisjointSets {
    /// Each of `0..count` alone.
    pub fn new(count: usize) -> Self {
        Self { parent: (0..count).collect() }
    }

    /// Adds a member alone, and says which it is.
    pub fn add(&mut self) -> usize {
        self.parent.push(self.parent.len());
        self.parent.len() - 1
    }

    /// The least member of the set that a member is in; shortens the way to it.
    pub fn find(&mut self, mut member: usize) -> usize {
        while self.parent[member] != member {
            self.parent[member] = self.parent[self.parent[member]];
            member = self.parent[member];
        }
        member
    }

    /// The same where the sets are only read.
    pub fn root(&self, mut member: usize) -> usize {
        while self.parent[member] != member {
            member = self.parent[member];
        }
        member
    }

    /// Makes one set of two.
    pub fn union(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_member_names_a_set() {
        let mut sets = DisjointSets::new(6);
        for (a, b) in [(5, 4), (4, 2), (3, 1), (2, 5)] {
            sets.union(a, b);
        }
        assert_eq!((0..6).map(|member| sets.root(member)).collect::<Vec<_>>(), [0, 1, 2, 1, 2, 2]);
        assert_eq!((0..6).map(|member| sets.find(member)).collect::<Vec<_>>(), [0, 1, 2, 1, 2, 2]);
        assert_eq!((sets.add(), sets.root(6)), (6, 6));
    }
}
