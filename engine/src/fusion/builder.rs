//! Builds fusions: infers types and axes, inserts promoting casts, refuses
//! what makes no sense, with the operation, the axes and the numbers named.

use super::infer::{
    accumulation_type, check_number, check_type, common_type, literal_default, literal_exact, working_type,
};
use super::meta::{self, AxisMeta, OperandMeta, Shape, SizeMath};
use super::ops::{Args, CallDraft, OpParamKind};
use super::scalars::{ScalarPool, extent, scalar};
use super::{
    Axis, AxisKind, Fusion, InputLayout, Op, OpId, OpKind, Operand, Scalar, ScalarDef, ScalarId, Tensor, TensorDef,
    TensorId, Update,
};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp, Value};
use crate::util::PrimaryMap;
use rustc_hash::{FxHashMap, FxHashSet};

/// The most axes that a tensor has.
pub const MAX_RANK: usize = 32;
/// The most operations that a fusion has, before unused ones are dropped.
pub const MAX_OPS: usize = 100_000;

/// The declaration of one axis of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AxisDecl {
    /// Any number of elements: `?`. Even when it is 1 at run time, it does not broadcast.
    Symbolic,
    /// This many elements. 1 declares a broadcast axis.
    Const(i64),
    /// Size 1, pairs with any axis.
    Broadcast,
}

/// What a builder method takes: a value of the fusion or a plain number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Src {
    /// A tensor.
    Tensor(TensorId),
    /// A scalar with its type.
    Scalar(ScalarId),
    /// A number without a type: it takes the type of what it meets.
    Number(Value),
}

macro_rules! src_from {
    ($($from:ty => |$v:ident| $to:expr;)*) => {
        $(impl From<$from> for Src {
            fn from($v: $from) -> Self {
                $to
            }
        })*
    };
}

src_from! {
    TensorId => |v| Src::Tensor(v);
    ScalarId => |v| Src::Scalar(v);
    Value => |v| Src::Number(v);
    f64 => |v| Src::Number(Value::Float(v));
    i64 => |v| Src::Number(Value::Int(v));
    i32 => |v| Src::Number(Value::Int(v.into()));
    bool => |v| Src::Number(Value::Bool(v));
    Operand => |v| match v {
        Operand::Tensor(t) => Src::Tensor(t),
        Operand::Scalar(s) => Src::Scalar(s),
    };
}

/// A fusion under construction. Methods return the [`Operand`] they define,
/// which later methods take. An operation on scalars alone gives a scalar.
#[derive(Clone, Debug, Default)]
pub struct FusionBuilder {
    pub(super) name: String,
    pub(super) tensors: PrimaryMap<TensorId, Tensor>,
    pub(super) scalars: ScalarPool,
    pub(super) ops: PrimaryMap<OpId, Op>,
    pub(super) inputs: Vec<Operand>,
    pub(super) outputs: Vec<TensorId>,
    pub(super) updates: Vec<Update>,
    /// The outputs, to find one quickly.
    returned: FxHashSet<TensorId>,
    pub(super) names: FxHashSet<String>,
    /// The conversions made so far, so that none is made twice.
    casts: FxHashMap<(TensorId, DType), TensorId>,
}

impl FusionBuilder {
    /// An empty fusion.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    // ---- inputs, constants, names, outputs ----

    /// Declares an input tensor.
    pub fn tensor(&mut self, name: &str, dtype: DType, dims: &[AxisDecl]) -> Result<Operand> {
        check_rank(name, dims.len())?;
        check_type(name, dtype)?;
        self.claim_name(name)?;
        let input = self.inputs.len() as u32;
        let mut axes = Vec::with_capacity(dims.len());
        for (axis, dim) in dims.iter().enumerate() {
            let extent = match *dim {
                AxisDecl::Symbolic => self.scalars.intern(DType::I64, ScalarDef::Size { input, axis: axis as u32 }),
                AxisDecl::Const(n) if n < 0 => {
                    let message = format!("{name}: axis {axis} has the negative extent {n}");
                    return Err(Diagnostic::user(code::EXTENT, message));
                }
                AxisDecl::Const(n) => self.scalars.size_const(n),
                AxisDecl::Broadcast => self.scalars.size_const(1),
            };
            let kind = match *dim {
                AxisDecl::Const(1) | AxisDecl::Broadcast => AxisKind::Broadcast,
                _ => AxisKind::Iteration,
            };
            axes.push(Axis { extent, kind });
        }
        let def = TensorDef::Input(input);
        let id = self.tensors.push(Tensor { name: name.into(), dtype, axes, def, layout: None });
        self.inputs.push(Operand::Tensor(id));
        Ok(Operand::Tensor(id))
    }

