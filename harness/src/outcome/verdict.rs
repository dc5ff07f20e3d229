//! Verdicts and what led to them.
//!
//! A *verdict* decides the exit code and the counts. Its *outcome* is a finer,
//! stable name: `fail.numerics`, `crash.sigsegv`, `hang.host`, `skip.requires`.

use super::digest::Digest;
use crate::case::Xfail;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What became of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything that was asked for holds.
    Pass,
    /// A living worker judged against the case.
    #[default]
    Fail,
    /// Failed, and passed when it was run again.
    Flaky,
    /// Failed, which a reviewed entry of the quarantine file allows for the time being.
    Quarantined,
    /// The worker died inside the case.
    Crash,
    /// The case did not end in time.
    Hang,
    /// Not run, or failed as declared.
    Skip,
    /// The machine failed, not the case.
    Infra,
}

impl Verdict {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Flaky => "flaky",
            Verdict::Quarantined => "quarantined",
            Verdict::Crash => "crash",
            Verdict::Hang => "hang",
            Verdict::Skip => "skip",
            Verdict::Infra => "infra",
        }
    }
    /// Whether it counts under `N failed`. Flaky cases do only where the user says so.
    pub fn is_failure(self) -> bool {
        !matches!(self, Verdict::Pass | Verdict::Skip | Verdict::Flaky | Verdict::Quarantined)
    }
}

/// What a pass rests on: not every case that passes has run a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedBy {
    /// Kernels ran, and gave what the reference gives.
    Kernel,
    /// The same, but the host computed some operations that have no kernel.
    KernelsAndHost,
    /// Kernels ran, and a library multiplied matrices; the host had no part.
    KernelsAndLibrary,
    /// A library computed all of it.
    Library,
    /// A library and the host computed it, and no kernel.
    LibraryAndHost,
    /// The host computed all of it: no operation has a kernel.
    Host,
    /// Nothing was computed: results are copies of parts of what was given.
    Copies,
    /// It was compiled, and has no element to compute: nothing was launched.
    LaunchedNothing,
    /// Nothing ran beside the reference, which gives what the case file states.
    Reference,
    /// It was refused by the diagnostics that the case is about.
    RefusedAsRequired,
}

impl PassedBy {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            PassedBy::Kernel => "kernel",
            PassedBy::KernelsAndHost => "kernels_and_host",
            PassedBy::KernelsAndLibrary => "kernels_and_library",
            PassedBy::Library => "library",
            PassedBy::LibraryAndHost => "library_and_host",
            PassedBy::Host => "host",
            PassedBy::Copies => "copies",
            PassedBy::LaunchedNothing => "launched_nothing",
            PassedBy::Reference => "reference",
            PassedBy::RefusedAsRequired => "refused_as_required",
        }
    }
}

/// How far outputs were from the reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Numerics {
    /// Elements compared.
    pub elements: u64,
    /// Elements out of tolerance.
    pub wrong: u64,
    /// Largest absolute error of finite elements; infinite where it overflows.
    #[serde(with = "any_real")]
    pub max_abs: f64,
    /// Largest relative error of finite elements whose reference is not 0.
    #[serde(with = "any_real")]
    pub max_rel: f64,
}

/// JSON has numbers for finite values only: the others are the texts `inf`,
/// `-inf` and `NaN`.
mod any_real {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(f64),
        Text(String),
    }

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        match value.is_finite() {
            true => serializer.serialize_f64(*value),
            false => serializer.serialize_str(&value.to_string()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Number(value) => Ok(value),
            Form::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// One row of `perf.csv`; absent figures are `None`, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Perf {
    /// Bytes moved by the kernel at least.
    pub bytes: u64,
    /// Samples taken.
    pub samples: u64,
    /// Median kernel time in nanoseconds.
    pub median_ns: Option<f64>,
    /// Mean of kernel times without a tenth of them at either end.
    pub mean_ns: Option<f64>,
    /// 10th percentile.
    pub p10_ns: Option<f64>,
    /// 90th percentile.
    pub p90_ns: Option<f64>,
    /// Bytes over median time.
    pub gbps: Option<f64>,
    /// Bandwidth of a plain copy of the same traffic, measured beside it.
    pub copy_gbps: Option<f64>,
    /// Share of that copy's speed.
    pub share: Option<f64>,
    /// Host time of one call in microseconds.
    pub host_us: Option<f64>,
    /// The simulator's counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Whether the case's own goal is met, where it has one.
    pub goal_met: Option<bool>,
}

/// What a worker reports at the end of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The stable finer name.
    pub outcome: String,
    /// What a pass rests on; of another verdict it says nothing: see [`Outcome::passed_by`].
    pub rests_on: Option<PassedBy>,
    /// Why, for people; at most [`MAX_DETAIL`] bytes.
    pub detail: String,
    /// Nanoseconds of each phase that was entered.
    pub phases: BTreeMap<String, u64>,
    /// Facts of the compiled fusion.
    pub facts: BTreeMap<String, String>,
    /// CRC of the kernel's text, which shows when generated code changed.
    pub kernel_crc: Option<u32>,
    /// Digest of all that a measured case does on its device, which shows when something other was measured.
    pub code_digest: Option<Digest>,
    /// Digest of the outputs' types, layouts and bytes, which shows when results changed.
    pub out_digest: Option<Digest>,
    /// What its outputs were held to, where there are some.
    pub held_to: Option<HeldTo>,
    /// Where its kernel's machine code came from, where one ran on a GPU.
    pub code: Option<CodeFrom>,
    /// How results vary, where the case was run more than once.
    pub variation: Option<Variation>,
    /// What the CUDA driver said, if it did.
    pub cuda_error: Option<CudaFault>,
    /// How far the outputs were off.
    pub numerics: Option<Numerics>,
    /// Measurements.
    pub perf: Option<Perf>,
    /// New texts for lines of the case file, when expectations are rewritten.
    pub bless: Vec<Bless>,
    /// What the case left behind in its worker.
    pub leaks: Vec<Leak>,
}

