//! Whether a worker that died of SIGKILL was killed by the kernel for want of memory.
//!
//! What decides, the first that can be had:
//! 1. The kernel's log names its victims ([`kernel_log`]).
//! 2. The worker's control group counts those of its own processes.
//! 3. The machine counts all. Where it has counted none there was none; more it does
//!    not say, so that a kill of anybody else's is not held against a worker.
//!
//! Counters and log are read at most ten times a second before cases, all at one
//! moment: what is told of a case may have begun a tenth of a second before it.

use super::kernel_log::{self, Killed, Moment};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How old the counts may be before a case.
const STALE: Duration = Duration::from_millis(100);
/// The kernel counts, kills, and only then writes into its log.
const LOGGED: Duration = Duration::from_millis(200);
/// What workers are called, as the kernel's log has it.
const WORKER: &str = "harness-worker";

/// What a process had at most and what the kernel says it had may differ by this: both
/// are counted in lots.
const UNSURE: u64 = 16 << 20;

/// The state at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kills {
    group: Option<u64>,
    machine: u64,
    log: Option<Moment>,
}

/// Kills in the harness's group that ended workers of this run.
static CLAIMED: Mutex<u64> = Mutex::new(0);

/// A worker that died of SIGKILL.
#[derive(Clone, Debug, Default)]
pub(super) struct Victim {
    /// Its numbers: the child's, and the worker's own where a tool runs it.
    pub(super) pids: [u32; 2],
    /// Its control group when it had ended, where that is known.
    pub(super) group: Option<String>,
    /// The most memory that it had, in bytes, where that is known.
    pub(super) peak: Option<u64>,
}

/// Whether it was for want of memory, and what is known about that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) killed: bool,
    pub(super) note: String,
}

/// What the kernel's log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelLogSays {
    /// It names the victim, or a worker that was as big where numbers do not tell which.
    Named,
    /// It is complete and does not.
    Silent,
    Unknown,
}

impl Kills {
    /// Before a case begins.
    pub(super) fn before() -> Self {
        static LAST: Mutex<Option<(Instant, Kills)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.filter(|(at, _)| at.elapsed() < STALE);
        let now = || Self { group: group(), machine: machine(), log: kernel_log::now() };
        let (at, kills) = fresh.unwrap_or_else(|| (Instant::now(), now()));
        first_of_group(kills.group);
        *last = Some((at, kills));
        kills
    }

    /// What killed this worker, by what has changed since then.
    pub(super) fn judge(self, victim: &Victim) -> Shortage {
        let machine = machine().saturating_sub(self.machine);
        let mut claimed = CLAIMED.lock().unwrap_or_else(PoisonError::into_inner);
        let (group, own) = self.in_group(victim, *claimed);
        let told = self.told(victim, machine > 0 || group.is_some_and(|kills| kills > 0));
        let shortage = shortage(told, group, machine);
        *claimed += u64::from(shortage.killed && own);
        shortage
    }

    /// Kills in the victim's group, where they can be known, and whether that is the
    /// harness's own: there other workers' ends may explain some.
    fn in_group(self, victim: &Victim, claimed: u64) -> (Option<u64>, bool) {
        match victim.group.as_deref() {
            // A group of its own making.
            Some(path) if own_path().is_some_and(|own| own != path) => (counted(path), false),
            _ => {
                let now = group();
                let since = |before: Option<u64>| Some(now?.saturating_sub(before?));
                let all = since(first_of_group(self.group)).map(|all| all.saturating_sub(claimed));
                let left = since(self.group).zip(all).map(|(since, all)| since.min(all));
                // Without knowing its group, none in the harness's says nothing.
                (left.filter(|left| *left > 0 || victim.group.is_some()), true)
            }
        }
    }

