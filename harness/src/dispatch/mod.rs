//! The dispatcher: one thread and one worker process for each slot, a
//! [`Source`] that says what each of them runs next, and events for whoever
//! records and shows them.
//!
//! A [`Job`] that a slot took is settled or put back exactly once; so no case is
//! lost, whatever happens to workers, devices and the run.

mod capture;
mod compilers;
mod cross;
mod farewell;
mod fit;
mod fleet;
mod handle;
mod health;
mod home;
mod job;
mod judge;
mod kernel_log;
mod kills;
mod phase;
mod pool;
mod postmortem;
mod queue;
mod slot;
mod source;
mod tell;
mod turns;

pub(crate) use capture::Output;
pub(crate) use compilers::Compilers;
pub(crate) use cross::{Cross, one_of_each};
pub(crate) use farewell::Farewell;
pub(crate) use fit::unfit_for_all;
pub(crate) use job::{CaseResult, Conclusion, Job};
pub(crate) use judge::Retries;
pub(crate) use phase::PhaseLimit;
pub(crate) use pool::run;
pub(crate) use queue::{Known, Policy, Queue, order};
pub(crate) use source::{Settled, Source, Take};

use crate::case::Case;
use crate::crumb::Crumb;
use crate::device::{Gpu, Nvml};
use crate::evidence::gpu_core::CoreDump;
use crate::evidence::sanitizer::Sanitizer;
use crate::evidence::{Frame, Stack};
use crate::proto::{DeviceSpec, Knobs, Mode};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// When a worker is replaced although it is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Never.
    #[default]
    Worker,
    /// After so many cases.
    Batch(u64),
    /// After each case.
    Case,
}

impl Isolation {
    /// Cases after which a worker is replaced.
    pub(crate) fn limit(self) -> u64 {
        match self {
            Isolation::Worker => u64::MAX,
            Isolation::Batch(count) => count,
            Isolation::Case => 1,
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Isolation::Worker => f.write_str("worker"),
            Isolation::Batch(count) => write!(f, "batch:{count}"),
            Isolation::Case => f.write_str("case"),
        }
    }
}

/// Where cases run: one worker process at a time.
#[derive(Clone, Debug)]
pub(crate) struct SlotSpec {
    pub(crate) device: DeviceSpec,
    /// Short name for people and records: `sim0`, `gpu2`.
    pub(crate) label: String,
    /// Environment of the worker besides the allow-list.
    pub(crate) env: Vec<(String, String)>,
    /// The GPU, as it was when it was chosen.
    pub(crate) gpu: Option<Gpu>,
}

/// Everything a run needs.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) slots: Vec<SlotSpec>,
    /// What workers do differently from the usual.
    pub(crate) knobs: Knobs,
    /// Time of a case unless it has its own; the command line's wins over both.
    pub(crate) default_timeout: Duration,
    pub(crate) forced_timeout: Option<Duration>,
    /// Time for single phases, whatever the case as a whole may take.
    pub(crate) phase_limits: Vec<PhaseLimit>,
    /// Between TERM and KILL.
    pub(crate) grace: Duration,
    pub(crate) mode: Mode,
    pub(crate) bless: bool,
    pub(crate) isolation: Isolation,
    /// Cases after which a worker is replaced although it is well.
    pub(crate) recycle: Option<u64>,
    /// Bytes of private memory that a worker may have.
    pub(crate) memory: Option<u64>,
    /// The binary that workers run: this harness.
    pub(crate) worker_exe: PathBuf,
    /// Core dumps of GPUs.
    pub(crate) core_dump: CoreDump,
    /// What every worker runs under, if anything.
    pub(crate) sanitizer: Option<Sanitizer>,
    /// Private folders of workers are made here.
    pub(crate) work_dir: PathBuf,
    /// Not 0 when a signal asks the run to stop: the signal's number.
    pub(crate) stop: Arc<AtomicUsize>,
    /// Asked and listened to during the run, where GPUs are used.
    pub(crate) nvml: Option<Arc<dyn Nvml>>,
}

