//! `list`: the ids of the selected cases, one a line, and with
//! `--about` why each exists.

use super::args::Args;
use super::{Failure, devices, session};
use crate::case::Case;
use crate::exit;

pub(super) fn list(args: &Args) -> Result<u8, Failure> {
    // GPU sizes only when GPUs are asked for: listing must not depend on the machine.
    let target = devices::target(args);
    let cases = session::select(args, session::load_all(args, target)?.cases)?;
    let line = |case: &Case| match args.output.about {
        true => format!("{}  {}\n", case.id, case.about),
        false => format!("{}\n", case.id),
    };
    let text: String = cases.iter().map(line).collect();
    super::print(&text);
    Ok(exit::OK)
}
