//! The table of fault classes, and how a class with its parameter is written.

use super::{device, host, process, protocol, resource, statistics};
use crate::case::Case;
use crate::crumb::{CrumbWriter, Lane};
use crate::outcome::Outcome;
use crate::worker::device::Device;
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What a class breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultKind {
    /// Nothing: a case that must stay as it is beside all others.
    Innocent,
    /// The code of the process.
    Host,
    /// What worker and dispatcher say to each other.
    Protocol,
    /// The process as its system sees it: files, children, signals.
    Process,
    /// Memory, descriptors, time.
    Resource,
    /// The device and its kernels.
    Device,
    /// Failures that depend on chance, order or neighbours.
    Statistics,
}

/// Where a class can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultTarget {
    Any,
    Sim,
    Cuda,
}

/// What a class must leave alone. Every other case keeps its result in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spares {
    /// The worker goes on.
    Worker,
    /// The worker is lost or replaced.
    Others,
}

/// One class of faults.
#[derive(Clone, Copy)]
pub(crate) struct FaultClass {
    pub(crate) name: &'static str,
    /// What stands behind `name=`; empty for a class without a parameter.
    pub(crate) takes: &'static str,
    /// The parameter's value in `selftest` and `--with-faults`.
    pub(crate) sample: &'static str,
    pub(crate) kind: FaultKind,
    pub(crate) place: FaultTarget,
    /// The outcome of its case. For [`FaultKind::Statistics`] that of a failing one.
    pub(crate) expected: &'static str,
    /// The phase and the name in the breadcrumb of a lost worker; empty when the worker lives to tell.
    pub(crate) phase: &'static str,
    /// What must be told about its worker besides: `leak.fd`, `crash.teardown`.
    pub(crate) told: &'static str,
    pub(crate) spares: Spares,
    /// Milliseconds after which its case hangs.
    pub(crate) limit_ms: u64,
    pub(crate) about: &'static str,
    /// Whether it fails under these facts; always, where there is none.
    pub(crate) fails: Option<fn(&FaultFacts, &str) -> bool>,
    /// Why it cannot happen on this machine, if so.
    pub(crate) unavailable: Option<fn() -> Option<String>>,
    pub(crate) commit: fn(&Scene<'_>, &str) -> Outcome,
    /// What it does while its case is compiled ahead of its run.
    pub(crate) ahead: Option<fn(Lane<'_>)>,
}

/// Generous: what is not a hang must not become one on a loaded machine.
const DEFAULT_LIMIT_MS: u64 = 30_000;

impl FaultClass {
    /// A class that ends its worker inside its case.
    pub(super) const fn fatal(
        name: &'static str,
        kind: FaultKind,
        expected: &'static str,
        about: &'static str,
        commit: fn(&Scene<'_>, &str) -> Outcome,
    ) -> Self {
        let returns = Self::returns(name, kind, expected, about, commit);
        Self { phase: "inputs", spares: Spares::Others, ..returns }
    }

    /// A class whose worker lives to report.
    pub(super) const fn returns(
        name: &'static str,
        kind: FaultKind,
        expected: &'static str,
        about: &'static str,
        commit: fn(&Scene<'_>, &str) -> Outcome,
    ) -> Self {
        Self {
            name,
            takes: "",
            sample: "",
            kind,
            place: FaultTarget::Any,
            expected,
            phase: "",
            told: "",
            spares: Spares::Worker,
            limit_ms: DEFAULT_LIMIT_MS,
            about,
            fails: None,
            unavailable: None,
            commit,
            ahead: None,
        }
    }

    pub(super) const fn takes(self, what: &'static str, sample: &'static str) -> Self {
        Self { takes: what, sample, ..self }
    }
    pub(super) const fn on(self, place: FaultTarget) -> Self {
        Self { place, ..self }
    }

    /// What is told about its worker, which is replaced.
    pub(super) const fn told(self, told: &'static str) -> Self {
        Self { told, spares: Spares::Others, ..self }
    }

    /// What is told about its worker, which goes on.
    pub(super) const fn notes(self, told: &'static str) -> Self {
        Self { told, ..self }
    }

    pub(super) const fn phase(self, phase: &'static str) -> Self {
        Self { phase, ..self }
    }

    pub(super) const fn replaced(self) -> Self {
        Self { spares: Spares::Others, ..self }
    }

    pub(super) const fn limit_ms(self, limit_ms: u64) -> Self {
        Self { limit_ms, ..self }
    }

    pub(super) const fn fails(self, fails: fn(&FaultFacts, &str) -> bool) -> Self {
        Self { fails: Some(fails), ..self }
    }
    pub(super) const fn ahead(self, ahead: fn(Lane<'_>)) -> Self {
        Self { ahead: Some(ahead), ..self }
    }
    pub(super) const fn unless(self, unavailable: fn() -> Option<String>) -> Self {
        Self { unavailable: Some(unavailable), ..self }
    }

    /// The class as `selftest` writes it.
    pub(crate) fn spec(&self) -> String {
        if self.sample.is_empty() { self.name.into() } else { format!("{}={}", self.name, self.sample) }
    }
}

/// All classes, by kind.
pub(crate) fn classes() -> impl Iterator<Item = &'static FaultClass> {
    [
        host::CLASSES,
        protocol::CLASSES,
        process::CLASSES,
        resource::CLASSES,
        device::ON_SIMULATOR,
        device::ON_GPU,
        statistics::CLASSES,
    ]
    .into_iter()
    .flatten()
}

/// A class with its parameter: `segv`, `flaky=0.05`. What follows `@` only tells
/// cases of one class apart: `pass@17`.
pub(crate) struct Spec<'a> {
    pub(crate) class: &'static FaultClass,
    pub(crate) value: &'a str,
}

impl<'a> Spec<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let text = text.split_once('@').map_or(text, |(spec, _)| spec);
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let class = classes().find(|class| class.name == name)?;
        // A value that the class would not look at is a mistake.
        let unread = class.takes.is_empty() && !value.is_empty();
        let value = if value.is_empty() { class.sample } else { value };
        (!unread).then_some(Self { class, value })
    }

    /// The case that commits a fault.
    pub(crate) fn case(text: &str) -> Option<Case> {
        let class = Spec::parse(text)?.class;
        Some(Case {
            id: format!("__fault.{text}"),
            suite: "__fault".into(),
            name: text.into(),
            file: "built in".into(),
            about: match class.takes {
                "" => class.about.into(),
                takes => format!("{} ({}={takes})", class.about, class.name),
            },
            timeout_ms: Some(class.limit_ms),
            fault: Some(text.into()),
            ..Case::default()
        })
    }
}

/// One case for each class that can happen on any device of this machine.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let possible = |class: &&FaultClass| {
        class.place == FaultTarget::Any && class.unavailable.is_none_or(|unavailable| unavailable().is_none())
    };
    classes().filter(possible).filter_map(|class| Spec::case(&class.spec()))
}

