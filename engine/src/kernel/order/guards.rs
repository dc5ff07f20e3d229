//! Conditions that only data decides.
//!
//! A branch on such a condition is taken both ways, and what happens in it stands under a *guard*. A guard is
//! *common* if its condition is the same in all threads of the block, else each thread has its own. The path of a
//! statement is the chain of guards around it.

use super::eval::Counter;
use super::word::Val;

/// A guard; 0 is the root, which always holds.
pub(super) type GuardId = u32;
/// Where no condition on data is.
pub(super) const ROOT: GuardId = 0;

pub(super) struct Guard {
    parent: GuardId,
    /// The term of a condition that is common, and whether it holds here.
    common: Option<(u64, bool)>,
    pub(super) condition: Val,
    pub(super) holds: bool,
    /// When it was entered.
    since: u32,
    /// That all blocks have counted: the counter, and the last number.
    ticket: Option<(Counter, i64)>,
}

impl Guard {
    /// Whether all threads of the block decide alike.
    pub(super) fn is_common(&self) -> bool {
        self.common.is_some()
    }
}

/// The guards of a block.
#[derive(Default)]
pub(super) struct Guards {
    all: Vec<Guard>,
}

impl Guards {
    pub(super) fn new() -> Self {
        let root = Guard { parent: ROOT, common: None, condition: Val::int(1), holds: true, since: 0, ticket: None };
        Self { all: vec![root] }
    }

    /// Enters a branch.
    pub(super) fn enter(
        &mut self,
        parent: GuardId,
        common: Option<u64>,
        condition: (Val, bool),
        since: u32,
        ticket: Option<(Counter, i64)>,
    ) -> GuardId {
        let (condition, holds) = condition;
        let common = common.map(|term| (term, holds));
        self.all.push(Guard { parent, common, condition, holds, since, ticket: ticket.filter(|_| holds) });
        (self.all.len() - 1) as GuardId
    }

    /// The guards around a place, innermost first, without the root.
    pub(super) fn path(&self, mut id: GuardId) -> impl Iterator<Item = &Guard> {
        std::iter::from_fn(move || {
            let guard = (id != ROOT).then(|| &self.all[id as usize])?;
            id = guard.parent;
            Some(guard)
        })
    }

    /// Whether a condition is known to hold, or not, at a place.
    pub(super) fn known(&self, id: GuardId, term: u64) -> Option<bool> {
        self.path(id).find_map(|guard| guard.common.filter(|(own, _)| *own == term).map(|(_, holds)| holds))
    }

    /// Whether each thread decides for itself whether it comes to a place.
    pub(super) fn is_private(&self, id: GuardId) -> bool {
        self.path(id).any(|guard| guard.common.is_none())
    }

    /// Whether what stands at `id` happens wherever both `a` and `b` do.
    pub(super) fn is_sure(&self, id: GuardId, a: GuardId, b: GuardId) -> bool {
        self.path(id).all(|guard| {
            guard
                .common
                .is_some_and(|(term, holds)| self.known(a, term) == Some(holds) || self.known(b, term) == Some(holds))
        })
    }

    /// Whether no execution comes to both places.
    pub(super) fn excludes(&self, a: GuardId, b: GuardId) -> bool {
        self.path(a).any(|guard| guard.common.is_some_and(|(term, holds)| self.known(b, term) == Some(!holds)))
    }

    /// The ticket under which a place stands, and since when.
    pub(super) fn ticket(&self, id: GuardId) -> Option<(Counter, i64, u32)> {
        self.path(id).find_map(|guard| guard.ticket.map(|(counter, last)| (counter, last, guard.since)))
    }
}
