//! Elements in memory: little-endian bytes of each data type, and [`Value`]s.

use super::convert::{bf16_to_f32, f16_to_f32, f64_to_bf16, f64_to_f16};
use super::{DType, Value};

fn bytes_at<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
    let start = index.checked_mul(N)?;
    bytes.get(start..start.checked_add(N)?)?.try_into().ok()
}

/// The element at a position; `None` past the end. A `bool` is any non-zero byte.
pub fn read(dtype: DType, bytes: &[u8], index: usize) -> Option<Value> {
    Some(match dtype {
        DType::F64 => Value::Float(f64::from_le_bytes(bytes_at(bytes, index)?)),
        DType::F32 => Value::Float(f32::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::F16 => Value::Float(f16_to_f32(u16::from_le_bytes(bytes_at(bytes, index)?)).into()),
        DType::BF16 => Value::Float(bf16_to_f32(u16::from_le_bytes(bytes_at(bytes, index)?)).into()),
        DType::I64 => Value::Int(i64::from_le_bytes(bytes_at(bytes, index)?)),
        DType::I32 => Value::Int(i32::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::I8 => Value::Int(i8::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::U8 => Value::Int(u8::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::Bool => Value::Bool(*bytes.get(index)? != 0),
    })
}

/// The bytes of an element, least significant first; those past the type's
/// size are 0. Floats round once, integers wrap, classes convert as by
/// [`Value`]'s accessors.
pub fn encode(dtype: DType, value: Value) -> [u8; 8] {
    let word = match dtype {
        DType::F64 => value.as_f64().to_bits(),
        DType::F32 => u64::from((value.as_f64() as f32).to_bits()),
        DType::F16 => f64_to_f16(value.as_f64()).into(),
        DType::BF16 => f64_to_bf16(value.as_f64()).into(),
        DType::I64 => value.as_i64() as u64,
        DType::I32 => u64::from(value.as_i64() as u32),
        DType::I8 | DType::U8 => u64::from(value.as_i64() as u8),
        DType::Bool => value.as_bool().into(),
    };
    word.to_le_bytes()
}

/// Writes an element as [`encode`] gives it; whether there was room for it.
pub fn write(dtype: DType, bytes: &mut [u8], index: usize, value: Value) -> bool {
    let width = dtype.bytes();
    let place = index
        .checked_mul(width)
        .and_then(|start| Some(start..start.checked_add(width)?))
        .and_then(|range| bytes.get_mut(range));
    match place {
        Some(place) => {
            place.copy_from_slice(&encode(dtype, value)[..width]);
            true
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_stored(dtype: DType, value: Value, bytes: &[u8], back: Value) {
        let mut memory = vec![0xaa; 3 * dtype.bytes()];
        assert!(write(dtype, &mut memory, 1, value));
        assert_eq!(&memory[dtype.bytes()..2 * dtype.bytes()], bytes, "{dtype} {value:?}");
        assert_eq!(read(dtype, &memory, 1), Some(back));
        assert_eq!(memory.iter().filter(|byte| **byte == 0xaa).count(), 2 * dtype.bytes());
    }

    #[test]
    fn elements_are_little_endian() {
        use Value::*;
        check_stored(DType::F64, Float(1.0), &[0, 0, 0, 0, 0, 0, 0xf0, 0x3f], Float(1.0));
        check_stored(DType::F32, Float(-2.0), &[0, 0, 0, 0xc0], Float(-2.0));
        check_stored(DType::F32, Float(0.1), &[0xcd, 0xcc, 0xcc, 0x3d], Float(f64::from(0.1f32)));
        check_stored(DType::F16, Float(1.5), &[0, 0x3e], Float(1.5));
        check_stored(DType::BF16, Float(1.5), &[0xc0, 0x3f], Float(1.5));
        check_stored(DType::I64, Int(-2), &[0xfe, 255, 255, 255, 255, 255, 255, 255], Int(-2));
        check_stored(DType::I32, Int(258), &[2, 1, 0, 0], Int(258));
        check_stored(DType::I8, Int(-1), &[255], Int(-1));
        check_stored(DType::I8, Int(200), &[200], Int(-56));
        check_stored(DType::U8, Int(255), &[255], Int(255));
        check_stored(DType::Bool, Bool(true), &[1], Bool(true));
    }

    #[test]
    fn accesses_past_the_end_are_reported() {
        for &dtype in DType::ALL {
            let mut memory = vec![0; 2 * dtype.bytes()];
            assert!(read(dtype, &memory, 1).is_some() && read(dtype, &memory, 2).is_none());
            assert!(read(dtype, &memory, usize::MAX).is_none());
            assert!(!write(dtype, &mut memory, 2, Value::Int(1)));
        }
    }
}
