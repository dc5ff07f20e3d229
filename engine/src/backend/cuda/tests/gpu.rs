//! Printed kernels on a GPU, against what they mean:
//! `cargo test -p engine --lib -- --ignored needs_gpu --skip sticky`, and the one that
//! breaks the context of its process alone.

use crate::backend::cuda::nvrtc::{Nvrtc, NvrtcOptions};
use crate::backend::cuda::staging::PART;
use crate::backend::cuda::{
    CallMemory, CudaSource, Device, GuardedBuffer, LaunchArgs, LoadedKernel, Stream, Timer, TimingOptions, check_zones,
    emit, samples,
};
use crate::diag::code;
use crate::kernel::{BoundLaunch, BufId, CacheHint, Expr, ExprId, Kernel, ParamKind, StmtKind, bind};
use crate::num::{BinaryOp, DType, UnaryOp, Value, convert, eval, stepwise};
use crate::tensor::{Arg, ArgMeta, CopyRows, HostTensor};
use crate::util::quantile;
use std::collections::BTreeMap;
use std::sync::Arc;

#[track_caller]
fn gpu() -> (Arc<Device>, Nvrtc) {
    (Device::open(0).expect("there is a GPU"), super::nvrtc())
}

/// A kernel on the device with its launch and its memory.
struct Prepared {
    loaded: LoadedKernel,
    launch: BoundLaunch,
    args: LaunchArgs,
    buffers: BTreeMap<BufId, GuardedBuffer>,
    outputs: Vec<(BufId, DType, usize)>,
}

fn load(device: &Arc<Device>, nvrtc: &Nvrtc, kernel: &Kernel) -> LoadedKernel {
    let source: CudaSource = emit(kernel);
    let options = NvrtcOptions::new(device.desc().compute_capability, true);
    let cubin = nvrtc.compile(&source, &options).unwrap_or_else(|error| panic!("{error}\n{}", source.text()));
    LoadedKernel::load(device, &cubin.bytes, &source).unwrap()
}

impl Prepared {
    fn new(device: &Arc<Device>, nvrtc: &Nvrtc, kernel: &Kernel, args: &[Arg]) -> Self {
        let loaded = load(device, nvrtc, kernel);
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        let launch = bind(kernel, &metas).unwrap();
        let (mut buffers, mut outputs) = (BTreeMap::new(), Vec::new());
        for param in kernel.params.values() {
            let (ParamKind::Input { buffer, .. } | ParamKind::Output { buffer, .. } | ParamKind::Workspace { buffer }) =
                param.kind
            else {
                continue;
            };
            let facts = &kernel.buffers[buffer];
            let bytes = launch.buffer_lens[buffer] as usize * facts.dtype.bytes();
            let poison = if facts.zeroed { 0 } else { 0xff };
            let mut memory = GuardedBuffer::new(device, bytes, poison).unwrap();
            match param.kind {
                ParamKind::Input { input, .. } => {
                    let Arg::Tensor(tensor) = &args[input as usize] else { panic!("input {input} is a scalar") };
                    memory.upload(&tensor.data).unwrap();
                }
                ParamKind::Output { .. } => outputs.push((buffer, facts.dtype, bytes)),
                _ => {}
            }
            buffers.insert(buffer, memory);
        }
        let args = LaunchArgs::new(&launch, |buffer| buffers[&buffer].address());
        Self { loaded, launch, args, buffers, outputs }
    }

    fn launch(&self) {
        self.loaded.launch(self.launch.grid, self.launch.block, &self.args).unwrap();
    }

    fn outputs(&self) -> Vec<HostTensor> {
        let mut tensors = Vec::new();
        for &(buffer, dtype, bytes) in &self.outputs {
            let mut data = vec![0; bytes];
            self.buffers[&buffer].download(&mut data).unwrap();
            let len = (bytes / dtype.bytes()) as i64;
            tensors.push(HostTensor::contiguous(dtype, &[len], data).unwrap());
        }
        for (buffer, memory) in &self.buffers {
            memory.check(&buffer.to_string()).unwrap();
        }
        tensors
    }
}

