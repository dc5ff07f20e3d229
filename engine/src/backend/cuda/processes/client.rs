//! A connection to a compiler process, as a compiler.

use super::super::nvrtc::{CompileText, Cubin, Nvrtc, NvrtcOptions};
use super::wire::{Request, build_of, receive_hello, receive_result};
use crate::diag::{Diagnostic, Result, code};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// A process that has loaded its library says hello within this.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// A compiler process; takes one text at a time.
#[derive(Debug)]
pub struct CompilerClient {
    stream: Mutex<UnixStream>,
    /// The build of its library, once asked for; nothing if nobody answered.
    build: OnceLock<Option<String>>,
    gone: AtomicBool,
}

impl CompilerClient {
    /// The process at the other end, which need not be ready yet.
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: Mutex::new(stream), build: OnceLock::new(), gone: AtomicBool::new(false) }
    }

    /// Whether the other end has this very library; waits until it is loaded there.
    pub fn has(&self, nvrtc: &Nvrtc) -> bool {
        self.build().is_some_and(|build| build_of(nvrtc).as_deref() == Some(build))
    }

    /// Whether the process went away: what it was asked for last did not come.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(super) fn build(&self) -> Option<&str> {
        let hello = || {
            let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
            let limited = stream.set_read_timeout(Some(HELLO_LIMIT));
            let build = limited.and_then(|()| receive_hello(&stream));
            build.and_then(|build| stream.set_read_timeout(None).map(|()| build)).ok()
        };
        let build = self.build.get_or_init(hello);
        if build.is_none() {
            self.gone.store(true, Ordering::Relaxed);
        }
        build.as_deref()
    }

    fn exchange(&self, request: &Request) -> io::Result<Result<Cubin>> {
        if self.build().is_none() {
            return Err(io::Error::other("it did not say that it is ready"));
        }
        let stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        request.send(&stream)?;
        receive_result(&stream)
    }
}

impl CompileText for CompilerClient {
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        let request = Request { text: text.into(), name: name.into(), options: options.clone() };
        self.exchange(&request).unwrap_or_else(|error| {
            self.gone.store(true, Ordering::Relaxed);
            let message = format!("the compiler process of kernel {name} is gone: {error}");
            Err(Diagnostic::bug_code(code::NVRTC, message))
        })
    }
}