    /// What the log says. Where something was counted, it will say so in a moment.
    fn told(self, victim: &Victim, counted: bool) -> KernelLogSays {
        let Some(moment) = self.log else { return KernelLogSays::Unknown };
        let deadline = Instant::now() + LOGGED;
        loop {
            match kernel_log::since(moment, |killed| claim(killed, victim, kernel_log::has_our_numbers())) {
                None => return KernelLogSays::Unknown,
                Some(true) => return KernelLogSays::Named,
                Some(false) if !counted || Instant::now() >= deadline => return KernelLogSays::Silent,
                Some(false) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

/// The count of the harness's group at the first moment.
fn first_of_group(now: Option<u64>) -> Option<u64> {
    static FIRST: OnceLock<Option<u64>> = OnceLock::new();
    *FIRST.get_or_init(|| now)
}

/// Whether one of the kills is the victim's: by its number, or else as that of a worker
/// that had no more memory than this one may have had, and that nobody has claimed.
fn claim(killed: &mut [Killed], victim: &Victim, numbers: bool) -> bool {
    let fits = |killed: &Killed| victim.peak.is_none_or(|peak| killed.resident <= peak.saturating_add(UNSURE));
    let found = killed.iter_mut().find(|killed| match numbers {
        true => victim.pids.contains(&killed.pid),
        false => killed.name == WORKER && !killed.claimed && fits(killed),
    });
    found.map(|killed| killed.claimed = true).is_some()
}

/// `group` are the kills in the victim's control group, where they are known.
fn shortage(told: KernelLogSays, group: Option<u64>, machine: u64) -> Shortage {
    let (killed, note) = match (told, group) {
        (KernelLogSays::Named, _) => (true, "the kernel's log names it".into()),
        (KernelLogSays::Silent, _) | (_, Some(0)) => (false, String::new()),
        (_, Some(kills)) => (true, format!("its control group counts {kills}")),
        _ if machine == 0 => (false, String::new()),
        _ => {
            let what = "processes for want of memory, and nothing tells whether it was one of them";
            (false, format!("the kernel killed {machine} of the machine's {what}"))
        }
    };
    Shortage { killed, note }
}

/// Whether a worker that the kernel killed can be told here from one that was killed
/// from outside: by the kernel's log, or by its group if that is of the second version.
pub(crate) fn shortage_can_be_told() -> bool {
    kernel_log::now().is_some() || own_path().is_some_and(|path| counted(path).is_some() || path == "/")
}

/// The control group of a process that has ended and was not reaped.
pub(super) fn group_of(pid: u32) -> Option<String> {
    unified(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

fn own_path() -> Option<&'static str> {
    static PATH: OnceLock<Option<String>> = OnceLock::new();
    PATH.get_or_init(|| group_of(std::process::id())).as_deref()
}

/// The group by which memory is counted, in the second version: the first one shows
/// no group of a process that has ended. None if it was removed.
fn unified(groups: &str) -> Option<String> {
    let first = |line: &str| line.split(':').nth(1).is_some_and(|list| list.split(',').any(|one| one == "memory"));
    if groups.lines().any(first) {
        return None;
    }
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    (!path.ends_with(" (deleted)")).then(|| path.into())
}

/// Kills that a group counts, in the second version.
fn counted(path: &str) -> Option<u64> {
    let file = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')).join("memory.events");
    count(&std::fs::read_to_string(file).ok()?)
}

fn machine() -> u64 {
    std::fs::read_to_string("/proc/vmstat").ok().and_then(|text| count(&text)).unwrap_or(0)
}

/// The count of this process's control group, where it has one.
fn group() -> Option<u64> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| counters().into_iter().find_map(|path| File::open(path).ok())).as_ref()?;
    let mut text = [0; 512];
    let len = file.read_at(&mut text, 0).ok()?;
    count(&String::from_utf8_lossy(&text[..len]))
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
    fn the_group_of_an_ended_process_is_that_of_the_second_version() {
        assert_eq!(unified("0::/user.slice/a\n").as_deref(), Some("/user.slice/a"));
        assert_eq!(unified("2:cpu:/x\n0::/a:b\n").as_deref(), Some("/a:b"));
        for unknown in ["", "0::/a (deleted)\n", "4:cpu,memory:/\n0::/a\n"] {
            assert_eq!(unified(unknown), None, "{unknown}");
        }
    }

    /// Whether a worker is said to be killed for want of memory, and what is said.
    #[track_caller]
    fn check(told: KernelLogSays, group: Option<u64>, machine: u64, killed: bool, part: &str) {
        let found = shortage(told, group, machine);
        assert!(found.killed == killed && found.note.contains(part), "{found:?}");
        assert_eq!(found.note.is_empty(), part.is_empty(), "{found:?}");
    }

    #[test]
    fn a_kill_is_the_workers_only_where_something_says_so() {
        check(KernelLogSays::Named, None, 0, true, "log names it");
        // Killed from outside while the kernel killed another process.
        check(KernelLogSays::Silent, Some(1), 1, false, "");
        check(KernelLogSays::Unknown, Some(0), 1, false, "");
        check(KernelLogSays::Unknown, Some(2), 2, true, "its control group counts 2");
        check(KernelLogSays::Unknown, None, 3, false, "killed 3 of the machine's processes");
        check(KernelLogSays::Unknown, None, 0, false, "");
    }

    #[test]
    fn a_kill_is_told_by_number_or_as_that_of_a_worker() {
        let victim = Victim { pids: [7, 8], peak: Some(60 << 20), ..Victim::default() };
        let killed = |pid, name: &str, megabytes: u64| Killed {
            pid,
            name: name.into(),
            resident: megabytes << 20,
            claimed: false,
        };
        let mut all = [killed(5, "cc1plus", 50), killed(6, WORKER, 90), killed(9, WORKER, 61)];
        assert!(!claim(&mut all, &victim, true) && claim(&mut [killed(8, "x", 0)], &victim, true));
        // In another namespace it is a worker that was as big, each kill of one of them.
        assert!(claim(&mut all, &victim, false) && all[2].claimed && !all[1].claimed);
        assert!(!claim(&mut all, &victim, false));
        assert!(claim(&mut all, &Victim { peak: None, ..victim }, false) && all[1].claimed);
    }

    #[test]
    fn what_nobody_counted_was_none() {
        let group = group_of(std::process::id());
        let victim = Victim { pids: [u32::MAX; 2], group, peak: None };
        let before = Kills { log: None, ..Kills::before() };
        // The counts may rise at any moment, without any part in it.
        assert!(before.judge(&victim).note.is_empty() || machine() > before.machine);
    }
}
