//! Device faults on the simulator: each kernel is run as a case's would be, under
//! a schedule that the seed chooses.

use super::judged;
use crate::outcome::{Determinism, Outcome, apply_learnt};
use crate::worker::args::mix;
use crate::worker::device::Device;
use crate::worker::fault::table::{FaultClass, FaultKind, FaultTarget, Scene};
use crate::worker::{facts, variation};
use engine::backend::sim::SimMemory;
use engine::diag::Result;
use engine::kernel::{
    AtomicOp, BufId, CacheHint, Dim, ExprId, Kernel, KernelBuilder, Scope, ShuffleMode, Unroll, bind,
};
use engine::num::{BinaryOp, DType};
use engine::options::{SimOptions, SimSchedule};
use engine::runtime::Session;
use engine::tensor::{Arg, HostTensor};

pub(super) const CLASSES: &[FaultClass] = &[
    row("sim_out_of_bounds", "fail.out_of_bounds", "reads one element too many", |s, _| run(s, 100, off_by_one())),
    row("sim_before_start", "fail.out_of_bounds", "writes before its output", |s, _| run(s, 64, before_start())),
    row("sim_shared_bounds", "fail.out_of_bounds", "overruns a shared array", |s, _| run(s, 64, shared_bounds())),
    row("sim_misaligned", "fail.misaligned", "moves 16 bytes from a third element on", |s, _| {
        run(s, 128, misaligned())
    }),
    row("sim_race_block", "fail.race", "two threads write one element", |s, _| run(s, 64, two_writers())),
    row("sim_race_barrier", "fail.race", "a barrier is missing in a loop", |s, _| run(s, 64, missing_barrier())),
    row("sim_race_grid", "fail.race", "blocks exchange data without a barrier", |s, _| {
        run(s, 256, missing_grid_barrier())
    }),
    row("sim_uninitialised", "fail.uninitialised", "reads shared memory that nobody wrote", |s, _| {
        run(s, 64, uninitialised())
    }),
    row("sim_divergence", "fail.divergence", "half a warp reaches a barrier", |s, _| run(s, 64, barrier_for(16))),
    row("sim_shuffle", "fail.divergence", "a shuffle reads a lane that does not exist", |s, _| run(s, 40, shuffle())),
    row("sim_stuck_barrier", "fail.deadlock", "one of two warps waits for the other", |s, _| {
        run(s, 64, barrier_for(32))
    }),
    row("sim_residency", "fail.deadlock", "a grid barrier waits for blocks that find no room", |s, _| {
        run_with(s, 128, grid_barrier(), |options| SimOptions { resident_blocks: 3, ..options })
    }),
    row("sim_infinite", "fail.deadlock", "a loop goes on without end", |s, _| {
        run_with(s, 32, endless(), |options| SimOptions { max_steps: 20_000, ..options })
    }),
    row("sim_unwritten", "fail.unwritten", "leaves most of its output as it was", |s, _| run(s, 100, short_copy())),
    row("sim_input_changed", "fail.input_changed", "writes into its input", |s, _| run(s, 64, writes_input()))
        .replaced(),
    row("sim_shared_limit", "fail.launch_config", "asks for more shared memory than a block has", |s, _| {
        run(s, 64, shared_limit())
    }),
    row("sim_grid_limit", "fail.launch_config", "asks for more blocks than a grid has", |s, _| {
        run(s, 64, grid_limit())
    }),
    row("sim_block_limit", "fail.launch_config", "asks for more threads than a block has", |s, _| {
        run(s, 64, vector("block_limit", 1, 4096, copy))
    }),
    row("sim_oom", "oom.device", "asks for more memory than the device has", |s, _| run(s, 64, too_large())),
    row("sim_oom_then_fine", "pass", "runs out of memory, asks for less and goes on", |s, _| oom_then_fine(s)),
    row("sim_order", "fail.determinism", "adds up in the order in which threads come", |s, _| order(s)),
    row("sim_varying", "pass", "gives other bits each time, which nobody forbids", |s, _| vary(s)),
    row("sim_per_device", "pass", "adds up in an order that each device has for itself", |s, _| per_device(s)),
    row("sim_leak", "fail.leak.device_mem", "does not give its memory back", |s, _| leak(s)).replaced(),
];

/// What the results of a well-behaved case are.
const ALIKE: Option<Determinism> = Some(Determinism::Bitwise);

