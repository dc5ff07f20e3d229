//! From the remains of a worker to the outcome of its case.

use super::Death;
use crate::crumb::Page;
use crate::escape::escape;
use crate::evidence::{self, area::Area};
use crate::os::signal_name;
use crate::verdict::{Outcome, Verdict};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

/// How a case came to its end without an `end` message.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// The socket was closed or the process ended.
    Died,
    /// The worker broke the protocol and was killed for it.
    Protocol(String),
    /// The deadline passed.
    Hung { limit: Duration },
}

pub(super) fn fill(death: &mut Death, status: Option<ExitStatus>) {
    death.signal = status.and_then(|s| s.signal()).map(signal_name);
    death.exit_code = status.and_then(|s| s.code());
}

/// What the worker's signal handler saw of its crash.
pub(super) fn crash(death: &mut Death, area: &Area, page: &Page, exe: &Path) {
    let Some(raw) = area.crash() else { return };
    death.si_code = Some(raw.si_code);
    death.caught = Some(signal_name(raw.signal));
    (death.reason, death.overflow) = (raw.reason(), raw.is_overflow());
    death.fault_addr = raw.has_address().then(|| format!("{:#x}", raw.fault_addr));
    death.thread = Some(format!("{} ({})", raw.name, raw.thread));
    death.crumb = page.of_thread(raw.thread).unwrap_or_else(|| page.read());
    let lane = death.crumb.lane;
    death.lanes = page.lanes().into_iter().filter(|crumb| crumb.lane != lane).collect();
    let stack = evidence::stacks(&[raw], &area.maps(), exe).pop().unwrap_or_default();
    (death.frames, death.frames_left_out) = (stack.frames, stack.left_out);
}

/// Verdict, stable name and reason.
pub(super) fn outcome(cause: &Cause, death: &Death) -> Outcome {
    let place = place(death);
    match cause {
        Cause::Hung { limit } => {
            let name = hang_name(&death.threads);
            let seconds = limit.as_secs_f64();
            let more = if death.unkillable { "; the worker could not be killed" } else { "" };
            Outcome::of(
                Verdict::Hang,
                name,
                format!("no end within {seconds} s, {place}; threads {}{more}", death.threads),
            )
        }
        Cause::Protocol(what) => Outcome::of(
            Verdict::Crash,
            "crash.protocol",
            format!("the worker broke the protocol {place}: {what}{}", tail(death)),
        ),
        Cause::Died => {
            let (name, how) = match (&death.signal, death.exit_code) {
                (Some(signal), _) => signal_outcome(signal, death),
                (None, Some(code)) => {
                    ("crash.exit_early", format!("the worker exited with code {code} before the end of the case"))
                }
                (None, None) => ("crash.protocol", "the worker closed its socket and lived on".to_string()),
            };
            Outcome::of(Verdict::Crash, name, format!("{how} {place}{}{}", stack(death), tail(death)))
        }
    }
}

fn signal_outcome(signal: &str, death: &Death) -> (&'static str, String) {
    let upper = signal.to_uppercase();
    let overflow = death.overflow || death.stderr_tail.contains("has overflowed its stack");
    let name = match signal {
        "sigabrt" | "sigsegv" | "sigbus" if overflow => "crash.stack_overflow",
        "sigabrt" => "crash.abort",
        "sigsegv" => "crash.sigsegv",
        "sigbus" => "crash.sigbus",
        "sigill" => "crash.sigill",
        "sigfpe" => "crash.sigfpe",
        "sigtrap" => "crash.sigtrap",
        _ => "crash.killed_external",
    };
    match name {
        "crash.killed_external" => (name, format!("the worker was killed by {upper}, not by the harness,")),
        "crash.stack_overflow" => (name, format!("a stack overflow{}, ended by {upper},", thread(death))),
        _ if death.reason.is_empty() => (name, format!("the worker died of {upper}{}", thread(death))),
        _ => (name, format!("the worker died of {upper} ({}){}", death.reason, thread(death))),
    }
}

fn thread(death: &Death) -> String {
    death.thread.as_ref().map_or_else(String::new, |thread| format!(" in thread {}", escape(thread, "")))
}

fn stack(death: &Death) -> String {
    const SHOWN: usize = 8;
    let lines = evidence::lines(&death.frames, death.frames_left_out, SHOWN);
    if lines.is_empty() { String::new() } else { format!("\nstack:\n  {}", lines.join("\n  ")) }
}

/// `in phase launch (kernel_x)`.
fn place(death: &Death) -> String {
    let crumb = &death.crumb;
    match crumb.name.is_empty() {
        true => format!("in phase {}", crumb.phase),
        false => format!("in phase {} ({})", crumb.phase, crumb.name),
    }
}

fn tail(death: &Death) -> String {
    let text = death.stderr_tail.trim();
    if text.is_empty() {
        return String::new();
    }
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(12);
    format!("\nstderr:\n  {}", lines[from..].join("\n  "))
}

fn hang_name(threads: &str) -> &'static str {
    match threads {
        t if t.contains('T') || t.contains('t') => "hang.stopped",
        t if t.contains('R') => "hang.host",
        t if t.contains('D') => "hang.uninterruptible",
        _ => "hang.deadlock",
    }
}

/// The states of all threads of a process, one letter each, as the busiest of
/// three looks: a thread that runs is often seen asleep.
pub(super) fn thread_states(pid: u32) -> String {
    let look = || {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return String::new() };
        let state = |entry: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name may hold anything; the state follows its last `)`.
            stat.rsplit_once(") ")?.1.chars().next()
        };
        tasks.filter_map(|entry| state(entry.ok()?)).collect::<String>()
    };
    let mut states = look();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(10));
        let again = look();
        if again.matches('R').count() > states.matches('R').count() {
            states = again;
        }
    }
    states
}
