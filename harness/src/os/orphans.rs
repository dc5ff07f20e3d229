//! Processes that came to this one when their parents died: found, killed,
//! named. Needs the attribute that makes the kernel bring them here.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What was killed ends within this, or it is left.
const END_LIMIT: Duration = Duration::from_millis(500);
/// Bytes of `/proc/PID/stat` that hold the name and the fields up to the time of the start.
const STAT: usize = 512;

/// Whether `/proc` shows the processes of this process's namespace. In a new one
/// the old `/proc` may still be mounted: its numbers are those of other processes.
pub(crate) fn proc_is_ours() -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let own = std::fs::read_link("/proc/self").ok();
        own.is_some_and(|link| link.to_str() == Some(&std::process::id().to_string()))
    })
}

/// A child of this process, as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) zombie: bool,
    /// It waits in the kernel, perhaps for ever, and so may whoever reads its memory.
    pub(crate) blocked: bool,
    /// Its process group and session: 0 where their leader is outside of this
    /// process's namespace.
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// When it began, in the kernel's ticks since the machine did.
    pub(crate) began: u64,
}

impl Child {
    /// Whether it cannot be told what it is: a process that is just being replaced
    /// by another program has no environment for a moment.
    pub(crate) fn is_unclear(&self) -> bool {
        self.blocked
            || !self.zombie && std::fs::read(format!("/proc/{}/environ", self.pid)).is_ok_and(|env| env.is_empty())
    }

    /// The value of a variable of its environment. A process that has ended has none,
    /// and one that the kernel holds is not asked: the answer may never come.
    pub(crate) fn variable(&self, key: &str) -> Option<Vec<u8>> {
        if self.blocked {
            return None;
        }
        let env = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        let mut pairs = env.split(|byte| *byte == 0);
        pairs.find_map(|pair| pair.strip_prefix(key.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec))
    }

    /// Whether it works in this folder or below it, or has one of these pipes open, by
    /// their inodes. What a process inherits it keeps, unless it takes care.
    pub(crate) fn has_any(&self, folder: Option<&Path>, pipes: &[u64]) -> bool {
        let process = format!("/proc/{}", self.pid);
        let works_in = || std::fs::read_link(format!("{process}/cwd")).ok();
        if folder.is_some_and(|folder| works_in().is_some_and(|cwd| cwd.starts_with(folder))) {
            return true;
        }
        let open = std::fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
        let mut links = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.any(|link| pipes.iter().any(|pipe| link.as_os_str() == format!("pipe:[{pipe}]").as_str()))
    }

    /// Whether its environment has this variable with this value.
    pub(crate) fn has_variable(&self, key: &str, value: &str) -> bool {
        self.variable(key).is_some_and(|found| found == value.as_bytes())
    }
}

/// All children of this process. The processes of the machine, which may be
/// thousands, are not looked through where one call tells that there are none.
pub(crate) fn children() -> Vec<Child> {
    if !proc_is_ours() {
        return Vec::new();
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if rustix::process::waitid(WaitId::All, options).err() == Some(rustix::io::Errno::CHILD) {
        return Vec::new();
    }
    let me = std::process::id() as i32;
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(process).filter(|(parent, _)| *parent == me).map(|(_, child)| child).collect()
}

/// The process group of this process. Asked of `/proc`, since a group whose leader
/// is outside of the namespace has number 0, which is no [`Pid`].
pub(crate) fn own_group() -> Option<i32> {
    if !proc_is_ours() {
        return None;
    }
    process(std::process::id() as i32).map(|(_, own)| own.group)
}

/// When a process began, if it is there.
pub(crate) fn began(pid: u32) -> Option<u64> {
    process(pid as i32).map(|(_, process)| process.began)
}

/// Whether a process has ended, or is not there any more.
pub(crate) fn has_ended(pid: u32) -> bool {
    process(pid as i32).is_none_or(|(_, process)| process.zombie)
}

/// A process and its parent's number.
fn process(pid: i32) -> Option<(i32, Child)> {
    let mut bytes = [0; STAT];
    let len = std::fs::File::open(format!("/proc/{pid}/stat")).and_then(|mut stat| stat.read(&mut bytes)).ok()?;
    let stat = String::from_utf8_lossy(&bytes[..len]);
    // The name may hold anything; the fields follow its last `)`.
    let (head, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse::<i32>().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    // Fields 7 to 21 are of no use here.
    let began = fields.nth(15)?.parse().ok()?;
    let name = head.split_once('(')?.1.to_string();
    Some((parent, Child { pid, name, zombie: state == "Z", blocked: state == "D", group, session, began }))
}

/// Kills and reaps those of the children that are meant. Returns their names; one
/// that had ended by itself is reaped and named too.
pub(crate) fn reap(children: &[Child], meant: impl Fn(&Child) -> bool) -> Vec<String> {
    let (mut names, mut dying) = (Vec::new(), Vec::new());
    for child in children.iter().filter(|child| meant(child)) {
        let Some(pid) = Pid::from_raw(child.pid) else { continue };
        names.push(format!("{} ({})", child.name, child.pid));
        if !child.zombie {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        dying.push(pid);
    }
    // A process that was killed takes a moment to end.
    let deadline = Instant::now() + END_LIMIT;
    loop {
        dying.retain(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
        if dying.is_empty() || Instant::now() >= deadline {
            return names;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// A process gives itself its name.
    #[test]
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_a_child_of_any_name_is_found() {
        assert!(proc_is_ours(), "/proc is of other processes");
        let script = "printf 'a) Z 1 \\377' > /proc/$$/comm; echo named; read line";
        let mut command = Command::new("sh");
        let piped = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("starts");
        let mut named = [0; 6];
        child.stdout.take().expect("is piped").read_exact(&mut named).expect("is told");
        let pid = child.id() as i32;
        let found = children().into_iter().find(|found| found.pid == pid);
        drop(child.stdin.take());
        child.wait().expect("ends");
        let found = found.expect("is found");
        assert!(found.name.starts_with("a) Z 1 ") && !found.zombie, "{found:?}");
    }

    #[test]
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_children_are_found_with_their_environment() {
        assert!(proc_is_ours(), "/proc is of other processes");
        let mut command = std::process::Command::new("sleep");
        let mut sleep = command.arg("60").env("ORPHAN_TEST", "a=b").spawn().expect("starts");
        let pid = sleep.id() as i32;
        let mine = |child: &Child| child.pid == pid;
        let found = children().into_iter().find(|child| mine(child)).expect("is there");
        let (_, own) = process(std::process::id() as i32).expect("is there");
        assert!(!found.zombie && found.session == own.session && Some(found.group) == own_group());
        assert!(found.began >= own.began && began(sleep.id()) == Some(found.began) && !has_ended(sleep.id()));
        // Between fork and exec it still has its parent's environment.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !found.has_variable("ORPHAN_TEST", "a=b") && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert!(found.has_variable("ORPHAN_TEST", "a=b") && !found.has_variable("ORPHAN_TEST", "a"));
        assert_eq!(reap(&children(), mine), [format!("sleep ({pid})")]);
        // On a busy machine it may take longer to end than anybody waits for it.
        while children().iter().any(mine) && std::time::Instant::now() < deadline {
            reap(&children(), mine);
        }
        // Reaped too: no zombie is left, and nobody can wait for it.
        assert!(!children().iter().any(mine) && has_ended(sleep.id()));
        assert!(sleep.wait().is_err());
    }
}
