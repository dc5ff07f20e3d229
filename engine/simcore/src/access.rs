//! What all accesses to global and shared memory share: where the buffer is,
//! bounds, detectors, counters.

use crate::LANES;
use crate::block::BlockState;
use crate::counters;
use crate::exec::{Machine, each, trap};
use crate::lanes::{Files, Lane};
use crate::program::{BufferDecl, Elem, Flags, Inst, SpaceKind};
use crate::shadow::{Cell, Shadow, Wrong};
use crate::trap::{Trap, TrapKind};
use crate::warp::Warp;

pub(crate) type Checked<T = ()> = Result<T, Box<Trap>>;

/// Element indices of all lanes; lanes outside the mask repeat an active one.
pub(crate) type Indices = [u32; LANES];

/// A buffer as one access sees it.
#[derive(Clone, Copy)]
pub(crate) struct BufferView {
    pub(crate) base: *mut u8,
    pub(crate) len: u64,
    pub(crate) address: u64,
    pub(crate) elem: Elem,
    pub(crate) global: bool,
}

#[inline(always)]
pub(crate) fn place(machine: &Machine, block: &BlockState, decl: &BufferDecl, buffer: u16) -> BufferView {
    match decl.space {
        SpaceKind::Global => {
            let global = &machine.globals[buffer as usize];
            BufferView { base: global.base(), len: global.len, address: global.address, elem: decl.elem, global: true }
        }
        SpaceKind::Shared { offset } => BufferView {
            base: block.shared_at(offset),
            len: decl.len,
            address: offset.into(),
            elem: decl.elem,
            global: false,
        },
    }
}

#[inline(always)]
pub(crate) fn shadow<'a>(machine: &'a Machine, block: &'a BlockState, global: bool, buffer: u16) -> Option<&'a Shadow> {
    if global { machine.shadows[buffer as usize].as_ref() } else { block.shadows[buffer as usize].as_ref() }
}

/// The indices of an access to `width` consecutive elements, all in bounds.
///
/// # Safety
/// The index register is in its file.
#[inline(always)]
pub(crate) unsafe fn indices(
    block: &BlockState,
    warp: &Warp,
    files: Files,
    inst: Inst,
    pc: u32,
    (len, width): (u64, u64),
    out: &mut Indices,
) -> Checked {
    // Number of indices at which the whole access fits.
    let limit = (len + 1).saturating_sub(width);
    let (mask, first) = (warp.mask, warp.mask.trailing_zeros() as usize & 31);
    let mut bad = false;
    // SAFETY: the register is in its file.
    unsafe {
        if inst.flags.has(Flags::INDEX64) {
            let index = &*u64::lanes(files, inst.a);
            if mask == u32::MAX {
                for (i, &index) in out.iter_mut().zip(index) {
                    bad |= index >= limit;
                    *i = index as u32;
                }
            } else {
                for (l, (i, &own)) in out.iter_mut().zip(index).enumerate() {
                    let index = if mask >> l & 1 == 1 { own } else { index[first] };
                    bad |= index >= limit;
                    *i = index as u32;
                }
            }
        } else {
            *out = *u32::lanes(files, inst.a);
            if mask != u32::MAX {
                let own = out[first];
                for (l, i) in out.iter_mut().enumerate() {
                    *i = if mask >> l & 1 == 1 { *i } else { own };
                }
            }
            let mut worst = 0;
            for &index in &*out {
                worst = worst.max(index);
            }
            bad = u64::from(worst) >= limit;
        }
        if bad { Err(out_of_bounds(block, warp, files, inst, pc, len, limit)) } else { Ok(()) }
    }
}

/// # Safety
/// The index register is in its file.
#[cold]
#[inline(never)]
unsafe fn out_of_bounds(
    block: &BlockState,
    warp: &Warp,
    files: Files,
    inst: Inst,
    pc: u32,
    len: u64,
    limit: u64,
) -> Box<Trap> {
    // SAFETY: by the caller.
    let index = |l: usize| unsafe {
        if inst.flags.has(Flags::INDEX64) {
            (*i64::lanes(files, inst.a))[l]
        } else {
            i64::from((*i32::lanes(files, inst.a))[l])
        }
    };
    let lane = (0..LANES).find(|&l| warp.mask >> l & 1 == 1 && index(l) as u64 >= limit).unwrap_or(0);
    let mut trap = trap(block, warp, pc, lane as u32, TrapKind::OutOfBounds { len });
    trap.buffer = Some(inst.b);
    trap.index = index(lane);
    trap
}

#[cold]
pub(crate) fn at(mut trap: Box<Trap>, buffer: u16, index: u32) -> Box<Trap> {
    trap.buffer = Some(buffer);
    trap.index = index.into();
    trap
}

/// How an access touches memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
    Atomic,
}

/// What an access does.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    pub(crate) global: bool,
    /// Elements at each index.
    pub(crate) width: u32,
    pub(crate) kind: AccessKind,
}

