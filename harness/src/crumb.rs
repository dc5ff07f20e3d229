//! Breadcrumbs: a shared page to which a worker writes where it is, and which
//! the dispatcher reads after any death. One write is a few relaxed stores and
//! one clock read, so that it does not move the race under investigation.
//!
//! Layout in 64-bit words:
//!
//! | word | content |
//! |---|---|
//! | 0 | magic and version |
//! | 1 | sequence lock: odd while a write is under way |
//! | 2 | phase (low 32 bits) and depth of open spans (high 32) |
//! | 3 | id: segment index or kernel hash |
//! | 4 | time of the write, ns since the page was opened by the worker |
//! | 5..13 | name, 64 bytes, zero padded |
//! | 16.. | ring of the last 63 crumbs: packed (phase, exit flag, sequence), time, id, 2 words of name |
//!
//! Writers of one worker exclude each other by the sequence word itself (odd
//! means taken); a reader that never sees a stable state takes what is there
//! and says so, since the writer may have died inside a write.

use crate::os::SharedWords;
use engine::options::{Phase, Trace};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

const MAGIC: u64 = 0x6372_756d_6200_0001;
const NAME_AT: usize = 5;
const NAME_WORDS: usize = 8;
const RING_AT: usize = 16;
const RING_LEN: usize = 63;
const RING_WORDS: usize = 5;
const WORDS: usize = RING_AT + RING_LEN * RING_WORDS;

/// Phases of a case outside the engine, by number.
const OWN_PHASES: [(u32, &str); 5] =
    [(0, "idle"), (101, "inputs"), (102, "reference"), (103, "compare"), (104, "bench")];

/// A phase of the worker itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Own {
    Idle = 0,
    Inputs = 101,
    Reference = 102,
    Compare = 103,
    Bench = 104,
}

impl Own {
    pub(crate) fn name(self) -> &'static str {
        phase_name(self as u32)
    }
}

fn phase_name(phase: u32) -> &'static str {
    use Phase::{Codegen, Launch, Load, Lower, Parse, Schedule, Verify};
    let engine = [Parse, Schedule, Lower, Codegen, Load, Launch, Verify];
    let own = OWN_PHASES.iter().find(|(number, _)| *number == phase).map(|(_, name)| *name);
    engine.iter().find(|p| **p as u32 == phase).map(|p| p.name()).or(own).unwrap_or("unknown")
}

/// The dispatcher's end.
pub(crate) struct Page(SharedWords);

/// The last state of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Crumb {
    pub(crate) seq: u64,
    pub(crate) phase: String,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) t_ns: u64,
    /// False when the writer died, or was stopped, inside a write.
    pub(crate) stable: bool,
    /// The last crumbs, oldest first: `phase name` or `/phase` at the end of a span.
    pub(crate) trail: Vec<String>,
}

impl Page {
    pub(crate) fn create() -> std::io::Result<Self> {
        let words = SharedWords::create(WORDS)?;
        words.words()[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self(words))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }

    pub(crate) fn read(&self) -> Crumb {
        let words = self.0.words();
        for _ in 0..1000 {
            let before = words[1].load(Ordering::Acquire);
            let mut crumb = Self::copy(words);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && words[1].load(Ordering::Relaxed) == before {
                crumb.stable = true;
                return crumb;
            }
            std::hint::spin_loop();
        }
        Self::copy(words)
    }

    fn copy(words: &[AtomicU64]) -> Crumb {
        let get = |i: usize| words[i].load(Ordering::Relaxed);
        let seq = get(1);
        let written = seq / 2;
        let trail = (written.saturating_sub(RING_LEN as u64)..written)
            .map(|n| {
                let at = RING_AT + (n % RING_LEN as u64) as usize * RING_WORDS;
                let packed = get(at);
                let name = text(&[get(at + 3), get(at + 4)]);
                let mark = if packed >> 32 & 1 == 1 { "/" } else { "" };
                format!("{mark}{} {name}", phase_name(packed as u32)).trim_end().to_string()
            })
            .collect();
        let name: Vec<u64> = (NAME_AT..NAME_AT + NAME_WORDS).map(get).collect();
        let phase = phase_name(get(2) as u32).to_string();
        Crumb { seq, phase, name: text(&name), id: get(3), t_ns: get(4), stable: false, trail }
    }
}

fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The worker's end: a [`Trace`] for the engine.
pub(crate) struct CrumbWriter {
    page: SharedWords,
    opened: Instant,
}

impl CrumbWriter {
    pub(crate) fn open(fd: OwnedFd) -> std::io::Result<Self> {
        let page = SharedWords::map(fd, WORDS)?;
        if page.words()[0].load(Ordering::Relaxed) != MAGIC {
            return Err(std::io::Error::other("the breadcrumb page has another version"));
        }
        Ok(Self { page, opened: Instant::now() })
    }

