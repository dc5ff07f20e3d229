//! Memory instructions: bounds, detectors, counters, and the data movement.

use crate::LANES;
use crate::block::Block;
use crate::counters;
use crate::exec::{Machine, each, trap};
use crate::lanes::{Files, Lane};
use crate::program::{AtomicKind, BufferDecl, Elem, Flags, Inst, SpaceKind};
use crate::shadow::{Cell, Shadow, Wrong};
use crate::trap::{Trap, TrapKind};
use crate::warp::Warp;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

type Checked<T = ()> = Result<T, Box<Trap>>;

/// Element indices of all lanes; lanes outside the mask repeat an active one.
type Indices = [u32; LANES];

/// A buffer as one access sees it.
#[derive(Clone, Copy)]
struct Place {
    base: *mut u8,
    len: u64,
    address: u64,
    elem: Elem,
    global: bool,
}

#[inline(always)]
fn place(machine: &Machine, block: &Block, decl: &BufferDecl, buffer: u16) -> Place {
    match decl.space {
        SpaceKind::Global => {
            let global = &machine.globals[buffer as usize];
            Place { base: global.base(), len: global.len, address: global.address, elem: decl.elem, global: true }
        }
        SpaceKind::Shared { offset } => Place {
            base: block.shared_at(offset),
            len: decl.len,
            address: offset.into(),
            elem: decl.elem,
            global: false,
        },
    }
}

#[inline(always)]
fn shadow<'a>(machine: &'a Machine, block: &'a Block, global: bool, buffer: u16) -> Option<&'a Shadow> {
    if global { machine.shadows[buffer as usize].as_ref() } else { block.shadows[buffer as usize].as_ref() }
}

/// The indices of an access to `width` consecutive elements, all in bounds.
///
/// # Safety
/// The index register is in its file.
#[inline(always)]
unsafe fn indices(
    block: &Block,
    warp: &Warp,
    files: Files,
    inst: Inst,
    pc: u32,
    len: u64,
    width: u64,
) -> Checked<Indices> {
    // Number of indices at which the whole access fits.
    let limit = (len + 1).saturating_sub(width);
    let mut out = [0u32; LANES];
    let (mask, first) = (warp.mask, warp.mask.trailing_zeros() as usize & 31);
    // SAFETY: the register is in its file.
    unsafe {
        if inst.flags.has(Flags::INDEX64) {
            let mut index = *u64::lanes(files, inst.a);
            if mask != u32::MAX {
                let own = index[first];
                for (l, i) in index.iter_mut().enumerate() {
                    *i = if mask >> l & 1 == 1 { *i } else { own };
                }
            }
            let mut bad = false;
            for l in 0..LANES {
                bad |= index[l] >= limit;
                out[l] = index[l] as u32;
            }
            if bad {
                return Err(out_of_bounds(block, warp, inst, pc, len, limit, |l| index[l] as i64));
            }
        } else {
            out = *u32::lanes(files, inst.a);
            if mask != u32::MAX {
                let own = out[first];
                for (l, i) in out.iter_mut().enumerate() {
                    *i = if mask >> l & 1 == 1 { *i } else { own };
                }
            }
            let mut worst = 0;
            for &index in &out {
                worst = worst.max(index);
            }
            if u64::from(worst) >= limit {
                return Err(out_of_bounds(block, warp, inst, pc, len, limit, |l| i64::from(out[l] as i32)));
            }
        }
    }
    Ok(out)
}

#[cold]
#[inline(never)]
fn out_of_bounds(
    block: &Block,
    warp: &Warp,
    inst: Inst,
    pc: u32,
    len: u64,
    limit: u64,
    index: impl Fn(usize) -> i64,
) -> Box<Trap> {
    let lane = (0..LANES).find(|&l| warp.mask >> l & 1 == 1 && index(l) as u64 >= limit).unwrap_or(0);
    let mut trap = trap(block, warp, pc, lane as u32, TrapKind::OutOfBounds { len });
    trap.buffer = Some(inst.b);
    trap.index = index(lane);
    trap
}

