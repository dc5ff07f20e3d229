//! Expressions as text, with the fewest parentheses, cut where too large.

use super::names::Names;
use crate::kernel::ir::{Expr, ExprId, Kernel};
use crate::kernel::words::{AS_DATA, AS_INDEX, INFIX, OF_DATA, OF_INDICES, ROUNDED, SPECIALS, index_op, word};
use crate::num::{BinaryOp, DType, Value};
use crate::util::{EntityId, SecondaryMap};
use std::collections::BTreeSet;
use std::fmt::Write;

/// An operand that written out in full has more nodes than this gets a name.
const INLINE_NODES: u32 = 400;

/// Prints expressions of one kernel and remembers which pieces it cut off.
pub(super) struct ExprPrinter<'a> {
    kernel: &'a Kernel,
    pub(super) names: Names,
    // Nodes of each expression when written out, saturating.
    sizes: SecondaryMap<ExprId, u32>,
    cut: BTreeSet<ExprId>,
    defined: BTreeSet<ExprId>,
}

impl<'a> ExprPrinter<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        let mut sizes = SecondaryMap::<ExprId, u32>::new();
        for (id, node) in kernel.exprs.iter() {
            let size = node.expr.operands().fold(1u32, |sum, operand| sum.saturating_add(sizes[operand]));
            sizes.set(id, size);
        }
        Self { kernel, names: Names::new(kernel), sizes, cut: BTreeSet::new(), defined: BTreeSet::new() }
    }

    /// A whole expression.
    pub(super) fn root(&mut self, id: ExprId) -> String {
        let mut out = String::new();
        self.expr(&mut out, id, 0);
        out
    }

    /// The next piece that was cut off and not yet defined, with its text.
    pub(super) fn next_piece(&mut self) -> Option<(ExprId, String)> {
        let id = self.cut.iter().copied().find(|id| !self.defined.contains(id))?;
        self.defined.insert(id);
        Some((id, self.root(id)))
    }

    fn operand(&mut self, out: &mut String, id: ExprId, strength: u8) {
        if self.sizes[id] > INLINE_NODES {
            self.cut.insert(id);
            out.push_str(&piece_name(id));
        } else {
            self.expr(out, id, strength);
        }
    }

    fn expr(&mut self, out: &mut String, id: ExprId, strength: u8) {
        let node = self.kernel.exprs[id];
        match node.expr {
            Expr::Const(value) => out.push_str(&constant(value, node.dtype, self.kernel.index_type)),
            Expr::Param(param) => out.push_str(&self.names.param(param)),
            Expr::Special(special) => out.push_str(word(SPECIALS, special)),
            Expr::Var(var) => out.push_str(&self.names.var(var)),
            Expr::Unary(op, a) => self.call(out, op.name(), &[a]),
            Expr::Approx(op, a) => self.call(out, op.name(), &[a]),
            Expr::Binary(op, a, b) => match index_op(&self.kernel.exprs, op, a, b) {
                None => self.operation(out, op, [a, b], strength),
                Some(_) => self.call(out, &format!("{OF_DATA}{op}"), &[a, b]),
            },
            Expr::Index(op, a, b) => match index_op(&self.kernel.exprs, op.as_binary(), a, b) {
                Some(_) => self.operation(out, op.as_binary(), [a, b], strength),
                None => self.call(out, &format!("{OF_INDICES}{}", op.as_binary()), &[a, b]),
            },
            Expr::Rounded(a) => self.call(out, ROUNDED, &[a]),
            Expr::AsData(a) => self.call(out, AS_DATA, &[a]),
            Expr::AsIndex(a) => self.call(out, AS_INDEX, &[a]),
            Expr::Ternary(op, a, b, c) => self.call(out, op.name(), &[a, b, c]),
            Expr::Cast(a) => self.call(out, node.dtype.name(), &[a]),
        }
    }

    /// An operation whose operands tell whether it is on indices or on data.
    fn operation(&mut self, out: &mut String, op: BinaryOp, [a, b]: [ExprId; 2], strength: u8) {
        match INFIX.iter().find(|(other, ..)| *other == op) {
            Some(&(_, text, own)) => {
                let open = own < strength;
                out.push_str(if open { "(" } else { "" });
                self.operand(out, a, own);
                let _ = write!(out, " {text} ");
                self.operand(out, b, own + 1);
                out.push_str(if open { ")" } else { "" });
            }
            None => self.call(out, op.name(), &[a, b]),
        }
    }

    fn call(&mut self, out: &mut String, name: &str, operands: &[ExprId]) {
        let _ = write!(out, "{name}(");
        for (i, &operand) in operands.iter().enumerate() {
            out.push_str(if i == 0 { "" } else { ", " });
            self.operand(out, operand, 0);
        }
        out.push(')');
    }
}

/// How a piece is called: `#17`.
pub(super) fn piece_name(id: ExprId) -> String {
    format!("#{}", id.index())
}

pub(super) fn constant(value: Value, dtype: DType, index_type: DType) -> String {
    let number = match value {
        Value::Bool(v) => return v.to_string(),
        Value::Int(v) => v.to_string(),
        // Bits for NaN: payloads differ.
        Value::Float(v) if v.is_nan() => format!("nan:{:016x}:", v.to_bits()),
        Value::Float(v) => format!("{v:?}"),
        Value::Complex(re, im) => format!("complex:{:016x}:{:016x}:", re.to_bits(), im.to_bits()),
    };
    if dtype == index_type { number } else { format!("{number}{dtype}") }
}
