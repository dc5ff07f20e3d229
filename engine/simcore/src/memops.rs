//! Instructions on global and shared memory: the data movement.

use crate::LANES;
use crate::access::{
    AccessKind, BufferView, Checked, Indices, Touch, count, dense, detect, indices, misaligned, place,
};
use crate::block::BlockState;
use crate::exec::{Machine, each};
use crate::lanes::{Files, Lane};
use crate::localops::unset;
use crate::program::{AtomicKind, Elem, Flags, Inst};
use crate::warp::Warp;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

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
    block: &mut BlockState,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    // SAFETY: registers by validation, indices by `indices`.
    unsafe {
        let mut index = [0; LANES];
        indices(block, warp, files, inst, pc, (place.len, 1), &mut index)?;
        if CHECK {
            detect(
                machine,
                block,
                warp,
                inst,
                pc,
                &index,
                Touch { global: place.global, width: 1, kind: AccessKind::Read },
            )?;
        }
        if machine.count {
            count(machine, warp, &place, &index, 1, false);
        }
        match place.elem {
            Elem::B32 => fetch::<u32, u32>(place.base, &index, files, inst.d, |v| v),
            Elem::U16 => fetch::<u16, u32>(place.base, &index, files, inst.d, u32::from),
            Elem::I16 => fetch::<i16, i32>(place.base, &index, files, inst.d, i32::from),
            Elem::B64 => fetch::<u64, u64>(place.base, &index, files, inst.d, |v| v),
            Elem::B128 => fetch::<u128, u128>(place.base, &index, files, inst.d, |v| v),
            Elem::U8 => fetch::<u8, u32>(place.base, &index, files, inst.d, u32::from),
            Elem::I8 => fetch::<i8, i32>(place.base, &index, files, inst.d, i32::from),
        }
    }
    Ok(())
}

/// Stores one value a lane at `index`. Where blocks of other host threads may
/// store to the same element, each store is atomic.
macro_rules! put {
    ($place:expr, $index:expr, $mask:expr, $shared:expr, $values:expr, $t:ty, $atomic:ty) => {{
        let base = $place.base.cast::<$t>();
        let values = &*$values;
        if !$shared && $mask == u32::MAX && dense(&$index, 1) {
            let mut narrow = [0 as $t; LANES];
            for (to, &from) in narrow.iter_mut().zip(values) {
                *to = from as $t;
            }
            *base.add($index[0] as usize).cast() = narrow;
        } else {
            each($mask, |l| {
                <$atomic>::from_ptr(base.add($index[l] as usize)).store(values[l] as $t, Relaxed);
            });
        }
    }};
}

/// Stores a pair of words a lane at `index`, each atomically: hosts have no atomic
/// pair, and lanes of other threads that store to the same element race anyway.
///
/// # Safety
/// All indices are in bounds of `place`, `reg` is in its file.
#[inline(always)]
unsafe fn put_pairs(place: &BufferView, index: &Indices, (mask, shared): (u32, bool), files: Files, reg: u16) {
    // SAFETY: by the caller.
    unsafe {
        let values = &*u128::lanes(files, reg);
        if !shared && mask == u32::MAX && dense(index, 1) {
            *place.base.cast::<u128>().add(index[0] as usize).cast() = *values;
            return;
        }
        let base = place.base.cast::<u64>();
        each(mask, |l| {
            for (half, word) in [values[l] as u64, (values[l] >> 64) as u64].into_iter().enumerate() {
                AtomicU64::from_ptr(base.add(2 * index[l] as usize + half)).store(word, Relaxed);
            }
        });
    }
}

#[inline(always)]
pub(crate) unsafe fn store<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
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
        let mut index = [0; LANES];
        indices(block, warp, files, inst, pc, (place.len, 1), &mut index)?;
        if CHECK {
            detect(
                machine,
                block,
                warp,
                inst,
                pc,
                &index,
                Touch { global: place.global, width: 1, kind: AccessKind::Write },
            )?;
        }
        if machine.count {
            count(machine, warp, &place, &index, 1, true);
        }
        let (mask, shared) = (warp.mask, machine.parallel && place.global);
        match place.elem {
            Elem::B32 => put!(place, index, mask, shared, u32::lanes(files, inst.c), u32, AtomicU32),
            Elem::U16 | Elem::I16 => put!(place, index, mask, shared, u32::lanes(files, inst.c), u16, AtomicU16),
            Elem::B64 => put!(place, index, mask, shared, u64::lanes(files, inst.c), u64, AtomicU64),
            Elem::B128 => put_pairs(&place, &index, (mask, shared), files, inst.c),
            Elem::U8 | Elem::I8 => put!(place, index, mask, shared, u32::lanes(files, inst.c), u8, AtomicU8),
        }
    }
    Ok(())
}

