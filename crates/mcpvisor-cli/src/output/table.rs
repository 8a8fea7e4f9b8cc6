//! Tables that fit the terminal.
//!
//! In a pipe a row is one line of any length; on a terminal long cells wrap at words. Wide characters
//! take two columns.

use unicode_width::UnicodeWidthStr;

use super::wrap::wrapped;
use super::{TextFormat, paint, printable};

/// Spaces between two columns.
const GAP: usize = 2;

/// Columns shrink to this width at least.
const MIN_WIDTH: usize = 8;

/// A last column narrower than this is printed below its row instead.
const MIN_LAST_WIDTH: usize = 24;

/// The SGR color of a cell by its text.
pub(crate) type Color = fn(&str) -> &'static str;

/// A table, aligned when it is rendered. Its cells are made printable.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    colored: Option<(usize, Color)>,
    /// Columns that are shown only on terminals of at least this width.
    wide_only: Option<(usize, &'static [usize])>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned).into()],
            colored: None,
            wide_only: None,
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| printable(&cell)).into());
    }

    /// Colors the cells of one column.
    pub(crate) fn colored(mut self, column: usize, color: Color) -> Self {
        self.colored = Some((column, color));
        self
    }

    /// Omits columns on terminals narrower than this.
    pub(crate) fn only_if_wide(mut self, width: usize, columns: &'static [usize]) -> Self {
        self.wide_only = Some((width, columns));
        self
    }

    /// The same table without some columns.
    fn without(&self, columns: &[usize]) -> Self {
        let remaining = |row: &Vec<String>| {
            let cells = row.iter().enumerate();
            let cells = cells.filter(|(column, _)| !columns.contains(column));
            cells.map(|(_, cell)| cell.clone()).collect()
        };
        let moved = self.colored.map(|(column, color)| {
            let before = columns.iter().filter(|omitted| **omitted < column);
            (column - before.count(), color)
        });
        Self {
            rows: self.rows.iter().map(remaining).collect(),
            colored: moved,
            wide_only: None,
        }
    }

    /// The rows as lines; the last column is not padded.
    pub(crate) fn render(&self, screen: TextFormat) -> String {
        if let (Some((least, columns)), Some(width)) = (self.wide_only, screen.width)
            && width < least
        {
            return self.without(columns).render(screen);
        }
        let columns = self.rows.first().map_or(0, Vec::len);
        let widths = self.widths(screen.width, columns);
        let text_width = widths.last().copied().unwrap_or(0);
        let needed = self.needed(columns.saturating_sub(1));
        let crowded = columns > 1 && text_width < MIN_LAST_WIDTH.min(needed);
        self.render_rows(screen, columns - usize::from(crowded))
    }

    /// Prints these columns side by side, and the next one, if any, indented below its row.
    fn render_rows(&self, screen: TextFormat, columns: usize) -> String {
        let widths = self.widths(screen.width, columns);
        let under_width = screen.width.unwrap_or_default().saturating_sub(4);
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            self.render_row(&mut text, number == 0, &row[..columns], &widths, screen);
            let under = row.get(columns).filter(|_| number > 0);
            let lines = under.iter().flat_map(|cell| wrapped(cell, under_width));
            for line in lines.filter(|line| !line.is_empty()) {
                text.push_str(&format!("    {line}\n"));
            }
        }
        text
    }

    fn render_row(
        &self,
        text: &mut String,
        header: bool,
        row: &[String],
        widths: &[usize],
        screen: TextFormat,
    ) {
        let cells = row.iter().zip(widths);
        let cells: Vec<Vec<String>> = cells.map(|(cell, width)| wrapped(cell, *width)).collect();
        let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..lines {
            text.push_str(&self.line(header, row, &cells, line, widths, screen));
            text.push('\n');
        }
    }

    /// One line of a row whose cells may have several.
    fn line(
        &self,
        header: bool,
        row: &[String],
        cells: &[Vec<String>],
        line: usize,
        widths: &[usize],
        screen: TextFormat,
    ) -> String {
        let mut text = String::new();
        let mut spaces = 0;
        for (column, lines) in cells.iter().enumerate() {
            let part = lines.get(line).map_or("", String::as_str);
            if !part.is_empty() {
                text.extend(std::iter::repeat_n(' ', spaces));
                spaces = 0;
                let color = match self.colored {
                    _ if header => "1",
                    Some((colored, color)) if colored == column => color(&row[column]),
                    _ => "0",
                };
                text.push_str(&paint(screen.color, color, part));
            }
            // No trailing spaces: they are written before the next cell.
            spaces += widths[column].saturating_sub(part.width()) + GAP;
        }
        text
    }

    /// The width of the widest cell of a column.
    fn needed(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    }

    /// The width of each column: of its widest cell, or less on a narrow terminal.
    fn widths(&self, terminal: Option<usize>, columns: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..columns).map(|column| self.needed(column)).collect();
        let Some(terminal) = terminal else {
            return widths;
        };
        let available = terminal.saturating_sub(GAP * columns.saturating_sub(1));
        // Shrink the widest column step by step, so that narrow ones stay whole.
        while widths.iter().sum::<usize>() > available {
            let widest = widths.iter().max().copied().unwrap_or(0);
            if widest <= MIN_WIDTH {
                break;
            }
            if let Some(width) = widths.iter_mut().rev().find(|width| **width == widest) {
                *width -= 1;
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::ColorMode;

    fn screen(width: usize) -> TextFormat {
        TextFormat {
            color: ColorMode::Plain,
            width: Some(width),
        }
    }

    fn table() -> Table {
        let mut table = Table::new(["NAME", "STATE", "NOTE"]);
        table.row(["github".into(), "up\x1b[0m".into(), "all is well".into()]);
        table.row([
            "乳酪".into(),
            String::new(),
            "a note that is long enough to be wrapped, twice even".into(),
        ]);
        table
    }

    #[test]
    fn columns_are_aligned_and_cells_are_printable() {
        let mut table = Table::new(["NAME", "STATE"]);
        table.row(["github".to_owned(), "up\x1b[0m".to_owned()]);
        table.row(["a".to_owned(), String::new()]);
        assert_eq!(
            table.render(TextFormat::pipe()),
            "NAME    STATE\ngithub  up\\u{1b}[0m\na\n"
        );
    }

    #[test]
    fn long_cells_are_wrapped_at_words_and_wide_characters_take_two_columns() {
        assert_eq!(
            table().render(screen(46)),
            "\
NAME    STATE        NOTE
github  up\\u{1b}[0m  all is well
乳酪                 a note that is long
                     enough to be wrapped,
                     twice even
"
        );
    }

    #[test]
    fn a_last_column_that_is_too_narrow_is_printed_below_its_row() {
        assert_eq!(
            table().render(screen(36)),
            "\
NAME    STATE
github  up\\u{1b}[0m
    all is well
乳酪
    a note that is long enough to be
    wrapped, twice even
"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_unless_columns_have_their_minimum_width() {
        for width in 30..120 {
            for line in table().render(screen(width)).lines() {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
        let narrow = table().render(screen(3));
        assert!(
            narrow
                .lines()
                .all(|line| line.width() <= 3 * MIN_WIDTH + 2 * GAP)
        );
    }

    #[test]
    fn a_narrow_terminal_omits_columns() {
        let mut table = Table::new(["NAME", "GEN", "STATE", "NOTE"])
            .colored(2, |_| "32")
            .only_if_wide(30, &[1]);
        table.row(["a", "7", "up", "well"].map(str::to_owned));
        assert_eq!(
            table.render(screen(29)),
            "NAME  STATE  NOTE\na     up     well\n"
        );
        assert!(table.render(screen(30)).contains("GEN"));
        assert!(table.render(TextFormat::pipe()).contains("GEN"));
        let narrow = TextFormat {
            color: ColorMode::Colored,
            width: Some(29),
        };
        assert!(
            table.render(narrow).contains("\x1b[32mup"),
            "the color moves with its column"
        );
    }

    #[test]
    fn a_pipe_has_no_colors() {
        let table = table().colored(0, |name| if name == "github" { "32" } else { "0" });
        let colors = TextFormat {
            color: ColorMode::Colored,
            width: None,
        };
        let shown = table.render(colors);
        assert!(shown.contains("\x1b[32mgithub\x1b[0m  up"), "{shown:?}");
        assert!(!table.render(TextFormat::pipe()).contains('\x1b'));
    }
}
