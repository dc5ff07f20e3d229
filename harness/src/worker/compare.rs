//! Holds outputs against the reference, with the tolerance that the engine
//! derives from types and reductions unless the case states its own.

use crate::case::{Check, Real};
use crate::outcome::Numerics;
use engine::compile::{BoundFusion, result_metas};
use engine::fusion::{self, Bindings, Fusion, TensorId};
use engine::program::ResultMemory;
use engine::refeval::{self, Tolerance};
use engine::runtime::Ran;
use engine::tensor::{Arg, ArgMeta, HostTensor};

/// Compares one output and adds to the figures; the text says what is wrong.
pub(super) fn compare(
    fusion: &Fusion,
    bindings: &Bindings,
    output: TensorId,
    pair: (&HostTensor, &HostTensor),
    check: &Check,
    numerics: &mut Numerics,
) -> Option<String> {
    let (wanted, got) = pair;
    let name = &fusion.tensors[output].name;
    let tolerance = tolerance(fusion, bindings, output, check);
    let result = match refeval::compare(got, wanted, tolerance) {
        Ok(result) => result,
        Err(error) => return Some(format!("output %{name}: {}", error.message)),
    };
    numerics.elements += result.elements as u64;
    numerics.wrong += result.mismatches as u64;
    numerics.max_abs = numerics.max_abs.max(result.max_abs);
    numerics.max_rel = numerics.max_rel.max(result.max_rel);
    (!result.passed()).then(|| format!("output %{name}: {result}"))
}

/// The outputs that do not lie as the definition says: as the reference lays them out where
/// that is dense or the result is a view, else row-major; one that an input becomes as that input.
/// Strides of axes of size 1 say nothing, nor do any where there is no element.
pub(super) fn layouts(fusion: &Fusion, bindings: &Bindings, args: &[Arg], run: &Ran) -> Vec<String> {
    let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
    let bound = BoundFusion { fusion, bindings, args: &metas, alignments: &[] };
    let views = fusion::layouts(fusion, bindings, &metas);
    let (Ok(own), Ok(views), Ok(got)) = (result_metas(&bound), views, run.output_metas(args)) else {
        return Vec::new();
    };
    let mut complaints = Vec::new();
    for (((output, own), memory), got) in fusion.outputs.iter().zip(own).zip(run.program().result_memories()).zip(got) {
        let is_update = fusion.updates.iter().any(|update| update.tensor == *output);
        let wanted = if memory == ResultMemory::Own || is_update { &own } else { &views[*output] };
        if !got.has_places_of(wanted) {
            let (name, strides) = (&fusion.tensors[*output].name, &wanted.strides);
            complaints.push(format!("output %{name} has strides {:?}, not {strides:?}", got.strides));
        }
    }
    complaints
}

/// What an update changed beside the elements of its input, if anything.
pub(super) fn storage(position: usize, args: &[Arg], got: &HostTensor) -> Option<String> {
    let Some(Arg::Tensor(given)) = args.get(position) else { return None };
    // Its own elements are written again on both sides: what makes no number is one, whatever its bits.
    let [expected, found] = [given, got].map(|storage| refeval::updated(storage, got));
    (expected != found).then(|| format!("the update of input {position} changed what lies beside its elements"))
}

fn tolerance(fusion: &Fusion, bindings: &Bindings, output: TensorId, check: &Check) -> Tolerance {
    if check.exact {
        return Tolerance::EXACT;
    }
    let default = Tolerance::for_output(fusion, bindings, output);
    let (abs, rel) = (check.abs.map(Real::get), check.rel.map(Real::get));
    Tolerance { abs: abs.unwrap_or(default.abs), rel: rel.unwrap_or(default.rel) }
}

#[cfg(test)]
mod tests {
    use super::storage;
    use engine::num::DType;
    use engine::tensor::{Arg, HostTensor, TensorMeta};

    /// Two elements of bf16 with one between them that is nobody's.
    fn spaced(bits: [u16; 3]) -> HostTensor {
        let meta = TensorMeta { dtype: DType::BF16, sizes: [2].into(), strides: [2].into() };
        let data: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        HostTensor::new(meta, data, 0).expect("it fits")
    }

    #[test]
    fn bits_of_what_is_no_number_are_no_change_beside_elements() {
        let given = [Arg::Tensor(spaced([0, 0x3f80, 0]))];
        // A GPU makes other bits of what is no number than the reference does.
        assert_eq!(storage(0, &given, &spaced([0x7fff, 0x3f80, 0x4000])), None);
        let told = storage(0, &given, &spaced([0x7fff, 0x4000, 0x4000])).expect("it is told");
        assert!(told.contains("input 0"), "{told}");
    }
}
