//! Random tensors in terms of elementwise operations on `i64`: each element
//! computes its own block from its index. Words are held in the low half of an
//! `i64`; a product of two words has its high half by a logical shift.
//!
//! What depends on seed and offset alone is scalar arithmetic: the ten keys,
//! and the words of the counter until the index mixes in.

use super::super::args::Args;
use super::Given;
use crate::diag::Result;
use crate::fusion::{FusionBuilder, Operand, Src};
use crate::num::philox::{MULTIPLIERS, ROUNDS, WEYL};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};

/// The low half of an `i64`.
const WORD: i64 = 0xFFFF_FFFF;

pub(super) fn uniform(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let given = Given::read(b, args, ["minval", "maxval"])?;
    let drawn = Drawn::new(b, args.list("shape"), &given)?;
    let (dtype, compute) = (given.dtype, given.dtype.compute());
    let [lo, hi] = given.params;
    let unit = match dtype {
        DType::F64 => {
            let x = drawn.either(b, drawn.words[0], drawn.words[2])?;
            let y = drawn.either(b, drawn.words[1], drawn.words[3])?;
            unit_f64(b, x, y)?
        }
        _ => {
            let word = drawn.one_of_four(b)?;
            unit_f32(b, word)?
        }
    };
    let small = dtype != compute;
    let unit = if small { unit } else { half_open(b, unit)? };
    let range = b.binary(BinaryOp::Sub, hi, lo)?;
    let scaled = b.binary(BinaryOp::Mul, range, unit)?;
    let mut value = b.binary(BinaryOp::Add, lo, scaled)?;
    if small {
        let value_narrow = narrow(b, value, dtype)?;
        let (first, last) = (narrow(b, lo, dtype)?, narrow(b, hi, dtype)?);
        let is_last = b.binary(BinaryOp::Eq, value_narrow, last)?;
        value = b.ternary(TernaryOp::Where, is_last, first, value_narrow)?;
    }
    drawn.result(b, value, dtype)
}

pub(super) fn normal(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let given = Given::read(b, args, ["mean", "std"])?;
    let drawn = Drawn::new(b, args.list("shape"), &given)?;
    let words = drawn.words;
    let (u, v) = match given.dtype {
        DType::F64 => (unit_f64(b, words[0], words[1])?, unit_f64(b, words[2], words[3])?),
        _ => {
            let (u, v) = (drawn.pick(b, words[0], words[2])?, drawn.pick(b, words[1], words[3])?);
            (unit_f32(b, u)?, unit_f32(b, v)?)
        }
    };
    let compute = given.dtype.compute();
    let (u, v) = (half_open(b, u)?, half_open(b, v)?);
    let tau = b.constant(Value::Float(std::f64::consts::TAU), compute)?;
    let angle = b.binary(BinaryOp::Mul, v, tau)?;
    let log = b.unary(UnaryOp::Log, u)?;
    let square = b.binary(BinaryOp::Mul, log, -2.0)?;
    let radius = b.unary(UnaryOp::Sqrt, square)?;
    let (sin, cos) = (b.unary(UnaryOp::Sin, angle)?, b.unary(UnaryOp::Cos, angle)?);
    let wave = drawn.either(b, sin, cos)?;
    let z = b.binary(BinaryOp::Mul, radius, wave)?;
    let [mean, std] = given.params;
    let scaled = b.binary(BinaryOp::Mul, z, std)?;
    let value = b.binary(BinaryOp::Add, scaled, mean)?;
    drawn.result(b, value, given.dtype)
}

/// The block of each element.
struct Drawn<'a> {
    shape: &'a [Src],
    words: [Operand; 4],
    /// Whether the element's component is even.
    even: Operand,
    /// Whether the element's component is 0 or 1.
    low: Operand,
}

impl<'a> Drawn<'a> {
    fn new(b: &mut FusionBuilder, shape: &'a [Src], given: &Given) -> Result<Self> {
        let index = linear_index(b, shape)?;
        let shift = if given.dtype == DType::F64 { 1 } else { 2 };
        let subsequence = b.binary(BinaryOp::LogicalShiftRight, index, shift)?;
        let words = block(b, given.seed, given.offset, subsequence)?;
        let mut unset = |bit: i64| {
            let masked = b.binary(BinaryOp::BitwiseAnd, index, bit)?;
            b.binary(BinaryOp::Eq, masked, 0)
        };
        Ok(Self { shape, words, even: unset(1)?, low: unset(2)? })
    }

    /// `a` in even components, else `c`.
    fn either(&self, b: &mut FusionBuilder, a: Operand, c: Operand) -> Result<Operand> {
        b.ternary(TernaryOp::Where, self.even, a, c)
    }

    /// `a` in components 0 and 1, else `c`.
    fn pick(&self, b: &mut FusionBuilder, a: Operand, c: Operand) -> Result<Operand> {
        b.ternary(TernaryOp::Where, self.low, a, c)
    }

    /// The word of the component.
    fn one_of_four(&self, b: &mut FusionBuilder) -> Result<Operand> {
        let [w0, w1, w2, w3] = self.words;
        let (low, high) = (self.either(b, w0, w1)?, self.either(b, w2, w3)?);
        self.pick(b, low, high)
    }

