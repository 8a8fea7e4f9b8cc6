//! Characters that make a text different from what it displays.
//!
//! A model reads every character of a tool's description, a person only the visible ones. The catalog
//! decides what to do about a finding.

use std::fmt;

use serde::Serialize;

/// Findings reported per item; more of them add nothing.
pub const MAX_FINDINGS: usize = 8;

/// The kind of a suspicious character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Suspicion {
    /// A control character, such as the start of a terminal escape sequence.
    Control,
    /// A character that is not displayed, such as a zero-width space or a tag.
    Invisible,
    /// A character that changes the direction of the text around it.
    Bidirectional,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Control => "a control character",
            Self::Invisible => "an invisible character",
            Self::Bidirectional => "a character that changes the text direction",
        })
    }
}

/// The suspicious characters of a text, in order.
///
/// Line breaks and tabs are ordinary. So is one joiner and one selector after a non-ASCII character, which
/// emoji and some scripts need. More of them could encode a hidden text.
pub fn suspicious_chars(text: &str) -> impl Iterator<Item = (Suspicion, char)> {
    // Nearly all texts are plain ASCII, which is faster to check by bytes.
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t' | b'\r'));
    let mut before = Before::default();
    let rest = if plain { "" } else { text };
    rest.chars().filter_map(move |c| {
        let suspicion = classify(c, &before);
        before.pass(c);
        suspicion.map(|suspicion| (suspicion, c))
    })
}

/// Whether a character is suspicious on its own, without regard to the ones before it.
pub fn is_suspicious(c: char) -> bool {
    classify(c, &Before::default()).is_some()
}

/// The characters before the current one.
#[derive(Default)]
struct Before {
    /// The last character that is neither a joiner nor a selector.
    last: char,
    /// A selector followed it.
    selected: bool,
    /// A joiner followed it.
    joined: bool,
}

impl Before {
    fn pass(&mut self, c: char) {
        match c {
            '\u{200c}' | '\u{200d}' => self.joined = true,
            '\u{fe00}'..='\u{fe0f}' => self.selected = true,
            // An invisible character is reported itself, so it may count as the last one.
            _ => (self.last, self.selected, self.joined) = (c, false, false),
        }
    }

    /// Whether a selector may follow: one per character, before a joiner.
    fn can_be_selected(&self) -> bool {
        !self.selected && !self.joined
    }
}

fn classify(c: char, before: &Before) -> Option<Suspicion> {
    let last = before.last;
    let is_keycap = last.is_ascii_digit() || matches!(last, '#' | '*');
    match c {
        '\n' | '\t' | '\r' => None,
        _ if c.is_control() => Some(Suspicion::Control),
        _ if c.is_ascii() => None,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Some(Suspicion::Bidirectional)
        }
        '\u{200c}' | '\u{200d}' if !last.is_ascii() && !before.joined => None,
        '\u{fe00}'..='\u{fe0f}' if !last.is_ascii() && before.can_be_selected() => None,
        // A keycap emoji is a digit, a selector and a frame.
        '\u{fe0f}' if is_keycap && before.can_be_selected() => None,
        '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200d}'
        | '\u{2028}'
        | '\u{2029}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => Some(Suspicion::Invisible),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Suspicion> {
        suspicious_chars(text).map(|(kind, _)| kind).collect()
    }

    #[test]
    fn plain_text_of_any_script_is_not_suspicious() {
        for text in [
            "Lists files.\n\tOne per line.\r\n",
            "K\u{e4}se, \u{65e5}\u{672c}\u{8a9e}, \u{5e2}\u{5d1}\u{5e8}\u{5d9}\u{5ea}",
            "\u{1f468}\u{200d}\u{1f469} \u{2764}\u{fe0f} 1\u{fe0f}\u{20e3}",
            "\u{6cc}\u{200c}\u{6a9}",
            // A flag, a heart in flames, a person with a skin tone at a keyboard, a conjunct.
            "\u{1f3f3}\u{fe0f}\u{200d}\u{1f308} \u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "\u{1f9d1}\u{1f3fd}\u{200d}\u{1f4bb} \u{915}\u{94d}\u{200d}\u{937}",
        ] {
            assert_eq!(kinds(text), [], "{text:?}");
        }
    }

    #[test]
    fn a_joiner_alone_is_suspicious_and_a_letter_is_not() {
        assert!("\u{1b}\u{200d}\u{202e}".chars().all(is_suspicious));
        assert!(!"aä日\n\t".chars().any(is_suspicious));
    }

    #[test]
    fn characters_that_hide_or_reorder_text_are_found() {
        assert_eq!(kinds("a\u{1b}[31m"), [Suspicion::Control]);
        assert_eq!(kinds("a\u{9b}b"), [Suspicion::Control]);
        assert_eq!(
            kinds("a\u{200b}b\u{e0041}\u{200d}"),
            [Suspicion::Invisible; 2]
        );
        assert_eq!(kinds("a\u{200d}b"), [Suspicion::Invisible]);
        assert_eq!(kinds("a\u{202e}b\u{2066}"), [Suspicion::Bidirectional; 2]);
        assert_eq!(kinds("a\u{1bca0}\u{1bca3}"), [Suspicion::Invisible; 2]);
    }

    /// Two selectors or joiners can encode bits after any non-ASCII letter.
    #[test]
    fn a_text_of_joiners_or_selectors_is_found() {
        for two in [
            ["\u{fe00}", "\u{fe0f}"],
            ["\u{200c}", "\u{200d}"],
            ["\u{fe0f}", "\u{200d}"],
        ] {
            let hidden = two.concat().repeat(30);
            let found = kinds(&format!("caf\u{e9}{hidden}"));
            assert!(found.len() >= 57, "{two:?}: {}", found.len());
        }
    }
}