    /// Declares how an input tensor lies in memory.
    pub fn set_layout(&mut self, x: impl Into<Src>, layout: InputLayout) -> Result<()> {
        let x = self.tensor_operand("layout", x.into())?;
        let tensor = &mut self.tensors[x];
        let (rank, name) = (tensor.axes.len(), &tensor.name);
        if !matches!(tensor.def, TensorDef::Input(_)) {
            let message = format!("`%{name}` is the result of an operation: only inputs declare a layout");
            return Err(Diagnostic::user(code::LAYOUT, message).note("use stride_order to place a result"));
        }
        let mut order = layout.order.clone();
        order.sort_unstable();
        if layout.contiguity.len() != rank || !order.iter().copied().eq(0..rank as u32) {
            let message = format!(
                "`%{name}`: contiguity {:?} and order {:?} do not name each of the {rank} axes once",
                layout.contiguity, layout.order
            );
            return Err(Diagnostic::user(code::LAYOUT, message));
        }
        for (&axis, flag) in layout.order.iter().zip(&layout.contiguity) {
            let kind = tensor.axes[axis as usize].kind;
            if (kind == AxisKind::Broadcast) && flag.is_some() {
                let message = format!("`%{name}`: axis {axis} is a broadcast axis, which has no contiguity");
                return Err(Diagnostic::user(code::LAYOUT, message).note("write `_` (None) for it"));
            }
        }
        tensor.layout = Some(layout);
        Ok(())
    }

    /// Declares an input scalar.
    pub fn scalar(&mut self, name: &str, dtype: DType) -> Result<Operand> {
        check_type(name, dtype)?;
        self.claim_name(name)?;
        let def = ScalarDef::Input { index: self.inputs.len() as u32, name: name.into() };
        let operand = Operand::Scalar(self.scalars.intern(dtype, def));
        self.inputs.push(operand);
        Ok(operand)
    }

    /// A constant of a type, rounded to it.
    pub fn constant(&mut self, value: Value, dtype: DType) -> Result<Operand> {
        check_type("constant", dtype)?;
        check_number("constant", value, dtype)?;
        Ok(Operand::Scalar(self.scalars.constant(value, dtype)))
    }

    /// The extent of an axis (negative ones count from the end) as an `i64` scalar.
    pub fn size(&mut self, x: impl Into<Src>, axis: i64) -> Result<Operand> {
        let x = self.tensor_operand("size", x.into())?;
        let axis = normal_axis("size", axis, self.rank(x))?;
        Ok(Operand::Scalar(self.tensors[x].axes[axis].extent))
    }

    /// Names a value that has no name yet; scalars and named tensors keep theirs.
    pub fn set_name(&mut self, x: Operand, name: &str) -> Result<()> {
        let Operand::Tensor(t) = x else { return Ok(()) };
        self.check_operand("name", x.into())?;
        if self.tensors[t].name.is_empty() {
            self.claim_name(name)?;
            self.tensors[t].name = name.into();
        }
        Ok(())
    }

    fn claim_name(&mut self, name: &str) -> Result<()> {
        if !is_name(name) {
            return Err(Diagnostic::user(code::SYNTAX, format!("`{name}` is not a name"))
                .note("names have 1 to 128 ASCII letters, digits and underscores"));
        }
        if !self.names.insert(name.into()) {
            return Err(Diagnostic::user(code::DUPLICATE_NAME, format!("`%{name}` is defined twice")));
        }
        Ok(())
    }

