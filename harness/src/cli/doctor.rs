//! `doctor`: what this machine has, and what is missing for which feature. Fits a
//! terminal of 80 columns; `--format json` has the same for programs.

use super::Failure;
use super::args::{Args, Form};
use super::session::Folders;
use crate::case::{Target, load};
use crate::console::print;
use crate::device::{
    GpuDecision, GpuOptions, Host, Nvidia, describe, find_nvrtc, find_sanitizer, free_space, host, open, refusal,
};
use crate::exit;
use crate::record::{Provenance, ResultsFolder};
use crate::units::{counted, show_bytes};
use engine::backend::cuda::CublasLt;
use serde::Serialize;
use serde_json::json;
use std::fmt::Write;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

/// Columns of the text.
const WIDTH: usize = 80;
/// Columns before the text of a line.
const INDENT: usize = 13;
/// Less than this for records is worth a word.
const LOW_SPACE: u64 = 1 << 30;

/// A feature, whether it works here, and what would make it work.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Feature {
    name: &'static str,
    ready: bool,
    words: String,
}

impl Feature {
    fn of(name: &'static str, missing: Option<String>, ready: impl Into<String>) -> Self {
        match missing {
            None => Self { name, ready: true, words: ready.into() },
            Some(words) => Self { name, ready: false, words },
        }
    }
}

/// All that was found.
struct Findings {
    nvidia: Nvidia,
    played: bool,
    /// Usable GPUs, then refused ones with the reason.
    gpus: Vec<GpuDecision>,
    usable: usize,
    /// The library of matrix products with its version, or where it was not found.
    cublaslt: Result<String, String>,
    nvrtc: Vec<PathBuf>,
    searched: Vec<String>,
    sanitizer: Option<PathBuf>,
    host: Host,
    cases: String,
    results: PathBuf,
    results_state: Result<String, String>,
    space: Option<u64>,
    columns: Option<u16>,
}

pub(super) fn doctor(args: &Args) -> Result<u8, Failure> {
    let Folders { cases, results } = Folders::of(args);
    let found = look(args.devices.nvml.as_deref(), &cases, results)?;
    let features = features(&found);
    match args.records.form.unwrap_or(Form::Plain) {
        Form::Json => print(&format!("{:#}\n", document(&found, &features))),
        _ => print(&text(&found, &features)),
    }
    Ok(exit::OK)
}

/// `played` is a file in the place of NVML.
fn look(played: Option<&Path>, cases: &Path, results: PathBuf) -> Result<Findings, Failure> {
    let nvml = open(played).map_err(|d| Failure::diagnostic(exit::USAGE, &d))?;
    let nvidia = nvml.survey();
    let options = GpuOptions::default();
    let choice = |gpu: &crate::device::Gpu| match refusal(gpu, &options) {
        None => GpuDecision { gpu: gpu.clone(), why: describe(gpu) },
        Some(why) => GpuDecision { gpu: gpu.clone(), why: format!("cannot be used: {why}") },
    };
    let gpus = nvidia.gpus.iter().map(choice).collect();
    let usable = nvidia.gpus.iter().filter(|gpu| refusal(gpu, &options).is_none()).count();
    let files = find_nvrtc();
    let library = CublasLt::open(&files.folders()).map(|library| {
        let (major, minor, patch) = library.version();
        format!("{} ({major}.{minor}.{patch})", library.path().display())
    });
    let (folder, results_state) = writable(&results);
    Ok(Findings {
        played: nvml.is_fake(),
        nvidia,
        gpus,
        usable,
        cublaslt: library,
        nvrtc: files.found,
        searched: files.searched,
        sanitizer: find_sanitizer(),
        host: host(),
        cases: self::cases(cases),
        space: free_space(&folder),
        results,
        results_state,
        columns: columns(),
    })
}

fn cases(dir: &Path) -> String {
    let loaded = load(dir, Target::Sim);
    match loaded.errors.len() {
        0 => format!("{}: {} ids in {} files", dir.display(), loaded.cases.len(), loaded.files),
        n => format!("{}: {}, the first: {}", dir.display(), counted(n, "error"), loaded.errors[0]),
    }
}

