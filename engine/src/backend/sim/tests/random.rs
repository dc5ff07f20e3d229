//! Random kernels against a plain interpreter of kernel IR, one thread after
//! the other: nested branches and loops whose conditions and trip counts differ
//! between lanes, unrolled and rolled, local arrays with constant and dynamic
//! indices. What they exercise is the compiler's hoisting and register
//! allocation and the executor's masks.

use super::*;
use crate::kernel::{Access, Block, Expr, Space, Special, StmtKind, Unroll, VarId};
use crate::num::{TernaryOp, UnaryOp, Value, eval};
use arbtest::arbitrary::{Result, Unstructured};
use std::collections::BTreeMap;

const LEN: i64 = 96;
const LOCALS: i64 = 4;

/// Grows a kernel from random choices.
struct Grower<'a, 'b> {
    u: &'a mut Unstructured<'b>,
    /// Values in scope.
    ints: Vec<ExprId>,
    floats: Vec<ExprId>,
    x: BufId,
    local: BufId,
    left: u32,
}

impl Grower<'_, '_> {
    fn int(&mut self, b: &mut KernelBuilder) -> Result<ExprId> {
        use BinaryOp::*;
        if self.u.ratio(1, 3)? {
            return Ok(b.int(self.u.int_in_range(-3..=9)?));
        }
        let mut value = *self.u.choose(&self.ints)?;
        for _ in 0..self.u.int_in_range(0..=2)? {
            let other = *self.u.choose(&self.ints)?;
            let op = *self.u.choose(&[Add, Sub, Mul, Minimum, Maximum, Mod, Div, BitwiseXor])?;
            value = b.exprs().binary(op, value, other);
        }
        Ok(value)
    }

    /// An index in `0..bound`.
    fn index(&mut self, b: &mut KernelBuilder, bound: i64) -> Result<ExprId> {
        if self.u.ratio(1, 3)? {
            return Ok(b.int(self.u.int_in_range(0..=bound - 1)?));
        }
        let (any, bound) = (self.int(b)?, b.int(bound));
        // ((any % bound) + bound) % bound, as % keeps the sign.
        let rest = b.exprs().binary(BinaryOp::Mod, any, bound);
        let shifted = b.exprs().binary(BinaryOp::Add, rest, bound);
        let index = b.exprs().binary(BinaryOp::Mod, shifted, bound);
        Ok(b.exprs().as_index(index))
    }

    fn condition(&mut self, b: &mut KernelBuilder) -> Result<ExprId> {
        use BinaryOp::*;
        let op = *self.u.choose(&[Lt, Le, Gt, Ge, Eq, Ne])?;
        if self.u.ratio(1, 4)? {
            let (p, q) = (self.float(b)?, self.float(b)?);
            return Ok(b.exprs().binary(op, p, q));
        }
        let (p, q) = (self.int(b)?, self.int(b)?);
        let one = b.exprs().binary(op, p, q);
        if self.u.ratio(1, 3)? {
            let (p, q) = (self.int(b)?, self.int(b)?);
            let two = b.exprs().binary(Lt, p, q);
            return Ok(b.exprs().and(one, two));
        }
        Ok(one)
    }

    fn float(&mut self, b: &mut KernelBuilder) -> Result<ExprId> {
        use BinaryOp::*;
        let mut value = *self.u.choose(&self.floats)?;
        for _ in 0..self.u.int_in_range(0..=2)? {
            let other = *self.u.choose(&self.floats)?;
            value = match self.u.int_in_range(0..=6)? {
                0 => {
                    let int = self.int(b)?;
                    b.exprs().cast(int, DType::F32)
                }
                1 => {
                    let (p, q) = (self.int(b)?, self.int(b)?);
                    let less = b.exprs().binary(Lt, p, q);
                    b.exprs().ternary(TernaryOp::Where, less, value, other)
                }
                2 => b.exprs().unary(UnaryOp::Neg, value),
                n => b.exprs().binary([Add, Sub, Mul, Maximum][n as usize - 3], value, other),
            };
        }
        Ok(value)
    }

    fn block(&mut self, b: &mut KernelBuilder, depth: u32) -> Result<()> {
        let (ints, floats) = (self.ints.len(), self.floats.len());
        for _ in 0..self.u.int_in_range(1..=4)? {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            self.statement(b, depth)?;
        }
        // What a block defines is not visible after it.
        self.ints.truncate(ints);
        self.floats.truncate(floats);
        Ok(())
    }