    /// Returns a tensor to the caller. An input, and a tensor that is returned
    /// already, is returned as a copy: outputs are distinct results of operations.
    pub fn output(&mut self, x: impl Into<Src>) -> Result<()> {
        let mut x = self.tensor_operand("return", x.into())?;
        if matches!(self.tensors[x].def, TensorDef::Input(_)) || self.returned.contains(&x) {
            x = self.push(OpKind::Set, vec![Operand::Tensor(x)])?;
        }
        self.outputs.push(x);
        self.returned.insert(x);
        Ok(())
    }

    /// Writes a result into the storage of an input when the fusion has run.
    /// Their types must be equal, and their axes when sizes are known.
    pub fn update(&mut self, x: impl Into<Src>, input: impl Into<Src>) -> Result<()> {
        let mut x = self.tensor_operand("update", x.into())?;
        let target = self.tensor_operand("update", input.into())?;
        let (from, to) = (&self.tensors[x], &self.tensors[target]);
        let TensorDef::Input(position) = to.def else {
            let message = format!("update: `%{}` is no input, it cannot be updated", to.name);
            return Err(Diagnostic::user(code::UPDATE, message));
        };
        if from.dtype != to.dtype || from.axes.len() != to.axes.len() {
            let message = format!(
                "update: a {} of rank {} cannot be written into `%{}`, a {} of rank {}",
                from.dtype,
                from.axes.len(),
                to.name,
                to.dtype,
                to.axes.len()
            );
            return Err(Diagnostic::user(code::UPDATE, message).note("cast the result to the type of the input"));
        }
        if self.updates.iter().any(|update| update.input == position) {
            let message = format!("update: `%{}` is updated twice", self.tensors[target].name);
            return Err(Diagnostic::user(code::UPDATE, message));
        }
        if matches!(self.tensors[x].def, TensorDef::Input(_)) {
            x = self.push(OpKind::Set, vec![Operand::Tensor(x)])?;
        }
        self.updates.push(Update { tensor: x, input: position });
        Ok(())
    }

    /// Checks that something is returned, drops what no output depends on, and
    /// names what has no name.
    pub fn finish(self) -> Result<Fusion> {
        super::finish::finish(self)
    }

    // ---- elementwise ----

    /// An elementwise operation on one operand.
    pub fn unary(&mut self, op: UnaryOp, x: impl Into<Src>) -> Result<Operand> {
        let operands = self.promoted(op.name(), &[x.into()], op.promotes_int_to_float())?;
        match operands[0] {
            Operand::Scalar(s) => {
                self.check_scalar_op(op.name(), op.accepts(self.scalars.dtype(s)), s)?;
                Ok(Operand::Scalar(self.scalars.unary(op, s)))
            }
            Operand::Tensor(_) => Ok(Operand::Tensor(self.push(OpKind::Unary(op), operands)?)),
        }
    }

    /// An elementwise operation on two operands.
    pub fn binary(&mut self, op: BinaryOp, a: impl Into<Src>, b: impl Into<Src>) -> Result<Operand> {
        let operands = self.promoted(op.name(), &[a.into(), b.into()], op.promotes_int_to_float())?;
        if let [Operand::Scalar(a), Operand::Scalar(b)] = operands[..] {
            self.check_scalar_op(op.name(), op.accepts(self.scalars.dtype(a)), a)?;
            return Ok(Operand::Scalar(self.scalars.binary(op, a, b)));
        }
        Ok(Operand::Tensor(self.push(OpKind::Binary(op), operands)?))
    }

