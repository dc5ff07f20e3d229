//! The devices of a run while it runs. Slots tell it what begins and ends on
//! them, a thread of its own listens to NVML, and from both it decides which
//! results count, which device must prove itself, and which one is out of use.
//!
//! Simulated devices are looked after in the same way, as far as they go: no
//! NVML, so no Xids and no loss, but canaries and suspicion.

mod canary;
mod devices;
mod ends;
mod listen;
mod unit;

pub(super) use canary::Canary;
pub(super) use devices::Fleet;
pub(super) use ends::End;

use canary::word;
use devices::{TICK, Tell};
