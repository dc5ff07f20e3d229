//! The flow of values and their errors through a kernel.
//!
//! Variables have one fact each, and so have buffers: that of every element at
//! any time. Statements are walked until nothing changes; what still grows after
//! some walks is taken for unknown. A condition, an index or an integer that
//! depends on a value with an error has an unknown error, and a branch on it none
//! that is small enough.

use super::Choice;
use super::fact::Fact;
use super::reads::first_reads;
use crate::kernel::ir::{Access, Block, BufId, Expr, ExprId, Kernel, ParamId, ParamKind, Space, Stmt, StmtKind, VarId};
use crate::num::{DType, Value};
use crate::util::SecondaryMap;

/// Walks before what still grows is given up, and after which all is.
const PATIENCE: u32 = 4;
const MOST_WALKS: u32 = 40;

/// The analysis of one kernel, for several choices.
pub(super) struct Flow<'a> {
    kernel: &'a Kernel,
    /// Buffers whose contents are results, or belong to the caller.
    outputs: SecondaryMap<BufId, bool>,
    inputs: SecondaryMap<BufId, bool>,
    /// The first of several variables that one element was read into.
    same: SecondaryMap<VarId, Option<VarId>>,
}

/// One walk's state.
struct ErrorWalk<'a> {
    flow: &'a Flow<'a>,
    choice: &'a Choice,
    vars: SecondaryMap<VarId, Option<Fact>>,
    /// What was written so far; none in a buffer that nothing was written to.
    buffers: SecondaryMap<BufId, Option<Fact>>,
    memo: SecondaryMap<ExprId, Option<Option<Fact>>>,
    walks: u32,
    changed: bool,
    good: bool,
}

impl<'a> Flow<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        let (mut outputs, mut inputs) = (SecondaryMap::new(), SecondaryMap::new());
        for param in kernel.params.values() {
            match param.kind {
                ParamKind::Output { buffer, .. } => outputs.set(buffer, true),
                ParamKind::Input { buffer, .. } => {
                    inputs.set(buffer, true);
                    outputs.set(buffer, true);
                }
                _ => {}
            }
        }
        let same = first_reads(kernel, &|buffer| inputs[buffer]);
        Self { kernel, outputs, inputs, same }
    }

    /// Whether two expressions are one value.
    fn is_same(&self, a: ExprId, b: ExprId) -> bool {
        let first = |id: ExprId| match self.kernel.exprs[id].expr {
            Expr::Var(var) => Some(self.same[var].unwrap_or(var)),
            _ => None,
        };
        a == b || first(a).is_some() && first(a) == first(b)
    }

    /// Whether all results stay within what their types need under a choice.
    pub(super) fn is_good_enough(&self, choice: &Choice) -> bool {
        let mut walk = ErrorWalk::new(self, choice);
        walk.settle(|walk| walk.good) && walk.good
    }

    /// What is known of each expression; none of one that nothing uses or that reads what
    /// nothing writes, or where the walks do not come to an end.
    pub(super) fn facts(&self) -> SecondaryMap<ExprId, Option<Fact>> {
        let choice = Choice::default();
        let mut walk = ErrorWalk::new(self, &choice);
        let mut facts = SecondaryMap::new();
        if walk.settle(|_| true) {
            self.kernel.exprs.iter().for_each(|(id, _)| facts.set(id, walk.memo[id].flatten()));
        }
        facts
    }
}

impl<'a> ErrorWalk<'a> {
    fn new(flow: &'a Flow<'a>, choice: &'a Choice) -> Self {
        let mut buffers = SecondaryMap::new();
        for (id, buffer) in flow.kernel.buffers.iter().filter(|(_, buffer)| buffer.zeroed) {
            let zero = if buffer.dtype.is_float() { Fact::between(0.0, 0.0) } else { Fact::EXACT };
            buffers.set(id, Some(zero));
        }
        let (vars, memo) = (SecondaryMap::new(), SecondaryMap::new());
        Self { flow, choice, vars, buffers, memo, walks: 0, changed: true, good: true }
    }

