//! Declarations and statements as text.

use super::expr::{ExprPrinter, constant, piece_name};
use crate::kernel::ir::{Access, Block, BufId, Kernel, ParamKind, Stmt, StmtKind, Unroll};
use crate::kernel::words::{ATOMICS, HINTS, SCOPES, SHUFFLES, SPACES, word};
use crate::num::DType;
use std::fmt::Write;

/// The whole kernel.
pub fn print(kernel: &Kernel) -> String {
    let mut printer = KernelPrinter { kernel, exprs: ExprPrinter::new(kernel), out: String::new(), indent: 1 };
    let _ = writeln!(printer.out, "kernel {} index {} {{", kernel.name, kernel.index_type);
    printer.declarations();
    printer.launch();
    printer.block(&kernel.body);
    printer.pieces();
    printer.out.push_str("}\n");
    printer.out
}

/// One statement on one line; nested blocks appear as `{ .. }`. For messages.
pub fn print_stmt(kernel: &Kernel, stmt: &Stmt) -> String {
    let mut printer = KernelPrinter { kernel, exprs: ExprPrinter::new(kernel), out: String::new(), indent: 0 };
    let mut line = printer.head(&stmt.kind);
    if !blocks_of(&stmt.kind).is_empty() {
        line.push_str(" { .. }");
    }
    line
}

struct KernelPrinter<'a> {
    kernel: &'a Kernel,
    exprs: ExprPrinter<'a>,
    out: String,
    indent: usize,
}

fn blocks_of(kind: &StmtKind) -> Vec<&Block> {
    match kind {
        StmtKind::For { body, .. } => vec![body],
        StmtKind::If { then, otherwise, .. } => vec![then, otherwise],
        _ => Vec::new(),
    }
}

