//! Attention in simpler operations: products of matrices, which libraries compute, and what
//! lies between them, which kernels do. The scores are in memory, `[.., L, S]`.
//!
//! Scores and sums are made in `f32` of operands of 16 bits; where a flash kernel rounds
//! weights to the operands' type, so do these. Rows that see no key are told by their largest
//! score: -inf.

use super::super::args::{Args, OpArg};
use super::super::call::Call;
use super::super::extents::call;
use crate::diag::Result;
use crate::fusion::{Axis, AxisKind, Fusion, FusionBuilder, Op, Operand, Src, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};

/// Whether attention stays one operation: dropout is evaluated by none, whether it is causal beside
/// a mask is checked when that is known, and products make axes of other kinds where operands differ.
pub(super) fn stays(fusion: &Fusion, op: &Op, call: &Call) -> bool {
    let scalar = |name: &str| match op.inputs[call.operands(name)].first() {
        Some(Operand::Scalar(scalar)) => Some(fusion.const_scalar(*scalar)),
        _ => None,
    };
    let may_drop = scalar("dropout_p").is_some_and(|p| p.is_none_or(|p| p.as_f64() != 0.0));
    let is_masked = ["bias", "mask"].into_iter().any(|name| axes_of(fusion, op, call, name).is_some());
    may_drop || (is_masked && scalar("is_causal").is_some()) || !is_of_one_kind(fusion, op, call)
}

/// The axes of an operand, if it is given.
fn axes_of<'a>(fusion: &'a Fusion, op: &Op, call: &Call, name: &str) -> Option<&'a [Axis]> {
    match op.inputs[call.operands(name)].first()? {
        Operand::Tensor(tensor) => Some(&fusion.tensors[*tensor].axes),
        Operand::Scalar(_) => None,
    }
}

/// Whether an axis that operands have in common repeats in all of them or in none: results have the
/// kinds of one operand, and products those of two. What is added to scores may repeat where they do not.
fn is_of_one_kind(fusion: &Fusion, op: &Op, call: &Call) -> bool {
    let axes = |name| axes_of(fusion, op, call, name);
    let repeats = |axis: &Axis| axis.kind == AxisKind::Broadcast;
    let [Some(query), Some(key), Some(value)] = ["query", "key", "value"].map(axes) else { return false };
    let (last, row) = (query.len() - 1, query.len() - 2);
    let alike = |a: &Axis, b: &Axis| repeats(a) == repeats(b);
    let of_rows = |other: &[Axis]| {
        other[..other.len().min(last)].iter().zip(query).all(|(a, b)| alike(a, b))
            && other.get(last).is_none_or(|own| alike(own, &value[last]))
    };
    let scores = || query[..row].iter().chain([&query[row], &key[row]]);
    (0..row).all(|batch| alike(&query[batch], &key[batch]) && alike(&query[batch], &value[batch]))
        && alike(&query[last], &key[last])
        && alike(&key[row], &value[row])
        && ["grad_output", "output", "logsumexp"].into_iter().filter_map(axes).all(of_rows)
        && ["bias", "mask"]
            .into_iter()
            .filter_map(axes)
            .all(|added| added.iter().zip(scores()).all(|(own, score)| repeats(own) || !repeats(score)))
}

/// Operands that both directions have, and the types in which they are taken.
struct Steps<'a> {
    b: &'a mut FusionBuilder,
    args: &'a Args,
    query: TensorId,
    key: TensorId,
    value: TensorId,
    /// The operands' type.
    own: DType,
    /// In which scores, weights and sums are computed.
    work: DType,
}

impl<'a> Steps<'a> {
    fn new(b: &'a mut FusionBuilder, args: &'a Args) -> Result<Self> {
        let name = args.row().name;
        let tensor = |param: &str| b.tensor_operand(name, args.src(param)?);
        let (query, key, value) = (tensor("query")?, tensor("key")?, tensor("value")?);
        let own = b.dtype(Operand::Tensor(query));
        Ok(Self { b, args, query, key, value, own, work: own.compute() })
    }

    /// The product of two stacks of matrices of one type, not rounded to it.
    fn product(&mut self, x: impl Into<Src>, y: impl Into<Src>) -> Result<Operand> {
        let dtype = OpArg::DType(self.work);
        call(self.b, "matmul", |args| args.value("a", x).value("b", y).with("dtype", dtype))
    }

    /// The matrices of a stack the other way round.
    fn transposed(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let rank = self.b.rank(self.query) as i64;
        let order: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
        self.b.permute(x, &order)
    }

    /// One number for each row, for each element of it.
    fn along_row(&mut self, x: impl Into<Src>) -> Result<Operand> {
        let mut flags = vec![false; self.b.rank(self.query)];
        if let Some(last) = flags.last_mut() {
            *last = true;
        }
        self.b.broadcast(x, &flags)
    }

    /// `1 / sqrt(E)` unless it is given.
    fn scale(&mut self) -> Result<Src> {
        if let Some(scale) = self.args.opt("scale") {
            return Ok(scale);
        }
        let width = self.b.size(self.query, -1)?;
        let width = self.b.cast(width, DType::F64)?;
        let root = self.b.unary(UnaryOp::Sqrt, width)?;
        Ok(self.b.unary(UnaryOp::Reciprocal, root)?.into())
    }

