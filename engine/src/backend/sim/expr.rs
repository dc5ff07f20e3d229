//! Expressions to bytecode.
//!
//! An expression is computed once in the outermost place where it may be: one
//! that depends on nothing inside a loop is computed before the loop. It stays
//! inside the innermost branch unless a loop is left, so that work under a
//! condition is not done in vain. Constants are folded with `num::eval`, which
//! matters after unrolling.

use super::code::{Field, Label, Reg};
use super::compile::{Compiler, file_flag};
use super::isel;
use crate::kernel::{Dim, Expr, ExprId, Special};
use crate::num::{ApproxOp, BinaryOp, DType, TernaryOp, UnaryOp, Value, eval, stepwise};
use simcore::{File, Flags, Opcode, PreloadSource};
use std::collections::BTreeMap;

/// Where the value of an expression is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Held {
    /// Nowhere: it is this constant.
    Const(Value),
    /// In a register.
    Reg(Reg),
}

/// A value and the innermost scope it depends on. A constant folded from the
/// counter of an unrolled loop depends on that iteration.
pub(super) type Known = (Held, usize);

/// Identifies a function that is called on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HostCall {
    Unary(UnaryOp, DType),
    Binary(BinaryOp, DType),
    Ternary(TernaryOp, DType),
    Cast(DType, DType),
}

/// A function of `f64` that instructions call by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum F64Function {
    Unary(UnaryOp, DType),
    Approx(ApproxOp),
}

impl F64Function {
    /// The function.
    pub(super) fn eval(self) -> fn(f64) -> f64 {
        match self {
            F64Function::Unary(op, dtype) => stepwise::unary_f64(op, dtype),
            F64Function::Approx(op) => op.eval(),
        }
    }
}

/// Functions by what they compute.
pub(super) type Calls<K> = BTreeMap<K, u32>;

fn dim(dim: Dim) -> u8 {
    match dim {
        Dim::X => 0,
        Dim::Y => 1,
        Dim::Z => 2,
    }
}

