//! Sums of rows, and of squares of what rows are above their means, in one go.
//!
//! `a = sum(x)`, `q = sum((x - a / n)^2)` read a row twice, or hold it in between. A row of `f32` that blocks do not hold is
//! read once instead:
//!
//! ```text
//! a = sum(x)    v = sum(x * x)    q = v - a * a / n    in f64
//! ```
//!
//! What cancels costs some units of `f64` of `n` times the mean's square. The mean that is subtracted otherwise is rounded to
//! `f32`, whose square costs as much: neither is more exact than the other, whatever the row.
//!
//! In: a fusion, and of what is found in it, what is to be in one go. Out: the fusion with the sums made so. What is not
//! finite comes out as it would: where the sum is not, `q` is NaN; and conversions back to `f32` are infinite where squares
//! are too large for it.

use crate::diag::{Diagnostic, Result};
use crate::fusion::{Bindings, Fusion, OpId, OpKind, Operand, Rewriter, Rewritten, ScalarId, TensorId, made_tensor};
use crate::num::eval::round_float;
use crate::num::{BinaryOp, DType, ReduceOp, TernaryOp, UnaryOp};
use crate::util::map_of;
use std::collections::BTreeMap;

/// The sums of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moments {
    /// `sum(x)`.
    pub(super) sum: OpId,
    /// `sum((x - sum(x) / n)^2)`, over the same axes.
    pub(super) squares: OpId,
}

/// All of them whose rows are `f32`.
pub(super) fn find(fusion: &Fusion, bindings: &Bindings) -> Vec<Moments> {
    let rows = fusion.ops.iter().filter_map(|(squares, _)| {
        let (square, axes) = summed(fusion, squares)?;
        let [Operand::Tensor(above), Operand::Tensor(other)] = made_by(fusion, square, BinaryOp::Mul)? else {
            return None;
        };
        let [Operand::Tensor(x), Operand::Tensor(spread)] = made_by(fusion, *above, BinaryOp::Sub)? else {
            return None;
        };
        if above != other {
            return None;
        }
        let sum = mean_of(fusion, bindings, *x, *spread, axes)?;
        (fusion.tensors[*x].dtype == DType::F32).then_some(Moments { sum, squares })
    });
    rows.collect()
}

/// What a sum adds up, and over which axes.
fn summed(fusion: &Fusion, id: OpId) -> Option<(TensorId, &[u32])> {
    let op = &fusion.ops[id];
    match (&op.kind, op.inputs.first()) {
        (OpKind::Reduce { op: ReduceOp::Sum, axes }, Some(Operand::Tensor(x))) => Some((*x, axes)),
        _ => None,
    }
}

/// The operands of the operation that makes a tensor, if it is this one.
fn made_by(fusion: &Fusion, tensor: TensorId, kind: BinaryOp) -> Option<&[Operand]> {
    let op = &fusion.ops[fusion.definition(tensor)?];
    (op.kind == OpKind::Binary(kind)).then_some(&op.inputs[..])
}

/// The sum of `x` over some axes of which a tensor is the mean, spread along them: divided before or after.
fn mean_of(fusion: &Fusion, bindings: &Bindings, x: TensorId, spread: TensorId, axes: &[u32]) -> Option<OpId> {
    let (mut tensor, mut is_spread, mut is_divided) = (spread, false, false);
    loop {
        let id = fusion.definition(tensor)?;
        let op = &fusion.ops[id];
        match (&op.kind, &op.inputs[..]) {
            (OpKind::Broadcast { flags }, [Operand::Tensor(narrow)]) if !is_spread => {
                let are_axes = flags.iter().enumerate().all(|(axis, flag)| *flag == axes.contains(&(axis as u32)));
                (tensor, is_spread) = (*narrow, are_axes);
                are_axes.then_some(())?;
            }
            (OpKind::Binary(BinaryOp::Div), [Operand::Tensor(sum), Operand::Scalar(count)]) if !is_divided => {
                (tensor, is_divided) = (*sum, is_count(fusion, bindings, *count, x, axes));
                is_divided.then_some(())?;
            }
            _ => {
                let is_sum = is_spread && is_divided && summed(fusion, id) == Some((x, axes));
                return is_sum.then_some(id);
            }
        }
    }
}