/// Runs the detectors over an access of `width` elements at each index.
#[inline(always)]
pub(crate) fn detect(
    machine: &mut Machine,
    block: &BlockState,
    warp: &Warp,
    inst: Inst,
    pc: u32,
    index: &Indices,
    touch: Touch,
) -> Checked {
    let Touch { global, width, kind } = touch;
    if shadow(machine, block, global, inst.b).is_none() {
        return Ok(());
    }
    let event = machine.next_event(pc);
    if event > crate::shadow::MAX_EVENT {
        let kind = TrapKind::StepLimit { limit: crate::shadow::MAX_EVENT };
        return Err(trap(block, warp, pc, 0, kind));
    }
    let machine = &*machine;
    let Some(shadow) = shadow(machine, block, global, inst.b) else { return Ok(()) };
    let first = warp.index * LANES as u32;
    let exchange = machine.parallel && global;
    if !exchange && kind != AccessKind::Atomic {
        let base = if global { machine.grid_base } else { block.ordered_before };
        let new = Cell::new(event, block.linear, first);
        // SAFETY: the indices are in bounds.
        if unsafe { shadow.quiet(index, width, warp.mask, Cell::before(base), new, kind == AccessKind::Write) } {
            return Ok(());
        }
    }
    let view = machine.view(block, warp.ordered_before);
    let mut bad: Option<(usize, u32, Wrong)> = None;
    each(warp.mask, |l| {
        let thread = first + l as u32;
        let new = Cell::new(event, block.linear, thread);
        for k in 0..width {
            let i = (index[l] + k) as usize;
            let wrong = match kind {
                AccessKind::Read => shadow.read(i, &view, new, thread),
                AccessKind::Write if exchange => shadow.write_shared(i, &view, new, thread),
                AccessKind::Write => shadow.write(i, &view, new, thread),
                AccessKind::Atomic => shadow.atomic(i, &view, new, thread),
            };
            if let Some(wrong) = wrong
                && bad.is_none()
            {
                bad = Some((l, index[l] + k, wrong));
            }
        }
    });
    match bad {
        None => Ok(()),
        Some((lane, index, wrong)) => {
            let kind = machine.wrong(wrong, kind != AccessKind::Read, kind == AccessKind::Atomic);
            Err(at(trap(block, warp, pc, lane as u32, kind), inst.b, index))
        }
    }
}

#[cold]
#[inline(never)]
pub(crate) fn misaligned(
    block: &BlockState,
    warp: &Warp,
    inst: Inst,
    pc: u32,
    place: &BufferView,
    index: &Indices,
    bytes: u64,
) -> Box<Trap> {
    let offset = |l: usize| (place.address + u64::from(index[l]) * place.elem.bytes() as u64) % bytes;
    let lane = (0..LANES).find(|&l| warp.mask >> l & 1 == 1 && offset(l) != 0).unwrap_or(0);
    let kind = TrapKind::Misaligned { bytes: bytes as u32, offset: offset(lane) as u32 };
    at(trap(block, warp, pc, lane as u32, kind), inst.b, index[lane])
}

/// Counts sectors or wavefronts of an access.
#[inline(always)]
pub(crate) fn count(machine: &mut Machine, warp: &Warp, place: &BufferView, index: &Indices, width: u32, write: bool) {
    let bytes = place.elem.bytes() as u64 * u64::from(width);
    let address = |l: usize| place.address + u64::from(index[l]) * place.elem.bytes() as u64;
    if warp.mask == u32::MAX && dense(index, width) {
        // One run of memory: the formulas of `counters` in closed form.
        let counters = &mut machine.counters;
        let (first, total) = (address(0), bytes * LANES as u64);
        if !place.global {
            counters.shared_wavefronts += if bytes < 4 { 1 } else { total / 128 };
            return;
        }
        let (touched, ideal) = ((first + total - 1) / 32 + 1 - first / 32, total / 32);
        if write {
            counters.store_sectors += touched;
            counters.store_sectors_ideal += ideal;
            counters.store_bytes += total;
        } else {
            counters.load_sectors += touched;
            counters.load_sectors_ideal += ideal;
            counters.load_bytes += total;
        }
        return;
    }
    if !place.global && bytes == 4 && warp.mask == u32::MAX {
        let mut banks = 0u32;
        for &i in index {
            banks |= 1 << ((place.address as u32 / 4 + i) % 32);
        }
        if banks == u32::MAX {
            machine.counters.shared_wavefronts += 1;
            return;
        }
    }
    count_scattered(machine, warp, place, index, bytes, write);
}

#[inline(never)]
fn count_scattered(machine: &mut Machine, warp: &Warp, place: &BufferView, index: &Indices, bytes: u64, write: bool) {
    let address = |l: usize| place.address + u64::from(index[l]) * place.elem.bytes() as u64;
    let active = u64::from(warp.mask.count_ones());
    let counters = &mut machine.counters;
    if place.global {
        let mut addresses = [0u64; LANES];
        let mut n = 0;
        each(warp.mask, |l| {
            addresses[n] = address(l);
            n += 1;
        });
        let (touched, ideal) = counters::sectors(&mut addresses[..n], bytes);
        if write {
            counters.store_sectors += touched;
            counters.store_sectors_ideal += ideal;
            counters.store_bytes += active * bytes;
        } else {
            counters.load_sectors += touched;
            counters.load_sectors_ideal += ideal;
            counters.load_bytes += active * bytes;
        }
    } else {
        let mut lanes = [(0u32, 0u64); LANES];
        let mut n = 0;
        each(warp.mask, |l| {
            lanes[n] = (l as u32, address(l));
            n += 1;
        });
        let (total, extra) = counters::wavefronts(&lanes[..n], bytes);
        counters.shared_wavefronts += total;
        counters.bank_conflicts += extra;
    }
}

/// Whether lane `l` is at `index[0] + l * width`.
#[inline(always)]
pub(crate) fn dense(index: &Indices, width: u32) -> bool {
    let mut difference = 0;
    for (l, &i) in index.iter().enumerate() {
        difference |= i ^ index[0].wrapping_add(l as u32 * width);
    }
    difference == 0
}
