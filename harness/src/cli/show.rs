//! `show`: a stage of one case as text.

use super::args::{Args, DeviceArg, DeviceOptions, usage};
use super::session::{self, CaseOptions};
use super::{Failure, devices};
use crate::case::{Case, Target};
use crate::exit;
use crate::select::Filter;
use crate::worker::{self, Stage};
use engine::diag::render;
use engine::options::{DeviceDesc, Options, SimOptions};
use engine::runtime::Session;

pub(super) fn show(args: &Args) -> Result<u8, Failure> {
    let (options, target) = (CaseOptions::of(args), devices::target(&args.devices));
    let wanted = args.operand().unwrap_or_default().to_string();
    let mut cases = session::load_all(&options, target)?.cases;
    // The ids differ where [sim] replaces sizes: a GPU's id is known too.
    if !cases.iter().any(|case| case.id == wanted) {
        let other = if target == Target::Sim { Target::Cuda } else { Target::Sim };
        let known: std::collections::BTreeSet<String> = cases.iter().map(|case| case.id.clone()).collect();
        cases.extend(session::load_all(&options, other)?.cases.into_iter().filter(|case| !known.contains(&case.id)));
    }
    let case = find(&wanted, cases)?;
    let stages = if args.files.stages.is_empty() { &[Stage::Fusion] } else { args.files.stages.as_slice() };
    let session = session(args, stages)?;
    for (i, stage) in stages.iter().enumerate() {
        if stages.len() > 1 {
            let gap = if i == 0 { "" } else { "\n" };
            crate::console::print(&format!("{gap};; {}\n", stage.name()));
        }
        let text = worker::show(&case, *stage, &session, args.repeat.seed).map_err(|diagnostics| {
            let shown: Vec<String> = diagnostics.iter().map(|d| render(d, &case.file, &case.text, case.line)).collect();
            Failure::new(exit::FAILED, shown.concat())
        })?;
        crate::console::print(&text);
        if !text.ends_with('\n') {
            crate::console::print("\n");
        }
    }
    Ok(exit::OK)
}

/// What makes the stages. Every text is the same for a simulated and a real H200; only a profile is
/// of the device, which is the first GPU where some are asked for.
fn session(args: &Args, stages: &[Stage]) -> Result<Session, Failure> {
    let options = Options::default();
    match &args.devices {
        DeviceOptions { device: DeviceArg::Gpus(_), nvml: None, .. } if stages.contains(&Stage::Profile) => {
            Session::cuda(0, options).map_err(|error| Failure::diagnostic(exit::FAILED, &error))
        }
        _ => Ok(Session::simulator(DeviceDesc::h200(), SimOptions::default(), options)),
    }
}

/// The case with this id, or the only one that a pattern matches.
fn find(wanted: &str, cases: Vec<Case>) -> Result<Case, Failure> {
    if let Some(case) = cases.iter().find(|case| case.id == wanted) {
        return Ok(case.clone());
    }
    let mut args = Args::default();
    args.select.wanted.filters.extend(Filter::parse(wanted));
    let mut no_pattern = Args::default();
    no_pattern.select.wanted.exact.push(wanted.into());
    let mut found = match args.select.wanted.filters.is_empty() || !wanted.contains(['*', '?']) {
        true => session::select(&CaseOptions::of(&no_pattern), cases)?,
        false => session::select(&CaseOptions::of(&args), cases)?,
    };
    if found.len() > 1 {
        let some: Vec<&str> = found.iter().take(4).map(|case| case.id.as_str()).collect();
        let message = format!("`{wanted}` matches {} cases, `show` takes one: {} ...", found.len(), some.join(" "));
        return Err(usage(message, "`harness list` prints ids"));
    }
    Ok(found.swap_remove(0))
}
