//! The engine's stages as a case goes through them.

use crate::case::Case;
use engine::diag::{Diagnostic, Result};
use engine::fusion::Fusion;
use engine::runtime::Plan;
use engine::tensor::{Arg, HostTensor};

/// Parses the one fusion of a case. All errors come at once.
pub(crate) fn parse(case: &Case) -> Result<Fusion, Vec<Diagnostic>> {
    engine::text::parse_one(&case.text)
}

/// The meaning of a fusion on these arguments.
pub(super) fn reference(fusion: &Fusion, args: &[Arg]) -> Result<Vec<HostTensor>> {
    engine::refeval::evaluate(fusion, args)
}

/// A fusion as text.
pub(super) fn print(fusion: &Fusion) -> String {
    engine::text::print(fusion)
}

/// The CUDA C++ of a plan's kernel; it needs no GPU.
pub(super) fn cuda_text(plan: &Plan) -> Option<String> {
    Some(engine::backend::cuda::print_cuda(plan.kernel()))
}
