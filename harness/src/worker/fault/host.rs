//! Faults of the process's own code: bad accesses, aborts, panics, endless loops.

use super::table::{Class, Kind};
use crate::verdict::Outcome;
use rustix::process::Signal;
use std::time::Duration;

pub(super) const CLASSES: &[Class] = &[
    Class::returns("pass", Kind::Innocent, "pass", "passes at once", |_, _| Outcome::pass()),
    Class::returns("fail", Kind::Host, "fail.assert", "reports a failure", |_, _| {
        Outcome::fail("fail.assert", "asked to fail")
    }),
    Class::returns("panic", Kind::Host, "panic.rust", "panics", |_, _| panic!("asked to panic")).replaced(),
    Class::fatal("segv", Kind::Host, "crash.sigsegv", "writes through a null pointer", |_, _| {
        crate::os::write_unmapped();
        Outcome::pass()
    }),
    Class::fatal("abort", Kind::Host, "crash.abort", "aborts", |_, _| std::process::abort()),
    Class::fatal("bus", Kind::Host, "crash.sigbus", "reads a mapping behind the end of its file", |_, _| {
        crate::os::read_past_end();
        Outcome::pass()
    }),
    Class::fatal("ill", Kind::Host, "crash.sigill", "is sent SIGILL", |_, _| raise(Signal::ILL)),
    Class::fatal("fpe", Kind::Host, "crash.sigfpe", "is sent SIGFPE", |_, _| raise(Signal::FPE)),
    Class::fatal("stack", Kind::Host, "crash.stack_overflow", "recurses without end", |_, _| {
        Outcome::fail("fail.assert", format!("depth {}", recurse(&[1; 64], 0)))
    }),
    Class::fatal("spin", Kind::Host, "hang.host", "loops without end", |_, _| {
        loop {
            std::hint::spin_loop();
        }
    })
    .limit_ms(1000),
    Class::fatal("sleep", Kind::Host, "hang.deadlock", "sleeps for an hour", |_, _| doze()).limit_ms(1000),
];

/// Sends this process a real signal, as any other process could.
pub(super) fn raise(signal: Signal) -> Outcome {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    doze()
}

/// Does nothing for longer than any limit.
pub(super) fn doze() -> Outcome {
    std::thread::sleep(Duration::from_secs(3600));
    Outcome::fail("fail.assert", "slept for an hour")
}

#[expect(unconditional_recursion, reason = "the fault is the overflow")]
fn recurse(data: &[u8; 64], depth: u64) -> u64 {
    let mut copy = std::hint::black_box(*data);
    copy[(depth % 64) as usize] ^= 1;
    recurse(&copy, depth + 1) + u64::from(copy[0])
}
