//! Stable sorts by keys, and sets and maps of what is seldom in one.
//!
//! The code of each sort here is made once for each type of elements, where `slice::sort_by_key` is some 7 KB of machine code for
//! each closure. And `collect` sorts what goes into a set or map, which is as much again for each type: what is collected at one
//! or two places is put in element by element instead. Both are only for what is short or made seldom.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts as `slice::sort_by_key` does.
pub(crate) fn sort_by_key<T, K: Ord>(elements: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(elements, &|one, other| key(one).cmp(&key(other)));
}

fn sort_by<T>(elements: &mut [T], compare: &dyn Fn(&T, &T) -> Ordering) {
    elements.sort_by(compare);
}

/// The numbers below `count` by their keys, the smallest first, equal ones in their order.
pub(crate) fn order_by_key<K: Ord>(count: usize, key: impl Fn(usize) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    sort_by_key(&mut order, |number| key(*number));
    order
}

/// A set of these.
pub(crate) fn set_of<T: Ord>(elements: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(elements);
    set
}

/// A map of these; of several with one key the last.
pub(crate) fn map_of<K: Ord, V>(pairs: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(pairs);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_stay_in_order() {
        assert_eq!(order_by_key(6, |number| number % 3), [0, 3, 1, 4, 2, 5]);
        assert!(order_by_key(0, |number| number).is_empty());
        let mut pairs = [(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd')];
        sort_by_key(&mut pairs, |(number, _)| *number);
        assert_eq!(pairs, [(1, 'b'), (1, 'd'), (2, 'a'), (2, 'c')]);
    }

    #[test]
    fn sets_and_maps_are_those_that_collect_makes() {
        let pairs = [(2, 'a'), (1, 'b'), (2, 'c')];
        assert_eq!(map_of(pairs), pairs.into_iter().collect::<BTreeMap<_, _>>());
        assert_eq!(set_of(pairs), pairs.into_iter().collect::<BTreeSet<_>>());
    }
}
