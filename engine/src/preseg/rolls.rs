//! What is cut from one tensor and joined again along several axes, or along one and then regrouped, is looked up: row by row of
//! that tensor, or element by element where rows are moved themselves, at places that are computed. `roll` is written so, and so are windows that are shifted: each `cat` of a nest of
//! them would be a copy of all, and a reshape behind it, which sees memory, one more. An axis that is looked up at positions
//! which follow from its size, a few runs of them, is cut and joined so, too. Places are sums over axes, and along an
//! axis a choice by position among few numbers; a row is the innermost axis, where that is left as it is.
//!
//! In: a joined tensor, or a reshape of it, or its axes permuted. Out: rows of the tensor in memory, in the axes and in the
//! order in which the last of these operations has them, so that what reads them is one kernel with the lookup.
//!
//! In the way of it: parts of several tensors, a cut through an axis that is merged with others, one of which a
//! single position is left, and rows that are less than a sector of memory.

use super::known::Known;
use super::make::{call as make, reshape, tensor};
use super::moves::is_computed;
use super::slices::ranges;
use super::whole::{Change, Changes, Whole, call, operand, tensors};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Form, IndexAxes, OpArg};
use crate::fusion::{Op, OpKind, Operand, Rewriter, Src, TensorId};
use crate::num::{BinaryOp, DType, TernaryOp};
use std::ops::Range;

/// Slices and joined tensors that are gone through between a result and the tensor in memory, at most: twice as many for each axis.
const MOST_STEPS: usize = 64;
/// Runs of positions along an axis, at most: each is a choice.
const MOST_RUNS: usize = 4;
/// Bytes of a row, at least.
const LEAST_ROW_BYTES: i64 = 32;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&|whole, op| {
        let roll = Roll::of(whole, op)?;
        let change: Change<'a> = Box::new(move |r| roll.write(r));
        Some(change)
    })
}

/// A tensor as parts of another one: for each axis the runs of its positions that it has, one after the other.
#[derive(Clone, PartialEq)]
struct Pieces {
    source: TensorId,
    runs: Vec<Vec<(i64, i64)>>,
}

impl Pieces {
    /// All of a tensor.
    fn all(whole: &Whole<'_>, source: TensorId) -> Self {
        Self { source, runs: whole.sizes(source).iter().map(|size| vec![(0, *size)]).collect() }
    }

    /// A tensor in terms of the furthest one of which it is parts, if these are few and it is found in so many steps.
    fn of(whole: &Whole<'_>, x: TensorId, left: &mut usize) -> Option<Self> {
        *left = left.checked_sub(1)?;
        let Some(maker) = whole.maker(x) else { return Some(Self::all(whole, x)) };
        if let Some(cut) = ranges(whole, maker) {
            let mut pieces = Self::of(whole, operand(maker)?, left)?;
            pieces.runs.iter_mut().zip(cut).for_each(|(runs, range)| *runs = within(runs, range));
            return Some(pieces);
        }
        if let Some(cat) = call(maker, Form::Cat) {
            let dim = cat.axis("dim");
            let mut parts = tensors(maker, cat, "tensors").into_iter().map(|part| Self::of(whole, part, left));
            let mut joined = parts.next()??;
            for part in parts {
                // What is joined of several tensors is one that is joined.
                if !joined.append(part?, dim) {
                    return Some(Self::all(whole, x));
                }
            }
            return Some(joined);
        }
        if let Some((x, axis, runs)) = selected(whole, maker) {
            let mut pieces = Self::of(whole, x, left)?;
            let old = std::mem::take(&mut pieces.runs[axis]);
            runs.into_iter().flat_map(|run| within(&old, run)).for_each(|run| pieces.add(axis, run));
            return Some(pieces);
        }
        Some(Self::all(whole, x))
    }

    /// One more run of positions along an axis, behind the others.
    fn add(&mut self, axis: usize, run: (i64, i64)) {
        match self.runs[axis].last_mut() {
            Some(last) if last.1 == run.0 => last.1 = run.1,
            _ => self.runs[axis].push(run),
        }
    }

