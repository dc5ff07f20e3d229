//! Options that choose devices.

use super::command::{Command, RUNS};
use super::table::{Row, flag, value};

/// Which devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DeviceArg {
    /// A GPU if there is one, the simulator otherwise.
    #[default]
    Auto,
    Gpus(usize),
    AllGpus,
    Sim(usize),
    Reference,
}

/// Which devices, and how many workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    pub(crate) device: DeviceArg,
    pub(crate) jobs: Option<usize>,
}

const TARGETS: super::command::Commands = RUNS.and(&[Command::List, Command::Show]);

pub(super) const ROWS: &[Row] = &[
    value("--gpus", "N|all", TARGETS, "run on the N quietest GPUs, one worker process each", |args, given| {
        args.devices.device = match given.text() {
            "all" => DeviceArg::AllGpus,
            _ => DeviceArg::Gpus(given.count("GPUs")?),
        };
        Ok(())
    })
    .env(&["HARNESS_GPUS"])
    .group("devices"),
    value("--sim", "N", TARGETS, "run on N simulated devices", |args, given| {
        args.devices.device = DeviceArg::Sim(given.count("simulated devices")?);
        Ok(())
    })
    .group("devices"),
    flag("--ref", TARGETS, "run on the reference evaluator only", |args, _| {
        args.devices.device = DeviceArg::Reference;
        Ok(())
    })
    .group("devices"),
    value("--jobs", "N", RUNS, "worker processes at a time (default: one for each device)", |args, given| {
        args.devices.jobs = Some(given.count("processes")?);
        Ok(())
    }),
];
