//! Rules of expressions: well-formed arena, size, types.

use super::checker::Checker;
use crate::kernel::ir::{BufId, Expr, ExprId, Kernel, ParamId, ParamKind, ValueKind, VarId};
use crate::num::{DType, TernaryOp, Value};
use crate::util::{EntityId, SecondaryMap};
use std::collections::BTreeSet;

/// The deepest nesting of an expression.
pub const MAX_EXPR_DEPTH: u32 = 256;
/// The most nodes of an expression written out in full.
pub const MAX_EXPR_NODES: u32 = 1 << 16;

/// Facts about expressions, computed on first use.
#[derive(Default)]
pub(super) struct ExprChecks {
    depth: SecondaryMap<ExprId, u32>,
    nodes: SecondaryMap<ExprId, u32>,
    /// The variable of the innermost scope that an expression reads. All its
    /// variables were visible at one place, so their scopes are nested, and the
    /// expression is visible wherever this one is.
    innermost: SecondaryMap<ExprId, Option<VarId>>,
    checked: SecondaryMap<ExprId, bool>,
}

impl Checker<'_> {
    /// Whether all ids in the arena and in the tables are declared and operands
    /// come before users. Only then may other rules look anything up.
    pub(super) fn check_arena(&mut self) -> bool {
        let kernel = self.kernel;
        let mut whole = true;
        for (id, node) in kernel.exprs.iter() {
            let (mut depth, mut nodes) = (1u32, 1u32);
            for operand in node.expr.operands() {
                if operand >= id {
                    whole = false;
                    self.report(|| format!("expression {id} uses {operand}, which comes after it"));
                    continue;
                }
                depth = depth.max(self.exprs.depth[operand].saturating_add(1));
                nodes = nodes.saturating_add(self.exprs.nodes[operand]);
            }
            self.exprs.depth.set(id, depth);
            self.exprs.nodes.set(id, nodes);
            let undeclared = match node.expr {
                Expr::Param(param) => kernel.params.get(param).is_none().then(|| param.to_string()),
                Expr::Var(var) => kernel.vars.get(var).is_none().then(|| var.to_string()),
                _ => None,
            };
            if let Some(name) = undeclared {
                whole = false;
                self.report(|| format!("expression {id} reads {name}, which is not declared"));
            }
        }
        whole & self.check_declared_ids()
    }

    pub(super) fn has_expr(&self, id: ExprId) -> bool {
        id.index() < self.kernel.exprs.len()
    }
    pub(super) fn has_buffer(&self, id: BufId) -> bool {
        self.kernel.buffers.get(id).is_some()
    }

    /// An expression evaluated by a thread: sound by itself, and every variable
    /// it reads visible here. `what` names its role; `None` stands for a whole
    /// place already known to be bad.
    pub(super) fn check_use(&mut self, id: ExprId, at: &mut dyn FnMut(&mut Self, String)) -> bool {
        if self.exprs.depth[id] > MAX_EXPR_DEPTH || self.exprs.nodes[id] > MAX_EXPR_NODES {
            let (depth, nodes) = (self.exprs.depth[id], self.exprs.nodes[id]);
            at(self, format!("expression {id} is too large: {depth} deep, {nodes} nodes; name its parts"));
            return false;
        }
        if !self.check_expr(id, at) {
            return false;
        }
        match self.exprs.innermost[id] {
            Some(var) if !self.scopes.visible[var] => {
                at(self, format!("reads variable {var} ({}) outside its scope", self.kernel.vars[var].name));
                false
            }
            _ => true,
        }
    }

    /// Types and bindings of an expression and its operands, once for each.
    fn check_expr(&mut self, id: ExprId, at: &mut dyn FnMut(&mut Self, String)) -> bool {
        if self.exprs.checked[id] {
            return true;
        }
        let node = self.kernel.exprs[id];
        let mut innermost = None;
        for operand in node.expr.operands() {
            if !self.check_expr(operand, at) {
                return false;
            }
            let candidate = self.exprs.innermost[operand];
            if self.scope_depth(candidate) > self.scope_depth(innermost) {
                innermost = candidate;
            }
            // An operand may be sound and yet out of scope here.
            if let Some(var) = candidate.filter(|&var| !self.scopes.visible[var]) {
                at(self, format!("reads variable {var} ({}) outside its scope", self.kernel.vars[var].name));
                return false;
            }
        }
        if let Expr::Var(var) = node.expr {
            if !self.scopes.visible[var] {
                at(
                    self,
                    format!(
                        "reads variable {var} ({}) before it is bound or outside its scope",
                        self.kernel.vars[var].name
                    ),
                );
                return false;
            }
            innermost = Some(var);
            let (kind, bound) = (self.kernel.exprs.kind(id), self.scopes.kind[var]);
            if Some(kind) != bound {
                at(self, format!("reads variable {var} as {kind:?}, which holds {bound:?}"));
                return false;
            }
        }
        if let Some(message) = type_error(self.kernel, id).or_else(|| kind_error(self.kernel, id)) {
            at(self, message);
            return false;
        }
        self.exprs.innermost.set(id, innermost);
        self.exprs.checked.set(id, true);
        true
    }

    fn scope_depth(&self, var: Option<VarId>) -> u32 {
        var.map_or(0, |var| self.scopes.depth[var])
    }

    /// An expression evaluated on the host: no place, no variable, and only
    /// parameters before `limit`.
    pub(super) fn check_host(&mut self, id: ExprId, limit: ParamId, what: &str) -> bool {
        let mut sound = true;
        let at = &mut |checker: &mut Self, message: String| checker.report(|| format!("{what}: {message}"));
        if self.exprs.depth[id] > MAX_EXPR_DEPTH || self.exprs.nodes[id] > MAX_EXPR_NODES {
            at(self, format!("expression {id} is too large"));
            return false;
        }
        let mut seen = BTreeSet::new();
        let mut work = vec![id];
        while let Some(id) = work.pop() {
            if !seen.insert(id) {
                continue;
            }
            let node = self.kernel.exprs[id];
            let message = match node.expr {
                Expr::Special(_) => Some("depends on a thread's place".to_owned()),
                Expr::Var(var) => Some(format!("reads variable {var}")),
                Expr::Param(param) if param >= limit => Some(format!("reads {param}, which comes later")),
                _ => None,
            };
            let wrong = || type_error(self.kernel, id).or_else(|| kind_error(self.kernel, id));
            if let Some(message) = message.or_else(wrong) {
                sound = false;
                at(self, message);
            }
            work.extend(node.expr.operands());
        }
        sound
    }
}