    /// Joins parts of the same tensor along an axis, where they agree along the others.
    fn append(&mut self, mut other: Self, dim: usize) -> bool {
        let theirs = std::mem::replace(&mut other.runs[dim], self.runs[dim].clone());
        if *self != other {
            return false;
        }
        theirs.into_iter().for_each(|run| self.add(dim, run));
        true
    }

    /// Whether all positions of an axis are in place.
    fn is_whole(&self, whole: &Whole<'_>, axis: usize) -> bool {
        self.runs[axis] == [(0, whole.sizes(self.source)[axis])]
    }
}

/// Positions from each first to before each second, one after the other.
type Runs = Vec<(i64, i64)>;

/// What is looked up along an axis at positions that follow from sizes, and the runs of these.
fn selected(whole: &Whole<'_>, op: &Op) -> Option<(TensorId, usize, Runs)> {
    let lookup = call(op, Form::Lookup(IndexAxes::InPlace))?.lookup()?;
    let [Operand::Tensor(x), Operand::Tensor(index)] = [lookup.table, lookup.index].map(|position| op.inputs[position])
    else {
        return None;
    };
    // The positions are the same along all other axes.
    if whole.rank(index) != 1 || whole.rank(x) != whole.rank(op.output()) {
        return None;
    }
    let runs = Known::of(whole, index)?.runs(MOST_RUNS)?;
    let (axis, size) = (lookup.axis, whole.sizes(x)[lookup.axis]);
    runs.iter().all(|(start, end)| (0..=size).contains(start) && *end <= size).then_some((x, axis, runs))
}

/// The runs that lie between positions of what they make up.
fn within(runs: &[(i64, i64)], (start, end): (i64, i64)) -> Vec<(i64, i64)> {
    let (mut place, mut found) = (0, Vec::new());
    for (first, last) in runs {
        let (from, to) = ((start - place).max(0), (end - place).min(last - first));
        if from < to {
            found.push((first + from, first + to));
        }
        place += last - first;
    }
    found
}

/// A result that is looked up.
struct Roll<'a> {
    whole: &'a Whole<'a>,
    pieces: Pieces,
    output: TensorId,
    /// The sizes of the result before axes are permuted, and for each of its axes which of these it is.
    sizes: &'a [i64],
    order: Vec<usize>,
    /// Axes of the tensor of pieces, and those of these sizes that are the same elements.
    groups: Vec<(Range<usize>, Range<usize>)>,
}

impl<'a> Roll<'a> {
    fn of(whole: &'a Whole<'a>, op: &Op) -> Option<Self> {
        let output = op.output();
        let (shown, order) = match &op.kind {
            OpKind::Permute { perm } => (operand(op)?, perm.iter().map(|axis| *axis as usize).collect()),
            _ => (output, (0..whole.rank(output)).collect::<Vec<_>>()),
        };
        let view = if shown == output { op } else { whole.maker(shown).filter(|_| whole.is_read_once(shown))? };
        let joined = match call(view, Form::Reshape) {
            Some(_) => operand(view).filter(|x| whole.is_read_once(*x))?,
            None => shown,
        };
        let maker = whole.maker(joined)?;
        if call(maker, Form::Cat).is_none() {
            selected(whole, maker)?;
        }
        let pieces = Pieces::of(whole, joined, &mut { MOST_STEPS })?;
        let (sizes, groups) = (whole.sizes(shown), groups(whole.sizes(joined), whole.sizes(shown))?);
        let this = Self { whole, pieces, output, sizes, order, groups };
        let is_kernel = shown != output || whole.readers(output).any(is_computed);
        (this.is_possible() && this.pays(joined != shown && is_kernel)).then_some(this)
    }

