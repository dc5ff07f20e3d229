//! The one rule per operation that gives its results' types and axes from its
//! operands'. What an extent is stays open: the builder runs the rule on
//! symbolic extents, [`super::bind`] on numbers, so both refuse the same things.
//!
//! The rules of the elementwise, axis-moving and reducing operations are here;
//! those of the other primitives stand in their rows of [`super::ops`].

use super::ops::MetaCx;
use super::{AxisKind, OpKind};
use crate::diag::{Diagnostic, Result, code};
use crate::num::{BinaryOp, DType, TernaryOp};

/// An extent: a symbol or a number, as [`SizeMath`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentValue(pub(crate) i64);

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisMeta {
    /// Number of elements.
    pub extent: ExtentValue,
    /// Iteration or broadcast.
    pub kind: AxisKind,
}

/// A tensor's type and axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Element type.
    pub dtype: DType,
    /// Axes, outer to inner.
    pub axes: Vec<AxisMeta>,
}

/// What the rule needs to know of an operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperandMeta {
    /// A tensor.
    Tensor(Shape),
    /// A scalar of a type, and its value as a size (0 if it is none).
    Scalar(DType, ExtentValue),
}

/// Arithmetic on extents, all of it on `i64`.
pub trait SizeMath {
    /// A known extent.
    fn constant(&mut self, n: i64) -> ExtentValue;
    /// The number that an extent is, if it is known.
    fn known(&self, extent: ExtentValue) -> Option<i64>;
    /// Whether an extent is that of an input's axis, which iterates whatever its size; no number is.
    fn is_of_input(&self, _extent: ExtentValue) -> bool {
        false
    }
    /// `op(a, b)`; comparisons give 0 or 1.
    fn binary(&mut self, op: BinaryOp, a: ExtentValue, b: ExtentValue) -> ExtentValue;
    /// `a` where `condition` is not 0, else `b`.
    fn select(&mut self, condition: ExtentValue, a: ExtentValue, b: ExtentValue) -> ExtentValue;
    /// The extent of an axis that two operands share: either of the two, or
    /// both as text when they cannot be equal.
    fn unify(&mut self, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue, (String, String)>;
}

/// The results of an operation, or why it has none. `full` and `index` take
/// their axes from their declaration: for them the result has rank 0.
pub fn infer(kind: &OpKind, operands: &[OperandMeta], math: &mut dyn SizeMath) -> Result<Vec<Shape>> {
    if let OpKind::Call(call) = kind {
        let Some(primitive) = call.primitive() else {
            return Err(Diagnostic::bug(format!("{} is expanded by the builder, no primitive", call.row.name)));
        };
        return (primitive.meta)(&mut MetaCx { call, operands, math });
    }
    infer_core(kind, operands, math).map(|shape| vec![shape])
}

fn infer_core(kind: &OpKind, operands: &[OperandMeta], math: &mut dyn SizeMath) -> Result<Shape> {
    let name = kind.name();
    arity(kind, operands.len())?;
    if let OpKind::Index { .. } = kind {
        return Ok(Shape { dtype: DType::I64, axes: Vec::new() });
    }
    if let OpKind::Full = kind {
        return match &operands[0] {
            OperandMeta::Scalar(dtype, _) => Ok(Shape { dtype: *dtype, axes: Vec::new() }),
            OperandMeta::Tensor(_) => {
                Err(Diagnostic::user(code::NOT_TENSOR, "full: the fill value is a scalar, a tensor was given"))
            }
        };
    }
    if kind.is_elementwise() {
        let dtype = elementwise_dtype(kind, operands)?;
        return Ok(Shape { dtype, axes: elementwise_axes(name, operands, math)? });
    }
    let OperandMeta::Tensor(x) = &operands[0] else {
        return Err(Diagnostic::user(code::NOT_TENSOR, format!("{name}: operand 0 is a scalar, a tensor is needed")));
    };
    let dtype = x.dtype;
    if let OpKind::Reduce { op, .. } = kind
        && !op.accepts(dtype)
    {
        return Err(
            Diagnostic::user(code::DTYPE, format!("{name}: not defined on {dtype}")).note("cast the operand first")
        );
    }
    Ok(Shape { dtype, axes: moved_axes(kind, name, &x.axes, math)? })
}

fn arity(kind: &OpKind, given: usize) -> Result<()> {
    let expected = match kind {
        OpKind::Binary(_) => 2,
        OpKind::Ternary(_) => 3,
        OpKind::Index { .. } => 0,
        _ => 1,
    };
    if given == expected {
        return Ok(());
    }
    Err(Diagnostic::user(code::ARITY, format!("{}: takes {expected} operands, {given} were given", kind.name())))
}

/// The result type of an elementwise operation, whose operands must already be
/// of one type (promotion is the builder's work).
fn elementwise_dtype(kind: &OpKind, operands: &[OperandMeta]) -> Result<DType> {
    let name = kind.name();
    let mut dtypes = operands.iter().map(|operand| match operand {
        OperandMeta::Tensor(shape) => shape.dtype,
        OperandMeta::Scalar(dtype, _) => *dtype,
    });
    if let OpKind::Ternary(TernaryOp::Where) = kind {
        let condition = dtypes.next().expect("arity was checked");
        if condition != DType::Bool {
            return Err(Diagnostic::user(code::DTYPE, format!("{name}: the condition is {condition}, not bool")));
        }
    }
    let first = dtypes.next().expect("arity was checked");
    if let Some(other) = dtypes.find(|&other| other != first) {
        return Err(Diagnostic::user(code::DTYPE, format!("{name}: operands of types {first} and {other}"))
            .note("cast one of them"));
    }
    let (accepted, result) = match kind {
        OpKind::Unary(op) => (op.accepts(first), op.result_dtype(first)),
        OpKind::Binary(op) => (op.accepts(first), op.result_dtype(first)),
        OpKind::Ternary(op) => (op.accepts(first), first),
        OpKind::Cast(to) => (true, *to),
        _ => (true, first),
    };
    if accepted {
        return Ok(result);
    }
    Err(Diagnostic::user(code::DTYPE, format!("{name}: not defined on {first}")).note("cast the operands first"))
}

/// Axes of an elementwise result: at each position an iteration axis if any
/// operand has one there, and all iteration axes there have one extent. Two
/// undecided axes give an undecided one, whose extent is the one that is not 1.
fn elementwise_axes(name: &str, operands: &[OperandMeta], math: &mut dyn SizeMath) -> Result<Vec<AxisMeta>> {
    let mut shapes = operands.iter().enumerate().filter_map(|(i, operand)| match operand {
        OperandMeta::Tensor(shape) => Some((i, shape)),
        OperandMeta::Scalar(..) => None,
    });
    let Some((_, first)) = shapes.next() else {
        return Err(Diagnostic::user(code::NOT_TENSOR, format!("{name}: every operand is a scalar"))
            .note("turn one of them into a tensor with full"));
    };
    let mut axes = first.axes.clone();
    for (i, shape) in shapes {
        if shape.axes.len() != axes.len() {
            let (a, b) = (axes.len(), shape.axes.len());
            return Err(Diagnostic::user(code::RANK, format!("{name}: operand {i} has rank {b}, the others rank {a}"))
                .note("broadcast the operand of lower rank"));
        }
        for (position, (axis, other)) in axes.iter_mut().zip(&shape.axes).enumerate() {
            *axis = paired(*axis, *other, math).map_err(|(a, b)| {
                Diagnostic::user(code::EXTENT, format!("{name}: axis {position} of operand {i} is {b}, not {a}"))
                    .note("an axis of size 1 broadcasts only if it is declared as a broadcast axis")
            })?;
        }
    }
    Ok(axes)
}

/// The axis of a result at which two operands have these axes.
pub(super) fn paired(a: AxisMeta, b: AxisMeta, math: &mut dyn SizeMath) -> Result<AxisMeta, (String, String)> {
    use AxisKind::*;
    match (a.kind, b.kind) {
        (_, Broadcast) => Ok(a),
        (Broadcast, _) => Ok(b),
        (Iteration, Iteration) => Ok(AxisMeta { extent: math.unify(a.extent, b.extent)?, kind: Iteration }),
        (Iteration, Symbolic) => Ok(a),
        (Symbolic, Iteration) => Ok(b),
        (Symbolic, Symbolic) if a.extent == b.extent => Ok(a),
        (Symbolic, Symbolic) => {
            let one = math.constant(1);
            let thin = math.binary(BinaryOp::Eq, a.extent, one);
            Ok(AxisMeta { extent: math.select(thin, b.extent, a.extent), kind: Symbolic })
        }
    }
}

/// Axes of the results of operations that insert, drop or reorder axes.
fn moved_axes(kind: &OpKind, name: &str, axes: &[AxisMeta], math: &mut dyn SizeMath) -> Result<Vec<AxisMeta>> {
    let rank = axes.len();
    match kind {
        OpKind::Broadcast { flags } => {
            let kept = flags.iter().filter(|new| !**new).count();
            if kept != rank {
                return Err(Diagnostic::user(
                    code::RANK,
                    format!("{name}: keeps {kept} axes, the operand has rank {rank}"),
                ));
            }
            let mut old = axes.iter();
            let new = AxisMeta { extent: math.constant(1), kind: AxisKind::Broadcast };
            Ok(flags.iter().map(|&inserted| if inserted { new } else { *old.next().expect("counted") }).collect())
        }
        OpKind::Squeeze { flags } => {
            if flags.len() != rank {
                let given = flags.len();
                return Err(Diagnostic::user(
                    code::RANK,
                    format!("{name}: {given} flags for an operand of rank {rank}"),
                ));
            }
            let guilty = (0..rank).find(|&i| flags[i] && axes[i].kind == AxisKind::Iteration);
            if let Some(i) = guilty {
                return Err(Diagnostic::user(code::SQUEEZE, format!("{name}: axis {i} is not a broadcast axis"))
                    .note("only axes declared of size 1 can be squeezed; reduce it instead"));
            }
            Ok(axes.iter().zip(flags).filter(|(_, flag)| !**flag).map(|(axis, _)| *axis).collect())
        }
        OpKind::Permute { perm } => {
            let mut sorted = perm.clone();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..rank as u32) {
                return Err(Diagnostic::user(
                    code::AXIS,
                    format!("{name}: {perm:?} does not name each of the {rank} axes once"),
                ));
            }
            Ok(perm.iter().map(|&from| axes[from as usize]).collect())
        }
        OpKind::Reduce { axes: reduced, .. } => {
            if reduced.is_empty() {
                return Err(Diagnostic::user(code::AXIS, format!("{name}: no axis to reduce over")));
            }
            if !reduced.is_sorted_by(|a, b| a < b) {
                return Err(Diagnostic::user(code::AXIS, format!("{name}: axes {reduced:?} are not ascending")));
            }
            if let Some(axis) = reduced.iter().find(|&&axis| axis as usize >= rank) {
                return Err(Diagnostic::user(code::AXIS, format!("{name}: axis {axis} of an operand of rank {rank}")));
            }
            Ok((0..rank).filter(|&i| !reduced.contains(&(i as u32))).map(|i| axes[i]).collect())
        }
        _ => Err(Diagnostic::bug(format!("{name} has no axis rule"))),
    }
}

