//! A private folder in which the binary is run as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder; it goes away with the value.
pub(crate) struct Place(pub(crate) PathBuf);

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
        let events = harness::record::read_events(&self.0.join("results/latest/events.jsonl")).expect("reads");
        assert_eq!(events.problems, Vec::<String>::new());
        assert!(!events.torn);
        events.records
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
