//! The folder of a joined run, and what the tables of history have of it.

use super::super::clock::utc_stamp;
use super::super::header::{JoinedPart, RunEnd, Summary};
use super::super::layout::{ResultsFolder, link_latest, replace};
use super::super::merge::copy_dir;
use super::super::recorded::Recorded;
use super::super::run_rows;
use super::super::runs::RunInfo;
use super::log::{JoinedLog, fields_of};
use super::parts::{Job, Part, ShardRuns};
use super::{Refused, header};
use crate::exit;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// A run that was joined.
pub(crate) struct Joined {
    pub(crate) id: String,
    pub(crate) dir: PathBuf,
    pub(crate) run: Recorded,
    pub(crate) code: u8,
    /// It was there already.
    pub(crate) is_old: bool,
}

impl Joined {
    /// The runs of its job that nothing here told of before.
    pub(crate) fn own_parts<'j>(&self, job: &'j Job) -> impl Iterator<Item = &'j Part> {
        let joins = self.run.header.joins.iter().flatten().filter(|part| part.told_by.is_none());
        let own: BTreeSet<String> = joins.filter_map(|part| part.run_id.clone()).collect();
        job.parts().map(|(shard, at, _)| &shard.runs[at]).filter(move |part| own.contains(&part.info.id))
    }
}

/// The runs of which joined runs of a folder tell.
pub(crate) fn told(layout: &ResultsFolder) -> io::Result<BTreeSet<String>> {
    Ok(Told::of(&layout.list()?).by.into_keys().collect())
}

