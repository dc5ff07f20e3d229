//! Names of tensors: each stands for one.

use std::collections::BTreeSet;

/// The names that are taken.
#[derive(Clone, Debug)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    pub(super) fn new(taken: impl IntoIterator<Item = String>) -> Self {
        Self(taken.into_iter().collect())
    }

    /// A name for something new: with a number behind it where that is taken. It is taken then.
    pub(super) fn fresh(&mut self, name: String) -> String {
        let mut numbered = (2u32..).map(|number| format!("{name}#{number}"));
        let name = match self.0.contains(&name) {
            true => numbered.find(|name| !self.0.contains(name)).unwrap_or_default(),
            false => name,
        };
        self.0.insert(name.clone());
        name
    }
}
