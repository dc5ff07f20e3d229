//! A scalar value on the host.

use super::{DType, DTypeClass};

/// A scalar of any data type, in the widest representation of its class. The
/// data type it belongs to stands beside it wherever one is kept. Equality and
/// hashing are by bits, so that `NaN` constants can be hash-consed.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A floating-point value.
    Float(f64),
    /// An integer value, already wrapped to its type. One of `u64` has the same
    /// 64 bits: whoever knows the type reads them as unsigned.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// Real and imaginary part.
    Complex(f64, f64),
}

impl Value {
    /// The class that this representation belongs to.
    pub fn class(self) -> DTypeClass {
        match self {
            Value::Float(_) => DTypeClass::Float,
            Value::Int(_) => DTypeClass::Int,
            Value::Bool(_) => DTypeClass::Bool,
            Value::Complex(..) => DTypeClass::Complex,
        }
    }
    /// The value as a float; exact for integers below 2^53. Of a complex number
    /// it is the real part, here and in [`Self::as_i64`]; integers are taken as
    /// signed.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Float(v) | Value::Complex(v, _) => v,
            Value::Int(v) => v as f64,
            Value::Bool(v) => f64::from(u8::from(v)),
        }
    }
    /// The value as an integer; floats truncate and saturate.
    pub fn as_i64(self) -> i64 {
        match self {
            Value::Float(v) | Value::Complex(v, _) => v as i64,
            Value::Int(v) => v,
            Value::Bool(v) => v.into(),
        }
    }
    /// Whether the value is not zero.
    pub fn as_bool(self) -> bool {
        match self {
            Value::Float(v) => v != 0.0,
            Value::Int(v) => v != 0,
            Value::Bool(v) => v,
            Value::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }
    /// The value as a real and an imaginary part.
    pub fn as_complex(self) -> (f64, f64) {
        match self {
            Value::Complex(re, im) => (re, im),
            other => (other.as_f64(), 0.0),
        }
    }
    /// The widest type of the value's class, which represents it exactly.
    pub fn home_type(self) -> DType {
        match self {
            Value::Float(_) => DType::F64,
            Value::Int(_) => DType::I64,
            Value::Bool(_) => DType::Bool,
            Value::Complex(..) => DType::C128,
        }
    }
    /// The value as people write it, given its type.
    pub fn shown(self, dtype: DType) -> String {
        match self {
            Value::Float(v) => format!("{v:?}"),
            Value::Int(v) if dtype == DType::U64 => v.cast_unsigned().to_string(),
            Value::Int(v) => v.to_string(),
            Value::Bool(v) => v.to_string(),
            Value::Complex(re, im) => format!("{re:?}{im:+?}i"),
        }
    }
    fn bits(self) -> (u8, u64, u64) {
        match self {
            Value::Float(v) => (0, v.to_bits(), 0),
            Value::Int(v) => (1, v as u64, 0),
            Value::Bool(v) => (2, v.into(), 0),
            Value::Complex(re, im) => (3, re.to_bits(), im.to_bits()),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.bits() == other.bits()
    }
}

impl Eq for Value {}

impl std::hash::Hash for Value {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.bits().hash(state);
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bits().cmp(&other.bits())
    }
}
