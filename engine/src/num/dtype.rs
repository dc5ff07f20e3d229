//! Data types of tensor elements and scalars.
//!
//! Two types are narrower than a byte or stand for more than one value:
//!
//! * `f4e2m1fn` has four bits. On the host each element has a byte of its own,
//!   with its code in the low half and zeros above, so that strides and views
//!   need no special case. [`DType::bytes`] is 1, [`DType::bits`] is 4.
//! * `f4e2m1fn_x2` is the form in which such tensors cross the boundary: one
//!   byte holds two neighbours along the innermost axis, the first in the low
//!   half. No operation is defined on it and no fusion may use it; an argument
//!   is unpacked before it is looked at, which doubles the innermost size (see
//!   `HostTensor::unpacked`). As a [`Value`](super::Value) such a byte is an
//!   integer from 0 to 255.
//!
//! `index` is the type of sizes and positions: 64 bits, signed, on the host.

/// The class of a data type, which most operation rules ask for, in the order
/// of promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DTypeClass {
    /// `bool`.
    Bool,
    /// Signed and unsigned integers.
    Int,
    /// Binary floating point.
    Float,
    /// Pairs of floats.
    Complex,
}

macro_rules! dtypes {
    ($($variant:ident = $name:literal, $bytes:literal, $class:ident, $doc:literal;)*) => {
        /// A data type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// Every data type, the packed one included.
            pub const ALL: &[DType] = &[$(DType::$variant),*];
            /// The textual name, for example `bf16`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),* }
            }
            /// Size of one element in the host's memory.
            pub const fn bytes(self) -> usize {
                match self { $(DType::$variant => $bytes),* }
            }
            /// The class.
            pub const fn class(self) -> DTypeClass {
                match self { $(DType::$variant => DTypeClass::$class),* }
            }
        }
    };
}

dtypes! {
    F64 = "f64", 8, Float, "IEEE binary64.";
    F32 = "f32", 4, Float, "IEEE binary32.";
    F16 = "f16", 2, Float, "IEEE binary16.";
    BF16 = "bf16", 2, Float, "The upper half of an IEEE binary32.";
    I64 = "i64", 8, Int, "Signed 64-bit integer.";
    I32 = "i32", 4, Int, "Signed 32-bit integer.";
    I8 = "i8", 1, Int, "Signed 8-bit integer.";
    U8 = "u8", 1, Int, "Unsigned 8-bit integer.";
    Bool = "bool", 1, Bool, "Truth value, one byte, 0 or 1.";
    C64 = "c64", 8, Complex, "Real and imaginary part, each `f32`.";
    C128 = "c128", 16, Complex, "Real and imaginary part, each `f64`.";
    F8E4M3FN = "f8e4m3fn", 1, Float, "Sign, 4 exponent and 3 fraction bits; finite but for one NaN.";
    F8E5M2 = "f8e5m2", 1, Float, "Sign, 5 exponent and 2 fraction bits, as in IEEE formats.";
    F8E8M0FNU = "f8e8m0fnu", 1, Float, "A power of two from 2^-127 to 2^127, or NaN; no sign, no zero.";
    F4E2M1FN = "f4e2m1fn", 1, Float, "Sign, 2 exponent and 1 fraction bits; always finite.";
    F4E2M1FNX2 = "f4e2m1fn_x2", 1, Int, "Two packed `f4e2m1fn`, the first in the low half; only at the boundary.";
    I16 = "i16", 2, Int, "Signed 16-bit integer.";
    U16 = "u16", 2, Int, "Unsigned 16-bit integer.";
    U32 = "u32", 4, Int, "Unsigned 32-bit integer.";
    U64 = "u64", 8, Int, "Unsigned 64-bit integer.";
    Index = "index", 8, Int, "Signed integer of the width that a kernel indexes with; 64 bits on the host.";
}

impl DType {
    /// The types that tensors and scalars of a fusion may have.
    pub const FUSION: &[DType] = &[
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::I8,
        DType::U8,
        DType::Bool,
        DType::C64,
        DType::C128,
        DType::F8E4M3FN,
        DType::F8E5M2,
        DType::F8E8M0FNU,
        DType::F4E2M1FN,
        DType::I16,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Index,
    ];
    /// The data type with this textual name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }
    /// Bits that an element means, which are fewer than its bytes hold for `f4e2m1fn`.
    pub const fn bits(self) -> usize {
        if matches!(self, DType::F4E2M1FN) { 4 } else { 8 * self.bytes() }
    }
    /// Whether values are floating point.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), DTypeClass::Float)
    }
    /// Whether values are complex.
    pub const fn is_complex(self) -> bool {
        matches!(self.class(), DTypeClass::Complex)
    }
    /// Whether values are integers (`bool` is not one).
    pub const fn is_int(self) -> bool {
        matches!(self.class(), DTypeClass::Int)
    }
    /// The least and the greatest value of an integer type as one of 64 bits with a sign; of `u64`, which has values
    /// beyond, as of `i64`: its bits.
    pub const fn int_range(self) -> (i64, i64) {
        match self {
            DType::I32 => (i32::MIN as i64, i32::MAX as i64),
            DType::I16 => (i16::MIN as i64, i16::MAX as i64),
            DType::I8 => (i8::MIN as i64, i8::MAX as i64),
            DType::U32 => (0, u32::MAX as i64),
            DType::U16 => (0, u16::MAX as i64),
            DType::U8 | DType::F4E2M1FNX2 => (0, u8::MAX as i64),
            DType::Bool => (0, 1),
            _ => (i64::MIN, i64::MAX),
        }
    }
    /// Whether values are integers that are never negative.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::F4E2M1FNX2)
    }
    /// Whether an element stands for several values.
    pub const fn is_packed(self) -> bool {
        matches!(self, DType::F4E2M1FNX2)
    }
    /// Whether it is a type that fusions, and kernels of them, compute with.
    pub fn is_computed(self) -> bool {
        Self::FUSION.contains(&self)
    }
    /// Whether arithmetic happens in `f32` because the type is only a storage
    /// format: floats of at most 16 bits.
    pub const fn is_reduced_float(self) -> bool {
        self.is_float() && self.bytes() <= 2
    }
    /// The type in which arithmetic on this type is done.
    pub const fn compute(self) -> Self {
        if self.is_reduced_float() { DType::F32 } else { self }
    }
    /// The type of the parts of a complex number; other types are their own part.
    pub const fn part(self) -> Self {
        match self {
            DType::C64 => DType::F32,
            DType::C128 => DType::F64,
            other => other,
        }
    }
    /// The complex type that holds values of this type: `c128` for `f64`, else `c64`.
    pub const fn to_complex(self) -> Self {
        match self {
            DType::F64 | DType::C128 => DType::C128,
            _ => DType::C64,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_types_agree() {
        let fusion: Vec<_> = DType::ALL.iter().copied().filter(|dtype| !dtype.is_packed()).collect();
        assert_eq!(DType::FUSION, fusion);
        for &dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert!(dtype.bits().div_ceil(8) == dtype.bytes(), "{dtype}");
            assert_eq!(
                dtype.part().to_complex().part(),
                if dtype.part() == DType::F64 { DType::F64 } else { DType::F32 }
            );
        }
    }
}
