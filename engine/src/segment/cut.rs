//! From groups of operations to segments that are known to compile.

use super::across::has_large_rows;
use super::ahead::Candidate;
use super::aliases::Aliases;
use super::derived::{Derived, Formed, KernelPart, Whole, bind_again};
use super::facts::{OpFacts, Rows, is_reshape};
use super::joined::{Joined, Place, Places};
use super::moments::{self, Moments};
use super::partial;
use super::search::Groups;
use super::several::{Several, computes_for_nothing, has_joins_and_long_functions};
use crate::array::{dense_like, view_strides};
use crate::compile::{
    BoundFusion, KernelChoice, KernelForm, Plan, PlanSource, bind_launch, check_together, choose_kernel, output_metas,
    result_metas,
};
use crate::diag::{Diagnostic, DiagnosticKind, Result, code};
use crate::fusion::{
    self, Bindings, FoundView, Fusion, OpId, Operand, Part, ScalarDef, ScalarId, TensorId, UserIds, may_be_view,
};
use crate::num::Value;
use crate::options::CompileCx;
use crate::products::{Activation, FoundProduct, find_activation, find_product};
use crate::schedule::PlacedOutput;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text;
use crate::util::SecondaryMap;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Alignment in bytes of what a segment hands on.
pub(super) const ALIGN: u32 = 16;

/// A fusion cut into segments.
#[derive(Clone, Debug)]
pub struct Segments {
    /// The whole, whose values segments name: what passes made of the definition, but its
    /// axes are decided and composite primitives are written in simpler ones.
    pub fusion: Arc<Fusion>,
    /// The numbers of the definition's values, in the whole.
    pub ids: Arc<UserIds>,
    /// In an order in which they can run.
    pub segments: Vec<Segment>,
    /// Type and layout that each output of the whole has, as the definition says it: where
    /// it has memory of its own.
    pub outputs: Vec<TensorMeta>,
    /// How results may lie in memory of arguments, or of other results; none if they may not.
    aliases: Option<Aliases>,
    /// The tensors that are written into their places in others.
    places: Places,
    args: Vec<ArgMeta>,
    bindings: Bindings,
}

/// A part of a fusion that runs at once.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The part as a fusion: a case of its own, where
    /// [it can be written](crate::text::can_be_written).
    pub fusion: Arc<Fusion>,
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
    /// Nobody: what it joins was written where it lies in the result.
    Joined,
    /// A library of the device: one operation, or a product with its activation.
    Library(Arc<LibraryPart>),
    /// The host, one operation: why no kernel does.
    Host(Box<Diagnostic>),
}

/// An operation that a library computes, with what it computes of the result.
#[derive(Clone, Debug)]
pub struct LibraryPart {
    /// What the library is asked for.
    pub found: FoundProduct,
    /// The input of the segment that each operand is.
    pub operands: Vec<usize>,
    /// Why no kernel computes it.
    pub why: Box<Diagnostic>,
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

    /// Where a tensor is written into another, that place.
    pub(crate) fn place_of(&self, tensor: TensorId) -> Option<&Place> {
        self.places[tensor].as_ref()
    }

    /// Whether a result may be returned as a view that lies so, of an argument or of another result.
    pub(crate) fn may_alias(&self, result: TensorId, view: &TensorMeta) -> bool {
        self.aliases.as_ref().is_some_and(|aliases| aliases.fits(result, view))
    }

    /// A segment in the words of errors: its number, and the operation that it ends with.
    pub(crate) fn place(&self, segment: usize) -> String {
        place(&self.fusion, segment, &self.segments[segment].fusion)
    }

