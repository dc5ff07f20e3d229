//! Cache keys: content hashes of everything that a result depends on.
//!
//! Two levels. The *plan* key holds what compilation may ask: the fusion with
//! its names (texts show them), the options, the device, and of the arguments
//! types, strides, alignments and the sizes of all tensors. Values of scalars
//! are in it only through the sizes that they decide. The *launch* key adds the
//! values of scalars, which the ready argument block holds.

use crate::fusion::{Bindings, Fusion};
use crate::options::{DeviceDesc, Options};
use crate::tensor::ArgMeta;
use crate::util::{Hash128, StableHasher};
use std::hash::{Hash, Hasher};

/// The keys of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) plan: Hash128,
    pub(super) launch: Hash128,
}

/// The part of the keys that all calls of a session share.
pub(super) fn session_key(device: &DeviceDesc, options: &Options) -> Hash128 {
    let mut hasher = StableHasher::new();
    device.hash(&mut hasher);
    options.hash(&mut hasher);
    hasher.finish128()
}

/// The keys of a call. `alignments` holds the alignment of element 0 of each argument in bytes.
pub(super) fn keys(
    session: Hash128,
    fusion: &Fusion,
    bindings: &Bindings,
    args: &[ArgMeta],
    alignments: &[u32],
) -> Keys {
    let mut hasher = StableHasher::new();
    hash(session, &mut hasher);
    hash(crate::fusion::hash::content(fusion), &mut hasher);
    for (arg, alignment) in args.iter().zip(alignments) {
        match arg {
            ArgMeta::Tensor(meta) => {
                meta.hash(&mut hasher);
                alignment.hash(&mut hasher);
            }
            ArgMeta::Scalar(value) => value.class().hash(&mut hasher),
        }
    }
    for tensor in fusion.tensors.ids() {
        bindings.sizes(fusion, tensor).hash(&mut hasher);
    }
    let plan = hasher.finish128();
    for arg in args {
        if let ArgMeta::Scalar(value) = arg {
            value.hash(&mut hasher);
        }
    }
    Keys { plan, launch: hasher.finish128() }
}

fn hash(value: Hash128, hasher: &mut StableHasher) {
    hasher.write_u64((value.0 >> 64) as u64);
    hasher.write_u64(value.0 as u64);
}
