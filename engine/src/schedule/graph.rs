//! Makes the unscheduled working copy of a fusion: one tensor for each of its values
//! ([`crate::axes`]), over the axes of these. Inputs that are read through several
//! views are one tensor per view; each output of the fusion is
//! a global tensor of its own, written by a copy, so that a value that is both
//! read and returned is stored once and never read back.

use super::ir::{Compute, Io, Memory, ScheduledFusion, Tv, TvId, TvOp, TvOperand};
use super::names::Names;
use super::support::widens;
use crate::axes::{AxisId, Forks, FusionAxes, FusionValue, ValueId, analyze};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Call, Form};
use crate::fusion::{Fusion, OpId, OpKind, Operand, TensorDef};
use crate::kernel::CacheHint;
use crate::util::{PrimaryMap, SecondaryMap};

/// The working copy for a heuristic. Dead operations are left out.
pub fn scheduled_fusion(fusion: &Fusion) -> Result<ScheduledFusion> {
    working_copy(fusion, Author::Heuristic)
}

/// The working copy for somebody who writes the schedule: slices and reshapes too,
/// of which heuristics know nothing, and uses that need other axes than others compute their operands anew.
pub fn fusion_by_hand(fusion: &Fusion) -> Result<ScheduledFusion> {
    working_copy(fusion, Author::Caller)
}

/// Who schedules a fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// A heuristic.
    Heuristic,
    /// The caller.
    Caller,
}

/// The working copy for whom it may concern.
pub(crate) fn working_copy(fusion: &Fusion, by: Author) -> Result<ScheduledFusion> {
    super::support::check(fusion, by)?;
    // What is joined may be read at two places at a time.
    let forks = if by == Author::Caller || fusion.ops.values().any(|op| widens(&op.kind)) {
        Forks::Uses
    } else {
        Forks::Inputs
    };
    let FusionAxes { graph, values, outputs } = analyze(fusion, forks)?;
    let mut builder = GraphBuilder {
        scheduled: ScheduledFusion {
            fusion: fusion.clone(),
            axes: graph,
            shifts: PrimaryMap::new(),
            bindings: SecondaryMap::new(),
            tensors: PrimaryMap::new(),
            min_blocks: 1,
            steps: Vec::new(),
        },
        tv_of: SecondaryMap::new(),
        names: Names::new(fusion.tensors.values().map(|data| data.name.clone())),
    };
    for (id, value) in values.iter() {
        let tv = match value.op {
            None => builder.input(value)?,
            Some(op) => builder.result(op, value)?,
        };
        builder.tv_of.set(id, Some(tv));
    }
    for (position, output) in outputs.into_iter().enumerate() {
        builder.output(position, output, &values[output])?;
    }
    Ok(builder.scheduled)
}

/// The distribution's parameters, seed and offset, of all operands.
fn random_operands(call: &Call, inputs: &[TvOperand]) -> Vec<TvOperand> {
    let generator = ["rng_seed", "rng_offset"].into_iter().flat_map(|name| call.operands(name));
    (0..2).chain(generator).filter_map(|position| inputs.get(position).copied()).collect()
}

/// How the elements of a result are those of others, and which operands it reads.
fn moved(call: &Call, form: Form, value: &FusionValue) -> (Compute, Vec<usize>) {
    // The axes of an operand that end elsewhere than those of the result.
    let within = |position: usize| -> Vec<AxisId> {
        let operand = value.operands.get(position).and_then(Option::as_ref);
        let axes = operand.into_iter().flat_map(|operand| operand.axes.iter().zip(&value.axes));
        axes.filter_map(|(own, result)| own.indexed().filter(|own| Some(*own) != result.indexed())).collect()
    };
    match form {
        Form::Pad => {
            let x: Vec<usize> = call.operands("x").collect();
            let within = x.iter().map(|position| within(*position)).collect();
            (Compute::Join { within }, x.into_iter().chain(call.operands("value")).collect())
        }
        Form::Cat => {
            let tensors: Vec<usize> = call.operands("tensors").collect();
            let tested = tensors.split_last().map_or(&[][..], |(_, tested)| tested);
            let dim = call.axis("dim");
            let axis = |position: usize| value.operands[position].as_ref().and_then(|own| own.axes[dim].indexed());
            let within = tested.iter().map(|position| axis(*position).into_iter().collect()).collect();
            (Compute::Join { within }, tensors)
        }
        _ => (Compute::Copy, call.operands("x").collect()),
    }
}

struct GraphBuilder {
    scheduled: ScheduledFusion,
    tv_of: SecondaryMap<ValueId, Option<TvId>>,
    /// Names of the fusion's tensors, and of those that were made beside them.
    names: Names,
}

