//! A scalar value on the host.

use super::DTypeClass;

/// A scalar of any data type, in the widest representation of its class. The
/// data type it belongs to stands beside it wherever one is kept. Equality and
/// hashing are by bits, so that `NaN` constants can be hash-consed.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// A floating-point value (`f64 f32 f16 bf16`).
    Float(f64),
    /// An integer value (`i64 i32 i8 u8`), already wrapped to its type.
    Int(i64),
    /// A truth value.
    Bool(bool),
}

impl Value {
    /// The class that this representation belongs to.
    pub fn class(self) -> DTypeClass {
        match self {
            Value::Float(_) => DTypeClass::Float,
            Value::Int(_) => DTypeClass::Int,
            Value::Bool(_) => DTypeClass::Bool,
        }
    }
    /// The value as a float; exact for integers below 2^53.
    pub fn as_f64(self) -> f64 {
        match self {
            Value::Float(v) => v,
            Value::Int(v) => v as f64,
            Value::Bool(v) => f64::from(u8::from(v)),
        }
    }
    /// The value as an integer; floats truncate and saturate.
    pub fn as_i64(self) -> i64 {
        match self {
            Value::Float(v) => v as i64,
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
        }
    }
    fn bits(self) -> (u8, u64) {
        match self {
            Value::Float(v) => (0, v.to_bits()),
            Value::Int(v) => (1, v as u64),
            Value::Bool(v) => (2, v.into()),
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
