//! From groups of operations to segments that are known to compile.

use super::ahead::{Ahead, try_plan};
use super::facts::OpFacts;
use super::search::{Groups, search};
use crate::array::dense_like;
use crate::compile::{BoundFusion, Plan, PlanSource, output_metas};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{
    self, Bindings, FoundView, Fusion, Operand, Part, ScalarDef, ScalarId, TensorId, UserIds, concretize,
};
use crate::num::Value;
use crate::options::{CompileCx, Phase};
use crate::preseg::Presegmented;
use crate::schedule::heuristic::longest_row;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text;
use crate::util::SecondaryMap;
use std::sync::Arc;

/// Alignment in bytes of what a segment hands on.
pub(super) const ALIGN: u32 = 16;

/// A fusion cut into segments.
#[derive(Clone, Debug)]
pub struct Segments {
    /// The whole, whose values segments name: what passes made of the definition, but its
    /// axes are decided and composite primitives are written in simpler ones.
    pub fusion: Fusion,
    /// The numbers of the definition's values, in the whole.
    pub ids: UserIds,
    /// In an order in which they can run.
    pub segments: Vec<Segment>,
    /// Type and layout that each output of the whole has, as the definition says it.
    pub outputs: Vec<TensorMeta>,
    args: Vec<ArgMeta>,
    bindings: Bindings,
}

/// A part of a fusion that runs at once.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The part as a fusion: a case of its own, where
    /// [it can be written](crate::text::can_be_written).
    pub fusion: Fusion,
    /// Who computes it.
    pub kind: SegmentKind,
    /// The value of the whole that each input is: tensors, then scalars.
    pub inputs: Vec<Operand>,
    /// The tensor of the whole that each output is.
    pub outputs: Vec<TensorId>,
    /// Type and layout that each output will have.
    pub metas: Vec<TensorMeta>,
    /// Results of earlier segments that no later one reads, and the whole does not return.
    pub last_uses: Vec<TensorId>,
}

/// Who computes a segment.
#[derive(Clone, Debug)]
pub enum SegmentKind {
    /// One kernel.
    Kernel(Arc<Plan>),
    /// Nobody: its result lies in memory of the tensor that it reads.
    View,
    /// The host, one operation: why no kernel does.
    Host(Box<Diagnostic>),
}

impl Segments {
    /// The value of a scalar of the whole that follows from sizes. Scalar inputs, and what
    /// is computed from them, are the caller's: they may be others in each call.
    pub fn scalar(&self, scalar: ScalarId) -> Option<Value> {
        self.fusion.depends_on_sizes_alone(scalar).then(|| self.bindings.scalar(scalar))
    }

    /// A value of the whole for people: the name of a tensor, what a scalar is.
    pub fn shown(&self, operand: Operand) -> String {
        match operand {
            Operand::Tensor(tensor) => format!("%{}", self.fusion.tensors[tensor].name),
            Operand::Scalar(scalar) => match (self.scalar(scalar), &self.fusion.scalars[scalar].def) {
                (Some(value), _) => format!("{scalar} = {value:?}"),
                (None, ScalarDef::Input { name, .. }) => format!("{scalar} = %{name}"),
                (None, _) => scalar.to_string(),
            },
        }
    }

    /// A segment in the words of errors: its number, and the operation that it ends with.
    pub(crate) fn place(&self, segment: usize) -> String {
        place(&self.fusion, segment, &self.segments[segment].fusion)
    }

