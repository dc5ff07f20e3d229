//! Holds outputs against the reference, with the tolerance that the engine
//! derives from types and reductions unless the case states its own.

use crate::case::{Check, Real};
use crate::outcome::Numerics;
use engine::fusion::{Bindings, Fusion, TensorId};
use engine::refeval::{self, Tolerance};
use engine::tensor::HostTensor;

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

fn tolerance(fusion: &Fusion, bindings: &Bindings, output: TensorId, check: &Check) -> Tolerance {
    if check.exact {
        return Tolerance::EXACT;
    }
    let default = Tolerance::for_output(fusion, bindings, output);
    let dtype = fusion.tensors[output].dtype;
    if !dtype.is_float() && !dtype.is_complex() {
        return default;
    }
    let (abs, rel) = (check.abs.map(Real::get), check.rel.map(Real::get));
    Tolerance { abs: abs.unwrap_or(default.abs), rel: rel.unwrap_or(default.rel) }
}
