//! Schedule, lower, verify.

use super::manual;
use super::prepare::Maker;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::{self, Bindings, Fusion};
use crate::kernel::{self, Kernel};
use crate::lower::{lower, lower_sharing};
use crate::options::{CompileCx, Phase};
use crate::schedule::heuristic::{Decision, Planned, Sizes, Unscheduled, decide, schedule};
use crate::schedule::{ArgClass, Author, PlacedOutput, check_schedule, check_text};
use crate::template::Shape;
use crate::tensor::ArgMeta;

/// A fusion, and the arguments for which a kernel is wanted.
#[derive(Clone, Copy, Debug)]
pub struct BoundFusion<'a> {
    /// The fusion.
    pub fusion: &'a Fusion,
    /// The values of its scalars, and so all sizes.
    pub bindings: &'a Bindings,
    /// Type and layout of each input.
    pub args: &'a [ArgMeta],
    /// The alignment in bytes of each input's element 0.
    pub alignments: &'a [u32],
}

/// A fusion made into a kernel, with how.
#[derive(Clone, Debug)]
pub struct CompiledFusion {
    /// The heuristic that took it.
    pub scheduler: &'static str,
    /// Its parameters.
    pub params_text: String,
    /// Its primitives; none of a kernel that is written whole.
    pub schedule_text: Option<String>,
    /// The kernel.
    pub kernel: Kernel,
}

/// All that a kernel takes from sizes, strides and alignments: equal choices about one
/// fusion give one kernel, for one device and the same options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelChoice {
    class: ArgClass,
    scheduled_by: ScheduledBy,
}

/// Who schedules a fusion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ScheduledBy {
    /// A heuristic, as it decided.
    Heuristic(Decision),
    /// The caller, in words.
    Text(String),
    /// Nobody: the kernel is written.
    Template(Shape),
}

/// Chooses the kernel of a fusion for its arguments; `maker` is that of the fusion. `placed` has the outputs that it writes into
/// parts of something else.
pub fn choose_kernel(
    cx: &CompileCx<'_>,
    maker: &Maker,
    bound: &BoundFusion<'_>,
    placed: &[Option<PlacedOutput>],
) -> Result<KernelChoice> {
    let &BoundFusion { fusion, bindings, args, alignments } = bound;
    let sizes = Sizes::new(fusion, bindings);
    let mut class = ArgClass::new(fusion, args, alignments, sizes.elements(), cx.options).with_outputs(placed);
    let unscheduled = match maker {
        Maker::Scheduled(unscheduled) => unscheduled,
        Maker::Written(template) if class.writes_parts() => {
            let message = format!("a kernel of the template `{}` writes whole tensors", template.name());
            return Err(Diagnostic::unsupported(code::NEEDS_SEGMENTS, message));
        }
        Maker::Written(template) => {
            let scheduled_by = ScheduledBy::Template(template.shape(cx.device, bindings, &class)?);
            return Ok(KernelChoice { class, scheduled_by });
        }
    };
    let scheduled_by = match &cx.options.schedule {
        Some(text) => {
            let fits = || manual::check(unscheduled, text, args, &sizes);
            class.index64 |= cx.span(Phase::Schedule, manual::NAME, 0, fits)?;
            ScheduledBy::Text(text.clone())
        }
        None => {
            let decided = || decide(cx, unscheduled, &class, &sizes);
            ScheduledBy::Heuristic(cx.span(Phase::Schedule, "heuristic", 0, decided)?)
        }
    };
    Ok(KernelChoice { class, scheduled_by })
}

/// Makes the kernel of a fusion as was chosen.
pub fn build_kernel(cx: &CompileCx<'_>, maker: &Maker, choice: &KernelChoice) -> Result<CompiledFusion> {
    let class = &choice.class;
    let planned = |unscheduled: &Unscheduled, make: &dyn Fn() -> Result<Planned>| {
        scheduled_kernel(cx, unscheduled, cx.span(Phase::Schedule, "apply", 0, make)?, class)
    };
    let compiled = match (maker, &choice.scheduled_by) {
        (Maker::Written(template), ScheduledBy::Template(shape)) => CompiledFusion {
            scheduler: template.name(),
            params_text: shape.to_string(),
            schedule_text: None,
            kernel: cx.span(Phase::Lower, template.name(), 0, || template.kernel(*shape, class))?,
        },
        (Maker::Scheduled(own), ScheduledBy::Heuristic(decision)) => planned(own, &|| schedule(own, decision))?,
        (Maker::Scheduled(own), ScheduledBy::Text(text)) => planned(own, &|| manual::schedule(own, text))?,
        _ => return Err(Diagnostic::bug("a kernel is written as chosen, or scheduled as chosen")),
    };
    kernel::check_limits(&compiled.kernel, cx.device)?;
    cx.span(Phase::Lower, "verify", 0, || kernel::verify(&compiled.kernel))?;
    Ok(compiled)
}

/// Lowers a fusion as it was scheduled.
fn scheduled_kernel(
    cx: &CompileCx<'_>,
    unscheduled: &Unscheduled,
    planned: Planned,
    class: &ArgClass,
) -> Result<CompiledFusion> {
    if cx.options.self_check {
        check_text(&unscheduled.scheduled, &planned.scheduled)?;
        check_schedule(&planned.scheduled)?;
    }
    let kernel = cx.span(Phase::Lower, planned.scheduler, 0, || lower_in_room(cx, &planned, class))?;
    Ok(CompiledFusion {
        scheduler: planned.scheduler,
        schedule_text: Some(planned.scheduled.schedule_text()),
        params_text: planned.params_text,
        kernel,
    })
}

/// Bytes of shared memory that a block may use for speed alone. With more, few
/// blocks fit a multiprocessor, which costs more than some barriers.
const SHARED_ROOM: u64 = 48 << 10;

/// Lowers, and saves shared memory only where there is much of it to save: most
/// kernels have few reductions, and no need of the barriers that saving may take.
fn lower_in_room(cx: &CompileCx<'_>, planned: &Planned, class: &ArgClass) -> Result<Kernel> {
    let kernel = lower(&planned.scheduled, class, planned.scheduler)?;
    let tuned = cx.options.tuning.get("shared.room").and_then(|room| u64::try_from(*room).ok());
    let room = tuned.unwrap_or(SHARED_ROOM).min(u64::from(cx.device.shared_per_block));
    if kernel::shared_bytes(&kernel) <= room {
        return Ok(kernel);
    }
    lower_sharing(&planned.scheduled, class, planned.scheduler)
}

/// Who schedules the kernels of a compilation.
pub fn scheduled_by(cx: &CompileCx<'_>) -> Author {
    match cx.options.schedule {
        Some(_) => Author::Caller,
        None => Author::Heuristic,
    }
}

/// Binds a fusion to its arguments and compiles it as it stands.
pub fn compile_fusion(
    cx: &CompileCx<'_>,
    fusion: &Fusion,
    args: &[ArgMeta],
    alignments: &[u32],
) -> Result<CompiledFusion> {
    let bindings = fusion::bind(fusion, args)?;
    let maker = Maker::new(fusion, scheduled_by(cx))?;
    let bound = BoundFusion { fusion, bindings: &bindings, args, alignments };
    build_kernel(cx, &maker, &choose_kernel(cx, &maker, &bound, &[])?)
}