    /// An elementwise operation on three operands.
    pub fn ternary(
        &mut self,
        op: TernaryOp,
        a: impl Into<Src>,
        b: impl Into<Src>,
        c: impl Into<Src>,
    ) -> Result<Operand> {
        let (a, b, c) = (a.into(), b.into(), c.into());
        let operands = if let TernaryOp::Where = op {
            self.check_operand(op.name(), a)?;
            let condition = self.as_operand(a);
            let mut operands = vec![condition];
            operands.extend(self.promoted_as(op.name(), &[b, c], false, literal_default)?);
            operands
        } else {
            self.promoted(op.name(), &[a, b, c], matches!(op, TernaryOp::Lerp))?
        };
        if let [Operand::Scalar(x), Operand::Scalar(y), Operand::Scalar(z)] = operands[..] {
            self.check_scalar_op(op.name(), op.accepts(self.scalars.dtype(z)), z)?;
            if op == TernaryOp::Where && self.scalars.dtype(x) != DType::Bool {
                let message = format!("where: the condition is {}, not bool", self.scalars.dtype(x));
                return Err(Diagnostic::user(code::DTYPE, message));
            }
            return Ok(Operand::Scalar(self.scalars.ternary(op, x, y, z)));
        }
        Ok(Operand::Tensor(self.push(OpKind::Ternary(op), operands)?))
    }

    /// Conversion. A value that has the type already is returned as it is.
    pub fn cast(&mut self, x: impl Into<Src>, to: DType) -> Result<Operand> {
        check_type("cast", to)?;
        match self.check_operand("cast", x.into())? {
            Src::Tensor(t) => Ok(Operand::Tensor(self.cast_tensor(t, to)?)),
            Src::Scalar(s) => Ok(Operand::Scalar(self.scalars.cast(s, to))),
            Src::Number(value) => self.constant(value, to),
        }
    }

    /// A copy.
    pub fn set(&mut self, x: impl Into<Src>) -> Result<Operand> {
        self.move_axes("set", x.into(), OpKind::Set)
    }

    // ---- axes ----

    /// Inserts an axis of size 1 where a flag is true.
    pub fn broadcast(&mut self, x: impl Into<Src>, flags: &[bool]) -> Result<Operand> {
        check_rank("broadcast", flags.len())?;
        self.move_axes("broadcast", x.into(), OpKind::Broadcast { flags: flags.to_vec() })
    }

    /// Removes the broadcast axes where a flag is true.
    pub fn squeeze(&mut self, x: impl Into<Src>, flags: &[bool]) -> Result<Operand> {
        self.move_axes("squeeze", x.into(), OpKind::Squeeze { flags: flags.to_vec() })
    }

    /// Result axis `i` is axis `dims[i]`; negative axes count from the end.
    pub fn permute(&mut self, x: impl Into<Src>, dims: &[i64]) -> Result<Operand> {
        let x = self.tensor_operand("permute", x.into())?;
        let rank = self.rank(x);
        if dims.len() != rank {
            let message = format!("permute: {} axes are named, the operand has rank {rank}", dims.len());
            return Err(Diagnostic::user(code::RANK, message));
        }
        let perm: Result<Vec<u32>> =
            dims.iter().map(|&axis| normal_axis("permute", axis, rank).map(|axis| axis as u32)).collect();
        self.move_axes("permute", Src::Tensor(x), OpKind::Permute { perm: perm? })
    }

    /// Combines over `axes` (negative ones count from the end; none means all)
    /// and drops them, or leaves axes of size 1 with `keepdim`. `dtype` is the
    /// result's; unless given, `sum` and `prod` of small integers and `bool`
    /// give `i64`, and `f16` and `bf16` give `f32`.
    pub fn reduce(
        &mut self,
        op: ReduceOp,
        x: impl Into<Src>,
        axes: &[i64],
        keepdim: bool,
        dtype: Option<DType>,
    ) -> Result<Operand> {
        let name = op.name();
        check_type(name, dtype.unwrap_or(DType::F32))?;
        let x = self.tensor_operand(name, x.into())?;
        let rank = self.rank(x);
        let axes = normal_axes(name, axes, rank)?;
        let own = self.tensors[x].dtype;
        let working = match (op, dtype) {
            (_, Some(dtype)) => dtype.compute(),
            (ReduceOp::Sum | ReduceOp::Prod, None) => accumulation_type(own),
            (ReduceOp::Max | ReduceOp::Min | ReduceOp::MaxSumExp, None) => own.compute(),
        };
        let mut result = self.cast_tensor(x, working)?;
        // A tensor without axes is its own reduction.
        if rank > 0 {
            result = self.push(OpKind::Reduce { op, axes: axes.clone() }, vec![Operand::Tensor(result)])?;
        }
        result = self.cast_tensor(result, dtype.unwrap_or(working))?;
        if keepdim && rank > 0 {
            let flags = (0..rank as u32).map(|axis| axes.contains(&axis)).collect();
            result = self.push(OpKind::Broadcast { flags }, vec![Operand::Tensor(result)])?;
        }
        Ok(Operand::Tensor(result))
    }

