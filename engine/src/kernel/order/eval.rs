//! Values of expressions in all threads of a block at once.

use super::floats::Floats;
use super::slice::Slice;
use super::word::{Val, Word, mix};
use crate::diag::{Diagnostic, Result};
use crate::kernel::bind::{BoundLaunch, BoundParam};
use crate::kernel::ir::{Dim, Expr, ExprId, IndexOp, Kernel, ParamId, Special, VarId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value, eval};
use crate::util::{EntityId, PrimaryMap, SecondaryMap};
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// A counter that blocks count themselves with: buffer and element, as one number.
pub(super) type Counter = u64;

/// Evaluates; variables are set by who runs the statements.
pub(super) struct Eval<'a> {
    kernel: &'a Kernel,
    slice: &'a Slice,
    launch: &'a BoundLaunch,
    threads: usize,
    block: [u32; 3],
    params: PrimaryMap<ParamId, Word>,
    /// Values of variables, with the time at which they were set.
    vars: SecondaryMap<VarId, Option<(Val, u64)>>,
    /// Values of expressions, with the time of the evaluation.
    memo: SecondaryMap<ExprId, Option<(Val, u64)>>,
    /// What each expression does with its operands.
    codes: PrimaryMap<ExprId, u64>,
    /// Whether an expression has another value in another block, or after a variable was set.
    changes: PrimaryMap<ExprId, bool>,
    floats: Floats,
    clock: u64,
    /// Words computed so far.
    pub(super) work: u64,
    /// Terms that are what an atomic count returned. Looked up only.
    pub(super) tickets: FxHashMap<u64, Counter>,
    /// Terms that say whether a ticket is this number. Looked up only.
    pub(super) is_ticket: FxHashMap<u64, (Counter, i64)>,
}

impl<'a> Eval<'a> {
    pub(super) fn new(kernel: &'a Kernel, slice: &'a Slice, launch: &'a BoundLaunch) -> Result<Self> {
        let mut params = PrimaryMap::new();
        if launch.params.len() != kernel.params.len() {
            return Err(Diagnostic::bug(format!("kernel {} is launched with other parameters", kernel.name)));
        }
        let mut floats = Floats::default();
        for (i, param) in launch.params.iter().enumerate() {
            params.push(match param {
                BoundParam::Scalar { value: Value::Int(number), .. } => Word::Int(*number),
                BoundParam::Scalar { value: Value::Bool(truth), .. } => Word::Int((*truth).into()),
                BoundParam::Scalar { value: Value::Float(number), dtype } => {
                    floats.constant(*dtype, *number, mix(&[2, i as u64]))
                }
                _ => Word::Term(mix(&[2, i as u64])),
            });
        }
        let (mut codes, mut changes) = (PrimaryMap::new(), PrimaryMap::<ExprId, bool>::new());
        for (_, node) in kernel.exprs.iter() {
            let zero = ExprId::from_index(0);
            changes.push(match node.expr {
                Expr::Var(_) | Expr::Special(Special::BlockIdx(_)) => true,
                other => other.operands().any(|operand| changes[operand]),
            });
            let mut hasher = FxHasher::default();
            (node.expr.map_operands(|_| zero), node.dtype).hash(&mut hasher);
            codes.push(hasher.finish());
        }
        Ok(Self {
            kernel,
            slice,
            launch,
            threads: launch.threads() as usize,
            block: [0; 3],
            params,
            vars: SecondaryMap::new(),
            memo: SecondaryMap::new(),
            codes,
            changes,
            floats,
            clock: 0,
            work: 0,
            tickets: FxHashMap::default(),
            is_ticket: FxHashMap::default(),
        })
    }

    /// Begins a block: nothing is known but its place, and what is the same in all blocks.
    pub(super) fn begin(&mut self, block: [u32; 3]) {
        self.block = block;
        self.vars = SecondaryMap::new();
        for (id, changes) in self.changes.iter() {
            if *changes && self.memo[id].is_some() {
                self.memo.set(id, None);
            }
        }
        self.clock = 0;
    }

    pub(super) fn set(&mut self, var: VarId, value: Val) {
        self.clock += 1;
        self.vars.set(var, Some((value, self.clock)));
    }

    pub(super) fn of(&mut self, id: ExprId) -> Val {
        let fresh =
            |time: u64| self.slice.inputs[id].iter().all(|v| self.vars[*v].as_ref().is_none_or(|v| v.1 <= time));
        if let Some((value, time)) = &self.memo[id]
            && fresh(*time)
        {
            return value.clone();
        }
        let value = self.compute(id);
        if !matches!(value, Val::One(_)) {
            self.work += self.threads as u64;
        }
        self.work += 1;
        self.memo.set(id, Some((value.clone(), self.clock)));
        value
    }

