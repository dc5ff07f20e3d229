//! Names of data types in nvFuser's form and in PyTorch's.

use engine::num::DType;

/// nvFuser's name, PyTorch's names, ours. nvFuser's Python form has no name for
/// the last ones; they are written as its C++ side calls them.
const TYPES: &[(&str, &[&str], &str)] = &[
    ("Double", &["float64", "double"], "f64"),
    ("Float", &["float32", "float"], "f32"),
    ("Half", &["float16", "half"], "f16"),
    ("BFloat16", &["bfloat16"], "bf16"),
    ("Float8_e4m3fn", &["float8_e4m3fn"], "f8e4m3fn"),
    ("Float8_e5m2", &["float8_e5m2"], "f8e5m2"),
    ("Float8_e8m0fnu", &["float8_e8m0fnu"], "f8e8m0fnu"),
    ("Float4_e2m1fn", &[], "f4e2m1fn"),
    ("Float4_e2m1fn_x2", &["float4_e2m1fn_x2"], "f4e2m1fn_x2"),
    ("Int", &["int64", "long"], "i64"),
    ("Int32", &["int32", "int"], "i32"),
    ("Bool", &["bool"], "bool"),
    ("ComplexFloat", &["complex64", "cfloat"], "c64"),
    ("ComplexDouble", &["complex128", "cdouble"], "c128"),
    ("UInt64", &["uint64"], "u64"),
    ("Index", &[], "index"),
    ("Short", &["int16", "short"], "i16"),
    ("Char", &["int8"], "i8"),
    ("Byte", &["uint8"], "u8"),
    ("UInt16", &["uint16"], "u16"),
    ("UInt32", &["uint32"], "u32"),
];

/// The word for "derive it from the operands".
pub(super) const NULL: &str = "Null";

/// The type of `DataType.name`.
pub(super) fn data_type(name: &str) -> Option<DType> {
    TYPES.iter().find(|row| row.0 == name).and_then(|row| DType::from_name(row.2))
}

/// The type of `torch.name`.
pub(super) fn torch_type(name: &str) -> Option<DType> {
    TYPES.iter().find(|row| row.1.contains(&name)).and_then(|row| DType::from_name(row.2))
}

/// All names behind `DataType.`, for suggestions.
pub(super) fn data_types() -> impl Iterator<Item = &'static str> {
    TYPES.iter().filter(|row| DType::from_name(row.2).is_some()).map(|row| row.0).chain([NULL])
}

/// The name behind `DataType.`.
pub(super) fn py_name(dtype: DType) -> &'static str {
    TYPES.iter().find(|row| row.2 == dtype.name()).map_or(NULL, |row| row.0)
}

/// The data type with PyTorch's name, as records of runs have it: `float32`.
pub fn dtype_of_torch(name: &str) -> Option<DType> {
    torch_type(name.strip_prefix("torch.").unwrap_or(name))
}

/// The first of PyTorch's names for a type.
pub fn torch_name(dtype: DType) -> Option<&'static str> {
    TYPES.iter().find(|row| row.2 == dtype.name()).and_then(|row| row.1.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_one_name() {
        for &dtype in DType::ALL {
            assert_eq!(data_type(py_name(dtype)), Some(dtype), "{dtype}");
            if let Some(name) = torch_name(dtype) {
                assert_eq!(dtype_of_torch(name), Some(dtype), "{dtype}");
            }
        }
    }
}
