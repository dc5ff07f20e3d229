//! Processes that the kernel killed for want of memory while a case ran: the
//! reason why a worker may have died of SIGKILL.
//!
//! Two counters: that of this process's control group, which tells of its own
//! processes only and costs a small read, and that of the machine, which tells of
//! all and is summed over all processors. A worker may have left the group, so
//! both count. The machine's is read at most ten times a second before cases: its
//! count there may be of a tenth of a second before.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How old the machine's count may be before a case.
const STALE: Duration = Duration::from_millis(100);

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kills {
    group: u64,
    machine: u64,
    /// Of the machine's, those that were some worker of this run.
    explained: u64,
}

/// Kills that ended workers of this run.
static EXPLAINED: AtomicU64 = AtomicU64::new(0);

impl Kills {
    /// Before a case begins.
    pub(super) fn before() -> Self {
        static LAST: Mutex<Option<(Instant, u64)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.filter(|(at, _)| at.elapsed() < STALE);
        let (at, machine) = fresh.unwrap_or_else(|| (Instant::now(), machine()));
        *last = Some((at, machine));
        Self { group: group(), machine, explained: EXPLAINED.load(Ordering::SeqCst) }
    }

    /// Kills since then that no other worker's end explains: those of the own group
    /// where there are any, else the machine's. `killed` says whether a worker was
    /// ended by SIGKILL: then one of them explains it.
    pub(super) fn since(self, killed: bool) -> u64 {
        let own = group().saturating_sub(self.group);
        let all = if own > 0 { own } else { machine().saturating_sub(self.machine) };
        let left = all.saturating_sub(EXPLAINED.load(Ordering::SeqCst).saturating_sub(self.explained));
        if killed && left > 0 {
            EXPLAINED.fetch_add(1, Ordering::SeqCst);
        }
        left
    }
}

fn machine() -> u64 {
    std::fs::read_to_string("/proc/vmstat").ok().and_then(|text| count(&text)).unwrap_or(0)
}

/// The count of this process's control group; 0 where it counts none.
fn group() -> u64 {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let Some(file) = FILE.get_or_init(|| counters().into_iter().find_map(|path| File::open(path).ok())) else {
        return 0;
    };
    let mut text = [0; 512];
    let len = file.read_at(&mut text, 0).unwrap_or(0);
    count(&String::from_utf8_lossy(&text[..len])).unwrap_or(0)
}

/// Files that may hold it, by both versions of control groups.
fn counters() -> Vec<PathBuf> {
    counters_of(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
}

/// In a container the path may be that outside of it; what is mounted is then its own group.
fn counters_of(groups: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.events"),
            list if list.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", "memory.oom_control"),
            _ => continue,
        };
        let root = Path::new(root);
        found.extend([root.join(path.trim_start_matches('/')).join(file), root.join(file)]);
    }
    found
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted() {
        assert_eq!(count("low 0\nhigh 0\nmax 3\noom 2\noom_kill 17\noom_group_kill 0\n"), Some(17));
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
        assert_eq!(count("nr_free_pages 1\n"), None);
    }

    #[track_caller]
    fn check_counters(groups: &str, wanted: &[&str]) {
        let wanted: Vec<PathBuf> = wanted.iter().map(|path| Path::new("/sys/fs/cgroup").join(path)).collect();
        assert_eq!(counters_of(groups), wanted);
    }

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        check_counters("0::/user.slice/a:b\n", &["user.slice/a:b/memory.events", "memory.events"]);
        check_counters(
            "4:cpu,memory:/job\n2:cpu:/\n0::/\n",
            &["memory/job/memory.oom_control", "memory/memory.oom_control", "memory.events", "memory.events"],
        );
        check_counters("nonsense\n1:\n", &[]);
    }

    #[test]
    fn only_what_is_killed_after_the_beginning_counts() {
        let now = Kills { group: group(), machine: machine(), explained: EXPLAINED.load(Ordering::SeqCst) };
        let before = Kills::before();
        assert!(before.group >= now.group && before.machine <= now.machine.max(machine()));
        let earlier = Kills { machine: now.machine.saturating_sub(1), ..now };
        let seen = earlier.since(true);
        assert!(now.machine == 0 || seen >= 1);
        // It was that worker, so it was no other one.
        assert!(seen == 0 || earlier.since(false) < seen || machine() > now.machine);
    }
}