/// The folder that would be written, and whether it can be: the results folder,
/// or the nearest one above while it is not there. What is in it must be records.
fn writable(results: &Path) -> (PathBuf, Result<String, String>) {
    let whole = |dir: &Path| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_path_buf() };
    let there = |dir: &PathBuf| dir.symlink_metadata().is_ok();
    let dir = results.ancestors().map(whole).find(there).unwrap_or_else(|| PathBuf::from("."));
    let none = |kind: ErrorKind| matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory);
    let foreign = ResultsFolder::open(results).err().filter(|error| !none(error.kind()));
    let state = match foreign {
        Some(error) => Err(format!("no run is recorded there: {error}")),
        None => probe(&dir).map(|()| match dir == whole(results) {
            true => "writable".into(),
            false => "not there yet, can be made".into(),
        }),
    };
    (dir, state)
}

/// Whether a file can be made in a folder.
fn probe(dir: &Path) -> Result<(), String> {
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    let tried = std::fs::write(&probe, b"x").and_then(|()| std::fs::remove_file(&probe));
    tried.map_err(|error| match dir.is_dir() {
        true => format!("cannot be written: {error}"),
        false => format!("cannot be written: {} is no folder", dir.display()),
    })
}

/// Columns of the terminal, if standard error is one.
fn columns() -> Option<u16> {
    let error = std::io::stderr();
    error.is_terminal().then(|| rustix::termios::tcgetwinsize(&error).ok().map(|size| size.ws_col)).flatten()
}

/// What works, and what is missing for what does not.
fn features(found: &Findings) -> Vec<Feature> {
    let gpu = missing_gpu(found);
    let bench = if gpu.is_none() && has_nvrtc(found) { "GPU timings" } else { "the simulator's counters only" };
    let bars = match found.columns {
        Some(columns) => format!("on this terminal of {columns} columns"),
        None => "plain lines: standard error is no terminal".into(),
    };
    let pipe = (!found.host.pipes).then(|| "no named pipe can be made in the folder for temporary files".to_string());
    let stacks = (!found.host.proc_threads)
        .then(|| "/proc shows no threads of this process's: mount it (unshare --mount-proc)".to_string());
    let cgroup = found.host.cgroup.is_none().then(|| {
        "no memory controller of control groups version 2: others' kills for want of memory may be taken for a worker's".into()
    });
    vec![
        Feature::of("simulator", None, "--sim N"),
        Feature::of("reference", None, "--ref"),
        Feature::of("GPUs", missing_cuda(found), "--gpus N"),
        Feature::of("bench", None, bench),
        Feature::of("Xids", gpu.clone(), "NVML's event set is listened to during a run"),
        Feature::of("sanitizers", missing_sanitizer(found), "--sanitize memcheck|racecheck|initcheck|synccheck"),
        Feature::of("GPU cores", gpu.or(pipe), "--gpu-coredump"),
        Feature::of("host cores", missing_core(found), "kept where the kernel puts them"),
        Feature::of("stacks", stacks, "threads of a hanging worker can be seen"),
        Feature::of("memory", cgroup, "kills for want of memory can be told"),
        Feature::of("records", missing_record(found), "runs are recorded"),
        Feature::of("bars", None, bars),
    ]
}

fn has_nvrtc(found: &Findings) -> bool {
    !found.nvrtc.is_empty() || found.played
}

fn missing_gpu(found: &Findings) -> Option<String> {
    (found.usable == 0).then(|| "there is no usable GPU".into())
}

/// What keeps cases from running on GPUs.
fn missing_cuda(found: &Findings) -> Option<String> {
    match (found.usable > 0, has_nvrtc(found)) {
        (true, true) => None,
        (true, false) => {
            Some("NVRTC is missing: pip install 'nvidia-cuda-nvrtc==13.0.*', or set NVRTC_PATH".to_string())
        }
        (false, true) => Some("there is no usable GPU; `compile` works with NVRTC alone".to_string()),
        (false, false) => Some("there is no usable GPU and no NVRTC".to_string()),
    }
}

fn missing_sanitizer(found: &Findings) -> Option<String> {
    match &found.sanitizer {
        None => Some("compute-sanitizer is in no known place; the simulator's own detectors run".to_string()),
        Some(_) => missing_gpu(found),
    }
}

fn missing_core(found: &Findings) -> Option<String> {
    match (found.host.core_limit, found.host.core_unlimited) {
        (Some(0), false) => {
            Some("the limit on core dumps is 0: ulimit -c unlimited, as the machine's owner".to_string())
        }
        _ => None,
    }
}

/// What keeps runs from being recorded.
fn missing_record(found: &Findings) -> Option<String> {
    found.results_state.as_ref().err().cloned().or_else(|| {
        let space = found.space.filter(|space| *space < LOW_SPACE)?;
        Some(format!("only {} left in its folder", show_bytes(space)))
    })
}

