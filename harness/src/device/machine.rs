//! The file that plays a machine with GPUs: what is there, and what happens to it
//! during a run. TOML, or JSON if it starts with `{`.
//!
//! ```toml
//! driver = "580.159.04"
//! [[gpu]]                  # in the order of their indices; every line may be left out
//! name = "Played GPU"
//! memory = "141GiB"
//! procs = [{ pid = 4242, memory = "3GiB" }]
//! [[event]]
//! gpu = 1
//! after_cases = 5          # or after_ms = 300, at = "Suite.Case*", running = 2
//! xid = 79
//! lost = true
//! [times]                  # `bench` has times of kernels, too: by what they cost, with this noise from seed to seed
//! noise = 0.003
//! slow = [{ at = "Suite.Case*", factor = 1.05 }]
//! ```

use super::gpu::{Gpu, MigDevice, Nvidia, Process};
use crate::proto::PlayedTimes;
use crate::select::Filter;
use crate::units;
use engine::diag::{Diagnostic, Result, code};
use serde::Deserialize;
use std::path::Path;

const MAX_BYTES: u64 = 1 << 20;
const MAX_GPUS: usize = 64;
const MAX_EVENTS: usize = 4096;

/// What the file says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineText {
    driver: Option<String>,
    cuda: Option<String>,
    problems: Vec<String>,
    /// The driver hangs: it never tells what GPUs there are.
    stuck: bool,
    gpu: Vec<GpuText>,
    event: Vec<EventText>,
    /// Kernels are timed, too.
    times: Option<TimesText>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TimesText {
    /// Standard deviation from run to run, as a share.
    noise: f64,
    slow: Vec<SlowText>,
}