/// A move of `inst.c` elements between memory and local registers.
#[inline(always)]
pub(crate) unsafe fn vector_move<const CHECK: bool, const IN: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
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
        if IN && inst.flags.has(Flags::UNALIGNED) && reaches_outside(warp, files, inst, place.len) {
            load_partly_outside::<CHECK>(machine, warp, files, inst, &place);
            return Ok(());
        }
        let mut index = [0; LANES];
        indices(block, warp, files, inst, pc, (place.len, width.into()), &mut index)?;
        let bytes = u64::from(width) * place.elem.bytes() as u64;
        let mut offset = 0;
        for &i in &index {
            offset |= (place.address + u64::from(i) * place.elem.bytes() as u64) & (bytes - 1);
        }
        if offset != 0 && !inst.flags.has(Flags::UNALIGNED) {
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
            let kind = if IN { AccessKind::Read } else { AccessKind::Write };
            detect(machine, block, warp, inst, pc, &index, Touch { global: place.global, width, kind })?;
        }
        if machine.count {
            count(machine, warp, &place, &index, width, !IN);
        }
        if CHECK && IN {
            for k in 0..width {
                warp.init[(inst.imm + k) as usize] |= mask;
            }
        }
        let shared = machine.parallel && place.global;
        if mask == u32::MAX && (IN || !shared) && dense(&index, width) {
            let start = index[0] as usize;
            match (width, place.elem) {
                (2, Elem::B32) => interleaved::<2, IN, u32, u32>(place.base, start, files, inst.d, |v| v, |v| v),
                (4, Elem::B32) => interleaved::<4, IN, u32, u32>(place.base, start, files, inst.d, |v| v, |v| v),
                (2, Elem::U16) => {
                    interleaved::<2, IN, u16, u32>(place.base, start, files, inst.d, u32::from, |v| v as u16)
                }
                (4, Elem::U16) => {
                    interleaved::<4, IN, u16, u32>(place.base, start, files, inst.d, u32::from, |v| v as u16)
                }
                (8, Elem::U16) => {
                    interleaved::<8, IN, u16, u32>(place.base, start, files, inst.d, u32::from, |v| v as u16)
                }
                (2, Elem::B64) => interleaved::<2, IN, u64, u64>(place.base, start, files, inst.d, |v| v, |v| v),
                _ => elements::<IN>(&place, &index, files, inst, mask, shared),
            }
        } else {
            elements::<IN>(&place, &index, files, inst, mask, shared);
        }
    }
    Ok(())
}

/// Indices of elements that may lie outside of a buffer.
///
/// # Safety
/// The index register is in its file.
#[inline(always)]
unsafe fn signed_index(files: Files, inst: Inst, lane: usize) -> i64 {
    // SAFETY: by the caller.
    unsafe {
        match inst.flags.has(Flags::INDEX64) {
            true => (&*u64::lanes(files, inst.a))[lane] as i64,
            false => i64::from((&*u32::lanes(files, inst.a))[lane] as i32),
        }
    }
}

/// Whether some lane's elements are not all inside of a buffer of so many.
///
/// # Safety
/// The index register is in its file.
unsafe fn reaches_outside(warp: &Warp, files: Files, inst: Inst, len: u64) -> bool {
    let mut outside = false;
    each(warp.mask, |l| {
        // SAFETY: by the caller.
        let index = unsafe { signed_index(files, inst, l) };
        outside |= index < 0 || index as u64 + u64::from(inst.c) > len;
    });
    outside
}

/// A load of elements of which some are outside: those get a pattern that is easily seen.
///
/// # Safety
/// As `vector_move`.
#[inline(never)]
unsafe fn load_partly_outside<const CHECK: bool>(
    machine: &mut Machine,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    place: &BufferView,
) {
    let (mask, width) = (warp.mask, u32::from(inst.c));
    // SAFETY: by the caller; each element is tested.
    unsafe {
        if machine.count && place.len >= width.into() {
            // Lanes that have nothing of the buffer read nothing.
            let (mut index, last) = ([0; LANES], place.len as i64 - i64::from(width));
            each(mask, |l| {
                let first = signed_index(files, inst, l);
                index[l] = first.clamp(0, last) as u32;
                if first <= -i64::from(width) || first >= place.len as i64 {
                    warp.mask &= !(1 << l);
                }
            });
            count(machine, warp, place, &index, width, false);
            warp.mask = mask;
        }
        for k in 0..inst.c {
            each(mask, |l| {
                let i = signed_index(files, inst, l) + i64::from(k);
                let inside = (0..place.len as i64).contains(&i);
                let at = place.base.wrapping_offset(i as isize * place.elem.bytes() as isize);
                let bits = match (inside, place.elem) {
                    (false, _) => u128::MAX,
                    (true, Elem::U8) => u128::from(*at),
                    (true, Elem::I8) => *at.cast::<i8>() as u128,
                    (true, Elem::U16) => u128::from(*at.cast::<u16>()),
                    (true, Elem::I16) => *at.cast::<i16>() as u128,
                    (true, Elem::B32) => u128::from(*at.cast::<u32>()),
                    (true, Elem::B64) => u128::from(*at.cast::<u64>()),
                    (true, Elem::B128) => *at.cast::<u128>(),
                };
                match place.elem {
                    Elem::B128 => (&mut *u128::lanes(files, inst.d + k))[l] = bits,
                    Elem::B64 => (&mut *u64::lanes(files, inst.d + k))[l] = bits as u64,
                    Elem::U8 | Elem::U16 if !inside => {
                        (&mut *u32::lanes(files, inst.d + k))[l] = u32::MAX >> (32 - 8 * place.elem.bytes());
                    }
                    _ => (&mut *u32::lanes(files, inst.d + k))[l] = bits as u32,
                }
            });
            if CHECK {
                warp.init[inst.imm as usize + usize::from(k)] |= mask;
            }
        }
    }
}

