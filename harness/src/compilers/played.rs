//! Compiler processes of unit tests: threads of the test, or nobody at all.

use std::os::fd::IntoRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

/// A place to connect to, and its address. `name` is one test's.
pub(crate) fn listen(name: &str) -> (UnixListener, String) {
    let address = format!("harness-test-{name}-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(&address).expect("a name");
    (UnixListener::bind_addr(&name).expect("listens"), address)
}

/// Starts a thread that is the whole process, until the test's own ends. Gives its address.
pub(crate) fn serve(name: &str, folders: Vec<PathBuf>) -> String {
    let (listener, address) = listen(name);
    std::thread::spawn(move || super::main(listener.into_raw_fd(), folders));
    address
}
