//! Bytes of a tensor's storage.
//!
//! Mostly as they are. A caller who has long storage that is some bytes again and again says so
//! ([`HostBytes::repeating`]): then all of it is made when somebody looks at it, and often nobody does, since a GPU is sent
//! the part. Either reads like a slice.
//!
//! Invariant: a part that all of it is made of does not change, and what was made of it is it again and again.

use rayon::prelude::*;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes that are set at a time. Few: rayon holds one by value wherever it divides the work, and a thread that waits takes
/// on other parts of it, on the same stack.
const WORD: usize = 64;
/// Bytes that one thread makes; fewer are not worth another one.
const SHARE: usize = 1 << 14;

/// Memory in which bytes are made: address space that nobody has touched costs nothing.
type Room = Vec<[u8; WORD]>;

/// The bytes of a tensor's storage; a slice to who reads or writes it.
pub struct HostBytes(Form);

enum Form {
    Own(Vec<u8>),
    Repeating(Repeating),
}

/// The first bytes of a part, or all of it again and again.
struct Repeating {
    part: Arc<Vec<u8>>,
    len: usize,
    made: OnceLock<Vec<u8>>,
    room: Mutex<Room>,
}

impl HostBytes {
    /// So many bytes, which are those of `part` again and again, or its first ones if it is longer. Nothing where there is
    /// no memory for them, or no part for any.
    pub fn repeating(part: Arc<Vec<u8>>, len: usize) -> Option<Self> {
        if part.is_empty() && len > 0 {
            return None;
        }
        let mut room = Room::new();
        if len > part.len() {
            room.try_reserve_exact(len.div_ceil(WORD)).ok()?;
        }
        Some(Self(Form::Repeating(Repeating { part, len, made: OnceLock::new(), room: Mutex::new(room) })))
    }

    /// The same, where some of it were made before: by [`HostBytes::into_made`] of the same part.
    #[must_use]
    pub fn made_before(self, mut made: Vec<u8>) -> Self {
        if let Form::Repeating(repeating) = &self.0
            && repeating.part.len() < repeating.len
            && made.len() >= repeating.len
        {
            made.truncate(repeating.len);
            // It is empty: nobody has seen it yet.
            let _ = repeating.made.set(made);
        }
        self
    }

    /// What was made of a part, if it was.
    pub fn into_made(self) -> Option<Vec<u8>> {
        match self.0 {
            Form::Own(_) => None,
            Form::Repeating(repeating) => repeating.made.into_inner(),
        }
    }

    /// The number of bytes; makes none.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Own(bytes) => bytes.len(),
            Form::Repeating(repeating) => repeating.len,
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Form::Own(bytes) => bytes,
            Form::Repeating(repeating) => repeating.all(),
        }
    }
    /// The part that all of it is made of, if that is shorter.
    pub fn part(&self) -> Option<&[u8]> {
        match &self.0 {
            Form::Repeating(Repeating { part, len, .. }) if part.len() < *len => Some(part),
            _ => None,
        }
    }
    /// The bytes as they are; from now on nothing is known of a part.
    pub fn own(&mut self) -> &mut Vec<u8> {
        if let Form::Repeating(repeating) = &mut self.0 {
            repeating.all();
            let made = repeating.made.take().unwrap_or_else(|| repeating.part[..repeating.len].to_vec());
            self.0 = Form::Own(made);
        }
        match &mut self.0 {
            Form::Own(bytes) => bytes,
            Form::Repeating(_) => unreachable!("it was turned into bytes of its own just now"),
        }
    }
}

impl Repeating {
    fn all(&self) -> &[u8] {
        match self.part.get(..self.len) {
            Some(first) => first,
            None => self.made.get_or_init(|| {
                let room = std::mem::take(&mut *self.room.lock().unwrap_or_else(PoisonError::into_inner));
                repeated(room, &self.part, self.len)
            }),
        }
    }
}

