//! A map that is asked more often than it is added to.
//!
//! What is in it lies in one vector, in the order of keys: asking is a binary search, adding moves what is behind. So it is for
//! maps of a bound, whose values cost far more to make than to move: of thousands at most. The code of a `BTreeMap` is ten times
//! as much for each type of values, and each cache has its own.

/// Values by keys.
#[derive(Debug)]
pub(crate) struct SortedMap<K, V> {
    entries: Vec<(K, V)>,
}

impl<K: Ord, V> SortedMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    fn place(&self, key: &K) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| known.cmp(key))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.place(key).ok().map(|place| &self.entries[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).ok().map(|place| &mut self.entries[place].1)
    }

    /// Adds a value, and returns the one that was under the key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.place(&key) {
            Ok(place) => Some(std::mem::replace(&mut self.entries[place].1, value)),
            Err(place) => {
                self.entries.insert(place, (key, value));
                None
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.place(key).ok().map(|place| self.entries.remove(place).1)
    }

    /// Takes out the value that comes first by `rank`, of equal ones that of the least key.
    pub(crate) fn remove_least<R: Ord>(&mut self, rank: impl Fn(&V) -> R) -> Option<V> {
        let place = (0..self.entries.len()).min_by_key(|place| rank(&self.entries[*place].1))?;
        Some(self.entries.remove(place).1)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// All values, in the order of keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_under_their_keys() {
        let mut map = SortedMap::new();
        for key in [5, 1, 4, 2, 3] {
            assert_eq!(map.insert(key, key * 10), None);
        }
        assert_eq!(map.insert(4, 7), Some(40));
        assert_eq!((map.get(&1), map.get(&4), map.get(&6), map.len()), (Some(&10), Some(&7), None, 5));
        assert_eq!((map.remove(&1), map.remove(&1)), (Some(10), None));
        *map.get_mut(&5).expect("it is there") = 20;
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [20, 30, 7, 20]);
        assert_eq!((map.remove_least(|value| *value), map.remove_least(|value| *value)), (Some(7), Some(20)));
        assert_eq!(map.values().copied().collect::<Vec<_>>(), [30, 20]);
    }
}
