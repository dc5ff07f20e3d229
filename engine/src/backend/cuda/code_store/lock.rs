//! The lock of a key: a file that the process holds which compiles.
//!
//! The kernel gives it free when its holder dies. The holder removes the file
//! while it still has the lock; so who gets the lock of a file that is gone
//! begins again, and no two processes hold a key at once.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Milliseconds between two looks at a lock that is held, at most.
const MAX_PAUSE: u64 = 16;

/// A held lock; given free when dropped.
#[derive(Debug)]
pub(super) struct KeyLock {
    file: File,
    /// Removed when the lock is given free; none if the file stays.
    path: Option<PathBuf>,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(super) enum Asked {
    /// It is held; whether somebody else had it first.
    Held(KeyLock, bool),
    /// Its holder did not give it free in time.
    Busy,
    /// There is no way to lock here.
    Denied,
}

impl KeyLock {
    /// Asks for the lock of a file, which is made. Waits for so many milliseconds
    /// at most; a clock is not read, so it takes a little longer.
    pub(super) fn acquire(path: &Path, patience_ms: u64) -> Asked {
        let (mut left, mut pause, mut waited, mut made_folder) = (patience_ms, 1, false, false);
        loop {
            let file = match File::options().create(true).truncate(false).write(true).open(path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !made_folder => {
                    made_folder = true;
                    if path.parent().is_none_or(|dir| std::fs::create_dir_all(dir).is_err()) {
                        return Asked::Denied;
                    }
                    continue;
                }
                Err(_) => return Asked::Denied,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => {
                    return Asked::Held(Self { file, path: Some(path.to_path_buf()) }, waited);
                }
                // Its last holder has removed it meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(_)) => return Asked::Denied,
            }
            waited = true;
            if left == 0 {
                return Asked::Busy;
            }
            std::thread::sleep(Duration::from_millis(pause));
            left = left.saturating_sub(pause);
            pause = (2 * pause).min(MAX_PAUSE);
        }
    }

    /// Something is written, so that the file's time is the file system's present.
    pub(super) fn touch(&self) -> io::Result<std::time::SystemTime> {
        io::Write::write_all(&mut &self.file, b"\n")?;
        self.file.metadata()?.modified()
    }

    /// Gives it free and leaves the file.
    pub(super) fn leave(mut self) {
        self.path = None;
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
        // Not left to closing: a child that was forked meanwhile has the file open too.
        let _ = self.file.unlock();
    }
}

/// Whether the path still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    let (open, named) = (file.metadata().map(place), std::fs::metadata(path).map(place));
    open.ok().is_some_and(|open| named.ok() == Some(open))
}
