//! Faults of memory, descriptors, output and time.

use super::host::HANG_MS;
use super::table::{FaultClass, FaultKind, Scene};
use crate::outcome::Outcome;
use engine::options::{Phase, Trace};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) const CLASSES: &[FaultClass] = &[
    FaultClass::fatal(
        "oom",
        FaultKind::Resource,
        "oom.host",
        "allocates up to the memory limit of its worker",
        |_, _| {
            let mut held: Vec<Vec<u8>> = Vec::new();
            loop {
                held.push(Vec::with_capacity(std::hint::black_box(64 << 20)));
            }
        },
    ),
    FaultClass::fatal(
        "oom-kill",
        FaultKind::Resource,
        "crash.oom_killed",
        "outgrows a memory control group",
        |_, _| outgrow_group(),
    )
    .unless(no_control_group),
    FaultClass::returns(
        "nofile",
        FaultKind::Resource,
        "nofile",
        "opens files until there are no more descriptors",
        |_, _| {
            let mut held = Vec::new();
            loop {
                held.push(std::fs::File::open("/proc/self/exe").expect("the fault is that this fails"));
            }
        },
    )
    .replaced(),
    FaultClass::returns("noisy", FaultKind::Resource, "pass", "writes 4 MiB to standard output", |_, _| flood(4 << 20)),
    FaultClass::returns("flood", FaultKind::Resource, "pass", "writes 1 GiB to standard output", |_, _| flood(1 << 30)),
    FaultClass::fatal(
        "ansi",
        FaultKind::Resource,
        "crash.abort",
        "aborts after escape codes and invalid UTF-8",
        |_, _| {
            let _ = std::io::stderr().write_all(b"\x1b[2J\x1b[31mred\xff\xfe\xc3(\x00\x07\r\x9b1mtail\n");
            std::process::abort()
        },
    ),
    FaultClass::fatal(
        "livelock",
        FaultKind::Resource,
        "hang.livelock",
        "goes round in a circle for ever",
        |scene, _| {
            loop {
                step(scene, "round", 7, Duration::from_millis(1));
            }
        },
    )
    .phase("lower")
    .limit_ms(HANG_MS),
    FaultClass::returns(
        "slow",
        FaultKind::Resource,
        "pass",
        "makes progress for T ms and ends within its limit",
        progress,
    )
    .takes("T", "300"),
    FaultClass::fatal(
        "late",
        FaultKind::Resource,
        "timeout.slow",
        "makes progress for T ms, far beyond its limit",
        progress,
    )
    .takes("T", "60000")
    .phase("lower")
    .limit_ms(HANG_MS),
];

const GROUP: &str = "harness-fault-";
const GROUP_BYTES: u64 = 64 << 20;

/// Makes a control group with little memory: as the first or the second version
/// of control groups has it.
fn small_group() -> std::io::Result<PathBuf> {
    tidy();
    let first = Path::new("/sys/fs/cgroup/memory");
    let (root, limit) = match first.is_dir() {
        true => (first, "memory.limit_in_bytes"),
        false => (Path::new("/sys/fs/cgroup"), "memory.max"),
    };
    let group = root.join(format!("{GROUP}{}", std::process::id()));
    std::fs::create_dir_all(&group)?;
    // A folder that is no control group would take a new file of any name.
    let exists = group.join(limit).is_file() && group.join("cgroup.procs").is_file();
    let limited = match exists {
        true => std::fs::write(group.join(limit), GROUP_BYTES.to_string()),
        false => Err(std::io::Error::other("memory is not controlled there")),
    };
    limited.inspect_err(|_| drop(std::fs::remove_dir(&group)))?;
    Ok(group)
}

/// Removes the empty control groups of earlier faults.
pub(crate) fn tidy() {
    for root in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(GROUP)) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

fn no_control_group() -> Option<String> {
    let made = small_group();
    tidy();
    made.err().map(|error| format!("no memory control group can be made: {error}"))
}

/// Uses more memory than its control group has: the kernel kills it.
fn outgrow_group() -> Outcome {
    let joined = small_group().and_then(|group| std::fs::write(group.join("cgroup.procs"), "0"));
    if let Err(error) = joined {
        return Outcome::fail("fail.assert", format!("the fault could not be committed: {error}"));
    }
    let held: Vec<Vec<u8>> = (0..(2 * GROUP_BYTES) >> 20).map(|n| vec![n as u8 | 1; 1 << 20]).collect();
    Outcome::fail("fail.assert", format!("{} MiB were not too much", std::hint::black_box(held).len()))
}

fn flood(bytes: usize) -> Outcome {
    let mut block = vec![b'x'; 64 << 10];
    block.chunks_mut(1024).for_each(|line| line[line.len() - 1] = b'\n');
    let mut out = std::io::stdout().lock();
    for _ in 0..bytes / block.len() {
        let _ = out.write_all(&block);
    }
    Outcome::pass()
}

/// Steps that are each something new.
fn progress(scene: &Scene<'_>, value: &str) -> Outcome {
    let end = Instant::now() + Duration::from_millis(value.parse().unwrap_or(300));
    let mut n = 0;
    while Instant::now() < end {
        n += 1;
        step(scene, &format!("piece {n}"), n, Duration::from_millis(2));
    }
    Outcome::pass()
}

fn step(scene: &Scene<'_>, name: &str, id: u64, pause: Duration) {
    let lane = scene.crumbs.lane(0);
    lane.enter(Phase::Lower, name, id);
    std::thread::sleep(pause);
    lane.exit(Phase::Lower);
}
