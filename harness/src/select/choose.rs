//! The selection as a whole: positive parts first, then what narrows them,
//! then the shard. Nothing selected is an error, with the reason that is nearest.

use super::past::Past;
use super::rerun::{FromRun, Rerun};
use super::shard::Shard;
use super::{Expr, Filter, IdList, expr::Subject, selected};
use crate::case::{Case, suggest};
use crate::escape::short;
use engine::diag::{Diagnostic, Result, code};
use std::collections::{BTreeSet, HashSet};

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Each must select the id.
    pub filters: Vec<Filter>,
    /// Ids, beside what filters select.
    pub exact: Vec<String>,
    /// Tags of which a case must have each.
    pub tags: Vec<String>,
    /// Expressions that must hold; they narrow ids as well.
    pub exprs: Vec<Expr>,
    /// Ids from a file, like `exact`.
    pub(crate) listed: Option<IdList>,
    /// Only what earlier runs left.
    pub(crate) rerun: Option<Rerun>,
    /// The part of the selection that is meant.
    pub shard: Option<Shard>,
}

/// What was chosen.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// In the order of the files.
    pub cases: Vec<Case>,
    /// For `--rerun`: cases that are left, and are not among the chosen.
    pub outstanding: Vec<String>,
    /// What the user should know; for an empty choice, why that is fine.
    pub notes: Vec<String>,
}

impl Wanted {
    /// Whether anything but the shard narrows the selection.
    pub(crate) fn narrowed(&self) -> bool {
        !(self.filters.is_empty() && self.exact.is_empty() && self.tags.is_empty() && self.exprs.is_empty())
            || self.listed.is_some()
            || self.rerun.is_some()
    }
}

/// Chooses. `run` is the record that `--rerun` names, if it needs one.
#[allow(private_interfaces, reason = "runs are named by the command line only")]
pub fn choose(wanted: &Wanted, cases: Vec<Case>, past: &Past, run: &FromRun) -> Result<Chosen> {
    let total = cases.len();
    let ids: HashSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    check_words(wanted, &cases, &ids)?;
    let named: HashSet<&str> = names(wanted).filter(|id| ids.contains(id)).collect();
    let left = |id: &str| wanted.rerun.as_ref().is_none_or(|rerun| rerun.takes(id, past, run));
    let all_left: Vec<String> = match &wanted.rerun {
        Some(_) => ids.iter().filter(|id| left(id)).map(|id| id.to_string()).collect(),
        None => Vec::new(),
    };
    let positive = |case: &Case| {
        let tagged = wanted.tags.iter().all(|tag| case.tags.contains(tag));
        let by_filter = !wanted.filters.is_empty() && selected(&wanted.filters, &case.id);
        // A tag alone selects all that have it, ids alone nothing else.
        let all = wanted.filters.is_empty() && (named.is_empty() || !wanted.tags.is_empty());
        tagged && (all || by_filter) || named.contains(case.id.as_str())
    };
    let holds = |case: &Case| {
        let quarantined = past.quarantined.contains(&case.id);
        let subject = Subject { case, last: past.last(&case.id), quarantined };
        wanted.exprs.iter().all(|expr| expr.matches(&subject))
    };
    let matching: Vec<bool> = cases.iter().map(|case| positive(case) && holds(case)).collect();
    let keep: Vec<bool> = cases.iter().zip(&matching).map(|(case, fits)| *fits && left(&case.id)).collect();
    let (matches, count) = (matching.iter().filter(|fits| **fits).count(), keep.iter().filter(|fits| **fits).count());
    if matches == 0 {
        return Err(nothing(wanted, total));
    }
    let mut chosen = Chosen::default();
    if count == 0 {
        empty_rerun(wanted, past, matches, all_left.len(), &mut chosen)?;
    }
    let mut flags = keep.into_iter();
    chosen.cases = cases;
    chosen.cases.retain(|_| flags.next().unwrap_or(false));
    let taken: HashSet<&str> = chosen.cases.iter().map(|case| case.id.as_str()).collect();
    chosen.outstanding = all_left.into_iter().filter(|id| !taken.contains(id.as_str())).collect();
    chosen.outstanding.sort();
    if let Some(shard) = wanted.shard {
        in_shard(shard, &mut chosen);
    }
    Ok(chosen)
}

