//! Numbers that are all the same and are added where an index says: how many elements of the index hold each place, times the
//! number. So nothing is put in order, and no rows are read.
//!
//! Of integers whose sums are exact, so that these are what they are one by one. In the way: more places than a block counts for
//! itself, to which each element would go one by one.

use super::make::{call as make, tensor};
use super::shifts::filled;
use super::whole::{Change, Changes, Whole, call};
use crate::fusion::ops::Form;
use crate::fusion::{Fusion, Op, OpKind, Operand, ScalarId, TensorId};
use crate::num::{BinaryOp, DType, Value, eval};
use crate::template::MOST_COUNTED;

/// Magnitudes of the numbers, at most: so many times as an `i32` counts, they are exact in `f64`.
const MOST: i64 = 1 << 20;
/// Elements of an index up to which floats of 32 bits have all counts, from which narrower ones are rounded.
const MOST_NARROW: i64 = 1 << 24;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

/// Whether the rule could find something, of which it needs sizes.
pub(super) fn may_find(fusion: &Fusion) -> bool {
    let is_filled = |operand: &Operand| match *operand {
        Operand::Tensor(tensor) => fusion.definition(tensor).is_some_and(|op| fusion.ops[op].kind == OpKind::Full),
        Operand::Scalar(_) => false,
    };
    let is_tally = |op: &Op| call(op, Form::Put).is_some() && op.inputs.iter().filter(|own| is_filled(own)).count() > 1;
    fusion.ops.values().any(is_tally)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    call(op, Form::Put)?;
    let [Operand::Tensor(acc), Operand::Tensor(index), Operand::Tensor(value)] = op.inputs[..] else { return None };
    let [of_acc, of_value] = [acc, value].map(|of| filled(whole, of).and_then(|own| integer(whole, own, of)));
    let (first, each, output) = (of_acc?, of_value?, op.output());
    let (dtype, positions) = (whole.fusion.tensors[output].dtype, whole.sizes(index)[0]);
    let is_exact = match dtype {
        DType::I32 | DType::I64 | DType::F64 | DType::F32 => true,
        DType::F16 | DType::BF16 => positions * each.abs() + first.abs() <= MOST_NARROW,
        _ => false,
    };
    let is_few = whole.rank(output) == 1 && (2..=MOST_COUNTED).contains(&whole.sizes(output)[0]);
    let size = whole.fusion.tensors[output].axes[0].extent;
    if !is_exact || !is_few || i32::try_from(positions).is_err() || whole.is_empty(index) {
        return None;
    }
    Some(Box::new(move |r| {
        let (index, size) = (r.tensor(index)?, r.scalar(size));
        let counts = make(&mut r.builder, "index_counts", |args| {
            args.value("index", index).value("size", Operand::Scalar(size))
        })?;
        let mut sums = r.builder.cast(counts, DType::I64)?;
        if each != 1 {
            sums = r.builder.binary(BinaryOp::Mul, sums, each)?;
        }
        if first != 0 {
            sums = r.builder.binary(BinaryOp::Add, sums, first)?;
        }
        tensor(r.builder.cast(sums, dtype)?)
    }))
}

/// A number that is a small integer in a tensor's type; not 0 with a sign.
fn integer(whole: &Whole<'_>, scalar: ScalarId, of: TensorId) -> Option<i64> {
    let fusion = whole.fusion;
    let value = eval::cast(fusion.scalars[scalar].dtype, fusion.tensors[of].dtype, fusion.constant(scalar)?);
    let number = match value {
        Value::Int(number) => number,
        Value::Float(number) if number.fract() == 0.0 && !(number == 0.0 && number.is_sign_negative()) => {
            // Larger ones are refused below.
            number as i64
        }
        _ => return None,
    };
    (number.abs() <= MOST).then_some(number)
}
