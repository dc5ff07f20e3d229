//! The threads of a live process: their states, and where they are.
//!
//! Each thread is asked to write down its own stack (SIGUSR2, `os::crash`). One
//! that cannot, because it is stopped, blocks signals or waits in the kernel,
//! is read from outside as far as the kernel allows.

use super::stack::stacks;
use crate::os;
use crate::os::area::{Area, REGISTER_COUNT, Raw, STACK_LEN, STACK_REGISTER};
use crate::outcome::Stack;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for all threads to answer together.
const PATIENCE: Duration = Duration::from_millis(500);
/// Threads that are looked at; a worker has tens.
const MAX_THREADS: usize = 512;

/// The state of a thread of which the kernel does not tell.
pub(crate) const UNKNOWN: char = '?';

/// What the kernel says about a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// As in `/proc`: `R S D T t Z` and others.
    pub(crate) state: char,
    /// The kernel function in which it waits, if it may be known.
    pub(crate) wchan: String,
}

/// All threads, the first one first, in the busiest of three looks: a thread
/// that runs is often seen asleep.
pub(crate) fn states(pid: u32) -> Vec<ThreadState> {
    let mut best = look(pid);
    let busy = |threads: &[ThreadState]| threads.iter().filter(|thread| thread.state == 'R').count();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(10));
        let again = look(pid);
        if busy(&again) > busy(&best) {
            best = again;
        }
    }
    best
}

fn look(pid: u32) -> Vec<ThreadState> {
    if !os::orphans::proc_is_ours() {
        // The first thread has the number of its process; it can be asked where it is.
        return vec![ThreadState { id: pid, state: UNKNOWN, ..ThreadState::default() }];
    }
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let thread = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let (id, name) = head.split_once(" (")?;
        let wchan = std::fs::read_to_string(entry.path().join("wchan")).unwrap_or_default();
        let wchan = if wchan == "0" { String::new() } else { wchan };
        Some(ThreadState { id: id.parse().ok()?, name: name.into(), state: tail.chars().next()?, wchan })
    };
    let mut threads: Vec<_> = tasks.filter_map(|entry| thread(entry.ok()?)).take(MAX_THREADS).collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// The stacks of all threads of a worker that runs `exe`.
pub(crate) fn ask(pid: u32, threads: &[ThreadState], area: &Area, exe: &Path) -> Vec<Stack> {
    let able: Vec<u32> = threads.iter().filter(|t| !"TtZX".contains(t.state)).map(|t| t.id).collect();
    let sent = able.iter().filter(|id| os::signal_thread(pid, **id, os::ASK)).count();
    let deadline = Instant::now() + PATIENCE;
    let mut answers = area.answers();
    while answers.iter().filter(|raw| raw.complete).count() < sent && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
        answers = area.answers();
    }
    let raws: Vec<Raw> = threads
        .iter()
        .filter_map(|thread| {
            let answer = answers.iter().position(|raw| raw.thread == thread.id);
            answer.map(|at| answers.swap_remove(at)).or_else(|| outside(pid, thread))
        })
        .collect();
    let maps = match os::orphans::proc_is_ours() {
        true => maps(pid).unwrap_or_default(),
        false => area.maps(),
    };
    let mut stacks = stacks(&raws, &maps, exe);
    for thread in threads {
        let state = match thread.wchan.as_str() {
            "" => thread.state.to_string(),
            wchan => format!("{} in {wchan}", thread.state),
        };
        match stacks.iter_mut().find(|stack| stack.thread == thread.id) {
            Some(stack) => stack.state = state,
            // Not even the kernel says where it is.
            None => stacks.push(Stack { thread: thread.id, name: thread.name.clone(), state, ..Stack::default() }),
        }
    }
    stacks.sort_by_key(|stack| stack.thread);
    stacks
}

/// The module map. Read on a thread of its own: it takes a lock of the process
/// that one which is stuck in the kernel may hold for ever.
fn maps(pid: u32) -> Option<String> {
    let (sender, text) = std::sync::mpsc::sync_channel(1);
    let read = move || drop(sender.send(std::fs::read_to_string(format!("/proc/{pid}/maps"))));
    std::thread::Builder::new().name("maps".into()).spawn(read).ok()?;
    text.recv_timeout(PATIENCE).ok()?.ok()
}

/// The same from outside: program counter and stack pointer of a thread that
/// waits, and its stack as the kernel gives it to the parent.
fn outside(pid: u32, thread: &ThreadState) -> Option<Raw> {
    if thread.state == UNKNOWN {
        return None;
    }
    let syscall = std::fs::read_to_string(format!("/proc/{pid}/task/{}/syscall", thread.id)).ok()?;
    // The last two numbers; a thread that runs has none.
    let mut words = syscall.split_ascii_whitespace().rev();
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, stack_pointer) = (hex()?, hex()?);
    let mut stack = vec![0; STACK_LEN];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let len = memory.read_at(&mut stack, stack_pointer).unwrap_or(0);
    stack.truncate(len);
    let mut registers = vec![0; REGISTER_COUNT];
    registers[STACK_REGISTER] = stack_pointer;
    let (name, stack_base) = (thread.name.clone(), stack_pointer);
    Some(Raw { thread: thread.id, name, pc, registers, stack_base, stack, ..Raw::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that cannot answer is seen from outside.
    #[test]
    #[ignore = "needs /proc of its own processes"]
    fn needs_proc_a_foreign_process_is_read_from_outside() {
        assert!(os::orphans::proc_is_ours(), "/proc is of other processes");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let deadline = Instant::now() + Duration::from_secs(10);
        let thread = loop {
            let threads = states(child.id());
            match threads.into_iter().next() {
                Some(thread) if thread.name == "sleep" && thread.state == 'S' => break thread,
                _ => assert!(Instant::now() < deadline, "it does not sleep"),
            }
        };
        assert_eq!(thread.id, child.id());
        let raw = outside(child.id(), &thread);
        let allowed = std::fs::File::open(format!("/proc/{}/mem", child.id())).is_ok();
        child.kill().and_then(|()| child.wait()).expect("ends");
        // A kernel may forbid it; where it does not, the stack is there.
        if allowed && let Some(raw) = raw {
            assert!(raw.pc != 0 && raw.stack_base != 0 && !raw.stack.is_empty());
        }
        assert_eq!(states(child.id()), []);
    }
}
