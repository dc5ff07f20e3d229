//! The engine's stages as a case goes through them.

use crate::case::Case;
use engine::compile::Plan;
use engine::diag::{Diagnostic, Result};
use engine::fusion::Fusion;
use engine::refeval::Evaluation;
use engine::runtime::Session;
use engine::tensor::Arg;

/// Parses the one fusion of a case. All errors come at once.
pub(crate) fn parse(case: &Case) -> Result<Fusion, Vec<Diagnostic>> {
    engine::text::parse_one(&case.text)
}

/// A session that computes by the schedule of a case, if it has one.
pub(super) fn scheduled(case: &Case, session: &Session) -> Option<Session> {
    case.schedule.as_ref().map(|schedule| session.scheduled(schedule.as_str()))
}

/// The meaning of a fusion on these arguments: its outputs, and the inputs that it updates.
pub(super) fn reference(fusion: &Fusion, args: &[Arg]) -> Result<Evaluation> {
    engine::refeval::evaluate_all(fusion, args)
}

/// A fusion as text.
pub(super) fn print(fusion: &Fusion) -> String {
    engine::text::print(fusion)
}

/// The CUDA C++ of a kernel; it needs no GPU.
pub(super) fn cuda_text(plan: &Plan) -> String {
    engine::backend::cuda::print_cuda(plan.kernel())
}
