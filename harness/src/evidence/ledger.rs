//! `results/crashes/<leaf>/bucket.json`: what is known of a crash over all runs.

use super::bucket::Bucket;
use crate::os::FileLock;
use pages::Crash;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Of the form of an entry.
pub(super) const VERSION: u32 = 1;
/// Cases and devices that one entry names.
const NAMED: usize = 100;
/// Leaves that one run may add to; one that breaks everywhere needs no more.
const LEAVES: usize = 500;

/// A kind of crash of which nothing is counted yet.
pub(super) fn begin(bucket: &Bucket) -> Crash {
    let Bucket { leaf, family, calls, cuda_error } = bucket.clone();
    Crash { v: VERSION, leaf, family, calls, cuda_error, ..Crash::default() }
}

/// Counts one more failed attempt.
pub(super) fn count(crash: &mut Crash, case: &str, device: &str) {
    crash.count += 1;
    for (names, name) in [(&mut crash.cases, case), (&mut crash.devices, device)] {
        if names.len() < NAMED || names.contains_key(name) {
            *names.entry(name.to_string()).or_default() += 1;
        }
    }
}

/// What one run saw behind what is known of earlier ones.
fn behind(seen: &Crash, earlier: Crash) -> Crash {
    let mut all = Crash { count: earlier.count + seen.count, runs: earlier.runs + 1, ..seen.clone() };
    all.first = if earlier.runs > 0 { earlier.first } else { seen.first.clone() };
    for (names, more) in [(&mut all.cases, earlier.cases), (&mut all.devices, earlier.devices)] {
        for (name, count) in more {
            if names.len() < NAMED || names.contains_key(&name) {
                *names.entry(name).or_default() += count;
            }
        }
    }
    // An exemplar stays as long as its run does; the caller drops it if it is gone.
    if !earlier.exemplar.is_empty() {
        all.exemplar = earlier.exemplar;
    }
    all
}

/// Adds the crashes of one run to the folder of results. Returns what is known
/// of each leaf now. A damaged entry is put aside and begun again.
pub(crate) fn add(results: &Path, entries: &BTreeMap<String, Crash>) -> io::Result<BTreeMap<String, Crash>> {
    let mut known = BTreeMap::new();
    if entries.is_empty() {
        return Ok(known);
    }
    let _lock = FileLock::acquire(&results.join("lock"))?;
    for (leaf, entry) in entries.iter().take(LEAVES) {
        let folder = results.join("crashes").join(leaf);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("bucket.json");
        let mut earlier = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|_| {
                let _ = std::fs::rename(&path, folder.join("bucket.json.damaged"));
                Crash::default()
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Crash::default(),
            Err(error) => return Err(error),
        };
        if !results.join(&earlier.exemplar).is_dir() {
            earlier.exemplar.clear();
        }
        let all = behind(entry, earlier);
        crate::record::replace(&path, format!("{:#}\n", serde_json::json!(all)).as_bytes())?;
        known.insert(leaf.clone(), all);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use pages::Sight;

    #[test]
    fn runs_add_up() {
        let dir = Scratch::new("ledger");
        std::fs::create_dir_all(dir.join("runs/r1/cases/a")).expect("a folder");
        let bucket = Bucket { leaf: "00ff".into(), family: "crash.abort in run".into(), ..Bucket::default() };
        let run = |run: &str, cases: &[&str]| {
            let mut entry = begin(&bucket);
            cases.iter().for_each(|case| count(&mut entry, case, "gpu1"));
            let sight = Sight { run: run.into(), ..Sight::default() };
            (entry.first, entry.last) = (sight.clone(), sight);
            entry.exemplar = format!("runs/{run}/cases/a");
            add(&dir, &BTreeMap::from([("00ff".to_string(), entry)])).expect("adds")["00ff"].clone()
        };
        run("r1", &["A", "A", "B"]);
        let both = run("r2", &["B"]);
        assert_eq!((both.count, both.runs, both.cases["B"], both.devices["gpu1"]), (4, 2, 2, 4));
        assert_eq!((both.first.run.as_str(), both.last.run.as_str()), ("r1", "r2"));
        assert_eq!(both.exemplar, "runs/r1/cases/a");
        // A run that is gone is no exemplar; a damaged ledger costs its past only.
        std::fs::remove_dir_all(dir.join("runs")).expect("removes");
        assert_eq!(run("r3", &["B"]).exemplar, "runs/r3/cases/a");
        std::fs::write(dir.join("crashes/00ff/bucket.json"), b"{\"count\": ").expect("writes");
        assert_eq!(run("r4", &["C"]).count, 1);
        assert!(dir.join("crashes/00ff/bucket.json.damaged").exists());
    }
}
