//! Columns of text, as wide as their widest cell, and no wider than there is room for.
//!
//! Inputs: columns, rows of one cell for each, and the columns of the terminal. Output: lines.
//! Invariant: no line is wider than the room, as long as that holds what may not be left out: first columns
//! that can be spared go, then cells that can be shortened lose their middle. Where there is no
//! terminal there is room for everything.

use super::width::{shorten, width};

/// Columns below which nothing is shortened: less would tell nothing.
const LEAST: usize = 16;
/// Between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    name: &'static str,
    right: bool,
    spare: u8,
    shortens: bool,
}

impl Column {
    /// A column that stays whole.
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, right: false, spare: 0, shortens: false }
    }

    /// Its cells end flush.
    pub(crate) const fn right(self) -> Self {
        Self { right: true, ..self }
    }

    /// It is left out where there is no room; those with the highest number go first.
    pub(crate) const fn spare(self, order: u8) -> Self {
        Self { spare: order, ..self }
    }

    /// Its cells are shortened where there is no room.
    pub(crate) const fn shortens(self) -> Self {
        Self { shortens: true, ..self }
    }
}

/// A table with a head, in so many columns of a terminal.
pub(crate) fn table(columns: &[Column], rows: &[Vec<String>], room: usize) -> String {
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let mut widths: Vec<usize> = (0..columns.len()).map(|i| widest(columns[i].name, rows, i)).collect();
    let total = |shown: &[usize], widths: &[usize]| {
        shown.iter().map(|i| widths[*i]).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    while total(&shown, &widths) > room {
        match shown.iter().copied().filter(|i| columns[*i].spare > 0).max_by_key(|i| columns[*i].spare) {
            Some(spared) => shown.retain(|i| *i != spared),
            None => break,
        }
    }
    while let Some(over) = total(&shown, &widths).checked_sub(room).filter(|over| *over > 0) {
        let long = |i: &usize| columns[*i].shortens && widths[*i] > LEAST;
        match shown.iter().copied().filter(long).max_by_key(|i| widths[*i]) {
            Some(i) => widths[i] = widths[i].saturating_sub(over).max(LEAST),
            None => break,
        }
    }
    let head: Vec<String> = columns.iter().map(|column| column.name.to_string()).collect();
    std::iter::once(&head).chain(rows).map(|row| line(columns, row, &shown, &widths)).collect()
}

fn widest(name: &str, rows: &[Vec<String>], column: usize) -> usize {
    let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
    cells.chain([width(name)]).max().unwrap_or(0)
}

fn line(columns: &[Column], row: &[String], shown: &[usize], widths: &[usize]) -> String {
    let cells = shown.iter().filter_map(|i| {
        let cell = shorten(row.get(*i)?, widths[*i]);
        let gap = " ".repeat(widths[*i] - width(&cell));
        Some(if columns[*i].right { gap + &cell } else { cell + &gap })
    });
    let text = cells.collect::<Vec<_>>().join(&" ".repeat(GAP));
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::new("name").shortens(),
        Column::new("n").right(),
        Column::new("host").spare(1),
        Column::new("about").spare(2),
    ];

    fn rows() -> Vec<Vec<String>> {
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        vec![row(["a", "1", "here", "short"]), row(["längst/of=all,names=日本", "100", "there", "quite long"])]
    }

    #[test]
    fn columns_line_up() {
        let columns = [Column::new("name"), Column::new("n").right()];
        let rows = [vec!["a".to_string(), "1".into()], vec!["日本語".into(), "100".into()]];
        assert_eq!(table(&columns, &rows, usize::MAX), "name      n\na         1\n日本語  100\n");
    }

    #[test]
    fn without_room_columns_go_and_names_lose_their_middle() {
        let head = |room: usize| table(&COLUMNS, &rows(), room).lines().next().map(String::from).unwrap_or_default();
        assert!(head(80).ends_with("host   about"), "{}", head(80));
        assert!(head(36).ends_with("n  host"), "{}", head(36));
        for room in [80, 45, 36, 28, 22, 21] {
            let text = table(&COLUMNS, &rows(), room);
            assert!(text.lines().all(|line| width(line) <= room), "{room}:\n{text}");
            assert!(text.lines().nth(2).is_some_and(|line| line.contains("100")), "{room}:\n{text}");
        }
        assert!(table(&COLUMNS, &rows(), 22).contains("..."));
    }
}