impl RunPlan {
    /// Warm workers on these slots, checked runs, and nothing out of the ordinary.
    pub(crate) fn plain(slots: Vec<SlotSpec>, worker_exe: PathBuf, work_dir: PathBuf) -> Self {
        Self {
            slots,
            knobs: Knobs::default(),
            default_timeout: Duration::from_secs(60),
            forced_timeout: None,
            phase_limits: Vec::new(),
            grace: Duration::from_secs(2),
            mode: Mode::Check,
            bless: false,
            isolation: Isolation::Worker,
            recycle: None,
            memory: None,
            worker_exe,
            core_dump: CoreDump::Off,
            sanitizer: None,
            work_dir,
            stop: Arc::default(),
            nvml: None,
        }
    }
}

/// How a worker that did not end its case ended itself.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Death {
    pub(crate) signal: Option<String>,
    pub(crate) exit_code: Option<i32>,
    /// What a handler in the worker saw first, where that differs: a stack
    /// overflow is a segmentation fault that ends as an abort.
    pub(crate) caught: Option<String>,
    /// Why the kernel sent it, and the address that it is about.
    pub(crate) si_code: Option<i32>,
    pub(crate) reason: String,
    pub(crate) overflow: bool,
    pub(crate) fault_addr: Option<String>,
    /// The thread that crashed: name and id.
    pub(crate) thread: Option<String>,
    /// Its stack, innermost call first.
    pub(crate) frames: Vec<Frame>,
    /// Which kind of hang it is.
    #[serde(skip)]
    pub(crate) hang: String,
    /// Calls in the middle of the stack that are left out, and how many frames stand before them.
    pub(crate) frames_left_out: usize,
    pub(crate) frames_left_out_at: usize,
    /// Stacks of the threads of a hanging worker.
    pub(crate) stacks: Vec<Stack>,
    /// Where the thread that crashed was, else where the case's own was.
    pub(crate) crumb: Crumb,
    /// Where the other lanes were, if any.
    pub(crate) lanes: Vec<Crumb>,
    /// What came of asking the driver for a core dump of a hanging kernel.
    pub(crate) gpu_core: Option<String>,
    pub(crate) stderr_tail: String,
    pub(crate) stdout_tail: String,
    /// Cases the worker had run before, the last one last.
    pub(crate) prior_cases: Vec<String>,
    /// States of the threads of a hanging worker, as in `/proc`.
    pub(crate) threads: String,
    pub(crate) unkillable: bool,
    /// Whether an allocator said that no memory is left.
    pub(crate) no_memory: bool,
    /// Whether the kernel killed it for want of memory, and what is known about that.
    pub(crate) oom_killed: bool,
    pub(crate) oom_note: String,
    /// Xids that its GPU reported while the case ran.
    pub(crate) xids: Vec<u64>,
    /// What the kernel says about a process that could not be killed.
    pub(crate) proc_state: String,
}

impl Death {
    /// The stack of the thread that crashed.
    pub(crate) fn crashed(&self) -> Stack {
        let (left_out, left_out_at) = (self.frames_left_out, self.frames_left_out_at);
        Stack { frames: self.frames.clone(), left_out, left_out_at, ..Stack::default() }
    }
}

/// What happens during a run, in order for each slot.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Spawned {
        slot: usize,
        worker: String,
        pid: u32,
    },
    Ready {
        slot: usize,
        worker: String,
        device: String,
        notes: Vec<String>,
        ready_ns: u64,
    },
    Started {
        slot: usize,
        case: Arc<Case>,
    },
    /// An attempt has ended.
    Finished(Box<CaseResult>),
    /// The verdict on a case is known.
    Concluded(Box<Conclusion>),
    Ended {
        slot: usize,
        worker: String,
        reason: String,
        cases_run: u64,
        farewell: Farewell,
    },
    /// The slot takes no more cases.
    Retired {
        slot: usize,
        code: String,
        reason: String,
    },
    /// Something for the record, and perhaps for people.
    Record {
        kind: &'static str,
        fields: serde_json::Value,
        say: Option<String>,
    },
    /// Nothing happened for a while.
    Tick,
}
