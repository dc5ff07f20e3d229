//! From an operation and layouts to a product.

use super::activation::Activation;
use super::matrix::Matrix;
use crate::fusion::ops::Form;
use crate::fusion::{Op, OpKind};
use crate::num::DType;
use crate::tensor::TensorMeta;
use smallvec::SmallVec;

/// Alignment in bytes beyond which no library asks.
const MOST_ALIGN: u32 = 16;
/// Libraries count rows, columns and matrices of a stack up to here.
const MOST: i64 = i32::MAX as i64;

/// Stacks of matrices multiplied, and how all lie.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Product {
    /// The type of the operands.
    pub dtype: DType,
    /// The type of the result: theirs, or `f32` of those of 16 bits.
    pub result: DType,
    /// Rows of `a` and of the result.
    pub m: i64,
    /// Columns of `b` and of the result.
    pub n: i64,
    /// Terms of each sum.
    pub k: i64,
    /// Matrices in a stack.
    pub stack: i64,
    /// The left operand.
    pub a: Matrix,
    /// The right operand.
    pub b: Matrix,
    /// The result, whose elements of a row lie side by side.
    pub d: Matrix,
    /// What is added to it before it is rounded.
    pub bias: Bias,
    /// What is computed of each sum, the bias included, before it is rounded.
    pub activation: Activation,
    /// Axes of stacks of which no one step leads from each matrix to the next, outermost first.
    pub outer: SmallVec<[StackAxis; 2]>,
}

/// What is added to a product before it is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bias {
    /// Nothing.
    None,
    /// One vector of `n` elements, to each row.
    Row,
    /// A matrix to each, which lie as those of the result do: libraries add vectors to few types.
    Full,
}

/// An axis of stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackAxis {
    /// How many matrices there are along it.
    pub size: i64,
    /// From one to the next in `a`, `b` and the result, in elements.
    pub steps: [i64; 3],
}

/// A product, once some operands are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundProduct {
    /// The product of the operands, or of row-major copies of them.
    pub product: Product,
    /// For each operand, whether it has to be copied: no stack of matrices lies as it does.
    pub copied: SmallVec<[bool; 3]>,
    /// The bias, its elements repeated as the product takes them: a vector, or a matrix of all rows.
    pub bias: Option<TensorMeta>,
}

/// The product that an operation is, of operands that lie like this, element 0 of each aligned so in
/// bytes, and an activation of it; its result is dense and row-major. None where it is another operation, or nothing that a
/// library does.
pub fn find_product(op: &Op, activation: Activation, operands: &[TensorMeta], aligns: &[u32]) -> Option<FoundProduct> {
    let OpKind::Call(call) = &op.kind else { return None };
    let is_linear = match call.movement().form {
        Some(Form::Matmul) => false,
        Some(Form::Linear) => true,
        _ => return None,
    };
    let (a, b, bias) = match operands {
        [a, b] => (a, b, None),
        [a, b, bias] if is_linear => (a, b, Some(bias)),
        _ => return None,
    };
    if !is_multiplied(a.dtype) || operands.iter().any(|meta| meta.sizes.contains(&0)) {
        return None;
    }
    let align = |operand: usize| aligns.get(operand).copied().unwrap_or(1).min(MOST_ALIGN);
    let (a, a_copied) = Operand::placed(Operand::left, a, align(0))?;
    let (b, b_copied) = Operand::placed(|meta| Operand::right(meta, is_linear), b, align(1))?;
    let mut copied = SmallVec::from_slice(&[a_copied, b_copied]);
    let added = bias.map_or(Bias::None, |bias| Bias::of(bias.dtype));
    let result = call.dtype("dtype").unwrap_or(operands[0].dtype);
    let product = Product { activation, bias: added, ..Product::new([operands[0].dtype, result], &a, &b) };
    let numbers = [product.m, product.n, product.k, product.stack, product.a.pitch, product.b.pitch];
    if numbers.iter().any(|number| *number > MOST) {
        return None;
    }
    let bias = match bias {
        Some(bias) => Some(product.repeated(bias)?),
        None => None,
    };
    // Libraries want it aligned, whatever they are told.
    copied.extend(bias.as_ref().map(|bias| !bias.is_contiguous() || align(2) < MOST_ALIGN));
    Some(FoundProduct { product, copied, bias })
}

