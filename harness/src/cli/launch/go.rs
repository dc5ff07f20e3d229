//! The course of a launched run: submit, wait, submit again what was lost, join.

use super::plan::{LaunchPlan, code_of, results_of};
use super::slurm::{Array, Slurm, TaskState, refused};
use crate::cli::args::Args;
use crate::cli::run::finish;
use crate::cli::run::options::RunOptions;
use crate::cli::session::Folders;
use crate::cli::store::join;
use crate::cli::{Failure, run};
use crate::console::{complain, print};
use crate::exit;
use crate::record::{RunInfo, RunState, merge};
use crate::report::Detail;
use crate::units::counted;
use engine::diag::{Diagnostic, code};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often what was lost is queued again.
const ROUNDS: usize = 3;
/// How often the controller is asked, at first and later.
const ASK: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(5));
/// For how long a controller that does not answer is asked again.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long tasks have to end when they are cancelled.
const CANCELLED: Duration = Duration::from_secs(60);

/// Runs the cases on the cluster. Returns the exit code of all.
pub(in crate::cli) fn launch(args: &Args) -> Result<u8, Failure> {
    let slurm = Slurm::find()?;
    let plan = LaunchPlan::of(args)?;
    let stop = run::stop_flag();
    let tell = Tell { quiet: args.records.detail == Detail::Quiet };
    plan.notes.iter().for_each(|note| tell.line(note));
    let mut open: Vec<usize> = (1..=plan.tasks).collect();
    for round in 1..=ROUNDS {
        let array = Array { tasks: &open, script: &plan.script, folder: &plan.folder, options: &plan.options };
        let job = match slurm.submit(&array) {
            // What the others have recorded is not lost with it.
            Err(failure) if round > 1 => {
                complain(&failure.message);
                break;
            }
            submitted => submitted?,
        };
        tell.line(&format!("{} of Slurm, job {job}, in {}", counted(open.len(), "task"), plan.folder.display()));
        wait(&slurm, &job, &stop, &tell).map_err(|failure| with_records(failure, &plan))?;
        open.retain(|task| was_lost(&plan.folder, *task));
        let words: Vec<String> = open.iter().map(usize::to_string).collect();
        if open.is_empty() || stop.load(Ordering::Relaxed) != 0 {
            break;
        }
        // Also where nobody wants to see progress: a node may have to be looked at.
        let again = if round < ROUNDS { "what they had not run is queued again" } else { "that was the last try" };
        complain(&format!("without an end: {} ({}); {again}", counted(open.len(), "task"), words.join(", ")));
    }
    collect(args, &plan, stop.load(Ordering::Relaxed))
}

/// An error after which the records of the tasks are where they are.
fn with_records(failure: Failure, plan: &LaunchPlan) -> Failure {
    let place = plan.folder.display();
    let way = format!("  note: the tasks record in {place}; `harness store join {place}/shard-*` joins what is there");
    Failure::new(failure.exit, format!("{}\n{way}", failure.message.trim_end()))
}

/// Progress, for whoever wants it.
struct Tell {
    quiet: bool,
}

impl Tell {
    fn line(&self, text: &str) {
        if !self.quiet {
            print(&format!("{}\n", crate::escape::escape(text, "")));
        }
    }
}

