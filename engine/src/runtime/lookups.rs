//! Whether a launch looks up what there is: the check of a run that is checked.
//!
//! Kernels keep an index among those of the axis that it looks up, and say nothing where it is none of
//! them. So a checked run computes, before the launch, each index of the kernel's lookups on the host, as far as
//! the kernel computes it itself, and refuses what the reference refuses, in its words; of an operation that has become
//! simpler ones the one that reads the index is named. The same goes for where groups end, and for groups that start anywhere.
//!
//! Of a call whose results are known ([`Hints::results`](super::Hints)) the reference took the arguments before, and would
//! take them again: indices that are computed of nothing else are not computed a second time.

use super::executor::Call;
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::{Experts, Form};
use crate::fusion::{self, Bindings, Fusion, Op, OpId, OpKind, Operand, TensorId};
use crate::program::{Launch, Program, Storage, ValueId};
use crate::refeval;
use crate::tensor::{Arg, ArgMeta, HostTensor};
use std::collections::BTreeSet;

/// Reads a value from its first element on.
type Read<'a> = &'a dyn Fn(ValueId) -> Result<Vec<u8>>;

/// Fails with `E0310` if an index of a lookup is none of the axis that it looks up, with `E0213` if offsets are no ends of
/// groups.
pub(super) fn check(call: &Call<'_>, launch: &Launch, read: Read<'_>) -> Result<()> {
    let segment = &call.program.segments.segments[launch.segment];
    let decomposed = fusion::decomposes(&segment.fusion).then(|| fusion::decompose(&segment.fusion)).transpose()?;
    let fusion = decomposed.as_ref().map_or(&*segment.fusion, |decomposed| &decomposed.fusion);
    let is_checked =
        |op: &Op| Places::of(op).is_some() || is(&op.kind, Form::GroupedSums) || ends_of(&op.kind).is_some();
    if !fusion.ops.values().any(is_checked) {
        return Ok(());
    }
    let metas: Vec<ArgMeta> = call.args.iter().map(Arg::meta).collect();
    let whole = call.program.segments.bind(&metas)?;
    let meta = |(operand, value): (&Operand, &Option<ValueId>)| match (operand, value) {
        (Operand::Tensor(_), Some(value)) => Ok(ArgMeta::Tensor(call.program.values[*value].meta.clone())),
        (Operand::Scalar(scalar), _) => Ok(ArgMeta::Scalar(whole.scalar(*scalar))),
        (Operand::Tensor(_), None) => Err(Diagnostic::bug("a tensor that a kernel reads is no value")),
    };
    let metas: Vec<ArgMeta> = segment.inputs.iter().zip(&launch.inputs).map(meta).collect::<Result<_>>()?;
    let bindings = fusion::bind_derived(fusion, &metas)?;
    let taken_before = call.known.map(|_| &**call.program);
    let checker = Checker { fusion, metas, bindings, values: &launch.inputs, taken_before, read };
    fusion.ops.ids().try_for_each(|op| checker.check(op))
}