    fn compute(&mut self, id: ExprId) -> Val {
        let node = self.kernel.exprs[id];
        let (code, threads, dtype) = (self.codes[id], self.threads, node.dtype);
        match node.expr {
            Expr::Const(Value::Int(number)) => Val::int(number),
            Expr::Const(Value::Bool(truth)) => Val::int(truth.into()),
            Expr::Const(Value::Float(number)) => Val::One(self.floats.constant(dtype, number, code)),
            Expr::Const(value) => Val::One(Word::Term(mix(&[3, value.as_f64().to_bits(), code]))),
            Expr::Param(param) => Val::One(self.params[param]),
            Expr::Special(special) => self.special(special),
            Expr::Var(var) => match &self.vars[var] {
                Some((value, _)) => value.clone(),
                None => Val::One(Word::Term(mix(&[4, code]))),
            },
            Expr::Rounded(a) | Expr::AsData(a) | Expr::AsIndex(a) => self.of(a),
            Expr::Cast(a) => {
                let from = self.kernel.exprs.dtype(a);
                let value = self.of(a);
                if dtype.is_float() {
                    return value.map(threads, |word| self.floats.cast((from, dtype), code, word));
                }
                value.map(threads, |word| match word {
                    Word::Int(number) => converted(from, dtype, number).map_or(Word::term(code, &[word]), Word::Int),
                    _ => Word::term(code, &[word]),
                })
            }
            Expr::Unary(op, a) => {
                let (from, value) = (self.kernel.exprs.dtype(a), self.of(a));
                if from.is_float() && dtype.is_float() {
                    return value.map(threads, |word| self.floats.unary(op, dtype, code, word));
                }
                value.map(threads, |word| {
                    let known = word.int().and_then(|number| unary(op, from, number));
                    known.map_or_else(|| Word::term(code, &[word]), Word::Int)
                })
            }
            Expr::Approx(_, a) => self.of(a).map(threads, |word| Word::term(code, &[word])),
            Expr::Index(op, a, b) => {
                let mask = self.kernel.exprs.mask_of(op, b);
                let (a, b) = (self.of(a), self.of(b));
                let term = |x, y| match (x, y) {
                    (Word::Int(_), Word::Int(_)) => Word::Any,
                    _ => Word::term(code, &[x, y]),
                };
                match mask {
                    Some(mask) => a.zip(&b, threads, |x, _| Some(x & mask), term),
                    None => index(op, dtype, &a, &b, threads, term),
                }
            }
            Expr::Binary(op, a, b) => self.binary(op, a, b, code),
            Expr::Ternary(TernaryOp::Where, condition, a, b) => {
                let condition = self.of(condition);
                match condition.as_one() {
                    Some(0) => self.of(b),
                    Some(_) => self.of(a),
                    None => {
                        let (a, b) = (self.of(a), self.of(b));
                        Val::from_fn(threads, |t| chosen(code, condition.at(t), a.at(t), b.at(t)))
                    }
                }
            }
            Expr::Ternary(_, a, b, c) => {
                let [a, b, c] = [a, b, c].map(|id| self.of(id));
                match (&a, &b, &c) {
                    (Val::One(a), Val::One(b), Val::One(c)) => Val::One(Word::term(code, &[*a, *b, *c])),
                    _ => Val::from_fn(threads, |t| Word::term(code, &[a.at(t), b.at(t), c.at(t)])),
                }
            }
        }
    }

    fn special(&self, special: Special) -> Val {
        let [x, y, z] = self.launch.block.map(|n| n as usize);
        let place = |dim: Dim, t: usize| match dim {
            Dim::X => t % x,
            Dim::Y => t / x % y,
            Dim::Z => t / (x * y) % z,
        };
        match special {
            Special::ThreadIdx(dim) if self.launch.block[dim as usize] == 1 => Val::int(0),
            Special::ThreadIdx(dim) => Val::Ints((0..self.threads).map(|t| place(dim, t) as i64).collect()),
            Special::BlockIdx(dim) => Val::int(self.block[dim as usize].into()),
            Special::BlockDim(dim) => Val::int(self.launch.block[dim as usize].into()),
            Special::GridDim(dim) => Val::int(self.launch.grid[dim as usize].into()),
        }
    }

    fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId, code: u64) -> Val {
        let dtype = self.kernel.exprs.dtype(a);
        let (x, y) = (self.of(a), self.of(b));
        let threads = self.threads;
        // What decides a conjunction or disjunction by itself, and what leaves it to the other.
        let truth = match op {
            BinaryOp::LogicalAnd => Some((0, 1)),
            BinaryOp::LogicalOr => Some((1, 0)),
            _ => None,
        };
        if let Some((decides, leaves)) = truth {
            return x.zip(
                &y,
                threads,
                |x, y| Some(i64::from(if decides == 0 { x & y != 0 } else { x | y != 0 })),
                |x, y| match (x.int(), y.int()) {
                    (Some(n), _) | (_, Some(n)) if n == decides => Word::Int(decides),
                    (Some(n), _) if n == leaves => y,
                    (_, Some(n)) if n == leaves => x,
                    _ => Word::term(code, &[x, y]),
                },
            );
        }
        if dtype.is_float() && !op.is_predicate() {
            return match (&x, &y) {
                (Val::One(x), Val::One(y)) => Val::One(self.floats.binary(op, dtype, code, *x, *y)),
                _ => Val::from_fn(threads, |t| self.floats.binary(op, dtype, code, x.at(t), y.at(t))),
            };
        }
        let term = |x: Word, y: Word| Word::term(code, &[x, y]);
        let value = match (op, dtype) {
            (BinaryOp::Lt, DType::I32 | DType::I64) => x.zip(&y, threads, |x, y| Some((x < y).into()), term),
            (BinaryOp::Le, DType::I32 | DType::I64) => x.zip(&y, threads, |x, y| Some((x <= y).into()), term),
            (BinaryOp::Eq, DType::I32 | DType::I64) => x.zip(&y, threads, |x, y| Some((x == y).into()), term),
            _ => x.zip(&y, threads, |x, y| binary(op, dtype, x, y), term),
        };
        if op == BinaryOp::Eq && !self.tickets.is_empty() {
            for t in 0..threads {
                if let (Word::Term(ticket), Word::Int(number), Word::Term(result)) = (x.at(t), y.at(t), value.at(t))
                    && let Some(counter) = self.tickets.get(&ticket)
                {
                    self.is_ticket.insert(result, (*counter, number));
                }
            }
        }
        value
    }
}

/// The one of two words that a condition selects.
fn chosen(code: u64, condition: Word, a: Word, b: Word) -> Word {
    match condition {
        Word::Int(0) => b,
        Word::Int(_) => a,
        _ if a == b => a,
        _ => Word::term(code, &[condition, a, b]),
    }
}

/// A word in memory of which a condition says whether it was replaced.
pub(super) fn replaced(condition: Word, new: Word, old: Word) -> Word {
    chosen(5, condition, new, old)
}

/// The number, if numbers of indices reach so far: 32 bits of `i32`, 64 of all others.
#[inline(always)]
fn fits(is_short: bool, number: i64) -> Option<i64> {
    if is_short && number != i64::from(number as i32) { None } else { Some(number) }
}

/// Index arithmetic; `term` says what it is where it has no meaning, or an operand is no integer.
fn index(op: IndexOp, dtype: DType, a: &Val, b: &Val, threads: usize, term: impl Fn(Word, Word) -> Word) -> Val {
    let natural = |x: i64, y: i64| x >= 0 && y > 0;
    let is_short = dtype == DType::I32;
    match op {
        IndexOp::Add => a.zip(b, threads, |x, y| fits(is_short, x.checked_add(y)?), term),
        IndexOp::Sub => a.zip(b, threads, |x, y| fits(is_short, x.checked_sub(y)?), term),
        IndexOp::Mul => a.zip(b, threads, |x, y| fits(is_short, x.checked_mul(y)?), term),
        IndexOp::Div => a.zip(b, threads, |x, y| natural(x, y).then(|| x / y), term),
        IndexOp::Mod => a.zip(b, threads, |x, y| natural(x, y).then(|| x % y), term),
        IndexOp::CeilDiv => a.zip(b, threads, |x, y| natural(x, y).then(|| x / y + i64::from(x % y > 0)), term),
        IndexOp::Min => a.zip(b, threads, |x, y| Some(x.min(y)), term),
        IndexOp::Max => a.zip(b, threads, |x, y| Some(x.max(y)), term),
        IndexOp::Xor => a.zip(b, threads, |x, y| (x >= 0 && y >= 0).then_some(x ^ y), term),
    }
}

fn value(dtype: DType, number: i64) -> Option<Value> {
    match dtype {
        DType::Bool => Some(Value::Bool(number != 0)),
        _ if dtype.is_int() => Some(Value::Int(number)),
        _ => None,
    }
}

fn integer(value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Bool(truth) => Some(truth.into()),
        _ => None,
    }
}

fn unary(op: UnaryOp, dtype: DType, number: i64) -> Option<i64> {
    integer(eval::unary(op, dtype, value(dtype, number)?))
}

fn binary(op: BinaryOp, dtype: DType, x: i64, y: i64) -> Option<i64> {
    integer(eval::binary(op, dtype, value(dtype, x)?, value(dtype, y)?))
}

fn converted(from: DType, to: DType, number: i64) -> Option<i64> {
    if (from, to) == (DType::I32, DType::I64) {
        return Some(number);
    }
    integer(eval::cast(from, to, value(from, number)?))
}