impl GraphBuilder {
    fn push(&mut self, name: String, value: &FusionValue, io: Option<Io>, op: Option<TvOp>) -> TvId {
        let memory = if io.is_some() { Memory::Global } else { Memory::Local };
        self.scheduled.tensors.push(Tv {
            name,
            dtype: self.scheduled.fusion.tensors[value.tensor].dtype,
            axes: value.axes.clone(),
            partial: Vec::new(),
            io,
            source: value.tensor,
            memory,
            tile: None,
            op,
            loops: Vec::new(),
            inline_at: 0,
            compute_with: 0,
            stages: 0,
            cache_hint: CacheHint::Default,
        })
    }

    /// The tensor of an input, or of one view of it.
    fn input(&mut self, value: &FusionValue) -> Result<TvId> {
        let data = &self.scheduled.fusion.tensors[value.tensor];
        let TensorDef::Input(position) = data.def else {
            return Err(Diagnostic::bug(format!("%{} is no input, and nothing computes it", data.name)));
        };
        let name = match value.is_fork {
            true => self.names.fresh(format!("{}_{}", data.name, self.scheduled.tensors.len())),
            false => data.name.clone(),
        };
        Ok(self.push(name, value, Some(Io::Input(position)), None))
    }

    /// The tensor of a value that an operation or an output reads.
    fn defined(&self, value: ValueId) -> Result<TvId> {
        self.tv_of[value].ok_or_else(|| Diagnostic::bug("a value is used before it is scheduled"))
    }

    /// The tensor that an operation computes.
    fn result(&mut self, op: OpId, value: &FusionValue) -> Result<TvId> {
        let data = self.scheduled.fusion.ops[op].clone();
        let mut inputs = Vec::with_capacity(data.inputs.len());
        for (operand, read) in data.inputs.iter().zip(&value.operands) {
            inputs.push(match (operand, read) {
                (Operand::Scalar(scalar), _) => TvOperand::Scalar(*scalar),
                (Operand::Tensor(_), Some(read)) => TvOperand::Tv(self.defined(read.value)?),
                (Operand::Tensor(_), None) => return Err(Diagnostic::bug("an operand has no value")),
            });
        }
        let mut name = self.scheduled.fusion.tensors[value.tensor].name.clone();
        if value.is_fork {
            name = self.names.fresh(name);
        }
        let compute = match &data.kind {
            OpKind::Unary(op) => Compute::Unary(*op),
            OpKind::Binary(op) => Compute::Binary(*op),
            OpKind::Ternary(op) => Compute::Ternary(*op),
            OpKind::Cast(_) => Compute::Cast,
            OpKind::Set | OpKind::Broadcast { .. } | OpKind::Squeeze { .. } | OpKind::Permute { .. } | OpKind::Full => {
                Compute::Copy
            }
            OpKind::Index { axis } => Compute::Index { root: value.axes[*axis as usize].indexed() },
            OpKind::Call(call) => match (call.row.random, call.movement().form) {
                (Some(distribution), _) => {
                    inputs = random_operands(call, &inputs);
                    Compute::Random(distribution)
                }
                (None, Some(form)) if super::support::is_moved(form) => {
                    let (compute, read) = moved(call, form, value);
                    inputs = read.into_iter().filter_map(|position| inputs.get(position).copied()).collect();
                    compute
                }
                _ => match call.lookup() {
                    Some(lookup) => {
                        let operands = [lookup.table, lookup.index].map(|position| inputs.get(position).copied());
                        inputs = operands.into_iter().flatten().collect();
                        Compute::Lookup
                    }
                    None => {
                        let message = format!("%{name} has no form in schedules, and was not refused");
                        return Err(Diagnostic::bug(message));
                    }
                },
            },
            OpKind::Reduce { op, axes } => {
                let [TvOperand::Tv(input)] = *inputs.as_slice() else {
                    return Err(Diagnostic::bug("a reduction has one tensor operand"));
                };
                // Reducing a broadcast axis combines one element: nothing to loop over.
                let input_axes = &self.scheduled.tensors[input].axes;
                let over: Vec<_> = axes.iter().filter_map(|axis| input_axes[*axis as usize].indexed()).collect();
                if over.is_empty() { Compute::Copy } else { Compute::Reduce { op: *op, over } }
            }
        };
        Ok(self.push(name, value, None, Some(TvOp { compute, inputs })))
    }

    fn output(&mut self, position: usize, value: ValueId, data: &FusionValue) -> Result<()> {
        let from = self.defined(value)?;
        let name = format!("{}_out{}", self.scheduled.fusion.tensors[data.tensor].name, position);
        let name = self.names.fresh(name);
        let op = TvOp { compute: Compute::Copy, inputs: vec![TvOperand::Tv(from)] };
        self.push(name, data, Some(Io::Output(position as u32)), Some(op));
        Ok(())
    }
}
