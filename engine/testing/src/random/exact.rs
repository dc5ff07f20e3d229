//! Draws whose results are exact: integers, and floats under operations that
//! round once.

use super::grid::Grid;
use super::{DrawKind, Drawn, Measure};
use crate::data::Draw;
use engine::fusion::Operand;
use engine::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};
use engine::options::Options;

pub(super) const INTEGERS: &[DType] = &[
    DType::I32,
    DType::I64,
    DType::I64,
    DType::I8,
    DType::U8,
    DType::I32,
    DType::I16,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Index,
];
pub(super) const FLOATS: &[DType] = &[
    DType::F32,
    DType::BF16,
    DType::F64,
    DType::F16,
    DType::F32,
    DType::F8E4M3FN,
    DType::F8E5M2,
    DType::F8E8M0FNU,
    DType::F4E2M1FN,
];

/// Of integers; what has no integer form is left out.
const INTEGER_UNARY: &[UnaryOp] = &[
    UnaryOp::Abs,
    UnaryOp::Neg,
    UnaryOp::BitwiseNot,
    UnaryOp::Relu,
    UnaryOp::Sign,
    UnaryOp::LogicalNot,
    UnaryOp::Signbit,
];
const INTEGER_BINARY: &[BinaryOp] = &[
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Div,
    BinaryOp::Div,
    BinaryOp::Mod,
    BinaryOp::Mod,
    BinaryOp::Fmod,
    BinaryOp::Remainder,
    BinaryOp::Remainder,
    BinaryOp::Gcd,
    BinaryOp::CeilDiv,
    BinaryOp::Pow,
    BinaryOp::Minimum,
    BinaryOp::Maximum,
    BinaryOp::BitwiseAnd,
    BinaryOp::BitwiseOr,
    BinaryOp::BitwiseXor,
    BinaryOp::ShiftLeft,
    BinaryOp::ShiftRight,
    BinaryOp::LogicalShiftRight,
    BinaryOp::LogicalAnd,
    BinaryOp::LogicalOr,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
];
/// Of scalars, which give derived ones.
const SCALAR_BINARY: &[BinaryOp] = &[
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Mod,
    BinaryOp::Remainder,
    BinaryOp::Minimum,
    BinaryOp::Maximum,
];

/// Integers of every width from memory, `iota`, positions, scalars and what is
/// derived from them.
pub(super) fn integers(draw: &mut Draw) -> Option<Drawn> {
    let mut grid = Grid::new(draw, "integers");
    // Nothing from memory: all of it could be taken for arithmetic on indices.
    let no_memory = draw.once_in(4);
    for _ in 0..if no_memory { 0 } else { 1 + draw.below(2) } {
        let dtype = if draw.once_in(8) { DType::Bool } else { draw.choose(INTEGERS) };
        grid.input(draw, dtype)?;
    }
    for _ in 0..draw.below(3) {
        let dtype = draw.choose(&[DType::I64, DType::I32, DType::I64, DType::U64, DType::U32, DType::I16]);
        grid.scalar(draw, dtype)?;
    }
    if grid.scalars.len() == 2 && draw.below(4) > 0 {
        let (op, a, b) = (draw.choose(SCALAR_BINARY), grid.scalars[0], grid.scalars[1]);
        grid.scalars.extend(grid.builder.binary(op, a, b));
    }
    for _ in 0..usize::from(no_memory) + draw.below(3) {
        if draw.once_in(4) {
            grid.index(draw)?;
        } else {
            let dtype = draw.choose(&[DType::I64, DType::I64, DType::I32, DType::I8, DType::U16, DType::U64]);
            grid.iota(draw, dtype)?;
        }
    }
    for _ in 0..1 + draw.below(7) {
        // What the builder refuses is no part of the draw.
        if let Some(made) = integer_operation(&mut grid, draw) {
            grid.values.push(made);
        }
    }
    let (fusion, args) = grid.finish(draw)?;
    Some(Drawn { kind: DrawKind::Integers, fusion, args, options: options(draw), measure: Measure::Exact })
}

