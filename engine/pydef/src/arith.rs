//! Arithmetic on the constants of a script, as Python does it. What Python
//! refuses, and integers beyond 127 bits, is `None`.

use super::ast::{Operator, Sign};
use super::recipe::PyNumber;
use std::cmp::Ordering;

/// An operator between two numbers.
pub(super) fn binary(operator: Operator, a: PyNumber, b: PyNumber) -> Option<PyNumber> {
    use Operator as O;
    match operator {
        O::Lt | O::Le | O::Gt | O::Ge | O::Eq | O::Ne | O::Is | O::IsNot => {
            return compare(operator, a, b).map(PyNumber::Bool);
        }
        O::And => return Some(if truth(a) { b } else { a }),
        O::Or => return Some(if truth(a) { a } else { b }),
        O::In | O::NotIn | O::MatMul => return None,
        _ => {}
    }
    if let (PyNumber::Bool(a), PyNumber::Bool(b)) = (a, b) {
        match operator {
            O::BitAnd => return Some(PyNumber::Bool(a & b)),
            O::BitOr => return Some(PyNumber::Bool(a | b)),
            O::BitXor => return Some(PyNumber::Bool(a ^ b)),
            _ => {}
        }
    }
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => integers(operator, a, b),
        _ => match (a, b) {
            (PyNumber::Complex(..), _) | (_, PyNumber::Complex(..)) => complexes(operator, a, b),
            _ => floats(operator, a.as_f64(), b.as_f64()),
        },
    }
}

/// An operator in front of a number.
pub(super) fn unary(sign: Sign, value: PyNumber) -> Option<PyNumber> {
    Some(match (sign, value) {
        (Sign::Not, _) => PyNumber::Bool(!truth(value)),
        (Sign::Plus, PyNumber::Bool(v)) => PyNumber::Int(v.into()),
        (Sign::Plus, _) => value,
        (Sign::Minus, PyNumber::Float(v)) => PyNumber::Float(-v),
        (Sign::Minus, PyNumber::Complex(re, im)) => PyNumber::Complex(-re, -im),
        (Sign::Minus, _) => PyNumber::Int(integer(value)?.checked_neg()?),
        (Sign::Invert, _) => PyNumber::Int(!integer(value)?),
    })
}

/// Whether Python takes a number for true.
pub(super) fn truth(value: PyNumber) -> bool {
    match value {
        PyNumber::Bool(v) => v,
        PyNumber::Int(v) => v != 0,
        PyNumber::Float(v) => v != 0.0,
        PyNumber::Complex(re, im) => re != 0.0 || im != 0.0,
    }
}

fn integer(value: PyNumber) -> Option<i128> {
    match value {
        PyNumber::Bool(v) => Some(v.into()),
        PyNumber::Int(v) => Some(v),
        _ => None,
    }
}

fn compare(operator: Operator, a: PyNumber, b: PyNumber) -> Option<bool> {
    let order = match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => match (a, b) {
            (PyNumber::Complex(a, b), PyNumber::Complex(c, d)) => {
                let equal = a == c && b == d;
                return match operator {
                    Operator::Eq => Some(equal),
                    Operator::Ne => Some(!equal),
                    _ => None,
                };
            }
            _ => a.as_f64().partial_cmp(&b.as_f64()),
        },
    };
    Some(match operator {
        Operator::Lt => order == Some(Ordering::Less),
        Operator::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Gt => order == Some(Ordering::Greater),
        Operator::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        Operator::Eq | Operator::Is => order == Some(Ordering::Equal),
        _ => order != Some(Ordering::Equal),
    })
}

fn integers(operator: Operator, a: i128, b: i128) -> Option<PyNumber> {
    use Operator as O;
    let shift = || u32::try_from(b).ok().filter(|&b| b < 127);
    Some(PyNumber::Int(match operator {
        O::Add => a.checked_add(b)?,
        O::Sub => a.checked_sub(b)?,
        O::Mul => a.checked_mul(b)?,
        O::Div if b != 0 => return Some(PyNumber::Float(a as f64 / b as f64)),
        // Towards minus infinity.
        O::FloorDiv if b != 0 => a.checked_div_euclid(b)? - i128::from(b < 0 && a.checked_rem_euclid(b)? != 0),
        O::Mod if b != 0 => {
            let rest = a.checked_rem(b)?;
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }
        O::Pow if b < 0 => return Some(PyNumber::Float((a as f64).powf(b as f64))),
        O::Pow => a.checked_pow(u32::try_from(b).ok()?)?,
        O::ShiftLeft => a.checked_mul(1i128.checked_shl(shift()?)?)?,
        O::ShiftRight => a >> shift()?,
        O::BitAnd => a & b,
        O::BitOr => a | b,
        O::BitXor => a ^ b,
        _ => return None,
    }))
}

fn floats(operator: Operator, a: f64, b: f64) -> Option<PyNumber> {
    use Operator as O;
    Some(PyNumber::Float(match operator {
        O::Add => a + b,
        O::Sub => a - b,
        O::Mul => a * b,
        O::Div if b != 0.0 => a / b,
        O::FloorDiv if b != 0.0 => (a / b).floor(),
        O::Mod if b != 0.0 => a - (a / b).floor() * b,
        O::Pow => a.powf(b),
        _ => return None,
    }))
}

fn complexes(operator: Operator, a: PyNumber, b: PyNumber) -> Option<PyNumber> {
    use Operator as O;
    let parts = |v: PyNumber| match v {
        PyNumber::Complex(re, im) => (re, im),
        real => (real.as_f64(), 0.0),
    };
    let ((ar, ai), (br, bi)) = (parts(a), parts(b));
    Some(match operator {
        O::Add => PyNumber::Complex(ar + br, ai + bi),
        O::Sub => PyNumber::Complex(ar - br, ai - bi),
        O::Mul => PyNumber::Complex(ar * br - ai * bi, ar * bi + ai * br),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operator as O;
    use PyNumber::{Bool, Complex, Float, Int};

    #[test]
    fn arithmetic_is_pythons() {
        for (operator, a, b, expected) in [
            (O::FloorDiv, Int(-7), Int(2), Some(Int(-4))),
            (O::FloorDiv, Int(7), Int(-2), Some(Int(-4))),
            (O::FloorDiv, Int(-8), Int(-2), Some(Int(4))),
            (O::FloorDiv, Int(-7), Int(-2), Some(Int(3))),
            (O::Mod, Int(-7), Int(2), Some(Int(1))),
            (O::Mod, Int(7), Int(-2), Some(Int(-1))),
            (O::Div, Int(1), Int(4), Some(Float(0.25))),
            (O::Div, Int(1), Int(0), None),
            (O::Pow, Int(2), Int(-1), Some(Float(0.5))),
            (O::Pow, Int(10), Int(1_000_000), None),
            (O::ShiftLeft, Int(1), Int(200), None),
            (O::Add, Bool(true), Int(2), Some(Int(3))),
            (O::Add, Float(-0.0), Complex(0.0, 1.0), Some(Complex(0.0, 1.0))),
            (O::Lt, Int(1), Float(1.5), Some(Bool(true))),
            (O::And, Int(0), Int(5), Some(Int(0))),
        ] {
            assert_eq!(binary(operator, a, b), expected, "{a:?} {} {b:?}", operator.text());
        }
        assert_eq!(unary(Sign::Minus, Int(i128::MIN)), None);
        assert_eq!(unary(Sign::Invert, Int(0)), Some(Int(-1)));
    }
}
