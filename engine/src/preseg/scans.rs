//! A scan of numbers that were of 16 bits, of which only such are kept: the scan of those, which combines in the wider
//! type anyway. So its kernel reads and writes them, where two kernels more would convert.

use super::make::call;
use super::whole::{Change, Changes, Whole, operand};
use crate::fusion::ops::OpArg;
use crate::fusion::{Op, OpKind, TensorId};

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (OpKind::Cast(to), Some(scanned)) = (&op.kind, operand(op)) else { return None };
    let dtype = |tensor: TensorId| whole.fusion.tensors[tensor].dtype;
    // Numbers of 8 bits are rounded at each step.
    if !to.is_float() || to.bits() != 16 || dtype(scanned) != to.compute() || !whole.is_read_once(scanned) {
        return None;
    }
    let scan = whole.maker(scanned)?;
    let (OpKind::Call(made), Some(dim)) = (&scan.kind, scan.kind.scanned()) else { return None };
    let widened = whole.maker(operand(scan)?).filter(|op| matches!(op.kind, OpKind::Cast(_)))?;
    let narrow = operand(widened).filter(|tensor| dtype(*tensor) == *to)?;
    let (name, is_reversed) = (made.row.name, made.flag("reverse"));
    Some(Box::new(move |r| {
        let narrow = r.tensor(narrow)?;
        call(&mut r.builder, name, |args| {
            let args = args.value("x", narrow).with("dim", OpArg::Int(dim as i64));
            args.with("reverse", OpArg::Bool(is_reversed))
        })
    }))
}
