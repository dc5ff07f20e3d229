//! The dimensions of a fusion, found by another way than [`engine::axes`] finds classes, which they
//! are held against. Two relations are computed by union-find over all axes: *exact*, iteration
//! axes that an operation pairs, and *permissive*, also a broadcast with the axis that it meets.
//! A dimension is a permissive class, well formed where its iteration axes form one exact class
//! and no tensor has two axes in it. If one is not, each use of an input is labelled by itself.

use engine::axes::axis_pairs;
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{AxisKind, Fusion, OpId, Operand, ScalarId, TensorId};
use engine::util::{DisjointSets, SecondaryMap};
use std::collections::BTreeMap;

/// A dimension: a class of axes that one loop can serve.
pub(super) type DimId = usize;

/// A dimension of the fusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dimension {
    /// Number of elements: the extent of one of its iteration axes.
    pub(super) extent: ScalarId,
}

/// The label of one axis of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AxisLabel {
    /// The dimension.
    pub(super) dim: DimId,
    /// Whether the tensor has an element per index (an iteration axis) or one
    /// for all (a broadcast axis).
    pub(super) concrete: bool,
}

/// One reading of an input by an op, when inputs are split by use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InputUse {
    /// The reading op.
    pub(super) op: OpId,
    /// The operand's position.
    pub(super) operand: usize,
}

/// The labels of all axes.
#[derive(Clone, Debug)]
pub(super) struct DimGraph {
    /// All dimensions that some tensor iterates over.
    pub(super) dims: Vec<Dimension>,
    /// Labels of each tensor's axes. Of an input that is split by use, the
    /// labels of its first use.
    pub(super) labels: SecondaryMap<TensorId, Vec<AxisLabel>>,
    /// Labels by use, for inputs that are split by use.
    pub(super) use_labels: BTreeMap<InputUse, Vec<AxisLabel>>,
}

/// Labels every axis, splitting inputs by use if that is needed.
pub(super) fn analyze(fusion: &Fusion) -> Result<DimGraph> {
    match Builder::new(fusion, false).build() {
        Ok(graph) => Ok(graph),
        // If that does not help, the first reason is the one that the user can act on.
        Err(first) => Builder::new(fusion, true).build().map_err(|_| first),
    }
}

/// The node of a tensor's first axis, per tensor or per use.
struct Nodes {
    tensor: SecondaryMap<TensorId, usize>,
    by_use: BTreeMap<InputUse, usize>,
}

struct Builder<'a> {
    fusion: &'a Fusion,
    nodes: Nodes,
    /// (tensor, axis) of each node.
    owner: Vec<(TensorId, usize)>,
    exact: DisjointSets,
    permissive: DisjointSets,
}

impl<'a> Builder<'a> {
    fn new(fusion: &'a Fusion, split_by_use: bool) -> Self {
        let mut owner = Vec::new();
        let mut nodes = Nodes { tensor: SecondaryMap::new(), by_use: BTreeMap::new() };
        let add = |owner: &mut Vec<(TensorId, usize)>, tensor: TensorId| {
            let first = owner.len();
            owner.extend((0..fusion.tensors[tensor].axes.len()).map(|axis| (tensor, axis)));
            first
        };
        for tensor in fusion.tensors.ids() {
            nodes.tensor.set(tensor, add(&mut owner, tensor));
        }
        if split_by_use {
            for (op, data) in fusion.ops.iter() {
                for (operand, input) in data.inputs.iter().enumerate() {
                    if let Operand::Tensor(tensor) = *input
                        && fusion.definition(tensor).is_none()
                    {
                        nodes.by_use.insert(InputUse { op, operand }, add(&mut owner, tensor));
                    }
                }
            }
        }
        let count = owner.len();
        Self { fusion, nodes, owner, exact: DisjointSets::new(count), permissive: DisjointSets::new(count) }
    }

    fn build(mut self) -> Result<DimGraph> {
        for op in self.fusion.ops.ids() {
            self.map_op(op);
        }
        self.number()
    }

