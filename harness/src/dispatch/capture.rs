//! A worker's standard output or error, drained so that it never blocks, and
//! bounded: the head and the tail of what came since the last mark.

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KEPT: usize = 64 << 10;

#[derive(Default)]
struct Kept {
    head: Vec<u8>,
    /// Up to twice what is kept, so that bytes are moved rarely.
    tail: Vec<u8>,
    total: u64,
    closed: bool,
}

/// A stream being drained.
pub(super) struct Capture(Arc<Mutex<Kept>>);

impl Capture {
    /// Starts draining. The thread ends with the stream.
    pub(super) fn start(stream: Option<impl Read + Send + 'static>) -> Self {
        let kept = Arc::new(Mutex::new(Kept { closed: stream.is_none(), ..Kept::default() }));
        if let Some(mut stream) = stream {
            let shared = kept.clone();
            std::thread::spawn(move || {
                let mut chunk = vec![0u8; 64 << 10];
                while let Ok(n @ 1..) = stream.read(&mut chunk) {
                    lock(&shared).push(&chunk[..n]);
                }
                lock(&shared).closed = true;
            });
        }
        Self(kept)
    }

    /// Forgets what came so far.
    pub(super) fn mark(&self) {
        let mut kept = lock(&self.0);
        let closed = kept.closed;
        *kept = Kept { closed, ..Kept::default() };
    }

    /// What came since the mark. Waits a moment for the end of a dead worker's
    /// stream, not for one that a grandchild holds open.
    pub(super) fn text(&self, wait: Duration) -> String {
        let deadline = Instant::now() + wait;
        while !lock(&self.0).closed && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        lock(&self.0).text()
    }
}

fn lock(kept: &Mutex<Kept>) -> std::sync::MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = KEPT - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * KEPT {
            self.tail.drain(..self.tail.len() - KEPT);
        }
    }

    fn text(&self) -> String {
        let tail = &self.tail[self.tail.len().saturating_sub(KEPT)..];
        let cut = self.total - (self.head.len() + tail.len()) as u64;
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if cut > 0 {
            text.push_str(&format!("\n... {cut} bytes cut ...\n"));
        }
        text.push_str(&String::from_utf8_lossy(tail));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept() {
        let mut kept = Kept::default();
        kept.push(b"begin ");
        for _ in 0..1000 {
            kept.push(&[b'.'; 1000]);
        }
        kept.push(b" end");
        let text = kept.text();
        assert!(text.starts_with("begin ") && text.ends_with(" end") && text.contains("bytes cut"));
        assert!(text.len() < 2 * KEPT + 100);
    }
}
