//! Where values lie that live between steps.
//!
//! In: of each value its bytes, and the first and last step at which it is alive. Out:
//! offsets in one allocation, and its length. The least that any placement needs is
//! the most bytes alive at one step; finding a placement that attains it is hard in
//! general. Several orders are tried, each value going to the tightest gap among those
//! placed that are alive with it; then, again and again, the value that sticks out is
//! placed first. The shortest result is taken.
//!
//! Invariants: values alive at one step do not overlap; offsets are multiples of
//! [`GRANULE`]; the same values give the same offsets.

use crate::util::order_by_key;
use std::cmp::Reverse;

/// What offsets and lengths are rounded up to, in bytes: enough for any vector access,
/// and that of allocators.
pub(super) const GRANULE: u64 = 256;

/// How often the value that sticks out is placed first, for each order.
const TRIES: usize = 24;
/// With more values than this, each order is tried once: the time for that grows with their square.
const MANY: usize = 400;

/// A value that wants a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    pub(super) bytes: u64,
    /// The step that writes it.
    pub(super) first: usize,
    /// The last step that reads it.
    pub(super) last: usize,
}

impl Lifetime {
    fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
    /// Its bytes, rounded up.
    fn room(&self) -> u64 {
        self.bytes.next_multiple_of(GRANULE)
    }
}

/// Offsets of values in their order, and the length of the arena.
pub(super) fn place(values: &[Lifetime]) -> (Vec<u64>, u64) {
    let steps = |value: &Lifetime| value.last - value.first;
    let orders: [Vec<usize>; 3] = [
        sorted(values, |value| (Reverse(value.room()), Reverse(steps(value)), value.first)),
        sorted(values, |value| (Reverse(steps(value)), Reverse(value.room()), value.first)),
        sorted(values, |value| (value.first, Reverse(value.room()), Reverse(steps(value)))),
    ];
    let least = bound(values);
    let mut best = (Vec::new(), u64::MAX);
    for mut order in orders {
        for _ in 0..=TRIES {
            if best.1 == least {
                return best;
            }
            let (offsets, length) = in_order(values, &order);
            // The value that sticks out goes first the next time.
            let ends = |value: &usize| offsets[*value] + values[*value].room() == length;
            let Some(top) = order.iter().position(ends) else { break };
            order[..=top].rotate_right(1);
            if length < best.1 {
                best = (offsets, length);
            }
            if values.len() > MANY {
                break;
            }
        }
    }
    if best.1 == u64::MAX { (vec![0; values.len()], 0) } else { best }
}

fn sorted<K: Ord>(values: &[Lifetime], key: impl Fn(&Lifetime) -> K) -> Vec<usize> {
    order_by_key(values.len(), |value| key(&values[value]))
}

/// Puts one value after the other into the tightest gap that is long enough.
fn in_order(values: &[Lifetime], order: &[usize]) -> (Vec<u64>, u64) {
    let mut offsets = vec![0; values.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut length = 0;
    for &value in order {
        let (own, room) = (&values[value], values[value].room());
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|other| values[**other].meets(own))
            .map(|&other| (offsets[other], offsets[other] + values[other].room()))
            .collect();
        taken.sort_unstable();
        let (mut end, mut tightest): (u64, Option<(u64, u64)>) = (0, None);
        for (from, to) in taken {
            let gap = from.saturating_sub(end);
            if gap >= room && tightest.is_none_or(|(least, _)| gap < least) {
                tightest = Some((gap, end));
            }
            end = end.max(to);
        }
        offsets[value] = tightest.map_or(end, |(_, at)| at);
        length = length.max(offsets[value] + room);
        placed.push(value);
    }
    (offsets, length)
}

/// The most bytes alive at one step: no arena is shorter.
pub(super) fn bound(values: &[Lifetime]) -> u64 {
    // A step at which the most are alive is one at which some value is written.
    let alive = |step: usize| values.iter().filter(move |value| value.first <= step && step <= value.last);
    values.iter().map(|value| alive(value.first).map(Lifetime::room).sum()).max().unwrap_or(0)
}