const fn row(
    name: &'static str,
    expected: &'static str,
    about: &'static str,
    commit: fn(&Scene<'_>, &str) -> Outcome,
) -> FaultClass {
    FaultClass::returns(name, FaultKind::Device, expected, about, commit).on(FaultTarget::Sim)
}

/// Runs a kernel on `len` numbers.
fn run(scene: &Scene<'_>, len: i64, kernel: Kernel) -> Outcome {
    run_with(scene, len, kernel, |options| options)
}

fn run_with(scene: &Scene<'_>, len: i64, kernel: Kernel, change: impl FnOnce(SimOptions) -> SimOptions) -> Outcome {
    on_simulator(scene, |session| {
        session.simulate(&kernel, &numbers(len)?, &change(options(scene)), scene.crumbs).map(drop)
    })
}

fn on_simulator(scene: &Scene<'_>, body: impl FnOnce(&Session) -> Result<()>) -> Outcome {
    match scene.device {
        Device::Session { session, .. } if session.is_simulator() => match body(session) {
            Ok(()) => Outcome::pass(),
            Err(error) => judged(scene, &error),
        },
        _ => Outcome::fail("fail.assert", "this fault needs a simulated device"),
    }
}

/// A schedule and its seed; all of them come up in a few repeats.
fn options(scene: &Scene<'_>) -> SimOptions {
    let key = u64::from(scene.facts.repeat) << 32 | u64::from(scene.facts.attempt);
    let seed = mix(scene.facts.seed ^ mix(key));
    let schedule = match seed % 4 {
        0 => SimSchedule::Lockstep,
        1 => SimSchedule::Random,
        2 => SimSchedule::Pct(3),
        _ => SimSchedule::Adversary,
    };
    let threads = match scene.device {
        Device::Session { threads, .. } => *threads,
        Device::Reference => 0,
    };
    SimOptions { schedule, seed, threads, ..SimOptions::default() }
}

fn numbers(len: i64) -> Result<Vec<Arg>> {
    Ok(vec![Arg::Tensor(floats(len, |i| i as f32)?)])
}

fn floats(len: i64, value: impl Fn(i64) -> f32) -> Result<HostTensor> {
    let data: Vec<u8> = (0..len).flat_map(|i| value(i).to_le_bytes()).collect();
    HostTensor::contiguous(DType::F32, &[len], data)
}

/// A kernel from the vector `x` to the vector `y` of as many elements.
fn vector(
    name: &str,
    blocks: i64,
    threads: u32,
    body: impl FnOnce(&mut KernelBuilder, BufId, BufId, ExprId),
) -> Kernel {
    let mut b = KernelBuilder::new(name, DType::I32);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::F32, n, 16);
    let y = b.output("y", 0, DType::F32, n, 16);
    body(&mut b, x, y, n);
    let blocks = b.int(blocks);
    b.finish_1d(blocks, threads)
}

fn thread(b: &mut KernelBuilder) -> ExprId {
    b.exprs().thread_idx(Dim::X)
}

/// `blockIdx.x * threads + threadIdx.x`.
fn global_thread(b: &mut KernelBuilder, threads: i64) -> ExprId {
    let (bx, tx, width) = (b.exprs().block_idx(Dim::X), thread(b), b.int(threads));
    let base = b.exprs().mul(bx, width);
    b.exprs().add(base, tx)
}

fn copy(b: &mut KernelBuilder, x: BufId, y: BufId, _: ExprId) {
    let t = thread(b);
    let v = b.load("v", x, t);
    b.store(y, t, v);
}

fn off_by_one() -> Kernel {
    vector("off_by_one", 2, 64, |b, x, y, n| {
        let i = global_thread(b, 64);
        // `<=` where `<` belongs.
        let inside = b.exprs().binary(BinaryOp::Le, i, n);
        b.if_(inside, |b| {
            let v = b.load("v", x, i);
            b.store(y, i, v);
        });
    })
}

fn before_start() -> Kernel {
    vector("before_start", 1, 64, |b, x, y, _| {
        let (t, one) = (thread(b), b.int(1));
        let before = b.exprs().sub(t, one);
        let v = b.load("v", x, t);
        b.store(y, before, v);
    })
}

fn shared_bounds() -> Kernel {
    vector("shared_bounds", 1, 64, |b, x, _, _| {
        let t = thread(b);
        let shared = b.shared("s", DType::F32, 63, 16);
        let v = b.load("v", x, t);
        b.store(shared, t, v);
    })
}

fn misaligned() -> Kernel {
    vector("misaligned", 1, 32, |b, x, y, _| {
        let (t, three, zero) = (thread(b), b.int(3), b.int(0));
        let base = b.exprs().mul(t, three);
        let local = b.local("l", DType::F32, 4);
        b.mov((local, zero), (x, base), 4, CacheHint::Default);
        let v = b.load("v", local, zero);
        b.store(y, t, v);
    })
}

fn two_writers() -> Kernel {
    vector("two_writers", 1, 64, |b, x, y, _| {
        let (t, two) = (thread(b), b.int(2));
        let half = b.exprs().div(t, two);
        let v = b.load("v", x, t);
        b.store(y, half, v);
    })
}

