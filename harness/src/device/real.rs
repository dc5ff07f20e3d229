//! NVML itself. Opened at the first question and kept; a failure is asked again,
//! since a driver may come back.

use super::find_nvrtc;
use super::gpu::{Gpu, MigDevice, Nvidia, Process};
use super::nvml::{Nvml, NvmlNews, Silent};
use crate::proto::DeviceSpec;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml as Library};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The driver of this machine.
#[derive(Default)]
pub(super) struct RealDriver {
    library: Mutex<Option<Arc<Library>>>,
    nvrtc: OnceLock<Vec<PathBuf>>,
    /// What the survey is at.
    doing: Mutex<String>,
}

impl RealDriver {
    fn library(&self) -> Result<Arc<Library>, NvmlError> {
        let mut kept = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = &*kept {
            return Ok(library.clone());
        }
        let library = Arc::new(Library::init()?);
        *kept = Some(library.clone());
        Ok(library)
    }

    /// Folders with NVRTC.
    fn nvrtc(&self) -> &Vec<PathBuf> {
        self.nvrtc.get_or_init(|| find_nvrtc().folders())
    }

    fn does(&self, what: &str) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what.into();
    }
}

impl Nvml for RealDriver {
    fn survey(&self) -> Nvidia {
        let mut found = Nvidia::default();
        self.does("the driver was opened");
        let nvml = match self.library() {
            Ok(nvml) => nvml,
            Err(error) => {
                found.problems.push(format!("NVML is not available: {error}"));
                return found;
            }
        };
        self.does("GPUs were counted");
        found.driver = nvml.sys_driver_version().ok();
        found.nvml = nvml.sys_nvml_version().ok();
        found.cuda = nvml.sys_cuda_driver_version().ok().map(|v| format!("{}.{}", v / 1000, v % 1000 / 10));
        match nvml.device_count() {
            Ok(0) => found.problems.push("NVML reports no GPU".into()),
            // Python is asked where NVRTC is, and the driver may wake GPUs: one beside the other.
            Ok(count) => std::thread::scope(|scope| {
                let _ = std::thread::Builder::new().spawn_scoped(scope, || {
                    self.nvrtc();
                });
                for index in 0..count {
                    self.does(&format!("GPU {index} was read"));
                    match nvml.device_by_index(index).and_then(|device| read(&device, index)) {
                        Ok(gpu) => found.gpus.push(gpu),
                        Err(error) => found.problems.push(format!("GPU {index} cannot be read: {error}")),
                    }
                }
                self.does("NVRTC was looked for");
            }),
            Err(error) => found.problems.push(format!("GPUs cannot be counted: {error}")),
        }
        found
    }

    fn doing(&self) -> String {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn look(&self, uuid: &str) -> Result<Gpu, Silent> {
        let look = || {
            let nvml = self.library()?;
            let device = nvml.device_by_uuid(uuid)?;
            let whole = if uuid.starts_with("MIG-") { device.mig_parent_device()? } else { device };
            let gpu = read(&whole, whole.index()?)?;
            Ok(gpu.part(uuid).unwrap_or(gpu))
        };
        look().map_err(|error: NvmlError| {
            if matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded) {
                // The next question opens it anew.
                *self.library.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            match lost(&error) {
                true => Silent::Lost(error.to_string()),
                false => Silent::Failed(error.to_string()),
            }
        })
    }

    fn listen(&self, uuids: &[String], tick: Duration, hear: &mut dyn FnMut(NvmlNews) -> bool) {
        let failed = |error: NvmlError| NvmlNews::Failed(format!("NVML's event set: {error}"));
        let nvml = match self.library() {
            Ok(nvml) => nvml,
            Err(error) => {
                hear(failed(error));
                return;
            }
        };
        let set = match subscribe(&nvml, uuids) {
            Ok((set, deaf)) => {
                if !deaf.into_iter().all(|(uuid, why)| hear(NvmlNews::NoEvents { uuid, why })) {
                    return;
                }
                set
            }
            Err(error) => {
                hear(failed(error));
                return;
            }
        };
        let tick = u32::try_from(tick.as_millis()).unwrap_or(100).max(1);
        loop {
            let heard = match set.wait(tick) {
                Ok(event) => heard(&event),
                Err(NvmlError::Timeout) => NvmlNews::Nothing,
                Err(error) if lost(&error) => NvmlNews::Lost { uuid: gone(&nvml, uuids) },
                Err(error) => failed(error),
            };
            // Once a GPU is lost, each wait for any of them fails.
            let last = matches!(heard, NvmlNews::Failed(_) | NvmlNews::Lost { .. });
            if !hear(heard) || last {
                return;
            }
        }
    }

    fn worker_device(&self, uuid: &str, _threads: u32) -> DeviceSpec {
        DeviceSpec::Cuda { uuid: uuid.into(), nvrtc: self.nvrtc().clone() }
    }
}

fn heard(event: &nvml_wrapper::struct_wrappers::event::EventData<'_>) -> NvmlNews {
    let code = match event.event_data {
        Some(XidError::Value(code)) => code,
        // A double bit error comes with an Xid of its own, but not on all drivers.
        None if event.event_type.contains(EventTypes::DOUBLE_BIT_ECC_ERROR) => 48,
        _ => return NvmlNews::Nothing,
    };
    match event.device.uuid() {
        Ok(uuid) => NvmlNews::Xid { uuid, code },
        Err(_) => NvmlNews::Lost { uuid: None },
    }
}

fn lost(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

/// The first of the GPUs that can no longer be asked.
fn gone(nvml: &Library, uuids: &[String]) -> Option<String> {
    let gone = |uuid: &&String| {
        let asked = nvml.device_by_uuid(uuid.as_str()).and_then(|device| device.temperature(TemperatureSensor::Gpu));
        asked.is_err_and(|error| lost(&error))
    };
    uuids.iter().find(gone).cloned()
}

/// GPUs that tell no events, and why.
type WithoutEvents = Vec<(String, String)>;

/// An event set of those GPUs that have events, and the others. A failed
/// registration takes the whole set with it, so it starts over without that GPU.
fn subscribe<'a>(nvml: &'a Library, uuids: &[String]) -> Result<(EventSet<'a>, WithoutEvents), NvmlError> {
    let wanted = EventTypes::CRITICAL_XID_ERROR | EventTypes::DOUBLE_BIT_ECC_ERROR;
    let mut left: Vec<&String> = uuids.iter().collect();
    let mut deaf = WithoutEvents::new();
    let mut last = NvmlError::NotSupported;
    'again: while !left.is_empty() {
        let mut set = nvml.create_event_set()?;
        for at in 0..left.len() {
            match register(nvml, left[at], wanted, set) {
                Ok(kept) => set = kept,
                Err(error) => {
                    deaf.push((left.remove(at).clone(), error.to_string()));
                    last = error;
                    continue 'again;
                }
            }
        }
        return Ok((set, deaf));
    }
    Err(last)
}

