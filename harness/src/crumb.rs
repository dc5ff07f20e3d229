//! Breadcrumbs: a shared page to which a worker writes where it is, and which
//! the dispatcher reads after any death. One write is a few relaxed stores and
//! one clock read, so that it does not move the race under investigation.
//!
//! The page has [`LANES`] *lanes*. Lane 0 is the case's own thread, with all
//! that it calls; each thread that works beside it, for this or for another
//! case, writes to a lane of its own. Every crumb holds the thread that wrote
//! it, so that a crash names the lane of the thread that crashed.
//!
//! Layout: words 0 and 1 of the page are magic and number of lanes; lane `n`
//! starts at word `8 + 352 n`. A lane in 64-bit words:
//!
//! | word | content |
//! |---|---|
//! | 0 | sequence lock: odd while a write is under way |
//! | 1 | phase |
//! | 2 | id: segment index or kernel hash |
//! | 3 | time of the write, ns of the monotonic clock as of the kernel's last tick |
//! | 4 | id of the thread that wrote last |
//! | 5..13 | name, 64 bytes, zero padded |
//! | 13 | CRC-32 of the id of the case that the lane works for |
//! | 14..30 | that id, 128 bytes, zero padded |
//! | 32..347 | ring of the last 63 crumbs: phase, exit flag and thread in one word, time, id, 2 words of name |
//!
//! Times are those of the kernel's ticks, up to 10 ms apart (`CLOCK_MONOTONIC_COARSE`):
//! they tell a case that gets on from one that hangs, and a finer clock would cost
//! as much as all the rest of a crumb. Lengths of phases are measured elsewhere, by
//! the fine clock.
//!
//! Writers of one lane exclude each other by the sequence word itself (odd
//! means taken); a reader that never sees a stable state takes what is there
//! and says so, since the writer may have died inside a write.

use crate::os::{self, SharedWords};
use engine::options::{Phase, Trace};
use std::collections::BTreeSet;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Lanes of a page.
pub(crate) const LANES: usize = 16;
const MAGIC: u64 = 0x6372_756d_6200_0002;
const HEAD_WORDS: usize = 8;
const SEQ_AT: usize = 0;
const PHASE_AT: usize = 1;
const ID_AT: usize = 2;
const TIME_AT: usize = 3;
const THREAD_AT: usize = 4;
const NAME_AT: usize = 5;
const NAME_WORDS: usize = 8;
const CASE_CRC_AT: usize = 13;
const CASE_AT: usize = 14;
const CASE_WORDS: usize = 16;
const RING_AT: usize = 32;
const RING_LEN: usize = 63;
const RING_WORDS: usize = 5;
const LANE_WORDS: usize = 352;
const WORDS: usize = HEAD_WORDS + LANES * LANE_WORDS;
/// Of a ring entry's first word: set at the end of a span.
const EXIT: u64 = 1 << 31;

/// Phases of a case outside the engine, by number.
const OWN_PHASES: [(u32, &str); 7] = [
    (0, "idle"),
    (101, "inputs"),
    (102, "reference"),
    (103, "compare"),
    (104, "bench"),
    (105, "begin"),
    (106, "report"),
];

/// A phase of the worker itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Own {
    Idle = 0,
    Inputs = 101,
    Reference = 102,
    Compare = 103,
    Bench = 104,
    Begin = 105,
    Report = 106,
}

impl Own {
    pub(crate) fn name(self) -> &'static str {
        phase_name(self as u32)
    }
}

const ENGINE_PHASES: [Phase; 10] = [
    Phase::Parse,
    Phase::Plan,
    Phase::Schedule,
    Phase::Lower,
    Phase::Codegen,
    Phase::Load,
    Phase::Upload,
    Phase::Launch,
    Phase::Verify,
    Phase::Download,
];

fn phase_name(phase: u32) -> &'static str {
    let own = OWN_PHASES.iter().find(|(number, _)| *number == phase).map(|(_, name)| *name);
    ENGINE_PHASES.iter().find(|p| **p as u32 == phase).map(|p| p.name()).or(own).unwrap_or("unknown")
}

/// The names of all phases of a case.
pub(crate) fn phase_names() -> impl Iterator<Item = &'static str> {
    let own = [Own::Begin, Own::Inputs, Own::Reference].map(Own::name);
    let last = [Own::Compare, Own::Bench, Own::Report].map(Own::name);
    own.into_iter().chain(ENGINE_PHASES.iter().map(|phase| phase.name())).chain(last)
}

/// The dispatcher's end.
pub(crate) struct Page(SharedWords);

