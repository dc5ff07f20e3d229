//! Which faults a self-test commits, and among which cases.

use crate::case::{Case, Target, read_text};
use crate::cli::Failure;
use crate::dispatch::{SlotSpec, shortage_can_be_told};
use crate::exit;
use crate::proto::DeviceSpec;
use crate::worker::fault::{self, FaultClass, FaultTarget};
use engine::diag::Diagnostic;
use std::sync::Arc;

/// Cases that are run between the faults and must stay as they are.
const INNOCENT: &str = include_str!("innocent.fuse");

/// The classes that these slots can have, and those that they cannot, with reasons.
pub(super) fn possible(slots: &[SlotSpec], compiling: bool) -> (Vec<&'static FaultClass>, Vec<(&'static str, String)>) {
    let (mut wanted, mut impossible) = (Vec::new(), Vec::new());
    let device = slots.first().map(|slot| &slot.device);
    for class in fault::classes() {
        let elsewhere = match (class.place, device) {
            (FaultTarget::Sim, Some(DeviceSpec::Sim { .. })) | (FaultTarget::Cuda, Some(DeviceSpec::Cuda { .. })) => {
                None
            }
            (FaultTarget::Any, _) => None,
            (FaultTarget::Sim, _) => Some("needs the simulator (--sim 1)".to_string()),
            (FaultTarget::Cuda, _) => Some("needs a GPU (--gpus 1)".to_string()),
        };
        // Threads that a case leaves are looked for where no others come and go.
        let beside = compiling && class.told == "leak.thread";
        let elsewhere = elsewhere.or_else(|| beside.then(|| "--compile-threads is given".to_string()));
        let untold = class.expected == "crash.oom_killed" && !shortage_can_be_told();
        let elsewhere = elsewhere.or_else(|| untold.then(|| "neither kernel log nor control group tells of it".into()));
        match elsewhere.or_else(|| class.unavailable.and_then(|unavailable| unavailable())) {
            None => wanted.push(class),
            Some(why) => impossible.push((class.name, why)),
        }
    }
    (wanted, impossible)
}

pub(super) fn innocent(target: Target) -> Result<Vec<Arc<Case>>, Failure> {
    let (cases, errors) = read_text("innocent.fuse", INNOCENT, target);
    match errors.first() {
        None => Ok(cases.into_iter().map(Arc::new).collect()),
        Some(error) => Err(Failure::diagnostic(
            exit::BAD_CASES,
            &Diagnostic::bug(format!("the built-in cases are malformed: {error}")),
        )),
    }
}
