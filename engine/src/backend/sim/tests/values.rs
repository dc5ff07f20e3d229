//! What kernels compute.

use super::*;
use crate::kernel::{AtomicOp, CacheHint, Scope, ShuffleMode, Unroll};
use crate::num::{TernaryOp, Value};

fn iota(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn guarded_elementwise_kernel() {
    let kernel = vector_kernel(DType::F32, DType::F32, 8, 128, |b, x, y, n| {
        let i = global_thread(b, 128);
        let inside = b.exprs().lt(i, n);
        b.if_(inside, |b| {
            let v = b.load("v", x, i);
            let w = b.exprs().binary(BinaryOp::Mul, v, v);
            b.store(y, i, w);
        });
    });
    let x = iota(1000);
    let squares: Vec<f32> = x.iter().map(|v| v * v).collect();
    check_values(kernel, &x, &squares);
}

#[test]
fn vector_moves_and_unrolled_local_arrays() {
    let kernel = vector_kernel(DType::F32, DType::F32, 2, 64, |b, x, y, _| {
        let i = global_thread(b, 64);
        let four = b.int(4);
        let zero = b.int(0);
        let base = b.exprs().mul(i, four);
        let local = b.local("l", DType::F32, 4);
        b.mov((local, zero), (x, base), 4, CacheHint::Default);
        b.count("j", four, Unroll::Full, |b, j| {
            let v = b.load("v", local, j);
            let w = b.exprs().binary(BinaryOp::Add, v, v);
            b.store(local, j, w);
        });
        b.mov((y, base), (local, zero), 4, CacheHint::Default);
    });
    let x = iota(512);
    let doubled: Vec<f32> = x.iter().map(|v| v + v).collect();
    check_values(kernel, &x, &doubled);
}

/// Lanes of a thread are at `3 t - 5` and behind it: some of them are in front of the buffer, and some behind.
#[test]
fn unaligned_moves_over_both_ends() {
    const LEN: i64 = 64;
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let (t, zero) = (tid(b), b.int(0));
        let [three, five, len] = [3, 5, LEN].map(|n| b.int(n));
        let local = b.local("l", DType::F32, 4);
        let first = b.exprs().mul(t, three);
        let first = b.exprs().sub(first, five);
        b.mov_unaligned((local, zero), (x, first), 4, CacheHint::Default);
        for (lane, part) in [(0, 0), (3, LEN / 2)] {
            let [lane, part] = [lane, part].map(|n| b.int(n));
            let index = b.exprs().add(first, lane);
            let [low, high] = [b.exprs().binary(BinaryOp::Ge, index, zero), b.exprs().lt(index, len)];
            let inside = b.exprs().and(low, high);
            let value = b.load("v", local, lane);
            let nothing = b.exprs().value(Value::Float(-1.0), DType::F32);
            let value = b.exprs().ternary(TernaryOp::Where, inside, value, nothing);
            let place = b.exprs().add(t, part);
            b.store(y, place, value);
        }
    });
    let x = iota(LEN as usize);
    let at = |index: i64| usize::try_from(index).ok().and_then(|index| x.get(index)).copied().unwrap_or(-1.0);
    let expected: Vec<f32> = [0, 3].into_iter().flat_map(|lane| (0..32).map(move |t| at(3 * t - 5 + lane))).collect();
    check_values(kernel, &x, &expected);
}

#[test]
fn dynamic_local_index() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 32, |b, x, y, _| {
        let i = tid(b);
        let four = b.int(4);
        let k = b.exprs().rem(i, four);
        let local = b.local("l", DType::F32, 4);
        b.count("j", four, Unroll::No, |b, j| {
            let v = b.load("v", x, j);
            b.store(local, j, v);
        });
        let v = b.load("w", local, k);
        b.store(y, i, v);
    });
    let expected: Vec<f32> = (0..32).map(|i| (i % 4) as f32).collect();
    check_values(kernel, &iota(32), &expected);
}

/// Trip counts differ between the lanes of a warp.
#[test]
fn divergent_loop_and_both_sides_of_a_branch() {
    let kernel = vector_kernel(DType::F32, DType::F32, 1, 64, |b, x, y, _| {
        let i = tid(b);
        let zero = b.int(0);
        let acc = b.local("acc", DType::F32, 1);
        let nought = b.exprs().value(crate::num::Value::Float(0.0), DType::F32);
        b.store(acc, zero, nought);
        b.count("j", i, Unroll::No, |b, j| {
            let v = b.load("v", x, j);
            let a = b.load("a", acc, zero);
            let two = b.int(2);
            let odd = b.exprs().rem(j, two);
            let zero_ = b.int(0);
            let even = b.exprs().binary(BinaryOp::Eq, odd, zero_);
            b.if_else(
                even,
                |b| {
                    let s = b.exprs().add(a, v);
                    b.store(acc, zero, s);
                },
                |b| {
                    let s = b.exprs().sub(a, v);
                    b.store(acc, zero, s);
                },
            );
        });
        let a = b.load("r", acc, zero);
        b.store(y, i, a);
    });
    let x = iota(64);
    let expected: Vec<f32> = (0..64).map(|i| (0..i).map(|j| if j % 2 == 0 { x[j] } else { -x[j] }).sum()).collect();
    check_values(kernel, &x, &expected);
}

