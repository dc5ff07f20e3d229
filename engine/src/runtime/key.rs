//! Cache keys: content hashes of everything that a result depends on.
//!
//! The key of a *kernel* is the form of its fusion and what was chosen for it: no size. The
//! key of a *cut* holds all that sizes, strides and alignments decide about a program, and
//! that of a *call* also the values of scalars, which a program's launches hold. Values of
//! scalars are in the former only through the sizes that they decide.

use crate::compile::{BoundFusion, KernelChoice, KernelForm};
use crate::options::{DeviceDesc, Options};
use crate::tensor::ArgMeta;
use crate::util::{Hash128, StableHasher};
use std::hash::{Hash, Hasher};

/// The keys of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) cut: Hash128,
    pub(super) call: Hash128,
}

/// The key of a kernel among those of one session.
pub(super) fn kernel_key(form: &KernelForm, choice: &KernelChoice) -> Hash128 {
    let mut hasher = StableHasher::new();
    hash(form.content, &mut hasher);
    choice.hash(&mut hasher);
    hasher.finish128()
}

/// The part of the keys that all calls of a session share.
pub(super) fn session_key(device: &DeviceDesc, options: &Options) -> Hash128 {
    let mut hasher = StableHasher::new();
    device.hash(&mut hasher);
    options.hash(&mut hasher);
    hasher.finish128()
}

/// The keys of a call of a definition with this content.
pub(super) fn keys(session: Hash128, content: Hash128, bound: &BoundFusion<'_>) -> Keys {
    let &BoundFusion { fusion, bindings, args, alignments } = bound;
    let mut hasher = StableHasher::new();
    hash(session, &mut hasher);
    hash(content, &mut hasher);
    for (arg, alignment) in args.iter().zip(alignments) {
        match arg {
            ArgMeta::Tensor(meta) => {
                meta.hash(&mut hasher);
                alignment.hash(&mut hasher);
            }
            ArgMeta::Scalar(value) => value.class().hash(&mut hasher),
        }
    }
    for axis in fusion.tensors.values().flat_map(|tensor| &tensor.axes) {
        bindings.scalar(axis.extent).as_i64().hash(&mut hasher);
    }
    let cut = hasher.finish128();
    for arg in args {
        if let ArgMeta::Scalar(value) = arg {
            value.hash(&mut hasher);
        }
    }
    Keys { cut, call: hasher.finish128() }
}

fn hash(value: Hash128, hasher: &mut StableHasher) {
    hasher.write_u64((value.0 >> 64) as u64);
    hasher.write_u64(value.0 as u64);
}
