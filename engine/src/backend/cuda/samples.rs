//! Hand-built kernels for the tests of this back end: small, and each uses a
//! different part of the kernel IR.

use crate::fusion::TensorId;
use crate::kernel::{
    AtomicOp, BufId, CacheHint, Dim, ExprId, Kernel, KernelBuilder, Launch, Scope, ShuffleMode, StmtKind, Unroll,
    approximate,
};
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::EntityId;

fn tensor(index: usize) -> Option<TensorId> {
    Some(TensorId::from_index(index))
}

fn index_of_thread(b: &mut KernelBuilder, threads: i64, lanes: i64) -> ExprId {
    let (block, thread) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let width = b.int(threads);
    let base = b.exprs().mul(block, width);
    let position = b.exprs().add(base, thread);
    let lanes = b.int(lanes);
    b.exprs().mul(position, lanes)
}

/// `y = x + w` in bf16, eight elements per thread as one access each; the tail
/// one element at a time.
pub(super) fn vector_add() -> Kernel {
    let mut b = KernelBuilder::new("vector_add", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::BF16, n, 16);
    let w = b.input("w", 1, DType::BF16, n, 16);
    let y = b.output("y", 0, DType::BF16, n, 16);
    let first = index_of_thread(&mut b, 128, 8);
    let (eight, zero) = (b.int(8), b.int(0));
    let past = b.exprs().add(first, eight);
    let is_whole = b.exprs().binary(BinaryOp::Le, past, n);
    let (xs, ws, ys) = (b.local("xs", DType::BF16, 8), b.local("ws", DType::BF16, 8), b.local("ys", DType::BF16, 8));
    let sum = |b: &mut KernelBuilder, x, w| {
        let x = b.exprs().cast(x, DType::F32);
        let w = b.exprs().cast(w, DType::F32);
        let sum = b.exprs().add(x, w);
        b.exprs().cast(sum, DType::BF16)
    };
    b.if_else(
        is_whole,
        |b| {
            b.set_origin(tensor(0), "load");
            b.mov((xs, zero), (x, first), 8, CacheHint::Streaming);
            b.set_origin(tensor(1), "load");
            b.mov((ws, zero), (w, first), 8, CacheHint::Default);
            b.set_origin(tensor(2), "compute");
            b.count("j", eight, Unroll::Full, |b, j| {
                let (x, w) = (b.load("x_j", xs, j), b.load("w_j", ws, j));
                let sum = sum(b, x, w);
                b.store(ys, j, sum);
            });
            b.mov((y, first), (ys, zero), 8, CacheHint::Streaming);
        },
        |b| {
            b.for_("i", (first, n, 1), Unroll::No, |b, i| {
                let (x, w) = (b.load_hinted("x", x, i, CacheHint::Streaming), b.load("w", w, i));
                let sum = sum(b, x, w);
                b.store_hinted(y, i, sum, CacheHint::Streaming);
            });
        },
    );
    let per_block = b.int(1024);
    let blocks = b.exprs().ceil_div(n, per_block);
    b.set_origin(None, "");
    b.finish_1d(blocks, 128)
}

/// Random numbers: a block for four of `f32`, one for two of `f64`.
pub(super) fn random_numbers() -> Kernel {
    let mut b = KernelBuilder::new("random_numbers", DType::I32);
    let n = b.size("n", 0, 0);
    let (seed, offset) = (b.scalar("seed", 1, DType::I64), b.scalar("offset", 2, DType::I64));
    let y = b.output("y", 0, DType::F32, n, 16);
    let z = b.output("z", 1, DType::F64, n, 16);
    let first = index_of_thread(&mut b, 128, 4);
    let element = b.exprs().cast(first, DType::I64);
    let element = b.exprs().as_data(element);
    let bits = b.exprs().int(2, DType::I64);
    let subsequence = b.exprs().binary(BinaryOp::ShiftRight, element, bits);
    let singles = b.random("u", DType::F32, seed, offset, subsequence);
    let doubles = b.random("d", DType::F64, seed, offset, element);
    for (buffer, numbers) in [(y, singles), (z, doubles)] {
        for (i, number) in numbers.into_iter().enumerate() {
            let i = b.int(i as i64);
            let place = b.exprs().add(first, i);
            b.store(buffer, place, number);
        }
    }
    let per_block = b.int(512);
    let blocks = b.exprs().div(n, per_block);
    b.finish_1d(blocks, 128)
}

