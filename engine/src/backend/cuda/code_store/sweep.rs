//! Keeps the folder below its size.
//!
//! What was used last stays. When that was, the file system says: it notes when a
//! file was read, most to the day; where it does not, the oldest entries go. The
//! present is a time of the file system too: that of a file that is written now.

use super::lock::{Asked, KeyLock};
use std::fs::Metadata;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// What is left of the limit after a sweep, so that the next one is not due at once.
const KEPT: (u64, u64) = (7, 8);
/// A private file or a lock of that age is one that a killed process left.
const STALE: Duration = Duration::from_secs(3600);

/// Removes what is stale and, beyond `max_bytes`, entries. Returns how many
/// entries went. Does nothing where another process is at it.
pub(super) fn sweep(dir: &Path, max_bytes: u64) -> u64 {
    let Asked::Held(lock, _) = KeyLock::acquire(&dir.join("sweep.lock"), 0) else { return 0 };
    let now = lock.touch().ok();
    let (mut entries, mut total) = (Vec::new(), 0u64);
    for item in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, Ok(meta)) = (item.path(), item.metadata()) else { continue };
        match kind(&path) {
            Some("code") if meta.is_file() => {
                total = total.saturating_add(meta.len());
                entries.push((used(&meta), meta.len(), path));
            }
            Some("tmp" | "lock") if is_stale(&meta, now) => drop(std::fs::remove_file(&path)),
            _ => {}
        }
    }
    let mut removed = 0;
    if total > max_bytes {
        let wanted = max_bytes / KEPT.1 * KEPT.0;
        // Equal times, equal order everywhere: by name.
        entries.sort();
        for (_, bytes, path) in entries {
            if total <= wanted {
                break;
            }
            if std::fs::remove_file(&path).is_ok() {
                total -= bytes;
                removed += 1;
            }
        }
    }
    // Left in its place: its time is what the next one compares with.
    lock.leave();
    removed
}

/// The ending of a file whose name the store gave: 32 hexadecimal digits stand before it.
fn kind(path: &Path) -> Option<&str> {
    let (key, rest) = path.file_name()?.to_str()?.split_once('.')?;
    let ours = key.len() == 32 && key.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let ending = rest.rsplit('.').next()?;
    (ours && (rest == ending || ending == "tmp")).then_some(ending)
}

fn used(meta: &Metadata) -> SystemTime {
    let times = [meta.modified(), meta.accessed()];
    times.into_iter().flatten().max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn is_stale(meta: &Metadata, now: Option<SystemTime>) -> bool {
    let age = now.zip(meta.modified().ok()).and_then(|(now, then)| now.duration_since(then).ok());
    age.is_some_and(|age| age > STALE)
}

/// What [`sweep`] would count: the bytes of all entries.
#[cfg(test)]
pub(super) fn size(dir: &Path) -> u64 {
    let items = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let entries: Vec<_> = items.map(|item| item.path()).filter(|path| kind(path) == Some("code")).collect();
    entries.iter().filter_map(|path| path.metadata().ok()).map(|meta| meta.len()).sum()
}