/// Joins a job into a folder of results, under a name of the caller's or its own.
pub(crate) fn write(layout: &ResultsFolder, job: &Job, wanted: Option<&str>) -> io::Result<Result<Joined, Refused>> {
    std::fs::create_dir_all(layout.runs())?;
    let joins = joins(layout, job)?;
    let id = wanted.map_or_else(|| id_of(job), String::from);
    let dir = layout.runs().join(&id);
    if dir.exists() {
        return found(&id, dir, &joins);
    }
    let header = header::of(job, &id, joins);
    let mut log = JoinedLog::read(job, &header, &dir)?;
    let (status, summary) = ended(job, &log.run);
    let end = RunEnd { status: Some(status.into()), summary: Some(summary.clone()), ..RunEnd::default() };
    log.push(log.run.last_ns, "end", fields_of(end.to_value()));
    log.run.header.status = Some(status.into());
    log.run.header.summary = Some(summary.clone());
    log.run.header.cases_selected = Some(log.run.selected.len() as u64);
    let fresh = layout.runs().join(format!(".incoming-{id}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&fresh);
    let written = std::fs::create_dir_all(&fresh).and_then(|()| {
        for (shard, at, _) in job.parts() {
            let cases = shard.runs[at].info.dir.join("cases");
            if cases.is_dir() {
                copy_dir(&cases, &fresh.join("cases"))?;
            }
        }
        replace(&fresh.join("events.jsonl"), &log.bytes()?)?;
        replace(&fresh.join("run.json"), format!("{:#}\n", log.run.header.to_value()).as_bytes())?;
        std::fs::rename(&fresh, &dir)
    });
    written.inspect_err(|_| drop(std::fs::remove_dir_all(&fresh)))?;
    link_latest(layout.root(), &id)?;
    let code = summary.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::INCOMPLETE);
    Ok(Ok(Joined { id, dir, run: log.run, code, is_old: false }))
}

/// The run that has the name already: the same one, or another.
fn found(id: &str, dir: PathBuf, joins: &[JoinedPart]) -> io::Result<Result<Joined, Refused>> {
    let run = Recorded::load(&dir)?;
    let names = |joins: &[JoinedPart]| joins.iter().filter_map(|part| part.run_id.clone()).collect::<BTreeSet<_>>();
    if run.header.joins.as_deref().map(names) != Some(names(joins)) {
        let notes = vec!["give it another name: --run-id NAME".into()];
        return Ok(Err(Refused { why: format!("there is a run of the name {id}, of other shards"), notes }));
    }
    let code =
        run.header.summary.as_ref().and_then(|summary| summary.exit_code).and_then(|code| u8::try_from(code).ok());
    Ok(Ok(Joined { id: id.into(), dir, run, code: code.unwrap_or(exit::INCOMPLETE), is_old: true }))
}

/// A name of the time at which the first shard began, the same for the same runs.
fn id_of(job: &Job) -> String {
    let parts = || job.parts().map(|(shard, at, _)| &shard.runs[at].info);
    let names: BTreeSet<&str> = parts().map(|info| info.id.as_str()).collect();
    let began = parts().map(RunInfo::started).min().unwrap_or_default();
    let stamp: String = began.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let stamp = if stamp.len() == 16 { stamp } else { utc_stamp(true) };
    let crc = crc32fast::hash(names.into_iter().collect::<Vec<_>>().join(" ").as_bytes());
    format!("{stamp}-{:06x}", crc & 0xff_ffff)
}

/// What all shards came to: the worst of their codes and of the verdicts, and that not all ran.
fn ended(job: &Job, run: &Recorded) -> (&'static str, Summary) {
    let open = run.unjudged();
    let code_of = |shard: &ShardRuns| shard.head().run.header.summary.as_ref()?.exit_code;
    let told = job.shards.iter().map(|shard| code_of(shard).and_then(|code| u8::try_from(code).ok()));
    let counts = run.counts();
    let has = |names: &[&str]| names.iter().any(|name| counts.contains_key(*name));
    let verdicts = [(&["infra"][..], exit::INFRA), (&["crash", "hang"], exit::CRASHED), (&["fail"], exit::FAILED)];
    let judged = verdicts.into_iter().filter(|(names, _)| has(names)).map(|(_, code)| code);
    let missing = job.missing();
    let not_all = (open > 0 || !missing.is_empty()).then_some(exit::INCOMPLETE);
    let code = exit::worst(told.map(|code| code.unwrap_or(exit::INCOMPLETE)).chain(judged).chain(not_all));
    let shards: Vec<_> =
        job.shards.iter().map(|shard| json!({ "shard": shard.index, "exit_code": code_of(shard) })).collect();
    let mut summary = Summary {
        exit_code: Some(code.into()),
        elapsed_ns: Some(run.last_ns),
        counts: Some(counts),
        passed_by: Some(run.passed_by()),
        ..Summary::default()
    };
    summary.other.extend([("shards".into(), json!(shards)), ("missing".into(), json!(missing))]);
    (if not_all.is_some() { "incomplete" } else { "complete" }, summary)
}

/// The parts, each with the run under whose name tables have its rows already: itself, where it is here or was,
/// or an earlier joined run.
fn joins(layout: &ResultsFolder, job: &Job) -> io::Result<Vec<JoinedPart>> {
    let told = Told::of(&layout.list()?);
    let in_tables = run_rows::names(&layout.history());
    let of = |(shard, at, _): (&ShardRuns, usize, String)| {
        let id = &shard.runs[at].info.id;
        let here = layout.runs().join(id).exists() || in_tables.contains(id);
        let by = told.by.get(id).cloned().or_else(|| here.then(|| id.clone()));
        JoinedPart { run_id: Some(id.clone()), shard: Some(shard.index), told_by: by, ..JoinedPart::default() }
    };
    Ok(job.parts().map(of).collect())
}

/// Which runs are told by joined ones, in the tables of history.
#[derive(Default)]
pub(in crate::record) struct Told {
    /// By the name of the part.
    by: BTreeMap<String, String>,
}

impl Told {
    pub(in crate::record) fn of(runs: &[RunInfo]) -> Self {
        let mut by = BTreeMap::new();
        for info in runs {
            for part in info.header.joins.iter().flatten().filter(|part| part.told_by.is_none()) {
                by.extend(part.run_id.clone().map(|id| (id, info.id.clone())));
            }
        }
        Self { by }
    }

    /// Whether a run adds nothing of its own, since a joined one tells of it.
    pub(in crate::record) fn silences(&self, id: &str) -> bool {
        self.by.contains_key(id)
    }

    /// Whether a joined run tells of a case: its shard's run does not. Every other run tells of all its cases.
    pub(in crate::record) fn tells(run: &Recorded, case: &str) -> bool {
        let Some(joins) = &run.header.joins else { return true };
        let from = run.cases.get(case).and_then(|case| case.concluded.as_ref()?.joined_from.as_deref());
        let own = |part: &&JoinedPart| part.told_by.is_none() && part.run_id.as_deref() == from;
        from.is_some() && joins.iter().any(|part| own(&part))
    }
}
