//! What is done when the other end of a socket is gone, whatever this process is
//! at then. The kernel ends children with the thread that started them; this is for
//! those that it does not know as such: behind a tool, or behind a connection.

use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::unix::net::UnixStream;

/// The name of the threads that wait.
const THREAD: &str = "harness-tie";

/// Calls `then` on a thread of its own, once the other end of the socket is closed.
pub(crate) fn when_closed(stream: &UnixStream, then: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let stream = stream.try_clone()?;
    let wait = move || {
        while !hung_up(&stream) {}
        then();
    };
    std::thread::Builder::new().name(THREAD.into()).spawn(wait).map(drop)
}

/// Waits until the other end of a socket is closed; false if that was interrupted.
fn hung_up(stream: &UnixStream) -> bool {
    // The end is told without being asked for.
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let _ = rustix::event::poll(&mut fds, None);
    fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::time::Duration;

    #[test]
    fn a_closed_socket_is_noticed_and_bytes_are_not() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (sender, called) = channel();
        when_closed(&ours, move || sender.send(()).expect("somebody listens")).expect("starts");
        (&theirs).write_all(b"text").expect("sends");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(called.try_recv(), Err(TryRecvError::Empty));
        drop(theirs);
        assert_eq!(called.recv_timeout(Duration::from_secs(30)), Ok(()));
    }
}
