//! What a run is to do, and where: the plan that slots and workers follow.

use super::PhaseLimit;
use crate::device::{Gpu, Nvml};
use crate::evidence::gpu_core::CoreDump;
use crate::evidence::sanitizer::Sanitizer;
use crate::proto::{DeviceSpec, Knobs, Mode};
use crate::verified::VerifiedOutputs;
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
    /// Outputs that need no reference, where it is not evaluated for all.
    pub(crate) verified: Option<Arc<VerifiedOutputs>>,
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
            verified: None,
            work_dir,
            stop: Arc::default(),
            nvml: None,
        }
    }
}
