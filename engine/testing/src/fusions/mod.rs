//! Random valid fusions with matching sizes, drawn from bytes.
//!
//! The same bytes give the same fusion, fewer bytes a smaller one, so byte
//! fuzzers and property tests shrink well. Draws that the builder refuses are
//! counted: a generator that is mostly refused tests nothing.

mod primitives;

use crate::Draw;
use engine::diag::Result;
use engine::fusion::{AxisDecl, AxisKind, Fusion, FusionBuilder, Operand, ScalarDef, ScalarId, Src, TensorId};
use engine::num::{BinaryOp, DType, DTypeClass, ReduceOp, TernaryOp, UnaryOp, Value, eval};
use engine::tensor::{Arg, HostTensor};

/// What may be drawn.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The most operations, before composites are expanded.
    pub ops: usize,
    /// The most input tensors.
    pub inputs: usize,
    /// The highest rank.
    pub rank: usize,
    /// The sizes of iteration axes.
    pub sizes: Vec<i64>,
    /// Whether inputs are declared with constant extents. Without them, other
    /// `sizes`, all different as well, give the same fusion with other arguments.
    pub constants: bool,
    /// The types of inputs and casts.
    pub dtypes: Vec<DType>,
    /// Only operations whose results do not depend on the last bit of their
    /// operands: for comparing implementations with one another.
    pub tame: bool,
    /// Also primitives that no scheduler takes yet.
    pub primitives: bool,
}

impl Limits {
    /// Every type and every operation of the language.
    pub fn whole_language() -> Self {
        let dtypes = DType::ALL.iter().copied().filter(|dtype| *dtype != DType::F4E2M1FNX2).collect();
        Self { dtypes, primitives: true, ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ops: 12,
            inputs: 4,
            rank: 4,
            sizes: vec![0, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 64],
            constants: true,
            dtypes: DType::FUSION.to_vec(),
            tame: false,
            primitives: false,
        }
    }
}

/// A drawn fusion.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The fusion.
    pub fusion: Fusion,
    /// For each input the sizes of the tensor, or `None` for a scalar. They
    /// agree wherever an operation pairs axes.
    pub sizes: Vec<Option<Vec<i64>>>,
    /// Draws that became part of the fusion.
    pub accepted: u32,
    /// Draws that the builder refused.
    pub rejected: u32,
}

/// Draws a fusion.
pub fn generate(bytes: &[u8], limits: &Limits) -> Generated {
    let mut drawer = Drawer {
        bytes: bytes.iter(),
        limits,
        builder: FusionBuilder::new("random"),
        tensors: Vec::new(),
        scalars: Vec::new(),
        sizes: Vec::new(),
        accepted: 0,
        rejected: 0,
    };
    drawer.inputs();
    let count = drawer.pick(limits.ops.max(1)) + 1;
    for _ in 0..count {
        match drawer.op() {
            Ok(results) => {
                drawer.accepted += 1;
                drawer.keep(results);
            }
            Err(_) => drawer.rejected += 1,
        }
    }
    drawer.finish()
}

/// Unary operations that are exact, or continuous and well conditioned.
const TAME_UNARY: &[UnaryOp] = &[UnaryOp::Abs, UnaryOp::Neg, UnaryOp::Relu, UnaryOp::Sigmoid, UnaryOp::Tanh];
/// The same of binary ones.
const TAME_BINARY: &[BinaryOp] = &[BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Maximum, BinaryOp::Minimum];

struct Drawer<'a> {
    bytes: std::slice::Iter<'a, u8>,
    limits: &'a Limits,
    builder: FusionBuilder,
    tensors: Vec<TensorId>,
    scalars: Vec<Operand>,
    sizes: Vec<Option<Vec<i64>>>,
    accepted: u32,
    rejected: u32,
}

