//! Rows that are added where an index says, and then up in groups with weights, are added up at once:
//! `sum(reshape(index_put_accumulate(0, i, x), [S, K, h]) * w, 1)`, as experts' results are combined, is `weighted_runs`, so
//! that the rows of places are never stored.
//!
//! Rows that are widened, then seen in another shape and then added, are seen first: kernels add narrow rows as they are, and
//! a view of what is in memory costs nothing.
//!
//! In the way of the first: others that read what is between, rows that are added to anything else than zeros, and groups of
//! more places than a thread has.

use super::make::tensor;
use super::whole::{Change, Changes, Whole, call, operand};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{self, Args, Call, Form};
use crate::fusion::{AxisKind, Op, OpKind, Operand, Rewriter, ScalarDef, TensorId};
use crate::num::{BinaryOp, DType, ReduceOp};
use crate::template::MOST_GROUPED;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    if let Some(put) = Groups::of(whole, op) {
        return Some(Box::new(move |r| put.write(r, whole)));
    }
    let put = Widened::of(whole, op)?;
    Some(Box::new(move |r| put.write(r)))
}

/// Rows that are added in groups.
struct Groups {
    index: TensorId,
    value: TensorId,
    weight: TensorId,
    /// The rows of all places.
    rows: TensorId,
}

impl Groups {
    /// What ends in an operation, a sum of `f32` or what it is rounded to.
    fn of(whole: &Whole<'_>, op: &Op) -> Option<Self> {
        let dtype = whole.fusion.tensors[op.output()].dtype;
        if !matches!(dtype, DType::F16 | DType::BF16 | DType::F32) {
            return None;
        }
        let total = whole.fusion.definition(widened(whole, op.output(), dtype)?)?;
        let total = &whole.fusion.ops[total];
        let OpKind::Reduce { op: ReduceOp::Sum, axes, .. } = &total.kind else { return None };
        let product = operand(total).filter(|_| axes[..] == [1] && whole.rank(op.output()) == 2)?;
        let maker = whole.maker(product).filter(|_| whole.is_read_once(product) && !whole.is_returned(product))?;
        let (OpKind::Binary(BinaryOp::Mul), [Operand::Tensor(a), Operand::Tensor(b)]) =
            (&maker.kind, &maker.inputs[..])
        else {
            return None;
        };
        let pairs = [(*a, *b), (*b, *a)];
        pairs.into_iter().find_map(|(rows, weight)| Self::of_product(whole, [rows, weight], dtype))
    }

    /// Of what is multiplied: rows of places in groups, and what each place counts.
    fn of_product(whole: &Whole<'_>, [rows, weight]: [TensorId; 2], dtype: DType) -> Option<Self> {
        let weight = spread(whole, narrowed(whole, weight, dtype)?)?;
        let grouped = narrowed(whole, rows, dtype)?;
        let reshape = inner(whole, grouped).filter(|op| call(op, Form::Reshape).is_some())?;
        let rows = operand(reshape)?;
        let put = inner(whole, rows).filter(|op| call(op, Form::Put).is_some())?;
        let [Operand::Tensor(acc), Operand::Tensor(index), Operand::Tensor(value)] = put.inputs[..] else {
            return None;
        };
        let (sizes, shape) = (whole.sizes(rows), whole.sizes(grouped));
        let is_grouped = sizes.len() == 2 && shape.len() == 3 && shape[2] == sizes[1];
        let is_grouped = is_grouped && (1..=MOST_GROUPED).contains(&shape[1]) && whole.sizes(weight) == &shape[..2];
        let are_long = (0..2).all(|axis| whole.kind(weight, axis) == AxisKind::Iteration);
        let are_long = are_long && (0..2).all(|axis| whole.kind(value, axis) == AxisKind::Iteration);
        let fits = is_grouped && are_long && is_zero(whole, acc) && !whole.is_empty(value) && !whole.is_empty(rows);
        fits.then_some(Self { index, value, weight, rows })
    }

    fn write(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>) -> Result<TensorId> {
        let size = r.scalar(whole.fusion.tensors[self.rows].axes[0].extent);
        let [index, value, weight] = [r.tensor(self.index)?, r.tensor(self.value)?, r.tensor(self.weight)?];
        let row = |name: &str| ops::find(name).ok_or_else(|| Diagnostic::bug(format!("{name} is no row of the table")));
        let (runs, sums) = (row("index_runs")?, row("weighted_runs")?);
        let b = &mut r.builder;
        let made = b.apply(&Args::new(runs).value("index", index).value("size", Operand::Scalar(size)))?;
        let [ends, order] = made.try_into().map_err(|_| Diagnostic::bug("runs have ends and an order"))?;
        let args = Args::new(sums).value("ends", ends).value("order", order);
        let made = b.apply(&args.value("value", value).value("weight", weight))?;
        tensor(*made.first().ok_or_else(|| Diagnostic::bug("sums have a result"))?)
    }
}

