//! Products of matrices of 16-bit numbers whose rows start at odd places become products of wider ones, where
//! that takes less time ([`widen`]): operands are padded to multiples of 16 bytes, and the result is
//! a part of the wider one. Padding is 0, so what is summed over may be widened: `0 * 0` is added to sums that started
//! from 0. What is added along other axes gives elements of the result that nobody reads.
//!
//! A pad of what a kernel computes is that kernel's, and a kernel reads a part as a view; what is
//! returned, or read by others, is copied out.
//!
//! Rules see no sizes: how long axes are is only known about ([`Length`]), so calls whose axes are as odd, and
//! about as long, are made the same of. By how much an axis is widened is computed from its extent.

use super::make::{call as make, extents, tensor};
use super::steps::{Trace, traces};
use super::whole::{Change, Changes, Whole, call};
use crate::diag::Result;
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{Fusion, Op, OpKind, Operand, Rewriter, ScalarId, Src, TensorId};
use crate::num::{BinaryOp, DType, UnaryOp};
use crate::products::{Length, MULTIPLE, Order, ProductLengths, Widened, widen};
use crate::util::SecondaryMap;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    if !whole.knows_lengths() {
        return Changes::new();
    }
    let traces = traces(whole);
    whole.each(&|whole, op| rule(whole, op, &traces))
}

/// A product of stacks of matrices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrices {
    /// The operands.
    pub(super) tensors: [TensorId; 2],
    /// What is added to each row.
    bias: Option<TensorId>,
    /// Whether the right one has the axes of its matrix the other way round.
    is_linear: bool,
}

impl Matrices {
    /// Those of 16-bit numbers that an operation multiplies, if none is a vector.
    pub(super) fn of(fusion: &Fusion, op: &Op) -> Option<Self> {
        let is_linear = call(op, Form::Linear).is_some();
        let (&[Operand::Tensor(a), Operand::Tensor(b), ref rest @ ..], true) =
            (&op.inputs[..], is_linear || call(op, Form::Matmul).is_some())
        else {
            return None;
        };
        let bias = match *rest {
            [Operand::Tensor(bias)] if is_linear => Some(bias),
            [] => None,
            _ => return None,
        };
        let fits = |tensor: TensorId| {
            let data = &fusion.tensors[tensor];
            data.axes.len() >= 2 && matches!(data.dtype, DType::F16 | DType::BF16)
        };
        (fits(a) && fits(b)).then_some(Self { tensors: [a, b], bias, is_linear })
    }

    /// Of both operands, in the order of the left one's rows and columns and then the right one's, the last axes but so
    /// many: `m` and `k`, `k` and `n`.
    fn behind(&self) -> [[usize; 2]; 2] {
        [[1, 0], if self.is_linear { [0, 1] } else { [1, 0] }]
    }

    /// Of both operands, the numbers that belong to the rows and to the columns of their matrices.
    pub(super) fn of_axes<T: Copy>(&self, axes: impl Fn(TensorId) -> Option<Vec<T>>) -> Option<[[T; 2]; 2]> {
        let mut found = Vec::with_capacity(2);
        for (tensor, behind) in self.tensors.into_iter().zip(self.behind()) {
            let axes = axes(tensor)?;
            let [rows, columns] = behind.map(|from_last| axes.get(axes.len() - 1 - from_last).copied());
            found.push([rows?, columns?]);
        }
        found.try_into().ok()
    }
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op, traces: &SecondaryMap<TensorId, Option<Trace>>) -> Option<Change<'a>> {
    let product = Matrices::of(whole.fusion, op)?;
    if whole.is_empty(op.output()) {
        return None;
    }
    let orders = product.tensors.map(|tensor| is_by_last(whole, tensor, &traces[tensor]));
    let is_by_last = [orders[0]?, orders[1]?];
    let lengths = lengths(whole, op, &product, is_by_last)?;
    let widened = widen(&lengths, whole.device())?;
    Some(Box::new(move |r| write(r, whole, op, &product, widened, is_by_last)))
}

