//! Integers that JSON parsing would round.

/// The first integer in a JSON text that fits neither `i64` nor `u64`. Numbers with a point or an
/// exponent are not expected to be exact.
pub(super) fn too_large(json: &str) -> Option<&str> {
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c.is_ascii_digit()) {
        if rest[at..].starts_with('"') {
            rest = after_text(&rest[at + 1..]);
            continue;
        }
        let start = match rest[..at].ends_with('-') {
            true => at - 1,
            false => at,
        };
        let of_number = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
        let length = rest[at..].find(|c| !of_number(c));
        let end = length.map_or(rest.len(), |length| at + length);
        let number = &rest[start..end];
        let whole = !number.contains(['.', 'e', 'E']);
        if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
            return Some(number);
        }
        rest = &rest[end..];
    }
    None
}

/// The rest after a string, given the text after its opening quote.
fn after_text(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integers_can_be_too_large() {
        for good in [
            "1",
            "18446744073709551615",
            "-9223372036854775808",
            "1e400",
            "99999999999999999999.5",
            r#"{"99999999999999999999": ["a\\\"99999999999999999999", 1.5, -2]}"#,
        ] {
            assert_eq!(too_large(good), None, "{good}");
        }
        for (bad, number) in [
            ("18446744073709551616", "18446744073709551616"),
            ("-9223372036854775809", "-9223372036854775809"),
            (
                r#"{"a": ["x", 99999999999999999999]}"#,
                "99999999999999999999",
            ),
        ] {
            assert_eq!(too_large(bad), Some(number), "{bad}");
        }
    }
}
