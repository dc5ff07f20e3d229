//! A private folder in which the binary is run as a user would.

use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

/// Variables by which a test runner around this one would change what is run.
const VARIABLES: [&str; 16] = [
    "BLESS",
    "GTEST_FILTER",
    "GTEST_TOTAL_SHARDS",
    "GTEST_SHARD_INDEX",
    "TEST_TOTAL_SHARDS",
    "TEST_SHARD_INDEX",
    "TEST_SHARD_STATUS_FILE",
    "TESTBRIDGE_TEST_ONLY",
    "HARNESS_FILTER",
    "HARNESS_EXPR",
    "HARNESS_QUIET",
    "HARNESS_FAILURES_ONLY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_CONFIG_PARAMETERS",
];

/// The command without what is said to the test runner.
pub(crate) fn unswayed(command: &mut Command) -> &mut Command {
    VARIABLES.iter().fold(command, |command, name| command.env_remove(name))
}

/// Sends a signal to a process; whether it was there.
pub(crate) fn signal(pid: impl TryInto<i32>, signal: Signal) -> bool {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, signal).is_ok()
}

/// A file with one fusion of one input.
#[derive(Clone, Copy)]
pub(crate) struct CaseFile<'a> {
    pub(crate) suite: &'a str,
    /// Lines of the front matter: axes, tags, requirements.
    pub(crate) front: &'a str,
    /// The input's type.
    pub(crate) input: &'a str,
    pub(crate) op: &'a str,
    /// The input's size; `$m` where that is an axis.
    pub(crate) size: &'a str,
    /// Lines behind the inputs.
    pub(crate) more: &'a str,
}

/// A case that passes.
pub(crate) const GOOD: CaseFile<'static> =
    CaseFile { suite: "PlaceTest", front: "", input: "f32[?]", op: "add %x, %x", size: "4", more: "" };

impl CaseFile<'_> {
    fn text(&self, name: &str) -> String {
        let Self { suite, front, input, op, size, more } = self;
        format!(
            "---\nversion = 1\nsuite = \"{suite}\"\nabout = \"why\"\n{front}---\nfusion @{name}(%x: {input}) {{\n  \
             %0 = {op}\n  return %0\n}}\n; inputs: x = normal[{size}]\n{more}"
        )
    }
}

/// The folder; it goes away with the value.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    /// With an empty folder of cases.
    pub(crate) fn empty(name: &str) -> Self {
        // Tests of one process may give their places one name.
        static PLACES: AtomicU64 = AtomicU64::new(0);
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let dir = format!("{name}-{}-{number}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(dir);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        Self(dir)
    }

    /// With the case `good`, once or over the sizes of its axis `m`.
    pub(crate) fn good(name: &str, sizes: &[usize]) -> Self {
        let place = Self::empty(name);
        let axis = format!("[axes]\nm = {sizes:?}\n");
        let over = CaseFile { front: &axis, size: "$m", ..GOOD };
        place.case("good", if sizes.is_empty() { GOOD } else { over });
        place
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).expect("a file");
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).expect("reads")
    }

    /// A script that can be run.
    pub(crate) fn program(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a file");
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a program");
    }

    /// A case of that name in a file of that name.
    pub(crate) fn case(&self, name: &str, file: CaseFile<'_>) {
        self.file(&format!("cases/{name}.fuse"), &file.text(name));
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program_here(env!("CARGO_BIN_EXE_harness"));
        command.args(args);
        command
    }

    /// Another program that runs in the folder, and starts the binary.
    pub(crate) fn program_here(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        unswayed(command.current_dir(&self.0).env("HARNESS_STATE_DIR", &self.0));
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        ended(self.command(args).output().expect("runs"))
    }

    /// The records of the latest run.
    pub(crate) fn records(&self) -> Vec<Value> {
        records(&self.path("results/latest"))
    }

    /// The folder of the run that was written last; `latest` is never a hunt.
    pub(crate) fn newest(&self) -> PathBuf {
        let runs = std::fs::read_dir(self.path("results/runs")).expect("a folder").flatten();
        let written = |dir: &PathBuf| dir.join("events.jsonl").metadata().and_then(|data| data.modified()).ok();
        runs.map(|entry| entry.path()).max_by_key(written).expect("a run")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The exit code, and what was printed.
pub(crate) fn ended(Output { status, stdout, stderr }: Output) -> (i32, String) {
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    assert!(!text.contains("panicked at"), "{text}");
    (status.code().unwrap_or(-1), text)
}

/// The records of the run in that folder; a last line may be cut, no other.
pub(crate) fn records(run: &Path) -> Vec<Value> {
    let events = harness::record::read_events(&run.join("events.jsonl")).expect("reads");
    assert_eq!(events.problems, Vec::<String>::new());
    events.records
}

/// Runs, and expects the exit code and parts of what is printed.
#[track_caller]
pub(crate) fn check(place: &Place, args: &[&str], exit: i32, parts: &[&str]) -> String {
    let (code, text) = place.run(args);
    assert_eq!(code, exit, "{args:?}:\n{text}");
    for part in parts {
        assert!(text.contains(part), "{args:?} lacks {part:?}:\n{text}");
    }
    text
}