impl Compiler<'_> {
    /// The value of an expression, computed if it was not yet.
    pub(super) fn expr(&mut self, id: ExprId) -> Known {
        let node = self.kernel.exprs[id];
        if let Expr::Var(var) = node.expr {
            // A variable that is read is bound: the verifier checked it.
            return self.vars[var].unwrap_or((Held::Const(Value::Int(0)), 0));
        }
        if let Some(known) = self.scopes.iter().rev().find_map(|scope| scope.memo.get(&id)) {
            return *known;
        }
        let (known, target) = self.compute(node.expr, node.dtype);
        self.scopes[target].memo.insert(id, known);
        known
    }

    /// A register with the value of an expression.
    pub(super) fn expr_reg(&mut self, id: ExprId) -> Reg {
        let held = self.expr(id).0;
        self.reg(held, self.kernel.exprs.dtype(id))
    }

    /// A register with a value.
    pub(super) fn reg(&mut self, held: Held, dtype: DType) -> Reg {
        match held {
            Held::Reg(reg) => reg,
            Held::Const(value) => self.asm.pinned(PreloadSource::Const(isel::to_bits(dtype, value)), isel::file(dtype)),
        }
    }

    /// The scope that gets the code of a value that depends on scope `depth`.
    fn target(&self, depth: usize) -> usize {
        let first_loop = (depth + 1..self.scopes.len()).find(|&s| self.scopes[s].repeats);
        first_loop.map_or(self.scopes.len() - 1, |s| s - 1)
    }

    /// Emits an instruction with one result into a scope.
    fn result(&mut self, target: usize, op: Opcode, file: File, operands: &[Reg]) -> Reg {
        let d = self.asm.temp(file);
        let mut draft = self.draft(op);
        draft.d = Field::Reg(d);
        for (field, &reg) in [&mut draft.a, &mut draft.b, &mut draft.c].into_iter().zip(operands) {
            *field = Field::Reg(reg);
        }
        self.push_into(target, draft);
        d
    }

    fn compute(&mut self, expr: Expr, dtype: DType) -> (Known, usize) {
        let preload = |c: &mut Self, source, file| ((Held::Reg(c.asm.pinned(source, file)), 0), 0);
        match expr {
            Expr::Const(value) => ((Held::Const(value), 0), 0),
            Expr::Var(_) => ((Held::Const(Value::Int(0)), 0), 0),
            Expr::Param(param) => {
                let index = crate::util::EntityId::index(param) as u32;
                preload(self, PreloadSource::Param(index), isel::file(dtype))
            }
            Expr::Special(special) => {
                let source = match special {
                    Special::ThreadIdx(d) => PreloadSource::ThreadIdx(dim(d)),
                    Special::BlockIdx(d) => PreloadSource::BlockIdx(dim(d)),
                    Special::BlockDim(d) => PreloadSource::BlockDim(dim(d)),
                    Special::GridDim(d) => PreloadSource::GridDim(dim(d)),
                };
                preload(self, source, File::R32)
            }
            Expr::Unary(op, a) => self.unary(op, a, dtype),
            Expr::Binary(op, a, b) => self.binary(op, a, b, dtype),
            Expr::Ternary(op, a, b, c) => self.ternary(op, [a, b, c], dtype),
            Expr::Cast(a) => self.cast(a, dtype),
            Expr::Approx(op, a) => self.approx(op, a),
            Expr::Index(op, a, b) => match self.kernel.exprs.mask_of(op, b) {
                Some(mask) => self.masked(a, mask, dtype),
                // The same number wherever the index arithmetic has a meaning.
                None => self.binary(op.as_binary(), a, b, dtype),
            },
            // Each operation is rounded here.
            Expr::Rounded(a) | Expr::AsData(a) | Expr::AsIndex(a) => {
                let known = self.expr(a);
                (known, self.target(known.1))
            }
        }
    }

    fn unary(&mut self, op: UnaryOp, a: ExprId, dtype: DType) -> (Known, usize) {
        let from = self.kernel.exprs.dtype(a);
        let (held, depth) = self.expr(a);
        let target = self.target(depth);
        if let Held::Const(value) = held {
            return ((Held::Const(stepwise::unary(op, from, value)), depth), target);
        }
        if op == UnaryOp::Real && !from.is_complex() {
            return ((held, depth), target);
        }
        let operand = self.reg(held, from);
        let reg = if let Some(inst) = isel::unary(op, from) {
            let reg = self.result(target, inst, isel::file(dtype), &[operand]);
            if op.is_predicate() { reg } else { self.narrowed(target, reg, dtype) }
        } else if isel::is_float_function(op, from) {
            self.function(target, F64Function::Unary(op, from), operand, isel::file(dtype))
        } else {
            self.call(target, HostCall::Unary(op, from), &[(operand, from)], dtype)
        };
        ((Held::Reg(reg), depth), target)
    }

    fn approx(&mut self, op: ApproxOp, a: ExprId) -> (Known, usize) {
        let (held, depth) = self.expr(a);
        let target = self.target(depth);
        if let Held::Const(value) = held {
            return ((Held::Const(Value::Float(op.eval()(value.as_f64()))), depth), target);
        }
        let operand = self.reg(held, DType::F32);
        ((Held::Reg(self.function(target, F64Function::Approx(op), operand, File::R32)), depth), target)
    }

    /// Calls a function of `f64`, rounded to the type of its operand.
    fn function(&mut self, target: usize, function: F64Function, operand: Reg, file: File) -> Reg {
        let next = self.functions.len() as u32;
        let number = *self.functions.entry(function).or_insert(next);
        let d = self.asm.temp(file);
        let mut draft = self.draft(if file == File::R64 { Opcode::CallF64 } else { Opcode::CallF32 });
        (draft.d, draft.a, draft.imm) = (Field::Reg(d), Field::Reg(operand), number);
        self.push_into(target, draft);
        d
    }

    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId, dtype: DType) -> (Known, usize) {
        let (x, y) = (self.expr(a), self.expr(b));
        self.binary_of(op, self.kernel.exprs.dtype(a), [x, y], dtype)
    }

    /// The last bits of an integer.
    fn masked(&mut self, a: ExprId, mask: i64, dtype: DType) -> (Known, usize) {
        let operands = [self.expr(a), (Held::Const(Value::Int(mask)), 0)];
        self.binary_of(BinaryOp::BitwiseAnd, dtype, operands, dtype)
    }

    fn binary_of(&mut self, op: BinaryOp, from: DType, operands: [Known; 2], dtype: DType) -> (Known, usize) {
        let [(x, x_depth), (y, y_depth)] = operands;
        let depth = x_depth.max(y_depth);
        let target = self.target(depth);
        if let (Held::Const(x), Held::Const(y)) = (x, y) {
            return ((Held::Const(eval::binary(op, from, x, y)), depth), target);
        }
        if let Some(same) = neutral(op, from, x, y) {
            return ((same, depth), target);
        }
        let (x, y) = (self.reg(x, from), self.reg(y, from));
        let reg = match isel::binary(op, from) {
            Some((inst, swapped)) => {
                let operands = if swapped { [y, x] } else { [x, y] };
                let reg = self.result(target, inst, isel::file(dtype), &operands);
                if op.is_predicate() { reg } else { self.narrowed(target, reg, dtype) }
            }
            None => self.call(target, HostCall::Binary(op, from), &[(x, from), (y, from)], dtype),
        };
        ((Held::Reg(reg), depth), target)
    }

    fn ternary(&mut self, op: TernaryOp, operands: [ExprId; 3], dtype: DType) -> (Known, usize) {
        let known = operands.map(|id| self.expr(id));
        let types = operands.map(|id| self.kernel.exprs.dtype(id));
        let depth = known.iter().map(|k| k.1).max().unwrap_or(0);
        let target = self.target(depth);
        if op == TernaryOp::Where
            && let (Held::Const(value), _) = known[0]
        {
            let chosen = if value.as_bool() { known[1].0 } else { known[2].0 };
            return ((chosen, depth), target);
        }
        if let [(Held::Const(a), _), (Held::Const(b), _), (Held::Const(c), _)] = known {
            return ((Held::Const(stepwise::ternary(op, dtype, a, b, c)), depth), target);
        }
        let regs = [0, 1, 2].map(|i| self.reg(known[i].0, types[i]));
        let file = isel::file(dtype);
        let select = isel::select(file);
        let by = |op| isel::binary(op, dtype).map(|(inst, _)| inst);
        let reg = match op {
            TernaryOp::Where => self.result(target, select, file, &regs),
            TernaryOp::Clamp if by(BinaryOp::Maximum).is_some() && by(BinaryOp::Minimum).is_some() => {
                let (max, min) = (by(BinaryOp::Maximum), by(BinaryOp::Minimum));
                let low = self.result(target, max.unwrap_or(Opcode::Mov32), file, &[regs[0], regs[1]]);
                self.result(target, min.unwrap_or(Opcode::Mov32), file, &[low, regs[2]])
            }
            TernaryOp::Threshold if by(BinaryOp::Lt).is_some() => {
                // x > t is t < x.
                let above =
                    self.result(target, by(BinaryOp::Lt).unwrap_or(Opcode::Mov32), File::R32, &[regs[1], regs[0]]);
                self.result(target, select, file, &[above, regs[0], regs[2]])
            }
            _ => {
                let operands = [(regs[0], types[0]), (regs[1], types[1]), (regs[2], types[2])];
                self.call(target, HostCall::Ternary(op, dtype), &operands, dtype)
            }
        };
        ((Held::Reg(reg), depth), target)
    }

    fn cast(&mut self, a: ExprId, dtype: DType) -> (Known, usize) {
        let from = self.kernel.exprs.dtype(a);
        let (held, depth) = self.expr(a);
        let target = self.target(depth);
        if let Held::Const(value) = held {
            return ((Held::Const(eval::cast(from, dtype, value)), depth), target);
        }
        let reg = self.cast_reg(target, held, from, dtype);
        ((Held::Reg(reg), depth), target)
    }

    /// Converts a value in a scope.
    pub(super) fn cast_reg(&mut self, target: usize, held: Held, from: DType, to: DType) -> Reg {
        let operand = self.reg(held, from);
        match isel::cast(from, to) {
            Some(ops) => ops.into_iter().fold(operand, |reg, op| self.result(target, op, op.files().0, &[reg])),
            None => self.call(target, HostCall::Cast(from, to), &[(operand, from)], to),
        }
    }

    fn narrowed(&mut self, target: usize, reg: Reg, dtype: DType) -> Reg {
        match isel::narrow(dtype) {
            Some(op) => self.result(target, op, File::R32, &[reg]),
            None => reg,
        }
    }

    fn call(&mut self, target: usize, call: HostCall, operands: &[(Reg, DType)], dtype: DType) -> Reg {
        let next = self.calls.len() as u32;
        let function = *self.calls.entry(call).or_insert(next);
        let d = self.asm.temp(isel::file(dtype));
        let mut draft = self.draft(Opcode::Host);
        (draft.d, draft.imm) = (Field::Reg(d), function);
        draft.flags = file_flag(isel::file(dtype));
        let fields = [&mut draft.a, &mut draft.b, &mut draft.c];
        // Unused operands repeat the first, so that every field is a register.
        for (i, (field, flags)) in fields.into_iter().zip(Flags::OPERANDS).enumerate() {
            let (reg, from) = operands[if i < operands.len() { i } else { 0 }];
            *field = Field::Reg(reg);
            draft.flags |= Flags::of(isel::file(from), flags);
        }
        self.push_into(target, draft);
        d
    }

    /// A new label.
    pub(super) fn label(&mut self) -> Label {
        self.asm.label()
    }
}

