//! Single keys of the terminal that a run was started from, without Enter.
//!
//! Inputs: standard input, where it is a terminal. Output: each key, given to whoever asked for them.
//! Invariants: the terminal gets its modes back when the value is dropped and when a signal ends the run, also the
//! second one, which waits for nobody; while another program has the terminal (the run is in the
//! background) neither its modes are changed nor a key is taken, since that would stop the run.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How long a key is waited for before the thread looks whether it is still wanted.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Signals that end a run.
const ENDS: [i32; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Keys are listened to while it lives.
pub(crate) struct Keys(Arc<Shared>);

struct Shared {
    /// The modes that the terminal had.
    before: Termios,
    /// Held while modes are changed; true when they are not to be changed any more.
    closed: Mutex<bool>,
    /// A signal has given the modes back.
    ended: AtomicBool,
}

impl Keys {
    /// Listens, if standard input is a terminal: `key` is called with each one, on a thread of its own.
    pub(crate) fn listen(key: impl Fn(u8) + Send + 'static) -> Option<Self> {
        let before = rustix::termios::tcgetattr(stdin()).ok()?;
        let shared = Arc::new(Shared { before, closed: Mutex::new(false), ended: AtomicBool::new(false) });
        for signal in ENDS.into_iter().filter(|signal| !super::is_ignored(*signal)) {
            give_back_at(signal, &shared).ok()?;
        }
        let own = Arc::clone(&shared);
        let listen = move || while own.wait(&key) {};
        std::thread::Builder::new().name("keys".into()).spawn(listen).ok()?;
        Some(Self(shared))
    }
}

/// Gives the terminal its modes back when the signal comes, before anything else ends the process.
fn give_back_at(signal: i32, shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let give_back = move || {
        if !shared.ended.swap(true, Ordering::SeqCst) && is_ours() {
            let _ = rustix::termios::tcsetattr(stdin(), OptionalActions::Now, &shared.before);
        }
    };
    // SAFETY: the action touches an atomic and makes two system calls, which is all that a handler may do; it
    // takes no lock and no memory.
    unsafe { signal_hook::low_level::register(signal, give_back) }.map(drop)
}

/// Whether this process has the terminal.
fn is_ours() -> bool {
    rustix::termios::tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

impl Shared {
    /// Waits for a key for a moment; false when nobody listens any more.
    fn wait(&self, key: &impl Fn(u8)) -> bool {
        if self.is_over() {
            return false;
        }
        if !self.claim() {
            std::thread::sleep(std::time::Duration::from_millis(200));
            return true;
        }
        let stdin = stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&WAIT)) {
            Ok(ready) if ready > 0 && !self.is_over() && is_ours() => {}
            Ok(_) | Err(Errno::INTR) => return !self.is_over(),
            Err(_) => return false,
        }
        let mut byte = [0u8];
        match rustix::io::read(stdin, &mut byte) {
            Ok(1) => {
                key(byte[0]);
                true
            }
            Err(Errno::INTR) => true,
            // Nothing comes any more: the terminal is gone.
            Ok(_) | Err(_) => false,
        }
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::SeqCst) || *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the terminal give keys at once, if it is ours. A shell may have put its own modes back while
    /// the run was stopped, so it is asked each time.
    fn claim(&self) -> bool {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if *closed || !is_ours() {
            return false;
        }
        let Ok(mut modes) = rustix::termios::tcgetattr(stdin()) else { return false };
        let lines = LocalModes::ICANON | LocalModes::ECHO;
        if !modes.local_modes.intersects(lines) {
            return true;
        }
        modes.local_modes.remove(lines);
        let claimed = rustix::termios::tcsetattr(stdin(), OptionalActions::Now, &modes).is_ok();
        if self.ended.load(Ordering::SeqCst) {
            // A signal came in between.
            let _ = rustix::termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
            return false;
        }
        claimed
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let mut closed = self.0.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = true;
        if is_ours() {
            let _ = rustix::termios::tcsetattr(stdin(), OptionalActions::Now, &self.0.before);
        }
    }
}
