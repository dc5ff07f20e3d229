//! Values over one grid of axes: each has the grid's rank and the whole of an
//! axis or one element of it, so that any two pair.

use crate::data::{Draw, element};
use engine::fusion::ops::{self, Args};
use engine::fusion::{AxisDecl, Fusion, FusionBuilder, Operand, Src};
use engine::num::{DType, ReduceOp, Value};
use engine::tensor::{Arg, HostTensor, TensorMeta};

/// A fusion on its way, with its arguments.
pub(super) struct Grid {
    pub(super) builder: FusionBuilder,
    pub(super) sizes: Vec<i64>,
    pub(super) values: Vec<Operand>,
    pub(super) scalars: Vec<Operand>,
    args: Vec<Arg>,
}

impl Grid {
    /// A grid of up to three axes.
    pub(super) fn new(draw: &mut Draw, name: &str) -> Self {
        const SIZES: [&[i64]; 3] = [&[1, 3, 8, 33, 64, 257, 1000], &[1, 2, 5, 8, 16, 33], &[2, 3, 4, 9]];
        let rank = [1, 1, 2, 2, 3][draw.below(5)];
        let sizes = (0..rank).map(|_| draw.choose(SIZES[rank - 1])).collect();
        let builder = FusionBuilder::new(name);
        Self { builder, sizes, values: Vec::new(), scalars: Vec::new(), args: Vec::new() }
    }

    pub(super) fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// An input tensor with the whole grid or some axes of it, in any layout.
    pub(super) fn input(&mut self, draw: &mut Draw, dtype: DType) -> Option<()> {
        let name = format!("x{}", self.args.len());
        let (mut dims, mut sizes) = (Vec::new(), Vec::new());
        for &size in &self.sizes {
            let thin = draw.once_in(5);
            dims.push(match draw.below(2) {
                _ if thin => AxisDecl::Broadcast,
                0 => AxisDecl::Const(size),
                _ => AxisDecl::Symbolic,
            });
            sizes.push(if thin { 1 } else { size });
        }
        let x = self.builder.tensor(&name, dtype, &dims).ok()?;
        self.values.push(x);
        self.args.push(Arg::Tensor(laid_out(draw, dtype, &sizes)?));
        Some(())
    }

    /// An input of its own sizes, in any layout, which is none of the grid's values.
    pub(super) fn table(&mut self, draw: &mut Draw, dtype: DType, sizes: &[i64]) -> Option<Operand> {
        let tensor = laid_out(draw, dtype, sizes)?;
        self.other(draw, tensor)
    }

