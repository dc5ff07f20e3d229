//! The device of a worker, open for the worker's whole life.

use super::played_times;
use crate::code_cache::{CodeUse, store};
use crate::outcome::Outcome;
use crate::proto::{DeviceSpec, Knobs, PlayedTimes};
use engine::backend::cuda::nvrtc::NvrtcSearch;
use engine::diag::Result;
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::Session;

/// What cases run on.
pub(crate) enum Device {
    /// Nothing but the reference.
    Reference,
    /// A session, simulated or real, with the host threads that it may use.
    Session { session: Box<Session>, threads: u32, uuid: Option<String>, times: Option<PlayedTimes> },
}

impl Device {
    pub(crate) fn open(spec: &DeviceSpec, knobs: &Knobs) -> Result<Self> {
        // There are as many workers as the machine bears, with threads that compile coming cases; and what a
        // case does by itself happens on its own thread, where a crash is looked for.
        let options = Options { line_info: knobs.line_info, compile_threads: 1, ..Options::default() };
        let (session, threads) = match spec {
            DeviceSpec::Reference => return Ok(Device::Reference),
            DeviceSpec::Sim { threads, .. } => {
                let sim = SimOptions { threads: *threads, ..SimOptions::default() };
                (Session::simulator(DeviceDesc::h200(), sim, options), *threads)
            }
            DeviceSpec::Played { uuid, threads, times } => {
                let sim = SimOptions { threads: *threads, ..SimOptions::default() };
                let session = Session::simulator(DeviceDesc::h200(), sim, options);
                let (uuid, times) = (Some(uuid.clone()), times.clone());
                return Ok(Device::Session { session: Box::new(session), threads: *threads, uuid, times });
            }
            // The environment leaves exactly one GPU visible.
            DeviceSpec::Cuda { nvrtc, .. } => {
                let search = NvrtcSearch { folders: nvrtc.clone(), ..NvrtcSearch::default() };
                let session = Session::cuda_with(0, options, &search)?;
                let shared = knobs.code_cache.as_deref().map(store);
                (shared.into_iter().fold(session, Session::with_code_store), 0)
            }
        };
        let uuid = session.gpu().map(|(gpu, _)| gpu.uuid());
        Ok(Device::Session { session: Box::new(session), threads, uuid, times: None })
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Device::Reference => "reference".into(),
            Device::Session { session, .. } if session.is_simulator() => format!("simulated {}", session.device().name),
            Device::Session { session, .. } => session.device().name.clone(),
        }
    }

    /// Host threads that a simulated device may use.
    pub(crate) fn threads(&self) -> u32 {
        match self {
            Device::Reference => 0,
            Device::Session { threads, .. } => *threads,
        }
    }

    /// Whether libraries of CUDA work in this process.
    pub(crate) fn is_gpu(&self) -> bool {
        matches!(self, Device::Session { session, .. } if !session.is_simulator())
    }

    /// The identity of the GPU, as CUDA shows it.
    pub(crate) fn uuid(&self) -> Option<String> {
        match self {
            Device::Reference => None,
            Device::Session { uuid, .. } => uuid.clone(),
        }
    }

    /// Measures on a played GPU: times by what was counted.
    pub(crate) fn play_times(&self, case_id: &str, seed: u64, outcome: &mut Outcome) {
        if let (Device::Session { times: Some(times), .. }, Some(perf)) = (self, &mut outcome.perf) {
            played_times::play(times, case_id, seed, perf);
        }
    }

    /// Whether kernels are compiled although the code cache has them.
    pub(crate) fn compile_anew(&self, anew: bool) {
        if let Device::Session { session, .. } = self {
            session.compile_anew(anew);
        }
    }

    /// What was shared of compiled kernels so far; nothing where none are compiled.
    pub(crate) fn code(&self) -> Option<CodeUse> {
        match self {
            Device::Reference => None,
            Device::Session { session, .. } => session.code_counts().map(CodeUse::of),
        }
    }

    /// Versions of libraries and the like, for provenance.
    pub(crate) fn notes(&self) -> Vec<String> {
        match self {
            Device::Reference => Vec::new(),
            Device::Session { session, .. } => session.notes(),
        }
    }
}
