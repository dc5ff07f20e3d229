//! Sizes for which kernels are chosen, of which each stands for those below it.
//!
//! A choice that was fitted to every size would be a kernel of its own for almost each, to be compiled before it runs. So
//! what is chosen by costs is chosen for a *typical* size: of many rows, each as long as the next of four in an octave. Rows of whole
//! vectors are fewer sizes, so two do there where they are neither short nor long; the longest take all registers, so they stand for themselves.
//! Of few elements the time goes to starting, so one does. On an H200 kernels of 156 sizes of 12 fusions of rows and columns, of two
//! million elements and more, took 1.00 of the time of those that were chosen for each size (0.87 to 1.24), with half as many kernels.
//!
//! In: the vectors of a row, and the number of rows. Out: the same of the typical size, no fewer vectors. A row of a multiple of 64
//! elements is as somebody wanted it: it stands for itself, and so do a handful of vectors, or of rows.

use super::tile::{WARP, ceil_div};

/// Steps of an octave: of few elements, of rows of whole vectors, and of those that start at odd places or are short or long.
pub(super) const STEPS_OF_FEW: i64 = 1;
const STEPS_OF_WHOLE: i64 = 2;
pub(super) const STEPS: i64 = 4;
/// Elements of which there are few, vectors of long rows, and elements of the longest.
const FEW_ELEMENTS: i64 = 1 << 20;
const LONG: i64 = 1024;
const LONGEST: i64 = 1 << 14;
/// What the lengths of rows that somebody wanted so are multiples of.
const ROUND: i64 = 64;
/// Rows that stand for themselves, and for how many all others are taken at least: of few elements, of which no block takes several in
/// turn where there are no more, and else.
const HANDFUL: i64 = 32;
const ROWS_OF_FEW: i64 = 1024;
const MANY_ROWS: i64 = 1 << 16;

/// Rows as they are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Typical {
    /// Vectors of a row.
    pub(super) vectors: i64,
    /// Number of rows.
    pub(super) rows: i64,
}

/// What so many rows of so many vectors are taken for. `shifted`: they start at odd places.
pub(super) fn typical(vectors: i64, vector: i64, rows: i64, shifted: bool) -> Typical {
    let itself = Typical { vectors, rows };
    let row = vectors.saturating_mul(vector);
    if rows <= HANDFUL || row >= LONGEST || !shifted && row % ROUND == 0 {
        return itself;
    }
    if are_few(row, rows) {
        return Typical { vectors: next_step(vectors, STEPS_OF_FEW), rows: ROWS_OF_FEW };
    }
    let steps = match vectors {
        WARP..LONG if !shifted => STEPS_OF_WHOLE,
        _ => STEPS,
    };
    Typical { vectors: next_step(vectors, steps), rows: rows.max(MANY_ROWS) }
}

/// Whether so many rows of so many elements are few elements.
pub(super) fn are_few(row: i64, rows: i64) -> bool {
    row.saturating_mul(rows) < FEW_ELEMENTS
}

/// The next number of so many in an octave, which are a power of two each: `ceil(n / s) * s` with
/// `s = 2^floor(log2(n)) / steps`.
pub(super) fn next_step(n: i64, steps: i64) -> i64 {
    let octave = 1i64 << n.max(1).ilog2();
    let step = (octave / steps).max(1);
    ceil_div(n, step).saturating_mul(step)
}

/// The last of these numbers before one that is none of them, or that is the first of them from it on: the greatest below `n`.
pub(super) fn previous_step(n: i64, steps: i64) -> i64 {
    let below = (n - 1).max(0);
    let step = (1i64 << below.max(1).ilog2()) / steps;
    below / step.max(1) * step.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_octave_has_so_many_steps() {
        let check = |steps: i64, of: [i64; 2], wanted: &[i64]| {
            let mut found: Vec<i64> = (of[0]..=of[1]).map(|n| next_step(n, steps)).collect();
            found.dedup();
            assert_eq!(found, wanted, "{steps} steps");
        };
        check(4, [129, 256], &[160, 192, 224, 256]);
        check(4, [1, 8], &[1, 2, 3, 4, 5, 6, 7, 8]);
        check(1, [1, 64], &[1, 2, 4, 8, 16, 32, 64]);
        assert!((1..5000).all(|n| (n..2 * n).contains(&next_step(n, 4))));
        // No number is between the two.
        assert!(
            (2..5000).all(|n| (previous_step(n, 4) + 1..=n).all(|between| next_step(between, 4) == next_step(n, 4)))
        );
        assert!((2..5000).all(|n| next_step(previous_step(n, 4), 4) == previous_step(n, 4)));
    }

    #[test]
    fn what_somebody_wanted_stands_for_itself() {
        let check = |[vectors, rows]: [i64; 2], shifted: bool, wanted: [i64; 2]| {
            let Typical { vectors, rows } = typical(vectors, 4, rows, shifted);
            assert_eq!([vectors, rows], wanted);
        };
        check([1024, 3000], false, [1024, 3000]);
        check([1024, 3000], true, [1024, MANY_ROWS]);
        check([1001, 3000], false, [1024, MANY_ROWS]);
        check([1100, 3000], true, [1280, MANY_ROWS]);
        check([1101, 3000], false, [1280, MANY_ROWS]);
        check([700, 3000], false, [768, MANY_ROWS]);
        check([80, 30_000], false, [80, 30_000]);
        check([20, 100_000], false, [20, 100_000]);
        check([4300, 3000], true, [4300, 3000]);
        check([1100, 8], false, [1100, 8]);
        check([20, 100], false, [32, ROWS_OF_FEW]);
        check([2, 50_000], false, [2, ROWS_OF_FEW]);
    }
}
