//! What a case may leave behind in its worker: looked for after each case, so
//! that it is charged to the case that left it, and cannot change a later one.
//!
//! | name | what | then |
//! |---|---|---|
//! | `leak.process` | a child, or a child's child, still alive | killed, the worker is replaced |
//! | `leak.thread` | a thread that works on | the worker is replaced |
//! | `leak.fd` | an open file, pipe or socket | the worker is replaced |
//! | `leak.tmp` | files in `TMPDIR` | removed, the worker goes on |
//! | `leak.cwd .env .umask .signals` | state of the process that others read | the worker is replaced |
//!
//! Nothing is put back where a thread may have seen the change already: another
//! process starts clean. A leak does not change the case's verdict.
//!
//! Invariant: without leaks, a look is some system calls that read nothing of
//! `/proc`, about 15 us together: no child is told by one `waitid`, handlers are
//! asked for one by one, the umask is set to what it is, and descriptors are only
//! listed when they cannot be those of before, see [`Descriptors`] and [`Threads`].

use crate::os;
use crate::os::state::{Signals, identity};
use crate::outcome::Leak;
use rustix::fs::{Mode, OFlags};
use rustix::process::{WaitId, WaitIdOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many of a kind are named.
const SHOWN: usize = 8;
/// What is gone after this belonged to a thread that still works, not to the case.
const SETTLE: Duration = Duration::from_millis(20);
/// A thread may take so long to end after what it did is done: there may be more
/// threads than processors.
const THREAD_END: Duration = Duration::from_millis(300);
/// Killed children are waited for this long.
const REAP_LIMIT: Duration = Duration::from_secs(1);

/// The state of the worker to which it must be back after each case.
pub(super) struct Hygiene {
    tmp: PathBuf,
    cwd: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    open: Descriptors,
    /// Nothing where libraries of the device, or threads that compile beside the
    /// cases, start threads when they like.
    threads: Option<Threads>,
    umask: Mode,
    signals: Signals,
    /// Whether threads compile beside the cases.
    compiling: bool,
}

impl Hygiene {
    /// Takes the present state for the right one. Orphans of this process's
    /// children come back to it from now on. `code_cache` is the folder of compiled
    /// kernels, whose files are no case's.
    pub(super) fn start(compiling: bool, on_gpu: bool, code_cache: Option<&Path>) -> Self {
        let shared = std::env::var_os("CUDA_CACHE_PATH").map(PathBuf::from).into_iter();
        let shared = shared.chain(code_cache.map(resolved));
        let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
        Self {
            tmp: std::env::temp_dir(),
            cwd: std::env::current_dir().ok(),
            env: std::env::vars_os().collect(),
            open: Descriptors::start(shared.collect()),
            threads: if compiling || on_gpu { None } else { Threads::start() },
            umask: umask(),
            signals: Signals::now(),
            compiling,
        }
    }

    /// What has been left since the last look, and whether the worker must go.
    pub(super) fn look(&mut self) -> (Vec<Leak>, bool) {
        let mut leaks = Vec::new();
        leaks.extend(children());
        leaks.extend(self.threads.as_mut().and_then(Threads::look));
        leaks.extend(self.open.look());
        leaks.extend(self.state());
        let tainted = !leaks.is_empty();
        leaks.extend(temporaries(&self.tmp));
        (leaks, tainted)
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
        // To set it to what it should be changes nothing, and tells what it was.
        let umask = rustix::process::umask(self.umask);
        if umask != self.umask {
            rustix::process::umask(umask);
            leaks.push(Leak::new("leak.umask", format!("{} instead of {}", octal(umask), octal(self.umask))));
            self.umask = umask;
        }
        let (now, was) = (Signals::now(), self.signals);
        if self.judged(now) != self.judged(was) {
            let detail = format!(
                "blocked {:#x} (was {:#x}), ignored {:#x} ({:#x}), caught {:#x} ({:#x})",
                now.blocked, was.blocked, now.ignored, was.ignored, now.caught, was.caught
            );
            leaks.push(Leak::new("leak.signals", detail));
        }
        self.signals = now;
        leaks
    }

    /// What of the signals tells of the case. NVRTC handles and ignores signals of
    /// its own while it compiles, for the whole process; where it does so on threads
    /// beside the case, only what the case's thread blocks is the case's.
    fn judged(&self, signals: Signals) -> Signals {
        match self.compiling {
            true => Signals { blocked: signals.blocked, ..Signals::default() },
            false => signals,
        }
    }
}

/// A folder as links to its open files name it. It is made where it is not there yet.
fn resolved(dir: &Path) -> PathBuf {
    let _ = std::fs::create_dir_all(dir);
    dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf())
}

