//! What a call costs the host on a GPU whose tensors are there: microseconds, and
//! allocations of the host's memory, beside a bare launch.
//!
//!     call_times [NVRTC]
//!
//! Ends with 1 where a call that was made before allocates.

#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use engine::backend::cuda::nvrtc::{NvrtcOptions, NvrtcSearch};
use engine::backend::cuda::{LaunchArgs, LoadedKernel};
use engine::diag::Result;
use engine::fusion::Fusion;
use engine::num::{DType, Value};
use engine::options::{NoTrace, Options};
use engine::runtime::{Callable, DeviceArg, DeviceTensor, OwnedTensor, Session};
use engine::tensor::{Arg, HostTensor};
use engine::text;
use engine::util::quantile;
use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// Calls of which the median is taken, and rounds of which the best is.
const CALLS: usize = 400;
const ROUNDS: usize = 7;

/// Host time in microseconds and allocations of a call: the median of many, the best of some rounds.
fn time(session: &Session, mut call: impl FnMut() -> Result<()>) -> Result<(f64, u64)> {
    let (mut best, mut allocations) = (f64::INFINITY, u64::MAX);
    for _ in 0..ROUNDS {
        let mut times = Vec::with_capacity(CALLS);
        let mut allocated = 0;
        for number in 0..CALLS {
            // The queue of launches is never full: a full one would be waited for.
            if number % 50 == 0 {
                session.probe()?;
            }
            let (before, start) = (ALLOCATIONS.load(Ordering::Relaxed), Instant::now());
            call()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            allocated += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
        best = best.min(quantile(&times, 0.5).unwrap_or(f64::INFINITY));
        allocations = allocations.min(allocated);
    }
    session.probe()?;
    Ok((best, allocations))
}

fn parsed(source: &str) -> Fusion {
    text::parse_one(source).unwrap_or_else(|errors| panic!("{errors:?}\n{source}"))
}

/// A chain of so many elementwise operations of one kernel.
fn chain(operations: usize) -> Fusion {
    let mut body = String::from("  %0 = add %x, %y\n");
    for i in 1..operations {
        body += &format!(
            "  %{i} = {}\n",
            if i % 2 == 0 { format!("mul %{}, %y", i - 1) } else { format!("neg %{}", i - 1) }
        );
    }
    parsed(&format!("fusion @chain{operations}(%x: f32[?], %y: f32[?]) {{\n{body}  return %{}\n}}\n", operations - 1))
}

/// So many kernels, one behind the other.
fn kernels(count: usize) -> Fusion {
    let mut body = String::new();
    let mut last = "x".to_string();
    for i in 0..count {
        body += &format!("  %a{i} = tanh %{last}\n  %b{i} = segment_set %a{i}\n");
        last = format!("b{i}");
    }
    parsed(&format!("fusion @kernels{count}(%x: f32[?]) {{\n{body}  %r = neg %{last}\n  return %r\n}}\n"))
}

/// A product that a library computes.
fn product() -> Fusion {
    parsed("fusion @product(%x: f32[?], %y: f32[?]) {\n  %0 = matmul %x, %y\n  return %0\n}\n")
}

fn uploaded(session: &Session, inputs: usize, len: i64) -> Result<Vec<OwnedTensor>> {
    let tensor = || HostTensor::from_fn(DType::F32, &[len], |i| Value::Float((i[0] % 7) as f64 / 8.0));
    (0..inputs).map(|_| session.upload(&tensor()?)).collect()
}

fn args(tensors: &[OwnedTensor]) -> Vec<DeviceArg<'_>> {
    tensors.iter().map(|tensor| DeviceArg::Tensor(tensor.tensor())).collect()
}

/// A launch of a kernel that does nothing, through the same driver call.
fn bare(session: &Session) -> Result<(f64, u64)> {
    let (device, nvrtc) = session.gpu().expect("the session has a GPU");
    let text = "extern \"C\" __global__ void nothing(float* x) {}";
    let options = NvrtcOptions::new(device.desc().compute_capability, true);
    let cubin = nvrtc.compile_text(text, "nothing", &options)?;
    let kernel = LoadedKernel::load_entry(device, &cubin.bytes, "nothing", 0, 1)?;
    let args = LaunchArgs::words(&[0]);
    time(session, || kernel.launch([1; 3], [128, 1, 1], &args))
}

