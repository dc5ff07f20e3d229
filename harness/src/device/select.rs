//! Chooses GPUs, and says why: of those taken, and of those not.

use super::gpu::{Gpu, Nvidia};
use super::policy::{GpuOptions, GpuPolicy, WantedGpus};
use crate::units::{counted, show_bytes};

/// A GPU and the reason in words why it was taken, or was not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuDecision {
    pub(crate) gpu: Gpu,
    pub(crate) why: String,
}

/// What became of all GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Selection {
    /// In the order of their index, or in that of their names.
    pub(crate) taken: Vec<GpuDecision>,
    pub(crate) left: Vec<GpuDecision>,
    /// Why there are fewer than wanted.
    pub(crate) missing: Option<String>,
}

/// Memory within this of each other counts as equal: a driver keeps some for itself.
const MEMORY_GRAIN: u64 = 256 << 20;

/// Chooses among `found`. `hold` is asked of each GPU before it is taken, and may
/// refuse it with a reason.
pub(crate) fn select(
    found: &Nvidia,
    wanted: &WantedGpus,
    options: &GpuOptions,
    mut hold: impl FnMut(&Gpu) -> Result<(), String>,
) -> Selection {
    let mut selection = Selection::default();
    let names = match wanted {
        WantedGpus::Named(names) => names.as_slice(),
        _ => &[],
    };
    let (candidates, unknown) = match names {
        [] => (ranked(&found.gpus), Vec::new()),
        names => named(found, names),
    };
    let count = match wanted {
        WantedGpus::Count(count) => *count,
        WantedGpus::All => found.gpus.len().max(1),
        WantedGpus::Named(_) => candidates.len() + unknown.len(),
    };
    for gpu in candidates {
        let refused = refusal(&gpu, options);
        let verdict = match refused {
            Some(why) => Err(format!("refused: {why}")),
            None if selection.taken.len() == count => Err(format!("not needed: {}", describe(&gpu))),
            None => hold(&gpu).map_err(|why| format!("refused: {why}")),
        };
        match verdict {
            Ok(()) => selection.taken.push(GpuDecision { why: format!("taken: {}", describe(&gpu)), gpu }),
            Err(why) => selection.left.push(GpuDecision { gpu, why }),
        }
    }
    selection.left.sort_by_key(|choice| choice.gpu.index);
    if names.is_empty() {
        selection.taken.sort_by_key(|choice| choice.gpu.index);
    }
    if selection.taken.len() < count {
        let there = match found.gpus.len() {
            0 => "none was found".to_string(),
            n => format!("{n} found, {} usable", selection.taken.len()),
        };
        selection.missing = Some(match unknown.as_slice() {
            [] => format!("{} asked for, {there}", counted(count, "GPU")),
            names => format!("there is no {}; {there}", names.join(", no ")),
        });
    }
    selection
}

/// Quietest first, by: uncorrected ECC errors, processes, memory in use,
/// utilisation, clock events, temperature.
fn ranked(gpus: &[Gpu]) -> Vec<Gpu> {
    let mut ranked: Vec<Gpu> = gpus.to_vec();
    ranked.sort_by_key(|gpu| {
        (
            gpu.ecc_uncorrected.unwrap_or(0),
            gpu.procs.as_ref().map_or(0, Vec::len),
            gpu.mem_used_bytes.unwrap_or(0) / MEMORY_GRAIN,
            gpu.util_gpu.unwrap_or(0),
            gpu.clock_event_reasons.len(),
            gpu.temp_c.unwrap_or(0),
            gpu.index,
        )
    });
    ranked
}

/// The GPUs and MIG parts that the names, or beginnings of names, mean, and the
/// names that mean none or several.
fn named(found: &Nvidia, names: &[String]) -> (Vec<Gpu>, Vec<String>) {
    let parts = found.gpus.iter().flat_map(|gpu| &gpu.mig_devices).map(|part| part.uuid.clone());
    let all: Vec<String> = found.gpus.iter().map(|gpu| gpu.uuid.clone()).chain(parts).collect();
    let mut gpus: Vec<Gpu> = Vec::new();
    let mut unknown = Vec::new();
    for name in names {
        let meant: Vec<&String> = match all.iter().find(|uuid| *uuid == name) {
            Some(exact) => vec![exact],
            None => all.iter().filter(|uuid| name.len() >= 6 && uuid.starts_with(name.as_str())).collect(),
        };
        match meant.as_slice() {
            [one] => gpus.extend(found.find(one).filter(|gpu| gpus.iter().all(|known| known.uuid != gpu.uuid))),
            _ => unknown.push(name.clone()),
        }
    }
    (gpus, unknown)
}

