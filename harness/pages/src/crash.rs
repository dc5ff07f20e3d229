//! `crashes/<leaf>/bucket.json`: a kind of crash over all runs. The harness adds to it, pages tell it: one form for both.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When a crash was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sight {
    pub run: String,
    pub utc: String,
    pub commit: String,
}

/// All crashes of one leaf.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Crash {
    /// Version of the form.
    pub v: u32,
    pub leaf: String,
    pub family: String,
    /// The project's own calls that make the leaf, innermost first.
    pub calls: Vec<String>,
    pub cuda_error: String,
    /// Failed attempts, and the runs with at least one.
    pub count: u64,
    pub runs: u64,
    pub first: Sight,
    pub last: Sight,
    pub devices: BTreeMap<String, u64>,
    pub cases: BTreeMap<String, u64>,
    /// Folder of one attempt with all its evidence, from the results folder on.
    pub exemplar: String,
}
