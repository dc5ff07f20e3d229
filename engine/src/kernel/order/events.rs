//! What threads of a block did to shared elements since the last barrier that all of them reached, and which of
//! it is without order.

use super::guards::{GuardId, Guards};
use super::mask::Mask;

/// What a thread does to an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    Write,
    Atomic,
}

impl Kind {
    /// Whether two accesses need an order.
    pub(super) fn conflicts(self, other: Self) -> bool {
        (self != Kind::Read || other != Kind::Read) && !(self == Kind::Atomic && other == Kind::Atomic)
    }
}

/// An access of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    /// Buffer and element.
    pub(super) element: u64,
    /// When: numbers of executed statements.
    pub(super) time: u32,
    pub(super) thread: u16,
    pub(super) kind: Kind,
    pub(super) guard: GuardId,
    /// The statement's number.
    pub(super) stmt: u32,
}

/// A barrier.
pub(super) struct Barrier {
    pub(super) time: u32,
    pub(super) guard: GuardId,
    /// The threads, if it is not one of the whole block.
    pub(super) warps: Option<Mask>,
}

/// What two accesses are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Ordered,
    Undecided,
    Race,
}

/// Accesses and barriers of a block since the last barrier outside of guards.
#[derive(Default)]
pub(super) struct Interval {
    pub(super) events: Vec<Event>,
    pub(super) barriers: Vec<Barrier>,
    /// Room to sort in.
    spare: Vec<Event>,
}

impl Interval {
    /// The place of the first barrier that does not come before `time`: they came by time.
    fn first_barrier_from(&self, time: u32) -> usize {
        self.barriers.partition_point(|barrier| barrier.time < time)
    }

    /// Two accesses of different threads of the block that need an order; `y` does not come before `x`.
    fn relation(&self, guards: &Guards, x: &Event, y: &Event) -> Relation {
        let same_warp = x.thread / 32 == y.thread / 32;
        let between = self.barriers[self.first_barrier_from(x.time)..]
            .iter()
            .take_while(|barrier| barrier.time < y.time)
            .any(|barrier| {
                let reaches = match &barrier.warps {
                    None => true,
                    Some(warps) => same_warp && warps.has(x.thread.into()),
                };
                reaches && guards.is_sure(barrier.guard, x.guard, y.guard)
            });
        if between || guards.excludes(x.guard, y.guard) {
            Relation::Ordered
        } else if guards.is_private(x.guard) || guards.is_private(y.guard) {
            Relation::Undecided
        } else {
            Relation::Race
        }
    }

    /// Calls `found` with each two accesses that may be without order, one pair an element, and empties the
    /// interval into `passed`, sorted by elements.
    pub(super) fn close(
        &mut self,
        guards: &Guards,
        mut found: impl FnMut(Relation, &Event, &Event),
        mut passed: impl FnMut(&Event),
    ) {
        // They came by time; those of a statement by threads.
        sort_by_element(&mut self.events, &mut self.spare, |event| event.element);
        for group in self.events.chunk_by(|a, b| a.element == b.element) {
            let shared = group.iter().any(|event| event.thread != group[0].thread);
            if shared && group.iter().any(|event| event.kind != Kind::Read) {
                self.group(guards, group, &mut found);
            }
            group.iter().for_each(&mut passed);
        }
        self.events.clear();
        self.barriers.clear();
    }

    /// Each access is looked at with those that follow up to the next barrier of the block that is sure to be met.
    fn group(&self, guards: &Guards, group: &[Event], found: &mut impl FnMut(Relation, &Event, &Event)) {
        let mut undecided = None;
        for (i, x) in group.iter().enumerate() {
            let sure = |barrier: &&Barrier| barrier.warps.is_none() && guards.is_sure(barrier.guard, x.guard, x.guard);
            let next = self.barriers[self.first_barrier_from(x.time)..]
                .iter()
                .find(sure)
                .map_or(u32::MAX, |barrier| barrier.time);
            let near = group[i + 1..].iter().take_while(|y| y.time <= next);
            for y in near.filter(|y| y.thread != x.thread && y.kind.conflicts(x.kind)) {
                match self.relation(guards, x, y) {
                    Relation::Ordered => {}
                    Relation::Undecided => undecided = Some((x, y)),
                    Relation::Race => return found(Relation::Race, x, y),
                }
            }
        }
        if let Some((x, y)) = undecided {
            found(Relation::Undecided, x, y);
        }
    }
}

/// Bits of an element that a pass of a sort looks at.
const DIGIT: u32 = 11;
/// Of fewer items each pass over the counts of its digits takes longer than comparing.
const FEW: usize = 256;

/// Sorts by elements, and leaves those of one element in their order. Elements of a launch differ in few bits: those
/// of an index, and of the number of a buffer; only these are looked at.
pub(super) fn sort_by_element<T: Copy>(items: &mut Vec<T>, spare: &mut Vec<T>, element: impl Fn(&T) -> u64) {
    let (mut sorted, mut last, mut differing) = (true, 0, 0);
    let first = items.first().map_or(0, &element);
    for item in items.iter() {
        let own = element(item);
        sorted &= last <= own;
        differing |= own ^ first;
        last = own;
    }
    if sorted {
        return;
    }
    if items.len() < FEW {
        return items.sort_by_key(element);
    }
    spare.clear();
    spare.extend_from_slice(items);
    let mut low = 0;
    while low < u64::BITS && differing >> low != 0 {
        // To the next bit that differs.
        low += (differing >> low).trailing_zeros();
        let digit = |item: &T| (element(item) >> low) as usize & ((1 << DIGIT) - 1);
        let mut starts = vec![0_usize; 1 << DIGIT];
        items.iter().for_each(|item| starts[digit(item)] += 1);
        let mut start = 0;
        for count in &mut starts {
            (start, *count) = (start + *count, start);
        }
        for item in items.iter() {
            let place = &mut starts[digit(item)];
            spare[*place] = *item;
            *place += 1;
        }
        std::mem::swap(items, spare);
        low += DIGIT;
    }
}
