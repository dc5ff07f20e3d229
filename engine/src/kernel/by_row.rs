//! Loops over the lanes of a vector that look up what a row has once, look it up for the two rows that a vector touches.
//!
//! Where vectors run over the ends of rows, as those of a tensor that is one run of memory do, what is the same for a row is found
//! by a division for each lane, and loaded by each. But rows that are as long as a vector end at most once in it:
//!
//! ```text
//! for v { a[v] = x[f((e + v) / n)] }
//!
//! p = x[f(e / n)]; q = x[f((e + W - 1) / n)]
//! if n >= W - 1 { for v { a[v] = where(v < n - e % n, p, q) } } else { as it was }
//! ```
//!
//! Lanes are chosen where the array is read first, and nothing branches before: so the loads of a thread are on their way together.
//! Where the place in the row is read too (`(e + v) % n`), each lane loads, at one of two indices that differ from lane to lane by
//! 1, without a division.
//!
//! A lane that is not loaded is not in either form: of terms `e + v < m` the last lane's is asked, of those that ask for the row
//! those of both rows, and where one does not hold all is as it was. Done where it takes fewer instructions. Invariant: what is in
//! the array is the same.

use super::ir::{
    Access, Block, BufId, Buffer, CacheHint, Expr, ExprId, Kernel, Origin, Space, Stmt, StmtKind, Unroll, ValueKind,
    VarId,
};
use super::lane_masks::find::{at_lane, unrolled};
use super::lane_masks::substitute::{substitute, substitute_choice};
use super::lane_masks::{Unrolled, conjuncts};
use super::visit::for_each_stmt;
use crate::num::{BinaryOp, TernaryOp};
use crate::util::map_of;
use rows::{Rows, Use, chain_in, is_end};
use std::collections::BTreeMap;

mod rows;

/// Instructions, about: of a division, and what the choice takes beside those of lanes.
const DIVISION: i64 = 3;
const CHOICE: i64 = 16;
/// Those of a lane from which on it pays to load at one of two indices, since that is a branch before loads.
const LEAST_OF_TWO: i64 = 12;
/// Vectors of a thread, at most: each has a branch of its own where lanes choose.
const MOST_VECTORS: i64 = 2;
/// The pass of its statements.
const PASS: &str = "rows";

/// Gives such loops two look-ups. Threads that share memory have their registers full of what they exchange.
pub fn look_up_by_row(kernel: &mut Kernel) {
    if kernel.buffers.values().any(|buffer| buffer.space == Space::Shared) {
        return;
    }
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body, 1);
}

/// A block of which unrolled loops make so many copies.
fn block(kernel: &mut Kernel, block: Block, copies: i64) -> Block {
    let mut out = Block::with_capacity(block.len());
    // The choices of lanes that wait for who reads them.
    let mut waiting: Vec<(BufId, Stmt)> = Vec::new();
    for mut stmt in block {
        if waiting.iter().any(|(array, _)| waits_for(kernel, &stmt, *array)) {
            out.extend(waiting.drain(..).map(|(_, chosen)| chosen));
        }
        if let Some(by_row) = rewritten(kernel, &mut Vec::new(), &stmt, copies) {
            out.extend(by_row.loads);
            waiting.push((by_row.array, by_row.chosen));
            continue;
        }
        let copies = copies * unrolled(kernel, &stmt.kind).map_or(1, |own| own.extent);
        match &mut stmt.kind {
            StmtKind::For { body, .. } => *body = self::block(kernel, std::mem::take(body), copies),
            StmtKind::If { then, otherwise, .. } => {
                *then = self::block(kernel, std::mem::take(then), copies);
                *otherwise = self::block(kernel, std::mem::take(otherwise), copies);
            }
            _ => {}
        }
        out.push(stmt);
    }
    out.extend(waiting.into_iter().map(|(_, chosen)| chosen));
    out
}

/// Whether a statement, or one in it, touches an array, or has an effect beyond the thread.
fn waits_for(kernel: &Kernel, stmt: &Stmt, array: BufId) -> bool {
    let mut waits = false;
    let is_own = |access: &Access| kernel.buffers[access.buffer].space == Space::Local;
    for_each_stmt(&vec![stmt.clone()], &mut |stmt| {
        waits |= match &stmt.kind {
            StmtKind::Let { .. } | StmtKind::For { .. } | StmtKind::If { .. } | StmtKind::Random { .. } => false,
            StmtKind::Load { from, .. } => from.buffer == array,
            StmtKind::Store { to, .. } => to.buffer == array || !is_own(to),
            StmtKind::Move { to, from, .. } => [to, from].iter().any(|side| side.buffer == array) || !is_own(to),
            _ => true,
        }
    });
    waits
}

/// What takes the place of a loop: loads that stand before, and what fills the array.
struct ByRow {
    loads: Block,
    array: BufId,
    chosen: Stmt,
}

