//! From groups of operations to segments that are known to compile.

use super::facts::OpFacts;
use super::search::{Groups, search};
use crate::compile::{self, BoundFusion, output_metas, prepare};
use crate::diag::{Diagnostic, DiagnosticKind, Result, code};
use crate::fusion::{self, Bindings, Fusion, OpId, Operand, Part, ScalarId, TensorId, UserIds, concretize};
use crate::num::Value;
use crate::options::{CompileCx, Phase};
use crate::schedule::heuristic::longest_row;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::text;
use crate::util::SecondaryMap;

/// Alignment in bytes of what a segment hands on.
const ALIGN: u32 = 16;

/// A fusion cut into segments.
#[derive(Clone, Debug)]
pub struct Segments {
    /// The whole, whose values segments name: as written, but its axes are decided
    /// and composite primitives are written in simpler ones.
    pub fusion: Fusion,
    /// The numbers of the definition's values, in the whole.
    pub ids: UserIds,
    /// In an order in which they can run.
    pub segments: Vec<Segment>,
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
    /// One kernel, scheduled by this heuristic.
    Kernel(&'static str),
    /// The host, one operation: why no kernel does.
    Host(Box<Diagnostic>),
}

impl Segments {
    /// The value of a scalar of the whole: of a scalar input, that for which it was cut.
    pub fn scalar(&self, scalar: ScalarId) -> Value {
        self.bindings.scalar(scalar)
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
        matches!(self, Self::Kernel(_))
    }
}

impl std::fmt::Display for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |operand: &Operand| match *operand {
            Operand::Tensor(tensor) => format!("%{}", self.fusion.tensors[tensor].name),
            Operand::Scalar(scalar) => format!("{scalar} = {:?}", self.scalar(scalar)),
        };
        let list = |operands: &[Operand]| operands.iter().map(name).collect::<Vec<_>>().join(", ");
        let tensors = |tensors: &[TensorId]| tensors.iter().copied().map(Operand::Tensor).collect::<Vec<_>>();
        for (position, segment) in self.segments.iter().enumerate() {
            match &segment.kind {
                SegmentKind::Kernel(scheduler) => writeln!(f, "segment {position}: kernel {scheduler}")?,
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

/// Cuts a fusion for arguments of these types and layouts, whose elements 0 are
/// aligned to so many bytes.
pub(crate) fn segment(cx: &CompileCx<'_>, fusion: &Fusion, args: &[ArgMeta], alignments: &[u32]) -> Result<Segments> {
    let (whole, ids, cuts) = decide(fusion, args)?;
    let bindings = fusion::bind(&whole, args)?;
    let mut segments = {
        let facts = OpFacts::new(&whole, &bindings, &cuts);
        let mut compiler = SegmentCompiler::new(cx, &facts, args, alignments);
        let all: Vec<OpId> = whole.ops.ids().collect();
        let can_be_one = !all.iter().any(|op| facts.host[*op] || facts.cuts[*op]);
        let mut alone = None;
        if can_be_one {
            alone = compiler.kernel(&Groups::new(&facts, vec![all]), 0)?.ok();
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
    Ok(Segments { fusion: whole, ids, segments, args: args.to_vec(), bindings })
}

/// The whole with decided axes, the numbers of its values, and the tensors before
/// which it is cut.
fn decide(fusion: &Fusion, args: &[ArgMeta]) -> Result<(Fusion, UserIds, Vec<TensorId>)> {
    let simple = fusion::decompose(fusion)?;
    let facts = concretize::facts(&simple.fusion, &fusion::bind(&simple.fusion, args)?);
    let concrete = concretize::concretize(&simple.fusion, &facts)?;
    let ids = UserIds::new(fusion).through(&simple).through(&concrete);
    let cuts = fusion.ops.values().filter(|op| match &op.kind {
        fusion::OpKind::Call(call) => call.movement().cuts,
        _ => false,
    });
    let moved = |tensor: TensorId| simple.tensors[tensor].and_then(|tensor| concrete.tensors[tensor]);
    let cuts = cuts.filter_map(|op| moved(op.output())).collect();
    Ok((concrete.fusion, ids, cuts))
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

/// Compiles segments in order, and knows how what they hand on lies in memory.
struct SegmentCompiler<'a> {
    cx: &'a CompileCx<'a>,
    facts: &'a OpFacts<'a>,
    metas: SecondaryMap<TensorId, Option<(TensorMeta, u32)>>,
}

/// A segment, or why it is no kernel.
type Tried = std::result::Result<Segment, Box<Diagnostic>>;

impl<'a> SegmentCompiler<'a> {
    fn new(cx: &'a CompileCx<'a>, facts: &'a OpFacts<'a>, args: &[ArgMeta], alignments: &[u32]) -> Self {
        let mut metas = SecondaryMap::new();
        for (position, tensor) in facts.fusion.input_tensors() {
            if let Some(ArgMeta::Tensor(meta)) = args.get(position) {
                metas.set(tensor, Some((meta.clone(), alignments.get(position).copied().unwrap_or(ALIGN))));
            }
        }
        Self { cx, facts, metas }
    }

    /// All groups as segments; those that are refused as kernels in two halves, and
    /// in the end operation by operation on the host.
    fn settle(&mut self, mut groups: Groups<'a>) -> Result<Vec<Segment>> {
        let mut segments: Vec<Segment> = Vec::new();
        while segments.len() < groups.ops.len() {
            let position = segments.len();
            let segment = match self.kernel(&groups, position)? {
                Ok(segment) => segment,
                // Groups before it hand on what it does not repeat any more.
                Err(_) if groups.read_instead(position) => {
                    segments.clear();
                    continue;
                }
                Err(refusal) if groups.ops[position].len() == 1 => self.host(&groups, position, refusal)?,
                Err(_) => {
                    groups.halve(position);
                    continue;
                }
            };
            for (output, meta) in segment.outputs.iter().zip(&segment.metas) {
                self.metas.set(*output, Some((meta.clone(), ALIGN)));
            }
            segments.push(segment);
        }
        Ok(segments)
    }

    fn part(&self, groups: &Groups<'_>, position: usize) -> Result<Part> {
        let suffix = if groups.ops.len() == 1 { String::new() } else { format!("_{position}") };
        fusion::part(self.facts.fusion, &suffix, &groups.ops[position], &groups.results(position))
    }

    /// Types, layouts and alignments of what a part reads.
    fn args(&self, part: &Part) -> Result<(Vec<ArgMeta>, Vec<u32>)> {
        let arg = |operand: &Operand| match *operand {
            Operand::Scalar(scalar) => Ok((ArgMeta::Scalar(self.facts.bindings.scalar(scalar)), ALIGN)),
            Operand::Tensor(tensor) => match &self.metas[tensor] {
                Some((meta, align)) => Ok((ArgMeta::Tensor(meta.clone()), *align)),
                None => Err(Diagnostic::bug(format!("{tensor} is read by a segment before one returns it"))),
            },
        };
        Ok(part.inputs.iter().map(arg).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// A group as one kernel, if it can be one.
    fn kernel(&self, groups: &Groups<'_>, position: usize) -> Result<Tried> {
        let part = self.part(groups, position)?;
        let (args, alignments) = self.args(&part)?;
        let bindings = fusion::bind(&part.fusion, &args)?;
        let bound = BoundFusion { fusion: &part.fusion, bindings: &bindings, args: &args, alignments: &alignments };
        let metas = output_metas(&bound)?;
        let compiled = prepare(&bound, &metas).and_then(|prepared| compile::compile(self.cx, &prepared.bound()));
        match compiled {
            Ok(compiled) => Ok(Ok(new_segment(part, SegmentKind::Kernel(compiled.scheduler), metas))),
            Err(refusal) if refusal.kind == DiagnosticKind::Unsupported => Ok(Err(refusal)),
            Err(error) => Err(error.note(format!("in segment {position} of fusion @{}", self.facts.fusion.name))),
        }
    }

    /// A group of one operation, computed by the host.
    fn host(&self, groups: &Groups<'_>, position: usize, why: Box<Diagnostic>) -> Result<Segment> {
        let part = self.part(groups, position)?;
        let (args, _) = self.args(&part)?;
        let layouts = fusion::layouts(&part.fusion, &fusion::bind(&part.fusion, &args)?, &args)?;
        let metas = part.fusion.outputs.iter().map(|output| layouts[*output].clone()).collect();
        Ok(new_segment(part, SegmentKind::Host(why), metas))
    }
}

fn new_segment(part: Part, kind: SegmentKind, metas: Vec<TensorMeta>) -> Segment {
    let Part { fusion, inputs, outputs } = part;
    Segment { fusion, kind, inputs, outputs, metas, last_uses: Vec::new() }
}