/// What a case, or a worker, left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The stable name: `leak.fd`.
    pub name: String,
    /// What exactly, for people.
    pub detail: String,
}

impl Leak {
    /// Names what was left; the detail is cut to a line.
    pub fn new(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), detail: clip(detail.into(), 400) }
    }
}

/// What outputs were held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldTo {
    /// The reference, which was evaluated in this attempt.
    Reference,
    /// The digest of outputs that had passed against the reference before.
    Digest,
}

impl HeldTo {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            HeldTo::Reference => "reference",
            HeldTo::Digest => "digest",
        }
    }
}

/// Where the code of a case's kernel came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeFrom {
    /// It was compiled in this attempt.
    Compiled,
    /// The worker found it in the code cache, now or for an earlier case or ahead:
    /// another one had compiled it, or another run.
    Cached,
    /// The worker had compiled it already, for an earlier case or ahead.
    Held,
}

impl CodeFrom {
    /// The name in records of what was cached: such an attempt lacks the compiler's time.
    pub(crate) const CACHED: &'static str = "cached";
}

/// An error of the CUDA driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaFault {
    /// The driver's number.
    pub code: u32,
    /// The driver's name.
    pub name: String,
    /// Whether every later call of the process fails alike.
    pub sticky: bool,
}

impl From<&engine::diag::CudaError> for CudaFault {
    fn from(error: &engine::diag::CudaError) -> Self {
        Self { code: error.number, name: error.name.clone(), sticky: error.sticky }
    }
}

/// How alike the results of repeated runs are, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Determinism {
    /// The same bits.
    Bitwise,
    /// Other bits, each run within tolerance of the reference.
    Tolerance,
    /// The same elements in another order.
    Order,
}

impl Determinism {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Determinism::Bitwise => "bitwise",
            Determinism::Tolerance => "tolerance",
            Determinism::Order => "order",
        }
    }
}

/// How results vary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variation {
    /// The class.
    pub class: Determinism,
    /// Where and how; empty for the same bits.
    pub detail: String,
}

/// A rewritten expectation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bless {
    /// Line of the case file.
    pub line: usize,
    /// The fact, or `error`.
    pub key: String,
    /// The value that stands there now.
    pub old: String,
    /// What it should be.
    pub new: String,
}

/// Bytes of an outcome's detail.
pub const MAX_DETAIL: usize = 4096;

impl Outcome {
    /// Nothing to complain about.
    pub fn pass() -> Self {
        Self { verdict: Verdict::Pass, outcome: "pass".into(), ..Self::default() }
    }
    /// Nothing to complain about, by this.
    pub fn pass_by(by: PassedBy) -> Self {
        Self { rests_on: Some(by), ..Self::pass() }
    }
    /// What it passed by, if it did: whoever judges later may have turned the pass into a failure.
    pub fn passed_by(&self) -> Option<PassedBy> {
        self.rests_on.filter(|_| self.verdict == Verdict::Pass)
    }
    /// A failure with its name and reason.
    pub fn fail(outcome: &str, detail: impl Into<String>) -> Self {
        Self::of(Verdict::Fail, outcome, detail)
    }
    /// Any verdict with its name and reason.
    pub fn of(verdict: Verdict, outcome: &str, detail: impl Into<String>) -> Self {
        Self { verdict, outcome: outcome.into(), detail: clip(detail.into(), MAX_DETAIL), ..Self::default() }
    }
}

/// Cuts a text at a character boundary and says so.
pub(crate) fn clip(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut at = limit.saturating_sub(24);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let cut = text.len() - at;
        text.truncate(at);
        text.push_str(&format!(" ... ({cut} bytes cut)"));
    }
    text
}

/// Results that vary more than they ever did are a failure.
pub(crate) fn apply_learnt(outcome: &mut Outcome, learnt: Option<Determinism>) {
    let (Some(found), Some(learnt)) = (&outcome.variation, learnt) else { return };
    if outcome.verdict == Verdict::Pass && found.class > learnt {
        let (worse, known) = (found.class.name(), learnt.name());
        let detail = format!("results are alike by {worse}, so far by {known}\n{}", found.detail);
        (outcome.verdict, outcome.outcome, outcome.detail) = (Verdict::Fail, "fail.determinism".into(), detail);
    }
}

