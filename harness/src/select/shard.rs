//! A part of the selection for one of several machines.
//!
//! Three ways to split: *slice* deals the cases out in turn, so that shards differ
//! by at most one case; *hash* looks at the id alone, so that a case keeps its shard
//! when others come and go; *time* deals the longest first, each to the shard that
//! has least to do by recorded durations. The first two are the same on every
//! machine, the last on every machine with the same history; a digest of who has
//! what tells shards that were dealt out otherwise from each other.

use super::past::Past;
use crate::escape::short;
use engine::diag::{Diagnostic, Result, code};
use std::cmp::Reverse;

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
    /// By recorded durations; in turn where none is recorded.
    Time,
}

impl Split {
    /// As it is written behind the numbers.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Split::Slice => "slice",
            Split::Hash => "hash",
            Split::Time => "time",
        }
    }
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

/// A shard with all that it is a part of.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) shard: Shard,
    /// What all shards together have.
    pub(crate) ids: Vec<String>,
    /// The shard of each of them, from 0.
    pub(crate) homes: Vec<usize>,
    /// It was to be dealt out by durations, and none is recorded.
    pub(crate) is_blind: bool,
    /// Digest of the ids with the shard of each: equal in all shards of one job.
    pub(crate) dealt: u32,
}

impl Shard {
    /// `2/4`, `2/4:hash`: the second of four.
    pub fn parse(text: &str) -> Result<Self> {
        let fail = || {
            let message = format!("`{}` is not a shard", short(text));
            let note = "--shard 2/4 is the second of four; also 2/4:hash, 2/4:time, 2/4:slice";
            Diagnostic::user(code::USAGE, message).note(note)
        };
        let (numbers, split) = match text.split_once(':') {
            None => (text, Split::Slice),
            Some((numbers, word)) => {
                let split = [Split::Slice, Split::Hash, Split::Time].into_iter().find(|split| split.word() == word);
                (numbers, split.ok_or_else(fail)?)
            }
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
}

impl Part {
    /// Deals the ids of a selection out.
    pub(crate) fn new(shard: Shard, ids: Vec<String>, past: &Past) -> Self {
        let count = shard.count;
        let durations = durations(&ids, past).filter(|_| shard.split == Split::Time);
        let homes = match (shard.split, &durations) {
            (Split::Hash, _) => ids.iter().map(|id| (place(id) % count as u64) as usize).collect(),
            (_, Some(durations)) => by_time(count, &ids, durations),
            (_, None) => (0..ids.len()).map(|position| position % count).collect(),
        };
        let is_blind = shard.split == Split::Time && durations.is_none() && !ids.is_empty();
        let lines: String = ids.iter().zip(&homes).map(|(id, home)| format!("{id} {home}\n")).collect();
        Self { shard, ids, homes, is_blind, dealt: crc32fast::hash(lines.as_bytes()) }
    }

    /// Leaves what a rule that looks at the id alone takes: it is the same in all shards.
    pub(crate) fn keep(&mut self, takes: impl Fn(&str) -> bool) {
        let all = std::mem::take(&mut self.ids).into_iter().zip(std::mem::take(&mut self.homes));
        (self.ids, self.homes) = all.filter(|(id, _)| takes(id)).unzip();
    }
}

/// What each case took, where anything is recorded; one that never ran is taken as the median.
fn durations(ids: &[String], past: &Past) -> Option<Vec<u64>> {
    let known = |id: &String| past.last(id).and_then(|last| last.dur_ns);
    let mut sorted: Vec<u64> = ids.iter().filter_map(known).collect();
    sorted.sort_unstable();
    let median = *sorted.get(sorted.len() / 2)?;
    Some(ids.iter().map(|id| known(id).unwrap_or(median)).collect())
}

/// The longest first, each to the shard that has least to do.
fn by_time(count: usize, ids: &[String], durations: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|at| (Reverse(durations[*at]), &ids[*at]));
    let (mut homes, mut loads) = (vec![0; ids.len()], vec![0u64; count]);
    for at in order {
        let home = (0..count).min_by_key(|home| loads[*home]).unwrap_or(0);
        // Where nothing takes any time, cases still go round.
        loads[home] = loads[home].saturating_add(durations[at].max(1));
        homes[at] = home;
    }
    homes
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)?;
        if self.split == Split::Slice { Ok(()) } else { write!(f, ":{}", self.split.word()) }
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
    use crate::outcome::Last;

