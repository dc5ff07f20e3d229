//! Where lines lie: the elements of an operand that differ along one axis only, and what is made of each in the results.

use super::{Output, Template};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{AxisKind, TensorId};
use crate::kernel::{BufId, ExprId, KernelBuilder, MAX_ACCESS_BYTES};
use crate::lower::{Scalars, hoist, identifier, input_name};
use crate::num::DType;
use crate::schedule::{ArgClass, TensorLayout};

/// The largest power of two of which something is known to be a multiple.
pub(super) const MAX_FACT: i64 = 16;
/// Elements that one access moves, at most.
pub(super) const MAX_LANES: i64 = 8;
/// Bytes to which memory of results is aligned.
const ALIGN: u32 = 16;

/// The memory of an operand and of results, and the numbers that say where their lines are.
pub(super) struct Walk {
    /// Of the first operand.
    pub(super) from: Lines,
    /// Of others that are read at the same places.
    pub(super) beside: Vec<Lines>,
    /// In the order of the fusion's outputs.
    pub(super) to: Vec<Lines>,
    /// How many lines there are.
    pub(super) rows: ExprId,
    /// The other axes, outermost first.
    others: Vec<Other>,
}

/// The lines of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub(super) buffer: BufId,
    /// The elements of a line.
    pub(super) length: ExprId,
    /// From each to the next, in elements.
    pub(super) step: ExprId,
}

/// An axis across lines.
struct Other {
    axis: usize,
    extent: ExprId,
    /// Of each operand, then of each result.
    steps: Vec<ExprId>,
}

/// How many elements of a type along some axes that lie as one, at most so many, one access may move that starts at a
/// multiple of it: they lie beside each other, and each such vector is aligned.
pub(super) fn widest(layout: &TensorLayout, axes: &[usize], dtype: DType, most: i64) -> i64 {
    let bytes = dtype.bytes() as i64;
    let innermost = layout.order.last().filter(|own| Some(&own.axis) == axes.last() && own.dense);
    let size = axes.iter().fold(1, |fact, axis| (fact * layout.size_facts[*axis]).min(MAX_FACT));
    let is_whole = |lanes: i64| {
        let mut others = layout.order.iter().filter(|own| !axes.contains(&own.axis));
        others.all(|own| own.stride_fact % lanes == 0)
            && size % lanes == 0
            && i64::from(layout.align) % (lanes * bytes) == 0
    };
    let fits = |lanes: &i64| *lanes <= most && lanes * bytes <= MAX_ACCESS_BYTES && is_whole(*lanes);
    innermost.and_then(|_| [MAX_LANES, 4, 2].into_iter().find(fits)).unwrap_or(1)
}

impl Walk {
    /// Declares parameters and memory.
    pub(super) fn new(b: &mut KernelBuilder, template: &Template, class: &ArgClass) -> Result<Self> {
        Self::read_as(b, template, class, |dtype| dtype)
    }

    /// The same, but elements of a type are read and written as ones of another type of as many bits.
    pub(super) fn read_as(
        b: &mut KernelBuilder,
        template: &Template,
        class: &ArgClass,
        memory: impl Fn(DType) -> DType,
    ) -> Result<Self> {
        let input = template.input();
        let layout = layout(class, input)?;
        let mut scalars = Scalars::new(&template.fusion, class);
        let sizes = extents(b, template, &mut scalars, template.x)?;
        let dtype = memory(template.fusion.tensors[template.x].dtype);
        let from = strided(b, template, input, layout, &sizes, dtype)?;
        let mut to = Vec::new();
        for output in &template.outputs {
            let extents = extents(b, template, &mut scalars, output.tensor)?;
            let dtype = memory(template.fusion.tensors[output.tensor].dtype);
            to.push(dense(b, output, &extents, dtype, |axis| match extents[axis] == sizes[axis] {
                true => layout.size_facts[axis],
                false => 1,
            }));
        }
        Ok(Self::along(b, template.axis, &sizes, from, Vec::new(), to))
    }

    /// Along an axis of tensors whose axes have these sizes, or are such along which they do not move.
    pub(super) fn along(
        b: &mut KernelBuilder,
        axis: usize,
        sizes: &[ExprId],
        from: Placed,
        beside: Vec<Placed>,
        to: Vec<Placed>,
    ) -> Self {
        let one = b.int(1);
        let (mut rows, mut others) = (one, Vec::new());
        for own in (0..sizes.len()).filter(|own| *own != axis && sizes[*own] != one) {
            rows = b.exprs().mul(rows, sizes[own]);
            let all = std::iter::once(&from).chain(&beside).chain(&to);
            others.push(Other { axis: own, extent: sizes[own], steps: all.map(|placed| placed.steps[own]).collect() });
        }
        let rows = hoist(b, "rows", rows);
        let lines = |placed: Placed| placed.lines(axis, one);
        let [beside, to] = [beside, to].map(|all| all.into_iter().map(lines).collect());
        Self { from: lines(from), beside, to, rows, others }
    }

