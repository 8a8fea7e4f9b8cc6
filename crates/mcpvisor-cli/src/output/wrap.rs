//! Wraps lines at words, and cuts them. Text of a server is marked, so that it cannot be confused with
//! ours.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{TextFormat, printable};

/// Starts every line of a server, and no line of ours.
const MARK: &str = "│ ";

/// Starts the continuation of a long line.
const INDENT: &str = "  ";

/// Wraps a text into lines of at most `width` columns. There is always one line, perhaps empty.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let gap = usize::from(used > 0);
        if used > 0 && used + gap + word.width() > width {
            lines.push(String::new());
            used = 0;
        }
        for piece in pieces(word, width) {
            // A piece that does not fit starts a new line.
            if used > 0 && used + gap + piece.width() > width {
                lines.push(String::new());
                used = 0;
            }
            let Some(line) = lines.last_mut() else { break };
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            used += piece.width();
            line.push_str(&piece);
        }
    }
    lines
}

/// Splits a word into pieces of at most `width` columns.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for c in word.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > width {
            pieces.push(String::new());
            used = 0;
        }
        used += columns;
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

/// Cuts a text to at most `width` columns, with an ellipsis.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut short = String::new();
    let mut used = 0;
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns + 1 > width {
            break;
        }
        used += columns;
        short.push(c);
    }
    short.push('…');
    short
}

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
    fn words_stay_whole_where_they_fit() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
    }

    #[test]
    fn wide_characters_are_not_split() {
        assert_eq!(wrapped("乳酪乳", 3), ["乳", "酪", "乳"]);
        assert_eq!(cut("乳酪乳酪", 6), "乳酪…");
        assert_eq!(cut("short", 6), "short");
    }

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
