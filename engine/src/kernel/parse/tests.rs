//! Round trips and refusals.

use super::{check_text, parse};
use crate::kernel::{Expr, IndexOp, Kernel, KernelBuilder, bind, print, verify};
use crate::num::{BinaryOp, DType, Value};
use crate::tensor::{ArgMeta, TensorMeta};

fn without_comments(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", line.split("//").next().unwrap_or("").trim_end())).collect()
}

/// The kernel's text reads back as the same text.
#[track_caller]
fn check_round_trip(kernel: &Kernel) -> Kernel {
    let text = without_comments(&print(kernel));
    let read = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(print(&read), text);
    check_text(kernel, &print(kernel)).unwrap();
    read
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = parse(text).unwrap_err();
    assert_eq!(error.code.0, "E0101", "{error}");
    assert!(error.message.contains(expected), "{error}");
}

/// Every form of statement, parameter and buffer.
const ALL: &str = "\
kernel all index i64 {
  param n: i64 = size(0, 0) multiple of 8 at most 64
  param s: i64 = stride(0, 0)
  param alpha: f32 = scalar(1)
  param half: f32 = alpha * 0.5f32
  param scalar: i64 = n
  param size: i64 = scalar * 3
  param *x = input(0)
  param *y = output(0)
  param *done = workspace
  global x: bf16[n * s] align 16
  global y: f32[n] align 16
  global done: i32[1] align 4 zeroed
  shared tile: f32[64] align 16
  local lanes: bf16[8] align 16
  launch grid (ceildiv(n, 256), 1, 1) block (32, 1, 1) max_threads 32 min_blocks 2 cooperative
  move.streaming bf16x8 lanes[0] = x[i64(blockIdx.x) * 8]
  for i.v0: i64 in 0..8 unroll {
    let v: bf16 = load lanes[i.v0]
    let e: f32 = exp.fast(f32(v)) * alpha - -1.5f32
    if e < inff32 && !(e) {
      store tile[i.v0] = where(isnan(e), half, e)
    }
    else {
      store tile[i.v0] = -inff32
    }
  }
  sync block
  fence grid
  let t: f32 = load.global y[0] at least 0.5f32
  let load: f32 = shuffle xor t, 4i32
  let copy: f32 = load
  let old: i32 = atomic inc done[0], 1i32
  atomic add done[0], old & 255i32 ^ 3i32
  for i.v7: i32 in threadIdx.x..5i32 step 2 unroll 2 {
    sync warp
  }
  random a: f32, b: f32, c: f32, d: f32 = as_data(n), as_data(s) - 1, as_data(i64(threadIdx.x))
  random big: f64, random: f64 = 7, as_data(n), 8
  store y[n - (s - 1)] = nan:7ff8000000000000:f32
}
";

#[test]
fn every_form_reads_back() {
    let text = ALL.replace("!(e)", "logical_not(e)");
    let kernel = parse(&text).unwrap();
    assert_eq!(print(&kernel), text);
    check_round_trip(&kernel);
}

#[test]
fn arithmetic_is_that_of_its_operands() {
    let text = "\
kernel k index i64 {
  param n: i64 = size(0, 0)
  param s: i64 = scalar(1)
  param parts: i64 = ceildiv(n, as_index(s))
  param rest: i64 = s % (as_data(n) * 3)
  launch grid (parts, 1, 1) block (32, 1, 1) max_threads 32 min_blocks 1
  let exp: f32 = 1.0f32
  let e: f32 = exp(exp)
  for i: i64 in 0..minimum(n, 9) {
    let a: i64 = i / 4 % 3 + index.add(1, 2)
    let b: i64 = as_data(i + a) / 4 - s
    if i < a && as_data(i) < b {
      let c: i64 = as_index(b) * 2 + index.mul(1, 2)
    }
  }
}
";
    let kernel = parse(text).unwrap();
    assert_eq!(print(&kernel), text);
    verify(&kernel).unwrap();
    let count = |wanted: fn(&Expr) -> bool| kernel.exprs.iter().filter(|(_, node)| wanted(&node.expr)).count();
    assert_eq!(count(|expr| matches!(expr, Expr::Index(..))), 10);
    assert_eq!(count(|expr| matches!(expr, Expr::AsData(_))), 3);
    assert_eq!(count(|expr| matches!(expr, Expr::AsIndex(_))), 2);
}

#[test]
fn mixed_operands_read_back_as_what_they_were() {
    let mut b = KernelBuilder::new("k", DType::I32);
    let (n, one, two) = (b.size("n", 0, 0), b.int(1), b.int(2));
    for expr in [
        Expr::Binary(BinaryOp::Add, n, one),
        Expr::Index(IndexOp::Add, one, two),
        Expr::Binary(BinaryOp::Add, one, two),
        Expr::Index(IndexOp::CeilDiv, one, two),
        Expr::Index(IndexOp::Max, n, two),
    ] {
        let value = b.exprs().intern(expr, DType::I32);
        b.let_("v", value);
    }
    let kernel = b.finish_1d(one, 1);
    let read = check_round_trip(&kernel);
    let formulas = |kernel: &Kernel| -> Vec<_> {
        let operations = kernel.exprs.iter().map(|(_, node)| node.expr).filter(|expr| !expr.is_leaf());
        operations.map(|expr| expr.map_operands(|_| one)).collect()
    };
    assert_eq!(formulas(&kernel), formulas(&read));
}

