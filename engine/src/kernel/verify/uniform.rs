//! Over which threads a value is the same, and a place in the control flow is
//! reached by all or by none.
//!
//! A class bounds the difference from below: [`Class::Warp`] says "equal among
//! the threads of each warp". An expression has the class of its worst operand,
//! with these exceptions: with rows of whole warps, `threadIdx.y` and
//! `threadIdx.z` are warp-uniform; and a *linear* value, which within each warp
//! runs through 32 consecutive numbers from a multiple of 32, becomes
//! warp-uniform when divided by or compared with a multiple of 32.

use crate::kernel::facts::Multiples;
use crate::kernel::ir::{Dim, Expr, ExprId, IndexOp, Kernel, Special, VarId};
use crate::num::BinaryOp;
use crate::util::SecondaryMap;

/// The largest set of threads that agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// All threads of the launch.
    Grid,
    /// The threads of each block.
    Block,
    /// The threads of each warp.
    Warp,
    /// Each thread for itself.
    #[default]
    Thread,
}

/// Class and linearity of a value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fact {
    pub(super) class: Class,
    /// Within each warp, lane `l` has the value `32 k + l` with one `k` for the warp.
    pub(super) linear: bool,
}

/// Classes of expressions.
pub(super) struct Uniformity<'a> {
    kernel: &'a Kernel,
    vars: SecondaryMap<VarId, Fact>,
    memo: SecondaryMap<ExprId, Option<Fact>>,
}

impl<'a> Uniformity<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        Self { kernel, vars: SecondaryMap::new(), memo: SecondaryMap::new() }
    }

    pub(super) fn set_var(&mut self, var: VarId, fact: Fact) {
        self.vars.set(var, fact);
    }

    pub(super) fn class(&mut self, id: ExprId, multiples: &mut Multiples<'_>) -> Class {
        self.fact(id, multiples).class
    }

    pub(super) fn fact(&mut self, id: ExprId, multiples: &mut Multiples<'_>) -> Fact {
        if let Some(fact) = self.memo[id] {
            return fact;
        }
        let fact = match self.kernel.exprs[id].expr {
            Expr::Const(_) | Expr::Param(_) => Fact { class: Class::Grid, linear: false },
            Expr::Var(var) => self.vars[var],
            Expr::Special(special) => self.special(special, multiples),
            Expr::Cast(a) if self.kernel.exprs.dtype(id).is_int() => self.fact(a, multiples),
            Expr::AsData(a) | Expr::AsIndex(a) => self.fact(a, multiples),
            Expr::Index(op, a, b) => self.index(op, a, b, multiples),
            Expr::Binary(op, a, b) => self.comparison(op, a, b, multiples),
            other => {
                let class = other.operands().map(|e| self.class(e, multiples)).max().unwrap_or(Class::Grid);
                Fact { class, linear: false }
            }
        };
        self.memo.set(id, Some(fact));
        fact
    }

    /// Whether the threads of a row of a block fill whole warps.
    fn rows_are_whole_warps(&self, multiples: &mut Multiples<'_>) -> bool {
        multiples.is_multiple(self.kernel.launch.block[0], 32)
    }

    fn extent(&self, special: [ExprId; 3], dim: Dim) -> Option<i64> {
        self.kernel.exprs.as_int(special[dim as usize])
    }

    fn special(&self, special: Special, multiples: &mut Multiples<'_>) -> Fact {
        let launch = &self.kernel.launch;
        let class = match special {
            Special::BlockDim(_) | Special::GridDim(_) => Class::Grid,
            Special::BlockIdx(dim) if self.extent(launch.grid, dim) == Some(1) => Class::Grid,
            Special::BlockIdx(_) => Class::Block,
            Special::ThreadIdx(dim) if self.extent(launch.block, dim) == Some(1) => Class::Grid,
            Special::ThreadIdx(Dim::X) => Class::Thread,
            Special::ThreadIdx(Dim::Y) if self.rows_are_whole_warps(multiples) => Class::Warp,
            Special::ThreadIdx(Dim::Z) => {
                let plane = multiples.of(launch.block[0]).checked_mul(multiples.of(launch.block[1]));
                if plane.is_some_and(|threads| threads % 32 == 0) { Class::Warp } else { Class::Thread }
            }
            Special::ThreadIdx(Dim::Y) => Class::Thread,
        };
        // Linear threads of a block: x + X (y + Y z). In rows of whole warps, or
        // with a single row, the lane is x mod 32 and x / 32 is one for the warp.
        let one_row = [Dim::Y, Dim::Z].into_iter().all(|dim| self.extent(launch.block, dim) == Some(1));
        let linear = special == Special::ThreadIdx(Dim::X)
            && class == Class::Thread
            && (one_row || self.rows_are_whole_warps(multiples));
        Fact { class, linear }
    }

    /// Class of two operands, and which of them is linear beside a multiple of 32
    /// that is one for the warp.
    fn pair(&mut self, a: ExprId, b: ExprId, multiples: &mut Multiples<'_>) -> (Class, bool, bool) {
        let (x, y) = (self.fact(a, multiples), self.fact(b, multiples));
        let mut aligned = |fact: Fact, id| fact.class <= Class::Warp && multiples.is_multiple(id, 32);
        (x.class.max(y.class), x.linear && aligned(y, b), y.linear && aligned(x, a))
    }

    fn index(&mut self, op: IndexOp, a: ExprId, b: ExprId, multiples: &mut Multiples<'_>) -> Fact {
        let (class, a_linear, b_linear) = self.pair(a, b, multiples);
        let positive = self.kernel.exprs.as_int(b).is_some_and(|c| c > 0);
        match op {
            IndexOp::Add => Fact { class, linear: a_linear || b_linear },
            // 32 k + l - 32 m = 32 (k - m) + l.
            IndexOp::Sub => Fact { class, linear: a_linear },
            // (32 k + l) mod 32 m = 32 (k mod m) + l, for k >= 0.
            IndexOp::Mod if positive => Fact { class, linear: a_linear },
            // (32 k + l) / 32 m = k / m, since l < 32.
            IndexOp::Div if positive && a_linear => Fact { class: Class::Warp, linear: false },
            _ => Fact { class, linear: false },
        }
    }

    fn comparison(&mut self, op: BinaryOp, a: ExprId, b: ExprId, multiples: &mut Multiples<'_>) -> Fact {
        let (class, a_linear, b_linear) = self.pair(a, b, multiples);
        let uniform = match op {
            // 32 k + l < 32 m exactly if k < m.
            BinaryOp::Lt | BinaryOp::Ge => a_linear,
            BinaryOp::Gt | BinaryOp::Le => b_linear,
            _ => false,
        };
        Fact { class: if uniform { Class::Warp } else { class }, linear: false }
    }
}
