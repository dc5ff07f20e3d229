//! Faults of the device: kernels that touch what is not theirs, never end, or
//! cannot be launched.

use super::table::Class;

pub(super) const CLASSES: &[Class] = &[];
