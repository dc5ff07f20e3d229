//! The order of axes in which an elementwise operation visits its operands and
//! lays out its result, as PyTorch's tensor iterator chooses it: the axis of the
//! smallest stride innermost, by the first operand that tells two axes apart.

use crate::util::{order_by_key, sort_by_key};

/// Sizes and strides of an operand, aligned to the result's axes.
pub(crate) type Operand<'a> = (&'a [i64], &'a [i64]);

/// The axes of a result of `sizes`, outermost first, in memory order.
pub(crate) fn iteration_order(sizes: &[i64], operands: &[Operand<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).rev().collect();
    // An insertion sort, innermost first; it must be this one, because the
    // comparison is not transitive where axes of several operands repeat.
    for next in 1..order.len() {
        let mut moving = next;
        for place in (0..next).rev() {
            match compare(sizes, operands, order[place], order[moving]) {
                std::cmp::Ordering::Greater => {
                    order.swap(place, moving);
                    moving = place;
                }
                std::cmp::Ordering::Less => break,
                std::cmp::Ordering::Equal => {}
            }
        }
    }
    order.reverse();
    order
}

/// Which of two axes is the inner one: `Less` if it is `a`.
fn compare(sizes: &[i64], operands: &[Operand<'_>], a: usize, b: usize) -> std::cmp::Ordering {
    for (own, strides) in operands {
        // An operand that repeats along an axis steps by 0 there.
        let step = |axis: usize| if own[axis] == 1 && sizes[axis] != 1 { 0 } else { strides[axis] };
        let (x, y) = (step(a), step(b));
        if x == 0 || y == 0 {
            continue;
        }
        if x != y {
            return x.cmp(&y);
        }
        if sizes[a] > sizes[b] {
            return std::cmp::Ordering::Greater;
        }
    }
    std::cmp::Ordering::Equal
}

/// The axes of images with their channels innermost.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// How an elementwise result lies in new storage: its axes in memory order,
/// outermost first, and its strides. `scalars` says whether an operand is a
/// scalar. Operands of one layout skip the order of axes, which only shows in
/// the strides of axes of size 1 and of empty tensors.
pub(crate) fn elementwise_layout(sizes: &[i64], operands: &[Operand<'_>], scalars: bool) -> (Vec<usize>, Vec<i64>) {
    let whole = !scalars && operands.iter().all(|(own, _)| *own == sizes);
    if whole && operands.iter().all(|(_, strides)| row_major(sizes, strides)) {
        return ((0..sizes.len()).collect(), row_major_strides(sizes));
    }
    if whole && sizes.len() == 4 && operands.iter().all(|(_, strides)| is_dense_in(sizes, strides, &CHANNELS_LAST)) {
        return (CHANNELS_LAST.to_vec(), dense_strides_in(sizes, &CHANNELS_LAST));
    }
    if let Some((_, first)) = operands.first()
        && whole
        && operands.iter().all(|(_, strides)| strides == first)
        && is_dense(sizes, first)
    {
        return kept(sizes, first);
    }
    let order = iteration_order(sizes, operands);
    if order.is_sorted() {
        return (order, row_major_strides(sizes));
    }
    // Here an axis of size 0 is not counted as 1.
    let mut strides = vec![1i64; sizes.len()];
    for pair in order.windows(2).rev() {
        strides[pair[0]] = strides[pair[1]].saturating_mul(sizes[pair[1]]);
    }
    (order, strides)
}

/// The same for a copy or conversion of one tensor, which keeps every stride
/// where there are no holes.
pub(crate) fn copy_layout(sizes: &[i64], strides: &[i64]) -> (Vec<usize>, Vec<i64>) {
    if is_dense(sizes, strides) {
        return kept(sizes, strides);
    }
    let order = iteration_order(sizes, &[(sizes, strides)]);
    let strides = dense_strides_in(sizes, &order);
    (order, strides)
}

/// Strides of a copy that keeps the layout of its operand: the same ones, or,
/// where they leave holes or repeat, dense ones in their order.
pub(crate) fn clone_strides(sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    copy_layout(sizes, strides).1
}

/// A dense layout as it is.
fn kept(sizes: &[i64], strides: &[i64]) -> (Vec<usize>, Vec<i64>) {
    // Axes of size 1 lie anywhere.
    let stride = |axis: usize| if sizes[axis] < 2 { i64::MAX } else { strides[axis] };
    let order = order_by_key(sizes.len(), |axis| std::cmp::Reverse(stride(axis)));
    (order, strides.to_vec())
}

/// Strides of a dense layout whose axes lie in memory in `order`, outermost
/// first: `strides[order[i]] = product of sizes[order[i + 1 ..]]`, 0 counted as 1.
pub(crate) fn dense_strides_in(sizes: &[i64], order: &[usize]) -> Vec<i64> {
    let mut strides = vec![1i64; sizes.len()];
    let mut step = 1i64;
    for &axis in order.iter().rev() {
        strides[axis] = step;
        step = step.saturating_mul(sizes[axis].max(1));
    }
    strides
}

/// Row-major strides, 0 counted as 1.
pub(crate) fn row_major_strides(sizes: &[i64]) -> Vec<i64> {
    let order: Vec<usize> = (0..sizes.len()).collect();
    dense_strides_in(sizes, &order)
}

fn row_major(sizes: &[i64], strides: &[i64]) -> bool {
    let order: Vec<usize> = (0..sizes.len()).collect();
    sizes.contains(&0) || is_dense_in(sizes, strides, &order)
}

/// Whether axes lie dense in memory in `order`, outermost first; those of size 1
/// may have any stride.
fn is_dense_in(sizes: &[i64], strides: &[i64], order: &[usize]) -> bool {
    let dense = dense_strides_in(sizes, order);
    (0..sizes.len()).all(|axis| sizes[axis] == 1 || strides[axis] == dense[axis])
}

/// Whether a layout has neither holes nor elements that share a place. Axes of
/// size 1 may have any stride, and so may all if there is no element.
pub(crate) fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    let mut axes: Vec<usize> = (0..sizes.len()).filter(|&axis| sizes[axis] != 1).collect();
    sort_by_key(&mut axes, |&axis| strides[axis]);
    let mut step = 1i64;
    sizes.contains(&0)
        || axes.iter().all(|&axis| {
            let dense = strides[axis] == step;
            step = step.saturating_mul(sizes[axis]);
            dense
        })
}

/// The strides of a dense layout in the order of another: that one, where it is dense.
pub(crate) fn dense_like(sizes: &[i64], strides: &[i64]) -> Vec<i64> {
    if is_dense(sizes, strides) {
        return strides.to_vec();
    }
    let order = order_by_key(sizes.len(), |axis| std::cmp::Reverse(strides[axis]));
    dense_strides_in(sizes, &order)
}

/// Items in another order.
pub(crate) fn permuted<T: Copy>(items: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&axis| items[axis]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_strides(sizes: &[i64], operands: &[Operand<'_>], scalars: bool, expected: &[i64]) {
        assert_eq!(elementwise_layout(sizes, operands, scalars).1, expected, "{sizes:?} {operands:?}");
    }

    #[test]
    fn results_keep_the_order_of_their_operands_axes() {
        check_strides(&[2, 3, 4], &[(&[2, 3, 4], &[12, 4, 1])], false, &[12, 4, 1]);
        check_strides(&[4, 2, 3], &[(&[4, 2, 3], &[1, 12, 4])], false, &[1, 12, 4]);
        // Holes close.
        check_strides(&[2, 3], &[(&[2, 3], &[100, 10])], false, &[3, 1]);
        check_strides(&[3, 2], &[(&[3, 2], &[1, 5])], true, &[1, 3]);
        // The first operand that tells the axes apart decides.
        check_strides(&[3, 2], &[(&[1, 2], &[9, 1]), (&[3, 2], &[1, 3])], false, &[1, 3]);
        check_strides(&[3, 2], &[(&[3, 2], &[2, 1]), (&[3, 2], &[1, 3])], false, &[2, 1]);
        // Expanded axes tell nothing.
        check_strides(&[3, 2], &[(&[3, 2], &[0, 1])], false, &[2, 1]);
        check_strides(&[], &[(&[], &[])], false, &[]);
        check_strides(&[0, 3], &[(&[0, 3], &[3, 1])], false, &[3, 1]);
    }

    #[test]
    fn axes_of_size_one_keep_odd_strides_only_where_nothing_moves() {
        check_strides(&[1, 3, 2], &[(&[1, 3, 2], &[77, 1, 3])], false, &[77, 1, 3]);
        check_strides(&[1, 5], &[(&[1, 5], &[7, 1])], false, &[5, 1]);
    }

    #[test]
    fn row_major_operands_give_row_major_results_whatever_tells_no_axes_apart() {
        check_strides(&[3, 1], &[(&[3, 1], &[1, 1])], false, &[1, 1]);
        check_strides(&[3, 1], &[(&[3, 1], &[1, 1]), (&[3, 1], &[1, 9])], false, &[1, 1]);
        let (dense, back): (&[i64], &[i64]) = (&[4, 4, 1], &[1, 2, 2]);
        check_strides(&[2, 0, 4], &[(&[2, 0, 4], dense), (&[2, 0, 4], back)], false, dense);
        check_strides(&[2, 0, 4], &[(&[2, 0, 4], back)], true, &[1, 2, 0]);
        // So do images with their channels innermost.
        let image: &[i64] = &[4, 3, 1, 3];
        check_strides(image, &[(image, &[9, 1, 36, 3]), (image, &[9, 1, 50, 3])], false, &[9, 1, 9, 3]);
    }

    #[test]
    fn copies_close_holes_and_keep_the_order() {
        assert_eq!(clone_strides(&[2, 3], &[1, 2]), [1, 2]);
        assert_eq!(clone_strides(&[1, 3], &[77, 1]), [77, 1]);
        assert_eq!(clone_strides(&[2, 3], &[1, 5]), [1, 2]);
        assert_eq!(clone_strides(&[2, 3], &[0, 1]), [3, 1]);
        assert_eq!(clone_strides(&[0, 3], &[9, 9]), [9, 9]);
    }
}