/// How a chain is spread over threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Threads of a block.
    pub(super) threads: i64,
    /// Accesses of 16 bytes that each thread makes to each tensor, a block apart.
    pub(super) vectors: i64,
    /// The caches that reads use.
    pub(super) load: CacheHint,
    /// The caches that writes use.
    pub(super) store: CacheHint,
}

/// A chain of operations on bf16 inputs, eight elements per access.
pub(super) fn chain<const N: usize>(
    name: &str,
    spread: Spread,
    formula: impl Fn(&mut KernelBuilder, [ExprId; N]) -> ExprId,
) -> Kernel {
    let Spread { threads, vectors, load, store } = spread;
    let mut b = KernelBuilder::new(name, DType::I32);
    let n = b.size("n", 0, 0);
    let inputs: [_; N] = std::array::from_fn(|i| b.input(format!("x{i}"), i as u32, DType::BF16, n, 16));
    let out = b.output("out", 0, DType::BF16, n, 16);
    let (eight, zero) = (b.int(8), b.int(0));
    let locals: [_; N] = std::array::from_fn(|i| b.local(format!("xs{i}"), DType::BF16, 8 * vectors));
    let outs = b.local("outs", DType::BF16, 8);
    let (block, thread) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let (per_block, per_vector) = (b.int(8 * threads * vectors), b.int(8 * threads));
    let base = b.exprs().mul(block, per_block);
    let offset = b.exprs().mul(thread, eight);
    let first = b.exprs().add(base, offset);
    let count = b.int(vectors);
    let place = |b: &mut KernelBuilder, v: ExprId| {
        let (step, slot) = (b.exprs().mul(v, per_vector), b.exprs().mul(v, eight));
        (b.exprs().add(first, step), slot)
    };
    b.count("v", count, Unroll::Full, |b, v| {
        let (element, slot) = place(b, v);
        let is_inside = b.exprs().lt(element, n);
        b.if_(is_inside, |b| {
            for (local, input) in locals.iter().zip(inputs) {
                b.mov((*local, slot), (input, element), 8, load);
            }
        });
    });
    b.count("v", count, Unroll::Full, |b, v| {
        let (element, slot) = place(b, v);
        let is_inside = b.exprs().lt(element, n);
        b.if_(is_inside, |b| {
            b.count("j", eight, Unroll::Full, |b, j| {
                let lane = b.exprs().add(slot, j);
                let values = locals.map(|local| b.load("v", local, lane)).map(|v| b.exprs().cast(v, DType::F32));
                let value = formula(b, values);
                let value = b.exprs().cast(value, DType::BF16);
                b.store(outs, j, value);
            });
            b.mov((out, element), (outs, zero), 8, store);
        });
    });
    let blocks = b.exprs().ceil_div(n, per_block);
    let mut kernel = b.finish_1d(blocks, threads as u32);
    approximate(&mut kernel);
    kernel
}

/// One access per thread in blocks of 256.
pub(super) const PLAIN: Spread =
    Spread { threads: 256, vectors: 1, load: CacheHint::Default, store: CacheHint::Default };

/// `gelu(x * y + z)` by the error function.
pub(super) fn gelu_chain(spread: Spread) -> Kernel {
    chain("gelu_chain", spread, |b, [x, y, z]| {
        let xy = b.exprs().mul(x, y);
        let v = b.exprs().add(xy, z);
        let number = |b: &mut KernelBuilder, v: f64| b.exprs().value(Value::Float(v), DType::F32);
        let (half, one, root) = (number(b, 0.5), number(b, 1.0), number(b, std::f64::consts::FRAC_1_SQRT_2));
        let scaled = b.exprs().mul(v, root);
        let erf = b.exprs().unary(UnaryOp::Erf, scaled);
        let erf = b.exprs().add(erf, one);
        let halved = b.exprs().mul(v, half);
        b.exprs().mul(halved, erf)
    })
}

/// One unary operation of `x * y + z`.
pub(super) fn unary_chain(op: UnaryOp) -> Kernel {
    chain(&format!("{op}_chain"), PLAIN, move |b, [x, y, z]| {
        let xy = b.exprs().mul(x, y);
        let v = b.exprs().add(xy, z);
        b.exprs().unary(op, v)
    })
}

