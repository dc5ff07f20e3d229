//! Expressions, by precedence climbing.

use super::cursor::LineCursor;
use super::kernel::{Entity, KernelParser};
use crate::diag::Result;
use crate::kernel::ir::{Expr, ExprId, IndexOp};
use crate::kernel::words::{AS_DATA, AS_INDEX, INFIX, OF_DATA, OF_INDICES, ROUNDED, SPECIALS, index_op, value};
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value};

/// The deepest nesting that is read.
const MAX_DEPTH: u32 = 500;

impl<'a> KernelParser<'a> {
    pub(super) fn expr(&mut self, cursor: &mut LineCursor<'a>) -> Result<ExprId> {
        self.climb(cursor, 0)
    }

    /// Operators that bind at least as tightly as `strength`.
    fn climb(&mut self, cursor: &mut LineCursor<'a>, strength: u8) -> Result<ExprId> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(cursor.error(format!("expression nested more than {MAX_DEPTH} deep")));
        }
        let mut left = self.primary(cursor)?;
        while let Some(&(op, text, own)) = self.infix(cursor).filter(|(_, _, own)| *own >= strength) {
            cursor.skip(text.len());
            let right = self.climb(cursor, own + 1)?;
            left = self.binary(op, left, right);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn infix(&self, cursor: &mut LineCursor<'a>) -> Option<&'static (BinaryOp, &'static str, u8)> {
        cursor.skip_space();
        INFIX.iter().find(|(_, text, _)| cursor.rest().starts_with(text))
    }

    fn primary(&mut self, cursor: &mut LineCursor<'a>) -> Result<ExprId> {
        if cursor.take("(") {
            let inner = self.climb(cursor, 0)?;
            cursor.expect(")")?;
            return Ok(inner);
        }
        if cursor.take("#") {
            let before = *cursor;
            let name = cursor.digits().ok_or_else(|| before.error("expected the number of a piece"))?;
            return self.piece(name, &before);
        }
        let before = *cursor;
        let negative = cursor.take("-");
        cursor.skip_space();
        if negative || cursor.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.constant(cursor, negative);
        }
        let name = cursor.name()?;
        // What has the name of an operation is never followed by a parenthesis.
        if let Some(entity) = self.names.get(name).filter(|_| !cursor.rest().starts_with('(')) {
            return match *entity {
                Entity::Param(param, kind) => match self.params[param].dtype {
                    Some(dtype) => Ok(self.exprs.param(param, dtype, kind)),
                    None => Err(before.error(format!("`{name}` is a pointer"))),
                },
                Entity::Var(var, kind) => {
                    let dtype = self.vars[var].dtype;
                    Ok(self.exprs.var(var, dtype, kind))
                }
                Entity::Buffer(_) => Err(before.error(format!("`{name}` is a buffer"))),
            };
        }
        if let Some(special) = value(SPECIALS, name) {
            return Ok(self.exprs.intern(Expr::Special(special), DType::I32));
        }
        match name {
            "true" | "false" => Ok(self.exprs.bool(name == "true")),
            "nan" | "inff64" | "inff32" | "inff16" | "infbf16" | "inff8e5m2" => {
                *cursor = before;
                self.constant(cursor, false)
            }
            "complex" if cursor.rest().starts_with(':') => {
                *cursor = before;
                self.complex(cursor)
            }
            _ => self.call(name, cursor, &before),
        }
    }

    /// A number with its type: `3`, `-1.5f32`, `inff32`, `nan:7ff8000000000000:f32`.
    fn constant(&mut self, cursor: &mut LineCursor<'a>, negative: bool) -> Result<ExprId> {
        let before = *cursor;
        let rest = cursor.rest();
        let (number, float, len) = if rest.starts_with("inf") {
            (f64::INFINITY, true, 3)
        } else if let Some(after) = rest.strip_prefix("nan:") {
            let bits = after.split(':').next().unwrap_or("");
            let parsed = u64::from_str_radix(bits, 16).ok().filter(|_| after[bits.len()..].starts_with(':'));
            let bits_value = parsed.ok_or_else(|| before.error("expected the bits of a NaN"))?;
            (f64::from_bits(bits_value), true, 4 + bits.len() + 1)
        } else {
            let len = literal_length(rest);
            let float = rest[..len].contains(['.', 'e']);
            (rest[..len].parse().unwrap_or(f64::NAN), float, len)
        };
        let digits = &rest[..len];
        cursor.skip(len);
        let dtype = cursor.suffix().unwrap_or(self.index_type);
        let value = if float {
            Value::Float(if negative { -number } else { number })
        } else {
            let text = format!("{}{digits}", if negative { "-" } else { "" });
            Value::Int(text.parse().map_err(|_| before.error(format!("{text} is out of range")))?)
        };
        Ok(self.exprs.intern(Expr::Const(value), dtype))
    }

    /// A complex number, by the bits of its parts: `complex:3ff0000000000000:0000000000000000:c64`.
    fn complex(&mut self, cursor: &mut LineCursor<'a>) -> Result<ExprId> {
        let before = *cursor;
        let rest = cursor.rest();
        let mut parts = rest.splitn(4, ':').skip(1);
        let mut part = || {
            let bits = parts.next().and_then(|bits| u64::from_str_radix(bits, 16).ok());
            bits.map(f64::from_bits).ok_or_else(|| before.error("expected the bits of a part of a complex number"))
        };
        let (re, im) = (part()?, part()?);
        let Some(dtype) = parts.next() else { return Err(before.error("expected the type of a complex number")) };
        cursor.skip(rest.len() - dtype.len());
        let dtype = cursor.suffix().unwrap_or(DType::C64);
        Ok(self.exprs.intern(Expr::Const(Value::Complex(re, im)), dtype))
    }

    fn call(&mut self, name: &str, cursor: &mut LineCursor<'a>, before: &LineCursor<'a>) -> Result<ExprId> {
        if !cursor.take("(") {
            return Err(before.error(format!("`{name}` is not declared")));
        }
        let mut operands = Vec::new();
        while !cursor.take(")") {
            if !operands.is_empty() {
                cursor.expect(",")?;
            }
            operands.push(self.climb(cursor, 0)?);
        }
        match (operands[..].as_ref(), DType::from_name(name)) {
            ([a], Some(dtype)) => return Ok(self.exprs.intern(Expr::Cast(*a), dtype)),
            ([a], None) if [AS_DATA, AS_INDEX, ROUNDED].contains(&name) => {
                let expr = match name {
                    AS_DATA => Expr::AsData(*a),
                    AS_INDEX => Expr::AsIndex(*a),
                    _ => Expr::Rounded(*a),
                };
                let dtype = self.exprs.dtype(*a);
                return Ok(self.exprs.intern(expr, dtype));
            }
            ([a], None) => {
                if let Some(op) = ApproxOp::from_name(name) {
                    return Ok(self.exprs.approx(op, *a));
                }
                if let Some(op) = UnaryOp::from_name(name) {
                    let dtype = op.result_dtype(self.exprs.dtype(*a));
                    return Ok(self.exprs.intern(Expr::Unary(op, *a), dtype));
                }
            }
            ([a, b], _) => {
                let index = name.strip_prefix(OF_INDICES).and_then(BinaryOp::from_name).and_then(IndexOp::from_binary);
                let data = name.strip_prefix(OF_DATA).and_then(BinaryOp::from_name);
                match (index, data, BinaryOp::from_name(name)) {
                    (Some(op), _, _) => return Ok(self.index(op, *a, *b)),
                    (_, Some(op), _) => return Ok(self.data(op, *a, *b)),
                    (_, _, Some(op)) => return Ok(self.binary(op, *a, *b)),
                    _ => {}
                }
            }
            ([a, b, c], _) => {
                if let Some(op) = TernaryOp::from_name(name) {
                    let dtype = self.exprs.dtype(*c);
                    return Ok(self.exprs.intern(Expr::Ternary(op, *a, *b, *c), dtype));
                }
            }
            _ => {}
        }
        Err(before.error(format!("no operation `{name}` takes {} operands", operands.len())))
    }

    /// An operation on indices or on data, as its operands are.
    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        match index_op(&self.exprs, op, a, b) {
            Some(op) => self.index(op, a, b),
            None => self.data(op, a, b),
        }
    }

