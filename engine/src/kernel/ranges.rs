//! Ranges of integer expressions: an interval that holds every value a thread
//! can see, from launch sizes, what parameters are at most, loop bounds and the conditions around a place.
//!
//! Index arithmetic does not overflow; arithmetic on data that may leave its type
//! may have any result. Of `u64` the bits are taken as those of `i64`: what asks for an order says nothing of it.
//! Sizes and strides are not negative. Intervals are exact for expressions that read each variable once.

use super::ir::{Expr, ExprId, IndexOp, Kernel, ParamKind, Special, ValueKind, VarId};
use crate::num::{BinaryOp, DType, TernaryOp, UnaryOp, Value};
use crate::util::SecondaryMap;
use std::collections::BTreeMap;

/// All integers from `lo` to `hi`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The smallest.
    pub(super) lo: i64,
    /// The largest.
    pub(super) hi: i64,
}

impl Range {
    /// One value.
    pub(super) const fn exactly(value: i64) -> Self {
        Self { lo: value, hi: value }
    }
    /// All values of an integer type; all of `i64` for others.
    pub(super) const fn of_type(dtype: DType) -> Self {
        let (lo, hi) = dtype.int_range();
        Self { lo, hi }
    }
    /// The values in both.
    #[must_use]
    pub(super) fn meet(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }
    /// The smallest interval around both.
    #[must_use]
    pub(super) fn join(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }
    /// This range of an exact result if all of it is in `of_type`, and is not cut
    /// off at the ends of 64 bits; otherwise the result may have wrapped.
    fn unless_wrapped(self, of_type: Self) -> Self {
        let exact = self.lo > i64::MIN && self.hi < i64::MAX && self.meet(of_type) == self;
        if exact || self.lo > self.hi { self } else { of_type }
    }
    fn corners(self, other: Self, op: impl Fn(i64, i64) -> i64) -> Self {
        let values = [op(self.lo, other.lo), op(self.lo, other.hi), op(self.hi, other.lo), op(self.hi, other.hi)];
        values.into_iter().map(Self::exactly).reduce(Self::join).unwrap_or(Self::of_type(DType::I64))
    }
}

/// Ranges at one place of a kernel, which moves: facts of variables are set when
/// they are bound, conditions are assumed on entering a branch and dropped on leaving.
pub(super) struct Ranges<'a> {
    kernel: &'a Kernel,
    vars: SecondaryMap<VarId, Option<Range>>,
    assumed: Vec<(ExprId, Range)>,
    memo: BTreeMap<ExprId, Range>,
}

