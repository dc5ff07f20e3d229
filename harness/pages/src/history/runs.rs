//! Runs of a device, as far as tables and headers tell.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A run. What is not known of it is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// `run`, `bench`, `hunt`, ...
    pub(crate) command: String,
    /// As RFC 3339.
    pub(crate) started: String,
    pub(crate) commit: String,
    pub(crate) dirty: bool,
    pub(crate) host: String,
    /// UUIDs, with blanks between.
    pub(crate) gpus: String,
    pub(crate) driver: String,
    pub(crate) options: String,
    /// Of its header, where that is here: how it ended, cases by verdict, how long it took.
    pub(crate) status: String,
    pub(crate) counts: BTreeMap<String, u64>,
    pub(crate) elapsed_ns: Option<u64>,
    pub(crate) exit_code: Option<u64>,
}

impl Run {
    /// A run of which only the name is known.
    pub(crate) fn named(id: &str) -> Self {
        Self { id: id.into(), started: stamp_of(id).unwrap_or_default(), ..Self::default() }
    }

    /// The first letters of the commit; `+` stands for changes that no commit has.
    pub(crate) fn short_commit(&self) -> String {
        let short: String = self.commit.chars().take(7).collect();
        if self.dirty && !short.is_empty() { format!("{short}+") } else { short }
    }

    /// Day and minute of its start.
    pub(crate) fn when(&self) -> String {
        match (self.started.get(..10), self.started.get(11..16)) {
            (Some(day), Some(minute)) => format!("{day} {minute}"),
            _ => self.id.clone(),
        }
    }

    /// What its command is called; of old runs nobody wrote it down.
    pub(crate) fn kind(&self) -> &str {
        if self.command.is_empty() { "not recorded" } else { &self.command }
    }

    /// Takes over what a header knows and the table does not.
    pub(crate) fn know(&mut self, header: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let fill = |field: &mut String, value: String| {
            if field.is_empty() {
                *field = value;
            }
        };
        fill(&mut self.command, text(&header["mode"]));
        fill(&mut self.started, text(&header["started_utc"]));
        fill(&mut self.commit, text(&header["provenance"]["git_sha"]));
        fill(&mut self.host, text(&header["provenance"]["host"]));
        fill(&mut self.driver, text(&header["nvidia"]["driver"]));
        self.dirty |= header["provenance"]["git_dirty"] == true;
        self.status = text(&header["status"]);
        let summary = &header["summary"];
        self.elapsed_ns = summary["elapsed_ns"].as_u64();
        self.exit_code = summary["exit_code"].as_u64();
        let counts = summary["counts"].as_object().into_iter().flatten();
        self.counts = counts.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?))).collect();
    }
}

/// The time in a run's name, as RFC 3339.
pub(crate) fn stamp_of(id: &str) -> Option<String> {
    let stamp = id.get(..16).filter(|stamp| stamp.ends_with('Z') && stamp.as_bytes()[8] == b'T')?;
    let digits = stamp.bytes().filter(u8::is_ascii_digit).count();
    let part = |from: usize, to: usize| stamp.get(from..to);
    (digits == 14).then_some(())?;
    Some(format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(9, 11)?,
        part(11, 13)?,
        part(13, 15)?
    ))
}

/// Headers of the runs that are in a folder of results, with the name of their device's history.
pub(super) fn headers(results: &Path) -> BTreeMap<String, Value> {
    let folders = std::fs::read_dir(results.join("runs")).into_iter().flatten().flatten();
    let header = |folder: std::fs::DirEntry| {
        let text = std::fs::read_to_string(folder.path().join("run.json")).ok()?;
        Some((folder.file_name().to_string_lossy().into_owned(), serde_json::from_str(&text).ok()?))
    };
    folders.filter_map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_tell_times() {
        assert_eq!(stamp_of("20261121T063000Z-3fa9c1").as_deref(), Some("2026-11-21T06:30:00Z"));
        for other in ["nightly", "20261121T0630xxZ-3fa9c1", "üüüüüüüüüüüüüüüüü", ""] {
            assert_eq!(stamp_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_header_fills_in_what_the_table_lacks() {
        let mut run = Run { commit: "0123456789".into(), ..Run::named("20261121T063000Z-3fa9c1") };
        run.know(&json!({ "mode": "bench", "provenance": { "git_sha": "other", "git_dirty": true },
            "summary": { "counts": { "pass": 3 }, "elapsed_ns": 5 }, "status": "complete" }));
        assert_eq!(
            (run.kind(), run.short_commit().as_str(), run.when().as_str()),
            ("bench", "0123456+", "2026-11-21 06:30")
        );
        assert_eq!((run.counts["pass"], run.elapsed_ns), (3, Some(5)));
    }
}
