//! From what a dead worker left to the outcome of its case.

use super::worker_end::Ending;
use crate::crumb::Page;
use crate::device::Nvml;
use crate::escape::escape;
use crate::evidence::{self, hang, threads};
use crate::os::area::Area;
use crate::os::signal_name;
use crate::outcome::{Death, Outcome, Verdict};
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
    /// The deadline passed: the case's, or that of the named phases.
    Hung { limit: Duration, phase: Option<String> },
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
    death.frames_left_out_at = stack.left_out_at;
}

/// Of a worker that crashed, hung or broke the protocol outside any case.
pub(super) fn teardown(ending: &Ending, death: &Death) -> Outcome {
    let how = match (ending, &death.signal, death.exit_code) {
        (Ending::Broke(what), ..) => format!("the worker broke the protocol between two cases: {what}"),
        (Ending::Hung(limit), ..) => format!("the worker did not end within {} s and was killed", limit.as_secs_f64()),
        (_, Some(signal), _) => signal_outcome(signal, death).1,
        (_, None, code) => format!("the worker exited with code {}", code.unwrap_or_default()),
    };
    let last = death.prior_cases.last().map_or("none", String::as_str);
    let how = match &death.crumb {
        crumb if crumb.lane > 0 && !crumb.case.is_empty() => format!("{how}, which compiled {} ahead", crumb.case),
        _ => how,
    };
    let detail = format!("{how}; the last case that it had ended is {last}{}{}", stack(death), tail(death));
    Outcome::of(Verdict::Crash, "crash.teardown", detail)
}

/// What a hanging worker is at. It still lives after this.
pub(super) fn hang(
    death: &mut Death,
    pid: u32,
    gpu: Option<(&dyn Nvml, &str)>,
    limit: Duration,
    page: &Page,
    area: &Area,
    exe: &Path,
) {
    // Asked first: the threads' answers take their time.
    let gpu_percent = gpu.and_then(|(nvml, uuid)| nvml.look(uuid).ok()?.util_gpu);
    let crumb = page.case();
    let threads = threads::states(pid);
    death.threads = threads.iter().map(|thread| thread.state).collect();
    death.stacks = threads::ask(pid, &threads, area, exe);
    // The thread that the case waits for comes first.
    death.stacks.sort_by_key(|stack| crumb.lane == 0 || stack.thread != crumb.thread);
    death.lanes = page.lanes().into_iter().filter(|other| other.lane != crumb.lane).collect();
    let on_gpu = gpu.is_some();
    let seen = hang::HangFacts { crumb: &crumb, threads: &threads, stacks: &death.stacks, limit, gpu_percent, on_gpu };
    let (name, reason) = hang::name(&seen);
    (death.hang, death.reason, death.crumb) = (name.into(), reason, crumb);
}

/// State and kernel function of a process that could not be killed.
pub(super) fn proc_state(pid: u32) -> String {
    let states = threads::states(pid).into_iter();
    let shown = states.map(|t| format!("{} ({}) {} {}", t.name, t.id, t.state, t.wchan).trim_end().to_string());
    escape(&shown.collect::<Vec<_>>().join(", "), "").into_owned()
}

/// Verdict, stable name and reason.
pub(super) fn outcome(cause: &Cause, death: &Death) -> Outcome {
    let place = place(death);
    match cause {
        Cause::Hung { limit, phase } => {
            let what = phase.as_ref().map_or_else(|| "no end".into(), |phase| format!("no end of phase {phase}"));
            let more = match death.unkillable {
                true => format!("\nthe worker could not be killed and was abandoned: {}", death.proc_state),
                false => String::new(),
            };
            Outcome::of(
                Verdict::Hang,
                &death.hang,
                format!(
                    "{what} within {} s, {place}: {}; threads {}{more}{}{}",
                    limit.as_secs_f64(),
                    death.reason,
                    death.threads,
                    stacks(death),
                    tail(death)
                ),
            )
        }
        Cause::Protocol(what) => Outcome::of(
            Verdict::Crash,
            "crash.protocol",
            format!("the worker broke the protocol {place}: {what}{}", tail(death)),
        ),
        Cause::Died => {
            let (name, how) = match (&death.signal, death.exit_code, &death.caught) {
                // Where nobody saw how it ended, its own handler may have.
                (Some(signal), ..) | (None, None, Some(signal)) => signal_outcome(signal, death),
                (None, Some(code), _) => {
                    ("crash.exit_early", format!("the worker exited with code {code} before the end of the case"))
                }
                (None, None, None) => ("crash.protocol", "the worker closed its socket and lived on".to_string()),
            };
            Outcome::of(Verdict::Crash, name, format!("{how} {place}{}{}", stack(death), tail(death)))
        }
    }
}

fn signal_outcome(signal: &str, death: &Death) -> (&'static str, String) {
    let upper = signal.to_uppercase();
    if let ("sigabrt", Some(file)) = (signal, &death.gpu_core) {
        return ("gpu.exception", format!("a kernel faulted; the driver wrote {file} and ended the worker,"));
    }
    let overflow = death.overflow || death.stderr_tail.contains("has overflowed its stack");
    let name = match signal {
        "sigabrt" | "sigsegv" | "sigbus" if overflow => "crash.stack_overflow",
        "sigabrt" if death.no_memory => "oom.host",
        "sigabrt" => "crash.abort",
        "sigsegv" => "crash.sigsegv",
        "sigbus" => "crash.sigbus",
        "sigill" => "crash.sigill",
        "sigfpe" => "crash.sigfpe",
        "sigtrap" => "crash.sigtrap",
        "sigkill" if death.oom_killed => "crash.oom_killed",
        _ => "crash.killed_external",
    };
    match name {
        "oom.host" => (name, format!("no memory was left for the worker{}", thread(death))),
        "crash.oom_killed" => {
            let note = &death.oom_note;
            (name, format!("the kernel killed the worker by {upper} for want of memory ({note})"))
        }
        "crash.killed_external" if death.oom_note.is_empty() => {
            (name, format!("the worker was killed by {upper}, not by the harness,"))
        }
        "crash.killed_external" => {
            (name, format!("the worker was killed by {upper}, not by the harness ({}),", death.oom_note))
        }
        "crash.stack_overflow" => (name, format!("a stack overflow{}, ended by {upper},", thread(death))),
        _ if death.reason.is_empty() => (name, format!("the worker died of {upper}{}", thread(death))),
        _ => (name, format!("the worker died of {upper} ({}){}", death.reason, thread(death))),
    }
}

fn thread(death: &Death) -> String {
    death.thread.as_ref().map_or_else(String::new, |thread| format!(" in thread {}", escape(thread, "")))
}

fn stacks(death: &Death) -> String {
    const THREADS: usize = 4;
    const SHOWN: usize = 6;
    let mut text = String::new();
    for stack in death.stacks.iter().filter(|stack| !stack.frames.is_empty()).take(THREADS) {
        let lines = stack.lines(SHOWN).join("\n  ");
        text += &format!("\nthread {} ({}) {}:\n  {lines}", escape(&stack.name, ""), stack.thread, stack.state);
    }
    text
}

fn stack(death: &Death) -> String {
    const SHOWN: usize = 8;
    let lines = death.crashed().lines(SHOWN);
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
