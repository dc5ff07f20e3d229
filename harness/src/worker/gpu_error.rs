//! Errors of the CUDA driver as outcomes, by the driver's number.
//!
//! Numbers are those of `CUresult`. A kernel that broke its context crashed its
//! case (`gpu.*`); a broken GPU, link or driver is the machine's fault
//! (`infra.*`) and counts against no case.

use crate::outcome::Verdict;
use engine::diag::CudaError;

/// Verdict and stable name of an error.
pub(super) fn outcome(error: &CudaError) -> (Verdict, &'static str) {
    use Verdict::{Crash, Fail, Infra};
    match error.number {
        2 => (Fail, "oom.device"),
        701 | 720 | 912 => (Fail, "fail.launch_config"),
        218 | 222 | 300 => (Fail, "fail.compile.ptxas"),
        200 | 209 => (Fail, "fail.load"),
        226 => (Crash, "gpu.contained"),
        700 => (Crash, "gpu.illegal_address"),
        702 => (Crash, "gpu.launch_timeout"),
        709 => (Crash, "gpu.context_lost"),
        710 => (Crash, "gpu.assert"),
        714 => (Crash, "gpu.hw_stack"),
        715 => (Crash, "gpu.illegal_instruction"),
        716 => (Crash, "gpu.misaligned"),
        717 => (Crash, "gpu.invalid_address_space"),
        718 => (Crash, "gpu.invalid_pc"),
        719 => (Crash, "gpu.launch_failed"),
        721 => (Crash, "gpu.tensor_memory_leak"),
        999 => (Crash, "gpu.unknown"),
        214 => (Infra, "infra.ecc_uncorrectable"),
        220 => (Infra, "infra.nvlink"),
        // The driver is missing, not started, does not fit, or has lost its device.
        3 | 4 | 34 | 36 | 46 | 100 | 101 | 221 | 223 | 802 | 803 | 911 => (Infra, "infra.driver"),
        // A sticky error without a name of its own still broke the context.
        _ if error.sticky => (Crash, "gpu.unknown"),
        _ => (Fail, "fail.cuda"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(number: u32, sticky: bool, wanted: (Verdict, &str)) {
        assert_eq!(outcome(&CudaError { number, name: String::new(), sticky }), wanted, "{number}");
    }

    #[test]
    fn numbers_have_their_names() {
        check(2, false, (Verdict::Fail, "oom.device"));
        check(700, true, (Verdict::Crash, "gpu.illegal_address"));
        check(701, false, (Verdict::Fail, "fail.launch_config"));
        check(710, true, (Verdict::Crash, "gpu.assert"));
        check(214, true, (Verdict::Infra, "infra.ecc_uncorrectable"));
        check(803, false, (Verdict::Infra, "infra.driver"));
        check(1, false, (Verdict::Fail, "fail.cuda"));
        check(12_345, true, (Verdict::Crash, "gpu.unknown"));
    }

    /// Whatever ends a context is no plain failure: its worker must not be used again.
    #[test]
    fn sticky_errors_are_crashes_or_the_machines_fault() {
        for number in 0..1000 {
            let (verdict, name) = outcome(&CudaError { number, name: String::new(), sticky: true });
            let plain = matches!(number, 2 | 200 | 209 | 218 | 222 | 300 | 701 | 720 | 912);
            assert!(plain || matches!(verdict, Verdict::Crash | Verdict::Infra), "{number} is {name}");
        }
    }
}
