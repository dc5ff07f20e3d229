//! A run tells other harnesses of this machine which GPUs it uses: a lock file
//! for each, shared by all who may share, alone under `--gpu-policy exclusive`.
//! The kernel lets go of it when this process ends, however it ends.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a lock is asked for before somebody else is said to hold it.
const LOCK_TRIES: u32 = 50;

/// A GPU that is held.
#[derive(Debug)]
pub(crate) struct GpuLock(#[expect(dead_code, reason = "held for its lock")] File);

/// Where the locks are: one folder for all users of the machine.
pub(crate) fn folder() -> PathBuf {
    let chosen = std::env::var_os("HARNESS_STATE_DIR").filter(|value| !value.is_empty());
    chosen.map_or_else(std::env::temp_dir, PathBuf::from).join("harness-gpus")
}

/// Holds a GPU. An error says that somebody else holds it, or that it cannot be
/// held alone. `Ok(None)` where it is to be shared and no lock can be had at all,
/// which forbids nothing.
pub(crate) fn hold(folder: &Path, uuid: &str, alone: bool) -> Result<Option<GpuLock>, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name: String = uuid.chars().filter(|c| plain(*c)).take(100).collect();
    make_folder(folder);
    let path = folder.join(name);
    // Another user's file can be read, and that is enough for a lock.
    let opened = File::open(&path).or_else(|_| File::options().create(true).truncate(false).write(true).open(&path));
    let file = match opened {
        Ok(file) => file,
        Err(error) if alone => {
            return Err(format!(
                "it cannot be held alone: {}: {error}; HARNESS_STATE_DIR may name another folder, the same for all",
                path.display()
            ));
        }
        Err(_) => return Ok(None),
    };
    // Only its owner can, and only once is it needed: others need not write.
    let _ = file.set_permissions(Permissions::from_mode(0o666));
    let kind = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    match lock(&file, kind) {
        Ok(()) => Ok(Some(GpuLock(file))),
        Err(rustix::io::Errno::WOULDBLOCK) if alone => Err("another harness uses it".into()),
        Err(rustix::io::Errno::WOULDBLOCK) => Err("another harness holds it for itself".into()),
        Err(error) if alone => Err(format!("it cannot be held alone: {}: {error}", path.display())),
        Err(_) => Ok(None),
    }
}

/// Locks a file. A process that is being started has the files of who starts it until
/// its program begins, and so a lock that is let go of meanwhile: that is waited for.
fn lock(file: &File, kind: FlockOperation) -> rustix::io::Result<()> {
    for _ in 1..LOCK_TRIES {
        match flock(file, kind) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(Duration::from_millis(1)),
            decided => return decided,
        }
    }
    flock(file, kind)
}

/// Makes the folder, in which every user may make files and nobody removes others'.
fn make_folder(folder: &Path) {
    let made = folder.parent().is_none_or(|parent| std::fs::create_dir_all(parent).is_ok());
    if made && std::fs::create_dir(folder).is_ok() {
        let _ = std::fs::set_permissions(folder, Permissions::from_mode(0o1777));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn who_holds_alone_shuts_out_all_others() {
        let dir = Scratch::new("lock");
        let folder = dir.join("folder");
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
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o7777;
        assert_eq!((mode(&folder), mode(&folder.join("GPU-ab"))), (0o1777, 0o666), "for all users");
        assert!(hold(Path::new("/proc/nowhere"), "GPU-a", false).expect("no lock").is_none());
        let refused = hold(Path::new("/proc/nowhere"), "GPU-a", true).expect_err("no promise without a lock");
        assert!(refused.contains("/proc/nowhere/GPU-a") && refused.contains("HARNESS_STATE_DIR"), "{refused}");
    }
}
