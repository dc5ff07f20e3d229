//! What a worker wrote of an attempt: the head and the tail of each stream, bounded.
//! What a worker writes may be anything, and as much as it likes.

use crate::escape::escape;

/// Bytes of the head, and bytes of the tail.
const KEPT: usize = 256 << 10;

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
pub(crate) struct WorkerOutput {
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    /// Files that belong to it, to be moved to the evidence.
    pub(crate) files: Vec<std::path::PathBuf>,
}

impl Captured {
    /// Takes what came next.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
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