/// Why a GPU may not be used, if so.
pub(crate) fn refusal(gpu: &Gpu, options: &GpuOptions) -> Option<String> {
    if let Some(why) = &gpu.lost {
        return Some(why.clone());
    }
    let mode = gpu.compute_mode.as_deref().unwrap_or_default();
    let procs = gpu.procs.as_deref().unwrap_or_default();
    if mode == "Prohibited" {
        return Some("its compute mode forbids all processes".into());
    }
    if gpu.mig {
        return Some(match gpu.mig_devices.as_slice() {
            [] => "MIG is on and has no device".into(),
            list => {
                let names: Vec<&str> = list.iter().map(|part| part.uuid.as_str()).collect();
                format!("MIG is on; name its devices: --gpus {}", names.join(","))
            }
        });
    }
    if mode.starts_with("Exclusive") {
        match (options.workers_per_gpu.unwrap_or(1), procs) {
            (1, []) => {}
            (1, [process, ..]) => {
                return Some(format!("its compute mode allows one process, and {} is there", process.pid));
            }
            (n, _) => return Some(format!("its compute mode allows one process, {n} workers are asked for")),
        }
    }
    let (max_util, max_mem) = options.limits();
    if options.policy != GpuPolicy::Any {
        if !procs.is_empty() {
            return Some(format!("{} there", processes(gpu)));
        }
        if let Some(errors @ 1..) = gpu.ecc_uncorrected {
            return Some(format!("{errors} uncorrected ECC errors"));
        }
    }
    if let (Some(max), Some(util)) = (max_util, gpu.util_gpu)
        && f64::from(util) > max * 100.0
    {
        return Some(format!("{util} % busy, {:.0} % allowed", max * 100.0));
    }
    if let (Some(max), Some(used)) = (max_mem, gpu.mem_used_bytes)
        && used > max
    {
        return Some(format!("{} in use, {} allowed", show_bytes(used), show_bytes(max)));
    }
    None
}

/// `no process`, `process 17 with 3.0 GiB`, `2 processes`.
pub(crate) fn processes(gpu: &Gpu) -> String {
    match gpu.procs.as_deref() {
        Some([]) => "no process".into(),
        Some([one]) => one.words(),
        Some(list) => format!("{} processes", list.len()),
        None => "processes unknown".into(),
    }
}

