//! Local memory: registers with a mask of the lanes that hold a value.

use crate::LANES;
use crate::access::{Checked, Indices, indices};
use crate::block::BlockState;
use crate::exec::{each, trap};
use crate::lanes::{Files, Lane};
use crate::program::{File, Inst};
use crate::trap::{Trap, TrapKind};
use crate::warp::Warp;

/// A read of local memory that some lane did not write.
#[cold]
#[inline(never)]
pub(crate) fn unset(block: &BlockState, warp: &Warp, pc: u32, slot: u32, missing: u32, index: i64) -> Box<Trap> {
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

/// Copies one lane to a register from another one of the same file.
#[inline(always)]
unsafe fn copy_lane(files: Files, file: File, (to, from): (u16, u16), l: usize) {
    // SAFETY: registers by the caller.
    unsafe {
        match file {
            File::R32 => (*u32::lanes(files, to))[l] = (*u32::lanes(files, from))[l],
            File::R64 => (*u64::lanes(files, to))[l] = (*u64::lanes(files, from))[l],
            File::R128 => (*u128::lanes(files, to))[l] = (*u128::lanes(files, from))[l],
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn local_get<const CHECK: bool>(
    block: &BlockState,
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
        match inst.flags.value() {
            File::R32 => copy_lanes::<u32>(files, inst.d, inst.a, u32::MAX),
            File::R64 => copy_lanes::<u64>(files, inst.d, inst.a, u32::MAX),
            File::R128 => copy_lanes::<u128>(files, inst.d, inst.a, u32::MAX),
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
        match inst.flags.value() {
            File::R32 => copy_lanes::<u32>(files, inst.d, inst.a, warp.mask),
            File::R64 => copy_lanes::<u64>(files, inst.d, inst.a, warp.mask),
            File::R128 => copy_lanes::<u128>(files, inst.d, inst.a, warp.mask),
        }
    }
}

/// The index of each lane into `inst.c` local registers.
unsafe fn local_indices(
    block: &BlockState,
    warp: &Warp,
    files: Files,
    inst: Inst,
    reg: u16,
    pc: u32,
) -> Checked<Indices> {
    let mut index = [0; LANES];
    // SAFETY: `reg` by validation; `indices` reads field `a`.
    match unsafe { indices(block, warp, files, Inst { a: reg, ..inst }, pc, (inst.c.into(), 1), &mut index) } {
        Ok(()) => Ok(index),
        Err(mut trap) => {
            trap.buffer = None;
            trap.slot = Some(inst.imm);
            Err(trap)
        }
    }
}

#[inline(never)]
pub(crate) unsafe fn local_load<const CHECK: bool>(
    block: &BlockState,
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
            copy_lane(files, inst.flags.value(), (inst.d, from), l);
        }
    }
    Ok(())
}

#[inline(never)]
pub(crate) unsafe fn local_store<const CHECK: bool>(
    block: &BlockState,
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
            copy_lane(files, inst.flags.value(), (to, inst.b), l);
        });
    }
    Ok(())
}
