//! Faults of the process as its system sees it: how it ends, what it leaves behind.

use super::host::{HANG_MS, doze, raise};
use super::protocol::end_now;
use super::table::{FaultClass, FaultKind, FaultTarget};
use crate::os::fault as raw;
use crate::outcome::Outcome;
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(super) const CLASSES: &[FaultClass] = &[
    FaultClass::fatal(
        "kill",
        FaultKind::Process,
        "crash.killed_external",
        "is killed by SIGKILL from outside",
        |_, _| raise(Signal::KILL),
    ),
    FaultClass::fatal("exit0", FaultKind::Process, "crash.exit_early", "exits with code 0 inside its case", |_, _| {
        std::process::exit(0)
    }),
    FaultClass::fatal("exit7", FaultKind::Process, "crash.exit_early", "exits with code 7 inside its case", |_, _| {
        std::process::exit(7)
    }),
    FaultClass::returns(
        "exit-after",
        FaultKind::Process,
        "pass",
        "exits with code 0 between its case and the next",
        |scene, _| {
            end_now(scene);
            std::process::exit(0)
        },
    )
    .replaced(),
    FaultClass::returns(
        "segv-after",
        FaultKind::Process,
        "pass",
        "crashes between its case and the next",
        |scene, _| {
            end_now(scene);
            raw::write_unmapped();
            Outcome::pass()
        },
    )
    .told("crash.teardown"),
    FaultClass::returns(
        "exit-crash",
        FaultKind::Process,
        "pass",
        "crashes in an exit handler of its process",
        |_, _| {
            raw::crash_at_exit();
            Outcome::pass()
        },
    )
    .told("crash.teardown"),
    FaultClass::returns("exit-hang", FaultKind::Process, "pass", "hangs in an exit handler of its process", |_, _| {
        raw::hang_at_exit();
        Outcome::pass()
    })
    .told("crash.teardown"),
    FaultClass::fatal("stubborn", FaultKind::Process, "hang.deadlock", "sleeps and ignores TERM", |_, _| {
        let swallowed = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(signal_hook::consts::SIGTERM, swallowed);
        doze()
    })
    .limit_ms(HANG_MS),
    FaultClass::fatal("stopped", FaultKind::Process, "hang.stopped", "stops itself by SIGSTOP", |_, _| {
        raise(Signal::STOP)
    })
    .limit_ms(HANG_MS),
    FaultClass::returns("child", FaultKind::Process, "pass", "leaves a child process", |_, _| {
        let mut sleep = std::process::Command::new("sleep");
        left(sleep.arg("300").spawn().map(drop))
    })
    .told("leak.process"),
    FaultClass::returns("daemon", FaultKind::Process, "pass", "leaves a daemon in a session of its own", |_, _| {
        left(raw::spawn_daemon(300, false))
    })
    .told("leak.process"),
    FaultClass::fatal("daemon-segv", FaultKind::Process, "crash.sigsegv", "leaves a daemon and crashes", |_, _| {
        let outcome = left(raw::spawn_daemon(300, false));
        raw::write_unmapped();
        outcome
    })
    .told("leak.process"),
    FaultClass::fatal(
        "stray-segv",
        FaultKind::Process,
        "crash.sigsegv",
        "leaves a daemon with an empty environment and crashes",
        |_, _| {
            let outcome = left(raw::spawn_daemon(300, true));
            raw::write_unmapped();
            outcome
        },
    )
    .told("leak.process"),
    FaultClass::returns("thread", FaultKind::Process, "pass", "leaves a thread that works on", |_, _| {
        let thread = std::thread::Builder::new().name("left-behind".into());
        left(thread.spawn(doze).map(drop))
    })
    .on(FaultTarget::Sim)
    .told("leak.thread"),
    FaultClass::returns("fd", FaultKind::Process, "pass", "leaves a file open", |_, _| {
        left(std::fs::File::open("/proc/self/exe").map(std::mem::forget))
    })
    .told("leak.fd"),
    FaultClass::returns("fd-socket", FaultKind::Process, "pass", "leaves a socket open", |_, _| {
        left(std::os::unix::net::UnixDatagram::unbound().map(std::mem::forget))
    })
    .told("leak.fd"),
    FaultClass::returns("tmp", FaultKind::Process, "pass", "leaves a folder in its TMPDIR", |_, _| {
        let folder = std::env::temp_dir().join("left/behind");
        left(std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(folder.join("file"), "text")))
    })
    .notes("leak.tmp"),
    FaultClass::returns("cwd", FaultKind::Process, "pass", "changes the working directory", |_, _| {
        left(std::env::set_current_dir("/"))
    })
    .told("leak.cwd"),
    FaultClass::returns("env", FaultKind::Process, "pass", "changes the environment", |_, _| {
        raw::set_variable("LD_LIBRARY_PATH", "/nowhere");
        Outcome::pass()
    })
    .told("leak.env"),
    FaultClass::returns("umask", FaultKind::Process, "pass", "changes the umask", |_, _| {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o777));
        Outcome::pass()
    })
    .told("leak.umask"),
    FaultClass::returns("mask", FaultKind::Process, "pass", "blocks a signal", |_, _| {
        raw::block_signal(15);
        Outcome::pass()
    })
    .told("leak.signals"),
];

/// What was to be left is left, or the case fails.
fn left(done: std::io::Result<()>) -> Outcome {
    match done {
        Ok(()) => Outcome::pass(),
        Err(error) => Outcome::fail("fail.assert", format!("the fault could not be committed: {error}")),
    }
}
