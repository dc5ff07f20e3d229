//! Expressions of a script.

use super::ast::{ExprKind, Index, Operator, PyExpr, Sign};
use super::interp::{Interp, truth};
use super::recipe::PyNumber;
use super::value::Py;
use super::{arith, env, names};
use engine::diag::{Diagnostic, Span, code};
use engine::fusion::Operand;
use engine::text::nearest;
use std::sync::Arc;

impl<'a> Interp<'a> {
    /// The value of an expression; errors are reported where they arise.
    pub(super) fn eval(&mut self, expr: &'a PyExpr) -> Py {
        if !self.step(expr.span) {
            return Py::Poison;
        }
        match &expr.kind {
            ExprKind::None => Py::None,
            ExprKind::Ellipsis => Py::Ellipsis,
            ExprKind::Bool(value) => Py::bool(*value),
            ExprKind::Int(value) => Py::int(*value),
            ExprKind::Float(value) => Py::float(*value),
            ExprKind::Imaginary(value) => Py::Number(PyNumber::Complex(0.0, *value)),
            ExprKind::Str(text) => Py::Str(text.as_str().into()),
            ExprKind::Name(name) => self.named(name, expr.span),
            ExprKind::Attribute(object, name) => {
                let object = self.eval(object);
                self.attribute(object, &name.text, expr.span)
            }
            ExprKind::Subscript(object, indices) => self.subscript(object, indices, expr.span),
            ExprKind::Call(call) => self.call(call, expr.span),
            ExprKind::List(items) => self.elements(items, false, expr.span),
            ExprKind::Tuple(items) => self.elements(items, true, expr.span),
            ExprKind::Unary(sign, inner) => {
                let value = self.eval(inner);
                self.unary(*sign, value, expr.span)
            }
            ExprKind::Binary(operator, left, right) => self.two_sided(*operator, left, right, expr.span),
            ExprKind::Starred(_) => {
                let error =
                    Diagnostic::user(code::SYNTAX, "`*` stands among the elements of a list or the arguments only");
                self.refuse(error, expr.span)
            }
            ExprKind::Conditional { condition, then, otherwise } => {
                let value = self.eval(condition);
                match truth(&value) {
                    Some(true) => self.eval(then),
                    Some(false) => self.eval(otherwise),
                    None => Py::unknown("the conditional expression", expr.span),
                }
            }
            ExprKind::Unreadable(what) => Py::unknown(*what, expr.span),
        }
    }

    fn named(&mut self, name: &str, span: Span) -> Py {
        if let Some(value) = self.lookup(name).or_else(|| env::unbound(name)) {
            return value;
        }
        let message = format!("`{name}` is not defined");
        let hint = nearest(name, self.names().chain(env::BUILTINS)).map(|near| format!("did you mean `{near}`?"));
        self.report(Diagnostic::user(code::UNKNOWN_NAME, message).label(span, hint.unwrap_or_default()))
    }

    /// Elements of a list, `*` among them unpacked.
    pub(super) fn elements(&mut self, items: &'a [PyExpr], tuple: bool, span: Span) -> Py {
        match self.unpacked(items) {
            Ok(values) => self.list(values, tuple, span),
            Err(value) => value,
        }
    }