/// So many bytes, which are those of `part` again and again. Memory is written once, by all threads where it is much: to
/// clear it first takes as long as to fill it.
fn repeated(mut words: Room, part: &[u8], count: usize) -> Vec<u8> {
    let word = |number: usize| {
        let at = number * WORD % part.len();
        part[at..].first_chunk().copied().unwrap_or_else(|| std::array::from_fn(|i| part[(at + i) % part.len()]))
    };
    if count > SHARE {
        let whole = (0..count / WORD).into_par_iter().with_min_len(SHARE / WORD);
        whole.map(word).collect_into_vec(&mut words);
    }
    let mut data = words.into_flattened();
    while data.len() < count {
        let rest = &part[data.len() % part.len()..];
        data.extend_from_slice(&rest[..rest.len().min(count - data.len())]);
    }
    data
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Form::Own(bytes))
    }
}

impl Deref for HostBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for HostBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.own()
    }
}

impl Clone for HostBytes {
    /// What was made is made again where it is asked for.
    fn clone(&self) -> Self {
        match &self.0 {
            Form::Own(bytes) => bytes.clone().into(),
            Form::Repeating(Repeating { part, len, .. }) => {
                Self::repeating(Arc::clone(part), *len).unwrap_or_else(|| self.as_slice().to_vec().into())
            }
        }
    }
}

impl PartialEq for HostBytes {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for HostBytes {}

impl std::fmt::Debug for HostBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_slice().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_made(bytes: &HostBytes) -> bool {
        match &bytes.0 {
            Form::Own(_) => true,
            Form::Repeating(repeating) => repeating.made.get().is_some(),
        }
    }

    #[test]
    fn all_is_the_part_again_and_again() {
        for part in [1, 7, 64, 4099] {
            let part: Arc<Vec<u8>> = Arc::new((0..part).map(|i| (i * 7 % 251) as u8).collect());
            for len in [0, 1, 5, part.len(), part.len() + 1, 3 * part.len(), SHARE + 1, 5 * SHARE + 13] {
                let wanted: Vec<u8> = part.iter().copied().cycle().take(len).collect();
                let mut bytes = HostBytes::repeating(Arc::clone(&part), len).unwrap();
                assert_eq!((bytes.len(), bytes.part().is_some()), (len, len > part.len()));
                assert!(!is_made(&bytes) && !is_made(&bytes.clone()));
                assert!(*bytes == *wanted && bytes.clone() == bytes && bytes == HostBytes::from(wanted.clone()));
                // What somebody writes is his own.
                let other = bytes.clone();
                bytes.own().push(3);
                assert_eq!((&bytes[..len], bytes[len], bytes.part()), (&wanted[..], 3, None));
                assert!(*other == *wanted && is_made(&bytes));
            }
        }
        assert!(HostBytes::repeating(Arc::default(), 1).is_none());
        assert!(HostBytes::repeating(Arc::default(), 0).unwrap().is_empty());
        assert!(HostBytes::repeating(Arc::new(vec![1]), isize::MAX as usize).is_none());
    }

    #[test]
    fn what_was_made_serves_the_next_one() {
        let part = Arc::new(vec![1, 2, 3]);
        let of = |len: usize| HostBytes::repeating(Arc::clone(&part), len).unwrap();
        let long = of(100_000);
        let at = long.as_ptr();
        let made = long.into_made().unwrap();
        let shorter = of(50_000).made_before(made);
        assert!(shorter.as_ptr() == at && shorter == of(50_000) && shorter.part() == Some(&part[..]));
        let longer = of(60_000).made_before(shorter.into_made().unwrap());
        assert!(!is_made(&longer) && of(70_000).into_made().is_none() && of(2).made_before(vec![1, 2]) == of(2));
        assert!(HostBytes::from(vec![1]).into_made().is_none());
    }

    #[test]
    fn the_first_bytes_of_a_part_are_not_copied() {
        let part = Arc::new(vec![5; 100]);
        let bytes = HostBytes::repeating(Arc::clone(&part), 60).unwrap();
        assert!(std::ptr::eq(bytes.as_slice(), &part[..60]) && bytes.part().is_none());
    }
}
