//! Kernels of all groups at once.
//!
//! In: groups in order, and how the whole's arguments lie. Out: [`Ahead`], which has the kernel of a
//! group, or why there is none, when `cut` comes to it. How a kernel's results lie follows from its
//! operations alone, so what every group reads is known before any kernel is made, as long as groups
//! become what is expected of them: kernels, but for operations without a kernel form.
//!
//! Invariant: nothing follows from what was expected. A kernel is taken only for what a group
//! really reads and returns; else it is compiled then. So one thread and many give the same.

use super::cut::{ALIGN, ChosenKernel, KernelPlanner, OrRefusal, Segment, SegmentCompiler, SegmentKind, new_segment};
use super::derived::{KernelPart, bind_again};
use super::search::Groups;
use crate::compile::{BoundFusion, Plan};
use crate::diag::Result;
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::run_jobs;
use std::sync::Arc;

/// A group as a fusion, with what a kernel of it reads and writes, and which one it takes.
pub(super) struct Candidate {
    pub(super) part: Arc<KernelPart>,
    args: Vec<ArgMeta>,
    alignments: Vec<u32>,
    pub(super) metas: Vec<TensorMeta>,
    chosen: Result<OrRefusal<ChosenKernel>>,
}

impl Candidate {
    pub(super) fn new(compiler: &SegmentCompiler<'_>, part: Arc<KernelPart>) -> Result<Self> {
        let (args, alignments) = compiler.args(&part.part)?;
        let bindings = bind_again(compiler.planner.cx, &part.plain, &args)?;
        let bound = BoundFusion { fusion: &part.plain, bindings: &bindings, args: &args, alignments: &alignments };
        let metas = compiler.kernel_metas(&bound, &part.part.outputs)?;
        let chosen = compiler.planner.choose(&part, &bound, &metas, &compiler.placed(&part.part.outputs));
        Ok(Self { part, args, alignments, metas, chosen })
    }

    /// The kernel, or what refuses it. Fails where there is more than a refusal.
    pub(super) fn plan(&self, planner: &KernelPlanner<'_>) -> Result<OrRefusal<Arc<Plan>>> {
        match &self.chosen {
            Ok(Ok(chosen)) => planner.make_kernel(chosen, &self.args, &self.metas),
            Ok(Err(refusal)) => Ok(Err(refusal.clone())),
            Err(error) => Err(error.clone()),
        }
    }

    fn is_new(&self, planner: &KernelPlanner<'_>) -> bool {
        matches!(&self.chosen, Ok(Ok(chosen)) if planner.is_new(chosen))
    }

    pub(super) fn into_segment(self, kind: SegmentKind) -> Segment {
        new_segment(&self.part.part, kind, self.metas)
    }
}

/// Kernels that were chosen, and as far as they are new made, before it was their turn.
pub(super) struct Ahead {
    /// By position; none of a group that is not expected to be a kernel.
    made: Vec<Option<Made>>,
}

struct Made {
    candidate: Candidate,
    /// None where asking for it is no work.
    planned: Option<Result<OrRefusal<Arc<Plan>>>>,
}

impl Ahead {
    /// Makes new kernels on the threads that the options give; with one thread, or one new kernel,
    /// none, since that would only be done in another order.
    pub(super) fn new(compiler: &mut SegmentCompiler<'_>, groups: &Groups<'_>) -> Self {
        let options = compiler.planner.cx.options;
        if options.compile_threads == 1 || groups.ops.len() == 1 {
            return Self { made: Vec::new() };
        }
        let known = compiler.metas.clone();
        let mut made = expected(compiler, groups);
        compiler.metas = known;
        let planner = compiler.planner;
        let mut new: Vec<&mut Made> =
            made.iter_mut().flatten().filter(|made| made.candidate.is_new(&planner)).collect();
        if new.len() > 1 {
            let candidates: Vec<&Candidate> = new.iter().map(|made| &made.candidate).collect();
            let planned = run_jobs(options.threads(), candidates.len(), &|job| candidates[job].plan(&planner));
            new.iter_mut().zip(planned).for_each(|(made, planned)| made.planned = Some(planned));
        }
        Self { made }
    }

    /// The kernel of a group, or why there is none. Fails where the group cannot be made a fusion.
    pub(super) fn kernel(
        &mut self,
        compiler: &SegmentCompiler<'_>,
        groups: &Groups<'_>,
        position: usize,
    ) -> Result<(Candidate, Result<OrRefusal<Arc<Plan>>>)> {
        let part = compiler.part(groups, position)?;
        let made = self.made.get_mut(position).and_then(Option::take);
        let (candidate, planned) = match made.filter(|made| made.is_for(compiler, &part)) {
            Some(Made { candidate, planned }) => (candidate, planned),
            None => (Candidate::new(compiler, part)?, None),
        };
        let planned = planned.unwrap_or_else(|| candidate.plan(&compiler.planner));
        Ok((candidate, planned))
    }
}

impl Made {
    /// Whether the group in that place is the one that was expected there, and reads what was expected.
    fn is_for(&self, compiler: &SegmentCompiler<'_>, part: &Arc<KernelPart>) -> bool {
        let Candidate { part: own, args, alignments, .. } = &self.candidate;
        let reads = || compiler.args(&part.part).is_ok_and(|(read, aligned)| read == *args && aligned == *alignments);
        Arc::ptr_eq(own, part) && reads()
    }
}

/// All groups that may be kernels, where those before them are what is expected of them. Ends early
/// where nothing can be expected; the compiler's layouts are then those expected.
fn expected(compiler: &mut SegmentCompiler<'_>, groups: &Groups<'_>) -> Vec<Option<Made>> {
    let mut made = Vec::with_capacity(groups.ops.len());
    for (position, ops) in groups.ops.iter().enumerate() {
        if ops.iter().any(|op| compiler.facts.host[*op]) {
            match compiler.off_kernel(groups, position) {
                Ok((outputs, (metas, align))) => compiler.know(&outputs, &metas, align),
                Err(_) => break,
            }
            made.push(None);
            continue;
        }
        let candidate = compiler.part(groups, position).and_then(|part| Candidate::new(compiler, part));
        let Ok(candidate) = candidate else { break };
        compiler.know(&candidate.part.part.outputs, &candidate.metas, ALIGN);
        made.push(Some(Made { candidate, planned: None }));
    }
    made
}