/// A move whose lanes follow each other in memory, as one run of `32 * W` elements.
///
/// # Safety
/// The run is in bounds of `base`, registers `d..d + W` in their file.
#[inline(always)]
unsafe fn interleaved<const W: usize, const IN: bool, T: Copy, D: Lane>(
    base: *mut u8,
    start: usize,
    files: Files,
    d: u16,
    widen: impl Fn(T) -> D,
    narrow: impl Fn(D) -> T,
) {
    // SAFETY: by the caller.
    unsafe {
        let run = base.cast::<T>().add(start).cast::<[[T; W]; LANES]>();
        for k in 0..W {
            let lanes = D::lanes(files, d + k as u16);
            if IN {
                let values: [T; LANES] = std::array::from_fn(|l| (*run)[l][k]);
                for (to, &from) in (*lanes).iter_mut().zip(&values) {
                    *to = widen(from);
                }
            } else {
                let values = *lanes;
                for (to, &from) in (*run).iter_mut().zip(&values) {
                    to[k] = narrow(from);
                }
            }
        }
    }
}

/// A move element by element.
///
/// # Safety
/// As `vector_move`, with indices in bounds.
#[inline(always)]
unsafe fn elements<const IN: bool>(
    place: &BufferView,
    index: &Indices,
    files: Files,
    inst: Inst,
    mask: u32,
    shared: bool,
) {
    // SAFETY: by the caller.
    unsafe {
        for k in 0..inst.c {
            let reg = inst.d + k;
            let mut index = *index;
            for i in &mut index {
                *i += u32::from(k);
            }
            if IN {
                match place.elem {
                    Elem::B32 => take::<u32, u32>(place.base, &index, files, reg, mask, |v| v),
                    Elem::U16 => take::<u16, u32>(place.base, &index, files, reg, mask, u32::from),
                    Elem::I16 => take::<i16, i32>(place.base, &index, files, reg, mask, i32::from),
                    Elem::B64 => take::<u64, u64>(place.base, &index, files, reg, mask, |v| v),
                    Elem::B128 => take::<u128, u128>(place.base, &index, files, reg, mask, |v| v),
                    Elem::U8 => take::<u8, u32>(place.base, &index, files, reg, mask, u32::from),
                    Elem::I8 => take::<i8, i32>(place.base, &index, files, reg, mask, i32::from),
                }
            } else {
                match place.elem {
                    Elem::B32 => put!(place, index, mask, shared, u32::lanes(files, reg), u32, AtomicU32),
                    Elem::U16 | Elem::I16 => put!(place, index, mask, shared, u32::lanes(files, reg), u16, AtomicU16),
                    Elem::B64 => put!(place, index, mask, shared, u64::lanes(files, reg), u64, AtomicU64),
                    Elem::B128 => put_pairs(place, &index, (mask, shared), files, reg),
                    Elem::U8 | Elem::I8 => put!(place, index, mask, shared, u32::lanes(files, reg), u8, AtomicU8),
                }
            }
        }
    }
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

/// Lanes update memory one after the other, ascending. Programs with atomics on
/// global memory run on one host thread, so the updates may be plain.
#[inline(never)]
pub(crate) unsafe fn atomic<const CHECK: bool>(
    machine: &mut Machine,
    block: &mut BlockState,
    warp: &mut Warp,
    files: Files,
    inst: Inst,
    pc: u32,
) -> Checked {
    let decl = &machine.program.buffers[inst.b as usize];
    let place = place(machine, block, decl, inst.b);
    // SAFETY: registers by validation, indices by `indices`.
    unsafe {
        let mut index = [0; LANES];
        indices(block, warp, files, inst, pc, (place.len, 1), &mut index)?;
        if CHECK {
            detect(
                machine,
                block,
                warp,
                inst,
                pc,
                &index,
                Touch { global: place.global, width: 1, kind: AccessKind::Atomic },
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
