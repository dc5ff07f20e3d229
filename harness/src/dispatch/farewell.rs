//! The end of a worker outside any case: what is told about it, and what it left.

use super::Death;
use super::home::Home;
use crate::code_cache::CodeUse;
use crate::os::{self, Life, orphans};
use crate::verdict::{Leak, Outcome};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io;
use std::os::fd::RawFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Generations of orphans that are looked for.
const GENERATIONS: usize = 20;

/// Of these, in so many a process without any environment may be about to have one.
const PATIENT: usize = 5;

/// How a worker ended that owed no case.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Exited(ExitStatus),
    /// It did not end in this time and was killed.
    Hung(Duration),
    /// It broke the protocol and was killed.
    Broke(String),
}

/// What is told about a worker when it has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Farewell {
    /// Its crash outside any case: `crash.teardown`.
    pub(crate) crash: Option<Box<(Outcome, Death)>>,
    /// Processes that outlived it.
    pub(crate) leaks: Vec<Leak>,
    /// What it shared of compiled kernels, as far as it could say.
    pub(crate) code: Option<CodeUse>,
    /// Its private folder, which goes away with this: all that it ran was told before.
    pub(super) home: Option<Arc<Home>>,
}

impl Farewell {
    /// What is recorded of it: kinds and fields.
    pub(super) fn records(&self, worker: &str) -> Vec<(&'static str, Value)> {
        let crash = self.crash.iter().map(|crash| {
            let (outcome, death) = &**crash;
            let (name, detail) = (&outcome.outcome, &outcome.detail);
            let fields =
                json!({ "event": "crashed", "worker_id": worker, "outcome": name, "detail": detail, "death": death });
            ("worker", fields)
        });
        let leaks = self.leaks.iter().map(|leak| ("leak", leak_fields(worker, None, leak)));
        crash.chain(leaks).collect()
    }
}

/// The fields of a leak's record.
pub(super) fn leak_fields(worker: &str, case_id: Option<&str>, leak: &Leak) -> Value {
    json!({ "worker_id": worker, "case_id": case_id, "name": leak.name, "detail": leak.detail })
}

/// Whether that is to be told: an exit with code 0 is not.
pub(super) fn crashed(ending: &Ending) -> bool {
    !matches!(ending, Ending::Exited(status) if status.success())
}

/// Lets orphans of workers come to this process instead of to the system's first
/// one, so that they can be found.
pub(crate) fn adopt_orphans() {
    let _ = rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1));
}

/// From now on this process starts nothing but workers, so that any other child of
/// it that begins later was left by one.
pub(super) fn has_workers_only() {
    WORKERS_ONLY.store(true, Ordering::SeqCst);
}

static WORKERS_ONLY: AtomicBool = AtomicBool::new(false);

/// A worker whose farewell is not over, and when it began.
#[derive(Clone, Copy, Debug)]
struct Live {
    pid: u32,
    began: u64,
}

/// What the process groups of these leave is theirs to name. Held while one is
/// started, so that none is missing here.
static LIVE: Mutex<Vec<Live>> = Mutex::new(Vec::new());

fn live() -> MutexGuard<'static, Vec<Live>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a worker's process.
pub(super) fn spawn(command: &mut Command, inherit: &[RawFd], memory: Option<u64>) -> io::Result<Child> {
    let mut live = live();
    let child = os::spawn_tied(command, inherit, memory)?;
    let pid = child.id();
    live.push(Live { pid, began: orphans::began(pid).unwrap_or(u64::MAX) });
    Ok(child)
}

/// Reaps a worker that has ended. Its group is killed before: from then on its
/// number may be another worker's. `look` is called while it is still there.
pub(super) fn reap(child: &mut Child, look: impl FnOnce(&Child)) -> Option<ExitStatus> {
    match os::life(child) {
        Life::Lives => None,
        Life::Ended => {
            look(child);
            os::signal_group(child, Signal::KILL);
            child.try_wait().ok().flatten()
        }
        Life::Gone => Some(os::unknown_status()),
    }
}

/// The farewell of a worker that was reaped is over. A new one may have its number.
pub(super) fn over(worker: u32) {
    let mut live = live();
    if let Some(at) = live.iter().position(|known| known.pid == worker) {
        live.swap_remove(at);
    }
}

/// Reaps orphans that ended by themselves, whoever left them: they have no
/// environment any more that says so.
fn sweep(children: &[orphans::Child]) {
    let Some(own) = orphans::own_group() else { return };
    let live = live();
    orphans::reap(children, |child| {
        child.zombie && child.group != own && !live.iter().any(|known| known.pid == child.group as u32)
    });
}