fn document(found: &Findings, features: &[Feature]) -> serde_json::Value {
    let gpu = |choice: &GpuDecision| {
        let mut value = serde_json::to_value(&choice.gpu).unwrap_or_default();
        value["usable"] = (!choice.why.starts_with("cannot")).into();
        value["why"] = choice.why.as_str().into();
        value
    };
    json!({
        "harness": Provenance::gather(),
        "driver": found.nvidia.driver,
        "cuda": found.nvidia.cuda,
        "nvml": found.nvidia.nvml,
        "played": found.played,
        "problems": found.nvidia.problems,
        "gpus": found.gpus.iter().map(gpu).collect::<Vec<_>>(),
        "cublaslt": found.cublaslt.as_ref().ok(),
        "nvrtc": found.nvrtc,
        "nvrtc_searched": found.searched,
        "compute_sanitizer": found.sanitizer,
        "host": found.host,
        "cases": found.cases,
        "results": {
            "folder": found.results,
            "writable": found.results_state.is_ok(),
            "state": found.results_state.as_ref().unwrap_or_else(|why| why),
            "free_bytes": found.space,
        },
        "terminal_columns": found.columns,
        "features": features,
    })
}

fn text(found: &Findings, features: &[Feature]) -> String {
    let mut text = String::new();
    machine(&mut text);
    nvidia(found, &mut text);
    libraries(found, &mut text);
    limits(found, &mut text);
    line(&mut text, "cases", &found.cases);
    let state = found.results_state.as_ref().unwrap_or_else(|why| why);
    let space = found.space.map_or(String::new(), |space| format!(", {} free", show_bytes(space)));
    line(&mut text, "results", &format!("{}: {state}{space}", found.results.display()));
    text.push('\n');
    for feature in features {
        let words = if feature.ready { "ready: " } else { "no: " };
        line(&mut text, feature.name, &format!("{words}{}", feature.words));
    }
    text
}

fn machine(text: &mut String) {
    let provenance = Provenance::gather();
    let told = |what: &Option<String>| what.clone().unwrap_or_default();
    let [version, profile, rustc] = [&provenance.harness_version, &provenance.profile, &provenance.rustc].map(told);
    line(text, "harness", &format!("{version} ({profile}, {rustc})"));
    let dirty = if provenance.git_dirty == Some(true) { ", with changes" } else { "" };
    line(
        text,
        "sources",
        &provenance.git_sha.as_ref().map_or("not a git checkout".into(), |sha| format!("{sha}{dirty}")),
    );
    let memory = show_bytes(provenance.mem_bytes.unwrap_or_default());
    let [model, kernel] = [&provenance.cpu_model, &provenance.kernel].map(told);
    let cpus = provenance.cpus.unwrap_or_default();
    line(text, "machine", &format!("{cpus} x {model}, {memory}, Linux {kernel}"));
}

fn nvidia(found: &Findings, text: &mut String) {
    let nvidia = &found.nvidia;
    line(text, "driver", nvidia.driver.as_deref().unwrap_or("not found"));
    if let Some(cuda) = &nvidia.cuda {
        line(text, "CUDA", &format!("up to {cuda} by this driver"));
    }
    line(text, "NVML", if found.played { "played by a file" } else { nvidia.nvml.as_deref().unwrap_or("not found") });
    for problem in &nvidia.problems {
        line(text, "", problem);
    }
    for GpuDecision { gpu, why } in &found.gpus {
        let arch = gpu.arch.map_or("?".into(), |arch| format!("{}.{}", arch / 10, arch % 10));
        line(text, &format!("GPU {}", gpu.index), &format!("{}, sm {arch}, {}", gpu.name, gpu.uuid));
        line(text, "", why);
        for process in gpu.procs.iter().flatten() {
            let memory = process.mem_bytes.map_or("unknown memory".into(), show_bytes);
            line(text, "", &format!("process {}: {memory}, {}", process.pid, command_of(process.pid)));
        }
        for part in &gpu.mig_devices {
            line(text, "", &format!("MIG device {}", part.uuid));
        }
    }
}

/// The program of a process, where this process may see it.
fn command_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    name.map_or("not of this container or ended".into(), |name| name.trim().to_string())
}

