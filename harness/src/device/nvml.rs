//! The boundary to NVML: all that the dispatcher asks of it, so that a file can
//! stand in for a machine with GPUs. The dispatcher owns it; workers never ask.

use super::gpu::{Gpu, Nvidia};
use super::{fake::Fake, patient::Patient, real::RealDriver};
use crate::proto::DeviceSpec;
use engine::diag::Result;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// News of the event set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NvmlNews {
    /// Nothing within the time.
    Nothing,
    /// A GPU reported an Xid. NVML tells neither process nor time, and only the
    /// last code if several came at once.
    Xid { uuid: String, code: u64 },
    /// A GPU is gone: this one, or one that NVML cannot name.
    Lost { uuid: Option<String> },
    /// A GPU tells no events, for this reason; the others do.
    NoEvents { uuid: String, why: String },
    /// The event set itself failed; nothing more will be heard.
    Failed(String),
}

/// Why a GPU cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    /// It fell off the bus or needs a reset.
    Lost(String),
    /// NVML failed, which says nothing about the GPU.
    Failed(String),
}

/// What a case does on a GPU. A played GPU has its script from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaseStep<'a> {
    Began { case_id: &'a str },
    Ended,
}

/// What the dispatcher asks.
pub(crate) trait Nvml: Send + Sync {
    /// Everything about all GPUs.
    fn survey(&self) -> Nvidia;

    /// What a survey that has not ended is at: `the driver was opened`.
    fn doing(&self) -> String {
        "it was asked for all GPUs".into()
    }

    /// One GPU, or MIG part, at this moment.
    fn look(&self, uuid: &str) -> Result<Gpu, Silent>;

    /// Listens to the GPUs' events on the calling thread until `hear` answers
    /// `false`. It is called at least every `tick`, and gets [`NvmlNews::Failed`]
    /// at most once, as the last. Where a lost GPU makes the whole set useless,
    /// [`NvmlNews::Lost`] is the last too: whoever listens asks again without it.
    fn listen(&self, uuids: &[String], tick: Duration, hear: &mut dyn FnMut(NvmlNews) -> bool);

    /// What a worker opens for this GPU.
    fn worker_device(&self, uuid: &str, threads: u32) -> DeviceSpec;

    /// Told of each step of a case on a GPU, which real ones need not be. Whether
    /// something happens at once because of it.
    fn step(&self, _uuid: &str, _step: CaseStep<'_>) -> bool {
        false
    }

    /// Whether the next canary on the GPU is to compute wrongly, as a played sick
    /// GPU does. Asking uses it up.
    fn spoils_canary(&self, _uuid: &str) -> bool {
        false
    }

    /// Whether GPUs are played by the simulator, which needs no NVRTC.
    fn is_fake(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn Nvml {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_fake() { "played NVML" } else { "NVML" })
    }
}

/// NVML itself, or the file that plays it.
pub(crate) fn open(file: Option<&Path>) -> Result<Arc<dyn Nvml>> {
    match file {
        Some(path) => {
            let fake = Fake::read(path)?;
            Ok(if fake.is_stuck() { Arc::new(Patient::hasty(Arc::new(fake))) } else { Arc::new(fake) })
        }
        None => Ok(Arc::new(Patient::new(Arc::new(RealDriver::default())))),
    }
}
