//! A fusion made again operation by operation, some of them otherwise: what
//! concretisation and decomposition have in common. Names are kept, and where
//! each value went is told, so that a user's handles survive.

use super::meta::AxisMeta;
use super::ops::{Args, Attr, Call, Need, OpArg, OpParamKind};
use super::scalars::{extent, scalar};
use super::{
    AxisDecl, AxisKind, Fusion, FusionBuilder, Op, OpKind, Operand, ScalarDef, ScalarId, Src, TensorDef, TensorId,
    finish,
};
use crate::diag::{Diagnostic, Result};
use crate::num::Value;
use crate::util::SecondaryMap;
use std::collections::BTreeSet;

/// A fusion made from another one.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The new fusion.
    pub fusion: Fusion,
    /// Where each tensor of the old one went; `None` if nothing needs it any more.
    pub tensors: SecondaryMap<TensorId, Option<TensorId>>,
}

/// The old fusion on its way into a builder.
pub(crate) struct Rewriter<'a> {
    pub(super) old: &'a Fusion,
    pub(crate) builder: FusionBuilder,
    tensors: SecondaryMap<TensorId, Option<TensorId>>,
    scalars: SecondaryMap<ScalarId, Option<ScalarId>>,
}

impl<'a> Rewriter<'a> {
    /// Inputs are declared; `kind` may decide axes.
    pub(crate) fn new(old: &'a Fusion, kind: impl Fn(TensorId, usize) -> AxisKind) -> Result<Self> {
        let mut this = Self::bare(old);
        for &input in &old.inputs {
            match input {
                Operand::Scalar(s) => {
                    let ScalarDef::Input { name, .. } = &old.scalars[s].def else { continue };
                    let new = this.builder.scalar(name, old.scalars[s].dtype)?;
                    if let Operand::Scalar(new) = new {
                        this.scalars.set(s, Some(new));
                    }
                }
                Operand::Tensor(t) => {
                    let tensor = &old.tensors[t];
                    let dim = |(position, axis): (usize, &super::Axis)| match kind(t, position) {
                        AxisKind::Broadcast => AxisDecl::Broadcast,
                        _ => old.const_scalar(axis.extent).map_or(AxisDecl::Symbolic, |n| AxisDecl::Const(n.as_i64())),
                    };
                    let dims: Vec<AxisDecl> = tensor.axes.iter().enumerate().map(dim).collect();
                    let new = this.builder.tensor(&tensor.name, tensor.dtype, &dims)?;
                    if let Some(layout) = &tensor.layout {
                        this.builder.set_layout(new, layout.clone())?;
                    }
                    if let Operand::Tensor(new) = new {
                        this.tensors.set(t, Some(new));
                    }
                }
            }
        }
        Ok(this)
    }

    /// Nothing is declared.
    pub(super) fn bare(old: &'a Fusion) -> Self {
        let builder = FusionBuilder::new(old.name.clone());
        Self { old, builder, tensors: SecondaryMap::new(), scalars: SecondaryMap::new() }
    }

    /// Says which new tensor stands for an old one.
    pub(super) fn put(&mut self, old: TensorId, new: TensorId) {
        self.tensors.set(old, Some(new));
    }

    /// Says which new scalar stands for an old one, unless one does.
    pub(super) fn put_scalar(&mut self, old: ScalarId, new: Operand) {
        if let (Operand::Scalar(new), None) = (new, self.scalars[old]) {
            self.scalars.set(old, Some(new));
        }
    }

    /// The inputs and sizes from which an old scalar is computed and for which no new
    /// one stands yet, in order.
    pub(super) fn missing(&self, root: ScalarId) -> BTreeSet<ScalarId> {
        let (mut seen, mut missing, mut stack) = (BTreeSet::new(), BTreeSet::new(), vec![root]);
        while let Some(id) = stack.pop() {
            if self.scalars[id].is_some() || !seen.insert(id) {
                continue;
            }
            match &self.old.scalars[id].def {
                ScalarDef::Input { .. } | ScalarDef::Size { .. } => drop(missing.insert(id)),
                def => stack.extend(def.operands()),
            }
        }
        missing
    }

