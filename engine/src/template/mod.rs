//! Kernels that are written whole: of operations that no loop nest over their axes expresses.
//!
//! In: a fusion of one such operation, and what of its arguments decides about the kernel. Out: the kernel, in the
//! same kernel IR that lowering makes, and so under the same checks. A [`Template`] is found of a fusion once; sizes
//! choose a [`Shape`] of it, and fusions of equal operations with equal shapes and layouts share a kernel.
//!
//! Invariant: a kernel writes each element of its results, whatever its operands hold, and reads nothing else than them.

mod around;
mod groups;
mod put;
mod scan;
mod share;
mod sort;
mod told;
mod walk;

pub use around::is_scan;
pub use put::MOST_GROUPED;
pub use told::MOST_COUNTED;

use self::around::Around;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::Form;
use crate::fusion::{Bindings, Fusion, Op, OpId, OpKind, Operand, TensorId};
use crate::kernel::{self, Kernel};
use crate::options::DeviceDesc;
use crate::schedule::ArgClass;
use crate::util::Hash128;

/// An operation along the lines of a tensor, or on matrices, that has a kernel of its own.
#[derive(Clone, Debug)]
pub struct Template {
    fusion: Fusion,
    /// Its first operand that is a tensor with its lines.
    x: TensorId,
    /// The one along which lines lie, if they do.
    axis: usize,
    outputs: Vec<Output>,
    kind: Kind,
}

/// What is made of each line, or of matrices.
#[derive(Clone, Debug)]
enum Kind {
    /// Sums of products in groups.
    Groups(groups::Groups),
    /// It with rows added where an index says.
    Put(put::Put),
    /// Its prefixes, with what is computed around them.
    Scan(Box<Around>),
    /// Its elements in order, or the first of them.
    Sort(sort::Sort),
    /// What its places come to: who writes them last, or how many elements hold them.
    Places(told::Tells),
    /// Its positions by the places that it holds.
    Runs,
}

/// A result that leaves the kernel.
#[derive(Clone, Debug)]
struct Output {
    /// Which of the fusion's outputs it is.
    number: u32,
    name: String,
    /// As the operation gives it: its axes are the operand's, but for results of scans, which may be permuted.
    tensor: TensorId,
    /// Which of the operation's results it is.
    result: usize,
    /// Its axes as they lie in memory, outermost first.
    order: Vec<usize>,
}

/// How the threads of a kernel share the work, by sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Of sums of products in groups.
    Groups(groups::Shape),
    /// Of rows that are added.
    Put(put::Shape),
    /// Of prefixes.
    Scan(scan::Shape),
    /// Of elements in order.
    Sort(sort::Shape),
    /// Of last positions, or of counts.
    Told(told::Shape),
    /// Of positions by place.
    Runs(sort::places::Shape),
    /// Of few of them.
    FewRuns(sort::owned::Shape),
}

impl Template {
    /// Whether a fusion has a kernel that is written.
    pub fn of(fusion: &Fusion) -> Option<Self> {
        if fusion.ops.values().any(|op| op.kind.scanned().is_some()) {
            return Self::of_scan(fusion);
        }
        let mut ops = fusion.ops.values();
        let op = ops.next()?;
        let OpKind::Call(call) = &op.kind else { return None };
        let form = call.movement().form?;
        let first = match form {
            // Rows may be added to a number.
            Form::PutRuns => put::rows_of(op)?,
            Form::PutGroups => op.inputs[2],
            _ => *op.inputs.first()?,
        };
        let Operand::Tensor(x) = first else { return None };
        let kind = match form {
            Form::Sort | Form::Top => Kind::Sort(sort::Sort::of(call)),
            Form::GroupedSums => Kind::Groups(groups::Groups::of(fusion, op)?),
            Form::PutRuns => Kind::Put(put::Put::of(fusion, op)?),
            Form::PutGroups => Kind::Put(put::Put::of_groups(fusion, op)?),
            Form::Runs => Kind::Runs,
            Form::Last => Kind::Places(told::Tells::Position),
            Form::Counts => Kind::Places(told::Tells::One),
            _ => return None,
        };
        let is_given = fusion.inputs.contains(&Operand::Tensor(x));
        if !is_given || !fusion.updates.is_empty() {
            return None;
        }
        let outputs = (0..).zip(&fusion.outputs).map(|(number, output)| Output::of(fusion, op, number, *output));
        let outputs = outputs.collect::<Option<_>>()?;
        ops.all(|op| matches!(op.kind, OpKind::Permute { .. })).then_some(())?;
        Some(Self { fusion: fusion.clone(), x, axis: call.axis("dim"), outputs, kind })
    }

    /// The same of one that has a scan.
    fn of_scan(fusion: &Fusion) -> Option<Self> {
        let ops: Vec<OpId> = fusion.ops.ids().collect();
        let around = Around::of(fusion, &ops, &fusion.outputs).filter(|_| fusion.updates.is_empty())?;
        let outputs = (0..).zip(&around.results).map(|(number, (tensor, order))| {
            let name = fusion.tensors[*tensor].name.clone();
            Output { number, name, tensor: *tensor, result: 0, order: order.clone() }
        });
        let (outputs, x, axis) = (outputs.collect(), around.x, around.axis);
        Some(Self { fusion: fusion.clone(), x, axis, outputs, kind: Kind::Scan(Box::new(around)) })
    }

    /// The fusion.
    pub fn fusion(&self) -> &Fusion {
        &self.fusion
    }

