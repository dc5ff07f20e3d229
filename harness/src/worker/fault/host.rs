//! Faults of the process's own code: bad accesses, aborts, panics, endless loops.

use super::table::{FaultClass, FaultKind};
use crate::crumb::Lane;
use crate::os::fault as raw;
use crate::outcome::Outcome;
use engine::options::{Phase, Trace};
use rustix::process::Signal;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

/// Short enough for a quick `selftest`, long enough for a loaded machine to get
/// into the fault.
pub(super) const HANG_MS: u64 = 700;

pub(super) const CLASSES: &[FaultClass] = &[
    FaultClass::returns("pass", FaultKind::Innocent, "pass", "passes at once", |_, _| Outcome::pass()),
    FaultClass::returns("fail", FaultKind::Host, "fail.assert", "reports a failure", |_, _| {
        Outcome::fail("fail.assert", "asked to fail")
    }),
    FaultClass::returns(
        "control",
        FaultKind::Host,
        "fail.assert",
        "reports a failure with control characters",
        |_, _| Outcome::fail("fail.assert", "red \u{1b}[31mtext\u{1b}[0m,\rnull \0, bell \u{7}, turned \u{202e}txet"),
    ),
    FaultClass::returns("panic", FaultKind::Host, "panic.rust", "panics", |_, _| panic!("asked to panic")).replaced(),
    FaultClass::returns("panic-huge", FaultKind::Host, "panic.rust", "panics with a message of 10 MiB", |_, _| {
        panic!("{}", "huge ".repeat(2 << 20))
    })
    .replaced(),
    FaultClass::returns("panic-drop", FaultKind::Host, "panic.rust", "panics in a destructor", |_, _| {
        drop(PanicsWhenDropped);
        Outcome::pass()
    })
    .replaced(),
    FaultClass::fatal("panic-twice", FaultKind::Host, "crash.abort", "panics while it unwinds from a panic", |_, _| {
        let _second = PanicsWhenDropped;
        panic!("the first of two panics")
    }),
    FaultClass::fatal("abort", FaultKind::Host, "crash.abort", "aborts", |_, _| std::process::abort()),
    FaultClass::fatal("segv", FaultKind::Host, "crash.sigsegv", "writes through a null pointer", |_, _| {
        raw::write_unmapped();
        Outcome::pass()
    }),
    FaultClass::fatal(
        "segv-thread",
        FaultKind::Host,
        "crash.sigsegv",
        "writes through null on another thread",
        |_, _| {
            let _ = std::thread::spawn(raw::write_unmapped).join();
            Outcome::pass()
        },
    ),
    FaultClass::fatal(
        "segv-lane",
        FaultKind::Host,
        "crash.sigsegv",
        "crashes on a thread with its own breadcrumbs",
        |scene, _| {
            let lane = scene.crumbs.lane(3);
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    lane.case("__fault.segv-lane");
                    lane.enter(Phase::Schedule, "segv-lane", 5);
                    raw::write_unmapped();
                });
            });
            Outcome::pass()
        },
    )
    .phase("schedule"),
    FaultClass::fatal(
        "segv-ahead",
        FaultKind::Host,
        "crash.sigsegv",
        "crashes while it is compiled ahead",
        |scene, _| {
            segv_in_schedule(scene.crumbs.lane(0));
            Outcome::pass()
        },
    )
    .phase("schedule")
    .ahead(segv_in_schedule),
    FaultClass::fatal(
        "hang-ahead",
        FaultKind::Host,
        "hang.deadlock",
        "hangs while it is compiled ahead",
        |scene, _| {
            doze_in_schedule(scene.crumbs.lane(0));
            Outcome::pass()
        },
    )
    .phase("schedule")
    .ahead(doze_in_schedule)
    .limit_ms(HANG_MS),
    FaultClass::fatal(
        "segv-handled",
        FaultKind::Host,
        "crash.sigsegv",
        "a library's handler catches its SIGSEGV",
        |_, _| {
            raw::swallow_segv();
            raw::write_unmapped();
            Outcome::pass()
        },
    ),
    FaultClass::fatal("bus", FaultKind::Host, "crash.sigbus", "reads a mapping behind the end of its file", |_, _| {
        raw::read_past_end();
        Outcome::pass()
    }),
    FaultClass::fatal("ill", FaultKind::Host, "crash.sigill", "executes an illegal instruction", |_, _| {
        raw::illegal_instruction();
        Outcome::pass()
    }),
    FaultClass::fatal("fpe", FaultKind::Host, "crash.sigfpe", "divides by zero", |_, _| {
        raw::divide_by_zero();
        Outcome::pass()
    }),
    FaultClass::fatal("trap", FaultKind::Host, "crash.sigtrap", "is sent SIGTRAP", |_, _| raise(Signal::TRAP)),
    FaultClass::fatal("stack", FaultKind::Host, "crash.stack_overflow", "recurses without end", |_, _| {
        Outcome::fail("fail.assert", format!("depth {}", recurse(&[1; 64], 0)))
    }),
    FaultClass::fatal("spin", FaultKind::Host, "hang.host", "loops without end", |_, _| {
        loop {
            std::hint::spin_loop();
        }
    })
    .limit_ms(HANG_MS),
    FaultClass::fatal("sleep", FaultKind::Host, "hang.deadlock", "sleeps for an hour", |_, _| doze()).limit_ms(HANG_MS),
    FaultClass::fatal(
        "deadlock",
        FaultKind::Host,
        "hang.deadlock",
        "two threads wait for each other's lock",
        |_, _| deadlock(),
    )
    .limit_ms(HANG_MS),
];

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("asked to panic in a destructor");
    }
}

/// Sends this process a real signal, as any other process could.
pub(super) fn raise(signal: Signal) -> Outcome {
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    doze()
}

/// Does nothing for longer than any limit.
fn segv_in_schedule(lane: Lane<'_>) {
    lane.enter(Phase::Schedule, "segv-ahead", 5);
    raw::write_unmapped();
}

fn doze_in_schedule(lane: Lane<'_>) {
    lane.enter(Phase::Schedule, "hang-ahead", 5);
    doze();
}

pub(super) fn doze() -> Outcome {
    std::thread::sleep(Duration::from_secs(3600));
    Outcome::fail("fail.assert", "slept for an hour")
}

fn deadlock() -> Outcome {
    let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
    let both = Arc::new(Barrier::new(2));
    let threads = [0, 1].map(|mine| {
        let (locks, both) = (locks.clone(), both.clone());
        std::thread::spawn(move || {
            let held = locks[mine].lock();
            both.wait();
            drop((locks[1 - mine].lock(), held));
        })
    });
    let ended = threads.map(std::thread::JoinHandle::join);
    Outcome::fail("fail.assert", format!("two threads got each other's lock: {ended:?}"))
}

#[expect(unconditional_recursion, reason = "the fault is the overflow")]
fn recurse(data: &[u8; 64], depth: u64) -> u64 {
    let mut copy = std::hint::black_box(*data);
    copy[(depth % 64) as usize] ^= 1;
    recurse(&copy, depth + 1) + u64::from(copy[0])
}