/// Writes one element behind the end of its output.
pub(super) fn writes_behind_the_end() -> Kernel {
    let mut b = KernelBuilder::new("writes_behind_the_end", DType::I32);
    let n = b.size("n", 0, 0);
    b.input("x", 0, DType::I32, n, 4);
    let y = b.output("y", 0, DType::I32, n, 4);
    let one = b.int(1);
    b.store(y, n, one);
    b.finish_1d(one, 1)
}

/// Reads far outside of any memory.
pub(super) fn reads_nowhere() -> Kernel {
    let mut b = KernelBuilder::new("reads_nowhere", DType::I64);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::I32, n, 4);
    let y = b.output("y", 0, DType::I32, n, 4);
    let (zero, far, one) = (b.int(0), b.int(1 << 44), b.int(1));
    let value = b.load("value", x, far);
    b.store(y, zero, value);
    b.finish_1d(one, 1)
}

/// Sums the 256 partial values of a block with shuffles and shared memory;
/// every thread gets the sum.
fn block_sum(b: &mut KernelBuilder, partial: ExprId, warps: BufId) -> ExprId {
    let thread = b.exprs().thread_idx(Dim::X);
    let (zero, eight, width) = (b.int(0), b.int(8), b.int(32));
    let mut sum = partial;
    for distance in [16, 8, 4, 2, 1] {
        let distance = b.int(distance);
        let other = b.shuffle("other", sum, ShuffleMode::Xor, distance);
        let total = b.exprs().add(sum, other);
        sum = b.let_("warp_sum", total);
    }
    let (lane, warp) = (b.exprs().rem(thread, width), b.exprs().div(thread, width));
    let is_first = b.exprs().binary(BinaryOp::Eq, lane, zero);
    b.if_(is_first, |b| b.store(warps, warp, sum));
    b.sync(Scope::Block);
    let total = b.local("total", DType::F32, 1);
    let nothing = b.exprs().value(Value::Float(0.0), DType::F32);
    b.store(total, zero, nothing);
    b.count("w", eight, Unroll::Full, |b, w| {
        let (old, more) = (b.load("old", total, zero), b.load("more", warps, w));
        let sum = b.exprs().add(old, more);
        b.store(total, zero, sum);
    });
    b.load("block_total", total, zero)
}

/// `y[row] = sum(x[row, :])` in f32, a block of 256 threads per row.
pub(super) fn row_sum() -> Kernel {
    let mut b = KernelBuilder::new("row_sum", DType::I32);
    let (rows, columns) = (b.size("rows", 0, 0), b.size("columns", 0, 1));
    let (len, zero) = (b.exprs().mul(rows, columns), b.int(0));
    let x = b.input("x", 0, DType::F32, len, 16);
    let y = b.output("y", 0, DType::F32, rows, 16);
    let (row, thread) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let acc = b.local("acc", DType::F32, 1);
    let warps = b.shared("warp_sums", DType::F32, 8, 16);
    b.set_origin(tensor(1), "compute");
    let nothing = b.exprs().value(Value::Float(0.0), DType::F32);
    b.store(acc, zero, nothing);
    b.for_("i", (thread, columns, 256), Unroll::By(4), |b, i| {
        let base = b.exprs().mul(row, columns);
        let place = b.exprs().add(base, i);
        let (value, old) = (b.load("value", x, place), b.load("old", acc, zero));
        let sum = b.exprs().add(old, value);
        b.store(acc, zero, sum);
    });
    let partial = b.load("partial", acc, zero);
    let total = block_sum(&mut b, partial, warps);
    let is_first = b.exprs().binary(BinaryOp::Eq, thread, zero);
    b.if_(is_first, |b| b.store(y, row, total));
    b.finish_1d(rows, 256)
}