impl Drawer<'_> {
    /// A number below `n`; 0 when the bytes are used up.
    fn pick(&mut self, n: usize) -> usize {
        let byte = self.bytes.next().copied().unwrap_or(0);
        usize::from(byte) % n.max(1)
    }

    fn choose<T: Copy>(&mut self, items: &[T], fallback: T) -> T {
        let index = self.pick(items.len());
        items.get(index).copied().unwrap_or(fallback)
    }

    fn flip(&mut self) -> bool {
        self.pick(2) == 1
    }

    fn dtype(&mut self) -> DType {
        let dtypes = self.limits.dtypes.clone();
        self.choose(&dtypes, DType::F32)
    }

    /// A type that a tensor may be converted to: a float's last bit decides what integer it becomes.
    fn conversion(&mut self, x: TensorId) -> DType {
        let stays_float = self.limits.tame && self.builder.dtype(Operand::Tensor(x)).is_float();
        let all = self.limits.dtypes.iter().copied();
        let dtypes: Vec<DType> = all.filter(|dtype| !stays_float || dtype.is_float()).collect();
        self.choose(&dtypes, DType::F32)
    }

    /// Inputs take their axes from one list of sizes, so that many of them pair.
    fn inputs(&mut self) {
        let rank = self.pick(self.limits.rank + 1);
        let sizes = self.limits.sizes.clone();
        let shape: Vec<i64> = (0..rank).map(|_| self.choose(&sizes, 4)).collect();
        for index in 0..self.pick(self.limits.inputs.max(1)) + 1 {
            let dtype = self.dtype();
            // Mostly the whole shape, at times its last axes only.
            let skipped = if self.pick(4) == 3 { self.pick(rank + 1) } else { 0 };
            let mut actual = Vec::new();
            let dims: Vec<AxisDecl> = shape[skipped..]
                .iter()
                .map(|&size| match self.pick(8) {
                    0..4 => (AxisDecl::Symbolic, size),
                    4..7 if self.limits.constants => (AxisDecl::Const(size), size),
                    4..7 => (AxisDecl::Symbolic, size),
                    _ => (AxisDecl::Broadcast, 1),
                })
                .map(|(dim, size)| {
                    actual.push(size);
                    dim
                })
                .collect();
            if let Ok(Operand::Tensor(t)) = self.builder.tensor(&format!("x{index}"), dtype, &dims) {
                self.tensors.push(t);
                self.sizes.push(Some(actual));
            }
        }
        for index in 0..self.pick(3) {
            let dtype = self.dtype();
            if let Ok(scalar) = self.builder.scalar(&format!("a{index}"), dtype) {
                self.scalars.push(scalar);
                self.sizes.push(None);
            }
        }
    }

    /// A tensor, mostly a recent one, so that chains get long.
    fn tensor(&mut self) -> TensorId {
        let count = self.tensors.len();
        let back = if self.flip() { self.pick(count.min(3)) } else { self.pick(count) };
        self.tensors[count - 1 - back]
    }

    fn number(&mut self) -> Src {
        const NUMBERS: &[f64] = &[0.5, -1.0, 2.0, 0.1, 3.75, -0.0];
        let complex = self.limits.dtypes.iter().any(|dtype| dtype.is_complex());
        match self.pick(if complex { 5 } else { 4 }) {
            4 => Value::Complex(self.choose(NUMBERS, 1.0), self.choose(NUMBERS, 1.0)).into(),
            0 => self.choose(NUMBERS, 1.0).into(),
            1 => i64::from(self.pick(7) as i32 - 2).into(),
            2 => self.flip().into(),
            _ if self.scalars.is_empty() => 1.into(),
            _ => {
                let scalars = self.scalars.clone();
                self.choose(&scalars, scalars[0]).into()
            }
        }
    }

    /// The axes of a tensor: undecided ones as their sizes decide them.
    fn shape(&self, t: TensorId) -> Vec<(AxisKind, i64)> {
        let axes = self.builder.axes(t);
        axes.iter()
            .map(|axis| {
                let size = self.scalar_value(axis.extent).as_i64();
                let kind = match axis.kind {
                    AxisKind::Symbolic if size == 1 => AxisKind::Broadcast,
                    AxisKind::Symbolic => AxisKind::Iteration,
                    decided => decided,
                };
                (kind, size)
            })
            .collect()
    }

    fn dtype_of(&self, id: ScalarId) -> DType {
        self.builder.dtype(Operand::Scalar(id))
    }

    /// The value of a scalar for the drawn sizes. Expressions are as deep as
    /// the drawn operations.
    fn scalar_value(&self, id: ScalarId) -> Value {
        let Some(scalar) = self.builder.scalar_definition(id) else { return Value::Int(0) };
        let value = |id: ScalarId| self.scalar_value(id);
        match &scalar.def {
            ScalarDef::Const(value) => *value,
            ScalarDef::Input { .. } => scalar_value(scalar.dtype, INPUT_BYTE),
            ScalarDef::Size { input, axis } => {
                Value::Int(self.sizes[*input as usize].as_ref().map_or(0, |sizes| sizes[*axis as usize]))
            }
            ScalarDef::Unary(op, a) => eval::unary(*op, self.dtype_of(*a), value(*a)),
            ScalarDef::Binary(op, a, b) => eval::binary(*op, self.dtype_of(*a), value(*a), value(*b)),
            ScalarDef::Ternary(op, a, b, c) => eval::ternary(*op, self.dtype_of(*c), value(*a), value(*b), value(*c)),
            ScalarDef::Cast(a) => eval::cast(self.dtype_of(*a), scalar.dtype, value(*a)),
        }
    }

    /// An operand that pairs with `x`: a tensor, with axes inserted where its
    /// rank is lower, or a number.
    fn partner(&mut self, x: TensorId) -> Result<Src> {
        if self.pick(4) == 0 {
            return Ok(self.number());
        }
        let y = self.tensor();
        let (ours, theirs) = (self.shape(x), self.shape(y));
        if theirs.len() > ours.len() {
            return Ok(Src::Tensor(x));
        }
        let missing = ours.len() - theirs.len();
        let paired = ours[missing..]
            .iter()
            .zip(&theirs)
            .all(|(a, b)| a.1 == b.1 || a.0 == AxisKind::Broadcast || b.0 == AxisKind::Broadcast);
        if !paired {
            return Ok(Src::Tensor(x));
        }
        if missing == 0 {
            return Ok(Src::Tensor(y));
        }
        let flags: Vec<bool> = (0..ours.len()).map(|axis| axis < missing).collect();
        Ok(self.builder.broadcast(y, &flags)?.into())
    }

    /// Whether two operands of one rank have axes that pair.
    fn pairs(&self, a: Src, b: Src) -> bool {
        let tensor = |src: Src| match src {
            Src::Tensor(t) => Some(t),
            _ => None,
        };
        let (Some(a), Some(b)) = (tensor(a), tensor(b)) else { return true };
        let broadcast = |kind: AxisKind| kind == AxisKind::Broadcast;
        self.shape(a).iter().zip(&self.shape(b)).all(|(a, b)| a.1 == b.1 || broadcast(a.0) || broadcast(b.0))
    }

    fn op(&mut self) -> Result<Vec<Operand>> {
        if self.limits.primitives && self.pick(3) == 0 {
            return self.primitive();
        }
        let result = match self.pick(16) {
            0..3 => self.unary()?,
            3..7 => self.binary()?,
            7 => self.ternary()?,
            8 => {
                let x = self.tensor();
                let to = self.conversion(x);
                self.builder.cast(x, to)?
            }
            9 => self.broadcast_or_squeeze()?,
            10 => self.permute()?,
            11..14 => return self.reduce().map(|result| vec![result]),
            14 => return self.composite(),
            _ => self.full_or_scalar()?,
        };
        Ok(vec![result])
    }

    fn unary(&mut self) -> Result<Operand> {
        let ops = if self.limits.tame { TAME_UNARY } else { UnaryOp::ALL };
        let (op, x) = (self.choose(ops, UnaryOp::Neg), self.tensor());
        self.builder.unary(op, x)
    }

    fn binary(&mut self) -> Result<Operand> {
        let ops = if self.limits.tame { TAME_BINARY } else { BinaryOp::ALL };
        let (op, x) = (self.choose(ops, BinaryOp::Add), self.tensor());
        let y = self.partner(x)?;
        if self.flip() { self.builder.binary(op, x, y) } else { self.builder.binary(op, y, x) }
    }

    fn ternary(&mut self) -> Result<Operand> {
        let x = self.tensor();
        let (a, b) = (self.partner(x)?, self.partner(x)?);
        // Both pair with `x`; where that is a broadcast, perhaps not with each other.
        let b = if self.pairs(a, b) { b } else { a };
        let op = self.choose(TernaryOp::ALL, TernaryOp::Where);
        if op == TernaryOp::Where || self.limits.tame {
            // Sums that cancel are near 0, on either side of it.
            let is_float = self.builder.dtype(Operand::Tensor(x)).is_float();
            let condition = if self.limits.tame && is_float {
                self.builder.binary(BinaryOp::Gt, x, 0.37)?
            } else {
                self.builder.binary(BinaryOp::Gt, x, 0)?
            };
            return self.builder.where_(condition, a, b);
        }
        self.builder.ternary(op, x, a, b)
    }

    fn broadcast_or_squeeze(&mut self) -> Result<Operand> {
        let x = self.tensor();
        let shape = self.shape(x);
        let thin: Vec<bool> = shape.iter().map(|(kind, _)| *kind == AxisKind::Broadcast).collect();
        if thin.contains(&true) && self.flip() {
            return self.builder.squeeze(x, &thin);
        }
        if shape.len() >= self.limits.rank {
            return self.builder.set(x);
        }
        let place = self.pick(shape.len() + 1);
        let flags: Vec<bool> = (0..=shape.len()).map(|axis| axis == place).collect();
        self.builder.broadcast(x, &flags)
    }

    fn permute(&mut self) -> Result<Operand> {
        let x = self.tensor();
        let mut dims: Vec<i64> = (0..self.builder.axes(x).len() as i64).collect();
        for last in (1..dims.len()).rev() {
            let other = self.pick(last + 1);
            dims.swap(last, other);
        }
        self.builder.permute(x, &dims)
    }

    fn axes(&mut self, x: TensorId) -> Vec<i64> {
        let rank = self.builder.axes(x).len();
        let chosen = self.pick(1 << rank.min(7));
        (0..rank).filter(|axis| chosen >> axis & 1 == 1).map(|axis| axis as i64).collect()
    }

    fn reduce(&mut self) -> Result<Operand> {
        let x = self.tensor();
        let (axes, keepdim) = (self.axes(x), self.flip());
        let mut op = self.choose(ReduceOp::ALL, ReduceOp::Sum);
        if self.limits.tame && op == ReduceOp::Prod {
            op = ReduceOp::Sum;
        }
        let dtype = if self.pick(4) == 3 { Some(self.conversion(x)) } else { None };
        self.builder.reduce(op, x, &axes, keepdim, dtype)
    }

    fn composite(&mut self) -> Result<Vec<Operand>> {
        let x = self.tensor();
        let b = &mut self.builder;
        let last = b.axes(x).len() as i64 - 1;
        let kind = usize::from(self.bytes.next().copied().unwrap_or(0)) % 8;
        let result = match kind {
            0 => b.softmax(x, last)?,
            1 => b.log_softmax(x, 0)?,
            2 => b.rms_norm(x, None, 1e-5)?,
            3 => b.layer_norm(x, None, None, 1e-5)?,
            4 => {
                let (var, mean) = b.var_mean(x, &[last], 1, true)?;
                return Ok(vec![var, mean]);
            }
            5 => b.gelu(x)?,
            6 => b.mean(x, &[0], false)?,
            _ => b.softplus(x)?,
        };
        Ok(vec![result])
    }

    /// A tensor made of a scalar, with the axes of another tensor.
    fn full_or_scalar(&mut self) -> Result<Operand> {
        let x = self.tensor();
        let (mut number, dtype) = (self.number(), self.dtype());
        if let (Src::Scalar(_), true) = (number, self.flip()) {
            number = self.builder.binary(BinaryOp::Add, number, 1)?.into();
        }
        let mut extents = Vec::new();
        for axis in 0..self.builder.axes(x).len() {
            extents.push(self.builder.size(x, axis as i64)?.into());
        }
        self.builder.full(&extents, number, dtype)
    }

    fn keep(&mut self, results: Vec<Operand>) {
        for result in results {
            if let Operand::Tensor(t) = result
                && !self.tensors.contains(&t)
            {
                self.tensors.push(t);
            }
        }
    }

    /// Returns the last value and up to two others.
    fn finish(mut self) -> Generated {
        let mut outputs = vec![self.tensors[self.tensors.len() - 1]];
        for _ in 0..self.pick(3) {
            outputs.push(self.tensor());
        }
        outputs.dedup();
        for output in outputs {
            self.builder.output(output).expect("the tensor is this builder's");
        }
        let fusion = self.builder.finish().expect("it returns a tensor");
        Generated { fusion, sizes: self.sizes, accepted: self.accepted, rejected: self.rejected }
    }
}

