//! Messages over a socket, as whole frames.
//!
//! A frame is `u32 length | u32 CRC-32 | JSON`, little endian.
//!
//! Invariants: nothing that comes is believed before its length and its checksum
//! are right; a receiver never has more than one frame and a chunk in memory; what
//! came of a frame is kept when its time is over.

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes of a frame's JSON.
const MAX_FRAME: usize = 16 << 20;
/// Bytes of a frame before its JSON.
const HEAD: usize = 8;

/// Bytes that a socket which has room at all takes without waiting for who reads.
const AT_ONCE: usize = 32 << 10;

/// Sends one message in one write.
pub(crate) fn send<T: Serialize>(stream: &UnixStream, message: &T) -> io::Result<()> {
    send_after(stream, message, &|| {})
}

/// The same; `waits` is called before, if that may have to wait for who reads.
pub(crate) fn send_after<T: Serialize>(mut stream: &UnixStream, message: &T, waits: &dyn Fn()) -> io::Result<()> {
    let mut frame = Vec::with_capacity(1 << 10);
    frame.extend([0; HEAD]);
    serde_json::to_writer(&mut frame, message)?;
    let (head, json) = frame.split_at_mut(HEAD);
    if json.len() > MAX_FRAME {
        return Err(io::Error::other(format!("a message of {} bytes exceeds {MAX_FRAME}", json.len())));
    }
    head[..4].copy_from_slice(&(json.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&crc32fast::hash(json).to_le_bytes());
    if frame.len() > AT_ONCE || !crate::os::has_room(stream) {
        waits();
    }
    stream.write_all(&frame)
}

/// Why no message came.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nothing within the time.
    Timeout,
    /// The other end is gone.
    Eof,
    /// The bytes are no frame, or no message.
    Garbage(String),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Broken::Timeout => "nothing came in time",
            Broken::Eof => "the other end is gone",
            Broken::Garbage(what) => what,
        })
    }
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        io::Error::other(broken.to_string())
    }
}

/// Bytes that are read at once.
const CHUNK: usize = 16 << 10;

/// Receives messages; keeps what came of an unfinished frame.
pub(crate) struct Receiver {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// How long a read waits, as it was last set.
    wait: Option<Duration>,
}

impl Receiver {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), wait: None }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next message, waiting until `deadline` at most, or without end.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, deadline: Option<Instant>) -> Result<T, Broken> {
        loop {
            if let Some(len) = self.frame()? {
                let message = serde_json::from_slice(&self.buffer[HEAD..HEAD + len]);
                self.buffer.drain(..HEAD + len);
                return message.map_err(|error| Broken::Garbage(error.to_string()));
            }
            self.fill(deadline)?;
        }
    }

    /// The length of the JSON of the first frame, once all of it is there.
    fn frame(&self) -> Result<Option<usize>, Broken> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<HEAD>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, crc) = (word(0) as usize, word(4));
        if len > MAX_FRAME {
            return Err(Broken::Garbage(format!("a frame claims {len} bytes")));
        }
        let Some(json) = rest.get(..len) else { return Ok(None) };
        if crc32fast::hash(json) != crc {
            return Err(Broken::Garbage(format!("the checksum of a frame of {len} bytes is wrong")));
        }
        Ok(Some(len))
    }

    fn fill(&mut self, deadline: Option<Instant>) -> Result<(), Broken> {
        self.set_wait(deadline)?;
        self.buffer.reserve(CHUNK);
        match rustix::io::read(&self.stream, rustix::buffer::spare_capacity(&mut self.buffer)) {
            Ok(0) => Err(Broken::Eof),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(Errno::AGAIN) => Err(Broken::Timeout),
            Err(_) => Err(Broken::Eof),
        }
    }

    /// Has reads end at the deadline. In whole milliseconds, so that those who wait
    /// for the same time again and again tell the kernel once.
    fn set_wait(&mut self, deadline: Option<Instant>) -> Result<(), Broken> {
        let wait = match deadline.map(|at| at.saturating_duration_since(Instant::now())) {
            Some(Duration::ZERO) => return Err(Broken::Timeout),
            Some(left) => Some(Duration::from_millis(left.as_nanos().div_ceil(1_000_000) as u64)),
            None => None,
        };
        if wait != self.wait {
            self.stream.set_read_timeout(wait).map_err(|_| Broken::Eof)?;
            self.wait = wait;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::FromWorker;
    use std::io::Read;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(200))
    }

    #[test]
    fn frames_survive_any_split() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut whole = Vec::new();
        let message = FromWorker::Begin { case_id: "A.b/ü=1".into(), attempt: 3 };
        send(&theirs, &message).expect("sends");
        send(&theirs, &FromWorker::Bye { cases_run: 9, code: None }).expect("sends");
        let mut reader = ours.try_clone().expect("clones");
        let mut chunk = [0; 4096];
        let n = reader.read(&mut chunk).expect("reads");
        whole.extend(&chunk[..n]);
        let mut receiver = Receiver::new(ours);
        for (i, byte) in whole.iter().enumerate() {
            (&theirs).write_all(&[*byte]).expect("writes");
            if i == 20 {
                let early = receiver.next::<FromWorker>(Some(Instant::now() + Duration::from_millis(2)));
                assert!(matches!(early, Err(Broken::Timeout)));
            }
        }
        let first: FromWorker = receiver.next(soon()).expect("a message");
        assert!(matches!(first, FromWorker::Begin { attempt: 3, ref case_id } if case_id == "A.b/ü=1"));
        assert!(matches!(receiver.next(soon()), Ok(FromWorker::Bye { cases_run: 9, code: None })));
        drop(theirs);
        assert!(matches!(receiver.next::<FromWorker>(soon()), Err(Broken::Eof)));
    }

    #[test]
    fn who_sends_is_told_before_it_waits() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_write_timeout(Some(Duration::from_millis(20))).expect("sets");
        let waited = std::cell::Cell::new(0);
        let send = |len: usize| {
            let message = FromWorker::Begin { case_id: "x".repeat(len), attempt: 0 };
            send_after(&theirs, &message, &|| waited.set(waited.get() + 1))
        };
        send(10).expect("has room");
        assert_eq!(waited.get(), 0);
        send(AT_ONCE).expect("has room");
        assert_eq!(waited.get(), 1);
        // Nobody reads: sooner or later it must wait, and has said so before.
        let stuck = (0..100_000).find(|_| send(1000).is_err());
        assert!(stuck.is_some() && waited.get() > 1, "{}", waited.get());
        drop(ours);
    }

    #[test]
    fn garbage_is_told_from_silence() {
        for bytes in [&[0xff; 8][..], b"\x02\0\0\0\0\0\0\0{}", b"hello, world"] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (&theirs).write_all(bytes).expect("writes");
            let mut receiver = Receiver::new(ours);
            assert!(matches!(receiver.next::<FromWorker>(soon()), Err(Broken::Garbage(_))), "{bytes:?}");
        }
    }
}
