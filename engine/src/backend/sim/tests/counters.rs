//! Counters are exact: small kernels with counts worked out by hand.

use super::*;
use crate::kernel::{CacheHint, Scope, Unroll};

/// Runs a kernel of one warp on 4096 elements.
fn count(body: impl FnOnce(&mut KernelBuilder, BufId, BufId, ExprId)) -> Counters {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let t = tid(b);
        body(b, x, y, t);
    });
    let prepared = Prepared::new(kernel, DType::F32, 4096, f32_bytes(&[1.0; 4096]));
    let counters = prepared.run(&SimOptions::default()).unwrap().1.counters;
    for options in schedules() {
        assert_eq!(prepared.run(&options).unwrap().1.counters, counters, "counts do not depend on the schedule");
    }
    counters
}

/// Sectors of a load at `t * scale + offset`, and the ideal number.
fn load_sectors(scale: i64, offset: i64) -> (u64, u64) {
    let counters = count(|b, x, y, t| {
        let (scale, offset) = (b.int(scale), b.int(offset));
        let scaled = b.exprs().mul(t, scale);
        let at = b.exprs().add(scaled, offset);
        let v = b.load("v", x, at);
        b.store(y, t, v);
    });
    assert_eq!((counters.store_sectors, counters.store_sectors_ideal, counters.store_bytes), (4, 4, 128));
    assert_eq!(counters.load_bytes, 128);
    (counters.load_sectors, counters.load_sectors_ideal)
}

#[test]
fn sectors_of_loads() {
    // 32 lanes of 4 bytes are 4 sectors if dense and aligned.
    assert_eq!(load_sectors(1, 0), (4, 4));
    assert_eq!(load_sectors(1, 1), (5, 4));
    assert_eq!(load_sectors(1, 8), (4, 4));
    assert_eq!(load_sectors(2, 0), (8, 4));
    assert_eq!(load_sectors(8, 0), (32, 4));
    assert_eq!(load_sectors(100, 3), (32, 4));
    // All lanes at one element: one sector, and one could do.
    assert_eq!(load_sectors(0, 5), (1, 1));
}

#[test]
fn sectors_of_vector_moves() {
    let counters = count(|b, x, y, t| {
        let (four, zero) = (b.int(4), b.int(0));
        let at = b.exprs().mul(t, four);
        let local = b.local("l", DType::F32, 4);
        b.mov((local, zero), (x, at), 4, CacheHint::Default);
        b.mov((y, at), (local, zero), 4, CacheHint::Default);
    });
    assert_eq!((counters.load_sectors, counters.load_sectors_ideal, counters.load_bytes), (16, 16, 512));
    assert_eq!((counters.store_sectors, counters.store_sectors_ideal, counters.store_bytes), (16, 16, 512));
    // A move of four elements is four operations of each lane.
    assert_eq!(counters.lane_operations[Class::Global as usize], 2 * 4 * 32);
    assert_eq!(counters.warp_instructions[Class::Global as usize], 2);
}

/// (wavefronts, conflicts) of a store of `width` elements at `t * scale`.
fn conflicts(scale: i64, width: u32) -> (u64, u64) {
    let counters = count(|b, x, _, t| {
        let (scale, zero) = (b.int(scale), b.int(0));
        let at = b.exprs().mul(t, scale);
        let shared = b.shared("s", DType::F32, 2048, 16);
        if width == 1 {
            let v = b.load("v", x, t);
            b.store(shared, at, v);
        } else {
            let local = b.local("l", DType::F32, width.into());
            b.mov((local, zero), (x, zero), width, CacheHint::Default);
            b.mov((shared, at), (local, zero), width, CacheHint::Default);
        }
    });
    (counters.shared_wavefronts, counters.bank_conflicts)
}

#[test]
fn bank_conflicts() {
    assert_eq!(conflicts(1, 1), (1, 0));
    assert_eq!(conflicts(33, 1), (1, 0));
    assert_eq!(conflicts(2, 1), (2, 1));
    assert_eq!(conflicts(32, 1), (32, 31));
    // 128 bytes a wavefront: 16 lanes of 8 bytes, 8 lanes of 16 bytes.
    assert_eq!(conflicts(2, 2), (2, 0));
    assert_eq!(conflicts(4, 4), (4, 0));
    // Eight lanes 8 words apart: two words in each of four places, so 2 passes.
    assert_eq!(conflicts(8, 4), (8, 4));
}

#[test]
fn broadcast_from_shared_memory_is_one_wavefront() {
    let counters = count(|b, x, y, t| {
        let zero = b.int(0);
        let shared = b.shared("s", DType::F32, 32, 16);
        let v = b.load("v", x, t);
        b.store(shared, t, v);
        b.sync(Scope::Block);
        let w = b.load("w", shared, zero);
        b.store(y, t, w);
    });
    assert_eq!((counters.shared_wavefronts, counters.bank_conflicts), (2, 0));
    assert_eq!(counters.block_barriers, 1);
}

#[test]
fn instructions_by_class_and_divergence() {
    let counters = count(|b, x, y, t| {
        let (rounds, zero) = (b.int(3), b.int(0));
        let (half, acc) = (b.int(16), b.local("acc", DType::F32, 1));
        let v = b.load("v", x, t);
        b.store(acc, zero, v);
        b.count("j", rounds, Unroll::No, |b, _| {
            let a = b.load("a", acc, zero);
            let s = b.exprs().binary(BinaryOp::Mul, a, v);
            b.store(acc, zero, s);
        });
        let low = b.exprs().lt(t, half);
        b.if_(low, |b| {
            let a = b.load("r", acc, zero);
            b.store(y, t, a);
        });
    });
    let lanes = |class: Class| counters.lane_operations[class as usize];
    assert_eq!(lanes(Class::Float), 3 * 32, "one product a round");
    assert_eq!(lanes(Class::Local), (1 + 3 * 2) * 32 + 16);
    assert_eq!(lanes(Class::Global), 32 + 16);
    // The comparison; loop entry and three ends of a round, branch, join, end.
    assert_eq!(lanes(Class::Integer), 32);
    assert_eq!(lanes(Class::Control), 32 + 3 * 32 + 32 + 16 + 32);
    assert_eq!(counters.divergent_branches, 1);
    assert_eq!((counters.blocks, counters.store_bytes, counters.store_sectors), (1, 64, 2));
}

/// A side of a branch that no lane takes is not executed, though what it
/// computes was hoisted out of the loop around it.
#[test]
fn executed_statements() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, n| {
        let t = tid(b);
        let rounds = b.int(2);
        b.count("j", rounds, Unroll::No, |b, _| {
            let never = b.exprs().lt(n, t);
            b.if_else(
                never,
                |b| {
                    let v = b.load("v", x, t);
                    let at = b.exprs().sub(n, t);
                    b.store(y, at, v);
                },
                |b| {
                    let v = b.load("v", x, t);
                    b.store(y, t, v);
                },
            );
        });
    });
    let prepared = Prepared::new(kernel, DType::F32, 64, f32_bytes(&[1.0; 64]));
    let (_, report) = prepared.run(&SimOptions::default()).unwrap();
    // Loop, branch, the two of its first side, the two of its second.
    assert_eq!(report.executed, [true, true, false, false, true, true]);
}
