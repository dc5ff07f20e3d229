//! Threads and steps along the vectors of a row, of which few are left without any.

use super::tile::{WARP, ceil_div, next_power_of_two};

/// The power of two of threads along a row from which on fewer eighths of it serve as well.
const LEAST_EIGHTHS: i64 = 16;
/// Threads of a block of short rows.
pub(super) const ROW_THREADS: i64 = 128;

/// Threads for so many vectors of a row: as many eighths of a power of two, from five on, as take the fewest lanes of warps a row. Of
/// equals the most, since that is a rounder number and serves more rows.
pub(super) fn few_idle(vectors: i64) -> i64 {
    let power = next_power_of_two(vectors);
    if power < LEAST_EIGHTHS {
        return power;
    }
    // Lanes of a block for all rows of which as many fit.
    let lanes = |threads: i64| {
        let rows = (ROW_THREADS / threads).max(1);
        (ceil_div(threads * rows, WARP) * WARP) as f64 / rows as f64
    };
    let enough = (5..=8).rev().map(|eighths| power / 8 * eighths).filter(|threads| *threads >= vectors);
    enough.min_by(|a, b| lanes(*a).total_cmp(&lanes(*b))).unwrap_or(power)
}

/// Threads for so many vectors of a row that has several blocks: as many warps, other than usual where more than a quarter of
/// their threads would have none, since those compute, too.
pub(super) fn few_left(vectors: i64) -> i64 {
    let taken = |threads: i64| ceil_div(vectors, threads) * threads;
    if 4 * (taken(ROW_THREADS) - vectors) <= taken(ROW_THREADS) {
        return ROW_THREADS;
    }
    [ROW_THREADS, 5 * WARP, 6 * WARP, 3 * WARP].into_iter().min_by_key(|threads| taken(*threads)).unwrap_or(ROW_THREADS)
}

/// Threads, and steps of each, for so many vectors of a row of which each takes many instructions: no fewer steps, and no other
/// threads, than given, unless more than an eighth of the vectors that are computed are none.
pub(super) fn few_left_of_many(vectors: i64, threads: i64, unroll: i64) -> (i64, i64) {
    let taken = |(threads, unroll): &(i64, i64)| ceil_div(vectors, threads * unroll) * threads * unroll;
    let steps = std::iter::successors(Some(unroll), |steps| Some(steps / 2)).take_while(|steps| *steps > 0);
    let ways =
        || steps.clone().flat_map(|unroll| [threads, 5 * WARP, 6 * WARP, 3 * WARP].map(|threads| (threads, unroll)));
    let is_full = |way: &(i64, i64)| 8 * (taken(way) - vectors) <= taken(way);
    ways().find(is_full).or_else(|| ways().min_by_key(taken)).unwrap_or((threads, unroll))
}

/// Of so many steps along a row those that a thread takes, about as many as are wanted and in each block the same; and the
/// rows of which it takes them, where one has fewer.
pub(super) fn along_and_beside(steps: i64, wanted: i64) -> (i64, i64) {
    if wanted == 1 {
        return (1, 1);
    }
    let along = ceil_div(steps, ceil_div(steps, wanted + wanted / 2));
    (along, (wanted / along).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_are_idle_and_steps_are_even() {
        let threads = [3, 9, 12, 13, 15, 17, 24, 25, 33, 41, 49, 72, 90, 97].map(few_idle);
        assert_eq!(threads, [4, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 96, 128]);
        let dense = [(1568, 256, 2), (1233, 256, 2), (620, 128, 2), (152, 128, 2), (2000, 256, 2), (129, 128, 1)];
        let dense = dense.map(|(vectors, threads, unroll)| few_left_of_many(vectors, threads, unroll));
        assert_eq!(dense, [(160, 2), (160, 2), (160, 2), (160, 1), (256, 2), (160, 1)]);
        let steps =
            [(5, 4), (7, 4), (34, 4), (1, 8), (3, 8), (9, 1)].map(|(steps, wanted)| along_and_beside(steps, wanted));
        assert_eq!(steps, [(5, 1), (4, 1), (6, 1), (1, 8), (3, 2), (1, 1)]);
    }
}
