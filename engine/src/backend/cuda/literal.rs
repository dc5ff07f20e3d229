//! C++ types and literals.

use crate::num::{DType, Value, storage};

/// The C++ type of a value in registers and memory.
pub(super) const fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "half_t",
        DType::BF16 => "bf16_t",
        DType::I64 => "long long",
        DType::I32 => "int",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::Bool => "bool",
        DType::I16 => "short",
        DType::U16 => "unsigned short",
        DType::U32 => "unsigned int",
        DType::U64 => "unsigned long long",
        DType::Index => "long long",
        DType::F8E4M3FN => "e4m3_t",
        DType::F8E5M2 => "e5m2_t",
        DType::F8E8M0FNU => "e8m0_t",
        DType::F4E2M1FN => "e2m1_t",
        DType::C64 => "c64_t",
        DType::C128 => "c128_t",
        // No kernel holds these: the verifier refuses them.
        DType::F4E2M1FNX2 => "unsigned char",
    }
}

/// The library section that defines the type, if C++ does not.
pub(super) const fn type_section(dtype: DType) -> Option<&'static str> {
    if dtype.is_reduced_float() || dtype.is_complex() { Some(type_name(dtype)) } else { None }
}

/// The unsigned type of an access of that many bytes, a power of two up to 16.
pub(super) const fn word_name(bytes: usize) -> &'static str {
    match bytes {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned int",
        8 => "uint2",
        _ => "uint4",
    }
}

/// A literal, exact, and how tightly it binds: true when it is a single token or call.
/// `dtype` may differ in class from the value; the value is converted.
pub(super) fn literal(value: Value, dtype: DType) -> (String, bool) {
    match dtype {
        DType::F64 => float(value.as_f64(), format!("{:?}", value.as_f64()), "", "inf_f64", "nan_f64"),
        DType::F32 => {
            let number = value.as_f64() as f32;
            float(number.into(), format!("{number:?}"), "f", "inf_f32", "nan_f32")
        }
        _ if dtype.is_reduced_float() => {
            let [low, high, ..] = storage::encode(dtype, value);
            let digits = 2 * dtype.bytes();
            (format!("{}{{0x{:0digits$x}}}", type_name(dtype), u16::from_le_bytes([low, high])), true)
        }
        DType::U64 => (format!("{}ULL", value.as_i64().cast_unsigned()), true),
        DType::U32 => (format!("{}U", value.as_i64() as u32), true),
        DType::I16 => (format!("(short){}", value.as_i64() as i16), false),
        DType::U16 => (format!("(unsigned short){}", value.as_i64() as u16), false),
        DType::I64 | DType::Index => match value.as_i64() {
            i64::MIN => ("(-9223372036854775807LL - 1)".into(), true),
            number => (format!("{number}LL"), number >= 0),
        },
        DType::I32 => match value.as_i64() as i32 {
            i32::MIN => ("(-2147483647 - 1)".into(), true),
            number => (number.to_string(), number >= 0),
        },
        DType::I8 => (format!("(signed char){}", value.as_i64() as i8), false),
        DType::U8 => (format!("(unsigned char){}", value.as_i64() as u8), false),
        DType::Bool => (value.as_bool().to_string(), true),
        // Complex numbers are written by their parts, and no kernel holds others.
        _ => (format!("{}{{}}", type_name(dtype)), true),
    }
}

fn float(number: f64, digits: String, suffix: &str, inf: &str, nan: &str) -> (String, bool) {
    if number.is_nan() {
        (nan.into(), true)
    } else if number.is_infinite() {
        if number > 0.0 { (inf.into(), true) } else { (format!("-{inf}"), false) }
    } else {
        // Rust's shortest form that reads back as the same number, a C++ literal too.
        (format!("{digits}{suffix}"), number.is_sign_positive())
    }
}

/// The library sections that a literal needs.
pub(super) fn literal_section(value: Value, dtype: DType) -> Option<&'static str> {
    let number = value.as_f64();
    match dtype {
        _ if dtype.is_reduced_float() => type_section(dtype),
        DType::F64 if !number.is_finite() => Some("special_f64"),
        DType::F32 if !(number as f32).is_finite() => Some("special_f32"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_exact_and_typed() {
        let check = |value, dtype, text: &str| assert_eq!(literal(value, dtype).0, text);
        check(Value::Float(0.1f32.into()), DType::F32, "0.1f");
        check(Value::Float(1e-30f32.into()), DType::F32, "1e-30f");
        check(Value::Float(0.1), DType::F64, "0.1");
        check(Value::Float(-0.0), DType::F32, "-0.0f");
        check(Value::Float(f64::NEG_INFINITY), DType::F32, "-inf_f32");
        check(Value::Float(f64::NAN), DType::F64, "nan_f64");
        check(Value::Int(i64::from(i32::MIN)), DType::I32, "(-2147483647 - 1)");
        check(Value::Int(-5), DType::I64, "-5LL");
        check(Value::Int(200), DType::U8, "(unsigned char)200");
        check(Value::Float(1.0), DType::BF16, "bf16_t{0x3f80}");
        check(Value::Float(1.0), DType::F16, "half_t{0x3c00}");
        check(Value::Float(-448.0), DType::F8E4M3FN, "e4m3_t{0xfe}");
        check(Value::Float(f64::INFINITY), DType::F8E5M2, "e5m2_t{0x7c}");
        check(Value::Float(0.0), DType::F8E8M0FNU, "e8m0_t{0x00}");
        check(Value::Float(-6.0), DType::F4E2M1FN, "e2m1_t{0x0f}");
        check(Value::Int(-1), DType::U64, "18446744073709551615ULL");
        check(Value::Int(1 << 31), DType::U32, "2147483648U");
        check(Value::Int(-2), DType::I16, "(short)-2");
        check(Value::Bool(true), DType::Bool, "true");
    }
}
