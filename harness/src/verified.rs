//! Outputs that passed, by their digests: what has the same bytes again needs no reference.
//!
//! Input: a case and what an attempt at it came to. Output: the digest of the outputs that passed against the reference
//! before, if the same was expected of them.
//!
//! Invariants:
//! * Only outputs are kept that were compared with the reference, and passed.
//! * They are known by all that decides what is expected: the whole case and the build of the harness, in which the
//!   reference, the inputs and the comparison are. Another build knows nothing of what this one saw. The machine's C library,
//!   from which the reference has `exp` and its like, is not told apart: a folder of results is one machine's.
//! * Nothing is concluded from other bytes: then the reference is evaluated as if nothing were known.

use crate::case::Case;
use crate::outcome::{Digest, HeldTo, Outcome, Verdict};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the reference is evaluated for outputs that passed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceUse {
    /// For all.
    Always,
    /// Only for those that have other bytes.
    Once,
}

impl ReferenceUse {
    pub(crate) const WORDS: [(&str, Self); 2] = [("always", Self::Always), ("once", Self::Once)];

    pub(crate) fn name(self) -> &'static str {
        Self::WORDS.iter().find(|(_, other)| *other == self).map_or("", |(word, _)| word)
    }
}

/// What passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedOutputs {
    /// Of what was expected.
    pub(crate) expected: Digest,
    /// Of the outputs.
    pub(crate) outputs: Digest,
}

/// What passed of each case, as the slots of a run share it.
#[derive(Debug)]
pub(crate) struct VerifiedOutputs {
    build: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    by_case: BTreeMap<String, PassedOutputs>,
    /// What was not known when the run began.
    learnt: BTreeMap<String, PassedOutputs>,
    /// Attempts that were held to digests.
    held: u64,
}

impl VerifiedOutputs {
    /// What this build of the harness knows, from what earlier runs left.
    pub(crate) fn new(build: String, by_case: BTreeMap<String, PassedOutputs>) -> Self {
        Self { build, state: Mutex::new(State { by_case, ..State::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of all that decides what is right for the case.
    fn expected(&self, case: &Case) -> Option<Digest> {
        let text = serde_json::to_vec(&case.essence()).ok()?;
        Some(Digest::of_all([Digest::of(self.build.as_bytes()), Digest::of(&text)]))
    }

    /// The outputs of the case that passed.
    pub(crate) fn known(&self, case: &Case) -> Option<Digest> {
        let passed = self.lock().by_case.get(&case.id).copied()?;
        (self.expected(case)? == passed.expected).then_some(passed.outputs)
    }

    /// Takes in what an attempt came to.
    pub(crate) fn learn(&self, case: &Case, outcome: &Outcome) {
        if outcome.held_to == Some(HeldTo::Digest) {
            self.lock().held += 1;
        }
        let compared = outcome.verdict == Verdict::Pass && outcome.held_to == Some(HeldTo::Reference);
        let Some(outputs) = outcome.out_digest.filter(|_| compared) else { return };
        let Some(expected) = self.expected(case) else { return };
        let passed = PassedOutputs { expected, outputs };
        let mut state = self.lock();
        if state.by_case.insert(case.id.clone(), passed) != Some(passed) {
            state.learnt.insert(case.id.clone(), passed);
        }
    }

    /// For how many attempts the reference was not evaluated.
    pub(crate) fn held(&self) -> u64 {
        self.lock().held
    }

    /// What earlier runs had not left.
    pub(crate) fn learnt(&self) -> BTreeMap<String, PassedOutputs> {
        self.lock().learnt.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Check, Real};

    fn case() -> Case {
        Case { id: "A.a".into(), text: "fusion @a() {}".into(), ..Case::default() }
    }

    fn outcome(held_to: HeldTo, outputs: u128) -> Outcome {
        Outcome { held_to: Some(held_to), out_digest: Some(Digest(outputs)), ..Outcome::pass() }
    }

    #[test]
    fn what_passed_against_the_reference_is_known_as_long_as_the_same_is_expected() {
        let verified = VerifiedOutputs::new("build".into(), BTreeMap::new());
        let of = |case: &Case| verified.known(case);
        let failed = Outcome { verdict: Verdict::Fail, ..outcome(HeldTo::Reference, 1) };
        for other in [failed, outcome(HeldTo::Digest, 1), Outcome { out_digest: None, ..outcome(HeldTo::Reference, 1) }]
        {
            verified.learn(&case(), &other);
            assert_eq!(of(&case()), None, "{other:?}");
        }
        verified.learn(&case(), &outcome(HeldTo::Reference, 7));
        let check = Check { rel: Some(Real::new(1e-3)), ..Check::default() };
        let others = [
            Case { text: "fusion @b() {}".into(), ..case() },
            Case { check, ..case() },
            Case { id: "A.b".into(), ..case() },
        ];
        assert_eq!(others.each_ref().map(of), [None; 3]);
        // Where it stands, and what is said about it, decides nothing.
        assert_eq!(of(&Case { line: 9, about: "why".into(), file: "b.fuse".into(), ..case() }), Some(Digest(7)));
        let kept = verified.learnt();
        let later = |build: &str| VerifiedOutputs::new(build.into(), kept.clone());
        assert_eq!((later("build").known(&case()), later("other").known(&case())), (Some(Digest(7)), None));
        // Only what is new is left for later runs.
        let again = later("build");
        again.learn(&case(), &outcome(HeldTo::Reference, 7));
        again.learn(&case(), &outcome(HeldTo::Digest, 7));
        assert!(again.learnt().is_empty() && again.held() == 1);
        again.learn(&case(), &outcome(HeldTo::Reference, 8));
        assert_eq!((again.known(&case()), again.learnt().len()), (Some(Digest(8)), 1));
    }
}
