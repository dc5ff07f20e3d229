//! Turns a builder into the canonical form of its fusion, in which equality of
//! the data is equality of structure: inputs first, then results in order of
//! definition; only what an output depends on; scalars in order of first use.

use super::builder::is_name;
use super::{Fusion, FusionBuilder, Op, OpId, Operand, Scalar, ScalarId, Tensor, TensorDef, TensorId, Update};
use crate::diag::{Diagnostic, Result, code};
use crate::util::{PrimaryMap, SecondaryMap};

pub(super) fn finish(builder: FusionBuilder) -> Result<Fusion> {
    Ok(finish_with_places(builder)?.0)
}

/// The fusion, and where each tensor of the builder is in it.
pub(super) fn finish_with_places(builder: FusionBuilder) -> Result<(Fusion, Places)> {
    if !is_name(&builder.name) || builder.name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(Diagnostic::user(code::SYNTAX, format!("`{}` does not name a fusion", builder.name))
            .note("a name starts with a letter or underscore and has letters, digits and underscores"));
    }
    if builder.outputs.is_empty() && builder.updates.is_empty() {
        return Err(Diagnostic::user(code::NO_OUTPUT, format!("@{} returns nothing", builder.name)));
    }
    let live = live_ops(&builder);
    let mut canonical = Canonical {
        builder: &builder,
        tensors: SecondaryMap::new(),
        scalars: SecondaryMap::new(),
        out: empty(&builder),
    };
    canonical.inputs();
    for op in builder.ops.ids().filter(|op| live[*op]) {
        canonical.op(op);
    }
    let outputs: Vec<TensorId> = builder.outputs.iter().map(|output| canonical.tensor(*output)).collect();
    let updates = builder.updates.iter();
    let updates = updates.map(|u| Update { tensor: canonical.tensor(u.tensor), input: u.input }).collect();
    let mut fusion = canonical.out;
    fusion.outputs = outputs;
    fusion.updates = updates;
    let places = canonical.tensors;
    name_the_unnamed(&mut fusion, &builder);
    Ok((fusion, places))
}

/// Where each tensor went; `None` for those that no output depends on.
pub(super) type Places = SecondaryMap<TensorId, Option<TensorId>>;

fn empty(builder: &FusionBuilder) -> Fusion {
    Fusion {
        name: builder.name.clone(),
        tensors: PrimaryMap::new(),
        scalars: PrimaryMap::new(),
        ops: PrimaryMap::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        updates: Vec::new(),
    }
}

/// The operations that an output depends on. Definitions come before uses, so
/// one pass backwards sees each use before the definition.
fn live_ops(builder: &FusionBuilder) -> SecondaryMap<OpId, bool> {
    let mut needed: SecondaryMap<TensorId, bool> = SecondaryMap::new();
    let mut live = SecondaryMap::new();
    for output in builder.outputs.iter().chain(builder.updates.iter().map(|update| &update.tensor)) {
        needed.set(*output, true);
    }
    for (id, op) in builder.ops.iter().rev() {
        if op.outputs.iter().any(|output| needed[*output]) {
            live.set(id, true);
            for input in &op.inputs {
                if let Operand::Tensor(t) = input {
                    needed.set(*t, true);
                }
            }
        }
    }
    live
}

struct Canonical<'a> {
    builder: &'a FusionBuilder,
    tensors: SecondaryMap<TensorId, Option<TensorId>>,
    scalars: SecondaryMap<ScalarId, Option<ScalarId>>,
    out: Fusion,
}

impl Canonical<'_> {
    fn inputs(&mut self) {
        for input in &self.builder.inputs {
            let input = match *input {
                Operand::Scalar(s) => Operand::Scalar(self.scalar(s)),
                Operand::Tensor(t) => Operand::Tensor(self.define(t, self.builder.tensors[t].def)),
            };
            self.out.inputs.push(input);
        }
    }

    fn op(&mut self, id: OpId) {
        let op = &self.builder.ops[id];
        let inputs = op
            .inputs
            .iter()
            .map(|input| match *input {
                Operand::Tensor(t) => Operand::Tensor(self.tensor(t)),
                Operand::Scalar(s) => Operand::Scalar(self.scalar(s)),
            })
            .collect();
        let def = TensorDef::Op(self.out.ops.next_id());
        let outputs = op.outputs.iter().map(|output| self.define(*output, def)).collect();
        self.out.ops.push(Op { kind: op.kind.clone(), inputs, outputs });
    }

    fn define(&mut self, id: TensorId, def: TensorDef) -> TensorId {
        let mut tensor: Tensor = self.builder.tensors[id].clone();
        for axis in &mut tensor.axes {
            axis.extent = self.scalar(axis.extent);
        }
        tensor.def = def;
        let new = self.out.tensors.push(tensor);
        self.tensors.set(id, Some(new));
        new
    }

    fn tensor(&self, id: TensorId) -> TensorId {
        self.tensors[id].expect("operands are defined before their users")
    }

    /// Copies a scalar after its operands. Chains can be long: no recursion.
    fn scalar(&mut self, root: ScalarId) -> ScalarId {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if self.scalars[id].is_some() {
                stack.pop();
                continue;
            }
            let scalar = self.builder.scalars.get(id).expect("operands were checked");
            let before = stack.len();
            // Reversed, so that the first operand is numbered first.
            stack.extend(scalar.def.operands().rev().filter(|operand| self.scalars[*operand].is_none()));
            if stack.len() == before {
                stack.pop();
                let new = self.copy_scalar(scalar);
                self.scalars.set(id, Some(new));
            }
        }
        self.scalars[root].expect("the walk ends at the root")
    }

    fn copy_scalar(&mut self, scalar: &Scalar) -> ScalarId {
        let def = scalar.def.map(|id| self.scalars[id].expect("operands come first"));
        self.out.scalars.push(Scalar { dtype: scalar.dtype, def })
    }
}

/// Unnamed values get the decimal numbers that no value was given.
fn name_the_unnamed(fusion: &mut Fusion, builder: &FusionBuilder) {
    let mut numbers = (0u32..).map(|n| n.to_string()).filter(|name| !builder.names.contains(name));
    for tensor in fusion.tensors.values_mut().filter(|tensor| tensor.name.is_empty()) {
        tensor.name = numbers.next().expect("there are more numbers than tensors");
    }
}