    /// `scale * query key^T + bias`, -inf where a key is not seen.
    fn scores(&mut self) -> Result<Operand> {
        let key = self.transposed(self.key)?;
        let products = self.product(self.query, key)?;
        let scale = self.scale()?;
        let mut scores = self.b.binary(BinaryOp::Mul, products, scale)?;
        if let Some(bias) = self.args.opt("bias") {
            let bias = self.b.cast(bias, self.work)?;
            scores = self.b.binary(BinaryOp::Add, scores, bias)?;
        }
        if let Some(mask) = self.args.opt("mask") {
            scores = self.b.ternary(TernaryOp::Where, mask, scores, f64::NEG_INFINITY)?;
        }
        let Some(causal) = self.args.opt("is_causal") else { return Ok(scores) };
        let known = self.b.known(causal).map(|causal| causal.as_bool());
        if known == Some(false) {
            return Ok(scores);
        }
        let mut seen = self.seen()?;
        if known.is_none() {
            let all = self.b.unary(UnaryOp::LogicalNot, causal)?;
            seen = self.b.binary(BinaryOp::LogicalOr, seen, all)?;
        }
        self.b.ternary(TernaryOp::Where, seen, scores, f64::NEG_INFINITY)
    }

    /// Which keys queries see that see no later ones: `j - i <= S - L`.
    fn seen(&mut self) -> Result<Operand> {
        let (queries, keys) = (self.b.size(self.query, -2)?, self.b.size(self.key, -2)?);
        let rank = self.b.rank(self.query);
        let mut position = |axis: usize, extent: Operand| {
            let mut extents = vec![Src::from(1); rank];
            extents[axis] = extent.into();
            self.b.index(&extents, axis as i64)
        };
        let (row, column) = (position(rank - 2, queries)?, position(rank - 1, keys)?);
        let ahead = self.b.binary(BinaryOp::Sub, column, row)?;
        let most = self.b.binary(BinaryOp::Sub, keys, queries)?;
        self.b.binary(BinaryOp::Le, ahead, most)
    }
}

pub(super) fn forward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let mut steps = Steps::new(b, args)?;
    let scores = steps.scores()?;
    let (own, work) = (steps.own, steps.work);
    let max = steps.b.reduce(ReduceOp::Max, scores, &[-1], false, None)?;
    let is_blind = steps.b.binary(BinaryOp::Eq, max, f64::NEG_INFINITY)?;
    let shift = steps.b.ternary(TernaryOp::Where, is_blind, 0.0, max)?;
    let shifts = steps.along_row(shift)?;
    let below = steps.b.binary(BinaryOp::Sub, scores, shifts)?;
    let weights = steps.b.unary(UnaryOp::Exp, below)?;
    let sum = steps.b.reduce(ReduceOp::Sum, weights, &[-1], false, None)?;
    let sum = steps.b.ternary(TernaryOp::Where, is_blind, 1.0, sum)?;
    let log = steps.b.unary(UnaryOp::Log, sum)?;
    let log = steps.b.binary(BinaryOp::Add, shift, log)?;
    let log = steps.b.ternary(TernaryOp::Where, is_blind, f64::INFINITY, log)?;
    // Beside a bias or a mask weights are not rounded: as they are evaluated.
    let is_narrow = own.is_reduced_float() && !args.has("bias") && !args.has("mask");
    let factor = if is_narrow { own } else { work };
    let (weights, value) = (steps.b.cast(weights, factor)?, steps.b.cast(steps.value, factor)?);
    let output = steps.product(weights, value)?;
    let sums = steps.along_row(sum)?;
    let output = steps.b.binary(BinaryOp::Div, output, sums)?;
    let output = steps.b.cast(output, own)?;
    let log = steps.b.cast(log, DType::F32)?;
    let seed = b.full(&[Src::from(2)], 0, DType::U64)?;
    let offset = b.full(&[], 0, DType::U64)?;
    Ok(vec![output, log, seed, offset])
}

pub(super) fn backward(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let mut steps = Steps::new(b, args)?;
    let (own, work) = (steps.own, steps.work);
    let scores = steps.scores()?;
    let log = steps.b.cast(args.src("logsumexp")?, work)?;
    let logs = steps.along_row(log)?;
    let below = steps.b.binary(BinaryOp::Sub, scores, logs)?;
    let weights = steps.b.unary(UnaryOp::Exp, below)?;

    let grad_output = args.src("grad_output")?;
    let narrow = steps.b.cast(weights, own)?;
    let turned = steps.transposed(narrow)?;
    let grad_value = call(steps.b, "matmul", |args| args.value("a", turned).value("b", grad_output))?;
    // Libraries write rows: a kernel writes what lies otherwise, and what does not is a view.
    let grad_value = steps.b.set(grad_value)?;

    let (wide_grad, wide_output) = (steps.b.cast(grad_output, work)?, steps.b.cast(args.src("output")?, work)?);
    let terms = steps.b.binary(BinaryOp::Mul, wide_grad, wide_output)?;
    let mean = steps.b.reduce(ReduceOp::Sum, terms, &[-1], false, None)?;
    let means = steps.along_row(mean)?;
    let value = steps.transposed(steps.value)?;
    let slopes = steps.product(grad_output, value)?;
    let slopes = steps.b.binary(BinaryOp::Sub, slopes, means)?;
    let slopes = steps.b.binary(BinaryOp::Mul, weights, slopes)?;
    let slopes = steps.b.cast(slopes, own)?;
    let turned = steps.transposed(slopes)?;
    let products = [steps.product(slopes, steps.key)?, steps.product(turned, steps.query)?];
    let scale = steps.scale()?;
    let mut gradients = Vec::with_capacity(3);
    for product in products {
        let scaled = steps.b.binary(BinaryOp::Mul, product, scale)?;
        gradients.push(steps.b.cast(scaled, own)?);
    }
    gradients.push(grad_value);
    Ok(gradients)
}
