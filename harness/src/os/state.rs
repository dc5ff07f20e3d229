//! State of this process that is asked for after each case, by system calls that
//! take a fraction of a microsecond each: what `/proc` says about the same takes
//! the kernel tens of them to write.

use std::os::fd::RawFd;

/// Signals 1 to 31, number 1 in bit 0. The C library takes some above for itself
/// with the first thread.
const ORDINARY: std::ops::RangeInclusive<i32> = 1..=31;

/// What becomes of signals, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signals {
    /// Kept back from the calling thread.
    pub(crate) blocked: u32,
    /// Ignored by the process.
    pub(crate) ignored: u32,
    /// Handled by the process.
    pub(crate) caught: u32,
}

impl Signals {
    /// Those of now.
    pub(crate) fn now() -> Self {
        let mut signals = Self { blocked: blocked(), ..Self::default() };
        for signal in ORDINARY {
            match handler(signal) {
                libc::SIG_DFL => {}
                libc::SIG_IGN => signals.ignored |= bit(signal),
                _ => signals.caught |= bit(signal),
            }
        }
        signals
    }
}

fn bit(signal: i32) -> u32 {
    1 << (signal - 1)
}

fn blocked() -> u32 {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the call only fills the set, for which all zeros is a valid value too.
    let set = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), set.as_mut_ptr());
        set.assume_init()
    };
    // SAFETY: reads a bit of a set that lives here.
    ORDINARY.filter(|signal| unsafe { libc::sigismember(&set, *signal) } == 1).fold(0, |all, signal| all | bit(signal))
}

/// The handler of a signal, as a number; the default where it cannot be asked for.
fn handler(signal: i32) -> usize {
    let mut old = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is set; the call fills the structure, for which all zeros is
    // a valid value too.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), old.as_mut_ptr());
        old.assume_init().sa_sigaction
    }
}

/// Device and inode of an open file, pipe or socket; `None` if nothing is open
/// under the number.
pub(crate) fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call fills the structure if it succeeds, and only then it is read.
    unsafe {
        (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| {
            let stat = stat.assume_init_ref();
            (stat.st_dev, stat.st_ino)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// What `/proc` says of the calling thread.
    fn told(name: &str) -> u32 {
        let text = std::fs::read_to_string("/proc/thread-self/status").expect("reads");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("a line");
        (u64::from_str_radix(line.trim(), 16).expect("a mask") & 0x7fff_ffff) as u32
    }

    #[test]
    fn signals_are_those_of_proc() {
        std::thread::spawn(|| {
            crate::os::fault::block_signal(libc::SIGWINCH);
            // Another test may change a handler in between.
            let same = (0..1000).find_map(|_| {
                let now = Signals::now();
                let told = (told("SigBlk"), told("SigIgn"), told("SigCgt"));
                ((now.blocked, now.ignored, now.caught) == told).then_some(now)
            });
            let now = same.expect("what is asked for is what /proc says");
            assert!(now.blocked & bit(libc::SIGWINCH) != 0, "{now:?}");
            // Every Rust program ignores SIGPIPE.
            assert!(now.ignored & bit(libc::SIGPIPE) != 0, "{now:?}");
        })
        .join()
        .expect("ends");
    }

    #[test]
    fn a_file_is_known_by_its_number_and_identity() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let (one, other) = (identity(one.as_raw_fd()), identity(other.as_raw_fd()));
        assert!(one.is_some() && one != other);
        assert_eq!(identity(i32::MAX), None);
    }
}
