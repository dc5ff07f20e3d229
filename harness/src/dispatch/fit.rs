//! Which slots can take which cases: requirements of a case against the device
//! of a slot. A case is skipped only where no slot can take it.

use super::SlotSpec;
use crate::case::Require;
use crate::proto::DeviceSpec;
use crate::units::show_bytes;
use engine::options::DeviceDesc;

/// The stable name of a skip, and its reason.
pub(crate) type Unfit = (&'static str, String);

impl SlotSpec {
    /// The kind of device, as `[require] device` writes it. A played GPU is one
    /// of the simulator's.
    pub(crate) fn kind(&self) -> &'static str {
        match self.device {
            DeviceSpec::Cuda { .. } => "cuda",
            DeviceSpec::Reference => "ref",
            DeviceSpec::Sim { .. } | DeviceSpec::Played { .. } => "sim",
        }
    }

    /// Which slots share a device: those with the same name.
    pub(crate) fn device_name(&self) -> String {
        match (&self.gpu, &self.device) {
            (Some(gpu), _) => gpu.uuid.clone(),
            (None, DeviceSpec::Sim { ordinal, .. }) => format!("sim{ordinal}"),
            (None, _) => self.label.clone(),
        }
    }

    /// Why a case with these requirements cannot run here, if so.
    pub(crate) fn unfit(&self, require: &Require) -> Option<Unfit> {
        let kind = self.kind();
        if !require.device.is_empty() && !require.device.iter().any(|name| name == kind) {
            return Some(("skip.requires.device", format!("needs device {}", require.device.join(" or "))));
        }
        let arch = match &self.gpu {
            Some(gpu) => gpu.arch,
            None if kind == "sim" => Some(simulated_arch()),
            None => None,
        };
        if let (Some(needed), Some(arch)) = (require.arch, arch)
            && arch < needed
        {
            return Some(("skip.requires.arch", format!("needs compute capability {needed}, the device has {arch}")));
        }
        let free = self.gpu.as_ref().and_then(|gpu| gpu.mem_free_bytes());
        if let (Some(needed), Some(free)) = (require.memory, free)
            && free < needed
        {
            let (needed, free) = (show_bytes(needed), show_bytes(free));
            return Some(("skip.requires.mem", format!("needs {needed} of device memory, {free} are free")));
        }
        None
    }
}

/// Why no slot can take a case, if so. Reasons of different devices are listed.
pub(crate) fn unfit_for_all(slots: &[SlotSpec], require: &Require) -> Option<Unfit> {
    let devices: std::collections::BTreeSet<String> = slots.iter().map(SlotSpec::device_name).collect();
    if let Some(needed) = require.gpus.filter(|needed| *needed > devices.len()) {
        return Some(("skip.requires.gpus", format!("needs {needed} devices, the run has {}", devices.len())));
    }
    let mut reasons: Vec<Unfit> = Vec::new();
    for slot in slots {
        let unfit = slot.unfit(require)?;
        if !reasons.contains(&unfit) {
            reasons.push(unfit);
        }
    }
    // The reason that comes last in the order of checks is nearest to a fit.
    let name = reasons.last()?.0;
    let words: Vec<String> = reasons.into_iter().map(|(_, why)| why).collect();
    Some((name, words.join("; ")))
}

/// The simulated device's compute capability, as `[require] arch` writes it.
fn simulated_arch() -> u32 {
    let (major, minor) = DeviceDesc::h200().compute_capability;
    10 * major + minor
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Gpu;

    fn slot(uuid: &str, arch: u32, free: u64) -> SlotSpec {
        let (total, used) = (Some(free + 100), Some(100));
        let gpu =
            Gpu { uuid: uuid.into(), arch: Some(arch), mem_total_bytes: total, mem_used_bytes: used, ..Gpu::default() };
        let device = DeviceSpec::Cuda { uuid: uuid.into(), nvrtc: Vec::new() };
        SlotSpec { device, label: uuid.into(), env: Vec::new(), gpu: Some(gpu) }
    }

    #[track_caller]
    fn check(slots: &[SlotSpec], require: Require, fits: &[bool], all: Option<(&str, &str)>) {
        let found: Vec<bool> = slots.iter().map(|slot| slot.unfit(&require).is_none()).collect();
        assert_eq!(found, fits);
        let unfit = unfit_for_all(slots, &require);
        assert_eq!(unfit.as_ref().map(|(name, why)| (*name, why.as_str())), all);
    }

    #[test]
    fn a_case_goes_where_it_fits() {
        let slots = [slot("old", 80, 1 << 30), slot("new", 90, 4 << 30), slot("new", 90, 4 << 30)];
        let base = Require::default;
        check(&slots, base(), &[true, true, true], None);
        check(&slots, Require { arch: Some(90), ..base() }, &[false, true, true], None);
        check(&slots, Require { memory: Some(2 << 30), ..base() }, &[false, true, true], None);
        let arch = "needs compute capability 100, the device has 80; needs compute capability 100, the device has 90";
        check(&slots, Require { arch: Some(100), ..base() }, &[false; 3], Some(("skip.requires.arch", arch)));
        let both = "needs compute capability 90, the device has 80; needs 9.0 GiB of device memory, 4.0 GiB are free";
        let require = Require { arch: Some(90), memory: Some(9 << 30), ..base() };
        check(&slots, require, &[false; 3], Some(("skip.requires.mem", both)));
        let sim = Require { device: vec!["sim".into()], ..base() };
        check(&slots, sim, &[false; 3], Some(("skip.requires.device", "needs device sim")));
        check(&slots, Require { gpus: Some(2), ..base() }, &[true; 3], None);
        let gpus = Some(("skip.requires.gpus", "needs 3 devices, the run has 2"));
        check(&slots, Require { gpus: Some(3), ..base() }, &[true; 3], gpus);
    }

    #[test]
    fn unknown_figures_forbid_nothing() {
        let mut blank = slot("new", 90, 0);
        blank.gpu = Some(Gpu { uuid: "new".into(), ..Gpu::default() });
        check(&[blank], Require { arch: Some(100), memory: Some(1 << 50), ..Require::default() }, &[true], None);
    }
}
