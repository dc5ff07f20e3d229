//! The interpreter: runs one warp until it yields, waits, ends or traps.

use crate::LANES;
use crate::async_copy;
use crate::block::BlockState;
use crate::clocks::Clocks;
use crate::counters::{Counters, Segments};
use crate::lanes::{Files, Lane, map1, map2};
use crate::localops;
use crate::memops;
use crate::memory::GlobalBuffer;
use crate::op::{self, Opcode};
use crate::program::{File, Flags, Inst, Program};
use crate::random;
use crate::sched::Scheduler;
use crate::shadow::{Cell, Shadow, WarpOrder, Wrong};
use crate::trap::{Other, Trap, TrapKind};
use crate::warp::{Frame, Warp, WarpState};

/// Everything that warps of one host thread share.
pub(crate) struct Machine<'a> {
    pub(crate) program: &'a Program,
    pub(crate) globals: &'a [GlobalBuffer],
    pub(crate) shadows: &'a [Option<Shadow>],
    /// Other host threads run blocks of the same launch now.
    pub(crate) parallel: bool,
    /// Count sectors and bank conflicts.
    pub(crate) count: bool,
    pub(crate) counters: Counters,
    pub(crate) segments: Segments,
    /// Present if blocks can communicate.
    pub(crate) clocks: Option<Clocks>,
    /// Number of the latest access of a warp.
    pub(crate) event: u64,
    /// First event after the last grid barrier.
    pub(crate) grid_base: u64,
    /// Instruction of each event, if reports need it.
    pub(crate) log: Option<Vec<u32>>,
    pub(crate) scheduler: Scheduler,
    pub(crate) max_steps: u64,
}

/// Why a warp stopped.
pub(crate) enum Stop {
    /// Its budget of visible operations is spent.
    Yield,
    /// It waits at a barrier or is finished; see its state.
    Blocked,
    Trap(Box<Trap>),
}

impl Machine<'_> {
    /// Starts a warp-wide access: its event.
    #[inline(always)]
    pub(crate) fn next_event(&mut self, pc: u32) -> u64 {
        self.event += 1;
        if let Some(log) = &mut self.log {
            log.resize(self.event as usize + 1, u32::MAX);
            log[self.event as usize] = pc;
        }
        self.event
    }

    /// What is ordered before a warp of a block now.
    #[inline(always)]
    pub(crate) fn view<'b>(&'b self, block: &'b BlockState, warp_base: u64) -> WarpOrder<'b> {
        WarpOrder {
            block: block.linear,
            grid_base: self.grid_base,
            block_base: block.ordered_before,
            warp_base,
            clocks: self.clocks.as_ref().map(|clocks| (clocks, &block.sync)),
        }
    }

    #[cold]
    pub(crate) fn wrong(&self, wrong: Wrong, write: bool, atomic: bool) -> TrapKind {
        match wrong {
            Wrong::Uninitialised => TrapKind::Uninitialised,
            Wrong::Race { cell, write: other_write, atomic: other_atomic } => {
                TrapKind::Race { write, atomic, other: self.other(cell, other_write, other_atomic) }
            }
            Wrong::Landing { cell } => {
                let other = Other { landing: true, ..self.other(cell, true, false) };
                TrapKind::Race { write, atomic, other }
            }
        }
    }

    fn other(&self, cell: Cell, write: bool, atomic: bool) -> Other {
        Other {
            pc: self.log.as_ref().and_then(|log| log.get(cell.event() as usize).copied()),
            block: cell.block(),
            thread: cell.thread(),
            write,
            atomic,
            many: cell.many() > 0,
            landing: false,
        }
    }
}

/// A trap of a warp at an instruction.
#[cold]
pub(crate) fn trap(block: &BlockState, warp: &Warp, pc: u32, lane: u32, kind: TrapKind) -> Box<Trap> {
    Box::new(Trap { kind, pc, block: block.linear, warp: warp.index, lane, buffer: None, slot: None, index: 0 })
}

/// Lanes of `mask` whose value in a register is not zero.
#[inline(always)]
unsafe fn truth(files: Files, reg: u16, mask: u32) -> u32 {
    // SAFETY: the caller keeps `reg` in the file.
    let values = unsafe { &*u32::lanes(files, reg) };
    bits(|l| values[l] != 0) & mask
}

