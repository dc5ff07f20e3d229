//! Recorded inputs as arguments: each laid out at its strides.

use super::npz::Array;
use super::record::{Record, RecordedValue, ScalarEntry, TensorEntry};
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Fusion, Operand};
use engine::num::{DType, Value, eval};
use engine::tensor::{Arg, HostTensor, TensorMeta};
use std::collections::BTreeMap;

fn refused(message: impl Into<String>) -> Box<Diagnostic> {
    Diagnostic::user(code::RECORD, message)
}

/// The arguments of a record, in the order of the fusion's inputs.
pub(crate) fn arguments(fusion: &Fusion, record: &Record, arrays: &BTreeMap<String, Array>) -> Result<Vec<Arg>> {
    if record.inputs.len() != fusion.inputs.len() {
        let (has, wants) = (record.inputs.len(), fusion.inputs.len());
        return Err(refused(format!("the record has {has} inputs, the definition declares {wants}")));
    }
    let made = record.inputs.iter().zip(&fusion.inputs).enumerate().map(|(position, (entry, declared))| {
        match (entry, *declared) {
            (RecordedValue::Tensor(entry), Operand::Tensor(_)) => {
                let what = format!("input {position}");
                let tensor = recorded(&what, entry, entry.data.as_deref(), arrays)?;
                let tensor = tensor.ok_or_else(|| refused(format!("{what}: the record names no array for it")))?;
                Ok(Arg::Tensor(tensor.unpacked()?))
            }
            (RecordedValue::Scalar(entry), Operand::Scalar(s)) => {
                Ok(Arg::Scalar(scalar(position, entry, fusion.scalars[s].dtype)?))
            }
            (_, declared) => {
                let kind = if matches!(declared, Operand::Tensor(_)) { "a tensor" } else { "a scalar" };
                Err(refused(format!("input {position} is declared as {kind}, the record has something else")))
            }
        }
    });
    made.collect()
}

