//! A draw on a device, against the reference.

use crate::device_calls::check_calls;
use crate::fusions::{Limits, arguments, generate};
use crate::kernel_runs::{load, on_gpu, on_simulator};
use crate::random::{Drawn, DrawnProduct, ScheduledCase, draw, draw_product, draw_schedule};
use crate::reference::alignments;
use crate::{Draw, Reference};
use engine::backend::cuda::Device;
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcSearch};
use engine::diag::{Diagnostic, DiagnosticKind, Result, code};
use engine::fusion::{Fusion, bind_args};
use engine::kernel::{self, Block, Kernel, Space, StmtKind};
use engine::num::{DType, storage};
use engine::options::{DeviceDesc, NoTrace, Options, RunChecks, SimOptions, SimSchedule};
use engine::refeval::{Tolerance, compare, evaluate};
use engine::runtime::Session;
use engine::tensor::{Arg, ArgMeta, HostTensor};
use engine::text;
use std::sync::Arc;

/// What became of a draw.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawOutcome {
    /// It agrees with the reference; what made the kernel, or what the draw was about.
    Agrees(String),
    /// It is no use: too large, or without a reference.
    Skipped,
    /// The compiler refuses it with a code.
    Refused(String),
    /// It is wrong: in words, with all that is needed to run it again.
    Differs(String),
}

/// A device that draws run on.
pub enum CheckTarget {
    /// The simulator.
    Simulator,
    /// A GPU.
    Cuda(Box<CheckGpu>),
}

/// A GPU with the compiler of its kernels.
pub struct CheckGpu {
    // Held so that the context lives as long as the process draws.
    device: Arc<Device>,
    nvrtc: Nvrtc,
    search: NvrtcSearch,
}

impl CheckTarget {
    /// The first GPU that the process sees.
    pub fn cuda(search: NvrtcSearch) -> Result<Self> {
        let (device, nvrtc) = (Device::open(0)?, Nvrtc::open(&search)?);
        Ok(Self::Cuda(Box::new(CheckGpu { device, nvrtc, search })))
    }

    /// Draws a fusion and runs it.
    pub fn fusion(&self, seed: u64) -> DrawOutcome {
        let Some(drawn) = draw(seed) else { return DrawOutcome::Skipped };
        self.drawn(&drawn, seed)
    }

    /// Runs a drawn fusion; the seed chooses the order of threads.
    pub fn drawn(&self, drawn: &Drawn, seed: u64) -> DrawOutcome {
        let Drawn { fusion, args, options, .. } = drawn;
        // Sizes that the reference refuses are no test.
        let (Ok(bindings), Ok(expected)) = (bind_args(fusion, args), evaluate(fusion, args)) else {
            return DrawOutcome::Skipped;
        };
        let session = match self.session(drawn, seed) {
            Ok(session) => session,
            Err(error) => return DrawOutcome::Differs(error.to_string()),
        };
        let run = match session.run(fusion, args, &NoTrace) {
            Ok(run) => run,
            Err(error) if error.kind == DiagnosticKind::Unsupported => {
                return DrawOutcome::Refused(error.code.0.into());
            }
            Err(error) => return DrawOutcome::Differs(format!("{error}\n{}", drawn.case_text("Found"))),
        };
        for (i, (found, expected)) in run.outputs.iter().zip(&expected).enumerate() {
            let own = Tolerance::for_output(fusion, &bindings, fusion.outputs[i]);
            let text = match compare(found, expected, drawn.measure.tolerance(own)) {
                Ok(comparison) if comparison.passed() => continue,
                Ok(comparison) => comparison.to_string(),
                Err(error) => error.to_string(),
            };
            return DrawOutcome::Differs(format!(
                "{:?}, output {i} of {}: {text}\n{options:?}\n{}",
                drawn.kind,
                run.program.made_by(),
                drawn.case_text("Found")
            ));
        }
        DrawOutcome::Agrees(format!("{:?} {}", drawn.kind, run.program.made_by()))
    }