    /// An input of integers from 0 up to but not including `extent`.
    pub(super) fn positions(&mut self, draw: &mut Draw, dtype: DType, sizes: &[i64], extent: i64) -> Option<Operand> {
        let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides: strides(draw, sizes) };
        let tensor = HostTensor::strided(meta, |_| Value::Int(draw.below(extent as usize) as i64)).ok()?;
        self.other(draw, tensor)
    }

    /// An input that is none of the grid's values.
    fn other(&mut self, draw: &mut Draw, tensor: HostTensor) -> Option<Operand> {
        let dims: Vec<AxisDecl> = tensor
            .sizes()
            .iter()
            .map(|&size| match draw.below(2) {
                _ if size == 1 => AxisDecl::Broadcast,
                0 => AxisDecl::Const(size),
                _ => AxisDecl::Symbolic,
            })
            .collect();
        let x = self.builder.tensor(&format!("x{}", self.args.len()), tensor.dtype(), &dims).ok()?;
        self.args.push(Arg::Tensor(tensor));
        Some(x)
    }

    /// An input scalar.
    pub(super) fn scalar(&mut self, draw: &mut Draw, dtype: DType) -> Option<()> {
        let name = format!("a{}", self.args.len());
        let scalar = self.builder.scalar(&name, dtype).ok()?;
        self.scalars.push(scalar);
        self.args.push(Arg::Scalar(element(draw, dtype)));
        Some(())
    }

    /// `start + step * i` along one axis.
    pub(super) fn iota(&mut self, draw: &mut Draw, dtype: DType) -> Option<()> {
        let axis = draw.below(self.rank());
        let (start, step) = (self.number(draw, dtype), self.number(draw, dtype));
        let args = Args::new(ops::find("iota")?).value("length", Value::Int(self.sizes[axis]));
        let args = args.value("start", start).value("step", step).with("dtype", ops::OpArg::DType(dtype));
        let line = *self.builder.apply(&args).ok()?.first()?;
        let flags: Vec<bool> = (0..self.rank()).map(|other| other != axis).collect();
        let made = if self.rank() == 1 { Ok(line) } else { self.builder.broadcast(line, &flags) };
        self.values.push(made.ok()?);
        Some(())
    }

    /// Positions along an axis of the whole grid.
    pub(super) fn index(&mut self, draw: &mut Draw) -> Option<()> {
        let extents: Vec<Src> = self.sizes.iter().map(|size| Src::from(*size)).collect();
        let made = self.builder.index(&extents, draw.below(self.rank()) as i64).ok()?;
        self.values.push(made);
        Some(())
    }

    /// A number or a scalar.
    pub(super) fn number(&mut self, draw: &mut Draw, dtype: DType) -> Src {
        if !self.scalars.is_empty() && draw.once_in(3) {
            return draw.choose(&self.scalars).into();
        }
        element(draw, dtype).into()
    }

    /// A value, mostly a recent one.
    pub(super) fn value(&self, draw: &mut Draw) -> Operand {
        let count = self.values.len();
        let back = if draw.once_in(2) { draw.below(count.min(3)) } else { draw.below(count) };
        self.values[count - 1 - back]
    }

    /// A second operand: a value or a number.
    pub(super) fn partner(&mut self, draw: &mut Draw, dtype: DType) -> Src {
        if draw.once_in(3) { self.number(draw, dtype) } else { self.value(draw).into() }
    }

    /// A reduction that keeps its axes.
    pub(super) fn reduce(&mut self, draw: &mut Draw, ops: &[ReduceOp]) -> Option<Operand> {
        let x = self.value(draw);
        let chosen = 1 + draw.below((1 << self.rank()) - 1);
        let axes: Vec<i64> = (0..self.rank() as i64).filter(|axis| chosen >> axis & 1 == 1).collect();
        self.builder.reduce(draw.choose(ops), x, &axes, true, None).ok()
    }

    /// The fusion that returns the last value and up to two others.
    pub(super) fn finish(mut self, draw: &mut Draw) -> Option<(Fusion, Vec<Arg>)> {
        let mut outputs = vec![*self.values.last()?];
        for _ in 0..draw.below(3) {
            outputs.push(self.value(draw));
        }
        outputs.dedup();
        for output in outputs {
            self.builder.output(output).ok()?;
        }
        Some((self.builder.finish().ok()?, self.args))
    }
}

/// Strides for sizes: mostly dense, at times with axes exchanged, gaps between
/// rows, or an expanded axis.
pub(super) fn strides(draw: &mut Draw, sizes: &[i64]) -> Vec<i64> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    if order.len() > 1 && draw.once_in(4) {
        let (a, b) = (draw.below(order.len()), draw.below(order.len()));
        order.swap(a, b);
    }
    let gaps = draw.once_in(4);
    let (mut strides, mut next) = (vec![1; sizes.len()], 1);
    for axis in order.into_iter().rev() {
        if gaps && draw.once_in(6) {
            strides[axis] = 0;
            continue;
        }
        next += if gaps { draw.below(5) as i64 } else { 0 };
        strides[axis] = next;
        next *= sizes[axis].max(1);
    }
    strides
}

/// Random elements in some layout, at times from an element that is not aligned.
fn laid_out(draw: &mut Draw, dtype: DType, sizes: &[i64]) -> Option<HostTensor> {
    let meta = TensorMeta { dtype, sizes: sizes.to_vec(), strides: strides(draw, sizes) };
    let mut tensor = HostTensor::strided(meta, |_| element(draw, dtype)).ok()?;
    let offset = if draw.once_in(5) { draw.below(9) } else { 0 };
    tensor.data.own().splice(0..0, vec![0xff; offset * dtype.bytes()]);
    tensor.offset = offset;
    Some(tensor)
}
