//! Differences in words: the groups, and for the first of them what changed in
//! the text of one of their kernels.

use super::archive::Archive;
use super::change::{Group, KernelChange};
use super::diff::unified;
use super::list::{KernelRow, ListEntry};
use std::collections::BTreeSet;

/// Groups that are told, and those of them that are shown with a difference of texts.
const TOLD: usize = 20;
const SHOWN: usize = 4;
/// Ids that are named of a group.
const NAMED: usize = 3;
/// Lines of a difference.
const LINES: usize = 60;

/// What to print of the groups; empty without any.
pub(crate) fn report(groups: &[Group], before: &Archive, after: &Archive) -> String {
    let mut text = String::new();
    for (i, group) in groups.iter().take(TOLD).enumerate() {
        text.push_str(&head(group));
        if i < SHOWN {
            text.push_str(&example(group, before, after));
        }
    }
    if let Some(rest) = groups.get(TOLD..).filter(|rest| !rest.is_empty()) {
        let cases: usize = rest.iter().map(|group| group.changes.len()).sum();
        text.push_str(&format!("{cases} cases in {} further groups; --filter narrows\n", rest.len()));
    }
    text
}

/// How many, why, and some of them.
fn head(group: &Group) -> String {
    let count = group.changes.len();
    let kernels: BTreeSet<_> = group.changes.iter().filter_map(|change| change.digests().1).collect();
    let named: Vec<&str> = group.changes.iter().take(NAMED).map(|change| change.id.as_str()).collect();
    let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
    let (s, k) = (if count == 1 { "" } else { "s" }, if kernels.len() == 1 { "" } else { "s" });
    format!("{count} case{s}, {} kernel{k}: {}\n  {}{more}\n", kernels.len(), group.cause, named.join(" "))
}

/// The first case of a group whose texts are known.
fn example(group: &Group, before: &Archive, after: &Archive) -> String {
    let texts = |change: &KernelChange| {
        let (old, new) = change.digests();
        Some((before.0.get(old?)?, after.0.get(new?)?))
    };
    let Some((change, (old, new))) = group.changes.iter().find_map(|change| Some((change, texts(change)?))) else {
        return String::new();
    };
    let (Some(ListEntry::Kernel(a)), Some(ListEntry::Kernel(b))) = (&change.old, &change.new) else {
        return String::new();
    };
    let difference = format!("{}{}", unified(&facts(a), &facts(b), LINES), unified(old, new, LINES));
    let indented: String = difference.lines().map(|line| format!("    {line}\n")).collect();
    format!("  {}\n{indented}", change.id)
}

/// What the list says of a kernel, a line each.
fn facts(row: &KernelRow) -> String {
    format!("scheduler {}\nparameters {}\nlaunch {}\n", row.scheduler, row.parameters, row.launch)
}
