//! One violating kernel for each rule, and sound kernels beside them.

use super::verify;
use crate::diag::{DiagnosticKind, code};
use crate::kernel::{
    Access, AtomicOp, BufId, CacheHint, Dim, Expr, ExprId, IndexOp, Kernel, KernelBuilder, Launch, Origin, Scope,
    ShuffleMode, Special, Stmt, StmtKind, Unroll, ValueKind, Var,
};
use crate::num::{BinaryOp, DType, UnaryOp, Value};
use crate::util::EntityId;

const I32: DType = DType::I32;
const F32: DType = DType::F32;

/// A small sound kernel to break: input `x` and output `y` of `n` floats,
/// a workspace, a shared and a local array, in blocks of 64 x 2.
struct Base {
    b: KernelBuilder,
    n: ExprId,
    x: BufId,
    y: BufId,
    done: BufId,
    tile: BufId,
    lanes: BufId,
    zero: ExprId,
    tx: ExprId,
    ty: ExprId,
    bx: ExprId,
    cooperative: bool,
    block: [i64; 3],
}

impl Base {
    fn new() -> Self {
        let mut b = KernelBuilder::new("base", I32);
        let n = b.size("n", 0, 0);
        let x = b.input("x", 0, F32, n, 16);
        let y = b.output("y", 0, F32, n, 16);
        let one = b.int(1);
        let done = b.workspace("done", I32, one, 4, true);
        let tile = b.shared("tile", F32, 64, 16);
        let lanes = b.local("lanes", F32, 8);
        let zero = b.int(0);
        let (tx, ty) = (b.exprs().thread_idx(Dim::X), b.exprs().thread_idx(Dim::Y));
        let bx = b.exprs().block_idx(Dim::X);
        Self { b, n, x, y, done, tile, lanes, zero, tx, ty, bx, cooperative: false, block: [64, 2, 1] }
    }

    fn float(&mut self, value: f64) -> ExprId {
        self.b.exprs().value(Value::Float(value), F32)
    }

    fn less(&mut self, a: ExprId, b: i64) -> ExprId {
        let b = self.b.int(b);
        self.b.exprs().lt(a, b)
    }

    fn finish(mut self) -> Kernel {
        let one = self.b.int(1);
        let block = self.block.map(|size| self.b.int(size));
        let max_threads = self.block.iter().product::<i64>().clamp(1, 1024) as u32;
        self.b.finish(Launch {
            grid: [self.n, one, one],
            block,
            max_threads,
            min_blocks: 1,
            cooperative: self.cooperative,
        })
    }
}

/// The kernel passes.
fn check_sound(build: impl FnOnce(&mut Base)) {
    let mut base = Base::new();
    build(&mut base);
    let kernel = base.finish();
    if let Err(error) = verify(&kernel) {
        panic!("{error}\n{}", crate::kernel::print(&kernel));
    }
}

/// The kernel has exactly this violation.
fn check_refused(expected: &str, build: impl FnOnce(&mut Base)) {
    let mut base = Base::new();
    build(&mut base);
    check_kernel(expected, &base.finish());
}

fn check_kernel(expected: &str, kernel: &Kernel) {
    let Err(error) = verify(kernel) else { panic!("accepted a kernel with: {expected}") };
    assert_eq!((error.kind, error.code), (DiagnosticKind::Bug, code::VERIFY));
    assert_eq!(error.notes.len(), 1, "{error}");
    assert!(error.notes[0].contains(expected), "expected {expected:?} in {error}");
}