fn names(wanted: &Wanted) -> impl Iterator<Item = &str> {
    let listed = wanted.listed.iter().flat_map(|list| &list.ids).map(|(_, id)| id.as_str());
    wanted.exact.iter().map(String::as_str).chain(listed)
}

/// Ids, tags and words of expressions that fit nothing are mistakes.
fn check_words(wanted: &Wanted, cases: &[Case], ids: &HashSet<&str>) -> Result<()> {
    let nearest = |id: &str| suggest(id, nearest_ids(id, cases).into_iter());
    for id in &wanted.exact {
        if !ids.contains(id.as_str()) {
            let message = format!("there is no case `{}`", short(id));
            return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(nearest(id)));
        }
    }
    if let Some(list) = &wanted.listed {
        list.check(|id| ids.contains(id), nearest)?;
    }
    if !wanted.tags.is_empty() {
        let known: BTreeSet<&str> = cases.iter().flat_map(|case| &case.tags).map(String::as_str).collect();
        for tag in wanted.tags.iter().filter(|tag| !known.contains(tag.as_str())) {
            let message = format!("no case has the tag `{}`", short(tag));
            return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note(suggest(tag, known.into_iter())));
        }
    }
    wanted.exprs.iter().try_for_each(|expr| expr.check(cases))
}

/// A rerun of nothing: fine where nothing is left at all, an error where the
/// selection leaves out what is left, or where nothing is recorded.
fn empty_rerun(wanted: &Wanted, past: &Past, matches: usize, left: usize, chosen: &mut Chosen) -> Result<()> {
    let what = wanted.rerun.as_ref().map_or(String::new(), Rerun::shown);
    let needs_past = matches!(wanted.rerun, Some(Rerun::Failed | Rerun::Flaky));
    if needs_past && past.cases.is_empty() {
        let message = "nothing selected: no earlier run is recorded for these devices";
        return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note("run once without --rerun"));
    }
    if left > 0 {
        let message = format!("nothing selected: none of {matches} cases that match {what}, but {left} others do");
        return Err(Diagnostic::user(code::NOTHING_SELECTED, message).note("leave the filter out"));
    }
    chosen.notes.push(format!("nothing is left: no case {what}"));
    Ok(())
}

/// Keeps the shard's cases. An empty shard is fine, and says so.
fn in_shard(shard: Shard, chosen: &mut Chosen) {
    let total = chosen.cases.len();
    let mut position = 0;
    chosen.cases.retain(|case| {
        position += 1;
        shard.keeps(position - 1, &case.id)
    });
    if total > 0 {
        let count = chosen.cases.len();
        let empty = if count == 0 { "; with fewer cases than shards that is fine" } else { "" };
        chosen.notes.push(format!("shard {shard}: {count} of {total} selected cases{empty}"));
    }
}

fn nothing(wanted: &Wanted, total: usize) -> Box<Diagnostic> {
    let note = match (total, wanted.exprs.first()) {
        (0, _) => "the case folder holds no case file (*.fuse)".into(),
        (_, Some(expr)) => format!("`harness list` prints the ids; the expression was read as {expr}"),
        _ => "`harness list` prints the ids; `*` matches any run of characters".into(),
    };
    let message = format!("nothing selected: none of {total} cases matches");
    Diagnostic::user(code::NOTHING_SELECTED, message).note(note)
}

/// Ids worth proposing: the few that begin alike, of those that share the name
/// before the first slash if there are any.
fn nearest_ids<'a>(id: &str, cases: &'a [Case]) -> Vec<&'a str> {
    let stem = id.split('/').next().unwrap_or(id);
    let ids = || cases.iter().map(|case| case.id.as_str());
    let mut list: Vec<&str> = ids().filter(|other| other.starts_with(stem)).take(2000).collect();
    if list.is_empty() {
        list = ids().collect();
    }
    let common = |other: &&str| id.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    list.sort_by_cached_key(|other| std::cmp::Reverse(common(other)));
    list.truncate(4);
    list
}