/// A recorded tensor at its strides; `None` if its values are not recorded. The
/// array may have size 1 where the stride is 0.
pub(super) fn recorded(
    what: &str,
    entry: &TensorEntry,
    name: Option<&str>,
    arrays: &BTreeMap<String, Array>,
) -> Result<Option<HostTensor>> {
    let Some(name) = name else { return Ok(None) };
    let Some(array) = arrays.get(name) else {
        return Err(refused(format!("{what}: there is no array `{name}`")));
    };
    let dtype = entry.dtype()?;
    let width = dtype.bytes();
    let meta = TensorMeta { dtype, sizes: entry.shape.clone(), strides: entry.stride.clone() };
    let fits = array.shape.len() == entry.shape.len()
        && entry.stride.len() == entry.shape.len()
        && (0..entry.shape.len())
            .all(|axis| array.shape[axis] == entry.shape[axis] || (array.shape[axis] == 1 && entry.stride[axis] == 0));
    let count = array.shape.iter().product::<i64>();
    if !fits || array.data.len() as i64 != count * width as i64 {
        let (shape, descr) = (&array.shape, &array.descr);
        let message =
            format!("{what}: the array has type {descr} and shape {shape:?}, the record {dtype} {:?}", entry.shape);
        return Err(refused(message));
    }
    if meta.is_contiguous() && array.shape == entry.shape {
        return Ok(Some(HostTensor::new(meta, array.data.clone(), 0)?));
    }
    let mut data = vec![0xff; meta.span_bytes()?];
    let source = TensorMeta::contiguous(dtype, &array.shape);
    let mut index = vec![0i64; array.shape.len()];
    for _ in 0..count {
        let offset = |strides: &[i64]| index.iter().zip(strides).map(|(i, s)| i * s).sum::<i64>() as usize * width;
        let (from, to) = (offset(&source.strides), offset(&meta.strides));
        data[to..to + width].copy_from_slice(&array.data[from..from + width]);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < array.shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(Some(HostTensor::new(meta, data, 0)?))
}

/// A recorded scalar as the type that the fusion declares.
fn scalar(position: usize, entry: &ScalarEntry, declared: DType) -> Result<Value> {
    let wrong = || refused(format!("input {position}: `{}` is no {}", entry.value, entry.class));
    let text = match &entry.value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (value, own) = match entry.class.as_str() {
        "bool" => (Value::Bool(text.to_ascii_lowercase().parse().map_err(|_| wrong())?), DType::Bool),
        "int" => (Value::Int(text.parse().map_err(|_| wrong())?), DType::I64),
        "float" => {
            let exact = entry.hex.as_deref().and_then(hex_float);
            (Value::Float(exact.or_else(|| text.parse().ok()).ok_or_else(wrong)?), DType::F64)
        }
        "complex" => {
            let (re, im) = complex(&text).ok_or_else(wrong)?;
            (Value::Complex(re, im), DType::C128)
        }
        other => return Err(refused(format!("input {position}: scalars of type `{other}` are not read"))),
    };
    Ok(eval::cast(own, declared, value))
}

/// `(1+2j)`, `-2.5j`, as Python prints complex numbers.
fn complex(text: &str) -> Option<(f64, f64)> {
    let text = text.trim().trim_start_matches('(').trim_end_matches(')');
    let Some(parts) = text.strip_suffix('j') else { return text.parse().ok().map(|re| (re, 0.0)) };
    // The sign of the imaginary part is the last one that belongs to no exponent.
    let bytes = parts.as_bytes();
    let signed = |&at: &usize| matches!(bytes[at], b'+' | b'-') && !matches!(bytes[at - 1], b'e' | b'E');
    match (1..bytes.len()).rev().find(signed) {
        Some(at) => Some((parts.get(..at)?.parse().ok()?, parts.get(at..)?.parse().ok()?)),
        None => parts.parse().ok().map(|im| (0.0, im)),
    }
}

/// `0x1.8p-1`, as C and Python print floats exactly.
fn hex_float(text: &str) -> Option<f64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if let Some(special) = ["inf", "nan"].into_iter().find(|word| *word == text) {
        let value: f64 = special.parse().ok()?;
        return Some(if negative { -value } else { value });
    }
    let (digits, exponent) = text.strip_prefix("0x")?.split_once('p')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.len() > 13 || whole.len() > 1 {
        return None;
    }
    let mantissa = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    let exponent: i32 = exponent.parse().ok().filter(|e: &i32| e.abs() < 2000)?;
    // At most 53 bits times a power of two: two exact steps, or one rounding at the very bottom.
    let scale = exponent - 4 * fraction.len() as i32;
    let half = scale / 2;
    let value = mantissa as f64 * 2f64.powi(half) * 2f64.powi(scale - half);
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_floats_are_exact() {
        for value in [0.5, -0.1, 1e-5, f64::MAX, f64::MIN_POSITIVE, 0.0, 3.0] {
            let bits = f64::to_bits(value);
            let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
            let lead = i32::from(exponent != 0);
            let sign = if value < 0.0 { "-" } else { "" };
            let power = if exponent == 0 { 0 } else { exponent - 1023 };
            let text = format!("{sign}0x{lead}.{fraction:013x}p{power:+}").replace("p+", "p");
            assert_eq!(hex_float(&text), Some(value), "{text}");
        }
        assert_eq!(hex_float("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(hex_float("0.5"), None);
    }

    #[test]
    fn complex_scalars_are_read() {
        for (text, expected) in [
            ("(1+2j)", Some((1.0, 2.0))),
            ("(1e-05-2.5e+3j)", Some((1e-5, -2500.0))),
            ("-2j", Some((0.0, -2.0))),
            ("(inf+1j)", Some((f64::INFINITY, 1.0))),
            ("3.5", Some((3.5, 0.0))),
            ("j", None),
            ("1+", None),
        ] {
            assert_eq!(complex(text), expected, "{text}");
        }
    }

    #[test]
    fn arrays_are_laid_out_at_their_strides() {
        let entry =
            TensorEntry { dtype: "uint8".into(), shape: vec![3, 2], stride: vec![0, 2], data: Some("x".into()) };
        let array = |shape: Vec<i64>, data: Vec<u8>| {
            BTreeMap::from([("x".to_string(), Array { descr: "|u1".into(), shape, data })])
        };
        let collapsed = array(vec![1, 2], vec![7, 9]);
        let tensor = recorded("input 0", &entry, Some("x"), &collapsed).expect("fits").expect("recorded");
        assert_eq!((tensor.strides(), tensor.data.as_slice()), (&[0, 2][..], &[7, 0xff, 9][..]));
        assert_eq!(tensor.to_f64(), [7.0, 9.0, 7.0, 9.0, 7.0, 9.0]);
        let error = recorded("input 0", &entry, Some("x"), &array(vec![2, 2], vec![0; 4])).expect_err("another shape");
        assert_eq!(error.message, "input 0: the array has type |u1 and shape [2, 2], the record u8 [3, 2]");
    }
}