/// The state of a GPU in words.
pub(crate) fn describe(gpu: &Gpu) -> String {
    let mut words = vec![processes(gpu)];
    let known = |value: Option<u64>| value.map_or("unknown".into(), show_bytes);
    words.push(format!("{} of {} used", known(gpu.mem_used_bytes), known(gpu.mem_total_bytes)));
    words.push(gpu.util_gpu.map_or("utilisation unknown".into(), |util| format!("{util} % busy")));
    match gpu.ecc_uncorrected {
        Some(0) | None => {}
        Some(n) => words.push(format!("{n} uncorrected ECC errors")),
    }
    if !gpu.clock_event_reasons.is_empty() {
        words.push(format!("clocks held by {}", gpu.clock_event_reasons.join(" ")));
    }
    words.extend(gpu.temp_c.map(|t| format!("{t} C")));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::gpu::{MigDevice, Process};
    use super::*;

    fn gpu(index: u32) -> Gpu {
        Gpu {
            index,
            uuid: format!("GPU-0000{index}"),
            procs: Some(vec![]),
            mem_used_bytes: Some(600 << 20),
            util_gpu: Some(0),
            ..Gpu::default()
        }
    }

    fn process(pid: u32) -> Process {
        Process { pid, mem_bytes: Some(3 << 30) }
    }

    /// Busy, full, sick, closed, warm, quiet, with MIG, lost.
    fn zoo() -> Nvidia {
        let part = |uuid: &str| MigDevice { uuid: uuid.into(), mem_used_bytes: Some(0), ..MigDevice::default() };
        let gpus = vec![
            Gpu { util_gpu: Some(97), procs: Some(vec![process(1), process(2)]), ..gpu(0) },
            Gpu { mem_used_bytes: Some(70 << 30), ..gpu(1) },
            Gpu { ecc_uncorrected: Some(2), ..gpu(2) },
            Gpu { compute_mode: Some("Prohibited".into()), ..gpu(3) },
            Gpu { temp_c: Some(60), mem_used_bytes: Some(1 << 20), ..gpu(4) },
            Gpu { mem_used_bytes: Some(1 << 20), ..gpu(5) },
            Gpu { mig: true, mig_devices: vec![part("MIG-aaaa1"), part("MIG-aaaa2")], ..gpu(6) },
            Gpu { lost: Some("it is lost".into()), ..gpu(7) },
        ];
        Nvidia { gpus, ..Nvidia::default() }
    }

    fn options(policy: GpuPolicy) -> GpuOptions {
        GpuOptions { policy, ..GpuOptions::default() }
    }

    #[track_caller]
    fn check(wanted: &str, options: &GpuOptions, uuids: &[&str]) -> Selection {
        let wanted = WantedGpus::parse(wanted).expect("good");
        let selection = select(&zoo(), &wanted, options, |_| Ok(()));
        let taken: Vec<&str> = selection.taken.iter().map(|choice| choice.gpu.uuid.as_str()).collect();
        assert_eq!(taken, uuids, "{selection:#?}");
        selection
    }

    #[track_caller]
    fn check_left(selection: &Selection, index: u32, why: &str) {
        let left = selection.left.iter().find(|choice| choice.gpu.index == index);
        assert_eq!(left.map(|choice| choice.why.as_str()), Some(why));
    }

    #[test]
    fn the_quietest_are_taken() {
        let any = options(GpuPolicy::Any);
        check("1", &any, &["GPU-00005"]);
        check("2", &any, &["GPU-00004", "GPU-00005"]);
        check("3", &any, &["GPU-00001", "GPU-00004", "GPU-00005"]);
        let most = check("5", &any, &["GPU-00000", "GPU-00001", "GPU-00002", "GPU-00004", "GPU-00005"]);
        assert!(most.taken[0].why.starts_with("taken: 2 processes, 600.0 MiB of unknown used, 97 % busy"));
        assert_eq!(most.missing, None);
        check_left(&most, 3, "refused: its compute mode forbids all processes");
        check_left(&most, 6, "refused: MIG is on; name its devices: --gpus MIG-aaaa1,MIG-aaaa2");
        check_left(&most, 7, "refused: it is lost");
        let more = check("9", &any, &["GPU-00000", "GPU-00001", "GPU-00002", "GPU-00004", "GPU-00005"]);
        assert_eq!(more.missing.as_deref(), Some("9 GPUs asked for, 8 found, 5 usable"));
        let one = check("1", &any, &["GPU-00005"]);
        check_left(&one, 4, "not needed: no process, 1.0 MiB of unknown used, 0 % busy, 60 C");
    }

    #[test]
    fn policies_and_limits_refuse() {
        let idle = check("2", &options(GpuPolicy::Idle), &["GPU-00004", "GPU-00005"]);
        check_left(&idle, 0, "refused: 2 processes there");
        check_left(&idle, 1, "refused: 70.0 GiB in use, 500.0 MiB allowed");
        check_left(&idle, 2, "refused: 2 uncorrected ECC errors");
        let some = GpuOptions { max_mem_used: Some(100 << 30), ..options(GpuPolicy::Idle) };
        check("3", &some, &["GPU-00001", "GPU-00004", "GPU-00005"]);
        let calm = GpuOptions { max_util: Some(0.5), ..options(GpuPolicy::Any) };
        let calm = check("4", &calm, &["GPU-00001", "GPU-00002", "GPU-00004", "GPU-00005"]);
        check_left(&calm, 0, "refused: 97 % busy, 50 % allowed");
    }

    #[test]
    fn a_mode_of_one_process_allows_one() {
        let exclusive = Gpu { compute_mode: Some("ExclusiveProcess".into()), ..gpu(0) };
        let two = GpuOptions { workers_per_gpu: Some(2), ..GpuOptions::default() };
        assert_eq!(refusal(&exclusive, &GpuOptions::default()), None);
        assert!(refusal(&exclusive, &two).is_some_and(|why| why.contains("2 workers")));
        let taken = Gpu { procs: Some(vec![process(9)]), ..exclusive };
        assert!(refusal(&taken, &GpuOptions::default()).is_some_and(|why| why.contains("9 is there")));
    }

    #[test]
    fn names_win_over_quietness() {
        let any = options(GpuPolicy::Any);
        check("GPU-00002,GPU-00000,GPU-00002", &any, &["GPU-00002", "GPU-00000"]);
        check("MIG-aaaa2", &any, &["MIG-aaaa2"]);
        let several = check("GPU-0000", &any, &[]);
        assert_eq!(several.missing.as_deref(), Some("there is no GPU-0000; 8 found, 0 usable"));
        let lost = check("GPU-00007", &any, &[]);
        check_left(&lost, 7, "refused: it is lost");
    }

    #[test]
    fn a_held_gpu_gives_way_to_the_next() {
        let hold = |gpu: &Gpu| if gpu.index == 5 { Err("another harness uses it".into()) } else { Ok(()) };
        let selection = select(&zoo(), &WantedGpus::Count(1), &options(GpuPolicy::Exclusive), hold);
        assert_eq!(selection.taken[0].gpu.index, 4);
        check_left(&selection, 5, "refused: another harness uses it");
    }
}
