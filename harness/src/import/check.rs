//! What a run gives, held against its record: types, sizes, strides and values.

use super::arguments::recorded;
use super::npz::Array;
use super::quotients::differ_by_zero_only;
use super::record::{Record, RecordedValue, TensorEntry};
use super::ties::name_equal_elements;
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Fusion, OpKind, Operand};
use engine::num::DType;
use engine::refeval::{Tolerance, compare};
use engine::tensor::{Arg, HostTensor, TensorMeta};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a run gave.
pub(crate) struct RunResult {
    /// The outputs in order.
    pub(crate) outputs: Vec<HostTensor>,
    /// Inputs that were updated, by position; `None` where the device does not
    /// give them back.
    pub(crate) updates: Option<Vec<(usize, HostTensor)>>,
    /// Whether the strides of the outputs are those that a caller would see.
    pub(crate) strides: bool,
}

/// The outcome of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// A line for each output.
    pub(crate) text: String,
    /// What does not agree.
    pub(crate) differences: usize,
}

impl Compared {
    fn line(&mut self, agrees: bool, text: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{} {text}", if agrees { "agrees: " } else { "differs:" });
        self.differences += usize::from(!agrees);
    }
}

/// The tolerance of a record: what `torch.testing.assert_close` allows for the
/// type, and at least the absolute 1e-3 of nvFuser's tests of single operations.
/// Those accumulate small floats in their own type, so sums that cancel are
/// wrong by units in the last place of what they cancel: of the largest value.
/// So are sums of products of 8-bit floats, of which tensor cores keep 14 bits.
fn tolerance(record: &Record, fusion: &Fusion, wanted: &HostTensor) -> Tolerance {
    let dtype = wanted.dtype();
    let (mut abs, rel) = match dtype.name() {
        _ if dtype.is_int() || dtype == DType::Bool => return Tolerance::EXACT,
        "f16" => (1e-5, 1e-3),
        "bf16" => (1e-5, 1.6e-2),
        "f32" | "c64" => (1e-5, 1.3e-6),
        "f64" | "c128" => (1e-7, 1e-7),
        _ => return Tolerance::EXACT,
    };
    let largest = || wanted.to_f64().into_iter().map(f64::abs).filter(|v| v.is_finite()).fold(0.0, f64::max);
    if multiplies_bytes(fusion) {
        abs = f64::max(abs, largest() / f64::from(1 << 14));
    }
    if record.opinfo.is_some() {
        abs = f64::max(abs, 1e-3);
        if dtype.is_reduced_float() {
            abs = f64::max(abs, rel * largest());
        }
    }
    Tolerance { abs, rel }
}

/// Whether a product of matrices of 8-bit floats takes part.
fn multiplies_bytes(fusion: &Fusion) -> bool {
    let is_byte = |operand: &Operand| match operand {
        Operand::Tensor(t) => fusion.tensors[*t].dtype.is_float() && fusion.tensors[*t].dtype.bytes() == 1,
        Operand::Scalar(_) => false,
    };
    fusion.ops.values().any(|op| match &op.kind {
        OpKind::Call(call) => call.row.tensor_cores && op.inputs.iter().take(2).all(is_byte),
        _ => false,
    })
}

/// Why an output may differ from its record, if it may.
fn excuse(
    fusion: &Fusion,
    args: &[Arg],
    position: usize,
    outputs: (&HostTensor, &HostTensor),
) -> Result<Option<&'static str>> {
    if name_equal_elements(fusion, args, position, outputs)? {
        return Ok(Some("positions differ among equal elements only"));
    }
    let by_zero = differ_by_zero_only(fusion, args, position, outputs)?;
    Ok(by_zero.then_some("differs only where an integer is divided by 0"))
}

/// Compares outputs and updated inputs with a record.
pub(crate) fn check(
    record: &Record,
    arrays: &BTreeMap<String, Array>,
    (fusion, args): (&Fusion, &[Arg]),
    given: &RunResult,
) -> Result<Compared> {
    let mut outcome = Compared::default();
    let tolerance = |wanted: &HostTensor| tolerance(record, fusion, wanted);
    if record.outputs.len() != given.outputs.len() {
        let (expected, got) = (record.outputs.len(), given.outputs.len());
        outcome.line(false, format_args!("{got} outputs, the record has {expected}"));
    }
    for (position, (entry, output)) in record.outputs.iter().zip(&given.outputs).enumerate() {
        let RecordedValue::Tensor(entry) = entry else { continue };
        let what = format!("output {position}");
        let excuse = |wanted: &HostTensor| excuse(fusion, args, position, (output, wanted));
        one(&mut outcome, &tolerance, arrays, &what, (entry, entry.data.as_deref()), (output, given.strides), &excuse)?;
    }
    let Some(updates) = &given.updates else { return Ok(outcome) };
    for (position, name) in &record.inputs_after {
        let input = position.parse::<usize>().ok();
        let entry = input.and_then(|input| record.inputs.get(input));
        let (Some(input), Some(RecordedValue::Tensor(entry))) = (input, entry) else {
            let message = format!("`inputs_after` names input {position}, which is no tensor of the record");
            return Err(Diagnostic::user(code::RECORD, message));
        };
        let what = format!("input {input} afterwards");
        match updates.iter().find(|(updated, _)| *updated == input) {
            Some((_, tensor)) => {
                one(&mut outcome, &tolerance, arrays, &what, (entry, Some(name)), (tensor, true), &|_| Ok(None))?
            }
            None => outcome.line(false, format_args!("{what}: is not updated, the record has it changed")),
        }
    }
    Ok(outcome)
}

fn one(
    outcome: &mut Compared,
    tolerance: &dyn Fn(&HostTensor) -> Tolerance,
    arrays: &BTreeMap<String, Array>,
    what: &str,
    (entry, name): (&TensorEntry, Option<&str>),
    (got, strides): (&HostTensor, bool),
    excuse: &dyn Fn(&HostTensor) -> Result<Option<&'static str>>,
) -> Result<()> {
    // Two numbers of a byte are two elements of a fusion.
    let packed = TensorMeta { dtype: entry.dtype()?, sizes: entry.shape.clone(), strides: entry.stride.clone() };
    let meta = packed.unpacked()?;
    let shown = format!("{} {:?} strides {:?}", got.dtype(), got.sizes(), got.strides());
    let expected = format!("{} {:?} strides {:?}", meta.dtype, meta.sizes, meta.strides);
    let same_elements = got.dtype() == meta.dtype && got.sizes() == meta.sizes;
    let same_meta = same_elements && (!strides || got.strides() == meta.strides);
    if !same_meta {
        outcome.line(false, format_args!("{what}: is {shown}, the record has {expected}"));
    }
    if !same_elements {
        return Ok(());
    }
    let Some(wanted) = recorded(what, entry, name, arrays)? else {
        if same_meta {
            outcome.line(true, format_args!("{what}: {shown}; values are not recorded"));
        }
        return Ok(());
    };
    let wanted = wanted.unpacked()?;
    let result = compare(got, &wanted, tolerance(&wanted))?;
    if !result.passed()
        && let Some(excuse) = excuse(&wanted)?
    {
        if same_meta {
            outcome.line(true, format_args!("{what}: {shown}; {excuse}"));
        }
        return Ok(());
    }
    if same_meta || !result.passed() {
        outcome.line(result.passed(), format_args!("{what}: {shown}; {result}"));
    }
    Ok(())
}