    /// Draws a fusion that need not be one kernel, cuts it into segments and runs them.
    pub fn segments(&self, seed: u64) -> DrawOutcome {
        let mut draw = Draw::new(seed);
        let bytes = draw.bytes(24 + seed as usize % 400);
        let wide = seed % 2 == 1;
        let generated = generate(&bytes, &if wide { program_limits() } else { segment_limits() });
        let (fusion, args) = (&generated.fusion, arguments(&generated, &mut draw));
        if wide && floats_decide(fusion) {
            return DrawOutcome::Skipped;
        }
        let Ok(reference) = Reference::of(fusion, &args).and_then(Reference::scaled) else {
            return DrawOutcome::Skipped;
        };
        // Where a rounded type hangs on the last bit of a float, floats are not comparable.
        let reference = if wide { reference.without_floats() } else { reference };
        self.checked(fusion, &args, &reference, seed)
    }

    /// Draws a product of matrices, and what is computed of it, and runs it.
    pub fn product(&self, seed: u64) -> DrawOutcome {
        let DrawnProduct { fusion, args } = draw_product(seed);
        let Ok(reference) = Reference::of(&fusion, &args) else { return DrawOutcome::Skipped };
        self.checked(&fusion, &args, &reference, seed)
    }

    /// Runs a fusion in every way that there is on the device.
    fn checked(&self, fusion: &Fusion, args: &[Arg], reference: &Reference<'_>, seed: u64) -> DrawOutcome {
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let run = || -> Result<String> {
            let session = self.session_with(Options::default(), seed)?;
            let segments = session.segment(fusion, &metas, &alignments(args), &NoTrace)?;
            let told = |error: Box<Diagnostic>| error.note(segments.to_string());
            let run = session.run(fusion, args, &NoTrace).map_err(told)?;
            reference.compare_all(&run.outputs).map_err(told)?;
            let mut left = "";
            if !session.is_simulator() {
                // Without checks values share an arena, which no run with checks does.
                let session = session.with_checks(RunChecks::NONE);
                let again = session.run(fusion, args, &NoTrace).map_err(told)?;
                reference.compare_all(&again.outputs).map_err(|error| told(error).note("in an arena"))?;
                if !check_calls(&session, fusion, args, reference).map_err(told)? {
                    left = ", which has no algorithm for one";
                }
            }
            let (kernels, host) = (run.program.launches().count(), run.program.on_host().count());
            let library = run.program.library_calls().count();
            let views = run.program.segments.segments.len() - kernels - host - library;
            let some = |count: usize| if count > 9 { "10 or more".into() } else { count.to_string() };
            let by_library =
                if library == 0 { String::new() } else { format!(", {} by a library{left}", some(library)) };
            Ok(format!("{} kernels, {} views, {} on the host{by_library}", some(kernels), some(views), some(host)))
        };
        match run() {
            Ok(by) => DrawOutcome::Agrees(by),
            Err(error) => {
                let layouts: Vec<String> = metas.iter().map(|meta| format!("{meta:?}")).collect();
                DrawOutcome::Differs(format!("{error}\n{}{}", text::print(fusion), layouts.join("\n")))
            }
        }
    }

    fn session(&self, drawn: &Drawn, seed: u64) -> Result<Session> {
        self.session_with(drawn.options.clone(), seed)
    }

    fn session_with(&self, options: Options, seed: u64) -> Result<Session> {
        match self {
            Self::Simulator => Ok(Session::simulator(DeviceDesc::h200(), sim_options(seed), options)),
            Self::Cuda(gpu) => Session::cuda_with(gpu.device.ordinal(), options, &gpu.search),
        }
    }

    /// Draws a schedule and runs it.
    pub fn schedule(&self, seed: u64) -> DrawOutcome {
        let case = match draw_schedule(seed) {
            Ok(case) => case,
            Err(error) => return DrawOutcome::Differs(error.to_string()),
        };
        let kernel = match &case.kernel {
            Ok(kernel) => kernel,
            Err(error) if error.kind == DiagnosticKind::Unsupported => {
                return DrawOutcome::Refused(error.code.0.into());
            }
            // Sizes that are none of the schedule's.
            Err(error) if error.code == code::SCHEDULE_SIZES => return DrawOutcome::Skipped,
            Err(error) => return DrawOutcome::Differs(format!("{error}\n{}", case.schedule)),
        };
        match self.scheduled(&case, kernel, seed) {
            Ok(None) => DrawOutcome::Agrees(held_in(kernel).into()),
            Ok(Some(what)) => DrawOutcome::Differs(format!("{what}\n{}\n{}", case.schedule, kernel::print(kernel))),
            Err(error) => DrawOutcome::Differs(format!("{error}\n{}\n{}", case.schedule, kernel::print(kernel))),
        }
    }

