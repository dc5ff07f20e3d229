//! Where the time of a program goes, step by step: compiling it, and running it.
//!
//! In: a fusion and arguments. Out: [`ProgramProfile`], a table by its `Display`. Every kernel is
//! compiled anew, one after the other, so that times are its own, whatever the session has
//! compiled before; machine code that a code store has is found there. On a GPU each step is
//! measured by itself, beside a copy of the bytes that it moves; the simulator counts instead.
//! The caller brings the clock.

use super::bench::BenchOptions;
use super::executor::Call;
use super::session::{Session, alignment, guard};
use super::times::PhaseTimes;
use crate::backend::sim::Counters;
use crate::compile::{self, BoundFusion, KernelChoice, KernelForm, Plan, PlanSource};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{self, Fusion};
use crate::options::{CompileCx, NoTrace, Options, Phase, RunChecks, SimOptions, Trace};
use crate::program::{Program, Step};
use crate::segment::{self, Derived};
use crate::tensor::{Arg, ArgMeta};
use crate::util::Hash128;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A clock of the caller: the time since some moment.
pub type Clock<'a> = &'a (dyn Fn() -> Duration + Send + Sync);

/// Where the time of a program goes.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramProfile {
    /// The name of the fusion.
    pub name: String,
    /// The device, simulated or real.
    pub device: String,
    /// What making the program took: passes, segments, kernels without their machine code.
    pub making: Duration,
    /// Its steps in order; views are none.
    pub steps: Vec<StepProfile>,
}

/// Where the time of a step goes.
#[derive(Clone, Debug, PartialEq)]
pub struct StepProfile {
    /// The number of its segment; none of a copy.
    pub segment: Option<usize>,
    /// The heuristic of a kernel, `host` or `copy`.
    pub made_by: &'static str,
    /// The phases of compiling its kernel, in order; none of other steps, and where it has the
    /// kernel of an earlier step.
    pub compile: Vec<(Phase, Duration)>,
    /// Bytes of the elements that it reads, each once.
    pub bytes_read: u64,
    /// Bytes of the elements that it writes.
    pub bytes_written: u64,
    /// What it costs.
    pub cost: StepCost,
}

/// What a step costs.
#[derive(Clone, Debug, PartialEq)]
pub enum StepCost {
    /// Nothing is launched, or nothing is known of it: a copy on the simulator.
    Nothing,
    /// Time on a GPU, the median in nanoseconds.
    Timed {
        /// Of the step.
        ns: f64,
        /// Of a copy of as many bytes, if one was asked for.
        copy_ns: Option<f64>,
    },
    /// What the simulator counted.
    Counted(Box<Counters>),
    /// Time that the host took to compute it.
    Host(Duration),
}

impl StepProfile {
    /// Bytes that it reads and writes.
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
    /// Its speed as a share of that of a copy of as many bytes.
    pub fn share_of_copy(&self) -> Option<f64> {
        match self.cost {
            StepCost::Timed { ns, copy_ns } => Some(copy_ns? / ns),
            StepCost::Nothing | StepCost::Counted(_) | StepCost::Host(_) => None,
        }
    }
    /// Bytes moved for each nanosecond, which is GB/s.
    pub fn gigabytes_per_second(&self) -> Option<f64> {
        match self.cost {
            StepCost::Timed { ns, .. } => Some(self.bytes() as f64 / ns),
            StepCost::Nothing | StepCost::Counted(_) | StepCost::Host(_) => None,
        }
    }
    /// The time of one phase of compiling.
    pub fn compile_time(&self, phase: Phase) -> Option<Duration> {
        self.compile.iter().find(|(own, _)| *own == phase).map(|(_, time)| *time)
    }
}

/// Makes a program anew and measures its steps.
pub(super) fn profile(
    session: &Session,
    fusion: &Fusion,
    args: &[Arg],
    bench: &BenchOptions,
    clock: Clock<'_>,
) -> Result<ProgramProfile> {
    // One after the other, or kernels would be charged with each other's time.
    let options = Options { compile_threads: 1, ..session.options().clone() };
    let cx = CompileCx { options: &options, device: session.device(), trace: &NoTrace };
    let plans = TimedPlans { cx, clock, times: Mutex::default() };
    let start = clock();
    let program = Arc::new(guard("profiling", fusion, || make(&cx, &plans, fusion, args))?);
    let making = clock().saturating_sub(start);
    let mut steps = Vec::with_capacity(program.steps.len());
    for step in &program.steps {
        steps.push(described(&program, step, plans.compile_anew(session, step)?));
    }
    let host = HostTimes { clock, state: Mutex::default() };
    let sim = SimOptions { count: true, ..session.sim_options() };
    let cx = CompileCx { trace: &host, ..cx };
    let call = Call { cx, program: &program, args, known: None, sim: &sim, checks: RunChecks::NONE };
    let costs = guard("profiling", fusion, || session.executor().measure_steps(call, bench))?;
    if costs.len() != steps.len() {
        return Err(Diagnostic::bug(format!("{} costs of {} steps", costs.len(), steps.len())));
    }
    let taken = &host.lock().taken;
    for (profile, (step, cost)) in steps.iter_mut().zip(program.steps.iter().zip(costs)) {
        profile.cost = match step {
            Step::Host(call) => StepCost::Host(taken.get(&(call.segment as u64)).copied().unwrap_or_default()),
            _ => cost,
        };
    }
    let device = if session.is_simulator() { "simulated " } else { "" };
    Ok(ProgramProfile { name: fusion.name.clone(), device: format!("{device}{}", cx.device.name), making, steps })
}