/// `y[0] = sum(x)` in f32: each block leaves its partial sum in scratch memory,
/// the last block to finish adds them up.
pub(super) fn sum_all() -> Kernel {
    let mut b = KernelBuilder::new("sum_all", DType::I64);
    let n = b.size("n", 0, 0);
    let (zero, one, per_block) = (b.int(0), b.int(1), b.int(1024));
    let blocks = b.exprs().ceil_div(n, per_block);
    let blocks = b.derived("blocks", blocks);
    let x = b.input("x", 0, DType::F32, n, 4);
    let y = b.output("y", 0, DType::F32, one, 4);
    let partials = b.workspace("partials", DType::F32, blocks, 16, false);
    let arrivals = b.workspace("arrivals", DType::I32, one, 4, true);
    let warps = b.shared("warp_sums", DType::F32, 8, 16);
    let is_last = b.shared("is_last", DType::Bool, 1, 1);
    let acc = b.local("acc", DType::F32, 1);
    let (thread32, block32) = (b.exprs().thread_idx(Dim::X), b.exprs().block_idx(Dim::X));
    let (thread, block) = (b.exprs().cast(thread32, DType::I64), b.exprs().cast(block32, DType::I64));
    let nothing = b.exprs().value(Value::Float(0.0), DType::F32);
    b.set_origin(tensor(1), "compute");
    b.store(acc, zero, nothing);
    let four = b.int(4);
    b.count("k", four, Unroll::Full, |b, k| {
        let (width, stride) = (b.int(1024), b.int(256));
        let base = b.exprs().mul(block, width);
        let step = b.exprs().mul(k, stride);
        let place = b.exprs().add(base, step);
        let place = b.exprs().add(place, thread);
        let is_inside = b.exprs().lt(place, n);
        b.if_(is_inside, |b| {
            let (value, old) = (b.load("value", x, place), b.load("old", acc, zero));
            let sum = b.exprs().add(old, value);
            b.store(acc, zero, sum);
        });
    });
    let partial = b.load("partial", acc, zero);
    let thread_is_first = {
        let zero = b.exprs().int(0, DType::I32);
        b.exprs().binary(BinaryOp::Eq, thread32, zero)
    };
    let total = block_sum_wide(&mut b, partial, warps);
    b.if_(thread_is_first, |b| {
        b.store_hinted(partials, block, total, CacheHint::Global);
        b.fence(Scope::Grid);
        let limit = b.exprs().cast(blocks, DType::I32);
        let one = b.exprs().int(1, DType::I32);
        let limit = b.exprs().sub(limit, one);
        let limit = b.exprs().as_data(limit);
        let before = b.atomic("before", AtomicOp::Inc, (arrivals, zero), limit);
        let is_end = b.exprs().binary(BinaryOp::Eq, before, limit);
        b.store(is_last, zero, is_end);
    });
    b.sync(Scope::Block);
    let last = b.load("last", is_last, zero);
    b.if_(last, |b| {
        b.fence(Scope::Grid);
        b.if_(thread_is_first, |b| {
            b.store(acc, zero, nothing);
            b.count("p", blocks, Unroll::No, |b, p| {
                let (more, old) = (b.load_hinted("more", partials, p, CacheHint::Global), b.load("old", acc, zero));
                let sum = b.exprs().add(old, more);
                b.store(acc, zero, sum);
            });
            let sum = b.load("sum", acc, zero);
            b.store(y, zero, sum);
        });
    });
    b.finish_1d(blocks, 256)
}

/// As [`block_sum`] for a kernel with 64-bit indices.
fn block_sum_wide(b: &mut KernelBuilder, partial: ExprId, warps: BufId) -> ExprId {
    let thread = b.exprs().thread_idx(Dim::X);
    let (zero, width) = (b.exprs().int(0, DType::I32), b.exprs().int(32, DType::I32));
    let mut sum = partial;
    for distance in [16, 8, 4, 2, 1] {
        let distance = b.exprs().int(distance, DType::I32);
        let other = b.shuffle("other", sum, ShuffleMode::Down, distance);
        let total = b.exprs().add(sum, other);
        sum = b.let_("warp_sum", total);
    }
    let (lane, warp) = (b.exprs().rem(thread, width), b.exprs().div(thread, width));
    let is_first = b.exprs().binary(BinaryOp::Eq, lane, zero);
    b.if_(is_first, |b| b.store(warps, warp, sum));
    b.sync(Scope::Block);
    let first = b.int(0);
    let mut total = b.load("sum_0", warps, first);
    for warp in 1..8 {
        let place = b.int(warp);
        let more = b.load(format!("sum_{warp}"), warps, place);
        total = b.exprs().add(total, more);
    }
    b.let_("block_total", total)
}