fn libraries(found: &Findings, text: &mut String) {
    match found.nvrtc.first() {
        Some(first) => line(text, "NVRTC", &first.display().to_string()),
        None => line(text, "NVRTC", "not found"),
    }
    for more in found.nvrtc.iter().skip(1) {
        line(text, "", &format!("also {}", more.display()));
    }
    for place in &found.searched {
        line(text, "", &format!("searched {place}"));
    }
    match &found.cublaslt {
        Ok(library) => line(text, "cuBLASLt", library),
        Err(why) => {
            line(text, "cuBLASLt", "none: the host multiplies matrices");
            line(text, "", why);
        }
    }
    let sanitizer = found.sanitizer.as_ref().map_or("compute-sanitizer not found".into(), |p| p.display().to_string());
    line(text, "sanitizer", &sanitizer);
}

fn limits(found: &Findings, text: &mut String) {
    let host = &found.host;
    let core = match (host.core_unlimited, host.core_limit) {
        (true, _) => "unlimited".to_string(),
        (false, Some(bytes)) => show_bytes(bytes),
        (false, None) => "unknown".into(),
    };
    line(text, "core dumps", &format!("up to {core}, to {}", host.core_pattern.as_deref().unwrap_or("unknown")));
    let trace = match host.ptrace_scope {
        None | Some(0) => "any process may be traced",
        Some(1) => "children may be traced",
        Some(_) => "tracing is for root only",
    };
    let stacks = if host.proc_stacks { "kernel stacks readable" } else { "kernel stacks hidden" };
    let log = if host.kernel_log { "kernel log readable" } else { "kernel log hidden" };
    line(text, "/proc", &format!("{stacks}, {trace}, {log}"));
    match (&host.cgroup, &host.cgroup_memory_max) {
        (Some(group), max) => {
            let max = max.as_deref().unwrap_or("unknown");
            line(text, "cgroup", &format!("version 2, {}, memory.max {max}", group.display()));
        }
        (None, _) => line(text, "cgroup", "no memory controller of version 2"),
    }
}

/// A line with its name in front, wrapped between words to [`WIDTH`] columns;
/// a word that is longer than a line is cut. Control characters are shown as `?`.
fn line(text: &mut String, name: &str, value: &str) {
    let room = WIDTH - INDENT;
    let clean = |c: char| if c.is_control() { if c.is_whitespace() { ' ' } else { '?' } } else { c };
    let value: String = value.chars().map(clean).collect();
    let mut rows = vec![String::new()];
    for word in value.split(' ') {
        let mut word = word.to_string();
        loop {
            let row = rows.last_mut().expect("one row at least");
            let used = row.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.chars().count() <= room {
                if gap > 0 {
                    row.push(' ');
                }
                row.push_str(&word);
                break;
            }
            if used > 0 {
                rows.push(String::new());
                continue;
            }
            let at = word.char_indices().nth(room).map_or(word.len(), |(at, _)| at);
            row.push_str(&word[..at]);
            word = word[at..].to_string();
            rows.push(String::new());
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        let _ = writeln!(text, "{}", format!("{name:<INDENT$}{row}").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// What is said of a results folder is what a run would meet.
    #[test]
    fn the_results_folder_is_judged_as_a_run_would_find_it() {
        let root = Scratch::new("doctor");
        let check = |path: &str, dir: &str, state: Result<&str, &str>| {
            let (found, said) = writable(&root.join(path));
            assert_eq!(found, root.join(dir), "{path}");
            match (&said, state) {
                (Ok(said), Ok(wanted)) => assert_eq!(said, wanted, "{path}"),
                (Err(said), Err(part)) => assert!(said.contains(part), "{path}: {said}"),
                _ => panic!("{path}: {said:?}"),
            }
        };
        check("nope/y/z", "", Ok("not there yet, can be made"));
        std::fs::create_dir_all(root.join("nope/y")).expect("a folder");
        check("nope/y/z", "nope/y", Ok("not there yet, can be made"));
        check("nope/y", "nope/y", Ok("writable"));
        std::fs::write(root.join("nope/y/FORMAT"), "other-store 9\n").expect("a file");
        check("nope/y", "nope/y", Err("other-store 9"));
        std::fs::write(root.join("file"), "").expect("a file");
        check("file", "file", Err("is no folder"));
        check("file/below", "file", Err("is no folder"));
        assert_eq!(writable(Path::new("no-such-folder-here/z")).0, Path::new("."));
    }

    #[test]
    fn lines_fit_and_lose_nothing() {
        let long =
            format!("some words and {} then more words that go on and on beyond any line\x1b[31m", "x".repeat(200));
        let mut text = String::new();
        line(&mut text, "name", &long);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(squeezed(&text), format!("name{}", squeezed(&long.replace('\x1b', "?"))));
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))), "{text}");
    }
}
