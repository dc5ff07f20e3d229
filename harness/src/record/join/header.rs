//! The header of a joined run.

use super::super::header::{GpuChoice, Header, JoinedPart, RecordedGpu, RecordedNvidia};
use super::parts::Job;
use std::collections::BTreeSet;
use std::path::Path;

/// Options and variables that made a run a shard.
const OPTION: &str = "--shard";
const VARIABLES: [&str; 4] = ["GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS", "TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS"];

/// That of the first shard, with what the others say of machines, and without what made it a shard: whoever goes on with the
/// joined run runs what is missing of all.
pub(super) fn of(job: &Job, id: &str, joins: Vec<JoinedPart>) -> Header {
    let all: Vec<&Header> = job.parts().map(|(shard, at, _)| &shard.runs[at].run.header).collect();
    let first = &job.first().run.header;
    let mut header = first.clone();
    header.run_id = Some(id.into());
    (header.shard, header.resumes, header.joins) = (None, None, Some(joins));
    (header.pid, header.summary, header.status, header.record_error) = (None, None, None, damage(job));
    header.started_utc = all.iter().filter_map(|header| header.started_utc.clone()).min();
    header.ended_utc = all.iter().filter_map(|header| header.ended_utc.clone()).max();
    header.argv = first.argv.as_deref().map(without_shard);
    let other = |line: &&String| !VARIABLES.iter().any(|name| line.split('=').next() == Some(name));
    header.from_env = first.from_env.as_ref().map(|lines| lines.iter().filter(other).cloned().collect());
    // A folder of another machine is none to go on in.
    let everywhere = |cwd: &String| Path::new(cwd).is_dir() && all.iter().all(|other| other.cwd.as_ref() == Some(cwd));
    header.cwd = first.cwd.clone().filter(everywhere);
    header.devices = Some(devices(job));
    if let Some(provenance) = &mut header.provenance {
        let hosts: BTreeSet<&str> = all.iter().map(|header| header.host()).filter(|host| !host.is_empty()).collect();
        provenance.host = Some(hosts.into_iter().collect::<Vec<_>>().join(" ")).filter(|hosts| !hosts.is_empty());
    }
    gpus(&mut header, &all);
    header
}

/// Slots by their names in the joined run.
fn devices(job: &Job) -> Vec<String> {
    let of = |(shard, at, name): (&super::parts::ShardRuns, usize, String)| {
        let labels = shard.runs[at].run.header.devices.clone().unwrap_or_default();
        labels.into_iter().map(move |label| format!("{name}.{label}"))
    };
    job.parts().flat_map(of).collect()
}

/// The chosen GPUs of all shards, and what NVML said of them, each once.
fn gpus(header: &mut Header, all: &[&Header]) {
    let mut seen = BTreeSet::new();
    let chosen = all.iter().flat_map(|header| header.chosen.iter().flatten());
    let chosen: Vec<GpuChoice> = chosen.filter(|choice| seen.insert(choice.uuid.clone())).cloned().collect();
    header.chosen = header.chosen.take().map(|_| chosen);
    header.left = header.left.take().map(|_| Vec::new());
    let mut seen = BTreeSet::new();
    let told = all.iter().filter_map(|header| header.nvidia.as_ref()).flat_map(|nvidia| nvidia.gpus.iter().flatten());
    let told: Vec<RecordedGpu> = told.filter(|gpu| seen.insert(gpu.uuid.clone())).cloned().collect();
    header.nvidia = header.nvidia.take().map(|nvidia| RecordedNvidia { gpus: nvidia.gpus.map(|_| told), ..nvidia });
}

/// What is missing in the records of shards.
fn damage(job: &Job) -> Option<String> {
    let of = |(shard, at, _): (&super::parts::ShardRuns, usize, String)| {
        let part = &shard.runs[at];
        let why = part.run.header.record_error.clone();
        let why = why.or_else(|| (!part.run.health.is_whole()).then(|| "its log is damaged".into()));
        why.map(|why| format!("{} (shard {}): {why}", part.info.id, shard.index))
    };
    let parts: Vec<String> = job.parts().filter_map(of).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A command line without the option that chose a part.
fn without_shard(argv: &[String]) -> Vec<String> {
    let mut words = argv.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.strip_prefix(OPTION) {
            Some("") => drop(words.next()),
            Some(value) if value.starts_with('=') => {}
            _ => kept.push(word.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joined_run_is_no_shard() {
        let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
        for (line, wanted) in [
            ("run --shard 1/4:time --sim 2", "run --sim 2"),
            ("run --shard=1/4 --filter A.*", "run --filter A.*"),
            ("run --sharded x", "run --sharded x"),
        ] {
            assert_eq!(without_shard(&words(line)), words(wanted));
        }
    }
}
