//! A part of the selection for one of several machines.
//!
//! Two ways to split, both the same on every machine: *slice* deals the cases
//! out in turn, so that shards differ by at most one case; *hash* looks at the
//! id alone, so that a case keeps its shard when others come and go.

use crate::escape::short;
use engine::diag::{Diagnostic, Result, code};

/// More shards than this are a mistake.
const MAX: usize = 100_000;

/// How cases are split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// In turn, in the order of the files.
    #[default]
    Slice,
    /// By the id.
    Hash,
}

/// One shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
    /// How cases are split.
    pub split: Split,
}

impl Shard {
    /// `2/4`, `2/4:hash`: the second of four.
    pub fn parse(text: &str) -> Result<Self> {
        let fail = || {
            let message = format!("`{}` is not a shard", short(text));
            Diagnostic::user(code::USAGE, message).note("--shard 2/4 is the second of four; also 2/4:hash, 2/4:slice")
        };
        let (numbers, split) = match text.split_once(':') {
            None | Some((_, "slice")) => (text.split(':').next().unwrap_or(text), Split::Slice),
            Some((numbers, "hash")) => (numbers, Split::Hash),
            Some(_) => return Err(fail()),
        };
        let (index, count) = numbers.split_once('/').ok_or_else(fail)?;
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=MAX).contains(n));
        match (number(index), number(count)) {
            (Some(index), Some(count)) if index <= count => Ok(Self { index: index - 1, count, split }),
            _ => Err(fail().note(format!("numbers from 1 to {MAX}, the first not above the second"))),
        }
    }

    /// From the variables of a test runner, which count from 0.
    pub(crate) fn from_zero(index: &str, count: &str) -> Option<Self> {
        let (index, count) = (index.parse().ok()?, count.parse().ok()?);
        (index < count && count <= MAX).then_some(Self { index, count, split: Split::Slice })
    }

    /// Whether a case of the selection belongs to the shard.
    pub fn keeps(&self, position: usize, id: &str) -> bool {
        match self.split {
            Split::Slice => position % self.count == self.index,
            Split::Hash => (place(id) % self.count as u64) as usize == self.index,
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let split = if self.split == Split::Hash { ":hash" } else { "" };
        write!(f, "{}/{}{split}", self.index + 1, self.count)
    }
}

/// FNV-1a with a final mix, so that the low bits depend on all of the id.
/// Stable for ever: machines with different versions must agree.
fn place(id: &str) -> u64 {
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked() {
        assert_eq!(Shard::parse("2/4"), Ok(Shard { index: 1, count: 4, split: Split::Slice }));
        assert_eq!(Shard::parse("1/1:hash").map(|shard| shard.to_string()), Ok("1/1:hash".into()));
        for bad in ["", "0/4", "5/4", "1", "1/0", "a/b", "-1/2", "1/2:other", "1/2:", "1/99999999999999999999"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Shard::from_zero("0", "3").map(|shard| shard.to_string()), Some("1/3".into()));
        assert!(Shard::from_zero("3", "3").is_none() && Shard::from_zero("0", "0").is_none());
    }

    /// For any number of shards each case is in exactly one.
    #[test]
    fn shards_are_disjoint_and_complete() {
        crate::property::property(|u| {
            let count = u.int_in_range(1..=40)?;
            let cases = u.int_in_range(0..=200)?;
            let split = if u.arbitrary()? { Split::Hash } else { Split::Slice };
            let ids: Vec<String> = (0..cases).map(|i| format!("S.c/n={i}")).collect();
            let shard = |index| Shard { index, count, split };
            let mut sizes = vec![0; count];
            for (position, id) in ids.iter().enumerate() {
                let homes: Vec<usize> = (0..count).filter(|i| shard(*i).keeps(position, id)).collect();
                assert_eq!(homes.len(), 1, "{id} of {count}");
                sizes[homes[0]] += 1;
            }
            if split == Split::Slice {
                let (least, most) = (sizes.iter().min(), sizes.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{sizes:?}");
            }
            Ok(())
        });
    }

    /// A hash shard does not look at what else is selected; the hash is spread
    /// evenly enough and never changes.
    #[test]
    fn hash_shards_keep_a_cases_place() {
        let shard = Shard { index: 0, count: 4, split: Split::Hash };
        assert!((0..100).all(|position| shard.keeps(position, "A.b/n=1") == shard.keeps(0, "A.b/n=1")));
        let kept = (0..4000).filter(|n| shard.keeps(0, &format!("A.b/n={n}"))).count();
        assert!((900..1100).contains(&kept), "{kept}");
        assert_eq!(place("A.b/n=1"), 0x8bac_1196_fd20_36ba);
    }
}
