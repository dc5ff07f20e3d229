//! What built-in faults do to their own process, on purpose: each function is
//! the fault that its caller asks for, so its `SAFETY` says what it breaks.

use super::SharedWords;
use rustix::fs::MemfdFlags;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Writes to an address that is never mapped: a real segmentation fault.
pub(crate) fn write_unmapped() {
    let address = std::hint::black_box(4096usize) - 4088;
    // SAFETY: none: the process ends here, by the fault that is asked for.
    unsafe { std::ptr::without_provenance_mut::<u64>(address).write_volatile(1) };
}

/// Reads a mapping behind the end of its file, at an odd address: a real bus error.
pub(crate) fn read_past_end() {
    let file = rustix::fs::memfd_create("harness-fault", MemfdFlags::CLOEXEC);
    let file = file.and_then(|file| rustix::fs::ftruncate(&file, 4096).map(|()| file));
    if let Some(area) = file.ok().and_then(|file| SharedWords::map(file, 512).ok()) {
        let _ = rustix::fs::ftruncate(&area.fd, 0);
        let start: *const u8 = area.words().as_ptr().cast();
        // SAFETY: inside the mapping; unaligned reads are asked for. No page is
        // behind it any more: the process ends here.
        std::hint::black_box(unsafe { start.add(13).cast::<u64>().read_unaligned() });
    }
}

/// Executes an instruction that no processor has.
pub(crate) fn illegal_instruction() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `ud2` raises SIGILL and does nothing else.
    unsafe {
        std::arch::asm!("ud2");
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: sends this thread a signal.
    unsafe {
        libc::raise(libc::SIGILL);
    }
}

/// Divides by zero as a processor does where the language does not look.
pub(crate) fn divide_by_zero() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the division raises SIGFPE; the registers that it would write are named.
    unsafe {
        std::arch::asm!("div {0:e}", in(reg) 0, inout("eax") 1 => _, inout("edx") 0 => _);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: sends this thread a signal.
    unsafe {
        libc::raise(libc::SIGFPE);
    }
}

/// Has the process crash when it ends: an exit handler that writes through null,
/// as a destructor of a static object may.
pub(crate) fn crash_at_exit() {
    extern "C" fn crash() {
        write_unmapped();
    }
    // SAFETY: the handler is a function of this binary, which is never unloaded.
    unsafe { libc::atexit(crash) };
}

/// Has the process hang when it ends.
pub(crate) fn hang_at_exit() {
    extern "C" fn hang() {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
    // SAFETY: the handler is a function of this binary, which is never unloaded.
    unsafe { libc::atexit(hang) };
}

/// Installs a handler as a library may that catches crashes for its own use: it
/// prints, takes itself away, and raises the signal again.
pub(crate) fn swallow_segv() {
    extern "C" fn handler(signal: libc::c_int) {
        let line = b"[library] caught signal 11\n";
        // SAFETY: `write`, `signal` and `raise` may be called from handlers; the
        // buffer is static.
        unsafe {
            libc::write(2, line.as_ptr().cast(), line.len());
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    // SAFETY: replaces the handler of this process, which is the fault.
    unsafe { libc::signal(libc::SIGSEGV, handler as *const () as libc::sighandler_t) };
}

/// Closes a descriptor behind the back of its owner.
pub(crate) fn close(fd: i32) {
    // SAFETY: the owner's later use fails or hits another file: the fault.
    unsafe { libc::close(fd) };
}

/// Blocks a signal in this thread.
pub(crate) fn block_signal(signal: i32) {
    // SAFETY: a signal set on the stack, initialised before use.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Changes the environment of the process.
pub(crate) fn set_variable(key: &str, value: &str) {
    // SAFETY: other threads of a worker read the environment through `std` only,
    // which has a lock for it.
    unsafe { std::env::set_var(key, value) };
}

/// Starts a process in a session of its own, whose parent ends at once: a daemon.
/// `nameless` without any variable in its environment.
pub(crate) fn spawn_daemon(seconds: u32, nameless: bool) -> io::Result<()> {
    let mut command = Command::new("/bin/sh");
    if nameless {
        command.env_clear();
    }
    command.args(["-c", &format!("sleep {seconds} & exit 0")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: `setsid` is a system call; nothing is allocated between fork and exec.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(io::Error::from)) };
    command.spawn()?.wait().map(drop)
}
