//! What NVML says about the GPUs of this machine. Every figure may be missing
//! (containers, MIG, old drivers): then it is absent, and never an error.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use serde::Serialize;

/// A GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Gpu {
    pub(crate) index: u32,
    pub(crate) uuid: String,
    pub(crate) name: String,
    /// Compute capability times ten: 90.
    pub(crate) arch: Option<u32>,
    pub(crate) mem_total_bytes: Option<u64>,
    pub(crate) mem_used_bytes: Option<u64>,
    /// Percent of time with a kernel running.
    pub(crate) util_gpu: Option<u32>,
    /// Compute processes: process id and bytes.
    pub(crate) procs: Option<Vec<u32>>,
    pub(crate) ecc_uncorrected: Option<u64>,
    /// Why clocks are below their maximum, other than idleness.
    pub(crate) clock_event_reasons: Vec<String>,
    pub(crate) temp_c: Option<u32>,
    pub(crate) power_mw: Option<u32>,
    pub(crate) sm_clock_mhz: Option<u32>,
    pub(crate) compute_mode: Option<String>,
    pub(crate) mig: bool,
}

/// What there is.
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

/// Asks NVML. Takes a few milliseconds with a driver, none without.
pub(crate) fn probe() -> Nvidia {
    let mut found = Nvidia::default();
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        Err(error) => {
            found.problems.push(format!("NVML is not available: {error}"));
            return found;
        }
    };
    found.driver = nvml.sys_driver_version().ok();
    found.nvml = nvml.sys_nvml_version().ok();
    found.cuda = nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
    match nvml.device_count() {
        Ok(0) => found.problems.push("NVML reports no GPU".into()),
        Ok(count) => {
            for index in 0..count {
                match read(&nvml, index) {
                    Ok(gpu) => found.gpus.push(gpu),
                    Err(error) => found.problems.push(format!("GPU {index} cannot be read: {error}")),
                }
            }
        }
        Err(error) => found.problems.push(format!("GPUs cannot be counted: {error}")),
    }
    found
}

fn read(nvml: &Nvml, index: u32) -> Result<Gpu, nvml_wrapper::error::NvmlError> {
    let device = nvml.device_by_index(index)?;
    let memory = device.memory_info().ok();
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        name: device.name().unwrap_or_else(|_| "unnamed GPU".into()),
        arch: device.cuda_compute_capability().ok().map(|cc| (cc.major * 10 + cc.minor) as u32),
        mem_total_bytes: memory.as_ref().map(|m| m.total),
        mem_used_bytes: memory.as_ref().map(|m| m.used),
        util_gpu: device.utilization_rates().ok().map(|rates| rates.gpu),
        procs: device.running_compute_processes().ok().map(|list| list.iter().map(|p| p.pid).collect()),
        ecc_uncorrected: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        clock_event_reasons: device.current_throttle_reasons().map(|reasons| names(&reasons)).unwrap_or_default(),
        temp_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_mw: device.power_usage().ok(),
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        compute_mode: device.compute_mode().ok().map(|mode| format!("{mode:?}")),
        mig: device.mig_mode().is_ok_and(|mode| mode.current == 1),
    })
}

/// The reasons that matter: an idle GPU has low clocks too.
fn names(reasons: &nvml_wrapper::bitmasks::device::ThrottleReasons) -> Vec<String> {
    let idle = ["NONE", "GPU_IDLE", "APPLICATIONS_CLOCKS_SETTING"];
    reasons.iter_names().map(|(name, _)| name).filter(|name| !idle.contains(name)).map(str::to_lowercase).collect()
}
