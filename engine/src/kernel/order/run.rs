//! Takes the blocks of a launch through a kernel.

use super::eval::{Counter, Eval};
use super::events::{Barrier, Event, Interval, Kind, Relation};
use super::flights::Flights;
use super::grid::{Access, Grid};
use super::guards::{GuardId, Guards, ROOT};
use super::mask::Mask;
use super::memory::{Memory, parts};
use super::prove::Probe;
use super::report::{AlarmKind, OrderReport};
use super::slice::Slice;
use crate::diag::Result;
use crate::kernel::bind::BoundLaunch;
use crate::kernel::ir::{Block, BufId, Kernel, Space, Stmt, StmtKind};
use crate::kernel::print::print_stmt;
use crate::kernel::visit::for_each_stmt;
use crate::util::SecondaryMap;
use rustc_hash::FxHashMap;

/// Threads of a launch of which all blocks are looked at.
const MAX_THREADS: u64 = 1 << 17;
/// Values and accesses that are looked at, at most.
const MAX_WORK: u64 = 1 << 28;

/// Checks one launch of a verified kernel; see the [module](super).
pub fn check_order(kernel: &Kernel, launch: &BoundLaunch) -> Result<OrderReport> {
    if launch.is_empty() {
        return Ok(OrderReport { all_blocks: true, ..OrderReport::default() });
    }
    let slice = Slice::new(kernel, false, &[]);
    let mut run = Run::new(kernel, launch, &slice, None)?;
    run.all();
    Ok(run.report)
}

/// Where threads published what they did: a fence of the grid.
pub(super) struct Fence {
    pub(super) time: u32,
    pub(super) threads: Mask,
    pub(super) guard: GuardId,
}

/// A thread counted.
pub(super) struct Count {
    pub(super) time: u32,
    pub(super) thread: usize,
    pub(super) counter: Counter,
}

/// What happened in a block to global memory.
#[derive(Default)]
pub(super) struct Published {
    pub(super) events: Vec<Event>,
    pub(super) fences: Vec<Fence>,
    /// Barriers of the block: when, and under which guard.
    pub(super) syncs: Vec<(u32, GuardId)>,
    pub(super) counts: Vec<Count>,
    /// When the block met grid barriers.
    pub(super) grid_syncs: Vec<u32>,
}

