//! Schedules of all kernels, as text: they make the same kernels again.

use crate::order::corpus;
use harness::corpus::replayed;

#[test]
fn every_schedule_makes_its_kernel_again_as_text() {
    let (cases, kernels) = corpus();
    let found = replayed(cases, kernels);
    let shown = &found.other[..found.other.len().min(20)];
    assert!(
        found.other.is_empty(),
        "{} of {} are others: {shown:#?}",
        found.other.len(),
        found.same + found.other.len()
    );
    assert!(found.same * 6 > kernels.len(), "{} of {} kernels", found.same, kernels.len());
}