impl<'a> Ranges<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        Self { kernel, vars: SecondaryMap::new(), assumed: Vec::new(), memo: BTreeMap::new() }
    }

    pub(super) fn set_var(&mut self, var: VarId, range: Range) {
        self.vars.set(var, Some(range));
    }

    /// Assumes a condition, or that it does not hold. The result undoes it.
    pub(super) fn assume(&mut self, condition: ExprId, holds: bool) -> usize {
        let mark = self.assumed.len();
        self.push_facts(condition, holds);
        self.memo.clear();
        mark
    }

    pub(super) fn forget(&mut self, mark: usize) {
        self.assumed.truncate(mark);
        self.memo.clear();
    }

    fn push_facts(&mut self, condition: ExprId, holds: bool) {
        use BinaryOp::*;
        match self.kernel.exprs[condition].expr {
            Expr::Unary(UnaryOp::LogicalNot, a) => self.push_facts(a, !holds),
            Expr::Binary(LogicalAnd, a, b) if holds => {
                self.push_facts(a, true);
                self.push_facts(b, true);
            }
            Expr::Binary(LogicalOr, a, b) if !holds => {
                self.push_facts(a, false);
                self.push_facts(b, false);
            }
            Expr::Binary(op @ (Lt | Le | Gt | Ge | Eq | Ne), a, b) if self.is_ordered(a) => {
                let op = match (op, holds) {
                    (op, true) => op,
                    (Lt, false) => Ge,
                    (Le, false) => Gt,
                    (Gt, false) => Le,
                    (Ge, false) => Lt,
                    (Eq, false) => Ne,
                    (_, false) => Eq,
                };
                match op {
                    Lt => self.below(a, b, 1),
                    Le => self.below(a, b, 0),
                    Gt => self.below(b, a, 1),
                    Ge => self.below(b, a, 0),
                    Eq => {
                        self.below(a, b, 0);
                        self.below(b, a, 0);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Whether an expression is an integer whose order is that of its range.
    fn is_ordered(&self, id: ExprId) -> bool {
        let dtype = self.kernel.exprs.dtype(id);
        dtype.is_int() && dtype != DType::U64
    }

    /// `a + gap <= b`.
    fn below(&mut self, a: ExprId, b: ExprId, gap: i64) {
        let (x, y) = (self.of(a), self.of(b));
        let all = Range::of_type(DType::I64);
        self.assumed.push((a, Range { hi: y.hi.saturating_sub(gap), ..all }));
        self.assumed.push((b, Range { lo: x.lo.saturating_add(gap), ..all }));
        self.memo.clear();
    }

    /// The range of an expression here.
    pub(super) fn of(&mut self, id: ExprId) -> Range {
        if let Some(&known) = self.memo.get(&id) {
            return known;
        }
        let mut range = self.compute(id).meet(Range::of_type(self.kernel.exprs.dtype(id)));
        for &(_, fact) in self.assumed.iter().filter(|(expr, _)| *expr == id) {
            range = range.meet(fact);
        }
        self.memo.insert(id, range);
        range
    }

    fn compute(&mut self, id: ExprId) -> Range {
        let node = self.kernel.exprs[id];
        let any = Range::of_type(node.dtype);
        match node.expr {
            Expr::Const(Value::Int(value)) => Range::exactly(value),
            Expr::Param(param) => {
                let param = &self.kernel.params[param];
                let range = match param.kind {
                    ParamKind::Size { .. } | ParamKind::Stride { .. } => Range { lo: 0, ..any },
                    ParamKind::Derived(value) => self.of(value),
                    _ => any,
                };
                range.meet(Range { hi: param.at_most.unwrap_or(any.hi), ..any })
            }
            Expr::Special(special) => self.special(special),
            Expr::Var(var) => self.vars[var].unwrap_or(any),
            Expr::Index(op, a, b) => {
                let (x, y) = (self.of(a), self.of(b));
                let masked = self.kernel.exprs.mask_of(op, b).map(|mask| Range { lo: 0, hi: mask });
                index(op, x, y).or(masked).unwrap_or(any)
            }
            Expr::AsData(a) | Expr::AsIndex(a) => self.of(a),
            Expr::Unary(UnaryOp::Neg, a) if node.dtype.is_int() => {
                let x = self.of(a);
                Range { lo: x.hi.saturating_neg(), hi: x.lo.saturating_neg() }.unless_wrapped(any)
            }
            Expr::Cast(a) if self.kernel.exprs.dtype(a).is_int() => match self.kernel.exprs.kind(a) {
                ValueKind::Data => self.of(a).unless_wrapped(any),
                ValueKind::Index | ValueKind::Constant => self.of(a),
            },
            Expr::Binary(BinaryOp::Minimum | BinaryOp::Maximum, ..) if !self.is_ordered(id) => any,
            Expr::Binary(op, a, b) if node.dtype.is_int() => {
                let (x, y) = (self.of(a), self.of(b));
                binary(op, x, y).map_or(any, |range| range.unless_wrapped(any))
            }
            Expr::Ternary(TernaryOp::Where, _, a, b) => self.of(a).join(self.of(b)),
            _ => any,
        }
    }

    fn special(&mut self, special: Special) -> Range {
        let launch = &self.kernel.launch;
        let threads = Range { lo: 1, hi: 1024 };
        let blocks = Range { lo: 1, hi: i32::MAX.into() };
        let extent = match special {
            Special::ThreadIdx(dim) | Special::BlockDim(dim) => self.of(launch.block[dim as usize]).meet(threads),
            Special::BlockIdx(dim) | Special::GridDim(dim) => self.of(launch.grid[dim as usize]).meet(blocks),
        };
        match special {
            Special::ThreadIdx(_) | Special::BlockIdx(_) => Range { lo: 0, hi: extent.hi - 1 },
            Special::BlockDim(_) | Special::GridDim(_) => extent,
        }
    }
}

/// The exact result of arithmetic on data, if it is as on indices or known.
fn binary(op: BinaryOp, x: Range, y: Range) -> Option<Range> {
    use BinaryOp::*;
    if let Some(op) = IndexOp::from_binary(op) {
        return index(op, x, y);
    }
    Some(match op {
        BitwiseAnd if x.lo >= 0 && y.lo >= 0 => Range { lo: 0, hi: x.hi.min(y.hi) },
        ShiftRight if x.lo >= 0 && y.lo == y.hi && (0..63).contains(&y.lo) => {
            Range { lo: x.lo >> y.lo, hi: x.hi >> y.lo }
        }
        _ => return None,
    })
}

fn index(op: IndexOp, x: Range, y: Range) -> Option<Range> {
    use IndexOp::*;
    // Conditions that contradict each other leave no value: nobody comes here.
    if let Some(empty) = [x, y].into_iter().find(|range| range.lo > range.hi) {
        return Some(empty);
    }
    let natural = x.lo >= 0 && y.lo > 0;
    Some(match op {
        Add => Range { lo: x.lo.saturating_add(y.lo), hi: x.hi.saturating_add(y.hi) },
        Sub => Range { lo: x.lo.saturating_sub(y.hi), hi: x.hi.saturating_sub(y.lo) },
        Mul => x.corners(y, i64::saturating_mul),
        Div if natural => Range { lo: x.lo / y.hi, hi: x.hi / y.lo },
        CeilDiv if natural => {
            let up = |a: i64, b: i64| a / b + i64::from(a % b > 0);
            Range { lo: up(x.lo, y.hi), hi: up(x.hi, y.lo) }
        }
        // x mod y is x where x is always below y.
        Mod if natural && x.hi < y.lo => x,
        Mod if natural => Range { lo: 0, hi: x.hi.min(y.hi - 1) },
        Min => Range { lo: x.lo.min(y.lo), hi: x.hi.min(y.hi) },
        Max => Range { lo: x.lo.max(y.lo), hi: x.hi.max(y.hi) },
        // No bit above the highest of either.
        Xor if x.lo >= 0 && y.lo >= 0 => {
            let bits = (x.hi | y.hi).checked_ilog2().map_or(0, |highest| highest + 1);
            Range { lo: 0, hi: 1i64.checked_shl(bits).map_or(i64::MAX, |end| end.wrapping_sub(1)) }
        }
        Div | CeilDiv | Mod | Xor => return None,
    })
}