/// The case with this id, as `--exact` names it: any class, any parameter.
pub(crate) fn named(id: &str) -> Option<Case> {
    Spec::case(id.strip_prefix("__fault.")?)
}

/// On what a failure by chance, order or neighbours may depend.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultFacts {
    pub(crate) seed: u64,
    pub(crate) case_id: String,
    pub(crate) attempt: u32,
    pub(crate) repeat: u32,
    /// Cases that the worker had run before.
    pub(crate) position: u64,
    /// Ids of the fault cases among them.
    pub(crate) ran: Arc<Vec<String>>,
    /// Workers on this worker's device, itself included.
    pub(crate) sharers: u32,
}

/// What a worker remembers of its cases.
#[derive(Debug, Default)]
pub(crate) struct FaultPast {
    pub(crate) cases_run: u64,
    /// Ids of fault cases, shared with the [`FaultFacts`] of the one that runs.
    pub(crate) faults: Arc<Vec<String>>,
    /// Workers on this worker's device, itself included.
    pub(crate) sharers: u32,
}

impl FaultPast {
    /// Notes a case that has been run.
    pub(crate) fn add(&mut self, case: &Case) {
        self.cases_run += 1;
        if case.fault.is_some() {
            Arc::make_mut(&mut self.faults).push(case.id.clone());
        }
    }
}

/// Where a fault happens.
pub(crate) struct Scene<'a> {
    pub(crate) crumbs: &'a CrumbWriter,
    pub(crate) socket: &'a UnixStream,
    pub(crate) device: &'a Device,
    pub(crate) facts: FaultFacts,
    /// Set by a fault after which no case may use the device.
    pub(crate) tainted: Cell<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn rows_are_complete_and_unique() {
        let mut names = BTreeSet::new();
        for class in classes() {
            assert!(names.insert(class.name), "{} stands twice", class.name);
            assert!(!class.about.is_empty() && !class.expected.is_empty(), "{}", class.name);
            assert_eq!(class.takes.is_empty(), class.sample.is_empty(), "{}", class.name);
            let spec = class.spec();
            let found = Spec::parse(&spec).expect("finds itself");
            assert_eq!((found.class.name, found.value), (class.name, class.sample));
            let lost = class.expected.starts_with("crash") || class.expected.starts_with("hang");
            assert!(!lost || class.spares == Spares::Others, "{}", class.name);
        }
        assert!(Spec::parse("nosuch=1").is_none());
    }
}