    fn part(count: usize, split: Split, ids: &[String], past: &Past) -> Part {
        Part::new(Shard { index: 0, count, split }, ids.to_vec(), past)
    }

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|i| format!("S.c/n={i}")).collect()
    }

    fn past(durations: &[u64]) -> Past {
        let last = |ns: &u64| Last { outcome: "pass".into(), dur_ns: Some(*ns), runs: 1 };
        Past { cases: ids(durations.len()).into_iter().zip(durations.iter().map(last)).collect(), ..Past::default() }
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(Shard::parse("2/4"), Ok(Shard { index: 1, count: 4, split: Split::Slice }));
        for (text, shown) in [("1/1:hash", "1/1:hash"), ("3/4:time", "3/4:time"), ("3/4:slice", "3/4")] {
            assert_eq!(Shard::parse(text).map(|shard| shard.to_string()), Ok(shown.into()));
        }
        for bad in ["", "0/4", "5/4", "1", "1/0", "a/b", "-1/2", "1/2:other", "1/2:", "1/99999999999999999999"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Shard::from_zero("0", "3").map(|shard| shard.to_string()), Some("1/3".into()));
        assert!(Shard::from_zero("3", "3").is_none() && Shard::from_zero("0", "0").is_none());
    }

    /// For any number of shards each case is in exactly one, and no shard has much more to do than the others.
    #[test]
    fn shards_are_disjoint_complete_and_alike() {
        crate::property::property(|u| {
            let (count, cases) = (u.int_in_range(1..=40)?, u.int_in_range(0..=200)?);
            let mut durations = Vec::new();
            for _ in 0..cases {
                durations.push(u.int_in_range(1..=1000u64)?);
            }
            let split = *u.choose(&[Split::Slice, Split::Hash, Split::Time])?;
            let part = part(count, split, &ids(cases), &past(&durations));
            assert!(part.homes.len() == cases && part.homes.iter().all(|home| *home < count));
            let mut loads = vec![0; count];
            for (home, ns) in part.homes.iter().zip(&durations) {
                loads[*home] += if split == Split::Time { *ns } else { 1 };
            }
            let (least, most) = (loads.iter().min().unwrap_or(&0), loads.iter().max().unwrap_or(&0));
            let longest = durations.iter().max().copied().unwrap_or(0);
            match split {
                Split::Slice => assert!(most - least <= 1, "{loads:?}"),
                Split::Time => assert!(most - least <= longest, "{loads:?}"),
                Split::Hash => {}
            }
            Ok(())
        });
    }

    #[test]
    fn without_durations_cases_are_dealt_out_in_turn() {
        let (blind, slice) = (part(2, Split::Time, &ids(3), &past(&[])), part(2, Split::Slice, &ids(3), &past(&[])));
        assert_eq!((&blind.homes, blind.is_blind, slice.is_blind), (&slice.homes, true, false));
        // The case that never ran is taken as the median, 7.
        let known = part(2, Split::Time, &ids(4), &past(&[9, 1, 7]));
        assert_eq!((known.homes.as_slice(), known.is_blind), (&[0, 0, 1, 1][..], false));
    }

    #[test]
    fn another_history_is_another_way_to_deal() {
        let dealt = |durations: &[u64]| part(2, Split::Time, &ids(4), &past(durations)).dealt;
        assert_eq!(dealt(&[9, 1, 7, 1]), dealt(&[9, 1, 7, 1]));
        assert_ne!(dealt(&[9, 1, 7, 1]), dealt(&[1, 9, 7, 9]));
    }

    /// A hash shard does not look at what else is selected; the hash is spread
    /// evenly enough and never changes.
    #[test]
    fn hash_shards_keep_a_cases_place() {
        let (few, many) = (ids(10), ids(4000));
        let [few, many] = [few, many].map(|ids| part(4, Split::Hash, &ids, &past(&[])).homes);
        assert_eq!(few[..], many[..10]);
        let kept = many.iter().filter(|home| **home == 0).count();
        assert!((900..1100).contains(&kept), "{kept}");
        assert_eq!(place("A.b/n=1"), 0x8bac_1196_fd20_36ba);
    }
}
