//! The health of one device during a run, as a value: what is known goes in, what
//! to do comes out. After any abnormal end the next worker must run a canary
//! before it takes cases; a device whose canary fails twice is retired.

use crate::device::{XidClass, xid_facts};
use crate::proto::CanaryResult;
use std::collections::VecDeque;

/// Deaths further back than this do not speak against the device.
const MINUTE: u64 = 60_000_000_000;
/// Different cases that kill workers within a minute, until the device is suspected.
const SUSPECT_CASES: usize = 3;
/// Canaries in a row that may fail before the device is retired.
const CANARIES: u32 = 2;
/// Xids that put results in doubt, until the device is retired in spite of its canaries.
const DOUBTS: u32 = 3;

/// Why a device takes no more cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retirement {
    /// The stable name: `infra.gpu_lost`.
    pub(crate) code: &'static str,
    pub(crate) reason: String,
}

/// What to do next with a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Go,
    /// The next worker runs a canary first, for this reason.
    Canary(String),
    Retire(Retirement),
}

/// What was found after the abnormal end of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings<'a> {
    pub(crate) now_ns: u64,
    pub(crate) case_id: &'a str,
    /// The outcome's stable name.
    pub(crate) outcome: &'a str,
    /// The worker did not outlive the case.
    pub(crate) killed: bool,
    /// The worker could not be killed.
    pub(crate) unkillable: bool,
    /// What became worse on the GPU.
    pub(crate) changes: &'a [String],
    /// NVML says that the GPU is gone: why.
    pub(crate) lost: Option<&'a str>,
}

/// The health of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Cases that killed workers, with the time.
    deaths: VecDeque<(u64, String)>,
    bad_canaries: u32,
    doubts: u32,
    /// Why the device must prove itself before it takes cases.
    unproven: Option<String>,
    retirement: Option<Retirement>,
}

impl Health {
    /// Why the next worker must run a canary, if it must.
    pub(crate) fn unproven(&self) -> Option<&str> {
        self.unproven.as_deref()
    }

    /// Why the device is out of use, if it is.
    pub(crate) fn retirement(&self) -> Option<&Retirement> {
        self.retirement.as_ref()
    }

    /// A case ended abnormally.
    pub(crate) fn after_death(&mut self, found: &Findings<'_>) -> Next {
        if let Some(why) = found.lost {
            return self.retire("infra.gpu_lost", format!("NVML: {why}"));
        }
        if found.unkillable {
            let reason = format!("a worker could not be killed after {} of {}", found.outcome, found.case_id);
            return self.retire("infra.gpu_wedged", reason);
        }
        let mut why = format!("{} of {}", found.outcome, found.case_id);
        if !found.changes.is_empty() {
            why.push_str(&format!("; {}", found.changes.join(", ")));
        }
        if found.killed {
            self.deaths.push_back((found.now_ns, found.case_id.to_string()));
            while self.deaths.front().is_some_and(|(at, _)| found.now_ns - at > MINUTE) {
                self.deaths.pop_front();
            }
            if let Some(suspicion) = self.suspicion() {
                why = suspicion;
            }
        }
        self.doubt(why)
    }

    /// The words of a suspicion, if many different cases died.
    fn suspicion(&self) -> Option<String> {
        let mut cases: Vec<&str> = self.deaths.iter().map(|(_, case)| case.as_str()).collect();
        cases.sort_unstable();
        cases.dedup();
        (cases.len() >= SUSPECT_CASES)
            .then(|| format!("{} different cases killed workers within a minute: {}", cases.len(), cases.join(", ")))
    }

    /// Whether the device is suspected for the number of cases that died on it.
    pub(crate) fn suspected(&self) -> bool {
        self.suspicion().is_some()
    }

    /// The GPU reported an Xid.
    pub(crate) fn after_xid(&mut self, code: u64) -> Next {
        let facts = xid_facts(code);
        let reason = format!("Xid {code}, {}", facts.words);
        match (facts.class, facts.outcome) {
            (XidClass::Application, _) => Next::Go,
            (XidClass::Lost, outcome) => self.retire(outcome.unwrap_or("infra.gpu_lost"), reason),
            (XidClass::Suspect, None) => self.doubt(reason),
            (XidClass::Suspect, Some(outcome)) => {
                self.doubts += 1;
                match self.doubts {
                    n if n >= DOUBTS => self.retire(outcome, format!("{n} Xids that put results in doubt, {reason}")),
                    _ => self.doubt(reason),
                }
            }
        }
    }

    /// The GPU cannot be asked any more.
    pub(crate) fn after_loss(&mut self, why: &str) -> Next {
        self.retire("infra.gpu_lost", why.to_string())
    }