#[test]
fn operations_have_operands_of_accepted_types() {
    check_refused("sin is not defined on i32", |k| {
        let data = k.b.exprs().as_data(k.tx);
        let value = k.b.exprs().unary(UnaryOp::Sin, data);
        k.b.let_("v", value);
    });
    check_refused("holds f4e2m1fn_x2, which kernels do not compute with", |k| {
        k.b.local("numbers", DType::F4E2M1FNX2, 8);
    });
    check_refused("operands of types i32 and f32", |k| {
        let one = k.float(1.0);
        let value = k.b.exprs().intern(Expr::Binary(BinaryOp::Add, k.tx, one), I32);
        k.b.let_("v", value);
    });
    check_refused("has type f32, not bool", |k| {
        let one = k.float(1.0);
        let value = k.b.exprs().intern(Expr::Binary(BinaryOp::Lt, one, one), F32);
        k.b.let_("v", value);
    });
    check_refused("constant Int(3) is not of type f32", |k| {
        let value = k.b.exprs().intern(Expr::Const(Value::Int(3)), F32);
        k.b.store(k.y, k.zero, value);
    });
    check_refused("constant Int(300) is not of type u8", |k| {
        let value = k.b.exprs().intern(Expr::Const(Value::Int(300)), DType::U8);
        let value = k.b.exprs().cast(value, F32);
        k.b.store(k.y, k.zero, value);
    });
    check_refused("has type i64, not i32", |k| {
        let value = k.b.exprs().intern(Expr::Special(Special::ThreadIdx(Dim::X)), DType::I64);
        k.b.let_("v", value);
    });
    check_refused("add is not defined on bf16", |k| {
        let one = k.float(1.0);
        let half = k.b.exprs().cast(one, DType::BF16);
        let value = k.b.exprs().add(half, half);
        k.b.let_("v", value);
    });
}

#[test]
fn indices_and_data_do_not_mix() {
    let loaded = |k: &mut Base| {
        let ints = k.b.local("ints", I32, 1);
        k.b.store(ints, k.zero, k.zero);
        k.b.load("v", ints, k.zero)
    };
    check_sound(|k| {
        let (v, tx) = (loaded(k), k.b.exprs().as_data(k.tx));
        let sum = k.b.exprs().binary(BinaryOp::Add, v, tx);
        let place = k.b.exprs().as_index(sum);
        let place = k.b.exprs().add(place, k.bx);
        k.b.load("w", k.x, place);
        k.b.count("i", place, Unroll::No, |_, _| ());
    });
    type Mix = fn(&mut Base, ExprId) -> ExprId;
    let mixed: [(&str, Mix); 6] = [
        ("add is defined on data, not on an index", |k, v| k.b.exprs().binary(BinaryOp::Add, k.tx, v)),
        ("index Add of data", |k, v| k.b.exprs().index(IndexOp::Add, k.tx, v)),
        ("lt compares an index with data", |k, v| k.b.exprs().lt(k.tx, v)),
        ("conversion to f32 is defined on data", |k, _| k.b.exprs().cast(k.tx, F32)),
        ("neg is defined on data", |k, _| k.b.exprs().unary(UnaryOp::Neg, k.tx)),
        ("where chooses between an index and data", |k, v| {
            let condition = k.less(k.tx, 5);
            k.b.exprs().ternary(crate::num::TernaryOp::Where, condition, k.tx, v)
        }),
    ];
    for (expected, build) in mixed {
        check_refused(expected, |k| {
            let v = loaded(k);
            let value = build(k, v);
            k.b.let_("w", value);
        });
    }
    check_refused("converts what is no index to data", |k| {
        let v = loaded(k);
        let value = k.b.exprs().intern(Expr::AsData(v), I32);
        let value = k.b.exprs().binary(BinaryOp::Add, value, v);
        k.b.let_("w", value);
    });
    check_refused("index Add has operands of types f32 and f32", |k| {
        let one = k.float(1.0);
        let value = k.b.exprs().index(IndexOp::Add, one, one);
        k.b.let_("w", value);
    });
    check_refused("the place in memory is data", |k| {
        let v = loaded(k);
        k.b.load("w", k.x, v);
    });
    check_refused("the end is data", |k| {
        let v = loaded(k);
        k.b.count("i", v, Unroll::No, |_, _| ());
    });
    check_refused("the value is an index", |k| {
        let ints = k.b.local("ints", I32, 1);
        k.b.store(ints, k.zero, k.tx);
    });
    check_refused("as Data, which holds Some(Index)", |k| {
        let (var, read) = k.b.var("v", I32);
        k.b.emit(StmtKind::Let { var, value: k.tx });
        let square = k.b.exprs().mul(read, read);
        k.b.let_("w", square);
    });
    check_refused("grid size in x is data", |k| k.n = k.b.scalar("s", 3, I32));
}

