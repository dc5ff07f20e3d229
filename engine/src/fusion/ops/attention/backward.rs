//! Values of the backward pass.
//!
//! With `P = exp(scores - logsumexp)` and `D = sum(grad_output * output)` of each row:
//! `grad_value = P^T grad_output`, `dS = P * (grad_output value^T - D)`,
//! `grad_query = scale * dS key`, `grad_key = scale * dS^T query`.

use super::problem::{Problem, ROWS, ScoreElement, Scored, accumulate_rows, laid_out_like, stack};
use crate::array::product::Matrix;
use crate::array::{Elements, View, parallel};
use crate::diag::{Diagnostic, Result};
use crate::fusion::ops::EvalCx;

pub(super) fn evaluate(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let query = cx.tensor("query")?;
    match query.elements() {
        Elements::F64(_) => evaluate_of::<f64>(cx),
        Elements::F32(_) => evaluate_of::<f32>(cx),
        _ => Err(Diagnostic::bug(format!("{} of {}", cx.call.row.name, query.dtype))),
    }
}

/// The operands of one batch.
struct Batch<'a, T> {
    scored: Scored<'a, T>,
    value: Matrix<'a, T>,
    output: Matrix<'a, T>,
    grad_output: Matrix<'a, T>,
    /// The logarithms of the rows' sums.
    log: &'a [f64],
}

/// The gradients of one batch.
struct Gradients {
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
}

fn evaluate_of<T: ScoreElement>(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let problem = Problem::of(cx)?;
    let tensor = |name| stack::<T>(cx.tensor(name)?);
    let (query, key, value) = (tensor("query")?, tensor("key")?, tensor("value")?);
    let (output, grad_output) = (tensor("output")?, tensor("grad_output")?);
    let log = cx.tensor("logsumexp")?.to_f64();
    let gradients: Vec<Gradients> = parallel::results(problem.batches(), &|batch| {
        let at = &problem.batch;
        let scored = Scored { query: query.at(at, batch), key: key.at(at, batch), bias: None, mask: None };
        problem.gradients(&Batch {
            scored,
            value: value.at(at, batch),
            output: output.at(at, batch),
            grad_output: grad_output.at(at, batch),
            log: &log[batch * problem.queries..][..problem.queries],
        })
    });
    let result = |place: usize, name: &str, of: fn(&Gradients) -> &[f64]| -> Result<View> {
        let values: Vec<f64> = gradients.iter().flat_map(of).copied().collect();
        let (dtype, sizes) = &cx.results[place];
        Ok(laid_out_like(cx.tensor(name)?, *dtype, sizes, &values))
    };
    Ok(vec![result(0, "query", |g| &g.query)?, result(1, "key", |g| &g.key)?, result(2, "value", |g| &g.value)?])
}

impl Problem {
    fn gradients<T: ScoreElement>(&self, x: &Batch<'_, T>) -> Gradients {
        let (queries, keys, width, outputs) = (self.queries, self.keys, self.width, self.outputs);
        let mut gradients = Gradients {
            query: vec![0.0; queries * width],
            key: vec![0.0; keys * width],
            value: vec![0.0; keys * outputs],
        };
        if keys == 0 {
            return gradients;
        }
        for from in (0..queries).step_by(ROWS) {
            self.add_rows(x, from, ROWS.min(queries - from), &mut gradients);
        }
        for gradient in [&mut gradients.query, &mut gradients.key] {
            gradient.iter_mut().for_each(|value| *value *= self.scale());
        }
        gradients
    }

    /// Adds what `count` queries from `from` on contribute, but for the scale.
    fn add_rows<T: ScoreElement>(&self, x: &Batch<'_, T>, from: usize, count: usize, gradients: &mut Gradients) {
        let (keys, width, outputs) = (self.keys, self.width, self.outputs);
        let mut weights = vec![0.0; count * keys];
        self.scores(&x.scored, from, &mut weights);
        for (row, log) in weights.chunks_mut(keys).zip(&x.log[from..]) {
            row.iter_mut().for_each(|score| *score = (*score - log).exp());
        }
        let grad_output = x.grad_output.from(from, 0);
        let mut slopes = vec![0.0; count * keys];
        if outputs > 0 {
            let mut narrow = weights.clone();
            self.narrow(&mut narrow);
            let transposed = Matrix::dense(&narrow, keys).transposed();
            accumulate_rows(transposed, grad_output, count, &mut gradients.value, outputs);
            accumulate_rows(grad_output, x.value.transposed(), outputs, &mut slopes, keys);
        }
        for (i, (slopes, weights)) in slopes.chunks_mut(keys).zip(weights.chunks(keys)).enumerate() {
            let term = |j| x.grad_output.get(from + i, j).lift() * x.output.get(from + i, j).lift();
            let mean = (0..outputs).fold(0.0, |sum, j| sum + term(j));
            slopes.iter_mut().zip(weights).for_each(|(slope, weight)| *slope = weight * (*slope - mean));
        }
        self.narrow(&mut slopes);
        if width > 0 {
            let slopes = Matrix::dense(&slopes, keys);
            let rows = &mut gradients.query[from * width..][..count * width];
            accumulate_rows(slopes, x.scored.key, keys, rows, width);
            let query = x.scored.query.from(from, 0);
            accumulate_rows(slopes.transposed(), query, count, &mut gradients.key, width);
        }
    }
}
