//! `doctor`: what this machine has, and what is missing for which feature.

use super::args::Args;
use super::{print, session};
use crate::case::{Target, load};
use crate::device::{find_nvrtc, probe, quietest};
use crate::exit;
use crate::record::Provenance;
use crate::units::show_bytes;
use std::fmt::Write;
use std::path::Path;

pub(super) fn doctor(args: &Args) -> u8 {
    let mut text = String::new();
    machine(&mut text);
    let gpu = nvidia(&mut text);
    let nvrtc = nvrtc(&mut text);
    folders(args, &mut text);
    features(gpu, nvrtc, &mut text);
    print(&text);
    exit::OK
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name:<12} {value}");
}

fn machine(text: &mut String) {
    let provenance = Provenance::gather();
    line(text, "harness", format!("{} ({}, {})", provenance.harness_version, provenance.profile, provenance.rustc));
    let dirty = if provenance.git_dirty == Some(true) { ", with changes" } else { "" };
    line(text, "sources", provenance.git_sha.map_or("not a git checkout".into(), |sha| format!("{sha}{dirty}")));
    let memory = show_bytes(provenance.mem_bytes);
    line(
        text,
        "machine",
        format!("{} x {}, {memory}, Linux {}", provenance.cpus, provenance.cpu_model, provenance.kernel),
    );
}

/// Whether there is a usable GPU.
fn nvidia(text: &mut String) -> bool {
    let nvidia = probe();
    line(text, "driver", nvidia.driver.as_deref().unwrap_or("not found"));
    if let Some(cuda) = &nvidia.cuda {
        line(text, "CUDA", format!("up to {cuda} by this driver"));
    }
    line(text, "NVML", nvidia.nvml.as_deref().unwrap_or("not found"));
    for problem in &nvidia.problems {
        line(text, "", problem);
    }
    let ranked = quietest(&nvidia.gpus, nvidia.gpus.len());
    for choice in &ranked {
        let arch = choice.gpu.arch.map_or("?".into(), |arch| format!("{}.{}", arch / 10, arch % 10));
        line(
            text,
            &format!("GPU {}", choice.gpu.index),
            format!("{}, sm {arch}, {}, {}", choice.gpu.name, choice.gpu.uuid, choice.why),
        );
    }
    !ranked.is_empty()
}

/// Whether NVRTC is there.
fn nvrtc(text: &mut String) -> bool {
    let files = find_nvrtc();
    match files.found.first() {
        Some(first) => line(text, "NVRTC", first.display()),
        None => line(text, "NVRTC", "not found"),
    }
    for more in files.found.iter().skip(1) {
        line(text, "", format!("also {}", more.display()));
    }
    for place in &files.searched {
        line(text, "", format!("searched {place}"));
    }
    !files.found.is_empty()
}

fn folders(args: &Args, text: &mut String) {
    let dir = session::cases_dir(args);
    let loaded = load(&dir, Target::Sim);
    let state = match loaded.errors.len() {
        0 => format!("{} ids in {} files", loaded.cases.len(), loaded.files),
        n => format!("{n} error(s), the first: {}", loaded.errors[0]),
    };
    line(text, "cases", format!("{}: {state}", dir.display()));
    let results = session::results_dir(args);
    line(text, "results", format!("{}: {}", results.display(), writable(&results)));
}

/// Tries to write, in the folder itself or, while it is not there, in the one above.
fn writable(results: &Path) -> String {
    let (dir, state) = match (results.is_dir(), results.parent()) {
        (false, Some(parent)) if parent.as_os_str().is_empty() => (Path::new("."), "not there yet, can be made"),
        (false, Some(parent)) => (parent, "not there yet, can be made"),
        _ => (results, "writable"),
    };
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    let tried = std::fs::write(&probe, b"x").and_then(|()| std::fs::remove_file(&probe));
    tried.map_or_else(|error| format!("cannot be written: {error}"), |()| state.into())
}

fn features(gpu: bool, nvrtc: bool, text: &mut String) {
    let _ = writeln!(text);
    line(text, "simulator", "ready: --sim N");
    line(text, "reference", "ready: --ref");
    let cuda = match (gpu, nvrtc) {
        (true, true) => "ready: --gpus N",
        (true, false) => "no: NVRTC is missing; pip install 'nvidia-cuda-nvrtc==13.0.*', or set NVRTC_PATH",
        (false, true) => "no: there is no usable GPU; kernels can still be compiled with NVRTC",
        (false, false) => "no: there is no usable GPU and no NVRTC",
    };
    line(text, "GPUs", cuda);
    line(text, "bench", if gpu && nvrtc { "GPU timings" } else { "the simulator's counters only" });
}
