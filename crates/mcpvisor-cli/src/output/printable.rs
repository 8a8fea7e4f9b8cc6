//! Escapes text of servers for a terminal.
//!
//! Control sequences could repaint the screen, bidirectional marks could reorder text, and invisible
//! characters could hide words. JSON uses JSON escapes, so a program reads the original text.

/// One line: line breaks and tabs are escaped too.
pub(crate) fn printable(text: &str) -> String {
    escape(text, |_| false)
}

/// Several lines: line breaks and tabs stay.
pub(crate) fn printable_lines(text: &str) -> String {
    escape(text, |c| matches!(c, '\n' | '\t'))
}

/// An equivalent JSON document without hidden characters.
pub(crate) fn printable_json(document: &str) -> String {
    let mut printable = String::with_capacity(document.len());
    for c in document.chars() {
        // JSON strings contain no line breaks; these are between tokens.
        if c == '\n' || !is_hidden(c) {
            printable.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            printable.push_str(&format!("\\u{unit:04x}"));
        }
    }
    printable
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut printable = String::with_capacity(text.len());
    let mut previous = '\0';
    for c in text.chars() {
        let before = std::mem::replace(&mut previous, c);
        match c {
            _ if keep(c) => printable.push(c),
            // The emoji selector, after a visible character.
            '\u{fe0f}' if !before.is_ascii() && !is_hidden(before) => printable.push(c),
            '\n' | '\r' | '\t' => printable.extend(c.escape_default()),
            _ if is_hidden(c) => printable.extend(c.escape_unicode()),
            _ => printable.push(c),
        }
    }
    printable
}

/// Characters with an effect or without a glyph: controls, default-ignorable code points, line
/// separators and annotations.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_move_or_hide_text_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable("a\u{9b}31m"), "a\\u{9b}31m");
        assert_eq!(printable("safe\u{202e}live"), "safe\\u{202e}live");
        assert_eq!(printable("a\u{200b}b\u{e0041}"), "a\\u{200b}b\\u{e0041}");
        assert_eq!(printable("one\r\ntwo\t"), "one\\r\\ntwo\\t");
    }

    #[test]
    fn escaped_json_keeps_its_value_and_hides_nothing() {
        let text = "a\u{9b}31m \u{202e}b\u{e0041}\u{7f}\u{1b}\n乳酪";
        for document in [
            serde_json::to_string(text).unwrap(),
            serde_json::to_string_pretty(&[text]).unwrap(),
        ] {
            let printed = printable_json(&document);
            assert!(
                !printed.chars().any(|c| c != '\n' && is_hidden(c)),
                "{printed}"
            );
            assert!(
                printed.contains("乳酪") && printed.contains("\\udb40\\udc41"),
                "{printed}"
            );
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(value(&printed), value(&document));
        }
    }

    #[test]
    fn visible_text_is_unchanged() {
        assert_eq!(
            printable("Käse 乳酪 🧀 ⚠\u{fe0f}"),
            "Käse 乳酪 🧀 ⚠\u{fe0f}"
        );
        assert_eq!(
            printable("a\u{fe0f}⚠\u{fe0f}\u{fe0f}"),
            "a\\u{fe0f}⚠\u{fe0f}\\u{fe0f}"
        );
        assert_eq!(printable_lines("one\n\ttwo\r"), "one\n\ttwo\\r");
    }
}