    /// A tensor of the given extents filled with a scalar.
    pub fn full(&mut self, extents: &[Src], value: impl Into<Src>, dtype: DType) -> Result<Operand> {
        check_rank("full", extents.len())?;
        check_type("full", dtype)?;
        let value = value.into();
        if let Src::Number(number) = value {
            check_number("full", number, dtype)?;
        }
        let value = match self.check_operand("full", value)? {
            Src::Number(number) => self.scalars.constant(number, dtype),
            Src::Scalar(s) => self.scalars.cast(s, dtype),
            Src::Tensor(_) => {
                let message = "full: the fill value is a tensor, a scalar is needed";
                return Err(Diagnostic::user(code::NOT_TENSOR, message).note("broadcast the tensor instead"));
            }
        };
        let axes: Result<Vec<Axis>> =
            extents.iter().enumerate().map(|(i, &extent)| self.extent_axis(i, extent)).collect();
        Ok(Operand::Tensor(self.push_declared(OpKind::Full, meta_axes(&axes?), vec![Operand::Scalar(value)])?))
    }

    /// A tensor of the given extents whose elements are their positions along an
    /// axis; negative axes count from the end.
    pub fn index(&mut self, extents: &[Src], axis: i64) -> Result<Operand> {
        check_rank("index", extents.len())?;
        let axis = normal_axis("index", axis, extents.len())? as u32;
        let axes: Result<Vec<Axis>> =
            extents.iter().enumerate().map(|(i, &extent)| self.extent_axis(i, extent)).collect();
        Ok(Operand::Tensor(self.push_declared(OpKind::Index { axis }, meta_axes(&axes?), Vec::new())?))
    }

    fn extent_axis(&mut self, position: usize, extent: Src) -> Result<Axis> {
        let id = match self.check_operand("full", extent)? {
            Src::Number(Value::Int(n)) => self.scalars.size_const(n),
            Src::Scalar(s) if self.scalars.dtype(s).is_int() => self.scalars.cast(s, DType::I64),
            _ => {
                let message = format!("full: extent {position} is not an integer scalar");
                return Err(Diagnostic::user(code::DTYPE, message));
            }
        };
        match self.scalars.const_value(id).map(Value::as_i64) {
            Some(n) if n < 0 => {
                Err(Diagnostic::user(code::EXTENT, format!("full: extent {position} is {n}, which is negative")))
            }
            _ => Ok(Axis { extent: id, kind: self.extent_kind(id) }),
        }
    }

    /// The kind of an axis that is declared with an extent.
    pub(super) fn extent_kind(&self, extent: ScalarId) -> AxisKind {
        match self.scalars.const_value(extent).map(Value::as_i64) {
            Some(1) => AxisKind::Broadcast,
            Some(_) => AxisKind::Iteration,
            // An input's axis iterates, whatever its size; other sizes may be 1.
            None if matches!(self.scalars.get(extent).map(|s| &s.def), Some(ScalarDef::Size { .. })) => {
                AxisKind::Iteration
            }
            None => AxisKind::Symbolic,
        }
    }

    // ---- the common parts ----

    /// The type of a value.
    pub fn dtype(&self, x: Operand) -> DType {
        match x {
            Operand::Tensor(t) => self.tensors[t].dtype,
            Operand::Scalar(s) => self.scalars.dtype(s),
        }
    }

    /// What defines a tensor.
    pub(super) fn definition(&self, x: TensorId) -> TensorDef {
        self.tensors[x].def
    }

    /// An operation that has been added.
    pub(super) fn op(&self, op: OpId) -> &Op {
        &self.ops[op]
    }

    /// The axes of a tensor so far: what is undecided may still be decided.
    pub fn axes(&self, x: TensorId) -> &[Axis] {
        self.tensors.get(x).map_or(&[], |tensor| &tensor.axes)
    }