    /// The place of a line along each axis but its own: those along which there is more than one, the last of which is the
    /// fastest.
    pub(super) fn places(&self, b: &mut KernelBuilder, row: ExprId) -> Vec<(usize, ExprId)> {
        let (mut rest, mut places) = (row, Vec::new());
        for (at, other) in self.others.iter().enumerate().rev() {
            // The outermost one is what is left.
            let place = if at == 0 { rest } else { b.exprs().rem(rest, other.extent) };
            rest = b.exprs().div(rest, other.extent);
            places.push((other.axis, place));
        }
        places
    }

    /// Where a line starts in each operand and in each result: with `c_a` its place along the other axes, of which the last
    /// is the fastest, `sum c_a step_a`.
    pub(super) fn starts(&self, b: &mut KernelBuilder, row: ExprId) -> Vec<ExprId> {
        let mut starts = vec![b.int(0); 1 + self.beside.len() + self.to.len()];
        for ((_, place), other) in self.places(b, row).into_iter().zip(self.others.iter().rev()) {
            for (start, step) in starts.iter_mut().zip(&other.steps) {
                let own = b.exprs().mul(place, *step);
                *start = b.exprs().add(*start, own);
            }
        }
        starts.into_iter().map(|start| b.let_("start", start)).collect()
    }
}

/// How an input lies.
pub(super) fn layout(class: &ArgClass, input: usize) -> Result<&TensorLayout> {
    class.layouts[input].as_ref().ok_or_else(|| Diagnostic::bug("a tensor is given as a scalar"))
}

/// A tensor in memory: the extent of each axis, and from each element to the next along it.
#[derive(Clone)]
pub(super) struct Placed {
    pub(super) buffer: BufId,
    pub(super) extents: Vec<ExprId>,
    pub(super) steps: Vec<ExprId>,
}

impl Placed {
    /// The lines along an axis; one element without an axis is one.
    fn lines(self, axis: usize, one: ExprId) -> Lines {
        let [length, step] = [&self.extents, &self.steps].map(|of| of.get(axis).copied().unwrap_or(one));
        Lines { buffer: self.buffer, length, step }
    }
}

/// The extents of a tensor, as indices.
pub(super) fn extents(
    b: &mut KernelBuilder,
    template: &Template,
    scalars: &mut Scalars<'_>,
    tensor: TensorId,
) -> Result<Vec<ExprId>> {
    let axes = template.fusion.tensors[tensor].axes.iter();
    axes.map(|axis| match axis.kind {
        AxisKind::Broadcast => Ok(b.int(1)),
        _ => scalars.index(b, axis.extent),
    })
    .collect()
}

/// An operand, which is an input that lies like this, as elements of a type.
pub(super) fn strided(
    b: &mut KernelBuilder,
    template: &Template,
    input: usize,
    layout: &TensorLayout,
    sizes: &[ExprId],
    dtype: DType,
) -> Result<Placed> {
    let input = u32::try_from(input).map_err(|_| Diagnostic::bug("an input without a number"))?;
    let name = input_name(&template.fusion, input);
    let one = b.int(1);
    let mut steps = vec![b.int(0); sizes.len()];
    // What an axis of one element steps over says nothing: it is what is inside of it.
    let mut inside: Option<[ExprId; 2]> = None;
    for own in layout.order.iter().rev() {
        let step = match inside {
            _ if !own.dense => b.stride(format!("{name}_s{}", own.axis), input, own.axis as u32),
            None => one,
            Some([step, size]) => {
                let product = b.exprs().mul(step, size);
                if product == step || product == size { product } else { hoist(b, "step", product) }
            }
        };
        b.assume_multiple_of(step, own.stride_fact);
        inside = Some([step, sizes[own.axis]]);
        if sizes[own.axis] != one {
            steps[own.axis] = step;
        }
    }
    let mut reach = one;
    for (&size, &step) in sizes.iter().zip(&steps) {
        let last = b.exprs().sub(size, one);
        let last = b.exprs().mul(last, step);
        reach = b.exprs().add(reach, last);
    }
    let buffer = b.input(name, input, dtype, reach, layout.align);
    Ok(Placed { buffer, extents: sizes.to_vec(), steps })
}

/// A result, whose axes lie in an order.
pub(super) fn dense(
    b: &mut KernelBuilder,
    output: &Output,
    extents: &[ExprId],
    dtype: DType,
    fact_of: impl Fn(usize) -> i64,
) -> Placed {
    let one = b.int(1);
    let (mut inner, mut fact) = (one, 1);
    let mut steps = vec![one; extents.len()];
    for &axis in output.order.iter().rev() {
        steps[axis] = inner;
        let product = b.exprs().mul(inner, extents[axis]);
        if product != inner {
            inner = hoist(b, "inner", product);
            fact = (fact * fact_of(axis)).min(MAX_FACT);
            if fact > 1 {
                b.assume_multiple_of(inner, fact);
            }
        }
    }
    let buffer = b.output(identifier(&output.name), output.number, dtype, inner, ALIGN);
    Placed { buffer, extents: extents.to_vec(), steps }
}