    /// The result: a tensor even where one element is all there is.
    fn result(&self, b: &mut FusionBuilder, value: Operand, dtype: DType) -> Result<Vec<Operand>> {
        let value = b.cast(value, dtype)?;
        Ok(vec![match value {
            Operand::Tensor(_) => value,
            Operand::Scalar(_) => b.full(self.shape, value, dtype)?,
        }])
    }
}

/// Each element's position in row-major order, `sum(index[d] * product(shape[d + 1 ..]))`;
/// the number 0 if every extent is known to be 1.
fn linear_index(b: &mut FusionBuilder, shape: &[Src]) -> Result<Operand> {
    let mut sum: Option<Operand> = None;
    let mut stride: Operand = b.constant(Value::Int(1), DType::I64)?;
    for (axis, &extent) in shape.iter().enumerate().rev() {
        if b.known(extent).is_some_and(|n| n.as_i64() == 1) {
            continue;
        }
        let mut extents = vec![Src::from(1); shape.len()];
        extents[axis] = extent;
        let index = b.index(&extents, axis as i64)?;
        let offset = b.binary(BinaryOp::Mul, index, stride)?;
        sum = Some(match sum {
            Some(sum) => b.binary(BinaryOp::Add, sum, offset)?,
            None => offset,
        });
        stride = b.binary(BinaryOp::Mul, stride, extent)?;
    }
    match sum {
        Some(sum) => Ok(sum),
        None => b.constant(Value::Int(0), DType::I64),
    }
}

/// The four words of a block: [`crate::num::philox::block`] on `i64`.
fn block(b: &mut FusionBuilder, seed: Operand, offset: Operand, subsequence: Operand) -> Result<[Operand; 4]> {
    let (k0, k1) = (low(b, seed)?, high(b, seed)?);
    let mut key = [k0, k1];
    let mut counter = [low(b, offset)?, high(b, offset)?, low(b, subsequence)?, high(b, subsequence)?];
    for round in 0..ROUNDS {
        let [c0, c1, c2, c3] = counter;
        let product0 = b.binary(BinaryOp::Mul, c0, i64::from(MULTIPLIERS[0]))?;
        let product1 = b.binary(BinaryOp::Mul, c2, i64::from(MULTIPLIERS[1]))?;
        let (high0, high1) = (high(b, product0)?, high(b, product1)?);
        let (mixed0, mixed1) = (mixed(b, high1, c1, key[0])?, mixed(b, high0, c3, key[1])?);
        counter = [mixed0, low(b, product1)?, mixed1, low(b, product0)?];
        if round + 1 < ROUNDS {
            for (word, step) in key.iter_mut().zip(WEYL) {
                let sum = b.binary(BinaryOp::Add, *word, i64::from(step))?;
                *word = low(b, sum)?;
            }
        }
    }
    Ok(counter)
}

fn low(b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
    b.binary(BinaryOp::BitwiseAnd, x, WORD)
}

fn high(b: &mut FusionBuilder, x: Operand) -> Result<Operand> {
    b.binary(BinaryOp::LogicalShiftRight, x, 32)
}

fn mixed(b: &mut FusionBuilder, x: Operand, y: Operand, key: Operand) -> Result<Operand> {
    // The counter's own words may be scalars: they mix with the key first.
    let keyed = b.binary(BinaryOp::BitwiseXor, y, key)?;
    b.binary(BinaryOp::BitwiseXor, x, keyed)
}

/// [`crate::num::philox::unit_f32`].
fn unit_f32(b: &mut FusionBuilder, word: Operand) -> Result<Operand> {
    let word = b.cast(word, DType::F32)?;
    scaled(b, word, 2f64.powi(-32))
}

/// [`crate::num::philox::unit_f64`].
fn unit_f64(b: &mut FusionBuilder, x: Operand, y: Operand) -> Result<Operand> {
    let upper = b.binary(BinaryOp::ShiftLeft, y, 21)?;
    let bits = b.binary(BinaryOp::BitwiseXor, x, upper)?;
    let bits = b.cast(bits, DType::F64)?;
    scaled(b, bits, 2f64.powi(-53))
}

/// `x * step + step / 2`.
fn scaled(b: &mut FusionBuilder, x: Operand, step: f64) -> Result<Operand> {
    let scaled = b.binary(BinaryOp::Mul, x, step)?;
    b.binary(BinaryOp::Add, scaled, step / 2.0)
}

/// 0 for 1: a number of [0, 1).
fn half_open(b: &mut FusionBuilder, unit: Operand) -> Result<Operand> {
    let is_one = b.binary(BinaryOp::Eq, unit, 1.0)?;
    let zero = b.constant(Value::Float(0.0), b.dtype(unit))?;
    b.ternary(TernaryOp::Where, is_one, zero, unit)
}

/// Rounded to a small type, held in the type of arithmetic.
fn narrow(b: &mut FusionBuilder, x: Operand, dtype: DType) -> Result<Operand> {
    let narrow = b.cast(x, dtype)?;
    b.cast(narrow, dtype.compute())
}
