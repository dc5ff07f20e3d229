//! What a scan reads and writes in memory: how its tensors lie along the axes of the scan, and what of that a kernel may move at
//! once.
//!
//! Invariant: what is moved across the lines is refused, but of a scan alone.

use super::super::around::{self, Around};
use super::super::walk::{self, MAX_FACT, MAX_LANES, Placed, Walk};
use super::super::{Output, Template};
use super::shape::Along;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{AxisKind, Operand};
use crate::kernel::{ExprId, KernelBuilder, MAX_ACCESS_BYTES};
use crate::lower::Scalars;
use crate::num::DType;
use crate::schedule::{ArgClass, TensorLayout};

/// Refuses what would be read or written across memory beside a scan: kernels of its own move that in tiles. The axes of the
/// scan have these sizes, and the scanned one is the innermost one, or not.
pub(super) fn check(
    template: &Template,
    around: &Around,
    class: &ArgClass,
    sizes: &[i64],
    is_innermost: bool,
) -> Result<()> {
    if around.is_of_an_input() {
        return Ok(());
    }
    // What is the same for all of a line, or for all lines, is read once or by all lanes together.
    let is_of_many = |moving: &[usize]| moving.len() > 1 && moving.contains(&template.axis);
    let is_across = |axes: Vec<usize>| {
        let moving: Vec<usize> = axes.into_iter().filter(|axis| sizes[*axis] > 1).collect();
        is_of_many(&moving) && moving.last().is_some_and(|last| (*last == template.axis) != is_innermost)
    };
    let reads = reads(template, around, class)?;
    if reads.iter().any(|read| is_across(read.moving()))
        || template.outputs.iter().any(|own| is_across(own.order.clone()))
    {
        return Err(Diagnostic::unsupported(
            code::OP_NOT_LOWERED,
            "what is computed beside a scan lies across its lines",
        )
        .note("it is a kernel of its own"));
    }
    Ok(())
}

/// What may be moved at once of rows along the innermost axis, and what of them goes through shared memory if that is needed.
pub(super) fn along(template: &Template, around: &Around, class: &ArgClass) -> Result<Along> {
    let reads = reads(template, around, class)?;
    let dtype = |output: &Output| template.fusion.tensors[output.tensor].dtype;
    let moving = |read: &&Read<'_>| read.moving().contains(&template.axis);
    let read: Vec<DType> = reads.iter().filter(moving).map(|read| read.dtype).collect();
    let own = reads.iter().enumerate().filter(|(number, read)| moving(read) && is_free(around, *number));
    let free: Vec<DType> = own.map(|(_, read)| read.dtype).collect();
    let made: Vec<DType> = template.outputs.iter().map(dtype).collect();
    let bytes = |dtype: &DType| dtype.bytes() as i64;
    let narrowest = read.iter().chain(&made).map(bytes).min().unwrap_or(1);
    let own = lent(&free, &made).into_iter().zip(&made).filter(|(lent, _)| lent.is_none()).map(|(_, dtype)| dtype);
    let shared = read.iter().chain(own).map(bytes).sum::<i64>().max(1);
    let is_dense = |read: &Read<'_>| {
        let last = read.layout.order.last();
        let is_along = last.is_some_and(|own| own.dense && read.axes[own.axis] == template.axis);
        is_along && i64::from(read.layout.align) % MAX_ACCESS_BYTES == 0
    };
    let has_windows = reads.iter().filter(moving).all(is_dense)
        && template.outputs.iter().all(|output| output.order.last() == Some(&template.axis));
    Ok(Along { vector: vector(template, &reads), narrowest, shared, has_windows })
}

/// Whether nobody asks for what is read of a tensor when results are made: in windows they lie where others have that.
pub(super) fn is_free(around: &Around, read: usize) -> bool {
    !around.behind.asks_for(read)
}

/// For each result of a type the number of what is read, in shared memory, whose place an element of it may take: nothing takes a place
/// twice.
pub(super) fn lent(read: &[DType], made: &[DType]) -> Vec<Option<usize>> {
    let mut taken = vec![false; read.len()];
    let place = |made: &DType| {
        let free = (0..read.len()).find(|own| !taken[*own] && read[*own] == *made)?;
        taken[free] = true;
        Some(free)
    };
    made.iter().map(place).collect()
}

