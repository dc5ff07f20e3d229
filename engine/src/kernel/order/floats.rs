//! What is known of terms of floating point: which are constants, and which vanish.
//!
//! In round to nearest `x + 0 = x` for every `x` but `-0`, and a sum is `-0` only where both of its operands are. So a
//! sum that begins with `+0` is the same with and without the zeros that threads outside of a tensor add to it. That
//! they are zeros follows from what such threads compute of the zeros that they hold instead of elements: operations
//! that IEEE 754 rounds correctly have the same result everywhere (but where a compiler contracts a product and a sum:
//! changes that are judged here change no such pair), and `0 * x = 0` where `x` is finite and not negative.

use super::word::{Word, mix};
use crate::num::{BinaryOp, DType, UnaryOp, Value, eval};
use rustc_hash::{FxHashMap, FxHashSet};

/// Functions that are 0 at 0 by the standard, however they are computed elsewhere.
const ZERO_AT_ZERO: &[UnaryOp] = &[
    UnaryOp::Asin,
    UnaryOp::Asinh,
    UnaryOp::Atan,
    UnaryOp::Atanh,
    UnaryOp::Erf,
    UnaryOp::Expm1,
    UnaryOp::Log1p,
    UnaryOp::Sin,
    UnaryOp::Sinh,
    UnaryOp::Tan,
    UnaryOp::Tanh,
];

/// A result between these bounds is finite and positive in every type, however a function is computed.
const USUAL: std::ops::Range<f64> = 1e-3..1e4;

/// Terms that are known. Looked up only.
#[derive(Debug, Default)]
pub(super) struct Floats {
    numbers: FxHashMap<u64, f64>,
    /// They are never `-0`: `+0`, and sums of which an operand is one of these.
    begun: FxHashSet<u64>,
    /// They are finite and not negative.
    usual: FxHashSet<u64>,
}

impl Floats {
    /// A constant. NaNs have several representations: they are known by `code` alone.
    pub(super) fn constant(&mut self, dtype: DType, number: f64, code: u64) -> Word {
        let number = eval::round_float(dtype, number);
        if number.is_nan() {
            return Word::Term(mix(&[3, number.to_bits(), code]));
        }
        let term = mix(&[3, number.to_bits(), dtype as u64]);
        self.numbers.insert(term, number);
        if number.to_bits() == 0 {
            self.begun.insert(term);
        }
        if number.is_finite() && number.is_sign_positive() {
            self.usual.insert(term);
        }
        Word::Term(term)
    }

    fn number(&self, word: Word) -> Option<f64> {
        match word {
            Word::Term(term) => self.numbers.get(&term).copied(),
            _ => None,
        }
    }

    fn is_zero(&self, word: Word) -> bool {
        self.number(word).is_some_and(|number| number.to_bits() == 0)
    }

    fn has(set: &FxHashSet<u64>, word: Word) -> bool {
        matches!(word, Word::Term(term) if set.contains(&term))
    }

    /// A number of another type, of which `code` is the conversion.
    pub(super) fn cast(&mut self, (from, to): (DType, DType), code: u64, word: Word) -> Word {
        let value = match word {
            Word::Int(number) if from == DType::Bool => Some(Value::Bool(number != 0)),
            Word::Int(number) if from.is_int() => Some(Value::Int(number)),
            Word::Int(_) => None,
            _ => self.number(word).map(Value::Float),
        };
        if let Some(Value::Float(number)) = value.map(|value| eval::cast(from, to, value)) {
            return self.constant(to, number, code);
        }
        let cast = Word::term(code, &[word]);
        if let (Word::Term(term), true) = (cast, from == DType::Bool) {
            self.usual.insert(term);
        }
        cast
    }

    /// An operation on one operand, of which `code` is the number.
    pub(super) fn unary(&mut self, op: UnaryOp, dtype: DType, code: u64, word: Word) -> Word {
        let result = self.number(word).map(|number| eval::unary(op, dtype, Value::Float(number)));
        let unknown = Word::term(code, &[word]);
        let (Some(Value::Float(number)), Word::Term(term)) = (result, unknown) else { return unknown };
        let rounded = matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt);
        if rounded || ZERO_AT_ZERO.contains(&op) && self.is_zero(word) {
            return self.constant(dtype, number, code);
        }
        if USUAL.contains(&number) {
            self.usual.insert(term);
        }
        unknown
    }

    /// An operation on two operands.
    pub(super) fn binary(&mut self, op: BinaryOp, dtype: DType, code: u64, x: Word, y: Word) -> Word {
        let rounded = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Truediv);
        if let (true, Some(a), Some(b)) = (rounded, self.number(x), self.number(y))
            && let Value::Float(number) = eval::binary(op, dtype, Value::Float(a), Value::Float(b))
        {
            return self.constant(dtype, number, code);
        }
        match op {
            BinaryOp::Add => self.add(code, x, y),
            BinaryOp::Mul if self.is_zero(x) && Self::has(&self.usual, y) => x,
            BinaryOp::Mul if self.is_zero(y) && Self::has(&self.usual, x) => y,
            _ => Word::term(code, &[x, y]),
        }
    }

    fn add(&mut self, code: u64, x: Word, y: Word) -> Word {
        let [x_begun, y_begun] = [x, y].map(|word| Self::has(&self.begun, word));
        if x_begun && self.is_zero(y) {
            return x;
        }
        if y_begun && self.is_zero(x) {
            return y;
        }
        let sum = Word::term(code, &[x, y]);
        if let (Word::Term(term), true) = (sum, x_begun || y_begun) {
            self.begun.insert(term);
        }
        sum
    }
}
