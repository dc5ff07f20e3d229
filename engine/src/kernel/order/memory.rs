//! Contents of memory, as far as they decide anything: a word for each element.

use super::eval::replaced;
use super::guards::{GuardId, Guards};
use super::mask::Mask;
use super::slice::Slice;
use super::word::{Val, Word, mix};
use crate::kernel::bind::BoundLaunch;
use crate::kernel::ir::{BufId, Kernel, Space};
use crate::util::{EntityId, SecondaryMap};
use rustc_hash::FxHashMap;

/// Words of which a launch has at most so many for one buffer.
const MAX_WORDS: u64 = 1 << 24;

/// Memory of a block, and what all blocks wrote.
pub(super) struct Memory {
    threads: usize,
    /// Local (element by element, all threads of each) and shared buffers.
    own: SecondaryMap<BufId, Vec<Word>>,
    /// Where data decides which element is written, its buffer holds what nobody knows any more.
    spoilt: SecondaryMap<BufId, u64>,
    is_local: SecondaryMap<BufId, bool>,
    written: SecondaryMap<BufId, bool>,
    /// Whether data decided somewhere which element is written.
    pub(super) is_spoilt: bool,
    /// Grid barriers of the block so far.
    epoch: u32,
    /// What was written to global memory between two grid barriers, by buffer and element.
    pub(super) global: FxHashMap<(u32, u64), Word>,
}

/// What the local and shared buffers of a block hold.
#[derive(Clone)]
pub(super) struct Contents {
    own: SecondaryMap<BufId, Vec<Word>>,
    spoilt: SecondaryMap<BufId, u64>,
}

/// A buffer and an element as one number.
pub(super) fn element(buffer: BufId, index: i64) -> u64 {
    (buffer.index() as u64) << 44 | index.cast_unsigned() & ((1 << 44) - 1)
}

/// The buffer and the element of a number.
pub(super) fn parts(element: u64) -> (BufId, u64) {
    (BufId::from_index((element >> 44) as usize), element & ((1 << 44) - 1))
}

impl Memory {
    pub(super) fn new(kernel: &Kernel, launch: &BoundLaunch, slice: &Slice) -> Self {
        let (mut is_local, mut own) = (SecondaryMap::new(), SecondaryMap::new());
        let threads = launch.threads() as usize;
        for (id, buffer) in kernel.buffers.iter() {
            is_local.set(id, buffer.space == Space::Local);
            let len = launch.buffer_lens[id];
            let words = if buffer.space == Space::Local { len.saturating_mul(threads as u64) } else { len };
            if slice.buffers[id] && buffer.space != Space::Global && words <= MAX_WORDS {
                own.set(id, vec![Word::Int(0); words as usize]);
            }
        }
        let written = slice.written.clone();
        Self {
            threads,
            own,
            spoilt: SecondaryMap::new(),
            is_local,
            written,
            is_spoilt: false,
            epoch: 0,
            global: FxHashMap::default(),
        }
    }

    /// A block begins: its memory holds nothing.
    pub(super) fn begin(&mut self, kernel: &Kernel, block: u64) {
        for id in kernel.buffers.ids() {
            for (i, word) in self.own[id].iter_mut().enumerate() {
                *word = Word::Term(mix(&[6, block, id.index() as u64, i as u64]));
            }
        }
        self.spoilt = SecondaryMap::new();
        self.epoch = 0;
    }

    /// The block passes a grid barrier: what blocks wrote for each other may be read.
    pub(super) fn pass_grid(&mut self) {
        self.epoch += 1;
    }

    fn place(&self, buffer: BufId, index: i64, thread: usize) -> Option<usize> {
        let index = usize::try_from(index).ok()?;
        let place = if self.is_local[buffer] { index.checked_mul(self.threads)? + thread } else { index };
        (place < self.own[buffer].len()).then_some(place)
    }

    /// What local and shared buffers hold.
    pub(super) fn contents(&self) -> Contents {
        Contents { own: self.own.clone(), spoilt: self.spoilt.clone() }
    }

    /// Goes back to what buffers held; what they held meanwhile.
    pub(super) fn exchange(&mut self, contents: Contents) -> Contents {
        let own = std::mem::replace(&mut self.own, contents.own);
        Contents { own, spoilt: std::mem::replace(&mut self.spoilt, contents.spoilt) }
    }

