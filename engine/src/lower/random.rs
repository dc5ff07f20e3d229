//! Random numbers. The generator gives them by blocks: four of `f32`, or two of
//! `f64`, for as many elements that follow each other in row-major order. So a
//! tensor of random numbers is computed a whole vector of elements at a time,
//! where its innermost loop is one.
//!
//! Element `e` takes number `e mod p` of block `e div p`, `p` numbers a block.
//! Where the first element of a vector of `n` is known to be a multiple of `g`, a
//! divisor of `p`, the vector lies in at most `ceil((p - g + n) / p)` blocks. If
//! `g < p`, its elements are those of the blocks from `e mod p` on: they are
//! moved into place by one selection for each bit of that number.

use super::context::Lowering;
use crate::diag::{Diagnostic, Result};
use crate::kernel::ExprId;
use crate::num::philox::{self, Distribution};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::schedule::{Compute, Loop, TvId, TvOp, TvOperand};

/// The operands of a random tensor, in the type of its arithmetic.
#[derive(Clone, Copy)]
struct Drawn {
    distribution: Distribution,
    dtype: DType,
    /// Ends of the range, or mean and deviation.
    params: [ExprId; 2],
    seed: ExprId,
    offset: ExprId,
}

/// How values follow from standard numbers.
enum Scale {
    /// As they are, but in [0, 1).
    Unit,
    /// `lo + range * u`, each step rounded; in small types, what rounds to the
    /// last of the ends, which are rounded too, is the first.
    Range { lo: ExprId, range: ExprId, ends: Option<[ExprId; 2]> },
    /// `z * deviation + mean`.
    Normal { mean: ExprId, deviation: ExprId },
}

