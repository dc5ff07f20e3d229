//! The compiler processes of a run: started, replaced when they die, ended. What
//! they are is told in `compilers.rs`.

use super::{RunPlan, handle, worker_end};
use crate::os::{self, Life};
use crate::proto::DeviceSpec;
use rustix::process::Signal;
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// Processes that may fail, for each that is wanted: one that ends at once, without
/// its library say, is not started for ever.
const LIVES: usize = 4;
/// How often processes that died are replaced.
const TENDING: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody asks for one, before any is started.
const LISTENING: Duration = Duration::from_millis(5);

/// Running processes, and the address at which they take connections.
pub(crate) struct Compilers {
    address: String,
    listener: UnixListener,
    children: Vec<Child>,
    /// Processes that are wanted, and that may still be started.
    count: usize,
    lives: usize,
    /// Whether somebody has asked for one.
    asked: bool,
    /// When they were looked after.
    tended: Instant,
    exe: PathBuf,
    folders: Vec<PathBuf>,
}

impl Compilers {
    /// One process for each thread of a plan's workers that compiles for a GPU;
    /// none where there is none, or where nobody can connect: such threads compile
    /// in their workers. Nothing is started yet, see [`Compilers::look_after`]; who connects
    /// before waits.
    pub(super) fn of(plan: &RunPlan) -> Option<Self> {
        let threads = plan.knobs.compile_threads as usize;
        let mut folders = None;
        let mut count = 0;
        for slot in &plan.slots {
            if let DeviceSpec::Cuda { nvrtc, .. } = &slot.device {
                folders.get_or_insert_with(|| nvrtc.clone());
                count += threads;
            }
        }
        let folders = folders.filter(|_| count > 0)?;
        let mut compilers = Self::listen(&plan.worker_exe, folders, count).ok()?;
        // Where no code is stored, all will be asked for, and can get ready beside the workers.
        let store = plan.knobs.code_cache.as_deref().and_then(|folder| std::fs::read_dir(folder).ok());
        compilers.asked = store.is_none_or(|mut entries| entries.next().is_none());
        Some(compilers)
    }

    fn listen(exe: &Path, folders: Vec<PathBuf>, count: usize) -> io::Result<Self> {
        // Nobody has the same, in another namespace of process numbers neither.
        let now = UNIX_EPOCH.elapsed().unwrap_or_default();
        let address = format!("harness-compile-{}-{}", std::process::id(), now.as_nanos());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&address)?)?;
        let lives = LIVES * count;
        let (exe, children, tended) = (exe.into(), Vec::new(), Instant::now());
        Ok(Self { address, listener, children, count, lives, asked: false, tended, exe, folders })
    }

    /// Starts the processes once somebody asks for one, and replaces those that have died; asked again and again. False if
    /// not all can be started: with nobody who takes them, connections end. The calling thread must outlive them.
    pub(super) fn look_after(&mut self) -> bool {
        if self.is_started() {
            if self.tended.elapsed() >= TENDING {
                self.tend();
                self.tended = Instant::now();
            }
            return true;
        }
        if !self.asked && self.tended.elapsed() >= LISTENING {
            self.asked = os::is_readable(&self.listener);
            self.tended = Instant::now();
        }
        !self.asked || (0..self.count).all(|_| self.spawn().is_ok())
    }

    fn is_started(&self) -> bool {
        self.lives < LIVES * self.count
    }

    /// Where a client connects.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Replaces those that have died.
    fn tend(&mut self) {
        let (ended, live) = self.children.drain(..).partition(|child| os::life(child) != Life::Lives);
        self.children = live;
        for child in ended {
            // One that had lost its client in the middle of a text ends well.
            self.lives += usize::from(end(child).is_some_and(|status| status.success()));
            // Fewer processes are fewer threads that need not wait; nothing is lost.
            let _ = self.spawn();
        }
    }

    fn spawn(&mut self) -> io::Result<()> {
        let Some(left) = self.lives.checked_sub(1) else { return Ok(()) };
        self.lives = left;
        let fd = self.listener.as_raw_fd();
        let mut command = Command::new(&self.exe);
        command.arg0("harness-compile").args(["__compiler", "--fd"]).arg(fd.to_string()).args(&self.folders);
        handle::inherit_env(&mut command);
        let mut child = worker_end::spawn(&mut command, &[fd], None)?;
        // What the library prints is nobody's.
        drop((child.stdout.take(), child.stderr.take()));
        self.children.push(child);
        Ok(())
    }
}

impl Drop for Compilers {
    fn drop(&mut self) {
        // All at once: each has a library to give back to the system, and then one is waited for after the other.
        self.children.iter().filter(|child| os::life(child) != Life::Gone).for_each(kill);
        self.children.drain(..).map(end).for_each(drop);
    }
}

fn kill(child: &Child) {
    os::signal_group(child, Signal::KILL);
}

/// Kills the process if it lives, and tells how it ended.
fn end(mut child: Child) -> Option<ExitStatus> {
    // The number of one that was reaped elsewhere may be another's.
    let status = (os::life(&child) != Life::Gone).then(|| {
        kill(&child);
        child.wait().ok()
    });
    worker_end::over(child.id());
    status.flatten()
}
