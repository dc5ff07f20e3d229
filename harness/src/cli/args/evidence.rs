//! Options that say what is collected about failures.

use super::command::RUNS;
use super::table::{OptionRow, value};
use crate::evidence::gpu_core::CoreDump;
use crate::evidence::sanitizer::Sample;

/// What is collected about failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) core_dump: CoreDump,
    pub(crate) sanitize: Option<Sample>,
}

pub(super) const ROWS: &[OptionRow] = &[
    value(
        "--sanitize",
        "TOOL[=RATE]",
        RUNS,
        "run the cases, or a share of those that are selected, under memcheck, racecheck, initcheck or synccheck",
        |args, given| {
            let sample = Sample::parse(given.text()).map_err(|wanted| given.wrong(&wanted))?;
            args.evidence.sanitize = Some(sample);
            Ok(())
        },
    )
    .again(),
    value(
        "--gpu-coredump",
        "light|full|off",
        RUNS,
        "have the CUDA driver dump a faulting or hanging kernel (default: off)",
        |args, given| {
            let known = [("light", CoreDump::Light), ("full", CoreDump::Full), ("off", CoreDump::Off)];
            args.evidence.core_dump = given.word(&known)?;
            Ok(())
        },
    )
    .again(),
];
