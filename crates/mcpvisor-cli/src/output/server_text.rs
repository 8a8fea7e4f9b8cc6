//! Text of a server among our own, marked so that the two cannot be confused.

use unicode_width::UnicodeWidthStr;

use super::wrap::wrapped;
use super::{TextFormat, printable};

/// Starts every line of a server, and no line of ours.
const MARK: &str = "│ ";

/// Starts the continuation of a long line.
const INDENT: &str = "  ";

/// Wraps a line of a server into marked lines. The terminal must not wrap it, because the
/// continuation would start like a line of ours.
pub(crate) fn quote_server_line(line: &str, screen: TextFormat) -> String {
    let line = printable(&line.replace('\t', "    "));
    let lines = match screen.width {
        Some(width) => wrapped(&line, width.saturating_sub(MARK.width())),
        None => vec![line],
    };
    let marked = |line: String| format!("{MARK}{line}\n");
    lines.into_iter().map(marked).collect()
}

/// Wraps a line of ours that contains text of a server. The continuation is indented, so that it does
/// not start like a line of ours.
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
    fn every_line_of_a_server_is_marked() {
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
