//! Content hashes of fusions, the same in every process and on every machine.

use super::{Fusion, ScalarDef};
use crate::util::{Hash128, StableHasher};
use std::hash::{Hash, Hasher};

/// The hash of everything, names included: what printed texts depend on.
pub fn content(fusion: &Fusion) -> Hash128 {
    let mut hasher = StableHasher::new();
    hasher.write_bytes(fusion.name.as_bytes());
    for tensor in fusion.tensors.values() {
        hasher.write_bytes(tensor.name.as_bytes());
    }
    for scalar in fusion.scalars.values() {
        if let ScalarDef::Input { name, .. } = &scalar.def {
            hasher.write_bytes(name.as_bytes());
        }
    }
    feed_structure(fusion, &mut hasher);
    hasher.finish128()
}

/// The hash of what is computed, without names: fusions that differ only in
/// names have one.
pub fn structure(fusion: &Fusion) -> Hash128 {
    let mut hasher = StableHasher::new();
    feed_structure(fusion, &mut hasher);
    hasher.finish128()
}

fn feed_structure(fusion: &Fusion, hasher: &mut StableHasher) {
    hasher.write_u64(fusion.tensors.len() as u64);
    for tensor in fusion.tensors.values() {
        tensor.dtype.hash(hasher);
        tensor.axes.hash(hasher);
        tensor.def.hash(hasher);
        tensor.layout.hash(hasher);
    }
    hasher.write_u64(fusion.scalars.len() as u64);
    for scalar in fusion.scalars.values() {
        scalar.dtype.hash(hasher);
        match &scalar.def {
            ScalarDef::Input { index, .. } => {
                // A tag apart from every derived discriminant below.
                hasher.write_u8(u8::MAX);
                index.hash(hasher);
            }
            other => other.hash(hasher),
        }
    }
    hasher.write_u64(fusion.ops.len() as u64);
    for op in fusion.ops.values() {
        op.hash(hasher);
    }
    fusion.inputs.hash(hasher);
    fusion.outputs.hash(hasher);
    fusion.updates.hash(hasher);
}
