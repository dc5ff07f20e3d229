//! Processes that are started, handed out, replaced and ended.

use super::super::nvrtc::{CompileText, Cubin, Nvrtc, NvrtcOptions};
use super::client::CompilerClient;
use super::wire::build_of;
use crate::diag::{Diagnostic, Result, code};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Processes that may be started for each that is wanted: one that ends at once, without its
/// library say, is not started for ever.
const LIVES: usize = 4;
/// The signal of `kill -9`.
const SIGKILL: i32 = 9;
/// Processes that a text is given to if they end over it.
const ATTEMPTS: usize = 2;

/// A program that is a compiler process: its `main` is [`compiler_process`](super::compiler_process),
/// when it is started with these arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// Compiler processes of one user or several, ended with this value.
#[derive(Debug)]
pub struct CompilerProcesses {
    command: CompilerCommand,
    count: usize,
    state: Mutex<ProcessState>,
    /// A process was given back, or ended.
    freed: Condvar,
}

#[derive(Debug)]
struct ProcessState {
    idle: Vec<Process>,
    /// Those that live, in use or not.
    live: usize,
    /// Those that may still be started.
    lives: usize,
    /// Why there are none any more, or fewer.
    problem: Option<String>,
}

/// A process, which is ended when dropped.
#[derive(Debug)]
struct Process {
    child: Child,
    client: CompilerClient,
}

impl Process {
    fn start(command: &CompilerCommand) -> io::Result<Self> {
        let (own, theirs) = UnixStream::pair()?;
        let mut started = Command::new(&command.program);
        started.args(&command.args).stdin(OwnedFd::from(theirs));
        // What the library prints is nobody's.
        let child = started.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, client: CompilerClient::new(own) })
    }
}

impl Process {
    /// Ends it, if it has not ended; whether it was killed, which no text does.
    fn end(&mut self) -> bool {
        // One that is on its way out keeps the signal that it got first.
        let _ = self.child.kill();
        self.child.wait().is_ok_and(|status| status.signal() == Some(SIGKILL))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl CompilerProcesses {
    /// Starts so many processes, and does not wait until they are ready.
    pub fn start(command: CompilerCommand, count: usize) -> io::Result<Self> {
        let idle = (0..count).map(|_| Process::start(&command)).collect::<io::Result<Vec<_>>>()?;
        let state = ProcessState { idle, live: count, lives: (LIVES - 1) * count, problem: None };
        Ok(Self { command, count, state: Mutex::new(state), freed: Condvar::new() })
    }

    /// How many there are to be.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits until each has loaded its library, or is found not to be of use; whoever measures
    /// wants that behind.
    pub fn make_ready(&self, nvrtc: &Nvrtc) {
        let mut taken: Vec<Taken<'_>> = Vec::new();
        while taken.len() < self.lock().live {
            let Some(next) = self.take() else { break };
            match next.client().is_some_and(|client| client.has(nvrtc)) {
                true => taken.push(next),
                false => {
                    next.end("a compiler process is not ready, or has another build of NVRTC");
                }
            }
        }
    }

    /// Why there are fewer, or they are not used; the last reason.
    pub fn problem(&self) -> Option<String> {
        self.lock().problem.clone()
    }

    /// Kills those that nobody uses.
    #[cfg(test)]
    pub(super) fn kill_idle(&self) {
        for process in &mut self.lock().idle {
            process.child.kill().and_then(|()| process.child.wait()).expect("a child is killed");
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProcessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process for one text, as soon as there is one; none where there will be none.
    fn take(&self) -> Option<Taken<'_>> {
        let mut state = self.lock();
        loop {
            if let Some(mut process) = state.idle.pop() {
                // One that ended while nobody used it is no text's fault.
                if !matches!(process.child.try_wait(), Ok(None)) {
                    state.live -= 1;
                    state.problem = Some("a compiler process ended by itself".into());
                    continue;
                }
                return Some(Taken { all: self, process: Some(process) });
            }
            if state.live < self.count && state.lives > 0 {
                state.lives -= 1;
                state.live += 1;
                drop(state);
                let started = Process::start(&self.command);
                state = self.lock();
                match started {
                    Ok(process) => state.idle.push(process),
                    Err(error) => {
                        state.live -= 1;
                        state.problem = Some(format!("{}: {error}", self.command.program.display()));
                    }
                }
                continue;
            }
            if state.live == 0 {
                return None;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Compiles in some process; nothing where there is none of that build.
    pub(super) fn compile(&self, build: &str, text: &str, name: &str, options: &NvrtcOptions) -> Option<Result<Cubin>> {
        let mut attempts = 0;
        while attempts < ATTEMPTS {
            let taken = self.take()?;
            let client = taken.client()?;
            match client.build() {
                Some(theirs) if theirs == build => {
                    let result = client.compile_text(text, name, options);
                    if !client.is_gone() {
                        return Some(result);
                    }
                    // Who is killed is killed by somebody: by a person, or for want of memory.
                    let killed = taken.end("a compiler process ended over a text");
                    attempts += usize::from(!killed);
                }
                Some(_) => {
                    self.lock().lives = 0;
                    taken.end("compiler processes have another build of NVRTC");
                    return None;
                }
                None => {
                    taken.end("a compiler process did not say that it is ready");
                }
            }
        }
        let message = format!("{ATTEMPTS} compiler processes ended over kernel {name}");
        Some(Err(Diagnostic::bug_code(code::NVRTC, message).note("the compiler crashes over its text")))
    }
}

/// A process that one caller has; given back when dropped.
struct Taken<'a> {
    all: &'a CompilerProcesses,
    process: Option<Process>,
}

impl Taken<'_> {
    fn client(&self) -> Option<&CompilerClient> {
        self.process.as_ref().map(|process| &process.client)
    }

    /// Ends the process instead of giving it back; whether it was killed.
    fn end(mut self, why: &str) -> bool {
        let killed = self.process.take().is_some_and(|mut process| process.end());
        self.all.lock().problem = Some(why.into());
        killed
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        match self.process.take() {
            // In the middle of a text only if its user panicked: what it says next is not the next one's.
            Some(process) if !std::thread::panicking() => state.idle.push(process),
            other => {
                drop(other);
                state.live -= 1;
            }
        }
        drop(state);
        self.all.freed.notify_all();
    }
}

/// Processes and the library that stands in for them.
#[derive(Debug)]
pub(in crate::backend::cuda) struct Beside {
    processes: Arc<CompilerProcesses>,
    /// The build that they must have; without it none is used.
    build: Option<String>,
}

impl Beside {
    pub(in crate::backend::cuda) fn new(processes: Arc<CompilerProcesses>, nvrtc: &Nvrtc) -> Self {
        Self { build: build_of(nvrtc), processes }
    }

    /// Compiles in a process, or with `own`.
    pub(in crate::backend::cuda) fn compile(
        &self,
        own: &Nvrtc,
        text: &str,
        name: &str,
        options: &NvrtcOptions,
    ) -> Result<Cubin> {
        let there = self.build.as_deref().and_then(|build| self.processes.compile(build, text, name, options));
        there.unwrap_or_else(|| own.compile_text(text, name, options))
    }
}