#[cold]
fn at(mut trap: Box<Trap>, buffer: u16, index: u32) -> Box<Trap> {
    trap.buffer = Some(buffer);
    trap.index = index.into();
    trap
}

/// How an access touches memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Atomic,
}

/// What an access does.
#[derive(Clone, Copy)]
struct Touch {
    global: bool,
    /// Elements at each index.
    width: u32,
    kind: Kind,
}

/// Runs the detectors over an access of `width` elements at each index.
#[inline(always)]
fn detect(
    machine: &mut Machine,
    block: &Block,
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
    if !exchange && kind != Kind::Atomic {
        let base = if global { machine.grid_base } else { block.ordered_before };
        let new = Cell::new(event, block.linear, first);
        // SAFETY: the indices are in bounds.
        if unsafe { shadow.quiet(index, width, warp.mask, Cell::before(base), new, kind == Kind::Write) } {
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
                Kind::Read => shadow.read(i, &view, new, thread),
                Kind::Write if exchange => shadow.write_shared(i, &view, new, thread),
                Kind::Write => shadow.write(i, &view, new, thread),
                Kind::Atomic => shadow.atomic(i, &view, new, thread),
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
            let kind = machine.wrong(wrong, kind != Kind::Read, kind == Kind::Atomic);
            Err(at(trap(block, warp, pc, lane as u32, kind), inst.b, index))
        }
    }
}

