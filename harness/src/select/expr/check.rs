//! Words of an expression against the cases that there are: a tag, suite or
//! axis that no case has is a mistake, not an empty selection.

use super::eval::axes;
use super::model::{FilterExpr, Node, Test, TextField, What};
use super::show::fault;
use crate::case::{Case, suggest};
use crate::escape::short;
use crate::select::glob::glob;
use engine::diag::{Diagnostic, Result};
use std::collections::BTreeSet;

impl FilterExpr {
    /// Refuses words that fit no case.
    pub fn check(&self, cases: &[Case]) -> Result<()> {
        let mut tests = Vec::new();
        collect(&self.root, &mut tests);
        tests.into_iter().try_for_each(|test| self.check_one(test, cases))
    }

    /// What its `changed(...)` name, each once.
    pub(crate) fn since(&self) -> BTreeSet<&str> {
        let mut tests = Vec::new();
        collect(&self.root, &mut tests);
        let since = tests.into_iter().filter_map(|test| match &test.what {
            What::Changed(since) => Some(since.as_str()),
            _ => None,
        });
        since.collect()
    }

    /// What is wrong with a `changed(...)` of it, shown at its place.
    pub(crate) fn refuse(&self, since: &str, message: &str, hint: &str) -> Box<Diagnostic> {
        let mut tests = Vec::new();
        collect(&self.root, &mut tests);
        let place = tests.into_iter().find(|test| matches!(&test.what, What::Changed(other) if other == since));
        fault(&self.text, place.map_or(0..0, |test| test.span.clone()), message, hint)
    }

    fn check_one(&self, test: &Test, cases: &[Case]) -> Result<()> {
        let (kind, word, known): (_, _, BTreeSet<&str>) = match &test.what {
            What::Text(TextField::Tag, tag) => {
                ("tag", tag, cases.iter().flat_map(|case| &case.tags).map(String::as_str).collect())
            }
            What::Text(TextField::Suite, suite) => {
                ("suite", suite, cases.iter().map(|case| case.suite.as_str()).collect())
            }
            What::Axis(axis, ..) => {
                ("axis", axis, cases.iter().flat_map(|case| axes(&case.id)).map(|(key, _)| key).collect())
            }
            _ => return Ok(()),
        };
        // No case at all is told elsewhere.
        if cases.is_empty() || known.iter().any(|name| glob(word, name)) {
            return Ok(());
        }
        let hint = suggest(word, known.into_iter());
        Err(fault(&self.text, test.span.clone(), format!("no case has the {kind} `{}`", short(word)), &short(&hint)))
    }
}

fn collect<'a>(node: &'a Node, tests: &mut Vec<&'a Test>) {
    match node {
        Node::All | Node::None => {}
        Node::Not(node) => collect(node, tests),
        Node::And(nodes) | Node::Or(nodes) => nodes.iter().for_each(|node| collect(node, tests)),
        Node::Test(test) => tests.push(test),
    }
}