#[test]
fn expressions_stay_small_enough_to_write_out() {
    check_refused("deep", |k| {
        let mut value = k.b.exprs().as_data(k.tx);
        for _ in 0..300 {
            value = k.b.exprs().unary(UnaryOp::Neg, value);
        }
        k.b.let_("v", value);
    });
    check_refused("too large", |k| {
        let mut value = k.tx;
        for _ in 0..40 {
            value = k.b.exprs().add(value, value);
        }
        k.b.let_("v", value);
    });
}

#[test]
fn ids_are_declared() {
    check_refused("reads v7, which is not declared", |k| {
        k.b.exprs().var(crate::kernel::VarId::from_index(7), I32, ValueKind::Data);
    });
    check_refused("uses expression e900, which does not exist", |k| {
        k.b.store(k.y, ExprId::from_index(900), k.zero);
    });
    check_refused("uses buffer b9, which does not exist", |k| {
        let to = Access { buffer: BufId::from_index(9), index: k.zero };
        k.b.emit(StmtKind::Store { to, value: k.zero, hint: CacheHint::Default });
    });
}

#[test]
fn statements_agree_in_type() {
    check_refused("the condition has type i32, not bool", |k| k.b.if_(k.tx, |b| b.fence(Scope::Block)));
    check_refused("the value has type i32, not f32", |k| k.b.store(k.y, k.zero, k.tx));
    check_refused("index of Global memory has type i64", |k| {
        let index = k.b.exprs().cast(k.tx, DType::I64);
        k.b.load("v", k.x, index);
    });
    check_refused("variable of type i32 gets an element of type f32", |k| {
        let (var, _) = k.b.var("v", I32);
        let from = Access { buffer: k.x, index: k.zero };
        k.b.emit(StmtKind::Load { var, from, hint: CacheHint::Default });
    });
    check_refused("cache hint Streaming on Shared memory", |k| {
        k.b.load_hinted("v", k.tile, k.zero, CacheHint::Streaming);
    });
    check_refused("writes to an input", |k| {
        let one = k.float(1.0);
        k.b.store(k.x, k.zero, one);
    });
}

#[test]
fn variables_are_bound_once_and_read_in_scope() {
    check_refused("bound a second time", |k| {
        let (var, _) = k.b.var("v", I32);
        k.b.emit(StmtKind::Let { var, value: k.tx });
        k.b.emit(StmtKind::Let { var, value: k.tx });
    });
    check_refused("before it is bound or outside its scope", |k| {
        let (_, read) = k.b.var("v", I32);
        let value = k.b.exprs().add(read, k.tx);
        k.b.let_("w", value);
    });
    check_refused("outside its scope", |k| {
        let condition = k.less(k.tx, 5);
        let mut escaped = None;
        k.b.if_(condition, |b| {
            let loaded = b.load("v", k.x, k.tx);
            let value = b.exprs().unary(UnaryOp::Exp, loaded);
            b.store(k.y, k.tx, value);
            escaped = Some(value);
        });
        k.b.store(k.y, k.tx, escaped.unwrap());
    });
    check_refused("outside its scope", |k| {
        let counter = k.b.count("i", k.n, Unroll::No, |_, i| i);
        k.b.let_("v", counter);
        let value = k.b.exprs().add(counter, k.tx);
        k.b.let_("v", value);
    });
}

