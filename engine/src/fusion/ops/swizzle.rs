//! The order in which tensor cores read the scales of blocks: tiles of 128 rows
//! and 4 columns, in each of them 32 groups of the rows `i`, `i + 32`, `i + 64`,
//! `i + 96`. Rows and columns are padded to whole tiles.

/// Rows of a tile.
pub(super) const ROWS: usize = 128;
/// Columns of a tile.
pub(super) const COLUMNS: usize = 4;
/// Rows between those that lie beside each other.
const QUARTER: usize = 32;

pub(super) mod steps;

/// Where the scale of a row and a column is, in a matrix of `columns` padded columns:
/// `(r / 128) * 128 * columns + (c / 4) * 512 + (r % 32) * 16 + (r % 128 / 32) * 4 + c % 4`.
pub(super) fn place(row: usize, column: usize, columns: usize) -> usize {
    let tile = row / ROWS * ROWS * columns + column / COLUMNS * (ROWS * COLUMNS);
    tile + row % 32 * 16 + row % ROWS / 32 * COLUMNS + column % COLUMNS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_permutation_of_padded_matrices() {
        for (rows, columns) in [(128, 4), (256, 12)] {
            let mut places: Vec<usize> =
                (0..rows).flat_map(|r| (0..columns).map(move |c| place(r, c, columns))).collect();
            assert_eq!((places[0], places[1], places[columns], places[32 * columns]), (0, 1, 16, 4));
            places.sort_unstable();
            assert!(places.into_iter().eq(0..rows * columns));
        }
        assert_eq!((place(128, 0, 12), place(5, 9, 12)), (1536, 2 * 512 + 5 * 16 + 1));
    }
}