/// The loop by row, if it is one of lanes that look up something, perhaps in others that are unrolled, of so many copies.
fn rewritten(kernel: &mut Kernel, outer: &mut Vec<Unrolled>, stmt: &Stmt, copies: i64) -> Option<ByRow> {
    let own = unrolled(kernel, &stmt.kind)?;
    let StmtKind::For { var, start, end, step, unroll, body } = &stmt.kind else { return None };
    let vectors: i64 = outer.iter().map(|own| own.extent).product();
    if copies * vectors <= MOST_VECTORS
        && let Some(lookup) = LookUp::of(kernel, own, body)
    {
        return Some(lookup.by_row(kernel, outer, stmt));
    }
    let [inner] = &body[..] else { return None };
    outer.push(own);
    let by_row = rewritten(kernel, outer, inner, copies);
    outer.pop();
    let ByRow { loads, array, chosen } = by_row?;
    let (start, end, step, unroll) = (*start, *end, *step, *unroll);
    let around = |var: VarId, body: Block| Stmt {
        kind: StmtKind::For { var, start, end, step, unroll, body },
        origin: stmt.origin,
    };
    let (counter, loads) = renamed_in(kernel, *var, loads);
    let loads = if loads.is_empty() { loads } else { vec![around(counter, loads)] };
    Some(ByRow { loads, array, chosen: around(*var, vec![chosen]) })
}

/// Loads of this pass with another counter.
fn renamed_in(kernel: &mut Kernel, counter: VarId, mut body: Block) -> (VarId, Block) {
    let new = like(kernel, counter);
    let by = map_of([(counter, kernel.exprs.var(new, kernel.vars[new].dtype, ValueKind::Index))]);
    replace(kernel, &mut body, &by);
    (new, body)
}

/// Replaces variables in statements of this pass.
fn replace(kernel: &mut Kernel, body: &mut Block, by: &BTreeMap<VarId, ExprId>) {
    for stmt in body {
        let mut now = |id: &mut ExprId| *id = substitute(&mut kernel.exprs, *id, by);
        match &mut stmt.kind {
            StmtKind::Load { from, .. } => now(&mut from.index),
            StmtKind::Store { to, value, .. } => {
                now(&mut to.index);
                now(value);
            }
            StmtKind::If { condition, then, otherwise } => {
                now(condition);
                replace(kernel, then, by);
                replace(kernel, otherwise, by);
            }
            StmtKind::For { body, .. } => replace(kernel, body, by),
            _ => {}
        }
    }
}

/// A loop over lanes that load an element of what rows have.
struct LookUp {
    lanes: Unrolled,
    used: Use,
    /// Instructions of a lane's index before, about.
    cost: i64,
    from: Access,
    hint: CacheHint,
    /// The variable that has it.
    loaded: VarId,
    to: Access,
    /// What holds of lanes that are loaded, and what others have.
    terms: Vec<ExprId>,
    without: Option<ExprId>,
}

impl LookUp {
    fn of(kernel: &mut Kernel, lanes: Unrolled, body: &Block) -> Option<Self> {
        let exprs = &kernel.exprs;
        let (terms, without, body) = match &body[..] {
            [Stmt { kind: StmtKind::If { condition, then, otherwise }, .. }] => {
                let [Stmt { kind: StmtKind::Store { to, value, .. }, .. }] = &otherwise[..] else { return None };
                (conjuncts(exprs, *condition), Some((*to, *value)), &then[..])
            }
            other => (Vec::new(), None, other),
        };
        let [
            Stmt { kind: StmtKind::Load { var, from, hint }, .. },
            Stmt { kind: StmtKind::Store { to, value, .. }, .. },
        ] = body
        else {
            return None;
        };
        let spaces = [from, to].map(|access| kernel.buffers[access.buffer].space);
        let is_filled = without.is_none_or(|(other, value)| other == *to && exprs[value].expr.is_leaf());
        if exprs[*value].expr != Expr::Var(*var) || spaces != [Space::Global, Space::Local] || !is_filled {
            return None;
        }
        let without = without.map(|(_, value)| value);
        let (from, hint, loaded, to) = (*from, *hint, *var, *to);
        let used = Use::of(exprs, lanes.counter, from.index, &terms)?;
        let cost = used.cost;
        let mut found = Self { lanes, used, cost, from, hint, loaded, to, terms, without };
        while let Some(longer) = found.of_longer_rows(kernel) {
            found = longer;
        }
        found.pays().then_some(found)
    }

