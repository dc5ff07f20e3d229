//! Brings a file to the disk in the background: at once when asked, else each
//! second while it is written, so that nobody waits for a slow disk.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Between two syncs of a file that is being written.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct SyncState {
    dirty: AtomicBool,
    closed: AtomicBool,
    error: Mutex<Option<io::Error>>,
}

/// Syncs one file until it is dropped. Without a thread it does nothing: the
/// last sync of the log remains.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<SyncState>,
    thread: Option<Thread>,
}

impl Syncer {
    pub(super) fn start(file: &File) -> Self {
        let shared = Arc::new(SyncState::default());
        let theirs = shared.clone();
        let started = file.try_clone().and_then(|file| {
            std::thread::Builder::new().name("record-sync".into()).spawn(move || serve(&file, &theirs))
        });
        Self { shared, thread: started.ok().map(|handle| handle.thread().clone()) }
    }

    /// Notes a write.
    pub(super) fn wrote(&self) {
        self.shared.dirty.store(true, Ordering::Release);
    }

    /// Asks for a sync that does not wait for the next second.
    pub(super) fn now(&self) {
        self.thread.iter().for_each(Thread::unpark);
    }

    /// The first error since the last question.
    pub(super) fn error(&self) -> Option<io::Error> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.now();
    }
}

fn serve(file: &File, shared: &SyncState) {
    while !shared.closed.load(Ordering::Acquire) {
        std::thread::park_timeout(PERIOD);
        if shared.dirty.swap(false, Ordering::AcqRel)
            && let Err(failed) = file.sync_data()
        {
            shared.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
        }
    }
}