/// Waits until no task of a job is left. A signal cancels them.
fn wait(slurm: &Slurm, job: &str, stop: &AtomicUsize, tell: &Tell) -> Result<(), Failure> {
    let (mut pause, mut answered, mut cancelled) = (ASK.0, Instant::now(), None);
    let mut before: BTreeMap<usize, TaskState> = BTreeMap::new();
    loop {
        match slurm.queue(job) {
            Ok(now) => {
                told(&before, &now).iter().for_each(|line| tell.line(line));
                if now.is_empty() {
                    return Ok(());
                }
                if cancelled.is_some_and(|at: Instant| at.elapsed() > CANCELLED) {
                    return slurm.kill(job);
                }
                (before, answered) = (now, Instant::now());
            }
            Err(failure) if answered.elapsed() > PATIENCE => return Err(failure),
            Err(_) => {}
        }
        if cancelled.is_none() && stop.load(Ordering::Relaxed) != 0 {
            slurm.cancel(job)?;
            cancelled = Some(Instant::now());
            pause = ASK.0;
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && (cancelled.is_some() || stop.load(Ordering::Relaxed) == 0) {
            std::thread::sleep(ASK.0.min(until.saturating_duration_since(Instant::now())));
        }
        pause = (pause * 3 / 2).min(ASK.1);
    }
}

/// What is new since the last look.
fn told(before: &BTreeMap<usize, TaskState>, now: &BTreeMap<usize, TaskState>) -> Vec<String> {
    let line =
        |(task, state): (&usize, &TaskState)| format!("task {task}: {} ({})", state.state.to_lowercase(), state.place);
    let changed =
        now.iter().filter(|(task, state)| before.get(*task).map(|old| &old.state) != Some(&state.state)).map(line);
    let gone = before.keys().filter(|task| !now.contains_key(task)).map(|task| format!("task {task}: ended"));
    changed.chain(gone).collect()
}

/// The runs of a task.
fn runs_of(folder: &Path, task: usize) -> Vec<RunInfo> {
    merge::runs_at(&results_of(folder, task)).unwrap_or_default().into_iter().filter(RunInfo::judges).collect()
}

/// How a task ended, where it did.
fn ended(folder: &Path, task: usize) -> Option<u8> {
    std::fs::read_to_string(code_of(folder, task)).ok()?.trim().parse().ok()
}

/// Whether a task's shard is to be run on: its record has no end, and it was not refused.
fn was_lost(folder: &Path, task: usize) -> bool {
    let is_whole = runs_of(folder, task).iter().any(|run| run.state == RunState::Complete);
    !is_whole && ended(folder, task).is_none_or(|code| code > exit::SIGNAL_BASE)
}

/// Joins what the tasks have recorded, and says what came of it.
fn collect(args: &Args, plan: &LaunchPlan, stopped: usize) -> Result<u8, Failure> {
    let results = Folders::of(args).results;
    let folder = plan.folder.display();
    let infos: Vec<RunInfo> = (1..=plan.tasks).flat_map(|task| runs_of(&plan.folder, task)).collect();
    if infos.is_empty() {
        let diagnostic = Diagnostic::user(code::NO_LAUNCHER, "no task has left a record");
        return Err(refused(diagnostic.note(format!("{folder}/task-1.log says what the first one did"))));
    }
    let joined = join::unite(&results, infos, args.records.run_id.as_deref());
    let joined = joined.map_err(|failure| with_records(failure, plan))?;
    let options = RunOptions::of(args).record;
    let (mut text, mut codes, mut is_whole) = (String::new(), Vec::new(), true);
    for (job, joined) in &joined {
        codes.push(join::tell(&mut text, job, joined));
        is_whole &= job.missing().is_empty() && joined.run.unjudged() == 0;
        if let Err(why) = finish::reports(&options, &joined.run) {
            text.push_str(&format!("a report could not be written: {why}\n"));
            codes.push(exit::NO_RECORD);
        }
    }
    codes.extend(
        (1..=plan.tasks)
            .filter(|task| runs_of(&plan.folder, *task).is_empty())
            .filter_map(|task| ended(&plan.folder, task)),
    );
    print(&text);
    // All of it is in the joined run; what is not whole may be looked at.
    if is_whole {
        let _ = std::fs::remove_dir_all(&plan.folder);
    } else {
        complain(&format!("what the tasks said is in {folder}/task-*.log"));
    }
    Ok(if stopped == 0 { exit::worst(codes) } else { exit::SIGNAL_BASE + stopped as u8 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_in_the_queue_is_told_once() {
        let state = |state: &str, place: &str| TaskState { state: state.into(), place: place.into() };
        let first = BTreeMap::from([(1, state("PENDING", "Resources")), (2, state("RUNNING", "n1"))]);
        assert_eq!(told(&BTreeMap::new(), &first), ["task 1: pending (Resources)", "task 2: running (n1)"]);
        let second = BTreeMap::from([(1, state("RUNNING", "n2"))]);
        assert_eq!(told(&first, &second), ["task 1: running (n2)", "task 2: ended"]);
        assert!(told(&second, &second).is_empty());
    }
}
