//! What a run found, for people: traps as diagnostics, counters by name.

use super::compile::{SimProgram, count, statement};
use super::memory::SimMemory;
use crate::diag::{Code, Diagnostic, code};
use crate::kernel::{BoundLaunch, BufId, Kernel, print_stmt};
use simcore::{Counters, Opcode, Other, Trap, TrapKind, Waiter};

/// The outcome of a run without errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimReport {
    /// Counts of instructions, memory traffic, conflicts and barriers.
    pub counters: Counters,
    /// Hash of all scheduling choices: equal for equal options.
    pub trace: u64,
    /// For each output of the fusion, its number, its buffer and how many of
    /// its elements were never written. Zeros without detectors.
    pub unwritten: Vec<(u32, BufId, u64)>,
    /// The numbers of the first of them, in the same order.
    pub first_unwritten: Vec<Vec<u64>>,
    /// Whether each statement of the kernel, in preorder, was executed by some
    /// thread; false for one that needs no instruction.
    pub executed: Vec<bool>,
}

impl SimReport {
    pub(super) fn new(program: &SimProgram, kernel: &Kernel, done: simcore::Report, memory: &SimMemory) -> Self {
        let missing = |buffer| memory.slot(buffer).and_then(|slot| done.unwritten.get(slot)).copied().unwrap_or(0);
        let unwritten = memory.outputs().iter().map(|&(output, buffer)| (output, buffer, missing(buffer))).collect();
        let first = |buffer| memory.slot(buffer).and_then(|slot| done.first_unwritten.get(slot)).cloned();
        let first_unwritten = memory.outputs().iter().map(|&(_, buffer)| first(buffer).unwrap_or_default()).collect();
        let executed = executed(program, kernel, &done.executed);
        Self { counters: done.counters, trace: done.trace, unwritten, first_unwritten, executed }
    }

    /// Nothing was launched, so nothing was written.
    pub(super) fn empty(kernel: &Kernel, memory: &SimMemory, launch: &BoundLaunch) -> Self {
        let len = |buffer| launch.buffer_lens.get(buffer).copied().unwrap_or(0);
        let unwritten = memory.outputs().iter().map(|&(output, buffer)| (output, buffer, len(buffer))).collect();
        let first = |buffer| (0..len(buffer).min(8)).collect();
        let first_unwritten = memory.outputs().iter().map(|&(_, buffer)| first(buffer)).collect();
        let executed = vec![false; count(&kernel.body) as usize];
        Self { counters: Counters::default(), trace: 0, unwritten, first_unwritten, executed }
    }
}

/// Whether each statement was executed. A statement's expressions may have been
/// computed earlier, outside a loop; so where it has an instruction with an
/// effect, that one decides.
fn executed(program: &SimProgram, kernel: &Kernel, warps: &[u64]) -> Vec<bool> {
    let mut pure = vec![false; count(&kernel.body) as usize];
    let mut effect: Vec<Option<bool>> = vec![None; pure.len()];
    for ((inst, &origin), &warps) in program.core.code.iter().zip(&program.core.origin).zip(warps) {
        let statement = origin as usize;
        if statement >= pure.len() || inst.op == Opcode::End {
            continue;
        }
        if inst.op.is_arithmetic() || matches!(inst.op, Opcode::CallF32 | Opcode::CallF64 | Opcode::Host) {
            pure[statement] |= warps > 0;
        } else {
            *effect[statement].get_or_insert(false) |= warps > 0;
        }
    }
    effect.into_iter().zip(pure).map(|(effect, pure)| effect.unwrap_or(pure)).collect()
}

/// Turns a trap into a diagnostic that names kernel, statement, thread, buffer
/// and index, and for races both sides.
pub(super) fn diagnose(program: &SimProgram, kernel: &Kernel, launch: &BoundLaunch, trap: &Trap) -> Box<Diagnostic> {
    let naming = Naming { program, kernel, launch };
    let place = naming.element(trap);
    let who = naming.thread(trap.block, trap.warp * 32 + trap.lane);
    let (code, what): (Code, String) = match &trap.kind {
        TrapKind::OutOfBounds { len } => (code::OUT_OF_BOUNDS, format!("{place} is outside its {len} elements")),
        TrapKind::Uninitialised => (code::UNINITIALISED, format!("{place} is read before it was written")),
        TrapKind::Misaligned { bytes, offset } => {
            let what = format!("a move of {bytes} bytes at {place} is {offset} bytes past its alignment");
            (code::MISALIGNED, what)
        }
        TrapKind::Race { write, atomic, other } => {
            let what = format!("{} {place} races with {}", verb(*write, *atomic), naming.other(other));
            (code::RACE, what)
        }
        TrapKind::Divergence { active, expected } => {
            let what = format!(
                "only {} of {} threads of a warp are here, lanes {}",
                active.count_ones(),
                expected.count_ones(),
                lanes(*active)
            );
            (code::DIVERGENCE, what)
        }
        TrapKind::ShuffleSource { source } => {
            (code::DIVERGENCE, format!("a shuffle reads lane {source}, which the block does not have"))
        }
        TrapKind::SplitBarrier(_) => (code::DIVERGENCE, "threads wait at different barriers".into()),
        TrapKind::Deadlock(_) => (code::DEADLOCK, "no thread can make progress".into()),
        TrapKind::Residency { blocks, resident } => {
            let what = format!("a grid barrier needs all {blocks} blocks resident, the device holds {resident}");
            (code::DEADLOCK, what)
        }
        TrapKind::StepLimit { limit } => (code::DEADLOCK, format!("a warp exceeds the limit of {limit} steps")),
    };
    let mut diagnostic = Diagnostic::bug_code(code, format!("kernel {}: {what}", kernel.name))
        .note(format!("at `{}`", naming.statement(trap.pc)))
        .note(format!("by {who}"));
    match &trap.kind {
        TrapKind::Race { other, .. } => {
            if let Some(pc) = other.pc {
                diagnostic = diagnostic.note(format!("the other side is at `{}`", naming.statement(pc)));
            }
            diagnostic = diagnostic.note(format!("by {}", naming.thread(other.block, other.thread)));
        }
        TrapKind::SplitBarrier(waiters) | TrapKind::Deadlock(waiters) => {
            for note in naming.waiters(waiters) {
                diagnostic = diagnostic.note(note);
            }
        }
        _ => {}
    }
    diagnostic
}