#[test]
fn loops_end() {
    check_refused("step 0 is not positive", |k| k.b.for_("i", (k.zero, k.n, 0), Unroll::No, |_, _| ()));
    check_refused("counter has type f32", |k| {
        let zero = k.float(0.0);
        k.b.for_("i", (zero, zero, 1), Unroll::No, |_, _| ());
    });
    check_refused("the end has type i64, not i32", |k| {
        let end = k.b.exprs().cast(k.n, DType::I64);
        k.b.for_("i", (k.zero, end, 1), Unroll::No, |_, _| ());
    });
    check_refused("without constant bounds", |k| k.b.count("i", k.n, Unroll::Full, |_, _| ()));
    check_refused("unrolls 5000 iterations", |k| {
        let end = k.b.int(5000);
        k.b.count("i", end, Unroll::Full, |_, _| ());
    });
    check_refused("unrolled by 0", |k| k.b.count("i", k.n, Unroll::By(0), |_, _| ()));
    check_refused("the counter leaves i32", |k| {
        let end = k.b.int(i32::MAX.into());
        k.b.for_("i", (k.zero, end, 2), Unroll::No, |_, _| ());
    });
}

#[test]
fn vector_moves_have_one_local_side_and_provable_alignment() {
    let hint = CacheHint::Default;
    check_sound(|k| {
        let eight = k.b.int(8);
        let index = k.b.exprs().mul(k.tx, eight);
        k.b.for_("i", (k.zero, eight, 4), Unroll::Full, |b, i| {
            let from = b.exprs().add(index, i);
            b.mov((k.lanes, i), (k.x, from), 4, CacheHint::Streaming);
            b.mov((k.y, from), (k.lanes, i), 4, hint);
        });
    });
    check_refused("0 sides are local", |k| k.b.mov((k.tile, k.zero), (k.x, k.zero), 4, hint));
    check_refused("2 sides are local", |k| k.b.mov((k.lanes, k.zero), (k.lanes, k.zero), 4, hint));
    check_refused("moves f32 to i32", |k| {
        let ints = k.b.local("ints", I32, 8);
        k.b.mov((ints, k.zero), (k.x, k.zero), 4, hint);
    });
    check_refused("3 lanes", |k| k.b.mov((k.lanes, k.zero), (k.x, k.zero), 3, hint));
    check_refused("8 lanes of 4 bytes", |k| k.b.mov((k.lanes, k.zero), (k.x, k.zero), 8, hint));
    check_refused("not provably of 4", |k| {
        let two = k.b.int(2);
        let index = k.b.exprs().mul(k.tx, two);
        k.b.mov((k.lanes, k.zero), (k.x, index), 4, hint);
    });
    check_refused("16 bytes of tile8, which is aligned to 8", |k| {
        let tile = k.b.shared("tile8", F32, 64, 8);
        k.b.mov((k.lanes, k.zero), (tile, k.zero), 4, hint);
    });
    check_refused("cache hint", |k| k.b.mov((k.lanes, k.zero), (k.tile, k.zero), 4, CacheHint::Streaming));
    check_refused("cache hint Held", |k| k.b.mov((k.lanes, k.zero), (k.tile, k.zero), 4, CacheHint::Held));
}

#[test]
fn declarations_can_be_evaluated() {
    let later = |k: &mut Base| {
        let id = crate::kernel::ParamId::from_index(9);
        k.b.exprs().param(id, I32, ValueKind::Data)
    };
    check_refused("which is not declared", |k| {
        let param = later(k);
        k.b.derived("d", param);
    });
    let mut base = Base::new();
    let first = base.b.derived("first", base.n);
    let mut kernel = base.finish();
    let (id, _) = kernel.params.iter().next_back().map(|(id, p)| (id, p.clone())).unwrap();
    kernel.params[id].kind = crate::kernel::ParamKind::Derived(first);
    check_kernel("reads p4, which comes later", &kernel);

    check_refused("depends on a thread's place", |k| {
        k.b.derived("d", k.tx);
    });
    check_refused("has no constant positive length", |k| {
        k.b.local("empty", F32, 0);
    });
    check_refused("local buffers need", |k| {
        k.b.local("huge", F32, 1 << 20);
    });
    check_refused("shared buffers need", |k| {
        k.b.shared("huge", F32, 1 << 16, 4);
    });
    check_refused("has alignment 3", |k| {
        k.b.shared("odd", DType::U8, 8, 3);
    });
    check_refused("block of 64 x 32 x 1", |k| k.block = [64, 32, 1]);
    check_refused("block of 1 x 1 x 65", |k| k.block = [1, 1, 65]);
    check_refused("second pointer to output 0", |k| {
        k.b.output("again", 0, F32, k.n, 16);
    });
    check_refused("multiple of 0", |k| k.b.assume_multiple_of(k.n, 0));
    check_refused("at most Some(-1)", |k| k.b.assume_at_most(k.n, -1));
}