pub(super) fn integer_operation(grid: &mut Grid, draw: &mut Draw) -> Option<Operand> {
    let x = grid.value(draw);
    let dtype = grid.builder.dtype(x);
    let made = match draw.below(16) {
        0 | 1 => grid.builder.unary(draw.choose(INTEGER_UNARY), x),
        2 => grid.builder.cast(x, draw.choose(INTEGERS)),
        // There and back: truncation and saturation.
        3 => {
            let wide = grid.builder.cast(x, draw.choose(FLOATS)).ok()?;
            grid.builder.cast(wide, draw.choose(INTEGERS))
        }
        4 | 5 => return grid.reduce(draw, ReduceOp::ALL),
        6 => {
            let (a, b) = (grid.partner(draw, dtype), grid.partner(draw, dtype));
            let condition = grid.builder.binary(BinaryOp::Lt, x, a).ok()?;
            grid.builder.where_(condition, a, b)
        }
        7 => {
            let op = draw.choose(&[TernaryOp::Clamp, TernaryOp::Threshold, TernaryOp::Lerp]);
            let (a, b) = (grid.partner(draw, dtype), grid.partner(draw, dtype));
            grid.builder.ternary(op, x, a, b)
        }
        _ => {
            let (op, y) = (draw.choose(INTEGER_BINARY), grid.partner(draw, dtype));
            if draw.once_in(2) { grid.builder.binary(op, x, y) } else { grid.builder.binary(op, y, x) }
        }
    };
    let made = made.ok()?;
    // Quotients and powers of integers as floats are not exact.
    (!grid.builder.dtype(made).is_float()).then_some(made)
}

/// Operations on floats that round once. Division tells the zeros apart, and
/// minimum and maximum may give either: a draw has one of the two.
pub(super) fn floats(draw: &mut Draw) -> Option<Drawn> {
    let mut grid = Grid::new(draw, "floats");
    for _ in 0..1 + draw.below(3) {
        let dtype = draw.choose(FLOATS);
        grid.input(draw, dtype)?;
    }
    if draw.once_in(3) {
        let dtype = draw.choose(&[DType::F32, DType::F64]);
        grid.scalar(draw, dtype)?;
    }
    let divides = draw.once_in(2);
    for _ in 0..1 + draw.below(6) {
        if let Some(made) = float_operation(&mut grid, draw, divides) {
            grid.values.push(made);
        }
    }
    let (fusion, args) = grid.finish(draw)?;
    // A product and a sum of one rounding would be another number.
    let options = Options { fmad: false, ..options(draw) };
    Some(Drawn { kind: DrawKind::Floats, fusion, args, options, measure: Measure::Exact })
}

pub(super) fn float_operation(grid: &mut Grid, draw: &mut Draw, divides: bool) -> Option<Operand> {
    const UNARY: &[UnaryOp] = &[
        UnaryOp::Abs,
        UnaryOp::Neg,
        UnaryOp::Ceil,
        UnaryOp::Floor,
        UnaryOp::Round,
        UnaryOp::Trunc,
        UnaryOp::Frac,
        UnaryOp::Sqrt,
        UnaryOp::Sign,
        UnaryOp::IsNan,
        UnaryOp::IsInf,
        UnaryOp::IsFinite,
        UnaryOp::IsNegInf,
        UnaryOp::IsPosInf,
        UnaryOp::LogicalNot,
    ];
    const BINARY: &[BinaryOp] = &[
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Mul,
        BinaryOp::Fmod,
        BinaryOp::Eq,
        BinaryOp::Lt,
        BinaryOp::Ge,
        BinaryOp::LogicalAnd,
    ];
    let x = grid.value(draw);
    let dtype = grid.builder.dtype(x);
    let made = match draw.below(12) {
        0 | 1 => grid.builder.unary(draw.choose(UNARY), x),
        2 | 3 => grid.builder.cast(x, draw.choose(FLOATS)),
        4 => grid.builder.cast(x, draw.choose(INTEGERS)),
        5 => {
            let (a, b) = (grid.partner(draw, dtype), grid.partner(draw, dtype));
            let condition = grid.builder.binary(BinaryOp::Lt, x, a).ok()?;
            grid.builder.where_(condition, a, b)
        }
        6 if divides => grid.builder.unary(UnaryOp::Reciprocal, x),
        6 => return grid.reduce(draw, &[ReduceOp::Max, ReduceOp::Min]),
        7 | 8 => {
            let two: &[BinaryOp] =
                if divides { &[BinaryOp::Div, BinaryOp::Truediv] } else { &[BinaryOp::Minimum, BinaryOp::Maximum] };
            let y = grid.partner(draw, dtype);
            grid.builder.binary(draw.choose(two), x, y)
        }
        _ => {
            let y = grid.partner(draw, dtype);
            grid.builder.binary(draw.choose(BINARY), x, y)
        }
    };
    made.ok()
}

pub(super) fn options(draw: &mut Draw) -> Options {
    Options { force_index64: draw.once_in(8), self_check: false, ..Options::default() }
}