fn make(cx: &CompileCx<'_>, plans: &TimedPlans<'_>, fusion: &Fusion, args: &[Arg]) -> Result<Program> {
    let bindings = fusion::bind_args(fusion, args)?;
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let alignments: Vec<u32> = args.iter().map(alignment).collect();
    let bound = BoundFusion { fusion, bindings: &bindings, args: &metas, alignments: &alignments };
    let segments = segment::segment(cx, plans, &Derived::new(cx, fusion)?, &bound)?;
    Program::new(Arc::new(segments), &metas)
}

fn described(program: &Program, step: &Step, compile: Vec<(Phase, Duration)>) -> StepProfile {
    let bytes = |values: &[_]| values.iter().map(|value| program.values[*value].meta.distinct_bytes()).sum();
    let (segment, made_by) = match step {
        Step::Launch(launch) => (Some(launch.segment), launch.plan.scheduler()),
        Step::Library(library) => (Some(library.call.segment), "library"),
        Step::Host(call) => (Some(call.segment), "host"),
        Step::Copy(_) => (None, "copy"),
    };
    let (bytes_read, bytes_written) = (bytes(&step.reads()), bytes(step.writes()));
    StepProfile { segment, made_by, compile, bytes_read, bytes_written, cost: StepCost::Nothing }
}

/// Phases with their times.
type Phases = Vec<(Phase, Duration)>;

/// Compiles each kernel anew and takes its times.
struct TimedPlans<'a> {
    cx: CompileCx<'a>,
    clock: Clock<'a>,
    /// Of each kernel that no step was charged with yet.
    times: Mutex<BTreeMap<Hash128, Phases>>,
}

impl TimedPlans<'_> {
    fn timed<R>(&self, work: impl FnOnce(&CompileCx<'_>) -> Result<R>) -> Result<(R, Phases)> {
        let times = PhaseTimes::new(self.clock);
        let done = work(&CompileCx { trace: &times, ..self.cx })?;
        Ok((done, times.totals()))
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<Hash128, Phases>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phases of compiling a step's kernel, its machine code included.
    fn compile_anew(&self, session: &Session, step: &Step) -> Result<Phases> {
        let Step::Launch(launch) = step else { return Ok(Vec::new()) };
        let Some(mut phases) = self.times().remove(&launch.plan.kernel_hash()) else { return Ok(Vec::new()) };
        if !launch.launch.is_empty() {
            let (executor, plan) = (session.executor(), &launch.plan);
            let compile = || self.timed(|cx| executor.compile_anew(cx, plan));
            phases.extend(guard("compiling", plan.fusion(), compile)?.1);
        }
        Ok(phases)
    }
}

impl PlanSource for TimedPlans<'_> {
    fn plan(&self, form: &KernelForm, choice: &KernelChoice) -> Result<Arc<Plan>> {
        let (plan, phases) = self.timed(|cx| compile::plan(cx, form, choice))?;
        self.times().entry(plan.kernel_hash()).or_insert(phases);
        Ok(Arc::new(plan))
    }
    fn has(&self, _form: &KernelForm, _choice: &KernelChoice) -> bool {
        false
    }
}

/// A trace that takes the times of operations on the host, by their segments.
struct HostTimes<'a> {
    clock: Clock<'a>,
    state: Mutex<HostState>,
}

#[derive(Default)]
struct HostState {
    open: Option<(u64, Duration)>,
    taken: BTreeMap<u64, Duration>,
}

impl HostTimes<'_> {
    fn lock(&self) -> MutexGuard<'_, HostState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trace for HostTimes<'_> {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        if phase == Phase::Launch && name == "host" {
            self.lock().open = Some((id, (self.clock)()));
        }
    }
    fn exit(&self, phase: Phase) {
        let now = (self.clock)();
        let mut state = self.lock();
        if phase == Phase::Launch
            && let Some((id, start)) = state.open.take()
        {
            state.taken.insert(id, now.saturating_sub(start));
        }
    }
}
