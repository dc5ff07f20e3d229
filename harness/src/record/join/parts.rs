//! Which runs make a job, and what of it is missing.

use super::super::recorded::Recorded;
use super::super::runs::{RunInfo, RunState};
use std::collections::{BTreeMap, BTreeSet};

/// A run with all its records.
pub(crate) struct Part {
    pub(crate) info: RunInfo,
    pub(crate) run: Recorded,
}

/// The runs of one shard: the one that stands for it, behind those that it went on with.
pub(crate) struct ShardRuns {
    /// From 1.
    pub(crate) index: u64,
    pub(crate) runs: Vec<Part>,
}

/// All that is there of a job.
pub(crate) struct Job {
    pub(crate) count: u64,
    pub(crate) shards: Vec<ShardRuns>,
    /// Runs of shards for which others stand, with the reason.
    pub(crate) left_out: Vec<String>,
}

/// Why runs are not joined, in words, with ways out.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) why: String,
    pub(crate) notes: Vec<String>,
}

impl Refused {
    fn new(why: String, note: &str) -> Self {
        Self { why, notes: vec![note.into()] }
    }
}

impl ShardRuns {
    /// The run that stands for the shard.
    pub(super) fn head(&self) -> &Part {
        &self.runs[self.runs.len() - 1]
    }

    /// The run that tells of a case: the last that came to a verdict, or that from which it took the verdict over;
    /// of a case without any, the last that tried it.
    pub(super) fn decider(&self, id: &str) -> Option<usize> {
        let with = |has: &dyn Fn(&Part) -> bool| self.runs.iter().rposition(has);
        let concluded = |part: &Part| part.run.cases.get(id).is_some_and(|case| case.concluded.is_some());
        let at = with(&concluded).or_else(|| with(&|part| part.run.cases.contains_key(id)))?;
        let verdict = self.runs[at].run.cases.get(id).and_then(|case| case.concluded.as_ref());
        let from = verdict.and_then(|verdict| verdict.carried_from.as_deref());
        let first = from.and_then(|from| self.runs.iter().position(|part| part.info.id == from));
        Some(first.filter(|first| concluded(&self.runs[*first])).unwrap_or(at))
    }
}

impl Job {
    /// All runs, shard by shard, each with its name in the joined run: `s2`, or `s2.1` of one that was gone on with.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&ShardRuns, usize, String)> {
        self.shards.iter().flat_map(|shard| {
            let last = shard.runs.len() - 1;
            (0..=last).map(move |at| {
                let name = format!("s{}", shard.index);
                (shard, at, if at == last { name } else { format!("{name}.{}", at + 1) })
            })
        })
    }

    /// The shards of which there is no run.
    pub(crate) fn missing(&self) -> Vec<u64> {
        let here: BTreeSet<u64> = self.shards.iter().map(|shard| shard.index).collect();
        (1..=self.count).filter(|index| !here.contains(index)).collect()
    }

    /// The command of its runs.
    pub(crate) fn mode(&self) -> &str {
        self.first().run.header.mode()
    }

    /// The run that stands for the first shard.
    pub(super) fn first(&self) -> &Part {
        self.shards[0].head()
    }
}

/// The jobs whose shards are among the runs, one for each command (`run`, `bench`).
pub(crate) fn jobs(infos: Vec<RunInfo>) -> Result<Vec<Job>, Refused> {
    let mut by_command: BTreeMap<String, Vec<Part>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for info in infos.into_iter().filter(|info| info.header.shard.is_some() && info.judges()) {
        if info.state == RunState::Live {
            let why = format!("{} is under way: a harness is writing it at this moment", info.id);
            return Err(Refused::new(why, "join when it has ended"));
        }
        if seen.insert(info.id.clone()) {
            let run = info.load().map_err(|error| {
                Refused::new(format!("{} cannot be read: {error}", info.id), "leave it out, or `harness store repair`")
            })?;
            by_command.entry(run.header.mode().into()).or_default().push(Part { info, run });
        }
    }
    by_command.into_values().map(job).collect()
}

