//! Draws of the primitives of the table of operations, with arguments that fit
//! the tensors at hand.

use super::Drawer;
use engine::diag::{Diagnostic, Result};
use engine::fusion::ops::{Args, OpArg, find};
use engine::fusion::{AxisKind, Operand, Src, TensorId};
use engine::num::{BinaryOp, DType, Value};

/// The families that are drawn.
const FAMILIES: usize = 12;

impl Drawer<'_> {
    /// A primitive of some family.
    pub(super) fn primitive(&mut self) -> Result<Vec<Operand>> {
        let x = self.tensor();
        match self.pick(FAMILIES) {
            0 => self.view_of(x),
            1 => self.reshaped(x),
            2 => self.sliced(x),
            3 => self.padded_or_joined(x),
            4 => self.triangle_or_copies(x),
            5 | 6 => self.indexed(x),
            7 => self.scanned(x),
            8 => self.sorted(x),
            9 => self.made(x),
            10 => self.random_numbers(x),
            _ => self.product(x),
        }
    }

    fn row(&self, name: &str) -> Result<Args> {
        find(name).map(Args::new).ok_or_else(|| Diagnostic::bug(format!("no row `{name}`")))
    }

    fn axis(&mut self, x: TensorId) -> Result<(i64, i64)> {
        let shape = self.shape(x);
        if shape.is_empty() {
            return Err(Diagnostic::bug("no axis to draw"));
        }
        let axis = self.pick(shape.len());
        Ok((axis as i64, shape[axis].1))
    }

    /// The extents of a tensor, as values of the fusion or as numbers.
    fn extents(&mut self, x: TensorId) -> Result<Vec<Src>> {
        let sizes: Vec<i64> = self.shape(x).iter().map(|axis| axis.1).collect();
        let symbolic = self.flip();
        let mut extents = Vec::with_capacity(sizes.len());
        for (axis, size) in sizes.into_iter().enumerate() {
            extents.push(if symbolic { self.builder.size(x, axis as i64)?.into() } else { size.into() });
        }
        Ok(extents)
    }

    fn view_of(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let rank = self.shape(x).len();
        if self.flip() {
            let mut order: Vec<i64> = (0..rank as i64).collect();
            order.rotate_left(self.pick(rank.max(1)));
            let args = self.row("stride_order")?.value("x", x).with("order", OpArg::Ints(order));
            return self.builder.apply(&args);
        }
        let mut shape = self.extents(x)?;
        let thin: Vec<usize> = self
            .shape(x)
            .iter()
            .enumerate()
            .filter(|(_, axis)| axis.0 == AxisKind::Broadcast)
            .map(|(i, _)| i)
            .collect();
        for axis in thin {
            shape[axis] = (self.pick(4) as i64 + 1).into();
        }
        let args = self.row("expand")?.value("x", x).with("shape", OpArg::Values(shape));
        self.builder.apply(&args)
    }

    /// Two neighbouring axes as one, one as two, or all as one.
    fn reshaped(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let mut sizes: Vec<i64> = self.shape(x).iter().map(|axis| axis.1).collect();
        match self.pick(3) {
            0 if sizes.len() > 1 => {
                let at = self.pick(sizes.len() - 1);
                sizes[at] *= sizes[at + 1];
                sizes.remove(at + 1);
            }
            1 if !sizes.is_empty() && sizes.len() < self.limits.rank => {
                let at = self.pick(sizes.len());
                let factor = [2, 3, 5].into_iter().find(|factor| sizes[at] % factor == 0).unwrap_or(1);
                sizes[at] /= factor;
                sizes.insert(at + 1, factor);
            }
            _ => sizes = vec![sizes.iter().product()],
        }
        let shape = sizes.into_iter().map(Src::from).collect();
        let args = self.row("reshape")?.value("x", x).with("shape", OpArg::Values(shape));
        self.builder.apply(&args)
    }

    fn sliced(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let sizes: Vec<i64> = self.shape(x).iter().map(|axis| axis.1).collect();
        let (mut starts, mut ends): (Vec<Src>, Vec<Src>) = (Vec::new(), Vec::new());
        for (axis, &size) in sizes.iter().enumerate() {
            let start = self.pick(4) as i64 - 1;
            starts.push(start.into());
            let end = if self.flip() { self.builder.size(x, axis as i64)?.into() } else { (size - 1).max(1).into() };
            ends.push(end);
        }
        let args = self.row("slice")?.value("x", x);
        self.builder.apply(&args.with("starts", OpArg::Values(starts)).with("ends", OpArg::Values(ends)))
    }

    fn padded_or_joined(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let rank = self.shape(x).len();
        if self.flip() {
            let widths = (0..2 * rank).map(|_| Src::from(self.pick(3) as i64)).collect();
            let args = self.row("pad")?.value("x", x).with("widths", OpArg::Values(widths));
            return self.builder.apply(&args);
        }
        let (dim, _) = self.axis(x)?;
        let args = self.row("cat")?.with("tensors", OpArg::Values(vec![x.into(); 1 + self.pick(3)]));
        self.builder.apply(&args.with("dim", OpArg::Int(dim)))
    }

    fn triangle_or_copies(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let rank = self.shape(x).len();
        match self.pick(3) {
            0 => {
                let counts = (0..rank).map(|_| 1 + self.pick(2) as i64).collect();
                let args = self.row("repeat")?.value("x", x).with("counts", OpArg::Ints(counts));
                self.builder.apply(&args)
            }
            1 => {
                let args = self.row("segment_set")?.value("x", x);
                self.builder.apply(&args)
            }
            _ => {
                let diagonal = self.pick(5) as i64 - 2;
                let name = if self.flip() { "triu" } else { "tril" };
                let args = self.row(name)?.value("x", x).with("diagonal", OpArg::Int(diagonal));
                self.builder.apply(&args)
            }
        }
    }

    /// Positions below `size`, a tensor of the given shape.
    fn positions(&mut self, like: &[i64], size: i64) -> Result<Operand> {
        let extents: Vec<Src> = like.iter().map(|&n| n.into()).collect();
        let axis = self.pick(like.len() + 1);
        if size > 1 && axis < like.len() {
            let places = self.builder.index(&extents, axis as i64)?;
            return self.builder.binary(BinaryOp::Remainder, places, size);
        }
        let position = if size > 1 { self.pick(2) as i64 } else { 0 };
        self.builder.full(&extents, position, DType::I64)
    }

    fn indexed(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let (dim, size) = self.axis(x)?;
        let sizes: Vec<i64> = self.shape(x).iter().map(|axis| axis.1).collect();
        let kind = self.pick(6);
        let mut like = sizes.clone();
        if size == 0 {
            // No position is below 0: only tensors of none.
            like[dim as usize] = 0;
        }
        let args = match kind {
            0 if size > 0 => self.row("select")?.value("x", x).value("index", 0).with("dim", OpArg::Int(dim)),
            0 | 1 => {
                let count = if size == 0 { 0 } else { 1 + self.pick(3) as i64 };
                let index = self.positions(&[count], size)?;
                self.row("index_select")?.value("x", x).value("index", index).with("dim", OpArg::Int(dim))
            }
            2 | 3 => {
                let index = self.positions(&like, size)?;
                let name = if kind == 2 { "gather" } else { "take_along_axis" };
                self.row(name)?.value("x", x).value("index", index).with("dim", OpArg::Int(dim))
            }
            4 => {
                let index = self.positions(&like, size)?;
                self.row("scatter")?.value("x", x).value("index", index).value("src", x).with("dim", OpArg::Int(dim))
            }
            _ => {
                let index = self.positions(&sizes[..1], sizes[0])?;
                self.row("index_put_accumulate")?.value("acc", x).value("index", index).value("value", x)
            }
        };
        self.builder.apply(&args)
    }

    fn scanned(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let (dim, _) = self.axis(x)?;
        let name = self.choose(&["cumsum", "cumprod", "cummin", "cummax"], "cumsum");
        let is_reversed = self.flip();
        let args = self.row(name)?.value("x", x).with("dim", OpArg::Int(dim));
        let args = args.with("reverse", OpArg::Bool(is_reversed));
        self.builder.apply(&args)
    }

    fn sorted(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let (dim, size) = self.axis(x)?;
        if self.flip() {
            let args = self.row("argsort")?.value("x", x).with("dim", OpArg::Int(dim));
            let descending = self.flip();
            return self.builder.apply(&args.with("descending", OpArg::Bool(descending)));
        }
        let k = self.pick(size.clamp(0, 4) as usize + 1) as i64;
        let largest = self.flip();
        let args = self.row("topk")?.value("x", x).value("k", k.min(size)).with("dim", OpArg::Int(dim));
        self.builder.apply(&args.with("largest", OpArg::Bool(largest)))
    }

    fn made(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let shape = self.extents(x)?;
        match self.pick(3) {
            0 if !shape.is_empty() => {
                let axis = self.pick(shape.len()) as i64;
                Ok(vec![self.builder.index(&shape, axis)?])
            }
            1 => {
                let n = Src::from(self.pick(6) as i64 + 1);
                let args = self.row("eye")?.value("n", n);
                self.builder.apply(&args.with("dtype", OpArg::DType(DType::F32)))
            }
            _ => {
                let length = shape.first().copied().unwrap_or(4.into());
                let args = self.row("iota")?.value("length", length).value("start", 2).value("step", 3);
                self.builder.apply(&args)
            }
        }
    }

    fn random_numbers(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let shape = self.extents(x)?;
        let dtype = self.choose(&[DType::F32, DType::F64, DType::BF16], DType::F32);
        let seed = Src::Number(Value::Int(i64::from(self.pick(100) as i32)));
        let args = match self.pick(4) {
            0 => self.row("uniform")?.value("minval", -1.0).value("maxval", 2.0).with("shape", OpArg::Values(shape)),
            1 => self.row("normal")?.value("mean", 0.0).value("std", 2.0).with("shape", OpArg::Values(shape)),
            2 => self.row("rand_like")?.value("x", x),
            _ => self.row("randn_like")?.value("x", x),
        };
        let args = args.value("rng_seed", seed).value("rng_offset", 4);
        let args = if args.row().position("dtype").is_some() { args.with("dtype", OpArg::DType(dtype)) } else { args };
        self.builder.apply(&args)
    }

    /// Products with matrices of a drawn tensor's own sizes.
    fn product(&mut self, x: TensorId) -> Result<Vec<Operand>> {
        let sizes: Vec<i64> = self.shape(x).iter().map(|axis| axis.1).collect();
        let Some(&k) = sizes.last() else { return Err(Diagnostic::bug("no axis to sum over")) };
        let dtype = self.builder.dtype(Operand::Tensor(x));
        let n = 1 + self.pick(4) as i64;
        let weights = |rows: i64, columns: i64| [Src::from(rows), Src::from(columns)];
        if self.flip() {
            let w = self.builder.full(&weights(k, n), 1, dtype)?;
            let args = self.row("matmul")?.value("a", x).value("b", w);
            return self.builder.apply(&args);
        }
        let w = self.builder.full(&weights(n, k), 1, dtype)?;
        let args = self.row("linear")?.value("x", x).value("weight", w);
        self.builder.apply(&args)
    }
}
