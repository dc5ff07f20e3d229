//! Crashes of a run that was recorded in another folder of results, in the ledger of this one.
//!
//! Inputs: the run as its records tell it, the folder where it was recorded, and the name of the run that has its files
//! here. Output: its kinds of crashes, counted behind what is known here. Whoever calls does so once for a run.
//!
//! Invariant: records may come from anywhere, so a key that is none leads nowhere.

use super::ledger;
use crate::record::Recorded;
use pages::{Crash, Sight};
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// Digits of a leaf's key.
const KEY: usize = 16;

/// Adds the crashes of `run`, recorded in the folder `from`, to the results in which it is a part of `place`.
pub(crate) fn adopt(results: &Path, run: &Recorded, from: &Path, place: &str) -> io::Result<()> {
    let sight = Sight {
        run: place.into(),
        utc: run.header.started_utc.clone().unwrap_or_default(),
        commit: run.header.commit().into(),
    };
    let mut entries: BTreeMap<String, Crash> = BTreeMap::new();
    for (id, case) in &run.cases {
        for attempt in case.attempts.iter().filter(|attempt| attempt.carried_from.is_none()) {
            let Some(leaf) = attempt.bucket.as_ref().filter(|leaf| is_key(leaf)) else { continue };
            let entry = entries.entry(leaf.clone()).or_insert_with(|| Crash {
                family: attempt.family.clone().unwrap_or_default(),
                first: sight.clone(),
                last: sight.clone(),
                ..told(from, leaf)
            });
            ledger::count(entry, id, device(&attempt.worker_id));
            if let (true, Some(folder)) = (entry.exemplar.is_empty(), &attempt.evidence)
                && Path::new(folder).components().all(|part| matches!(part, Component::Normal(_)))
                && results.join("runs").join(place).join(folder).is_dir()
            {
                entry.exemplar = format!("runs/{place}/{folder}");
            }
        }
    }
    ledger::add(results, &entries).map(drop)
}

/// What is told of a leaf where the run was recorded, of which nothing is counted: its calls stand nowhere else.
fn told(from: &Path, leaf: &str) -> Crash {
    let there = from.ancestors().nth(2).map(|root| root.join("crashes").join(leaf).join("bucket.json"));
    let known = there.and_then(|path| std::fs::read(path).ok()).and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Crash { calls, cuda_error, .. } = known.unwrap_or_default();
    Crash { v: ledger::VERSION, leaf: leaf.into(), calls, cuda_error, ..Crash::default() }
}

fn is_key(leaf: &str) -> bool {
    leaf.len() == KEY && leaf.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The device of a worker: `gpu1` of `gpu1-w0`.
fn device(worker: &str) -> &str {
    worker.rsplit_once("-w").map_or(worker, |(device, _)| device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use serde_json::json;

    #[test]
    fn crashes_of_a_run_are_counted_with_their_calls_and_no_path_is_left() {
        let (here, there) = (Scratch::new("adopt-here"), Scratch::new("adopt-there"));
        let leaf = "00112233445566aa";
        let known = there.join("crashes").join(leaf);
        std::fs::create_dir_all(&known).expect("a folder");
        std::fs::write(known.join("bucket.json"), json!({ "calls": ["a::b"], "count": 70 }).to_string())
            .expect("writes");
        std::fs::create_dir_all(here.join("runs/joined/cases/x/a0")).expect("a folder");
        std::fs::create_dir_all(here.join("runs/x/cases")).expect("a folder");
        let mut run = Recorded::default();
        run.push(json!({ "k": "run", "run_id": "r1", "mode": "run" }));
        for (key, evidence) in [(leaf, "../x/cases"), (leaf, "cases/x/a0"), ("../../../../tmp", "cases/x/a0")] {
            run.push(json!({ "k": "attempt", "case_id": "A.a", "worker_id": "gpu1-w0", "verdict": "crash",
                "outcome": "crash.abort", "bucket": key, "family": "crash.abort in run", "evidence": evidence }));
        }
        adopt(&here, &run, &there.join("runs/r1"), "joined").expect("adds");
        let kinds: Vec<_> = std::fs::read_dir(here.join("crashes")).expect("lists").flatten().collect();
        assert_eq!(kinds.len(), 1);
        let bytes = std::fs::read(kinds[0].path().join("bucket.json")).expect("a ledger");
        let crash: Crash = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!((crash.count, crash.runs, crash.devices["gpu1"], crash.cases["A.a"]), (2, 1, 2, 2));
        assert_eq!((crash.calls, crash.exemplar.as_str()), (vec!["a::b".to_string()], "runs/joined/cases/x/a0"));
        assert_eq!((crash.family.as_str(), crash.first.run.as_str()), ("crash.abort in run", "joined"));
    }
}
