//! Order between blocks, and what all of them together wrote.
//!
//! Blocks are ordered by grid barriers, those of a team by its own, and by *tickets*: each block publishes what it did (a fence, a barrier, an
//! atomic count), and who reads the last number of the count and then executes a fence comes after all of them.
//! That it is the last follows from the number of counts, so it is known only where all blocks were looked at.

use super::eval::Counter;
use super::events::{Kind, sort_by_element};
use super::memory::parts;
use super::report::{AlarmKind, OrderReport};
use crate::kernel::bind::BoundLaunch;
use crate::kernel::ir::{BufId, Kernel, ParamKind};
use crate::util::SecondaryMap;
use rustc_hash::FxHashMap;

/// An access of global memory that the kernel writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Access {
    pub(super) element: u64,
    pub(super) block: u32,
    pub(super) thread: u16,
    pub(super) kind: Kind,
    /// Grid barriers before it.
    pub(super) epoch: u32,
    /// The counters by which its block published it: a number of [`Grid::published`].
    pub(super) published: u32,
    /// The ticket under which it stands, and whether a fence lies in between.
    pub(super) ticket: Option<Ticket>,
    /// Whether data decides in another way whether it happens.
    pub(super) guarded: bool,
    pub(super) stmt: u32,
    /// When it happens in its block.
    pub(super) time: u32,
}

impl Access {
    /// Whether it is the same at another time.
    pub(super) fn is_again(&self, other: &Access) -> bool {
        Access { time: other.time, ..*self } == *other
    }
}

/// What blocks did to a counter.
#[derive(Default)]
struct Counts {
    number: i64,
    blocks: u64,
    /// Whether each adds one, wrapping behind this number.
    wraps: Option<i64>,
    odd: bool,
}

/// A ticket: a counter, its number, and whether a fence lies behind it.
type Ticket = (Counter, i64, bool);

/// What all blocks did.
#[derive(Default)]
pub(super) struct Grid {
    pub(super) accesses: Vec<Access>,
    /// Looked up only.
    counts: FxHashMap<Counter, Counts>,
    /// Grid barriers of each block.
    pub(super) epochs: Vec<u32>,
    /// Whether some barriers are of teams: then blocks of different ones are in no order.
    pub(super) in_teams: bool,
    /// Whether an element is read and written between the same grid barriers, but for reads behind all writes.
    pub(super) mixed: bool,
    /// Output buffers of which data decides which elements are written.
    pub(super) scattered: SecondaryMap<BufId, bool>,
    sets: Vec<Vec<Counter>>,
    /// The number of each set. Looked up only.
    numbers: FxHashMap<Vec<Counter>, u32>,
}

impl Grid {
    /// A thread counts. `wraps` is the last number of a count that wraps; other updates have none.
    pub(super) fn count(&mut self, counter: Counter, wraps: Option<i64>, first_of_block: bool) {
        let counts = self.counts.entry(counter).or_default();
        counts.odd |= wraps.is_none() || counts.wraps.is_some_and(|own| Some(own) != wraps);
        counts.wraps = wraps;
        counts.number += 1;
        counts.blocks += u64::from(first_of_block);
    }

    /// The number of a set of counters.
    pub(super) fn published(&mut self, counters: Vec<Counter>) -> u32 {
        let (sets, next) = (&mut self.sets, self.numbers.len() as u32);
        *self.numbers.entry(counters).or_insert_with_key(|counters| {
            sets.push(counters.clone());
            next
        })
    }

    /// The ticket of an access, if its holder is the last of all.
    fn last(&self, kernel: &Kernel, access: &Access) -> Option<Ticket> {
        access.ticket.filter(|(counter, number, _)| {
            let zeroed = kernel.buffers[parts(*counter).0].zeroed;
            self.counts.get(counter).is_some_and(|counts| {
                zeroed && !counts.odd && counts.wraps == Some(*number) && counts.number == *number + 1
            })
        })
    }

    /// Whether a read may find either what was there before a write between the same grid barriers, or what it left.
    fn is_mixed(&self, kernel: &Kernel, read: &Access, group: &[Access]) -> bool {
        let beside = || group.iter().filter(|other| other.kind != Kind::Read && other.epoch == read.epoch);
        // Barriers of the block order what is apart in time, or there is an alarm.
        let is_own = || beside().all(|write| write.block == read.block && write.time < read.time);
        let is_behind_all = || {
            self.last(kernel, read).is_some_and(|(.., fenced)| fenced) && beside().all(|write| write.ticket.is_none())
        };
        read.kind == Kind::Read && !is_own() && !is_behind_all()
    }

