//! One counter of one case, then and now.

use std::collections::BTreeMap;

/// Counters of which more is worse. The others say how large the work is, not what it costs.
pub(crate) const COSTS: [&str; 8] = [
    "instructions",
    "load_sectors",
    "store_sectors",
    "shared_wavefronts",
    "bank_conflicts",
    "block_barriers",
    "grid_barriers",
    "divergent_branches",
];

/// One counter of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterChange {
    pub(crate) id: String,
    pub(crate) counter: String,
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// Counters that differ, in the order of cases and names.
pub(crate) type CounterChanges = Vec<CounterChange>;

impl CounterChange {
    /// The counters that both sides have and that differ.
    pub(crate) fn between<'c>(
        id: &'c str,
        before: &'c BTreeMap<String, u64>,
        after: &'c BTreeMap<String, u64>,
    ) -> impl Iterator<Item = Self> + 'c {
        let both = before.iter().filter_map(|(name, old)| Some((name, *old, *after.get(name)?)));
        both.filter(|(_, old, new)| old != new).map(|(counter, before, after)| Self {
            id: id.into(),
            counter: counter.clone(),
            before,
            after,
        })
    }

    fn is_cost(&self) -> bool {
        COSTS.contains(&self.counter.as_str())
    }

    /// Whether the same work costs more.
    pub(crate) fn is_dearer(&self) -> bool {
        self.is_cost() && self.after > self.before
    }

    /// Whether the same work costs less.
    pub(crate) fn is_cheaper(&self) -> bool {
        self.is_cost() && self.after < self.before
    }

    /// The change in percent; none from 0.
    pub(crate) fn percent(&self) -> Option<f64> {
        self.ratio().map(|ratio| 100.0 * (ratio - 1.0))
    }

    /// How many times as much; none from 0.
    pub(crate) fn ratio(&self) -> Option<f64> {
        (self.before > 0).then(|| self.after as f64 / self.before as f64)
    }
}
