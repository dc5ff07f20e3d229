//! Removes old runs, by number, age and size. Never one that a harness writes,
//! nor the one that `latest` names, nor one so young that it may just begin.

use super::layout::ResultsFolder;
use super::runs::{RunInfo, RunState};
use std::fs::File;
use std::io;
use std::time::{Duration, SystemTime};

/// A folder without a log may belong to a run that begins at this moment.
pub(super) const YOUNG: Duration = Duration::from_secs(600);

/// Which runs may stay. Without any limit all do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The newest so many.
    pub(crate) keep: Option<usize>,
    /// Those written within this time.
    pub(crate) age: Option<Duration>,
    /// As many of the newest as fit into so many bytes.
    pub(crate) bytes: Option<u64>,
}

/// A run that is to go, and why.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    pub(crate) run: RunInfo,
    pub(crate) why: String,
}

/// Which runs go. `runs` are the oldest first.
pub(crate) fn plan(runs: &[RunInfo], latest: Option<&str>, limits: Limits, now: SystemTime) -> Vec<Victim> {
    let age = |run: &RunInfo| now.duration_since(run.written).unwrap_or_default();
    let safe = |run: &RunInfo| {
        let begins = run.state == RunState::Unreadable && age(run) < YOUNG;
        run.state == RunState::Live || begins || latest == Some(run.id.as_str())
    };
    // What stays whatever the limits say takes room all the same.
    let mut room =
        limits.bytes.map(|limit| limit.saturating_sub(runs.iter().filter(|run| safe(run)).map(|run| run.bytes).sum()));
    let mut victims = Vec::new();
    for (rank, run) in runs.iter().rev().enumerate() {
        if safe(run) {
            continue;
        }
        let full = match &mut room {
            Some(left) if *left < run.bytes => {
                *left = 0;
                true
            }
            Some(left) => {
                *left -= run.bytes;
                false
            }
            None => false,
        };
        let why = match () {
            () if limits.keep.is_some_and(|keep| rank >= keep) => format!("older than the newest {rank}"),
            () if limits.age.is_some_and(|limit| age(run) > limit) => {
                format!("written {} days ago", age(run).as_secs() / 86_400)
            }
            () if full => "newer runs fill the room".into(),
            () => continue,
        };
        victims.push(Victim { run: run.clone(), why });
    }
    victims.reverse();
    victims
}

/// Removes one run. It is out of sight at once, even if the removal is interrupted.
pub(crate) fn remove(layout: &ResultsFolder, run: &RunInfo) -> io::Result<()> {
    let log = run.dir.join("events.jsonl");
    // Held until the folder is gone, so that nobody goes on with it.
    let file = File::open(&log);
    if let Ok(file) = &file
        && file.try_lock().is_err()
    {
        return Err(io::Error::other("a harness or another command holds it"));
    }
    let trash = layout.runs().join(format!(".trash-{}-{}", run.id, std::process::id()));
    std::fs::rename(&run.dir, &trash)?;
    std::fs::remove_dir_all(&trash)
}

#[cfg(test)]
mod tests {
    use super::super::header::Header;
    use super::*;

    /// Ten runs of 100 bytes, a day apart, the last written now.
    fn runs() -> (Vec<RunInfo>, SystemTime) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let run = |n: u32| RunInfo {
            id: format!("r{n}"),
            dir: format!("r{n}").into(),
            header: Header::default(),
            headed: true,
            state: RunState::Complete,
            bytes: 100,
            written: now - Duration::from_secs(86_400) * (9 - n),
        };
        ((0..10).map(run).collect(), now)
    }

    #[track_caller]
    fn check(limits: Limits, latest: Option<&str>, change: impl Fn(&mut [RunInfo]), wanted: &str) {
        let (mut runs, now) = runs();
        change(&mut runs);
        let ids: Vec<String> = plan(&runs, latest, limits, now).into_iter().map(|victim| victim.run.id).collect();
        assert_eq!(ids.join(" "), wanted);
    }

    #[test]
    fn limits_take_the_oldest() {
        let keep = |keep| Limits { keep: Some(keep), ..Limits::default() };
        check(Limits::default(), None, |_| {}, "");
        check(keep(8), None, |_| {}, "r0 r1");
        check(keep(0), Some("r9"), |runs| runs[3].state = RunState::Live, "r0 r1 r2 r4 r5 r6 r7 r8");
        check(Limits { age: Some(Duration::from_secs(86_400 * 7)), ..Limits::default() }, None, |_| {}, "r0 r1");
        check(Limits { bytes: Some(750), ..Limits::default() }, None, |_| {}, "r0 r1 r2");
        check(Limits { bytes: Some(750), ..Limits::default() }, Some("r0"), |_| {}, "r1 r2 r3");
        check(
            keep(0),
            None,
            |runs| runs.iter_mut().for_each(|run| run.state = RunState::Unreadable),
            "r0 r1 r2 r3 r4 r5 r6 r7 r8",
        );
    }
}
