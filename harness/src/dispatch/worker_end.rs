//! The end of a worker outside any case: what is told about it, and what it left.

use super::home::Home;
use crate::code_cache::CodeUse;
use crate::os::{self, Life, orphans};
use crate::outcome::{Death, Leak, Outcome};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
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
pub(crate) struct WorkerEnd {
    /// Its crash outside any case: `crash.teardown`.
    pub(crate) crash: Option<Box<(Outcome, Death)>>,
    /// Processes that outlived it.
    pub(crate) leaks: Vec<Leak>,
    /// Processes that it left, or another worker that ended in the same moment.
    pub(crate) unclear: Vec<Leak>,
    /// What it shared of compiled kernels, as far as it could say.
    pub(crate) code: Option<CodeUse>,
    /// How long it took to go, in nanoseconds, where it was let go.
    pub(super) going_ns: Option<u64>,
    /// Its private folder, which goes away with this: all that it ran was told before.
    pub(super) home: Option<Arc<Home>>,
}

impl WorkerEnd {
    /// What is recorded of it: kinds and fields.
    pub(super) fn records(&self, worker: &str) -> Vec<(&'static str, Value)> {
        let crash = self.crash.iter().map(|crash| {
            let (outcome, death) = &**crash;
            let (name, detail) = (&outcome.outcome, &outcome.detail);
            let fields =
                json!({ "event": "crashed", "worker_id": worker, "outcome": name, "detail": detail, "death": death });
            ("worker", fields)
        });
        let leaks = self.leaks.iter().map(|leak| ("leak", leak_fields(Some(worker), None, leak)));
        let unclear = self.unclear.iter().map(|leak| ("leak", leak_fields(None, None, leak)));
        crash.chain(leaks).chain(unclear).collect()
    }
}