/// Whether a scalar is the number of elements along some axes, for these sizes.
fn is_count(fusion: &Fusion, bindings: &Bindings, scalar: ScalarId, x: TensorId, axes: &[u32]) -> bool {
    let sizes = bindings.sizes(fusion, x);
    let count = axes.iter().fold(1i64, |n, axis| n.saturating_mul(sizes[*axis as usize]));
    let rounded = round_float(fusion.scalars[scalar].dtype, count as f64);
    fusion.depends_on_sizes_alone(scalar) && bindings.scalar(scalar).as_f64() == rounded
}

/// The fusion with some of its moments in one go.
pub(super) fn rewrite(fusion: &Fusion, found: &[Moments]) -> Result<Rewritten> {
    let squares_of: BTreeMap<OpId, OpId> = map_of(found.iter().map(|found| (found.sum, found.squares)));
    let mut squares: BTreeMap<OpId, TensorId> = BTreeMap::new();
    let mut rewriter = Rewriter::new(fusion, |tensor, axis| fusion.tensors[tensor].axes[axis].kind)?;
    for (id, op) in fusion.ops.iter() {
        let results = if let Some(later) = squares_of.get(&id) {
            let [sum, own] = in_one_go(&mut rewriter, fusion, id)?;
            squares.insert(*later, own);
            vec![sum]
        } else if let Some(made) = squares.get(&id) {
            vec![*made]
        } else {
            rewriter.keep(op)?
        };
        rewriter.replace(op, &results)?;
    }
    rewriter.finish()
}

