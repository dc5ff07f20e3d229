//! A worker's standard output or error, drained so that it never blocks, and
//! bounded: the head and the tail of what came since the last mark. What a
//! worker writes may be anything, and as much as it likes.

use crate::escape::escape;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of the head, and bytes of the tail.
const KEPT: usize = 256 << 10;
/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;
/// What a pipe holds at most, whatever its writer asks for.
const MAX_PIPE: usize = 1 << 20;

/// What is kept of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captured {
    head: Vec<u8>,
    /// A ring once it is full: the oldest byte is at `oldest`.
    tail: Vec<u8>,
    oldest: usize,
    /// Bytes that came in all.
    pub(crate) total: u64,
}

/// What a worker left of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// Files that belong to it, to be moved to the evidence.
    pub(crate) files: Vec<std::path::PathBuf>,
}

#[derive(Default)]
struct Shared {
    kept: Captured,
    closed: bool,
}

impl Shared {
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
    shared: Arc<Mutex<Shared>>,
    stream: Option<Arc<OwnedFd>>,
}

impl Capture {
    /// Starts draining. The thread ends with the stream.
    pub(super) fn start(stream: Option<impl Into<OwnedFd>>) -> io::Result<Self> {
        let stream: Option<Arc<OwnedFd>> = stream.map(|stream| Arc::new(stream.into()));
        let shared = Arc::new(Mutex::new(Shared { closed: stream.is_none(), ..Shared::default() }));
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
    fn taken(&self) -> MutexGuard<'_, Shared> {
        let mut shared = lock(&self.shared);
        if let (false, Some(stream)) = (shared.closed, &self.stream) {
            shared.take(stream);
        }
        shared
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Captured {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT - self.head.len()));
        self.head.extend_from_slice(head);
        // Only the last bytes can stay.
        let mut rest = &rest[rest.len().saturating_sub(KEPT)..];
        let (fill, more) = rest.split_at(rest.len().min(KEPT - self.tail.len()));
        self.tail.extend_from_slice(fill);
        rest = more;
        while !rest.is_empty() {
            let room = (KEPT - self.oldest).min(rest.len());
            self.tail[self.oldest..self.oldest + room].copy_from_slice(&rest[..room]);
            self.oldest = (self.oldest + room) % KEPT;
            rest = &rest[room..];
        }
    }

    /// Bytes that are not kept.
    pub(crate) fn cut(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// The kept bytes as they came, with a line where some are cut.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if self.cut() > 0 {
            bytes.extend(format!("\n... {} bytes cut ...\n", self.cut()).into_bytes());
        }
        bytes.extend_from_slice(&self.tail[self.oldest..]);
        bytes.extend_from_slice(&self.tail[..self.oldest]);
        bytes
    }

    /// The last of it, at most `limit` bytes, safe to print and to record.
    pub(crate) fn tail(&self, limit: usize) -> String {
        let bytes = self.bytes();
        let from = bytes.len().saturating_sub(limit);
        let text = String::from_utf8_lossy(&bytes[from..]);
        let mark = if from > 0 { "... " } else { "" };
        // What stands for a cut character at the very start says nothing.
        format!("{mark}{}", escape(text.trim_start_matches('\u{fffd}'), "\n\t"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[track_caller]
    fn check(chunks: &[&[u8]]) {
        let all: Vec<u8> = chunks.concat();
        let mut kept = Captured::default();
        chunks.iter().for_each(|chunk| kept.push(chunk));
        assert_eq!(kept.total, all.len() as u64);
        let head = &all[..all.len().min(KEPT)];
        let tail = &all[head.len().max(all.len().saturating_sub(KEPT))..];
        let bytes = kept.bytes();
        assert!(bytes.starts_with(head) && bytes.ends_with(tail));
        assert_eq!(kept.cut(), (all.len() - head.len() - tail.len()) as u64);
        assert!(bytes.len() < 2 * KEPT + 100);
        if kept.cut() == 0 {
            assert_eq!(bytes, all);
        }
    }

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

    #[test]
    fn head_and_tail_are_kept() {
        let many: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        check(&[]);
        check(&[b"begin ", b"end"]);
        check(&[&many[..KEPT], b"x"]);
        check(&[&many[..KEPT - 1], &many[..KEPT + 2]]);
        check(&[&many, b"end"]);
        check(&many.chunks(7777).collect::<Vec<_>>());
        check(&many.chunks(KEPT).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_printed_is_safe() {
        let mut kept = Captured::default();
        kept.push(&b"\xff\xfe line\n".repeat(100_000));
        kept.push(b"\x1b[2J\x07 last \xf0\x9f");
        let tail = kept.tail(40);
        assert!(tail.starts_with("... ") && tail.ends_with("\\x1b[2J\\x07 last \u{fffd}"), "{tail}");
        assert!(!tail.contains('\x1b'));
    }
}
