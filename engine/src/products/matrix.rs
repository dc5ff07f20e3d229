//! One operand of a product, in memory.

/// Which elements of a matrix lie side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Those of a row.
    Rows,
    /// Those of a column.
    Columns,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rows => "rows",
            Self::Columns => "columns",
        })
    }
}

/// A matrix of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Which elements lie side by side.
    pub order: Order,
    /// From one row (or column) to the next, in elements.
    pub pitch: i64,
    /// From one matrix of the stack to the next, in elements; 0 where all are the same.
    pub step: i64,
    /// What the address of each call's first matrix is a multiple of, in bytes.
    pub align: u32,
}

impl Matrix {
    /// A matrix with rows of so many elements, one behind the other.
    pub(super) fn of_rows(columns: i64, align: u32) -> Self {
        Self { order: Order::Rows, pitch: columns, step: 0, align }
    }

    /// A matrix of so many rows and columns with these strides; none where neither the elements of a
    /// row nor those of a column lie side by side, or rows overlap.
    pub(super) fn of([rows, columns]: [i64; 2], [down, along]: [i64; 2], align: u32) -> Option<Self> {
        let matrix = |order, pitch| Some(Self { order, pitch, step: 0, align });
        // Strides of an axis of size 1 say nothing.
        let by_rows = (columns == 1 || along == 1) && (rows == 1 || down >= columns);
        let by_columns = (rows == 1 || down == 1) && (columns == 1 || along >= rows);
        match (by_rows, by_columns) {
            (true, _) => matrix(Order::Rows, if rows == 1 { columns } else { down }),
            (_, true) => matrix(Order::Columns, if columns == 1 { rows } else { along }),
            _ => None,
        }
    }

    pub(super) fn is_by_rows(&self) -> bool {
        self.order == Order::Rows
    }

    /// Where an element is, from the first of the call on, in elements.
    pub fn place(&self, matrix: i64, row: i64, column: i64) -> i64 {
        let (far, near) = match self.order {
            Order::Rows => (row, column),
            Order::Columns => (column, row),
        };
        matrix * self.step + far * self.pitch + near
    }
}