    /// The new tensor of an old one.
    pub(crate) fn tensor(&self, old: TensorId) -> Result<TensorId> {
        self.tensors[old].ok_or_else(|| Diagnostic::bug(format!("{old} is read before it is made again")))
    }

    /// The new scalar of an old one. Chains can be long: no recursion.
    pub(crate) fn scalar(&mut self, root: ScalarId) -> ScalarId {
        let old = self.old;
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if self.scalars[id].is_some() {
                stack.pop();
                continue;
            }
            let waiting = stack.len();
            stack.extend(old.scalars[id].def.operands().filter(|operand| self.scalars[*operand].is_none()));
            if stack.len() == waiting {
                stack.pop();
                let made = self.copy_scalar(id);
                self.scalars.set(id, Some(made));
            }
        }
        self.scalars[root].expect("the walk ends at the root")
    }

    fn copy_scalar(&mut self, id: ScalarId) -> ScalarId {
        let scalar = &self.old.scalars[id];
        let def = scalar.def.map(|id| self.scalars[id].expect("operands come first"));
        self.builder.scalars.intern(scalar.dtype, def)
    }

    pub(super) fn operand(&mut self, old: Operand) -> Result<Operand> {
        Ok(match old {
            Operand::Tensor(t) => Operand::Tensor(self.tensor(t)?),
            Operand::Scalar(s) => Operand::Scalar(self.scalar(s)),
        })
    }

    /// The new operands of an old operation.
    fn operands(&mut self, op: &Op) -> Result<Vec<Operand>> {
        op.inputs.iter().map(|&input| self.operand(input)).collect()
    }

    /// The declared axes of an old tensor.
    fn axes(&mut self, old: TensorId) -> Vec<AxisMeta> {
        let axes = self.old.tensors[old].axes.iter();
        axes.map(|axis| AxisMeta { extent: extent(self.scalar(axis.extent)), kind: axis.kind }).collect()
    }

    /// The operation as it is; what was decided of its axes stays decided.
    pub(crate) fn keep(&mut self, op: &Op) -> Result<Vec<TensorId>> {
        let inputs = self.operands(op)?;
        if op.kind.declares_axes() {
            let axes = self.axes(op.output());
            return Ok(vec![self.builder.push_declared(op.kind.clone(), axes, inputs)?]);
        }
        self.keep_on(op, inputs)
    }

    /// An operation that declares no axes on new operands that have those of its own.
    pub(crate) fn keep_on(&mut self, op: &Op, inputs: Vec<Operand>) -> Result<Vec<TensorId>> {
        let results = self.builder.push_all(op.kind.clone(), inputs)?;
        for (&old, &new) in op.outputs.iter().zip(&results) {
            for (axis, data) in self.old.tensors[old].axes.iter().enumerate() {
                if data.kind != AxisKind::Symbolic {
                    self.builder.decide(new, axis, data.kind);
                }
            }
        }
        Ok(results)
    }

    /// The operation as it is, but what its rule leaves undecided of its axes is
    /// undecided again: as in a fusion that somebody wrote.
    pub(super) fn keep_undecided(&mut self, op: &Op) -> Result<Vec<TensorId>> {
        let inputs = self.operands(op)?;
        if !op.kind.declares_axes() {
            return self.builder.push_all(op.kind.clone(), inputs);
        }
        let mut axes = self.axes(op.output());
        for axis in &mut axes {
            axis.kind = self.builder.extent_kind(scalar(axis.extent));
        }
        Ok(vec![self.builder.push_declared(op.kind.clone(), axes, inputs)?])
    }

    fn is_returned(&self, old: TensorId) -> bool {
        self.old.outputs.contains(&old) || self.old.updates.iter().any(|update| update.tensor == old)
    }

    /// The operation as somebody would write it who has these operands: a primitive of the table is built by its
    /// row, since what is canonical of its arguments depends on what is known of its operands, and
    /// conversions that operands have in common are one.
    pub(crate) fn write_again(&mut self, op: &Op) -> Result<Vec<TensorId>> {
        if let (OpKind::Cast(to), Some(&x)) = (&op.kind, op.inputs.first()) {
            let x = self.operand(x)?;
            let made = self.builder.cast(x, *to)?;
            let is_other = |made: TensorId| !self.builder.tensors[made].name.is_empty();
            return match made {
                // What is returned is a result of its own.
                Operand::Tensor(made) if is_other(made) && self.is_returned(op.output()) => {
                    Ok(vec![self.builder.push_all(OpKind::Set, vec![Operand::Tensor(made)])?[0]])
                }
                Operand::Tensor(made) => Ok(vec![made]),
                Operand::Scalar(_) => Err(Diagnostic::bug("a tensor is converted to a scalar")),
            };
        }
        let OpKind::Call(call) = &op.kind else { return self.keep_undecided(op) };
        let args = self.arguments(op, call)?;
        let results = self.builder.apply(&args)?.into_iter().map(|result| match result {
            Operand::Tensor(tensor) => Ok(tensor),
            Operand::Scalar(_) => Err(Diagnostic::bug(format!("{} became a scalar", call.row.name))),
        });
        results.collect()
    }

    /// An old elementwise operation on new tensors, in the order of those that it reads.
    pub(crate) fn write_on(&mut self, op: &Op, tensors: &[TensorId]) -> Result<TensorId> {
        self.write_as(op, op.kind.clone(), tensors)
    }

    /// An operation of this kind on new tensors, in the order of those that an old one reads, and its scalars.
    pub(crate) fn write_as(&mut self, op: &Op, kind: OpKind, tensors: &[TensorId]) -> Result<TensorId> {
        let mut given = tensors.iter();
        let missing = || Diagnostic::bug(format!("{} is given too few tensors", op.kind.name()));
        let mut inputs = Vec::with_capacity(op.inputs.len());
        for input in &op.inputs {
            inputs.push(match *input {
                Operand::Tensor(_) => Operand::Tensor(*given.next().ok_or_else(missing)?),
                Operand::Scalar(scalar) => Operand::Scalar(self.scalar(scalar)),
            });
        }
        match (kind, inputs.first()) {
            (OpKind::Cast(to), Some(&x)) => match self.builder.cast(x, to)? {
                Operand::Tensor(made) => Ok(made),
                Operand::Scalar(_) => Err(Diagnostic::bug("a tensor is converted to a scalar")),
            },
            (kind, _) => Ok(self.builder.push_all(kind, inputs)?[0]),
        }
    }

    /// A primitive whose arguments are canonical whatever its operands are, of another old tensor in the place of one.
    pub(crate) fn write_with(&mut self, op: &Op, position: usize, tensor: TensorId) -> Result<Vec<TensorId>> {
        let mut inputs = self.operands(op)?;
        inputs[position] = Operand::Tensor(self.tensor(tensor)?);
        self.builder.push_all(op.kind.clone(), inputs)
    }

    /// A tensor of zeros with the type and axes of an old one.
    pub(super) fn zeros(&mut self, old: TensorId) -> Result<TensorId> {
        let axes = self.axes(old);
        let zero = self.builder.scalars.constant(Value::Int(0), self.old.tensors[old].dtype);
        self.builder.push_declared(OpKind::Full, axes, vec![Operand::Scalar(zero)])
    }

    /// The arguments with which a call was made.
    pub(crate) fn arguments(&mut self, op: &Op, call: &Call) -> Result<Args> {
        let mut args = Args::new(call.row);
        for (position, (param, attr)) in call.row.params.iter().zip(&call.attrs).enumerate() {
            let operands = &op.inputs[call.operands(param.name)];
            let mapped = operands.iter().map(|&x| self.operand(x).map(Src::from)).collect::<Result<Vec<_>>>()?;
            let list = matches!(param.kind, OpParamKind::Tensors | OpParamKind::Shape | OpParamKind::Scalars);
            let arg = match attr {
                Attr::Operands(0) if !list || param.need == Need::Optional => None,
                Attr::Operands(_) if list => Some(OpArg::Values(mapped)),
                Attr::Operands(_) => mapped.first().map(|src| OpArg::Value(*src)),
                Attr::None => None,
                Attr::Bool(value) => Some(OpArg::Bool(*value)),
                Attr::Int(value) => Some(OpArg::Int(*value)),
                Attr::Ints(values) => Some(OpArg::Ints(values.clone())),
                Attr::Bools(values) => Some(OpArg::Bools(values.clone())),
                Attr::Number(value) => Some(OpArg::Number(value.as_f64())),
                Attr::DType(value) => Some(OpArg::DType(*value)),
            };
            if let Some(arg) = arg {
                args.set(position, arg);
            }
        }
        Ok(args)
    }

    /// Gives a new tensor that has no name that of an old one, for which none stands that is needed.
    pub(crate) fn name_as(&mut self, new: TensorId, old: TensorId) -> Result<()> {
        self.builder.set_name(Operand::Tensor(new), &self.old.tensors[old].name)
    }

    /// Whether a new tensor is a result of an old operation already.
    pub(crate) fn stands_for_one(&self, new: TensorId) -> bool {
        !self.builder.tensors[new].name.is_empty()
    }

    /// Says which new tensors stand for the results of an old operation.
    pub(crate) fn replace(&mut self, op: &Op, results: &[TensorId]) -> Result<()> {
        if results.len() != op.outputs.len() {
            let (name, given, needed) = (op.kind.name(), results.len(), op.outputs.len());
            return Err(Diagnostic::bug(format!("{name} is replaced by {given} tensors, {needed} are needed")));
        }
        for (&old, &new) in op.outputs.iter().zip(results) {
            self.tensors.set(old, Some(new));
            let name = &self.old.tensors[old].name;
            let is_free = !self.builder.names.contains(name);
            let tensor = &self.builder.tensors[new];
            if is_free && tensor.name.is_empty() && matches!(tensor.def, TensorDef::Op(_)) {
                self.builder.set_name(Operand::Tensor(new), name)?;
            }
        }
        Ok(())
    }

    /// Returns what these old tensors have become.
    pub(super) fn outputs(&mut self, outputs: &[TensorId]) -> Result<()> {
        for &output in outputs {
            self.builder.output(self.tensor(output)?)?;
        }
        Ok(())
    }

    fn updates(&mut self) -> Result<()> {
        for update in &self.old.updates {
            let target = self.builder.inputs[update.input as usize];
            let mut tensor = self.tensor(update.tensor)?;
            // What is returned as well is one result with what is written, also where both are an input as it is.
            let is_input = matches!(self.builder.tensors[tensor].def, TensorDef::Input(_));
            if is_input && self.old.outputs.contains(&update.tensor) {
                tensor = self.builder.push_all(OpKind::Set, vec![Operand::Tensor(tensor)])?[0];
                self.tensors.set(update.tensor, Some(tensor));
            }
            self.builder.update(tensor, target)?;
        }
        Ok(())
    }

    /// The new fusion.
    pub(crate) fn finish(mut self) -> Result<Rewritten> {
        self.updates()?;
        let old = self.old;
        self.outputs(&old.outputs)?;
        let made = self.tensors;
        let (fusion, places) = finish::finish_with_places(self.builder)?;
        let mut tensors = SecondaryMap::new();
        for old in self.old.tensors.ids() {
            tensors.set(old, made[old].and_then(|new| places[new]));
        }
        Ok(Rewritten { fusion, tensors })
    }
}

/// What a builder made, which is a tensor where a tensor was given.
pub(crate) fn made_tensor(made: Operand) -> Result<TensorId> {
    match made {
        Operand::Tensor(tensor) => Ok(tensor),
        Operand::Scalar(scalar) => Err(Diagnostic::bug(format!("a pass made the scalar {scalar} of a tensor"))),
    }
}

/// The fusion with the axes of its outputs in the given orders.
pub fn permute_outputs(fusion: &Fusion, orders: &[Option<Vec<u32>>]) -> Result<Fusion> {
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for op in fusion.ops.values() {
        let results = rewriter.keep(op)?;
        rewriter.replace(op, &results)?;
    }
    rewriter.updates()?;
    for (&output, order) in fusion.outputs.iter().zip(orders) {
        let tensor = rewriter.tensor(output)?;
        match order {
            None => rewriter.builder.output(tensor)?,
            Some(order) => {
                let dims: Vec<i64> = order.iter().map(|&axis| axis.into()).collect();
                let moved = rewriter.builder.permute(tensor, &dims)?;
                rewriter.builder.output(moved)?;
            }
        }
    }
    finish::finish(rewriter.builder)
}