/// With this byte [`scalar_value`] gives the values of scalar inputs for which
/// the sizes that depend on them were drawn.
pub const INPUT_BYTE: u8 = 3;

/// A value of a type that a scalar input can have.
pub fn scalar_value(dtype: DType, byte: u8) -> Value {
    match dtype.class() {
        DTypeClass::Float => Value::Float(f64::from(byte % 9) * 0.25 - 1.0),
        DTypeClass::Int => Value::Int(i64::from(byte % 7)),
        DTypeClass::Bool => Value::Bool(byte % 2 == 1),
        DTypeClass::Complex => Value::Complex(f64::from(byte % 9) * 0.25 - 1.0, f64::from(byte % 5) * 0.5 - 1.0),
    }
}

fn element(dtype: DType, draw: u64) -> Value {
    match dtype.class() {
        DTypeClass::Bool => Value::Bool(draw % 2 == 1),
        DTypeClass::Int => Value::Int((draw % 7) as i64),
        DTypeClass::Float => Value::Float((draw % 17) as f64 / 4.0 - 1.0),
        DTypeClass::Complex => Value::Complex((draw % 17) as f64 / 4.0 - 1.0, (draw % 5) as f64),
    }
}

/// Arguments of the drawn sizes, some of them with axes in another order.
///
/// # Panics
///
/// If the sizes are not those of the fusion.
pub fn arguments(generated: &Generated, draw: &mut Draw) -> Vec<Arg> {
    let fusion = &generated.fusion;
    let mut args = Vec::new();
    for (input, sizes) in fusion.inputs.iter().zip(&generated.sizes) {
        args.push(match (*input, sizes) {
            (Operand::Scalar(s), _) => Arg::Scalar(scalar_value(fusion.scalars[s].dtype, INPUT_BYTE)),
            (Operand::Tensor(t), sizes) => {
                let dtype = fusion.tensors[t].dtype;
                let mut order: Vec<usize> = (0..fusion.tensors[t].axes.len()).collect();
                if draw.once_in(2) {
                    order.reverse();
                }
                let sizes = sizes.as_ref().expect("a drawn tensor has sizes");
                let stored: Vec<i64> = order.iter().map(|&axis| sizes[axis]).collect();
                let made = HostTensor::from_fn(dtype, &stored, |_| element(dtype, draw.bits() >> 33));
                let made = made.expect("drawn sizes are small");
                // `order` is its own inverse.
                Arg::Tensor(made.permuted(&order).expect("an order of its axes"))
            }
        });
    }
    args
}

#[cfg(test)]
mod tests;