/// The interpreter.
pub(super) struct Run<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) launch: &'a BoundLaunch,
    pub(super) slice: &'a Slice,
    /// All statements in preorder, and how many each has, itself included.
    pub(super) stmts: Vec<&'a Stmt>,
    sizes: Vec<u32>,
    pub(super) eval: Eval<'a>,
    pub(super) memory: Memory,
    pub(super) guards: Guards,
    pub(super) interval: Interval,
    pub(super) flights: Flights,
    pub(super) published: Published,
    pub(super) grid: Grid,
    pub(super) report: OrderReport,
    /// Which elements of shared buffers somebody wrote.
    pub(super) initialised: SecondaryMap<BufId, Vec<bool>>,
    pub(super) block: [u32; 3],
    pub(super) time: u32,
    pub(super) probe: Option<Probe>,
    pub(super) touched: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        kernel: &'a Kernel,
        launch: &'a BoundLaunch,
        slice: &'a Slice,
        probe: Option<Probe>,
    ) -> Result<Self> {
        let mut stmts = Vec::new();
        for_each_stmt(&kernel.body, &mut |stmt| stmts.push(stmt));
        let mut sizes = Vec::with_capacity(stmts.len());
        measure(&kernel.body, &mut sizes);
        Ok(Self {
            kernel,
            launch,
            slice,
            stmts,
            sizes,
            eval: Eval::new(kernel, slice, launch)?,
            memory: Memory::new(kernel, launch, slice),
            guards: Guards::new(),
            interval: Interval::default(),
            flights: Flights::default(),
            published: Published::default(),
            grid: Grid::default(),
            report: OrderReport::default(),
            initialised: SecondaryMap::new(),
            block: [0; 3],
            time: 0,
            probe,
            touched: 0,
        })
    }

    /// Looks at all blocks, or at some.
    pub(super) fn all(&mut self) {
        let threads = u64::from(self.launch.threads());
        let all = self.launch.blocks().saturating_mul(threads) <= MAX_THREADS;
        self.report.all_blocks = all;
        let places = self.launch.grid.map(|n| match n {
            _ if all => (0..n).collect(),
            0..=3 => (0..n).collect(),
            _ => vec![0, 1, n - 1],
        });
        for &z in &places[2] {
            for &y in &places[1] {
                for &x in &places[0] {
                    if self.report.is_over() {
                        return;
                    }
                    self.one([x, y, z]);
                }
            }
        }
        if !self.report.is_over() {
            let mut grid = std::mem::take(&mut self.grid);
            let mut report = std::mem::take(&mut self.report);
            grid.close(self.kernel, self.launch, &mut report, &|access| self.name(access));
            (self.grid, self.report) = (grid, report);
        }
    }

    fn one(&mut self, block: [u32; 3]) {
        let threads = self.launch.threads() as usize;
        self.block = block;
        self.time = 0;
        self.guards = Guards::new();
        self.flights = Flights::new(threads);
        self.published = Published::default();
        self.eval.begin(block);
        self.memory.begin(self.kernel, self.number());
        for (id, _) in self.kernel.buffers.iter().filter(|(_, buffer)| buffer.space == Space::Shared) {
            let known = self.launch.buffer_lens[id];
            self.initialised.set(id, vec![false; known as usize]);
        }
        let kernel = self.kernel;
        self.block(&kernel.body, 0, &Mask::full(threads), ROOT);
        self.close_interval();
        self.publish();
        self.report.blocks += 1;
    }

    /// The number of the block.
    fn number(&self) -> u64 {
        let [x, y, _] = self.launch.grid.map(u64::from);
        let [i, j, k] = self.block.map(u64::from);
        i + x * (j + y * k)
    }

    /// Runs statements, numbered from `number` on.
    pub(super) fn block(&mut self, block: &'a Block, mut number: u32, threads: &Mask, guard: GuardId) {
        for stmt in block {
            if self.eval.work + self.touched > MAX_WORK {
                self.report.cut = true;
            }
            if self.report.is_over() {
                return;
            }
            self.time += 1;
            if let Some(mut probe) = self.probe.take_if(|probe| probe.stmt == number) {
                let (a, b) = (self.eval.of(probe.exprs.0), self.eval.of(probe.exprs.1));
                threads.each(|t| probe.add(a.at(t), b.at(t)));
                self.probe = Some(probe);
            }
            self.stmt(stmt, number, threads, guard);
            number += self.sizes[number as usize];
        }
    }

    /// The number of the first statement behind a block that begins at `number`.
    pub(super) fn behind(&self, block: &Block, number: u32) -> u32 {
        block.iter().fold(number, |number, _| number + self.sizes[number as usize])
    }

    /// A barrier outside of guards, or the end: what came before is ordered before all that follows.
    pub(super) fn close_interval(&mut self) {
        let mut interval = std::mem::take(&mut self.interval);
        let mut report = std::mem::take(&mut self.report);
        let mut passed = Vec::new();
        interval.close(
            &self.guards,
            |relation, x, y| match relation {
                Relation::Race => {
                    report.alarm(AlarmKind::Race, Some(x.stmt), || format!("{} and {}", self.event(x), self.event(y)));
                }
                _ => report.undecided += 1,
            },
            |event| {
                if self.kernel.buffers[parts(event.element).0].space == Space::Global {
                    passed.push(*event);
                }
            },
        );
        self.published.events.append(&mut passed);
        (self.interval, self.report) = (interval, report);
    }

    /// The block ends: hands what it did to global memory to the grid.
    fn publish(&mut self) {
        let published = std::mem::take(&mut self.published);
        self.grid.epochs.push(published.grid_syncs.len() as u32);
        let block = self.number() as u32;
        let mut last: Option<Access> = None;
        let nobody = self.grid.published(Vec::new());
        // Looked up only: what a thread does to several elements at once is published alike.
        let mut known: FxHashMap<(u32, u16, GuardId), u32> = FxHashMap::default();
        for event in &published.events {
            let counted = if event.kind == Kind::Atomic || published.counts.is_empty() {
                nobody
            } else if let Some(number) = known.get(&(event.time, event.thread, event.guard)) {
                *number
            } else {
                let counters = self.published_by(&published, event);
                let number = self.grid.published(counters);
                known.insert((event.time, event.thread, event.guard), number);
                number
            };
            let ticket = self.guards.ticket(event.guard);
            let fenced = |since: u32| {
                published.fences.iter().any(|fence| {
                    (since..event.time).contains(&fence.time)
                        && fence.threads.has(event.thread.into())
                        && self.guards.is_sure(fence.guard, event.guard, event.guard)
                })
            };
            let access = Access {
                element: event.element,
                block,
                thread: event.thread,
                kind: event.kind,
                epoch: published.grid_syncs.iter().filter(|time| **time < event.time).count() as u32,
                published: counted,
                ticket: ticket.map(|(counter, number, since)| (counter, number, fenced(since))),
                guarded: event.guard != ROOT && (ticket.is_none() || self.guards.is_private(event.guard)),
                stmt: event.stmt,
                time: event.time,
            };
            // A read is no other for being done again.
            let again = event.kind == Kind::Read && last.is_some_and(|last| access.is_again(&last));
            if !again {
                self.grid.accesses.push(access);
            }
            last = Some(access);
        }
    }

    /// The counters by which an access is published: behind it its thread, or one behind a barrier, executes a
    /// fence, and that thread, or one behind a further barrier, counts.
    fn published_by(&self, published: &Published, event: &Event) -> Vec<Counter> {
        // All of these stand in the order of time.
        let sure = |guard: GuardId| self.guards.is_sure(guard, event.guard, event.guard);
        let synced = |from: u32, to: u32| {
            let first = published.syncs.partition_point(|(time, _)| *time < from);
            published.syncs[first..].iter().take_while(|(time, _)| *time < to).any(|(_, guard)| sure(*guard))
        };
        let thread = usize::from(event.thread);
        let first = published.fences.partition_point(|fence| fence.time <= event.time);
        let behind: Vec<&Fence> = published.fences[first..]
            .iter()
            .filter(|fence| sure(fence.guard) && (fence.threads.has(thread) || synced(event.time, fence.time)))
            .collect();
        let mut counters: Vec<Counter> = Vec::new();
        for count in published.counts.iter().filter(|count| count.time > event.time) {
            let covers = behind.iter().take_while(|fence| fence.time < count.time).any(|fence| {
                let counts = fence.threads.has(count.thread);
                counts && (count.thread == thread || synced(event.time, fence.time)) || synced(fence.time, count.time)
            });
            if covers && !counters.contains(&count.counter) {
                counters.push(count.counter);
            }
        }
        counters
    }

    /// An access of another block in words.
    fn name(&self, access: &Access) -> String {
        let (buffer, index) = parts(access.element);
        let stmt = print_stmt(self.kernel, self.stmts[access.stmt as usize]);
        let name = &self.kernel.buffers[buffer].name;
        format!("`{stmt}` at {name}[{index}] by thread {} of block {}", access.thread, access.block)
    }

    /// An access of this block in words.
    pub(super) fn event(&self, event: &Event) -> String {
        let (buffer, index) = parts(event.element);
        let name = &self.kernel.buffers[buffer].name;
        format!("`{}` at {name}[{index}] by thread {} of block {:?}", self.text(event.stmt), event.thread, self.block)
    }

    pub(super) fn text(&self, stmt: u32) -> String {
        print_stmt(self.kernel, self.stmts[stmt as usize])
    }

    /// Notes a barrier under guards, or of warps.
    pub(super) fn barrier(&mut self, guard: GuardId, warps: Option<Mask>) {
        self.interval.barriers.push(Barrier { time: self.time, guard, warps });
    }
}

/// Numbers of statements of each statement, itself included, in preorder.
fn measure(block: &Block, sizes: &mut Vec<u32>) {
    for stmt in block {
        let at = sizes.len();
        sizes.push(1);
        match &stmt.kind {
            StmtKind::For { body, .. } => measure(body, sizes),
            StmtKind::If { then, otherwise, .. } => {
                measure(then, sizes);
                measure(otherwise, sizes);
            }
            _ => {}
        }
        sizes[at] = (sizes.len() - at) as u32;
    }
}
