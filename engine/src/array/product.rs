//! Products of matrices, summed in `f64`.
//!
//! `c[.., i, j] = sum over k of a[.., i, k] * b[.., k, j]`, with `k` ascending
//! from 0 for every element: neither blocks nor threads change a result. A
//! block of `a` and one of `b` are packed in panels, each widened to the type of
//! the sums, so that the innermost loop is a small tile held in registers.

use super::parallel;
use multiversion::multiversion;

/// Rows of `c` in one task.
const ROWS: usize = 64;
/// Columns of `c` in one block, and in one task where there are few rows.
const COLUMNS: usize = 128;
/// Products that a block sums before the next one is packed.
const DEPTH: usize = 256;
/// Tasks above which columns are not split.
const TASKS: usize = 64;
/// Rows and columns of a tile.
const TILE: usize = 4;

/// What products are summed in.
pub(crate) trait Sum: Copy + Default + Send + Sync {
    /// `self + a * b`.
    fn plus(self, a: Self, b: Self) -> Self;
}

impl Sum for f64 {
    #[inline(always)]
    fn plus(self, a: f64, b: f64) -> f64 {
        self + a * b
    }
}

/// An element that is summed in `S`.
pub(crate) trait Factor<S>: Copy + Send + Sync {
    /// The same value in the type of the sum.
    fn lift(self) -> S;
}

/// Real and imaginary part.
impl Sum for (f64, f64) {
    #[inline(always)]
    fn plus(self, a: Self, b: Self) -> Self {
        (self.0 + (a.0 * b.0 - a.1 * b.1), self.1 + (a.0 * b.1 + a.1 * b.0))
    }
}

impl Factor<(f64, f64)> for (f64, f64) {
    fn lift(self) -> Self {
        self
    }
}

impl Factor<f64> for f64 {
    fn lift(self) -> f64 {
        self
    }
}

impl Factor<f64> for f32 {
    fn lift(self) -> f64 {
        self.into()
    }
}

/// A matrix in memory: element `(i, j)` is at `i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// A dense matrix of `columns` columns.
    pub(crate) fn dense(data: &'a [T], columns: usize) -> Self {
        Self { data, row: columns, column: 1 }
    }

    /// An element.
    #[inline]
    pub(crate) fn get(&self, i: usize, j: usize) -> T
    where
        T: Copy,
    {
        self.data[i * self.row + j * self.column]
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self { data: self.data, row: self.column, column: self.row }
    }

    /// The matrix that starts at an element of this one. Past the end only
    /// empty ones start.
    pub(crate) fn from(self, i: usize, j: usize) -> Self {
        let data = self.data.get(i * self.row + j * self.column..).unwrap_or(&[]);
        Self { data, ..self }
    }
}

/// Matrices of equal shape: batch `[i, j, ...]` starts at `i * strides[0] + ...`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack<'a, T> {
    pub(crate) matrix: Matrix<'a, T>,
    pub(crate) strides: &'a [usize],
}

impl<'a, T> Stack<'a, T> {
    /// The matrix of a batch, counted in row-major order of `sizes`.
    pub(crate) fn at(&self, sizes: &[usize], batch: usize) -> Matrix<'a, T> {
        let (mut rest, mut offset) = (batch, 0);
        for (&size, &stride) in sizes.iter().zip(self.strides).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        Matrix { data: self.matrix.data.get(offset..).unwrap_or(&[]), ..self.matrix }
    }
}

/// The products of stacks of `m x k` and `k x n` matrices, one for each batch of
/// `sizes`, dense.
pub(crate) fn products<T, U, S>(a: Stack<'_, T>, b: Stack<'_, U>, sizes: &[usize], [m, k, n]: [usize; 3]) -> Vec<S>
where
    T: Factor<S>,
    U: Factor<S>,
    S: Sum,
{
    let batches: usize = sizes.iter().product();
    let mut sums = vec![S::default(); batches * m * n];
    if sums.is_empty() || k == 0 {
        return sums;
    }
    let task = |(batch, i, j, mut rows): (usize, usize, usize, Vec<&mut [S]>)| {
        accumulate(a.at(sizes, batch).from(i, 0), b.at(sizes, batch).from(0, j), k, &mut rows);
    };
    if batches * m.div_ceil(ROWS) >= TASKS || n <= COLUMNS {
        let blocks = |(batch, c): (usize, _)| {
            <[S]>::chunks_mut(c, ROWS * n).enumerate().map(move |(block, rows)| (batch, block * ROWS, rows))
        };
        parallel::consume(sums.chunks_mut(m * n).enumerate().flat_map(blocks).collect(), &|(batch, i, rows)| {
            task((batch, i, 0, rows.chunks_mut(n).collect()));
        });
        return sums;
    }
    let mut tasks = Vec::new();
    for (batch, c) in sums.chunks_mut(m * n).enumerate() {
        for (block, rows) in c.chunks_mut(ROWS * n).enumerate() {
            let mut parts: Vec<Vec<&mut [S]>> = Vec::new();
            parts.resize_with(n.div_ceil(COLUMNS), Vec::new);
            for row in rows.chunks_mut(n) {
                row.chunks_mut(COLUMNS).zip(&mut parts).for_each(|(part, task)| task.push(part));
            }
            tasks.extend(parts.into_iter().enumerate().map(|(part, rows)| (batch, block * ROWS, part * COLUMNS, rows)));
        }
    }
    parallel::consume(tasks, &task);
    sums
}