    /// Whether the segments are right for these arguments, which are bound: tensors lie as those for
    /// which it was cut, and other values of scalars give the same sizes.
    pub(crate) fn check(&self, args: &[ArgMeta], bindings: &Bindings) -> Result<()> {
        let is_other = |(given, known): (&ArgMeta, &ArgMeta)| matches!(given, ArgMeta::Tensor(_)) && given != known;
        let other = args.iter().zip(&self.args).position(is_other);
        let mut tensors = self.fusion.tensors.ids();
        let resized = tensors.find(|t| bindings.sizes(&self.fusion, *t) != self.bindings.sizes(&self.fusion, *t));
        let what = match (other, resized) {
            (Some(position), _) => format!("argument {position} lies otherwise"),
            (None, Some(tensor)) => format!("`%{}` has another size", self.fusion.tensors[tensor].name),
            (None, None) => return Ok(()),
        };
        let message = format!("fusion @{} was cut for other arguments: {what}", self.fusion.name);
        Err(Diagnostic::user(code::USAGE, message).note("cut it again for these"))
    }
}

impl SegmentKind {
    /// Whether it is a kernel.
    pub fn is_kernel(&self) -> bool {
        self.kernel().is_some()
    }
    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&Arc<Plan>> {
        match self {
            Self::Kernel(plan) => Some(plan),
            Self::View | Self::Host(_) => None,
        }
    }
    /// Who computes it, in a word: the heuristic of a kernel, `view` or `host`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel(plan) => plan.scheduler(),
            Self::View => "view",
            Self::Host(_) => "host",
        }
    }
}