/// A declared failure is skipped until its date, and its success is a failure:
/// the declaration must go.
pub(crate) fn apply_xfail(outcome: &mut Outcome, xfail: Option<&Xfail>, today: &str) {
    let Some(xfail) = xfail else { return };
    let expired = !xfail.until.is_empty() && today > xfail.until.as_str();
    match outcome.verdict {
        Verdict::Fail | Verdict::Crash | Verdict::Hang if !expired => {
            outcome.detail = format!("{} ({})\n{}", xfail.reason, outcome.outcome, outcome.detail);
            (outcome.verdict, outcome.outcome) = (Verdict::Skip, "xfail".into());
        }
        Verdict::Fail | Verdict::Crash | Verdict::Hang => {
            outcome.detail = format!("the expected failure ran out on {}\n{}", xfail.until, outcome.detail);
        }
        Verdict::Pass => {
            outcome.detail = format!("passed although a failure is declared: {}", xfail.reason);
            (outcome.verdict, outcome.outcome) = (Verdict::Fail, "xpass".into());
        }
        Verdict::Skip | Verdict::Infra | Verdict::Flaky | Verdict::Quarantined => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(verdict: Verdict, until: &str, wanted: (Verdict, &str)) {
        let xfail = Xfail { reason: "why".into(), until: until.into(), ..Xfail::default() };
        let mut outcome = Outcome::of(verdict, "as.was", "detail");
        apply_xfail(&mut outcome, Some(&xfail), "2030-06-15");
        assert_eq!((outcome.verdict, outcome.outcome.as_str()), wanted);
    }

    #[test]
    fn declared_failures() {
        check(Verdict::Fail, "", (Verdict::Skip, "xfail"));
        check(Verdict::Crash, "2030-06-15", (Verdict::Skip, "xfail"));
        check(Verdict::Fail, "2030-06-14", (Verdict::Fail, "as.was"));
        check(Verdict::Pass, "2031-01-01", (Verdict::Fail, "xpass"));
        check(Verdict::Infra, "", (Verdict::Infra, "as.was"));
    }

    #[track_caller]
    fn check_learnt(found: Option<Determinism>, learnt: Option<Determinism>, wanted: &str) {
        let variation = found.map(|class| Variation { class, detail: "where".into() });
        let mut outcome = Outcome { variation, ..Outcome::pass() };
        apply_learnt(&mut outcome, learnt);
        assert_eq!(outcome.outcome, wanted, "{found:?} {learnt:?}");
    }

    #[test]
    fn results_may_not_vary_more_than_they_did() {
        use Determinism::{Bitwise, Order, Tolerance};
        check_learnt(None, Some(Bitwise), "pass");
        check_learnt(Some(Tolerance), None, "pass");
        check_learnt(Some(Bitwise), Some(Tolerance), "pass");
        check_learnt(Some(Tolerance), Some(Tolerance), "pass");
        check_learnt(Some(Tolerance), Some(Bitwise), "fail.determinism");
        check_learnt(Some(Order), Some(Tolerance), "fail.determinism");
    }

    #[test]
    fn outcomes_travel_with_any_figure() {
        for (max_abs, max_rel) in [(0.5, f64::MAX), (f64::INFINITY, f64::NEG_INFINITY), (5e-324, f64::NAN)] {
            let numerics = Some(Numerics { elements: 3, wrong: 1, max_abs, max_rel });
            let sent = Outcome { numerics, ..Outcome::fail("fail.numerics", "why") };
            let json = serde_json::to_string(&sent).expect("writes");
            let came: Outcome = serde_json::from_str(&json).expect("reads");
            let bits = |o: &Outcome| o.numerics.as_ref().map(|n| (n.max_abs.to_bits(), n.max_rel.to_bits()));
            assert_eq!(bits(&came), bits(&sent), "{json}");
        }
    }

    #[test]
    fn what_is_no_pass_any_more_was_passed_by_nothing() {
        let mut outcome = Outcome::pass_by(PassedBy::Kernel);
        assert_eq!(outcome.passed_by(), Some(PassedBy::Kernel));
        apply_xfail(&mut outcome, Some(&Xfail::default()), "2030-06-15");
        assert_eq!((outcome.outcome.as_str(), outcome.passed_by()), ("xpass", None));
        use PassedBy::{Copies, Host, Kernel, KernelsAndHost, LaunchedNothing, Reference, RefusedAsRequired};
        for by in [Copies, Host, Kernel, KernelsAndHost, LaunchedNothing, Reference, RefusedAsRequired] {
            assert_eq!(serde_json::to_value(by).expect("writes"), by.name());
        }
    }

    #[test]
    fn clipping_keeps_characters_whole() {
        let text = clip("ü".repeat(5000), MAX_DETAIL);
        assert!(text.len() <= MAX_DETAIL + 8 && text.ends_with("bytes cut)"));
    }
}
