//! JSON with comments and trailing commas, made plain.
//!
//! Every byte that is dropped becomes a space, so that the line and column of a later error are
//! those of the file.

use std::borrow::Cow;

/// The text without comments and trailing commas, of the same length.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut plain = text.as_bytes().to_vec();
    // The last comma, as long as nothing but space and comments followed it.
    let mut comma = None;
    let mut at = 0;
    while at < plain.len() {
        match (plain[at], plain.get(at + 1)) {
            (b'"', _) => {
                at = string_end(&plain, at);
                comma = None;
                continue;
            }
            (b'/', Some(b'/')) => {
                at = blank(&mut plain, at, line_end);
                continue;
            }
            (b'/', Some(b'*')) => {
                at = blank(&mut plain, at, block_end);
                continue;
            }
            (b',', _) => comma = Some(at),
            (b'}' | b']', _) => {
                if let Some(trailing) = comma.take() {
                    plain[trailing] = b' ';
                }
            }
            (byte, _) if !byte.is_ascii_whitespace() => comma = None,
            _ => {}
        }
        at += 1;
    }
    String::from_utf8(plain).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Just behind the string that opens at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// Blanks what `length` says from `start` on, lines kept, and returns where the text goes on.
fn blank(text: &mut [u8], start: usize, length: impl Fn(&[u8]) -> usize) -> usize {
    let end = start + length(&text[start..]);
    for byte in &mut text[start..end] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
    end
}

fn line_end(comment: &[u8]) -> usize {
    comment
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(comment.len())
}

fn block_end(comment: &[u8]) -> usize {
    let closed = comment[2..].windows(2).position(|pair| pair == b"*/");
    closed.map_or(comment.len(), |at| 2 + at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_trailing_commas_become_spaces() {
        assert_eq!(plain("{\"a\": 1, // ä\n}"), "{\"a\": 1       \n}");
        assert_eq!(plain("[1, /* x */ ]"), "[1          ]");
        assert_eq!(plain("[1,2]"), "[1,2]");
        assert_eq!(plain("/* open"), "       ");
    }

    #[test]
    fn strings_are_left_alone() {
        for text in [
            r#"{"a": "//b"}"#,
            r#"["\",]", 1]"#,
            r#"["/* x */"]"#,
            "\"open",
        ] {
            assert_eq!(plain(text), text);
        }
    }

    #[test]
    fn positions_are_those_of_the_file() {
        let text = "{\n  // one\n  /* two\n  */ oops\n}";
        let error = serde_json::from_str::<serde_json::Value>(&plain(text)).unwrap_err();
        assert_eq!((error.line(), error.column()), (4, 6));
    }
}
