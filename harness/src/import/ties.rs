//! Positions of equal elements: which of them comes first is not specified where a
//! result of an operation holds positions, so a record may name others.

use super::inner::{definition, value};
use engine::diag::Result;
use engine::fusion::{Fusion, OpKind, Operand};
use engine::num::Value;
use engine::tensor::{Arg, HostTensor};

/// Whether an output holds positions of ordered elements, and each line of it
/// names, in another order, elements equal to those that the record names.
pub(super) fn name_equal_elements(
    fusion: &Fusion,
    args: &[Arg],
    output: usize,
    (got, wanted): (&HostTensor, &HostTensor),
) -> Result<bool> {
    let Some((output, op)) = definition(fusion, output) else { return Ok(false) };
    let OpKind::Call(call) = &op.kind else { return Ok(false) };
    let positions = call.row.primitive.and_then(|primitive| op.outputs.get(primitive.movement.positions?));
    let (true, Some(Operand::Tensor(ordered))) = (positions == Some(&output), op.inputs.first()) else {
        return Ok(false);
    };
    let Some(elements) = value(fusion, args, *ordered)? else { return Ok(false) };
    let dim = call.axis("dim");
    Ok(elements.rank() == got.rank() && dim < got.rank() && lines_agree(&elements, got, wanted, dim))
}

fn lines_agree(elements: &HostTensor, got: &HostTensor, wanted: &HostTensor, dim: usize) -> bool {
    let sizes = got.sizes();
    let count: i64 = sizes.iter().enumerate().filter(|(axis, _)| *axis != dim).map(|(_, size)| size).product();
    let mut index = vec![0; sizes.len()];
    for _ in 0..count {
        if !line_agrees(elements, got, wanted, dim, &index) {
            return false;
        }
        for axis in (0..sizes.len()).rev().filter(|&axis| axis != dim) {
            index[axis] += 1;
            if index[axis] < sizes[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    true
}

/// One line: distinct positions in the axis, of equal elements place by place.
fn line_agrees(elements: &HostTensor, got: &HostTensor, wanted: &HostTensor, dim: usize, index: &[i64]) -> bool {
    let mut seen = std::collections::BTreeSet::new();
    (0..got.sizes()[dim]).all(|i| {
        let mut index = index.to_vec();
        index[dim] = i;
        let (ours, theirs) = (got.get(&index).as_i64(), wanted.get(&index).as_i64());
        let mut element = |position| {
            index[dim] = position;
            elements.try_get(&index)
        };
        match (element(ours), element(theirs)) {
            (Some(a), Some(b)) => seen.insert(ours) && same(a, b),
            _ => false,
        }
    })
}

/// Whether neither comes before the other.
fn same(a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::num::DType;
    use engine::text::parse_one;

    fn check(statement: &str, got: &[i64], wanted: &[i64], expected: bool) {
        let text = format!("fusion @f(%x: f32[?]) {{\n  {statement}\n  return %i\n}}\n");
        let fusion = parse_one(&text).unwrap();
        let x = HostTensor::from_f64(DType::F32, &[5], &[3.0, 1.0, 3.0, f64::NAN, 1.0]).unwrap();
        let [got, wanted] = [got, wanted]
            .map(|positions| HostTensor::from_i64(DType::I64, &[positions.len() as i64], positions).unwrap());
        let agrees = name_equal_elements(&fusion, &[Arg::Tensor(x)], 0, (&got, &wanted)).unwrap();
        assert_eq!(agrees, expected, "{statement}");
    }

    #[test]
    fn only_equal_elements_may_change_places() {
        check("%i = argsort %x dim(0)", &[1, 4, 0, 2, 3], &[4, 1, 2, 0, 3], true);
        check("%i = argsort %x dim(0)", &[1, 4, 0, 2, 3], &[1, 0, 4, 2, 3], false);
        check("%i = argsort %x dim(0)", &[1, 1, 0, 2, 3], &[1, 4, 0, 2, 3], false);
        check("%i = argsort %x dim(0)", &[1, 4, 0, 2, 3], &[1, 4, 0, 2, 9], false);
        check("%v, %i = topk %x, 2", &[3, 0], &[3, 2], true);
        check("%v, %i = topk %x, 2", &[3, 0], &[0, 2], false);
        check("%i = neg %x", &[1], &[1], false);
    }
}