/// Sum of a block: shuffles within warps, shared memory across them.
fn block_sum(b: &mut KernelBuilder, v: ExprId, threads: i64) -> ExprId {
    let mut sum = v;
    for mask in [16, 8, 4, 2, 1] {
        let mask = b.int(mask);
        let other = b.shuffle("s", sum, ShuffleMode::Xor, mask);
        sum = b.exprs().add(sum, other);
        sum = b.let_("sum", sum);
    }
    let shared = b.shared("partial", DType::F32, threads / 32, 16);
    let t = tid(b);
    let (width, zero) = (b.int(32), b.int(0));
    let (lane, warp) = (b.exprs().rem(t, width), b.exprs().div(t, width));
    let first = b.exprs().binary(BinaryOp::Eq, lane, zero);
    b.if_(first, |b| b.store(shared, warp, sum));
    b.sync(Scope::Block);
    let warps = b.int(threads / 32);
    let acc = b.local("acc", DType::F32, 1);
    let nought = b.exprs().value(crate::num::Value::Float(0.0), DType::F32);
    b.store(acc, zero, nought);
    b.count("w", warps, Unroll::No, |b, w| {
        let p = b.load("p", shared, w);
        let a = b.load("a", acc, zero);
        let s = b.exprs().add(a, p);
        b.store(acc, zero, s);
    });
    b.load("total", acc, zero)
}

#[test]
fn block_reduction_through_shuffles_and_shared_memory() {
    let kernel = vector_kernel(DType::F32, DType::F32, 4, 256, |b, x, y, _| {
        let i = global_thread(b, 256);
        let v = b.load("v", x, i);
        let total = block_sum(b, v, 256);
        b.store(y, i, total);
    });
    let x = iota(1024);
    let expected: Vec<f32> = (0..1024).map(|i| x[i / 256 * 256..][..256].iter().sum()).collect();
    check_values(kernel, &x, &expected);
}

/// Each block publishes a partial sum; the last one to arrive adds them up.
pub(super) fn last_block_sum(fence: bool) -> Kernel {
    vector_kernel(DType::F32, DType::F32, 12, 64, |b, x, y, _| {
        let i = global_thread(b, 64);
        let one = b.int(1);
        let (zero, twelve) = (b.int(0), b.int(12));
        let partial = b.workspace("partial", DType::F32, twelve, 16, false);
        let counter = b.workspace("counter", DType::I32, one, 4, true);
        let v = b.load("v", x, i);
        let total = block_sum(b, v, 64);
        let t = tid(b);
        let leader = b.exprs().binary(BinaryOp::Eq, t, zero);
        let bx = b.exprs().block_idx(Dim::X);
        let flag = b.shared("last", DType::I32, 1, 4);
        b.if_(leader, |b| {
            b.store(partial, bx, total);
            if fence {
                b.fence(Scope::Grid);
            }
            let eleven = b.int(11);
            let old = b.atomic("old", AtomicOp::Inc, (counter, zero), eleven);
            b.store(flag, zero, old);
        });
        b.sync(Scope::Block);
        let old = b.load("arrived", flag, zero);
        let eleven = b.int(11);
        let last = b.exprs().binary(BinaryOp::Eq, old, eleven);
        b.if_(last, |b| {
            b.fence(Scope::Grid);
            let inside = b.exprs().lt(t, twelve);
            b.if_(inside, |b| {
                let p = b.load("p", partial, t);
                b.store(y, t, p);
            });
        });
    })
}

#[test]
fn last_block_reads_what_the_others_wrote() {
    let x = iota(768);
    let expected: Vec<f32> = (0..12).map(|i| x[i * 64..][..64].iter().sum()).collect();
    check_values(last_block_sum(true), &x, &expected);
}

#[test]
fn grid_barrier_orders_all_blocks() {
    let mut b = KernelBuilder::new("k", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::F32, n, 16);
    let y = b.output("y", 0, DType::F32, n, 16);
    let scratch = b.workspace("scratch", DType::F32, n, 16, false);
    let i = global_thread(&mut b, 64);
    let v = b.load("v", x, i);
    b.store(scratch, i, v);
    b.sync(Scope::Grid);
    let one = b.int(1);
    let last = b.exprs().sub(n, one);
    let mirrored = b.exprs().sub(last, i);
    let w = b.load_hinted("w", scratch, mirrored, CacheHint::Global);
    b.store(y, i, w);
    let (blocks, width) = (b.int(6), b.int(64));
    let launch = Launch {
        grid: [blocks, one, one],
        block: [width, one, one],
        max_threads: 64,
        min_blocks: 1,
        cooperative: true,
    };
    let kernel = b.finish(launch);
    let x = iota(384);
    let expected: Vec<f32> = x.iter().rev().copied().collect();
    check_values(kernel, &x, &expected);
}

#[test]
fn global_atomics_add_up() {
    let kernel = vector_kernel(DType::F32, DType::F32, 6, 64, |b, x, y, _| {
        let i = global_thread(b, 64);
        let one = b.int(1);
        let zero = b.int(0);
        let sums = b.workspace("sums", DType::F32, one, 16, true);
        let v = b.load("v", x, i);
        b.atomic_drop(AtomicOp::Add, (sums, zero), v);
        b.store(y, i, v);
    });
    let x = iota(384);
    check_values(kernel, &x, &x);
}