/// Runs a kernel twice on fresh memory, so that what a launch leaves behind
/// (a grid barrier's counter) shows.
fn run(device: &Arc<Device>, nvrtc: &Nvrtc, kernel: &Kernel, args: &[Arg]) -> Vec<HostTensor> {
    let prepared = Prepared::new(device, nvrtc, kernel, args);
    prepared.launch();
    prepared.outputs()
}

fn tensor(dtype: DType, len: i64, value: impl Fn(i64) -> f64) -> Arg {
    let convert = |v: f64| eval::cast(DType::F64, dtype, Value::Float(v));
    Arg::Tensor(HostTensor::from_fn(dtype, &[len], |index| convert(value(index[0]))).unwrap())
}

fn values(tensor: &HostTensor) -> Vec<Value> {
    tensor.values().collect()
}

/// A number in [-1, 1) that depends on `i` alone.
fn noise(i: i64, seed: i64) -> f64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64).wrapping_add(seed.wrapping_mul(0x5851_f42d));
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9_u64 as i64);
    ((mixed >> 40) as f64) / f64::from(1 << 23)
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn vector_add_is_exact_for_every_tail() {
    let (device, nvrtc) = gpu();
    for n in [0, 1, 7, 8, 9, 1023, 1024, 1025, 100_003] {
        let (x, y) = (tensor(DType::BF16, n, |i| noise(i, 1)), tensor(DType::BF16, n, |i| noise(i, 2)));
        let (Arg::Tensor(a), Arg::Tensor(b)) = (&x, &y) else { unreachable!() };
        let expected: Vec<Value> = values(a)
            .iter()
            .zip(values(b))
            .map(|(a, b)| {
                let sum = eval::binary(BinaryOp::Add, DType::F32, *a, b);
                eval::cast(DType::F32, DType::BF16, sum)
            })
            .collect();
        let outputs = run(&device, &nvrtc, &samples::vector_add(), &[x, y]);
        assert_eq!(values(&outputs[0]), expected, "n = {n}");
    }
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn reductions_within_blocks_and_over_the_grid() {
    let (device, nvrtc) = gpu();
    for (rows, columns) in [(1, 1), (3, 255), (5, 4097), (300, 1000)] {
        let x = HostTensor::from_fn(DType::F32, &[rows, columns], |i| {
            Value::Float(f64::from(noise(i[0] * columns + i[1], 3) as f32))
        })
        .unwrap();
        let data = x.to_f64();
        let outputs = run(&device, &nvrtc, &samples::row_sum(), &[Arg::Tensor(x)]);
        for (row, sum) in outputs[0].to_f64().into_iter().enumerate() {
            let terms = &data[row * columns as usize..(row + 1) * columns as usize];
            let expected: f64 = terms.iter().sum();
            assert!(
                (sum - expected).abs() < 1e-5 * (columns as f64).sqrt(),
                "{rows}x{columns} row {row}: {sum} {expected}"
            );
        }
    }
    for n in [1, 1024, 1025, 1_000_003] {
        let x = tensor(DType::F32, n, |i| noise(i, 4));
        let expected: f64 = (0..n).map(|i| f64::from(noise(i, 4) as f32)).sum();
        let outputs = run(&device, &nvrtc, &samples::sum_all(), &[x]);
        let sum = outputs[0].to_f64()[0];
        assert!((sum - expected).abs() < 1e-4 * (n as f64).sqrt(), "{n}: {sum} {expected}");
    }
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn atomics_and_the_grid_barrier() {
    let (device, nvrtc) = gpu();
    let n = 100_000;
    let number = |i: i64| (noise(i, 5) * 1000.0).trunc();
    // Outputs of atomics accumulate on what is there: the poison, all ones, is -1.
    let args = [tensor(DType::I32, n, number), Arg::Scalar(Value::Int(250))];
    let outputs = run(&device, &nvrtc, &samples::count_above(), &args);
    let above = (0..n).filter(|&i| number(i) > 250.0).count() as i64;
    let largest = (0..n).map(number).fold(f64::MIN, f64::max) as i64;
    assert_eq!(values(&outputs[0]), [Value::Int(above - 1)]);
    assert_eq!(values(&outputs[1]), [Value::Int(largest)]);

    for n in [1, 256, 257, 30_000] {
        let prepared = Prepared::new(&device, &nvrtc, &samples::grid_reverse(), &[tensor(DType::I32, n, |i| i as f64)]);
        for _ in 0..50 {
            prepared.launch();
        }
        assert_eq!(values(&prepared.outputs()[0]), vec![Value::Int(n - 1); n as usize], "n = {n}");
    }
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn writes_outside_of_a_buffer_are_found() {
    let (device, nvrtc) = gpu();
    let prepared = Prepared::new(&device, &nvrtc, &samples::writes_behind_the_end(), &[tensor(DType::I32, 5, |_| 0.0)]);
    prepared.launch();
    let errors: Vec<_> = prepared.buffers.values().filter_map(|memory| memory.check("y").err()).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code, code::RED_ZONE);
    assert!(errors[0].message.contains("wrote 4 bytes behind the end of buffer y (20 bytes)"), "{}", errors[0]);
}

/// Copies words; `gap` leaves every third one out, `spoil` changes the input.
const COPY: &str = r#"
extern "C" __global__ void copy(unsigned* in, unsigned* out, unsigned long long n, unsigned long long gap,
                                unsigned long long spoil) {
  const unsigned long long i = blockIdx.x * 256ull + threadIdx.x;
  if (i < n && !(gap && i % 3 == 2)) out[i] = in[i];
  if (spoil && i == 7) in[i] = 8;
}
"#;

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn checked_calls_tell_results_from_poison() {
    let (device, nvrtc) = gpu();
    let options = NvrtcOptions::new(device.desc().compute_capability, true);
    let cubin = nvrtc.compile_text(COPY, "copy", &options).unwrap();
    let kernel = LoadedKernel::load_entry(&device, &cubin.bytes, "copy", 0, 5).unwrap();
    let check = |word: u32, gap: u64, spoil: u64| {
        let data: Vec<u8> = std::iter::repeat_n(word.to_le_bytes(), 1000).flatten().collect();
        let mut memory = CallMemory::new(&device);
        let words = [memory.input(&data)?, memory.output(data.len(), 4)?, 1000, gap, spoil];
        let launch = || {
            kernel.launch([4, 1, 1], [256, 1, 1], &LaunchArgs::words(&words))?;
            device.synchronize()
        };
        launch()?;
        memory.check_zones(&kernel)?;
        memory.check_inputs(&kernel, [(0, data.as_slice())])?;
        let found = memory.outputs()?;
        memory.check_written(&kernel, &found, |_| "y".into(), launch).map(drop)
    };
    // -1, a NaN, and both poisons are results like any other.
    for word in [0, u32::MAX, 0x7fff_ffff, 0x5b5b_5b5b] {
        check(word, 0, 0).unwrap();
        let error = check(word, 1, 0).unwrap_err();
        assert_eq!(error.code, code::UNWRITTEN, "{error}");
        assert!(error.message.contains("leaves 333 elements of output 0 `%y` unwritten"), "{error}");
    }
    assert_eq!(check(1, 0, 1).unwrap_err().code, code::INPUT_CHANGED);
    // Everything was given back, and the device is as good as before.
    assert_eq!(device.memory_use().live, 0);
    device.probe().unwrap();
}

#[test]
#[ignore = "needs a GPU and NVRTC, and breaks its context: run it alone"]
fn a_failed_kernel_is_a_sticky_error() {
    let (device, nvrtc) = gpu();
    let prepared = Prepared::new(&device, &nvrtc, &samples::reads_nowhere(), &[tensor(DType::I32, 5, |_| 0.0)]);
    prepared.launch();
    let first = device.synchronize().expect_err("the kernel read an illegal address");
    assert_eq!(first.code, code::CUDA_STICKY, "{first}");
    assert!(first.message.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{first}");
    assert_eq!(first.cuda.as_ref().map(|error| (error.number, error.sticky)), Some((700, true)));
    let later = device.alloc(1 << 20).and_then(|mut memory| memory.fill(0, 4, 0)).expect_err("the context is broken");
    assert_eq!(later.code, code::CUDA_STICKY, "{later}");
}

// Every operation of every data type, against `num::eval`.

const FLOATS: &[f64] = &[
    0.0,
    -0.0,
    0.25,
    -0.25,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    2.0,
    -2.5,
    3.0,
    7.0,
    -7.0,
    10.5,
    31.0,
    -33.0,
    88.0,
    -90.0,
    100.0,
    127.0,
    128.0,
    -128.5,
    255.5,
    256.0,
    300.0,
    1e4,
    // Ties and the ends of the floats of few bits.
    448.0,
    464.0,
    -464.5,
    57344.0,
    61439.0,
    -61440.0,
    0.017578125,
    0.0009765625,
    1.1e-5,
    5.0,
    -65504.0,
    65520.0,
    1e6,
    16_777_217.0,
    -2_147_483_648.0,
    2_147_483_648.0,
    9.3e18,
    1e20,
    -1e30,
    3e38,
    1e-6,
    -1e-8,
    1e-30,
    1e-40,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    0.9999,
    1.0001,
    0.3333333333333333,
    1.9999,
    -0.9999,
];
const INTS: &[i64] = &[
    0,
    1,
    -1,
    2,
    -2,
    3,
    5,
    -7,
    8,
    12,
    18,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    -128,
    255,
    256,
    1000,
    -1000,
    65_535,
    16_777_217,
    33_554_435,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 33,
    (1 << 53) + 1,
    i64::MAX,
    i64::MIN,
];

/// All values of a type that matter, and random ones.
fn palette(dtype: DType) -> Vec<Value> {
    let mut found: Vec<Value> = match dtype {
        DType::Bool => vec![Value::Bool(false), Value::Bool(true)],
        _ if dtype.is_float() => {
            let random = (0..60).map(|i| noise(i, 7) * 10f64.powi((i % 7) as i32 - 3));
            FLOATS.iter().copied().chain(random).map(|v| eval::cast(DType::F64, dtype, Value::Float(v))).collect()
        }
        _ => INTS.iter().map(|&v| eval::cast(DType::I64, dtype, Value::Int(v))).collect(),
    };
    found.sort();
    found.dedup();
    found
}

/// What one output of an operations kernel means, read off its store.
fn meaning(kernel: &Kernel, id: ExprId, operands: &BTreeMap<String, Value>) -> Value {
    let node = kernel.exprs[id];
    let dtype_of = |id: ExprId| kernel.exprs.dtype(id);
    let value = |id: ExprId| meaning(kernel, id, operands);
    match node.expr {
        Expr::Const(v) => v,
        Expr::Var(var) => operands[&kernel.vars[var].name],
        Expr::Unary(op, a) => stepwise::unary(op, dtype_of(a), value(a)),
        Expr::Binary(op, a, b) => eval::binary(op, dtype_of(a), value(a), value(b)),
        Expr::Ternary(op, a, b, c) => stepwise::ternary(op, dtype_of(c), value(a), value(b), value(c)),
        Expr::Cast(a) => eval::cast(dtype_of(a), node.dtype, value(a)),
        Expr::Approx(op, a) => Value::Float(op.eval()(value(a).as_f64())),
        Expr::Rounded(a) => value(a),
        Expr::Param(_) | Expr::Special(_) | Expr::Index(..) | Expr::AsData(_) | Expr::AsIndex(_) => {
            panic!("an operation reads only its operands")
        }
    }
}

/// Distance in units of the last place of the expected value's type, of that value or of
/// a larger one that a step of the operation has; 0 for equal or both NaN, and where
/// the type cannot hold the step, so that it matters whether it is rounded.
fn distance(dtype: DType, actual: Value, expected: Value, step: f64) -> f64 {
    let (a, e) = (actual.as_f64(), expected.as_f64());
    let same = |a: f64, e: f64| a == e || a.is_nan() && e.is_nan();
    if !dtype.is_float() {
        let ((a, b), (e, f)) = (actual.as_complex(), expected.as_complex());
        let is_equal = actual == expected || dtype.is_complex() && same(a, e) && same(b, f);
        return if is_equal { 0.0 } else { f64::INFINITY };
    }
    let holds = |value: f64| eval::cast(DType::F64, dtype, Value::Float(value)).as_f64().is_finite();
    if same(a, e) || !holds(step) {
        return 0.0;
    }
    if !a.is_finite() || !e.is_finite() {
        return f64::INFINITY;
    }
    let (fraction, least) = match dtype {
        DType::F64 => (52, -1022),
        DType::F16 => (10, -14),
        DType::BF16 => (7, -126),
        DType::F8E4M3FN => (3, -6),
        DType::F8E5M2 => (2, -14),
        DType::F8E8M0FNU => (0, -127),
        DType::F4E2M1FN => (1, 0),
        _ => (23, -126),
    };
    let exponent = (e.abs().max(step).log2().floor() as i32).max(least);
    // In two steps: the last place of a small f64 is itself out of range for `powi`.
    (a - e).abs() * 2f64.powi(fraction) / 2f64.powi(exponent)
}

/// The largest value that a step of an operation has, where digits of it can be lost in
/// the result: what a sum cancels, and a factor that is subnormal.
fn largest_step(name: &str, dtype: DType, operands: &BTreeMap<String, Value>) -> f64 {
    let [a, b, c] = ["a", "b", "c"].map(|name| operands[name].as_f64());
    let least = if dtype == DType::F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
    let step = match name {
        "lerp" => a.abs().max(b.abs()).max(((b - a) * c).abs()).max(((b - a) * (1.0 - c)).abs()),
        // The larger of its two terms, about.
        "gelu_slope" if a > 0.0 => 1.0,
        "gelu_slope" => (-a * a / 2.0).exp() * (-0.4 * a).max(0.5 / (1.0 - a)),
        _ if name.starts_with("silu") => a.abs() * least,
        _ => 0.0,
    };
    if step.is_finite() { step } else { 0.0 }
}

/// How far an operation may be off, in units of the last place: what CUDA
/// documents for its functions, and a little for the reference's own error.
fn allowed(name: &str) -> f64 {
    match name {
        "acos" | "acosh" | "asin" | "asinh" | "atan" | "atan2" | "atanh" | "cosh" | "sinh" | "tan" | "tanh" => 5.0,
        "cos" | "sin" | "exp" | "exp2" | "expm1" | "log" | "log10" | "log1p" | "log2" | "rsqrt" | "reciprocal" => 3.0,
        "erfc" | "erfinv" | "erfcinv" | "pow" => 10.0,
        "lgamma" => 40.0,
        "erf" => 3.0,
        "sigmoid" | "silu" => 5.0,
        // A product and a sum may be fused.
        "lerp" => 1.0,
        // Against the same algorithm: what the hardware's power and reciprocal may differ by.
        "exp_flush" | "exp_fast" | "exp_below" | "erf_fast" | "erf_plus_one" | "erf_plus_one_short" => 3.0,
        "gelu_slope" => 8.0,
        "tanh_plus_one" => 5.0,
        "sigmoid_flush" | "sigmoid_fast" | "silu_flush" | "silu_fast" => 5.0,
        "remainder" | "nextafter" => 2.0,
        _ => 0.0,
    }
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn every_operation_means_what_the_simulator_says() {
    let (device, nvrtc) = gpu();
    let mut failures = Vec::new();
    // Cases hold complex numbers to the reference, by the distance of both parts.
    for dtype in DType::FUSION.iter().copied().filter(|dtype| !dtype.is_complex()) {
        let kernel = samples::all_ops(dtype);
        let palette = palette(dtype);
        // Every pair of values, and a third that runs through them at another pace.
        let count = (palette.len() * palette.len()) as i64;
        let pick = |operand: usize, i: i64| {
            let (i, n) = (i as usize, palette.len());
            palette[[i % n, i / n, (i / n + 3 * i) % n][operand]]
        };
        let args: Vec<Arg> = (0..3)
            .map(|operand| Arg::Tensor(HostTensor::from_fn(dtype, &[count], |index| pick(operand, index[0])).unwrap()))
            .collect();
        let outputs = run(&device, &nvrtc, &kernel, &args);
        let stored = stores(&kernel);
        for (output, (name, result, id)) in outputs.iter().zip(stored) {
            let (mut worst, mut example) = (0.0, String::new());
            for (i, actual) in output.values().enumerate() {
                let operands: BTreeMap<String, Value> =
                    ["a", "b", "c"].iter().enumerate().map(|(k, n)| (n.to_string(), pick(k, i as i64))).collect();
                let expected = meaning(&kernel, id, &operands);
                let off = distance(result, actual, expected, largest_step(&name, dtype, &operands));
                // Functions of the library may lose digits of denormal results.
                let is_denormal = name != "to_f64"
                    && !name.ends_with("_fast")
                    && expected.as_f64().abs() < 1.2e-38
                    && actual.as_f64().abs() < 1.2e-38;
                if off > worst && !(is_denormal && result == DType::F32 && allowed(&name) > 0.0) {
                    worst = off;
                    example = format!("{operands:?} gives {actual:?}, expected {expected:?}");
                }
            }
            if worst > 0.0 {
                println!("{dtype} {name}: {worst:.2} units off, {example}");
            }
            if worst > allowed(&name) {
                failures.push(format!("{dtype} {name}: {worst:.2} units off, {example}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} operations are off:\n{}", failures.len(), failures.join("\n"));
}

/// The outputs of an operations kernel: name, type, value.
fn stores(kernel: &Kernel) -> Vec<(String, DType, ExprId)> {
    let mut found = Vec::new();
    for stmt in &kernel.body {
        let StmtKind::If { then, .. } = &stmt.kind else { continue };
        for stmt in then {
            if let StmtKind::Store { to, value, .. } = &stmt.kind {
                let buffer = &kernel.buffers[to.buffer];
                found.push((buffer.name.clone(), buffer.dtype, *value));
            }
        }
    }
    found
}

/// Measures a kernel on the first of the arguments; prints a line and returns the share of a copy.
fn measure(cx: &mut (Arc<Device>, Nvrtc, Timer), name: &str, kernel: &Kernel, args: &[Arg]) -> f64 {
    let (device, nvrtc, timer) = cx;
    let inputs = kernel.params.values().filter(|p| matches!(p.kind, ParamKind::Input { .. })).count();
    let prepared = Prepared::new(device, nvrtc, kernel, &args[..inputs]);
    let Arg::Tensor(first) = &args[0] else { panic!("the first argument is a tensor") };
    let copy_bytes = first.data.len() as u64 * (inputs as u64 + 1);
    let options = TimingOptions { warmup: 3, samples: 20, flush_l2: true, copy_bytes, issues: 1, stretch_ppm: 0 };
    let samples = timer
        .measure(&options, |_| prepared.loaded.launch(prepared.launch.grid, prepared.launch.block, &prepared.args))
        .unwrap();
    let at = |share| quantile(&samples.launch_ns, share).unwrap() / 1e3;
    let copy = quantile(&samples.copy_ns, 0.5).unwrap() / 1e3;
    let registers = prepared.loaded.registers().unwrap();
    let share = copy / at(0.5);
    println!(
        "{name:56} {:9.1} {:9.1} {:9.1} {copy:9.1} {share:7.3} {registers:5} {:7.0}",
        at(0.1),
        at(0.5),
        at(0.9),
        copy_bytes as f64 / at(0.5) / 1e3
    );
    share
}

fn bf16_arg(n: i64, seed: i64) -> Arg {
    let round = |i: i64| convert::f32_to_bf16((noise(i % 65_537, seed) * 3.0) as f32);
    let bytes: Vec<u8> = (0..n).flat_map(|i| round(i).to_le_bytes()).collect();
    Arg::Tensor(HostTensor::contiguous(DType::BF16, &[n], bytes).unwrap())
}

#[test]
#[ignore = "needs a GPU and NVRTC"]
fn chains_run_near_the_speed_of_a_copy() {
    let (device, nvrtc) = gpu();
    println!("{:?}, UUID {}", device.desc(), device.uuid());
    let timer = Timer::new(&device, &nvrtc).unwrap();
    let mut cx = (device, nvrtc, timer);
    let args = [1, 2, 3].map(|seed| bf16_arg(16384 * 4096, seed));
    println!(
        "{:56} {:>9} {:>9} {:>9} {:>9} {:>7} {:>5} {:>7}",
        "kernel", "p10 us", "median us", "p90 us", "copy us", "share", "regs", "GB/s"
    );
    let quotient = samples::chain("div_chain", samples::PLAIN, |b, [x, y, z]| {
        let sum = b.exprs().add(x, z);
        b.exprs().binary(BinaryOp::Div, sum, y)
    });
    let mut kernels = vec![samples::vector_add(), quotient];
    let ops = [UnaryOp::Exp, UnaryOp::Silu, UnaryOp::Tanh, UnaryOp::Rsqrt, UnaryOp::Reciprocal, UnaryOp::Log];
    kernels.extend(ops.map(samples::unary_chain));
    let single =
        |op: UnaryOp| samples::chain(&format!("{op}_single"), samples::PLAIN, move |b, [x]| b.exprs().unary(op, x));
    kernels.extend([UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Erf, UnaryOp::Silu, UnaryOp::Tanh].map(single));
    for kernel in &kernels {
        let share = measure(&mut cx, &kernel.name, kernel, &args);
        assert!(share > 0.3, "{} is far from a copy", kernel.name);
    }
    for load in [CacheHint::Default, CacheHint::Streaming] {
        for store in [CacheHint::Default, CacheHint::Streaming] {
            for (threads, vectors) in [(128, 1), (128, 2), (256, 1), (256, 4), (512, 1)] {
                let spread = samples::Spread { threads, vectors, load, store };
                let name = format!("{threads} threads x {vectors}, load {load:?}, store {store:?}");
                measure(&mut cx, &format!("gelu {name}"), &samples::gelu_chain(spread), &args);
                let single = samples::chain("neg", spread, |b, [x]| b.exprs().unary(UnaryOp::Neg, x));
                measure(&mut cx, &format!("neg {name}"), &single, &args);
            }
        }
    }
    for millions in [1, 4, 16, 256] {
        let args = [1, 2].map(|seed| bf16_arg(millions << 20, seed));
        measure(&mut cx, &format!("vector_add of {millions} Mi"), &samples::vector_add(), &args);
    }
}

/// A launch that waits for the device, allocates or looks something up in a text
/// costs more than ten microseconds; the driver's own part is two or three. The
/// best of some rounds is what the machine can do when nothing else is on it.
#[test]
#[ignore = "needs a GPU and NVRTC"]
fn a_launch_costs_the_host_little() {
    let (device, nvrtc) = gpu();
    let args = [bf16_arg(1024, 1), bf16_arg(1024, 2)];
    let small = Prepared::new(&device, &nvrtc, &samples::vector_add(), &args);
    let host_us = |launches: u32| {
        device.synchronize().unwrap();
        let start = std::time::Instant::now();
        (0..launches).for_each(|_| small.launch());
        start.elapsed().as_secs_f64() * 1e6 / f64::from(launches)
    };
    host_us(100);
    let rounds = [(); 5].map(|()| host_us(500));
    println!("host time of a launch: {rounds:.2?} us");
    let best = rounds.into_iter().fold(f64::INFINITY, f64::min);
    assert!(best < 10.0, "a launch costs the host {best:.2} us");
}

/// Rows of every width, with gaps of every kind, between zones that stay as they were.
#[test]
#[ignore = "needs a GPU"]
fn rows_are_copied_and_nothing_else() {
    let device = Device::open(0).expect("there is a GPU");
    let given: Vec<u8> = (0..1u32 << 16).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    let source = GuardedBuffer::holding(&device, &given).unwrap();
    for bytes in [1, 2, 3, 4, 16, 100] {
        // Overlapping rows are read, as of an expanded axis, never written.
        for from_pitch in [0, 1, bytes, bytes + 1, bytes + 13, 512] {
            for to_pitch in [bytes, bytes + 1, bytes + 7, 509] {
                for rows in [1, 2, 37] {
                    let copy = CopyRows { from: 5, to: 3, bytes, rows, from_pitch, to_pitch };
                    let mut expected = vec![0x5b; (3 + rows * to_pitch + bytes) as usize];
                    for row in 0..rows {
                        let (from, to) = ((5 + row * from_pitch) as usize, (3 + row * to_pitch) as usize);
                        expected[to..][..bytes as usize].copy_from_slice(&given[from..][..bytes as usize]);
                    }
                    let target = GuardedBuffer::new(&device, expected.len(), 0x5b).unwrap();
                    device.copy_rows(target.address(), source.address(), &copy, device.stream()).unwrap();
                    let mut found = vec![0; expected.len()];
                    target.download(&mut found).unwrap();
                    assert!(found == expected, "{copy:?}");
                    check_zones(&[("target", &target)]).unwrap();
                }
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_part_is_repeated_between_the_zones() {
    let (device, _) = gpu();
    for (part, len) in [(1, 4099), (7, 7), (7, 6), (1_048_573, 5_000_001), (2 * 1_048_573, 9 * 1_048_573 + 3)] {
        let given: Vec<u8> = (0..part).map(|i| (i % 251) as u8).collect();
        let buffer = GuardedBuffer::repeating(&device, &given, len).unwrap();
        let wanted: Vec<u8> = given.iter().copied().cycle().take(len).collect();
        assert!(buffer.bytes_from(0, len).unwrap() == wanted, "{part} of {len}");
        check_zones(&[("repeated", &buffer)]).unwrap();
    }
    assert!(GuardedBuffer::repeating(&device, &[], 3).is_err() && GuardedBuffer::repeating(&device, &[], 0).is_ok());
}

/// Copies through pinned memory, by several threads at once, on several streams, and after a difference was found.
#[test]
#[ignore = "needs a GPU"]
fn large_copies_bring_all_bytes() {
    let device = Device::open(0).expect("there is a GPU");
    let bytes = |len: usize, seed: u32| -> Vec<u8> {
        (0..len as u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 23) as u8).collect()
    };
    let there_and_back = |given: &[u8], stream: Stream| {
        let buffer = device.alloc_on(given.len(), stream).unwrap();
        device.upload_to(buffer.address(), given, stream).unwrap();
        let mut found = vec![0; given.len()];
        device.download_from(buffer.address(), &mut found, stream).unwrap();
        assert!(found == given, "{} bytes", given.len());
        assert!(buffer.all_bytes().unwrap() == given, "{} bytes at once", given.len());
    };
    for len in [(1 << 20) - 1, 1 << 20, PART, PART + 1, 2 * PART, 3 * PART + 7] {
        there_and_back(&bytes(len, 1), device.stream());
    }
    let given = bytes(3 * PART + 7, 2);
    let buffer = GuardedBuffer::holding(&device, &given).unwrap();
    assert!(buffer.bytes_from(PART + 3, PART).unwrap() == given[PART + 3..][..PART]);
    assert!(buffer.copied().unwrap().all_bytes().unwrap() == given && buffer.bytes_from(1, given.len()).is_err());
    for at in [0, PART - 1, PART, 2 * PART + 5, 3 * PART + 6] {
        let mut other = given.clone();
        other[at] ^= 4;
        let error = buffer.check_unchanged("x", &other).unwrap_err();
        assert!(error.message.ends_with(&format!("the first at byte {at}")), "{error}");
        buffer.check_unchanged("x", &given).unwrap();
    }
    let streams = [device.stream(), Stream::create().unwrap()];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let work = move || {
                let given = bytes(2 * PART + 9, thread);
                (0..8).for_each(|round| there_and_back(&given, streams[(thread as usize + round) % 2]));
            };
            scope.spawn(work);
        }
    });
}
