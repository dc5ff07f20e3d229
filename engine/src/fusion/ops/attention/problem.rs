//! What forward and backward evaluation have in common: sizes, scalars, and
//! operands as stacks of matrices.

use crate::array::product::{Factor, Matrix, Stack};
use crate::array::{Element, View, iteration_order};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::EvalCx;
use crate::num::DType;
use crate::num::convert::{bf16_to_f64, f16_to_f64, f32_to_bf16, f32_to_f16};

/// Rows of scores that are computed together.
pub(super) const ROWS: usize = 32;

/// An element that scores are computed from.
pub(super) trait ScoreElement: Element + Factor<f64> {}

impl<T: Element + Factor<f64>> ScoreElement for T {}

/// Sizes and scalars.
pub(super) struct Problem {
    /// Sizes of the axes before the last two.
    pub(super) batch: Vec<usize>,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Elements of a query and of a key.
    pub(super) width: usize,
    /// Elements of a value.
    pub(super) outputs: usize,
    scale: f64,
    causal: bool,
    /// The type to which weights are rounded before they are multiplied.
    narrow: Option<DType>,
}

/// Operands that give the scores of one batch.
#[derive(Clone, Copy)]
pub(super) struct Scored<'a, T> {
    pub(super) query: Matrix<'a, T>,
    pub(super) key: Matrix<'a, T>,
    pub(super) bias: Option<Matrix<'a, T>>,
    pub(super) mask: Option<Matrix<'a, bool>>,
}

impl Problem {
    /// Reads sizes and scalars, and refuses what cannot be evaluated.
    pub(super) fn of(cx: &EvalCx<'_>) -> Result<Self> {
        let name = cx.call.row.name;
        let (query, value) = (cx.tensor("query")?, cx.tensor("value")?);
        let axes = query.sizes.len() - 2;
        let (width, keys) = (query.sizes[axes + 1], value.sizes[axes]);
        let dropout = cx.scalar("dropout_p").map_or(0.0, |p| p.as_f64());
        check_probability(name, dropout)?;
        if dropout != 0.0 {
            let message = format!("{name}: dropout_p {dropout} is not evaluated: which elements are dropped");
            return Err(Diagnostic::unsupported(
                code::NOT_EVALUATED,
                format!("{message} depends on the tiles of the kernel"),
            )
            .note("use dropout_p 0, or write the attention with matmul, softmax and uniform"));
        }
        let causal = cx.scalar("is_causal").is_some_and(|causal| causal.as_bool());
        if causal && (cx.opt_tensor("bias").is_some() || cx.opt_tensor("mask").is_some()) {
            return Err(causal_and_masked(name));
        }
        let scale = cx.scalar("scale").map_or_else(|| 1.0 / (width as f64).sqrt(), |scale| scale.as_f64());
        let (batch, queries) = (query.sizes[..axes].to_vec(), query.sizes[axes]);
        let masked = cx.opt_tensor("bias").is_some() || cx.opt_tensor("mask").is_some();
        let narrow = (query.dtype.is_reduced_float() && !masked).then_some(query.dtype);
        Ok(Self { batch, queries, keys, width, outputs: value.sizes[axes + 1], scale, causal, narrow })
    }

    /// Weights as they are multiplied: those of a flash kernel for small floats
    /// are made in `f32` and rounded to the type of the operands.
    pub(super) fn narrow(&self, weights: &mut [f64]) {
        let round: fn(f64) -> f64 = match self.narrow {
            Some(DType::F16) => |weight| f16_to_f64(f32_to_f16(weight as f32)),
            Some(DType::BF16) => |weight| bf16_to_f64(f32_to_bf16(weight as f32)),
            _ => return,
        };
        weights.iter_mut().for_each(|weight| *weight = round(*weight));
    }

    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// The number of batches.
    pub(super) fn batches(&self) -> usize {
        self.batch.iter().product()
    }

    /// The sizes of all scores.
    pub(super) fn score_sizes(&self) -> Vec<usize> {
        self.batch.iter().copied().chain([self.queries, self.keys]).collect()
    }

    /// The scores of queries `from ..`, as many as fit `scores`, which holds
    /// zeros; there is at least one key.
    pub(super) fn scores<T: ScoreElement>(&self, x: &Scored<'_, T>, from: usize, scores: &mut [f64]) {
        accumulate_rows(x.query.from(from, 0), x.key.transposed(), self.width, scores, self.keys);
        for (i, row) in scores.chunks_mut(self.keys).enumerate() {
            let i = from + i;
            row.iter_mut().for_each(|score| *score *= self.scale);
            if let Some(bias) = x.bias {
                row.iter_mut().enumerate().for_each(|(j, score)| *score += bias.get(i, j).lift());
            }
            if let Some(mask) = x.mask {
                row.iter_mut().enumerate().filter(|(j, _)| !mask.get(i, *j)).for_each(hide);
            }
            if self.causal {
                // Key j is seen if j + L <= i + S.
                let hidden = (i + self.keys + 1).saturating_sub(self.queries).min(self.keys);
                row[hidden..].fill(f64::NEG_INFINITY);
            }
        }
    }
}

fn hide((_, score): (usize, &mut f64)) {
    *score = f64::NEG_INFINITY;
}

/// `c += a * b` for dense rows of `columns` elements, at least one.
pub(super) fn accumulate_rows<T: Factor<f64>, U: Factor<f64>>(
    a: Matrix<'_, T>,
    b: Matrix<'_, U>,
    k: usize,
    c: &mut [f64],
    columns: usize,
) {
    let mut rows: Vec<&mut [f64]> = c.chunks_mut(columns).collect();
    crate::array::product::accumulate(a, b, k, &mut rows);
}

/// A probability of dropout is from 0 up to 1.
pub(super) fn check_probability(name: &str, p: f64) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Diagnostic::user(code::VALUE, format!("{name}: dropout_p is {p:?}, a probability is from 0 to 1")))
}

pub(super) fn causal_and_masked(name: &str) -> Box<Diagnostic> {
    Diagnostic::user(code::VALUE, format!("{name}: is_causal is true and a bias or mask is given"))
        .note("leave is_causal out and make the causal mask a part of the mask")
}

/// The matrices in the last two axes of a tensor.
pub(super) fn stack<T: Element>(x: &View) -> Result<Stack<'_, T>> {
    let axes = x.sizes.len() - 2;
    let matrix = Matrix { data: x.slice::<T>()?, row: x.strides[axes], column: x.strides[axes + 1] };
    Ok(Stack { matrix, strides: &x.strides[..axes] })
}

/// A result from dense row-major values, its axes in memory like an operand's.
pub(super) fn laid_out_like(operand: &View, dtype: DType, sizes: &[usize], values: &[f64]) -> View {
    let meta = operand.meta();
    let order = iteration_order(&meta.sizes, &[(&meta.sizes, &meta.strides)]);
    View::from_f64(dtype, sizes.to_vec(), values).to_order(&order)
}
