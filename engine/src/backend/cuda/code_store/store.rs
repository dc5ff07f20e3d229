//! Looking entries up, and writing them.

use super::super::nvrtc::Cubin;
use super::lock::{Asked, KeyLock};
use super::{entry, sweep};
use crate::util::Hash128;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long another process may compile before this one does it itself. A kernel
/// takes about a tenth of a second, the largest a few.
const PATIENCE_MS: u64 = 10_000;
/// An entry that is larger is nobody's.
const MAX_ENTRY: u64 = 256 << 20;
/// The folder's size is looked at when a store has written this share of the limit.
const SWEEP_SHARE: u64 = 16;
/// Names that are tried for a file that is being written.
const MAX_NAMES: u64 = 1000;

/// A folder of compiled kernels. May be used from any thread and any number of
/// processes.
#[derive(Debug)]
pub struct CodeStore {
    dir: PathBuf,
    max_bytes: u64,
    pub(super) patience_ms: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    waits: AtomicU64,
    damaged: AtomicU64,
    unstored: AtomicU64,
    evicted: AtomicU64,
    changed: AtomicU64,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    /// Bytes written since the last look at the folder's size; none before the first.
    written: Option<u64>,
    /// The next private file's number.
    next: u64,
    error: Option<String>,
}

/// What a store was asked and did, in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeCounts {
    /// Kernels that were there.
    pub hits: u64,
    /// Kernels that were not, and were compiled.
    pub misses: u64,
    /// Times that another process was waited for; such a kernel is also a hit, or a
    /// miss where the other one did not store it.
    pub waits: u64,
    /// Entries that were not as they had been stored; their kernels are misses.
    pub damaged: u64,
    /// Kernels that could not be stored.
    pub unstored: u64,
    /// Entries removed because the folder was too large.
    pub evicted: u64,
    /// Entries that a new compilation did not come to, and that it replaced.
    pub changed: u64,
}

/// What a look found.
#[derive(Debug)]
pub enum Look<'a> {
    /// The code is there.
    Found(Cubin),
    /// It is for the caller to compile it.
    Absent(Claim<'a>),
}

/// The right to compile a key. While it lives, other processes wait; dropped
/// without [`Claim::store`], the next of them compiles.
#[derive(Debug)]
pub struct Claim<'a> {
    store: &'a CodeStore,
    key: Hash128,
    // Held for its lock; none where files cannot be locked, or another process holds it too long.
    _lock: Option<KeyLock>,
}

enum StoredEntry {
    Whole(Cubin),
    Absent,
    Damaged,
}

impl CodeStore {
    /// A store in a folder, which is made when something is stored. Its entries
    /// have that many bytes at most, give or take a sixteenth for each process;
    /// those that were not used for longest go.
    pub fn new(dir: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self {
            dir: dir.into(),
            max_bytes,
            patience_ms: PATIENCE_MS,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            unstored: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it did so far.
    pub fn counts(&self) -> CodeCounts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        CodeCounts {
            hits: of(&self.hits),
            misses: of(&self.misses),
            waits: of(&self.waits),
            damaged: of(&self.damaged),
            unstored: of(&self.unstored),
            evicted: of(&self.evicted),
            changed: of(&self.changed),
        }
    }

    /// Why the first of the kernels that were not stored was not.
    pub fn error(&self) -> Option<String> {
        self.lock().error.clone()
    }

    /// The code of a key, or the right to compile it. Waits while another process
    /// compiles it.
    pub fn look(&self, key: Hash128) -> Look<'_> {
        let first = self.read(key);
        if let StoredEntry::Whole(cubin) = first {
            return self.found(cubin);
        }
        let mut damaged = matches!(first, StoredEntry::Damaged);
        let asked = KeyLock::acquire(&self.file(key, "lock"), self.patience_ms);
        let lock = match asked {
            Asked::Held(lock, waited) => {
                self.waits.fetch_add(waited.into(), Ordering::Relaxed);
                // Between the first look and the lock another process may have been at it.
                match self.read(key) {
                    StoredEntry::Whole(cubin) => return self.found(cubin),
                    StoredEntry::Damaged => damaged = true,
                    StoredEntry::Absent => {}
                }
                Some(lock)
            }
            Asked::Busy => {
                self.waits.fetch_add(1, Ordering::Relaxed);
                None
            }
            // Whether that matters shows when the entry is written.
            Asked::Denied => None,
        };
        self.damaged.fetch_add(damaged.into(), Ordering::Relaxed);
        self.misses.fetch_add(1, Ordering::Relaxed);
        Look::Absent(Claim { store: self, key, _lock: lock })
    }

