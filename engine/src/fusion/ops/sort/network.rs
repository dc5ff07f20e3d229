//! The order of equal elements where an operation does not promise one.
//!
//! PyTorch's GPU kernels sort lines of at most [`WIDTH`] elements by a bitonic
//! network of that width when the sort need not be stable, and longer lines by
//! sorts that happen to be stable. What the network does to equal elements is a
//! fact of its wiring, so results that hold positions agree only if the same
//! wiring is run.

/// The widest line that the network sorts.
pub(in crate::fusion::ops) const WIDTH: usize = 32;

/// Sorts a line of at most [`WIDTH`] items. `before` says that one item must
/// stand before another; it is false for equal ones.
///
/// Comparator `t` of a step of distance `d` joins the places `p = 2 t - (t mod d)`
/// and `p + d`. Blocks of `2, 4, ..., WIDTH / 2` are sorted in turns of
/// direction, then the whole; empty places go to the end.
pub(super) fn sort<T: Copy>(items: &mut [T], before: impl Fn(&T, &T) -> bool) {
    let mut places: [Option<T>; WIDTH] = [None; WIDTH];
    for (place, item) in places.iter_mut().zip(items.iter()) {
        *place = Some(*item);
    }
    let mut block = 2;
    while block <= WIDTH {
        let mut distance = block / 2;
        while distance > 0 {
            for t in 0..WIDTH / 2 {
                let p = 2 * t - t % distance;
                let turned = block < WIDTH && t & (block / 2) != 0;
                let in_order = match (&places[p], &places[p + distance]) {
                    (Some(a), Some(b)) => before(a, b),
                    (_, b) => b.is_none(),
                };
                if in_order == turned {
                    places.swap(p, p + distance);
                }
            }
            distance /= 2;
        }
        block *= 2;
    }
    for (item, place) in items.iter_mut().zip(places.into_iter().flatten()) {
        *item = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_sorted() {
        crate::property::property(|u| {
            let mut items: Vec<u8> = u.arbitrary()?;
            items.truncate(WIDTH);
            let mut expected = items.clone();
            expected.sort_unstable();
            sort(&mut items, |a, b| a < b);
            assert_eq!(items, expected);
            expected.reverse();
            sort(&mut items, |a, b| a > b);
            assert_eq!(items, expected);
            Ok(())
        });
    }

    #[test]
    fn equal_items_move_as_the_wires_lie() {
        // Positions of five nines, then of five eights, the greater first.
        let mut items: Vec<(u8, u8)> = (0..10).map(|i| (if i < 5 { 9 } else { 8 }, i)).collect();
        sort(&mut items, |a, b| a.0 > b.0);
        assert_eq!(items.iter().map(|item| item.1).collect::<Vec<_>>(), [1, 0, 2, 4, 3, 8, 9, 7, 5, 6]);
    }
}