    /// The values of scalars for a call that the segments are right for: tensors lie as those for
    /// which it was cut, and other values of scalars give the same sizes.
    pub(crate) fn bind(&self, args: &[ArgMeta]) -> Result<Cow<'_, Bindings>> {
        if args == self.args {
            return Ok(Cow::Borrowed(&self.bindings));
        }
        let bindings = fusion::bind(&self.fusion, args)?;
        let is_other = |(given, known): (&ArgMeta, &ArgMeta)| matches!(given, ArgMeta::Tensor(_)) && given != known;
        let other = args.iter().zip(&self.args).position(is_other);
        let mut tensors = self.fusion.tensors.ids();
        let resized = tensors.find(|t| bindings.sizes(&self.fusion, *t) != self.bindings.sizes(&self.fusion, *t));
        let what = match (other, resized) {
            (Some(position), _) => format!("argument {position} lies otherwise"),
            (None, Some(tensor)) => format!("`%{}` has another size", self.fusion.tensors[tensor].name),
            (None, None) => return Ok(Cow::Owned(bindings)),
        };
        let message = format!("fusion @{} was cut for other arguments: {what}", self.fusion.name);
        Err(Diagnostic::user(code::USAGE, message).note("cut it again for these"))
    }
}

impl SegmentKind {
    /// Whether nobody computes it.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::View | Self::Joined)
    }
    /// Whether it is a kernel.
    pub fn is_kernel(&self) -> bool {
        self.kernel().is_some()
    }
    /// The kernel, if it is one.
    pub fn kernel(&self) -> Option<&Arc<Plan>> {
        match self {
            Self::Kernel(plan) => Some(plan),
            Self::View | Self::Joined | Self::Library(_) | Self::Host(_) => None,
        }
    }
    /// Why no kernel computes it, if the host or a library does.
    pub fn refusal(&self) -> Option<&Diagnostic> {
        match self {
            Self::Host(why) => Some(why),
            Self::Library(part) => Some(&part.why),
            Self::Kernel(_) | Self::View | Self::Joined => None,
        }
    }
    /// Who computes it, in a word: the heuristic of a kernel, `view`, `joined`, `library` or `host`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel(plan) => plan.scheduler(),
            Self::View => "view",
            Self::Joined => "joined",
            Self::Library(_) => "library",
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
                SegmentKind::View | SegmentKind::Joined => writeln!(f, "segment {position}: {}", segment.kind.name())?,
                SegmentKind::Library(part) => {
                    let LibraryPart { found, why, .. } = &**part;
                    writeln!(f, "segment {position}: library, {found}; {}: {}", why.code.0, why.message)?;
                }
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

/// Cuts a definition for its arguments. Kernels come from `plans`, what else does not depend
/// on sizes from `derived`, which is of this definition.
pub(crate) fn segment(
    cx: &CompileCx<'_>,
    plans: &dyn PlanSource,
    derived: &Derived,
    bound: &BoundFusion<'_>,
) -> Result<Segments> {
    let planner = KernelPlanner { cx, plans };
    if cx.options.schedule.is_some() {
        return planner.as_scheduled(bound);
    }
    let (whole, bindings) = derived.whole(cx, bound)?;
    let (whole, bindings) = match unheld_moments(cx, &whole.fusion, &bindings, bound.args) {
        found if found.is_empty() => (whole, bindings),
        found => whole.in_one_go(cx, found, bound.args)?,
    };
    let (whole, bindings) = match partial::find(&whole.fusion, &bindings) {
        found if found.is_empty() => (whole, bindings),
        found => whole.of_reduced(cx, found, bound.args)?,
    };
    let outputs = result_metas(bound)?;
    let may_alias = cx.options.alias_results && has_views(&whole.fusion);
    let aliases = if may_alias { Aliases::new(&whole.fusion, &bindings, bound, &outputs)? } else { Aliases::default() };
    let several = Several { planner, whole: &whole, bindings: &bindings, aliases: &aliases, bound, outputs: &outputs };
    let can_be_one = whole.can_be_one && whole.fusion.ops.ids().all(|op| !aliases.ops[op]);
    let is_asked = has_large_rows(&whole.fusion, &bindings) || has_joins_and_long_functions(&whole.fusion);
    let known = (can_be_one && is_asked).then(|| several.facts(true));
    let is_better_cut = |facts: &OpFacts<'_>| facts.holds_rows_across() || computes_for_nothing(facts);
    let is_one = can_be_one && !known.as_ref().is_some_and(is_better_cut);
    let alone = if is_one { planner.alone(&whole, &bindings, bound, &outputs)? } else { None };
    let (mut segments, places) = match alone {
        Some(segment) => (vec![segment], Places::default()),
        None => several.segments(known)?,
    };
    find_last_uses(&whole.fusion, &mut segments);
    let (fusion, ids, args) = (Arc::clone(&whole.fusion), Arc::clone(&whole.ids), bound.args.to_vec());
    let aliases = may_alias.then_some(aliases);
    Ok(Segments { fusion, ids, segments, outputs, aliases, places, args, bindings })
}