/// `c += a * b` on one thread. `c` is given by its rows, of equal length; `k` is
/// the number of columns of `a`.
pub(crate) fn accumulate<T, U, S>(a: Matrix<'_, T>, b: Matrix<'_, U>, k: usize, c: &mut [&mut [S]])
where
    T: Factor<S>,
    U: Factor<S>,
    S: Sum,
{
    let n = c.first().map_or(0, |row| row.len());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (block, rows) in c.chunks_mut(ROWS).enumerate() {
        for from in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - from);
            pack(a.from(block * ROWS, from), rows.len(), depth, &mut left);
            for j in (0..n).step_by(COLUMNS) {
                let columns = COLUMNS.min(n - j);
                pack(b.from(from, j).transposed(), columns, depth, &mut right);
                panels(&left, &right, depth, rows, j..j + columns);
            }
        }
    }
}

/// Packs `rows` rows of `depth` elements in panels of [`TILE`] rows: element
/// `(i, k)` goes to place `i % TILE` of item `i / TILE * depth + k`. Missing rows are 0.
fn pack<T: Factor<S>, S: Sum>(a: Matrix<'_, T>, rows: usize, depth: usize, panels: &mut Vec<[S; TILE]>) {
    panels.clear();
    panels.resize(rows.div_ceil(TILE) * depth, [S::default(); TILE]);
    for i in 0..rows {
        let panel = &mut panels[i / TILE * depth..][..depth];
        let row = &a.data[i * a.row..];
        if a.column == 1 {
            panel.iter_mut().zip(row).for_each(|(to, from)| to[i % TILE] = from.lift());
        } else {
            panel.iter_mut().enumerate().for_each(|(k, to)| to[i % TILE] = row[k * a.column].lift());
        }
    }
}

/// Adds the products of packed panels to columns `at` of `rows`. Wider vectors of the host add the same numbers in the same
/// order, so results are those of any other.
#[multiversion(targets("x86_64+avx2"), dispatcher = "direct")]
fn panels<S: Sum>(
    left: &[[S; TILE]],
    right: &[[S; TILE]],
    depth: usize,
    rows: &mut [&mut [S]],
    at: std::ops::Range<usize>,
) {
    for (rows, a) in rows.chunks_mut(TILE).zip(left.chunks(depth)) {
        for (j, b) in at.clone().step_by(TILE).zip(right.chunks(depth)) {
            let mut tile = [[S::default(); TILE]; TILE];
            let width = TILE.min(at.end - j);
            for (row, sums) in rows.iter().zip(&mut tile) {
                sums[..width].copy_from_slice(&row[j..j + width]);
            }
            for (a, b) in a.iter().zip(b) {
                for (sums, &x) in tile.iter_mut().zip(a) {
                    for (sum, &y) in sums.iter_mut().zip(b) {
                        *sum = sum.plus(x, y);
                    }
                }
            }
            for (row, sums) in rows.iter_mut().zip(&tile) {
                row[j..j + width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arbtest::arbitrary;

    /// Against one loop per element; integers, so that every order gives the same.
    #[test]
    fn products_of_any_shape_and_strides() {
        crate::property::property(|u| {
            let sizes = [u.int_in_range(1..=3)?, u.int_in_range(1..=2)?];
            let large = u.ratio(1u8, 4u8)?;
            let mut extent = || u.int_in_range(0..=if large { 300usize } else { 9 });
            let [m, k, n] = [extent()?, extent()?, extent()?];
            let mut strides = |rows: usize, columns: usize| -> arbitrary::Result<([usize; 2], [usize; 2])> {
                let matrix = if u.arbitrary()? { [columns, 1] } else { [1, rows] };
                let one = rows * columns;
                Ok((matrix, if u.arbitrary()? { [2 * one, one] } else { [0, one] }))
            };
            let ((a, outer_a), (b, outer_b)) = (strides(m, k)?, strides(k, n)?);
            let fill = |len: usize| (0..len).map(|i| ((i * 7919) % 31) as f32 - 15.0).collect::<Vec<_>>();
            let (x, y) = (fill(6 * m * k), fill(6 * k * n));
            let matrix = |data, [row, column]: [usize; 2]| Matrix { data, row, column };
            let left = Stack { matrix: matrix(&x[..], a), strides: &outer_a };
            let right = Stack { matrix: matrix(&y[..], b), strides: &outer_b };
            let sums: Vec<f64> = products(left, right, &sizes, [m, k, n]);
            assert_eq!(sums.len(), sizes[0] * sizes[1] * m * n);
            for (place, sum) in sums.iter().enumerate() {
                let (p, q) = (place / (m * n) / sizes[1], place / (m * n) % sizes[1]);
                let (i, j) = (place / n % m, place % n);
                let (x, y) = (&x[p * outer_a[0] + q * outer_a[1]..], &y[p * outer_b[0] + q * outer_b[1]..]);
                let (mut expected, mut left, mut right) = (0.0, i * a[0], j * b[1]);
                // Plain, since it runs millions of times without optimisation.
                let end = left + k * a[1];
                while left < end {
                    expected += x[left] * y[right];
                    (left, right) = (left + a[1], right + b[0]);
                }
                assert_eq!(*sum, f64::from(expected), "{m}x{k}x{n}");
            }
            Ok(())
        })
        .cases(200);
    }
}