/// Whether what lies side by side is along a tensor's last axis, or else along the one before it; none where
/// it is another. What is computed lies in the order of its axes.
fn is_by_last(whole: &Whole<'_>, tensor: TensorId, trace: &Option<Trace>) -> Option<bool> {
    let rank = whole.rank(tensor);
    let (source, axes) = match trace {
        Some(trace) => (trace.source, trace.axes.clone()),
        None => (tensor, (0..rank).map(Some).collect()),
    };
    let inner = match whole.maker(source) {
        None => whole.inner_axis(source)?,
        Some(_) => whole.rank(source).checked_sub(1)?,
    };
    let own = axes.iter().position(|axis| *axis == Some(inner))?;
    (own + 2 >= rank).then_some(own + 1 == rank)
}

fn lengths(whole: &Whole<'_>, op: &Op, product: &Matrices, is_by_last: [bool; 2]) -> Option<ProductLengths> {
    let output = op.output();
    let of = |tensor: TensorId| whole.sizes(tensor).iter().map(|size| whole.length(*size)).collect::<Option<Vec<_>>>();
    let [[m, k], [_, n]] = product.of_axes(of)?;
    let stack = |tensor: TensorId| {
        let axes = of(tensor)?;
        let stack = &axes[..axes.len() - 2];
        Some(stack.iter().fold(1i64, |count, axis| count.saturating_mul(axis.about)))
    };
    let [a, b] = product.tensors;
    let by_rows = |is_rows: bool| if is_rows { Order::Rows } else { Order::Columns };
    Some(ProductLengths {
        m,
        n,
        k,
        stacks: [stack(a)?, stack(b)?, stack(a)?.max(stack(b)?)],
        orders: [by_rows(is_by_last[0]), by_rows(is_by_last[1] != product.is_linear)],
        is_free: [is_computed(whole, a), is_computed(whole, b), is_read_by_kernels(whole, output)],
        has_bias: product.bias.is_some(),
    })
}

/// Whether a kernel computes a tensor for nobody else, so that it can compute a wider one.
fn is_computed(whole: &Whole<'_>, tensor: TensorId) -> bool {
    whole.is_read_once(tensor) && whole.maker(tensor).is_some_and(|maker| maker.kind.is_elementwise())
}

/// Whether kernels alone read a tensor, so that they can read a part of a wider one.
fn is_read_by_kernels(whole: &Whole<'_>, tensor: TensorId) -> bool {
    let is_kernels = |op: &Op| op.kind.is_elementwise() || matches!(op.kind, OpKind::Reduce { .. });
    !whole.is_returned(tensor) && whole.readers(tensor).all(is_kernels)
}

/// The product of the wider operands, and the part of it that was asked for.
fn write(
    r: &mut Rewriter<'_>,
    whole: &Whole<'_>,
    op: &Op,
    product: &Matrices,
    widened: Widened,
    is_by_last: [bool; 2],
) -> Result<TensorId> {
    let OpKind::Call(call) = &op.kind else { return r.tensor(op.output()) };
    let axes = |tensor: TensorId| Some(whole.fusion.tensors[tensor].axes.iter().map(|axis| axis.extent).collect());
    let Some([[m, k], [_, n]]) = product.of_axes::<ScalarId>(axes) else { return r.tensor(op.output()) };
    let (m, n, k) = (more(r, widened.m, m)?, more(r, widened.n, n)?, more(r, widened.k, k)?);
    let right = if product.is_linear { [n, k] } else { [k, n] };
    let [a, b] = product.tensors;
    let new_a = padded(r, a, whole.rank(a), [m, k], is_by_last[0])?;
    let new_b = padded(r, b, whole.rank(b), right, is_by_last[1])?;
    let [left_name, right_name] = if product.is_linear { ["x", "weight"] } else { ["a", "b"] };
    let mut args = r.arguments(op, call)?.value(left_name, new_a).value(right_name, new_b);
    // One that is the same for all columns is so for more of them.
    if let Some(bias) = product.bias.filter(|bias| widened.n && whole.sizes(*bias) != [1]) {
        let old = r.tensor(bias)?;
        args = args.value("bias", pad(r, old, vec![0.into(), n])?);
    }
    let made = match r.builder.apply(&args)?.first() {
        Some(made) => tensor(*made)?,
        None => return r.tensor(op.output()),
    };
    part(r, whole, op.output(), made, widened)
}