/// What is wrong with the type of a node, given the types of its operands.
fn type_error(kernel: &Kernel, id: ExprId) -> Option<String> {
    let node = kernel.exprs[id];
    let dtype = |id| kernel.exprs.dtype(id);
    let has = |expected: DType| {
        (node.dtype != expected).then(|| format!("expression {id} has type {}, not {expected}", node.dtype))
    };
    if !node.dtype.is_computed() {
        return Some(format!("expression {id} has type {}, which kernels do not compute with", node.dtype));
    }
    match node.expr {
        Expr::Const(value) => {
            (!fits(value, node.dtype)).then(|| format!("constant {value:?} is not of type {}", node.dtype))
        }
        Expr::Param(param) => match kernel.params[param].dtype {
            Some(expected) => has(expected),
            None => Some(format!("expression {id} reads pointer {param} as a number")),
        },
        Expr::Special(_) => has(DType::I32),
        Expr::Var(var) => has(kernel.vars[var].dtype),
        Expr::Unary(op, a) => {
            let operand = dtype(a);
            if !op.accepts(operand) {
                return Some(format!("{op} is not defined on {operand}"));
            }
            has(op.result_dtype(operand))
        }
        Expr::Binary(op, a, b) => {
            let operand = dtype(a);
            if operand != dtype(b) {
                return Some(format!("{op} has operands of types {operand} and {}", dtype(b)));
            }
            if !op.accepts(operand) {
                return Some(format!("{op} is not defined on {operand}"));
            }
            has(op.result_dtype(operand))
        }
        Expr::Ternary(op, a, b, c) => {
            let first = if op == TernaryOp::Where { DType::Bool } else { dtype(c) };
            if dtype(a) != first || dtype(b) != dtype(c) {
                return Some(format!("{op} has operands of types {}, {} and {}", dtype(a), dtype(b), dtype(c)));
            }
            if !op.accepts(dtype(c)) {
                return Some(format!("{op} is not defined on {}", dtype(c)));
            }
            has(dtype(c))
        }
        Expr::Approx(op, a) if dtype(a) != DType::F32 => Some(format!("{op} is not defined on {}", dtype(a))),
        Expr::Approx(..) => has(DType::F32),
        Expr::Rounded(a) if !matches!(dtype(a), DType::F32 | DType::F64) => {
            Some(format!("expression {id} rounds a number of type {}", dtype(a)))
        }
        Expr::Rounded(a) => has(dtype(a)),
        Expr::Cast(_) => None,
        Expr::Index(op, a, b) => match (dtype(a), dtype(b)) {
            (DType::I32, DType::I32) | (DType::I64, DType::I64) => has(dtype(a)),
            (a, b) => Some(format!("index {op:?} has operands of types {a} and {b}")),
        },
        Expr::AsData(a) | Expr::AsIndex(a) => match dtype(a) {
            DType::I32 | DType::I64 => has(dtype(a)),
            other => Some(format!("expression {id} takes a number of type {other} for an index")),
        },
    }
}

