//! Options that choose devices.

use super::command::{Command, Commands, PLANS, VERDICTS};
use super::table::{DEVICES, OptionRow, flag, value};
use crate::device::{GpuOptions, GpuPolicy, MAX_WORKERS_PER_GPU, WantedGpus, share};
use crate::units;
use std::path::PathBuf;

/// Which devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// A GPU if there is one, the simulator otherwise.
    #[default]
    Auto,
    Gpus(WantedGpus),
    Sim(usize),
    Reference,
}

/// Which devices, and how many workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) device: DeviceArg,
    /// Which GPUs are refused, and how many workers each has.
    pub(crate) gpu: GpuOptions,
    pub(crate) jobs: Option<usize>,
    /// Whether every case runs on every device.
    pub(crate) cross: bool,
    /// A file in the place of NVML.
    pub(crate) nvml: Option<PathBuf>,
}

const CHOICE: Commands = PLANS.and(&[Command::Selftest]);
/// Commands that compare devices, or say how they would be.
const CROSSES: Commands = VERDICTS.and(&[Command::Plan]);
const TARGETS: Commands = CHOICE.and(&[Command::List, Command::Show]);

pub(super) const ROWS: &[OptionRow] = &[
    value("--gpus", "N|all|UUID,...", TARGETS, "run on the N quietest GPUs, all, or those named", |args, given| {
        let wanted = WantedGpus::parse(given.text());
        let wanted = wanted.ok_or_else(|| given.wrong("a number of GPUs from 1 to 256, `all`, or UUIDs"))?;
        args.devices.device = DeviceArg::Gpus(wanted);
        Ok(())
    })
    .env(&["HARNESS_GPUS"])
    .group(DEVICES)
    .device(),
    value("--sim", "N", TARGETS, "run on N simulated devices", |args, given| {
        args.devices.device = DeviceArg::Sim(given.count("simulated devices")?);
        Ok(())
    })
    .group(DEVICES)
    .device(),
    flag("--ref", TARGETS, "run on the reference evaluator only", |args, _| {
        args.devices.device = DeviceArg::Reference;
        Ok(())
    })
    .group(DEVICES)
    .device(),
    value(
        "--gpu-policy",
        "idle|any|exclusive",
        CHOICE,
        "refuse GPUs in use; exclusive: to others too",
        |args, given| {
            let words = [("idle", GpuPolicy::Idle), ("any", GpuPolicy::Any), ("exclusive", GpuPolicy::Exclusive)];
            args.devices.gpu.policy = given.word(&words)?;
            Ok(())
        },
    )
    .device(),
    value("--max-gpu-util", "SHARE", CHOICE, "refuse busier GPUs: 0.10 or 10%", |args, given| {
        let share = share(given.text()).ok_or_else(|| given.wrong("a share such as 0.10 or 10%"))?;
        args.devices.gpu.max_util = Some(share);
        Ok(())
    })
    .device(),
    value("--max-gpu-mem-used", "BYTES", CHOICE, "refuse GPUs with more memory in use: 500MiB", |args, given| {
        let bytes = units::bytes(given.text()).ok_or_else(|| given.wrong("an amount of memory such as 500MiB"))?;
        args.devices.gpu.max_mem_used = Some(bytes);
        Ok(())
    })
    .device(),
    value("--workers-per-gpu", "K", CHOICE, "worker processes on each GPU (default: 1)", |args, given| {
        let count = given.count("processes")?;
        if count > MAX_WORKERS_PER_GPU {
            return Err(given.wrong(&format!("at most {MAX_WORKERS_PER_GPU} processes")));
        }
        args.devices.gpu.workers_per_gpu = Some(count);
        Ok(())
    })
    .device(),
    value("--jobs", "N", CHOICE, "worker processes at a time (default: one for each device)", |args, given| {
        args.devices.jobs = Some(given.count("processes")?);
        Ok(())
    })
    .device(),
    flag("--cross", CROSSES, "run each case on every chosen device: results and kernels must be equal", |args, _| {
        args.devices.cross = true;
        Ok(())
    }),
    // A file that plays NVML: runs over many GPUs without one.
    value(
        "--nvml",
        "FILE",
        TARGETS.and(&[Command::Doctor]),
        "a file plays NVML and its GPUs: cases run on the simulator",
        |args, given| {
            args.devices.nvml = Some(given.path()?);
            Ok(())
        },
    )
    .env(&["HARNESS_NVML"])
    .device()
    .path(),
];