/// Since when a child that nobody knows was left by this worker, if it may have
/// been: as long as another one lives, what it leaves comes to it and not to here.
/// Of several that ended at the same time, those that did not end well are to blame.
fn strays_since(worker: u32, well: bool) -> Option<u64> {
    let live = live();
    let mut others = live.iter().filter(|known| known.pid != worker);
    let mine = live.iter().find(|known| known.pid == worker)?;
    let meant = WORKERS_ONLY.load(Ordering::SeqCst) && !(well && others.any(|other| orphans::has_ended(other.pid)));
    meant.then_some(mine.began)
}

/// Whether a child has nothing that tells whose it is.
fn is_stray(child: &orphans::Child, since: u64) -> bool {
    let of = |known: &Live| [child.pid, child.group, child.session].contains(&(known.pid as i32));
    child.began >= since && !live().iter().any(of) && child.variable("HARNESS_WORKER").is_none()
}

/// Kills and names the processes that a dead worker left: those of its process
/// group or session, those with its name in their environment, and those that left
/// both and cleared their environment, see [`strays_since`]. `well` tells whether
/// it ended as it should.
pub(super) fn left_by(worker: u32, id: &str, well: bool) -> Vec<Leak> {
    let pid = worker as i32;
    let strays = strays_since(worker, well);
    let meant = |child: &orphans::Child, patient: bool| {
        let tied = child.group == pid || child.session == pid || child.has_variable("HARNESS_WORKER", id);
        let stray = |since| is_stray(child, since) && !(patient && child.is_unclear());
        child.pid != pid && (tied || strays.is_some_and(stray))
    };
    let mut names = Vec::new();
    let mut children = orphans::children();
    for generation in 0..GENERATIONS {
        let found = orphans::reap(&children, |child| meant(child, generation < PATIENT));
        if found.is_empty() && !children.iter().any(|child| child.pid != pid && child.is_unclear()) {
            break;
        }
        names.extend(found);
        // The children of what was killed come here in a moment.
        std::thread::sleep(Duration::from_millis(2));
        children = orphans::children();
    }
    sweep(&children);
    names.sort();
    names.dedup();
    match names.is_empty() {
        true => Vec::new(),
        false => vec![Leak::new("leak.process", names.join(", "))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that ends at once and leaves a process in its group.
    fn worker(script: &str) -> Child {
        adopt_orphans();
        spawn(Command::new("sh").args(["-c", script]), &[], None).expect("starts")
    }

    #[track_caller]
    fn wait(mut done: impl FnMut() -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(std::time::Instant::now() < deadline, "in time");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_group_ends_before_its_leader_is_reaped() {
        if !orphans::proc_is_ours() {
            return eprintln!("/proc is of other processes: not played");
        }
        let mut child = worker("sleep 60 & exit 3");
        let mut status = None;
        wait(|| {
            status = reap(&mut child, |_| {});
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let leaks = left_by(child.id(), "none", false);
        // Between fork and exec it still has its parent's name.
        let named = ["sleep (", "sh ("].iter().any(|name| leaks[0].detail.starts_with(name));
        assert!(leaks.len() == 1 && named, "{leaks:?}");
        over(child.id());
        assert!(!orphans::children().iter().any(|left| left.group == child.id() as i32));
    }

    #[test]
    fn only_zombies_that_belong_to_no_worker_are_swept() {
        if !orphans::proc_is_ours() {
            return eprintln!("/proc is of other processes: not played");
        }
        let mut child = worker("exit 0");
        let pid = child.id() as i32;
        let there = || orphans::children().iter().any(|left| left.pid == pid);
        wait(|| os::life(&child) == Life::Ended);
        sweep(&orphans::children());
        assert!(there());
        over(child.id());
        sweep(&orphans::children());
        assert!(!there() && child.try_wait().is_err());
    }

    #[test]
    fn a_process_of_another_group_is_found_by_its_environment() {
        if !orphans::proc_is_ours() {
            return eprintln!("/proc is of other processes: not played");
        }
        let mut command = std::process::Command::new("sleep");
        let mut sleep = command.arg("60").env("HARNESS_WORKER", "test-w0").spawn().expect("starts");
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let mut leaks = Vec::new();
        // Between fork and exec it still has its parent's environment.
        while leaks.is_empty() && std::time::Instant::now() < deadline {
            assert_eq!(left_by(u32::MAX >> 1, "test-w1", true), []);
            leaks = left_by(u32::MAX >> 1, "test-w0", true);
        }
        assert_eq!(leaks, [Leak::new("leak.process", format!("sleep ({})", sleep.id()))]);
        let _ = sleep.wait();
    }
}
