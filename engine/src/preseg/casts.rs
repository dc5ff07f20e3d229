//! Conversions through a type that holds every value of the type before it: only the last
//! one does anything, and nothing where it leads back.

use super::make::tensor;
use super::slices::same;
use super::whole::{Change, Changes, Whole, operand};
use crate::fusion::{Op, OpKind, TensorId};
use crate::num::DType;

pub(super) fn find<'a>(whole: &'a Whole<'a>) -> Changes<'a> {
    whole.each(&rule)
}

fn rule<'a>(whole: &'a Whole<'a>, op: &'a Op) -> Option<Change<'a>> {
    let (OpKind::Cast(to), Some(x)) = (&op.kind, operand(op)) else { return None };
    let dtype = |tensor: TensorId| whole.fusion.tensors[tensor].dtype;
    let mut source = x;
    while let Some((OpKind::Cast(_), Some(before))) = whole.maker(source).map(|op| (&op.kind, operand(op)))
        && adds_nothing(dtype(before), dtype(source), *to)
    {
        source = before;
    }
    if source == x {
        return None;
    }
    if dtype(source) == *to {
        let copy = || -> Change<'a> { Box::new(move |r| tensor(r.builder.set(r.tensor(source)?)?)) };
        return same(whole, op.output(), source).or_else(|| Some(copy()));
    }
    Some(Box::new(move |r| tensor(r.builder.cast(r.tensor(source)?, *to)?)))
}

/// Whether a value of `from` becomes the same in `to` by way of `by`.
fn adds_nothing(from: DType, by: DType, to: DType) -> bool {
    // A float that is out of an integer's range is its nearest value, an integer wraps.
    let alike = from.is_float() == by.is_float() || !to.is_int();
    holds(by, from) && (alike || from == to || holds(to, from))
}

/// Whether a type has every value of another one.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::*;
    match narrow {
        // 0 and 1.
        Bool => !matches!(wide, Bool | F8E8M0FNU | F4E2M1FNX2 | Index),
        U8 => matches!(wide, F64 | F32 | F16 | BF16 | I64 | I32 | I16 | U16 | U32 | U64),
        I8 => matches!(wide, F64 | F32 | F16 | BF16 | I64 | I32 | I16),
        U16 => matches!(wide, F64 | F32 | I64 | I32 | U32 | U64),
        I16 => matches!(wide, F64 | F32 | I64 | I32),
        U32 => matches!(wide, F64 | I64 | U64),
        I32 => matches!(wide, F64 | I64),
        F4E2M1FN => matches!(wide, F64 | F32 | F16 | BF16 | F8E4M3FN | F8E5M2),
        F8E4M3FN | F8E5M2 => matches!(wide, F64 | F32 | F16 | BF16),
        F8E8M0FNU => matches!(wide, F64 | F32 | BF16),
        F16 | BF16 => matches!(wide, F64 | F32),
        F32 => wide == F64,
        C64 => wide == C128,
        F64 | I64 | U64 | C128 | Index | F4E2M1FNX2 => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{Value, eval, storage};

    /// Values at which conversions differ if any do.
    fn samples(dtype: DType) -> Vec<Value> {
        let bytes = dtype.bytes();
        let patterns = (0..1_u64 << 12).map(|i| if bytes > 1 { i.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { i });
        let value = |bits: u64| {
            let raw: Vec<u8> = bits.to_le_bytes().iter().cycle().take(bytes).copied().collect();
            storage::read(dtype, &raw, 0)
        };
        patterns.filter_map(value).collect()
    }

    #[test]
    fn a_type_that_holds_another_changes_no_conversion() {
        let numbers = DType::FUSION.iter().copied();
        for from in numbers.clone() {
            for value in samples(from) {
                let same = |by: DType, to: DType| {
                    let direct = eval::cast(from, to, value);
                    let around = eval::cast(by, to, eval::cast(from, by, value));
                    direct.shown(to) == around.shown(to)
                };
                for by in numbers.clone().filter(|by| holds(*by, from)) {
                    for to in numbers.clone().filter(|to| adds_nothing(from, by, *to)) {
                        assert!(same(by, to), "{value:?} of {from} by {by} to {to}");
                    }
                }
            }
        }
    }
}
