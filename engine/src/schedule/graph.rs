//! Makes the unscheduled working copy of a fusion: one tensor for each tensor
//! of the fusion, with its axes labelled by root axes. Inputs that are read
//! through several views are one tensor per view; each output of the fusion is
//! a global tensor of its own, written by a copy, so that a value that is both
//! read and returned is stored once and never read back.

use super::ir::{Compute, Io, Memory, ScheduledFusion, SourceAxis, Tv, TvId, TvOp, TvOperand};
use crate::axes::{AxisGraph, AxisId, Extent};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::Call;
use crate::fusion::{Fusion, OpKind, Operand, TensorDef, TensorId};
use crate::idgraph::{AxisLabel, DimGraph, DimId, InputUse, analyze};
use crate::kernel::CacheHint;
use crate::num::Value;
use crate::util::{PrimaryMap, SecondaryMap};

/// The working copy. Dead operations are left out.
pub fn scheduled_fusion(fusion: &Fusion) -> Result<ScheduledFusion> {
    super::support::check(fusion)?;
    let graph = analyze(fusion)?;
    let live = live_tensors(fusion);
    let mut builder = GraphBuilder {
        scheduled: ScheduledFusion {
            fusion: fusion.clone(),
            axes: AxisGraph::default(),
            shifts: PrimaryMap::new(),
            bindings: SecondaryMap::new(),
            tensors: PrimaryMap::new(),
            min_blocks: 1,
            steps: Vec::new(),
        },
        graph: &graph,
        roots: SecondaryMap::new(),
        tv_of: SecondaryMap::new(),
    };
    for (position, tensor) in fusion.input_tensors() {
        if live[tensor] {
            builder.input(position, tensor);
        }
    }
    for op in fusion.ops.ids().filter(|op| live[fusion.ops[*op].output()]) {
        builder.op(op)?;
    }
    for (position, tensor) in fusion.outputs.iter().enumerate() {
        builder.output(position, *tensor)?;
    }
    Ok(builder.scheduled)
}

/// Tensors that an output depends on.
fn live_tensors(fusion: &Fusion) -> SecondaryMap<TensorId, bool> {
    let mut live = SecondaryMap::new();
    for output in &fusion.outputs {
        live.set(*output, true);
    }
    for op in fusion.ops.ids().rev() {
        if live[fusion.ops[op].output()] {
            for input in fusion.tensor_inputs(op) {
                live.set(input, true);
            }
        }
    }
    live
}

/// The distribution's parameters, seed and offset, of all operands.
fn random_operands(call: &Call, inputs: &[TvOperand]) -> Vec<TvOperand> {
    let generator = ["rng_seed", "rng_offset"].into_iter().flat_map(|name| call.operands(name));
    (0..2).chain(generator).filter_map(|position| inputs.get(position).copied()).collect()
}

struct GraphBuilder<'a> {
    scheduled: ScheduledFusion,
    graph: &'a DimGraph,
    roots: SecondaryMap<DimId, Option<AxisId>>,
    tv_of: SecondaryMap<TensorId, Option<TvId>>,
}