    /// What a scalar is.
    pub fn scalar_definition(&self, x: ScalarId) -> Option<&Scalar> {
        self.scalars.get(x)
    }

    pub(super) fn rank(&self, x: TensorId) -> usize {
        self.tensors[x].axes.len()
    }

    /// Refuses handles that this builder did not give out.
    pub(super) fn check_operand(&self, name: &str, x: Src) -> Result<Src> {
        let known = match x {
            Src::Tensor(t) => self.tensors.get(t).is_some(),
            Src::Scalar(s) => self.scalars.get(s).is_some(),
            Src::Number(_) => true,
        };
        if known {
            return Ok(x);
        }
        Err(Diagnostic::user(code::UNKNOWN_NAME, format!("{name}: the operand belongs to another fusion")))
    }

    pub(super) fn tensor_operand(&self, name: &str, x: Src) -> Result<TensorId> {
        match self.check_operand(name, x)? {
            Src::Tensor(t) => Ok(t),
            Src::Scalar(_) | Src::Number(_) => {
                Err(Diagnostic::user(code::NOT_TENSOR, format!("{name}: the operand is a scalar, a tensor is needed"))
                    .note("turn a scalar into a tensor with full"))
            }
        }
    }

    fn check_scalar_op(&self, name: &str, accepted: bool, s: ScalarId) -> Result<()> {
        if accepted {
            return Ok(());
        }
        let message = format!("{name}: not defined on {}", self.scalars.dtype(s));
        Err(Diagnostic::user(code::DTYPE, message).note("cast the operands first"))
    }

    /// A number by itself has the type that represents it exactly.
    pub(super) fn as_operand(&mut self, x: Src) -> Operand {
        match x {
            Src::Tensor(t) => Operand::Tensor(t),
            Src::Scalar(s) => Operand::Scalar(s),
            Src::Number(value) => Operand::Scalar(self.scalars.constant(value, literal_exact(value))),
        }
    }

    /// The operands cast to the type in which an operation works.
    pub(super) fn promoted(&mut self, name: &str, operands: &[Src], int_to_float: bool) -> Result<Vec<Operand>> {
        self.promoted_as(name, operands, int_to_float, literal_exact)
    }

    fn promoted_as(
        &mut self,
        name: &str,
        operands: &[Src],
        int_to_float: bool,
        literal: fn(Value) -> DType,
    ) -> Result<Vec<Operand>> {
        for operand in operands {
            self.check_operand(name, *operand)?;
        }
        let common = common_type(&self.tensors, &self.scalars, operands, literal);
        let working = working_type(common, int_to_float);
        operands
            .iter()
            .map(|operand| match *operand {
                Src::Tensor(t) => Ok(Operand::Tensor(self.cast_tensor(t, working)?)),
                Src::Scalar(s) => Ok(Operand::Scalar(self.scalars.cast(s, working))),
                Src::Number(value) => {
                    check_number(name, value, working)?;
                    Ok(Operand::Scalar(self.scalars.constant(value, working)))
                }
            })
            .collect()
    }

    pub(super) fn cast_tensor(&mut self, x: TensorId, to: DType) -> Result<TensorId> {
        if self.tensors[x].dtype == to {
            return Ok(x);
        }
        if let Some(done) = self.casts.get(&(x, to)) {
            return Ok(*done);
        }
        let result = self.push(OpKind::Cast(to), vec![Operand::Tensor(x)])?;
        self.casts.insert((x, to), result);
        Ok(result)
    }

    fn move_axes(&mut self, name: &str, x: Src, kind: OpKind) -> Result<Operand> {
        let x = self.tensor_operand(name, x)?;
        Ok(Operand::Tensor(self.push(kind, vec![Operand::Tensor(x)])?))
    }

    /// Adds an operation with one result, whose operands have their final types.
    fn push(&mut self, kind: OpKind, inputs: Vec<Operand>) -> Result<TensorId> {
        Ok(self.push_all(kind, inputs)?[0])
    }

