//! Integers that follow from sizes alone: what they are, and the same in 32 bits.
//!
//! What says where a lookup reads is often made of positions by a few operations, as the places of a mirror or of what is nearest
//! are. Then each of them is known before anything runs: whether all are places of the axis, whether they are so
//! many apart, and whether all that they are made of are numbers of 32 bits, in which they are made with fewer instructions.
//!
//! In the way: numbers of the call, tensors of other kinds, and more elements than are worth the time.

use super::make::{broadcast, squeeze, tensor};
use super::whole::{Whole, call, is_of_none, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Form;
use crate::fusion::{self, Op, OpId, OpKind, Operand, Rewriter, ScalarId, Src, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::refeval;
use crate::tensor::Arg;
use std::collections::{BTreeMap, BTreeSet};

/// Operations that are evaluated, at most.
const MOST_OPS: usize = 24;
/// Elements of each of their results, at most.
const MOST_ELEMENTS: i64 = 1 << 14;

/// Numbers up to which floats of 32 bits hold all integers.
const MOST_EXACT: f64 = 16_777_216.0;
/// Between which numbers nothing is sure to be.
const ANY: [f64; 2] = [f64::NEG_INFINITY, f64::INFINITY];

/// What was made in 32 bits of old tensors.
pub(super) type Short = BTreeMap<TensorId, TensorId>;

/// A tensor of integers that follow from sizes.
pub(super) struct Known<'a> {
    whole: &'a Whole<'a>,
    /// In order of definition.
    ops: BTreeSet<OpId>,
    numbers: Vec<i64>,
    /// Whether it can be made in 32 bits.
    is_short: bool,
}

impl<'a> Known<'a> {
    pub(super) fn of(whole: &'a Whole<'a>, known: TensorId) -> Option<Self> {
        if !whole.knows_sizes() || !whole.fusion.tensors[known].dtype.is_int() {
            return None;
        }
        let ops = makers(whole, known)?;
        let is_int = |tensor: &TensorId| whole.fusion.tensors[*tensor].dtype.is_int();
        let made: Vec<TensorId> = ops.iter().map(|op| whole.fusion.ops[*op].output()).filter(is_int).collect();
        let evaluated = evaluate(whole, &ops, &made)?;
        let are_short = evaluated.iter().flatten().all(|number| i32::try_from(*number).is_ok());
        let numbers = made.iter().position(|own| *own == known).and_then(|at| evaluated.into_iter().nth(at))?;
        let is_short = are_short && ops.iter().all(|op| is_alike_in_32(whole, &whole.fusion.ops[*op]));
        Some(Self { whole, ops, numbers, is_short })
    }

    /// The least and the greatest of them.
    pub(super) fn bounds(&self) -> Option<(i64, i64)> {
        Some((*self.numbers.iter().min()?, *self.numbers.iter().max()?))
    }

    /// The first of them, and how far apart they are, if all are as far on any device.
    pub(super) fn progression(&self) -> Option<(i64, i64)> {
        if !self.is_exact() {
            return None;
        }
        let first = *self.numbers.first()?;
        let by = self.numbers.get(1).map_or(Some(0), |second| second.checked_sub(first))?;
        self.numbers.windows(2).all(|pair| pair[1].checked_sub(pair[0]) == Some(by)).then_some((first, by))
    }

    /// The runs of numbers that follow each other of which they are made up, from the first of each up to behind its last: so
    /// many at most, if they are the same on any device.
    pub(super) fn runs(&self, most: usize) -> Option<Vec<(i64, i64)>> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        for &number in &self.numbers {
            let is_full = runs.len() == most;
            match runs.last_mut() {
                Some(last) if last.1 == number => last.1 += 1,
                _ if is_full => return None,
                _ => runs.push((number, number.checked_add(1)?)),
            }
        }
        self.is_exact().then_some(runs)
    }

    /// The same, which are numbers of 32 bits, as such. What was made of others is made once.
    pub(super) fn write(&self, r: &mut Rewriter<'_>, known: TensorId, made: &mut Short) -> Result<TensorId> {
        if !self.is_short {
            let wide = r.tensor(known)?;
            return tensor(r.builder.cast(wide, DType::I32)?);
        }
        for op in self.ops.iter().map(|op| &self.whole.fusion.ops[*op]) {
            if !made.contains_key(&op.output()) {
                let new = self.write_short(r, op, (known, made))?;
                made.insert(op.output(), new);
            }
        }
        let own = made.get(&known).copied().ok_or_else(|| Diagnostic::bug("no operation makes what is known"))?;
        tensor(r.builder.cast(own, DType::I32)?)
    }

    /// Numbers between which they are on any device. Sums of products of floats are rounded once or twice, so of what follows from such
    /// no more is sure than what it is held to behind them.
    pub(super) fn sure(&self, known: TensorId) -> (i64, i64) {
        let fusion = self.whole.fusion;
        if let (Some(bounds), true) = (self.bounds(), self.is_exact()) {
            return bounds;
        }
        let mut sure = BTreeMap::new();
        for op in self.ops.iter().map(|op| &fusion.ops[*op]) {
            let [low, high] = self.sure_of(op, &sure).unwrap_or(ANY);
            let low = if low.abs() <= MOST_EXACT { low } else { f64::NEG_INFINITY };
            let high = if high.abs() <= MOST_EXACT { high } else { f64::INFINITY };
            sure.insert(op.output(), [low, high]);
        }
        let [low, high] = sure.get(&known).copied().unwrap_or(ANY);
        (low as i64, high as i64)
    }

    /// Whether they are the same on any device.
    fn is_exact(&self) -> bool {
        self.ops.iter().all(|op| self.is_made_exactly(&self.whole.fusion.ops[*op]))
    }

    /// Whether an operation makes the same of the same on any device: what floats it makes are rounded once.
    fn is_made_exactly(&self, op: &Op) -> bool {
        let fusion = self.whole.fusion;
        let dtype = fusion.tensors[op.output()].dtype;
        // A product that enters a sum may not be rounded by itself.
        let is_product = |operand: &Operand| match *operand {
            Operand::Tensor(tensor) => {
                let kind = self.whole.maker(tensor).map(|maker| &maker.kind);
                !kind.is_some_and(|kind| matches!(kind, OpKind::Cast(_) | OpKind::Unary(_)))
            }
            Operand::Scalar(_) => false,
        };
        use UnaryOp::{Abs, Ceil, Floor, Trunc};
        match &op.kind {
            _ if dtype.is_int() || dtype == DType::Bool => true,
            OpKind::Cast(_) | OpKind::Set | OpKind::Full => true,
            OpKind::Unary(unary) => matches!(unary, Abs | Floor | Ceil | Trunc),
            OpKind::Binary(BinaryOp::Mul | BinaryOp::Minimum | BinaryOp::Maximum) => true,
            OpKind::Binary(BinaryOp::Add | BinaryOp::Sub) => !op.inputs.iter().any(is_product),
            _ => false,
        }
    }

    /// The same of the result of one operation, if that says something.
    fn sure_of(&self, op: &Op, sure: &BTreeMap<TensorId, [f64; 2]>) -> Option<[f64; 2]> {
        let fusion = self.whole.fusion;
        let of = |position: usize| match op.inputs[position] {
            Operand::Tensor(tensor) => sure.get(&tensor).copied().unwrap_or(ANY),
            Operand::Scalar(scalar) => fusion.constant(scalar).map_or(ANY, |number| [number.as_f64(); 2]),
        };
        // Narrower ones wrap, or are rounded.
        let is_wide = matches!(fusion.tensors[op.output()].dtype, DType::I64 | DType::I32 | DType::F32 | DType::F64);
        let is_int = fusion.tensors[op.output()].dtype.is_int();
        let each = |of: fn(f64) -> f64, [low, high]: [f64; 2]| Some([of(low), of(high)]);
        match &op.kind {
            _ if !is_wide => None,
            OpKind::Cast(_) if is_int => each(f64::trunc, of(0)),
            OpKind::Cast(_) | OpKind::Set => Some(of(0)),
            OpKind::Unary(UnaryOp::Floor) => each(f64::floor, of(0)),
            OpKind::Unary(UnaryOp::Ceil) => each(f64::ceil, of(0)),
            OpKind::Unary(UnaryOp::Trunc) => each(f64::trunc, of(0)),
            OpKind::Binary(BinaryOp::Minimum) => Some([of(0)[0].min(of(1)[0]), of(0)[1].min(of(1)[1])]),
            OpKind::Binary(BinaryOp::Maximum) => Some([of(0)[0].max(of(1)[0]), of(0)[1].max(of(1)[1])]),
            OpKind::Binary(BinaryOp::Add) if is_int => Some([of(0)[0] + of(1)[0], of(0)[1] + of(1)[1]]),
            OpKind::Binary(BinaryOp::Sub) if is_int => Some([of(0)[0] - of(1)[1], of(0)[1] - of(1)[0]]),
            _ => None,
        }
    }

    /// An operation with `i32` in place of `i64`.
    fn write_short(&self, r: &mut Rewriter<'_>, op: &Op, (known, made): (TensorId, &Short)) -> Result<TensorId> {
        let output = op.output();
        let of = |old: TensorId| made.get(&old).copied().ok_or_else(|| Diagnostic::bug("what is known is made late"));
        let read: Vec<TensorId> = tensors(op).map(of).collect::<Result<_>>()?;
        let is_wide = is_wide(self.whole, op);
        // What others need is there anyhow.
        if !self.is_long(output) && (read.is_empty() || output != known && self.is_needed(output)) {
            return r.tensor(output);
        }
        if !is_wide {
            return r.write_on(op, &read);
        }
        let number = |scalar: ScalarId| -> Result<Src> {
            let number = self.whole.number(scalar).ok_or_else(|| Diagnostic::bug("a number is known no more"))?;
            Ok(number.into())
        };
        let src = |position: usize| -> Result<Src> {
            match op.inputs[position] {
                Operand::Tensor(old) => Ok(of(old)?.into()),
                Operand::Scalar(scalar) => number(scalar),
            }
        };
        let new = match &op.kind {
            OpKind::Cast(DType::I64) | OpKind::Set => return tensor(r.builder.cast(read[0], DType::I32)?),
            OpKind::Cast(to) => return tensor(r.builder.cast(read[0], *to)?),
            OpKind::Unary(unary) => tensor(r.builder.unary(*unary, src(0)?)?)?,
            OpKind::Binary(binary) => tensor(r.builder.binary(*binary, src(0)?, src(1)?)?)?,
            OpKind::Ternary(ternary) => tensor(r.builder.ternary(*ternary, src(0)?, src(1)?, src(2)?)?)?,
            OpKind::Broadcast { flags } => broadcast(&mut r.builder, read[0], flags)?,
            OpKind::Squeeze { flags } => squeeze(&mut r.builder, read[0], flags)?,
            _ => return self.made_of_none(r, op),
        };
        if self.is_long(output) { tensor(r.builder.cast(new, DType::I32)?) } else { Ok(new) }
    }

    fn is_long(&self, tensor: TensorId) -> bool {
        self.whole.fusion.tensors[tensor].dtype == DType::I64
    }

    /// Whether something else is made of a tensor than what is known.
    fn is_needed(&self, tensor: TensorId) -> bool {
        let is_own = |op: &Op| self.ops.iter().any(|own| self.whole.fusion.ops[*own].output() == op.output());
        self.whole.is_returned(tensor) || self.whole.readers(tensor).any(|reader| !is_own(reader))
    }

    /// What reads no tensor: numbers that are so far apart are products of positions.
    fn made_of_none(&self, r: &mut Rewriter<'_>, op: &Op) -> Result<TensorId> {
        let Some(progression) = call(op, Form::Progression) else {
            let wide = r.tensor(op.output())?;
            return tensor(r.builder.cast(wide, DType::I32)?);
        };
        let number = |param: &str, default: i64| {
            let numbers = self.whole.numbers(op, progression, param);
            numbers.map(|numbers| numbers.first().copied().unwrap_or(default))
        };
        let (Some(start), Some(by)) = (number("start", 0), number("step", 1)) else {
            return Err(Diagnostic::bug("a number is known no more"));
        };
        let extent = r.scalar(self.whole.fusion.tensors[op.output()].axes[0].extent);
        let index = r.builder.index(&[extent.into()], 0)?;
        let mut new = r.builder.cast(index, DType::I32)?;
        if by != 1 {
            new = r.builder.binary(BinaryOp::Mul, new, by)?;
        }
        if start != 0 {
            new = r.builder.binary(BinaryOp::Add, new, start)?;
        }
        tensor(new)
    }
}