/// The last state of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Crumb {
    pub(crate) lane: usize,
    pub(crate) seq: u64,
    pub(crate) phase: String,
    pub(crate) name: String,
    pub(crate) id: u64,
    /// Time of the last crumb on the monotonic clock, and how long ago that was
    /// when the page was read, both to within a tick of the kernel.
    pub(crate) t_ns: u64,
    pub(crate) age_ns: u64,
    /// The thread that wrote the last crumb.
    pub(crate) thread: u32,
    /// The case that the lane works for; an id of more than 128 bytes is cut.
    pub(crate) case: String,
    /// CRC-32 of that case's whole id.
    pub(crate) case_crc: u32,
    /// False when the writer died, or was stopped, inside a write.
    pub(crate) stable: bool,
    /// Different crumbs among the last ones.
    pub(crate) distinct: usize,
    /// The last crumbs, oldest first: `phase name` or `/phase` at the end of a span.
    pub(crate) trail: Vec<String>,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Page({})", self.phase())
    }
}

impl Page {
    pub(crate) fn create() -> std::io::Result<Self> {
        let words = SharedWords::create(WORDS)?;
        words.words()[0].store(MAGIC, Ordering::Relaxed);
        words.words()[1].store(LANES as u64, Ordering::Relaxed);
        Ok(Self(words))
    }

    /// Another descriptor of the same memory, as a worker inherits it.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn share(&self) -> std::io::Result<OwnedFd> {
        self.0.fd().try_clone()
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }

    /// Lane 0: where the case itself is.
    pub(crate) fn read(&self) -> Crumb {
        self.lane(0)
    }

    /// All lanes that were ever written, lane 0 always.
    pub(crate) fn lanes(&self) -> Vec<Crumb> {
        (0..LANES).map(|n| self.lane(n)).filter(|crumb| crumb.lane == 0 || crumb.seq > 0).collect()
    }

    /// The lane to which a thread wrote last; `None` if it is in no lane's ring.
    pub(crate) fn of_thread(&self, thread: u32) -> Option<Crumb> {
        let last = |lane: &usize| {
            let words = lane_words(&self.0, *lane);
            let entries = words[RING_AT..RING_AT + RING_LEN * RING_WORDS].chunks(RING_WORDS);
            let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
            entries.filter(|entry| (get(&entry[0]) >> 32) as u32 == thread).map(|entry| get(&entry[1])).max()
        };
        let lane = (0..LANES).filter(|lane| last(lane).is_some()).max_by_key(last)?;
        Some(self.lane(lane))
    }

    /// Where the case is that lane 0 names: there, unless it waits to begin until
    /// a thread beside it is done with the same case. Then it is where that thread is.
    pub(crate) fn case(&self) -> Crumb {
        self.lane(self.case_lane())
    }

    /// The phase of that lane, cheaply.
    pub(crate) fn phase(&self) -> &'static str {
        phase_name(self.word(self.case_lane(), PHASE_AT) as u32)
    }

    fn case_lane(&self) -> usize {
        if self.word(0, PHASE_AT) != Own::Begin as u64 {
            return 0;
        }
        let case = self.word(0, CASE_CRC_AT);
        (1..LANES).find(|lane| case != 0 && self.word(*lane, CASE_CRC_AT) == case).unwrap_or(0)
    }

    fn word(&self, lane: usize, at: usize) -> u64 {
        lane_words(&self.0, lane)[at].load(Ordering::Relaxed)
    }

    fn lane(&self, lane: usize) -> Crumb {
        let words = lane_words(&self.0, lane);
        for _ in 0..1000 {
            let before = words[SEQ_AT].load(Ordering::Acquire);
            let mut crumb = Self::copy(lane, words);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && words[SEQ_AT].load(Ordering::Relaxed) == before {
                crumb.stable = true;
                return crumb;
            }
            std::hint::spin_loop();
        }
        Self::copy(lane, words)
    }

    fn copy(lane: usize, words: &[AtomicU64]) -> Crumb {
        let get = |i: usize| words[i].load(Ordering::Relaxed);
        let texts = |at: usize, len: usize| text(&(at..at + len).map(get).collect::<Vec<u64>>());
        let seq = get(SEQ_AT);
        let written = seq / 2;
        let mut different = BTreeSet::new();
        let trail = (written.saturating_sub(RING_LEN as u64)..written)
            .map(|n| {
                let at = RING_AT + (n % RING_LEN as u64) as usize * RING_WORDS;
                different.insert([at, at + 2, at + 3, at + 4].map(get));
                let packed = get(at);
                let mark = if packed & EXIT == 0 { "" } else { "/" };
                let phase = phase_name((packed & (EXIT - 1)) as u32);
                format!("{mark}{phase} {}", texts(at + 3, 2)).trim_end().to_string()
            })
            .collect();
        let t_ns = get(TIME_AT);
        Crumb {
            lane,
            seq,
            phase: phase_name(get(PHASE_AT) as u32).to_string(),
            name: texts(NAME_AT, NAME_WORDS),
            id: get(ID_AT),
            t_ns,
            age_ns: if seq == 0 { 0 } else { os::coarse_ns().saturating_sub(t_ns) },
            thread: get(THREAD_AT) as u32,
            case: texts(CASE_AT, CASE_WORDS),
            case_crc: get(CASE_CRC_AT) as u32,
            stable: false,
            distinct: different.len(),
            trail,
        }
    }
}