#[test]
fn declarations_keep_their_kinds() {
    let mut kernel = Base::new().finish();
    kernel.name = "3 bad".into();
    check_kernel("not a C identifier", &kernel);
    let mut kernel = Base::new().finish();
    kernel.index_type = DType::U8;
    check_kernel("index type is u8", &kernel);
    let mut kernel = Base::new().finish();
    kernel.buffers[BufId::from_index(1)].zeroed = true;
    check_kernel("only a workspace may ask to be zeroed", &kernel);
    let mut kernel = Base::new().finish();
    kernel.launch.max_threads = 0;
    let error = verify(&kernel).unwrap_err();
    assert!(error.notes[0].contains("blocks of 0 threads"), "{error}");
    let mut kernel = Base::new().finish();
    kernel.launch.min_blocks = 0;
    check_kernel("asks for 0 blocks", &kernel);
    let mut kernel = Base::new().finish();
    let extra = kernel.buffers[BufId::from_index(0)].clone();
    kernel.buffers.push(extra);
    check_kernel("has 0 pointers", &kernel);
}

#[test]
fn atomics_exist_for_their_type_and_place() {
    let one = |k: &mut Base| k.b.exprs().int(1, I32);
    check_sound(|k| {
        let one = one(k);
        k.b.atomic("old", AtomicOp::Inc, (k.done, k.zero), one);
        let value = k.float(1.0);
        k.b.atomic_drop(AtomicOp::Add, (k.y, k.zero), value);
    });
    check_refused("atomic Max on f32", |k| {
        let value = k.float(1.0);
        k.b.atomic_drop(AtomicOp::Max, (k.y, k.zero), value);
    });
    check_refused("atomic on local memory", |k| {
        let value = k.float(1.0);
        k.b.atomic_drop(AtomicOp::Add, (k.lanes, k.zero), value);
    });
    check_refused("writes to an input", |k| {
        let value = k.float(1.0);
        k.b.atomic_drop(AtomicOp::Add, (k.x, k.zero), value);
    });
}

#[test]
fn barriers_stand_where_their_threads_agree() {
    check_sound(|k| {
        let by_block = k.less(k.bx, 3);
        k.b.if_(by_block, |b| {
            b.count("i", k.n, Unroll::No, |b, _| b.sync(Scope::Block));
        });
    });
    check_refused("uniform per thread, not per block", |k| {
        let condition = k.less(k.tx, 32);
        let nested = k.less(k.tx, 7);
        k.b.if_(nested, |b| b.if_(condition, |b| b.sync(Scope::Block)));
    });
    check_refused("uniform per thread, not per block", |k| {
        k.b.count("i", k.tx, Unroll::No, |b, _| b.sync(Scope::Block));
    });
    check_refused("uniform per thread, not per block", |k| {
        let value = k.b.load("v", k.y, k.zero);
        let zero = k.float(0.0);
        let condition = k.b.exprs().lt(value, zero);
        k.b.if_(condition, |b| b.sync(Scope::Block));
    });
    check_refused("uniform per block, not per grid", |k| {
        k.cooperative = true;
        let condition = k.less(k.bx, 3);
        k.b.if_(condition, |b| b.sync(Scope::Grid));
    });
    check_refused("not cooperative", |k| k.b.sync(Scope::Grid));
}

#[test]
fn a_flag_in_shared_memory_is_uniform_for_the_block() {
    let flag = |k: &mut Base| {
        let value = k.b.load("flag", k.tile, k.zero);
        let zero = k.float(0.0);
        k.b.exprs().lt(value, zero)
    };
    check_sound(|k| {
        let condition = flag(k);
        k.b.if_(condition, |b| b.sync(Scope::Block));
    });
    check_refused("uniform per thread, not per block", |k| {
        let value = k.b.load("flag", k.tile, k.tx);
        let zero = k.float(0.0);
        let condition = k.b.exprs().lt(value, zero);
        k.b.if_(condition, |b| b.sync(Scope::Block));
    });
}

