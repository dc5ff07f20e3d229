//! Xids: what a code says about the GPU, and which case it belongs to.
//!
//! NVML tells an Xid of a GPU, without process and up to a second late. So a
//! case is found by what ran on that GPU within [`WINDOW`] before.

use serde::Serialize;

/// An Xid may be heard this long after its cause, in nanoseconds.
pub(crate) const WINDOW: u64 = 1_000_000_000;

/// What an Xid means for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum XidClass {
    /// A program's fault; the GPU is well.
    Application,
    /// The GPU may be damaged until it is reset: it must prove itself.
    Suspect,
    /// The GPU is gone.
    Lost,
}

/// What is known of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XidFacts {
    pub(crate) class: XidClass,
    /// What attempts on the GPU become, where results are in doubt.
    pub(crate) outcome: Option<&'static str>,
    pub(crate) words: &'static str,
}

/// Classes by NVIDIA's catalogue, as fleet managers use them. A code that is not
/// listed says nothing about results, but the GPU must prove itself.
pub(crate) fn facts(code: u64) -> XidFacts {
    use XidClass::{Application, Lost, Suspect};
    let (class, outcome, words) = match code {
        13 => (Application, None, "exception of the graphics engine"),
        31 => (Application, None, "memory page fault"),
        43 => (Application, None, "a channel was stopped"),
        45 => (Application, None, "channels of an ended process were cleaned up"),
        68 => (Application, None, "exception of the video decoder"),
        109 => (Application, None, "time limit of a context switch"),
        48 => (Suspect, Some("infra.ecc_uncorrectable"), "uncorrectable ECC error"),
        62 => (Suspect, Some("infra.driver"), "the GPU's power controller halted"),
        63 => (Suspect, None, "a memory row will be remapped at the next reset"),
        64 => (Suspect, Some("infra.ecc_uncorrectable"), "a memory row could not be remapped"),
        74 => (Suspect, Some("infra.nvlink"), "NVLink error"),
        79 => (Lost, Some("infra.gpu_lost"), "the GPU fell off the bus"),
        92 => (Suspect, None, "many corrected ECC errors"),
        94 => (Suspect, Some("infra.ecc_uncorrectable"), "contained ECC error"),
        95 => (Suspect, Some("infra.ecc_uncorrectable"), "uncontained ECC error"),
        119 => (Suspect, Some("infra.gsp"), "the GPU's system processor did not answer"),
        120 => (Suspect, Some("infra.gsp"), "error of the GPU's system processor"),
        140 => (Suspect, Some("infra.ecc_uncorrectable"), "unrecovered ECC error"),
        143 => (Lost, Some("infra.gpu_lost"), "the GPU could not be initialised"),
        154 => (Suspect, None, "the GPU's recovery action changed"),
        _ => (Suspect, None, "no known meaning"),
    };
    XidFacts { class, outcome, words }
}

/// How sure it is which case an Xid belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attribution {
    /// One case alone could have caused it, or one alone failed then.
    Exact,
    /// Several cases of one worker ran within the window.
    Window,
    /// Cases of several workers did.
    Ambiguous,
    /// None did: the cause is not this run's.
    None,
}

/// A case that ran on a GPU; `end_ns` is `None` while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RanCase {
    pub(crate) case_id: String,
    pub(crate) attempt: u32,
    pub(crate) worker: String,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: Option<u64>,
    /// The stable name of how it ended.
    pub(crate) outcome: Option<String>,
}

impl RanCase {
    /// Whether it was under way at any moment of the span.
    pub(crate) fn within(&self, from: u64, to: u64) -> bool {
        self.start_ns <= to && self.end_ns.is_none_or(|end| end >= from)
    }

    /// Whether its end speaks for a fault on the GPU.
    fn struck(&self) -> bool {
        let families = ["gpu.", "crash.", "hang.", "fail.cuda"];
        self.outcome.as_ref().is_some_and(|name| families.iter().any(|family| name.starts_with(family)))
    }
}

/// The cases that an Xid heard at `heard_ns` may belong to, the last one first,
/// and how sure that is.
pub(crate) fn attribute(ran: &[RanCase], heard_ns: u64) -> (Attribution, Vec<RanCase>) {
    let from = heard_ns.saturating_sub(WINDOW);
    let mut there: Vec<RanCase> = ran.iter().filter(|case| case.within(from, heard_ns)).cloned().collect();
    there.sort_by_key(|case| std::cmp::Reverse(case.start_ns));
    let struck: Vec<&RanCase> = there.iter().filter(|case| case.struck()).collect();
    if let [one] = struck[..] {
        return (Attribution::Exact, vec![one.clone()]);
    }
    let how = match there.as_slice() {
        [] => Attribution::None,
        [_] => Attribution::Exact,
        [first, rest @ ..] if rest.iter().all(|case| case.worker == first.worker) => Attribution::Window,
        _ => Attribution::Ambiguous,
    };
    (how, there)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn ran(case_id: &str, worker: &str, start: u64, end: Option<u64>, outcome: &str) -> RanCase {
        let outcome = end.map(|_| outcome.to_string());
        let (case_id, worker) = (case_id.into(), worker.into());
        RanCase { case_id, attempt: 0, worker, start_ns: start * S / 10, end_ns: end.map(|t| t * S / 10), outcome }
    }

    #[track_caller]
    fn check(list: &[RanCase], heard: u64, how: Attribution, ids: &[&str]) {
        let (found, cases) = attribute(list, heard * S / 10);
        let found_ids: Vec<&str> = cases.iter().map(|case| case.case_id.as_str()).collect();
        assert_eq!((found, found_ids.as_slice()), (how, ids));
    }

    #[test]
    fn cases_are_found_by_time_and_worker() {
        check(&[], 50, Attribution::None, &[]);
        let done = ran("a", "w0", 0, Some(20), "pass");
        check(std::slice::from_ref(&done), 31, Attribution::None, &[]);
        check(std::slice::from_ref(&done), 30, Attribution::Exact, &["a"]);
        let running = ran("b", "w0", 25, None, "");
        check(&[done.clone(), running.clone()], 40, Attribution::Exact, &["b"]);
        check(&[done.clone(), running.clone()], 29, Attribution::Window, &["b", "a"]);
        let beside = ran("c", "w1", 27, None, "");
        check(&[done.clone(), running.clone(), beside.clone()], 29, Attribution::Ambiguous, &["c", "b", "a"]);
        // The only one that died of something is meant, whoever ran beside it.
        let died = ran("d", "w1", 26, Some(28), "gpu.illegal_address");
        check(&[done, running, died.clone()], 29, Attribution::Exact, &["d"]);
        let too = ran("e", "w0", 26, Some(28), "crash.sigsegv");
        check(&[died, too], 29, Attribution::Ambiguous, &["d", "e"]);
        // A case that has not begun has no part in it.
        check(&[ran("f", "w0", 60, None, "")], 50, Attribution::None, &[]);
    }

    #[test]
    fn classes() {
        let listed = |class| (0..200).filter(|code| facts(*code).class == class).collect::<Vec<u64>>();
        assert_eq!(listed(XidClass::Application), [13, 31, 43, 45, 68, 109]);
        assert_eq!(listed(XidClass::Lost), [79, 143]);
        let charged: Vec<u64> = (0..200).filter(|code| facts(*code).outcome.is_some()).collect();
        assert_eq!(charged, [48, 62, 64, 74, 79, 94, 95, 119, 120, 140, 143]);
        assert!(charged.iter().all(|code| facts(*code).class != XidClass::Application));
    }
}