/// Fails with `E0213` if products with scales of groups that start anywhere have a group that does not fit them, in a definition
/// that is given such arguments. What kernels compute in their place goes by rows, and asks of a row which group it is of.
pub(super) fn check_experts(fusion: &Fusion, args: &[Arg]) -> Result<()> {
    for op in fusion.ops.values().filter(|op| is(&op.kind, Form::ScaledGroups)) {
        let bindings = fusion::bind_args(fusion, args)?;
        let OpKind::Call(call) = &op.kind else { continue };
        let operand = |name: &str| match op.inputs[call.operands(name)] {
            [Operand::Tensor(tensor)] => Ok(tensor),
            _ => Err(Diagnostic::bug(format!("{} has other operands than tensors", call.row.name))),
        };
        let sizes = |name: &str| {
            let sizes = bindings.sizes(fusion, operand(name)?);
            Ok::<_, Box<Diagnostic>>(
                sizes.into_iter().map(|size| usize::try_from(size).unwrap_or(0)).collect::<Vec<_>>(),
            )
        };
        let (&[m, k], &[.., n]) = (&sizes("mat1")?[..], &sizes("mat2")?[..]) else {
            return Err(Diagnostic::bug(format!("{}: a matrix and a stack", call.row.name)));
        };
        let value = |name: &str| {
            let tensor = operand(name)?;
            value_of(fusion, tensor, |operand| match operand {
                Operand::Scalar(scalar) => Ok(Arg::Scalar(bindings.scalar(scalar))),
                Operand::Tensor(_) => {
                    let position = fusion.inputs.iter().position(|input| *input == operand);
                    let given = position.and_then(|at| args.get(at).cloned());
                    given.ok_or_else(|| Diagnostic::bug("an input is not given"))
                }
            })
        };
        let experts = Experts { name: call.row.name, matrix: [m, k, n], scales: sizes("scale1")?.iter().product() };
        let groups = [value("problem_sizes")?, value("expert_offsets")?, value("sf_offsets")?];
        fusion::ops::check_experts(&experts, groups.each_ref())?;
    }
    Ok(())
}

/// A tensor of a fusion as the reference computes it of what it is given.
fn value_of(fusion: &Fusion, tensor: TensorId, given: impl Fn(Operand) -> Result<Arg>) -> Result<HostTensor> {
    if fusion.definition(tensor).is_none() {
        return match given(Operand::Tensor(tensor))? {
            Arg::Tensor(tensor) => Ok(tensor),
            Arg::Scalar(_) => Err(Diagnostic::bug("a tensor is given as a scalar")),
        };
    }
    let part = fusion::part(fusion, "_index", &made_for(fusion, tensor), &[tensor])?;
    let args = part.inputs.iter().map(|operand| given(*operand)).collect::<Result<Vec<_>>>()?;
    let results = refeval::evaluate(&part.fusion, &args)?;
    results.into_iter().next().ok_or_else(|| Diagnostic::bug("an index has no value"))
}

/// The operations that a tensor is computed by, in order of definition.
fn made_for(fusion: &Fusion, tensor: TensorId) -> Vec<OpId> {
    let (mut ops, mut open) = (BTreeSet::new(), vec![tensor]);
    while let Some(op) = open.pop().map(|tensor| fusion.definition(tensor)) {
        if let Some(op) = op.filter(|op| ops.insert(*op)) {
            open.extend(fusion.tensor_inputs(op));
        }
    }
    ops.into_iter().collect()
}

/// Places along an axis of a tensor that another one holds.
struct Places {
    of: Operand,
    index: Operand,
    axis: usize,
}

impl Places {
    /// Those that an operation reads or writes.
    fn of(op: &Op) -> Option<Self> {
        if let Some(lookup) = op.kind.lookup() {
            return Some(Self { of: op.inputs[lookup.table], index: op.inputs[lookup.index], axis: lookup.axis });
        }
        let OpKind::Call(call) = &op.kind else { return None };
        let of = Operand::Tensor(op.output());
        match call.movement().form? {
            Form::Last => Some(Self { of, index: op.inputs[0], axis: call.axis("dim") }),
            Form::Runs | Form::Counts => Some(Self { of, index: op.inputs[0], axis: 0 }),
            _ => None,
        }
    }
}

/// Which operand says where runs end, before the one that has their positions.
fn ends_of(kind: &OpKind) -> Option<usize> {
    match () {
        () if is(kind, Form::PutRuns) => Some(1),
        () if is(kind, Form::PutGroups) => Some(0),
        () => None,
    }
}

fn is(kind: &OpKind, form: Form) -> bool {
    matches!(kind, OpKind::Call(call) if call.movement().form == Some(form))
}

/// The fusion of a launch, and what it is given.
struct Checker<'a> {
    fusion: &'a Fusion,
    metas: Vec<ArgMeta>,
    bindings: Bindings,
    values: &'a [Option<ValueId>],
    /// The program whose arguments the reference took before, if it did.
    taken_before: Option<&'a Program>,
    read: Read<'a>,
}

