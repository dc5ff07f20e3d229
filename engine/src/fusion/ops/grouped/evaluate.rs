//! Values of the products with groups and scales.

use super::block_of;
use super::scales::{check_scales, factors, finish, scale, with_blocks};
use crate::array::{Sums, View};
use crate::diag::{Diagnostic, Result, code};
use crate::fusion::ops::EvalCx;
use crate::tensor::HostTensor;
use std::ops::Range;

/// Elements of a row with one scale, of groups that start anywhere.
const BLOCK: usize = 16;

/// Part of a tensor along an axis.
fn cut(x: &View, axis: usize, range: &Range<usize>) -> View {
    let mut sizes = x.sizes.clone();
    sizes[axis] = range.len();
    x.seen(sizes, x.strides.clone(), range.start * x.strides[axis])
}

/// An element along the first axis.
fn pick(x: &View, i: usize) -> View {
    x.seen(x.sizes[1..].to_vec(), x.strides[1..].to_vec(), i * x.strides[0])
}

/// The groups that end at offsets, of `extent` elements.
fn groups(name: &str, ends: &[i64], extent: usize) -> Result<Vec<Range<usize>>> {
    let mut start = 0;
    let mut groups = Vec::with_capacity(ends.len());
    for (i, &end) in ends.iter().enumerate() {
        match usize::try_from(end) {
            Ok(end) if (start..=extent).contains(&end) => {
                groups.push(start..end);
                start = end;
            }
            _ => {
                let message = format!("{name}: group {i} ends at {end}, it must end from {start} to {extent}");
                return Err(
                    Diagnostic::user(code::VALUE, message).note("offsets are the ends of the groups, ascending")
                );
            }
        }
    }
    Ok(groups)
}

/// Fails if offsets are no ends of groups of an axis of a size, as the evaluation of `name` does.
pub fn check_groups(name: &str, offsets: &HostTensor, size: i64) -> Result<()> {
    groups(name, &View::load(offsets).to_i64(), usize::try_from(size).unwrap_or(0)).map(drop)
}

/// The products of groups, each with its number and its rows or columns, as `scaled` leaves them.
fn products(cx: &EvalCx<'_>, scaled: impl Fn(usize, &Range<usize>, &mut Vec<f64>)) -> Result<Vec<f64>> {
    let (a, b) = (cx.tensor("mat1")?, cx.tensor("mat2")?);
    let ranks = (a.sizes.len(), b.sizes.len());
    let (m, k, n) = (a.sizes[ranks.0 - 2], a.sizes[ranks.0 - 1], b.sizes[ranks.1 - 1]);
    let split = match ranks {
        (2, 2) => k,
        (3, 2) => n,
        _ => m,
    };
    let ends = cx.tensor("offsets")?.to_i64();
    let mut values = vec![0.0; cx.results[0].1.iter().product()];
    for (i, range) in groups(cx.call.row.name, &ends, split)?.iter().enumerate() {
        let (x, y, start) = match ranks {
            (2, 2) => (part(a, i, 1, range), part(b, i, 0, range), i * m * n),
            (3, 2) => (part(a, i, 0, range), part(b, i, 1, range), range.start),
            _ => (part(a, i, 0, range), part(b, i, 0, range), range.start * n),
        };
        let mut product = Sums::of(&x, &y, &[])?.into_real()?;
        scaled(i, range, &mut product);
        let columns = y.sizes[1];
        for (row, from) in product.chunks(columns.max(1)).enumerate() {
            values[start + row * n..][..columns].copy_from_slice(from);
        }
    }
    Ok(values)
}

/// What a group has of a tensor: a stack has one item for each group; a matrix is cut along an axis.
fn part(x: &View, group: usize, axis: usize, range: &Range<usize>) -> View {
    if x.sizes.len() == 3 { pick(x, group) } else { cut(x, axis, range) }
}

pub(super) fn grouped(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (a, b, count) = (cx.tensor("mat1")?, cx.tensor("mat2")?, cx.tensor("offsets")?.len());
    let (m, n) = (a.sizes[a.sizes.len() - 2], b.sizes[b.sizes.len() - 1]);
    // Scales in full size: groups ahead where they or the result have them.
    let full = |name: &str, sizes: [usize; 3]| cx.opt_tensor(name).map(|x| x.expanded(&sizes[3 - x.sizes.len()..]));
    let (left, right) = (full("scale1", [count, m, 1]), full("scale2", [count, 1, n]));
    let values = products(cx, |i, range, product| {
        if let (Some(left), Some(right)) = (&left, &right) {
            let (left, right) = (part(left, i, 0, range), part(right, i, 1, range));
            scale(product, &left.to_f64(), &right.to_f64());
        }
    })?;
    Ok(finish(cx, values))
}

pub(super) fn sums(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let (dtype, sizes) = &cx.results[0];
    Ok(vec![View::from_f64(*dtype, sizes.clone(), &products(cx, |_, _, _| {})?)])
}

