//! Kernels made again by the text of their schedules.

use super::{args, golden, pipeline};
use crate::case::Case;
use engine::compile::compile_fusion;
use engine::diag::Result;
use engine::options::{CompileCx, NoTrace, Options};
use engine::program::{Launch, Program};
use engine::runtime::Session;

/// Whether the text of its schedule makes a kernel of a case's program again; none where the
/// kernel follows none, or reads what is no argument of the case.
pub(crate) fn is_made_again(
    case: &Case,
    session: &Session,
    program: &Program,
    launch: &Launch,
) -> Option<Result<bool>> {
    // The text says nothing of the memory of outputs, which may be parts of another tensor's.
    let writes_parts = launch.outputs.iter().any(|output| program.root(*output).0 != *output);
    if launch.plan.is_written() || writes_parts {
        return None;
    }
    let fusion = pipeline::parse(case).ok()?;
    let (metas, alignments) = args::metas(&fusion, case).ok()?;
    let whole = &program.segments.fusion;
    let place = |operand| whole.inputs.iter().position(|input| input == operand);
    let places = program.segments.segments[launch.segment].inputs.iter().map(place).collect::<Option<Vec<usize>>>()?;
    let metas: Vec<_> = places.iter().map(|place| metas[*place].clone()).collect();
    let alignments: Vec<_> = places.iter().map(|place| alignments[*place].min(16)).collect();
    let options = Options { schedule: Some(launch.plan.schedule_text().into()), ..session.options().clone() };
    let cx = CompileCx { options: &options, device: session.device(), trace: &NoTrace };
    let made = compile_fusion(&cx, launch.plan.fusion(), &metas, &alignments);
    Some(made.map(|made| golden::is_same_kernel(&launch.plan, &made.kernel)))
}