    /// The same with two divisions that follow each other as one, so that rows are longer, if nothing asks for the shorter ones.
    fn of_longer_rows(&self, kernel: &mut Kernel) -> Option<Self> {
        let counter = self.lanes.counter;
        let mut roots = self.terms.iter().chain([&self.from.index]);
        let chain = roots.find_map(|root| chain_in(&kernel.exprs, counter, *root))?;
        let length = kernel.exprs.mul(chain.lengths[0], chain.lengths[1]);
        let quotient = kernel.exprs.div(chain.index, length);
        let mut now = |id: ExprId| substitute_choice(&mut kernel.exprs, id, &BTreeMap::new(), (chain.id, quotient));
        let from = Access { index: now(self.from.index), ..self.from };
        let terms: Vec<ExprId> = self.terms.iter().map(|term| now(*term)).collect();
        let used = Use::of(&kernel.exprs, counter, from.index, &terms)?;
        Some(Self { used, from, terms, ..*self })
    }

    /// Whether it takes fewer instructions: of two rows instead of each lane.
    fn pays(&self) -> bool {
        // An index, conditions and a load.
        let [before, now] = [self.cost, self.used.cost].map(|index| index + 2 * self.terms.len() as i64 + 2);
        let lanes = self.lanes.extent;
        match self.used.remainders.is_empty() {
            true => lanes * before > 2 * now + lanes + CHOICE,
            false => before >= LEAST_OF_TWO && lanes > 2,
        }
    }

    /// The loads, of two rows or of each lane, and the choice of lanes.
    fn by_row(self, kernel: &mut Kernel, outer: &[Unrolled], stmt: &Stmt) -> ByRow {
        let origin = Origin { pass: PASS, ..stmt.origin };
        let is_whole = self.is_whole(kernel);
        let least = kernel.exprs.int(self.lanes.extent - 1, kernel.exprs.dtype(self.used.rows.length));
        let is_long = kernel.exprs.binary(BinaryOp::Ge, self.used.rows.length, least);
        let condition = kernel.exprs.and(is_long, is_whole);
        let branch = |condition: ExprId, then: Block, otherwise: Block| Stmt {
            kind: StmtKind::If { condition, then, otherwise },
            origin,
        };
        let as_it_was = self.of_each(kernel, stmt);
        if !self.used.remainders.is_empty() {
            let chosen = branch(condition, vec![self.of_lanes(kernel, origin)], vec![as_it_was]);
            return ByRow { loads: Block::new(), array: self.to.buffer, chosen };
        }
        let places = self.places(kernel, outer);
        let (mut loads, mut none) = (Block::new(), Block::new());
        let store =
            |to: Access, value: ExprId| Stmt { kind: StmtKind::Store { to, value, hint: CacheHint::Default }, origin };
        for (lane, to) in [0, self.lanes.extent - 1].into_iter().zip(places) {
            let index = at_lane(kernel, self.from.index, self.lanes.counter, lane);
            let var = like(kernel, self.loaded);
            let value = kernel.exprs.var(var, kernel.vars[var].dtype, ValueKind::Data);
            let from = Access { index, ..self.from };
            loads.push(Stmt { kind: StmtKind::Load { var, from, hint: self.hint }, origin });
            loads.push(store(to, value));
            none.extend(self.without.map(|value| store(to, value)));
        }
        let mut chosen = Block::new();
        let [before, behind] = places.map(|from| {
            let var = like(kernel, self.loaded);
            chosen.push(Stmt { kind: StmtKind::Load { var, from, hint: CacheHint::Default }, origin });
            kernel.exprs.var(var, kernel.vars[var].dtype, ValueKind::Data)
        });
        let is_before = self.is_before(kernel);
        let value = kernel.exprs.ternary(TernaryOp::Where, is_before, before, behind);
        chosen.push(self.loop_of(kernel, vec![store(self.to, value)], origin));
        let loads = if self.terms.is_empty() { loads } else { vec![branch(is_whole, loads, none)] };
        let chosen = branch(condition, chosen, vec![as_it_was]);
        ByRow { loads, array: self.to.buffer, chosen }
    }

    /// The loop as it was, with the same quotients as in the other form.
    fn of_each(&self, kernel: &mut Kernel, stmt: &Stmt) -> Stmt {
        let mut own = stmt.clone();
        let condition = self.terms.iter().copied().reduce(|all, term| kernel.exprs.and(all, term));
        if let StmtKind::For { body, .. } = &mut own.kind {
            let loads = match &mut body[..] {
                [Stmt { kind: StmtKind::If { condition: own, then, .. }, .. }] => {
                    *own = condition.unwrap_or(*own);
                    &mut then[..]
                }
                other => other,
            };
            if let [Stmt { kind: StmtKind::Load { from, .. }, .. }, ..] = loads {
                *from = self.from;
            }
        }
        own
    }

