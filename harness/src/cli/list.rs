//! `list`: the ids of the selected cases, one a line.

use super::args::{Args, DeviceArg};
use super::{Failure, session};
use crate::case::Target;
use crate::exit;

pub(super) fn list(args: &Args) -> Result<u8, Failure> {
    // GPU sizes only when GPUs are asked for: listing must not depend on the machine.
    let target = match args.device {
        DeviceArg::Gpus(_) | DeviceArg::AllGpus => Target::Cuda,
        _ => Target::Sim,
    };
    let cases = session::select(args, session::load_all(args, target)?.cases)?;
    let text: String = cases.iter().map(|case| format!("{}\n", case.id)).collect();
    super::print(&text);
    Ok(exit::OK)
}