    /// Adds an operation whose operands have their final types.
    pub(crate) fn push_all(&mut self, kind: OpKind, inputs: Vec<Operand>) -> Result<Vec<TensorId>> {
        let metas: Vec<_> = inputs.iter().map(|operand| self.operand_meta(*operand)).collect();
        let shapes = meta::infer(&kind, &metas, &mut self.scalars)?;
        self.define(kind, inputs, shapes)
    }

    /// Adds an operation whose result's axes are declared.
    pub(super) fn push_declared(
        &mut self,
        kind: OpKind,
        axes: Vec<AxisMeta>,
        inputs: Vec<Operand>,
    ) -> Result<TensorId> {
        let dtype = inputs.first().map_or(DType::I64, |value| self.dtype(*value));
        Ok(self.define(kind, inputs, vec![Shape { dtype, axes }])?[0])
    }

    /// Decides an axis that its rule left undecided.
    pub(super) fn decide(&mut self, tensor: TensorId, axis: usize, kind: AxisKind) {
        let one = self.scalars.size_const(1);
        let axis = &mut self.tensors[tensor].axes[axis];
        if axis.kind == AxisKind::Symbolic {
            axis.kind = kind;
            if kind == AxisKind::Broadcast {
                axis.extent = one;
            }
        }
    }

    fn define(&mut self, kind: OpKind, inputs: Vec<Operand>, shapes: Vec<Shape>) -> Result<Vec<TensorId>> {
        if self.ops.len() >= MAX_OPS {
            return Err(Diagnostic::user(code::TOO_LARGE, format!("a fusion has at most {MAX_OPS} operations")));
        }
        for shape in &shapes {
            check_rank(kind.name(), shape.axes.len())?;
            for (position, axis) in shape.axes.iter().enumerate() {
                if let Some(n) = self.scalars.known(axis.extent).filter(|n| *n < 0) {
                    let message = format!("{}: axis {position} of the result has the negative extent {n}", kind.name());
                    return Err(Diagnostic::user(code::EXTENT, message));
                }
            }
        }
        let id = self.ops.next_id();
        let mut outputs = Vec::with_capacity(shapes.len());
        for Shape { dtype, axes } in shapes {
            let axes = axes.into_iter().map(|axis| Axis { extent: scalar(axis.extent), kind: axis.kind }).collect();
            let def = TensorDef::Op(id);
            outputs.push(self.tensors.push(Tensor { name: String::new(), dtype, axes, def, layout: None }));
        }
        self.ops.push(Op { kind, inputs, outputs: outputs.clone() });
        Ok(outputs)
    }

    fn operand_meta(&mut self, operand: Operand) -> OperandMeta {
        match operand {
            Operand::Scalar(s) => {
                let dtype = self.scalars.dtype(s);
                let size = if dtype.is_int() { self.scalars.cast(s, DType::I64) } else { s };
                OperandMeta::Scalar(dtype, extent(size))
            }
            Operand::Tensor(t) => OperandMeta::Tensor(self.shape_of(t)),
        }
    }

    /// The type and axes of a tensor.
    pub(crate) fn shape_of(&self, t: TensorId) -> Shape {
        let tensor = &self.tensors[t];
        let axes = tensor.axes.iter().map(|axis| AxisMeta { extent: extent(axis.extent), kind: axis.kind }).collect();
        Shape { dtype: tensor.dtype, axes }
    }

    /// Adds an operation of the table.
    pub fn apply(&mut self, args: &Args) -> Result<Vec<Operand>> {
        args.check()?;
        (args.row().build)(self, args)
    }

    /// Whether it is an input tensor.
    pub fn is_input(&self, x: Operand) -> bool {
        matches!(x, Operand::Tensor(x) if matches!(self.tensors[x].def, TensorDef::Input(_)))
    }

    /// Whether something is written into this input.
    pub fn is_updated(&self, x: Operand) -> bool {
        let Operand::Tensor(x) = x else { return false };
        self.updates.iter().any(|update| self.tensors[x].def == TensorDef::Input(update.input))
    }

    /// The number of operations so far.
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// Whether an input is updated.
    pub fn has_updates(&self) -> bool {
        !self.updates.is_empty()
    }

