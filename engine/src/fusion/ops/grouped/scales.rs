//! Operands with their scales applied, and what is done to the sums.

use super::swizzle::{self, place};
use crate::array::{Data, View, parallel};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::EvalCx;
use crate::num::DType;

/// A matrix of rows of length `k` with a swizzled scale for each block of
/// elements of a row, all of them in `scales` from `base` on. What is scaled is
/// exact: it has few bits.
pub(super) fn with_blocks(name: &str, x: &View, scales: &[f64], base: usize, block: usize) -> Result<View> {
    let (rows, k) = (x.sizes[0], x.sizes[1]);
    let columns = columns(k, block);
    check_scales(name, [rows, k], scales.len(), base, block)?;
    let scales = scales.get(base..).unwrap_or(&[]);
    let mut values = x.to_f64();
    if k > 0 {
        parallel::rows(&mut values, k, &|row, values| {
            for (i, value) in values.iter_mut().enumerate() {
                *value *= scales[place(row, i / block, columns)];
            }
        });
    }
    Ok(View::dense(DType::F64, vec![rows, k], Data::F64(values)))
}

/// Swizzled scales of a row of length `k`.
fn columns(k: usize, block: usize) -> usize {
    k.div_ceil(block).next_multiple_of(swizzle::COLUMNS)
}

/// Fails if rows of length `k` need more swizzled scales from `base` on than there are.
pub(super) fn check_scales(name: &str, [rows, k]: [usize; 2], count: usize, base: usize, block: usize) -> Result<()> {
    let needed = rows.next_multiple_of(swizzle::ROWS) * columns(k, block);
    if base.checked_add(needed).is_some_and(|end| end <= count) {
        return Ok(());
    }
    let message = format!("{name}: {rows} rows need {needed} swizzled scales from {base} on, there are {count}");
    Err(Diagnostic::user(code::VALUE, message).note("rows are padded to a multiple of 128"))
}

/// One factor for each of `count` rows or columns: all there are, or one for all.
pub(super) fn factors(scale: &View, count: usize) -> Vec<f64> {
    match scale.len() {
        1 => vec![scale.to_f64()[0]; count],
        _ => scale.to_f64(),
    }
}

/// Multiplies element `(i, j)` by `rows[i] * columns[j]`.
pub(super) fn scale(values: &mut [f64], rows: &[f64], columns: &[f64]) {
    if columns.is_empty() {
        return;
    }
    for (values, row) in values.chunks_mut(columns.len()).zip(rows) {
        values.iter_mut().zip(columns).for_each(|(value, column)| *value *= row * column);
    }
}

/// The result: `alpha * values + beta * bias`, each rounded once.
pub(super) fn finish(cx: &EvalCx<'_>, mut values: Vec<f64>) -> Vec<View> {
    let (dtype, sizes) = &cx.results[0];
    let number = |name: &str| cx.opt_tensor(name).map_or(1.0, |x| x.to_f64().first().copied().unwrap_or(1.0));
    let (alpha, beta) = (number("alpha"), number("beta"));
    values.iter_mut().for_each(|value| *value *= alpha);
    if let Some(bias) = cx.opt_tensor("bias") {
        let ahead = sizes.len() - bias.sizes.len();
        let mut own = vec![1; ahead];
        own.extend(&bias.sizes);
        let mut strides = vec![0; ahead];
        strides.extend(&bias.strides);
        let bias = bias.seen(own, strides, 0).expanded(sizes).to_f64();
        values.iter_mut().zip(bias).for_each(|(value, bias)| *value += beta * bias);
    }
    vec![View::from_f64(*dtype, sizes.clone(), &values)]
}