    /// Where the elements of the two rows of a vector are, of each of the thread: in an array that is new.
    fn places(&self, kernel: &mut Kernel, outer: &[Unrolled]) -> [Access; 2] {
        let (own, index_type) = (&kernel.buffers[self.to.buffer], kernel.index_type);
        let vectors: i64 = outer.iter().map(|own| own.extent).product();
        let pairs = Buffer {
            name: format!("{}_rows", own.name),
            dtype: own.dtype,
            space: Space::Local,
            len: kernel.exprs.int(2 * vectors, index_type),
            align: own.dtype.bytes() as u32,
            start: 0,
            zeroed: false,
        };
        let buffer = kernel.buffers.push(pairs);
        let mut first = kernel.exprs.int(0, index_type);
        for own in outer {
            let counter = kernel.exprs.var(own.counter, kernel.vars[own.counter].dtype, ValueKind::Index);
            let counter = kernel.exprs.cast(counter, index_type);
            let extent = kernel.exprs.int(own.extent, index_type);
            let before = kernel.exprs.mul(first, extent);
            first = kernel.exprs.add(before, counter);
        }
        let [one, two] = [1, 2].map(|at| kernel.exprs.int(at, index_type));
        let first = kernel.exprs.mul(first, two);
        [first, kernel.exprs.add(first, one)].map(|index| Access { buffer, index })
    }

    /// Whether all lanes are loaded.
    fn is_whole(&self, kernel: &mut Kernel) -> ExprId {
        let mut holds = kernel.exprs.bool(true);
        for term in &self.terms {
            // What is below the end at the last lane is so at all.
            let first = usize::from(is_end(&kernel.exprs, *term, self.lanes.counter));
            for lane in [0, self.lanes.extent - 1].into_iter().skip(first) {
                let term = at_lane(kernel, *term, self.lanes.counter, lane);
                holds = kernel.exprs.and(holds, term);
            }
        }
        holds
    }

    /// `v < n - e % n`.
    fn is_before(&self, kernel: &mut Kernel) -> ExprId {
        let first = at_lane(kernel, self.used.rows.index, self.lanes.counter, 0);
        let place = kernel.exprs.rem(first, self.used.rows.length);
        let left = kernel.exprs.sub(self.used.rows.length, place);
        let lane = self.lane(kernel);
        kernel.exprs.lt(lane, left)
    }

    /// The lane as an index.
    fn lane(&self, kernel: &mut Kernel) -> ExprId {
        let lane = kernel.exprs.var(self.lanes.counter, kernel.vars[self.lanes.counter].dtype, ValueKind::Index);
        kernel.exprs.cast(lane, kernel.exprs.dtype(self.used.rows.index))
    }

    /// The loop in which each lane loads at its place in one of two rows.
    fn of_lanes(&self, kernel: &mut Kernel, origin: Origin) -> Stmt {
        let Rows { index, length } = self.used.rows;
        let ends = [0, self.lanes.extent - 1].map(|lane| at_lane(kernel, index, self.lanes.counter, lane));
        let (lane, place) = (self.lane(kernel), kernel.exprs.rem(ends[0], length));
        let place = kernel.exprs.add(place, lane);
        let places = [place, kernel.exprs.sub(place, length)];
        let [before, behind] = [0, 1].map(|row| {
            let own = kernel.exprs.div(ends[row], length);
            let quotients = self.used.quotients.iter().map(|quotient| (*quotient, own));
            let remainders = self.used.remainders.iter().map(|remainder| (*remainder, places[row]));
            let none = BTreeMap::new();
            quotients
                .chain(remainders)
                .fold(self.from.index, |at, replaced| substitute_choice(&mut kernel.exprs, at, &none, replaced))
        });
        let is_before = self.is_before(kernel);
        let index = kernel.exprs.ternary(TernaryOp::Where, is_before, before, behind);
        let var = like(kernel, self.loaded);
        let value = kernel.exprs.var(var, kernel.vars[var].dtype, ValueKind::Data);
        let from = Access { index, ..self.from };
        let load = Stmt { kind: StmtKind::Load { var, from, hint: self.hint }, origin };
        let store = Stmt { kind: StmtKind::Store { to: self.to, value, hint: CacheHint::Default }, origin };
        self.loop_of(kernel, vec![load, store], origin)
    }

    /// A loop over the lanes, by a counter of its own.
    fn loop_of(&self, kernel: &mut Kernel, body: Block, origin: Origin) -> Stmt {
        let dtype = kernel.vars[self.lanes.counter].dtype;
        let [start, end] = [0, self.lanes.extent].map(|at| kernel.exprs.int(at, dtype));
        let (var, body) = renamed_in(kernel, self.lanes.counter, body);
        Stmt { kind: StmtKind::For { var, start, end, step: 1, unroll: Unroll::Full, body }, origin }
    }
}

/// A variable like another one.
fn like(kernel: &mut Kernel, var: VarId) -> VarId {
    let var = kernel.vars[var].clone();
    kernel.vars.push(var)
}

#[cfg(test)]
mod tests;
