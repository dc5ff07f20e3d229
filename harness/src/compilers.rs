//! Compiler processes of workers: the engine's, which a worker finds by an address.
//!
//! The dispatcher starts them when the first text is to be compiled; each thread of a worker that compiles coming cases has one of them
//! to itself. They outlive workers, so a new worker needs not load the library first, and a
//! compiler that crashes takes no case along.
//!
//! - `dispatch/compilers.rs` starts the processes once somebody asks, replaces those that die, and ends them.
//! - [`Way`] is a worker's way to one of them; [`listen`] is the process itself.
//!
//! Invariants: a process serves one connection at a time, and ends with the
//! dispatcher, or where its client is gone in the middle of a text. Whatever goes
//! wrong here only costs speed: a case that was not compiled ahead is compiled in
//! its worker, where errors, crashes and hangs of the compiler are its own.

use crate::{exit, os};
use engine::backend::cuda::nvrtc::{Nvrtc, NvrtcSearch};
use engine::backend::cuda::{CompilerClient, CompilerCommand, compiler_process, serve_compiler};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

/// Where the clients of a process come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clients {
    /// An inherited listener.
    Listener(RawFd),
    /// Its standard input is the only one.
    Stdin,
}

/// This program as a compiler process of itself. NVRTC may be in one of the folders.
pub(crate) fn command(folders: &[PathBuf]) -> CompilerCommand {
    let words = ["__compiler", "--stdin"].map(OsString::from);
    let args = words.into_iter().chain(folders.iter().map(OsString::from)).collect();
    CompilerCommand { program: "/proc/self/exe".into(), args }
}

/// A way to one of the processes, for who may never need it. Its descriptor is there from the beginning: a worker has none
/// after a case that it did not have before.
#[derive(Debug)]
pub(crate) struct Way {
    socket: OwnedFd,
    address: SocketAddrUnix,
}

impl Way {
    /// Nobody hears of it before it is taken.
    pub(crate) fn to(address: &str) -> io::Result<Self> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, address: SocketAddrUnix::new_abstract_name(address.as_bytes())? })
    }

    /// Connects without waiting for the process to be ready.
    pub(crate) fn take(self) -> io::Result<CompilerClient> {
        rustix::net::connect(&self.socket, &self.address)?;
        Ok(CompilerClient::new(UnixStream::from(self.socket)))
    }
}

/// The process: serves until there is nobody any more. NVRTC may be in one of the folders.
/// Returns the exit code.
pub(crate) fn main(from: Clients, folders: Vec<PathBuf>) -> u8 {
    let _ = rustix::thread::set_name(c"harness-compile");
    let search = NvrtcSearch { folders, ..NvrtcSearch::default() };
    match from {
        Clients::Stdin => compiler_process(&search).map_or(exit::INFRA, |()| exit::OK),
        Clients::Listener(fd) => listen(fd, &search),
    }
}

/// Serves connections to an inherited listener until it is killed.
fn listen(fd: RawFd, search: &NvrtcSearch) -> u8 {
    let Ok(listener) = os::inherited_fd(fd) else { return exit::USAGE };
    let Ok(nvrtc) = Nvrtc::open(search) else { return exit::INFRA };
    let listener = UnixListener::from(listener);
    loop {
        match listener.accept() {
            // Its end, orderly or not, is the end of the connection only.
            Ok((stream, _)) if is_own(&stream) => drop(serve_compiler(stream, &nvrtc, || os::exit_now(exit::OK))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use engine::backend::cuda::nvrtc::{CompileText, NvrtcOptions};
    use std::os::fd::IntoRawFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_one_connection_is_served_after_the_other() {
        const TEXT: &str = "extern \"C\" __global__ void k(float* x) { x[threadIdx.x] *= 2; }";
        let address = format!("harness-test-serve-{}", std::process::id());
        let name = SocketAddr::from_abstract_name(&address).expect("a name");
        let fd = UnixListener::bind_addr(&name).expect("listens").into_raw_fd();
        let folders = crate::device::find_nvrtc().folders();
        let search = NvrtcSearch { folders: folders.clone(), ..NvrtcSearch::default() };
        // It serves until the test's own process ends.
        std::thread::spawn(move || main(Clients::Listener(fd), folders));
        let nvrtc = Nvrtc::open(&search).expect("NVRTC is found");
        let options = NvrtcOptions::new((9, 0), true);
        let own = nvrtc.compile_text(TEXT, "k", &options).expect("compiles");
        for _ in 0..2 {
            let client = Way::to(&address).and_then(Way::take).expect("connects");
            assert!(client.has(&nvrtc));
            assert!(client.compile_text(TEXT, "k", &options).expect("compiles") == own && !client.is_gone());
        }
    }
}
