//! What a case may leave behind in its worker: looked for after each case, so
//! that it is charged to the case that left it, and cannot change a later one.
//!
//! | name | what | then |
//! |---|---|---|
//! | `leak.process` | a child, or a child's child, still alive | killed, the worker is replaced |
//! | `leak.fd` | an open file, pipe or socket | the worker is replaced |
//! | `leak.tmp` | files in `TMPDIR` | removed, the worker goes on |
//! | `leak.cwd .env .umask .signals` | state of the process that others read | the worker is replaced |
//!
//! Nothing is put back where a thread may have seen the change already: another
//! process starts clean. A leak does not change the case's verdict.
//!
//! Invariant: without leaks, a look costs a few system calls: no child is told by
//! one `waitid`, the rest by four small reads.

use crate::os;
use crate::verdict::Leak;
use rustix::process::{WaitId, WaitIdOptions};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many of a kind are named.
const SHOWN: usize = 8;
/// What is gone after this belonged to a thread that still works, not to the case.
const SETTLE: Duration = Duration::from_millis(20);
/// Signals 1 to 31. The C library takes some above for itself with the first thread.
const ORDINARY_SIGNALS: u64 = 0x7fff_ffff;
/// Killed children are waited for this long.
const REAP_LIMIT: Duration = Duration::from_secs(1);

/// The state of the worker to which it must be back after each case.
pub(super) struct Hygiene {
    tmp: PathBuf,
    cwd: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    fds: BTreeMap<i32, PathBuf>,
    status: Status,
    /// Whether threads compile beside the cases.
    compiling: bool,
    /// Folders whose files such threads open.
    shared: Vec<PathBuf>,
}

/// Lines of `/proc/thread-self/status` that a case must not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Status {
    umask: String,
    /// Blocked, ignored and caught signals, a bit each.
    signals: [u64; 3],
}

impl Hygiene {
    /// Takes the present state for the right one. Orphans of this process's
    /// children come back to it from now on. `code_cache` is the folder of compiled
    /// kernels, whose files are no case's.
    pub(super) fn start(compiling: bool, code_cache: Option<&Path>) -> Self {
        let shared = std::env::var_os("CUDA_CACHE_PATH").map(PathBuf::from).into_iter();
        let shared: Vec<PathBuf> = shared.chain(code_cache.map(resolved)).collect();
        let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
        Self {
            tmp: std::env::temp_dir(),
            cwd: std::env::current_dir().ok(),
            env: std::env::vars_os().collect(),
            fds: descriptors(&shared).unwrap_or_default(),
            status: Status::read(),
            compiling,
            shared,
        }
    }

    /// What has been left since the last look, and whether the worker must go.
    pub(super) fn look(&mut self) -> (Vec<Leak>, bool) {
        let mut leaks = Vec::new();
        leaks.extend(children());
        leaks.extend(self.descriptors());
        leaks.extend(self.state());
        let tainted = !leaks.is_empty();
        leaks.extend(temporaries(&self.tmp));
        (leaks, tainted)
    }

    fn descriptors(&mut self) -> Option<Leak> {
        let now = match descriptors(&self.shared) {
            Ok(now) => now,
            Err(error) => return Some(Leak::new("leak.fd", format!("descriptors cannot be counted: {error}"))),
        };
        let mut new: Vec<_> = now.iter().filter(|(fd, link)| self.fds.get(fd) != Some(link)).collect();
        if !new.is_empty() {
            std::thread::sleep(SETTLE);
            let later = descriptors(&self.shared).unwrap_or_default();
            new.retain(|(fd, link)| later.get(fd) == Some(link));
        }
        let names: Vec<String> = new.iter().map(|(fd, link)| format!("{fd} {}", link.display())).collect();
        self.fds = now;
        (!names.is_empty()).then(|| Leak::new("leak.fd", listed(&names)))
    }

    fn state(&mut self) -> Vec<Leak> {
        let mut leaks = Vec::new();
        let cwd = std::env::current_dir().ok();
        if cwd != self.cwd {
            let shown = cwd.as_deref().map_or("nowhere".into(), Path::to_string_lossy);
            leaks.push(Leak::new("leak.cwd", format!("the working directory is {shown}")));
            self.cwd = cwd;
        }
        let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        if env != self.env {
            let changed = |pair: &&(OsString, OsString)| !self.env.contains(pair);
            let gone = |pair: &&(OsString, OsString)| !env.iter().any(|(key, _)| *key == pair.0);
            let names = env.iter().filter(changed).chain(self.env.iter().filter(gone));
            let names: Vec<String> = names.map(|(key, _)| key.to_string_lossy().into_owned()).collect();
            leaks.push(Leak::new("leak.env", format!("changed variables: {}", listed(&names))));
            self.env = env;
        }
        let status = Status::read();
        if status.umask != self.status.umask {
            leaks.push(Leak::new("leak.umask", format!("{} instead of {}", status.umask, self.status.umask)));
        }
        if status.signals[..self.judged()] != self.status.signals[..self.judged()] {
            let [blocked, ignored, caught] = &status.signals;
            let [was_blocked, was_ignored, was_caught] = &self.status.signals;
            let detail = format!(
                "blocked {blocked:#x} (was {was_blocked:#x}), ignored {ignored:#x} ({was_ignored:#x}), \
                 caught {caught:#x} ({was_caught:#x})"
            );
            leaks.push(Leak::new("leak.signals", detail));
        }
        self.status = status;
        leaks
    }

