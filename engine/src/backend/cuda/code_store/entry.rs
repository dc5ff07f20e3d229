//! The bytes of an entry.
//!
//! ```text
//! magic            8 bytes
//! key             16 bytes
//! length           8 bytes, of what follows the checksum
//! checksum        16 bytes, over the key and what follows
//! length of code   8 bytes
//! code
//! log              UTF-8, to the end
//! ```
//! Numbers are little endian. The resource figures are read from the log again,
//! so that there is one way to them.

use super::super::nvrtc::Cubin;
use crate::util::{Hash128, StableHasher};

const MAGIC: [u8; 8] = *b"FWCODE\r\n";
const HEADER: usize = 48;

/// An entry as it is stored.
pub(super) fn encode(key: Hash128, cubin: &Cubin) -> Vec<u8> {
    let body_len = 8 + cubin.bytes.len() + cubin.log.len();
    let mut bytes = Vec::with_capacity(HEADER + body_len);
    bytes.extend(MAGIC);
    bytes.extend(key.0.to_le_bytes());
    bytes.extend((body_len as u64).to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend((cubin.bytes.len() as u64).to_le_bytes());
    bytes.extend(&cubin.bytes);
    bytes.extend(cubin.log.as_bytes());
    let sum = checksum(key, &bytes[HEADER..]);
    bytes[32..HEADER].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The entry's content, if every byte of it is as it was stored under this key.
pub(super) fn decode(key: Hash128, bytes: &[u8]) -> Option<Cubin> {
    let (header, body) = bytes.split_at_checked(HEADER)?;
    let (magic, header) = header.split_first_chunk::<8>()?;
    let (stored_key, header) = header.split_first_chunk::<16>()?;
    let (length, header) = header.split_first_chunk::<8>()?;
    let sum = header.first_chunk::<16>()?;
    let right = *magic == MAGIC
        && u128::from_le_bytes(*stored_key) == key.0
        && u64::from_le_bytes(*length) == body.len() as u64
        && u128::from_le_bytes(*sum) == checksum(key, body);
    if !right {
        return None;
    }
    let (code_len, rest) = body.split_first_chunk::<8>()?;
    let (code, log) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*code_len)).ok()?)?;
    Some(Cubin::new(code.to_vec(), std::str::from_utf8(log).ok()?.to_string()))
}

fn checksum(key: Hash128, body: &[u8]) -> u128 {
    let mut hasher = StableHasher::new();
    hasher.write_bytes(&key.0.to_le_bytes());
    hasher.write_bytes(body);
    hasher.finish128().0
}
