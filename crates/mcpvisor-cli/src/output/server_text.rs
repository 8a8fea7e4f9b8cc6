//! Words of a server among our own, so that nobody takes the one for the other.

use unicode_width::UnicodeWidthStr;

use super::wrap::wrapped;
use super::{TextFormat, printable};

/// Begins each line that a server made; nothing of ours begins so.
const MARK: &str = "│ ";

/// Begins the rest of a line that is too long.
const INDENT: &str = "  ";

/// A line of a server, as lines that all begin with a mark: the terminal is left none to break, for
/// it would begin the rest where our own lines begin.
pub(crate) fn quote_server_line(line: &str, screen: TextFormat) -> String {
    let line = printable(&line.replace('\t', "    "));
    let lines = match screen.width {
        Some(width) => wrapped(&line, width.saturating_sub(MARK.width())),
        None => vec![line],
    };
    let marked = |line: String| format!("{MARK}{line}\n");
    lines.into_iter().map(marked).collect()
}

/// One line of ours with words of a server's in it: what does not fit is indented below, so that it
/// begins no line.
pub(crate) fn hanging_indent(line: &str, screen: TextFormat) -> String {
    match screen.width {
        Some(width) => {
            wrapped(line, width.saturating_sub(INDENT.len())).join(&format!("\n{INDENT}"))
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::ColorMode;

    #[test]
    fn every_line_of_a_server_is_marked_however_long_it_is() {
        let screen = TextFormat {
            color: ColorMode::Plain,
            width: Some(20),
        };
        let text = quote_server_line(&format!("{}github asks:\nwhat?", "x".repeat(40)), screen);
        for line in text.lines() {
            assert!(line.starts_with(MARK), "{text}");
            assert!(line.chars().count() <= 20, "{text}");
        }
        assert_eq!(quote_server_line("a\tb", TextFormat::pipe()), "│ a    b\n");
    }
}
