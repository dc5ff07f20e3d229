//! What clients and compiler processes say to each other: messages of a few runs of bytes.
//!
//! A message is the length of each run, 8 bytes little endian, then the runs.

use super::super::nvrtc::{Cubin, Nvrtc, NvrtcOptions};
use crate::diag::{Diagnostic, Result, code};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Bytes of a message; more is no message of ours.
const MAX_BYTES: u64 = 256 << 20;
/// Changes with what is said.
const FORMAT: &[u8] = b"fusewright compiler 1";

/// The build of a library, for comparison; nothing where it is not known.
pub(super) fn build_of(nvrtc: &Nvrtc) -> Option<String> {
    nvrtc.fingerprint().ok().map(|build| format!("{:032x}", build.0))
}

fn send(mut stream: &UnixStream, runs: &[&[u8]]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(runs.iter().map(|run| 8 + run.len()).sum());
    runs.iter().for_each(|run| bytes.extend((run.len() as u64).to_le_bytes()));
    runs.iter().for_each(|run| bytes.extend(*run));
    stream.write_all(&bytes)
}

fn receive<const RUNS: usize>(mut stream: &UnixStream) -> io::Result<[Vec<u8>; RUNS]> {
    let mut lengths = [0; RUNS];
    for length in &mut lengths {
        let mut word = [0; 8];
        stream.read_exact(&mut word)?;
        *length = u64::from_le_bytes(word);
    }
    if lengths.iter().try_fold(0u64, |sum, length| sum.checked_add(*length)).is_none_or(|sum| sum > MAX_BYTES) {
        return Err(io::Error::other("a message claims too many bytes"));
    }
    let mut runs = [const { Vec::new() }; RUNS];
    for (run, length) in runs.iter_mut().zip(lengths) {
        run.resize(length as usize, 0);
        stream.read_exact(run)?;
    }
    Ok(runs)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(io::Error::other)
}

/// Said once by the process: the build of the library that it has, as [`build_of`] names it.
pub(super) fn send_hello(stream: &UnixStream, build: &str) -> io::Result<()> {
    send(stream, &[FORMAT, build.as_bytes()])
}

pub(super) fn receive_hello(stream: &UnixStream) -> io::Result<String> {
    let [format, build] = receive(stream)?;
    if format == FORMAT { text(build) } else { Err(io::Error::other("it speaks another version")) }
}

/// A text to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) text: String,
    pub(super) name: String,
    pub(super) options: NvrtcOptions,
}

impl Request {
    pub(super) fn send(&self, stream: &UnixStream) -> io::Result<()> {
        let NvrtcOptions { arch, fmad, line_info } = &self.options;
        let flags = [u8::from(*fmad), u8::from(*line_info)];
        send(stream, &[self.text.as_bytes(), self.name.as_bytes(), arch.as_bytes(), &flags])
    }

    pub(super) fn receive(stream: &UnixStream) -> io::Result<Self> {
        let [own, name, arch, flags] = receive(stream)?;
        let flag = |number: usize| flags.get(number) == Some(&1);
        let options = NvrtcOptions { arch: text(arch)?, fmad: flag(0), line_info: flag(1) };
        Ok(Self { text: text(own)?, name: text(name)?, options })
    }
}

/// How a text was refused.
const REFUSED_BY: [(&[u8], crate::diag::Code); 2] = [(b"compiler", code::NVRTC), (b"assembler", code::PTXAS)];

/// Tells what came of a text.
pub(super) fn send_result(stream: &UnixStream, result: &Result<Cubin>) -> io::Result<()> {
    match result {
        Ok(cubin) => send(stream, &[b"", &cubin.bytes, cubin.log.as_bytes()]),
        Err(error) => {
            let by = REFUSED_BY.iter().find(|(_, code)| *code == error.code).unwrap_or(&REFUSED_BY[0]);
            send(stream, &[by.0, error.message.as_bytes(), error.notes.join("\n").as_bytes()])
        }
    }
}

pub(super) fn receive_result(stream: &UnixStream) -> io::Result<Result<Cubin>> {
    let [refused_by, bytes, log] = receive(stream)?;
    let log = text(log)?;
    if refused_by.is_empty() {
        return Ok(Ok(Cubin::new(bytes, log)));
    }
    let by = REFUSED_BY.iter().find(|(by, _)| *by == refused_by);
    let by = by.ok_or_else(|| io::Error::other("an answer is none"))?;
    Ok(Err(Diagnostic::bug_code(by.1, text(bytes)?).note(log)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_as_they_were_sent() {
        let (one, other) = UnixStream::pair().unwrap();
        let options = NvrtcOptions { line_info: true, ..NvrtcOptions::new((9, 0), false) };
        let request = Request { text: "ü".repeat(10), name: String::new(), options };
        send_hello(&one, "b").unwrap();
        request.send(&one).unwrap();
        assert_eq!(receive_hello(&other).unwrap(), "b");
        assert_eq!(Request::receive(&other).unwrap(), request);
        let refused = |code| Err(Diagnostic::bug_code(code, "why").note("line 1\nline 2"));
        for result in [Ok(Cubin::new(vec![7; 1000], "log".into())), refused(code::NVRTC), refused(code::PTXAS)] {
            send_result(&one, &result).unwrap();
            assert_eq!(receive_result(&other).unwrap(), result);
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [&[0xff; 64][..], b"GET / HTTP/1.1\r\n\r\n.............", &[]] {
            let (one, other) = UnixStream::pair().unwrap();
            (&one).write_all(bytes).unwrap();
            drop(one);
            assert!(receive_hello(&other).is_err());
        }
        let (one, other) = UnixStream::pair().unwrap();
        send(&one, &[b"fusewright compiler 0", b"b"]).unwrap();
        assert!(receive_hello(&other).unwrap_err().to_string().contains("another version"));
    }
}
