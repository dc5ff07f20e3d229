//! Rows that are put where an index says, the same index for all of a row: who writes a place last is a question of
//! the index alone. `scatter(x, expand(i), src)` is a lookup of rows of `src` by the last position of each place in `i`, and
//! a choice, so that neither the expanded index nor a last position for each element is ever stored.
//!
//! Where each row has an index of its own, the last positions are elements of theirs, but all are; so what they look up and the
//! choice are one kernel, without a slice before them or a pad behind.
//!
//! In the way of that: an index, or a `src`, that is shorter or longer than `x` on the other axes.

use super::make::{broadcast, call as make, squeeze, tensor};
use super::whole::{Change, Changes, Whole, call};
use crate::diag::Result;
use crate::fusion::ops::{Form, OpArg};
use crate::fusion::{AxisKind, Op, OpKind, Operand, Rewriter, Src, TensorId};
use crate::num::{BinaryOp, TernaryOp};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let scatter = call(op, Form::Scatter)?;
    let [Operand::Tensor(x), Operand::Tensor(index), src] = *op.inputs.as_slice() else { return None };
    let dim = scatter.axis("dim");
    let line = Line::of(whole, index, dim);
    let is_long = |tensor: TensorId| whole.kind(tensor, dim) == AxisKind::Iteration && whole.sizes(tensor)[dim] > 1;
    // Along `dim` they may differ: places are those of x, positions those of the index.
    let is_as_wide = |tensor: TensorId| {
        let mut others = (0..whole.rank(x)).filter(|axis| *axis != dim);
        others.all(|axis| {
            whole.sizes(tensor)[axis] == whole.sizes(x)[axis] && whole.kind(tensor, axis) == whole.kind(x, axis)
        })
    };
    let fits = match src {
        Operand::Tensor(src) => is_long(src) && is_as_wide(src),
        Operand::Scalar(_) => true,
    };
    let put = Put { x, index, line, src, dim };
    // Of one row nothing has to be as wide.
    let pays = line.is_some() || whole.rank(x) > 1;
    (pays && fits && is_long(x) && is_as_wide(index))
        .then(|| -> Change<'a> { Box::new(move |r| write(r, whole, &put)) })
}

/// A scatter.
struct Put {
    x: TensorId,
    index: TensorId,
    /// The index of all rows, if it is the same.
    line: Option<Line>,
    src: Operand,
    dim: usize,
}

/// What an index has along one axis, if it is the same along all others.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub(super) tensor: TensorId,
    pub(super) axis: usize,
}

impl Line {
    pub(super) fn of(whole: &Whole<'_>, index: TensorId, dim: usize) -> Option<Self> {
        let is_line = |tensor: TensorId, along: usize| {
            (0..whole.rank(tensor)).all(|axis| axis == along || whole.is_broadcast(tensor, axis))
        };
        if is_line(index, dim) {
            return None;
        }
        let (mut tensor, mut axis) = (index, dim);
        while let Some((x, own)) = spread(whole, tensor, axis) {
            (tensor, axis) = (x, own);
        }
        let is_one = is_line(tensor, axis) && whole.sizes(tensor)[axis] == whole.sizes(index)[dim];
        is_one.then_some(Self { tensor, axis })
    }
}

/// What is spread over axes other than one, and the axis in it.
fn spread(whole: &Whole<'_>, tensor: TensorId, axis: usize) -> Option<(TensorId, usize)> {
    let maker = whole.maker(tensor)?;
    let Some(Operand::Tensor(x)) = maker.inputs.first().copied() else { return None };
    match &maker.kind {
        OpKind::Broadcast { flags } if !flags[axis] => Some((x, flags[..axis].iter().filter(|new| !**new).count())),
        _ => (call(maker, Form::Expand).is_some() && whole.rank(x) == whole.rank(tensor)).then_some((x, axis)),
    }
}

/// Where somebody writes a place what the last one does who does, elsewhere what `x` has.
fn write(r: &mut Rewriter<'_>, whole: &Whole<'_>, put: &Put) -> Result<TensorId> {
    let &Put { x, src, dim, .. } = put;
    let new = r.tensor(x)?;
    let last = put.last(r, whole)?;
    let src = match src {
        Operand::Tensor(src) => Operand::Tensor(r.tensor(src)?),
        Operand::Scalar(scalar) => Operand::Scalar(r.scalar(scalar)),
    };
    let b = &mut r.builder;
    let mut is_written = tensor(b.binary(BinaryOp::Gt, last, 0)?)?;
    if put.line.is_some() {
        let others: Vec<bool> = (0..whole.rank(x)).map(|axis| axis != dim).collect();
        is_written = broadcast(b, is_written, &others)?;
    }
    let looked_up = if put.line.is_some() { "index_select" } else { "take_along_axis" };
    let written = match src {
        Operand::Tensor(src) => {
            let position = b.binary(BinaryOp::Sub, last, 1)?;
            let position = b.binary(BinaryOp::Maximum, position, 0)?;
            Src::Tensor(make(b, looked_up, |args| {
                args.value("x", src).value("index", position).with("dim", OpArg::Int(dim as i64))
            })?)
        }
        Operand::Scalar(scalar) => Src::Scalar(scalar),
    };
    let all = b.ternary(TernaryOp::Where, is_written, written, new)?;
    tensor(b.cast(all, whole.fusion.tensors[x].dtype)?)
}

impl Put {
    /// The last positions of places: a line of them, where the index is one.
    fn last(&self, r: &mut Rewriter<'_>, whole: &Whole<'_>) -> Result<TensorId> {
        let size = Operand::Scalar(r.scalar(whole.fusion.tensors[self.x].axes[self.dim].extent));
        let index = r.tensor(self.line.map_or(self.index, |line| line.tensor))?;
        let b = &mut r.builder;
        let (index, dim) = match self.line {
            Some(line) => {
                let others: Vec<bool> = (0..whole.rank(line.tensor)).map(|axis| axis != line.axis).collect();
                (squeeze(b, index, &others)?, 0)
            }
            None => (index, self.dim as i64),
        };
        make(b, "last_position", |args| args.value("index", index).value("size", size).with("dim", OpArg::Int(dim)))
    }
}