/// Counts the elements above a limit and keeps the largest, by atomics.
pub(super) fn count_above() -> Kernel {
    let mut b = KernelBuilder::new("count_above", DType::I32);
    let n = b.size("n", 0, 0);
    let limit = b.scalar("limit", 1, DType::I32);
    let (zero, one) = (b.int(0), b.int(1));
    let x = b.input("x", 0, DType::I32, n, 4);
    let count = b.output("count", 0, DType::I32, one, 4);
    let largest = b.output("largest", 1, DType::I32, one, 4);
    let i = index_of_thread(&mut b, 256, 1);
    let is_inside = b.exprs().lt(i, n);
    b.if_(is_inside, |b| {
        let value = b.load("value", x, i);
        let is_above = b.exprs().binary(BinaryOp::Gt, value, limit);
        b.if_(is_above, |b| {
            b.atomic_drop(AtomicOp::Add, (count, zero), one);
            b.atomic_drop(AtomicOp::Max, (largest, zero), value);
        });
    });
    let per_block = b.int(256);
    let blocks = b.exprs().ceil_div(n, per_block);
    b.finish_1d(blocks, 256)
}

/// Two phases over one buffer with a barrier of the whole grid between them:
/// `y[i] = x[i] + x[n - 1 - i]` through scratch memory. Too much shared memory
/// for static arrays.
pub(super) fn grid_reverse() -> Kernel {
    let mut b = KernelBuilder::new("grid_reverse", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::I32, n, 4);
    let y = b.output("y", 0, DType::I32, n, 4);
    let copy = b.workspace("copy", DType::I32, n, 4, false);
    let stage = b.shared("stage", DType::I32, 256, 128);
    b.shared("unused", DType::F64, 6 << 10, 16);
    let thread = b.exprs().thread_idx(Dim::X);
    let i = index_of_thread(&mut b, 256, 1);
    let is_inside = b.exprs().lt(i, n);
    b.if_(is_inside, |b| {
        let value = b.load("value", x, i);
        b.store(stage, thread, value);
        let value = b.load("staged", stage, thread);
        b.store(copy, i, value);
    });
    b.sync(Scope::Grid);
    b.if_(is_inside, |b| {
        let one = b.int(1);
        let last = b.exprs().sub(n, one);
        let mirror = b.exprs().sub(last, i);
        let (value, other) = (b.load("value", copy, i), b.load_hinted("other", copy, mirror, CacheHint::Global));
        let sum = b.exprs().add(value, other);
        b.store(y, i, sum);
    });
    let (per_block, one) = (b.int(256), b.int(1));
    let blocks = b.exprs().ceil_div(n, per_block);
    b.finish(Launch {
        grid: [blocks, one, one],
        block: [per_block, one, one],
        max_threads: 256,
        min_blocks: 2,
        cooperative: true,
    })
}

/// Formulas whose text needs care: precedence, sharing, loops and long chains.
pub(super) fn formulas() -> Kernel {
    let mut b = KernelBuilder::new("formulas", DType::I32);
    let n = b.size("n", 0, 0);
    let scale = b.scalar("scale", 1, DType::F32);
    let x = b.input("float", 0, DType::F32, n, 4);
    let y = b.output("y", 0, DType::F32, n, 4);
    let (thread, block) = (b.exprs().thread_idx(Dim::X), b.exprs().block_idx(Dim::X));
    let (three, seven, ten) = (b.int(3), b.int(7), b.int(10));
    b.count("j", ten, Unroll::No, |b, j| {
        // (block * 10 + j) / 3 % 7 * n - (thread - j)
        let a = b.exprs().mul(block, ten);
        let a = b.exprs().add(a, j);
        let q = b.exprs().div(a, three);
        let r = b.exprs().rem(q, seven);
        let rn = b.exprs().mul(r, n);
        let d = b.exprs().sub(thread, j);
        let place = b.exprs().sub(rn, d);
        let low = b.exprs().binary(BinaryOp::Ge, place, three);
        let high = b.exprs().lt(place, n);
        let both = b.exprs().and(low, high);
        // Depends on no variable of the loop, and is used twice.
        let shared = b.exprs().mul(block, n);
        let shared = b.exprs().add(shared, thread);
        b.if_(both, |b| {
            let v = b.load("v", x, place);
            let w = b.load("w", x, shared);
            let square = b.exprs().mul(v, v);
            let negative = b.exprs().unary(UnaryOp::Neg, square);
            let doubled = b.exprs().unary(UnaryOp::Neg, negative);
            let difference = b.exprs().sub(doubled, w);
            let difference = b.exprs().sub(v, difference);
            let ratio = b.exprs().binary(BinaryOp::Div, difference, square);
            let mut long = ratio;
            for _ in 0..20 {
                let next = b.exprs().mul(long, scale);
                long = b.exprs().add(next, w);
            }
            let infinite = b.exprs().value(Value::Float(f64::NEG_INFINITY), DType::F32);
            let is_big = b.exprs().binary(BinaryOp::Gt, long, scale);
            let chosen = b.exprs().ternary(TernaryOp::Where, is_big, long, infinite);
            b.store(y, shared, chosen);
        });
    });
    b.finish_1d(n, 64)
}