    /// Whether the elements are rows of a tensor in memory, at places that are sums over axes.
    fn is_possible(&self) -> bool {
        let Self { whole, pieces, output, sizes, order, groups } = self;
        let dtype = whole.fusion.tensors[*output].dtype;
        let is_moved = |axes: &Range<usize>| axes.clone().any(|axis| !pieces.is_whole(whole, axis));
        let is_long = |axis: usize| pieces.runs[axis].iter().map(|(start, end)| end - start).sum::<i64>() > 1;
        let last = sizes.len().checked_sub(1);
        let row_bytes = sizes.last().map_or(0, |row| row * dtype.bytes() as i64);
        !whole.is_empty(*output)
            && dtype != DType::F4E2M1FNX2
            && order.last().copied() == last
            && whole.regroups(*output)
            && whole.declares(*output)
            && is_dense(whole, pieces.source)
            && pieces.runs.iter().all(|runs| runs.len() <= MOST_RUNS)
            && groups.iter().all(|group| !is_moved(&group.0) || group.0.len() == 1 && is_long(group.0.start))
            && sizes.last().is_some_and(|row| *row > 1)
            && (self.moves_rows() || row_bytes >= LEAST_ROW_BYTES)
    }

    /// Whether positions along the innermost axis are others than in memory, so that elements are looked up, not rows.
    fn moves_rows(&self) -> bool {
        let last = self.sizes.len().saturating_sub(1);
        let has_row = |group: &&(Range<usize>, Range<usize>)| group.1.contains(&last);
        let is_moved = |axis: usize| !self.pieces.is_whole(self.whole, axis);
        self.groups.iter().find(has_row).is_some_and(|group| group.0.clone().any(is_moved))
    }

    /// Whether copies are saved: one for each axis along which parts are joined but the last, which the lookup is, and one where
    /// kernels read what is regrouped.
    fn pays(&self, regroups: bool) -> bool {
        let joined = self.pieces.runs.iter().filter(|runs| runs.len() > 1).count();
        joined + usize::from(regroups) > 1 && joined > 0
    }

    fn write(&self, r: &mut Rewriter<'_>) -> Result<TensorId> {
        let fusion = self.whole.fusion;
        let axes = &fusion.tensors[self.output].axes;
        let mut shape: Vec<Src> = axes.iter().map(|axis| r.scalar(axis.extent).into()).collect();
        if self.moves_rows() {
            return self.write_elements(r, &shape);
        }
        let row = shape.pop().ok_or_else(|| Diagnostic::bug("what is looked up has no row"))?;
        let source = self.pieces.source;
        let all: i64 = self.whole.sizes(source).iter().product();
        let rows = all / self.sizes[self.sizes.len() - 1];
        let place = self.place(r, &shape, rows)?;
        let new = r.tensor(source)?;
        let table = reshape(&mut r.builder, new, vec![rows.into(), row])?;
        make(&mut r.builder, "embedding_fwd", |args| args.value("input", place).value("weight", table))
    }

    /// The elements of a result of this shape.
    fn write_elements(&self, r: &mut Rewriter<'_>, shape: &[Src]) -> Result<TensorId> {
        let source = self.pieces.source;
        let all: i64 = self.whole.sizes(source).iter().product();
        let place = self.place(r, shape, all)?;
        let mut one_row: Vec<Src> = vec![1.into(); shape.len()];
        one_row[shape.len() - 1] = all.into();
        let new = r.tensor(source)?;
        let table = reshape(&mut r.builder, new, one_row)?;
        let dim = OpArg::Int(shape.len() as i64 - 1);
        make(&mut r.builder, "take_along_axis", |args| args.value("x", table).value("index", place).with("dim", dim))
    }

    /// The place of each row or element of a result, which has this shape without the axes of a row, of so many.
    fn place(&self, r: &mut Rewriter<'_>, shape: &[Src], rows: i64) -> Result<TensorId> {
        let is_short = i32::try_from(rows).is_ok();
        let mut place = None;
        for (old, new) in &self.groups {
            let own = new.clone().filter(|axis| *axis < shape.len());
            let moved = old.clone().find(|axis| !self.pieces.is_whole(self.whole, *axis));
            let mut along = if moved.is_some() { None } else { place };
            for axis in own.filter(|axis| self.sizes[*axis] > 1) {
                let at = self.order.iter().position(|own| *own == axis);
                let at = at.ok_or_else(|| Diagnostic::bug("an axis has no place in its order"))?;
                let mut index = tensor(r.builder.index(shape, at as i64)?)?;
                if is_short {
                    index = tensor(r.builder.cast(index, DType::I32)?)?;
                }
                along = Some(step(r, along, self.sizes[axis], index)?);
            }
            place = match (moved, along) {
                (Some(axis), Some(position)) => {
                    let own = self.moved(r, axis, position)?;
                    Some(step(r, place, self.whole.sizes(self.pieces.source)[axis], own)?)
                }
                _ => along,
            };
        }
        place.ok_or_else(|| Diagnostic::bug("what is looked up has one place"))
    }