    fn statement(&mut self, b: &mut KernelBuilder, depth: u32) -> Result<()> {
        match self.u.int_in_range(0..=if depth == 0 { 4 } else { 8 })? {
            0 => {
                let value = self.int(b)?;
                let value = b.let_("i", value);
                self.ints.push(value);
            }
            1 => {
                let value = self.float(b)?;
                let value = b.let_("f", value);
                self.floats.push(value);
            }
            2 => {
                let at = self.index(b, LEN)?;
                let value = b.load("x", self.x, at);
                self.floats.push(value);
            }
            3 => {
                let at = self.index(b, LOCALS)?;
                let value = b.load("l", self.local, at);
                self.floats.push(value);
            }
            4 | 5 => {
                let (at, value) = (self.index(b, LOCALS)?, self.float(b)?);
                b.store(self.local, at, value);
            }
            6 => {
                let condition = self.condition(b)?;
                let two = self.u.arbitrary::<bool>()?;
                self.branch(b, condition, two, depth)?;
            }
            _ => {
                let start = if self.u.ratio(1, 2)? { b.int(0) } else { self.index(b, 3)? };
                let end = if self.u.ratio(1, 2)? { b.int(self.u.int_in_range(0..=5)?) } else { self.index(b, 6)? };
                let step = self.u.int_in_range(1..=2)?;
                let constant = b.exprs().as_int(start).is_some() && b.exprs().as_int(end).is_some();
                let unroll = if constant && self.u.arbitrary()? { Unroll::Full } else { Unroll::No };
                let result = b.for_("j", (start, end, step), unroll, |b, j| {
                    self.ints.push(b.exprs().as_data(j));
                    let result = self.block(b, depth - 1);
                    self.ints.pop();
                    result
                });
                result?;
            }
        }
        Ok(())
    }

    fn branch(&mut self, b: &mut KernelBuilder, condition: ExprId, two: bool, depth: u32) -> Result<()> {
        let (first, then) = b.nested(|b| self.block(b, depth - 1));
        let (second, otherwise) = b.nested(|b| if two { self.block(b, depth - 1) } else { Ok(()) });
        if b.exprs().as_bool(condition).is_none() {
            b.emit(StmtKind::If { condition, then, otherwise });
        }
        first.and(second)
    }
}

fn grow(u: &mut Unstructured<'_>) -> Result<(Kernel, u32)> {
    let index_type = if u.arbitrary()? { DType::I32 } else { DType::I64 };
    let mut b = KernelBuilder::new("k", index_type);
    let n = b.size("n", 0, 0);
    let x = b.input("x", 0, DType::F32, n, 16);
    let y = b.output("y", 0, DType::F32, n, 16);
    let threads = *u.choose(&[32, 48, 16])?;
    let (bx, tx) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
    let (bx, tx) = (b.exprs().cast(bx, index_type), b.exprs().cast(tx, index_type));
    let width = b.int(threads.into());
    let base = b.exprs().mul(bx, width);
    let i = b.exprs().add(base, tx);
    let local = b.local("l", DType::F32, LOCALS);
    for j in 0..LOCALS {
        let j = b.int(j);
        let at = b.exprs().add(i, j);
        let length = b.int(LEN);
        let at = b.exprs().rem(at, length);
        let v = b.load("v", x, at);
        b.store(local, j, v);
    }
    let zero = b.int(0);
    let seed = b.load("seed", local, zero);
    let ints = [tx, i, n].map(|place| b.exprs().as_data(place)).to_vec();
    let mut grower = Grower { u, ints, floats: vec![seed], x, local, left: 24 };
    while grower.left > 0 && !grower.u.is_empty() {
        grower.block(&mut b, 3)?;
        grower.left = grower.left.saturating_sub(1);
    }
    let mut sum = seed;
    for j in 0..LOCALS {
        let j = b.int(j);
        let v = b.load("r", local, j);
        sum = b.exprs().add(sum, v);
    }
    b.store(y, i, sum);
    let blocks = b.int(LEN / i64::from(threads));
    Ok((b.finish_1d(blocks, threads), threads))
}

