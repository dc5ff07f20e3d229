//! Typed `u32` ids and the arenas they index.
//!
//! `entity_id!(pub struct TensorId, "t");` makes a newtype whose `Display`
//! prints the textual name used by every printer (`t3`). A [`PrimaryMap`] owns
//! the entities and hands out ids; a [`SecondaryMap`] is a side table of facts
//! about them. Neither dereferences to a slice: only the right key indexes it.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An index into a [`PrimaryMap`].
pub trait EntityId: Copy + Eq + Ord + std::hash::Hash + std::fmt::Debug {
    /// The id with the given position.
    fn from_index(index: usize) -> Self;
    /// The position of this id.
    fn index(self) -> usize;
}

/// Declares a typed id: `entity_id!(/** doc */ pub struct TensorId, "t");`.
macro_rules! entity_id {
    ($(#[$meta:meta])* $vis:vis struct $name:ident, $prefix:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(u32);

        impl $crate::util::EntityId for $name {
            #[inline(always)]
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("an arena holds fewer than 2^32 entities"))
            }
            #[inline(always)]
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use entity_id;

/// An arena: owns `V`s, keyed by the ids it hands out.
#[derive(Clone, PartialEq, Eq)]
pub struct PrimaryMap<K, V> {
    elems: Vec<V>,
    key: PhantomData<fn(K)>,
}

impl<K: EntityId, V> PrimaryMap<K, V> {
    /// An empty arena.
    pub fn new() -> Self {
        Self { elems: Vec::new(), key: PhantomData }
    }
    /// Adds an entity and returns its id.
    pub fn push(&mut self, value: V) -> K {
        let id = K::from_index(self.elems.len());
        self.elems.push(value);
        id
    }
    /// The id that the next `push` will return.
    pub fn next_id(&self) -> K {
        K::from_index(self.elems.len())
    }
    /// The number of entities.
    pub fn len(&self) -> usize {
        self.elems.len()
    }
    /// Whether the arena holds nothing.
    pub fn is_empty(&self) -> bool {
        self.elems.is_empty()
    }
    /// The entity, if the id is from this arena.
    pub fn get(&self, id: K) -> Option<&V> {
        self.elems.get(id.index())
    }
    /// All ids in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = K> + ExactSizeIterator + use<K, V> {
        (0..self.elems.len()).map(K::from_index)
    }
    /// All entities in id order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.elems.iter()
    }
    /// All entities in id order, mutable.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> + ExactSizeIterator {
        self.elems.iter_mut()
    }
    /// All pairs in id order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> + ExactSizeIterator {
        self.elems.iter().enumerate().map(|(i, v)| (K::from_index(i), v))
    }
}

impl<K: EntityId, V> Default for PrimaryMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: EntityId, V: std::fmt::Debug> std::fmt::Debug for PrimaryMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: EntityId, V> Index<K> for PrimaryMap<K, V> {
    type Output = V;
    #[inline(always)]
    fn index(&self, id: K) -> &V {
        &self.elems[id.index()]
    }
}

impl<K: EntityId, V> IndexMut<K> for PrimaryMap<K, V> {
    fn index_mut(&mut self, id: K) -> &mut V {
        &mut self.elems[id.index()]
    }
}

/// A side table of facts: every id has a value, `V::default()` until set.
#[derive(Clone, PartialEq, Eq)]
pub struct SecondaryMap<K, V> {
    elems: Vec<V>,
    default: V,
    key: PhantomData<fn(K)>,
}

impl<K: EntityId, V: Clone + Default> SecondaryMap<K, V> {
    /// A table in which every id has the default value.
    pub fn new() -> Self {
        Self { elems: Vec::new(), default: V::default(), key: PhantomData }
    }
    /// Sets the value of an id.
    pub fn set(&mut self, id: K, value: V) {
        self[id] = value;
    }
}

impl<K: EntityId, V: Clone + Default> Default for SecondaryMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: EntityId, V: std::fmt::Debug> std::fmt::Debug for SecondaryMap<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.elems.iter().enumerate().map(|(i, v)| (K::from_index(i), v))).finish()
    }
}

impl<K: EntityId, V: Clone + Default> Index<K> for SecondaryMap<K, V> {
    type Output = V;
    fn index(&self, id: K) -> &V {
        self.elems.get(id.index()).unwrap_or(&self.default)
    }
}

impl<K: EntityId, V: Clone + Default> IndexMut<K> for SecondaryMap<K, V> {
    fn index_mut(&mut self, id: K) -> &mut V {
        let index = id.index();
        if index >= self.elems.len() {
            self.elems.resize(index + 1, self.default.clone());
        }
        &mut self.elems[index]
    }
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro declares public ids")]
mod tests {
    use super::*;

    entity_id!(
        /// A test id.
        pub struct TestId,
        "x"
    );

    #[test]
    fn ids_print_their_textual_name() {
        let mut map = PrimaryMap::<TestId, &str>::new();
        let a = map.push("a");
        let b = map.push("b");
        assert_eq!((a.to_string(), b.to_string()), ("x0".into(), "x1".into()));
        assert_eq!(map[b], "b");
        assert_eq!(map.ids().collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn secondary_map_defaults_until_set() {
        let mut facts = SecondaryMap::<TestId, u32>::new();
        let id = TestId::from_index(5);
        assert_eq!(facts[id], 0);
        facts.set(id, 7);
        assert_eq!(facts[id], 7);
        assert_eq!(facts[TestId::from_index(2)], 0);
    }
}