fn verb(write: bool, atomic: bool) -> &'static str {
    match (write, atomic) {
        (_, true) => "an atomic update of",
        (true, false) => "a write to",
        (false, false) => "a read of",
    }
}

/// `0-3,7` for the lanes of a mask.
fn lanes(mask: u32) -> String {
    let mut parts = Vec::new();
    let mut lane = 0;
    while lane < 32 {
        if mask >> lane & 1 == 0 {
            lane += 1;
            continue;
        }
        let first = lane;
        while lane < 32 && mask >> lane & 1 == 1 {
            lane += 1;
        }
        parts.push(if lane - first == 1 { first.to_string() } else { format!("{first}-{}", lane - 1) });
    }
    parts.join(",")
}

struct Naming<'a> {
    program: &'a SimProgram,
    kernel: &'a Kernel,
    launch: &'a BoundLaunch,
}

impl Naming<'_> {
    fn statement(&self, pc: u32) -> String {
        let number = self.program.core.origin.get(pc as usize).copied().unwrap_or(0);
        let Some(stmt) = statement(&self.kernel.body, number) else { return "the end".into() };
        let mut text = print_stmt(self.kernel, stmt);
        if !stmt.origin.pass.is_empty() {
            text.push_str(&format!(" from {}", stmt.origin.pass));
        }
        if let Some(tensor) = stmt.origin.tensor {
            text.push_str(&format!(" for {tensor}"));
        }
        text
    }

    fn thread(&self, block: u32, thread: u32) -> String {
        let split = |linear: u64, [x, y, _]: [u32; 3]| {
            let (x, y) = (u64::from(x.max(1)), u64::from(y.max(1)));
            format!("({}, {}, {})", linear % x, linear / x % y, linear / x / y)
        };
        format!(
            "block {}, warp {}, lane {}, thread {}",
            split(block.into(), self.launch.grid),
            thread / 32,
            thread % 32,
            split(thread.into(), self.launch.block)
        )
    }

    fn element(&self, trap: &Trap) -> String {
        let name = |id: BufId| format!("{} ({id})", self.kernel.buffers[id].name);
        let shared = trap.buffer.and_then(|buffer| self.program.buffers.get(buffer as usize));
        if let Some(&id) = shared {
            return format!("{}[{}]", name(id), trap.index);
        }
        let Some(slot) = trap.slot else { return "memory".into() };
        let position = self.program.locals.partition_point(|&(first, _)| first <= slot);
        match position.checked_sub(1).map(|p| self.program.locals[p]) {
            Some((first, id)) => format!("{}[{}]", name(id), i64::from(slot - first) + trap.index),
            None => "memory".into(),
        }
    }

    fn other(&self, other: &Other) -> String {
        if other.landing {
            return "an asynchronous copy that its thread has not waited for".into();
        }
        let verb = match (other.write, other.atomic) {
            (_, true) => "an atomic update",
            (true, false) => "a write",
            (false, false) => "a read",
        };
        if other.many { format!("{verb} by several threads") } else { verb.into() }
    }

    /// One line for each barrier of each block, and one for those who left.
    fn waiters(&self, waiters: &[Waiter]) -> Vec<String> {
        const SHOWN: usize = 8;
        let mut groups: Vec<(u32, Option<u32>, Vec<u32>, &Waiter)> = Vec::new();
        for waiter in waiters {
            match groups.iter_mut().find(|g| g.0 == waiter.block && g.1 == waiter.pc) {
                Some(group) => group.2.push(waiter.warp),
                None => groups.push((waiter.block, waiter.pc, vec![waiter.warp], waiter)),
            }
        }
        let mut notes: Vec<String> = groups
            .iter()
            .take(SHOWN)
            .map(|(block, pc, warps, waiter)| match pc {
                Some(pc) => format!(
                    "block {block}: warps {warps:?} wait at `{}`, {} of {} warps arrived",
                    self.statement(*pc),
                    waiter.arrived,
                    waiter.expected
                ),
                None => format!("block {block}: warps {warps:?} ended without arriving"),
            })
            .collect();
        if groups.len() > SHOWN {
            notes.push(format!("and {} more groups of waiting warps", groups.len() - SHOWN));
        }
        notes
    }
}