impl OpKind {
    /// The textual name of the operation.
    pub fn name(&self) -> &'static str {
        match self {
            OpKind::Unary(op) => op.name(),
            OpKind::Binary(op) => op.name(),
            OpKind::Ternary(op) => op.name(),
            OpKind::Cast(_) => "cast",
            OpKind::Set => "set",
            OpKind::Broadcast { .. } => "broadcast",
            OpKind::Squeeze { .. } => "squeeze",
            OpKind::Permute { .. } => "permute",
            OpKind::Reduce { op, .. } => op.name(),
            OpKind::Full => "full",
            OpKind::Index { .. } => "index",
            OpKind::Call(call) => call.row.name,
        }
    }

    /// Whether the result's axes are not told by operands.
    pub fn declares_axes(&self) -> bool {
        matches!(self, OpKind::Full | OpKind::Index { .. })
    }

    /// Whether each result element depends on one element of each operand, at
    /// the same position or on a broadcast axis.
    pub fn is_elementwise(&self) -> bool {
        matches!(self, OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Ternary(_) | OpKind::Cast(_) | OpKind::Set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::num::{ReduceOp, UnaryOp};

    struct Numbers;

    impl SizeMath for Numbers {
        fn constant(&mut self, n: i64) -> ExtentValue {
            ExtentValue(n)
        }
        fn known(&self, extent: ExtentValue) -> Option<i64> {
            Some(extent.0)
        }
        fn binary(&mut self, _: BinaryOp, a: ExtentValue, _: ExtentValue) -> ExtentValue {
            a
        }
        fn select(&mut self, _: ExtentValue, a: ExtentValue, _: ExtentValue) -> ExtentValue {
            a
        }
        fn unify(&mut self, a: ExtentValue, b: ExtentValue) -> Result<ExtentValue, (String, String)> {
            if a == b { Ok(a) } else { Err((a.0.to_string(), b.0.to_string())) }
        }
    }

    fn scalar(dtype: DType) -> OperandMeta {
        OperandMeta::Scalar(dtype, ExtentValue(0))
    }

    /// `b` is a broadcast axis, a number an iteration axis.
    fn tensor(dtype: DType, axes: &str) -> OperandMeta {
        OperandMeta::Tensor(shape(dtype, axes))
    }

    fn shape(dtype: DType, axes: &str) -> Shape {
        let axis = |text: &str| match text {
            "b" => AxisMeta { extent: ExtentValue(1), kind: AxisKind::Broadcast },
            number => AxisMeta { extent: ExtentValue(number.parse().unwrap()), kind: AxisKind::Iteration },
        };
        Shape { dtype, axes: axes.split_whitespace().map(axis).collect() }
    }

    fn check_infer(kind: OpKind, operands: &[OperandMeta], expected: Shape) {
        assert_eq!(infer(&kind, operands, &mut Numbers).unwrap(), [expected], "{kind:?}");
    }

    fn check_refused(kind: OpKind, operands: &[OperandMeta], expected: &str) {
        assert_eq!(infer(&kind, operands, &mut Numbers).unwrap_err().to_string().lines().next().unwrap(), expected);
    }

    #[test]
    fn results_have_the_axes_and_types_of_the_rule() {
        use DType::*;
        let add = OpKind::Binary(BinaryOp::Add);
        check_infer(add.clone(), &[tensor(F32, "3 b"), tensor(F32, "b 4")], shape(F32, "3 4"));
        check_infer(add.clone(), &[scalar(I32), tensor(I32, "")], shape(I32, ""));
        check_infer(OpKind::Binary(BinaryOp::Lt), &[tensor(I64, "5"), tensor(I64, "5")], shape(Bool, "5"));
        check_infer(OpKind::Unary(UnaryOp::IsNan), &[tensor(F64, "0")], shape(Bool, "0"));
        let where_op = OpKind::Ternary(TernaryOp::Where);
        check_infer(where_op, &[tensor(Bool, "2"), tensor(F16, "b"), scalar(F16)], shape(F16, "2"));
        check_infer(OpKind::Cast(BF16), &[tensor(I8, "2")], shape(BF16, "2"));
        let flags = vec![true, false, true];
        check_infer(OpKind::Broadcast { flags: flags.clone() }, &[tensor(F32, "7")], shape(F32, "b 7 b"));
        check_infer(OpKind::Squeeze { flags }, &[tensor(F32, "b 7 b")], shape(F32, "7"));
        check_infer(OpKind::Permute { perm: vec![2, 0, 1] }, &[tensor(F32, "4 5 6")], shape(F32, "6 4 5"));
        let sum = OpKind::Reduce { op: ReduceOp::Sum, axes: vec![0, 2] };
        check_infer(sum, &[tensor(F32, "4 5 6")], shape(F32, "5"));
        check_infer(OpKind::Full, &[scalar(F32)], shape(F32, ""));
    }

    #[test]
    fn refusals_name_the_operation_the_axis_and_the_numbers() {
        use DType::*;
        let add = OpKind::Binary(BinaryOp::Add);
        let reduce = |op, axes: &[u32]| OpKind::Reduce { op, axes: axes.to_vec() };
        check_refused(
            add.clone(),
            &[tensor(F32, "3 129"), tensor(F32, "3 128")],
            "error[E0204]: add: axis 1 of operand 1 is 128, not 129",
        );
        check_refused(
            add.clone(),
            &[tensor(F32, "3"), tensor(F32, "3 4")],
            "error[E0203]: add: operand 1 has rank 2, the others rank 1",
        );
        check_refused(
            add.clone(),
            &[tensor(F32, "3"), tensor(I32, "3")],
            "error[E0202]: add: operands of types f32 and i32",
        );
        check_refused(add.clone(), &[tensor(F16, ""), tensor(F16, "")], "error[E0202]: add: not defined on f16");
        check_refused(add, &[tensor(F32, "3")], "error[E0201]: add: takes 2 operands, 1 were given");
        check_refused(OpKind::Unary(UnaryOp::Exp), &[tensor(I32, "")], "error[E0202]: exp: not defined on i32");
        check_refused(
            OpKind::Squeeze { flags: vec![true] },
            &[tensor(F32, "1")],
            "error[E0209]: squeeze: axis 0 is not a broadcast axis",
        );
        check_refused(
            OpKind::Permute { perm: vec![0, 0] },
            &[tensor(F32, "1 2")],
            "error[E0205]: permute: [0, 0] does not name each of the 2 axes once",
        );
        let x = [tensor(F32, "4 5")];
        check_refused(reduce(ReduceOp::Max, &[2]), &x, "error[E0205]: max: axis 2 of an operand of rank 2");
        check_refused(reduce(ReduceOp::Max, &[1, 0]), &x, "error[E0205]: max: axes [1, 0] are not ascending");
        check_refused(reduce(ReduceOp::Sum, &[0]), &[tensor(Bool, "4")], "error[E0202]: sum: not defined on bool");
        check_refused(
            OpKind::Binary(BinaryOp::Mul),
            &[scalar(F32), scalar(F32)],
            "error[E0207]: mul: every operand is a scalar",
        );
    }
}
