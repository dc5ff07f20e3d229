//! The order of axes in which an elementwise operation visits its operands and
//! lays out its result, as PyTorch's tensor iterator chooses it: the axis of the
//! smallest stride innermost, by the first operand that tells two axes apart.

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

/// The strides of an elementwise result in new storage. `scalars` says whether
/// an operand is a scalar.
pub(crate) fn elementwise_strides(sizes: &[i64], operands: &[Operand<'_>], scalars: bool) -> Vec<i64> {
    if let Some((_, first)) = operands.first()
        && !scalars
        && operands.iter().all(|(own, strides)| *own == sizes && strides == first)
        && !row_major(sizes, first)
        && is_dense(sizes, first)
    {
        return first.to_vec();
    }
    dense_strides_in(sizes, &iteration_order(sizes, operands))
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
    let dense = row_major_strides(sizes);
    sizes.contains(&0) || (0..sizes.len()).all(|axis| sizes[axis] == 1 || strides[axis] == dense[axis])
}

/// Whether a layout has neither holes nor elements that share a place.
pub(crate) fn is_dense(sizes: &[i64], strides: &[i64]) -> bool {
    if sizes.contains(&0) {
        return true;
    }
    let mut axes: Vec<usize> = (0..sizes.len()).filter(|&axis| sizes[axis] != 1).collect();
    axes.sort_by_key(|&axis| strides[axis]);
    let mut step = 1i64;
    axes.iter().all(|&axis| {
        let dense = strides[axis] == step;
        step = step.saturating_mul(sizes[axis]);
        dense
    })
}

/// Items in another order.
pub(crate) fn permuted<T: Copy>(items: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|&axis| items[axis]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_strides(sizes: &[i64], operands: &[Operand<'_>], scalars: bool, expected: &[i64]) {
        assert_eq!(elementwise_strides(sizes, operands, scalars), expected, "{sizes:?} {operands:?}");
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
}