/// The fields of a leak's record.
pub(super) fn leak_fields(worker: Option<&str>, case_id: Option<&str>, leak: &Leak) -> Value {
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

/// A worker whose worker_end is not over.
#[derive(Clone, Debug)]
struct Live {
    pid: u32,
    /// When it began.
    began: u64,
    /// What only its own processes have: its folder, and the pipes that it writes to.
    home: Option<PathBuf>,
    pipes: Vec<u64>,
}

impl Live {
    fn of(child: &Child, command: &Command) -> Self {
        let pid = child.id();
        let stdout = child.stdout.as_ref().and_then(|pipe| rustix::fs::fstat(pipe).ok());
        let stderr = child.stderr.as_ref().and_then(|pipe| rustix::fs::fstat(pipe).ok());
        Self {
            pid,
            began: orphans::began(pid).unwrap_or(u64::MAX),
            home: command.get_current_dir().map(PathBuf::from),
            pipes: [stdout, stderr].into_iter().flatten().map(|pipe| pipe.st_ino).collect(),
        }
    }
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
    live.push(Live::of(&child, command));
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

/// The worker_end of a worker that was reaped is over. A new one may have its number.
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

/// Who left a child that has nothing that names its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    ByThis,
    /// It is another one's to name, or nobody's.
    ByAnother,
    /// This one or another one that ended as well.
    Unclear,
}

/// As long as a worker lives, what it leaves comes to it and not to here. So it was one
/// that has ended: the one whose folder or pipes the child still has, or the only one. A
/// worker that ended as it should (`well`) leaves it to the others. `workers_only` tells
/// whether a child of which nothing is known can be a worker's only.
fn left_by_whom(child: &orphans::Child, worker: u32, well: bool, workers_only: bool) -> Left {
    let live = live();
    let of = |known: &Live| [child.pid, child.group, child.session].contains(&(known.pid as i32));
    let Some(mine) = live.iter().find(|known| known.pid == worker) else { return Left::ByAnother };
    if live.iter().any(of) || child.variable("HARNESS_WORKER").is_some() {
        return Left::ByAnother;
    }
    // A worker whose worker_end is over was reaped after the children were looked at.
    if orphans::began(child.pid as u32) != Some(child.began) {
        return Left::ByAnother;
    }
    if let Some(known) = live.iter().find(|known| child.has_any(known.home.as_deref(), &known.pipes)) {
        return if known.pid == worker { Left::ByThis } else { Left::ByAnother };
    }
    if !workers_only || child.began < mine.began {
        return Left::ByAnother;
    }
    let other = |known: &Live| known.pid != worker && known.began <= child.began && orphans::has_ended(known.pid);
    match live.iter().any(other) {
        false => Left::ByThis,
        true if well => Left::ByAnother,
        true => Left::Unclear,
    }
}

/// What a worker left, and what it or another one left.
#[derive(Debug, Default)]
pub(super) struct LeftProcesses {
    pub(super) own: Vec<Leak>,
    pub(super) unclear: Vec<Leak>,
}

/// Kills and names the processes that a dead worker left: those of its process
/// group or session, those with its name in their environment, and those that left
/// both and cleared their environment, see [`left_by_whom`]. `well` tells whether
/// it ended as it should.
pub(super) fn left_by(worker: u32, id: &str, well: bool) -> LeftProcesses {
    let (pid, workers_only) = (worker as i32, WORKERS_ONLY.load(Ordering::SeqCst));
    let left = |child: &orphans::Child, patient: bool| {
        let tied = child.group == pid || child.session == pid || child.has_variable("HARNESS_WORKER", id);
        match child.pid != pid {
            true if tied => Left::ByThis,
            true if !(patient && child.is_unclear()) => left_by_whom(child, worker, well, workers_only),
            _ => Left::ByAnother,
        }
    };
    let (mut own, mut unclear) = (Vec::new(), Vec::new());
    // One after the other: what one has seen and killed is not another's to name.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut children = orphans::children();
    for generation in 0..GENERATIONS {
        let patient = generation < PATIENT;
        let before = own.len() + unclear.len();
        unclear.extend(orphans::reap(&children, |child| left(child, patient) == Left::Unclear));
        own.extend(orphans::reap(&children, |child| left(child, patient) == Left::ByThis));
        let found = own.len() + unclear.len() > before;
        if !found && !children.iter().any(|child| child.pid != pid && child.is_unclear()) {
            break;
        }
        // The children of what was killed come here in a moment.
        std::thread::sleep(Duration::from_millis(2));
        children = orphans::children();
    }
    sweep(&children);
    let leaks = |mut names: Vec<String>| {
        names.sort();
        names.dedup();
        let leak = (!names.is_empty()).then(|| Leak::new("leak.process", names.join(", ")));
        leak.into_iter().collect()
    };
    LeftProcesses { own: leaks(own), unclear: leaks(unclear) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use std::os::unix::process::CommandExt;
    use std::process::Stdio;

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
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_a_group_ends_before_its_leader_is_reaped() {
        assert!(orphans::proc_is_ours(), "/proc is of other processes");
        let mut child = worker("sleep 60 & exit 3");
        let mut status = None;
        wait(|| {
            status = reap(&mut child, |_| {});
            status.is_some()
        });
        assert_eq!(status.and_then(|status| status.code()), Some(3));
        let leaks = left_by(child.id(), "none", false).own;
        // Between fork and exec it still has its parent's name.
        let named = ["sleep (", "sh ("].iter().any(|name| leaks[0].detail.starts_with(name));
        assert!(leaks.len() == 1 && named, "{leaks:?}");
        over(child.id());
        assert!(!orphans::children().iter().any(|left| left.group == child.id() as i32));
    }

    /// A child of this process and what it does; it stands for a stray.
    fn stray(script: &str, folder: &std::path::Path) -> (Child, orphans::Child) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env_clear().current_dir(folder).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let mut line = [0; 2];
        let out = child.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(out, &mut line).expect("it works");
        let found = orphans::children().into_iter().find(|found| found.pid == child.id() as i32);
        (child, found.expect("is there"))
    }

    /// Two workers that ended in the same moment: what works in the folder of one, or
    /// writes to its pipes, is that one's; of what has neither nobody knows.
    #[test]
    fn what_has_no_name_is_charged_only_to_who_left_it() {
        let dirs = ["left-a", "left-b", "left-c"].map(Scratch::new);
        let workers = [&dirs[0], &dirs[1]].map(|dir| {
            let mut child = spawn(Command::new("true").current_dir(&**dir), &[], None).expect("starts");
            child.wait().expect("ends");
            child.id()
        });
        let [mine, other] = workers;
        let check = |dir: &Scratch, wanted: [Left; 3]| {
            let (mut child, stray) = stray("echo x; read line", dir);
            let by = [(mine, false), (mine, true), (other, false)];
            let found = by.map(|(worker, well)| left_by_whom(&stray, worker, well, true));
            let pipe = rustix::fs::fstat(child.stdout.as_ref().expect("a pipe")).expect("is there").st_ino;
            assert!(stray.has_any(None, &[pipe]) && !stray.has_any(None, &[]));
            let _ = child.kill();
            let _ = child.wait();
            found == wanted
        };
        assert!(check(&dirs[0], [Left::ByThis, Left::ByThis, Left::ByAnother]));
        assert!(check(&dirs[1], [Left::ByAnother, Left::ByAnother, Left::ByThis]));
        assert!(check(&dirs[2], [Left::Unclear, Left::ByAnother, Left::Unclear]));
        over(other);
        // Workers of other tests may have ended too.
        let alone = || check(&dirs[2], [Left::ByThis, Left::ByThis, Left::ByAnother]);
        wait(alone);
        over(mine);
    }

    #[test]
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_only_zombies_that_belong_to_no_worker_are_swept() {
        assert!(orphans::proc_is_ours(), "/proc is of other processes");
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
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_a_process_of_another_group_is_found_by_its_environment() {
        assert!(orphans::proc_is_ours(), "/proc is of other processes");
        let mut command = std::process::Command::new("sleep");
        let mut sleep = command.arg("60").env("HARNESS_WORKER", "test-w0").spawn().expect("starts");
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let mut leaks = Vec::new();
        // Between fork and exec it still has its parent's environment.
        while leaks.is_empty() && std::time::Instant::now() < deadline {
            assert_eq!(left_by(u32::MAX >> 1, "test-w1", true).own, []);
            leaks = left_by(u32::MAX >> 1, "test-w0", true).own;
        }
        assert_eq!(leaks, [Leak::new("leak.process", format!("sleep ({})", sleep.id()))]);
        let _ = sleep.wait();
    }
}