/// Types of which libraries multiply matrices as the language means it.
fn is_multiplied(dtype: DType) -> bool {
    use DType::{BF16, C64, C128, F16, F32, F64};
    matches!(dtype, F16 | BF16 | F32 | F64 | C64 | C128)
}

/// A stack of matrices: its axes, and what lies in the last two.
struct Operand {
    /// Size and stride of each axis before the matrix.
    stack: Vec<(i64, i64)>,
    rows: i64,
    columns: i64,
    matrix: Matrix,
}

/// Sizes and strides of a matrix, rows first, and the axes of the stack before it.
type Split = ([i64; 2], [i64; 2], Vec<(i64, i64)>);

impl Operand {
    /// An operand as it lies, or as a row-major copy would; whether it is the copy.
    fn placed(split: impl Fn(&TensorMeta) -> Option<Split>, meta: &TensorMeta, align: u32) -> Option<(Self, bool)> {
        let made = |meta: &TensorMeta, align: u32| {
            let ([rows, columns], strides, stack) = split(meta)?;
            let matrix = Matrix::of([rows, columns], strides, align)?;
            Some(Self { stack, rows, columns, matrix })
        };
        match made(meta, align) {
            Some(operand) => Some((operand, false)),
            None => Some((made(&TensorMeta::contiguous(meta.dtype, &meta.sizes), MOST_ALIGN)?, true)),
        }
    }

    /// The left operand: a vector is a row.
    fn left(meta: &TensorMeta) -> Option<Split> {
        let mut axes: Vec<(i64, i64)> = meta.sizes.iter().copied().zip(meta.strides.iter().copied()).collect();
        let columns = axes.pop()?;
        let rows = axes.pop().unwrap_or((1, 0));
        Some(([rows.0, columns.0], [rows.1, columns.1], axes))
    }

    /// The right operand: a vector is a column, and a weight has the axes of its matrix the other way round.
    fn right(meta: &TensorMeta, is_weight: bool) -> Option<Split> {
        let mut axes: Vec<(i64, i64)> = meta.sizes.iter().copied().zip(meta.strides.iter().copied()).collect();
        let last = axes.pop()?;
        let (rows, columns) = match axes.pop() {
            None => (last, (1, 0)),
            Some(other) if is_weight => (last, other),
            Some(other) => (other, last),
        };
        Some(([rows.0, columns.0], [rows.1, columns.1], axes))
    }

    /// How far it is along axis `axis` of a stack of so many axes, aligned at the right.
    fn step(&self, axis: usize, rank: usize) -> i64 {
        let own = (axis + self.stack.len()).checked_sub(rank).map(|own| self.stack[own]);
        own.map_or(0, |(size, stride)| if size == 1 { 0 } else { stride })
    }
    fn size(&self, axis: usize, rank: usize) -> i64 {
        (axis + self.stack.len()).checked_sub(rank).map_or(1, |own| self.stack[own].0)
    }
}

impl Bias {
    /// How libraries add a bias of a type: as vectors where numbers are real, and of 32 bits at most.
    fn of(dtype: DType) -> Self {
        match dtype {
            DType::F16 | DType::BF16 | DType::F32 => Self::Row,
            _ => Self::Full,
        }
    }
}

impl Product {
    /// One without a bias, of operands and a result of these types.
    fn new([dtype, result]: [DType; 2], a: &Operand, b: &Operand) -> Self {
        let d = Matrix::of_rows(b.columns, MOST_ALIGN);
        let (outer, stack) = (SmallVec::new(), 1);
        let (m, n, k) = (a.rows, b.columns, a.columns);
        let (bias, activation) = (Bias::None, Activation::None);
        let mut this = Self { dtype, result, m, n, k, stack, a: a.matrix, b: b.matrix, d, bias, activation, outer };
        let mut axes = stack_axes(a, b);
        this.take_rows(&mut axes);
        this.take_stack(merged(axes));
        this
    }

    /// Takes axes of the stack for rows, where all matrices on the right are the same.
    fn take_rows(&mut self, axes: &mut Vec<StackAxis>) {
        while let Some(&StackAxis { size, steps: [left, 0, _] }) = axes.last() {
            let is_next = if self.m == 1 { left >= self.k } else { left == self.m * self.a.pitch };
            if !self.a.is_by_rows() || !is_next || self.m.saturating_mul(size) > MOST {
                return;
            }
            if self.m == 1 {
                self.a = Matrix { pitch: left, ..Matrix::of_rows(self.k, self.a.align) };
            }
            self.m *= size;
            axes.pop();
        }
    }

