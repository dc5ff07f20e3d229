//! What else of this machine matters for a run: tools, limits and files that the
//! kernel offers. Looked at, never changed.

use serde::Serialize;
use std::path::{Path, PathBuf};

/// NVIDIA's memory and race checker, if it is installed.
pub(crate) fn find_sanitizer() -> Option<PathBuf> {
    sanitizer_places().into_iter().find(|file| is_program(file))
}

/// Where it is looked for: in `PATH`, in the toolkit that `CUDA_HOME` or
/// `CUDA_PATH` names, and in the usual places.
pub(crate) fn sanitizer_places() -> Vec<PathBuf> {
    let name = "compute-sanitizer";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        if let Some(root) = std::env::var_os(variable).map(PathBuf::from) {
            places.extend([root.join("bin"), root.join("compute-sanitizer")]);
        }
    }
    places.extend(["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/cuda/bin"].map(PathBuf::from));
    places.into_iter().map(|folder| folder.join(name)).collect()
}

/// A program on the path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What the kernel allows and offers to this process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Host {
    /// Bytes of a core dump: the limit that a worker could raise it to.
    pub(crate) core_limit: Option<u64>,
    pub(crate) core_unlimited: bool,
    /// Where the kernel puts core dumps.
    pub(crate) core_pattern: Option<String>,
    pub(crate) open_files: Option<u64>,
    /// States of threads can be read.
    pub(crate) proc_threads: bool,
    /// Kernel stacks of threads can be read.
    pub(crate) proc_stacks: bool,
    /// 0: any process of the same user may be traced; 1: only children.
    pub(crate) ptrace_scope: Option<u32>,
    /// The memory controller of this process's group, version 2.
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) cgroup_memory_max: Option<String>,
    /// A named pipe can be made, as the trigger of GPU core dumps needs.
    pub(crate) pipes: bool,
    /// The kernel log, where Xids name a process, can be read.
    pub(crate) kernel_log: bool,
}

/// Looks.
pub(crate) fn host() -> Host {
    use rustix::process::{Resource, getrlimit};
    let core = getrlimit(Resource::Core).maximum;
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
    let cgroup = own_cgroup();
    Host {
        core_limit: core,
        core_unlimited: core.is_none(),
        core_pattern: read("/proc/sys/kernel/core_pattern"),
        open_files: getrlimit(Resource::Nofile).maximum,
        proc_threads: crate::os::orphans::proc_is_ours() && std::fs::read_dir("/proc/self/task").is_ok(),
        proc_stacks: std::fs::read("/proc/self/stack").is_ok(),
        ptrace_scope: read("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.parse().ok()),
        cgroup_memory_max: cgroup.as_ref().and_then(|group| read(&group.join("memory.max").to_string_lossy())),
        cgroup,
        pipes: makes_pipes(),
        kernel_log: std::fs::File::open("/dev/kmsg").is_ok(),
    }
}

/// This process's group in the unified hierarchy, where it has a memory controller.
fn own_cgroup() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let group = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    group.join("memory.events").is_file().then_some(group)
}

fn makes_pipes() -> bool {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let path = std::env::temp_dir().join(format!("harness-pipe-{}", std::process::id()));
    let made = mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).is_ok();
    let _ = std::fs::remove_file(&path);
    made
}

/// Bytes that a file in the folder could still take, as an ordinary user.
pub(crate) fn free_space(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}
