//! The compiler process: loads NVRTC, takes a connection, compiles what comes
//! until it is closed, takes the next.

use super::wire::{Hello, Request, Response, build_of};
use crate::frame::{Receiver, send};
use crate::os::tie::when_closed;
use crate::{exit, os};
use engine::backend::cuda::nvrtc::{Cubin, Nvrtc, NvrtcOptions, NvrtcSearch};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::RawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A text whose client has gone may take this long: with the next client it is
/// quicker than a new process.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves connections to an inherited listener until it is killed. NVRTC may be in
/// one of the folders. Returns the exit code.
pub(crate) fn main(fd: RawFd, folders: Vec<PathBuf>) -> u8 {
    let Ok(listener) = os::inherited_fd(fd) else { return exit::USAGE };
    let _ = rustix::thread::set_name(c"harness-compile");
    let search = NvrtcSearch { folders, ..NvrtcSearch::default() };
    let Ok(nvrtc) = Nvrtc::open(&search) else { return exit::INFRA };
    let Some(build) = build_of(&nvrtc) else { return exit::INFRA };
    let listener = UnixListener::from(listener);
    loop {
        match listener.accept() {
            Ok((stream, _)) if is_own(&stream) => {
                // Its end, orderly or not, is the end of the connection only.
                let mut receiver = Receiver::new(stream);
                let _ = serve(&nvrtc, &build, &mut receiver);
                let _ = receiver.stream().shutdown(Shutdown::Both);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return exit::INFRA,
        }
    }
}

/// Whether the other end belongs to the same user: the address is open to all.
fn is_own(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

fn serve(nvrtc: &Nvrtc, build: &str, receiver: &mut Receiver) -> io::Result<()> {
    let compiling = Arc::new(AtomicBool::new(false));
    let at_work = compiling.clone();
    when_closed(receiver.stream(), move || give_up(&at_work))?;
    send(receiver.stream(), &Hello { build: build.into() })?;
    loop {
        let request = receiver.next(None)?;
        compiling.store(true, Ordering::SeqCst);
        let (response, code) = answer(nvrtc, request);
        compiling.store(false, Ordering::SeqCst);
        send(receiver.stream(), &response)?;
        receiver.stream().write_all(&code)?;
    }
}

/// Ends the process where the client has gone and what it asked for takes long:
/// nobody wants the result, which may never come.
fn give_up(compiling: &AtomicBool) {
    let deadline = Instant::now() + PATIENCE;
    while compiling.load(Ordering::SeqCst) {
        if Instant::now() >= deadline {
            os::exit_now(exit::OK);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answer(nvrtc: &Nvrtc, request: Request) -> (Response, Vec<u8>) {
    let Request { name, arch, fmad, line_info, text } = request;
    match nvrtc.compile_text(&text, &name, &NvrtcOptions { arch, fmad, line_info }) {
        Ok(Cubin { log, bytes, .. }) => (Response { log, error: None, code: bytes.len() }, bytes),
        Err(error) => {
            let response = Response { log: error.notes.join("\n"), error: Some(error.message), code: 0 };
            (response, Vec::new())
        }
    }
}
