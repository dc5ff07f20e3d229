//! What the operating system must do for us: shared pages, and children that
//! never outlive this process. All `unsafe` of the crate is here.

pub(crate) mod area;
pub(crate) mod crash;
pub(crate) mod fault;
mod keys;
pub(crate) mod orphans;
#[cfg(feature = "planted")]
pub(crate) mod planted;
pub(crate) mod state;
pub(crate) mod tie;

pub(crate) use keys::Keys;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions};

/// A page that this process and its children see, as 64-bit words. Everyone
/// accesses it through relaxed atomics only.
pub(crate) struct SharedWords {
    words: NonNull<AtomicU64>,
    len: usize,
    fd: OwnedFd,
}

// SAFETY: the memory is only reached through `&[AtomicU64]`, which is `Sync`,
// and the mapping lives until the value is dropped.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// A new zeroed area, not visible in any file system. Nobody who inherits it
    /// can make it shorter, which would end whoever reads it; it may grow.
    pub(crate) fn create(words: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("harness-shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, (words * 8) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::SEAL)?;
        Self::map(fd, words)
    }

    /// Maps an area that was inherited as an open file.
    pub(crate) fn map(fd: OwnedFd, words: usize) -> io::Result<Self> {
        let size = rustix::fs::fstat(&fd)?.st_size;
        if size < (words * 8) as i64 {
            return Err(io::Error::other(format!("the shared area has {size} bytes, {} are needed", words * 8)));
        }
        // SAFETY: a fresh shared mapping of a file that is large enough (checked
        // above; that of `create` cannot shrink), at an address the kernel chooses.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                words * 8,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        let words_at = NonNull::new(address.cast()).ok_or_else(|| io::Error::other("mmap returned null"))?;
        Ok(Self { words: words_at, len: words, fd })
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `len` words, is page aligned, lives as long as
        // `self`, and is only ever accessed atomically.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped; no reference outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.len * 8) };
    }
}

/// Maps a whole file for the rest of the process's life: the modules of dead
/// workers, which many deaths share.
pub(crate) fn map_file(path: &std::path::Path) -> io::Result<&'static [u8]> {
    let file = std::fs::File::open(path)?;
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: a fresh private mapping at an address the kernel chooses, as long as the file.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
    // SAFETY: mapped and never unmapped. Modules are replaced by renaming, not
    // rewritten in place, while something runs from them.
    Ok(unsafe { std::slice::from_raw_parts(address.cast(), len) })
}

/// Descriptors of a child: enough for any driver, few enough that a leak is found.
const MAX_FILES: u64 = 4096;

/// The largest main stack of a child. Without a limit, recursion that does not end
/// takes all memory of the machine instead of one worker.
const MAX_STACK: u64 = 64 << 20;

/// Spawns a child in a process group of its own that inherits exactly the
/// given descriptors besides its standard ones, and that the kernel kills when
/// the *thread* that called this ends. So call it from a thread that lives as
/// long as the child should.
///
/// `memory` limits the child's private writable memory. Unlike a limit of its
/// address space it does not count what CUDA only reserves.
pub(crate) fn spawn_tied(command: &mut Command, inherit: &[RawFd], memory: Option<u64>) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    let inherit = inherit.to_vec();
    let setup = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            // The parent died before the line above took effect.
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        if memory.is_some() {
            rustix::process::setrlimit(Resource::Data, Rlimit { current: memory, maximum: memory })?;
        }
        let files = rustix::process::getrlimit(Resource::Nofile);
        if files.current.is_none_or(|current| current > MAX_FILES) {
            rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(MAX_FILES), ..files })?;
        }
        let stack = rustix::process::getrlimit(Resource::Stack);
        if stack.current.is_none_or(|current| current > MAX_STACK) {
            rustix::process::setrlimit(Resource::Stack, Rlimit { current: Some(MAX_STACK), ..stack })?;
        }
        for fd in &inherit {
            // SAFETY: the descriptors are open in the parent for the whole spawn,
            // so they are open in the forked child.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    // SAFETY: the closure only makes system calls that are safe between fork and
    // exec, and allocates nothing.
    unsafe { command.pre_exec(setup) };
    command.spawn()
}

/// Takes ownership of a descriptor that was passed by number on the command line.
pub(crate) fn inherited_fd(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 3 {
        return Err(io::Error::other("a standard descriptor is not an inherited one"));
    }
    // SAFETY: only borrowed to ask whether it is open at all.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: open (checked above), and the caller is its only owner: the number
    // was given to this process by its parent for this purpose and used once.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

/// Signals a child's whole process group, and the child itself, which may have left it.
pub(crate) fn signal_group(child: &Child, signal: Signal) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = rustix::process::kill_process_group(pid, signal);
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Raises this process's limit of open files as far as it may: each worker costs
/// nine. Workers have a limit of their own.
pub(crate) fn raise_file_limit() {
    let files = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files });
}

/// What is known of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Lives,
    /// It is not reaped yet, so its number is still its own.
    Ended,
    /// It was reaped, and not here: how it ended nobody can say any more.
    Gone,
}

/// Bytes of private memory that this process may have, if that is limited.
pub(crate) fn memory_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Data).current
}

/// Whether a child has ended. It is not reaped by that.
pub(crate) fn life(child: &Child) -> Life {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let asked = Pid::from_raw(child.id() as i32).map(|pid| rustix::process::waitid(WaitId::Pid(pid), options));
    match asked {
        Some(Ok(Some(_))) => Life::Ended,
        Some(Err(rustix::io::Errno::CHILD)) => Life::Gone,
        _ => Life::Lives,
    }
}

