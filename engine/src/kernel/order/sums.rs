//! Sums of floating point to which zero is added.
//!
//! In round to nearest `x + 0 = x` for every `x` but `-0`, and a sum is `-0` only where both of its operands are. So a
//! sum that begins with `+0` is the same with and without the zeros that threads outside of a tensor add to it.

use super::word::Word;
use rustc_hash::FxHashSet;

/// What is known of terms of floating point. Looked up only.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// They are `+0`.
    zeros: FxHashSet<u64>,
    /// They are never `-0`: `+0`, and sums of which an operand is one of these.
    begun: FxHashSet<u64>,
}

impl Sums {
    /// Learns that a term is a constant.
    pub(super) fn constant(&mut self, term: u64, number: f64) {
        if number.to_bits() == 0 {
            self.zeros.insert(term);
            self.begun.insert(term);
        }
    }

    /// A sum, of which `code` is the operation.
    pub(super) fn add(&mut self, code: u64, x: Word, y: Word) -> Word {
        let (Word::Term(a), Word::Term(b)) = (x, y) else { return Word::term(code, &[x, y]) };
        let (a_begun, b_begun) = (self.begun.contains(&a), self.begun.contains(&b));
        if a_begun && self.zeros.contains(&b) {
            return x;
        }
        if b_begun && self.zeros.contains(&a) {
            return y;
        }
        let sum = Word::term(code, &[x, y]);
        if let (Word::Term(term), true) = (sum, a_begun || b_begun) {
            self.begun.insert(term);
        }
        sum
    }
}