/// The moments of rows that blocks do not hold.
fn unheld_moments(cx: &CompileCx<'_>, fusion: &Fusion, bindings: &Bindings, args: &[ArgMeta]) -> Vec<Moments> {
    let mut found = moments::find(fusion, bindings);
    found.retain(|found| {
        Rows::of(fusion, bindings, args, found.sum).is_some_and(|rows| !rows.are_held(cx.device, false))
    });
    found
}

/// Whether a library of the device multiplies matrices.
pub(super) fn has_libraries(cx: &CompileCx<'_>) -> bool {
    cx.device.multiplies_matrices && cx.options.libraries
}

/// Whether a result could be in memory of something else: only then it is asked how.
fn has_views(fusion: &Fusion) -> bool {
    let mut seen = BTreeSet::new();
    let could = |output: TensorId| fusion.definition(output).is_none_or(|op| may_be_view(fusion, &fusion.ops[op]));
    fusion.outputs.iter().any(|output| could(*output) || !seen.insert(*output))
}

/// A definition as one kernel, without any pass; refused where that cannot be.
pub(crate) fn one_kernel(cx: &CompileCx<'_>, plans: &dyn PlanSource, bound: &BoundFusion<'_>) -> Result<Arc<Plan>> {
    let (whole, bindings) = Derived::as_written(cx, bound)?;
    let part = whole.as_part()?;
    let outputs = output_metas(bound)?;
    let bound = BoundFusion { fusion: &part.plain, bindings: &bindings, ..*bound };
    KernelPlanner { cx, plans }.plan(&part, &bound, &outputs)?
}

/// Part `position` of a whole in the words of errors.
pub(super) fn place(whole: &Fusion, position: usize, part: &Fusion) -> String {
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

/// What was found, or what refuses a kernel.
pub(super) type OrRefusal<T> = std::result::Result<T, Box<Diagnostic>>;

/// Chooses kernels.
#[derive(Clone, Copy)]
pub(super) struct KernelPlanner<'a> {
    pub(super) cx: &'a CompileCx<'a>,
    plans: &'a dyn PlanSource,
}

/// A kernel as it was chosen for a call, made before or not.
pub(super) struct ChosenKernel {
    formed: Arc<Formed>,
    choice: KernelChoice,
}

impl ChosenKernel {
    fn form(&self) -> Result<&KernelForm> {
        self.formed.as_ref().as_ref().map_err(Clone::clone)
    }
}

/// Tells what refuses a kernel from what is wrong.
fn or_refusal<T>(found: Result<T>) -> Result<OrRefusal<T>> {
    match found {
        Err(error) if error.kind != DiagnosticKind::Unsupported => Err(error),
        found => Ok(found),
    }
}