/// One thread, step by step, by the meaning of the IR.
struct Plain<'a> {
    kernel: &'a Kernel,
    thread: i64,
    block: i64,
    vars: BTreeMap<VarId, Value>,
    local: Vec<Value>,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl Plain<'_> {
    fn eval(&self, id: ExprId) -> Value {
        let node = self.kernel.exprs[id];
        let dtype = |id| self.kernel.exprs.dtype(id);
        match node.expr {
            Expr::Const(value) => value,
            Expr::Param(_) => Value::Int(LEN),
            Expr::Special(Special::ThreadIdx(_)) => Value::Int(self.thread),
            Expr::Special(_) => Value::Int(self.block),
            Expr::Var(var) => self.vars[&var],
            Expr::Unary(op, a) => eval::unary(op, dtype(a), self.eval(a)),
            Expr::Binary(op, a, b) => eval::binary(op, dtype(a), self.eval(a), self.eval(b)),
            Expr::Ternary(op, a, b, c) => eval::ternary(op, node.dtype, self.eval(a), self.eval(b), self.eval(c)),
            Expr::Cast(a) => eval::cast(dtype(a), node.dtype, self.eval(a)),
            Expr::Approx(op, a) => Value::Float(op.eval()(self.eval(a).as_f64())),
            Expr::Index(op, a, b) => match self.kernel.exprs.mask_of(op, b) {
                Some(mask) => Value::Int(self.eval(a).as_i64() & mask),
                None => eval::binary(op.as_binary(), dtype(a), self.eval(a), self.eval(b)),
            },
            Expr::Rounded(a) | Expr::AsData(a) | Expr::AsIndex(a) => self.eval(a),
        }
    }

    fn place(&self, access: &Access) -> (Space, usize) {
        let buffer = &self.kernel.buffers[access.buffer];
        (buffer.space, self.eval(access.index).as_i64() as usize)
    }

    fn run(&mut self, block: &Block) {
        for stmt in block {
            match &stmt.kind {
                StmtKind::Let { var, value } => {
                    self.vars.insert(*var, self.eval(*value));
                }
                StmtKind::Load { var, from, .. } => {
                    let value = match self.place(from) {
                        (Space::Local, i) => self.local[i],
                        (_, i) => Value::Float(self.x[i].into()),
                    };
                    self.vars.insert(*var, value);
                }
                StmtKind::Store { to, value, .. } => {
                    let value = self.eval(*value);
                    match self.place(to) {
                        (Space::Local, i) => self.local[i] = value,
                        (_, i) => self.y[i] = value.as_f64() as f32,
                    }
                }
                StmtKind::For { var, start, end, step, body, .. } => {
                    let (mut counter, end) = (self.eval(*start).as_i64(), self.eval(*end).as_i64());
                    while counter < end {
                        self.vars.insert(*var, Value::Int(counter));
                        self.run(body);
                        counter += step;
                    }
                }
                StmtKind::If { condition, then, otherwise } => {
                    self.run(if self.eval(*condition).as_bool() { then } else { otherwise });
                }
                other => panic!("the generator makes no {other:?}"),
            }
        }
    }
}

fn plain(kernel: &Kernel, threads: u32, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    for i in 0..LEN {
        let (thread, block) = (i % i64::from(threads), i / i64::from(threads));
        let local = vec![Value::Float(0.0); LOCALS as usize];
        Plain { kernel, thread, block, vars: BTreeMap::new(), local, x, y: &mut y }.run(&kernel.body);
    }
    y
}

#[test]
fn random_kernels_agree_with_a_plain_interpreter() {
    let x: Vec<f32> = (0..LEN).map(|i| (i * 37 % 29) as f32 / 4.0 - 3.0).collect();
    let bytes = f32_bytes(&x);
    let (mut kernels, mut divergent, mut instructions) = (0, 0, 0);
    crate::property::property(|u| {
        let (kernel, threads) = grow(u)?;
        verify(&kernel).unwrap_or_else(|error| panic!("{error}"));
        let expected = plain(&kernel, threads, &x);
        let text = crate::kernel::print(&kernel);
        let prepared = Prepared::new(kernel, DType::F32, LEN as usize, bytes.clone());
        let base = SimOptions { threads: 1, ..SimOptions::default() };
        for options in
            [base, SimOptions { detect: false, ..base }, SimOptions { schedule: SimSchedule::Random, ..base }]
        {
            let (actual, report) = prepared.run(&options).unwrap_or_else(|error| panic!("{text}\n{error}"));
            kernels += 1;
            divergent += u64::from(report.counters.divergent_branches > 0);
            instructions += report.counters.total_warp_instructions();
            for (i, (actual, expected)) in to_f32(&actual).iter().zip(&expected).enumerate() {
                let same = actual == expected || actual.is_nan() && expected.is_nan();
                assert!(same, "thread {i}: {actual}, expected {expected}, under {options:?}\n{text}");
            }
        }
        Ok(())
    })
    .cases(2000);
    println!(
        "{kernels} runs, {divergent} with divergent branches, {} instructions each",
        instructions / kernels.max(1)
    );
    assert!(divergent * 20 > kernels, "the generator makes branches that lanes take differently");
}