fn lane_words(page: &SharedWords, lane: usize) -> &[AtomicU64] {
    let at = HEAD_WORDS + lane * LANE_WORDS;
    &page.words()[at..at + LANE_WORDS]
}

fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of a text, cut or zero padded. Without calls and loops over single
/// bytes for texts of 8 bytes and more: every breadcrumb does this.
#[inline]
fn packed<const WORDS: usize>(text: &str) -> [u64; WORDS] {
    let bytes = text.as_bytes();
    let bytes = &bytes[..bytes.len().min(8 * WORDS)];
    let (whole, rest) = bytes.as_chunks::<8>();
    let mut words = [0; WORDS];
    words.iter_mut().zip(whole).for_each(|(word, chunk)| *word = u64::from_le_bytes(*chunk));
    if let Some(word) = words.get_mut(whole.len()).filter(|_| !rest.is_empty()) {
        *word = match bytes.last_chunk::<8>() {
            // The last 8 bytes overlap the whole words; what is of those is shifted out.
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
    }
    words
}

/// The worker's end. As a [`Trace`] for the engine it writes to lane 0.
pub(crate) struct CrumbWriter(SharedWords);

/// One lane of a worker's page: a [`Trace`] for the engine.
#[derive(Clone, Copy)]
pub(crate) struct Lane<'a> {
    words: &'a [AtomicU64],
}

impl CrumbWriter {
    pub(crate) fn open(fd: OwnedFd) -> std::io::Result<Self> {
        let page = SharedWords::map(fd, WORDS)?;
        if page.words()[0].load(Ordering::Relaxed) != MAGIC {
            return Err(std::io::Error::other("the breadcrumb page has another version"));
        }
        Ok(Self(page))
    }

    /// A lane: 0 for the case's own thread, another one for each thread that
    /// works beside it. Beyond the last lane threads share that one.
    pub(crate) fn lane(&self, lane: usize) -> Lane<'_> {
        Lane { words: lane_words(&self.0, lane.min(LANES - 1)) }
    }

    /// Enters a phase of the worker itself, on lane 0.
    pub(crate) fn own(&self, phase: Own, name: &str) {
        self.lane(0).own(phase, name);
    }
}

impl Lane<'_> {
    /// Names the case that this lane works for from now on: phase `begin`. The
    /// empty id for none: phase `idle`.
    pub(crate) fn case(&self, id: &str) {
        let phase = if id.is_empty() { Own::Idle } else { Own::Begin };
        self.write_with(phase as u32, false, id, 0, || {
            let words = packed::<CASE_WORDS>(id);
            words.iter().enumerate().for_each(|(i, word)| self.put(CASE_AT + i, *word));
            let crc = if id.is_empty() { 0 } else { crc32fast::hash(id.as_bytes()) };
            self.put(CASE_CRC_AT, u64::from(crc));
        });
    }

    /// Enters a phase of the worker itself.
    pub(crate) fn own(&self, phase: Own, name: &str) {
        self.write(phase as u32, false, name, 0);
    }

    fn put(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Relaxed);
    }

    fn write(&self, phase: u32, exit: bool, name: &str, id: u64) {
        self.write_with(phase, exit, name, id, || {});
    }

    fn write_with(&self, phase: u32, exit: bool, name: &str, id: u64, more: impl FnOnce()) {
        let Some(seq) = self.lock() else { return };
        more();
        let (now, thread) = (os::coarse_ns(), u64::from(os::thread_id()));
        let name = packed::<NAME_WORDS>(name);
        if !exit {
            self.put(PHASE_AT, u64::from(phase));
            self.put(ID_AT, id);
            name.iter().enumerate().for_each(|(i, word)| self.put(NAME_AT + i, *word));
        }
        self.put(TIME_AT, now);
        self.put(THREAD_AT, thread);
        let ring = RING_AT + ((seq / 2) % RING_LEN as u64) as usize * RING_WORDS;
        self.put(ring, u64::from(phase) | if exit { EXIT } else { 0 } | thread << 32);
        self.put(ring + 1, now);
        self.put(ring + 2, id);
        self.put(ring + 3, name[0]);
        self.put(ring + 4, name[1]);
        self.words[SEQ_AT].store(seq + 2, Ordering::Release);
    }

    /// Makes the sequence odd. Gives up after a while: a crumb may be lost, but
    /// no thread may hang here because another was stopped inside a write.
    fn lock(&self) -> Option<u64> {
        for _ in 0..10_000 {
            let seq = self.words[SEQ_AT].load(Ordering::Relaxed) & !1;
            if self.words[SEQ_AT].compare_exchange_weak(seq, seq + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                fence(Ordering::Release);
                return Some(seq);
            }
            std::hint::spin_loop();
        }
        None
    }
}

