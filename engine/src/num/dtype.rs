//! Data types of tensor elements and scalars.

/// The class of a data type, which most operation rules ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DTypeClass {
    /// `bool`.
    Bool,
    /// Signed and unsigned integers.
    Int,
    /// Binary floating point.
    Float,
}

macro_rules! dtypes {
    ($($variant:ident = $name:literal, $bytes:literal, $class:ident, $doc:literal;)*) => {
        /// A data type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DType {
            $(#[doc = $doc] $variant,)*
        }

        impl DType {
            /// Every data type.
            pub const ALL: &[DType] = &[$(DType::$variant),*];
            /// The textual name, for example `bf16`.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),* }
            }
            /// Size of one element in memory.
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
}

impl DType {
    /// The data type with this textual name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }
    /// Whether values are floating point.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), DTypeClass::Float)
    }
    /// Whether values are integers (`bool` is not one).
    pub const fn is_int(self) -> bool {
        matches!(self.class(), DTypeClass::Int)
    }
    /// Whether arithmetic happens in `f32` because the type is only a storage
    /// format (`f16`, `bf16`).
    pub const fn is_reduced_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }
    /// The type in which arithmetic on this type is done.
    pub const fn compute(self) -> Self {
        if self.is_reduced_float() { DType::F32 } else { self }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
