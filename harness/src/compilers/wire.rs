//! What clients and compiler processes say to each other. A frame is
//! `u32 length of JSON | u32 length of bytes | JSON | bytes`, little endian: the
//! text of a kernel goes one way as bytes, machine code comes back the other way.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// Of either part of a frame.
const MAX_PART: usize = 64 << 20;

/// Said once by the process: the build of the library that it has, as
/// [`super::build_of`] names it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) build: String,
}

/// A text to compile follows as bytes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) arch: String,
    pub(super) fmad: bool,
    pub(super) line_info: bool,
}

/// Machine code follows as bytes, or nothing where there is an error.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) log: String,
    pub(super) error: Option<String>,
}

pub(super) fn send<T: Serialize>(mut stream: &UnixStream, head: &T, bytes: &[u8]) -> io::Result<()> {
    let json = serde_json::to_vec(head)?;
    if json.len().max(bytes.len()) > MAX_PART {
        return Err(io::Error::other(format!("a part of a frame exceeds {MAX_PART} bytes")));
    }
    let mut frame = Vec::with_capacity(8 + json.len() + bytes.len());
    frame.extend((json.len() as u32).to_le_bytes());
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend(json);
    frame.extend(bytes);
    stream.write_all(&frame)
}

pub(super) fn receive<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<(T, Vec<u8>)> {
    let mut lengths = [0; 8];
    stream.read_exact(&mut lengths)?;
    let (json, bytes) = lengths.split_at(4);
    let [json, bytes] = [json, bytes].map(|part| part.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte)));
    if json.max(bytes) > MAX_PART {
        return Err(io::Error::other(format!("a part of a frame exceeds {MAX_PART} bytes")));
    }
    let mut frame = vec![0; json + bytes];
    stream.read_exact(&mut frame)?;
    let bytes = frame.split_off(json);
    Ok((serde_json::from_slice(&frame)?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_wrong_ones_are_refused() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        send(&ours, &Hello { build: "a".into() }, b"text").expect("sends");
        let (hello, bytes) = receive::<Hello>(&theirs).expect("receives");
        assert_eq!((hello, &bytes[..]), (Hello { build: "a".into() }, &b"text"[..]));
        (&ours).write_all(&[0xff; 8]).expect("sends");
        assert!(receive::<Hello>(&theirs).expect_err("too long").to_string().contains("exceeds"));
        send(&ours, &"no hello", b"").expect("sends");
        assert!(receive::<Hello>(&theirs).is_err());
        drop(ours);
        assert_eq!(receive::<Hello>(&theirs).expect_err("closed").kind(), io::ErrorKind::UnexpectedEof);
    }
}