/// By how much an axis of an old extent is widened.
fn more(r: &mut Rewriter<'_>, is_widened: bool, extent: ScalarId) -> Result<Src> {
    if !is_widened {
        return Ok(0.into());
    }
    let own = r.scalar(extent);
    let less = r.builder.unary(UnaryOp::Neg, own)?;
    Ok(r.builder.binary(BinaryOp::Remainder, less, MULTIPLE)?.into())
}

/// An operand with more behind its last two axes. It is padded in the order in which it lies, so that nothing is
/// turned round on the way.
fn padded(r: &mut Rewriter<'_>, old: TensorId, rank: usize, more: [Src; 2], is_by_last: bool) -> Result<TensorId> {
    let x = r.tensor(old)?;
    let zero: Src = 0.into();
    if more == [zero; 2] {
        return Ok(x);
    }
    if is_by_last {
        return pad(r, x, vec![zero, more[1], zero, more[0]]);
    }
    let mut turned: Vec<i64> = (0..rank as i64).collect();
    turned.swap(rank - 2, rank - 1);
    let x = tensor(r.builder.permute(x, &turned)?)?;
    let x = pad(r, x, vec![zero, more[0], zero, more[1]])?;
    tensor(r.builder.permute(x, &turned)?)
}

fn pad(r: &mut Rewriter<'_>, x: TensorId, widths: Vec<Src>) -> Result<TensorId> {
    make(&mut r.builder, "pad", |args| args.value("x", x).with("widths", OpArg::Values(widths)))
}

/// The part of a wider result that has the extents of the old one.
fn part(r: &mut Rewriter<'_>, whole: &Whole<'_>, old: TensorId, made: TensorId, widened: Widened) -> Result<TensorId> {
    if !widened.m && !widened.n {
        return Ok(made);
    }
    let ends = extents(r, whole, old);
    let starts = vec![0.into(); ends.len()];
    let found = make(&mut r.builder, "slice", |args| {
        let args = args.value("x", made).with("starts", OpArg::Values(starts)).with("ends", OpArg::Values(ends));
        // They lie in the axes.
        args.with("manual_normalization", OpArg::Bool(true))
    })?;
    if is_read_by_kernels(whole, old) { Ok(found) } else { tensor(r.builder.set(found)?) }
}

/// What is known of the lengths of all axes of operands of a fusion's products, if making some longer could pay on
/// a device whose slowest products take this many operations a second.
pub(super) fn lengths_of(fusion: &Fusion, sizes: impl Fn(TensorId) -> Vec<i64>, slowest: u64) -> Vec<(i64, Length)> {
    let products: Vec<Matrices> = fusion.ops.values().filter_map(|op| Matrices::of(fusion, op)).collect();
    let could_pay = |product: &Matrices| {
        let Some([[m, k], [_, n]]) = product.of_axes(|tensor| Some(sizes(tensor))) else { return false };
        let count = |tensor: TensorId| sizes(tensor).iter().fold(1.0, |count, size| count * *size as f64);
        let [a, b] = product.tensors.map(count);
        // Of the two stacks one is that of the result.
        let sums = (a * n as f64).max(b * m as f64);
        [m, n, k].iter().any(|size| size % MULTIPLE != 0) && 2.0 * sums >= LEAST_TIME * slowest as f64
    };
    if !products.iter().any(could_pay) {
        return Vec::new();
    }
    let axes = products.iter().flat_map(|product| product.tensors).flat_map(sizes);
    axes.map(|size| (size, Length::of(size))).collect()
}

/// Seconds of a product below which nothing pays: less than it takes to launch what pads.
const LEAST_TIME: f64 = 3e-6;
