//! The worker's loop: hello, init, ready, then run until drained or cut off.

use super::ahead::{self, Ahead, Place};
use super::args::Draws;
use super::device::Device;
use super::fault::FaultPast;
use super::hygiene::Hygiene;
use super::watch::SeenMemory;
use super::{canary, execute, spans};
use crate::case::Case;
use crate::crumb::CrumbWriter;
use crate::frame::{Broken, Receiver, send};
use crate::os::tie::when_closed;
use crate::outcome::{Outcome, Verdict};
use crate::proto::{FromWorker, Knobs, PROTOCOL, ToWorker};
use std::cell::Cell;
use std::io::Write;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Bytes of the stack of a thread that does nothing.
const SMALL_STACK: usize = 64 << 10;

/// Serves the dispatcher on the given descriptors until it drains the worker or
/// goes away. Returns the exit code.
pub(crate) fn main(fd: RawFd, crumb_fd: RawFd, evidence_fd: RawFd) -> u8 {
    let opened = crate::os::inherited_fd(fd).and_then(|fd| {
        let crumbs = CrumbWriter::open(crate::os::inherited_fd(crumb_fd)?)?;
        let _ = rustix::thread::set_name(c"harness-worker");
        crate::os::crash::install(crate::os::inherited_fd(evidence_fd)?)?;
        Ok((UnixStream::from(fd), crumbs))
    });
    match opened {
        Ok((stream, crumbs)) => serve(Receiver::new(stream), &crumbs).map_or(1, |()| 0),
        // Nobody listens: this is not a child of a dispatcher.
        Err(_) => crate::exit::USAGE,
    }
}

fn serve(mut receiver: Receiver, crumbs: &CrumbWriter) -> std::io::Result<()> {
    let panics = PanicNotes::install();
    say(&receiver, &FromWorker::Hello { proto: PROTOCOL, pid: std::process::id() })?;
    let (device, knobs, sharers, ways) = match receiver.next(None) {
        Ok(ToWorker::Init { device, knobs, sharers, sanitized, compilers }) => {
            if sanitized {
                // Its parent is the tool: the kernel does not end it with the dispatcher.
                when_closed(receiver.stream(), || crate::os::exit_now(crate::exit::USAGE))?;
            }
            let ways = compilers.map(|address| ahead::ways(&address, knobs.compile_threads));
            (Device::open(&device, &knobs), knobs, sharers, ways.unwrap_or_default())
        }
        Ok(ToWorker::Drain) => return say(&receiver, &FromWorker::Bye { cases_run: 0, code: None }),
        Ok(_) => return Err(std::io::Error::other("a case before init")),
        Err(Broken::Eof | Broken::Timeout) => return Ok(()),
        Err(Broken::Garbage(what)) => return Err(std::io::Error::other(what)),
    };
    let device = match device {
        Ok(device) => device,
        Err(error) => {
            let code = error.code.to_string();
            return say(&receiver, &FromWorker::Unusable { code, message: error.to_string() });
        }
    };
    #[cfg(feature = "planted")]
    super::planted::start();
    let hygiene = Hygiene::start(knobs.compile_threads > 0, device.is_gpu(), knobs.code_cache.as_deref());
    say(&receiver, &FromWorker::Ready { device: device.name(), uuid: device.uuid(), notes: device.notes() })?;
    let (ahead, draws) = (Ahead::default(), Draws::of_worker(crate::os::memory_limit()));
    let served = std::thread::scope(|scope| {
        let place = Place { device: &device, crumbs, draws: &draws };
        ahead.start(scope, place, knobs.compile_threads, knobs.jitter, ways);
        let past = FaultPast { sharers, ..FaultPast::default() };
        let (ahead, draws, memory) = (&ahead, &draws, Cell::default());
        let mut server = Server { device: &device, crumbs, panics, ahead, past, hygiene, knobs, draws, memory };
        let served = server.serve(&mut receiver);
        if !ahead.close() {
            // Nor may exit handlers run beside what these threads are in.
            let _ = std::io::stdout().flush();
            crate::os::exit_now(u8::from(served.is_err()));
        }
        served
    });
    // Thousands of kernels and their plans: the system takes back at once what they would give back one by one, and
    // nobody waits for that. Exit handlers run.
    std::mem::forget(device);
    served
}

/// A worker that is ready.
struct Server<'a> {
    device: &'a Device,
    crumbs: &'a CrumbWriter,
    panics: PanicNotes,
    ahead: &'a Ahead,
    past: FaultPast,
    hygiene: Hygiene,
    knobs: Knobs,
    draws: &'a Draws,
    /// The device's memory when the last case was over.
    memory: Cell<Option<SeenMemory>>,
}