/// Rows that are widened, seen in another shape and added.
struct Widened<'a> {
    acc: TensorId,
    index: TensorId,
    narrow: TensorId,
    wide: DType,
    /// From the narrow rows to those that are added.
    views: Vec<&'a Op>,
    put: &'a Call,
}

impl<'a> Widened<'a> {
    fn of(whole: &Whole<'a>, op: &'a Op) -> Option<Self> {
        let put = call(op, Form::Put)?;
        let [Operand::Tensor(acc), Operand::Tensor(index), Operand::Tensor(value)] = op.inputs[..] else {
            return None;
        };
        let (mut seen, mut views) = (value, Vec::new());
        while let Some(view) = inner(whole, seen).filter(|op| is_view(op)) {
            views.insert(0, view);
            seen = operand(view)?;
        }
        let cast = whole.maker(seen)?;
        let OpKind::Cast(wide) = cast.kind else { return None };
        let narrow = operand(cast)?;
        let is_wider = !views.is_empty() && ops::widens_rows(whole.fusion.tensors[narrow].dtype, wide);
        is_wider.then_some(Self { acc, index, narrow, wide, views, put })
    }

    fn write(&self, r: &mut Rewriter<'_>) -> Result<TensorId> {
        let mut seen = r.tensor(self.narrow)?;
        for view in &self.views {
            seen = r.write_as(view, view.kind.clone(), &[seen])?;
        }
        let [acc, index] = [r.tensor(self.acc)?, r.tensor(self.index)?];
        let value = r.builder.cast(seen, self.wide)?;
        let args = Args::new(self.put.row).value("acc", acc).value("index", index).value("value", value);
        tensor(*r.builder.apply(&args)?.first().ok_or_else(|| Diagnostic::bug("a put has a result"))?)
    }
}

/// Whether an operation shows what it reads in other axes.
fn is_view(op: &Op) -> bool {
    matches!(op.kind, OpKind::Permute { .. }) || call(op, Form::Reshape).is_some()
}

/// What is rounded to a type, of the `f32` that it is computed in.
fn widened(whole: &Whole<'_>, x: TensorId, dtype: DType) -> Option<TensorId> {
    if dtype == DType::F32 {
        return Some(x);
    }
    let op = whole.maker(x).filter(|op| matches!(op.kind, OpKind::Cast(_)))?;
    let wide = operand(op)?;
    let is_wide = whole.fusion.tensors[wide].dtype == DType::F32 && whole.is_read_once(wide);
    (is_wide && !whole.is_returned(wide)).then_some(wide)
}

/// What an `f32` is of a type.
fn narrowed(whole: &Whole<'_>, x: TensorId, dtype: DType) -> Option<TensorId> {
    if whole.fusion.tensors[x].dtype == dtype {
        return Some(x);
    }
    let op = inner(whole, x).filter(|op| matches!(op.kind, OpKind::Cast(_)))?;
    operand(op).filter(|narrow| whole.fusion.tensors[*narrow].dtype == dtype)
}

/// What makes a tensor that nobody else reads than who asks.
fn inner<'a>(whole: &Whole<'a>, x: TensorId) -> Option<&'a Op> {
    whole.maker(x).filter(|_| whole.is_read_once(x) && !whole.is_returned(x))
}

/// What is repeated along a last axis.
fn spread(whole: &Whole<'_>, x: TensorId) -> Option<TensorId> {
    let op = whole.maker(x)?;
    let OpKind::Broadcast { flags } = &op.kind else { return None };
    (flags[..] == [false, false, true]).then(|| operand(op)).flatten()
}

/// Whether a tensor is filled with zeros.
fn is_zero(whole: &Whole<'_>, x: TensorId) -> bool {
    let Some(op) = whole.maker(x).filter(|op| matches!(op.kind, OpKind::Full)) else { return false };
    let [Operand::Scalar(number), ..] = op.inputs[..] else { return false };
    // One of the other sign stays where no row is added.
    matches!(whole.fusion.scalars[number].def, ScalarDef::Const(value) if value.as_f64().to_bits() == 0)
}