    /// Values of expressions with `*` among them unpacked, or what stands in the way.
    pub(super) fn unpacked(&mut self, items: &'a [PyExpr]) -> Result<Vec<Py>, Py> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let ExprKind::Starred(inner) = &item.kind else {
                values.push(self.eval(item));
                continue;
            };
            let value = self.eval(inner);
            match (value.items(), &value) {
                (Some(inner), _) => values.extend_from_slice(inner),
                (None, Py::Unknown(_) | Py::Poison) => return Err(value),
                (None, _) => {
                    let error = Diagnostic::user(code::PY_CONSTRUCT, format!("{} cannot be unpacked", value.what()));
                    return Err(self.refuse(error, item.span));
                }
            }
            if values.len() > super::value::MAX_LIST {
                return Err(self.refuse(Diagnostic::user(code::TOO_LARGE, "a list is too long"), item.span));
            }
        }
        Ok(values)
    }

    fn attribute(&mut self, object: Py, name: &str, span: Span) -> Py {
        match (&object, name) {
            (Py::Fd(draft), "ops") => Py::Ops(*draft),
            // Scheduling says how, not what.
            (Py::Fd(_), _) => Py::unknown(format!("`fd.{name}`"), span),
            (Py::Path(path), _) => match env::member(path, name) {
                Some(value) => value,
                None if &**path == "DataType" => {
                    let message = format!("`DataType.{name}` does not exist");
                    let hint = nearest(name, names::data_types()).map(|near| format!("did you mean `{near}`?"));
                    let known: Vec<_> = names::data_types().collect();
                    let error = Diagnostic::user(code::UNKNOWN_DTYPE, message);
                    let note = format!("data types are {}", known.join(" "));
                    self.report(error.label(span, hint.unwrap_or_default()).note(note))
                }
                None => Py::path(format!("{path}.{name}")),
            },
            (Py::Tensor(tensor), _) => self.tensor_attribute(tensor, name, span),
            (Py::Node(draft, operand), "ndim") => self.node_rank(*draft, *operand, span),
            (Py::Poison, _) => Py::Poison,
            (Py::Number(PyNumber::Complex(re, _)), "real") => Py::float(*re),
            (Py::Number(PyNumber::Complex(_, im)), "imag") => Py::float(*im),
            _ => Py::unknown(format!("`.{name}` of {}", object.what()), span),
        }
    }

    fn subscript(&mut self, object: &'a PyExpr, indices: &'a [Index], span: Span) -> Py {
        let value = self.eval(object);
        let mut parts = Vec::with_capacity(indices.len());
        for index in indices {
            let mut bound = |bound: &'a Option<PyExpr>| bound.as_ref().map_or(Py::None, |bound| self.eval(bound));
            parts.push(match index {
                Index::At(index) => self.eval(index),
                Index::Range { start, stop, step } => Py::Range(Arc::new([bound(start), bound(stop), bound(step)])),
            });
        }
        match (&value, &parts[..]) {
            (Py::Poison | Py::Unknown(_), _) => value,
            (Py::List(seq) | Py::Tuple(seq), [part]) => {
                let tuple = matches!(value, Py::Tuple(_));
                match pick(&seq.items, part) {
                    Some(Picked::One(item)) => item,
                    Some(Picked::Some(items)) => self.list(items, tuple, span),
                    None if part.find_unknown().is_some() => part.clone(),
                    None => {
                        let message = format!("{} is no index into {} elements", part.what(), seq.items.len());
                        self.refuse(Diagnostic::user(code::AXIS, message), span)
                    }
                }
            }
            (Py::Tensor(tensor), _) => self.tensor_index(tensor, &parts, span),
            (Py::Node(draft, operand), _) => self.node_index(*draft, *operand, &parts, span),
            _ => Py::unknown(format!("a part of {}", value.what()), span),
        }
    }

    pub(super) fn unary(&mut self, sign: Sign, value: Py, span: Span) -> Py {
        match (&value, sign) {
            (Py::Poison | Py::Unknown(_), _) => value,
            (Py::Number(number), _) => match arith::unary(sign, *number) {
                Some(result) => Py::Number(result),
                None => self.refuse(Diagnostic::user(code::BAD_NUMBER, "the value is out of range"), span),
            },
            (Py::Node(draft, _), Sign::Minus) => self.operator_call(*draft, "neg", vec![value.clone()], span),
            (Py::Node(draft, _), Sign::Invert) => self.operator_call(*draft, "bitwise_not", vec![value.clone()], span),
            (_, Sign::Not) if truth(&value).is_some() => Py::bool(truth(&value) == Some(false)),
            _ => Py::unknown(format!("an operator on {}", value.what()), span),
        }
    }

    fn two_sided(&mut self, operator: Operator, left: &'a PyExpr, right: &'a PyExpr, span: Span) -> Py {
        let a = self.eval(left);
        // The right side of `and` and `or` may not be needed.
        match (operator, truth(&a)) {
            (Operator::And, Some(false)) | (Operator::Or, Some(true)) => return a,
            (Operator::And, Some(true)) | (Operator::Or, Some(false)) => return self.eval(right),
            _ => {}
        }
        let b = self.eval(right);
        self.binary(operator, a, b, span)
    }

    pub(super) fn binary(&mut self, operator: Operator, a: Py, b: Py, span: Span) -> Py {
        match (&a, &b) {
            (Py::Poison, _) | (_, Py::Poison) => Py::Poison,
            (Py::Node(draft, _), Py::Node(..) | Py::Number(_)) | (Py::Number(_), Py::Node(draft, _)) => {
                match operator_name(operator) {
                    Some(name) => self.operator_call(*draft, name, vec![a.clone(), b.clone()], span),
                    None => {
                        let message = format!("`{}` has no meaning between values of a definition", operator.text());
                        self.refuse(Diagnostic::user(code::PY_CONSTRUCT, message), span)
                    }
                }
            }
            (Py::Unknown(_), _) => a,
            (_, Py::Unknown(_)) => b,
            (Py::Number(x), Py::Number(y)) => match arith::binary(operator, *x, *y) {
                Some(result) => Py::Number(result),
                None => {
                    let message = format!("`{}` has no value here", operator.text());
                    self.refuse(Diagnostic::user(code::BAD_NUMBER, message), span)
                }
            },
            (Py::Tensor(tensor), Py::Number(number)) => self.tensor_scaled(tensor, operator, *number, false, span),
            (Py::Number(number), Py::Tensor(tensor)) => self.tensor_scaled(tensor, operator, *number, true, span),
            (Py::List(x) | Py::Tuple(x), Py::List(y) | Py::Tuple(y)) if operator == Operator::Add => {
                let items = x.items.iter().chain(y.items.iter()).cloned().collect();
                self.list(items, matches!(a, Py::Tuple(_)), span)
            }
            (Py::List(seq) | Py::Tuple(seq), Py::Number(_)) | (Py::Number(_), Py::List(seq) | Py::Tuple(seq))
                if operator == Operator::Mul =>
            {
                let times = a.as_i64().or(b.as_i64()).unwrap_or(0).max(0) as usize;
                if times.saturating_mul(seq.items.len().max(1)) > super::value::MAX_LIST {
                    return self.refuse(Diagnostic::user(code::TOO_LARGE, "a list is too long"), span);
                }
                let items = seq.items.iter().cloned().cycle().take(times * seq.items.len()).collect();
                self.list(items, matches!(a, Py::Tuple(_)) || matches!(b, Py::Tuple(_)), span)
            }
            _ => match (operator, same(&a, &b)) {
                (Operator::Eq | Operator::Is, Some(equal)) => Py::bool(equal),
                (Operator::Ne | Operator::IsNot, Some(equal)) => Py::bool(!equal),
                _ => Py::unknown(format!("`{}` between {} and {}", operator.text(), a.what(), b.what()), span),
            },
        }
    }

    fn node_rank(&mut self, draft: usize, operand: Operand, span: Span) -> Py {
        match self.drafts[draft].rank(operand) {
            Some(rank) => Py::int(rank as i64),
            None => Py::unknown("the rank of a scalar", span),
        }
    }
}

