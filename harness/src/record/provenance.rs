//! Where results come from: sources, tools and machine.

use serde::Serialize;
use std::process::Command;

/// Provenance of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Provenance {
    pub(crate) harness_version: &'static str,
    pub(crate) rustc: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) git_sha: Option<String>,
    pub(crate) git_branch: Option<String>,
    pub(crate) git_dirty: Option<bool>,
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) cpu_model: String,
    pub(crate) cpus: usize,
    pub(crate) mem_bytes: u64,
}

impl Provenance {
    /// Asks git and `/proc`; what cannot be told is absent.
    pub(crate) fn gather() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        // Results are written while running; they do not make the sources dirty.
        let status = git(&["status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude,top)results"]);
        Self {
            harness_version: env!("CARGO_PKG_VERSION"),
            rustc: env!("HARNESS_RUSTC"),
            profile: env!("HARNESS_PROFILE_NAME"),
            git_sha: git(&["rev-parse", "HEAD"]),
            git_branch: git(&["rev-parse", "--abbrev-ref", "HEAD"]),
            git_dirty: status.map(|text| !text.is_empty()),
            host: read("/proc/sys/kernel/hostname").trim().to_string(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            cpu_model: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            mem_bytes: kib << 10,
        }
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).stdin(std::process::Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