    fn index(&mut self, op: IndexOp, a: ExprId, b: ExprId) -> ExprId {
        let dtype = self.exprs.dtype(a);
        self.exprs.intern(Expr::Index(op, a, b), dtype)
    }

    fn data(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        let dtype = op.result_dtype(self.exprs.dtype(a));
        self.exprs.intern(Expr::Binary(op, a, b), dtype)
    }

    /// A piece of the `where` section, read when it is first used: only then
    /// are its variables declared.
    fn piece(&mut self, name: &'a str, before: &LineCursor<'a>) -> Result<ExprId> {
        if let Some(&known) = self.read_pieces.get(name) {
            return Ok(known);
        }
        // Taken out while it is read, so that a piece cannot contain itself.
        let mut cursor =
            self.pieces.remove(name).ok_or_else(|| before.error(format!("piece #{name} is not defined")))?;
        let expr = self.climb(&mut cursor, 0)?;
        cursor.end()?;
        self.read_pieces.insert(name, expr);
        Ok(expr)
    }
}

/// Bytes of the digits, fraction and exponent at the start of a text. A dot
/// that no digit follows belongs to what comes next.
fn literal_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if bytes.get(end) == Some(&b'e') {
        let sign = usize::from(bytes.get(end + 1) == Some(&b'-'));
        if digits(end + 1 + sign) > end + 1 + sign {
            end = digits(end + 1 + sign);
        }
    }
    end
}