/// Write, barrier, read, and write again without a barrier.
fn missing_barrier() -> Kernel {
    vector("missing_barrier", 1, 64, |b, x, y, _| {
        let t = thread(b);
        let shared = b.shared("s", DType::F32, 64, 16);
        let rounds = b.int(2);
        b.count("r", rounds, Unroll::No, |b, _| {
            let v = b.load("v", x, t);
            b.store(shared, t, v);
            b.sync(Scope::Block);
            let last = b.int(63);
            let mirrored = b.exprs().sub(last, t);
            let w = b.load("w", shared, mirrored);
            let one = b.int(1);
            let first = b.exprs().lt(t, one);
            b.if_(first, |b| b.store(y, t, w));
        });
    })
}

fn missing_grid_barrier() -> Kernel {
    vector("missing_grid_barrier", 4, 64, |b, x, y, n| {
        let scratch = b.workspace("scratch", DType::F32, n, 16, true);
        let i = global_thread(b, 64);
        let v = b.load("v", x, i);
        b.store(scratch, i, v);
        let one = b.int(1);
        let last = b.exprs().sub(n, one);
        let mirrored = b.exprs().sub(last, i);
        let w = b.load("w", scratch, mirrored);
        b.store(y, i, w);
    })
}

fn uninitialised() -> Kernel {
    vector("uninitialised", 1, 64, |b, x, y, _| {
        let t = thread(b);
        let shared = b.shared("s", DType::F32, 64, 16);
        let width = b.int(63);
        let inside = b.exprs().lt(t, width);
        b.if_(inside, |b| {
            let v = b.load("v", x, t);
            b.store(shared, t, v);
        });
        b.sync(Scope::Block);
        let v = b.load("w", shared, t);
        b.store(y, t, v);
    })
}

/// The first threads of a block of two warps reach a barrier.
fn barrier_for(bound: i64) -> Kernel {
    vector("barrier_for_some", 1, 64, move |b, x, y, n| {
        let (t, bound) = (thread(b), b.int(bound));
        let some = b.exprs().lt(t, bound);
        b.if_(some, |b| b.sync(Scope::Block));
        copy(b, x, y, n);
    })
}

fn shuffle() -> Kernel {
    vector("shuffle", 1, 40, |b, x, y, _| {
        let (t, mask) = (thread(b), b.int(16));
        let v = b.load("v", x, t);
        let w = b.shuffle("w", v, ShuffleMode::Xor, mask);
        b.store(y, t, w);
    })
}

fn grid_barrier() -> Kernel {
    vector("grid_barrier", 4, 32, |b, x, y, _| {
        let i = global_thread(b, 32);
        b.sync(Scope::Grid);
        let v = b.load("v", x, i);
        b.store(y, i, v);
    })
}

/// A loop longer than anyone waits for.
fn endless() -> Kernel {
    vector("endless", 1, 32, |b, x, y, n| {
        let end = b.int(i32::MAX.into());
        b.count("j", end, Unroll::No, |b, _| copy(b, x, y, n));
    })
}

fn short_copy() -> Kernel {
    vector("short_copy", 1, 32, copy)
}

/// Doubles the first elements of its input as well.
fn writes_input() -> Kernel {
    vector("writes_input", 1, 64, |b, x, y, _| {
        let (t, few) = (thread(b), b.int(5));
        let v = b.load("v", x, t);
        b.store(y, t, v);
        let first = b.exprs().lt(t, few);
        b.if_(first, |b| {
            let twice = b.exprs().add(v, v);
            b.store(x, t, twice);
        });
    })
}

fn shared_limit() -> Kernel {
    vector("shared_limit", 1, 64, |b, x, y, n| {
        let t = thread(b);
        let shared = b.shared("s", DType::F32, 80_000, 16);
        let v = b.load("s", x, t);
        b.store(shared, t, v);
        copy(b, x, y, n);
    })
}

fn grid_limit() -> Kernel {
    let mut kernel = vector("grid_limit", 1, 64, copy);
    kernel.launch.grid[1] = kernel.exprs.int(70_000, DType::I32);
    kernel
}

/// A copy that passes through a workspace of 8 GiB.
fn too_large() -> Kernel {
    vector("too_large", 1, 64, |b, x, y, n| {
        let len = b.int(i32::MAX.into());
        let t = thread(b);
        let scratch = b.workspace("scratch", DType::F32, len, 16, false);
        let v = b.load("s", x, t);
        b.store(scratch, t, v);
        copy(b, x, y, n);
    })
}

