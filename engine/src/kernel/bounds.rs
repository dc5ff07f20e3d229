//! An independent checker: which accesses to shared and local memory are in
//! range for every thread, whatever the arguments.
//!
//! Input: a verified kernel. Output: a [`BoundsReport`]. It shares no code with
//! lowering, which made the indices. An access that it cannot prove is not
//! wrong for that; one whose index can never be in range is.

use super::ir::{Access, Block, Expr, ExprId, Kernel, Space, Stmt, StmtKind};
use super::print::print_stmt;
use super::ranges::{Range, Ranges};
use crate::num::BinaryOp;

/// What the checker found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundsReport {
    /// Accesses proven in range.
    pub proven: usize,
    /// Accesses that may leave their buffer, as far as the checker can tell.
    pub open: Vec<String>,
    /// Accesses whose index is never in range.
    pub outside: Vec<String>,
}

impl BoundsReport {
    /// Adds what was found of the same statements in two cases that together are all: proven is what is proven in both.
    fn add_cases(&mut self, first: Self, second: Self) {
        self.proven += first.proven.min(second.proven);
        // Of an access the statement is the same in both, and the range is another.
        let statement = |access: &String| access.find('`').map(|at| access[at..].to_string());
        let in_both = |access: &&String| second.outside.iter().any(|other| statement(other) == statement(access));
        let never: Vec<String> = first.outside.iter().filter(in_both).cloned().collect();
        let is_never = |access: &String| never.iter().any(|other| statement(other) == statement(access));
        for case in [&first, &second] {
            let found = case.open.iter().chain(&case.outside).filter(|access| !is_never(access)).cloned();
            let new: Vec<String> = found.filter(|access| !self.open.contains(access)).collect();
            self.open.extend(new);
        }
        self.outside.extend(never);
    }
}

/// Checks all accesses to buffers of constant length.
pub fn check_bounds(kernel: &Kernel) -> BoundsReport {
    let mut checker = Checker { kernel, ranges: Ranges::new(kernel), report: BoundsReport::default() };
    checker.block(&kernel.body);
    checker.report
}

struct Checker<'a> {
    kernel: &'a Kernel,
    ranges: Ranges<'a>,
    report: BoundsReport,
}