/// One bit for each lane.
#[inline(always)]
fn bits(f: impl Fn(usize) -> bool) -> u32 {
    let mut bytes = [0u8; LANES];
    for (l, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from(f(l));
    }
    // Gathers the low bit of each of 8 bytes: the product places byte i's bit at 56 + i.
    let gather = |chunk: &[u8]| {
        let word = u64::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]]);
        (word.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    gather(&bytes[..8]) | gather(&bytes[8..16]) << 8 | gather(&bytes[16..24]) << 16 | gather(&bytes[24..]) << 24
}

/// Lanes of `mask` with `counter < end`.
#[inline(always)]
unsafe fn below(files: Files, inst: Inst, mask: u32) -> u32 {
    // SAFETY: the caller keeps the registers in the files.
    unsafe {
        if inst.flags.has(Flags::INDEX64) {
            let (counter, end) = (&*i64::lanes(files, inst.d), &*i64::lanes(files, inst.b));
            bits(|l| counter[l] < end[l]) & mask
        } else {
            let (counter, end) = (&*i32::lanes(files, inst.d), &*i32::lanes(files, inst.b));
            bits(|l| counter[l] < end[l]) & mask
        }
    }
}

/// Runs a warp; picks the version for the host's vector instructions.
pub(crate) fn run(machine: &mut Machine, block: &mut BlockState, warp: &mut Warp, budget: u64, check: bool) -> Stop {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("bmi2") {
        // SAFETY: the host has the features. `fma` is not enabled, so nothing is contracted.
        return unsafe {
            if check { avx2::<true>(machine, block, warp, budget) } else { avx2::<false>(machine, block, warp, budget) }
        };
    }
    // SAFETY: `interpret` calls it with a program's own registers.
    let plain = |files: Files, code: &[Inst], pc| unsafe { arithmetic(files, code, pc) };
    if check {
        interpret::<true>(machine, block, warp, budget, plain)
    } else {
        interpret::<false>(machine, block, warp, budget, plain)
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn avx2<const CHECK: bool>(machine: &mut Machine, block: &mut BlockState, warp: &mut Warp, budget: u64) -> Stop {
    // SAFETY: the host has the features, and `interpret` calls it with a program's own registers.
    let wide = |files: Files, code: &[Inst], pc| unsafe { arithmetic_avx2(files, code, pc) };
    interpret::<CHECK>(machine, block, warp, budget, wide)
}

/// See [`op::arithmetic`]. It is half of the code of the interpreter, so all versions of that share it.
#[inline(never)]
unsafe fn arithmetic(files: Files, code: &[Inst], pc: usize) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { op::arithmetic(files, code, pc) }
}

/// The same with the host's vector instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline(never)]
unsafe fn arithmetic_avx2(files: Files, code: &[Inst], pc: usize) -> usize {
    // SAFETY: passed on to the caller.
    unsafe { op::arithmetic(files, code, pc) }
}

#[inline(always)]
fn interpret<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
    warp: &mut Warp,
    mut budget: u64,
    arithmetic: impl Fn(Files, &[Inst], usize) -> usize,
) -> Stop {
    let program = machine.program;
    let code = program.code.as_slice();
    let files = warp.files();
    let mut pc = warp.pc as usize;
    if pc == 0 && warp.steps == 0 {
        machine.segments.enter(0, warp.mask);
        warp.steps = 1;
    }
    // Spends one visible operation, or stops before it.
    macro_rules! visible {
        () => {
            if budget == 0 {
                warp.pc = pc as u32;
                return Stop::Yield;
            }
            budget -= 1;
        };
    }
    macro_rules! check {
        ($result:expr) => {
            if let Err(trap) = $result {
                return Stop::Trap(trap);
            }
        };
    }
    loop {
        let inst = code[pc];
        let next = pc + 1;
        // SAFETY: `Program::validate` was run: every register of every
        // instruction is below the size of its file, every jump in the code,
        // every buffer, slot and function in its table.
        unsafe {
            if inst.op.is_arithmetic() {
                pc = arithmetic(files, code, pc);
                continue;
            }
            match inst.op {
                Opcode::LocalGet => check!(localops::local_get::<CHECK>(block, warp, files, inst, pc as u32)),
                Opcode::LocalSet => localops::local_set::<CHECK>(warp, files, inst),
                Opcode::Load => {
                    visible!();
                    check!(memops::load::<CHECK>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::Store => {
                    visible!();
                    check!(memops::store::<CHECK>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::MoveIn => {
                    visible!();
                    check!(memops::vector_move::<CHECK, true>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::MoveOut => {
                    visible!();
                    check!(memops::vector_move::<CHECK, false>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::If => {
                    let then = truth(files, inst.a, warp.mask);
                    let other = warp.mask & !then;
                    let target = inst.imm as usize;
                    warp.stack.push(Frame { saved: warp.mask, pending: 0, pending_pc: 0 });
                    if inst.c == 0 {
                        // No other side: `imm` is the end, where nothing is left to join.
                        if then == 0 {
                            warp.stack.pop();
                            machine.segments.enter(target as u32, warp.mask);
                            pc = target;
                            continue;
                        }
                        machine.counters.divergent_branches += u64::from(other != 0);
                        warp.mask = then;
                        machine.segments.enter(next as u32, then);
                    } else {
                        let mut first = (then, next);
                        let mut second = (other, target);
                        if then == 0 || other != 0 && machine.scheduler.flip() {
                            std::mem::swap(&mut first, &mut second);
                        }
                        if second.0 != 0 {
                            machine.counters.divergent_branches += 1;
                        }
                        if let Some(frame) = warp.stack.last_mut() {
                            frame.pending = second.0;
                            frame.pending_pc = second.1 as u32;
                        }
                        warp.mask = first.0;
                        machine.segments.enter(first.1 as u32, first.0);
                        pc = first.1;
                        continue;
                    }
                }
                Opcode::Join => {
                    let Some(frame) = warp.stack.last_mut() else { break };
                    if frame.pending != 0 {
                        warp.mask = frame.pending;
                        frame.pending = 0;
                        pc = frame.pending_pc as usize;
                    } else {
                        warp.mask = frame.saved;
                        warp.stack.pop();
                        pc = inst.imm as usize;
                    }
                    machine.segments.enter(pc as u32, warp.mask);
                    continue;
                }
                Opcode::Loop => {
                    if inst.flags.has(Flags::INDEX64) {
                        map1::<i64, i64>(files, inst, |a| a);
                    } else {
                        map1::<i32, i32>(files, inst, |a| a);
                    }
                    let active = below(files, inst, warp.mask);
                    if active == 0 {
                        pc = inst.imm as usize;
                    } else {
                        warp.stack.push(Frame { saved: warp.mask, pending: 0, pending_pc: 0 });
                        warp.mask = active;
                        pc = next;
                    }
                    machine.segments.enter(pc as u32, warp.mask);
                    continue;
                }
                Opcode::Next => {
                    let step = Inst { a: inst.d, b: inst.c, ..inst };
                    if inst.flags.has(Flags::INDEX64) {
                        map2::<i64, i64, i64>(files, step, i64::wrapping_add);
                    } else {
                        map2::<i32, i32, i32>(files, step, i32::wrapping_add);
                    }
                    warp.steps += 1;
                    if warp.steps > machine.max_steps {
                        let kind = TrapKind::StepLimit { limit: machine.max_steps };
                        return Stop::Trap(trap(block, warp, pc as u32, 0, kind));
                    }
                    let active = below(files, inst, warp.mask);
                    if active == 0 {
                        let Some(frame) = warp.stack.pop() else { break };
                        warp.mask = frame.saved;
                        pc = next;
                    } else {
                        warp.mask = active;
                        pc = inst.imm as usize;
                    }
                    machine.segments.enter(pc as u32, warp.mask);
                    continue;
                }
                Opcode::LocalLoad => check!(localops::local_load::<CHECK>(block, warp, files, inst, pc as u32)),
                Opcode::LocalStore => check!(localops::local_store::<CHECK>(block, warp, files, inst, pc as u32)),
                Opcode::CallF32 => {
                    let f = program.unary[inst.imm as usize];
                    let (a, d) = (*f32::lanes(files, inst.a), &mut *f32::lanes(files, inst.d));
                    each(warp.mask, |l| d[l] = f(f64::from(a[l])) as f32);
                }
                Opcode::CallF64 => {
                    let f = program.unary[inst.imm as usize];
                    let (a, d) = (*f64::lanes(files, inst.a), &mut *f64::lanes(files, inst.d));
                    each(warp.mask, |l| d[l] = f(a[l]));
                }
                Opcode::Random => random::numbers(files, inst),
                Opcode::Host => host(program, files, inst, warp.mask),
                Opcode::CopyAsync => {
                    visible!();
                    check!(async_copy::start::<CHECK>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::CommitGroup => warp.copies.commit(warp.mask),
                Opcode::WaitGroup => {
                    visible!();
                    if !warp.copies.is_empty() {
                        async_copy::wait::<CHECK>(machine, block, warp, inst, pc as u32);
                    }
                }
                Opcode::Atomic => {
                    visible!();
                    check!(memops::atomic::<CHECK>(machine, block, warp, files, inst, pc as u32));
                }
                Opcode::Shuffle => check!(shuffle(block, warp, files, inst, pc as u32)),
                Opcode::Fence => {
                    visible!();
                    if CHECK && inst.imm == 2 && machine.clocks.is_some() {
                        let base = block.ordered_before;
                        let first = warp.index * 32;
                        let (mask, next_event) = (warp.mask, machine.event + 1);
                        each(mask, |l| block.sync.fence(first + l as u32, base, next_event));
                    }
                }
                Opcode::Sync => {
                    visible!();
                    if warp.mask != warp.live {
                        let kind = TrapKind::Divergence { active: warp.mask, expected: warp.live };
                        let lane = warp.mask.trailing_zeros();
                        return Stop::Trap(trap(block, warp, pc as u32, lane, kind));
                    }
                    if inst.imm == 0 {
                        warp.ordered_before = machine.event + 1;
                    } else {
                        warp.state = WarpState::Waiting { scope: inst.imm, pc: pc as u32 };
                        warp.pc = next as u32;
                        return Stop::Blocked;
                    }
                }
                Opcode::End => break,
                _ => {}
            }
        }
        pc = next;
    }
    warp.state = WarpState::Done;
    warp.pc = pc as u32;
    Stop::Blocked
}

/// Calls `f` for each lane of a mask, ascending.
#[inline(always)]
pub(crate) fn each(mask: u32, mut f: impl FnMut(usize)) {
    if mask == u32::MAX {
        for l in 0..LANES {
            f(l);
        }
    } else {
        let mut rest = mask;
        while rest != 0 {
            f(rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

#[inline(never)]
unsafe fn host(program: &Program, files: Files, inst: Inst, mask: u32) {
    // SAFETY: registers and function are in range by validation.
    unsafe {
        let f = &program.host[inst.imm as usize];
        let read = |(wide, double): (u16, u16), reg: u16, l: usize| match inst.flags.file(wide, double) {
            File::R32 => u128::from((*u32::lanes(files, reg))[l]),
            File::R64 => u128::from((*u64::lanes(files, reg))[l]),
            File::R128 => (*u128::lanes(files, reg))[l],
        };
        let [a, b, c] = Flags::OPERANDS;
        each(mask, |l| {
            let value = f([read(a, inst.a, l), read(b, inst.b, l), read(c, inst.c, l)]);
            match inst.flags.value() {
                File::R32 => (*u32::lanes(files, inst.d))[l] = value as u32,
                File::R64 => (*u64::lanes(files, inst.d))[l] = value as u64,
                File::R128 => (*u128::lanes(files, inst.d))[l] = value,
            }
        });
    }
}

/// Each lane of `inst.d` gets that lane of `inst.a`.
///
/// # Safety
/// Both registers are in their file.
unsafe fn take_lanes<T: Lane>(files: Files, inst: Inst, source: &[usize; LANES]) {
    // SAFETY: by the caller.
    unsafe {
        let (a, d) = (*T::lanes(files, inst.a), &mut *T::lanes(files, inst.d));
        for l in 0..LANES {
            d[l] = a[source[l] & 31];
        }
    }
}

/// All live lanes must be here; a source out of range gives the own value, one
/// that does not exist in a partial warp is an error.
#[inline(never)]
unsafe fn shuffle(block: &BlockState, warp: &Warp, files: Files, inst: Inst, pc: u32) -> Result<(), Box<Trap>> {
    if warp.mask != warp.live {
        let kind = TrapKind::Divergence { active: warp.mask, expected: warp.live };
        return Err(trap(block, warp, pc, warp.mask.trailing_zeros(), kind));
    }
    // SAFETY: registers are in range by validation.
    unsafe {
        let select = *i32::lanes(files, inst.b);
        let mut source = [0usize; LANES];
        for l in 0..LANES {
            let own = l as i32;
            let from = match inst.imm {
                0 => own ^ select[l],
                1 => own.wrapping_sub(select[l]),
                2 => own.wrapping_add(select[l]),
                _ => select[l],
            };
            source[l] = if (0..32).contains(&from) { from as usize } else { l };
            if warp.live >> l & 1 == 1 && warp.live >> source[l] & 1 == 0 {
                let kind = TrapKind::ShuffleSource { source: source[l] as u32 };
                return Err(trap(block, warp, pc, l as u32, kind));
            }
        }
        match inst.flags.value() {
            File::R32 => take_lanes::<u32>(files, inst, &source),
            File::R64 => take_lanes::<u64>(files, inst, &source),
            File::R128 => take_lanes::<u128>(files, inst, &source),
        }
    }
    Ok(())
}