impl Lowering<'_> {
    /// Emits all elements of a random tensor along its innermost loop, if they
    /// follow each other. Returns whether it did.
    pub(super) fn try_draw_vector(&mut self, tv: TvId, own: Loop) -> Result<bool> {
        let leaf = own.axis;
        let Ok(lanes) = self.facts.constant_extent(leaf) else { return Ok(false) };
        let zero = self.b.int(0);
        let mut runs = false;
        self.with_leaf(leaf, zero, |lowering| {
            runs = lowering.runs_along(tv, leaf)?;
            Ok(())
        })?;
        if !runs {
            return Ok(false);
        }
        let mut values = Vec::new();
        self.with_leaf(leaf, zero, |lowering| {
            values = lowering.random_values(tv, lanes as usize)?;
            Ok(())
        })?;
        let array = self.local_array(tv)?;
        for (lane, value) in values.into_iter().enumerate() {
            let lane = self.b.int(lane as i64);
            self.with_leaf(leaf, lane, |lowering| {
                let index = lowering.array_index(tv)?;
                lowering.b.store(array, index, value);
                Ok(())
            })?;
        }
        Ok(true)
    }

    /// The element of a random tensor in the open loops.
    pub(super) fn random_value(&mut self, tv: TvId) -> Result<ExprId> {
        let values = self.random_values(tv, 1)?;
        values.first().copied().ok_or_else(|| Diagnostic::bug("a vector of one element has none"))
    }

    /// The values of `lanes` elements that follow each other, the first of which
    /// is that of the open loops.
    fn random_values(&mut self, tv: TvId, lanes: usize) -> Result<Vec<ExprId>> {
        self.origin(tv, "random");
        let drawn = self.drawn(tv)?;
        let first = self.address(tv)?;
        let per_block = philox::numbers(drawn.dtype.compute()) as i64;
        let step = self.multiple_of(first).min(per_block);
        let blocks = (per_block - step + lanes as i64 + per_block - 1) / per_block;
        // An index before the first element, which an aligned row may have, rounds down.
        let element = self.b.exprs().cast(first, DType::I64);
        let element = self.b.exprs().as_data(element);
        let block = self.shifted(element, per_block);
        let mut numbers = Vec::new();
        for k in 0..blocks {
            let k = self.b.exprs().int(k, DType::I64);
            let subsequence = self.b.exprs().add(block, k);
            let units = self.b.random("unit", drawn.dtype.compute(), drawn.seed, drawn.offset, subsequence);
            numbers.extend(self.standard(drawn, &units));
        }
        let mut shift = per_block / 2;
        while shift >= step {
            numbers = self.moved(&numbers, element, shift, lanes);
            shift /= 2;
        }
        numbers.truncate(lanes);
        let scale = self.scale(drawn);
        Ok(numbers.into_iter().map(|number| self.scaled(&scale, drawn.dtype, number)).collect())
    }

    fn drawn(&mut self, tv: TvId) -> Result<Drawn> {
        let data = &self.scheduled.tensors[tv];
        let (name, dtype) = (data.name.clone(), data.dtype);
        let wrong = || Diagnostic::bug(format!("{name} is not drawn from two parameters, seed and offset"));
        let Some(TvOp { compute: Compute::Random(distribution), inputs }) = data.op.clone() else {
            return Err(wrong());
        };
        let mut operands = Vec::with_capacity(inputs.len());
        for input in inputs {
            let TvOperand::Scalar(scalar) = input else { return Err(wrong()) };
            operands.push(self.scalar(scalar)?);
        }
        let [first, second, seed, offset] = *operands.as_slice() else { return Err(wrong()) };
        Ok(Drawn { distribution, dtype, params: [first, second], seed, offset })
    }

    /// `floor(element / count)` for a power of two.
    fn shifted(&mut self, element: ExprId, count: i64) -> ExprId {
        let bits = self.b.exprs().int(count.trailing_zeros().into(), DType::I64);
        match self.b.exprs().as_int(element) {
            Some(known) => self.b.exprs().int(known >> count.trailing_zeros(), DType::I64),
            None => {
                let block = self.b.exprs().binary(BinaryOp::ShiftRight, element, bits);
                self.b.let_("block", block)
            }
        }
    }

    /// Numbers from `shift` on where that bit of the element's index is set,
    /// else from the first: as many as later steps need for `lanes` of them.
    fn moved(&mut self, numbers: &[ExprId], element: ExprId, shift: i64, lanes: usize) -> Vec<ExprId> {
        let (zero, mask) = (self.b.exprs().int(0, DType::I64), self.b.exprs().int(shift, DType::I64));
        let bit = self.b.exprs().binary(BinaryOp::BitwiseAnd, element, mask);
        let is_set = self.b.exprs().binary(BinaryOp::Ne, bit, zero);
        let is_set = self.b.let_("later", is_set);
        let needed = lanes + shift as usize - 1;
        let pairs = numbers.iter().zip(numbers.iter().skip(shift as usize)).take(needed);
        pairs.map(|(here, later)| self.b.exprs().ternary(TernaryOp::Where, is_set, *later, *here)).collect()
    }

    /// The numbers of the distribution with standard parameters: those of (0, 1]
    /// as they are; or `sqrt(-2 ln u) * sin(2 pi v)` and the same with `cos` of
    /// two of [0, 1).
    fn standard(&mut self, drawn: Drawn, units: &[ExprId]) -> Vec<ExprId> {
        match drawn.distribution {
            Distribution::Uniform => units.to_vec(),
            Distribution::Normal => {
                let pairs = units.chunks_exact(2);
                pairs.flat_map(|pair| self.box_muller(pair[0], pair[1], drawn.dtype.compute())).collect()
            }
        }
    }

    fn box_muller(&mut self, u: ExprId, v: ExprId, dtype: DType) -> [ExprId; 2] {
        let (u, v) = (self.half_open(u, dtype), self.half_open(v, dtype));
        let e = self.b.exprs();
        let (tau, minus_two) =
            (e.value(Value::Float(std::f64::consts::TAU), dtype), e.value(Value::Float(-2.0), dtype));
        let angle = e.binary(BinaryOp::Mul, v, tau);
        let log = e.unary(UnaryOp::Log, u);
        let square = e.binary(BinaryOp::Mul, log, minus_two);
        let radius = e.unary(UnaryOp::Sqrt, square);
        let (angle, radius) = (self.b.let_("angle", angle), self.b.let_("radius", radius));
        [UnaryOp::Sin, UnaryOp::Cos].map(|wave| {
            let wave = self.b.exprs().unary(wave, angle);
            let value = self.b.exprs().binary(BinaryOp::Mul, radius, wave);
            self.b.let_("normal", value)
        })
    }

    /// A number of [0, 1) in a type: 0 for what rounds to 1.
    fn half_open(&mut self, unit: ExprId, dtype: DType) -> ExprId {
        let compute = dtype.compute();
        let [zero, least] =
            [0.0, least_rounding_to_1(dtype)].map(|end| self.b.exprs().value(Value::Float(end), compute));
        let is_one = self.b.exprs().binary(BinaryOp::Ge, unit, least);
        self.b.exprs().ternary(TernaryOp::Where, is_one, zero, unit)
    }

    /// How values of the tensor's type follow from standard numbers.
    fn scale(&mut self, drawn: Drawn) -> Scale {
        let [first, second] = drawn.params;
        if drawn.distribution == Distribution::Normal {
            return Scale::Normal { mean: first, deviation: second };
        }
        if drawn.params.map(|end| self.b.exprs().as_float(end)) == [Some(0.0), Some(1.0)] {
            return Scale::Unit;
        }
        let range = self.b.exprs().binary(BinaryOp::Sub, second, first);
        let range = self.hoist("range", range);
        let compute = drawn.dtype.compute();
        let ends = (drawn.dtype != compute).then(|| {
            drawn.params.map(|end| {
                let end = self.narrowed(end, drawn.dtype, compute);
                self.hoist("end", end)
            })
        });
        Scale::Range { lo: first, range, ends }
    }

    /// A value of the tensor's type from a standard number.
    fn scaled(&mut self, scale: &Scale, dtype: DType, number: ExprId) -> ExprId {
        let compute = dtype.compute();
        let value = match *scale {
            // 0 + 1 * u is u, which is not below 0.
            Scale::Unit => self.half_open(number, dtype),
            Scale::Range { lo, range, ends } => {
                let unit = if ends.is_some() { number } else { self.half_open(number, compute) };
                let value = self.b.exprs().binary(BinaryOp::Mul, range, unit);
                let value = self.b.exprs().binary(BinaryOp::Add, lo, value);
                match ends {
                    None => value,
                    Some([first, last]) => {
                        let value = self.narrowed(value, dtype, compute);
                        let is_last = self.b.exprs().binary(BinaryOp::Eq, value, last);
                        self.b.exprs().ternary(TernaryOp::Where, is_last, first, value)
                    }
                }
            }
            Scale::Normal { mean, deviation } => {
                let scaled = self.b.exprs().binary(BinaryOp::Mul, number, deviation);
                self.b.exprs().binary(BinaryOp::Add, scaled, mean)
            }
        };
        self.b.exprs().cast(value, dtype)
    }

    /// A number rounded to a small type, in the type of arithmetic.
    fn narrowed(&mut self, value: ExprId, dtype: DType, compute: DType) -> ExprId {
        if let Some(known) = self.b.exprs().as_float(value) {
            let rounded = crate::num::eval::round_float(dtype, known);
            return self.b.exprs().value(Value::Float(rounded), compute);
        }
        let narrow = self.b.exprs().cast(value, dtype);
        self.b.exprs().cast(narrow, compute)
    }
}

/// The least number, in the type of arithmetic, that rounds to 1: halfway from
/// the greatest below, since ties go to the even 1.
fn least_rounding_to_1(dtype: DType) -> f64 {
    match dtype {
        DType::BF16 => 1.0 - 2f64.powi(-9),
        DType::F16 => 1.0 - 2f64.powi(-12),
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::eval::round_float;

    #[test]
    fn what_rounds_to_1_begins_there() {
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            let least = least_rounding_to_1(dtype);
            let below = (least as f32).next_down();
            assert_eq!(round_float(dtype, least), 1.0, "{dtype}");
            assert!(round_float(dtype, below.into()) < 1.0, "{dtype}");
        }
    }
}