/// The job of runs of one command.
fn job(parts: Vec<Part>) -> Result<Job, Refused> {
    let first = marks(&parts[0].run);
    for part in &parts[1..] {
        let own = marks(&part.run);
        if let Some(((what, then), (_, now))) = first.iter().zip(&own).find(|(a, b)| a != b) {
            let why = format!(
                "{} is of another job than {}: {what} {}, there {}",
                part.info.id,
                parts[0].info.id,
                shown(now),
                shown(then)
            );
            let mut refused = Refused::new(why, "name the runs that are meant: store join RUN...");
            if *what == DEALT {
                refused.notes.push("with `:time` all shards need the same history; `:hash` needs none".into());
            }
            return Err(refused);
        }
    }
    let count = parts[0].run.header.shard.as_ref().and_then(|shard| shard.count).unwrap_or(0);
    let mut by_index: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
    for part in parts {
        let index = part.run.header.shard.as_ref().and_then(|shard| shard.index).unwrap_or(0);
        by_index.entry(index).or_default().push(part);
    }
    let mut job = Job { count, shards: Vec::new(), left_out: Vec::new() };
    for (index, parts) in by_index {
        let runs = standing(index, parts, &mut job.left_out)?;
        job.shards.push(ShardRuns { index, runs });
    }
    Ok(job)
}

const DEALT: &str = "the digest of its selected cases and of who has which is";

/// What all shards of a job have in common, with words for it.
fn marks(run: &Recorded) -> [(&'static str, String); 6] {
    let header = &run.header;
    let shard = header.shard.clone().unwrap_or_default();
    let dirty = if header.is_dirty() { " with local changes" } else { "" };
    [
        ("the number of shards is", shard.count.unwrap_or(0).to_string()),
        ("its case files have the checksum", header.cases_crc.clone().unwrap_or_default()),
        ("its device is", run.device().unwrap_or_default()),
        ("its commit is", format!("{}{dirty}", header.commit())),
        ("its seed is", header.seed.unwrap_or(0).to_string()),
        (DEALT, shard.dealt.unwrap_or_default()),
    ]
}

fn shown(text: &str) -> String {
    if text.is_empty() { "none".into() } else { crate::escape::short(text).into() }
}

/// Of the runs of one shard the one that stands for it, with those that it went on with, in order.
fn standing(index: u64, mut parts: Vec<Part>, left_out: &mut Vec<String>) -> Result<Vec<Part>, Refused> {
    let resumed: BTreeSet<String> = parts.iter().filter_map(|part| part.run.header.resumes.clone()).collect();
    let mut heads: Vec<&Part> = parts.iter().filter(|part| !resumed.contains(&part.info.id)).collect();
    let complete = |part: &&&Part| part.info.state == RunState::Complete;
    if heads.len() > 1 {
        let whole: Vec<&Part> = heads.iter().filter(complete).copied().collect();
        if let [one, other, ..] = whole[..] {
            let why = format!("shard {index} is there twice: {} and {} are complete", one.info.id, other.info.id);
            return Err(Refused::new(why, "name the runs that are meant: store join RUN..."));
        }
        heads.sort_by_key(|part| (part.info.state == RunState::Complete, part.info.started(), part.info.written));
    }
    let Some(head) = heads.last().map(|part| part.info.id.clone()) else {
        return Err(Refused::new(format!("the runs of shard {index} go on with each other"), "name one of them"));
    };
    let mut chain = Vec::new();
    let mut wanted = Some(head.clone());
    while let Some(at) = wanted.take().and_then(|id| parts.iter().position(|part| part.info.id == id)) {
        let part = parts.remove(at);
        wanted.clone_from(&part.run.header.resumes);
        chain.push(part);
    }
    chain.reverse();
    left_out.extend(parts.iter().map(|part| format!("{}: shard {index} is told by {head}", part.info.id)));
    Ok(chain)
}