impl KernelPlanner<'_> {
    /// The kernel that a part takes whose results lie like this. The arguments fit the part,
    /// whose sizes `bindings` are. `placed` has the results that are parts of something else.
    pub(super) fn choose(
        &self,
        part: &KernelPart,
        bound: &BoundFusion<'_>,
        metas: &[TensorMeta],
        placed: &[Option<PlacedOutput>],
    ) -> Result<OrRefusal<ChosenKernel>> {
        let &BoundFusion { bindings, args, alignments, .. } = bound;
        let formed = part.form(self.cx, bindings, metas)?;
        let form = match &*formed {
            Ok(form) => form,
            Err(refusal) => return Ok(Err(refusal.clone())),
        };
        let own = if form.is_same { None } else { Some(bind_again(self.cx, form.fusion(), args)?) };
        let bindings = own.as_ref().unwrap_or(bindings);
        let bound = BoundFusion { fusion: form.fusion(), bindings, args, alignments };
        let choice = choose_kernel(self.cx, &form.maker, &bound, placed);
        or_refusal(choice.map(|choice| ChosenKernel { choice, formed: Arc::clone(&formed) }))
    }

    /// That kernel, for these arguments and results.
    pub(super) fn make_kernel(
        &self,
        chosen: &ChosenKernel,
        args: &[ArgMeta],
        metas: &[TensorMeta],
    ) -> Result<OrRefusal<Arc<Plan>>> {
        let plan = self.plans.plan(chosen.form()?, &chosen.choice);
        // What is accepted is launched: limits of a launch are refusals like any other.
        or_refusal(plan.and_then(|plan| {
            check_together(&plan, &bind_launch(&plan, args, metas)?, self.cx.device)?;
            Ok(plan)
        }))
    }

    /// Whether making that kernel is work.
    pub(super) fn is_new(&self, chosen: &ChosenKernel) -> bool {
        chosen.form().is_ok_and(|form| !self.plans.has(form, &chosen.choice))
    }

    fn plan(&self, part: &KernelPart, bound: &BoundFusion<'_>, metas: &[TensorMeta]) -> Result<OrRefusal<Arc<Plan>>> {
        match self.choose(part, bound, metas, &[])? {
            Ok(chosen) => self.make_kernel(&chosen, bound.args, metas),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// A definition as the one kernel that the caller scheduled, or why it is none. No pass changes
    /// it, so that its tensors have the names that the schedule knows.
    fn as_scheduled(&self, bound: &BoundFusion<'_>) -> Result<Segments> {
        let (whole, bindings) = Derived::as_written(self.cx, bound)?;
        let outputs = result_metas(bound)?;
        let part = whole.as_part()?;
        let kernel = BoundFusion { fusion: &part.plain, bindings: &bindings, ..*bound };
        let plan = self.plan(&part, &kernel, &outputs)??;
        let mut segments = vec![new_segment(&part.part, SegmentKind::Kernel(plan), outputs.clone())];
        find_last_uses(&whole.fusion, &mut segments);
        let (fusion, ids, args) = (Arc::clone(&whole.fusion), Arc::clone(&whole.ids), bound.args.to_vec());
        let places = Places::default();
        Ok(Segments { fusion, ids, segments, outputs, aliases: None, places, args, bindings })
    }

    /// The whole as one kernel, if it can be one.
    fn alone(
        &self,
        whole: &Whole,
        bindings: &Bindings,
        bound: &BoundFusion<'_>,
        outputs: &[TensorMeta],
    ) -> Result<Option<Segment>> {
        let part = whole.as_part()?;
        let bound = BoundFusion { fusion: &part.plain, bindings, ..*bound };
        let planned = self.plan(&part, &bound, outputs)?;
        Ok(planned.ok().map(|plan| new_segment(&part.part, SegmentKind::Kernel(plan), outputs.to_vec())))
    }
}

/// How a tensor lies in memory, and how its element 0 is aligned there, in bytes.
#[derive(Clone, Debug)]
pub(super) struct Lying {
    pub(super) meta: TensorMeta,
    align: u32,
}

/// Types and layouts of results, and the alignment of each.
type Layouts = (Vec<TensorMeta>, u32);

/// Compiles segments in order, and knows how what they hand on lies in memory.
pub(super) struct SegmentCompiler<'a> {
    pub(super) planner: KernelPlanner<'a>,
    whole: &'a Whole,
    pub(super) facts: &'a OpFacts<'a>,
    pub(super) joined: &'a Joined,
    pub(super) metas: SecondaryMap<TensorId, Option<Lying>>,
    /// Strides in which a kernel writes what leaves the whole.
    wanted: SecondaryMap<TensorId, Option<Vec<i64>>>,
}