#[test]
fn a_kernel_may_be_written_by_hand() {
    let kernel = parse(
        "kernel scale index i32 {
           param n: i32 = size(0, 0)
           param *x = input(0)
           param *y = output(0)
           global x: f32[n] align 4   // comments say where a statement came from
           global y: f32[n] align 4
           launch grid (ceildiv(n, 64), 1, 1) block (64, 1, 1) max_threads 64 min_blocks 1

           let i: i32 = blockIdx.x * 64 + threadIdx.x
           if i < n {
             let v: f32 = load x[i]
             store y[i] = v * 3.0f32
           }
         }",
    )
    .unwrap();
    verify(&kernel).unwrap();
    let meta = ArgMeta::Tensor(TensorMeta::contiguous(DType::F32, &[100]));
    assert_eq!(bind(&kernel, &[meta]).unwrap().grid, [2, 1, 1]);
}

#[test]
fn large_expressions_come_back_from_their_pieces() {
    let mut b = KernelBuilder::new("deep", DType::I64);
    let mut e = b.size("n", 0, 0);
    for _ in 0..300 {
        e = b.exprs().intern(Expr::Binary(BinaryOp::Add, e, e), DType::I64);
    }
    b.let_("v", e);
    let one = b.int(1);
    let kernel = b.finish_1d(one, 1);
    // Numbers of pieces differ, what they say does not.
    let read = parse(&print(&kernel)).unwrap();
    assert_eq!(print(&read), print(&parse(&print(&read)).unwrap()));
    assert_eq!(read.exprs.iter().filter(|(_, node)| matches!(node.expr, Expr::Binary(..))).count(), 300);
}

#[test]
fn constants_keep_every_bit() {
    let values = [0.1, -0.0, 1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN];
    let mut b = KernelBuilder::new("c", DType::I32);
    for (i, value) in values.into_iter().enumerate() {
        let constant = b.exprs().value(Value::Float(value), DType::F64);
        let (var, _) = b.var(format!("v{i}"), DType::F64);
        b.emit(crate::kernel::StmtKind::Let { var, value: constant });
    }
    let one = b.int(1);
    let read = check_round_trip(&b.finish_1d(one, 1));
    for (value, stmt) in values.into_iter().zip(&read.body) {
        let crate::kernel::StmtKind::Let { value: expr, .. } = stmt.kind else { panic!("a `let` was written") };
        assert_eq!(read.exprs[expr].expr, Expr::Const(Value::Float(value)));
    }
}

#[test]
fn refusals_name_the_place() {
    check_refused("", "expected `kernel`");
    check_refused("kernel k index i32 {", "not closed");
    check_refused("kernel k index i32 {\n}", "no `launch`");
    let with = |line: &str| {
        format!(
            "kernel k index i32 {{\nlocal a: f32[8] align 4\nlaunch grid (1, 1, 1) block (1, 1, 1) max_threads 1 min_blocks 1\n{line}\n}}\n"
        )
    };
    for (line, expected) in [
        ("let v: f99 = 1", "`f99` is no data type"),
        ("let v: i32 = w", "`w` is not declared"),
        ("let v: i32 = foo(1, 2)", "no operation `foo` takes 2 operands"),
        ("let a: i32 = 1", "`a` is declared twice"),
        ("let v: i32 = #3", "piece #3 is not defined"),
        ("let v: i32 = (1", "expected `)`"),
        ("let v: i32 = 99999999999999999999", "out of range"),
        ("store b[0] = 1", "there is no buffer `b`"),
        ("jump a", "`jump` begins no statement"),
        ("sync galaxy", "expected a scope"),
        ("else {\n}", "`else` without `if`"),
        ("}", "closes nothing"),
        ("if true {", "is not closed"),
        ("sync block block", "expected the end of the line"),
    ] {
        check_refused(&with(line), expected);
    }
    let deep = format!("let v: i32 = {}1{}", "(".repeat(5000), ")".repeat(5000));
    check_refused(&with(&deep), "nested more than");
    let error = parse(&with("let v: i32 = w")).unwrap_err();
    let span = error.labels[0].span;
    assert_eq!(&with("let v: i32 = w")[span.start as usize..span.end as usize], "w");
}

#[test]
fn damaged_texts_are_refused_without_panicking() {
    crate::property::property(|u| {
        let mut bytes = ALL.as_bytes().to_vec();
        for _ in 0..u.int_in_range(1..=6)? {
            let at = u.int_in_range(0..=bytes.len().saturating_sub(1))?;
            if bytes.is_empty() {
                break;
            }
            match u.int_in_range(0..=2)? {
                0 => bytes[at] = *u.choose(b" (){}[].,:#-=x0a9\n")?,
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(kernel) = parse(&String::from_utf8_lossy(&bytes)) {
            let _ = verify(&kernel);
        }
        Ok(())
    });
}