    /// How many of the sets of signals tell of the case. NVRTC handles and ignores
    /// signals of its own while it compiles, for the whole process; where it does so
    /// on threads beside the case, only what the case's thread blocks is the case's.
    fn judged(&self) -> usize {
        if self.compiling { 1 } else { 3 }
    }
}

impl Status {
    fn read() -> Self {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim().to_string()
        };
        let mask = |name: &str| u64::from_str_radix(&field(name), 16).unwrap_or_default() & ORDINARY_SIGNALS;
        Self { umask: field("Umask"), signals: ["SigBlk", "SigIgn", "SigCgt"].map(mask) }
    }
}

/// A folder as links to its open files name it. It is made where it is not there yet.
fn resolved(dir: &Path) -> PathBuf {
    let _ = std::fs::create_dir_all(dir);
    dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf())
}

/// Open files, pipes and sockets by number. Libraries of the device open its own
/// nodes and event objects when they first need them, and the driver its cache of
/// compiled code while a thread beside the case compiles, as the engine does with
/// its own: those are not counted.
fn descriptors(shared: &[PathBuf]) -> std::io::Result<BTreeMap<i32, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir("/proc/self/fd")?.flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // The folder's own descriptor is closed by the time its link is read.
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        let text = link.to_string_lossy();
        let counted = !text.starts_with("/dev/") && !text.starts_with("anon_inode:") && !text.starts_with("/proc/");
        if counted && !shared.iter().any(|folder| link.starts_with(folder)) {
            found.insert(fd, link);
        }
    }
    Ok(found)
}

/// Kills and names all children that are left.
fn children() -> Option<Leak> {
    let deadline = Instant::now() + REAP_LIMIT;
    let mut names = Vec::new();
    // Killing a child may bring its own children here: until there are none.
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::All, options) {
            // No children at all: the usual case.
            Err(_) => break,
            Ok(_) if Instant::now() >= deadline => {
                names.push("some that do not die".into());
                break;
            }
            Ok(_) => names.extend(os::orphans::reap(|_| true)),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    names.sort();
    names.dedup();
    (!names.is_empty()).then(|| Leak::new("leak.process", listed(&names)))
}

/// Removes and names what is in the folder.
fn temporaries(tmp: &Path) -> Option<Leak> {
    let mut names = Vec::new();
    let left: Vec<_> = std::fs::read_dir(tmp).ok()?.flatten().collect();
    if !left.is_empty() {
        std::thread::sleep(SETTLE);
    }
    for entry in left.into_iter().filter(|entry| entry.path().symlink_metadata().is_ok()) {
        let path = entry.path();
        names.push(entry.file_name().to_string_lossy().into_owned());
        // A link to a folder is removed, not followed.
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
    }
    names.sort();
    (!names.is_empty()).then(|| Leak::new("leak.tmp", listed(&names)))
}

fn listed(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_process_leaves_nothing_and_files_are_removed() {
        let tmp = std::env::temp_dir().join(format!("hygiene-{}", std::process::id()));
        std::fs::create_dir_all(tmp.join("deep/er")).expect("a folder");
        std::fs::write(tmp.join("file"), "text").expect("a file");
        let leak = temporaries(&tmp).expect("left files");
        assert_eq!((leak.name.as_str(), leak.detail.as_str()), ("leak.tmp", "deep, file"));
        assert!(temporaries(&tmp).is_none());
        std::fs::remove_dir(&tmp).expect("is empty");
    }

    #[test]
    fn open_files_of_the_code_cache_are_not_the_cases() {
        let dir = std::env::temp_dir().join(format!("hygiene-code-{}", std::process::id()));
        let (cache, link) = (dir.join("code"), dir.join("link"));
        std::fs::create_dir_all(&cache).expect("a folder");
        std::os::unix::fs::symlink(&cache, &link).expect("a link");
        let (ours, other) = (cache.join("1.lock"), dir.join("other"));
        let open = [&ours, &other].map(|path| std::fs::File::create(path).expect("a file"));
        std::fs::remove_file(&ours).expect("removes");
        let counted = |shared: &[PathBuf]| {
            let links = descriptors(shared).expect("counts").into_values();
            links.filter(|link| link.starts_with(dir.canonicalize().expect("there"))).count()
        };
        assert_eq!((counted(&[]), counted(&[resolved(&link)])), (2, 1));
        drop(open);
        std::fs::remove_dir_all(&dir).expect("removes");
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        assert_eq!(listed(&names), "0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
    }

    #[test]
    fn handlers_of_a_compiler_beside_are_not_the_cases() {
        for (compiling, leaks) in [(true, 0), (false, 1)] {
            let mut hygiene = Hygiene::start(compiling, None);
            hygiene.status.signals[2] ^= 1 << 14;
            let told = hygiene.state();
            assert_eq!(told.iter().filter(|leak| leak.name == "leak.signals").count(), leaks, "{told:?}");
        }
    }

    #[test]
    fn status_has_all_fields() {
        let status = Status::read();
        // The test binary ignores SIGPIPE, as every Rust program does.
        assert!(!status.umask.is_empty() && status.signals[1] & 1 << 12 != 0, "{status:?}");
    }
}
