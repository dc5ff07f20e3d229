//! Runs all blocks of a launch.

use crate::block::BlockSlot;
use crate::clocks::Clocks;
use crate::counters::{Counters, Segments};
use crate::exec::{self, Machine, Stop};
use crate::memory::GlobalMemory;
use crate::program::{LaunchConfig, Program};
use crate::sched::{SchedPolicy, Scheduler};
use crate::shadow::{MAX_BLOCKS, Shadow};
use crate::trap::{Trap, TrapKind, Waiter};
use crate::warp::WarpState;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Who runs next.
    pub policy: SchedPolicy,
    /// Races and uninitialised reads are looked for. Bounds, alignment,
    /// divergence and deadlock always are.
    pub detect: bool,
    /// Sectors and bank conflicts are counted.
    pub count: bool,
    /// Host threads; 0 for one on each core.
    pub threads: usize,
    /// Loop iterations that a warp may do.
    pub max_steps: u64,
    /// Blocks that can be resident at once, for grid barriers.
    pub resident: u64,
    /// Blocks that run interleaved when they can communicate without a grid barrier.
    pub window: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: SchedPolicy::Lockstep,
            detect: true,
            count: true,
            threads: 0,
            max_steps: 1 << 30,
            resident: u64::MAX,
            window: 8,
        }
    }
}

/// Unwritten elements of a buffer that a report names.
const FIRST_UNWRITTEN: usize = 8;

/// What a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Counts.
    pub counters: Counters,
    /// Hash of all scheduling choices.
    pub trace: u64,
    /// Elements of each global buffer that nobody filled; zeros without detectors.
    pub unwritten: Vec<u64>,
    /// The numbers of the first of them, at most eight for each buffer.
    pub first_unwritten: Vec<Vec<u64>>,
    /// How many warps executed each instruction.
    pub executed: Vec<u64>,
}

/// Runs a program. The program and the launch passed [`Program::validate`]; a
/// program that did not panics here.
pub fn run(
    program: &Program,
    launch: &LaunchConfig,
    memory: &mut GlobalMemory,
    config: &Config,
) -> Result<Report, Box<Trap>> {
    let lens: Vec<u64> = memory.buffers.iter().map(|b| b.len).collect();
    if let Err(reason) = program.validate(launch, memory) {
        panic!("the program is malformed: {reason}");
    }
    let blocks = launch.blocks();
    if program.grid_sync && blocks > config.resident.min(MAX_BLOCKS) {
        let resident = config.resident.min(MAX_BLOCKS);
        return Err(launch_trap(program, TrapKind::Residency { blocks, resident }));
    }
    let shadows = make_shadows(program, memory, config);
    let shared = Shared { program, launch, memory, shadows: &shadows, config };
    let (totals, trace) = if program.independent_blocks() {
        shared.independent(blocks)?
    } else {
        let mut machine = shared.machine(false, true);
        machine.clocks = Some(Clocks::default());
        let slots = if program.grid_sync { blocks } else { blocks.min(config.window.max(1)) };
        let trace = shared.resident(&mut machine, 0..blocks, slots as usize)?;
        (shared.totals(machine), trace)
    };
    let unwritten = |shadow: &Option<Shadow>, len| shadow.as_ref().map_or(0, |s| s.unwritten(len));
    let unwritten: Vec<u64> = shadows.iter().zip(&lens).map(|(shadow, len)| unwritten(shadow, *len)).collect();
    let first = |((shadow, len), missing): ((&Option<Shadow>, &u64), &u64)| match shadow {
        Some(shadow) if *missing > 0 => shadow.first_unwritten(*len, FIRST_UNWRITTEN),
        _ => Vec::new(),
    };
    let first_unwritten = shadows.iter().zip(&lens).zip(&unwritten).map(first).collect();
    Ok(Report { counters: totals.counters, trace, unwritten, first_unwritten, executed: totals.executed })
}

