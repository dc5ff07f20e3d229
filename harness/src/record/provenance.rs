//! Where results come from: sources, tools and machine.

use super::header::{Provenance, nulls};
use engine::util::run_beside;
use object::{Object, ReadCache};
use std::process::Command;
use std::time::UNIX_EPOCH;

impl Provenance {
    /// [`Provenance::gather`] on a thread of its own while something else is done: it mostly waits for git.
    pub(crate) fn gather_beside<T>(work: impl FnOnce() -> T) -> (Self, T) {
        let (done, gathered) = run_beside(work, Self::gather);
        (gathered, done)
    }

    /// Asks git and `/proc`; what cannot be told is absent.
    pub(crate) fn gather() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let sources = git_status().map(|text| Sources::of(&text)).unwrap_or_default();
        Self {
            harness_version: Some(env!("CARGO_PKG_VERSION").into()),
            rustc: Some(env!("HARNESS_RUSTC").into()),
            profile: Some(env!("HARNESS_PROFILE_NAME").into()),
            build: build(),
            git_sha: sources.sha,
            git_branch: sources.branch,
            git_dirty: sources.dirty,
            host: Some(read("/proc/sys/kernel/hostname").trim().to_string()),
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_string()),
            cpu_model: Some(field(&read("/proc/cpuinfo"), "model name").unwrap_or_default()),
            cpus: Some(std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64),
            mem_bytes: Some(kib << 10),
            other: nulls(&["build", "git_sha", "git_branch", "git_dirty"]),
        }
    }
}

/// What the linker named the binary by, or else its size and time.
fn build() -> Option<String> {
    let file = std::fs::File::open("/proc/self/exe").ok()?;
    let data = file.metadata().ok()?;
    let cache = ReadCache::new(file);
    let id = object::File::parse(&cache).ok().and_then(|parsed| Some(parsed.build_id().ok()??.to_vec()));
    if let Some(id) = id {
        return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
    }
    let modified = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}-{}", data.len(), modified.as_nanos()))
}

/// Commit, branch and changes in one call. Without a lock: it must not get into
/// the way of what somebody does there meanwhile.
fn git_status() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["--no-optional-locks", "status", "--porcelain=v2", "--branch", "--no-ahead-behind"]);
    // Results are written while running; they do not make the sources dirty.
    git.args(["--untracked-files=no", "--", ".", ":(exclude,top)results"]);
    let output = git.stdin(std::process::Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What git says of the sources.
#[derive(Debug, Default, PartialEq)]
struct Sources {
    sha: Option<String>,
    branch: Option<String>,
    dirty: Option<bool>,
}

impl Sources {
    /// Reads `git status --porcelain=v2 --branch`. Without a commit yet there is no
    /// commit; without a branch, it is `HEAD`.
    fn of(status: &str) -> Self {
        let header = |key: &str| status.lines().find_map(|line| line.strip_prefix("# branch.")?.strip_prefix(key));
        let sha = header("oid ").filter(|sha| *sha != "(initial)").map(String::from);
        let branch = header("head ").map(|name| if name == "(detached)" { "HEAD" } else { name }.to_string());
        Self { sha, branch, dirty: Some(status.lines().any(|line| !line.starts_with('#'))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: &str, sha: Option<&str>, branch: &str, dirty: bool) {
        let wanted = Sources { sha: sha.map(String::from), branch: Some(branch.into()), dirty: Some(dirty) };
        assert_eq!(Sources::of(status), wanted);
    }

    #[test]
    fn a_binary_has_a_name_of_its_own() {
        let name = build().expect("a name");
        assert!(name.len() >= 16 && name.chars().all(|c| c.is_ascii_hexdigit() || c == '-'), "{name}");
        assert_eq!(build().as_ref(), Some(&name));
    }

    #[test]
    fn what_git_says_is_read() {
        check("# branch.oid 0123abcd\n# branch.head main\n# branch.upstream o/main\n", Some("0123abcd"), "main", false);
        let changed = "1 .M N... 100644 100644 100644 1111111 1111111 a # b.rs";
        check(&format!("# branch.oid 0123abcd\n# branch.head (detached)\n{changed}\n"), Some("0123abcd"), "HEAD", true);
        check("# branch.oid (initial)\n# branch.head main\n", None, "main", false);
    }
}