impl KernelPrinter<'_> {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:width$}{text}", "", width = self.indent * 2);
    }

    fn declarations(&mut self) {
        for (id, param) in self.kernel.params.iter() {
            let source = match param.kind {
                ParamKind::Input { input, buffer } => format!("{} = input({input})", self.exprs.names.buffer(buffer)),
                ParamKind::Output { output, buffer } => {
                    format!("{} = output({output})", self.exprs.names.buffer(buffer))
                }
                ParamKind::Workspace { buffer } => format!("{} = workspace", self.exprs.names.buffer(buffer)),
                ParamKind::Size { input, axis } => format!("size({input}, {axis})"),
                ParamKind::Stride { input, axis } => format!("stride({input}, {axis})"),
                ParamKind::Scalar { input } => format!("scalar({input})"),
                ParamKind::Derived(expr) => self.exprs.root(expr),
                ParamKind::Reciprocal(divisor) => format!("reciprocal({})", self.exprs.root(divisor)),
            };
            let text = match param.dtype {
                Some(dtype) => {
                    let fact = match param.multiple_of {
                        1 => String::new(),
                        factor => format!(" multiple of {factor}"),
                    };
                    let most = param.at_most.map_or_else(String::new, |most| format!(" at most {most}"));
                    format!("param {}: {dtype} = {source}{fact}{most}", self.exprs.names.param(id))
                }
                None => format!("param *{source}"),
            };
            self.line(&text);
        }
        for (id, buffer) in self.kernel.buffers.iter() {
            let space = word(SPACES, buffer.space);
            let start = if buffer.start > 0 { format!(" start {}", buffer.start) } else { String::new() };
            let text = format!(
                "{space} {}: {}[{}] align {}{start}{}",
                self.exprs.names.buffer(id),
                buffer.dtype,
                self.exprs.root(buffer.len),
                buffer.align,
                if buffer.zeroed { " zeroed" } else { "" }
            );
            self.line(&text);
        }
    }

    fn launch(&mut self) {
        let launch = &self.kernel.launch;
        let mut dims = |exprs: [_; 3]| exprs.map(|e| self.exprs.root(e)).join(", ");
        let (grid, block) = (dims(launch.grid), dims(launch.block));
        let cooperative = if launch.cooperative { " cooperative" } else { "" };
        let text = format!(
            "launch grid ({grid}) block ({block}) max_threads {} min_blocks {}{cooperative}",
            launch.max_threads, launch.min_blocks
        );
        self.line(&text);
    }

    fn pieces(&mut self) {
        let mut first = true;
        while let Some((id, text)) = self.exprs.next_piece() {
            if std::mem::take(&mut first) {
                self.line("where");
            }
            self.line(&format!("{} = {text}", piece_name(id)));
        }
    }

    fn block(&mut self, block: &Block) {
        for stmt in block {
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        let head = self.head(&stmt.kind);
        let origin = origin(stmt);
        match &stmt.kind {
            StmtKind::For { body, .. } => {
                self.line(&format!("{head} {{{origin}"));
                self.nested(body);
            }
            StmtKind::If { then, otherwise, .. } => {
                self.line(&format!("{head} {{{origin}"));
                self.nested(then);
                if !otherwise.is_empty() {
                    self.line("else {");
                    self.nested(otherwise);
                }
            }
            _ => self.line(&format!("{head}{origin}")),
        }
    }

    fn nested(&mut self, block: &Block) {
        self.indent += 1;
        self.block(block);
        self.indent -= 1;
        self.line("}");
    }

    fn access(&mut self, access: Access) -> String {
        format!("{}[{}]", self.exprs.names.buffer(access.buffer), self.exprs.root(access.index))
    }

    fn buffer_type(&self, buffer: BufId) -> &'static str {
        self.kernel.buffers.get(buffer).map_or("?", |b| b.dtype.name())
    }

    fn var(&self, var: crate::kernel::ir::VarId) -> String {
        let dtype = self.kernel.vars.get(var).map_or("?", |v| v.dtype.name());
        format!("{}: {dtype}", self.exprs.names.var(var))
    }

    /// A statement without its nested blocks.
    fn head(&mut self, kind: &StmtKind) -> String {
        match *kind {
            StmtKind::Let { var, value } => format!("let {} = {}", self.var(var), self.exprs.root(value)),
            StmtKind::Load { var, from, hint } => {
                let least = self.kernel.vars.get(var).and_then(|var| var.at_least).map_or_else(String::new, |least| {
                    format!(" at least {}", constant(least, DType::F32, self.kernel.index_type))
                });
                format!("let {} = load{} {}{least}", self.var(var), word(HINTS, hint), self.access(from))
            }
            StmtKind::Store { to, value, hint } => {
                format!("store{} {} = {}", word(HINTS, hint), self.access(to), self.exprs.root(value))
            }
            StmtKind::Move { to, from, lanes, hint, aligned } => {
                let dtype = self.buffer_type(to.buffer);
                let name = if aligned { "move" } else { "move_unaligned" };
                format!("{name}{} {dtype}x{lanes} {} = {}", word(HINTS, hint), self.access(to), self.access(from))
            }
            StmtKind::CopyAsync { to, from, lanes, hint } => {
                let dtype = self.buffer_type(to.buffer);
                format!("copy_async{} {dtype}x{lanes} {} = {}", word(HINTS, hint), self.access(to), self.access(from))
            }
            StmtKind::CommitGroup => "commit_group".into(),
            StmtKind::WaitGroup { open } => format!("wait_group {open}"),
            StmtKind::For { var, start, end, step, unroll, .. } => {
                let range = format!("{}..{}", self.exprs.root(start), self.exprs.root(end));
                let step = if step == 1 { String::new() } else { format!(" step {step}") };
                let unroll = match unroll {
                    Unroll::No => String::new(),
                    Unroll::Full => " unroll".into(),
                    Unroll::By(factor) => format!(" unroll {factor}"),
                };
                format!("for {} in {range}{step}{unroll}", self.var(var))
            }
            StmtKind::If { condition, .. } => format!("if {}", self.exprs.root(condition)),
            StmtKind::Shuffle { var, value, mode, lane } => {
                let (value, lane) = (self.exprs.root(value), self.exprs.root(lane));
                format!("let {} = shuffle {} {value}, {lane}", self.var(var), word(SHUFFLES, mode))
            }
            StmtKind::Random { ref vars, seed, offset, subsequence } => {
                let vars: Vec<String> = vars.iter().map(|var| self.var(*var)).collect();
                let operands = [seed, offset, subsequence].map(|operand| self.exprs.root(operand));
                format!("random {} = {}", vars.join(", "), operands.join(", "))
            }
            StmtKind::Sync(scope) => format!("sync {}", word(SCOPES, scope)),
            StmtKind::Fence(scope) => format!("fence {}", word(SCOPES, scope)),
            StmtKind::Atomic { var, op, to, value } => {
                let old = var.map_or_else(String::new, |var| format!("let {} = ", self.var(var)));
                format!("{old}atomic {} {}, {}", word(ATOMICS, op), self.access(to), self.exprs.root(value))
            }
        }
    }
}

