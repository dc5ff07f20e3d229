//! Elements in memory: little-endian bytes of each data type, and [`Value`]s.

use super::convert::{
    bf16_to_f32, f4e2m1fn_to_f32, f8e4m3fn_to_f32, f8e5m2_to_f32, f8e8m0fnu_to_f32, f16_to_f32, f64_to_bf16,
    f64_to_f4e2m1fn, f64_to_f8e4m3fn, f64_to_f8e5m2, f64_to_f8e8m0fnu, f64_to_f16,
};
use super::{DType, Value};

fn bytes_at<const N: usize>(bytes: &[u8], index: usize) -> Option<[u8; N]> {
    let start = index.checked_mul(N)?;
    bytes.get(start..start.checked_add(N)?)?.try_into().ok()
}

/// Bytes of the largest element.
pub const MAX_ELEMENT: usize = 16;

/// The element at a position; `None` past the end. A `bool` is any non-zero
/// byte; of an `f4e2m1fn` the high half is ignored.
pub fn read(dtype: DType, bytes: &[u8], index: usize) -> Option<Value> {
    let byte = || bytes.get(index).copied();
    Some(match dtype {
        DType::F64 => Value::Float(f64::from_le_bytes(bytes_at(bytes, index)?)),
        DType::F32 => Value::Float(f32::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::F16 => Value::Float(f16_to_f32(u16::from_le_bytes(bytes_at(bytes, index)?)).into()),
        DType::BF16 => Value::Float(bf16_to_f32(u16::from_le_bytes(bytes_at(bytes, index)?)).into()),
        DType::F8E4M3FN => Value::Float(f8e4m3fn_to_f32(byte()?).into()),
        DType::F8E5M2 => Value::Float(f8e5m2_to_f32(byte()?).into()),
        DType::F8E8M0FNU => Value::Float(f8e8m0fnu_to_f32(byte()?).into()),
        DType::F4E2M1FN => Value::Float(f4e2m1fn_to_f32(byte()?).into()),
        DType::I64 | DType::U64 | DType::Index => Value::Int(i64::from_le_bytes(bytes_at(bytes, index)?)),
        DType::I32 => Value::Int(i32::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::U32 => Value::Int(u32::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::I16 => Value::Int(i16::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::U16 => Value::Int(u16::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::I8 => Value::Int(i8::from_le_bytes(bytes_at(bytes, index)?).into()),
        DType::U8 | DType::F4E2M1FNX2 => Value::Int(byte()?.into()),
        DType::Bool => Value::Bool(byte()? != 0),
        DType::C64 => {
            let word = u64::from_le_bytes(bytes_at(bytes, index)?);
            let part = |bits: u64| f64::from(f32::from_bits(bits as u32));
            Value::Complex(part(word), part(word >> 32))
        }
        DType::C128 => {
            let word = u128::from_le_bytes(bytes_at(bytes, index)?);
            let part = |bits: u128| f64::from_bits(bits as u64);
            Value::Complex(part(word), part(word >> 64))
        }
    })
}

/// The bytes of an element, least significant first; those past the type's
/// size are 0. Floats round once, integers wrap, classes convert as by
/// [`Value`]'s accessors.
pub fn encode(dtype: DType, value: Value) -> [u8; MAX_ELEMENT] {
    let word: u64 = match dtype {
        DType::F64 => value.as_f64().to_bits(),
        DType::F32 => u64::from((value.as_f64() as f32).to_bits()),
        DType::F16 => f64_to_f16(value.as_f64()).into(),
        DType::BF16 => f64_to_bf16(value.as_f64()).into(),
        DType::F8E4M3FN => f64_to_f8e4m3fn(value.as_f64()).into(),
        DType::F8E5M2 => f64_to_f8e5m2(value.as_f64()).into(),
        DType::F8E8M0FNU => f64_to_f8e8m0fnu(value.as_f64()).into(),
        DType::F4E2M1FN => f64_to_f4e2m1fn(value.as_f64()).into(),
        DType::I64 | DType::U64 | DType::Index => value.as_i64() as u64,
        DType::I32 | DType::U32 => u64::from(value.as_i64() as u32),
        DType::I16 | DType::U16 => u64::from(value.as_i64() as u16),
        DType::I8 | DType::U8 | DType::F4E2M1FNX2 => u64::from(value.as_i64() as u8),
        DType::Bool => value.as_bool().into(),
        DType::C64 => {
            let (re, im) = value.as_complex();
            u64::from((re as f32).to_bits()) | u64::from((im as f32).to_bits()) << 32
        }
        DType::C128 => {
            let (re, im) = value.as_complex();
            return (u128::from(re.to_bits()) | u128::from(im.to_bits()) << 64).to_le_bytes();
        }
    };
    u128::from(word).to_le_bytes()
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
        check_stored(DType::I16, Int(-2), &[0xfe, 255], Int(-2));
        check_stored(DType::U16, Int(-1), &[255, 255], Int(65_535));
        check_stored(DType::U32, Int(-1), &[255; 4], Int(4_294_967_295));
        check_stored(DType::U64, Int(-1), &[255; 8], Int(-1));
        check_stored(DType::Index, Int(-1), &[255; 8], Int(-1));
        check_stored(DType::C64, Complex(1.0, -2.0), &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], Complex(1.0, -2.0));
        let c128 = [0, 0, 0, 0, 0, 0, 0xf0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0xc0];
        check_stored(DType::C128, Complex(1.0, -2.0), &c128, Complex(1.0, -2.0));
        check_stored(DType::F8E4M3FN, Float(-1.5), &[0xbc], Float(-1.5));
        check_stored(DType::F8E5M2, Float(1.5), &[0x3e], Float(1.5));
        check_stored(DType::F8E8M0FNU, Float(0.25), &[125], Float(0.25));
        check_stored(DType::F4E2M1FN, Float(-3.0), &[0xd], Float(-3.0));
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