    /// Takes the longest axis for the stack of one call, and repeats the call along the others.
    fn take_stack(&mut self, mut axes: SmallVec<[StackAxis; 2]>) {
        let Some(longest) = (0..axes.len()).max_by_key(|&axis| axes[axis].size) else { return };
        let bytes = [self.dtype, self.dtype, self.result].map(|dtype| dtype.bytes() as i64);
        // What is said of the first matrix holds for each.
        for StackAxis { steps, .. } in &axes {
            for ((matrix, step), bytes) in [&mut self.a, &mut self.b, &mut self.d].into_iter().zip(steps).zip(bytes) {
                matrix.align = matrix.align.min(alignment_of(step * bytes));
            }
        }
        let StackAxis { size, steps: [a, b, d] } = axes.remove(longest);
        (self.stack, self.a.step, self.b.step, self.d.step) = (size, a, b, d);
        self.outer = axes;
    }

    /// A bias as it is taken, seen in the memory of one of `n` elements, or of one for all columns.
    fn repeated(&self, bias: &TensorMeta) -> Option<TensorMeta> {
        let along = match (&bias.sizes[..], &bias.strides[..]) {
            ([] | [1], _) => 0,
            ([size], &[stride]) if *size == self.n => stride,
            _ => return None,
        };
        let rows = self.outer.iter().fold(self.m * self.stack, |rows, axis| rows * axis.size);
        let (sizes, strides) = match self.bias {
            Bias::None => return None,
            Bias::Row => (vec![self.n], vec![along]),
            Bias::Full => (vec![rows, self.n], vec![0, along]),
        };
        Some(TensorMeta { dtype: bias.dtype, sizes, strides })
    }

    /// Where each call starts in `a`, `b` and the result, in elements.
    pub fn starts(&self) -> Vec<[i64; 3]> {
        let mut starts = vec![[0; 3]];
        for axis in &self.outer {
            let along = |start: [i64; 3]| {
                (0..axis.size).map(move |i| std::array::from_fn(|side| start[side] + i * axis.steps[side]))
            };
            starts = starts.into_iter().flat_map(along).collect();
        }
        starts
    }
}

/// The largest power of two that divides a distance, up to the most that is asked for.
fn alignment_of(bytes: i64) -> u32 {
    1 << bytes.trailing_zeros().min(MOST_ALIGN.trailing_zeros())
}

/// The axes along which there is more than one matrix, outermost first. The result is dense.
fn stack_axes(a: &Operand, b: &Operand) -> Vec<StackAxis> {
    let rank = a.stack.len().max(b.stack.len());
    let mut axes = Vec::with_capacity(rank);
    let mut distance = a.rows * b.columns;
    for axis in (0..rank).rev() {
        let size = a.size(axis, rank).max(b.size(axis, rank));
        if size > 1 {
            axes.push(StackAxis { size, steps: [a.step(axis, rank), b.step(axis, rank), distance] });
        }
        distance *= size;
    }
    axes.reverse();
    axes
}

/// Those that are one axis in both operands as one: the result is dense.
fn merged(axes: Vec<StackAxis>) -> SmallVec<[StackAxis; 2]> {
    let mut merged: SmallVec<[StackAxis; 2]> = SmallVec::new();
    for axis in axes {
        match merged.last_mut() {
            Some(outer) if (0..3).all(|side| outer.steps[side] == axis.size * axis.steps[side]) => {
                *outer = StackAxis { size: outer.size * axis.size, ..axis };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

impl std::fmt::Display for FoundProduct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.product)?;
        for (name, _) in ["a", "b", "bias"].iter().zip(&self.copied).filter(|(_, copied)| **copied) {
            write!(f, ", {name} copied")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { dtype, result, m, n, k, stack, .. } = self;
        write!(f, "{m}x{k} by {} times {k}x{n} by {} of {dtype}", self.a.order, self.b.order)?;
        if result != dtype {
            write!(f, " as {result}")?;
        }
        if *stack > 1 {
            write!(f, ", {stack} of them")?;
        }
        let calls: i64 = self.outer.iter().map(|axis| axis.size).product();
        if calls > 1 {
            write!(f, ", {calls} times")?;
        }
        f.write_str(if self.bias == Bias::None { "" } else { ", and a bias" })?;
        match self.activation {
            Activation::None => Ok(()),
            activation => write!(f, ", then {activation}"),
        }
    }
}