    /// Buffers hold what they do where a condition fails, and `held` where it holds.
    pub(super) fn merge(&mut self, kernel: &Kernel, condition: Word, held: &Contents) {
        for id in kernel.buffers.ids() {
            for (word, other) in self.own[id].iter_mut().zip(&held.own[id]) {
                *word = replaced(condition, *other, *word);
            }
            if self.spoilt[id] != held.spoilt[id] {
                self.spoilt[id] = mix(&[18, condition.bits(), self.spoilt[id], held.spoilt[id]]);
            }
        }
    }

    /// The words that threads read, each `lane` elements behind its index.
    pub(super) fn load(&self, buffer: BufId, index: &Val, lane: u32) -> Val {
        let id = buffer.index() as u64;
        let word = |word: Word, thread: usize| {
            let known = word.int().filter(|_| self.spoilt[buffer] == 0);
            let place = known.and_then(|index| self.place(buffer, index + i64::from(lane), thread));
            match place {
                Some(place) => self.own[buffer][place],
                // Of the rest it is the element that decides, as long as it is the same in memory: inputs are,
                // and what blocks write for each other is read behind all writes, or between grid barriers
                // between which nobody writes it.
                None => {
                    let own = if self.is_local[buffer] { thread as u64 } else { 0 };
                    let (at, lane) = match word {
                        Word::Int(index) => (Word::Int(index + i64::from(lane)), 0),
                        Word::Term(_) => (word, lane),
                        Word::Any => return Word::Any,
                    };
                    let time = if self.written[buffer] { u64::from(self.epoch) } else { 0 };
                    Word::Term(mix(&[7, id, at.bits(), lane.into(), own, self.spoilt[buffer], time]))
                }
            }
        };
        match index {
            Val::One(index) if !self.is_local[buffer] => Val::One(word(*index, 0)),
            _ => Val::from_fn(self.threads, |t| word(index.at(t), t)),
        }
    }

    /// Threads write words, each `lane` elements behind its index.
    pub(super) fn store(
        &mut self,
        (buffer, index, lane): (BufId, &Val, u32),
        value: &Val,
        threads: &Mask,
        (guards, guard): (&Guards, GuardId),
    ) {
        let global = self.own[buffer].is_empty() && !self.is_local[buffer];
        threads.each(|t| {
            let Some(at) = index.at(t).int().map(|index| index + i64::from(lane)) else {
                self.is_spoilt = true;
                self.spoilt.set(buffer, mix(&[8, self.spoilt[buffer], index.at(t).bits(), value.at(t).bits()]));
                return;
            };
            let (place, key) = (self.place(buffer, at, t), (self.epoch, element(buffer, at)));
            let old = match place {
                Some(place) => self.own[buffer][place],
                None if global => self.global.get(&key).copied().unwrap_or(Word::Term(mix(&[9, key.0.into(), key.1]))),
                None => return,
            };
            let mut new = value.at(t);
            // Branches of a whole block have local and shared memory of their own, until they meet again.
            for guard in guards.path(guard).filter(|guard| place.is_none() || !guard.is_common()) {
                let condition = guard.condition.at(t);
                new = if guard.holds { replaced(condition, new, old) } else { replaced(condition, old, new) };
            }
            match place {
                Some(place) => self.own[buffer][place] = new,
                None => {
                    self.global.insert(key, new);
                }
            }
        });
    }

    /// A thread counts: elements of global memory hold what was added, in whatever order.
    pub(super) fn count(&mut self, element: u64, value: u64) {
        let key = (self.epoch, element);
        let old = self.global.get(&key).map_or(0, |word| word.bits());
        self.global.insert(key, Word::Term(old.wrapping_add(mix(&[10, value]))));
    }

    /// Whether contents of a buffer are followed.
    pub(super) fn follows(&self, buffer: BufId) -> bool {
        !self.own[buffer].is_empty()
    }

    /// Whether the kernel writes a buffer.
    pub(super) fn is_written(&self, buffer: BufId) -> bool {
        self.written[buffer]
    }
}
