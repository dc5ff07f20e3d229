//! Quotients of integers by 0: they have no value. A GPU gives some pattern of
//! bits that depends on how its compiler divides, here they are 0.

use super::inner::{definition, value};
use engine::diag::Result;
use engine::fusion::{Fusion, OpKind, Operand};
use engine::num::BinaryOp;
use engine::tensor::{Arg, HostTensor};

/// Whether an output is a quotient or remainder of integers that differs from
/// the recorded one only where its divisor is 0.
pub(super) fn differ_by_zero_only(
    fusion: &Fusion,
    args: &[Arg],
    output: usize,
    (got, wanted): (&HostTensor, &HostTensor),
) -> Result<bool> {
    let Some((_, op)) = definition(fusion, output) else { return Ok(false) };
    let divides = matches!(
        op.kind,
        OpKind::Binary(BinaryOp::Div | BinaryOp::CeilDiv | BinaryOp::Mod | BinaryOp::Fmod | BinaryOp::Remainder)
    );
    let (true, true, Some(&Operand::Tensor(divisor))) = (divides, got.dtype().is_int(), op.inputs.get(1)) else {
        return Ok(false);
    };
    let Some(divisors) = value(fusion, args, divisor)? else { return Ok(false) };
    let divisors = divisors.expanded(got.sizes())?;
    Ok(got.values().zip(wanted.values()).zip(divisors.values()).all(|((a, b), by)| a == b || by.as_i64() == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::num::DType;
    use engine::text::parse_one;

    fn check(statement: &str, got: &[i64], wanted: &[i64], expected: bool) {
        let text = format!("fusion @f(%x: i64[?], %y: i64[?]) {{\n  {statement}\n  return %r\n}}\n");
        let fusion = parse_one(&text).unwrap();
        let tensor = |values: &[i64]| HostTensor::from_i64(DType::I64, &[values.len() as i64], values).unwrap();
        let args = [Arg::Tensor(tensor(&[7, -7, 8])), Arg::Tensor(tensor(&[2, 0, 0]))];
        let agrees = differ_by_zero_only(&fusion, &args, 0, (&tensor(got), &tensor(wanted))).unwrap();
        assert_eq!(agrees, expected, "{statement}");
    }

    #[test]
    fn only_quotients_by_zero_may_be_anything() {
        check("%r = div %x, %y", &[3, 0, 0], &[3, -1, 4294967295], true);
        check("%r = div %x, %y", &[3, 0, 0], &[4, -1, 4294967295], false);
        check("%r = fmod %x, %y", &[1, 0, 0], &[1, -7, 8], true);
        check("%r = add %x, %y", &[9, -7, 8], &[9, -7, 9], false);
    }
}
