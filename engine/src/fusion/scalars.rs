//! Hash-consed scalars: equal definitions get one id, and arithmetic on
//! constants folds, so that a fusion never holds a scalar that is known.

use super::meta::{ExtentValue, SizeMath};
use super::{Scalar, ScalarDef, ScalarId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value, eval};
use crate::util::{EntityId, PrimaryMap};
use rustc_hash::FxHashMap;

/// The scalars of a fusion under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct ScalarPool {
    scalars: PrimaryMap<ScalarId, Scalar>,
    /// Only looked up, never iterated.
    ids: FxHashMap<(DType, ScalarDef), ScalarId>,
}

impl ScalarPool {
    /// The id of a scalar with this type and definition.
    pub(super) fn intern(&mut self, dtype: DType, def: ScalarDef) -> ScalarId {
        if let Some(id) = self.ids.get(&(dtype, def.clone())) {
            return *id;
        }
        let id = self.scalars.push(Scalar { dtype, def: def.clone() });
        self.ids.insert((dtype, def), id);
        id
    }

    /// A constant, brought to the values that its type has.
    pub(super) fn constant(&mut self, value: Value, dtype: DType) -> ScalarId {
        let value = canonical(eval::cast(value.home_type(), dtype, value));
        self.intern(dtype, ScalarDef::Const(value))
    }

    /// A size: an `i64` constant.
    pub(super) fn size_const(&mut self, size: i64) -> ScalarId {
        self.intern(DType::I64, ScalarDef::Const(Value::Int(size)))
    }

    pub(super) fn get(&self, id: ScalarId) -> Option<&Scalar> {
        self.scalars.get(id)
    }

    pub(super) fn dtype(&self, id: ScalarId) -> DType {
        self.scalars[id].dtype
    }

    /// The value of a scalar that is a constant.
    pub(super) fn const_value(&self, id: ScalarId) -> Option<Value> {
        match self.scalars[id].def {
            ScalarDef::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Conversion; none where the type is right already.
    pub(super) fn cast(&mut self, id: ScalarId, to: DType) -> ScalarId {
        let from = self.dtype(id);
        if from == to {
            return id;
        }
        match self.const_value(id) {
            Some(value) => self.intern(to, ScalarDef::Const(canonical(eval::cast(from, to, value)))),
            None => self.intern(to, ScalarDef::Cast(id)),
        }
    }

    /// Arithmetic on a scalar of a type that the operation accepts.
    pub(super) fn unary(&mut self, op: UnaryOp, x: ScalarId) -> ScalarId {
        let dtype = self.dtype(x);
        let result = op.result_dtype(dtype);
        match self.const_value(x) {
            Some(value) => self.intern(result, ScalarDef::Const(canonical(eval::unary(op, dtype, value)))),
            None => self.intern(result, ScalarDef::Unary(op, x)),
        }
    }

    /// Arithmetic on two scalars of one type that the operation accepts.
    pub(super) fn binary(&mut self, op: BinaryOp, a: ScalarId, b: ScalarId) -> ScalarId {
        let dtype = self.dtype(a);
        let result = op.result_dtype(dtype);
        match (self.const_value(a), self.const_value(b)) {
            (Some(x), Some(y)) => self.intern(result, ScalarDef::Const(canonical(eval::binary(op, dtype, x, y)))),
            _ => self.intern(result, ScalarDef::Binary(op, a, b)),
        }
    }

    /// Arithmetic on three scalars of a type that the operation accepts; the
    /// first of `where` is a `bool`.
    pub(super) fn ternary(&mut self, op: TernaryOp, a: ScalarId, b: ScalarId, c: ScalarId) -> ScalarId {
        let dtype = self.dtype(c);
        if op == TernaryOp::Where {
            match self.const_value(a) {
                Some(condition) => return if condition.as_bool() { b } else { c },
                None if b == c => return b,
                None => {}
            }
        }
        match (self.const_value(a), self.const_value(b), self.const_value(c)) {
            (Some(x), Some(y), Some(z)) => {
                self.intern(dtype, ScalarDef::Const(canonical(eval::ternary(op, dtype, x, y, z))))
            }
            _ => self.intern(dtype, ScalarDef::Ternary(op, a, b, c)),
        }
    }
}

/// Symbolic extents are scalars: constants must agree; a constant says more
/// than a symbol; of two symbols the first stands for both.
impl SizeMath for ScalarPool {
    fn constant(&mut self, n: i64) -> ExtentValue {
        extent(self.size_const(n))
    }
    fn known(&self, extent: ExtentValue) -> Option<i64> {
        self.const_value(scalar(extent)).map(Value::as_i64)
    }
    fn is_of_input(&self, extent: ExtentValue) -> bool {
        matches!(self.get(scalar(extent)).map(|scalar| &scalar.def), Some(ScalarDef::Size { .. }))
    }
    fn binary(&mut self, op: BinaryOp, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        let (a, b) = (scalar(a), scalar(b));
        // What leaves the other operand as it is needs no scalar of its own.
        match (op, self.const_value(a).map(Value::as_i64), self.const_value(b).map(Value::as_i64)) {
            (BinaryOp::Add | BinaryOp::Sub, _, Some(0)) | (BinaryOp::Mul | BinaryOp::Div, _, Some(1)) => extent(a),
            (BinaryOp::Add, Some(0), _) | (BinaryOp::Mul, Some(1), _) => extent(b),
            (BinaryOp::Minimum | BinaryOp::Maximum, _, _) if a == b => extent(a),
            _ => extent(ScalarPool::binary(self, op, a, b)),
        }
    }
    fn select(&mut self, condition: ExtentValue, a: ExtentValue, b: ExtentValue) -> ExtentValue {
        let condition = self.cast(scalar(condition), DType::Bool);
        extent(self.ternary(TernaryOp::Where, condition, scalar(a), scalar(b)))
    }
    fn unify(&mut self, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue, (String, String)> {
        match (self.known(a), self.known(b)) {
            (Some(x), Some(y)) if x != y => Err((x.to_string(), y.to_string())),
            (None, Some(_)) => Ok(b),
            _ => Ok(a),
        }
    }
}

/// The extent that a scalar is.
pub(super) fn extent(scalar: ScalarId) -> ExtentValue {
    ExtentValue(scalar.index() as i64)
}

/// The scalar that an extent is.
pub(super) fn scalar(extent: ExtentValue) -> ScalarId {
    ScalarId::from_index(extent.0 as usize)
}

/// One NaN for all: its payload has no meaning and no textual form.
fn canonical(value: Value) -> Value {
    let part = |v: f64| if v.is_nan() { f64::NAN } else { v };
    match value {
        Value::Float(v) => Value::Float(part(v)),
        Value::Complex(re, im) => Value::Complex(part(re), part(im)),
        other => other,
    }
}
