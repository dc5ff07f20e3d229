//! Cache keys: content hashes of everything that a result depends on.
//!
//! Two levels. The key of a *class* holds what compilation may ask: the fusion with
//! its names (texts show them), the options, the device, and of the arguments
//! types, strides, alignments and the sizes of all tensors. Values of scalars
//! are in it only through the sizes that they decide. The key of a *call* adds the
//! values of scalars, which a program's launches hold.

use crate::compile::BoundFusion;
use crate::options::{DeviceDesc, Options};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::{Hash128, StableHasher};
use std::hash::{Hash, Hasher};

/// The keys of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) class: Hash128,
    pub(super) call: Hash128,
}

impl Keys {
    /// The key of a kernel, which also depends on where its outputs lie.
    pub(super) fn kernel(&self, outputs: &[TensorMeta]) -> Hash128 {
        let mut hasher = StableHasher::new();
        hash(self.class, &mut hasher);
        outputs.hash(&mut hasher);
        hasher.finish128()
    }
}

/// The part of the keys that all calls of a session share.
pub(super) fn session_key(device: &DeviceDesc, options: &Options) -> Hash128 {
    let mut hasher = StableHasher::new();
    device.hash(&mut hasher);
    options.hash(&mut hasher);
    hasher.finish128()
}

/// The keys of a call.
pub(super) fn keys(session: Hash128, bound: &BoundFusion<'_>) -> Keys {
    let &BoundFusion { fusion, bindings, args, alignments } = bound;
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
    let class = hasher.finish128();
    for arg in args {
        if let ArgMeta::Scalar(value) = arg {
            value.hash(&mut hasher);
        }
    }
    Keys { class, call: hasher.finish128() }
}

fn hash(value: Hash128, hasher: &mut StableHasher) {
    hasher.write_u64((value.0 >> 64) as u64);
    hasher.write_u64(value.0 as u64);
}
