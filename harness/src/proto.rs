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
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
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

/// Messages to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToWorker {
    Init {
        device: DeviceSpec,
        knobs: Knobs,
        /// Workers that the run has on this device, this one included.
        sharers: u32,
        /// A tool runs the worker: the end of the dispatcher reaches only the tool.
        sanitized: bool,
    },
    /// Cases that will most likely come soon.
    Ahead {
        cases: Vec<Case>,
    },
    Run {
        case: Box<Case>,
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

/// Sends one message.
pub(crate) fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> io::Result<()> {
    let json = serde_json::to_vec(message)?;
    if json.len() > MAX_FRAME {
        return Err(io::Error::other(format!("a message of {} bytes exceeds {MAX_FRAME}", json.len())));
    }
    let mut frame = Vec::with_capacity(json.len() + 8);
    frame.extend((json.len() as u32).to_le_bytes());
    frame.extend(crc32(&json).to_le_bytes());
    frame.extend(json);
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

/// Receives messages; keeps what came of an unfinished frame.
pub(crate) struct Receiver {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next message, waiting until `deadline` at most, or without end.
    pub(crate) fn next<T: DeserializeOwned>(&mut self, deadline: Option<Instant>) -> Result<T, Broken> {
        loop {
            if let Some(json) = self.take_frame()? {
                return serde_json::from_slice(&json).map_err(|error| Broken::Garbage(error.to_string()));
            }
            self.fill(deadline)?;
        }
    }

    fn take_frame(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Some((head, rest)) = self.buffer.split_first_chunk::<8>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, crc) = (word(0) as usize, word(4));
        if len > MAX_FRAME {
            return Err(Broken::Garbage(format!("a frame claims {len} bytes")));
        }
        let Some(json) = rest.get(..len) else { return Ok(None) };
        if crc32(json) != crc {
            return Err(Broken::Garbage(format!("the checksum of a frame of {len} bytes is wrong")));
        }
        let json = json.to_vec();
        self.buffer.drain(..8 + len);
        Ok(Some(json))
    }

    fn fill(&mut self, deadline: Option<Instant>) -> Result<(), Broken> {
        let wait = match deadline {
            None => None,
            Some(at) => match at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Err(Broken::Timeout),
                left => Some(left.max(Duration::from_millis(1))),
            },
        };
        let mut chunk = [0u8; 16 << 10];
        let count = self.stream.set_read_timeout(wait).and_then(|()| self.stream.read(&mut chunk));
        match count {
            Ok(0) => Err(Broken::Eof),
            Ok(n) => {
                self.buffer.extend(&chunk[..n]);
                Ok(())
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Err(Broken::Timeout),
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(Broken::Eof),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn garbage_is_told_from_silence() {
        for bytes in [&[0xff; 8][..], b"\x02\0\0\0\0\0\0\0{}", b"hello, world"] {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (&theirs).write_all(bytes).expect("writes");
            let mut receiver = Receiver::new(ours);
            assert!(matches!(receiver.next::<FromWorker>(soon()), Err(Broken::Garbage(_))), "{bytes:?}");
        }
    }
}
