//! Sets of threads of a block.

/// The threads of a block for which something holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    words: Vec<u64>,
    threads: usize,
}

impl Mask {
    /// All threads.
    pub(super) fn full(threads: usize) -> Self {
        let mut words = vec![u64::MAX; threads.div_ceil(64)];
        if let Some(last) = words.last_mut().filter(|_| !threads.is_multiple_of(64)) {
            *last = (1 << (threads % 64)) - 1;
        }
        Self { words, threads }
    }
    /// Those of this set for which `f` holds.
    pub(super) fn filter(&self, mut f: impl FnMut(usize) -> bool) -> Self {
        let mut words = vec![0; self.words.len()];
        self.each(|thread| words[thread / 64] |= u64::from(f(thread)) << (thread % 64));
        Self { words, threads: self.threads }
    }
    pub(super) fn has(&self, thread: usize) -> bool {
        self.words[thread / 64] >> (thread % 64) & 1 == 1
    }
    pub(super) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
    pub(super) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
    /// Whether it has every thread of the block.
    pub(super) fn is_full(&self) -> bool {
        self.count() == self.threads
    }
    /// Whether it has all threads of each warp or none.
    pub(super) fn is_of_whole_warps(&self) -> bool {
        (0..self.threads).step_by(32).all(|first| {
            let last = (first + 32).min(self.threads);
            (first..last).all(|thread| self.has(thread) == self.has(first))
        })
    }
    /// Calls `f` with each thread, in order.
    pub(super) fn each(&self, mut f: impl FnMut(usize)) {
        for (i, &word) in self.words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                f(i * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }
    /// Whether `f` holds for every thread.
    pub(super) fn all(&self, mut f: impl FnMut(usize) -> bool) -> bool {
        let mut holds = true;
        self.each(|thread| holds = holds && f(thread));
        holds
    }
    /// The first thread.
    pub(super) fn first(&self) -> Option<usize> {
        let i = self.words.iter().position(|word| *word != 0)?;
        Some(i * 64 + self.words[i].trailing_zeros() as usize)
    }
}