fn row(what: &str, (us, allocations): (f64, u64)) -> bool {
    let per_call = allocations as f64 / CALLS as f64;
    println!("{what:44} {us:8.2} us {per_call:6.2} allocations a call");
    allocations == 0
}

fn fusion_rows(session: &Session, name: &str, fusion: &Fusion) -> Result<bool> {
    let tensors = uploaded(session, fusion.inputs.len(), 1024)?;
    let (args, stream) = (args(&tensors), session.stream()?);
    let callable = Callable::new(session, fusion)?;
    let outputs = callable.call(&args, stream)?;
    let given: Vec<DeviceTensor<'_>> = outputs.iter().map(|output| output.tensor()).collect();
    let mut clean =
        row(&format!("{name}, results given"), time(session, || callable.call_into(&args, &given, stream))?);
    clean &= row(&format!("{name}, results allocated"), time(session, || callable.call(&args, stream).map(drop))?);
    let graph = callable.capture(&args)?;
    clean &= row(&format!("{name}, as a graph"), time(session, || graph.launch(stream))?);
    Ok(clean)
}

/// The first call with sizes whose kernels are compiled: what is not the first of its kind.
fn new_shapes(session: &Session, name: &str, fusion: &Fusion) -> Result<()> {
    let callable = Callable::new(session, fusion)?;
    let stream = session.stream()?;
    let mut times = Vec::new();
    for number in 0..40 {
        let tensors = uploaded(session, fusion.inputs.len(), 4096 + 8 * number)?;
        let args = args(&tensors);
        let start = Instant::now();
        callable.call(&args, stream)?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let median = quantile(&times[8..], 0.5).unwrap_or(f64::NAN);
    println!("{name:44} {median:8.2} us");
    Ok(())
}

/// Scalars that change from call to call.
fn scalars(session: &Session) -> Result<bool> {
    let fusion = parsed("fusion @scaled(%x: f32[?], %s: f64) {\n  %0 = mul %x, %s\n  return %0\n}\n");
    let tensors = uploaded(session, 1, 1024)?;
    let (callable, stream) = (Callable::new(session, &fusion)?, session.stream()?);
    let mut number = 0.0;
    let timed = time(session, || {
        number += 1.0;
        let args = [DeviceArg::Tensor(tensors[0].tensor()), DeviceArg::Scalar(Value::Float(number))];
        callable.call(&args, stream).map(drop)
    })?;
    println!("{} programs for {} values of a scalar", callable.kept(), number);
    Ok(row("a scalar that changes, results allocated", timed) && callable.kept() == 1)
}

/// The same call through host tensors, for comparison.
fn whole_run(session: &Session) -> Result<()> {
    let fusion = chain(2);
    let tensor = HostTensor::from_fn(DType::F32, &[1024], |_| Value::Float(1.0))?;
    let args = [Arg::Tensor(tensor.clone()), Arg::Tensor(tensor)];
    let timed = time(session, || session.run(&fusion, &args, &NoTrace).map(drop))?;
    row("2 operations, from host to host", timed);
    Ok(())
}

fn measured() -> Result<bool> {
    let path = std::env::args().nth(1).map(Into::into);
    let search = NvrtcSearch { path, ..NvrtcSearch::default() };
    let session = Session::cuda_with(0, Options::default(), &search)?;
    row("a bare launch", bare(&session)?);
    let mut clean = true;
    let fusions = [
        ("2 operations", chain(2)),
        ("50 operations", chain(50)),
        ("12 kernels", kernels(12)),
        ("a library's product", product()),
    ];
    for (name, fusion) in fusions {
        clean &= fusion_rows(&session, name, &fusion)?;
    }
    clean &= scalars(&session)?;
    new_shapes(&session, "new sizes, 2 operations", &chain(2))?;
    new_shapes(&session, "new sizes, 12 kernels", &kernels(12))?;
    whole_run(&session)?;
    Ok(clean)
}

fn main() -> ExitCode {
    match measured() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("a call that was made before allocates, or keeps more than it needs");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
