//! A private folder in which the binary is run as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder; it goes away with the value.
pub(crate) struct Place(pub(crate) PathBuf);

#[allow(dead_code, reason = "each file of tests uses what it needs")]
impl Place {
    /// With an empty folder of cases.
    pub(crate) fn empty(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("place-{name}-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        Self(dir)
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        std::fs::write(self.0.join(path), text).expect("a file");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_harness"));
        command.current_dir(&self.0).env_remove("BLESS").env("HARNESS_STATE_DIR", &self.0).args(args);
        command
    }

    /// The exit code, and what was printed.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stdout, stderr } = self.command(args).output().expect("runs");
        let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        (status.code().unwrap_or(-1), text)
    }

    /// The records of the latest run.
    pub(crate) fn records(&self) -> Vec<serde_json::Value> {
        self.records_of("results/latest")
    }

    /// The records of the run in that folder, which must be whole.
    pub(crate) fn records_of(&self, run: impl AsRef<Path>) -> Vec<serde_json::Value> {
        let events = harness::record::read_events(&self.0.join(run).join("events.jsonl")).expect("reads");
        assert_eq!(events.problems, Vec::<String>::new());
        assert!(!events.torn);
        events.records
    }

    /// The folder of the run that was written last; `latest` is never a hunt.
    pub(crate) fn newest(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.0.join("results/runs")).expect("a folder").flatten();
        let written = |dir: &PathBuf| dir.join("events.jsonl").metadata().and_then(|data| data.modified()).ok();
        runs.map(|entry| entry.path()).max_by_key(written).expect("a run")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs, and expects the exit code and parts of what is printed.
#[track_caller]
pub(crate) fn check(place: &Place, args: &[&str], exit: i32, parts: &[&str]) -> String {
    let (code, text) = place.run(args);
    assert_eq!(code, exit, "{args:?}:\n{text}");
    for part in parts {
        assert!(text.contains(part), "{args:?} lacks {part:?}:\n{text}");
    }
    assert!(!text.contains("panicked at"), "{text}");
    text
}
