//! What dispatcher and worker say to each other, over a socket of their own so
//! that stray prints cannot corrupt it.
//!
//! A frame is `u32 length | u32 CRC-32 | JSON`, little endian. A case has
//! *started* at [`FromWorker::Begin`] and *ended* only at [`FromWorker::End`]:
//! anything else in between, an orderly exit included, is a crash.

use crate::case::Case;
use crate::code_cache::CodeUse;
use crate::crc::crc32;
use crate::verdict::Outcome;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Changes with the messages; both ends are one binary, this guards against strays.
pub(crate) const PROTOCOL: u32 = 3;
/// Bytes of a frame's JSON.
const MAX_FRAME: usize = 16 << 20;

/// On what a worker runs cases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeviceSpec {
    /// The reference evaluator only.
    Reference,
    /// A simulated device.
    Sim { ordinal: usize, threads: u32 },
    /// A simulated device that stands for a GPU which a file plays: the UUID is
    /// the one that it shows.
    Played { uuid: String, threads: u32 },
    /// The GPU that `CUDA_VISIBLE_DEVICES` leaves visible.
    /// NVRTC may be in one of the folders.
    Cuda { uuid: String, nvrtc: Vec<std::path::PathBuf> },
}

/// What to do with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Check,
    Bench,
}

/// How workers of a run differ from the usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Knobs {
    /// Threads that compile coming cases while one runs.
    pub(crate) compile_threads: u32,
    /// Seed of disturbed timing at the ends of spans.
    pub(crate) jitter: Option<u64>,
    /// Kernels are compiled with line numbers.
    pub(crate) line_info: bool,
    /// Each case is run twice and its results are compared.
    pub(crate) twice: bool,
    /// The folder of compiled kernels that the workers on GPUs share, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code_cache: Option<std::path::PathBuf>,
}

/// Messages to a worker, as it gets them.
pub(crate) type ToWorker = Order<Box<Case>>;

/// Messages to a worker. `C` is a case, which who sends it only borrows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order<C> {
    Init {
        device: DeviceSpec,
        knobs: Knobs,
        /// Workers that the run has on this device, this one included.
        sharers: u32,
        /// A tool runs the worker: the end of the dispatcher reaches only the tool.
        sanitized: bool,
        /// Where compiler processes take connections.
        compilers: Option<String>,
    },
    /// Cases that will most likely come soon.
    Ahead {
        cases: Vec<C>,
    },
    Run {
        case: C,
        attempt: u32,
        repeat: u32,
        seed: u64,
        mode: Mode,
        bless: bool,
    },
    /// Run a known kernel and compare its result; `spoil` makes it a wrong one,
    /// as a sick GPU would.
    Canary {
        spoil: bool,
    },
    Drain,
}

/// Messages from a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromWorker {
    Hello {
        proto: u32,
        pid: u32,
    },
    Ready {
        device: String,
        /// The identity that CUDA shows, where there is a GPU.
        uuid: Option<String>,
        notes: Vec<String>,
    },
    /// How the canary went: `None` where the device computes nothing.
    Canary {
        ok: Option<bool>,
        detail: String,
    },
    /// The device could not be opened; the worker ends.
    Unusable {
        code: String,
        message: String,
    },
    Begin {
        case_id: String,
        attempt: u32,
    },
    End {
        case_id: String,
        attempt: u32,
        outcome: Box<Outcome>,
        tainted: bool,
        /// What it shared of compiled kernels since it was started.
        code: Option<CodeUse>,
    },
    Bye {
        cases_run: u64,
        code: Option<CodeUse>,
    },
}

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
    head[4..].copy_from_slice(&crc32(json).to_le_bytes());
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
        if crc32(json) != crc {
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