/// The tensors that an operation reads.
fn tensors(op: &Op) -> impl Iterator<Item = TensorId> + '_ {
    op.inputs.iter().filter_map(|operand| match *operand {
        Operand::Tensor(tensor) => Some(tensor),
        Operand::Scalar(_) => None,
    })
}

/// The operations that make a tensor of positions and sizes alone.
fn makers(whole: &Whole<'_>, known: TensorId) -> Option<BTreeSet<OpId>> {
    let (fusion, mut ops, mut waiting) = (whole.fusion, BTreeSet::new(), vec![known]);
    while let Some(next) = waiting.pop() {
        let id = fusion.definition(next)?;
        if !ops.insert(id) {
            continue;
        }
        let op = &fusion.ops[id];
        let spreads = matches!(op.kind, OpKind::Broadcast { .. } | OpKind::Squeeze { .. });
        let is_made = spreads || op.kind.is_elementwise() || is_of_none(op) || makes_positions(op);
        let elements = whole.sizes(next).iter().fold(1i64, |n, size| n.saturating_mul(*size));
        if !is_made || ops.len() > MOST_OPS || elements > MOST_ELEMENTS || op.outputs.len() != 1 {
            return None;
        }
        waiting.extend(fusion.tensor_inputs(id));
    }
    Some(ops)
}