    /// Relates the axes of an op's operands with those of its result.
    fn map_op(&mut self, op: OpId) {
        let fusion = self.fusion;
        let data = &fusion.ops[op];
        let output_rank = fusion.tensors[data.output()].axes.len();
        for (operand, input) in data.inputs.iter().enumerate() {
            let Operand::Tensor(input) = *input else { continue };
            let pairs = axis_pairs(&data.kind, operand, fusion.tensors[input].axes.len(), output_rank);
            let first_in = match self.nodes.by_use.get(&InputUse { op, operand }) {
                Some(first) => *first,
                None => self.nodes.tensor[input],
            };
            let first_out = self.nodes.tensor[data.output()];
            for (from, to) in pairs {
                let same_kind = fusion.tensors[input].axes[from].kind == fusion.tensors[data.output()].axes[to].kind;
                self.permissive.union(first_in + from, first_out + to);
                if same_kind {
                    self.exact.union(first_in + from, first_out + to);
                }
            }
        }
    }

    /// Checks well-formedness and numbers the classes.
    fn number(mut self) -> Result<DimGraph> {
        let fusion = self.fusion;
        let mut dims: Vec<Dimension> = Vec::new();
        let mut dim_of_class: BTreeMap<usize, DimId> = BTreeMap::new();
        let mut exact_of_dim: Vec<Option<usize>> = Vec::new();
        for node in 0..self.owner.len() {
            let (tensor, axis) = self.owner[node];
            let data = fusion.tensors[tensor].axes[axis];
            let class = self.permissive.find(node);
            let dim = *dim_of_class.entry(class).or_insert_with(|| {
                exact_of_dim.push(None);
                dims.push(Dimension { extent: data.extent });
                dims.len() - 1
            });
            if data.kind == AxisKind::Broadcast {
                continue;
            }
            let exact = self.exact.find(node);
            match exact_of_dim[dim] {
                None => {
                    exact_of_dim[dim] = Some(exact);
                    dims[dim].extent = data.extent;
                }
                Some(known) if known == exact => {
                    // Prefer a constant extent, which folds.
                    if fusion.const_scalar(data.extent).is_some() {
                        dims[dim].extent = data.extent;
                    }
                }
                Some(_) => {
                    return Err(Diagnostic::unsupported(
                        code::NEEDS_SEGMENTS,
                        format!(
                            "axis {axis} of %{} meets a broadcast that also meets another dimension",
                            fusion.tensors[tensor].name
                        ),
                    )
                    .note("one kernel resolves each broadcast to one dimension; split the fusion"));
                }
            }
        }
        let label = |first: usize, tensor: TensorId, permissive: &mut DisjointSets| -> Result<Vec<AxisLabel>> {
            let mut labels: Vec<AxisLabel> = Vec::new();
            for (axis, data) in fusion.tensors[tensor].axes.iter().enumerate() {
                let dim = dim_of_class[&permissive.find(first + axis)];
                if let Some(other) = labels.iter().position(|label| label.dim == dim) {
                    return Err(Diagnostic::unsupported(
                        code::NEEDS_SEGMENTS,
                        format!(
                            "axes {other} and {axis} of %{} are one dimension of the fusion",
                            fusion.tensors[tensor].name
                        ),
                    )
                    .note("a tensor that meets its own transpose needs a second kernel"));
                }
                labels.push(AxisLabel { dim, concrete: data.kind == AxisKind::Iteration });
            }
            Ok(labels)
        };
        let mut use_labels = BTreeMap::new();
        for (input_use, first) in &self.nodes.by_use {
            let Operand::Tensor(tensor) = fusion.ops[input_use.op].inputs[input_use.operand] else { continue };
            use_labels.insert(*input_use, label(*first, tensor, &mut self.permissive)?);
        }
        let mut labels = SecondaryMap::new();
        for tensor in fusion.tensors.ids() {
            labels.set(tensor, label(self.nodes.tensor[tensor], tensor, &mut self.permissive)?);
        }
        Ok(DimGraph { dims, labels, use_labels })
    }
}