/// The most memory that a child had which has ended and was not reaped, in bytes. It is
/// not reaped by that.
pub(crate) fn peak_memory(child: &Child) -> Option<u64> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    let pid = libc::c_long::from(child.id());
    // SAFETY: the kernel writes both, which are as large as it expects, and which any
    // bits are values of. The call of the C library has no place for the second.
    let (done, usage) = unsafe {
        let (info, usage_at) = (info.as_mut_ptr(), usage.as_mut_ptr());
        let done = libc::syscall(libc::SYS_waitid, libc::P_PID, pid, info, options, usage_at);
        (done, usage.assume_init())
    };
    let kilobytes = u64::try_from(usage.ru_maxrss).ok().filter(|kilobytes| done == 0 && *kilobytes > 0);
    kilobytes.map(|kilobytes| kilobytes << 10)
}

/// A status without a code and without a signal, of a child that was reaped elsewhere.
pub(crate) fn unknown_status() -> std::process::ExitStatus {
    // As of a process that is stopped by no signal, which no wait reports.
    std::os::unix::process::ExitStatusExt::from_raw(0x7f)
}

/// Undoes what a parent may have set for this process and its children: where
/// SIGCHLD is ignored, the kernel reaps children and nobody hears how they ended.
/// To be called before there are threads and children.
pub(crate) fn reset_inherited() {
    // SAFETY: sets the default action, so no code of this process runs in a handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Whether a signal is ignored, as `nohup` asks for.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: a structure of numbers, for which zeros are values.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; the answer is written into `now`.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut now) };
    asked == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// Whether a socket takes some bytes without waiting: a quarter of what it can hold
/// is in it at most.
pub(crate) fn has_room(stream: &std::os::unix::net::UnixStream) -> bool {
    let mut fds = [PollFd::new(stream, PollFlags::OUT)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::OUT)
}

/// Whether there is something to take without waiting: bytes of a socket, or a connection to a listener.
pub(crate) fn is_readable(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// Ends the process without exit handlers, which may hang.
pub(crate) fn exit_now(code: u8) -> ! {
    // SAFETY: ends the process; nothing of it runs afterwards.
    unsafe { libc::_exit(code.into()) }
}

/// Holds an exclusive lock on a file while it lives.
pub(crate) struct FileLock(#[expect(dead_code, reason = "held for its lock")] std::fs::File);

impl FileLock {
    /// Waits for the lock.
    pub(crate) fn acquire(path: &std::path::Path) -> io::Result<Self> {
        let file = std::fs::File::options().create(true).truncate(false).write(true).open(path)?;
        Self::hold(file)
    }

    /// Waits for the lock of something that is there, such as a folder: where no
    /// further file may be left behind.
    pub(crate) fn of(path: &std::path::Path) -> io::Result<Self> {
        Self::hold(std::fs::File::open(path)?)
    }

    fn hold(file: std::fs::File) -> io::Result<Self> {
        rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }
}

/// The signal by which the dispatcher asks a worker's thread where it is.
pub(crate) const ASK: i32 = libc::SIGUSR2;

/// Signals one thread of a process; whether it could be.
pub(crate) fn signal_thread(pid: u32, thread: u32, signal: i32) -> bool {
    // SAFETY: a system call without pointers.
    unsafe { libc::syscall(libc::SYS_tgkill, pid as i32, thread as i32, signal) == 0 }
}

/// Nanoseconds of the monotonic clock, the same for all processes, as of the
/// kernel's last tick: up to 10 ms behind, and several times quicker to read than
/// the exact time. For what happens often and is looked at seldom.
pub(crate) fn coarse_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The kernel's id of the calling thread. Asked for once in each thread: a
/// breadcrumb has no time for a system call.
pub(crate) fn thread_id() -> u32 {
    thread_local!(static ID: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    ID.with(|id| {
        if id.get() == 0 {
            id.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        id.get()
    })
}

/// The stable lowercase name of a signal.
pub(crate) fn signal_name(signal: i32) -> String {
    let names = [
        (1, "sighup"),
        (2, "sigint"),
        (3, "sigquit"),
        (4, "sigill"),
        (5, "sigtrap"),
        (6, "sigabrt"),
        (7, "sigbus"),
        (8, "sigfpe"),
        (9, "sigkill"),
        (11, "sigsegv"),
        (13, "sigpipe"),
        (14, "sigalrm"),
        (15, "sigterm"),
        (24, "sigxcpu"),
        (31, "sigsys"),
    ];
    names
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_child_keeps_its_number_until_it_is_reaped() {
        let mut child = Command::new("true").spawn().expect("starts");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while life(&child) == Life::Lives && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(peak_memory(&child).is_some_and(|bytes| (1 << 10..1 << 40).contains(&bytes)));
        assert_eq!([life(&child), life(&child)], [Life::Ended; 2]);
        assert!(child.wait().expect("is reaped").success());
        assert_eq!((life(&child), peak_memory(&child)), (Life::Gone, None));
    }

    #[test]
    fn a_child_that_left_its_group_is_signalled_too() {
        // It never had a group of its own.
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        signal_group(&child, Signal::KILL);
        let status = child.wait().expect("is reaped");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn an_unknown_end_has_neither_code_nor_signal() {
        use std::os::unix::process::ExitStatusExt;
        let status = unknown_status();
        assert_eq!((status.code(), status.signal(), status.success()), (None, None, false));
    }

    #[test]
    fn a_shared_area_may_grow_but_not_shrink() {
        let area = SharedWords::create(512).expect("an area");
        assert!(rustix::fs::ftruncate(area.fd(), 0).is_err());
        assert!(rustix::fs::ftruncate(area.fd(), 1 << 20).is_ok());
        assert_eq!(area.words()[511].load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
