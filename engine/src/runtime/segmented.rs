//! Runs of fusions that are more than one kernel.
//!
//! In: [`Segments`], which [`Session::segment`] makes, and arguments. Out: what the
//! fusion returns, and what became of each segment. Segments run in order; values
//! between them are host tensors, kept until the last segment that reads them.
//!
//! Invariant: each tensor has the type and layout that [`Segments`] said it would
//! have, or the run fails with a bug: the next segment was compiled for that.

use super::session::{RunOutcome, Session, guard};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{self, Fusion, Operand, TensorId};
use crate::options::{Phase, Trace};
use crate::refeval;
use crate::segment::{self, Segment, SegmentKind, Segments};
use crate::tensor::{Arg, ArgMeta, HostTensor};
use std::collections::BTreeMap;

/// What a run of segments gave.
#[derive(Clone, Debug)]
pub struct SegmentedOutcome {
    /// The outputs of the fusion in order.
    pub outputs: Vec<HostTensor>,
    /// The inputs that are updated, by position, as they are afterwards.
    pub updates: Vec<(usize, HostTensor)>,
    /// The run of each segment; none of those on the host.
    pub runs: Vec<Option<RunOutcome>>,
}

impl Session {
    /// Cuts a fusion into segments for arguments of these types and layouts, whose
    /// elements 0 are aligned to so many bytes.
    pub fn segment(
        &self,
        fusion: &Fusion,
        args: &[ArgMeta],
        alignments: &[u32],
        trace: &dyn Trace,
    ) -> Result<Segments> {
        let alignments = Self::alignments(args, alignments)?;
        guard("cutting", fusion, || segment::segment(&self.cx(trace), fusion, args, &alignments))
    }

    /// Runs the segments of a fusion one after the other, for arguments that lie as
    /// those for which it was cut.
    pub fn run_segments(&self, segments: &Segments, args: &[Arg], trace: &dyn Trace) -> Result<SegmentedOutcome> {
        let fusion = &segments.fusion;
        let bindings = fusion::bind_args(fusion, args)?;
        segments.check(&args.iter().map(Arg::meta).collect::<Vec<_>>(), &bindings)?;
        let mut values: BTreeMap<Operand, Arg> = fusion.inputs.iter().copied().zip(args.iter().cloned()).collect();
        let mut runs = Vec::with_capacity(segments.segments.len());
        for (position, segment) in segments.segments.iter().enumerate() {
            let args = arguments(segments, segment, &values)?;
            let (outputs, run) = self.run_segment(segment, position, &args, trace)?;
            check_layouts(fusion, segment, position, &outputs)?;
            for tensor in &segment.last_uses {
                values.remove(&Operand::Tensor(*tensor));
            }
            let outputs = outputs.into_iter().map(Arg::Tensor);
            values.extend(segment.outputs.iter().copied().map(Operand::Tensor).zip(outputs));
            runs.push(run);
        }
        let tensor = |tensor: TensorId| match values.get(&Operand::Tensor(tensor)) {
            Some(Arg::Tensor(value)) => Ok(value),
            _ => Err(Diagnostic::bug(format!("no segment returns {tensor}"))),
        };
        let mut updates = Vec::with_capacity(fusion.updates.len());
        for update in &fusion.updates {
            if let Some(Arg::Tensor(target)) = args.get(update.input as usize) {
                updates.push((update.input as usize, refeval::updated(target, tensor(update.tensor)?)));
            }
        }
        let output = |output: &TensorId| match fusion.updates.iter().position(|update| update.tensor == *output) {
            Some(position) => Ok(updates[position].1.clone()),
            None => tensor(*output).cloned(),
        };
        let outputs = fusion.outputs.iter().map(output).collect::<Result<_>>()?;
        Ok(SegmentedOutcome { outputs, updates, runs })
    }

    fn run_segment(
        &self,
        segment: &Segment,
        position: usize,
        args: &[Arg],
        trace: &dyn Trace,
    ) -> Result<(Vec<HostTensor>, Option<RunOutcome>)> {
        match segment.kind {
            SegmentKind::Kernel(_) => {
                let mut run = self.run(&segment.fusion, args, trace)?;
                Ok((std::mem::take(&mut run.outputs), Some(run)))
            }
            SegmentKind::Host(_) => {
                let evaluate = || refeval::evaluate(&segment.fusion, args);
                Ok((self.cx(trace).span(Phase::Launch, "host", position as u64, evaluate)?, None))
            }
        }
    }
}

/// What a segment is given.
fn arguments(segments: &Segments, segment: &Segment, values: &BTreeMap<Operand, Arg>) -> Result<Vec<Arg>> {
    let argument = |operand: &Operand| match (values.get(operand), *operand) {
        (Some(value), _) => Ok(value.clone()),
        (None, Operand::Scalar(scalar)) => Ok(Arg::Scalar(segments.scalar(scalar))),
        (None, Operand::Tensor(tensor)) => Err(Diagnostic::bug(format!("{tensor} is read, but nothing returned it"))),
    };
    segment.inputs.iter().map(argument).collect()
}

/// Whether what a segment returns lies as later segments expect it.
fn check_layouts(whole: &Fusion, segment: &Segment, position: usize, outputs: &[HostTensor]) -> Result<()> {
    for ((tensor, predicted), found) in segment.outputs.iter().zip(&segment.metas).zip(outputs) {
        if found.meta != *predicted {
            let (name, found) = (&whole.tensors[*tensor].name, &found.meta);
            let message = format!("segment {position} returns `%{name}` as {found:?}, not as {predicted:?}");
            return Err(Diagnostic::bug(message).note("later segments were compiled for the latter"));
        }
    }
    Ok(())
}
