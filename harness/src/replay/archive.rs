//! Texts by their digests, in one compressed file.
//!
//! Kernels have most of their lines in common, farther apart than a compressor
//! looks back. So each different line is written once, and a text is the numbers
//! of its lines: runs of lines that followed each other before are one number.
//! That is a seventeenth of the texts' size compressed alone.
//!
//! The form, before compression: `u32` length and the lines, each with its line
//! feed; then the numbers as variable-length integers: for each text the number of
//! its pieces, and for each piece how many lines follow as they did the last time,
//! then the next line's number. Texts end with a line feed, come in ascending
//! order, and hold their own digest.

use super::compiled::digest;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{Read, Write};

/// The first bytes: what it is, and the version of its form.
const MAGIC: &[u8] = b"fusewright texts 1\n";
/// Bytes that an archive may unpack to.
const MAX_BYTES: u64 = 256 << 20;

/// Texts by digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Archive(pub(crate) BTreeMap<String, String>);

impl Archive {
    /// Reads the bytes of an archive.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let packed = bytes.strip_prefix(MAGIC).ok_or("this is no archive of kernel texts")?;
        let mut plain = Vec::new();
        let read = ZlibDecoder::new(packed).take(MAX_BYTES).read_to_end(&mut plain);
        read.map_err(|error| format!("the archive of kernel texts is damaged: {error}"))?;
        let texts = unpack(&plain).ok_or("the archive of kernel texts is damaged")?;
        Ok(Self(texts.into_iter().map(|text| (digest(&text), text)).collect()))
    }

    /// The bytes of an archive; [`Archive::read`] reads them back.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, String> {
        let texts: BTreeSet<&str> = self.0.values().map(String::as_str).collect();
        let mut encoder = ZlibEncoder::new(MAGIC.to_vec(), Compression::best());
        let packed = encoder.write_all(&pack(&texts)).and_then(|()| encoder.finish());
        packed.map_err(|error| error.to_string())
    }
}

/// The line that last followed each line.
type Follows = HashMap<Option<usize>, usize>;

fn pack(texts: &BTreeSet<&str>) -> Vec<u8> {
    let (mut numbers, mut lines) = (HashMap::new(), String::new());
    let (mut follows, mut pieces) = (Follows::new(), Vec::new());
    for text in texts {
        let (mut count, mut own, mut before, mut run) = (0, Vec::new(), None, 0);
        for line in text.lines() {
            let fresh = numbers.len();
            let number = *numbers.entry(line).or_insert_with(|| {
                lines.push_str(line);
                lines.push('\n');
                fresh
            });
            if follows.insert(before, number) == Some(number) {
                run += 1;
            } else {
                put(&mut own, run);
                put(&mut own, number);
                (run, count) = (0, count + 1);
            }
            before = Some(number);
        }
        put(&mut pieces, count);
        pieces.extend(own);
        put(&mut pieces, run);
    }
    let length = (lines.len() as u32).to_le_bytes();
    [&length, lines.as_bytes(), &pieces].concat()
}

fn unpack(plain: &[u8]) -> Option<Vec<String>> {
    let (length, rest) = plain.split_first_chunk::<4>()?;
    let (lines, mut pieces) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let lines: Vec<&str> = std::str::from_utf8(lines).ok()?.lines().collect();
    let (mut follows, mut texts, mut total) = (Follows::new(), Vec::new(), 0);
    while !pieces.is_empty() {
        let (mut text, mut before) = (String::new(), None);
        let count = take(&mut pieces)?;
        for piece in 0..=count {
            for _ in 0..take(&mut pieces)? {
                let number = *follows.get(&before)?;
                total += push(&mut text, lines.get(number)?);
                before = Some(number);
                if total > MAX_BYTES {
                    return None;
                }
            }
            if piece < count {
                let number = take(&mut pieces)?;
                total += push(&mut text, lines.get(number)?);
                follows.insert(before, number);
                before = Some(number);
            }
        }
        texts.push(text);
    }
    Some(texts)
}

fn push(text: &mut String, line: &str) -> u64 {
    text.push_str(line);
    text.push('\n');
    line.len() as u64 + 1
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn put(bytes: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<usize> {
    let mut number = 0usize;
    for shift in (0..63).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(texts: &[&str]) -> Archive {
        Archive(texts.iter().map(|text| (digest(text), text.to_string())).collect())
    }

    #[test]
    fn texts_come_back() {
        let long: String = (0..500).map(|i| format!("line {}\n", i % 130)).collect();
        let other = long.replace("line 7\n", "another\n");
        let whole = archive(&["", "a\n", "a\nb\na\nb\n", "a\nb\nc\n", "\n\n", &long, &other]);
        let bytes = whole.bytes().expect("packs");
        assert_eq!(Archive::read(&bytes), Ok(whole.clone()));
        assert_eq!(whole.bytes(), Ok(bytes), "the same texts give the same bytes");
        assert_eq!(Archive::read(&Archive::default().bytes().expect("packs")), Ok(Archive::default()));
    }

    #[test]
    fn damage_is_told() {
        let bytes = archive(&["a\nb\n", "a\nc\n"]).bytes().expect("packs");
        assert!(Archive::read(&bytes[..bytes.len() - 3]).is_err());
        assert!(Archive::read(b"something else").is_err());
        for plain in [&[9, 0, 0, 0, b'a'][..], &[2, 0, 0, 0, b'a', b'\n', 1, 0, 5, 0], &[2, 0, 0, 0, b'a', b'\n', 0, 9]]
        {
            assert_eq!(unpack(plain), None, "{plain:?}");
        }
    }
}
