//! Built-in failures of a worker, for tests of the harness: each is what it
//! says, not an imitation.

use crate::crumb::{CrumbWriter, Own};
use crate::verdict::Outcome;
use rustix::process::Signal;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The built-in faults, with the outcome that the harness must report.
pub(crate) const FAULTS: &[(&str, &str)] = &[
    ("pass", "pass"),
    ("fail", "fail.assert"),
    ("panic", "panic.rust"),
    ("segv", "crash.sigsegv"),
    ("abort", "crash.abort"),
    ("bus", "crash.sigbus"),
    ("ill", "crash.sigill"),
    ("fpe", "crash.sigfpe"),
    ("kill", "crash.killed_external"),
    ("stack", "crash.stack_overflow"),
    ("exit0", "crash.exit_early"),
    ("exit7", "crash.exit_early"),
    ("garbage", "crash.protocol"),
    ("close", "crash.protocol"),
    ("twice", "crash.protocol"),
    ("sleep", "hang.deadlock"),
    ("spin", "hang.host"),
    ("stubborn", "hang.deadlock"),
    ("stopped", "hang.stopped"),
    ("noisy", "pass"),
];

/// Commits the fault. Returns only where the fault is to return.
pub(crate) fn commit(fault: &str, crumbs: &CrumbWriter, mut socket: &UnixStream) -> Outcome {
    crumbs.own(Own::Inputs, fault);
    match fault {
        "pass" => {}
        "fail" => return Outcome::fail("fail.assert", "asked to fail"),
        "panic" => panic!("asked to panic"),
        "segv" => crate::os::write_unmapped(),
        "bus" => crate::os::read_past_end(),
        "ill" => raise(Signal::ILL),
        "fpe" => raise(Signal::FPE),
        "kill" => raise(Signal::KILL),
        "abort" => std::process::abort(),
        "stack" => return Outcome::fail("fail.assert", format!("depth {}", recurse(&[1; 64], 0))),
        "exit0" => std::process::exit(0),
        "exit7" => std::process::exit(7),
        "garbage" => {
            let _ = socket.write_all(b"not a frame at all");
            forever(false);
        }
        "close" => {
            let _ = socket.shutdown(std::net::Shutdown::Both);
            forever(false);
        }
        "twice" => {
            let end = crate::proto::FromWorker::Begin { case_id: "another case".into(), attempt: 0 };
            let _ = crate::proto::send(socket, &end);
            forever(false);
        }
        "sleep" => forever(false),
        "spin" => forever(true),
        "stubborn" => {
            let swallowed = Arc::new(AtomicBool::new(false));
            let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, swallowed);
            forever(false);
        }
        "stopped" => raise(Signal::STOP),
        "noisy" => {
            let line = [b'x'; 1023];
            let mut out = std::io::stdout().lock();
            for _ in 0..4096 {
                let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
            }
        }
        other => return Outcome::fail("fail.assert", format!("there is no fault `{other}`")),
    }
    Outcome::pass()
}

/// Sends this process a real signal, as any other process could.
fn raise(signal: Signal) {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    std::thread::sleep(Duration::from_secs(3600));
}

fn forever(busy: bool) -> ! {
    loop {
        if busy {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

#[expect(unconditional_recursion, reason = "the fault is the overflow")]
fn recurse(data: &[u8; 64], depth: u64) -> u64 {
    let mut copy = std::hint::black_box(*data);
    copy[(depth % 64) as usize] ^= 1;
    recurse(&copy, depth + 1) + u64::from(copy[0])
}
