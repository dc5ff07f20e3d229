//! What a self-test is asked for, and its devices and workers.

use crate::cli::Failure;
use crate::cli::args::{Args, DeviceArg, DeviceOptions, Form};
use crate::cli::devices::{self, Devices};
use crate::cli::run::{setup, stop_flag};
use crate::cli::session::Folders;
use crate::code_cache::CodeCache;
use crate::dispatch::RunPlan;
use crate::evidence::sanitizer::Sample;
use crate::proto::Knobs;
use crate::record::RunStore;
use crate::report::Detail;
use std::path::PathBuf;
use std::time::Duration;

/// A limit that `oom` reaches without taking the machine's memory.
const MEMORY: u64 = 4 << 30;
/// CUDA's own private mappings count too.
const MEMORY_BESIDE_CUDA: u64 = 32 << 30;
/// Workers without a GPU: two on each device, since some faults need company.
const SHARING: usize = 2;
const GRACE: Duration = Duration::from_millis(200);

/// What a self-test is asked for.
pub(super) struct SelftestOptions {
    devices: DeviceOptions,
    sanitize: Option<Sample>,
    /// Threads of a worker that compile coming cases.
    pub(super) compile_threads: u32,
    code_cache: Option<CodeCache>,
    memory: u64,
    grace: Duration,
    pub(super) repeats: u32,
    pub(super) seed: u64,
    pub(super) results: PathBuf,
    pub(super) form: Option<Form>,
    /// Of what is as it should be, only how much it is.
    pub(super) quiet: bool,
    pub(super) argv: Vec<String>,
}

impl SelftestOptions {
    /// What the command line says, with what is different here: workers without a GPU
    /// share a device.
    pub(super) fn of(args: &Args) -> Self {
        let mut devices = args.devices.clone();
        if devices.device == DeviceArg::Auto {
            devices.device = DeviceArg::Sim(1);
        }
        let on_gpu = matches!(devices.device, DeviceArg::Gpus(_));
        if !on_gpu {
            devices.jobs.get_or_insert(SHARING);
        }
        let memory = if on_gpu { MEMORY_BESIDE_CUDA } else { MEMORY };
        Self {
            devices,
            sanitize: args.evidence.sanitize,
            compile_threads: args.isolation.compile_threads.unwrap_or(0),
            code_cache: args.isolation.code_cache.clone(),
            memory: args.isolation.memory.unwrap_or(memory),
            grace: args.time.grace.unwrap_or(GRACE),
            repeats: args.repeat.count.map_or(1, |count| count as u32),
            seed: args.repeat.seed,
            results: Folders::of(args).results.join("selftest"),
            form: args.records.form,
            quiet: args.records.detail == Detail::Quiet,
            argv: args.argv.clone(),
        }
    }

    pub(super) fn devices(&self) -> Result<Devices, Failure> {
        devices::resolve(&self.devices, self.sanitize.as_ref())
    }

    pub(super) fn plan(&self, devices: Devices, store: &RunStore) -> RunPlan {
        let code_cache = setup::code_cache(self.code_cache.as_ref(), &devices.slots).folder(&store.work_dir());
        RunPlan {
            knobs: Knobs { compile_threads: self.compile_threads, code_cache, ..Knobs::default() },
            grace: self.grace,
            memory: Some(self.memory),
            nvml: devices.nvml,
            stop: stop_flag(),
            ..RunPlan::plain(devices.slots, "/proc/self/exe".into(), store.work_dir())
        }
    }
}