/// The operand that an operation with a neutral or absorbing integer or logical
/// constant equals. Floats are left alone: `x + 0` is not always `x`.
fn neutral(op: BinaryOp, dtype: DType, x: Held, y: Held) -> Option<Held> {
    use BinaryOp::*;
    let int = |held: Held| match held {
        Held::Const(Value::Int(value)) => Some(value),
        Held::Const(Value::Bool(value)) => Some(value.into()),
        _ => None,
    };
    if dtype.is_float() {
        return None;
    }
    let is_bool = dtype == DType::Bool;
    match (op, int(x), int(y)) {
        (LogicalAnd, Some(0), _) | (LogicalAnd, _, Some(0)) => Some(Held::Const(Value::Bool(false))),
        (LogicalAnd, Some(_), _) if is_bool => Some(y),
        (LogicalAnd, _, Some(_)) if is_bool => Some(x),
        (LogicalOr, Some(0), _) if is_bool => Some(y),
        (LogicalOr, _, Some(0)) if is_bool => Some(x),
        (Add, Some(0), _) | (Mul, Some(1), _) if !is_bool => Some(y),
        (Add | Sub, _, Some(0)) | (Mul | Div, _, Some(1)) if !is_bool => Some(x),
        (Mul, Some(0), _) | (Mul, _, Some(0)) if !is_bool => Some(Held::Const(Value::Int(0))),
        _ => None,
    }
}