impl Checker<'_> {
    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt.kind {
            StmtKind::Let { var, value } => {
                if self.kernel.exprs.dtype(value).is_int() {
                    let range = self.ranges.of(value);
                    self.ranges.set_var(var, range);
                }
            }
            StmtKind::Load { from, .. } => self.access(stmt, from, 1),
            StmtKind::Store { to, .. } | StmtKind::Atomic { to, .. } => self.access(stmt, to, 1),
            // Reads nothing outside of an input, wherever it begins.
            StmtKind::Move { to, from, lanes, aligned: false, .. }
                if self.kernel.buffers[from.buffer].space == Space::Global =>
            {
                self.access(stmt, to, lanes);
            }
            StmtKind::Move { to, from, lanes, .. } | StmtKind::CopyAsync { to, from, lanes, .. } => {
                self.access(stmt, to, lanes);
                self.access(stmt, from, lanes);
            }
            StmtKind::For { var, start, end, step, ref body, .. } => {
                let (first, last) = (self.ranges.of(start), self.ranges.of(end));
                let mut hi = last.hi.saturating_sub(1);
                if first.lo == first.hi && hi >= first.lo {
                    // The counter is start + k step <= end - 1.
                    hi -= (hi - first.lo) % step.max(1);
                }
                if hi < first.lo {
                    return; // The body never runs.
                }
                self.ranges.set_var(var, Range { lo: first.lo, hi });
                self.block(body);
            }
            StmtKind::If { condition, ref then, ref otherwise } => {
                match self.alternatives(condition) {
                    Some([first, second]) => {
                        let first = self.case(then, &[(condition, true), (first, true)]);
                        let second = self.case(then, &[(condition, true), (second, true)]);
                        self.report.add_cases(first, second);
                    }
                    None => self.under(then, &[(condition, true)]),
                }
                self.under(otherwise, &[(condition, false)]);
            }
            StmtKind::Shuffle { .. } | StmtKind::Random { .. } | StmtKind::Sync(_) | StmtKind::Fence(_) => {}
            StmtKind::CommitGroup | StmtKind::WaitGroup { .. } => {}
        }
    }

    /// A block where conditions hold, or do not.
    fn under(&mut self, block: &Block, conditions: &[(ExprId, bool)]) {
        let marks: Vec<usize> =
            conditions.iter().map(|(condition, holds)| self.ranges.assume(*condition, *holds)).collect();
        self.block(block);
        marks.into_iter().rev().for_each(|mark| self.ranges.forget(mark));
    }

    /// What is found there alone.
    fn case(&mut self, block: &Block, conditions: &[(ExprId, bool)]) -> BoundsReport {
        let before = std::mem::take(&mut self.report);
        self.under(block, conditions);
        std::mem::replace(&mut self.report, before)
    }

    /// The two of which one holds where a condition does, if some part of it says so.
    fn alternatives(&self, condition: ExprId) -> Option<[ExprId; 2]> {
        match self.kernel.exprs[condition].expr {
            Expr::Binary(BinaryOp::LogicalOr, a, b) => Some([a, b]),
            Expr::Binary(BinaryOp::LogicalAnd, a, b) => self.alternatives(a).or_else(|| self.alternatives(b)),
            _ => None,
        }
    }

    fn access(&mut self, stmt: &Stmt, access: Access, lanes: u32) {
        let buffer = &self.kernel.buffers[access.buffer];
        let Some(len) = self.kernel.exprs.as_int(buffer.len).filter(|_| buffer.space != Space::Global) else { return };
        let index = self.ranges.of(access.index);
        let last = len - i64::from(lanes);
        if index.lo > index.hi {
            // No thread comes here.
            self.report.proven += 1;
        } else if index.lo >= 0 && index.hi <= last {
            self.report.proven += 1;
        } else {
            let found = format!(
                "index of {} in {}..={}, elements 0..{len}: `{}`",
                buffer.name,
                index.lo,
                index.hi,
                print_stmt(self.kernel, stmt)
            );
            let never = index.hi < 0 || index.lo > last;
            if never { self.report.outside.push(found) } else { self.report.open.push(found) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Dim, IndexOp, KernelBuilder, Unroll};
    use crate::num::{DType, Value};

    /// Stores to element `index` of a shared array of 64 in blocks of 128 threads.
    fn check(
        expected: (usize, usize, usize),
        build: impl FnOnce(&mut KernelBuilder, &dyn Fn(&mut KernelBuilder, ExprId)),
    ) {
        let mut b = KernelBuilder::new("k", DType::I32);
        let tile = b.shared("tile", DType::F32, 64, 16);
        let store = |b: &mut KernelBuilder, index| {
            let zero = b.exprs().value(Value::Float(0.0), DType::F32);
            b.store(tile, index, zero);
        };
        build(&mut b, &store);
        let one = b.int(1);
        let report = check_bounds(&b.finish_1d(one, 128));
        assert_eq!((report.proven, report.open.len(), report.outside.len()), expected, "{report:?}");
    }

    #[test]
    fn indices_are_proven_from_launch_loops_and_conditions() {
        let tx = |b: &mut KernelBuilder| b.exprs().thread_idx(Dim::X);
        check((0, 1, 0), |b, store| {
            let x = tx(b);
            store(b, x);
        });
        check((1, 1, 0), |b, store| {
            let (m, n) = (b.size("m", 0, 0), b.size("n", 0, 1));
            b.assume_at_most(n, 64);
            b.count("i", n, Unroll::No, |b, i| store(b, i));
            b.count("i", m, Unroll::No, |b, i| store(b, i));
        });
        check((2, 0, 0), |b, store| {
            let (x, two, limit) = (tx(b), b.int(2), b.int(64));
            let half = b.exprs().div(x, two);
            store(b, half);
            let wrapped = b.exprs().rem(x, limit);
            store(b, wrapped);
        });
        check((2, 1, 0), |b, store| {
            let (x, limit) = (tx(b), b.int(64));
            let inside = b.exprs().lt(x, limit);
            let rest = b.exprs().sub(x, limit);
            b.if_else(inside, |b| store(b, x), |b| store(b, rest));
            store(b, x);
        });
        check((1, 0, 1), |b, store| {
            let (zero, sixteen, four) = (b.int(0), b.int(16), b.int(4));
            b.for_("i", (zero, sixteen, 4), Unroll::Full, |b, i| {
                let scaled = b.exprs().mul(i, four);
                let low = b.int(3);
                let inner = b.exprs().add(scaled, low);
                store(b, inner);
                let far = b.int(64);
                let outside = b.exprs().add(inner, far);
                store(b, outside);
            });
        });
        check((1, 0, 0), |b, store| {
            let far = b.int(99);
            b.for_("i", (far, far, 1), Unroll::No, |b, i| store(b, i));
            let (x, limit) = (tx(b), b.int(64));
            let never = b.exprs().binary(BinaryOp::Ge, x, limit);
            let never = b.exprs().and(never, never);
            let small = b.exprs().lt(x, limit);
            b.if_(never, |b| b.if_(small, |b| store(b, x)));
        });
    }

    #[test]
    fn of_two_conditions_either_proves_its_case() {
        // Elements 4 u + x, where the last of the rounds has two: u is 0 to 15, x 0 to 127.
        let place = |last: i64| {
            move |b: &mut KernelBuilder, store: &dyn Fn(&mut KernelBuilder, ExprId)| {
                let (zero, rounds, four) = (b.int(0), b.int(16), b.int(4));
                b.for_("u", (zero, rounds, 1), Unroll::Full, |b, u| {
                    let (x, full, rest) = (b.exprs().thread_idx(Dim::X), b.int(15), b.int(last));
                    let part = b.exprs().rem(x, four);
                    let before = b.exprs().lt(u, full);
                    let within = b.exprs().lt(part, rest);
                    let inside = b.exprs().binary(BinaryOp::LogicalOr, before, within);
                    let start = b.exprs().mul(u, four);
                    let (index, two) = (b.exprs().add(start, part), b.int(2));
                    let index = b.exprs().add(index, two);
                    b.if_(inside, |b| store(b, index));
                });
            }
        };
        check((1, 0, 0), place(2));
        check((0, 1, 0), place(3));
    }

    #[test]
    fn a_place_that_nobody_reaches_is_in_range() {
        check((1, 0, 0), |b, store| {
            let (x, zero, seven) = (b.exprs().thread_idx(Dim::X), b.int(0), b.int(7));
            let small = b.exprs().lt(x, zero);
            let quotient = b.exprs().div(seven, x);
            let positive = b.exprs().lt(zero, x);
            b.if_(positive, |b| b.if_(small, |b| store(b, quotient)));
        });
    }

    #[test]
    fn data_that_wraps_may_be_any_number() {
        check((1, 1, 0), |b, store| {
            let (x, two) = (b.exprs().thread_idx(Dim::X), b.int(2));
            let half = b.exprs().div(x, two);
            store(b, half);
            // (x / 2 + MAX) - MAX is x / 2 after two wraps, which no interval shows.
            let (half, most) = (b.exprs().as_data(half), b.int(i32::MAX.into()));
            let over = b.exprs().binary(BinaryOp::Add, half, most);
            let back = b.exprs().binary(BinaryOp::Sub, over, most);
            let back = b.exprs().as_index(back);
            store(b, back);
        });
    }

    #[test]
    fn ranges_hold_every_value() {
        crate::property::property(|u| {
            let mut b = KernelBuilder::new("k", DType::I32);
            // Thread 0..8, and constants; brute force over all threads.
            let mut pool = vec![(b.exprs().thread_idx(Dim::X), (0..8).collect::<Vec<i64>>())];
            for _ in 0..u.int_in_range(1..=8)? {
                let value = u.int_in_range(-9i64..=9)?;
                pool.push((b.int(value), vec![value; 8]));
                let (x, y) = (u.choose(&pool)?.clone(), u.choose(&pool)?.clone());
                let op = *u.choose(&[
                    BinaryOp::Add,
                    BinaryOp::Sub,
                    BinaryOp::Mul,
                    BinaryOp::Div,
                    BinaryOp::Mod,
                    BinaryOp::CeilDiv,
                    BinaryOp::Minimum,
                    BinaryOp::Maximum,
                    BinaryOp::BitwiseAnd,
                    BinaryOp::BitwiseXor,
                ])?;
                let masks = |y: i64| op == BinaryOp::Mod && y > 0 && y & (y - 1) == 0;
                let masked = b.exprs().as_int(y.0).is_some_and(masks);
                let natural = x.1.iter().all(|&v| v >= 0) && y.1.iter().all(|&v| v > 0);
                if !natural && !masked && matches!(op, BinaryOp::Div | BinaryOp::Mod | BinaryOp::CeilDiv) {
                    continue;
                }
                // Of indices, this is one of numbers that are not negative.
                if op == BinaryOp::BitwiseXor && x.1.iter().chain(&y.1).any(|&v| v < 0) {
                    continue;
                }
                let values = x.1.iter().zip(&y.1).map(|(&a, &b)| match masked {
                    true => a & (b - 1),
                    false => crate::num::eval::binary(op, DType::I64, Value::Int(a), Value::Int(b)).as_i64(),
                });
                let values: Vec<i64> = values.collect();
                if values.iter().all(|v| v.abs() < 1 << 20) {
                    let as_index = IndexOp::from_binary(op).filter(|_| !natural || u.arbitrary().unwrap_or(true));
                    let expr = match as_index {
                        Some(op) => {
                            let (x, y) = (b.exprs().as_index(x.0), b.exprs().as_index(y.0));
                            b.exprs().index(op, x, y)
                        }
                        None => {
                            let (x, y) = (b.exprs().as_data(x.0), b.exprs().as_data(y.0));
                            b.exprs().binary(op, x, y)
                        }
                    };
                    pool.push((expr, values));
                }
            }
            let one = b.int(1);
            let kernel = b.finish_1d(one, 8);
            let mut ranges = Ranges::new(&kernel);
            for (expr, values) in pool {
                let range = ranges.of(expr);
                assert!(values.iter().all(|v| (range.lo..=range.hi).contains(v)), "{range:?} misses one of {values:?}");
            }
            Ok(())
        });
    }
}