/// Counts sectors or wavefronts of an access.
#[inline(always)]
fn count(machine: &mut Machine, warp: &Warp, place: &Place, index: &Indices, width: u32, write: bool) {
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
fn count_scattered(machine: &mut Machine, warp: &Warp, place: &Place, index: &Indices, bytes: u64, write: bool) {
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
fn dense(index: &Indices, width: u32) -> bool {
    let mut difference = 0;
    for (l, &i) in index.iter().enumerate() {
        difference |= i ^ index[0].wrapping_add(l as u32 * width);
    }
    difference == 0
}

/// # Safety
/// All indices are in bounds of `base`, `d` is in its file.
#[inline(always)]
unsafe fn fetch<T: Copy, D: Lane>(base: *const u8, index: &Indices, files: Files, d: u16, f: impl Fn(T) -> D) {
    // SAFETY: by the caller; elements are aligned because buffers are.
    unsafe {
        let base = base.cast::<T>();
        let out = &mut *D::lanes(files, d);
        if dense(index, 1) {
            let values: [T; LANES] = *base.add(index[0] as usize).cast();
            for l in 0..LANES {
                out[l] = f(values[l]);
            }
        } else {
            for l in 0..LANES {
                out[l] = f(*base.add(index[l] as usize));
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn load<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut Block,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    // SAFETY: registers by validation, indices by `indices`.
    unsafe {
        let index = indices(block, warp, files, inst, pc, place.len, 1)?;
        if CHECK {
            detect(machine, block, warp, inst, pc, &index, Touch { global: place.global, width: 1, kind: Kind::Read })?;
        }
        if machine.count {
            count(machine, warp, &place, &index, 1, false);
        }
        match place.elem {
            Elem::B32 => fetch::<u32, u32>(place.base, &index, files, inst.d, |v| v),
            Elem::U16 => fetch::<u16, u32>(place.base, &index, files, inst.d, u32::from),
            Elem::B64 => fetch::<u64, u64>(place.base, &index, files, inst.d, |v| v),
            Elem::U8 => fetch::<u8, u32>(place.base, &index, files, inst.d, u32::from),
            Elem::I8 => fetch::<i8, i32>(place.base, &index, files, inst.d, i32::from),
        }
    }
    Ok(())
}

macro_rules! put {
    ($base:expr, $index:expr, $mask:expr, $values:expr, $t:ty, $atomic:ty) => {{
        let base = $base.cast::<$t>();
        let values = $values;
        each($mask, |l| {
            <$atomic>::from_ptr(base.add($index[l] as usize)).store(values[l] as $t, Relaxed);
        });
    }};
}

#[inline(always)]
pub(crate) unsafe fn store<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut Block,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    // SAFETY: registers by validation, indices by `indices`. Stores are atomic
    // because blocks on other host threads may store to the same element.
    unsafe {
        let index = indices(block, warp, files, inst, pc, place.len, 1)?;
        if CHECK {
            detect(
                machine,
                block,
                warp,
                inst,
                pc,
                &index,
                Touch { global: place.global, width: 1, kind: Kind::Write },
            )?;
        }
        if machine.count {
            count(machine, warp, &place, &index, 1, true);
        }
        let mask = warp.mask;
        match place.elem {
            Elem::B32 => put!(place.base, index, mask, *u32::lanes(files, inst.c), u32, AtomicU32),
            Elem::U16 => put!(place.base, index, mask, *u32::lanes(files, inst.c), u16, AtomicU16),
            Elem::B64 => put!(place.base, index, mask, *u64::lanes(files, inst.c), u64, AtomicU64),
            Elem::U8 | Elem::I8 => put!(place.base, index, mask, *u32::lanes(files, inst.c), u8, AtomicU8),
        }
    }
    Ok(())
}

/// A move of `inst.c` elements between memory and local registers.
#[inline(always)]
pub(crate) unsafe fn vector_move<const CHECK: bool, const IN: bool>(
    machine: &mut Machine,
    block: &mut Block,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    let width = u32::from(inst.c);
    let mask = warp.mask;
    // SAFETY: registers `d..d + c` and slots `imm..imm + c` by validation,
    // indices by `indices`.
    unsafe {
        let index = indices(block, warp, files, inst, pc, place.len, width.into())?;
        let bytes = u64::from(width) * place.elem.bytes() as u64;
        let mut offset = 0;
        for &i in &index {
            offset |= (place.address + u64::from(i) * place.elem.bytes() as u64) & (bytes - 1);
        }
        if offset != 0 {
            return Err(misaligned(block, warp, inst, pc, &place, &index, bytes));
        }
        if CHECK && !IN {
            for k in 0..width {
                let missing = mask & !warp.init[(inst.imm + k) as usize];
                if missing != 0 {
                    return Err(unset(block, warp, pc, inst.imm + k, missing, k.into()));
                }
            }
        }
        if CHECK {
            let kind = if IN { Kind::Read } else { Kind::Write };
            detect(machine, block, warp, inst, pc, &index, Touch { global: place.global, width, kind })?;
        }
        if machine.count {
            count(machine, warp, &place, &index, width, !IN);
        }
        for k in 0..width {
            let reg = inst.d + k as u16;
            let mut index = index;
            for i in &mut index {
                *i += k;
            }
            if IN {
                if CHECK {
                    warp.init[(inst.imm + k) as usize] |= mask;
                }
                match place.elem {
                    Elem::B32 => take::<u32, u32>(place.base, &index, files, reg, mask, |v| v),
                    Elem::U16 => take::<u16, u32>(place.base, &index, files, reg, mask, u32::from),
                    Elem::B64 => take::<u64, u64>(place.base, &index, files, reg, mask, |v| v),
                    Elem::U8 => take::<u8, u32>(place.base, &index, files, reg, mask, u32::from),
                    Elem::I8 => take::<i8, i32>(place.base, &index, files, reg, mask, i32::from),
                }
            } else {
                match place.elem {
                    Elem::B32 => put!(place.base, index, mask, *u32::lanes(files, reg), u32, AtomicU32),
                    Elem::U16 => put!(place.base, index, mask, *u32::lanes(files, reg), u16, AtomicU16),
                    Elem::B64 => put!(place.base, index, mask, *u64::lanes(files, reg), u64, AtomicU64),
                    Elem::U8 | Elem::I8 => put!(place.base, index, mask, *u32::lanes(files, reg), u8, AtomicU8),
                }
            }
        }
    }
    Ok(())
}

/// As `fetch`, into a local register: lanes outside the mask keep their value.
///
/// # Safety
/// As `fetch`.
#[inline(always)]
unsafe fn take<T: Copy, D: Lane>(
    base: *const u8,
    index: &Indices,
    files: Files,
    d: u16,
    mask: u32,
    f: impl Fn(T) -> D,
) {
    // SAFETY: by the caller.
    unsafe {
        let base = base.cast::<T>();
        let out = &mut *D::lanes(files, d);
        each(mask, |l| out[l] = f(*base.add(index[l] as usize)));
    }
}

#[cold]
#[inline(never)]
fn misaligned(
    block: &Block,
    warp: &Warp,
    inst: Inst,
    pc: u32,
    place: &Place,
    index: &Indices,
    bytes: u64,
) -> Box<Trap> {
    let offset = |l: usize| (place.address + u64::from(index[l]) * place.elem.bytes() as u64) % bytes;
    let lane = (0..LANES).find(|&l| warp.mask >> l & 1 == 1 && offset(l) != 0).unwrap_or(0);
    let kind = TrapKind::Misaligned { bytes: bytes as u32, offset: offset(lane) as u32 };
    at(trap(block, warp, pc, lane as u32, kind), inst.b, index[lane])
}

/// A read of local memory that some lane did not write.
#[cold]
#[inline(never)]
fn unset(block: &Block, warp: &Warp, pc: u32, slot: u32, missing: u32, index: i64) -> Box<Trap> {
    let mut trap = trap(block, warp, pc, missing.trailing_zeros(), TrapKind::Uninitialised);
    trap.slot = Some(slot);
    trap.index = index;
    trap
}

#[inline(always)]
unsafe fn copy_lanes<T: Lane>(files: Files, d: u16, a: u16, mask: u32) {
    // SAFETY: registers by the caller.
    unsafe {
        let (a, d) = (*T::lanes(files, a), &mut *T::lanes(files, d));
        if mask == u32::MAX {
            *d = a;
        } else {
            for l in 0..LANES {
                d[l] = if mask >> l & 1 == 1 { a[l] } else { d[l] };
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn local_get<const CHECK: bool>(
    block: &Block,
    warp: &Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    if CHECK {
        let missing = warp.mask & !warp.init[inst.imm as usize];
        if missing != 0 {
            return Err(unset(block, warp, pc, inst.imm, missing, 0));
        }
    }
    // SAFETY: registers by validation; a temporary is written in all lanes.
    unsafe {
        if inst.flags.has(Flags::WIDE) {
            copy_lanes::<u64>(files, inst.d, inst.a, u32::MAX);
        } else {
            copy_lanes::<u32>(files, inst.d, inst.a, u32::MAX);
        }
    }
    Ok(())
}

#[inline(always)]
pub(crate) unsafe fn local_set<const CHECK: bool>(warp: &mut Warp, files: Files, inst: Inst) {
    if CHECK {
        warp.init[inst.imm as usize] |= warp.mask;
    }
    // SAFETY: registers by validation.
    unsafe {
        if inst.flags.has(Flags::WIDE) {
            copy_lanes::<u64>(files, inst.d, inst.a, warp.mask);
        } else {
            copy_lanes::<u32>(files, inst.d, inst.a, warp.mask);
        }
    }
}

/// The index of each lane into `inst.c` local registers.
unsafe fn local_indices(block: &Block, warp: &Warp, files: Files, inst: Inst, reg: u16, pc: u32) -> Checked<Indices> {
    // SAFETY: `reg` by validation; `indices` reads field `a`.
    let index = unsafe { indices(block, warp, files, Inst { a: reg, ..inst }, pc, inst.c.into(), 1) };
    index.map_err(|mut trap| {
        trap.buffer = None;
        trap.slot = Some(inst.imm);
        trap
    })
}

#[inline(never)]
pub(crate) unsafe fn local_load<const CHECK: bool>(
    block: &Block,
    warp: &Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    // SAFETY: registers `b..b + c` by validation and `local_indices`.
    unsafe {
        let index = local_indices(block, warp, files, inst, inst.a, pc)?;
        for (l, &i) in index.iter().enumerate() {
            let slot = inst.imm + i;
            if CHECK && warp.mask >> l & 1 == 1 && warp.init[slot as usize] >> l & 1 == 0 {
                return Err(unset(block, warp, pc, inst.imm, 1 << l, i.into()));
            }
            let from = inst.b + i as u16;
            if inst.flags.has(Flags::WIDE) {
                (*u64::lanes(files, inst.d))[l] = (*u64::lanes(files, from))[l];
            } else {
                (*u32::lanes(files, inst.d))[l] = (*u32::lanes(files, from))[l];
            }
        }
    }
    Ok(())
}

#[inline(never)]
pub(crate) unsafe fn local_store<const CHECK: bool>(
    block: &Block,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    // SAFETY: registers `d..d + c` by validation and `local_indices`.
    unsafe {
        let index = local_indices(block, warp, files, inst, inst.a, pc)?;
        let mask = warp.mask;
        each(mask, |l| {
            warp.init[(inst.imm + index[l]) as usize] |= 1 << l;
            let to = inst.d + index[l] as u16;
            if inst.flags.has(Flags::WIDE) {
                (*u64::lanes(files, to))[l] = (*u64::lanes(files, inst.b))[l];
            } else {
                (*u32::lanes(files, to))[l] = (*u32::lanes(files, inst.b))[l];
            }
        });
    }
    Ok(())
}

/// Lanes update memory one after the other, ascending. Programs with atomics on
/// global memory run on one host thread, so the updates may be plain.
#[inline(never)]
pub(crate) unsafe fn atomic<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut Block,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    // SAFETY: registers by validation, indices by `indices`.
    unsafe {
        let index = indices(block, warp, files, inst, pc, place.len, 1)?;
        if CHECK {
            detect(
                machine,
                block,
                warp,
                inst,
                pc,
                &index,
                Touch { global: place.global, width: 1, kind: Kind::Atomic },
            )?;
            if let Some(clocks) = &mut machine.clocks {
                let owner = if place.global { u32::MAX } else { block.linear };
                let (linear, first) = (block.linear, warp.index * 32);
                each(warp.mask, |l| {
                    let key = (inst.b, index[l].into(), owner);
                    clocks.atomic(&mut block.sync, key, linear, first + l as u32);
                });
            }
        }
        if machine.count {
            count(machine, warp, &place, &index, 1, true);
        }
        let kind = AtomicKind::ALL[inst.imm as usize];
        each(warp.mask, |l| {
            if kind == AtomicKind::AddF64 {
                let p = place.base.cast::<f64>().add(index[l] as usize);
                let old = *p;
                *p = old + (*f64::lanes(files, inst.c))[l];
                if inst.flags.has(Flags::RESULT) {
                    (*f64::lanes(files, inst.d))[l] = old;
                }
                return;
            }
            let p = place.base.cast::<u32>().add(index[l] as usize);
            let (old, value) = (*p, (*u32::lanes(files, inst.c))[l]);
            *p = match kind {
                AtomicKind::AddF32 => (f32::from_bits(old) + f32::from_bits(value)).to_bits(),
                AtomicKind::Inc => {
                    if old >= value {
                        0
                    } else {
                        old + 1
                    }
                }
                AtomicKind::MaxI32 => (old as i32).max(value as i32) as u32,
                AtomicKind::MinI32 => (old as i32).min(value as i32) as u32,
                _ => old.wrapping_add(value),
            };
            if inst.flags.has(Flags::RESULT) {
                (*u32::lanes(files, inst.d))[l] = old;
            }
        });
    }
    Ok(())
}