    /// Stores what was compiled without a look at what was there. The compiler gives
    /// one text one code; an entry that says otherwise is counted and replaced.
    pub fn renew(&self, key: Hash128, cubin: &Cubin) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        match self.read(key) {
            StoredEntry::Whole(there) if there == *cubin => return,
            StoredEntry::Whole(_) => &self.changed,
            StoredEntry::Damaged => &self.damaged,
            StoredEntry::Absent => return self.put(key, cubin),
        }
        .fetch_add(1, Ordering::Relaxed);
        self.put(key, cubin);
    }

    fn put(&self, key: Hash128, cubin: &Cubin) {
        let bytes = entry::encode(key, cubin);
        match self.write(key, &bytes) {
            Ok(()) => self.account(bytes.len() as u64),
            Err(error) => self.not_stored(&error),
        }
    }

    /// A kernel was compiled that the others do not get.
    pub(in crate::backend::cuda) fn not_stored(&self, why: &dyn std::fmt::Display) {
        self.unstored.fetch_add(1, Ordering::Relaxed);
        self.lock().error.get_or_insert_with(|| format!("{}: {why}", self.dir.display()));
    }

    fn found(&self, cubin: Cubin) -> Look<'_> {
        self.hits.fetch_add(1, Ordering::Relaxed);
        Look::Found(cubin)
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn file(&self, key: Hash128, ending: &str) -> PathBuf {
        self.dir.join(format!("{key}.{ending}"))
    }

    fn read(&self, key: Hash128) -> StoredEntry {
        let path = self.file(key, "code");
        match std::fs::metadata(&path) {
            Err(_) => return StoredEntry::Absent,
            // Opening a pipe would wait for a writer.
            Ok(meta) if !meta.is_file() || meta.len() > MAX_ENTRY => return StoredEntry::Damaged,
            Ok(_) => {}
        }
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MAX_ENTRY + 1).read_to_end(&mut bytes));
        match read {
            // Removed in this moment, or not ours to read.
            Err(_) => StoredEntry::Absent,
            Ok(_) => entry::decode(key, &bytes).map_or(StoredEntry::Damaged, StoredEntry::Whole),
        }
    }

    /// Writes an entry under a private name and gives it its own when it is whole.
    fn write(&self, key: Hash128, bytes: &[u8]) -> io::Result<()> {
        let (mut file, path) = self.private(key)?;
        let written = file.write_all(bytes).and_then(|()| std::fs::rename(&path, self.file(key, "code")));
        if written.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        written
    }

    /// A new file for one writer alone. Processes of different namespaces may have
    /// one number, hence several tries.
    fn private(&self, key: Hash128) -> io::Result<(File, PathBuf)> {
        let mut made_folder = false;
        for _ in 0..MAX_NAMES {
            let number = {
                let mut state = self.lock();
                state.next += 1;
                state.next
            };
            let path = self.file(key, &format!("{}-{number}.tmp", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && !made_folder => {
                    made_folder = true;
                    std::fs::create_dir_all(&self.dir)?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("no name is free"))
    }

    /// Looks at the folder's size before much has been added to it.
    fn account(&self, bytes: u64) {
        let due = {
            let mut state = self.lock();
            let written = state.written.map_or(u64::MAX, |written| written.saturating_add(bytes));
            let due = written > self.max_bytes / SWEEP_SHARE;
            state.written = Some(if due { 0 } else { written });
            due
        };
        if due {
            let removed = sweep::sweep(&self.dir, self.max_bytes);
            self.evicted.fetch_add(removed, Ordering::Relaxed);
        }
    }
}

impl Claim<'_> {
    /// Stores what was compiled, and lets the others go on.
    pub fn store(self, cubin: &Cubin) {
        self.store.put(self.key, cubin);
    }
}