pub(super) fn scaled(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let name = cx.call.row.name;
    let (a, b) = (cx.tensor("mat1")?, cx.tensor("mat2")?.permuted(&[1, 0]));
    // Rows of both have length k; scales of blocks are applied before, the others after.
    let mut rows = Vec::with_capacity(2);
    let mut after = Vec::with_capacity(2);
    for (x, scale) in [(a, "scale1"), (&b, "scale2")] {
        let scale = cx.tensor(scale)?;
        let (scaled, factors) = match block_of(scale.dtype) {
            Some(block) => (with_blocks(name, x, &scale.to_f64(), 0, block)?, vec![1.0; x.sizes[0]]),
            None => (x.to_type_f64(), factors(scale, x.sizes[0])),
        };
        rows.push(scaled);
        after.push(factors);
    }
    let mut values = Sums::of(&rows[0], &rows[1].permuted(&[1, 0]), &[])?.into_real()?;
    scale(&mut values, &after[0], &after[1]);
    Ok(finish(cx, values))
}

/// Products of groups that start anywhere.
pub struct Experts<'a> {
    /// The operation.
    pub name: &'a str,
    /// Rows, what is summed over, and columns.
    pub matrix: [usize; 3],
    /// The scales of rows that there are.
    pub scales: usize,
}

impl Experts<'_> {
    /// The rows of each group, and where its scales start; fails if a group does not fit the matrices, or lacks scales.
    fn groups(&self, sizes: &[i64], starts: &[i64], bases: &[i64]) -> Result<Vec<(Range<usize>, usize)>> {
        let groups = sizes.chunks(3).zip(starts.iter().zip(bases)).enumerate();
        groups.map(|(i, (size, (start, base)))| self.group(i, size, *start, *base)).collect()
    }

    fn group(&self, i: usize, size: &[i64], start: i64, base: i64) -> Result<(Range<usize>, usize)> {
        let (name, [m, k, n]) = (self.name, self.matrix);
        let place = |at: i64| usize::try_from(at).ok();
        let rows = place(start).zip(place(size[0])).and_then(|(start, rows)| Some(start..start.checked_add(rows)?));
        let inside = |rows: &Range<usize>| rows.end <= m && size[1..] == [n as i64, k as i64];
        let (Some(rows), Some(base)) = (rows.filter(inside), place(base)) else {
            let message = format!("{name}: group {i} of sizes {size:?} from row {start} on, scales from {base} on");
            return Err(Diagnostic::user(
                code::VALUE,
                format!("{message}, does not fit matrices [{m}, {k}] [{k}, {n}]"),
            ));
        };
        let base = base.saturating_mul(k / BLOCK);
        // Of no rows no scale is read, wherever it would be.
        if !rows.is_empty() {
            check_scales(name, [rows.len(), k], self.scales, base, BLOCK)?;
        }
        Ok((rows, base))
    }
}

/// Fails if groups do not fit the matrices, or lack scales, as the evaluation does.
pub fn check_experts(experts: &Experts<'_>, [sizes, starts, bases]: [&HostTensor; 3]) -> Result<()> {
    let ints = |x: &HostTensor| View::load(x).to_i64();
    experts.groups(&ints(sizes), &ints(starts), &ints(bases)).map(drop)
}

pub(super) fn cutlass(cx: &EvalCx<'_>) -> Result<Vec<View>> {
    let name = cx.call.row.name;
    let (a, b) = (cx.tensor("mat1")?, cx.tensor("mat2")?);
    let matrix @ [m, _, n] = [a.sizes[0], a.sizes[1], b.sizes[2]];
    let (left, right) = (cx.tensor("scale1")?, cx.tensor("scale2")?);
    let own = right.sizes[1] * right.sizes[2];
    let (left, right, alpha) = (left.to_f64(), right.to_f64(), cx.tensor("alpha")?.to_f64());
    let ints = |name: &str| Ok::<_, Box<Diagnostic>>(cx.tensor(name)?.to_i64());
    let (sizes, starts, bases) = (ints("problem_sizes")?, ints("expert_offsets")?, ints("sf_offsets")?);
    let mut values = vec![0.0; m * n];
    let groups = Experts { name, matrix, scales: left.len() }.groups(&sizes, &starts, &bases)?;
    for (i, (rows, base)) in groups.into_iter().enumerate().filter(|(_, (rows, _))| !rows.is_empty()) {
        let x = with_blocks(name, &cut(a, 0, &rows), &left, base, BLOCK)?;
        let scales = right.get(i * own..(i + 1) * own).unwrap_or(&[]);
        let y = with_blocks(name, &pick(b, i).permuted(&[1, 0]), scales, 0, BLOCK)?;
        let product = Sums::of(&x, &y.permuted(&[1, 0]), &[])?.into_real()?;
        let target = &mut values[rows.start * n..rows.end * n];
        target.iter_mut().zip(product).for_each(|(value, sum)| *value = alpha[i] * sum);
    }
    let (dtype, sizes) = &cx.results[0];
    Ok(vec![View::from_f64(*dtype, sizes.clone(), &values)])
}
