//! What earlier runs on a kind of device say about cases.

use super::glob::{glob, is_glob};
use crate::outcome::Last;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Words that `last(...)` knows; finer names have a dot.
pub(super) const VERDICTS: [&str; 8] = ["pass", "fail", "crash", "hang", "flaky", "skip", "infra", "never"];

/// Whether a word of `last(...)` fits: a verdict, an outcome or a pattern.
pub(super) fn is_word_of(last: &Last, word: &str) -> bool {
    word == last.verdict().name() || word == last.outcome || (is_glob(word) && glob(word, &last.outcome))
}

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// By id; a case that never ran is not there.
    pub cases: HashMap<String, Last>,
    /// Ids in quarantine.
    pub quarantined: BTreeSet<String>,
    /// Ids of cases that changed, by the revision or run since when.
    pub changed: BTreeMap<String, BTreeSet<String>>,
}

impl Past {
    /// A case's last run.
    pub fn last(&self, id: &str) -> Option<&Last> {
        self.cases.get(id)
    }
}
