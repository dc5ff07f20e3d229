//! Results of a call: their digest, and those that stay on the device because of it.
//!
//! Who knows what a call gave before has the digest of that, and mostly needs no byte of what it gives now: see
//! [`Hints::results`](super::Hints). Input: a program, its arguments, and the device's memory behind the last step.
//! Output: one digest of all results, the same from bytes of the host and of a GPU; and what holds a GPU's until
//! somebody asks for them.
//!
//! Invariant: what is brought later is what would have been brought at once: nobody writes into what is held.

use super::executor::{Brought, bring};
use crate::array::parallel;
use crate::backend::cuda::GuardedBuffer;
use crate::diag::{Diagnostic, Result};
use crate::program::{Program, Storage, ValueId};
use crate::tensor::{Arg, HostTensor, TensorMeta};
use crate::util::{Hash128, StableHasher, WORD, WordSums};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that one thread digests at a time: whole words.
const PART: usize = WORD << 14;

/// The digest of results in their order: outputs, then updated inputs. It is of types, sizes and strides, and of the bytes
/// of the whole storage of each.
pub fn results_digest<'a>(results: impl IntoIterator<Item = &'a HostTensor>) -> Hash128 {
    together(results.into_iter().map(|result| (&result.meta, digest_of(&result.data))))
}

/// The digest of bytes, by all threads.
pub(super) fn digest_of(bytes: &[u8]) -> Hash128 {
    let part = |i: usize| {
        let start = i * PART;
        WordSums::of((start / WORD) as u64, &bytes[start..bytes.len().min(start + PART)])
    };
    let parts = parallel::results(bytes.len().div_ceil(PART), &part);
    parts.into_iter().fold(WordSums::default(), WordSums::and).digest(bytes.len() as u64)
}

/// Of several results, by the form of each and the digest of its bytes.
pub(super) fn together<'a>(results: impl IntoIterator<Item = (&'a TensorMeta, Hash128)>) -> Hash128 {
    let mut hasher = StableHasher::new();
    for (meta, digest) in results {
        hasher.write_bytes(format!("{} {:?} {:?}", meta.dtype, meta.sizes, meta.strides).as_bytes());
        hasher.write_bytes(&digest.0.to_le_bytes());
    }
    hasher.finish128()
}

/// Type and layout of a value as a caller gets it: what an argument becomes lies as that argument.
pub(super) fn meta_of<'a>(program: &'a Program, args: &'a [Arg], value: ValueId) -> Result<&'a TensorMeta> {
    match program.values[value].storage {
        Storage::Input(position) => super::executor::tensor_of(args, position).map(|given| &given.meta),
        _ => Ok(&program.values[value].meta),
    }
}

/// Memory of values on a GPU.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// Storage of arguments, by position.
    pub(super) inputs: BTreeMap<u32, GuardedBuffer>,
    /// Values with memory of their own.
    pub(super) own: BTreeMap<ValueId, GuardedBuffer>,
}

impl Placed {
    /// The memory that a value lies in, and where in it, in bytes.
    pub(super) fn place(&self, program: &Program, args: &[Arg], value: ValueId) -> Result<(&GuardedBuffer, usize)> {
        let (root, within) = program.root(value);
        let (buffer, start) = match program.values[root].storage {
            Storage::Input(position) => {
                (self.inputs.get(&position), super::executor::tensor_of(args, position)?.first_byte())
            }
            _ => (self.own.get(&root), 0),
        };
        let buffer = buffer.ok_or_else(|| missing(program, value))?;
        Ok((buffer, start + within as usize))
    }

    /// The bytes of a value from its first element to its last.
    pub(super) fn read(&self, program: &Program, args: &[Arg], value: ValueId) -> Result<Vec<u8>> {
        let bytes = program.values[value].bytes() as usize;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        let (buffer, start) = self.place(program, args, value)?;
        buffer.bytes_from(start, bytes)
    }
}

pub(super) fn missing(program: &Program, value: ValueId) -> Box<Diagnostic> {
    Diagnostic::bug(format!("{value} of @{} is not in memory", program.name()))
}

/// The results of a call whose digest was known, on the device.
#[derive(Debug)]
pub(super) struct Held {
    program: Arc<Program>,
    placed: Placed,
}

impl Held {
    /// Keeps of the memory of a call what its results lie in.
    pub(super) fn new(program: &Arc<Program>, mut placed: Placed) -> Self {
        let roots: Vec<ValueId> = results_of(program).map(|value| program.root(value).0).collect();
        placed.own.retain(|value, _| roots.contains(value));
        let is_result = |position: &u32| {
            roots.iter().any(|root| matches!(program.values[*root].storage, Storage::Input(of) if of == *position))
        };
        placed.inputs.retain(|position, _| is_result(position));
        Self { program: Arc::clone(program), placed }
    }

    /// Brings the results, given the arguments of the call.
    pub(super) fn bring(&self, args: &[Arg]) -> Result<Brought> {
        bring(&self.program, args, &mut |value| self.placed.read(&self.program, args, value))
    }
}

/// The values that a caller gets: outputs, then updated inputs.
pub(super) fn results_of(program: &Program) -> impl Iterator<Item = ValueId> {
    program.outputs.iter().copied().chain(program.updated().map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::DType;

    #[test]
    fn every_byte_and_the_form_are_in_the_digest_of_results() {
        let bytes: Vec<u8> = (0..2 * PART + 8).map(|i| (i % 253) as u8).collect();
        let tensor = |dtype: DType, bytes: &[u8]| {
            let sizes = [(bytes.len() / dtype.bytes()) as i64];
            HostTensor::contiguous(dtype, &sizes, bytes.to_vec()).unwrap()
        };
        let of = |dtype: DType, bytes: &[u8]| results_digest(&[tensor(dtype, bytes)]);
        let whole = of(DType::F32, &bytes);
        assert_eq!(digest_of(&bytes), WordSums::of(0, &bytes).digest(bytes.len() as u64));
        assert_eq!(of(DType::F32, &bytes), whole);
        assert!(of(DType::I32, &bytes) != whole && of(DType::F32, &bytes[..bytes.len() - 4]) != whole);
        for at in [0, PART - 1, PART, bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(of(DType::F32, &other) != whole, "{at}");
        }
        let [a, b] = [tensor(DType::F32, &bytes[..8]), tensor(DType::F32, &bytes[8..16])];
        assert!(
            results_digest([&a, &b]) != results_digest([&b, &a]) && results_digest([&a]) != results_digest([&a, &a])
        );
    }
}
