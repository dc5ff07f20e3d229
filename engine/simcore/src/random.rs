//! Blocks of the random number generator Philox 4x32-10. They agree bit for bit
//! with the engine's `num::philox`; a test there compares them.

use crate::LANES;
use crate::lanes::{Files, Lane};
use crate::program::{Flags, Inst};

/// The words of a block: the seed is the key, offset and subsequence are the counter.
#[inline(always)]
pub fn block(seed: u64, offset: u64, subsequence: u64) -> [u32; 4] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut c = [offset as u32, (offset >> 32) as u32, subsequence as u32, (subsequence >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xd251_1f53, u64::from(c[2]) * 0xcd9e_8d57);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

/// A number in (0, 1] from a word.
#[inline(always)]
pub fn unit_f32(x: u32) -> f32 {
    const STEP: f32 = 1.0 / 4_294_967_296.0;
    x as f32 * STEP + STEP / 2.0
}

/// A number in (0, 1] from two words.
#[inline(always)]
pub fn unit_f64(x: u32, y: u32) -> f64 {
    const STEP: f64 = 1.0 / 9_007_199_254_740_992.0;
    (u64::from(x) ^ (u64::from(y) << 21)) as f64 * STEP + STEP / 2.0
}

/// Executes [`crate::Opcode::Random`] in all lanes.
///
/// # Safety
/// Registers `a`, `b`, `c` are in the 64-bit file; four from `d` on are in the
/// 32-bit file or, with [`Flags::WIDE`], two in the 64-bit file.
#[inline(always)]
pub(crate) unsafe fn numbers(files: Files, inst: Inst) {
    // SAFETY: by the caller.
    unsafe {
        let (seed, offset) = (*u64::lanes(files, inst.a), *u64::lanes(files, inst.b));
        let subsequence = *u64::lanes(files, inst.c);
        let mut words = [[0; 4]; LANES];
        for l in 0..LANES {
            words[l] = block(seed[l], offset[l], subsequence[l]);
        }
        if inst.flags.has(Flags::WIDE) {
            for i in 0..2 {
                let d = &mut *f64::lanes(files, inst.d + i as u16);
                for (value, block) in d.iter_mut().zip(&words) {
                    *value = unit_f64(block[2 * i], block[2 * i + 1]);
                }
            }
        } else {
            for i in 0..4 {
                let d = &mut *f32::lanes(files, inst.d + i as u16);
                for (value, block) in d.iter_mut().zip(&words) {
                    *value = unit_f32(block[i]);
                }
            }
        }
    }
}