/// Whether two values are equal, where that is decided by what they are.
fn same(a: &Py, b: &Py) -> Option<bool> {
    match (a, b) {
        (Py::None, Py::None) => Some(true),
        (Py::None, _) | (_, Py::None) => Some(false),
        (Py::Str(a), Py::Str(b)) => Some(a == b),
        (Py::DType(a), Py::DType(b)) => Some(a == b),
        _ => None,
    }
}

enum Picked {
    One(Py),
    Some(Vec<Py>),
}

/// Elements of a list at an index or in a range; negative ones count from the end.
fn pick(items: &[Py], index: &Py) -> Option<Picked> {
    let len = items.len() as i64;
    if let Py::Range(bounds) = index {
        let bound = |part: &Py, default: i64| match part {
            Py::None => Some(default),
            _ => part.as_i64().map(|at| if at < 0 { (at + len).max(0) } else { at.min(len) }),
        };
        let step = if matches!(bounds[2], Py::None) { 1 } else { bounds[2].as_i64()? };
        let (start, stop) = (bound(&bounds[0], 0)?, bound(&bounds[1], len)?);
        if step < 1 {
            return None;
        }
        let range = items.get(start as usize..(stop.max(start)) as usize)?;
        return Some(Picked::Some(range.iter().step_by(step as usize).cloned().collect()));
    }
    let at = index.as_i64()?;
    let at = if at < 0 { at + len } else { at };
    items.get(usize::try_from(at).ok()?).cloned().map(Picked::One)
}

/// The operation that an operator stands for between values of a definition.
/// `/` is the division that truncates integers, as in nvFuser's older form.
fn operator_name(operator: Operator) -> Option<&'static str> {
    use Operator as O;
    Some(match operator {
        O::Add => "add",
        O::Sub => "sub",
        O::Mul => "mul",
        O::Div => "div",
        O::Mod => "mod",
        O::Pow => "pow",
        O::Eq => "eq",
        O::Ne => "ne",
        O::Lt => "lt",
        O::Le => "le",
        O::Gt => "gt",
        O::Ge => "ge",
        O::BitAnd => "bitwise_and",
        O::BitOr => "bitwise_or",
        O::BitXor => "bitwise_xor",
        O::ShiftLeft => "bitwise_left_shift",
        O::ShiftRight => "bitwise_right_shift",
        O::MatMul => "matmul",
        O::FloorDiv | O::And | O::Or | O::In | O::NotIn | O::Is | O::IsNot => return None,
    })
}
