//! Decides which expressions get a name in the printed text, and where.
//!
//! Input: a kernel. Output: for each statement position, the expressions that
//! are bound to a `const` local just before it.
//!
//! Conversions between index and data print as nothing, so the plan sees only
//! what they convert.
//!
//! An expression gets a name when it is used more than once and is more than
//! one cheap operation on places, or when its formula would grow too long. The
//! local stands before the first statement that contains all uses, and outside
//! every loop that binds none of the variables in it; it is never moved out of
//! a branch that contains all its uses. Expressions are pure, so evaluating one
//! early changes nothing.
//!
//! A read of a thread's own array is written where its value is used, if nothing
//! writes the array in between; so `acc = acc + x` reads as one statement.
//!
//! Blocks are numbered in the order of a pre-order walk, the kernel's body
//! first; the printer walks in the same order.

use crate::kernel::{
    Block, BufId, Expr, ExprId, IndexOp, Kernel, ParamKind, Space, Special, Stmt, StmtKind, VarId, statement_exprs,
};
use crate::num::{BinaryOp, TernaryOp, UnaryOp};
use crate::util::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// A formula of more operations than this is broken up.
const MAX_OPS: u32 = 12;

/// A position: before statement `stmt` of block `block`.
type Site = (usize, usize);

/// What is known of an expression.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Whether a statement needs it, directly or through others.
    reached: bool,
    /// Whether its formula has only sizes, places and counters, index arithmetic
    /// and comparisons: short to repeat, and the same wherever it stands.
    place: bool,
    /// The innermost block that binds a variable in it.
    home: usize,
    /// How many operands and statements name it.
    uses: u32,
    /// Operations in its printed formula.
    ops: u32,
    /// Whether it gets a local.
    named: bool,
    /// Before which position it is needed.
    site: Option<Site>,
}

/// A block's place in the tree.
#[derive(Clone, Copy, Debug)]
struct BlockPlace {
    /// The position of the statement that contains it.
    owner: Site,
    depth: usize,
    is_loop: bool,
}

/// A read of a local buffer.
#[derive(Clone, Copy, Debug)]
struct LocalRead {
    var: VarId,
    buffer: BufId,
    index: ExprId,
    site: Site,
}

/// The plan of a kernel's text.
#[derive(Debug)]
pub(super) struct TextPlan {
    facts: SecondaryMap<ExprId, Facts>,
    places: Vec<BlockPlace>,
    bindings: BTreeMap<Site, Vec<ExprId>>,
    // Where the value of each variable is used, for those read from local buffers.
    uses: SecondaryMap<ExprId, Vec<Site>>,
    // Variables that are not printed: reads written at their use.
    silent: BTreeSet<VarId>,
    /// The thread's coordinates that the text mentions.
    pub(super) specials: BTreeSet<Special>,
    /// Buffers that some statement writes.
    pub(super) written: BTreeSet<BufId>,
    /// Buffers with a vector access.
    pub(super) vector: BTreeSet<BufId>,
}

impl TextPlan {
    /// Plans a kernel's text.
    pub(super) fn new(kernel: &Kernel) -> Self {
        let mut walk = PlanWalk {
            kernel,
            facts: SecondaryMap::new(),
            vars: SecondaryMap::new(),
            places: vec![BlockPlace { owner: (0, 0), depth: 0, is_loop: false }],
            slots: Vec::new(),
            reads: Vec::new(),
            writes: BTreeMap::new(),
            written: BTreeSet::new(),
            vector: BTreeSet::new(),
        };
        walk.block(&kernel.body, 0);
        let mut plan = Self {
            facts: walk.facts,
            places: walk.places,
            bindings: BTreeMap::new(),
            uses: SecondaryMap::new(),
            silent: BTreeSet::new(),
            specials: BTreeSet::new(),
            written: walk.written,
            vector: walk.vector,
        };
        plan.count(kernel, &walk.slots);
        plan.measure(kernel);
        plan.place(kernel, &walk.slots);
        plan.inline_reads(kernel, &walk.reads, &walk.writes);
        plan
    }

    /// The expressions to bind before a statement, operands first.
    pub(super) fn bindings(&self, block: usize, stmt: usize) -> &[ExprId] {
        self.bindings.get(&(block, stmt)).map_or(&[], Vec::as_slice)
    }
    /// Whether the expression says only where the thread is.
    pub(super) fn is_place(&self, expr: ExprId) -> bool {
        self.facts[expr].place
    }

    /// Whether the variable's statement is not printed.
    pub(super) fn is_silent(&self, var: VarId) -> bool {
        self.silent.contains(&var)
    }

    /// Counts uses, and names what is used more than once.
    fn count(&mut self, kernel: &Kernel, slots: &[(ExprId, Site)]) {
        for &(expr, _) in slots {
            self.facts[expr].uses += 1;
        }
        for (id, node) in kernel.exprs.iter() {
            if !self.facts[id].reached {
                continue;
            }
            if let Expr::Special(special) = node.expr {
                self.specials.insert(special);
            }
            operands(kernel, node.expr, |operand| self.facts[operand].uses += 1);
        }
        for (id, _) in kernel.exprs.iter() {
            let facts = self.facts[id];
            // Operands come first, so whether they have names is known.
            self.facts[id].named = facts.reached && facts.uses > 1 && !self.is_cheap(kernel, id);
        }
    }