fn shuffle(k: &mut Base, condition: ExprId) {
    k.b.if_(condition, |b| {
        let value = b.load("v", k.x, k.zero);
        let one = b.exprs().int(1, I32);
        b.shuffle("s", value, ShuffleMode::Xor, one);
    });
}

#[test]
fn random_blocks_have_all_numbers_of_one_type() {
    let random = |k: &mut Base, types: &[DType]| {
        let vars = types.iter().map(|dtype| k.b.var("u", *dtype).0).collect();
        let word = k.b.exprs().int(1, DType::I64);
        k.b.emit(StmtKind::Random { vars, seed: word, offset: word, subsequence: word });
    };
    check_sound(|k| random(k, &[F32; 4]));
    check_sound(|k| random(k, &[DType::F64; 2]));
    let expected = "a block has four numbers of f32 or two of f64";
    for types in [&[F32; 3][..], &[F32; 5], &[F32, F32, F32, DType::F64], &[DType::F64; 4], &[I32; 4], &[]] {
        check_refused(expected, |k| random(k, types));
    }
    check_refused("the subsequence has type i32, not i64", |k| {
        let word = k.b.exprs().int(1, DType::I64);
        k.b.random("u", F32, word, word, k.tx);
    });
    check_refused("the subsequence is an index, not data", |k| {
        let (word, thread) = (k.b.exprs().int(1, DType::I64), k.b.exprs().cast(k.tx, DType::I64));
        k.b.random("u", F32, word, word, thread);
    });
    check_refused("is bound a second time", |k| {
        let var = k.b.var("u", DType::F64).0;
        let word = k.b.exprs().int(1, DType::I64);
        k.b.emit(StmtKind::Random { vars: vec![var; 2], seed: word, offset: word, subsequence: word });
    });
    // All threads draw the same: those of a block agree on what follows from it.
    check_sound(|k| {
        let word = k.b.exprs().int(1, DType::I64);
        let numbers = k.b.random("u", F32, word, word, word);
        let half = k.float(0.5);
        let condition = k.b.exprs().lt(numbers[0], half);
        k.b.if_(condition, |b| b.sync(Scope::Block));
    });
    check_refused("control flow is uniform per thread", |k| {
        let (word, thread) = (k.b.exprs().int(1, DType::I64), k.b.exprs().cast(k.tx, DType::I64));
        let thread = k.b.exprs().as_data(thread);
        let numbers = k.b.random("u", F32, word, word, thread);
        let half = k.float(0.5);
        let condition = k.b.exprs().lt(numbers[0], half);
        k.b.if_(condition, |b| b.sync(Scope::Block));
    });
}

#[test]
fn shuffles_stand_where_their_warp_agrees() {
    // Rows of 64 threads: y, x / 32 and x < 32 m are the same for a whole warp.
    check_sound(|k| {
        let condition = k.less(k.ty, 1);
        shuffle(k, condition);
    });
    check_sound(|k| {
        let thirty_two = k.b.int(32);
        let warp = k.b.exprs().div(k.tx, thirty_two);
        let condition = k.less(warp, 1);
        shuffle(k, condition);
    });
    check_sound(|k| {
        let width = k.b.int(64);
        let row = k.b.exprs().mul(k.ty, width);
        let linear = k.b.exprs().add(row, k.tx);
        let linear = k.b.let_("linear", linear);
        let condition = k.less(linear, 96);
        shuffle(k, condition);
    });
    check_refused("uniform per thread, not per warp", |k| {
        let condition = k.less(k.tx, 48);
        shuffle(k, condition);
    });
    check_refused("uniform per thread, not per warp", |k| {
        k.block = [16, 4, 1];
        let condition = k.less(k.ty, 1);
        shuffle(k, condition);
    });
    check_sound(|k| {
        k.block = [4, 2, 1];
        let condition = k.less(k.bx, 1);
        shuffle(k, condition);
    });
    check_refused("outside a block of 12 threads", |k| {
        k.block = [12, 1, 1];
        let condition = k.less(k.bx, 1);
        shuffle(k, condition);
    });
    check_refused("whole warps", |k| {
        k.block = [48, 1, 1];
        let condition = k.less(k.bx, 1);
        shuffle(k, condition);
    });
}