impl std::fmt::Display for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |operands: &[Operand]| operands.iter().map(|one| self.shown(*one)).collect::<Vec<_>>().join(", ");
        let tensors = |tensors: &[TensorId]| tensors.iter().copied().map(Operand::Tensor).collect::<Vec<_>>();
        for (position, segment) in self.segments.iter().enumerate() {
            match &segment.kind {
                SegmentKind::Kernel(plan) => writeln!(f, "segment {position}: kernel {}", plan.scheduler())?,
                SegmentKind::View => writeln!(f, "segment {position}: view")?,
                SegmentKind::Host(why) => writeln!(f, "segment {position}: host, {}: {}", why.code.0, why.message)?,
            }
            writeln!(f, "  reads {}", list(&segment.inputs))?;
            writeln!(f, "  returns {}", list(&tensors(&segment.outputs)))?;
            if !segment.last_uses.is_empty() {
                writeln!(f, "  last uses {}", list(&tensors(&segment.last_uses)))?;
            }
            for line in text::print(&segment.fusion).lines() {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// Cuts a fusion for its arguments. Kernels come from `plans`.
pub(crate) fn segment(cx: &CompileCx<'_>, plans: &dyn PlanSource, presegmented: &Presegmented<'_>) -> Result<Segments> {
    let bound = &presegmented.bound();
    let &BoundFusion { fusion, args, alignments, .. } = bound;
    let (whole, ids, cuts) = decide(fusion, &presegmented.ids, args)?;
    let bindings = fusion::bind(&whole, args)?;
    let outputs = presegmented.outputs.clone();
    let mut segments = {
        let facts = OpFacts::new(&whole, &bindings, &cuts);
        let mut compiler = SegmentCompiler::new(plans, &facts, args, alignments);
        compiler.infers = cx.options.infer_contiguity;
        compiler.threads = cx.options.threads();
        compiler.set_wanted_strides(&outputs, args);
        let can_be_one = !whole.ops.ids().any(|op| facts.host[op] || facts.cuts[op]) && whole.updates.is_empty();
        let mut alone = None;
        if can_be_one {
            alone = compiler.whole_as_kernel(bound)?;
        }
        match alone {
            Some(segment) => vec![segment],
            None => {
                let groups = cx.span(Phase::Schedule, "segment", 0, || search(&facts, longest_row(cx.device)));
                compiler.settle(groups)?
            }
        }
    };
    find_last_uses(&whole, &mut segments);
    Ok(Segments { fusion: whole, ids, segments, outputs, args: args.to_vec(), bindings })
}

/// The whole with decided axes, the numbers of its values, and the tensors before
/// which it is cut.
fn decide(fusion: &Fusion, ids: &UserIds, args: &[ArgMeta]) -> Result<(Fusion, UserIds, Vec<TensorId>)> {
    let simple = fusion::decompose(fusion)?;
    let facts = concretize::facts(&simple.fusion, &fusion::bind(&simple.fusion, args)?);
    let concrete = concretize::concretize(&simple.fusion, &facts)?;
    let ids = ids.through(&simple).through(&concrete);
    let cuts = fusion.ops.values().filter(|op| match &op.kind {
        fusion::OpKind::Call(call) => call.movement().cuts,
        _ => false,
    });
    let moved = |tensor: TensorId| simple.tensors[tensor].and_then(|tensor| concrete.tensors[tensor]);
    let cuts = cuts.filter_map(|op| moved(op.output())).collect();
    Ok((concrete.fusion, ids, cuts))
}

/// Part `position` of a whole in the words of errors.
fn place(whole: &Fusion, position: usize, part: &Fusion) -> String {
    let ends = match part.ops.values().last() {
        Some(op) => {
            let (output, kind) = (&part.tensors[op.output()].name, op.kind.name());
            format!(", which ends with `%{output} = {kind}`, operation {} of {0}", part.ops.len())
        }
        None => String::new(),
    };
    format!("in segment {position} of fusion @{}{ends}", whole.name)
}

/// Says of each segment which results of earlier ones it is the last to read.
fn find_last_uses(whole: &Fusion, segments: &mut [Segment]) {
    let mut kept: SecondaryMap<TensorId, bool> = SecondaryMap::new();
    let returned = whole.outputs.iter().chain(whole.updates.iter().map(|update| &update.tensor));
    returned.for_each(|tensor| kept.set(*tensor, true));
    for segment in segments.iter_mut().rev() {
        for operand in &segment.inputs {
            if let Operand::Tensor(tensor) = *operand
                && whole.definition(tensor).is_some()
                && !kept[tensor]
            {
                kept.set(tensor, true);
                segment.last_uses.push(tensor);
            }
        }
    }
}

/// Types and layouts of results, and the alignment of each.
type Layouts = (Vec<TensorMeta>, u32);

/// Compiles segments in order, and knows how what they hand on lies in memory.
pub(super) struct SegmentCompiler<'a> {
    pub(super) plans: &'a dyn PlanSource,
    pub(super) facts: &'a OpFacts<'a>,
    pub(super) metas: SecondaryMap<TensorId, Option<(TensorMeta, u32)>>,
    pub(super) threads: usize,
    /// Whether results of views and of the host are taken for what they are in memory.
    infers: bool,
    /// Strides in which a kernel writes what leaves the whole.
    wanted: SecondaryMap<TensorId, Option<Vec<i64>>>,
}

impl<'a> SegmentCompiler<'a> {
    fn new(plans: &'a dyn PlanSource, facts: &'a OpFacts<'a>, args: &[ArgMeta], alignments: &[u32]) -> Self {
        let mut metas = SecondaryMap::new();
        for (position, tensor) in facts.fusion.input_tensors() {
            if let Some(ArgMeta::Tensor(meta)) = args.get(position) {
                metas.set(tensor, Some((meta.clone(), alignments.get(position).copied().unwrap_or(ALIGN))));
            }
        }
        Self { plans, facts, metas, threads: 1, infers: true, wanted: SecondaryMap::new() }
    }

    /// Kernels write outputs as the definition lays them out, and what is written into an
    /// input in that input's order, so that it is copied in few runs.
    fn set_wanted_strides(&mut self, outputs: &[TensorMeta], args: &[ArgMeta]) {
        let whole = self.facts.fusion;
        for (output, meta) in whole.outputs.iter().zip(outputs) {
            self.wanted.set(*output, Some(meta.strides.clone()));
        }
        for update in &whole.updates {
            if let Some(ArgMeta::Tensor(target)) = args.get(update.input as usize) {
                self.wanted.set(update.tensor, Some(dense_like(&target.sizes, &target.strides)));
            }
        }
    }

    /// All groups as segments; those that are refused as kernels in two halves, and
    /// in the end operation by operation on the host. What is wrong with several is told together.
    fn settle(&mut self, mut groups: Groups<'a>) -> Result<Vec<Segment>> {
        let mut ahead = Ahead::new(self, &groups);
        let mut segments: Vec<Segment> = Vec::new();
        let mut errors: Vec<Box<Diagnostic>> = Vec::new();
        while segments.len() + errors.len() < groups.ops.len() {
            let position = segments.len() + errors.len();
            let (candidate, planned) = match ahead.kernel(self, &groups, position) {
                Ok(found) => found,
                Err(error) => {
                    errors.push(error);
                    break;
                }
            };
            let (segment, align) = match planned {
                Ok(Ok(plan)) => (candidate.into_segment(SegmentKind::Kernel(plan)), ALIGN),
                // Groups before it hand on what it does not repeat any more.
                Ok(Err(_)) if groups.read_instead(position) => {
                    segments.clear();
                    errors.clear();
                    continue;
                }
                Ok(Err(refusal)) if groups.ops[position].len() == 1 => match self.view(&groups, position)? {
                    Some(view) => view,
                    None => (self.host(&groups, position, refusal)?, ALIGN),
                },
                Ok(Err(_)) => {
                    groups.halve(position);
                    continue;
                }
                // Those behind it are compiled as if it had been: there may be more to tell.
                Err(error) => {
                    errors.push(error.note(place(self.facts.fusion, position, &candidate.part.fusion)));
                    self.know(&candidate.part.outputs, &candidate.metas, ALIGN);
                    continue;
                }
            };
            self.know(&segment.outputs, &segment.metas, align);
            segments.push(segment);
        }
        Diagnostic::together(errors).map_or(Ok(segments), Err)
    }

    /// From now on, how tensors lie and are aligned is known.
    pub(super) fn know(&mut self, tensors: &[TensorId], metas: &[TensorMeta], align: u32) {
        for (tensor, meta) in tensors.iter().zip(metas) {
            self.metas.set(*tensor, Some((meta.clone(), align)));
        }
    }

    pub(super) fn part(&self, groups: &Groups<'_>, position: usize) -> Result<Part> {
        let suffix = if groups.ops.len() == 1 { String::new() } else { format!("_{position}") };
        fusion::part(self.facts.fusion, &suffix, &groups.ops[position], &groups.results(position))
    }

    /// Types, layouts and alignments of what a part reads.
    pub(super) fn args(&self, part: &Part) -> Result<(Vec<ArgMeta>, Vec<u32>)> {
        let arg = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => Ok((ArgMeta::Scalar(self.facts.bindings.scalar(scalar)), ALIGN)),
            Operand::Tensor(tensor) => match &self.metas[tensor] {
                Some((meta, align)) => Ok((ArgMeta::Tensor(meta.clone()), *align)),
                None => Err(Diagnostic::bug(format!("{tensor} is read by a segment before one returns it"))),
            },
        };
        Ok(part.inputs.iter().map(arg).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// The fusion itself as one kernel, if it can be one.
    fn whole_as_kernel(&self, bound: &BoundFusion<'_>) -> Result<Option<Segment>> {
        let whole = self.facts.fusion;
        let (inputs, outputs) = (whole.inputs.clone(), whole.outputs.clone());
        let part = Part { fusion: bound.fusion.clone(), inputs, outputs };
        let metas = self.kernel_metas(bound, &part.outputs)?;
        let planned = try_plan(self.plans, bound, &metas)?;
        Ok(planned.ok().map(|plan| new_segment(part, SegmentKind::Kernel(plan), metas)))
    }

    /// Types and layouts of what a kernel of a part writes.
    pub(super) fn kernel_metas(&self, bound: &BoundFusion<'_>, outputs: &[TensorId]) -> Result<Vec<TensorMeta>> {
        let mut metas = output_metas(bound)?;
        for (meta, output) in metas.iter_mut().zip(outputs) {
            if let Some(strides) = &self.wanted[*output] {
                meta.strides.clone_from(strides);
            }
        }
        Ok(metas)
    }

    /// A group of one operation whose result lies in memory of the tensor that it reads,
    /// and how its element 0 is aligned there.
    fn view(&self, groups: &Groups<'_>, position: usize) -> Result<Option<(Segment, u32)>> {
        let OpFacts { fusion, bindings, .. } = self.facts;
        let op = groups.ops[position][0];
        let read = fusion.tensor_inputs(op).next().and_then(|tensor| self.metas[tensor].as_ref());
        let Some((operand, align)) = read else { return Ok(None) };
        let Some(FoundView { place, copies }) = fusion::find_view(fusion, bindings, op, operand)? else {
            return Ok(None);
        };
        let output = fusion.ops[op].output();
        let meta = TensorMeta { dtype: operand.dtype, sizes: bindings.sizes(fusion, output), strides: place.strides };
        let meta = self.assumed_layout(meta);
        // Scalars may have other values in the next call, and then it starts elsewhere.
        let is_fixed = |operand: &Operand| match *operand {
            Operand::Tensor(_) => true,
            Operand::Scalar(scalar) => fusion.depends_on_sizes_alone(scalar),
        };
        let bytes = operand.dtype.bytes() as u64;
        let start =
            if fusion.ops[op].inputs.iter().all(is_fixed) { place.offset.unsigned_abs() * bytes } else { bytes };
        let align = if copies { ALIGN } else { *align };
        let align = if start == 0 { align } else { align.min(1 << start.trailing_zeros().min(ALIGN.trailing_zeros())) };
        Ok(Some((new_segment(self.part(groups, position)?, SegmentKind::View, vec![meta]), align)))
    }

    /// What later segments are told of a layout.
    fn assumed_layout(&self, meta: TensorMeta) -> TensorMeta {
        if self.infers { meta } else { TensorMeta::contiguous(meta.dtype, &meta.sizes) }
    }

    /// A group of one operation, computed by the host.
    fn host(&self, groups: &Groups<'_>, position: usize, why: Box<Diagnostic>) -> Result<Segment> {
        let part = self.part(groups, position)?;
        let (args, alignments) = self.args(&part)?;
        // The reason by the names that the user gave.
        let bindings = fusion::bind(&part.fusion, &args)?;
        let bound = BoundFusion { fusion: &part.fusion, bindings: &bindings, args: &args, alignments: &alignments };
        let why = try_plan(self.plans, &bound, &self.kernel_metas(&bound, &part.outputs)?)?.err().unwrap_or(why);
        let metas = self.host_metas(&bound)?;
        Ok(new_segment(part, SegmentKind::Host(why), metas))
    }

    fn host_metas(&self, bound: &BoundFusion<'_>) -> Result<Vec<TensorMeta>> {
        let layouts = fusion::layouts(bound.fusion, bound.bindings, bound.args)?;
        Ok(bound.fusion.outputs.iter().map(|output| self.assumed_layout(layouts[*output].clone())).collect())
    }

    /// What a group of an operation without a kernel form returns, and how that is aligned.
    pub(super) fn off_kernel(&self, groups: &Groups<'_>, position: usize) -> Result<(Vec<TensorId>, Layouts)> {
        if let Some((view, align)) = self.view(groups, position)? {
            return Ok((view.outputs, (view.metas, align)));
        }
        let part = self.part(groups, position)?;
        let (args, alignments) = self.args(&part)?;
        let bindings = fusion::bind(&part.fusion, &args)?;
        let bound = BoundFusion { fusion: &part.fusion, bindings: &bindings, args: &args, alignments: &alignments };
        let metas = self.host_metas(&bound)?;
        Ok((part.outputs, (metas, ALIGN)))
    }
}

pub(super) fn new_segment(part: Part, kind: SegmentKind, metas: Vec<TensorMeta>) -> Segment {
    let Part { fusion, inputs, outputs } = part;
    Segment { fusion, kind, inputs, outputs, metas, last_uses: Vec::new() }
}