/// The sum of a row, and that of squares of what is above its mean.
fn in_one_go(r: &mut Rewriter<'_>, fusion: &Fusion, sum: OpId) -> Result<[TensorId; 2]> {
    let (x, axes) = summed(fusion, sum).ok_or_else(|| Diagnostic::bug("moments of what is no sum"))?;
    let axes: Vec<i64> = axes.iter().map(|axis| i64::from(*axis)).collect();
    let (row, dtype) = (r.tensor(x)?, fusion.tensors[x].dtype);
    let b = &mut r.builder;
    let mut count: Operand = b.size(row, axes[0])?;
    for axis in &axes[1..] {
        let extent = b.size(row, *axis)?;
        count = b.binary(BinaryOp::Mul, count, extent)?;
    }
    let count = b.cast(count, DType::F64)?;
    let wide = b.cast(row, DType::F64)?;
    let square = b.binary(BinaryOp::Mul, wide, wide)?;
    // One reduction of pairs waits for other threads and blocks once.
    let pairs = b.binary(BinaryOp::Complex, wide, square)?;
    let sums = b.reduce(ReduceOp::Sum, pairs, &axes, false, None)?;
    let (sum, square) = (b.unary(UnaryOp::Real, sums)?, b.unary(UnaryOp::Imag, sums)?);
    // Of the squares, what is the mean's.
    let mean = b.binary(BinaryOp::Div, sum, count)?;
    let own = b.binary(BinaryOp::Mul, sum, mean)?;
    let left = b.binary(BinaryOp::Sub, square, own)?;
    let left = b.binary(BinaryOp::Maximum, left, 0.0)?;
    // NaN where the sum is not finite, which `Maximum` may not keep.
    let is_finite = b.unary(UnaryOp::IsFinite, own)?;
    let nothing = b.binary(BinaryOp::Sub, sum, sum)?;
    let squares = b.ternary(TernaryOp::Where, is_finite, left, nothing)?;
    let [sum, squares] = [b.cast(sum, dtype)?, b.cast(squares, dtype)?];
    Ok([made_tensor(sum)?, made_tensor(squares)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fusion::bind;
    use crate::num::Value;
    use crate::refeval::{Tolerance, compare, evaluate_all};
    use crate::tensor::{Arg, ArgMeta, HostTensor};
    use crate::text;

    /// Elements of all inputs, by their index.
    type Elements<'a> = &'a dyn Fn(&[i64]) -> f64;

    fn arguments(fusion: &Fusion, elements: Elements<'_>) -> Vec<Arg> {
        let extent = |tensor: TensorId, axis: usize| fusion.const_scalar(fusion.tensors[tensor].axes[axis].extent);
        let tensor = |(_, id): (usize, TensorId)| {
            let axes = 0..fusion.tensors[id].axes.len();
            let sizes: Vec<i64> = axes.map(|axis| extent(id, axis).expect("it is a constant").as_i64()).collect();
            let value = |index: &[i64]| Value::Float(elements(index));
            Arg::Tensor(HostTensor::from_fn(fusion.tensors[id].dtype, &sizes, value).expect("it fits"))
        };
        fusion.input_tensors().map(tensor).collect()
    }

    fn found(fusion: &Fusion, args: &[Arg]) -> Vec<Moments> {
        let metas: Vec<ArgMeta> = args.iter().map(Arg::meta).collect();
        find(fusion, &bind(fusion, &metas).expect("it binds"))
    }

    #[track_caller]
    fn check(signature: &str, body: &str, elements: Elements<'_>) {
        let fusion = text::parse_one(&format!("fusion @f({signature}) {{\n{body}\n}}")).expect("it reads");
        let args = arguments(&fusion, elements);
        let found = found(&fusion, &args);
        assert_eq!(found.len(), 1, "{body}");
        let made = rewrite(&fusion, &found).expect("it is made again").fusion;
        let [expected, actual] = [&fusion, &made].map(|fusion| evaluate_all(fusion, &args).expect("it has values"));
        for (expected, actual) in expected.outputs.iter().zip(&actual.outputs) {
            let compared = compare(actual, expected, Tolerance { abs: 1e-5, rel: 1e-4 }).expect("they are alike");
            assert!(compared.passed(), "{compared:?}\n{}", text::print(&made));
        }
    }

    const COLUMNS: &str = "%v, %m = var_mean %x axes(0)\nreturn %v, %m";

    fn usual(index: &[i64]) -> f64 {
        let number = index.iter().fold(1, |n, i| (n * 5 + i) % 11);
        f64::from(number as i32) * 0.25 - 1.0
    }

    #[test]
    fn values_stay_what_they_were() {
        check("%x: f32[40, 3]", COLUMNS, &usual);
        check("%x: f32[40, 3]", COLUMNS, &|index| usual(index) + 4096.0);
        check("%x: f32[40, 3]", COLUMNS, &|_| 0.1);
        // Of many, one is far from all others.
        for outlier in [-1e4, 0.0, 1e9, 1e18] {
            let long = |index: &[i64]| if index[0] == 0 { outlier } else { 1000.0 + usual(index) };
            check("%x: f32[60000, 2]", COLUMNS, &long);
        }
        check(
            "%x: f32[3, 40]",
            "%m = mean %x axes(1) keepdim\n%v = var %x axes(1) correction(0)\nreturn %v, %m",
            &usual,
        );
    }

    #[test]
    fn what_is_not_finite_comes_out_as_it_would() {
        let special =
            |place: i64, value: f64| move |index: &[i64]| if index[0] == place { value } else { usual(index) };
        for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e30, 3e38] {
            check("%x: f32[40, 3]", COLUMNS, &special(0, value));
            check("%x: f32[40, 3]", COLUMNS, &special(17, value));
        }
    }

    #[test]
    fn rows_may_be_computed() {
        let body = "%x32 = cast %x f32\n%bb = broadcast %b flags(true, true, false)\n%0 = mul %x32, %bb\n%y32 = cast %y f32\n\
                    %t = add %0, %y32\n%v, %m = var_mean %t axes(0, 1) keepdim\n%1 = sub %t, %m\n%2 = mul %1, %v\nreturn %2";
        check("%x: bf16[5, 8, 3], %y: bf16[5, 8, 3], %b: f32[3]", body, &usual);
        let body =
            "%bb = broadcast %b flags(false, true)\n%t = add %x, %bb\n%v, %m = var_mean %t axes(0)\nreturn %v, %m";
        check("%x: f32[40, 3], %b: f32[40]", body, &usual);
    }

    #[test]
    fn other_sums_are_left_alone() {
        let none = |body: &str| {
            let text = format!("fusion @f(%x: f32[40, 3], %y: f32[40, 3]) {{\n{body}\n}}");
            let fusion = text::parse_one(&text).expect("it reads");
            assert_eq!(found(&fusion, &arguments(&fusion, &usual)), [], "{body}");
        };
        let about = |mean: &str, above: &str| {
            format!(
                "{mean}\n%b = broadcast %m flags(true, false)\n{above}\n%q = mul %d, %e\n%v = sum %q axes(0)\nreturn %v"
            )
        };
        let (mean, both) = ("%s = sum %x axes(0)\n%m = div %s, 40.0", "%d = sub %x, %b\n%e = sub %y, %b");
        none(&about(mean, both));
        none(&about("%s = sum %y axes(0)\n%m = div %s, 40.0", "%d = sub %x, %b\n%e = sub %x, %b"));
        none(
            "%s = sum %x axes(0)\n%m = div %s, 41.0\n%b = broadcast %m flags(true, false)\n%d = sub %x, %b\n%q = mul %d, %d\n%v = sum %q axes(0)\nreturn %v",
        );
    }
}