    /// Adds a primitive of the table of operations.
    pub(super) fn push_draft(&mut self, draft: CallDraft) -> Result<Vec<Operand>> {
        let (call, operands) = draft.parts();
        let name = call.row.name;
        let mut inputs = Vec::with_capacity(operands.len());
        for (kind, src) in operands {
            inputs.push(self.operand_of_kind(name, kind, src)?);
        }
        let outputs = self.push_all(OpKind::Call(call), inputs)?;
        Ok(outputs.into_iter().map(Operand::Tensor).collect())
    }

    /// A value where a parameter of a kind takes it.
    fn operand_of_kind(&mut self, name: &str, kind: OpParamKind, src: Src) -> Result<Operand> {
        match kind {
            OpParamKind::Tensor | OpParamKind::Tensors => Ok(Operand::Tensor(self.tensor_operand(name, src)?)),
            OpParamKind::Shape | OpParamKind::Scalars => {
                let operand = self.scalar_operand(name, src)?;
                if !self.scalars.dtype(operand).is_int() {
                    let dtype = self.scalars.dtype(operand);
                    let message = format!("{name}: an extent or position is a {dtype}, not an integer");
                    return Err(Diagnostic::user(code::DTYPE, message).note("cast it to i64"));
                }
                Ok(Operand::Scalar(self.scalars.cast(operand, DType::I64)))
            }
            OpParamKind::Scalar => Ok(Operand::Scalar(self.scalar_operand(name, src)?)),
            _ => {
                self.check_operand(name, src)?;
                Ok(self.as_operand(src))
            }
        }
    }

    /// A scalar; a number has the type that represents it exactly.
    pub(super) fn scalar_operand(&mut self, name: &str, src: Src) -> Result<ScalarId> {
        match self.check_operand(name, src)? {
            Src::Tensor(_) => {
                let message = format!("{name}: a tensor stands where a scalar is needed");
                Err(Diagnostic::user(code::NOT_SCALAR, message))
            }
            Src::Scalar(s) => Ok(s),
            Src::Number(value) => Ok(self.scalars.constant(value, literal_exact(value))),
        }
    }

    /// The value of a scalar or number that is known.
    pub fn known(&self, src: Src) -> Option<Value> {
        match src {
            Src::Number(value) => Some(value),
            Src::Scalar(s) => self.scalars.const_value(s),
            Src::Tensor(_) => None,
        }
    }
}

fn meta_axes(axes: &[Axis]) -> Vec<AxisMeta> {
    axes.iter().map(|axis| AxisMeta { extent: extent(axis.extent), kind: axis.kind }).collect()
}

/// Whether a text can name a value: kernels print it as part of an identifier.
pub fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn check_rank(name: &str, rank: usize) -> Result<()> {
    if rank <= MAX_RANK {
        return Ok(());
    }
    Err(Diagnostic::user(code::TOO_LARGE, format!("{name}: rank {rank} is above the limit of {MAX_RANK}")))
}

/// An axis counted from the start.
pub(super) fn normal_axis(name: &str, axis: i64, rank: usize) -> Result<usize> {
    let from_start = if axis < 0 { axis.checked_add(rank as i64) } else { Some(axis) };
    match from_start.and_then(|axis| usize::try_from(axis).ok()) {
        Some(axis) if axis < rank => Ok(axis),
        _ => Err(Diagnostic::user(code::AXIS, format!("{name}: axis {axis} of an operand of rank {rank}"))),
    }
}

/// Axes counted from the start, ascending; all of them if none is named.
pub(super) fn normal_axes(name: &str, axes: &[i64], rank: usize) -> Result<Vec<u32>> {
    if axes.is_empty() {
        return Ok((0..rank as u32).collect());
    }
    let mut normal = Vec::with_capacity(axes.len());
    for &axis in axes {
        let from_start = normal_axis(name, axis, rank)? as u32;
        if normal.contains(&from_start) {
            return Err(Diagnostic::user(code::AXIS, format!("{name}: axis {axis} is named twice")));
        }
        normal.push(from_start);
    }
    normal.sort_unstable();
    Ok(normal)
}