    /// Looks for accesses of different blocks without order, and for elements of outputs that are not written once.
    pub(super) fn close(
        &mut self,
        kernel: &Kernel,
        launch: &BoundLaunch,
        report: &mut OrderReport,
        name: &dyn Fn(&Access) -> String,
    ) {
        if self.epochs.iter().any(|epochs| *epochs != self.epochs[0]) {
            report.alarm(AlarmKind::Divergence, None, || "blocks reach different numbers of grid barriers".into());
        }
        let mut accesses = std::mem::take(&mut self.accesses);
        sort_by_element(&mut accesses, &mut Vec::new(), |access| access.element);
        let outputs: Vec<BufId> = kernel
            .params
            .values()
            .filter_map(|param| match param.kind {
                ParamKind::Output { buffer, .. } => Some(buffer),
                _ => None,
            })
            .collect();
        // How many elements were written, and the first that was not.
        let (mut written, mut unwritten) = (SecondaryMap::<BufId, u64>::new(), SecondaryMap::<BufId, u64>::new());
        for group in accesses.chunk_by(|a, b| a.element == b.element) {
            if report.is_over() {
                return;
            }
            if group.iter().any(|access| access.block != group[0].block) {
                self.order((kernel, launch), group, report, name);
            }
            let (buffer, index) = parts(group[0].element);
            self.mixed |= group.iter().any(|access| self.is_mixed(kernel, access, group));
            let writes = group.iter().filter(|access| access.kind != Kind::Read);
            if writes.clone().next().is_none() && report.is_exhaustive() && !kernel.buffers[buffer].zeroed {
                report.alarm(AlarmKind::Uninitialised, Some(group[0].stmt), || {
                    format!("nobody writes what is read by {}", name(&group[0]))
                });
            }
            if outputs.contains(&buffer) && writes.clone().next().is_some() {
                written[buffer] += 1;
                unwritten[buffer] += u64::from(unwritten[buffer] == index);
                self.once(group, report, name);
            }
        }
        for buffer in outputs {
            let (len, count) = (launch.buffer_lens[buffer].saturating_sub(launch.gaps[buffer]), written[buffer]);
            let name = &kernel.buffers[buffer].name;
            if report.is_exhaustive() && !self.scattered[buffer] && count < len {
                report.alarm(AlarmKind::Unwritten, None, || {
                    format!("{} of {len} elements of {name}, first {}", len - count, unwritten[buffer])
                });
            } else if count > len {
                report.alarm(AlarmKind::WrittenAgain, None, || {
                    format!("{count} elements of {name}, of which {len} are the kernel's")
                });
            }
        }
    }

    /// Accesses of one element by several blocks.
    fn order(
        &self,
        (kernel, launch): (&Kernel, &BoundLaunch),
        group: &[Access],
        report: &mut OrderReport,
        name: &dyn Fn(&Access) -> String,
    ) {
        let mut undecided = false;
        let team = |access: &Access| access.block / launch.grid[0].max(1);
        let meet = |x: &Access, y: &Access| x.epoch != y.epoch && (!self.in_teams || team(x) == team(y));
        for x in group.iter().filter(|x| x.kind != Kind::Read) {
            for y in group.iter().filter(|y| y.block != x.block && y.kind.conflicts(x.kind)) {
                let tickets = (self.last(kernel, x), self.last(kernel, y));
                let behind = |before: &Access, ticket: Option<Ticket>| {
                    ticket.is_some_and(|(counter, _, fenced)| {
                        fenced && self.sets[before.published as usize].contains(&counter)
                    })
                };
                // One block alone has the last ticket.
                let exclusive = matches!(tickets, (Some(a), Some(b)) if (a.0, a.1) == (b.0, b.1));
                if meet(x, y) || exclusive || behind(x, tickets.1) || behind(y, tickets.0) {
                    continue;
                }
                let ticketed = x.ticket.is_some() || y.ticket.is_some();
                if x.guarded || y.guarded || ticketed && !report.all_blocks {
                    undecided = true;
                    continue;
                }
                return report.alarm(AlarmKind::Race, Some(x.stmt), || {
                    format!("{} and, in another block, {}", name(x), name(y))
                });
            }
        }
        report.undecided += u64::from(undecided);
    }

    /// Writes of one element of an output.
    fn once(&self, group: &[Access], report: &mut OrderReport, name: &dyn Fn(&Access) -> String) {
        let writes = || group.iter().filter(|access| access.kind == Kind::Write);
        if group.iter().any(|access| access.guarded || access.kind == Kind::Atomic) {
            return;
        }
        let plain = writes().filter(|access| access.ticket.is_none()).count() as u64;
        let held = writes().filter_map(|access| access.ticket).next();
        let expected = match held {
            None => 1,
            Some((counter, ..)) => self.counts.get(&counter).map_or(1, |counts| counts.blocks),
        };
        let ticketed = writes().count() as u64 - plain;
        let Some(first) = writes().next() else { return };
        if plain > 1 || plain == 1 && ticketed > 0 || ticketed > expected {
            report.alarm(AlarmKind::WrittenAgain, Some(first.stmt), || {
                format!("{} times: {}", plain + ticketed, name(first))
            });
        } else if plain == 0 && ticketed < expected && report.is_exhaustive() {
            report.alarm(AlarmKind::Unwritten, Some(first.stmt), || {
                format!("unless one of some blocks comes last: {}", name(first))
            });
        }
    }
}
