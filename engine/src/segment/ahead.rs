//! Kernels of all groups at once.
//!
//! In: groups in order, and how the whole's arguments lie. Out: [`Ahead`], which has the kernel of a
//! group, or why there is none, when `cut` comes to it. How a kernel's results lie follows from its
//! operations alone, so what every group reads is known before any is compiled, as long as groups
//! become what is expected of them: kernels, but for operations without a kernel form.
//!
//! Invariant: nothing follows from what was expected. A kernel is taken only for what a group
//! really reads and returns; else it is compiled then. So one thread and many give the same.

use super::cut::{ALIGN, Segment, SegmentCompiler, SegmentKind, new_segment};
use super::search::Groups;
use crate::compile::{BoundFusion, Plan, PlanSource, bind_launch};
use crate::diag::{Diagnostic, DiagnosticKind, Result};
use crate::fusion::{self, Bindings, Fusion, OpId, Part};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::run_jobs;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A group as a fusion, with what a kernel of it reads and writes.
pub(super) struct Candidate {
    pub(super) part: Part,
    /// The same without names.
    plain: Fusion,
    bindings: Bindings,
    args: Vec<ArgMeta>,
    alignments: Vec<u32>,
    pub(super) metas: Vec<TensorMeta>,
}

/// A kernel, or what refuses it.
pub(super) type Planned = std::result::Result<Arc<Plan>, Box<Diagnostic>>;

/// A kernel of a fusion whose results lie like that. Fails where there is more than a refusal.
pub(super) fn try_plan(plans: &dyn PlanSource, bound: &BoundFusion<'_>, metas: &[TensorMeta]) -> Result<Planned> {
    // What is accepted is launched: limits of a launch are refusals like any other.
    let planned = plans.plan(bound, metas).and_then(|plan| bind_launch(&plan, bound.args, metas).map(|_| plan));
    match planned {
        Err(error) if error.kind != DiagnosticKind::Unsupported => Err(error),
        planned => Ok(planned),
    }
}

impl Candidate {
    fn new(compiler: &SegmentCompiler<'_>, groups: &Groups<'_>, position: usize) -> Result<Self> {
        let part = compiler.part(groups, position)?;
        let (args, alignments) = compiler.args(&part)?;
        // Parts that do the same have one kernel, whatever they are called.
        let plain = fusion::plainly_named(&part.fusion);
        let bindings = fusion::bind(&plain, &args)?;
        let bound = BoundFusion { fusion: &plain, bindings: &bindings, args: &args, alignments: &alignments };
        let metas = compiler.kernel_metas(&bound, &part.outputs)?;
        Ok(Self { part, plain, bindings, args, alignments, metas })
    }

    fn plan(&self, plans: &dyn PlanSource) -> Result<Planned> {
        let Self { plain, bindings, args, alignments, .. } = self;
        try_plan(plans, &BoundFusion { fusion: plain, bindings, args, alignments }, &self.metas)
    }

    pub(super) fn into_segment(self, kind: SegmentKind) -> Segment {
        new_segment(self.part, kind, self.metas)
    }
}

/// Kernels that were made before it was their turn.
pub(super) struct Ahead {
    by_ops: BTreeMap<Vec<OpId>, Made>,
}

struct Made {
    position: usize,
    candidate: Candidate,
    planned: Result<Planned>,
}

impl Ahead {
    /// Compiles on the threads that the compiler may have; with one thread nothing, since
    /// it would only be done in another order.
    pub(super) fn new(compiler: &mut SegmentCompiler<'_>, groups: &Groups<'_>) -> Self {
        let mut by_ops = BTreeMap::new();
        if compiler.threads > 1 && groups.ops.len() > 1 {
            let known = compiler.metas.clone();
            let candidates = expected(compiler, groups);
            compiler.metas = known;
            let (plans, jobs) = (compiler.plans, &candidates);
            let planned = run_jobs(compiler.threads, jobs.len(), &|job| jobs[job].1.plan(plans));
            for ((position, candidate), planned) in candidates.into_iter().zip(planned) {
                by_ops.insert(groups.ops[position].clone(), Made { position, candidate, planned });
            }
        }
        Self { by_ops }
    }

    /// The kernel of a group, or why there is none. Fails where the group cannot be made a fusion.
    pub(super) fn kernel(
        &mut self,
        compiler: &SegmentCompiler<'_>,
        groups: &Groups<'_>,
        position: usize,
    ) -> Result<(Candidate, Result<Planned>)> {
        if let Some(made) = self.by_ops.remove(&groups.ops[position])
            && made.is_for(compiler, groups, position)
        {
            return Ok((made.candidate, made.planned));
        }
        let candidate = Candidate::new(compiler, groups, position)?;
        let planned = candidate.plan(compiler.plans);
        Ok((candidate, planned))
    }
}

impl Made {
    /// Whether the group in that place, of the same operations, reads and returns what was expected.
    fn is_for(&self, compiler: &SegmentCompiler<'_>, groups: &Groups<'_>, position: usize) -> bool {
        let Candidate { part, args, alignments, .. } = &self.candidate;
        let reads = || compiler.args(part).is_ok_and(|(own, aligned)| own == *args && aligned == *alignments);
        // Parts are named by their places.
        self.position == position && part.outputs == groups.results(position) && reads()
    }
}

/// All groups that may be kernels, where those before them are what is expected of them. Ends early
/// where nothing can be expected; the compiler's layouts are then those expected.
fn expected(compiler: &mut SegmentCompiler<'_>, groups: &Groups<'_>) -> Vec<(usize, Candidate)> {
    let mut candidates = Vec::new();
    for (position, ops) in groups.ops.iter().enumerate() {
        if ops.iter().any(|op| compiler.facts.host[*op]) {
            match compiler.off_kernel(groups, position) {
                Ok((outputs, (metas, align))) => compiler.know(&outputs, &metas, align),
                Err(_) => break,
            }
            continue;
        }
        let Ok(candidate) = Candidate::new(compiler, groups, position) else { break };
        compiler.know(&candidate.part.outputs, &candidate.metas, ALIGN);
        candidates.push((position, candidate));
    }
    candidates
}