impl GraphBuilder<'_> {
    /// The root axis of a dimension, made on first use so that unused
    /// dimensions leave no trace.
    fn root(&mut self, dim: DimId) -> AxisId {
        if let Some(axis) = self.roots[dim] {
            return axis;
        }
        let extent = self.graph.dims[dim].extent;
        let extent = match self.scheduled.fusion.const_scalar(extent) {
            Some(Value::Int(value)) => Extent::Const(value),
            _ => Extent::Scalar(extent),
        };
        let name = format!("d{}", self.scheduled.axes.len());
        let axis = self.scheduled.axes.root(name, extent);
        self.roots.set(dim, Some(axis));
        axis
    }

    fn axes(&mut self, labels: &[AxisLabel]) -> Vec<SourceAxis> {
        labels.iter().map(|label| SourceAxis { root: self.root(label.dim), concrete: label.concrete }).collect()
    }

    fn push(&mut self, name: String, source: TensorId, labels: &[AxisLabel], io: Option<Io>, op: Option<TvOp>) -> TvId {
        let axes = self.axes(labels);
        let memory = if io.is_some() { Memory::Global } else { Memory::Local };
        self.scheduled.tensors.push(Tv {
            name,
            dtype: self.scheduled.fusion.tensors[source].dtype,
            axes,
            partial: Vec::new(),
            io,
            source,
            memory,
            tile: None,
            op,
            loops: Vec::new(),
            inline_at: 0,
            prefetch: false,
            cache_hint: CacheHint::Default,
        })
    }

    fn input(&mut self, position: usize, tensor: TensorId) {
        if self.graph.use_labels.is_empty() || self.scheduled.fusion.outputs.contains(&tensor) {
            let name = self.scheduled.fusion.tensors[tensor].name.clone();
            let labels = self.graph.labels[tensor].clone();
            let tv = self.push(name, tensor, &labels, Some(Io::Input(position as u32)), None);
            self.tv_of.set(tensor, Some(tv));
        }
    }

    /// The tensor that operand `operand` of `op` reads.
    fn operand(&mut self, op: crate::fusion::OpId, operand: usize, tensor: TensorId) -> Result<TvId> {
        let input_use = InputUse { op, operand };
        let fusion = &self.scheduled.fusion;
        match (self.graph.use_labels.get(&input_use), fusion.tensors[tensor].def) {
            (Some(labels), TensorDef::Input(position)) => {
                let name = format!("{}_{}", fusion.tensors[tensor].name, self.scheduled.tensors.len());
                let labels = labels.clone();
                Ok(self.push(name, tensor, &labels, Some(Io::Input(position)), None))
            }
            _ => self.defined(tensor),
        }
    }

    /// The working copy's tensor for one that was met before.
    fn defined(&self, tensor: TensorId) -> Result<TvId> {
        let name = &self.scheduled.fusion.tensors[tensor].name;
        self.tv_of[tensor].ok_or_else(|| Diagnostic::bug(format!("%{name} is used before it is scheduled")))
    }

    fn op(&mut self, op: crate::fusion::OpId) -> Result<()> {
        let data = self.scheduled.fusion.ops[op].clone();
        let mut inputs = Vec::with_capacity(data.inputs.len());
        for (position, operand) in data.inputs.iter().enumerate() {
            inputs.push(match *operand {
                Operand::Tensor(tensor) => TvOperand::Tv(self.operand(op, position, tensor)?),
                Operand::Scalar(scalar) => TvOperand::Scalar(scalar),
            });
        }
        let compute = match &data.kind {
            OpKind::Unary(op) => Compute::Unary(*op),
            OpKind::Binary(op) => Compute::Binary(*op),
            OpKind::Ternary(op) => Compute::Ternary(*op),
            OpKind::Cast(_) => Compute::Cast,
            OpKind::Set | OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. } | OpKind::Full => {
                Compute::Copy
            }
            // The axis itself is known below, from the result.
            OpKind::Index { .. } => Compute::Index { root: None },
            OpKind::Call(call) => {
                let Some(distribution) = call.row.random else {
                    let name = &self.scheduled.fusion.tensors[data.output()].name;
                    return Err(Diagnostic::bug(format!("%{name} has no form in schedules, and was not refused")));
                };
                inputs = random_operands(call, &inputs);
                Compute::Random(distribution)
            }
            OpKind::Reduce { op, axes } => {
                let [TvOperand::Tv(input)] = *inputs.as_slice() else {
                    return Err(Diagnostic::bug("a reduction has one tensor operand"));
                };
                let input_axes = &self.scheduled.tensors[input].axes;
                // Reducing a broadcast axis combines one element: nothing to loop over.
                let over = axes
                    .iter()
                    .map(|axis| input_axes[*axis as usize])
                    .filter(|axis| axis.concrete)
                    .map(|axis| axis.root)
                    .collect();
                Compute::Reduce { op: *op, over }
            }
        };
        let labels = self.graph.labels[data.output()].clone();
        let name = self.scheduled.fusion.tensors[data.output()].name.clone();
        let compute = match compute {
            Compute::Reduce { over, .. } if over.is_empty() => Compute::Copy,
            other => other,
        };
        let tv = self.push(name, data.output(), &labels, None, Some(TvOp { compute, inputs }));
        if let OpKind::Index { axis } = data.kind {
            let axis = self.scheduled.tensors[tv].axes[axis as usize];
            let root = axis.concrete.then_some(axis.root);
            self.scheduled.tensors[tv].op = Some(TvOp { compute: Compute::Index { root }, inputs: Vec::new() });
        }
        self.tv_of.set(data.output(), Some(tv));
        Ok(())
    }

    fn output(&mut self, position: usize, tensor: TensorId) -> Result<()> {
        let from = self.defined(tensor)?;
        let labels = self.graph.labels[tensor].clone();
        let name = format!("{}_out{}", self.scheduled.fusion.tensors[tensor].name, position);
        let op = TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(from)] };
        self.push(name, tensor, &labels, Some(Io::Output(position as u32)), Some(op));
        Ok(())
    }
}
