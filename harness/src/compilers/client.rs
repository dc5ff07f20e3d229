//! A connection to a compiler process, as a compiler.

use super::wire::{Hello, Request, Response, build_of};
use crate::frame::{Receiver, send};
use engine::backend::cuda::nvrtc::{CompileText, Cubin, Nvrtc, NvrtcOptions};
use engine::diag::{Diagnostic, Result, code};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A process that has loaded its library says hello within this.
const HELLO_LIMIT: Duration = Duration::from_secs(10);

/// One thread's connection.
pub(crate) struct Client {
    receiver: Mutex<Receiver>,
    /// The build of its library, once asked for; nothing if nobody answered.
    hello: OnceLock<Option<String>>,
    gone: AtomicBool,
}

impl Client {
    /// Connects without waiting for the process to be ready.
    pub(crate) fn connect(address: &str) -> io::Result<Self> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(address)?)?;
        Ok(Self { receiver: Mutex::new(Receiver::new(stream)), hello: OnceLock::new(), gone: AtomicBool::new(false) })
    }

    /// Whether the other end has this very library; waits until it is loaded there.
    pub(crate) fn has(&self, nvrtc: &Nvrtc) -> bool {
        self.build().is_some_and(|build| build_of(nvrtc).as_ref() == Some(build))
    }

    fn build(&self) -> Option<&String> {
        let hello = self.hello.get_or_init(|| {
            let hello = self.lock().next::<Hello>(Some(Instant::now() + HELLO_LIMIT));
            hello.ok().map(|hello| hello.build)
        });
        hello.as_ref()
    }

    /// Whether the process went away in the middle of something.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn exchange(&self, text: &str, name: &str, options: &NvrtcOptions) -> io::Result<(Response, Vec<u8>)> {
        let NvrtcOptions { arch, fmad, line_info } = options.clone();
        let mut receiver = self.lock();
        let request = Request { name: name.into(), arch, fmad, line_info, text: text.into() };
        send(receiver.stream(), &request)?;
        let response: Response = receiver.next(None)?;
        let code = receiver.bytes(response.code, None)?;
        Ok((response, code))
    }

    fn lock(&self) -> MutexGuard<'_, Receiver> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompileText for Client {
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        let answer = match self.build() {
            Some(_) => self.exchange(text, name, options),
            None => Err(io::Error::other("it did not say that it is ready")),
        };
        match answer {
            Ok((Response { log, error: None, .. }, code)) => Ok(Cubin::new(code, log)),
            Ok((Response { log, error: Some(error), .. }, _)) => {
                Err(Diagnostic::bug_code(code::NVRTC, error).note(log))
            }
            Err(error) => {
                self.gone.store(true, Ordering::Relaxed);
                let message = format!("the compiler process of kernel {name} is gone: {error}");
                Err(Diagnostic::bug_code(code::NVRTC, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compilers::played::{self, listen};
    use engine::backend::cuda::nvrtc::NvrtcSearch;

    const TEXT: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] *= 2; }";

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_another_process_gives_the_same_code_and_the_same_errors() {
        let folders = crate::device::find_nvrtc().folders();
        let search = NvrtcSearch { folders: folders.clone(), ..NvrtcSearch::default() };
        let nvrtc = Nvrtc::open(&search).expect("NVRTC is found");
        let address = played::serve("serve", folders);
        let client = Client::connect(&address).expect("connects before anybody serves");
        let options = NvrtcOptions::new((9, 0), true);
        assert!(client.has(&nvrtc));
        for fmad in [true, false] {
            let options = NvrtcOptions { fmad, ..options.clone() };
            let own = nvrtc.compile_text(TEXT, "k", &options).expect("compiles");
            assert_eq!(client.compile_text(TEXT, "k", &options).expect("compiles"), own);
        }
        let own = nvrtc.compile_text("what", "k", &options).expect_err("is no text");
        let theirs = client.compile_text("what", "k", &options).expect_err("is no text");
        assert_eq!((&own.message, &own.notes), (&theirs.message, &theirs.notes));
        assert!(!client.is_gone());
        // The next connection is taken when the first is closed.
        drop(client);
        let next = Client::connect(&address).expect("connects");
        assert!(next.compile_text(TEXT, "k", &options).is_ok());
    }

    #[test]
    fn a_process_that_goes_away_is_an_error_once_and_for_all() {
        let (listener, address) = listen("gone");
        let client = Client::connect(&address).expect("connects");
        let served = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            send(&stream, &Hello { build: "a".into() }).expect("sends");
            Receiver::new(stream).next::<Request>(None).expect("a text").text
        });
        assert_eq!(client.build().map(String::as_str), Some("a"));
        let error = client.compile_text(TEXT, "k", &NvrtcOptions::new((9, 0), true)).expect_err("nobody answers");
        assert!(error.message.contains("kernel k is gone"), "{error}");
        assert!(client.is_gone());
        assert_eq!(served.join().expect("ends"), TEXT);
    }
}
