//! A worker's standard output or error, drained so that it never blocks: what came
//! since the last mark is kept, as far as [`Captured`] keeps anything.

use crate::outcome::Captured;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;
/// What a pipe holds at most, whatever its writer asks for.
const MAX_PIPE: usize = 1 << 20;

#[derive(Default)]
struct Drained {
    kept: Captured,
    closed: bool,
}

impl Drained {
    /// Takes what waits in the stream: all that was written before, unless somebody
    /// writes without end.
    fn take(&mut self, stream: &OwnedFd) {
        let mut chunk = [0u8; CHUNK];
        for _ in 0..MAX_PIPE / CHUNK {
            match rustix::io::read(stream, &mut chunk) {
                Ok(0) => self.closed = true,
                Ok(count) => {
                    self.kept.push(&chunk[..count]);
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.closed = true,
            }
            return;
        }
    }
}

/// A stream being drained. Whatever is read is kept under the lock under which it
/// is read, so that nothing is on its way when somebody looks.
pub(super) struct Capture {
    shared: Arc<Mutex<Drained>>,
    stream: Option<Arc<OwnedFd>>,
}

impl Capture {
    /// Starts draining. The thread ends with the stream.
    pub(super) fn start(stream: Option<impl Into<OwnedFd>>) -> io::Result<Self> {
        let stream: Option<Arc<OwnedFd>> = stream.map(|stream| Arc::new(stream.into()));
        let shared = Arc::new(Mutex::new(Drained { closed: stream.is_none(), ..Drained::default() }));
        if let Some(stream) = stream.clone() {
            // Only of this end of the pipe: the worker's own stays as it is.
            rustix::io::ioctl_fionbio(&stream, true)?;
            let shared = shared.clone();
            let drain = move || {
                while !lock(&shared).closed {
                    let mut polled = [PollFd::new(&stream, PollFlags::IN)];
                    match rustix::event::poll(&mut polled, None) {
                        Ok(_) => lock(&shared).take(&stream),
                        Err(Errno::INTR) => {}
                        Err(_) => lock(&shared).closed = true,
                    }
                }
            };
            // Where the system has no thread left this fails, and does not panic.
            std::thread::Builder::new().spawn(drain)?;
        }
        Ok(Self { shared, stream })
    }

    /// Forgets what was written so far.
    pub(super) fn mark(&self) {
        self.taken().kept = Captured::default();
    }

    /// What came since the mark. Waits a moment for the end of a dead worker's
    /// stream, not for one that a grandchild holds open.
    pub(super) fn at_end(&self, wait: Duration) -> Captured {
        let deadline = Instant::now() + wait;
        while !self.taken().closed && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        lock(&self.shared).kept.clone()
    }

    /// What a worker that lives on has written since the mark.
    pub(super) fn so_far(&self) -> Captured {
        self.taken().kept.clone()
    }

    /// With all that waits in the stream.
    fn taken(&self) -> MutexGuard<'_, Drained> {
        let mut shared = lock(&self.shared);
        if let (false, Some(stream)) = (shared.closed, &self.stream) {
            shared.take(stream);
        }
        shared
    }
}

fn lock(shared: &Mutex<Drained>) -> MutexGuard<'_, Drained> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_before_a_mark_is_not_of_the_next_case() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let capture = Capture::start(Some(reader)).expect("starts");
        for round in 0..500 {
            let text = format!("{round}").repeat(1 + round % 7 * 1000);
            // A pipe takes this much without a reader, so it is all written now.
            writer.write_all(text.as_bytes()).expect("writes");
            assert_eq!(capture.so_far().bytes(), text.as_bytes(), "round {round}");
            writer.write_all(b"of the case before").expect("writes");
            capture.mark();
            assert_eq!(capture.so_far(), Captured::default(), "round {round}");
        }
        writer.write_all(b"end").expect("writes");
        drop(writer);
        assert_eq!(capture.at_end(Duration::from_secs(10)).bytes(), b"end");
    }
}