/// The umask, which can only be asked for by setting it. Files that another thread
/// makes in between are the owner's alone.
fn umask() -> Mode {
    let umask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(umask);
    umask
}

fn octal(mode: Mode) -> String {
    format!("{:04o}", mode.as_raw_mode())
}

/// What is open in this process.
///
/// Invariant: as long as there are as many descriptors as before, and under each
/// number of before the same file, pipe or socket is open, there is no other one.
/// The kernel tells their number as the size of `/proc/self/fd` (since Linux 6.2;
/// before, it says 0, and they are listed each time).
struct Descriptors {
    /// `/proc/self/fd`, to ask for its size.
    folder: Option<OwnedFd>,
    /// Everything that was open when they were last listed.
    all: Vec<(RawFd, Option<(u64, u64)>)>,
    /// What is counted of that, with its link.
    counted: BTreeMap<RawFd, PathBuf>,
    /// Folders whose files are not counted: threads beside the case open them.
    shared: Vec<PathBuf>,
}

impl Descriptors {
    fn start(shared: Vec<PathBuf>) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok();
        let mut open = Self { folder, all: Vec::new(), counted: BTreeMap::new(), shared };
        open.counted = open.list().unwrap_or_default();
        open
    }

    /// What is new since the last look.
    fn look(&mut self) -> Option<Leak> {
        if self.unchanged() {
            return None;
        }
        let now = match self.list() {
            Ok(now) => now,
            Err(error) => return Some(Leak::new("leak.fd", format!("descriptors cannot be counted: {error}"))),
        };
        let mut new: Vec<_> = now.iter().filter(|(fd, link)| self.counted.get(fd) != Some(link)).collect();
        if !new.is_empty() {
            std::thread::sleep(SETTLE);
            let later = self.list().unwrap_or_default();
            new.retain(|(fd, link)| later.get(fd) == Some(link));
        }
        let names: Vec<String> = new.iter().map(|(fd, link)| format!("{fd} {}", link.display())).collect();
        self.counted = now;
        (!names.is_empty()).then(|| Leak::new("leak.fd", listed(&names)))
    }

    fn unchanged(&self) -> bool {
        let size = self.folder.as_ref().and_then(|folder| Some(rustix::fs::fstat(folder).ok()?.st_size));
        size == Some(self.all.len() as i64) && self.all.iter().all(|(fd, known)| identity(*fd) == *known)
    }

    /// Lists all, and gives those that are counted. Libraries of the device open
    /// its own nodes and event objects when they first need them, and the driver its
    /// cache of compiled code while a thread beside the case compiles: those are not.
    fn list(&mut self) -> std::io::Result<BTreeMap<RawFd, PathBuf>> {
        let numbers = std::fs::read_dir("/proc/self/fd")?.flatten();
        // The folder's own descriptor is closed by the time it is asked about.
        let numbers: Vec<RawFd> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        self.all = numbers.into_iter().map(|fd| (fd, identity(fd))).filter(|(_, found)| found.is_some()).collect();
        let link = |fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let counted = self.all.iter().filter_map(|(fd, _)| Some((*fd, link(*fd)?))).filter(|(_, link)| {
            let text = link.to_string_lossy();
            let own = ["/dev/", "anon_inode:", "/proc/"].iter().any(|start| text.starts_with(start));
            !own && !self.shared.iter().any(|folder| link.starts_with(folder))
        });
        Ok(counted.collect())
    }
}

/// The threads of this process.
///
/// Invariant: as long as there are as many as before, they are not listed. The
/// kernel tells their number by the links of `/proc/self/task`.
struct Threads {
    folder: OwnedFd,
    links: u64,
    known: BTreeSet<i32>,
}

