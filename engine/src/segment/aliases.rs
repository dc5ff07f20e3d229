//! Which results are returned as views of arguments, or of other results.
//!
//! In: a fusion with decided axes, its sizes, the arguments' layouts and those that the
//! definition gives results. Out: [`Aliases`], the operations that nobody computes for that, since
//! their results lie in memory that the caller has or gets anyway: chains of operations that
//! move nothing, from such memory to a result that lies there as the definition says.
//!
//! * Memory of an argument stays as it is, unless the argument is updated: of one that is, no
//!   result is a view, since results have the values from before.
//! * Memory of another result, or of what is written into an input, is there whoever looks at
//!   it. But where a kernel goes on computing with the view it makes it itself: it would have
//!   to wait for the tensor to be stored otherwise, and to read it again.

use crate::array::dense_like;
use crate::compile::BoundFusion;
use crate::diag::Result;
use crate::fusion::{self, Bindings, FoundView, Fusion, OpId, TensorId};
use crate::tensor::{ArgMeta, TensorMeta};
use crate::util::SecondaryMap;

/// Operations whose results are returned as views of what they read, or that lead to such results.
#[derive(Clone, Debug, Default)]
pub(super) struct Aliases {
    /// These operations.
    pub(super) ops: SecondaryMap<OpId, bool>,
    /// How results lie by the rules of the definition.
    results: SecondaryMap<TensorId, Option<TensorMeta>>,
}

/// Whose memory a tensor could be in without moving an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// An argument's that is not updated.
    Argument,
    /// That of something that is stored anyway.
    Stored,
}

impl Aliases {
    /// For what was made of a definition, whose results lie as `outputs` says where they have
    /// memory of their own.
    pub(super) fn new(
        fusion: &Fusion,
        bindings: &Bindings,
        definition: &BoundFusion<'_>,
        outputs: &[TensorMeta],
    ) -> Result<Self> {
        let &BoundFusion { fusion: written, bindings: sizes, args, .. } = definition;
        let layouts = fusion::layouts(written, sizes, args)?;
        let mut this = Self::default();
        for (output, own) in fusion.outputs.iter().zip(&written.outputs) {
            this.results.set(*output, Some(layouts[*own].clone()));
        }
        for update in &fusion.updates {
            this.results.set(update.tensor, None);
        }
        let memory = this.memories(fusion, bindings, args, outputs)?;
        this.find(fusion, &memory);
        Ok(this)
    }

    /// Whether a result may be returned as it lies in memory of something else. What is none may.
    pub(super) fn fits(&self, tensor: TensorId, meta: &TensorMeta) -> bool {
        self.results[tensor].as_ref().is_none_or(|wanted| meta.has_places_of(wanted))
    }

    /// Whose memory each tensor could be in, and how it would lie there.
    fn memories(
        &self,
        fusion: &Fusion,
        bindings: &Bindings,
        args: &[ArgMeta],
        outputs: &[TensorMeta],
    ) -> Result<SecondaryMap<TensorId, Option<(Memory, TensorMeta)>>> {
        let mut memory: SecondaryMap<TensorId, Option<(Memory, TensorMeta)>> = SecondaryMap::new();
        for (tensor, meta) in fusion.outputs.iter().zip(outputs) {
            memory.set(*tensor, Some((Memory::Stored, meta.clone())));
        }
        for update in &fusion.updates {
            if let Some(ArgMeta::Tensor(target)) = args.get(update.input as usize) {
                let strides = dense_like(&target.sizes, &target.strides);
                memory.set(update.tensor, Some((Memory::Stored, TensorMeta { strides, ..target.clone() })));
            }
        }
        for (position, tensor) in fusion.input_tensors() {
            let is_updated = fusion.updates.iter().any(|update| update.input as usize == position);
            if let (false, Some(ArgMeta::Tensor(meta))) = (is_updated, args.get(position)) {
                memory.set(tensor, Some((Memory::Argument, meta.clone())));
            }
        }
        for (id, op) in fusion.ops.iter() {
            let Some((whose, source)) = fusion.tensor_inputs(id).next().and_then(|source| memory[source].clone())
            else {
                continue;
            };
            let output = op.output();
            if let Some(FoundView { place, copies: false }) = fusion::find_view(fusion, bindings, id, &source)? {
                let sizes = bindings.sizes(fusion, output);
                let meta = TensorMeta { dtype: source.dtype, sizes, strides: place.strides };
                if self.fits(output, &meta) {
                    memory.set(output, Some((whose, meta)));
                }
            }
        }
        Ok(memory)
    }

    fn find(&mut self, fusion: &Fusion, memory: &SecondaryMap<TensorId, Option<(Memory, TensorMeta)>>) {
        // What is returned as it is, or through views.
        let mut is_wanted: SecondaryMap<TensorId, bool> = SecondaryMap::new();
        fusion.outputs.iter().for_each(|output| is_wanted.set(*output, self.results[*output].is_some()));
        let mut is_computed_with: SecondaryMap<TensorId, bool> = SecondaryMap::new();
        for (id, op) in fusion.ops.iter().rev() {
            let output = op.output();
            let source = fusion.tensor_inputs(id).next().filter(|_| fusion::may_be_view(fusion, op));
            let whose = |tensor: TensorId| memory[tensor].as_ref().map(|(whose, _)| *whose);
            let is_view = match (source.and_then(whose), whose(output)) {
                (Some(Memory::Argument), Some(Memory::Argument)) => true,
                (Some(Memory::Stored), Some(Memory::Stored)) => !is_computed_with[output],
                _ => false,
            };
            if is_view && is_wanted[output] {
                self.ops.set(id, true);
                source.into_iter().for_each(|source| is_wanted.set(source, true));
            } else {
                fusion.tensor_inputs(id).for_each(|operand| is_computed_with.set(operand, true));
            }
        }
    }
}