    /// The name by which lists know such kernels.
    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Groups(_) => "groups",
            Kind::Put(_) => "put",
            Kind::Scan(_) => "scan",
            Kind::Sort(_) => "sort",
            Kind::Places(told::Tells::Position) => "last",
            Kind::Places(told::Tells::One) => "counts",
            Kind::Runs => "runs",
        }
    }

    /// The shape that sizes ask for, of tensors that lie like this.
    pub fn shape(&self, device: &DeviceDesc, bindings: &Bindings, class: &ArgClass) -> Result<Shape> {
        if class.has_empty {
            return Err(Diagnostic::unsupported(code::OP_NOT_LOWERED, "what has no element needs no kernel")
                .note("what has no element is filled"));
        }
        let sizes = bindings.sizes(&self.fusion, self.x);
        // One element without an axis is a line.
        let length_of = |sizes: &[i64]| sizes.get(self.axis).copied().unwrap_or(1);
        let length = length_of(&sizes);
        let rows = sizes.iter().product::<i64>() / length;
        match &self.kind {
            Kind::Groups(groups) => Ok(Shape::Groups(groups::shape(self, device, bindings, *groups))),
            Kind::Put(put) => Ok(Shape::Put(put::shape(self, device, bindings, *put, class)?)),
            Kind::Scan(around) => Ok(Shape::Scan(scan::shape(self, around, device, class, &sizes)?)),
            Kind::Sort(sort) => {
                let kept = self.outputs.iter().map(|output| length_of(&bindings.sizes(&self.fusion, output.tensor)));
                let dtype = self.fusion.tensors[self.x].dtype;
                let sizes = [rows, length, kept.max().unwrap_or(length)];
                Ok(Shape::Sort(sort::shape(device, *sort, dtype, sizes)?))
            }
            Kind::Places(tells) => {
                let places = self.outputs.iter().map(|output| length_of(&bindings.sizes(&self.fusion, output.tensor)));
                Ok(Shape::Told(told::shape(device, *tells, [rows, length, places.max().unwrap_or(0)])?))
            }
            Kind::Runs => {
                let op = self.fusion.ops.values().next();
                let places = op.map_or(0, |op| length_of(&bindings.sizes(&self.fusion, op.outputs[0])));
                let by_digits = sort::places::shape(device, [length, places])?;
                let few = sort::owned::shape(device, [length, places], by_digits.is_one_digit());
                Ok(few.map_or(Shape::Runs(by_digits), Shape::FewRuns))
            }
        }
    }

    /// The kernel of a shape.
    pub fn kernel(&self, shape: Shape, class: &ArgClass) -> Result<Kernel> {
        let mut kernel = match (&self.kind, shape) {
            (Kind::Groups(groups), Shape::Groups(shape)) => groups::kernel(self, *groups, shape, class)?,
            (Kind::Put(put), Shape::Put(shape)) => put::kernel(self, *put, shape, class)?,
            (Kind::Scan(around), Shape::Scan(shape)) => scan::kernel(self, around, shape, class)?,
            (Kind::Sort(sort), Shape::Sort(shape)) => sort::kernel(self, *sort, shape, class)?,
            (Kind::Places(tells), Shape::Told(shape)) => told::kernel(self, *tells, shape, class)?,
            (Kind::Runs, Shape::Runs(shape)) => sort::places::kernel(self, shape, class)?,
            (Kind::Runs, Shape::FewRuns(shape)) => sort::owned::kernel(self, shape, class)?,
            _ => return Err(Diagnostic::bug("a kernel is asked for in the shape of another one")),
        };
        kernel::add_reciprocals(&mut kernel);
        let hash = Hash128::of(kernel::print(&kernel).as_bytes());
        kernel.name = format!("{}_{}_{}", self.name(), kernel.name, hash.short());
        Ok(kernel)
    }

    /// The tensor that an input of the fusion is.
    fn tensor(&self, input: usize) -> Result<TensorId> {
        match self.fusion.inputs[input] {
            Operand::Tensor(tensor) => Ok(tensor),
            Operand::Scalar(_) => Err(Diagnostic::bug("a scalar is given as a tensor")),
        }
    }

    /// The sizes of an input, of which a scalar has none.
    fn sizes(&self, bindings: &Bindings, input: usize) -> Vec<i64> {
        match self.fusion.inputs[input] {
            Operand::Tensor(tensor) => bindings.sizes(&self.fusion, tensor),
            Operand::Scalar(_) => Vec::new(),
        }
    }

    /// Which of the fusion's inputs the operand is.
    fn input(&self) -> usize {
        self.fusion.inputs.iter().position(|input| *input == Operand::Tensor(self.x)).unwrap_or_default()
    }
}

impl Output {
    /// A result of an operation, or one whose axes are permuted.
    fn of(fusion: &Fusion, op: &Op, number: u32, output: TensorId) -> Option<Self> {
        let (mut tensor, mut order) = (output, Vec::new());
        if !op.outputs.contains(&tensor) {
            let permute = &fusion.ops[fusion.definition(tensor)?];
            let (OpKind::Permute { perm }, [Operand::Tensor(moved)]) = (&permute.kind, &permute.inputs[..]) else {
                return None;
            };
            (tensor, order) = (*moved, perm.iter().map(|axis| *axis as usize).collect());
        }
        let result = op.outputs.iter().position(|own| *own == tensor)?;
        if order.is_empty() {
            order = (0..fusion.tensors[tensor].axes.len()).collect();
        }
        Some(Self { number, name: fusion.tensors[tensor].name.clone(), tensor, result, order })
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Groups(shape) => shape.fmt(f),
            Self::Put(shape) => shape.fmt(f),
            Self::Scan(shape) => shape.fmt(f),
            Self::Sort(shape) => shape.fmt(f),
            Self::Told(shape) => shape.fmt(f),
            Self::Runs(shape) => shape.fmt(f),
            Self::FewRuns(shape) => shape.fmt(f),
        }
    }
}