impl<'a> SegmentCompiler<'a> {
    pub(super) fn new(
        planner: KernelPlanner<'a>,
        whole: &'a Whole,
        (facts, joined): (&'a OpFacts<'a>, &'a Joined),
        bound: &BoundFusion<'_>,
    ) -> Self {
        let mut metas = SecondaryMap::new();
        for (position, tensor) in facts.fusion.input_tensors() {
            if let Some(ArgMeta::Tensor(meta)) = bound.args.get(position) {
                let align = bound.alignments.get(position).copied().unwrap_or(ALIGN);
                metas.set(tensor, Some(Lying { meta: meta.clone(), align }));
            }
        }
        Self { planner, whole, facts, joined, metas, wanted: SecondaryMap::new() }
    }

    /// Kernels write outputs as the definition lays them out, and what is written into an
    /// input in that input's order, so that it is copied in few runs. What has a place in something else lies as that. Out: the
    /// joins that cannot be, since a whole, or what has a place in it, is to lie otherwise.
    pub(super) fn set_wanted_strides(&mut self, outputs: &[TensorMeta], args: &[ArgMeta]) -> Vec<OpId> {
        let whole = self.facts.fusion;
        for (output, meta) in whole.outputs.iter().zip(outputs) {
            self.wanted.set(*output, Some(meta.strides.clone()));
        }
        for update in &whole.updates {
            if let Some(ArgMeta::Tensor(target)) = args.get(update.input as usize) {
                self.wanted.set(update.tensor, Some(dense_like(&target.sizes, &target.strides)));
            }
        }
        for (output, meta) in whole.outputs.iter().zip(outputs) {
            self.want_seen(*output, &meta.sizes);
        }
        let joined = self.joined;
        let lies_so =
            |(tensor, strides): (TensorId, &[i64])| self.wanted[tensor].as_ref().is_none_or(|own| own == strides);
        let is_refused = |op: &OpId| !joined.strides(self.facts, *op).all(lies_so);
        let refused: Vec<OpId> = joined.ops.iter().copied().filter(is_refused).collect();
        for (tensor, strides) in joined.ops.iter().flat_map(|op| joined.strides(self.facts, *op)) {
            self.wanted.set(tensor, Some(strides.to_vec()));
        }
        refused
    }

    /// A tensor that a result of these sizes sees in other axes lies so that the result lies as it should: else that would
    /// be a copy. What is written into an input is as dense as a kernel writes it.
    fn want_seen(&mut self, output: TensorId, sizes: &[i64]) {
        let OpFacts { fusion, bindings, aliases, .. } = self.facts;
        let Some(mut strides) = self.wanted[output].clone() else { return };
        let (mut tensor, mut sizes) = (output, sizes.to_vec());
        while let Some(op) = fusion.definition(tensor).filter(|op| !aliases.ops[*op]) {
            let seen = fusion.tensor_inputs(op).next().filter(|_| is_reshape(&fusion.ops[op].kind));
            let Some(seen) = seen.filter(|seen| self.wanted[*seen].is_none()) else { return };
            let own = bindings.sizes(fusion, seen);
            let Some(found) = view_strides(&sizes, &strides, &own) else { return };
            self.wanted.set(seen, Some(found.clone()));
            (tensor, sizes, strides) = (seen, own, found);
        }
    }

    /// From now on, how tensors lie and are aligned is known.
    pub(super) fn know(&mut self, tensors: &[TensorId], metas: &[TensorMeta], align: u32) {
        for (tensor, meta) in tensors.iter().zip(metas) {
            let align = self.joined.place_of(*tensor).map_or(align, |place| place.align(align));
            self.metas.set(*tensor, Some(Lying { meta: meta.clone(), align }));
        }
    }

    pub(super) fn part(&self, groups: &Groups<'_>, position: usize) -> Result<Arc<KernelPart>> {
        let suffix = if groups.ops.len() == 1 { String::new() } else { format!("_{position}") };
        self.whole.part(self.planner.cx, &groups.ops[position], &groups.results(position), &suffix)
    }

    /// Types, layouts and alignments of what a part reads.
    pub(super) fn args(&self, part: &Part) -> Result<(Vec<ArgMeta>, Vec<u32>)> {
        let arg = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => Ok((ArgMeta::Scalar(self.facts.bindings.scalar(scalar)), ALIGN)),
            Operand::Tensor(tensor) => match &self.metas[tensor] {
                Some(Lying { meta, align }) => Ok((ArgMeta::Tensor(meta.clone()), *align)),
                None => Err(Diagnostic::bug(format!("{tensor} is read by a segment before one returns it"))),
            },
        };
        Ok(part.inputs.iter().map(arg).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// Types and layouts of what a kernel of a part writes: what leaves the whole as is wanted, and
    /// what would be copied before it is seen under other extents, in rows.
    pub(super) fn kernel_metas(&self, bound: &BoundFusion<'_>, outputs: &[TensorId]) -> Result<Vec<TensorMeta>> {
        let mut metas = output_metas(bound)?;
        for (meta, output) in metas.iter_mut().zip(outputs) {
            if let Some(strides) = &self.wanted[*output] {
                meta.strides.clone_from(strides);
            } else if !meta.is_contiguous() && self.is_copied_for_a_view(*output, meta)? {
                *meta = TensorMeta::contiguous(meta.dtype, &meta.sizes);
            }
        }
        Ok(metas)
    }

    /// Whether a reader of a tensor that lies so would be a view, but of a copy.
    fn is_copied_for_a_view(&self, tensor: TensorId, meta: &TensorMeta) -> Result<bool> {
        let OpFacts { fusion, bindings, readers, host, .. } = self.facts;
        for &reader in readers[tensor].iter().filter(|reader| host[**reader]) {
            let is_seen = fusion.tensor_inputs(reader).eq([tensor]);
            if is_seen && fusion::find_view(fusion, bindings, reader, meta)?.is_some_and(|found| found.copies) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A group of one operation whose result lies in memory of the tensor that it reads,
    /// or of a copy if that may be, and how its element 0 is aligned there.
    pub(super) fn view(&self, groups: &Groups<'_>, position: usize, may_copy: bool) -> Result<Option<(Segment, u32)>> {
        let OpFacts { fusion, bindings, .. } = self.facts;
        let op = groups.ops[position][0];
        let read = fusion.tensor_inputs(op).next().and_then(|tensor| self.metas[tensor].as_ref());
        let Some(Lying { meta: operand, align }) = read else { return Ok(None) };
        let Some(FoundView { place, copies }) = fusion::find_view(fusion, bindings, op, operand)? else {
            return Ok(None);
        };
        if copies && !may_copy {
            return Ok(None);
        }
        let output = fusion.ops[op].output();
        let dtype = fusion.tensors[output].dtype;
        let meta = TensorMeta { dtype, sizes: bindings.sizes(fusion, output), strides: place.strides };
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
        Ok(Some((new_segment(&self.part(groups, position)?.part, SegmentKind::View, vec![meta]), align)))
    }

    /// What later segments are told of a layout.
    fn assumed_layout(&self, meta: TensorMeta) -> TensorMeta {
        if self.planner.cx.options.infer_contiguity { meta } else { TensorMeta::contiguous(meta.dtype, &meta.sizes) }
    }

    /// A group of one operation, or of a product and its activation, computed by a library or by the host.
    pub(super) fn without_kernel(&self, groups: &Groups<'_>, position: usize, why: Box<Diagnostic>) -> Result<Segment> {
        let part = self.part(groups, position)?;
        // The reason by the names that the user gave.
        let why = Candidate::new(self, part.named())?.plan(&self.planner)?.err().unwrap_or(why);
        let metas = self.host_metas(&part.part)?;
        let kind = match self.library(&part.part)? {
            Some((found, operands)) => SegmentKind::Library(Arc::new(LibraryPart { found, operands, why })),
            None => SegmentKind::Host(why),
        };
        Ok(new_segment(&part.part, kind, metas))
    }

    /// What a part asks of a library that is one operation, or a product and its activation, and the input that
    /// each operand is.
    pub(super) fn library(&self, part: &Part) -> Result<Option<(FoundProduct, Vec<usize>)>> {
        let Some((id, op)) = part.fusion.ops.iter().next().filter(|_| has_libraries(self.planner.cx)) else {
            return Ok(None);
        };
        let Some(activation) = activation_of(&part.fusion, id) else { return Ok(None) };
        let (args, alignments) = self.args(part)?;
        let input = |operand: &Operand| part.fusion.inputs.iter().position(|input| input == operand);
        let Some(operands) = op.inputs.iter().map(input).collect::<Option<Vec<usize>>>() else { return Ok(None) };
        let metas = operands.iter().map(|&input| match &args[input] {
            ArgMeta::Tensor(meta) => Some(meta.clone()),
            ArgMeta::Scalar(_) => None,
        });
        let Some(metas) = metas.collect::<Option<Vec<TensorMeta>>>() else { return Ok(None) };
        let aligns: Vec<u32> = operands.iter().map(|&input| alignments[input]).collect();
        let found = find_product(op, activation, &metas, &aligns);
        // It writes rows.
        let is_dense = || Ok::<_, Box<Diagnostic>>(self.host_metas(part)?.iter().all(TensorMeta::is_contiguous));
        Ok(if found.is_some() && is_dense()? { found.map(|found| (found, operands)) } else { None })
    }

    fn host_metas(&self, part: &Part) -> Result<Vec<TensorMeta>> {
        let (args, _) = self.args(part)?;
        let bindings = fusion::bind(&part.fusion, &args)?;
        let layouts = fusion::layouts(&part.fusion, &bindings, &args)?;
        Ok(part.fusion.outputs.iter().map(|output| self.assumed_layout(layouts[*output].clone())).collect())
    }

    /// What a group of an operation without a kernel form returns, and how that is aligned.
    pub(super) fn off_kernel(&self, groups: &Groups<'_>, position: usize) -> Result<(Vec<TensorId>, Layouts)> {
        let found = match self.join(groups, position)? {
            Some(joined) => Some(joined),
            None => self.view(groups, position, true)?,
        };
        if let Some((segment, align)) = found {
            return Ok((segment.outputs, (segment.metas, align)));
        }
        let part = self.part(groups, position)?;
        Ok((part.part.outputs.clone(), (self.host_metas(&part.part)?, ALIGN)))
    }
}

/// What a fusion computes of the product that it starts with, if that is all it computes.
fn activation_of(fusion: &Fusion, product: OpId) -> Option<Activation> {
    if fusion.ops.len() == 1 {
        return Some(Activation::None);
    }
    let found = find_activation(fusion, product, &fusion.readers(), &|tensor| fusion.outputs.contains(&tensor))?;
    (found.ops.len() + 1 == fusion.ops.len()).then_some(found.activation)
}

pub(super) fn new_segment(part: &Part, kind: SegmentKind, metas: Vec<TensorMeta>) -> Segment {
    let Part { fusion, inputs, outputs } = part.clone();
    Segment { fusion, kind, inputs, outputs, metas, last_uses: Vec::new() }
}
