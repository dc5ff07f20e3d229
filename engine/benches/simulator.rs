//! Speed of the simulator in lane-operations per second, on one host thread,
//! with and without detectors. Criterion's throughput figure is that number.
//!
//! `cargo bench -p engine --features bench --bench simulator`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use engine::backend::sim::{self, SimMemory};
use engine::compile::compile_fusion;
use engine::kernel::{CacheHint, Dim, ExprId, Kernel, KernelBuilder, Scope, ShuffleMode, Unroll, bind};
use engine::num::{BinaryOp, DType, UnaryOp, Value};
use engine::options::{CompileCx, DeviceDesc, NoTrace, Options, SimOptions, SimSchedule};
use engine::tensor::{ArgMeta, TensorMeta};
use engine::text;

const ELEMENTS: i64 = 1 << 18;

fn start(dtype: DType) -> (KernelBuilder, [engine::kernel::BufId; 2], ExprId) {
    let mut b = KernelBuilder::new("bench", DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, dtype, n, 16);
    let y = b.output("y", 0, dtype, n, 16);
    (b, [x, y], n)
}

fn thread(b: &mut KernelBuilder, width: i64) -> ExprId {
    let (bx, tx) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let width = b.int(width);
    let base = b.exprs().mul(bx, width);
    b.exprs().add(base, tx)
}

fn float(b: &mut KernelBuilder, value: f64) -> ExprId {
    b.exprs().value(Value::Float(value), DType::F32)
}

/// bf16, 8 elements a thread in one move, a polynomial and a relu in f32.
fn pointwise() -> Kernel {
    let (mut b, [x, y], n) = start(DType::BF16);
    let i = thread(&mut b, 128);
    let (eight, zero) = (b.int(8), b.int(0));
    let at = b.exprs().mul(i, eight);
    let inside = b.exprs().lt(at, n);
    let local = b.local("v", DType::BF16, 8);
    b.if_(inside, |b| {
        b.mov((local, zero), (x, at), 8, CacheHint::Default);
        b.count("j", eight, Unroll::Full, |b, j| {
            let v = b.load("v", local, j);
            let v = b.exprs().cast(v, DType::F32);
            let (scale, shift) = (float(b, 0.5), float(b, 0.25));
            let mut p = v;
            for _ in 0..3 {
                p = b.exprs().binary(BinaryOp::Mul, p, v);
                p = b.exprs().binary(BinaryOp::Add, p, shift);
                p = b.exprs().binary(BinaryOp::Mul, p, scale);
            }
            let r = b.exprs().unary(UnaryOp::Relu, p);
            let r = b.exprs().cast(r, DType::BF16);
            b.store(local, j, r);
        });
        b.mov((y, at), (local, zero), 8, CacheHint::Default);
    });
    let blocks = b.int(ELEMENTS / 1024);
    b.finish_1d(blocks, 128)
}

/// f32, one element a thread with a guard and strided index arithmetic.
fn scalar() -> Kernel {
    let (mut b, [x, y], n) = start(DType::F32);
    let i = thread(&mut b, 256);
    let inside = b.exprs().lt(i, n);
    b.if_(inside, |b| {
        let width = b.int(512);
        let (row, column) = (b.exprs().div(i, width), b.exprs().rem(i, width));
        let base = b.exprs().mul(row, width);
        let at = b.exprs().add(base, column);
        let v = b.load("v", x, at);
        let w = b.exprs().binary(BinaryOp::Mul, v, v);
        let w = b.exprs().binary(BinaryOp::Add, w, v);
        b.store(y, i, w);
    });
    let blocks = b.int(ELEMENTS / 256);
    b.finish_1d(blocks, 256)
}

/// f32 row sums of 4096 elements: a loop of vector moves, shuffles, shared memory.
fn reduction() -> Kernel {
    let (mut b, [x, y], _) = start(DType::F32);
    let (tx, bx) = (b.exprs().thread_idx(Dim::X), b.exprs().block_idx(Dim::X));
    let (zero, four, row) = (b.int(0), b.int(4), b.int(4096));
    let base = b.exprs().mul(bx, row);
    let (acc, local) = (b.local("acc", DType::F32, 4), b.local("v", DType::F32, 4));
    let nought = float(&mut b, 0.0);
    b.count("j", four, Unroll::Full, |b, j| b.store(acc, j, nought));
    let end = b.int(4096);
    b.for_("c", (zero, end, 512), Unroll::No, |b, c| {
        let lane = b.exprs().mul(tx, four);
        let at = b.exprs().add(base, c);
        let at = b.exprs().add(at, lane);
        b.mov((local, zero), (x, at), 4, CacheHint::Default);
        b.count("j", four, Unroll::Full, |b, j| {
            let (v, a) = (b.load("v", local, j), b.load("a", acc, j));
            let s = b.exprs().add(a, v);
            b.store(acc, j, s);
        });
    });
    let mut sum = nought;
    for j in 0..4 {
        let j = b.int(j);
        let a = b.load("a", acc, j);
        sum = b.exprs().add(sum, a);
    }
    for mask in [16, 8, 4, 2, 1] {
        let mask = b.int(mask);
        let other = b.shuffle("s", sum, ShuffleMode::Xor, mask);
        sum = b.exprs().add(sum, other);
        sum = b.let_("sum", sum);
    }
    let shared = b.shared("partial", DType::F32, 4, 16);
    let width = b.int(32);
    let (lane, warp) = (b.exprs().rem(tx, width), b.exprs().div(tx, width));
    let first = b.exprs().binary(BinaryOp::Eq, lane, zero);
    b.if_(first, |b| b.store(shared, warp, sum));
    b.sync(Scope::Block);
    let leader = b.exprs().binary(BinaryOp::Eq, tx, zero);
    b.if_(leader, |b| {
        let mut total = float(b, 0.0);
        for w in 0..4 {
            let w = b.int(w);
            let p = b.load("p", shared, w);
            total = b.exprs().add(total, p);
        }
        b.store(y, bx, total);
    });
    let blocks = b.int(ELEMENTS / 4096);
    b.finish_1d(blocks, 128)
}

