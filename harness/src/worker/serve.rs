//! The worker's loop: hello, init, ready, then run until drained or cut off.

use super::ahead::Ahead;
use super::device::Device;
use super::execute;
use super::fault::Past;
use crate::case::Case;
use crate::crumb::CrumbWriter;
use crate::proto::{Broken, FromWorker, PROTOCOL, Receiver, ToWorker, send};
use crate::verdict::Outcome;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

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
    let (device, knobs) = match receiver.next(None) {
        Ok(ToWorker::Init { device, knobs }) => (Device::open(&device), knobs),
        Ok(ToWorker::Drain) => return say(&receiver, &FromWorker::Bye { cases_run: 0 }),
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
    say(&receiver, &FromWorker::Ready { device: device.name(), notes: device.notes() })?;
    let ahead = Ahead::default();
    std::thread::scope(|scope| {
        ahead.start(scope, &device, crumbs, knobs.compile_threads);
        let served =
            Server { device: &device, crumbs, panics, ahead: &ahead, past: Past::default() }.serve(&mut receiver);
        ahead.close();
        served
    })
}

/// A worker that is ready.
struct Server<'a> {
    device: &'a Device,
    crumbs: &'a CrumbWriter,
    panics: PanicNotes,
    ahead: &'a Ahead,
    past: Past,
}

impl Server<'_> {
    fn serve(&mut self, receiver: &mut Receiver) -> std::io::Result<()> {
        loop {
            match receiver.next(None) {
                Ok(ToWorker::Run { case, attempt, repeat, seed, mode, bless }) => {
                    say(receiver, &FromWorker::Begin { case_id: case.id.clone(), attempt })?;
                    // A library may have installed handlers that swallow a crash.
                    crate::os::crash::rearm()?;
                    self.crumbs.lane(0).case(&case.id);
                    self.ahead.claim(&case.id);
                    let (device, crumbs, socket) = (self.device, self.crumbs, receiver.stream());
                    let past = &self.past;
                    let cx = execute::Cx { device, crumbs, attempt, repeat, seed, mode, bless, socket, past };
                    let (outcome, tainted) = self.run(&case, &cx);
                    self.past.add(&case);
                    let end = FromWorker::End { case_id: case.id, attempt, outcome: Box::new(outcome), tainted };
                    say(receiver, &end)?;
                }
                Ok(ToWorker::Ahead { cases }) => self.ahead.offer(cases),
                Ok(ToWorker::Drain) => return say(receiver, &FromWorker::Bye { cases_run: self.past.cases_run }),
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
        result.unwrap_or_else(|_| (Outcome::fail("panic.rust", self.panics.take()), true))
    }
}

fn say(receiver: &Receiver, message: &FromWorker) -> std::io::Result<()> {
    send(receiver.stream(), message)
}

/// Keeps the message and place of the last panic, which `catch_unwind` loses.
struct PanicNotes(Arc<Mutex<String>>);

impl PanicNotes {
    fn install() -> Self {
        let note = Arc::new(Mutex::new(String::new()));
        let shared = note.clone();
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            *shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = info.to_string();
            default(info);
        }));
        Self(note)
    }

    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
