//! Faults of the process as its system sees it: how it ends, what it leaves behind.

use super::host::{doze, raise};
use super::table::{Class, Kind};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) const CLASSES: &[Class] = &[
    Class::fatal("kill", Kind::Process, "crash.killed_external", "is killed by SIGKILL from outside", |_, _| {
        raise(Signal::KILL)
    }),
    Class::fatal("exit0", Kind::Process, "crash.exit_early", "exits with code 0 inside its case", |_, _| {
        std::process::exit(0)
    }),
    Class::fatal("exit7", Kind::Process, "crash.exit_early", "exits with code 7 inside its case", |_, _| {
        std::process::exit(7)
    }),
    Class::fatal("stubborn", Kind::Process, "hang.deadlock", "sleeps and ignores TERM", |_, _| {
        let swallowed = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, swallowed);
        doze()
    })
    .limit_ms(1000),
    Class::fatal("stopped", Kind::Process, "hang.stopped", "stops itself by SIGSTOP", |_, _| raise(Signal::STOP))
        .limit_ms(1000),
];
