//! Devices and workers of a self-test.

use crate::cli::Failure;
use crate::cli::args::{Args, DeviceArg};
use crate::cli::devices::{self, Devices};
use crate::cli::run::{setup, stop_flag};
use crate::dispatch::RunPlan;
use crate::proto::Knobs;
use crate::record::RunStore;
use std::time::Duration;

/// A limit that `oom` reaches without taking the machine's memory.
const MEMORY: u64 = 4 << 30;
/// CUDA's own private mappings count too.
const MEMORY_BESIDE_CUDA: u64 = 32 << 30;
/// Workers without a GPU: two on each device, since some faults need company.
const SHARING: usize = 2;
const GRACE: Duration = Duration::from_millis(200);

/// The devices, and the options with what is different here: workers without a
/// GPU share a device.
pub(super) fn devices(args: &Args) -> Result<(Args, Devices), Failure> {
    let mut args = args.clone();
    if args.devices.device == DeviceArg::Auto {
        args.devices.device = DeviceArg::Sim(1);
    }
    if !on_gpu(&args) {
        args.devices.jobs.get_or_insert(SHARING);
    }
    let devices = devices::resolve(&args)?;
    Ok((args, devices))
}

fn on_gpu(args: &Args) -> bool {
    matches!(args.devices.device, DeviceArg::Gpus(_))
}

pub(super) fn plan(args: &Args, devices: Devices, store: &RunStore) -> RunPlan {
    let memory = if on_gpu(args) { MEMORY_BESIDE_CUDA } else { MEMORY };
    let code_cache = setup::code_cache(args, &devices.slots).folder(&store.work_dir());
    let compile_threads = args.isolation.compile_threads.unwrap_or(0);
    RunPlan {
        knobs: Knobs { compile_threads, code_cache, ..Knobs::default() },
        grace: args.time.grace.unwrap_or(GRACE),
        memory: Some(args.isolation.memory.unwrap_or(memory)),
        nvml: devices.nvml,
        stop: stop_flag(),
        ..RunPlan::plain(devices.slots, "/proc/self/exe".into(), store.work_dir())
    }
}
