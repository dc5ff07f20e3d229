//! Which kind of hang it is, from what was seen of the worker.

use super::threads::ThreadState;
use crate::crumb::Crumb;
use crate::outcome::Stack;
use std::time::Duration;

/// Breadcrumbs that must lie between two of the same kind for progress.
const CYCLE: usize = 8;
/// From this share of its time on, a GPU is busy.
const BUSY_PERCENT: u32 = 90;
/// Phases in which the host waits for the device.
const DEVICE_PHASES: [&str; 4] = ["load", "launch", "verify", "bench"];

/// What was seen.
#[derive(Clone, Debug)]
pub(crate) struct HangFacts<'a> {
    pub(crate) crumb: &'a Crumb,
    pub(crate) threads: &'a [ThreadState],
    pub(crate) stacks: &'a [Stack],
    /// Time that the case had.
    pub(crate) limit: Duration,
    /// The GPU's utilisation in percent, where there is one to ask.
    pub(crate) gpu_percent: Option<u32>,
    /// Whether the worker has a GPU at all.
    pub(crate) on_gpu: bool,
}

/// The stable name and why.
pub(crate) fn name(seen: &HangFacts<'_>) -> (&'static str, String) {
    let any = |states: &str| seen.threads.iter().any(|thread| states.contains(thread.state));
    if any("Tt") {
        return ("hang.stopped", "its threads are stopped".into());
    }
    // A quarter of the time without a crumb is no progress any more.
    let age = Duration::from_nanos(seen.crumb.age_ns);
    if seen.crumb.seq > 0 && age < seen.limit / 4 {
        return match cycles(seen.crumb) {
            true => ("hang.livelock", "it goes through the same steps again and again".into()),
            false => ("timeout.slow", format!("it got on until {} ms ago", age.as_millis())),
        };
    }
    if seen.on_gpu && DEVICE_PHASES.contains(&seen.crumb.phase.as_str()) {
        match seen.gpu_percent {
            Some(percent) if percent >= BUSY_PERCENT => {
                return ("hang.gpu", format!("the GPU is {percent} % busy and the host waits for it"));
            }
            None if waits_in_driver(seen.stacks, seen.crumb) => {
                return ("hang.gpu", "the case's thread waits in the CUDA driver".into());
            }
            _ => {}
        }
    }
    if any("R") {
        return ("hang.host", "a thread is busy on the host".into());
    }
    if any("D") {
        let at = seen.threads.iter().find(|thread| thread.state == 'D').map_or("", |thread| &thread.wchan);
        return ("hang.uninterruptible", format!("a thread waits in the kernel {at}").trim_end().into());
    }
    match any("?") {
        true => ("hang.deadlock", "nothing moves; /proc is of other processes and tells nothing of its threads".into()),
        false => ("hang.deadlock", "all threads wait".into()),
    }
}

/// Whether the last crumbs are few different ones, many times.
fn cycles(crumb: &Crumb) -> bool {
    crumb.trail.len() > 4 * CYCLE && crumb.distinct <= CYCLE
}

fn waits_in_driver(stacks: &[Stack], crumb: &Crumb) -> bool {
    // The case's own thread is the first one of its process.
    let own = stacks.iter().min_by_key(|stack| (crumb.lane > 0 && stack.thread != crumb.thread, stack.thread));
    own.is_some_and(|stack| stack.frames.iter().any(|frame| frame.module.starts_with("libcuda.so")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Frame;

    fn crumb(phase: &str, age_ms: u64, trail: usize, distinct: usize) -> Crumb {
        let trail = vec!["lower pass".to_string(); trail];
        Crumb { phase: phase.into(), seq: 9, age_ns: age_ms * 1_000_000, trail, distinct, ..Crumb::default() }
    }

    #[track_caller]
    fn check(states: &str, crumb: &Crumb, gpu: Option<Option<u32>>, module: &str, wanted: &str) {
        let threads: Vec<ThreadState> =
            (1..).zip(states.chars()).map(|(id, state)| ThreadState { id, state, ..ThreadState::default() }).collect();
        let frames = vec![Frame { module: module.into(), ..Frame::default() }];
        let stacks = [Stack { thread: 1, frames, ..Stack::default() }];
        let limit = Duration::from_secs(10);
        let (gpu_percent, on_gpu) = (gpu.flatten(), gpu.is_some());
        let seen = HangFacts { crumb, threads: &threads, stacks: &stacks, limit, gpu_percent, on_gpu };
        assert_eq!(name(&seen).0, wanted, "{states} {crumb:?}");
    }

    #[test]
    fn kinds_of_hangs() {
        let old = |phase| crumb(phase, 9000, 3, 3);
        check("SS", &old("inputs"), None, "harness", "hang.deadlock");
        check("SR", &old("inputs"), None, "harness", "hang.host");
        check("SD", &old("inputs"), None, "harness", "hang.uninterruptible");
        check("TT", &crumb("lower", 1, 60, 60), None, "harness", "hang.stopped");
        check("RS", &crumb("lower", 100, 60, 3), None, "harness", "hang.livelock");
        check("RS", &crumb("lower", 100, 60, 30), None, "harness", "timeout.slow");
        check("RS", &crumb("lower", 100, 3, 3), None, "harness", "timeout.slow");
        check("RS", &crumb("lower", 2600, 60, 3), None, "harness", "hang.host");
        // A device that is busy, or a driver that waits for it where nobody can tell.
        check("RS", &old("launch"), Some(Some(100)), "libc.so.6", "hang.gpu");
        check("SS", &old("verify"), Some(None), "libcuda.so.1", "hang.gpu");
        check("RS", &old("launch"), Some(Some(0)), "libcuda.so.1", "hang.host");
        check("SS", &old("schedule"), Some(Some(100)), "libc.so.6", "hang.deadlock");
        check("SS", &old("launch"), None, "libcuda.so.1", "hang.deadlock");
        check("?", &old("inputs"), None, "harness", "hang.deadlock");
        // Nothing was ever written.
        check("SS", &Crumb::default(), None, "", "hang.deadlock");
    }
}