fn make_shadows(program: &Program, memory: &GlobalMemory, config: &Config) -> Vec<Option<Shadow>> {
    let shadow = |(decl, buffer): (&crate::BufferDecl, &crate::GlobalBuffer)| {
        config
            .detect
            .then(|| Shadow::new(buffer.len, decl.read, decl.written, decl.atomic, buffer.initialised))
            .flatten()
    };
    program.buffers.iter().zip(&memory.buffers).map(shadow).collect()
}

fn launch_trap(program: &Program, kind: TrapKind) -> Box<Trap> {
    let is_grid_sync = |inst: &crate::Inst| inst.op == crate::Opcode::Sync && inst.imm == 2;
    let pc = program.code.iter().position(is_grid_sync).unwrap_or(0) as u32;
    Box::new(Trap { kind, pc, block: 0, warp: 0, lane: 0, buffer: None, slot: None, index: 0 })
}

/// What one host thread counted.
struct Totals {
    counters: Counters,
    executed: Vec<u64>,
}

/// What all host threads read.
struct Shared<'a> {
    program: &'a Program,
    launch: &'a LaunchConfig,
    memory: &'a GlobalMemory,
    shadows: &'a [Option<Shadow>],
    config: &'a Config,
}

impl<'a> Shared<'a> {
    fn machine(&self, parallel: bool, log: bool) -> Machine<'a> {
        Machine {
            program: self.program,
            globals: &self.memory.buffers,
            shadows: self.shadows,
            parallel,
            count: self.config.count,
            counters: Counters::default(),
            segments: Segments::new(self.program),
            clocks: None,
            event: 0,
            grid_base: 0,
            log: (log && self.config.detect).then(Vec::new),
            scheduler: Scheduler::new(self.config.policy, 0, 0),
            max_steps: self.config.max_steps,
        }
    }

    fn totals(&self, machine: Machine) -> Totals {
        let mut totals = Totals { counters: machine.counters, executed: vec![0; self.program.code.len()] };
        machine.segments.tally(self.program, &mut totals.counters, &mut totals.executed);
        totals
    }

    /// Blocks that cannot communicate: any order, several host threads.
    fn independent(&self, blocks: u64) -> Result<(Totals, u64), Box<Trap>> {
        let available = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = if self.config.threads == 0 { available() } else { self.config.threads };
        let threads = (threads as u64).min(blocks.div_ceil(4)).max(1);
        let parallel = threads > 1;
        let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        // Small enough to balance, large enough to be rarely fetched.
        let chunk = (blocks / (threads * 16)).clamp(1, 64);
        let work = || -> Option<(Totals, u64)> {
            let mut machine = self.machine(parallel, false);
            let mut trace = 0u64;
            let mut slot = vec![BlockSlot::new(self.program, self.launch, self.config.detect)];
            loop {
                let first = next.fetch_add(chunk, Relaxed);
                if first >= blocks || stop.load(Relaxed) {
                    break;
                }
                for block in first..blocks.min(first + chunk) {
                    machine.event = 0;
                    match self.run_in(&mut machine, block..block + 1, &mut slot) {
                        Ok(hash) => trace = trace.wrapping_add(hash),
                        Err(_) => {
                            stop.store(true, Relaxed);
                            return None;
                        }
                    }
                }
            }
            Some((self.totals(machine), trace))
        };
        let results: Vec<_> = if parallel {
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
                workers.into_iter().map(|w| w.join().ok().flatten()).collect()
            })
        } else {
            vec![work()]
        };
        if results.iter().any(Option::is_none) {
            return Err(self.first_trap(blocks));
        }
        let mut totals = Totals { counters: Counters::default(), executed: vec![0; self.program.code.len()] };
        let mut trace = 0u64;
        for (part, hash) in results.into_iter().flatten() {
            totals.counters.add(&part.counters);
            totals.executed.iter_mut().zip(part.executed).for_each(|(sum, n)| *sum += n);
            trace = trace.wrapping_add(hash);
        }
        Ok((totals, trace))
    }

    /// Runs again in order, on one thread and with a log, so that the report is
    /// complete and does not depend on the number of host threads. Outputs of
    /// independent blocks are never read, so nothing must be restored.
    fn first_trap(&self, blocks: u64) -> Box<Trap> {
        let lens = self.memory.buffers.iter().map(|b| b.len);
        let remake = |(decl, (buffer, _)): (&crate::BufferDecl, (&crate::GlobalBuffer, u64))| {
            let fresh = || Shadow::new(buffer.len, decl.read, decl.written, decl.atomic, buffer.initialised);
            self.config.detect.then(fresh).flatten()
        };
        let shadows: Vec<_> =
            self.program.buffers.iter().zip(self.memory.buffers.iter().zip(lens)).map(remake).collect();
        let again = Shared { shadows: &shadows, ..*self };
        let mut machine = again.machine(false, true);
        let mut slot = vec![BlockSlot::new(self.program, self.launch, self.config.detect)];
        for block in 0..blocks {
            if let Err(trap) = again.run_in(&mut machine, block..block + 1, &mut slot) {
                return trap;
            }
        }
        // Unreachable: both runs execute the same blocks under the same schedule.
        launch_trap(self.program, TrapKind::Deadlock(Vec::new()))
    }

    fn resident(&self, machine: &mut Machine, blocks: std::ops::Range<u64>, slots: usize) -> Result<u64, Box<Trap>> {
        let mut slots: Vec<_> =
            (0..slots).map(|_| BlockSlot::new(self.program, self.launch, self.config.detect)).collect();
        self.run_in(machine, blocks, &mut slots)
    }

    /// Runs blocks in slots until all are finished. Returns the trace's hash.
    fn run_in(
        &self,
        machine: &mut Machine,
        blocks: std::ops::Range<u64>,
        slots: &mut [BlockSlot],
    ) -> Result<u64, Box<Trap>> {
        let (program, launch) = (self.program, self.launch);
        let width = launch.threads().div_ceil(32);
        let communicating = machine.clocks.is_some();
        machine.scheduler = Scheduler::new(self.config.policy, blocks.start, slots.len() * width as usize);
        let budget = if program.independent_warps() { u64::MAX } else { machine.scheduler.budget() };
        let mut waiting = blocks.clone();
        for slot in slots.iter_mut() {
            if let Some(block) = waiting.next() {
                slot.start(program, launch, block, communicating);
            }
        }
        let mut ready = Vec::new();
        ready_warps(&mut ready, slots, width);
        while !ready.is_empty() {
            let choice = machine.scheduler.pick(&ready);
            let (s, w) = ((ready[choice] / width) as usize, (ready[choice] % width) as usize);
            let slot = &mut slots[s];
            match exec::run(machine, &mut slot.block, &mut slot.warps[w], budget, self.config.detect) {
                Stop::Yield => continue,
                Stop::Trap(trap) => return Err(trap),
                Stop::Blocked => {}
            }
            // Warps of one block end and wait in turn; only a release adds to the list.
            ready.remove(choice);
            let released = machine.counters.block_barriers + machine.counters.grid_barriers + machine.counters.blocks;
            if slot.finished() {
                machine.counters.blocks += 1;
                slot.busy = false;
                if let Some(block) = waiting.next() {
                    slot.start(program, launch, block, communicating);
                }
            } else {
                self.release_block(machine, slot)?;
                self.release_grid(machine, slots, waiting.is_empty())?;
            }
            if released != machine.counters.block_barriers + machine.counters.grid_barriers + machine.counters.blocks {
                ready_warps(&mut ready, slots, width);
            }
        }
        match slots.iter().any(|slot| slot.busy) {
            true => Err(deadlock(slots, None)),
            false => Ok(machine.scheduler.trace),
        }
    }

    /// Completes the block barrier if every warp is there.
    fn release_block(&self, machine: &mut Machine, slot: &mut BlockSlot) -> Result<(), Box<Trap>> {
        let Some(pc) = common_barrier(slot.warps.iter().map(|w| w.state), 1) else { return Ok(()) };
        if pc.is_none() {
            return Err(deadlock(std::slice::from_ref(slot), Some(1)));
        }
        slot.block.ordered_before = machine.event + 1;
        slot.block.sync.barrier();
        machine.counters.block_barriers += 1;
        for warp in &mut slot.warps {
            warp.state = WarpState::Ready;
        }
        Ok(())
    }

    /// Completes the grid barrier if every warp of every block is there.
    fn release_grid(&self, machine: &mut Machine, slots: &mut [BlockSlot], all: bool) -> Result<(), Box<Trap>> {
        if !self.program.grid_sync || !all {
            return Ok(());
        }
        let states = slots.iter().flat_map(|slot| slot.warps.iter().map(|w| w.state));
        let Some(pc) = common_barrier(states, 2) else { return Ok(()) };
        if pc.is_none() {
            return Err(deadlock(slots, Some(2)));
        }
        machine.grid_base = machine.event + 1;
        machine.counters.grid_barriers += 1;
        for slot in slots {
            slot.block.ordered_before = machine.event + 1;
            slot.block.sync.barrier();
            for warp in &mut slot.warps {
                warp.state = WarpState::Ready;
            }
        }
        Ok(())
    }
}