    /// Enters a phase of the worker itself.
    pub(crate) fn own(&self, phase: Own, name: &str) {
        self.write(phase as u32, false, name, 0);
    }

    fn write(&self, phase: u32, exit: bool, name: &str, id: u64) {
        let words = self.page.words();
        let Some(seq) = self.lock(words) else { return };
        let now = self.opened.elapsed().as_nanos() as u64;
        let put = |i: usize, value: u64| words[i].store(value, Ordering::Relaxed);
        let mut packed = [0u8; NAME_WORDS * 8];
        let len = name.len().min(packed.len());
        packed[..len].copy_from_slice(&name.as_bytes()[..len]);
        let (chunks, _) = packed.as_chunks::<8>();
        let word = |i: usize| u64::from_le_bytes(chunks[i]);
        if !exit {
            put(2, u64::from(phase));
            put(3, id);
            (0..NAME_WORDS).for_each(|i| put(NAME_AT + i, word(i)));
        }
        put(4, now);
        let ring = RING_AT + ((seq / 2) % RING_LEN as u64) as usize * RING_WORDS;
        put(ring, u64::from(phase) | u64::from(exit) << 32);
        put(ring + 1, now);
        put(ring + 2, id);
        put(ring + 3, word(0));
        put(ring + 4, word(1));
        words[1].store(seq + 2, Ordering::Release);
    }

    /// Makes the sequence odd. Gives up after a while: a crumb may be lost, but
    /// no thread may hang here because another was stopped inside a write.
    fn lock(&self, words: &[AtomicU64]) -> Option<u64> {
        for _ in 0..10_000 {
            let seq = words[1].load(Ordering::Relaxed) & !1;
            if words[1].compare_exchange_weak(seq, seq + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                fence(Ordering::Release);
                return Some(seq);
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl Trace for CrumbWriter {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.write(phase as u32, false, name, id);
    }
    fn exit(&self, phase: Phase) {
        self.write(phase as u32, true, "", 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Page, CrumbWriter) {
        let page = Page::create().expect("a page");
        // A second descriptor of the same memory, as a worker inherits it.
        let fd = page.0.fd().try_clone().expect("a descriptor");
        (page, CrumbWriter::open(fd).expect("maps"))
    }

    #[test]
    fn the_last_phase_and_the_trail_survive() {
        let (page, writer) = pair();
        writer.own(Own::Reference, "refeval");
        writer.enter(Phase::Lower, "index propagation", 7);
        writer.exit(Phase::Lower);
        writer.enter(Phase::Launch, "kernel_pointwise", u64::MAX);
        let crumb = page.read();
        assert!(crumb.stable);
        assert_eq!((crumb.phase.as_str(), crumb.name.as_str(), crumb.id), ("launch", "kernel_pointwise", u64::MAX));
        assert_eq!(crumb.trail, ["reference refeval", "lower index propagatio", "/lower", "launch kernel_pointwise"]);
    }

    #[test]
    fn long_names_and_a_full_ring_are_cut() {
        let (page, writer) = pair();
        for i in 0..200 {
            writer.enter(Phase::Schedule, &"ü".repeat(100), i);
        }
        let crumb = page.read();
        assert_eq!(crumb.trail.len(), RING_LEN);
        assert_eq!(crumb.id, 199);
        assert_eq!(crumb.name.chars().count(), 32);
    }

    #[test]
    fn threads_do_not_tear_each_other() {
        let (page, writer) = pair();
        std::thread::scope(|scope| {
            for phase in [Phase::Lower, Phase::Codegen] {
                let writer = &writer;
                scope.spawn(move || (0..20_000).for_each(|_| writer.enter(phase, phase.name(), phase as u64)));
            }
            for _ in 0..2_000 {
                let crumb = page.read();
                if crumb.stable && crumb.seq > 0 {
                    assert_eq!(crumb.phase, crumb.name);
                }
            }
        });
    }

    #[test]
    fn a_crumb_is_cheap() {
        let (_page, writer) = pair();
        // Short rounds: on a loaded machine some of them are not interrupted.
        let rounds = 2_000;
        let best = (0..250)
            .map(|_| {
                let start = Instant::now();
                (0..rounds).for_each(|i| writer.enter(Phase::Lower, "index propagation", i));
                start.elapsed().as_nanos() / u128::from(rounds)
            })
            .min();
        // The goal is 50 ns; the bound leaves room for a loaded machine and a debug build.
        assert!(best.is_some_and(|ns| ns < 500), "{best:?} ns a crumb");
    }
}
