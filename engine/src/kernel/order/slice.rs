//! Which expressions have to be evaluated: those that decide where threads go and which elements they reach,
//! and, where results are asked for, what is stored.

use crate::kernel::ir::{Access, Block, BufId, Expr, ExprId, Kernel, Space, Stmt, StmtKind, VarId};
use crate::kernel::visit::for_each_stmt;
use crate::util::SecondaryMap;

/// What has to be known.
pub(super) struct Slice {
    pub(super) exprs: SecondaryMap<ExprId, bool>,
    pub(super) vars: SecondaryMap<VarId, bool>,
    /// Buffers whose contents have to be known.
    pub(super) buffers: SecondaryMap<BufId, bool>,
    /// Buffers that some statement writes.
    pub(super) written: SecondaryMap<BufId, bool>,
    /// The variables of each expression that is evaluated.
    pub(super) inputs: SecondaryMap<ExprId, Vec<VarId>>,
}

impl Slice {
    /// Of a kernel; of everything that reaches global memory if `results`, and of `more`.
    pub(super) fn new(kernel: &Kernel, results: bool, more: &[ExprId]) -> Self {
        let mut slice = Self {
            exprs: SecondaryMap::new(),
            vars: SecondaryMap::new(),
            buffers: SecondaryMap::new(),
            written: SecondaryMap::new(),
            inputs: SecondaryMap::new(),
        };
        for id in more {
            slice.expr(kernel, *id);
        }
        for_each_stmt(&kernel.body, &mut |stmt| slice.roots(kernel, stmt, results));
        // To a fixed point: a variable that is needed needs what binds it.
        loop {
            let before = slice.size(kernel);
            slice.grow(kernel, &kernel.body);
            if slice.size(kernel) == before {
                break;
            }
        }
        for (id, node) in kernel.exprs.iter() {
            let mut inputs: Vec<VarId> = match node.expr {
                Expr::Var(var) => vec![var],
                other => other.operands().flat_map(|operand| slice.inputs[operand].clone()).collect(),
            };
            if slice.exprs[id] && !inputs.is_empty() {
                inputs.sort_unstable();
                inputs.dedup();
                slice.inputs.set(id, inputs);
            }
        }
        slice
    }

    fn size(&self, kernel: &Kernel) -> (usize, usize) {
        let vars = kernel.vars.ids().filter(|var| self.vars[*var]).count();
        (vars, kernel.buffers.ids().filter(|buffer| self.buffers[*buffer]).count())
    }

    fn expr(&mut self, kernel: &Kernel, id: ExprId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if self.exprs[id] {
                continue;
            }
            self.exprs.set(id, true);
            if let Expr::Var(var) = kernel.exprs[id].expr {
                self.vars.set(var, true);
            }
            open.extend(kernel.exprs[id].expr.operands());
        }
    }

    fn roots(&mut self, kernel: &Kernel, stmt: &Stmt, results: bool) {
        let access = |slice: &mut Self, access: Access, writes: bool| {
            slice.expr(kernel, access.index);
            if writes {
                slice.written.set(access.buffer, true);
                if results && kernel.buffers[access.buffer].space == Space::Global {
                    slice.buffers.set(access.buffer, true);
                }
            }
        };
        match &stmt.kind {
            StmtKind::Load { from, .. } => access(self, *from, false),
            StmtKind::Store { to, .. } => access(self, *to, true),
            StmtKind::Atomic { to, value, .. } => {
                access(self, *to, true);
                self.expr(kernel, *value);
            }
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
                access(self, *to, true);
                access(self, *from, false);
            }
            StmtKind::For { start, end, .. } => {
                self.expr(kernel, *start);
                self.expr(kernel, *end);
            }
            StmtKind::If { condition, .. } => self.expr(kernel, *condition),
            _ => {}
        }
    }

    fn grow(&mut self, kernel: &Kernel, block: &Block) {
        for_each_stmt(block, &mut |stmt| match &stmt.kind {
            StmtKind::Let { var, value } if self.vars[*var] => self.expr(kernel, *value),
            StmtKind::Load { var, from, .. } if self.vars[*var] => self.buffers.set(from.buffer, true),
            StmtKind::Store { to, value, .. } if self.buffers[to.buffer] => self.expr(kernel, *value),
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } if self.buffers[to.buffer] => {
                self.buffers.set(from.buffer, true);
            }
            StmtKind::Shuffle { var, value, lane, .. } if self.vars[*var] => {
                self.expr(kernel, *value);
                self.expr(kernel, *lane);
            }
            StmtKind::Random { vars, seed, offset, subsequence } if vars.iter().any(|var| self.vars[*var]) => {
                for id in [seed, offset, subsequence] {
                    self.expr(kernel, *id);
                }
            }
            _ => {}
        });
    }
}