/// All warps that can run, ascending.
fn ready_warps(ready: &mut Vec<u32>, slots: &[BlockSlot], width: u32) {
    ready.clear();
    for (s, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.busy) {
        for (w, warp) in slot.warps.iter().enumerate() {
            if warp.state == WarpState::Ready {
                ready.push(s as u32 * width + w as u32);
            }
        }
    }
}

/// None while some warp is not at a barrier of the scope. Otherwise the barrier
/// that all are at, or none inside if they are at different ones.
fn common_barrier(states: impl Iterator<Item = WarpState>, scope: u32) -> Option<Option<u32>> {
    let mut common = None;
    let mut split = false;
    for state in states {
        match state {
            WarpState::Waiting { scope: s, pc } if s == scope => {
                split |= common.is_some_and(|c| c != pc);
                common = Some(pc);
            }
            _ => return None,
        }
    }
    common.map(|pc| (!split).then_some(pc))
}

/// Everybody who waits, and who left without arriving.
fn deadlock(slots: &[BlockSlot], split: Option<u32>) -> Box<Trap> {
    let at = |pc: u32, slot: &BlockSlot| {
        slot.warps.iter().filter(|w| matches!(w.state, WarpState::Waiting { pc: p, .. } if p == pc)).count() as u32
    };
    let mut waiters = Vec::new();
    for slot in slots.iter().filter(|slot| slot.busy) {
        for warp in &slot.warps {
            let (block, index, width) = (slot.block.linear, warp.index, slot.warps.len() as u32);
            let (pc, arrived, expected) = match warp.state {
                WarpState::Waiting { scope: 2, pc } => {
                    let arrived = slots.iter().map(|slot| at(pc, slot)).sum();
                    (Some(pc), arrived, width * slots.len() as u32)
                }
                WarpState::Waiting { pc, .. } => (Some(pc), at(pc, slot), width),
                WarpState::Ready | WarpState::Done => (None, 0, 0),
            };
            waiters.push(Waiter { block, warp: index, pc, arrived, expected });
        }
    }
    let first = waiters.iter().find(|w| w.pc.is_some()).copied();
    let (pc, block, warp) = first.map_or((0, 0, 0), |w| (w.pc.unwrap_or(0), w.block, w.warp));
    let kind = if split.is_some() { TrapKind::SplitBarrier(waiters) } else { TrapKind::Deadlock(waiters) };
    Box::new(Trap { kind, pc, block, warp, lane: 0, buffer: None, slot: None, index: 0 })
}