fn oom_then_fine(scene: &Scene<'_>) -> Outcome {
    let refused = run(scene, 64, too_large());
    if refused.outcome != "oom.device" {
        return Outcome::fail("fail.assert", format!("too much memory was given: {}", refused.outcome));
    }
    run(scene, 64, vector("copy", 1, 64, copy))
}

/// A sum by atomic additions of all warps, whose rounding depends on their order.
fn atomic_sum() -> Kernel {
    vector("atomic_sum", 1, 256, |b, x, y, n| {
        let sum = b.workspace("sum", DType::F32, n, 16, true);
        let (t, zero) = (thread(b), b.int(0));
        let v = b.load("v", x, t);
        b.atomic_drop(AtomicOp::Add, (sum, zero), v);
        b.sync(Scope::Block);
        let total = b.load("total", sum, zero);
        b.store(y, t, total);
    })
}

/// The sum of numbers of very different sizes under one schedule.
fn summed(session: &Session, scene: &Scene<'_>, options: SimOptions) -> Result<HostTensor> {
    const LEN: i64 = 256;
    let large = |i: i64| if i % 64 < 32 { 1.0e8 } else { -1.0e8 };
    let args = [Arg::Tensor(floats(LEN, |i| if i % 8 == 0 { large(i) } else { 0.1 * i as f32 })?)];
    let mut outputs = session.simulate(&atomic_sum(), &args, &options, scene.crumbs)?;
    HostTensor::contiguous(DType::F32, &[LEN], outputs.pop().unwrap_or_default())
}

/// Results that differ are held against what a well-behaved case has.
fn order(scene: &Scene<'_>) -> Outcome {
    let mut outcome = vary(scene);
    apply_learnt(&mut outcome, ALIKE);
    outcome
}

/// Runs under many schedules.
fn vary(scene: &Scene<'_>) -> Outcome {
    let mut runs = Vec::new();
    let outcome = on_simulator(scene, |session| {
        for seed in 0..8 {
            let base = options(scene);
            let options = SimOptions { schedule: SimSchedule::Random, seed: mix(base.seed ^ seed), ..base };
            runs.push(vec![summed(session, scene, options)?]);
        }
        Ok(())
    });
    let named = runs.iter().map(|run| ("under another schedule", run.as_slice()));
    Outcome { variation: Some(variation::of_runs(&["y"], named)), ..outcome }
}

/// Passes on every device, with other bits on each.
fn per_device(scene: &Scene<'_>) -> Outcome {
    // `sim3-w0` is the first worker of device `sim3`.
    let worker = std::env::var("HARNESS_WORKER").unwrap_or_default();
    let device = worker.split('-').next().unwrap_or_default();
    let seed = mix(u64::from(crc32fast::hash(device.as_bytes())));
    let mut result = None;
    let outcome = on_simulator(scene, |session| {
        let options = SimOptions { schedule: SimSchedule::Random, seed, ..options(scene) };
        result = Some(summed(session, scene, options)?);
        Ok(())
    });
    let out_digest = result.map(|tensor| facts::out_digest(&[tensor]));
    Outcome {
        out_digest,
        kernel_crc: Some(crc32fast::hash(engine::kernel::print(&atomic_sum()).as_bytes())),
        ..outcome
    }
}

fn leak(scene: &Scene<'_>) -> Outcome {
    on_simulator(scene, |session| {
        let args = numbers(1 << 20)?;
        let kernel = vector("leak", 1, 64, copy);
        let launch = bind(&kernel, &args.iter().map(Arg::meta).collect::<Vec<_>>())?;
        // Memory that nobody drops stays taken on the device.
        std::mem::forget(session.sim_heap().map(|heap| SimMemory::on(heap, &kernel, &launch)));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::DeviceSpec;
    use crate::worker::fault::table::FaultFacts;
    use crate::worker::watch::Watch;
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;

    /// Under every schedule each class is found for what it is, and leaves the device as it was.
    #[test]
    fn every_class_is_found_under_every_schedule() {
        let (_page, crumbs) = crate::crumb::tests::pair();
        let (socket, _other) = UnixStream::pair().expect("a pair");
        for class in CLASSES {
            let device =
                Device::open(&DeviceSpec::Sim { ordinal: 0, threads: 1 }, &Default::default()).expect("a simulator");
            for repeat in 0..8 {
                let facts = FaultFacts { repeat, ..FaultFacts::default() };
                let (socket, tainted) = (&socket, Cell::new(false));
                let scene = Scene { crumbs: &crumbs, socket, device: &device, facts, tainted };
                let watch = Watch::start(&device, 1, None);
                let mut outcome = (class.commit)(&scene, "");
                watch.end(&mut outcome, true);
                assert_eq!(outcome.outcome, class.expected, "{}: {}", class.name, outcome.detail);
            }
        }
    }
}