/// Elements of a row along the innermost axis that one access may move: each vector of them is aligned in all tensors
/// that move along it.
fn vector(template: &Template, reads: &[Read<'_>]) -> i64 {
    // Rows of results that lie otherwise are written one by one.
    if !template.outputs.iter().all(|output| output.order.is_sorted()) {
        return 1;
    }
    let along = |read: &Read<'_>| read.axes.iter().position(|axis| *axis == template.axis);
    let facts = reads.iter().filter_map(|read| along(read).map(|own| read.layout.size_facts[own]));
    let fact = facts.max().unwrap_or(1).min(MAX_LANES);
    let bytes = template.outputs.iter().map(|output| template.fusion.tensors[output.tensor].dtype.bytes() as i64);
    let most = bytes.fold(fact, |most, bytes| most.min(MAX_ACCESS_BYTES / bytes));
    reads.iter().fold(most, |most, read| match along(read).filter(|_| read.moving().contains(&template.axis)) {
        Some(own) => walk::widest(read.layout, &[own], read.dtype, most),
        None => most,
    })
}

/// A tensor that is read, as it lies, and which axis of the scan each of its axes is.
struct Read<'a> {
    input: usize,
    layout: &'a TensorLayout,
    dtype: DType,
    axes: &'a [usize],
    /// Its axes of one element.
    single: Vec<bool>,
}

impl Read<'_> {
    /// The axes of the scan along which it moves, the innermost one last.
    fn moving(&self) -> Vec<usize> {
        let own = self.layout.order.iter().map(|own| own.axis).filter(|axis| !self.single[*axis]);
        own.map(|axis| self.axes[axis]).collect()
    }
}

fn reads<'a>(template: &Template, around: &'a Around, class: &'a ArgClass) -> Result<Vec<Read<'a>>> {
    let fusion = &template.fusion;
    let read = |own: &'a around::Read| {
        let input = fusion.inputs.iter().position(|input| *input == Operand::Tensor(own.tensor));
        let input = input.ok_or_else(|| Diagnostic::bug("a scan reads what is no input"))?;
        let (layout, tensor) = (walk::layout(class, input)?, &fusion.tensors[own.tensor]);
        let single = tensor.axes.iter().map(|axis| axis.kind == AxisKind::Broadcast).collect();
        Ok::<_, Box<Diagnostic>>(Read { input, layout, dtype: tensor.dtype, axes: &own.axes, single })
    };
    around.reads.iter().map(read).collect()
}

/// The memory of what is read and of results, along the axes of the scan; and the length of each axis.
pub(super) fn declare(
    b: &mut KernelBuilder,
    template: &Template,
    around: &Around,
    class: &ArgClass,
    scalars: &mut Scalars<'_>,
) -> Result<(Walk, Vec<DType>)> {
    let fusion = &template.fusion;
    let rank = fusion.tensors[around.x].axes.len();
    // A size that an input has says more than one that is computed.
    let mut sizes: Vec<Option<(ExprId, i64)>> = vec![None; rank];
    let (mut placed, mut types) = (Vec::new(), Vec::new());
    for (read, own) in reads(template, around, class)?.into_iter().zip(&around.reads) {
        let extents = walk::extents(b, template, scalars, own.tensor)?;
        for (axis, &of) in read.axes.iter().enumerate() {
            let fact = read.layout.size_facts[axis];
            if !read.single[axis] && sizes[of].is_none_or(|(_, known)| known < fact) {
                sizes[of] = Some((extents[axis], fact));
            }
        }
        let it = walk::strided(b, template, read.input, read.layout, &extents, read.dtype)?;
        placed.push((it, read.axes));
        types.push(read.dtype);
    }
    let given = walk::extents(b, template, scalars, around.x)?;
    let sizes: Vec<(ExprId, i64)> = sizes.iter().zip(given).map(|(size, given)| size.unwrap_or((given, 1))).collect();
    let extents: Vec<ExprId> = sizes.iter().map(|size| size.0).collect();
    let along = |b: &mut KernelBuilder, (own, axes): (Placed, &[usize])| {
        let mut steps = vec![b.int(0); rank];
        axes.iter().zip(&own.steps).for_each(|(axis, step)| steps[*axis] = *step);
        Placed { buffer: own.buffer, extents: extents.clone(), steps }
    };
    let mut from = Vec::new();
    for own in placed {
        from.push(along(b, own));
    }
    let results = template.outputs.iter().map(|output| {
        let dtype = fusion.tensors[output.tensor].dtype;
        walk::dense(b, output, &extents, dtype, |axis| sizes[axis].1.min(MAX_FACT))
    });
    let results = results.collect();
    let beside = from.split_off(1);
    let first = from.pop().ok_or_else(|| Diagnostic::bug("a scan reads nothing"))?;
    Ok((Walk::along(b, template.axis, &extents, first, beside, results), types))
}