impl Threads {
    fn start() -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open("/proc/self/task", flags, Mode::empty()).ok()?;
        let mut threads = Self { folder, links: 0, known: BTreeSet::new() };
        threads.learn();
        Some(threads)
    }

    fn links(&self) -> u64 {
        rustix::fs::fstat(&self.folder).map_or(self.links, |stat| stat.st_nlink)
    }

    fn list() -> BTreeSet<i32> {
        let entries = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn learn(&mut self) {
        (self.links, self.known) = (self.links(), Self::list());
    }

    /// Threads that are new since the last look and do not end.
    fn look(&mut self) -> Option<Leak> {
        let links = self.links();
        if links == self.links {
            return None;
        }
        let deadline = Instant::now() + THREAD_END;
        let pool = if links > self.links { pool(deadline) } else { BTreeSet::new() };
        let mut left: Vec<i32>;
        loop {
            left = Self::list().into_iter().filter(|id| !self.known.contains(id) && !pool.contains(id)).collect();
            if left.is_empty() || Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.learn();
        let name = |id: &i32| {
            let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
            format!("{} ({id})", name.trim())
        };
        let names: Vec<String> = left.iter().map(name).collect();
        (!names.is_empty()).then(|| Leak::new("leak.thread", listed(&names)))
    }
}

/// The threads of the pool that parallel loops share: it is made by the first case
/// that needs it, and stays. One that does not answer is at work for somebody.
fn pool(deadline: Instant) -> BTreeSet<i32> {
    let (sender, ids) = std::sync::mpsc::channel();
    rayon::spawn_broadcast(move |_| {
        let _ = sender.send(rustix::thread::gettid().as_raw_nonzero().get());
    });
    let mut pool = BTreeSet::new();
    while let Ok(id) = ids.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        pool.insert(id);
    }
    pool
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
            Ok(_) if !os::orphans::proc_is_ours() => {
                names.push("one that cannot be named: /proc is of other processes".into());
                break;
            }
            Ok(_) => names.extend(os::orphans::reap(&os::orphans::children(), |_| true)),
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
    use crate::scratch::Scratch;

    #[test]
    fn a_quiet_process_leaves_nothing_and_files_are_removed() {
        let tmp = Scratch::new("hygiene");
        std::fs::create_dir_all(tmp.join("deep/er")).expect("a folder");
        std::fs::write(tmp.join("file"), "text").expect("a file");
        let leak = temporaries(&tmp).expect("left files");
        assert_eq!((leak.name.as_str(), leak.detail.as_str()), ("leak.tmp", "deep, file"));
        assert!(temporaries(&tmp).is_none());
        std::fs::remove_dir(&*tmp).expect("is empty");
    }

    #[test]
    fn open_files_of_the_code_cache_are_not_the_cases() {
        let dir = Scratch::new("hygiene-code");
        let (cache, link) = (dir.join("code"), dir.join("link"));
        std::fs::create_dir_all(&cache).expect("a folder");
        std::os::unix::fs::symlink(&cache, &link).expect("a link");
        let told = |shared: Vec<PathBuf>| {
            let mut open = Descriptors::start(shared);
            let file = std::fs::File::create(cache.join("1.lock")).expect("a file");
            std::fs::remove_file(cache.join("1.lock")).expect("removes");
            let told = open.look().is_some_and(|leak| leak.detail.contains("hygiene-code"));
            drop(file);
            told
        };
        assert_eq!((told(Vec::new()), told(vec![resolved(&link)])), (true, false));
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..11).map(|n| n.to_string()).collect();
        assert_eq!(listed(&names), "0, 1, 2, 3, 4, 5, 6, 7 and 3 more");
    }

    #[test]
    fn handlers_of_a_compiler_beside_are_not_the_cases() {
        for (compiling, leaks) in [(true, 0), (false, 1)] {
            let mut hygiene = Hygiene::start(compiling, false, None);
            hygiene.signals.caught ^= 1 << 14;
            let told = hygiene.state();
            assert_eq!(told.iter().filter(|leak| leak.name == "leak.signals").count(), leaks, "{told:?}");
        }
    }

    /// Looks at what `change` leaves open.
    #[track_caller]
    fn check_open<T>(change: impl FnOnce() -> T, counted: bool) {
        let mut open = Descriptors::start(Vec::new());
        let left = change();
        // Other tests open files too, but none of this name.
        let told = open.look().map(|leak| leak.detail).unwrap_or_default();
        assert_eq!(told.contains("hygiene-open"), counted, "{told}");
        drop(left);
    }

    #[test]
    fn what_is_opened_is_found_under_any_number() {
        let dir = Scratch::new("hygiene-open");
        let path = dir.join("file");
        std::fs::write(&path, "text").expect("a file");
        let open = |path: &Path| std::fs::File::open(path).expect("opens");
        check_open(|| (), false);
        check_open(|| open(Path::new("/dev/null")), false);
        check_open(|| open(&path), true);
        // As many as before, but another one under a number.
        let (file, mut place) = (open(&path), OwnedFd::from(open(Path::new("/dev/null"))));
        check_open(|| rustix::io::dup2(&file, &mut place).expect("is replaced"), true);
    }
}
