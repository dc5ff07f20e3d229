//! What a case leaves behind on its device: errors that nobody waited for, and
//! memory that nobody gave back.
//!
//! A [`Watch`] begins before a case and ends after it. At the end the device is
//! probed if the case launched anything, so that an error is charged to the case
//! that caused it and not to the next; then its memory is counted.

use super::device::Device;
use super::refusal;
use crate::outcome::{CudaFault, Outcome, Verdict};
use engine::runtime::{DeviceMemory, Session};
use std::time::{Duration, Instant};

/// Growth of the driver's own memory that is no leak: code of kernels, and local
/// memory, which a context keeps for as many threads as fit the device.
const DRIVER_SLACK: u64 = 512 << 20;

/// For so long nobody else is taken to have used the device meanwhile.
const FRESH: Duration = Duration::from_millis(50);

/// The fact that marks a leak of memory that the engine knows nothing of.
pub(crate) const UNSEEN: &str = "leak";

/// The device's memory before a case.
pub(super) struct Watch<'a> {
    session: Option<&'a Session>,
    /// Whether other workers use the device too, whose memory comes and goes.
    shared: bool,
    before: Option<DeviceMemory>,
}

/// The device's memory at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenMemory {
    memory: DeviceMemory,
    at: Instant,
}

/// What a case left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftBehind {
    /// No later case may use the worker.
    pub(super) tainted: bool,
    /// The device's memory, where that is known.
    pub(super) memory: Option<SeenMemory>,
}

impl LeftBehind {
    const TAINTED: Self = Self { tainted: true, memory: None };
}

impl<'a> Watch<'a> {
    /// `last` is the memory when the case before was over, which is that of now if that is a moment ago: so the driver is
    /// asked once a case.
    pub(super) fn start(device: &'a Device, sharers: u32, last: Option<SeenMemory>) -> Self {
        let session = match device {
            Device::Session { session, .. } => Some(&**session),
            Device::Reference => None,
        };
        let last = last.filter(|seen| seen.at.elapsed() < FRESH).map(|seen| seen.memory);
        let before = last.or_else(|| session.and_then(|session| session.memory().ok()));
        Self { session, shared: sharers > 1, before }
    }

    /// Judges what is left. `launched` says whether the case may have left work
    /// on the device.
    pub(super) fn end(self, outcome: &mut Outcome, launched: bool) -> LeftBehind {
        let Some(session) = self.session else { return LeftBehind::default() };
        if outcome.cuda_error.as_ref().is_some_and(|error| error.sticky) {
            return LeftBehind::TAINTED;
        }
        if launched && let Err(error) = session.probe() {
            let (verdict, name) = refusal::outcome_of(&error);
            let detail = format!("{error}\nthis came up when the case was over");
            let found = Outcome::of(verdict, name, join(&outcome.detail, &detail));
            (outcome.verdict, outcome.outcome, outcome.detail) = (found.verdict, found.outcome, found.detail);
            outcome.cuda_error = error.cuda.as_ref().map(CudaFault::from);
            return LeftBehind::TAINTED;
        }
        let memory = session.memory().ok();
        let leak = self.before.zip(memory).and_then(|(before, after)| leaked(&before, &after));
        let leak = match leak {
            // Memory of others comes and goes: only what stays away is counted.
            Some(Leak::Driver(_)) if self.shared => None,
            Some(Leak::Driver(_)) => self.confirm(session),
            other => other,
        };
        let Some(leak) = leak else {
            let at = Instant::now();
            return LeftBehind { tainted: false, memory: memory.map(|memory| SeenMemory { memory, at }) };
        };
        if let Leak::Driver(_) = leak {
            // Of the device as a whole: the dispatcher knows whether others use it.
            outcome.facts.insert(UNSEEN.into(), "driver".into());
        }
        if matches!(outcome.verdict, Verdict::Pass | Verdict::Skip) {
            let found = Outcome::fail("fail.leak.device_mem", join(&outcome.detail, &leak.text()));
            (outcome.verdict, outcome.outcome, outcome.detail) = (found.verdict, found.outcome, found.detail);
        } else {
            outcome.detail = join(&outcome.detail, &leak.text());
        }
        LeftBehind::TAINTED
    }

    /// The smallest leak of a few looks.
    fn confirm(&self, session: &Session) -> Option<Leak> {
        let before = self.before?;
        let mut smallest = None;
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            match leaked(&before, &session.memory().ok()?)? {
                Leak::Driver(bytes) => smallest = Some(smallest.map_or(bytes, |least: u64| least.min(bytes))),
                ours => return Some(ours),
            }
        }
        smallest.map(Leak::Driver)
    }
}

/// Memory that a case did not give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leak {
    /// Of the session.
    Session(u64),
    /// Of the device, without the session's knowledge.
    Driver(u64),
}

impl Leak {
    fn text(self) -> String {
        match self {
            Leak::Session(bytes) => format!("{bytes} bytes of device memory were not given back"),
            Leak::Driver(bytes) => {
                format!("{bytes} bytes of device memory are gone that the engine knows nothing of")
            }
        }
    }
}

fn leaked(before: &DeviceMemory, after: &DeviceMemory) -> Option<Leak> {
    if after.live > before.live {
        return Some(Leak::Session(after.live - before.live));
    }
    let ours = |memory: &DeviceMemory| memory.live + memory.kept + memory.cached;
    let gone = before.free.saturating_add(ours(before)).saturating_sub(after.free.saturating_add(ours(after)));
    (gone > DRIVER_SLACK).then_some(Leak::Driver(gone))
}

fn join(first: &str, second: &str) -> String {
    if first.is_empty() { second.into() } else { format!("{first}\n{second}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[track_caller]
    fn check(after: DeviceMemory, wanted: Option<Leak>) {
        let before = DeviceMemory { live: 0, kept: MIB, cached: 10 * MIB, free: 8000 * MIB, total: 9000 * MIB };
        assert_eq!(leaked(&before, &after), wanted, "{after:?}");
    }

    #[test]
    fn memory_that_moves_is_no_leak() {
        let memory = |live, kept, cached, free| DeviceMemory {
            live: live * MIB,
            kept: kept * MIB,
            cached: cached * MIB,
            free: free * MIB,
            total: 9000 * MIB,
        };
        check(memory(0, 1, 10, 8000), None);
        // The cache grew, or was given back.
        check(memory(0, 1, 2010, 6000), None);
        check(memory(0, 1, 0, 8010), None);
        // A kernel was loaded and keeps a little; its code and stack are the driver's.
        check(memory(0, 2, 10, 7700), None);
        check(memory(3, 1, 10, 7997), Some(Leak::Session(3 * MIB)));
        check(memory(0, 1, 10, 6976), Some(Leak::Driver(1024 * MIB)));
        // Others gave memory back.
        check(memory(0, 1, 10, 8900), None);
    }
}
