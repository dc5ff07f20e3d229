//! Some operations of a fusion as a fusion of their own.
//!
//! In: a fusion and operations of it. Out: [`Part`]: what they read from outside
//! are its inputs, what the others need of them its outputs, and both are told in
//! the ids of the whole. Sizes that an input tensor shows are taken from it; sizes of
//! the whole's inputs that none of them shows, and scalar inputs, are inputs too, and
//! what is computed from these is computed again. So a part needs nothing of the
//! whole but what it is given.

use super::rewrite::Rewriter;
use super::{AxisDecl, AxisKind, Fusion, OpId, OpKind, Operand, ScalarDef, ScalarId, TensorId, finish};
use crate::diag::Result;
use crate::util::EntityId;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A part of a fusion.
#[derive(Clone, Debug)]
pub struct Part {
    /// The part as a fusion: a case for any session.
    pub fusion: Arc<Fusion>,
    /// What each of its inputs is in the whole: tensors in order of definition, then scalars.
    pub inputs: Vec<Operand>,
    /// What each of its outputs is in the whole.
    pub outputs: Vec<TensorId>,
}

/// The part of a fusion that operations are, given in order of definition, when
/// these of their results are returned. The name is that of the whole and `suffix`.
pub fn part(fusion: &Fusion, suffix: &str, ops: &[OpId], outputs: &[TensorId]) -> Result<Part> {
    let mut rewriter = Rewriter::bare(fusion);
    rewriter.builder.name = format!("{}{suffix}", short(&fusion.name));
    let mut names = Names::new(fusion, ops);
    let mut inputs = Vec::new();
    for tensor in tensors_read(fusion, ops) {
        declare(&mut rewriter, &mut names, tensor)?;
        inputs.push(Operand::Tensor(tensor));
    }
    for scalar in scalars_read(fusion, ops) {
        for scalar in rewriter.missing(scalar) {
            let name = match &fusion.scalars[scalar].def {
                ScalarDef::Input { name, .. } => name.clone(),
                _ => names.fresh(format!("s{}", scalar.index())),
            };
            let new = rewriter.builder.scalar(&name, fusion.scalars[scalar].dtype)?;
            rewriter.put_scalar(scalar, new);
            inputs.push(Operand::Scalar(scalar));
        }
    }
    for op in ops.iter().map(|op| &fusion.ops[*op]) {
        // What is canonical of arguments depends on what is known of sizes, which here is less or more.
        let results = match op.kind {
            OpKind::Call(_) => rewriter.write_again(op)?,
            _ => rewriter.keep_undecided(op)?,
        };
        rewriter.replace(op, &results)?;
    }
    rewriter.outputs(outputs)?;
    Ok(Part { fusion: Arc::new(finish::finish(rewriter.builder)?), inputs, outputs: outputs.to_vec() })
}

/// The same fusion with names that say nothing, so that parts that do the same are equal:
/// the layers of a network share their kernels.
pub fn plainly_named(fusion: &Fusion) -> Fusion {
    let mut plain = fusion.clone();
    plain.name = "segment".into();
    for (position, tensor) in plain.tensors.values_mut().enumerate() {
        tensor.name = format!("t{position}");
    }
    for (position, scalar) in plain.scalars.values_mut().enumerate() {
        if let ScalarDef::Input { name, .. } = &mut scalar.def {
            *name = format!("s{position}");
        }
    }
    plain
}

/// Tensors that operations read from outside, in order of definition.
fn tensors_read(fusion: &Fusion, ops: &[OpId]) -> BTreeSet<TensorId> {
    ops.iter().flat_map(|op| fusion.tensor_inputs(*op)).filter(|tensor| !fusion.is_result_of(*tensor, ops)).collect()
}

/// Scalars that operations name: as operands, and as extents that no operand shows.
fn scalars_read(fusion: &Fusion, ops: &[OpId]) -> BTreeSet<ScalarId> {
    let mut read = BTreeSet::new();
    for op in ops.iter().map(|op| &fusion.ops[*op]) {
        read.extend(op.inputs.iter().filter_map(|operand| match operand {
            Operand::Scalar(scalar) => Some(*scalar),
            Operand::Tensor(_) => None,
        }));
        if op.kind.declares_axes() {
            read.extend(fusion.tensors[op.output()].axes.iter().map(|axis| axis.extent));
        }
    }
    read
}

/// Declares a tensor of the whole as an input of the part.
fn declare(rewriter: &mut Rewriter<'_>, names: &mut Names, tensor: TensorId) -> Result<()> {
    let fusion = rewriter.old;
    let data = &fusion.tensors[tensor];
    let known = |axis: &super::Axis| fusion.const_scalar(axis.extent).map(|extent| extent.as_i64());
    let dims: Vec<AxisDecl> = data
        .axes
        .iter()
        .map(|axis| match (axis.kind, known(axis)) {
            (AxisKind::Broadcast, _) => AxisDecl::Broadcast,
            (_, Some(extent)) if extent != 1 => AxisDecl::Const(extent),
            _ => AxisDecl::Symbolic,
        })
        .collect();
    let new = rewriter.builder.tensor(&names.of_tensor(&data.name), data.dtype, &dims)?;
    if let Some(layout) = &data.layout {
        rewriter.builder.set_layout(new, layout.clone())?;
    }
    if let Operand::Tensor(new) = new {
        rewriter.put(tensor, new);
    }
    for (position, axis) in data.axes.iter().enumerate() {
        if dims[position] == AxisDecl::Symbolic && known(axis).is_none() {
            let size = rewriter.builder.size(new, position as i64)?;
            rewriter.put_scalar(axis.extent, size);
        }
    }
    Ok(())
}

/// A name with room for more behind it, within what a name may be.
fn short(name: &str) -> &str {
    name.get(..100).unwrap_or(name)
}

/// Names of inputs, which in the whole may be numbers of results.
struct Names {
    taken: BTreeSet<String>,
}

impl Names {
    /// The names that a part has of the whole: of what it computes and reads, and of
    /// all scalar inputs.
    fn new(fusion: &Fusion, ops: &[OpId]) -> Self {
        let tensors =
            ops.iter().flat_map(|op| fusion.ops[*op].outputs.iter().copied().chain(fusion.tensor_inputs(*op)));
        let scalars = fusion.inputs.iter().filter_map(|input| match *input {
            Operand::Scalar(scalar) => Some(scalar),
            Operand::Tensor(_) => None,
        });
        let scalars = scalars.filter_map(|scalar| match &fusion.scalars[scalar].def {
            ScalarDef::Input { name, .. } => Some(name.clone()),
            _ => None,
        });
        Self { taken: tensors.map(|tensor| fusion.tensors[tensor].name.clone()).chain(scalars).collect() }
    }

    /// A tensor's own name, if an input may have it.
    fn of_tensor(&mut self, name: &str) -> String {
        let is_number = name.starts_with(|c: char| c.is_ascii_digit());
        if is_number { self.fresh(format!("t{}", short(name))) } else { name.into() }
    }

    /// A name that nothing has.
    fn fresh(&mut self, mut name: String) -> String {
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}
