//! Columns of text.

use super::printable;

/// A table that is aligned when it is printed; its cells are made printable.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned).into()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| printable(&cell)).into());
    }

    /// The rows as lines; the last column is not padded.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row: &Vec<String>| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_are_harmless() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["github".to_owned(), "up\x1b[0m".to_owned()]);
        table.row(["a".to_owned(), String::new()]);
        assert_eq!(table.render(), "NAME    STATE\ngithub  up\\u{1b}[0m\na\n");
    }
}