    /// What a worker's canary gave, or why it gave nothing.
    pub(crate) fn after_canary(&mut self, result: &Result<CanaryResult, String>) -> Next {
        let why = match result {
            Ok(CanaryResult::Right | CanaryResult::Skipped(_)) => {
                (self.bad_canaries, self.unproven) = (0, None);
                if self.suspected() {
                    // Answered: it takes as many new cases to ask again.
                    self.deaths.clear();
                }
                return Next::Go;
            }
            Ok(CanaryResult::Wrong(why)) | Err(why) => why,
        };
        self.bad_canaries += 1;
        match self.bad_canaries {
            n if n >= CANARIES => self.retire("infra.canary", format!("its canary failed {n} times: {why}")),
            _ => self.doubt(format!("its canary failed: {why}")),
        }
    }

    fn doubt(&mut self, why: String) -> Next {
        if let Some(retirement) = &self.retirement {
            return Next::Retire(retirement.clone());
        }
        self.unproven = Some(why.clone());
        Next::Canary(why)
    }

    /// The device is out of use. The first reason stays.
    pub(crate) fn retire(&mut self, code: &'static str, reason: String) -> Next {
        Next::Retire(self.retirement.get_or_insert(Retirement { code, reason }).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn death(at_s: u64, case_id: &str) -> Findings<'_> {
        Findings { now_ns: at_s * S, case_id, outcome: "crash.sigsegv", killed: true, ..Findings::default() }
    }

    #[track_caller]
    fn check_retired(next: Next, code: &str, part: &str) {
        let Next::Retire(retirement) = next else { panic!("{next:?}") };
        assert!(retirement.code == code && retirement.reason.contains(part), "{retirement:?}");
    }

    fn right() -> Result<CanaryResult, String> {
        Ok(CanaryResult::Right)
    }

    fn wrong() -> Result<CanaryResult, String> {
        Ok(CanaryResult::Wrong("the result has another checksum".into()))
    }

    #[track_caller]
    fn check_canary(next: Next, part: &str) {
        assert!(matches!(&next, Next::Canary(why) if why.contains(part)), "{next:?}");
    }

    #[test]
    fn any_abnormal_end_asks_for_a_canary() {
        let mut health = Health::default();
        let alive = Findings { killed: false, outcome: "gpu.illegal_address", ..death(1, "a") };
        check_canary(health.after_death(&alive), "gpu.illegal_address of a");
        assert!(health.unproven().is_some());
        assert_eq!(health.after_canary(&right()), Next::Go);
        assert_eq!(health.unproven(), None);
        let changes = ["1 new uncorrected ECC error".to_string()];
        check_canary(health.after_death(&Findings { changes: &changes, ..death(2, "a") }), "uncorrected ECC");
    }

    #[test]
    fn a_canary_that_fails_twice_retires_the_device() {
        let mut health = Health::default();
        health.after_death(&death(1, "a"));
        check_canary(health.after_canary(&wrong()), "another checksum");
        check_retired(health.after_canary(&Err("it hung".into())), "infra.canary", "2 times: it hung");
        // What is out of use stays so, for its first reason.
        check_retired(health.after_death(&death(2, "b")), "infra.canary", "2 times");
        check_retired(health.after_loss("gone"), "infra.canary", "2 times");
        let mut lucky = Health::default();
        lucky.after_canary(&wrong());
        assert_eq!(lucky.after_canary(&right()), Next::Go);
        check_canary(lucky.after_canary(&wrong()), "its canary failed");
    }

    #[test]
    fn three_cases_within_a_minute_speak_against_the_device() {
        let mut health = Health::default();
        health.after_death(&death(1, "a"));
        health.after_death(&death(2, "a"));
        assert_eq!(health.after_canary(&right()), Next::Go);
        health.after_death(&death(3, "b"));
        assert!(!health.suspected());
        check_canary(health.after_death(&death(50, "c")), "3 different cases killed workers within a minute: a, b, c");
        assert!(health.suspected());
        assert_eq!(health.after_canary(&right()), Next::Go);
        assert!(!health.suspected());
        let mut slow = Health::default();
        for (at, case) in [(1, "a"), (62, "b"), (123, "c")] {
            slow.after_death(&death(at, case));
        }
        assert!(!slow.suspected());
    }

    #[test]
    fn xids_by_their_class() {
        let mut health = Health::default();
        assert_eq!(health.after_xid(31), Next::Go);
        check_canary(health.after_xid(94), "Xid 94");
        check_canary(health.after_xid(63), "Xid 63");
        check_canary(health.after_xid(119), "Xid 119");
        check_retired(health.after_xid(48), "infra.ecc_uncorrectable", "3 Xids");
        check_retired(Health::default().after_xid(79), "infra.gpu_lost", "fell off the bus");
    }

    #[test]
    fn what_cannot_be_used_is_retired_at_once() {
        let lost = Findings { lost: Some("it is lost"), ..death(1, "a") };
        check_retired(Health::default().after_death(&lost), "infra.gpu_lost", "it is lost");
        let wedged = Findings { unkillable: true, outcome: "hang.uninterruptible", ..death(1, "a") };
        check_retired(Health::default().after_death(&wedged), "infra.gpu_wedged", "hang.uninterruptible of a");
        assert_eq!(Health::default().after_canary(&Ok(CanaryResult::Skipped("no device".into()))), Next::Go);
    }
}
