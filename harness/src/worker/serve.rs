//! The worker's loop: hello, init, ready, then run until drained or cut off.

use super::device::Device;
use super::execute;
use super::fault::Past;
use crate::crumb::CrumbWriter;
use crate::proto::{Broken, FromWorker, PROTOCOL, Receiver, ToWorker, send};
use crate::verdict::Outcome;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// Serves the dispatcher on the given descriptors until it drains the worker or
/// goes away. Returns the exit code.
pub(crate) fn main(fd: RawFd, crumb_fd: RawFd) -> u8 {
    let opened = crate::os::inherited_fd(fd).and_then(|fd| {
        let crumbs = CrumbWriter::open(crate::os::inherited_fd(crumb_fd)?)?;
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
    let mut device = None;
    let mut seed = 0;
    let mut past = Past::default();
    loop {
        match receiver.next(None) {
            Ok(ToWorker::Init { device: spec, seed: run_seed }) => {
                seed = run_seed;
                match Device::open(&spec) {
                    Ok(opened) => {
                        say(&receiver, &FromWorker::Ready { device: opened.name(), notes: opened.notes() })?;
                        device = Some(opened);
                    }
                    Err(error) => {
                        let code = error.code.to_string();
                        return say(&receiver, &FromWorker::Unusable { code, message: error.to_string() });
                    }
                }
            }
            Ok(ToWorker::Run { case, attempt, mode, bless }) => {
                let Some(device) = &device else { return Err(std::io::Error::other("run before init")) };
                say(&receiver, &FromWorker::Begin { case_id: case.id.clone(), attempt })?;
                crumbs.lane(0).case(&case.id);
                let socket = receiver.stream();
                let cx = execute::Cx { device, crumbs, seed, mode, bless, socket, attempt, past: &past };
                let result = catch_unwind(AssertUnwindSafe(|| execute::run(&case, &cx)));
                crumbs.lane(0).case("");
                past.add(&case);
                let (outcome, tainted) = result.unwrap_or_else(|_| (Outcome::fail("panic.rust", panics.take()), true));
                say(&receiver, &FromWorker::End { case_id: case.id, attempt, outcome: Box::new(outcome), tainted })?;
            }
            Ok(ToWorker::Drain) => return say(&receiver, &FromWorker::Bye { cases_run: past.cases_run }),
            Err(Broken::Eof | Broken::Timeout) => return Ok(()),
            Err(Broken::Garbage(what)) => return Err(std::io::Error::other(what)),
        }
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