    /// What a kernel does wrong.
    fn scheduled(&self, case: &ScheduledCase, kernel: &Kernel, seed: u64) -> Result<Option<String>> {
        let metas: Vec<ArgMeta> = case.args.iter().map(Arg::meta).collect();
        kernel::verify(kernel)?;
        let launch = kernel::bind(kernel, &metas)?;
        let outputs = match self {
            Self::Simulator => on_simulator(kernel, &launch, &case.args, &sim_options(seed))?,
            Self::Cuda(gpu) => on_gpu(&load(&gpu.device, &gpu.nvrtc, kernel)?, kernel, &launch, &case.args)?,
        };
        for (i, expected) in evaluate(&case.fusion, &case.args)?.iter().enumerate() {
            let found = outputs.get(&(i as u32)).map(Vec::as_slice).unwrap_or_default();
            if let Some(text) = difference(found, expected) {
                return Ok(Some(format!("output {i} differs: {text}")));
            }
        }
        Ok(None)
    }
}

/// What is remarkable about where a kernel of a schedule holds values.
fn held_in(kernel: &Kernel) -> &'static str {
    fn copies(block: &Block) -> bool {
        block.iter().any(|stmt| match &stmt.kind {
            StmtKind::CopyAsync { .. } => true,
            StmtKind::For { body, .. } => copies(body),
            StmtKind::If { then, otherwise, .. } => copies(then) || copies(otherwise),
            _ => false,
        })
    }
    let shared = || kernel.buffers.values().any(|buffer| buffer.space == Space::Shared);
    match copies(&kernel.body) {
        true => "ring",
        false if shared() => "shared",
        false => "schedule",
    }
}

/// Fusions of which many are several kernels, and none depends on the last bit of a value.
pub(crate) fn segment_limits() -> Limits {
    Limits {
        tame: true,
        dtypes: vec![DType::F32, DType::F64, DType::I32, DType::BF16],
        sizes: vec![0, 1, 2, 3, 5, 8, 17],
        rank: 3,
        ops: 20,
        ..Limits::default()
    }
}

/// Whether something that is compared bit for bit depends on a float, whose last bit may differ.
fn floats_decide(fusion: &Fusion) -> bool {
    let is_float = |tensor| fusion.tensors[tensor].dtype.is_float();
    fusion
        .ops
        .iter()
        .any(|(id, op)| fusion.tensor_inputs(id).any(is_float) && !op.outputs.iter().copied().all(is_float))
}

/// Fusions of the whole language, larger, of integers.
pub(crate) fn program_limits() -> Limits {
    use DType::{Bool, I8, I16, I32, I64, Index, U8, U16, U32, U64};
    Limits {
        tame: true,
        dtypes: vec![Bool, I8, I16, I32, I64, U8, U16, U32, U64, Index],
        sizes: vec![0, 1, 2, 3, 5, 8, 17],
        rank: 4,
        ops: 60,
        ..Limits::whole_language()
    }
}

fn sim_options(seed: u64) -> SimOptions {
    let schedules = [SimSchedule::Lockstep, SimSchedule::Random, SimSchedule::Pct(3), SimSchedule::Adversary];
    SimOptions { schedule: schedules[seed as usize % 4], seed, threads: 1, count: false, ..SimOptions::default() }
}

/// A kernel writes its results dense, whatever strides the reference gives them.
fn difference(found: &[u8], expected: &HostTensor) -> Option<String> {
    let wanted = expected.dense_bytes();
    if found == &wanted[..] {
        return None;
    }
    let dtype = expected.dtype();
    let first = (0..expected.numel()).find(|i| storage::read(dtype, found, *i) != storage::read(dtype, &wanted, *i))?;
    Some(format!(
        "element {first} is {:?}, {:?} expected",
        storage::read(dtype, found, first),
        storage::read(dtype, &wanted, first)
    ))
}