    /// Whether repeating the formula reads better than a name for it: one
    /// operation on two words that say where the thread is.
    fn is_cheap(&self, kernel: &Kernel, id: ExprId) -> bool {
        let is_word = |id: ExprId| {
            let plain = kernel.exprs.plain(id);
            kernel.exprs[plain].expr.is_leaf() || self.facts[plain].named
        };
        let expr = kernel.exprs[id].expr;
        let is_short = match expr {
            Expr::Cast(_) | Expr::Binary(..) => true,
            Expr::Index(op, ..) => !matches!(op, IndexOp::Div | IndexOp::Mod | IndexOp::CeilDiv),
            _ => false,
        };
        let is_joined = matches!(expr, Expr::Binary(BinaryOp::LogicalAnd, ..));
        expr.is_leaf() || self.facts[id].place && is_short && !is_joined && expr.operands().all(is_word)
    }

    /// Computes the length of formulas, and names operands of those that are too long.
    fn measure(&mut self, kernel: &Kernel) {
        for (id, node) in kernel.exprs.iter() {
            if !self.facts[id].reached {
                continue;
            }
            let own = u32::from(!node.expr.is_leaf());
            loop {
                let (mut total, mut longest) = (own, None);
                operands(kernel, node.expr, |operand| {
                    let facts = self.facts[operand];
                    if !facts.named {
                        total += facts.ops;
                        if facts.ops > longest.map_or(0, |(ops, _)| ops) {
                            longest = Some((facts.ops, operand));
                        }
                    }
                });
                self.facts[id].ops = total;
                match longest {
                    Some((_, operand)) if total > MAX_OPS => self.facts[operand].named = true,
                    _ => break,
                }
            }
        }
    }

    /// Finds where each named expression is bound.
    fn place(&mut self, kernel: &Kernel, slots: &[(ExprId, Site)]) {
        for &(expr, site) in slots {
            self.need(expr, site);
        }
        let ids: Vec<ExprId> = kernel.exprs.iter().map(|(id, _)| id).collect();
        for &id in ids.iter().rev() {
            let facts = self.facts[id];
            let Some(mut site) = facts.site else { continue };
            if facts.named {
                site = self.hoist(site, facts.home);
                self.bindings.entry(site).or_default().push(id);
            }
            operands(kernel, kernel.exprs[id].expr, |operand| self.need(operand, site));
        }
        for bound in self.bindings.values_mut() {
            bound.sort();
        }
    }

    /// Finds the reads of local buffers that are written where they are used:
    /// each use lies in the read's block or below, no statement between writes
    /// the buffer, nor does one that uses the value from inside, such as a loop.
    /// An element of an array is only moved to a single use.
    fn inline_reads(&mut self, kernel: &Kernel, reads: &[LocalRead], writes: &BTreeMap<Site, BTreeSet<BufId>>) {
        let mut exprs = SecondaryMap::<VarId, Option<ExprId>>::new();
        for (id, node) in kernel.exprs.iter() {
            if let Expr::Var(var) = node.expr {
                exprs.set(var, Some(id));
            }
        }
        let loops: BTreeSet<Site> = self.places.iter().filter(|p| p.is_loop).map(|p| p.owner).collect();
        let is_written = |site: Site, buffer: BufId| writes.get(&site).is_some_and(|set| set.contains(&buffer));
        for read in reads {
            let Some(expr) = exprs[read.var] else { continue };
            let is_variable = kernel.exprs.as_int(kernel.buffers[read.buffer].len) == Some(1);
            let is_movable = self.facts[read.index].place && (is_variable || self.facts[expr].uses == 1);
            let (block, start) = read.site;
            let safe = |&site: &Site| {
                let mut place = site;
                while self.places[place.0].depth > self.places[block].depth {
                    place = self.places[place.0].owner;
                }
                let is_inside = place != site || loops.contains(&site);
                place.0 == block
                    && (start + 1..place.1).all(|position| !is_written((block, position), read.buffer))
                    && !(is_inside && is_written(place, read.buffer))
            };
            if is_movable && self.uses[expr].iter().all(safe) {
                self.silent.insert(read.var);
            }
        }
    }

    fn need(&mut self, expr: ExprId, site: Site) {
        self.uses[expr].push(site);
        let merged = self.facts[expr].site.map_or(site, |old| self.join(old, site));
        self.facts[expr].site = Some(merged);
    }

    /// The last position that comes before both.
    fn join(&self, mut a: Site, mut b: Site) -> Site {
        while a.0 != b.0 {
            if self.places[a.0].depth >= self.places[b.0].depth {
                a = self.places[a.0].owner;
            } else {
                b = self.places[b.0].owner;
            }
        }
        (a.0, a.1.min(b.1))
    }