fn makes_positions(op: &Op) -> bool {
    matches!(op.kind, OpKind::Index { .. }) || matches!(op.kind, OpKind::Full) && operand(op).is_none()
}

/// The elements of tensors that operations make.
fn evaluate(whole: &Whole<'_>, ops: &BTreeSet<OpId>, made: &[TensorId]) -> Option<Vec<Vec<i64>>> {
    let ops: Vec<OpId> = ops.iter().copied().collect();
    let part = fusion::part(whole.fusion, "_known", &ops, made).ok()?;
    let argument = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => whole.number(scalar).map(|number| Arg::Scalar(Value::Int(number))),
        Operand::Tensor(_) => None,
    };
    let args: Vec<Arg> = part.inputs.iter().map(argument).collect::<Option<_>>()?;
    let results = refeval::evaluate(&part.fusion, &args).ok()?;
    Some(results.iter().map(|result| result.values().map(|value| value.as_i64()).collect()).collect())
}

/// Whether an operation reads or makes numbers of 64 bits.
fn is_wide(whole: &Whole<'_>, op: &Op) -> bool {
    tensors(op).chain([op.output()]).any(|tensor| whole.fusion.tensors[tensor].dtype == DType::I64)
}

/// Whether an operation makes the same of integers of 32 bits, where operands and results are such, as of those of 64.
fn is_alike_in_32(whole: &Whole<'_>, op: &Op) -> bool {
    if !is_wide(whole, op) {
        return true;
    }
    let is_short = |operand: &Operand| match *operand {
        Operand::Scalar(scalar) => whole.number(scalar).is_some_and(|number| i32::try_from(number).is_ok()),
        Operand::Tensor(_) => true,
    };
    use BinaryOp::{Add, BitwiseAnd, BitwiseOr, BitwiseXor, Div, Eq, Ge, Gt, Le, Lt};
    use BinaryOp::{LogicalAnd, LogicalOr, Maximum, Minimum, Mod, Mul, Ne, Remainder, Sub};
    let is_same = match &op.kind {
        OpKind::Unary(unary) => matches!(unary, UnaryOp::Abs | UnaryOp::Neg | UnaryOp::Sign | UnaryOp::LogicalNot),
        OpKind::Binary(binary) => matches!(
            binary,
            Add | Sub
                | Mul
                | Div
                | Mod
                | Remainder
                | Minimum
                | Maximum
                | Eq
                | Ne
                | Ge
                | Gt
                | Le
                | Lt
                | LogicalAnd
                | LogicalOr
                | BitwiseAnd
                | BitwiseOr
                | BitwiseXor
        ),
        OpKind::Ternary(ternary) => matches!(ternary, TernaryOp::Where | TernaryOp::Clamp),
        _ => true,
    };
    is_same && op.inputs.iter().all(is_short)
}
