//! Which cases have another entry than the committed one, by cause.

use super::archive::Archive;
use super::cause::cause;
use super::list::{List, ListEntry};
use std::collections::{BTreeMap, HashMap};

/// Cases that changed alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) cause: String,
    /// In the order of ids.
    pub(crate) changes: Vec<KernelChange>,
}

/// What became of a case.
#[derive(Clone, Debug)]
pub(crate) struct KernelChange {
    pub(crate) id: String,
    pub(crate) old: Option<ListEntry>,
    pub(crate) new: Option<ListEntry>,
}

impl KernelChange {
    /// Digests of the old and the new CUDA text, where there are any.
    pub(super) fn digests(&self) -> (Option<&str>, Option<&str>) {
        (digest(self.old.as_ref()), digest(self.new.as_ref()))
    }
}

fn digest(entry: Option<&ListEntry>) -> Option<&str> {
    match entry {
        Some(ListEntry::Kernel(row)) => Some(&row.cuda),
        _ => None,
    }
}

/// All cases whose entries differ, in groups, the largest first. Ids that only one
/// of the lists has count as well: give what was selected.
pub(crate) fn changes(old: &List, new: &List, before: &Archive, after: &Archive) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<KernelChange>> = BTreeMap::new();
    // Many cases share their kernels.
    let mut known: HashMap<(Option<ListEntry>, Option<ListEntry>), String> = HashMap::new();
    let ids: std::collections::BTreeSet<&String> = old.0.keys().chain(new.0.keys()).collect();
    for id in ids {
        let change = KernelChange { id: id.clone(), old: old.0.get(id).cloned(), new: new.0.get(id).cloned() };
        if change.old == change.new {
            continue;
        }
        let why = known.entry((change.old.clone(), change.new.clone())).or_insert_with(|| {
            let texts = match change.digests() {
                (Some(old), Some(new)) => before.0.get(old).zip(after.0.get(new)),
                _ => None,
            };
            cause(change.old.as_ref(), change.new.as_ref(), texts.map(|(old, new)| (old.as_str(), new.as_str())))
        });
        groups.entry(why.clone()).or_default().push(change);
    }
    let mut groups: Vec<Group> = groups.into_iter().map(|(cause, changes)| Group { cause, changes }).collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.changes.len()));
    groups
}
