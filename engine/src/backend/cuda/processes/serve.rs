//! The compiler process: loads NVRTC, says so, compiles what comes until nobody asks any more.

use super::super::nvrtc::{CompileText, Nvrtc, NvrtcSearch};
use super::wire::{Request, build_of, send_hello, send_result};
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// A text whose client has gone may take so many pauses: with the next client it is quicker than
/// a new process.
const PAUSES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// The whole of a process that [`CompilerProcesses`](super::CompilerProcesses) starts: its standard
/// input is the connection. Fails where nobody is there, and
/// where there is no library.
pub fn compiler_process(search: &NvrtcSearch) -> io::Result<()> {
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let nvrtc = Nvrtc::open(search).map_err(io::Error::other)?;
    serve_compiler(stream, &nvrtc, || std::process::exit(0))
}

/// Compiles what comes from one client until it closes the connection. `abandoned` is called where
/// it has gone in the middle of a text that takes long: nobody wants the result, which may never
/// come, so the process may as well end.
pub fn serve_compiler(stream: UnixStream, nvrtc: &Nvrtc, abandoned: impl FnOnce() + Send) -> io::Result<()> {
    let build = build_of(nvrtc).ok_or_else(|| io::Error::other(format!("the build of {nvrtc} is unknown")))?;
    serve(stream, nvrtc, &build, abandoned)
}

pub(super) fn serve(
    stream: UnixStream,
    compiler: &dyn CompileText,
    build: &str,
    abandoned: impl FnOnce() + Send,
) -> io::Result<()> {
    let reader = stream.try_clone()?;
    // Texts that came and are not compiled.
    let open = AtomicU32::new(0);
    let (sender, requests) = sync_channel(1);
    std::thread::scope(|scope| {
        let open = &open;
        scope.spawn(move || {
            read_all(&reader, open, sender);
            if is_stuck(open) {
                abandoned();
            }
        });
        let answer = || {
            send_hello(&stream, build)?;
            for Request { text, name, options } in requests {
                let result = compiler.compile_text(&text, &name, &options);
                open.fetch_sub(1, Ordering::SeqCst);
                send_result(&stream, &result)?;
            }
            Ok(())
        };
        let answered = answer();
        // Ends the other thread too.
        let _ = stream.shutdown(Shutdown::Both);
        answered
    })
}

/// Reads texts until there are no more.
fn read_all(stream: &UnixStream, open: &AtomicU32, requests: SyncSender<Request>) {
    while let Ok(request) = Request::receive(stream) {
        open.fetch_add(1, Ordering::SeqCst);
        if requests.send(request).is_err() {
            open.store(0, Ordering::SeqCst);
        }
    }
}

/// Whether a text is still not compiled after a while.
fn is_stuck(open: &AtomicU32) -> bool {
    for _ in 0..PAUSES {
        if open.load(Ordering::SeqCst) == 0 {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
