//! The expression arena: hash-consing, types, and folding constructors.
//!
//! Constructors fold constants and drop neutral elements, so that printed code
//! has no `x + 0`. [`ExprArena::index`] makes index arithmetic, `unary`, `binary` and
//! `ternary` make operations on data, and `add`, `sub`, `mul`, `div` and `rem` what
//! their operands are. That indices and data are not mixed is the verifier's to say.

use super::ir::{Dim, Expr, ExprId, IndexOp, ParamId, Special, ValueKind, VarId};
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value, eval};
use crate::util::{PrimaryMap, self_check};
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
    kinds: PrimaryMap<ExprId, ValueKind>,
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
    /// Whether an expression is about indices or about data.
    pub fn kind(&self, id: ExprId) -> ValueKind {
        self.kinds[id]
    }
    /// The node exactly as given, without folding. A parameter or variable that
    /// is new here is taken for data.
    pub fn intern(&mut self, expr: Expr, dtype: DType) -> ExprId {
        self.intern_as(expr, dtype, ValueKind::Data)
    }
    fn intern_as(&mut self, expr: Expr, dtype: DType, name_kind: ValueKind) -> ExprId {
        let node = ExprNode { expr, dtype };
        if let Some(&id) = self.ids.get(&node) {
            return id;
        }
        let kind = self.kind_of(node, name_kind);
        let id = self.nodes.push(node);
        self.kinds.push(kind);
        self.ids.insert(node, id);
        id
    }
    fn kind_of(&self, node: ExprNode, name_kind: ValueKind) -> ValueKind {
        let kind = |id: ExprId| self.kinds.get(id).copied().unwrap_or(ValueKind::Data);
        match node.expr {
            Expr::Const(_) => ValueKind::Constant,
            Expr::Special(_) | Expr::Index(..) | Expr::AsIndex(_) => ValueKind::Index,
            Expr::Param(_) | Expr::Var(_) => name_kind,
            Expr::Cast(a) if matches!(node.dtype, DType::I32 | DType::I64) => kind(a),
            // A condition is about what it compares.
            Expr::Unary(_, a) if node.dtype == DType::Bool => kind(a),
            Expr::Binary(_, a, b) if node.dtype == DType::Bool => kind(a).max(kind(b)),
            Expr::Ternary(TernaryOp::Where, _, b, c) => kind(b).max(kind(c)),
            Expr::AsData(_)
            | Expr::Approx(..)
            | Expr::Rounded(_)
            | Expr::Cast(_)
            | Expr::Unary(..)
            | Expr::Binary(..)
            | Expr::Ternary(..) => ValueKind::Data,
        }
    }
    /// A constant. Floats, and parts of complex numbers, are rounded to what an `f32` holds unless the type is wider.
    pub fn value(&mut self, value: Value, dtype: DType) -> ExprId {
        let value = match value {
            Value::Float(number) if dtype != DType::F64 && !number.is_nan() => Value::Float(f64::from(number as f32)),
            Value::Complex(re, im) => {
                let (re, im) = eval::round_complex(dtype, (re, im));
                Value::Complex(re, im)
            }
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
    /// A scalar argument of the given kind.
    pub fn param(&mut self, param: ParamId, dtype: DType, kind: ValueKind) -> ExprId {
        self.intern_as(Expr::Param(param), dtype, kind)
    }
    /// A variable of the given kind.
    pub fn var(&mut self, var: VarId, dtype: DType, kind: ValueKind) -> ExprId {
        self.intern_as(Expr::Var(var), dtype, kind)
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
    /// The constant number that a float expression is, if it is one.
    pub fn as_float(&self, id: ExprId) -> Option<f64> {
        match self.nodes[id].expr {
            Expr::Const(Value::Float(value)) => Some(value),
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

    /// A product of floats by itself, whatever sum it enters; other operations are as they are.
    pub fn rounded(&mut self, operand: ExprId) -> ExprId {
        match (self.nodes[operand].expr, self.dtype(operand)) {
            (Expr::Binary(BinaryOp::Mul, ..), DType::F32 | DType::F64) => {
                self.intern(Expr::Rounded(operand), self.dtype(operand))
            }
            _ => operand,
        }
    }

    /// An index as data; none if it is data already, or a constant.
    pub fn as_data(&mut self, operand: ExprId) -> ExprId {
        match (self.kind(operand), self.nodes[operand].expr) {
            (ValueKind::Constant | ValueKind::Data, _) => operand,
            (_, Expr::AsIndex(data)) => data,
            _ => self.intern(Expr::AsData(operand), self.dtype(operand)),
        }
    }

    /// Data as an index; none if it is an index already, or a constant.
    pub fn as_index(&mut self, operand: ExprId) -> ExprId {
        match (self.kind(operand), self.nodes[operand].expr) {
            (ValueKind::Constant | ValueKind::Index, _) => operand,
            (_, Expr::AsData(index)) => index,
            _ => self.intern(Expr::AsIndex(operand), self.dtype(operand)),
        }
    }

    /// What is converted between index and data, if the expression is such a
    /// conversion; itself otherwise. The number is the same.
    pub fn plain(&self, mut id: ExprId) -> ExprId {
        while let Expr::AsData(a) | Expr::AsIndex(a) = self.nodes[id].expr {
            id = a;
        }
        id
    }

    /// A unary operation; predicates have type `bool`.
    pub fn unary(&mut self, op: UnaryOp, operand: ExprId) -> ExprId {
        if let (UnaryOp::LogicalNot, Some(value)) = (op, self.as_bool(operand)) {
            return self.bool(!value);
        }
        let dtype = op.result_dtype(self.dtype(operand));
        self.intern(Expr::Unary(op, operand), dtype)
    }

    /// A function by an approximation.
    pub fn approx(&mut self, op: ApproxOp, operand: ExprId) -> ExprId {
        self.intern(Expr::Approx(op, operand), DType::F32)
    }

    /// A binary operation on data; predicates have type `bool`, and compare
    /// indices too. Integer constants are folded, and neutral elements of integer
    /// and logical operations dropped.
    pub fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        self_check!(self.dtype(a) == self.dtype(b), "operands of {op} differ in type");
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

    /// Index arithmetic. Constants are folded and neutral elements dropped.
    pub fn index(&mut self, op: IndexOp, a: ExprId, b: ExprId) -> ExprId {
        self_check!(self.dtype(a) == self.dtype(b), "operands of {op:?} differ in type");
        match self.fold(op.as_binary(), a, b) {
            Some(folded) => folded,
            None => self.intern(Expr::Index(op, a, b), self.dtype(a)),
        }
    }
    /// The mask `2^k - 1` of an index operation that leaves the last `k` bits of any number, negative ones too: a
    /// remainder by the constant `2^k`.
    pub fn mask_of(&self, op: IndexOp, b: ExprId) -> Option<i64> {
        let power = self.as_int(b).filter(|n| *n > 0 && n & (n - 1) == 0);
        power.filter(|_| op == IndexOp::Mod).map(|n| n - 1)
    }
    /// Index arithmetic, unless an operand is data: then the same on data.
    fn arithmetic(&mut self, op: IndexOp, a: ExprId, b: ExprId) -> ExprId {
        let of_data = self.kind(a).max(self.kind(b)) == ValueKind::Data;
        if of_data || !matches!(self.dtype(a), DType::I32 | DType::I64) {
            return self.binary(op.as_binary(), a, b);
        }
        self.index(op, a, b)
    }
    /// Sum, of indices or data as the operands are.
    pub fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.arithmetic(IndexOp::Add, a, b)
    }
    /// Difference, of indices or data as the operands are.
    pub fn sub(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.arithmetic(IndexOp::Sub, a, b)
    }
    /// Product, of indices or data as the operands are.
    pub fn mul(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.arithmetic(IndexOp::Mul, a, b)
    }
    /// Quotient, of indices or data as the operands are.
    pub fn div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.arithmetic(IndexOp::Div, a, b)
    }
    /// Remainder, of indices or data as the operands are.
    pub fn rem(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.arithmetic(IndexOp::Mod, a, b)
    }
    /// Quotient of indices, rounded up.
    pub fn ceil_div(&mut self, a: ExprId, b: ExprId) -> ExprId {
        self.index(IndexOp::CeilDiv, a, b)
    }
    /// Exclusive or of the bits of indices that are not negative.
    pub fn xor(&mut self, a: ExprId, b: ExprId) -> ExprId {
        match (self.as_int(a), self.as_int(b)) {
            (Some(0), _) => b,
            (_, Some(0)) => a,
            (Some(x), Some(y)) => self.int(x ^ y, self.dtype(a)),
            _ => self.index(IndexOp::Xor, a, b),
        }
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