/// f32 transpose of 32 x 32 tiles through padded shared memory.
fn transpose() -> Kernel {
    let (mut b, [x, y], _) = start(DType::F32);
    let (tx, bx) = (b.exprs().thread_idx(Dim::X), b.exprs().block_idx(Dim::X));
    let (width, pitch, rows) = (b.int(32), b.int(33), b.int(8));
    let tile = b.int(1024);
    let base = b.exprs().mul(bx, tile);
    let shared = b.shared("tile", DType::F32, 32 * 33, 16);
    let (lane, warp) = (b.exprs().rem(tx, width), b.exprs().div(tx, width));
    for phase in 0..2 {
        b.count("r", rows, Unroll::No, |b, r| {
            let four = b.int(4);
            let row = b.exprs().mul(r, four);
            let row = b.exprs().add(row, warp);
            let (down, across) = if phase == 0 { (row, lane) } else { (lane, row) };
            let place = b.exprs().mul(down, pitch);
            let place = b.exprs().add(place, across);
            let at = b.exprs().mul(row, width);
            let at = b.exprs().add(at, lane);
            let at = b.exprs().add(base, at);
            if phase == 0 {
                let v = b.load("v", x, at);
                b.store(shared, place, v);
            } else {
                let v = b.load("v", shared, place);
                b.store(y, at, v);
            }
        });
        b.sync(Scope::Block);
    }
    let blocks = b.int(ELEMENTS / 1024);
    b.finish_1d(blocks, 128)
}

/// What the compiler makes of a fusion of one `rows` x `columns` input.
fn generated(source: &str, rows: i64, columns: i64) -> (Kernel, Vec<i64>) {
    let fusion = text::parse(source).expect("the text is right").fusions.remove(0).fusion;
    let dtype = fusion.input_tensors().next().map_or(DType::F32, |(_, tensor)| fusion.tensors[tensor].dtype);
    let meta = TensorMeta { dtype, sizes: vec![rows, columns], strides: vec![columns, 1] };
    let (options, device) = (Options::default(), DeviceDesc::h200());
    let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
    let args = [ArgMeta::Tensor(meta)];
    (compile_fusion(&cx, &fusion, &args, &[16]).expect("the fusion compiles").kernel, vec![rows, columns])
}

const SOFTMAX: &str = "fusion @f(%x: bf16[?, ?]) {\n %0 = softmax %x axis(1)\n %1 = cast %0 bf16\n return %1\n}";
const GELU: &str = "fusion @f(%x: bf16[?, ?]) {\n %0 = gelu %x\n %1 = cast %0 bf16\n return %1\n}";

fn simulator(c: &mut Criterion) {
    let flat = |kernel| (kernel, vec![ELEMENTS]);
    let kernels = [
        ("pointwise", flat(pointwise()), DType::BF16),
        ("scalar", flat(scalar()), DType::F32),
        ("reduction", flat(reduction()), DType::F32),
        ("transpose", flat(transpose()), DType::F32),
        ("softmax", generated(SOFTMAX, 64, 4096), DType::BF16),
        ("gelu", generated(GELU, 64, 4096), DType::BF16),
    ];
    for (name, (kernel, sizes), dtype) in kernels {
        let strides = if sizes.len() == 1 { vec![1] } else { vec![sizes[1], 1] };
        let meta = TensorMeta { dtype, sizes, strides };
        let launch = bind(&kernel, &[ArgMeta::Tensor(meta)]).expect("the kernel binds");
        let program = sim::compile(&kernel).expect("the kernel compiles");
        let input = vec![0x3f; ELEMENTS as usize * dtype.bytes()];
        for (mode, detect, count, schedule) in [
            ("plain", false, false, SimSchedule::Lockstep),
            ("counted", false, true, SimSchedule::Lockstep),
            ("detect", true, false, SimSchedule::Lockstep),
            ("detect+count", true, true, SimSchedule::Lockstep),
            ("detect+random", true, true, SimSchedule::Random),
        ] {
            let options = SimOptions { schedule, detect, count, threads: 1, ..SimOptions::default() };
            let mut memory = SimMemory::new(&kernel, &launch);
            memory.fill_input(0, &input).expect("the input fits");
            let mut run = || sim::run_program(&program, &kernel, &launch, &mut memory, &options).expect("it runs");
            let operations = run().counters.total_lane_operations();
            let mut group = c.benchmark_group(name);
            group.throughput(Throughput::Elements(operations));
            group.bench_function(mode, |bencher| bencher.iter(&mut run));
            group.finish();
        }
    }
}

criterion_group!(benches, simulator);
criterion_main!(benches);