impl Server<'_> {
    fn serve(&mut self, receiver: &mut Receiver) -> std::io::Result<()> {
        loop {
            match receiver.next(None) {
                Ok(ToWorker::Run { case, attempt, repeat, seed, mode, bless, known }) => {
                    let began = Instant::now();
                    say(receiver, &FromWorker::Begin { case_id: case.id.clone(), attempt })?;
                    // A library may have installed handlers that swallow a crash.
                    crate::os::crash::rearm()?;
                    self.crumbs.lane(0).case(&case.id);
                    #[cfg(feature = "planted")]
                    super::planted::started(&case);
                    // A retry is a second opinion, also on the code.
                    self.device.compile_anew(attempt > 0);
                    self.ahead.claim(&case.id);
                    let (device, crumbs, socket) = (self.device, self.crumbs, receiver.stream());
                    let (past, jitter) = (&self.past, self.knobs.jitter);
                    let (twice, kernels_only) = (self.knobs.twice, self.knobs.kernels_only);
                    let cx = execute::Cx {
                        device,
                        crumbs,
                        attempt,
                        repeat,
                        seed,
                        mode,
                        bless,
                        known,
                        draws: self.draws,
                        twice,
                        kernels_only,
                        jitter,
                        socket,
                        past,
                        began,
                        memory: &self.memory,
                    };
                    let (mut outcome, tainted) = self.run(&case, &cx);
                    self.device.play_times(&case.id, seed, &mut outcome);
                    #[cfg(feature = "planted")]
                    super::planted::ended();
                    let (leaks, dirty) = self.hygiene.look();
                    outcome.leaks = leaks;
                    let tainted = tainted || dirty;
                    self.past.add(&case);
                    spans::report_until_now(&mut outcome.phases, began);
                    let (outcome, code) = (Box::new(outcome), device.code());
                    let unprepared = self.ahead.unprepared();
                    let end = FromWorker::End { case_id: case.id, attempt, outcome, tainted, code, unprepared };
                    say(receiver, &end)?;
                }
                Ok(ToWorker::Ahead { cases }) => self.ahead.offer(cases.into_iter().map(|case| *case)),
                Ok(ToWorker::Canary { spoil }) => {
                    say(receiver, &FromWorker::Canary(canary::run(self.device, spoil)))?;
                }
                Ok(ToWorker::Drain) => {
                    let (cases_run, code) = (self.past.cases_run, self.device.code());
                    return say(receiver, &FromWorker::Bye { cases_run, code });
                }
                Ok(ToWorker::Init { .. }) => return Err(std::io::Error::other("init twice")),
                Err(Broken::Eof | Broken::Timeout) => return Ok(()),
                Err(Broken::Garbage(what)) => return Err(std::io::Error::other(what)),
            }
        }
    }

    /// The outcome of a case, and whether the worker may be broken after it.
    fn run(&self, case: &Case, cx: &execute::Cx<'_>) -> (Outcome, bool) {
        let result = catch_unwind(AssertUnwindSafe(|| execute::run(case, cx)));
        self.crumbs.lane(0).case("");
        result.unwrap_or_else(|_| (self.panics.outcome(), true))
    }
}

fn say(receiver: &Receiver, message: &FromWorker) -> std::io::Result<()> {
    send(receiver.stream(), message)
}

/// Keeps the last panic's message and place, which `catch_unwind` loses. Panics of
/// threads that compile ahead are caught there, and are not the running case's.
struct PanicNotes(Arc<Mutex<Note>>);

#[derive(Default)]
struct Note {
    message: String,
    /// What was used up at the time of the panic.
    lacking: Lacking,
}

/// What a process may run out of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Lacking {
    #[default]
    Nothing,
    Descriptors,
    Threads,
}

impl Lacking {
    fn look() -> Self {
        let spare = rustix::io::dup(rustix::stdio::stdin());
        if spare.err() == Some(rustix::io::Errno::MFILE) {
            return Self::Descriptors;
        }
        match std::thread::Builder::new().stack_size(SMALL_STACK).spawn(|| {}) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Self::Threads,
            _ => Self::Nothing,
        }
    }
}

impl PanicNotes {
    fn install() -> Self {
        let note = Arc::new(Mutex::new(Note::default()));
        let shared = note.clone();
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(ahead::THREAD) {
                let note = Note { message: info.to_string(), lacking: Lacking::look() };
                *shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = note;
            }
            default(info);
        }));
        Self(note)
    }

    /// What a panic makes of its case.
    fn outcome(&self) -> Outcome {
        let note = std::mem::take(&mut *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        match note.lacking {
            Lacking::Nothing => Outcome::fail("panic.rust", note.message),
            Lacking::Descriptors => Outcome::fail("nofile", note.message),
            // The limit counts all processes of the user or of the control group.
            Lacking::Threads => Outcome::of(Verdict::Infra, "infra.threads", note.message),
        }
    }
}