#[test]
fn every_violation_is_reported_up_to_a_limit() {
    let mut base = Base::new();
    for _ in 0..50 {
        base.b.set_origin(None, "test");
        base.b.store(base.y, base.zero, base.tx);
    }
    let error = verify(&base.finish()).unwrap_err();
    assert_eq!(error.message, "kernel base: 50 violations");
    assert_eq!(error.notes.len(), 41);
    assert_eq!(error.notes[0], "the value has type i32, not f32: `store y[0] = threadIdx.x` (test)");
    assert_eq!(error.notes[40], "and 10 more");
}

#[test]
fn broken_kernels_are_refused_without_panicking() {
    // Random statements over random ids, declared or not.
    crate::property::property(|u| {
        let mut base = Base::new();
        let one = base.float(1.0);
        let pool = [base.n, base.zero, base.tx, base.ty, base.bx, one, ExprId::from_index(700)];
        let buffers = [base.x, base.y, base.done, base.tile, base.lanes, BufId::from_index(50)];
        let mut vars: Vec<_> = (0..4).map(|i| base.b.var(format!("v{i}"), [I32, F32][i % 2]).0).collect();
        vars.push(crate::kernel::VarId::from_index(90));
        let mut exprs = pool.to_vec();
        exprs.extend((0..4).map(|i| base.b.exprs().var(vars[i], [I32, F32][i % 2], ValueKind::Data)));
        let mut body = Vec::new();
        for _ in 0..u.int_in_range(0..=8)? {
            let (var, a, b) = (*u.choose(&vars)?, *u.choose(&exprs)?, *u.choose(&exprs)?);
            let to = Access { buffer: *u.choose(&buffers)?, index: a };
            let from = Access { buffer: *u.choose(&buffers)?, index: b };
            let hint = CacheHint::Default;
            let inner = std::mem::take(&mut body);
            let kind = match u.int_in_range(0..=11)? {
                0 => StmtKind::Let { var, value: a },
                1 => StmtKind::Load { var, from, hint },
                2 => StmtKind::Store { to, value: b, hint },
                3 => StmtKind::Move { to, from, lanes: u.int_in_range(0..=40)?, hint, aligned: u.arbitrary()? },
                4 => StmtKind::For {
                    var,
                    start: a,
                    end: b,
                    step: u.int_in_range(-2..=2)?,
                    unroll: Unroll::Full,
                    body: inner.clone(),
                },
                5 => StmtKind::If { condition: a, then: inner.clone(), otherwise: inner.clone() },
                6 => StmtKind::Shuffle { var, value: a, mode: ShuffleMode::Index, lane: b },
                7 if u.arbitrary()? => StmtKind::Sync(Scope::Grid),
                7 => StmtKind::Random { vars: vec![var, *u.choose(&vars)?], seed: a, offset: b, subsequence: a },
                9 => StmtKind::CopyAsync { to, from, lanes: u.int_in_range(0..=40)?, hint },
                10 if u.arbitrary()? => StmtKind::CommitGroup,
                10 => StmtKind::WaitGroup { open: u.arbitrary()? },
                8 => StmtKind::Atomic { var: Some(var), op: AtomicOp::Inc, to, value: b },
                _ => StmtKind::Sync(Scope::Warp),
            };
            body = inner;
            body.push(Stmt { kind, origin: Origin::default() });
        }
        let mut kernel = base.finish();
        kernel.vars.push(Var { name: String::new(), dtype: DType::Bool, at_least: None });
        kernel.body = body;
        let _ = verify(&kernel);
        Ok(())
    });
}