/// Cases that take longer than they should.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowText {
    at: String,
    factor: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GpuText {
    uuid: Option<String>,
    name: Option<String>,
    arch: Option<u32>,
    memory: Option<String>,
    used: Option<String>,
    util: Option<u32>,
    procs: Vec<ProcessText>,
    ecc: Option<u64>,
    clocks: Vec<String>,
    temp: Option<u32>,
    power_mw: Option<u32>,
    sm_clock_mhz: Option<u32>,
    compute_mode: Option<String>,
    mig: Vec<MigText>,
    mig_mode: bool,
    lost: Option<String>,
    /// The UUID that CUDA shows to a worker, where it is another.
    seen_as: Option<String>,
    /// Canaries that fail, from the first one on.
    bad_canaries: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessText {
    pid: u32,
    memory: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MigText {
    uuid: String,
    memory: Option<String>,
    used: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct EventText {
    gpu: usize,
    after_cases: Option<u64>,
    after_ms: Option<u64>,
    at: Option<String>,
    running: Option<u64>,
    xid: Option<u64>,
    lost: bool,
    /// With `lost`: NVML's events tell of it again and again, and of nothing else.
    deaf: bool,
    procs: Vec<ProcessText>,
    used: Option<String>,
    clocks: Option<Vec<String>>,
    ecc: Option<u64>,
    bad_canaries: Option<u32>,
    /// NVML itself fails from then on: with these words.
    nvml: Option<String>,
}

/// When something happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// So many cases have ended on the GPU.
    Cases(u64),
    /// So long after the run began to listen.
    Millis(u64),
    /// A case that the filter selects begins on the GPU.
    At(Filter),
    /// So many cases run on the GPU at once.
    Running(u64),
}

/// What happens to a GPU.
#[derive(Clone, Debug)]
pub(super) struct Happening {
    pub(super) gpu: usize,
    pub(super) when: When,
    pub(super) xid: Option<u64>,
    pub(super) lost: bool,
    pub(super) deaf: bool,
    pub(super) procs: Vec<Process>,
    pub(super) used: Option<u64>,
    pub(super) clocks: Option<Vec<String>>,
    pub(super) ecc: Option<u64>,
    pub(super) bad_canaries: Option<u32>,
    pub(super) nvml: Option<String>,
}

/// A GPU with what only a played one has.
#[derive(Clone, Debug)]
pub(super) struct Played {
    pub(super) gpu: Gpu,
    pub(super) seen_as: Option<String>,
    pub(super) bad_canaries: u32,
}

/// A machine with its script.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) stuck: bool,
    pub(super) nvidia: Nvidia,
    pub(super) gpus: Vec<Played>,
    pub(super) script: Vec<Happening>,
    pub(super) times: Option<PlayedTimes>,
}

/// Reads and checks the file.
pub(super) fn read(path: &Path) -> Result<Machine> {
    let wrong = |why: String| {
        Diagnostic::user(code::PLAYED_MACHINE, format!("{}: {why}", path.display()))
            .note("the file has [[gpu]] and [[event]] tables; harness/README.md describes them")
    };
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MAX_BYTES {
        return Err(wrong(format!("{size} bytes, {MAX_BYTES} at most")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    parse(&text).map_err(wrong)
}

pub(super) fn parse(text: &str) -> std::result::Result<Machine, String> {
    let read: MachineText = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => toml::from_str(text).map_err(|error| error.to_string())?,
    };
    if read.gpu.len() > MAX_GPUS || read.event.len() > MAX_EVENTS {
        return Err(format!("{MAX_GPUS} GPUs and {MAX_EVENTS} events at most"));
    }
    let gpus = read.gpu.into_iter().enumerate().map(|(index, gpu)| played(index, gpu));
    let gpus = gpus.collect::<std::result::Result<Vec<_>, String>>()?;
    let script = read.event.into_iter().map(|event| happening(event, gpus.len()));
    let script = script.collect::<std::result::Result<Vec<_>, String>>()?;
    let mut problems = read.problems;
    if gpus.is_empty() && problems.is_empty() {
        problems.push("NVML reports no GPU".into());
    }
    let driver = Some(read.driver.unwrap_or_else(|| "played".into()));
    let nvidia = Nvidia { nvml: driver.clone(), driver, cuda: read.cuda, gpus: Vec::new(), problems };
    let times = read.times.map(times).transpose()?;
    Ok(Machine { stuck: read.stuck, nvidia, gpus, script, times })
}

fn times(text: TimesText) -> std::result::Result<PlayedTimes, String> {
    if !(0.0..1.0).contains(&text.noise) {
        return Err(format!("`noise` is {}, a share from 0 to below 1 is meant", text.noise));
    }
    let slow = text.slow.into_iter().map(|SlowText { at, factor }| {
        Filter::parse(&at).map_err(|error| error.message)?;
        match (0.001..1000.0).contains(&factor) {
            true => Ok((at, (factor * 1000.0).round() as u32)),
            false => Err(format!("`factor` is {factor}, which is from 0.001 to 1000")),
        }
    });
    Ok(PlayedTimes {
        noise_ppm: (text.noise * 1e6).round() as u32,
        slow: slow.collect::<std::result::Result<Vec<_>, String>>()?,
    })
}

fn bytes(text: Option<&str>, default: u64) -> std::result::Result<u64, String> {
    match text {
        None => Ok(default),
        Some(text) => units::bytes(text).ok_or_else(|| format!("`{text}` is no amount of memory, such as 2GiB")),
    }
}

fn processes(list: &[ProcessText]) -> std::result::Result<Vec<Process>, String> {
    let process = |p: &ProcessText| {
        let mem_bytes = p.memory.as_deref().map(|text| bytes(Some(text), 0)).transpose()?;
        Ok(Process { pid: p.pid, mem_bytes })
    };
    list.iter().map(process).collect()
}

fn played(index: usize, text: GpuText) -> std::result::Result<Played, String> {
    let part = |part: MigText| {
        let total = bytes(part.memory.as_deref(), 16 << 30)?;
        let used = bytes(part.used.as_deref(), 0)?;
        Ok(MigDevice { uuid: part.uuid, mem_total_bytes: Some(total), mem_used_bytes: Some(used) })
    };
    let mig_devices = text.mig.into_iter().map(part).collect::<std::result::Result<Vec<_>, String>>()?;
    let gpu = Gpu {
        index: index as u32,
        uuid: text.uuid.unwrap_or_else(|| format!("GPU-{index:08x}-0000-0000-0000-000000000000")),
        parent: None,
        name: text.name.unwrap_or_else(|| "Played GPU".into()),
        pci_bus: Some(format!("00000000:{:02X}:00.0", index + 1)),
        arch: Some(text.arch.unwrap_or(90)),
        mem_total_bytes: Some(bytes(text.memory.as_deref(), 141 << 30)?),
        mem_used_bytes: Some(bytes(text.used.as_deref(), 0)?),
        util_gpu: Some(text.util.unwrap_or(0)),
        procs: Some(processes(&text.procs)?),
        ecc_uncorrected: Some(text.ecc.unwrap_or(0)),
        clock_event_reasons: text.clocks,
        temp_c: Some(text.temp.unwrap_or(30)),
        power_mw: Some(text.power_mw.unwrap_or(80_000)),
        sm_clock_mhz: Some(text.sm_clock_mhz.unwrap_or(345)),
        compute_mode: Some(text.compute_mode.unwrap_or_else(|| "Default".into())),
        mig: text.mig_mode || !mig_devices.is_empty(),
        mig_devices,
        lost: text.lost,
    };
    Ok(Played { gpu, seen_as: text.seen_as, bad_canaries: text.bad_canaries })
}

fn happening(text: EventText, gpus: usize) -> std::result::Result<Happening, String> {
    if text.gpu >= gpus {
        return Err(format!("an event names GPU {}, there are {gpus}", text.gpu));
    }
    let when = match (text.after_cases, text.after_ms, &text.at, text.running) {
        (Some(n), None, None, None) => When::Cases(n),
        (None, Some(ms), None, None) => When::Millis(ms),
        (None, None, Some(glob), None) => When::At(Filter::parse(glob).map_err(|error| error.to_string())?),
        (None, None, None, Some(n)) => When::Running(n),
        _ => return Err("an event needs one of `after_cases`, `after_ms`, `at` and `running`".into()),
    };
    Ok(Happening {
        gpu: text.gpu,
        when,
        xid: text.xid,
        lost: text.lost,
        deaf: text.deaf,
        procs: processes(&text.procs)?,
        used: text.used.as_deref().map(|text| bytes(Some(text), 0)).transpose()?,
        clocks: text.clocks,
        ecc: text.ecc,
        bad_canaries: text.bad_canaries,
        nvml: text.nvml,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(text: &str, part: &str) {
        let error = parse(text).expect_err("refused");
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn mistakes_are_named() {
        check_refused("[[gpu]]\nmemroy = \"1GiB\"", "memroy");
        check_refused("[[gpu]]\nmemory = \"much\"", "no amount of memory");
        check_refused("[[gpu]]\n[[event]]\ngpu = 1\nafter_ms = 1", "there are 1");
        check_refused("[[gpu]]\n[[event]]\nxid = 1", "needs one of");
        check_refused("[[gpu]]\n[[event]]\nat = \"A\"\nafter_ms = 3", "needs one of");
        check_refused("[[gpu]]\n[[event]]\nat = \"\"", "empty");
        check_refused("{ \"gpu\": 7 }", "invalid type");
        check_refused(&"[[gpu]]\n".repeat(65), "64 GPUs");
    }

    #[test]
    fn json_and_toml_say_the_same() {
        let toml =
            parse("[[gpu]]\nuuid = \"GPU-a\"\nused = \"1GiB\"\n[[event]]\nafter_cases = 2\nxid = 13").expect("reads");
        let json =
            "{\"gpu\": [{\"uuid\": \"GPU-a\", \"used\": \"1GiB\"}], \"event\": [{\"after_cases\": 2, \"xid\": 13}]}";
        let json = parse(json).expect("reads");
        assert_eq!(format!("{toml:?}"), format!("{json:?}"));
        assert_eq!(parse("").expect("an empty machine").nvidia.problems, ["NVML reports no GPU"]);
    }
}
