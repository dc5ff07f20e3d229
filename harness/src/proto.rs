//! What dispatcher and worker say to each other, over a socket of their own so
//! that stray prints cannot corrupt it: frames of `frame.rs`. A case has
//! *started* at [`FromWorker::Begin`] and *ended* only at [`FromWorker::End`]:
//! anything else in between, an orderly exit included, is a crash.

use crate::case::Case;
use crate::code_cache::CodeUse;
use crate::outcome::{Digest, Outcome};
use serde::{Deserialize, Serialize};

/// Changes with the messages; both ends are one binary, this guards against strays.
pub(crate) const PROTOCOL: u32 = 6;

/// What a worker has not prepared of the cases that it was told to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unprepared {
    /// How many it has not begun with: the last ones that it was told of.
    pub(crate) waiting: usize,
    /// The ids of those that it is at.
    pub(crate) under_way: Vec<String>,
}

/// On what a worker runs cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceSpec {
    /// The reference evaluator only.
    Reference,
    /// A simulated device.
    Sim { ordinal: usize, threads: u32 },
    /// A simulated device that stands for a GPU which a file plays: the UUID is
    /// the one that it shows.
    Played { uuid: String, threads: u32, times: Option<PlayedTimes> },
    /// The GPU that `CUDA_VISIBLE_DEVICES` leaves visible.
    /// NVRTC may be in one of the folders.
    Cuda { uuid: String, nvrtc: Vec<std::path::PathBuf> },
}

/// How long kernels take on a played GPU, beside what the simulator counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlayedTimes {
    /// Standard deviation from run to run, in millionths.
    pub(crate) noise_ppm: u32,
    /// Filters of cases that take so many thousandths of their time.
    pub(crate) slow: Vec<(String, u32)>,
}

/// What to do with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Check,
    Bench,
}

/// How workers of a run differ from the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Knobs {
    /// Threads that compile coming cases while one runs.
    pub(crate) compile_threads: u32,
    /// Seed of disturbed timing at the ends of spans.
    pub(crate) jitter: Option<u64>,
    /// Kernels are compiled with line numbers.
    pub(crate) line_info: bool,
    /// Each case is run twice and its results are compared.
    pub(crate) twice: bool,
    /// What the host would compute is refused.
    #[serde(default)]
    pub(crate) kernels_only: bool,
    /// The folder of compiled kernels that the workers on GPUs share, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code_cache: Option<std::path::PathBuf>,
}

/// Messages to a worker, as it gets them.
pub(crate) type ToWorker = Order<Box<Case>>;

/// Messages to a worker. `C` is a case, which who sends it only borrows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order<C> {
    Init {
        device: DeviceSpec,
        knobs: Knobs,
        /// Workers that the run has on this device, this one included.
        sharers: u32,
        /// A tool runs the worker: the end of the dispatcher reaches only the tool.
        sanitized: bool,
        /// Where compiler processes take connections.
        compilers: Option<String>,
    },
    /// Cases that will most likely come soon.
    Ahead {
        cases: Vec<C>,
    },
    Run {
        case: C,
        attempt: u32,
        repeat: u32,
        seed: u64,
        mode: Mode,
        bless: bool,
        /// Of outputs that passed before: those need no reference.
        known: Option<Digest>,
    },
    /// Run a known kernel and compare its result; `spoil` makes it a wrong one,
    /// as a sick GPU would.
    Canary {
        spoil: bool,
    },
    Drain,
}

/// What came of a worker's canary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CanaryResult {
    Right,
    /// What is wrong with it.
    Wrong(String),
    /// Why the device has none: it computes nothing.
    Skipped(String),
}

/// Messages from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromWorker {
    Hello {
        proto: u32,
        pid: u32,
    },
    Ready {
        device: String,
        /// The identity that CUDA shows, where there is a GPU.
        uuid: Option<String>,
        notes: Vec<String>,
    },
    Canary(CanaryResult),
    /// The device could not be opened; the worker ends.
    Unusable {
        code: String,
        message: String,
    },
    Begin {
        case_id: String,
        attempt: u32,
    },
    End {
        case_id: String,
        attempt: u32,
        outcome: Box<Outcome>,
        tainted: bool,
        /// What it shared of compiled kernels since it was started.
        code: Option<CodeUse>,
        unprepared: Unprepared,
    },
    Bye {
        cases_run: u64,
        code: Option<CodeUse>,
    },
}