fn origin(stmt: &Stmt) -> String {
    match (stmt.origin.tensor, stmt.origin.pass) {
        (None, "") => String::new(),
        (None, pass) => format!("  // {pass}"),
        (Some(tensor), "") => format!("  // {tensor}"),
        (Some(tensor), pass) => format!("  // {tensor} {pass}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{AtomicOp, CacheHint, Dim, KernelBuilder, Scope, ShuffleMode};
    use crate::num::{BinaryOp, UnaryOp, Value};
    use expect_test::{Expect, expect};

    fn check_print(kernel: &Kernel, expected: Expect) {
        expected.assert_eq(&print(kernel));
        assert_eq!(print(kernel), print(&kernel.clone()));
    }

    #[test]
    fn every_statement_has_a_text() {
        let mut b = KernelBuilder::new("all", DType::I64);
        let n = b.size("n", 0, 0);
        b.assume_multiple_of(n, 8);
        b.assume_at_most(n, 4096);
        let alpha = b.scalar("alpha", 1, DType::F32);
        let x = b.input("x", 0, DType::BF16, n, 16);
        let y = b.output("y", 0, DType::F32, n, 16);
        let count = b.int(1);
        let done = b.workspace("done", DType::I32, count, 4, true);
        let tile = b.shared("tile", DType::F32, 64, 16);
        let lanes = b.local("lanes", DType::BF16, 8);
        let (bx, tx) = (b.exprs().block_idx(Dim::X), b.exprs().thread_idx(Dim::X));
        let base = b.exprs().cast(bx, DType::I64);
        let eight = b.int(8);
        let base = b.exprs().mul(base, eight);
        let zero = b.int(0);
        b.set_origin(None, "load");
        b.mov((lanes, zero), (x, base), 8, CacheHint::Streaming);
        b.count("i", eight, Unroll::Full, |b, i| {
            let v = b.load("v", lanes, i);
            let v = b.exprs().cast(v, DType::F32);
            let v = b.exprs().unary(UnaryOp::Exp, v);
            let scaled = b.exprs().binary(BinaryOp::Mul, v, alpha);
            let v = b.let_("v", scaled);
            b.store(tile, i, v);
        });
        b.sync(Scope::Block);
        b.fence(Scope::Grid);
        let v = b.load_hinted("t", tile, zero, CacheHint::Global);
        let four = b.exprs().int(4, DType::I32);
        let v = b.shuffle("s", v, ShuffleMode::Xor, four);
        let one = b.exprs().int(1, DType::I32);
        let old = b.atomic("old", AtomicOp::Inc, (done, zero), one);
        b.atomic_drop(AtomicOp::Add, (done, zero), one);
        let last = b.exprs().binary(BinaryOp::Eq, old, four);
        let half = b.exprs().value(Value::Float(0.5), DType::F32);
        b.if_else(last, |b| b.store(y, base, v), |b| b.store_hinted(y, base, half, CacheHint::Streaming));
        let five = b.exprs().int(5, DType::I32);
        b.for_("i", (tx, five, 2), Unroll::By(2), |b, _| b.sync(Scope::Warp));
        let seed = b.exprs().int(9, DType::I64);
        let base = b.exprs().as_data(base);
        b.random("u", DType::F64, seed, eight, base);
        check_print(
            &b.finish_1d(n, 32),
            expect![[r#"
            kernel all index i64 {
              param n: i64 = size(0, 0) multiple of 8 at most 4096
              param alpha: f32 = scalar(1)
              param *x = input(0)
              param *y = output(0)
              param *done = workspace
              global x: bf16[n] align 16
              global y: f32[n] align 16
              global done: i32[1] align 4 zeroed
              shared tile: f32[64] align 16
              local lanes: bf16[8] align 16
              launch grid (n, 1, 1) block (32, 1, 1) max_threads 32 min_blocks 1
              move.streaming bf16x8 lanes[0] = x[i64(blockIdx.x) * 8]  // load
              for i.v0: i64 in 0..8 unroll {  // load
                let v.v1: bf16 = load lanes[i.v0]  // load
                let v.v2: f32 = exp(f32(v.v1)) * alpha  // load
                store tile[i.v0] = v.v2  // load
              }
              sync block  // load
              fence grid  // load
              let t: f32 = load.global tile[0]  // load
              let s: f32 = shuffle xor t, 4i32  // load
              let old: i32 = atomic inc done[0], 1i32  // load
              atomic add done[0], 1i32  // load
              if old == 4i32 {  // load
                store y[i64(blockIdx.x) * 8] = s  // load
              }
              else {
                store.streaming y[i64(blockIdx.x) * 8] = 0.5f32  // load
              }
              for i.v6: i32 in threadIdx.x..5i32 step 2 unroll 2 {  // load
                sync warp  // load
              }
              random u.v7: f64, u.v8: f64 = 9, 8, as_data(i64(blockIdx.x) * 8)  // load
            }
        "#]],
        );
    }

    #[test]
    fn parentheses_stand_only_where_needed() {
        let mut b = KernelBuilder::new("p", DType::I32);
        let (n, m) = (b.size("n", 0, 0), b.size("m", 0, 1));
        let sum = b.exprs().add(n, m);
        let product = b.exprs().mul(sum, m);
        let left = b.exprs().sub(product, n);
        let nested = b.exprs().sub(m, sum);
        let small = b.exprs().lt(left, nested);
        let equal = b.exprs().binary(BinaryOp::Eq, n, m);
        let both = b.exprs().and(small, equal);
        b.if_(both, |b| b.sync(Scope::Warp));
        check_print(
            &b.finish_1d(n, 1),
            expect![[r#"
            kernel p index i32 {
              param n: i32 = size(0, 0)
              param m: i32 = size(0, 1)
              launch grid (n, 1, 1) block (1, 1, 1) max_threads 1 min_blocks 1
              if (n + m) * m - n < m - (n + m) && n == m {
                sync warp
              }
            }
        "#]],
        );
    }

    #[test]
    fn a_shared_expression_is_not_written_out_exponentially() {
        let mut b = KernelBuilder::new("deep", DType::I64);
        let mut e = b.size("n", 0, 0);
        for _ in 0..5000 {
            e = b.exprs().intern(crate::kernel::ir::Expr::Binary(BinaryOp::Add, e, e), DType::I64);
        }
        b.let_("v", e);
        let one = b.int(1);
        let text = print(&b.finish_1d(one, 1));
        assert!(text.len() < 500_000, "{} bytes", text.len());
        assert!(text.contains("\n  where\n"));
    }
}
