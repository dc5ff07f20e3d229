//! Strides of results that are not elementwise, as PyTorch's eager operations
//! choose them: of views of other sizes, and of new tensors in an operand's
//! memory format.

use super::order::{dense_strides_in, row_major_strides};

/// Strides with which elements of `sizes` and `strides` are seen through
/// `to`, a shape of as many elements; `None` if a copy is needed.
///
/// Walks from the innermost axis: a chunk is a run of axes that step
/// uniformly (`stride[d - 1] = size[d] * stride[d]`), and each chunk must be
/// covered exactly by axes of the result, whose strides are
/// `product of the inner result sizes in the chunk * the chunk's inner stride`.
pub(crate) fn view_strides(sizes: &[i64], strides: &[i64], to: &[i64]) -> Option<Vec<i64>> {
    if sizes.contains(&0) {
        return Some(if sizes == to { strides.to_vec() } else { row_major_strides(to) });
    }
    let Some(&innermost) = strides.last() else { return Some(vec![1; to.len()]) };
    let mut result = vec![0; to.len()];
    let mut left = to.len();
    let (mut base, mut own, mut seen) = (innermost, 1i64, 1i64);
    for d in (0..sizes.len()).rev() {
        own = own.checked_mul(sizes[d])?;
        let ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != own.checked_mul(base)?);
        if !ends {
            continue;
        }
        while left > 0 && (seen < own || to[left - 1] == 1) {
            left -= 1;
            result[left] = seen.checked_mul(base)?;
            seen = seen.checked_mul(to[left])?;
        }
        if seen != own {
            return None;
        }
        if d > 0 {
            (base, own, seen) = (strides[d - 1], 1, 1);
        }
    }
    (left == 0).then_some(result)
}

/// The axes of the format with the channels innermost that a layout is in,
/// outermost first; `None` for any other layout. Images and volumes (rank 4
/// and 5) have it if their strides ascend from the channels outwards.
fn channels_last(sizes: &[i64], strides: &[i64]) -> Option<&'static [usize]> {
    let order: &[usize] = match sizes.len() {
        4 => &[0, 2, 3, 1],
        5 => &[0, 2, 3, 4, 1],
        _ => return None,
    };
    // A single channel that repeats says nothing.
    if strides[1] == 0 {
        return None;
    }
    let mut least = 0;
    for &axis in order.iter().rev() {
        // Where batch and channels step alike, nothing tells the formats apart.
        if sizes[axis] == 0 || strides[axis] < least || (axis == 0 && least == strides[1]) {
            return None;
        }
        least = strides[axis].saturating_mul(sizes[axis].max(1));
    }
    Some(order)
}

/// Strides of a new tensor of `to` in the memory format that all operands
/// (sizes and strides) have: channels innermost, or else row-major.
pub(crate) fn format_strides(to: &[i64], operands: &[(&[i64], &[i64])]) -> Vec<i64> {
    let mut formats = operands.iter().map(|(sizes, strides)| channels_last(sizes, strides));
    match formats.next() {
        Some(Some(order)) if formats.all(|other| other == Some(order)) => dense_strides_in(to, order),
        _ => row_major_strides(to),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_view(sizes: &[i64], strides: &[i64], to: &[i64], expected: Option<&[i64]>) {
        assert_eq!(view_strides(sizes, strides, to).as_deref(), expected, "{sizes:?} {strides:?} {to:?}");
    }

    #[test]
    fn views_exist_where_axes_step_uniformly() {
        check_view(&[2, 6], &[6, 1], &[3, 4], Some(&[4, 1]));
        check_view(&[2, 3, 4], &[12, 4, 1], &[24], Some(&[1]));
        check_view(&[4, 2], &[1, 4], &[8], None);
        check_view(&[4, 2], &[1, 4], &[2, 2, 2], Some(&[2, 1, 4]));
        check_view(&[2, 3], &[10, 2], &[2, 1, 3, 1], Some(&[10, 6, 2, 2]));
        // Repeated elements are seen through 0 as long as nothing merges with them.
        check_view(&[2, 3], &[0, 1], &[6], None);
        check_view(&[4, 3], &[0, 1], &[2, 2, 3], Some(&[0, 0, 1]));
        check_view(&[2, 3], &[0, 0], &[6], Some(&[0]));
        check_view(&[], &[], &[1, 1], Some(&[1, 1]));
        check_view(&[1, 1], &[9, 7], &[], Some(&[]));
        check_view(&[1, 3], &[99, 1], &[3, 1], Some(&[1, 1]));
        check_view(&[0, 3], &[5, 7], &[0, 3], Some(&[5, 7]));
        check_view(&[0, 3], &[5, 7], &[2, 0, 4], Some(&[4, 4, 1]));
    }

    #[test]
    fn channels_stay_innermost_where_all_operands_have_them_there() {
        let last: (&[i64], &[i64]) = (&[2, 3, 4, 5], &[60, 1, 15, 3]);
        let first: (&[i64], &[i64]) = (&[2, 3, 4, 5], &[60, 20, 5, 1]);
        assert_eq!(format_strides(&[2, 6, 4, 5], &[last, last]), [120, 1, 30, 6]);
        assert_eq!(format_strides(&[2, 6, 4, 5], &[last, first]), [120, 20, 5, 1]);
        assert_eq!(format_strides(&[2, 3], &[(&[2, 3], &[1, 2])]), [3, 1]);
        // Nothing tells the formats of these apart.
        assert_eq!(format_strides(&[2, 1, 1, 1], &[(&[2, 1, 1, 1], &[1, 1, 1, 1])]), [1, 1, 1, 1]);
        let volume: (&[i64], &[i64]) = (&[1, 2, 2, 2, 2], &[16, 1, 8, 4, 2]);
        assert_eq!(format_strides(&[1, 2, 2, 2, 3], &[volume]), [24, 1, 12, 6, 2]);
    }
}
