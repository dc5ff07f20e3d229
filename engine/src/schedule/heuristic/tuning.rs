//! The parameters that a caller may set instead of the heuristics and the pipeline
//! ([`Options::tuning`]): names and what each may be.
//!
//! In: the caller's settings. Out: a refusal, or nothing. Invariant: what passes
//! gives a right kernel on every fusion, slow as it may be; heuristics read a
//! setting only after [`check`], and need no test of their own.

use crate::diag::{Diagnostic, Result, code};
use crate::options::Options;

/// A parameter that may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name: the heuristic and what it sets.
    pub name: &'static str,
    /// The least value.
    pub least: i64,
    /// The greatest value.
    pub most: i64,
    /// Whether the value must be a power of two.
    pub power: bool,
}

const fn setting(name: &'static str, least: i64, most: i64) -> Setting {
    Setting { name, least, most, power: false }
}

/// All parameters, by name.
pub const SETTINGS: &[Setting] = &[
    setting("cache.load", 0, 1),
    setting("cache.store", 0, 1),
    // The place among all ways to take rows together, the best by the model first.
    setting("folded_columns.choice", 0, 64),
    // Elements of the largest tensor from which rows of sums of columns are taken together.
    setting("folded_columns.least", 1, 1 << 30),
    // The place among all ways in which blocks hold a row together, the best by the model first; and the elements of a
    // row from which on they do.
    setting("grid_persistent.choice", 0, 1024),
    setting("grid_persistent.row", 2, 1 << 30),
    // The place among all ways to hold a row and sums of columns, the best by the model first.
    setting("inner_outer.choice", 0, 256),
    // Elements of a row from which on registers hold nothing of it.
    setting("inner_outer.ring", 1, 1 << 30),
    setting("norm.ahead", 0, 1),
    // The place among all ways to hold a row, the best by the model first.
    setting("norm.choice", 0, 4096),
    setting("norm.per_thread", 1, 64),
    setting("norm.reread", 0, 1),
    setting("norm.threads_per_sm", 0, 2048),
    // Bytes of the narrowest vectors of joined rows that are taken as one run.
    setting("pointwise.joined", 2, 16),
    // Elements of the largest tensor from which rows are taken together.
    setting("pointwise.least_folded", 1, 1 << 30),
    setting("pointwise.threads", 1, 1024),
    setting("pointwise.unroll", 1, 16),
    setting("reduction.blocks_per_sm", 0, 32),
    // Sums from which on threads have their own, and how many of rows each.
    setting("reduction.own_sums", 1, 1 << 30),
    setting("reduction.sums", 1, 8),
    Setting { power: true, ..setting("reduction.threads", 32, 1024) },
    setting("reduction.threads_per_sm", 0, 2048),
    setting("reduction.unroll", 1, 16),
    // Bytes of a block, above which reductions take turns with them.
    setting("shared.room", 0, 1 << 20),
    // The place among all ways to have columns, the best by the model first; the fewest columns, and the elements of
    // the longest one.
    setting("short_columns.choice", 0, 256),
    setting("short_columns.least", 1, 1 << 30),
    setting("short_columns.row", 1, 1024),
    // Bytes that a thread takes from a tile at once; the place among all numbers of threads of a row, the best by the model
    // first; the fewest rows, and the elements of the longest one.
    setting("short_rows.bytes", 1, 16),
    setting("short_rows.choice", 0, 8),
    setting("short_rows.least", 1, 1 << 30),
    setting("short_rows.row", 1, 1024),
    // Rows of a thread, and elements of a vector at most.
    setting("stacked.rows", 1, 16),
    setting("stacked.threads", 32, 1024),
    setting("stacked.vector", 1, 16),
    Setting { power: true, ..setting("stacked_rows.threads", 32, 1024) },
    Setting { power: true, ..setting("summed_rows.threads", 32, 1024) },
    // Bytes of the widest access that is aligned row by row, of the side that computes and of that which is staged.
    Setting { power: true, ..setting("transpose.first_rows", 2, 16) },
    // Bytes along the second dimension, and indices of either, from which tiles are used.
    setting("transpose.least_bytes", 0, 1 << 30),
    setting("transpose.least_extent", 1, 1 << 30),
    Setting { power: true, ..setting("transpose.second_rows", 2, 16) },
    // Bytes of a tile of one tensor.
    setting("transpose.tile_bytes", 64, 32 << 10),
];

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.power { "a power of two " } else { "" };
        write!(f, "{what}from {} to {}", self.least, self.most)
    }
}

/// Every setting has a name of the table and a value that it allows.
pub(super) fn check(options: &Options) -> Result<()> {
    for (name, &value) in &options.tuning {
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            return Err(Diagnostic::user(code::TUNING, format!("there is no tuning parameter `{name}`"))
                .note(format!("there are {}", names.join(", "))));
        };
        let in_range = (setting.least..=setting.most).contains(&value);
        if !in_range || setting.power && !value.cast_unsigned().is_power_of_two() {
            return Err(Diagnostic::user(code::TUNING, format!("the tuning parameter `{name}` is {value}"))
                .note(format!("it is {setting}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn refusal(name: &str, value: i64) -> Option<String> {
        let options = Options { tuning: BTreeMap::from([(name.to_string(), value)]), ..Options::default() };
        let error = check(&options).err()?;
        assert_eq!((error.code, error.notes.len()), (code::TUNING, 1));
        Some(format!("{}; {}", error.message, error.notes[0]))
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for &Setting { name, least, most, power } in SETTINGS {
            for value in [least, most] {
                assert_eq!(refusal(name, value), None, "{name} {value}");
            }
            let odd = if power { vec![least + 1, most - 1] } else { Vec::new() };
            let outside = [least - 1, most + 1, -1, i64::MIN, i64::MAX, 1 << 31, 1 << 32, 1 << 62];
            for value in outside.into_iter().chain(odd) {
                let told = refusal(name, value).expect("it is out of range");
                assert!(told.contains(&format!("`{name}` is {value}; it is ")), "{told}");
                assert!(told.ends_with(&format!("from {least} to {most}")), "{told}");
            }
        }
    }

    #[test]
    fn a_name_that_does_not_exist_is_refused() {
        let told = refusal("pointwise.unrol", 2).expect("there is none");
        assert!(told.starts_with("there is no tuning parameter `pointwise.unrol`; there are cache.load, "), "{told}");
    }

    #[test]
    fn settings_stand_by_name() {
        assert!(SETTINGS.is_sorted_by(|a, b| a.name < b.name));
    }
}
