//! The expression arena: hash-consing, types, and folding constructors.
//!
//! Constructors fold constants and drop neutral elements, so that printed code
//! has no `x + 0`; deeper rewrites with range facts belong to `scalar`.

use super::ir::{Dim, Expr, ExprId, ParamId, Special, VarId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::PrimaryMap;
use rustc_hash::FxHashMap;

/// An expression and its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExprNode {
    /// The expression.
    pub expr: Expr,
    /// Its type.
    pub dtype: DType,
}

/// Hash-consed expressions. Equal nodes have equal ids.
#[derive(Clone, Debug, Default)]
pub struct ExprArena {
    nodes: PrimaryMap<ExprId, ExprNode>,
    // Look-up only, never iterated: order comes from `nodes`.
    ids: FxHashMap<ExprNode, ExprId>,
}

impl std::ops::Index<ExprId> for ExprArena {
    type Output = ExprNode;
    fn index(&self, id: ExprId) -> &ExprNode {
        &self.nodes[id]
    }
}

impl ExprArena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }
    /// All nodes; operands come before their users.
    pub fn iter(&self) -> impl Iterator<Item = (ExprId, &ExprNode)> {
        self.nodes.iter()
    }
    /// The number of expressions.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    /// The type of an expression.
    pub fn dtype(&self, id: ExprId) -> DType {
        self.nodes[id].dtype
    }
    /// The node exactly as given, without folding.
    pub fn intern(&mut self, expr: Expr, dtype: DType) -> ExprId {
        let node = ExprNode { expr, dtype };
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        let id = self.nodes.push(node);
        self.ids.insert(node, id);
        id
    }
    /// A constant. Floats are rounded to what an `f32` holds unless the type is wider.
    pub fn value(&mut self, value: Value, dtype: DType) -> ExprId {
        let value = match value {
            Value::Float(number) if dtype != DType::F64 && !number.is_nan() => Value::Float(f64::from(number as f32)),
            other => other,
        };
        self.intern(Expr::Const(value), dtype)
    }
    /// An integer constant.
    pub fn int(&mut self, value: i64, dtype: DType) -> ExprId {
        self.value(Value::Int(value), dtype)
    }
    /// A truth value.
    pub fn bool(&mut self, value: bool) -> ExprId {
        self.value(Value::Bool(value), DType::Bool)
    }
    /// A scalar argument.
    pub fn param(&mut self, param: ParamId, dtype: DType) -> ExprId {
        self.intern(Expr::Param(param), dtype)
    }
    /// A variable.
    pub fn var(&mut self, var: VarId, dtype: DType) -> ExprId {
        self.intern(Expr::Var(var), dtype)
    }
    /// `threadIdx`, `i32`.
    pub fn thread_idx(&mut self, dim: Dim) -> ExprId {
        self.intern(Expr::Special(Special::ThreadIdx(dim)), DType::I32)
    }
    /// `blockIdx`, `i32`.
    pub fn block_idx(&mut self, dim: Dim) -> ExprId {
        self.intern(Expr::Special(Special::BlockIdx(dim)), DType::I32)
    }
    /// The constant integer that an expression is, if it is one.
    pub fn as_int(&self, id: ExprId) -> Option<i64> {
        match self.nodes[id].expr {
            Expr::Const(Value::Int(value)) => Some(value),
            _ => None,
        }
    }
    /// The constant truth value that an expression is, if it is one.
    pub fn as_bool(&self, id: ExprId) -> Option<bool> {
        match self.nodes[id].expr {
            Expr::Const(Value::Bool(value)) => Some(value),
            _ => None,
        }
    }

    /// A conversion; none if the type is already right, folded for integer constants.
    pub fn cast(&mut self, operand: ExprId, dtype: DType) -> ExprId {
        let from = self.dtype(operand);
        if from == dtype {
            return operand;
        }
        match self.as_int(operand) {
            Some(value) if matches!(dtype, DType::I64 | DType::I32) && i32::try_from(value).is_ok() => {
                self.int(value, dtype)
            }
            _ => self.intern(Expr::Cast(operand), dtype),
        }
    }

    /// A unary operation; predicates have type `bool`.
    pub fn unary(&mut self, op: UnaryOp, operand: ExprId) -> ExprId {
        if let (UnaryOp::LogicalNot, Some(value)) = (op, self.as_bool(operand)) {
            return self.bool(!value);
        }
        let dtype = op.result_dtype(self.dtype(operand));
        self.intern(Expr::Unary(op, operand), dtype)
    }

    /// A binary operation; predicates have type `bool`. Integer constants are
    /// folded, and neutral elements of integer and logical operations dropped.
    pub fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        debug_assert_eq!(self.dtype(a), self.dtype(b), "operands of {op} differ in type");
        if let Some(folded) = self.fold(op, a, b) {
            return folded;
        }
        let dtype = op.result_dtype(self.dtype(a));
        self.intern(Expr::Binary(op, a, b), dtype)
    }

    /// A ternary operation; the result has the type of the last operand.
    pub fn ternary(&mut self, op: TernaryOp, a: ExprId, b: ExprId, c: ExprId) -> ExprId {
        if let (TernaryOp::Where, Some(value)) = (op, self.as_bool(a)) {
            return if value { b } else { c };
        }
        let dtype = self.dtype(c);
        self.intern(Expr::Ternary(op, a, b, c), dtype)
    }

    /// Sum of index expressions.
    pub fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Add, a, b)
    }
    /// Difference of index expressions.
    pub fn sub(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Sub, a, b)
    }
    /// Product of index expressions.
    pub fn mul(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Mul, a, b)
    }
    /// Quotient of non-negative index expressions.
    pub fn div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Div, a, b)
    }
    /// Remainder of non-negative index expressions.
    pub fn rem(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Mod, a, b)
    }
    /// `a < b`.
    pub fn lt(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::Lt, a, b)
    }
    /// Logical conjunction.
    pub fn and(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.binary(BinaryOp::LogicalAnd, a, b)
    }

    fn fold(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        use BinaryOp::*;
        let dtype = self.dtype(a);
        match op {
            LogicalAnd => match (self.as_bool(a), self.as_bool(b)) {
                (Some(true), _) => return Some(b),
                (_, Some(true)) => return Some(a),
                (Some(false), _) | (_, Some(false)) => return Some(self.bool(false)),
                _ if a == b && dtype == DType::Bool => return Some(a),
                _ => {}
            },
            LogicalOr => match (self.as_bool(a), self.as_bool(b)) {
                (Some(false), _) => return Some(b),
                (_, Some(false)) => return Some(a),
                (Some(true), _) | (_, Some(true)) => return Some(self.bool(true)),
                _ => {}
            },
            _ => {}
        }
        if !matches!(dtype, DType::I32 | DType::I64) {
            return None;
        }
        let (x, y) = (self.as_int(a), self.as_int(b));
        match (op, x, y) {
            (Add, Some(0), _) | (Mul, Some(1), _) => return Some(b),
            (Add | Sub, _, Some(0)) | (Mul | Div | CeilDiv, _, Some(1)) => return Some(a),
            (Mul, Some(0), _) | (Mul, _, Some(0)) | (Mod, _, Some(1)) => return Some(self.int(0, dtype)),
            (Div | Mod | CeilDiv, Some(0), _) => return Some(self.int(0, dtype)),
            _ => {}
        }
        let (x, y) = (x?, y?);
        let folded = match op {
            Add => x.checked_add(y)?,
            Sub => x.checked_sub(y)?,
            Mul => x.checked_mul(y)?,
            Div if y > 0 && x >= 0 => x / y,
            Mod if y > 0 && x >= 0 => x % y,
            CeilDiv if y > 0 && x >= 0 => x.checked_add(y - 1)? / y,
            Minimum => x.min(y),
            Maximum => x.max(y),
            Lt => return Some(self.bool(x < y)),
            Le => return Some(self.bool(x <= y)),
            Gt => return Some(self.bool(x > y)),
            Ge => return Some(self.bool(x >= y)),
            Eq => return Some(self.bool(x == y)),
            Ne => return Some(self.bool(x != y)),
            _ => return None,
        };
        // A fold that leaves the type is not folded: the device would wrap.
        (dtype == DType::I64 || i32::try_from(folded).is_ok()).then(|| self.int(folded, dtype))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_share_an_id_and_constants_fold() {
        let mut arena = ExprArena::new();
        let x = arena.thread_idx(Dim::X);
        let four = arena.int(4, DType::I32);
        let zero = arena.int(0, DType::I32);
        let a = arena.mul(x, four);
        let b = arena.mul(x, four);
        assert_eq!(a, b);
        assert_eq!(arena.add(a, zero), a);
        let folded = arena.add(four, four);
        assert_eq!(arena.as_int(folded), Some(8));
        let big = arena.int(i32::MAX.into(), DType::I32);
        let wraps = arena.add(big, four);
        assert_eq!(arena.as_int(wraps), None);
    }
}