impl Checker<'_> {
    /// Whether the reference computed a tensor before as it would now: of the call's arguments alone.
    fn is_known(&self, tensor: TensorId) -> bool {
        let Some(program) = self.taken_before else { return false };
        let is_argument = |input: TensorId| {
            let position = self.fusion.inputs.iter().position(|other| *other == Operand::Tensor(input));
            let value = position.and_then(|at| self.values.get(at).copied().flatten());
            value.is_some_and(|value| matches!(program.values[program.root(value).0].storage, Storage::Input(_)))
        };
        let made = made_for(self.fusion, tensor);
        let mut read = made.iter().flat_map(|op| self.fusion.tensor_inputs(*op));
        if made.is_empty() {
            is_argument(tensor)
        } else {
            read.all(|t| self.fusion.definition(t).is_some() || is_argument(t))
        }
    }

    fn check(&self, op: OpId) -> Result<()> {
        let data = &self.fusion.ops[op];
        if is(&data.kind, Form::GroupedSums) {
            return self.check_groups(data);
        }
        if let Some(at) = ends_of(&data.kind) {
            return self.check_ends(data, at);
        }
        let Some(places) = Places::of(data) else { return Ok(()) };
        let [Operand::Tensor(of), Operand::Tensor(index)] = [places.of, places.index] else {
            return Err(Diagnostic::bug(format!("{} looks no tensor up", data.kind.name())));
        };
        if self.is_known(index) {
            return Ok(());
        }
        let size = self.bindings.sizes(self.fusion, of)[places.axis];
        let (name, index) = (data.kind.name(), self.value(index)?);
        if is(&data.kind, Form::Runs) || is(&data.kind, Form::Counts) {
            return fusion::ops::check_runs(name, &index, size);
        }
        fusion::ops::check_positions(name, &index, places.axis, size)
    }

    /// Ends of runs ascend, and an order holds positions.
    fn check_ends(&self, op: &Op, at: usize) -> Result<()> {
        let (Operand::Tensor(ends), Operand::Tensor(order)) = (op.inputs[at], op.inputs[at + 1]) else {
            return Err(Diagnostic::bug(format!("{} has other operands than tensors", op.kind.name())));
        };
        fusion::ops::check_ends(op.kind.name(), &self.value(ends)?, &self.value(order)?)
    }

    /// Groups split rows of the first operand if the second one is a stack, else the summed axis.
    fn check_groups(&self, op: &Op) -> Result<()> {
        let [Operand::Tensor(left), Operand::Tensor(right), Operand::Tensor(offsets)] = op.inputs[..] else {
            return Err(Diagnostic::bug(format!("{} has other operands than tensors", op.kind.name())));
        };
        let axis = usize::from(self.fusion.tensors[right].axes.len() == 2);
        let size = self.bindings.sizes(self.fusion, left)[axis];
        fusion::ops::check_groups(op.kind.name(), &self.value(offsets)?, size)
    }

    /// A tensor as the reference computes it.
    fn value(&self, tensor: TensorId) -> Result<HostTensor> {
        value_of(self.fusion, tensor, |operand| self.argument(operand))
    }

    fn argument(&self, operand: Operand) -> Result<Arg> {
        let tensor = match operand {
            Operand::Scalar(scalar) => return Ok(Arg::Scalar(self.bindings.scalar(scalar))),
            Operand::Tensor(tensor) => tensor,
        };
        let position = self.fusion.inputs.iter().position(|input| *input == Operand::Tensor(tensor));
        let given = position.and_then(|at| Some((self.metas.get(at)?, self.values.get(at).copied().flatten()?)));
        let Some((ArgMeta::Tensor(meta), value)) = given else {
            return Err(Diagnostic::bug(format!("`%{}` is not given", self.fusion.tensors[tensor].name)));
        };
        Ok(Arg::Tensor(HostTensor { meta: meta.clone(), data: (self.read)(value)?.into(), offset: 0 }))
    }
}
