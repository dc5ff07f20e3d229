//! The kernel's log, as far as it tells which processes the kernel killed for want
//! of memory. Input: `/dev/kmsg`, which as a rule only the superuser may read.
//! Output: the kills since a moment, or nothing where that is not known for certain.
//!
//! Lines name processes by the numbers of the machine's first namespace.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::{Mutex, OnceLock, PoisonError};

/// More than any record has.
const RECORD: usize = 8 << 10;
/// Records that are read at once: a log that grows faster than it is read has gaps.
const RECORDS: usize = 100_000;
/// Kills that are kept.
const KEPT: usize = 4096;
/// Device number of the log; what a container puts in its place has another.
const KMSG: (u32, u32) = (1, 11);
/// The number that the kernel gives to the machine's first namespace of processes.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// A process that the kernel killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) pid: u32,
    pub(super) name: String,
    /// Memory that it had, in bytes.
    pub(super) resident: u64,
    /// Whether it is known whose end this was.
    pub(super) claimed: bool,
}

/// A moment in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    killed: usize,
    gaps: u64,
}

struct KernelLog {
    file: File,
    killed: Vec<Killed>,
    /// How often records were lost.
    gaps: u64,
}

impl KernelLog {
    fn open() -> Option<Self> {
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let mut file = OpenOptions::new().read(true).custom_flags(nonblocking).open("/dev/kmsg").ok()?;
        let data = file.metadata().ok()?;
        let number = (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()));
        if !data.file_type().is_char_device() || number != KMSG {
            return None;
        }
        // What is there already is of no interest; only what comes is.
        file.seek(SeekFrom::End(0)).ok()?;
        Some(Self { file, killed: Vec::new(), gaps: 0 })
    }

    /// Takes in what has come.
    fn follow(&mut self) {
        let mut record = [0; RECORD];
        for _ in 0..RECORDS {
            match self.file.read(&mut record) {
                Ok(0) => return,
                Ok(len) => self.killed.extend(killed(&String::from_utf8_lossy(&record[..len]))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.killed.len() > KEPT {
                        self.killed.clear();
                        self.gaps += 1;
                    }
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Older records were overwritten before they were read, or worse.
                Err(error) => {
                    self.gaps += 1;
                    if error.kind() != io::ErrorKind::BrokenPipe {
                        return;
                    }
                }
            }
        }
        self.gaps += 1;
    }
}

fn with<T>(look: impl FnOnce(&mut KernelLog) -> T) -> Option<T> {
    static LOG: OnceLock<Option<Mutex<KernelLog>>> = OnceLock::new();
    let log = LOG.get_or_init(|| KernelLog::open().map(Mutex::new)).as_ref()?;
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.follow();
    Some(look(&mut log))
}

/// The present; nothing where the log cannot be read.
pub(super) fn now() -> Option<Moment> {
    with(|log| Moment { killed: log.killed.len(), gaps: log.gaps })
}

/// Looks through the kills since then; nothing where some may be missing.
pub(super) fn since<T>(moment: Moment, look: impl FnOnce(&mut [Killed]) -> T) -> Option<T> {
    with(|log| (log.gaps == moment.gaps).then(|| look(&mut log.killed[moment.killed..]))).flatten()
}

/// Whether lines have the numbers that processes have for this one.
pub(super) fn has_our_numbers() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let namespace = std::fs::read_link("/proc/self/ns/pid").ok();
        namespace.is_some_and(|link| link.to_str() == Some(FIRST_NAMESPACE))
    })
}

/// The process that a record tells of: `3,951,43720030428,-;Memory cgroup out of
/// memory: Killed process 16621 (name) total-vm:154432kB, anon-rss:66304kB, ...`.
/// Only the kernel's own records count: whoever may write to the log writes others.
fn killed(record: &str) -> Option<Killed> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    let (_, told) = text.lines().next()?.split_once("Killed process ")?;
    let (pid, told) = told.split_once(" (")?;
    // The name may hold anything.
    let (name, _) = told.split_once("total-vm:").map_or(told, |(name, _)| name).rsplit_once(')')?;
    (priority >> 3 == 0).then_some(())?;
    // `anon-rss:66304kB`, and the same of files and of shared memory.
    let part = |word: &str| word.split_once("-rss:")?.1.trim_end_matches([',', ' ']).strip_suffix("kB")?.parse().ok();
    let resident = told.split_whitespace().filter_map(part).fold(0, u64::saturating_add).saturating_mul(1 << 10);
    Some(Killed { pid: pid.parse().ok()?, name: name.into(), resident, claimed: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, wanted: Option<(u32, &str)>) {
        let resident = (66304 + 12304) << 10;
        let wanted = wanted.map(|(pid, name)| Killed { pid, name: name.into(), resident, claimed: false });
        assert_eq!(killed(record), wanted);
    }

    #[test]
    fn records_name_what_was_killed() {
        let rest = "total-vm:154432kB, anon-rss:66304kB, file-rss:12304kB, shmem-rss:0kB, UID:0 oom_score_adj:0";
        let group = format!(
            "3,951,43720030428,-;Memory cgroup out of memory: Killed process 16621 (harness-worker) {rest}\n K=v"
        );
        check(&group, Some((16621, "harness-worker")));
        check(&group.replace("harness-worker", "a) (b"), Some((16621, "a) (b")));
        check(&format!("3,9,1,-;Out of memory: Killed process 7 (x) {rest}"), Some((7, "x")));
        // Of older kernels.
        check(&format!("3,9,1,-;Killed process 7 (x), UID 0, {rest}"), Some((7, "x")));
        // Written by a program, not by the kernel.
        check(&group.replacen("3,", "11,", 1), None);
        for other in
            ["", "3,9,1,-;", "3,9,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=x,pid=7", "x;Killed process 7 (x)"]
        {
            check(other, None);
        }
        crate::property::property(|u| {
            killed(&String::from_utf8_lossy(u.arbitrary::<&[u8]>()?));
            Ok(())
        });
    }

    #[test]
    #[ignore = "needs the kernel's log, which root can read"]
    fn needs_kernel_log_what_came_before_is_not_told() {
        let moment = now().expect("the kernel's log can be read");
        let mine = since(moment, |all| all.iter().any(|killed| killed.pid == std::process::id()));
        assert!(mine != Some(true));
    }
}
