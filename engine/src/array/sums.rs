//! Sums of products before they are rounded.

use super::nest::update1;
use super::product::{Factor, Matrix, Stack, Sum, products};
use super::{Data, Elements, View, parallel};
use crate::diag::{Diagnostic, Result};
use crate::num::{DType, eval};

/// Dense matrices of sums.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    values: Values,
    /// The length of a row.
    columns: usize,
}

#[derive(Clone, Debug)]
enum Values {
    Real(Vec<f64>),
    Complex(Vec<eval::Complex>),
}

impl Sums {
    /// The products of the matrices in the last two axes of `a` and `b`, whose
    /// axes before them broadcast to `batch`, aligned at the right.
    pub(crate) fn of(a: &View, b: &View, batch: &[usize]) -> Result<Self> {
        let values = match (a.elements(), b.elements()) {
            (Elements::F32(x), Elements::F32(y)) => Values::Real(stacked(a, x, b, y, batch)),
            (Elements::F64(x), Elements::F64(y)) => Values::Real(stacked(a, x, b, y, batch)),
            (Elements::Complex(x), Elements::Complex(y)) => Values::Complex(stacked(a, x, b, y, batch)),
            _ => return Err(Diagnostic::bug(format!("a product of {} and {}", a.dtype, b.dtype))),
        };
        Ok(Self { values, columns: b.sizes.last().copied().unwrap_or(0) })
    }

    /// Adds a vector to every row; one of size 1, or without an axis, to all columns.
    pub(crate) fn add_row(&mut self, x: &View) -> Result<()> {
        let columns = self.columns;
        let stride = if x.len() == 1 { 0 } else { x.strides.first().copied().unwrap_or(0) };
        let row = x.seen(vec![columns], vec![stride], 0);
        match &mut self.values {
            Values::Real(values) => add(values, &row.to_f64(), |a, b| a + b),
            Values::Complex(values) => {
                let row = row.to_dense();
                add(values, row.slice::<eval::Complex>()?, |(a, b), (x, y)| (a + x, b + y));
            }
        }
        Ok(())
    }

    /// The sums, if they are real numbers.
    pub(crate) fn into_real(self) -> Result<Vec<f64>> {
        match self.values {
            Values::Real(values) => Ok(values),
            Values::Complex(_) => Err(Diagnostic::bug("sums of complex numbers where real ones are expected")),
        }
    }

    /// A dense tensor, each sum rounded once.
    pub(crate) fn rounded(self, dtype: DType, sizes: Vec<usize>) -> View {
        match self.values {
            Values::Real(values) if dtype == DType::F64 => View::dense(dtype, sizes, Data::F64(values)),
            Values::Real(values) => View::from_f64(dtype, sizes, &values),
            Values::Complex(mut values) => {
                update1(&mut values, |value| eval::round_complex(dtype, value));
                View::dense(dtype, sizes, Data::Complex(values))
            }
        }
    }
}

fn add<S: Copy + Send + Sync>(values: &mut [S], row: &[S], plus: impl Fn(S, S) -> S + Sync) {
    if row.is_empty() {
        return;
    }
    parallel::rows(values, row.len(), &|_, values| {
        values.iter_mut().zip(row).for_each(|(value, &x)| *value = plus(*value, x));
    });
}

fn stacked<T: Factor<S>, S: Sum>(a: &View, x: &[T], b: &View, y: &[T], batch: &[usize]) -> Vec<S> {
    let (rank, last) = (a.sizes.len(), b.sizes.len() - 1);
    let shape = [a.sizes[rank - 2], a.sizes[rank - 1], b.sizes[last]];
    let (outer_a, outer_b) = (batch_strides(a, batch), batch_strides(b, batch));
    let matrix = |view: &View| (view.strides[view.sizes.len() - 2], view.strides[view.sizes.len() - 1]);
    let ((row_a, column_a), (row_b, column_b)) = (matrix(a), matrix(b));
    let a = Stack { matrix: Matrix { data: x, row: row_a, column: column_a }, strides: &outer_a };
    let b = Stack { matrix: Matrix { data: y, row: row_b, column: column_b }, strides: &outer_b };
    products(a, b, batch, shape)
}

/// Strides of a stack of matrices along the axes of `batch`: 0 where it repeats.
fn batch_strides(x: &View, batch: &[usize]) -> Vec<usize> {
    let ahead = batch.len() + 2 - x.sizes.len();
    let stride = |(axis, &size): (usize, &usize)| match axis.checked_sub(ahead) {
        Some(own) if x.sizes[own] == size => x.strides[own],
        _ => 0,
    };
    batch.iter().enumerate().map(stride).collect()
}
