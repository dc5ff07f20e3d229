//! An expression on one case.

use super::super::glob::glob;
use super::super::past::is_word_of;
use super::model::{FilterExpr, Mark, Node, TextField, What};
use crate::case::Case;
use crate::outcome::Last;
use std::collections::{BTreeMap, BTreeSet};

/// A case with what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct FilterSubject<'a> {
    /// The case.
    pub case: &'a Case,
    /// What earlier runs say; `None` if it never ran.
    pub last: Option<&'a Last>,
    /// Whether the quarantine file names it.
    pub quarantined: bool,
    /// Ids that changed, by what each `changed(...)` of the expression names.
    pub changed: &'a BTreeMap<String, BTreeSet<String>>,
}

impl FilterExpr {
    /// Whether the expression holds for the case.
    pub fn matches(&self, subject: &FilterSubject<'_>) -> bool {
        holds(&self.root, subject)
    }
}

/// Depth is bounded by the parser.
fn holds(node: &Node, subject: &FilterSubject<'_>) -> bool {
    match node {
        Node::All => true,
        Node::None => false,
        Node::Not(node) => !holds(node, subject),
        Node::And(nodes) => nodes.iter().all(|node| holds(node, subject)),
        Node::Or(nodes) => nodes.iter().any(|node| holds(node, subject)),
        Node::Test(test) => asks(&test.what, subject),
    }
}

fn asks(what: &What, subject: &FilterSubject<'_>) -> bool {
    let FilterSubject { case, last, quarantined, changed } = subject;
    match what {
        What::Text(TextField::Name, pattern) => glob(pattern, &case.id),
        What::Text(TextField::Suite, pattern) => glob(pattern, &case.suite),
        What::Text(TextField::Tag, pattern) => case.tags.iter().any(|tag| glob(pattern, tag)),
        What::Text(TextField::File, pattern) => file(pattern, &case.file),
        What::Text(TextField::Device, device) => {
            case.require.device.is_empty() || case.require.device.iter().any(|name| name == device)
        }
        What::Last(words) => words.iter().any(|word| match last {
            None => word == "never",
            Some(last) => is_word_of(last, word) || word == "never" && last.runs == 0,
        }),
        What::Changed(since) => changed.get(since).is_some_and(|ids| ids.contains(&case.id)),
        What::Mark(Mark::Quarantined) => *quarantined,
        What::Mark(Mark::Perf) => case.perf.is_some(),
        What::Mark(Mark::Refusal) => !case.refusals().is_empty(),
        What::Mark(Mark::Xfail) => case.xfail.is_some(),
        What::Compare(property, op, value) => (property.get)(subject).is_some_and(|own| op.holds(&own, value)),
        What::Axis(name, op, value) => axes(&case.id).any(|(key, own)| {
            key == name
                && match (own.parse::<f64>(), value.parse::<f64>()) {
                    (Ok(own), Ok(value)) => op.holds(&own, &value),
                    _ => op.holds(&own, &value.as_str()),
                }
        }),
    }
}

/// A pattern for the whole path, or for its end from a folder on.
fn file(pattern: &str, path: &str) -> bool {
    let tails = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(tails).any(|tail| glob(pattern, tail))
}

/// The axes in an id: `Suite.Name/axis=value,...`.
pub(super) fn axes(id: &str) -> impl Iterator<Item = (&str, &str)> {
    let point = id.split_once('/').map_or("", |(_, point)| point);
    point.split(',').filter_map(|pair| pair.split_once('='))
}
