//! Schedules of all kernels, as text: they make the same kernels again.

use harness::case::{Target, load};
use harness::corpus::replayed;
use std::path::Path;

#[test]
fn every_schedule_makes_its_kernel_again_as_text() {
    let loaded = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"), Target::Sim);
    assert_eq!(loaded.errors, []);
    let found = replayed(&loaded.cases);
    let shown = &found.other[..found.other.len().min(20)];
    assert!(
        found.other.is_empty(),
        "{} of {} are others: {shown:#?}",
        found.other.len(),
        found.same + found.other.len()
    );
    assert!(found.same > 1000, "{} kernels", found.same);
}
