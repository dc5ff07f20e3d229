//! Copies from global to shared memory that a thread starts and later waits for.
//!
//! A thread puts its copies into groups; waiting leaves at most so many of its latest groups
//! open. Between its start and that moment a copy may land at any time: early or as late as
//! it may, the scheduler decides. Whoever touches an element meanwhile, the thread itself
//! included, races with the copy, whatever the values are. Once waited for it is a write
//! of its thread at that moment, which barriers pass on as any other.
//!
//! The source is memory that the program never writes, so when it is read does not matter.

use crate::LANES;
use crate::access::{AccessKind, Checked, Indices, Touch, count, detect, indices, misaligned, place, shadow};
use crate::block::BlockState;
use crate::exec::{Machine, each};
use crate::lanes::Files;
use crate::program::{Flags, Inst};
use crate::shadow::Cell;
use crate::warp::Warp;

/// A copy that some lanes have not waited for.
pub(crate) struct OpenCopy {
    inst: Inst,
    /// Lanes that have not waited.
    mask: u32,
    /// Whether its elements are where they belong.
    landed: bool,
    /// The group of each lane.
    group: [u32; LANES],
    from: Indices,
    to: Indices,
}

/// The copies of a warp, and how many groups each lane has closed.
#[derive(Default)]
pub(crate) struct AsyncCopies {
    open: Vec<OpenCopy>,
    closed: [u32; LANES],
}

impl AsyncCopies {
    /// Forgets everything: another block begins.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
        self.closed = [0; LANES];
    }

    /// Closes the group of each lane of a mask.
    pub(crate) fn commit(&mut self, mask: u32) {
        each(mask, |l| self.closed[l] += 1);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

/// The two accesses of a copy, as instructions with one buffer and index each.
fn sides(inst: Inst) -> (Inst, Inst) {
    let wide = |flag: u16| Flags(if inst.flags.has(flag) { Flags::INDEX64 } else { 0 });
    let from = Inst { flags: wide(Flags::INDEX64), ..inst };
    let to = Inst { flags: wide(Flags::WIDE_C), a: inst.c, b: inst.d, ..inst };
    (from, to)
}

/// Starts the copies of a warp.
///
/// # Safety
/// The program was validated.
pub(crate) unsafe fn start<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let (source, target) = sides(inst);
    let width = inst.imm;
    let mut places = [[0; LANES]; 2];
    for (side, index) in [source, target].into_iter().zip(&mut places) {
        let decl = &machine.program.buffers[side.b as usize];
        let place = place(machine, block, decl, side.b);
        // SAFETY: registers by validation.
        unsafe { indices(block, warp, files, side, pc, (place.len, width.into()), index)? };
        let bytes = u64::from(width) * place.elem.bytes() as u64;
        let offset = |i: &u32| (place.address + u64::from(*i) * place.elem.bytes() as u64) & (bytes - 1);
        if index.iter().any(|i| offset(i) != 0) {
            return Err(misaligned(block, warp, side, pc, &place, index, bytes));
        }
        let kind = if place.global { AccessKind::Read } else { AccessKind::Write };
        if CHECK {
            detect(machine, block, warp, side, pc, index, Touch { global: place.global, width, kind })?;
        }
        if machine.count {
            count(machine, warp, &place, index, width, !place.global);
        }
    }
    let [from, to] = places;
    let mask = warp.mask;
    if CHECK && let Some(shadow) = shadow(machine, block, false, target.b) {
        let (event, linear, first) = (machine.event, block.linear, warp.index * LANES as u32);
        each(mask, |l| {
            let cell = Cell::new(event, linear, first + l as u32);
            (0..width).for_each(|k| shadow.set_landing(to[l] + k, cell));
        });
    }
    let copy = OpenCopy { inst, mask, landed: false, group: warp.copies.closed, from, to };
    warp.copies.open.push(copy);
    if machine.scheduler.flip() {
        let last = warp.copies.open.len() - 1;
        land(machine, block, &mut warp.copies.open[last], mask);
    }
    Ok(())
}

/// Each active lane waits until at most its latest `inst.imm` groups are open.
pub(crate) fn wait<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
    warp: &mut Warp,
    inst: Inst,
    pc: u32,
) {
    let event = machine.next_event(pc);
    let mut copies = std::mem::take(&mut warp.copies);
    for copy in &mut copies.open {
        let mut done = 0u32;
        each(warp.mask & copy.mask, |l| {
            done |= u32::from(copy.group[l] + inst.imm < copies.closed[l]) << l;
        });
        if done == 0 {
            continue;
        }
        land(machine, block, copy, done);
        copy.mask &= !done;
        let target = copy.inst.d;
        if CHECK && let Some(shadow) = shadow(machine, block, false, target) {
            let first = warp.index * LANES as u32;
            each(done, |l| {
                let cell = Cell::new(event, block.linear, first + l as u32);
                (0..copy.inst.imm).for_each(|k| shadow.land(copy.to[l] + k, cell));
            });
        }
    }
    copies.open.retain(|copy| copy.mask != 0);
    warp.copies = copies;
}

/// Moves the elements of some lanes, if that was not done.
fn land(machine: &Machine, block: &BlockState, copy: &mut OpenCopy, lanes: u32) {
    if copy.landed {
        return;
    }
    copy.landed = lanes == copy.mask;
    let at = |buffer: u16| place(machine, block, &machine.program.buffers[buffer as usize], buffer);
    let (source, target) = (at(copy.inst.b), at(copy.inst.d));
    let bytes = source.elem.bytes();
    each(lanes, |l| {
        let (from, to) = (copy.from[l] as usize * bytes, copy.to[l] as usize * bytes);
        // SAFETY: `indices` checked that both runs lie in their buffers, of which one is
        // global and the other shared.
        unsafe {
            std::ptr::copy_nonoverlapping(source.base.add(from), target.base.add(to), copy.inst.imm as usize * bytes);
        }
    });
}