fn register<'a>(
    nvml: &'a Library,
    uuid: &str,
    wanted: EventTypes,
    set: EventSet<'a>,
) -> Result<EventSet<'a>, NvmlError> {
    let device = nvml.device_by_uuid(uuid)?;
    // Events belong to the whole GPU.
    let device = if uuid.starts_with("MIG-") { device.mig_parent_device()? } else { device };
    let types = device.supported_event_types()? & wanted;
    if types.is_empty() {
        return Err(NvmlError::NotSupported);
    }
    device.register_events(types, set).map_err(|error| error.error)
}

fn read(device: &Device<'_>, index: u32) -> Result<Gpu, NvmlError> {
    let memory = device.memory_info().ok();
    let temperature = device.temperature(TemperatureSensor::Gpu);
    let lost = temperature.as_ref().err().filter(|error| lost(error)).map(ToString::to_string);
    let mig = device.mig_mode().is_ok_and(|mode| mode.current == 1);
    Ok(Gpu {
        index,
        uuid: device.uuid()?,
        parent: None,
        name: device.name().unwrap_or_else(|_| "unnamed GPU".into()),
        pci_bus: device.pci_info().ok().map(|pci| pci.bus_id),
        arch: device.cuda_compute_capability().ok().map(|cc| (cc.major * 10 + cc.minor) as u32),
        mem_total_bytes: memory.as_ref().map(|m| m.total),
        mem_used_bytes: memory.as_ref().map(|m| m.used),
        util_gpu: device.utilization_rates().ok().map(|rates| rates.gpu),
        procs: device.running_compute_processes().ok().map(|list| list.iter().map(process).collect()),
        ecc_uncorrected: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        clock_event_reasons: device.current_throttle_reasons().map(|reasons| names(&reasons)).unwrap_or_default(),
        temp_c: temperature.ok(),
        power_mw: device.power_usage().ok(),
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        compute_mode: device.compute_mode().ok().map(|mode| format!("{mode:?}")),
        mig,
        mig_devices: if mig { parts(device) } else { Vec::new() },
        lost,
    })
}

fn process(info: &nvml_wrapper::struct_wrappers::device::ProcessInfo) -> Process {
    let mem_bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    Process { pid: info.pid, mem_bytes }
}

/// The MIG devices that are set up.
fn parts(device: &Device<'_>) -> Vec<MigDevice> {
    let part = |index| {
        let part = device.mig_device_by_index(index).ok()?;
        let memory = part.memory_info().ok();
        Some(MigDevice {
            uuid: part.uuid().ok()?,
            mem_total_bytes: memory.as_ref().map(|m| m.total),
            mem_used_bytes: memory.as_ref().map(|m| m.used),
        })
    };
    (0..device.mig_device_count().unwrap_or(0).min(16)).filter_map(part).collect()
}

/// The reasons that matter: an idle GPU has low clocks too.
fn names(reasons: &nvml_wrapper::bitmasks::device::ThrottleReasons) -> Vec<String> {
    let idle = ["NONE", "GPU_IDLE", "APPLICATIONS_CLOCKS_SETTING"];
    reasons.iter_names().map(|(name, _)| name).filter(|name| !idle.contains(name)).map(str::to_lowercase).collect()
}
