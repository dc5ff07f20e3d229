//! Values of the forward pass.

use super::problem::{Problem, ROWS, ScoreElement, Scored, accumulate_rows, laid_out_like, stack};
use crate::array::product::Matrix;
use crate::array::{Elements, View, parallel};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::EvalCx;
use crate::num::DType;

pub(super) fn evaluate(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let query = cx.tensor("query")?;
    match query.elements() {
        Elements::F64(_) => evaluate_of::<f64>(cx),
        Elements::F32(_) => evaluate_of::<f32>(cx),
        _ => Err(Diagnostic::bug(format!("{} of {}", cx.call.row.name, query.dtype))),
    }
}

fn evaluate_of<T: ScoreElement>(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let problem = Problem::of(cx)?;
    let sizes = problem.score_sizes();
    let (bias, mask) = (cx.opt_tensor("bias"), cx.opt_tensor("mask"));
    let (bias, mask) = (bias.map(|x| x.expanded(&sizes)), mask.map(|x| x.expanded(&sizes)));
    let (bias, mask) = (bias.as_ref().map(stack::<T>).transpose()?, mask.as_ref().map(stack::<bool>).transpose()?);
    let (query, key, value) =
        (stack::<T>(cx.tensor("query")?)?, stack(cx.tensor("key")?)?, stack(cx.tensor("value")?)?);
    let blocks = problem.queries.div_ceil(ROWS);
    let parts: Vec<(Vec<f64>, Vec<f64>)> = parallel::results(problem.batches() * blocks, &|task| {
        let (batch, from) = (task / blocks, task % blocks * ROWS);
        let at = &problem.batch;
        let scored = Scored {
            query: query.at(at, batch),
            key: key.at(at, batch),
            bias: bias.map(|bias| bias.at(at, batch)),
            mask: mask.map(|mask| mask.at(at, batch)),
        };
        rows(&problem, &scored, value.at(at, batch), from)
    });
    let (outputs, sums): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let (dtype, sizes) = &cx.results[0];
    Ok(vec![
        laid_out_like(cx.tensor("query")?, *dtype, sizes, &outputs.concat()),
        View::from_f64(DType::F32, cx.results[1].1.clone(), &sums.concat()),
        View::from_i64(DType::U64, vec![2], vec![0; 2]),
        View::from_i64(DType::U64, Vec::new(), vec![0]),
    ])
}

/// Outputs and logarithms of the sums of queries `from ..`.
fn rows<T: ScoreElement>(
    problem: &Problem,
    x: &Scored<'_, T>,
    value: Matrix<'_, T>,
    from: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (count, keys, outputs) = (ROWS.min(problem.queries - from), problem.keys, problem.outputs);
    let mut output = vec![0.0; count * outputs];
    if keys == 0 {
        return (output, vec![f64::INFINITY; count]);
    }
    let mut scores = vec![0.0; count * keys];
    problem.scores(x, from, &mut scores);
    let rows: Vec<(f64, f64)> = scores.chunks_mut(keys).map(exponentials).collect();
    problem.narrow(&mut scores);
    if outputs > 0 {
        accumulate_rows(Matrix::dense(&scores, keys), value, keys, &mut output, outputs);
        for (row, (sum, _)) in output.chunks_mut(outputs).zip(&rows) {
            row.iter_mut().for_each(|output| *output /= sum);
        }
    }
    (output, rows.into_iter().map(|(_, log)| log).collect())
}

/// `exp(score - max)` in place; their sum, and the logarithm of the sum of
/// `exp(score)`. Of a row that sees nothing the exponentials are 0, the sum
/// counts as 1 and the logarithm is +inf.
fn exponentials(scores: &mut [f64]) -> (f64, f64) {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY && !scores.iter().any(|score| score.is_nan()) {
        scores.fill(0.0);
        return (1.0, f64::INFINITY);
    }
    let mut sum = 0.0;
    for score in scores {
        *score = (*score - max).exp();
        sum += *score;
    }
    (sum, max + sum.ln())
}
