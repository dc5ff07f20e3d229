//! Elementwise operations: a row for each scalar operation, `cast` and `set`.

use super::args::Args;
use super::py_form::{PyArgs, PyForm, PyResult};
use super::row::{OpParam, OpParamKind, OpRow, ScalarOp, req};
use crate::diag::{Diagnostic, Result};
use crate::fusion::{FusionBuilder, Operand};
use crate::num::{BinaryOp, TernaryOp, UnaryOp};

const X: &[OpParam] = &[req("x", OpParamKind::Value)];
const AB: &[OpParam] = &[req("a", OpParamKind::Value), req("b", OpParamKind::Value)];
const WHERE: &[OpParam] =
    &[req("condition", OpParamKind::Value).untyped(), req("a", OpParamKind::Value), req("b", OpParamKind::Value)];
const CLAMP: &[OpParam] = &[
    req("x", OpParamKind::Value),
    req("low", OpParamKind::Value).py("min"),
    req("high", OpParamKind::Value).py("max"),
];
const LERP: &[OpParam] =
    &[req("start", OpParamKind::Value), req("end", OpParamKind::Value), req("weight", OpParamKind::Value)];
const THRESHOLD: &[OpParam] = &[
    req("x", OpParamKind::Value),
    req("t", OpParamKind::Value).py("threshold"),
    req("v", OpParamKind::Value).py("value"),
];

const SOURCE: &str = "N§2, PyTorch's operation of the name";

const fn unary_row(op: UnaryOp) -> OpRow {
    use UnaryOp::{Abs, Ceil, Floor, Frac, Real, Relu, Round, Sign, Silu, Trunc};
    let py = match op {
        Abs | Ceil | Floor | Frac | Real | Relu | Round | Sign | Silu | Trunc => PyForm::result(PyResult::First),
        _ => PyForm::SAME,
    };
    OpRow { scalar: ScalarOp::Unary(op), py, ..OpRow::composite(op.name(), X, build, op.doc(), SOURCE) }
}

const fn binary_row(op: BinaryOp) -> OpRow {
    let py = match op {
        BinaryOp::CeilDiv => PyForm::named(&["ceilDiv"]),
        _ => PyForm::SAME,
    };
    OpRow { scalar: ScalarOp::Binary(op), py, ..OpRow::composite(op.name(), AB, build, op.doc(), SOURCE) }
}

const fn ternary_row(op: TernaryOp) -> OpRow {
    let params = match op {
        TernaryOp::Where => WHERE,
        TernaryOp::Clamp => CLAMP,
        TernaryOp::Lerp => LERP,
        TernaryOp::Threshold => THRESHOLD,
    };
    let py = match op {
        TernaryOp::Where => PyForm::result(PyResult::Chosen),
        TernaryOp::Clamp | TernaryOp::Threshold => PyForm { result: PyResult::First, ..PyForm::args(PyArgs::Bounds) },
        TernaryOp::Lerp => PyForm::SAME,
    };
    OpRow { scalar: ScalarOp::Ternary(op), py, ..OpRow::composite(op.name(), params, build, op.doc(), SOURCE) }
}

macro_rules! rows {
    ($op:ident, $row:ident) => {{
        const COUNT: usize = $op::ALL.len();
        const ROWS: [OpRow; COUNT] = {
            let mut rows = [$row($op::ALL[0]); COUNT];
            let mut i = 1;
            while i < COUNT {
                rows[i] = $row($op::ALL[i]);
                i += 1;
            }
            rows
        };
        &ROWS
    }};
}

/// A row for each [`UnaryOp`].
pub(super) const UNARY: &[OpRow] = rows!(UnaryOp, unary_row);
/// A row for each [`BinaryOp`].
pub(super) const BINARY: &[OpRow] = rows!(BinaryOp, binary_row);
/// A row for each [`TernaryOp`].
pub(super) const TERNARY: &[OpRow] = rows!(TernaryOp, ternary_row);

/// Elementwise operations that are not computations.
pub(super) const OTHERS: &[OpRow] = &[
    OpRow::composite(
        "cast",
        &[req("x", OpParamKind::Value), req("to", OpParamKind::BareDType).py("dtype")],
        cast,
        "x converted to a data type.",
        "N§2",
    ),
    OpRow::composite("set", &[req("x", OpParamKind::Tensor)], set, "A copy of x.", "N§2"),
];

fn build(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let operand = |position: usize| args.src(args.row().params[position].name);
    let result = match args.row().scalar {
        ScalarOp::Unary(op) => b.unary(op, operand(0)?)?,
        ScalarOp::Binary(op) => b.binary(op, operand(0)?, operand(1)?)?,
        ScalarOp::Ternary(op) => b.ternary(op, operand(0)?, operand(1)?, operand(2)?)?,
        ScalarOp::Reduce(_) | ScalarOp::None => {
            return Err(Diagnostic::bug(format!("{} is no elementwise row", args.row().name)));
        }
    };
    Ok(vec![result])
}

fn cast(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    let to = args.dtype("to").ok_or_else(|| Diagnostic::bug("cast: the data type was checked"))?;
    Ok(vec![b.cast(args.src("x")?, to)?])
}

fn set(b: &mut FusionBuilder, args: &Args) -> Result<Vec<Operand>> {
    Ok(vec![b.set(args.src("x")?)?])
}
