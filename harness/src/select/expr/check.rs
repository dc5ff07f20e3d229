//! Words of an expression against the cases that there are: a tag, suite or
//! axis that no case has is a mistake, not an empty selection.

use super::eval::axes;
use super::model::{Expr, Node, Test, Text, What};
use super::show::fault;
use crate::case::{Case, suggest};
use crate::escape::short;
use crate::select::glob::glob;
use engine::diag::Result;
use std::collections::BTreeSet;

impl Expr {
    /// Refuses words that fit no case.
    pub fn check(&self, cases: &[Case]) -> Result<()> {
        let mut tests = Vec::new();
        collect(&self.root, &mut tests);
        tests.into_iter().try_for_each(|test| self.check_one(test, cases))
    }

    fn check_one(&self, test: &Test, cases: &[Case]) -> Result<()> {
        let (kind, word, known): (_, _, BTreeSet<&str>) = match &test.what {
            What::Text(Text::Tag, tag) => {
                ("tag", tag, cases.iter().flat_map(|case| &case.tags).map(String::as_str).collect())
            }
            What::Text(Text::Suite, suite) => ("suite", suite, cases.iter().map(|case| case.suite.as_str()).collect()),
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