    /// The position in the source of one along an axis that is made up of runs.
    fn moved(&self, r: &mut Rewriter<'_>, axis: usize, position: TensorId) -> Result<TensorId> {
        let runs = &self.pieces.runs[axis];
        let mut end: i64 = runs.iter().map(|(start, end)| end - start).sum();
        let mut found: Option<TensorId> = None;
        for (start, last) in runs.iter().rev() {
            // Those behind this run are known.
            let next = end;
            end -= last - start;
            let own = match start - end {
                0 => position,
                shift => tensor(r.builder.binary(BinaryOp::Add, position, shift)?)?,
            };
            found = Some(match found {
                None => own,
                Some(others) => {
                    let is_here = r.builder.binary(BinaryOp::Lt, position, next)?;
                    tensor(r.builder.ternary(TernaryOp::Where, is_here, own, others)?)?
                }
            });
        }
        found.ok_or_else(|| Diagnostic::bug("an axis is made up of no run"))
    }
}

/// The number of an element in one more axis, of this size.
fn step(r: &mut Rewriter<'_>, before: Option<TensorId>, size: i64, index: TensorId) -> Result<TensorId> {
    let Some(before) = before else { return Ok(index) };
    let first = r.builder.binary(BinaryOp::Mul, before, size)?;
    tensor(r.builder.binary(BinaryOp::Add, first, index)?)
}

/// The axes of two shapes of as many elements in groups that have the same elements, as few axes as may be.
fn groups(old: &[i64], new: &[i64]) -> Option<Vec<(Range<usize>, Range<usize>)>> {
    let (mut groups, mut ends) = (Vec::new(), [0, 0]);
    while ends != [old.len(), new.len()] {
        let [i, j] = ends;
        let mut counts = [old.get(i).copied().unwrap_or(1), new.get(j).copied().unwrap_or(1)];
        ends = [(i + 1).min(old.len()), (j + 1).min(new.len())];
        while counts[0] != counts[1] {
            let side = usize::from(counts[1] < counts[0]);
            counts[side] *= [old, new][side].get(ends[side])?;
            ends[side] += 1;
        }
        groups.push((i..ends[0], j..ends[1]));
    }
    Some(groups)
}

/// Whether a tensor lies row-major in memory: an argument that does, what a kernel stores, and how others see such.
fn is_dense(whole: &Whole<'_>, mut x: TensorId) -> bool {
    while let Some(maker) = whole.maker(x) {
        match (&maker.kind, operand(maker)) {
            (_, Some(seen)) if call(maker, Form::Reshape).is_some() => x = seen,
            // Positions of the outermost axis that has several.
            (_, Some(seen)) if is_outermost(whole, maker, seen) => x = seen,
            (OpKind::Permute { .. } | OpKind::Broadcast { .. } | OpKind::Squeeze { .. }, _) => return false,
            (OpKind::Call(call), _) => return call.movement().place.is_none(),
            _ => return true,
        }
    }
    whole.is_row_major(x)
}

/// Whether an operation shows one position, or a run of them, of a tensor's outermost axis of more than one, and all else.
fn is_outermost(whole: &Whole<'_>, op: &Op, seen: TensorId) -> bool {
    let sizes = whole.sizes(seen);
    let outermost = sizes.iter().position(|size| *size > 1).unwrap_or(0);
    match (call(op, Form::Select), ranges(whole, op)) {
        (Some(select), _) => select.axis("dim") <= outermost,
        (None, Some(cut)) => cut.iter().zip(sizes).skip(outermost + 1).all(|(range, size)| *range == (0, *size)),
        (None, None) => false,
    }
}
