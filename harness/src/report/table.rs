//! Columns of text, as wide as their widest cell.

/// A table with a head; the columns whose numbers are in `right` end flush.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let width = |i: usize| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain(columns.get(i).map(|name| name.len())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    let head: Vec<String> = columns.iter().map(|name| name.to_string()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            line.push_str(if i > 0 { "  " } else { "" });
            line.push_str(&if right.contains(&i) { gap + cell } else { cell.clone() + &gap });
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_string(), "1".into()], vec!["längst".into(), "100".into()]];
        assert_eq!(table(&["name", "n"], &rows, &[1]), "name      n\na         1\nlängst  100\n");
    }
}