    /// Moves a position out of loops, as far as the block `home` allows.
    fn hoist(&self, mut site: Site, home: usize) -> Site {
        while self.places[site.0].is_loop && self.places[site.0].depth > self.places[home].depth {
            site = self.places[site.0].owner;
        }
        site
    }
}

/// The walk over statements that collects what the plan starts from.
struct PlanWalk<'a> {
    kernel: &'a Kernel,
    facts: SecondaryMap<ExprId, Facts>,
    // Where each variable is bound, and whether it says where the thread is.
    vars: SecondaryMap<VarId, (usize, bool)>,
    places: Vec<BlockPlace>,
    slots: Vec<(ExprId, Site)>,
    reads: Vec<LocalRead>,
    // What each statement and those inside it write.
    writes: BTreeMap<Site, BTreeSet<BufId>>,
    written: BTreeSet<BufId>,
    vector: BTreeSet<BufId>,
}

impl PlanWalk<'_> {
    fn block(&mut self, block: &Block, number: usize) {
        for (position, stmt) in block.iter().enumerate() {
            self.stmt(stmt, (number, position));
        }
    }

    fn stmt(&mut self, stmt: &Stmt, site: Site) {
        statement_exprs(&stmt.kind, &mut |expr| {
            let expr = self.kernel.exprs.plain(expr);
            self.reach(expr);
            self.slots.push((expr, site));
        });
        match &stmt.kind {
            StmtKind::Let { var, value } => {
                let value = self.kernel.exprs.plain(*value);
                self.vars.set(*var, (site.0, self.facts[value].place));
            }
            StmtKind::Load { var, from, .. } => {
                self.vars.set(*var, (site.0, false));
                if self.kernel.buffers[from.buffer].space == Space::Local {
                    let index = self.kernel.exprs.plain(from.index);
                    self.reads.push(LocalRead { var: *var, buffer: from.buffer, index, site });
                }
            }
            StmtKind::Shuffle { var, .. } => self.vars.set(*var, (site.0, false)),
            StmtKind::Random { vars, .. } => {
                vars.iter().for_each(|var| self.vars.set(*var, (site.0, false)));
            }
            StmtKind::Store { to, .. } => self.write(to.buffer, site),
            StmtKind::Move { to, from, .. } | StmtKind::CopyAsync { to, from, .. } => {
                self.write(to.buffer, site);
                self.vector.extend([to.buffer, from.buffer]);
            }
            StmtKind::Atomic { var, to, .. } => {
                self.write(to.buffer, site);
                if let Some(var) = var {
                    self.vars.set(*var, (site.0, false));
                }
            }
            StmtKind::For { var, body, .. } => {
                let number = self.open(site, true);
                self.vars.set(*var, (number, true));
                self.block(body, number);
            }
            StmtKind::If { then, otherwise, .. } => {
                for branch in [then, otherwise] {
                    let number = self.open(site, false);
                    self.block(branch, number);
                }
            }
            StmtKind::Sync(_) | StmtKind::Fence(_) | StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
        }
    }

    /// Notes a write for the statement and those around it.
    fn write(&mut self, buffer: BufId, mut site: Site) {
        self.written.insert(buffer);
        while self.writes.entry(site).or_default().insert(buffer) && site.0 != 0 {
            site = self.places[site.0].owner;
        }
    }

    fn open(&mut self, owner: Site, is_loop: bool) -> usize {
        let depth = self.places[owner.0].depth + 1;
        self.places.push(BlockPlace { owner, depth, is_loop });
        self.places.len() - 1
    }

    /// Computes the facts of an expression and its operands. With an own stack:
    /// a chain of operations may be as long as a fusion.
    fn reach(&mut self, root: ExprId) {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            if self.facts[id].reached {
                stack.pop();
                continue;
            }
            let expr = self.kernel.exprs[id].expr;
            let waiting = stack.len();
            operands(self.kernel, expr, |operand| {
                if !self.facts[operand].reached {
                    stack.push(operand);
                }
            });
            if stack.len() == waiting {
                stack.pop();
                self.facts[id] = self.judge(expr);
            }
        }
    }

    fn judge(&self, expr: Expr) -> Facts {
        let place = match expr {
            Expr::Unary(op, _) => op == UnaryOp::LogicalNot,
            Expr::Approx(..) => false,
            Expr::Binary(op, ..) => op.is_predicate(),
            Expr::Ternary(op, ..) => op == TernaryOp::Where,
            Expr::Param(param) => !matches!(self.kernel.params[param].kind, ParamKind::Scalar { .. }),
            _ => true,
        };
        let mut facts = Facts { reached: true, place, ..Facts::default() };
        if let Expr::Var(var) = expr {
            (facts.home, facts.place) = self.vars[var];
        }
        operands(self.kernel, expr, |operand| {
            let operand = self.facts[operand];
            facts.place &= operand.place;
            if self.places[operand.home].depth > self.places[facts.home].depth {
                facts.home = operand.home;
            }
        });
        facts
    }
}

/// Calls `f` with each operand, itself where it is a conversion between index and data.
fn operands(kernel: &Kernel, expr: Expr, f: impl FnMut(ExprId)) {
    expr.operands().map(|operand| kernel.exprs.plain(operand)).for_each(f);
}
