//! A run tells other harnesses of this machine which GPUs it uses: a lock file
//! for each, shared by all who may share, alone under `--gpu-policy exclusive`.
//! The kernel lets go of it when this process ends, however it ends.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A GPU that is held.
#[derive(Debug)]
pub(crate) struct GpuLock(#[expect(dead_code, reason = "held for its lock")] File);

/// Where the locks are: one folder for all users of the machine.
pub(crate) fn folder() -> PathBuf {
    let chosen = std::env::var_os("HARNESS_STATE_DIR").filter(|value| !value.is_empty());
    chosen.map_or_else(std::env::temp_dir, PathBuf::from).join("harness-gpus")
}

/// Holds a GPU. `Ok(None)` where no lock can be had at all, which forbids
/// nothing; an error says that somebody else holds it.
pub(crate) fn hold(folder: &Path, uuid: &str, alone: bool) -> Result<Option<GpuLock>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name: String = uuid.chars().filter(|c| plain(*c)).take(100).collect();
    let _ = std::fs::create_dir_all(folder);
    let path = folder.join(name);
    // Another user's file can be read, and that is enough for a lock.
    let opened = File::open(&path).or_else(|_| File::options().create(true).truncate(false).write(true).open(&path));
    let Ok(file) = opened else { return Ok(None) };
    let kind = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    match flock(&file, kind) {
        Ok(()) => Ok(Some(GpuLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) if alone => Err("another harness uses it".into()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err("another harness holds it for itself".into()),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_alone_shuts_out_all_others() {
        let folder = std::env::temp_dir().join(format!("harness-lock-test-{}", std::process::id()));
        let held = |alone| hold(&folder, "GPU-a/../b", alone);
        let first = held(false).expect("free").expect("a lock");
        let second = held(false).expect("shared").expect("a lock");
        assert_eq!(held(true).expect_err("in use"), "another harness uses it");
        drop((first, second));
        let alone = held(true).expect("free").expect("a lock");
        assert_eq!(held(false).expect_err("held"), "another harness holds it for itself");
        assert!(hold(&folder, "GPU-other", true).expect("free").is_some());
        drop(alone);
        assert!(held(false).expect("free again").is_some());
        let _ = std::fs::remove_dir_all(&folder);
        assert!(hold(Path::new("/proc/nowhere"), "GPU-a", true).expect("no lock").is_none());
    }
}