impl Trace for Lane<'_> {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.write(phase as u32, false, name, id);
    }
    fn exit(&self, phase: Phase) {
        self.write(phase as u32, true, "", 0);
    }
}

impl Trace for CrumbWriter {
    fn enter(&self, phase: Phase, name: &str, id: u64) {
        self.lane(0).enter(phase, name, id);
    }
    fn exit(&self, phase: Phase) {
        self.lane(0).exit(phase);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Instant;

    pub(crate) fn pair() -> (Page, CrumbWriter) {
        let page = Page::create().expect("a page");
        // A second descriptor of the same memory, as a worker inherits it.
        let fd = page.share().expect("a descriptor");
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
    fn names_of_any_length_are_packed() {
        let letters = "abcdefghijklmnopqrstuvwxyz";
        for len in 0..=letters.len() {
            let mut wanted = [0; 16];
            wanted[..len.min(16)].copy_from_slice(&letters.as_bytes()[..len.min(16)]);
            let words: Vec<u8> = packed::<2>(&letters[..len]).iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(words, wanted, "{len}");
        }
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

    #[track_caller]
    fn check_place(page: &Page, lane: usize, phase: &str) {
        let crumb = page.case();
        assert_eq!((crumb.lane, crumb.phase.as_str(), page.phase()), (lane, phase, phase));
    }

    /// A case that waits to begin is where the thread is that compiles it.
    #[test]
    fn a_case_is_where_its_work_is_done() {
        let (page, writer) = pair();
        check_place(&page, 0, "idle");
        writer.lane(1).case("A.other");
        writer.lane(2).case("A.big");
        writer.lane(2).enter(Phase::Schedule, "heuristic", 1);
        writer.lane(0).case("A.big");
        check_place(&page, 2, "schedule");
        writer.lane(2).case("");
        check_place(&page, 0, "begin");
        writer.lane(3).case("A.big");
        writer.own(Own::Inputs, "x");
        check_place(&page, 0, "inputs");
    }

    #[test]
    fn lanes_name_thread_and_case() {
        let (page, writer) = pair();
        writer.lane(0).case("A.b/x=1");
        writer.enter(Phase::Launch, "kernel_a", 1);
        let id = "long/".repeat(60);
        let beside = std::thread::scope(|scope| {
            let work = || {
                writer.lane(3).case(&id);
                writer.lane(3).enter(Phase::Schedule, "segment", 5);
                os::thread_id()
            };
            scope.spawn(work).join().expect("ends")
        });
        let crumb = page.of_thread(beside).expect("a lane");
        assert_eq!((crumb.lane, crumb.phase.as_str(), crumb.id, crumb.thread), (3, "schedule", 5, beside));
        assert_eq!((crumb.case.as_str(), crumb.case_crc), (&id[..128], crc32fast::hash(id.as_bytes())));
        let own = page.of_thread(os::thread_id()).expect("a lane");
        assert_eq!((own.lane, own.case.as_str(), own.name.as_str()), (0, "A.b/x=1", "kernel_a"));
        assert_eq!(page.lanes().iter().map(|crumb| crumb.lane).collect::<Vec<_>>(), [0, 3]);
        assert!(page.of_thread(1).is_none());
        writer.lane(3).exit(Phase::Schedule);
        assert_eq!(page.lane(3).phase, "schedule", "the end of a span changes the trail, not the place");
    }

    #[test]
    fn more_threads_than_lanes_share_the_last() {
        let (page, writer) = pair();
        writer.lane(900).own(Own::Compare, "late");
        assert_eq!((page.lanes()[1].lane, page.lanes()[1].phase.as_str()), (LANES - 1, "compare"));
    }

    /// Held against reading the clock, which a loaded or slow machine slows down alike:
    /// a debug build's crumb is twelve of them. `benches/overhead.rs` has the figure itself.
    #[test]
    fn a_crumb_is_cheap() {
        let (_page, writer) = pair();
        let best = |work: &dyn Fn(u64)| {
            // Short rounds: on a loaded machine some of them are not interrupted.
            let round = |_| {
                let start = Instant::now();
                (0..1_000).for_each(work);
                start.elapsed()
            };
            (0..250).map(round).min().expect("there are rounds")
        };
        let clock = best(&|_| {
            std::hint::black_box(Instant::now());
        });
        let crumb = best(&|i| writer.enter(Phase::Lower, "index propagation", i));
        assert!(crumb < clock * 20, "{crumb:?} for 1000 crumbs, {clock:?} for 1000 looks at the clock");
    }
}