/// One statement per operation and data type: loads the operands, applies the
/// operation, stores the result. `apply` says what is computed from the
/// operands, or nothing.
fn op_kernel(name: &str, dtype: DType, outputs: Vec<ExprSpec>) -> Kernel {
    let mut b = KernelBuilder::new(name, DType::I32);
    let n = b.size("n", 0, 0);
    let inputs: Vec<_> =
        ["a", "b", "c"].iter().enumerate().map(|(i, name)| b.input(*name, i as u32, dtype, n, 16)).collect();
    let i = index_of_thread(&mut b, 64, 1);
    let is_inside = b.exprs().lt(i, n);
    let (_, body) = b.nested(|b| {
        let values: Vec<_> =
            ["a", "b", "c"].iter().zip(&inputs).map(|(name, buffer)| b.load(*name, *buffer, i)).collect();
        for (number, spec) in outputs.into_iter().enumerate() {
            let value = (spec.build)(b, &values);
            let dtype = b.dtype(value);
            let y = b.output(spec.name, number as u32, dtype, n, 16);
            b.store(y, i, value);
        }
    });
    b.emit(StmtKind::If { condition: is_inside, then: body, otherwise: Vec::new() });
    let per_block = b.int(64);
    let blocks = b.exprs().ceil_div(n, per_block);
    b.finish_1d(blocks, 64)
}

/// Builds an expression from the operands.
type Formula = dyn Fn(&mut KernelBuilder, &[ExprId]) -> ExprId;

/// One output of an operations kernel.
struct ExprSpec {
    name: String,
    build: Box<Formula>,
}

fn spec(name: impl Into<String>, build: impl Fn(&mut KernelBuilder, &[ExprId]) -> ExprId + 'static) -> ExprSpec {
    ExprSpec { name: name.into(), build: Box::new(build) }
}

/// Every operation that `num` defines on a data type, and every conversion from it.
pub(super) fn all_ops(dtype: DType) -> Kernel {
    let mut outputs = Vec::new();
    for to in DType::FUSION.iter().copied().filter(|to| *to != dtype) {
        outputs.push(spec(format!("to_{to}"), move |b, v| b.exprs().cast(v[0], to)));
    }
    for &op in UnaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
        outputs.push(spec(op.name(), move |b, v| b.exprs().unary(op, v[0])));
    }
    for &op in BinaryOp::ALL.iter().filter(|op| op.accepts(dtype)) {
        outputs.push(spec(op.name(), move |b, v| b.exprs().binary(op, v[0], v[1])));
    }
    for &op in TernaryOp::ALL.iter().filter(|op| **op != TernaryOp::Where && op.accepts(dtype)) {
        outputs.push(spec(op.name(), move |b, v| b.exprs().ternary(op, v[0], v[1], v[2])));
    }
    for &op in ApproxOp::ALL.iter().filter(|_| dtype == DType::F32) {
        outputs.push(spec(op.name().replace('.', "_"), move |b, v| b.exprs().approx(op, v[0])));
    }
    outputs.push(spec("where", |b, v| {
        let zero = b.exprs().value(Value::Float(0.0), DType::F32);
        let a = b.exprs().cast(v[0], DType::F32);
        let is_below = b.exprs().lt(a, zero);
        b.exprs().ternary(TernaryOp::Where, is_below, v[1], v[2])
    }));
    op_kernel(&format!("all_ops_{dtype}"), dtype, outputs)
}
