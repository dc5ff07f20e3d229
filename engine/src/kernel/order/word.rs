//! What the checker knows of a value: the integer that it is, or a term of what the kernel cannot know.
//!
//! A term is the hash of how a value is computed from elements of memory, numbers of floating point and the like.
//! So values with equal terms are equal, a collision of 64 bits aside, whatever memory holds; nothing is said of
//! values with other terms.

use super::mask::Mask;
use std::rc::Rc;

/// A value of one thread. Truth values are integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// This integer.
    Int(i64),
    /// Computed so.
    Term(u64),
    /// Index arithmetic without a meaning, such as a remainder of a negative number: nothing may depend on it.
    Any,
}

/// A value of each thread of a block.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// The same in all threads.
    One(Word),
    /// Integers.
    Ints(Rc<[i64]>),
    /// Some are terms.
    Words(Rc<[Word]>),
}

/// The hash of a sequence.
pub(super) fn mix(parts: &[u64]) -> u64 {
    let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
    for &part in parts {
        hash = (hash ^ part).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^= hash >> 29;
        hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^= hash >> 32;
    }
    hash
}

impl Word {
    /// A number for hashes; integers and terms have others.
    pub(super) fn bits(self) -> u64 {
        match self {
            Word::Int(number) => mix(&[1, number.cast_unsigned()]),
            Word::Term(term) => term,
            Word::Any => 0,
        }
    }
    /// A term of words, by what operation `code` says.
    pub(super) fn term(code: u64, words: &[Word]) -> Self {
        if words.contains(&Word::Any) {
            return Word::Any;
        }
        let mut hash = code;
        for word in words {
            hash = mix(&[hash, word.bits()]);
        }
        Word::Term(hash)
    }
    pub(super) fn int(self) -> Option<i64> {
        match self {
            Word::Int(number) => Some(number),
            _ => None,
        }
    }
}

impl Val {
    pub(super) const fn int(value: i64) -> Self {
        Val::One(Word::Int(value))
    }
    // A few instructions, for each thread of each statement.
    #[inline(always)]
    pub(super) fn at(&self, thread: usize) -> Word {
        match self {
            Val::One(word) => *word,
            Val::Ints(ints) => Word::Int(ints[thread]),
            Val::Words(words) => words[thread],
        }
    }
    /// The integer that it is in all threads.
    pub(super) fn as_one(&self) -> Option<i64> {
        match self {
            Val::One(Word::Int(number)) => Some(*number),
            _ => None,
        }
    }
    fn is_ints(&self) -> bool {
        matches!(self, Val::One(Word::Int(_)) | Val::Ints(_))
    }
    /// The first term that one of some threads has.
    pub(super) fn first_term(&self, threads: &Mask) -> Option<u64> {
        let term = |word: Word| match word {
            Word::Term(term) => Some(term),
            _ => None,
        };
        match self {
            Val::One(word) => term(*word).filter(|_| !threads.is_empty()),
            Val::Ints(_) => None,
            Val::Words(words) => {
                let mut first = None;
                threads.each(|t| first = first.or_else(|| term(words[t])));
                first
            }
        }
    }
    /// Of words, one for each thread.
    pub(super) fn of(words: Vec<Word>) -> Self {
        if words.iter().all(|word| word.int().is_some()) {
            return Val::Ints(words.iter().filter_map(|word| word.int()).collect());
        }
        Val::Words(words.into())
    }
    /// Of each thread's word.
    pub(super) fn from_fn(threads: usize, f: impl FnMut(usize) -> Word) -> Self {
        Self::of((0..threads).map(f).collect())
    }

    /// An operation on one operand.
    pub(super) fn map(&self, threads: usize, mut f: impl FnMut(Word) -> Word) -> Self {
        match self {
            Val::One(word) => Val::One(f(*word)),
            _ => Self::from_fn(threads, |t| f(self.at(t))),
        }
    }

    /// An operation on two operands: `ints` of integers where it has a result, else `words`.
    pub(super) fn zip(
        &self,
        other: &Self,
        threads: usize,
        ints: impl Fn(i64, i64) -> Option<i64>,
        words: impl Fn(Word, Word) -> Word,
    ) -> Self {
        let general = |a: Word, b: Word| match (a, b) {
            (Word::Int(x), Word::Int(y)) => ints(x, y).map_or_else(|| words(a, b), Word::Int),
            _ => words(a, b),
        };
        if let (Val::One(a), Val::One(b)) = (self, other) {
            return Val::One(general(*a, *b));
        }
        if self.is_ints() && other.is_ints() {
            // Each thread's is computed, of a known number of them: one allocation.
            let mut is_whole = true;
            let mut of = |x: i64, y: i64| match ints(x, y) {
                Some(number) => number,
                None => {
                    is_whole = false;
                    0
                }
            };
            let numbers: Rc<[i64]> = match (self, other) {
                (Val::Ints(a), Val::Ints(b)) => a.iter().zip(b.iter()).map(|(x, y)| of(*x, *y)).collect(),
                (Val::Ints(a), Val::One(Word::Int(y))) => a.iter().map(|x| of(*x, *y)).collect(),
                (Val::One(Word::Int(x)), Val::Ints(b)) => b.iter().map(|y| of(*x, *y)).collect(),
                // No others are integers that differ between threads.
                _ => Rc::default(),
            };
            if is_whole && numbers.len() == threads {
                return Val::Ints(numbers);
            }
        }
        Self::from_fn(threads, |t| general(self.at(t), other.at(t)))
    }
}