    /// Walks until nothing changes, as long as it is worth it; whether it came so far.
    fn settle(&mut self, is_worth: impl Fn(&Self) -> bool) -> bool {
        while self.changed && is_worth(self) && self.walks < MOST_WALKS {
            self.changed = false;
            self.walks += 1;
            self.memo = SecondaryMap::new();
            self.block(&self.flow.kernel.body);
        }
        !self.changed
    }

    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { var, value } => {
                let fact = self.expr(*value);
                self.vars.set(*var, fact);
            }
            StmtKind::Load { var, from, .. } => {
                self.decides(from.index);
                let fact = self.load(*var, from);
                self.vars.set(*var, fact);
            }
            StmtKind::Store { to, value, .. } => {
                self.decides(to.index);
                let fact = self.expr(*value);
                self.write(to.buffer, fact);
            }
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
                self.decides(to.index);
                self.decides(from.index);
                let fact = self.read(from.buffer);
                self.write(to.buffer, fact);
            }
            StmtKind::For { var, start, end, body, .. } => {
                self.decides(*start);
                self.decides(*end);
                // Any count: what is made of it is known, and not a value that is still to come.
                self.vars.set(*var, Some(Fact::EXACT));
                self.block(body);
            }
            StmtKind::If { condition, then, otherwise } => {
                self.decides(*condition);
                self.block(then);
                self.block(otherwise);
            }
            StmtKind::Shuffle { var, value, lane, .. } => {
                self.decides(*lane);
                let fact = self.expr(*value);
                self.vars.set(*var, fact);
            }
            StmtKind::Random { vars, seed, offset, subsequence } => {
                [*seed, *offset, *subsequence].into_iter().for_each(|operand| self.decides(operand));
                vars.iter().for_each(|var| self.vars.set(*var, Some(Fact::between(0.0, 1.0))));
            }
            StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
            StmtKind::Atomic { var, to, value, .. } => {
                self.decides(to.index);
                // In any order and number.
                let combined = |fact: Fact| if fact.is_exact() { Fact::EXACT } else { Fact::LOST };
                let fact = self.expr(*value).map(combined);
                self.write(to.buffer, fact);
                let old = self.read(to.buffer).map(combined);
                if let Some(var) = var {
                    self.vars.set(*var, old);
                }
            }
        }
    }

    /// What takes part in deciding what a thread does must have no error.
    fn decides(&mut self, id: ExprId) {
        self.good &= self.expr(id).is_none_or(Fact::is_exact);
    }

    fn read(&self, buffer: BufId) -> Option<Fact> {
        if self.flow.inputs[buffer] { Some(Fact::EXACT) } else { self.buffers[buffer] }
    }

    fn load(&self, var: VarId, from: &Access) -> Option<Fact> {
        let fact = self.read(from.buffer)?;
        match self.flow.kernel.vars[var].at_least {
            Some(Value::Float(least)) => Some(Fact { lo: fact.lo.max(least), ..fact }.absorbed()),
            _ => Some(fact),
        }
    }

    fn write(&mut self, buffer: BufId, fact: Option<Fact>) {
        let Some(fact) = fact else { return };
        let data = &self.flow.kernel.buffers[buffer];
        if data.space == Space::Global && self.flow.outputs[buffer] {
            self.good &= fact.is_good_enough(data.dtype);
        }
        let old = self.buffers[buffer];
        let new = old.map_or(fact, |old| {
            let joined = old.join(fact);
            if self.walks > PATIENCE { joined.widen(old) } else { joined }
        });
        if old != Some(new) {
            self.changed = true;
            self.buffers.set(buffer, Some(new));
        }
    }

    /// The fact of an expression; none while something that it reads has no
    /// value yet. With a stack of its own, since formulas may be long.
    fn expr(&mut self, root: ExprId) -> Option<Fact> {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if self.memo[id].is_some() {
                stack.pop();
                continue;
            }
            let waiting = stack.len();
            let node = self.flow.kernel.exprs[id];
            stack.extend(node.expr.operands().filter(|operand| self.memo[*operand].is_none()));
            if stack.len() == waiting {
                stack.pop();
                let fact = self.apply(id, node.expr, node.dtype);
                self.memo.set(id, Some(fact));
            }
        }
        self.memo[root].flatten()
    }

    /// What is known of a parameter: sizes, as numbers of whatever type, are not negative.
    fn param(&self, id: ParamId) -> Fact {
        match self.flow.kernel.params[id].kind {
            ParamKind::Size { .. } => Fact::between(0.0, f64::INFINITY),
            ParamKind::Derived(mut value) => {
                while let Expr::Cast(a) | Expr::AsData(a) = self.flow.kernel.exprs[value].expr {
                    value = a;
                }
                match self.flow.kernel.exprs[value].expr {
                    Expr::Param(param) => self.param(param),
                    _ => Fact::EXACT,
                }
            }
            _ => Fact::EXACT,
        }
    }

    fn apply(&self, id: ExprId, expr: Expr, dtype: DType) -> Option<Fact> {
        let fact = |id: ExprId| self.memo[id].flatten();
        let exprs = &self.flow.kernel.exprs;
        if let (Expr::Unary(_, a) | Expr::Approx(_, a), Some(op)) = (expr, self.choice.functions[id]) {
            return Some(Fact::approximation(op, fact(a)?));
        }
        let on_floats = dtype.is_float() && expr.operands().last().is_none_or(|a| exprs.dtype(a).is_float());
        Some(match expr {
            // Those of 16 bits are rounded when they are printed.
            Expr::Const(value) => Fact::constant(value).cast(dtype),
            Expr::Param(param) => self.param(param),
            Expr::Special(_) => Fact::EXACT,
            Expr::Var(var) => self.vars[var]?,
            Expr::Approx(op, a) => Fact::approximation(op, fact(a)?),
            Expr::Unary(op, a) if on_floats => Fact::unary(op, fact(a)?).rounded(dtype),
            Expr::Binary(_, a, b) if self.choice.quotients[id] => Fact::product_with_reciprocal(fact(a)?, fact(b)?),
            Expr::Binary(op, a, b) if on_floats => {
                Fact::binary(op, fact(a)?, fact(b)?, self.flow.is_same(a, b)).rounded(dtype)
            }
            Expr::Ternary(op, a, b, c) if on_floats => Fact::ternary(op, fact(a)?, fact(b)?, fact(c)?),
            Expr::Rounded(a) if on_floats => fact(a)?,
            Expr::Cast(a) if on_floats => fact(a)?.cast(dtype).rounded(dtype),
            // Integers and conditions: exact if all that they are made of is.
            _ => {
                let mut exact = true;
                for operand in expr.operands() {
                    exact &= fact(operand)?.is_exact();
                }
                if exact { Fact::EXACT } else { Fact::LOST }
            }
        })
    }
}
