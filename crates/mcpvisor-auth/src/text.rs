//! Bounds untrusted texts before they reach messages and requests.

/// Characters of a description in an error.
pub(crate) const MAX_DESCRIPTION_CHARS: usize = 200;

/// Scopes of one list; further ones are dropped.
pub(crate) const MAX_SCOPES: usize = 1000;

/// Characters of a URL in an error.
const MAX_URL_CHARS: usize = 200;

/// Bytes of one scope; a longer one is dropped.
const MAX_SCOPE_BYTES: usize = 512;

/// The text without control characters and invisible marks, at most `max` characters.
pub(crate) fn printable(text: &str, max: usize) -> String {
    text.trim()
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !c.is_control() && !is_format_mark(*c))
        .take(max)
        .collect()
}

/// An identifier that is a URL, for messages: printable, bounded, without query.
pub(crate) fn shown_url(identifier: &str) -> String {
    let without_query = identifier.split('?').next().unwrap_or_default();
    printable(without_query, MAX_URL_CHARS)
}

/// The valid scopes (RFC 6749, 3.3) without duplicates, in order.
pub(crate) fn scope_tokens<'t>(scopes: impl IntoIterator<Item = &'t str>) -> Vec<String> {
    let mut valid: Vec<String> = Vec::new();
    for scope in scopes {
        if valid.len() == MAX_SCOPES {
            break;
        }
        if is_scope_token(scope) && !valid.iter().any(|known| known == scope) {
            valid.push(scope.to_owned());
        }
    }
    valid
}

fn is_scope_token(scope: &str) -> bool {
    !scope.is_empty()
        && scope.len() <= MAX_SCOPE_BYTES
        && scope
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\')
}

/// Marks that reorder or hide text in a terminal.
fn is_format_mark(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printable_text_is_bounded_and_has_no_control_characters() {
        assert_eq!(printable(" a\x1b[31m\nb\u{202e}c ", 100), "a[31m bc");
        assert_eq!(printable(&"\u{e9}".repeat(300), 200).chars().count(), 200);
    }

    #[test]
    fn a_shown_url_is_printable_and_has_no_query() {
        let text = "https://h/\x1b[2Ja?code=canary";
        assert_eq!(shown_url(text), "https://h/[2Ja");
        assert_eq!(shown_url(&"u".repeat(500)).len(), MAX_URL_CHARS);
    }

    #[test]
    fn scopes_are_valid_distinct_and_bounded() {
        assert_eq!(
            scope_tokens(["b", "a", "b", "", "x y", "q\"", "\\", "\u{e9}"]),
            ["b", "a"]
        );
        assert_eq!(scope_tokens(["a".repeat(513).as_str()]), [""; 0]);
        let many: Vec<_> = (0..=MAX_SCOPES).map(|n| n.to_string()).collect();
        assert_eq!(
            scope_tokens(many.iter().map(String::as_str)).len(),
            MAX_SCOPES
        );
    }
}
