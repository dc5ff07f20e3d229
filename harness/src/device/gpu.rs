//! What is known about a GPU at one moment, as plain data: from NVML, or from a
//! file that plays NVML. Every figure may be missing (containers, MIG, old
//! drivers): then it is absent, and never an error.

use crate::units::{counted, show_bytes};
use serde::Serialize;

/// A process that computes on a GPU. In a container its number may be the
/// host's, which nothing here can be compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) mem_bytes: Option<u64>,
}

impl Process {
    /// `process 17 with 3.0 GiB`.
    pub(crate) fn words(&self) -> String {
        let memory = self.mem_bytes.map_or(String::new(), |bytes| format!(" with {}", show_bytes(bytes)));
        format!("process {}{memory}", self.pid)
    }
}

/// A part of a GPU that MIG made a device of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MigDevice {
    pub(crate) uuid: String,
    pub(crate) mem_total_bytes: Option<u64>,
    pub(crate) mem_used_bytes: Option<u64>,
}

/// A GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Gpu {
    /// By PCI bus, as all tools of the driver count.
    pub(crate) index: u32,
    pub(crate) uuid: String,
    /// Of a MIG part: the whole GPU.
    pub(crate) parent: Option<String>,
    pub(crate) name: String,
    pub(crate) pci_bus: Option<String>,
    /// Compute capability times ten: 90.
    pub(crate) arch: Option<u32>,
    pub(crate) mem_total_bytes: Option<u64>,
    pub(crate) mem_used_bytes: Option<u64>,
    /// Percent of time with a kernel running.
    pub(crate) util_gpu: Option<u32>,
    pub(crate) procs: Option<Vec<Process>>,
    /// Since the driver was loaded.
    pub(crate) ecc_uncorrected: Option<u64>,
    /// Why clocks are below their maximum, other than idleness.
    pub(crate) clock_event_reasons: Vec<String>,
    pub(crate) temp_c: Option<u32>,
    pub(crate) power_mw: Option<u32>,
    pub(crate) sm_clock_mhz: Option<u32>,
    /// `Default`, `ExclusiveProcess`, `Prohibited`.
    pub(crate) compute_mode: Option<String>,
    pub(crate) mig: bool,
    pub(crate) mig_devices: Vec<MigDevice>,
    /// Set where NVML knows the GPU but cannot ask it: why.
    pub(crate) lost: Option<String>,
}

impl Gpu {
    /// Memory that nobody uses, where it is known.
    pub(crate) fn mem_free_bytes(&self) -> Option<u64> {
        self.mem_total_bytes?.checked_sub(self.mem_used_bytes?)
    }

    /// `GPU 0 NVIDIA H200 GPU-89ab1234`: as much of the UUID as tells GPUs apart.
    pub(crate) fn name_and_uuid(&self) -> String {
        let short: String = self.uuid.chars().take(12).collect();
        format!("GPU {} {} {short}", self.index, self.name)
    }

    /// The GPU's MIG part of the given name, as a device of its own.
    pub(crate) fn part(&self, uuid: &str) -> Option<Gpu> {
        let part = self.mig_devices.iter().find(|part| part.uuid == uuid)?;
        Some(Gpu {
            uuid: part.uuid.clone(),
            parent: Some(self.uuid.clone()),
            name: format!("{} MIG", self.name),
            mem_total_bytes: part.mem_total_bytes,
            mem_used_bytes: part.mem_used_bytes,
            mig: false,
            mig_devices: Vec::new(),
            ..self.clone()
        })
    }
}

/// All that NVML says at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Nvidia {
    /// Driver version.
    pub(crate) driver: Option<String>,
    /// Newest CUDA version that the driver supports.
    pub(crate) cuda: Option<String>,
    pub(crate) nvml: Option<String>,
    pub(crate) gpus: Vec<Gpu>,
    /// Why there are none, or fewer than there should be.
    pub(crate) problems: Vec<String>,
}

impl Nvidia {
    /// The GPU, or the MIG part, of that name.
    pub(crate) fn find(&self, uuid: &str) -> Option<Gpu> {
        self.gpus.iter().find_map(|gpu| (gpu.uuid == uuid).then(|| gpu.clone()).or_else(|| gpu.part(uuid)))
    }
}

/// What became worse between two looks at a GPU, in words. `own` are the
/// processes that this run has there.
pub(crate) fn worse(before: &Gpu, after: &Gpu, own: &[u32]) -> Vec<String> {
    let mut words = Vec::new();
    if let Some(why) = &after.lost {
        words.push(format!("lost: {why}"));
    }
    let errors = after.ecc_uncorrected.unwrap_or(0).saturating_sub(before.ecc_uncorrected.unwrap_or(0));
    if errors > 0 {
        words.push(counted(errors, "new uncorrected ECC error"));
    }
    for reason in after.clock_event_reasons.iter().filter(|reason| !before.clock_event_reasons.contains(reason)) {
        words.push(format!("clocks held by {reason}"));
    }
    for process in strangers(before, after, own) {
        words.push(format!("{} came", process.words()));
    }
    words
}

/// Processes that came between two looks and are not `own`. Where none of the
/// own is seen although there are some, process numbers are those of another
/// namespace: then only as many as exceed the own ones are strangers.
pub(crate) fn strangers(before: &Gpu, after: &Gpu, own: &[u32]) -> Vec<Process> {
    let known = before.procs.as_deref().unwrap_or_default();
    let now = after.procs.as_deref().unwrap_or_default();
    let came: Vec<Process> = now
        .iter()
        .filter(|process| !own.contains(&process.pid) && !known.iter().any(|old| old.pid == process.pid))
        .cloned()
        .collect();
    let seen = now.iter().filter(|process| own.contains(&process.pid)).count();
    let hidden = if seen == 0 { own.len() } else { 0 };
    came.into_iter().skip(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pids: &[u32]) -> Gpu {
        let process = |pid: &u32| Process { pid: *pid, mem_bytes: Some(2 << 30) };
        Gpu { procs: Some(pids.iter().map(process).collect()), ..Gpu::default() }
    }

    #[track_caller]
    fn check(before: &[u32], after: &[u32], own: &[u32], came: &[u32]) {
        let pids: Vec<u32> = strangers(&with(before), &with(after), own).iter().map(|p| p.pid).collect();
        assert_eq!(pids, came);
    }

    #[test]
    fn strangers_are_told_from_own_processes() {
        check(&[], &[], &[], &[]);
        check(&[], &[7], &[], &[7]);
        check(&[7], &[7, 9], &[9], &[]);
        check(&[7], &[7, 9, 8], &[9], &[8]);
        // In a container our process 12 is shown under another number.
        check(&[], &[4001], &[12], &[]);
        check(&[], &[4001, 4002], &[12], &[4002]);
    }

    #[test]
    fn changes_for_the_worse_are_told() {
        let before = Gpu { ecc_uncorrected: Some(1), clock_event_reasons: vec!["sw_power_cap".into()], ..with(&[]) };
        let reasons = vec!["sw_power_cap".into(), "hw_slowdown".into()];
        let after = Gpu { ecc_uncorrected: Some(3), clock_event_reasons: reasons, ..with(&[5]) };
        let told = ["2 new uncorrected ECC errors", "clocks held by hw_slowdown", "process 5 with 2.0 GiB came"];
        assert_eq!(worse(&before, &after, &[]), told);
        assert_eq!(worse(&after, &after, &[]), Vec::<String>::new());
    }
}