/// Whether indices and data are mixed in a node: what is wrong with it.
fn kind_error(kernel: &Kernel, id: ExprId) -> Option<String> {
    let exprs = &kernel.exprs;
    let node = exprs[id];
    // Truth values of either kind go together.
    let is = |id: ExprId, kind| exprs.kind(id) == kind && exprs.dtype(id) != DType::Bool;
    let is_index = |id| is(id, ValueKind::Index);
    let is_data = |id| is(id, ValueKind::Data);
    let mixed = |a, b| is_index(a) && is_data(b) || is_data(a) && is_index(b);
    let on_index = |what: String| Some(format!("{what} is defined on data, not on an index"));
    match node.expr {
        Expr::Const(_) | Expr::Special(_) | Expr::Var(_) => None,
        Expr::Param(param) => {
            let expected = match kernel.params[param].kind {
                ParamKind::Size { .. } | ParamKind::Stride { .. } => ValueKind::Index,
                ParamKind::Derived(value) => exprs.kind(value),
                _ => ValueKind::Data,
            };
            let kind = exprs.kind(id);
            (kind != expected).then(|| format!("reads {param} as {kind:?}, which is {expected:?}"))
        }
        Expr::Index(op, a, b) if is_data(a) || is_data(b) => Some(format!("index {op:?} of data")),
        Expr::Binary(op, a, b) if op.is_comparison() => {
            mixed(a, b).then(|| format!("{op} compares an index with data"))
        }
        Expr::Binary(op, a, b) if is_index(a) || is_index(b) => on_index(op.to_string()),
        Expr::Unary(op, a) if is_index(a) => on_index(op.to_string()),
        Expr::Ternary(TernaryOp::Where, _, a, b) => {
            mixed(a, b).then(|| "where chooses between an index and data".to_owned())
        }
        Expr::Ternary(op, a, b, c) if is_index(a) || is_index(b) || is_index(c) => on_index(op.to_string()),
        Expr::Cast(a) if is_index(a) && !matches!(node.dtype, DType::I32 | DType::I64) => {
            on_index(format!("conversion to {}", node.dtype))
        }
        Expr::AsData(a) if !is_index(a) => Some(format!("expression {id} converts what is no index to data")),
        Expr::AsIndex(a) if !is_data(a) => Some(format!("expression {id} converts what is no data to an index")),
        _ => None,
    }
}

/// Whether a constant is exactly a value of a type.
fn fits(value: Value, dtype: DType) -> bool {
    match (value, dtype) {
        (Value::Bool(_), DType::Bool) | (Value::Float(_), DType::F64) | (Value::Complex(..), DType::C128) => true,
        (Value::Int(v), _) if dtype.is_int() => {
            let (least, most) = dtype.int_range();
            (least..=most).contains(&v)
        }
        // Of narrower floats it is what they round.
        (Value::Float(v), _) if dtype.is_float() => v.is_nan() || f64::from(v as f32) == v,
        (Value::Complex(re, im), DType::C64) => [re, im].into_iter().all(|v| v.is_nan() || f64::from(v as f32) == v),
        _ => false,
    }
}
