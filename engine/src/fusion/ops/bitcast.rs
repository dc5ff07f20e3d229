//! The bits of elements read as another type of the same width. Values that are
//! not numbers have one bit pattern here, whatever their payload was.

use super::args::Args;
use super::cx::{EvalCx, LayoutCx, MetaCx};
use super::draft::CallDraft;
use super::movement::{Movement, ViewPlace};
use super::row::{OpParamKind, OpRow, Primitive, ResultLayout, req};
use crate::array::View;
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::meta::Shape;
use crate::fusion::{FusionBuilder, Operand};
use crate::num::{DType, storage};

pub(super) const ROWS: &[OpRow] = &[OpRow::primitive(
    "bitcast",
    &[req("x", OpParamKind::Tensor), req("to", OpParamKind::BareDType)],
    bitcast,
    Primitive {
        meta,
        layout: ResultLayout::Custom(layout),
        eval,
        decompose: None,
        movement: Movement::SAME.in_memory(place),
    },
    "The bits of x read as a data type of the same width.",
    "PyTorch view(dtype)",
)];

fn bitcast(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let x = b.tensor_operand("bitcast", args.src("x")?)?;
    if args.dtype("to") == Some(b.dtype(Operand::Tensor(x))) {
        return Ok(vec![b.set(x)?]);
    }
    b.push_draft(CallDraft::new(args))
}

fn meta(cx: &mut MetaCx<'_>) -> Result<Vec<Shape>> {
    let x = cx.tensor("x")?;
    let to = cx.call.dtype("to").ok_or_else(|| Diagnostic::bug("bitcast: the data type was checked"))?;
    let from = x.dtype;
    if from.bits() != to.bits() || from.is_packed() || to.is_packed() {
        let message = format!("bitcast: an element of {from} has {} bits, one of {to} has {}", from.bits(), to.bits());
        return Err(Diagnostic::user(code::DTYPE, message).note("use cast to convert values"));
    }
    Ok(vec![Shape { dtype: to, axes: x.axes }])
}

fn layout(cx: &LayoutCx<'_>) -> Result<Vec<Vec<i64>>> {
    Ok(vec![cx.tensor("x")?.1.to_vec()])
}

/// What is computed of the bits reads them in the operand's memory. Few patterns are truth values, so these are made.
fn place(cx: &LayoutCx<'_>) -> Result<Option<ViewPlace>> {
    let is_read = cx.call.dtype("to") != Some(DType::Bool);
    let strides = cx.tensor("x")?.1.to_vec();
    Ok(is_read.then_some(ViewPlace { strides, offset: 0 }))
}

/// Elements are read anew where they lie, so strides and repeats stay.
fn eval(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let x = cx.tensor("x")?;
    let to: DType = cx.results[0].0;
    let stored = x.stored();
    let values: Vec<_> = stored
        .values()
        .into_iter()
        .map(|value| storage::read(to, &storage::encode(x.dtype(), value), 0))
        .collect::<Option<_>>()
        .ok_or_else(|| Diagnostic::bug("bitcast: an element is shorter than its type"))?;
    let data = View::from_values(to, vec![values.len()], &values);
    Ok(vec![data.seen(x.sizes().to_vec(), x.strides.clone(), 0)])
}

#[cfg(test)]
mod tests {
    use super::super::checks::{check_refused, check_value, counting, dense, result, strided};
    use crate::num::DType;

    #[test]
    fn bits_stay_and_come_back() {
        let x = || [dense(DType::F32, &[3], &[1.0, -2.0, 0.0])];
        check_value("%r = bitcast %a i32", &x(), DType::I32, &[3], &[1_065_353_216.0, -1_073_741_824.0, 0.0]);
        check_value("%r = bitcast %a f32", &x(), DType::F32, &[3], &[1.0, -2.0, 0.0]);
        let word = [dense(DType::U16, &[2], &[15360.0, 49152.0])];
        check_value("%r = bitcast %a f16", &word, DType::F16, &[2], &[1.0, -2.0]);
        let byte = [dense(DType::I8, &[2], &[-1.0, 127.0])];
        check_value("%r = bitcast %a u8", &byte, DType::U8, &[2], &[255.0, 127.0]);
        check_refused("%r = bitcast %a i64", &x(), "E0202: bitcast: an element of f32 has 32 bits, one of i64 has 64");
    }

    #[test]
    fn any_layout_stays() {
        crate::property::property(|u| {
            let x = strided(u, DType::F32, &[2, 3, 2])?;
            let bits = result("%r = bitcast %a u32", std::slice::from_ref(&x));
            assert_eq!(bits.strides(), x.strides());
            let back = result("%r = bitcast %a f32", &[bits]);
            assert_eq!(back.to_f64(), x.to_f64());
            Ok(())
        })
        .cases(1000);
        assert_eq!(result("%r = bitcast %a i32", &[counting(DType::F32, &[0, 2])]).sizes(), [0, 2]);
    }
}
