//! The bytes of a file as text.
//!
//! Files are UTF-8. What is none is said with its place and with what to do: the words of the
//! standard library name neither.

use std::path::Path;

use super::error::ConfigError;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::Span;

/// The text of a file.
pub(in crate::config) fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if let Some(read_as) = utf_16(&bytes) {
        let text: String = char::decode_utf16(units(&bytes, read_as))
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        let problem = "the file is UTF-16, as some editors save it; save it as UTF-8";
        return Err(no_text(path, &text, problem, 0..1));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        // Up to there it is the same text, so that is where what replaces the byte stands.
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let problem = "here is a byte that is no character of it, as files in Latin-1 or \
                       Windows-1252 have; save the file as UTF-8";
        let end = at + char::REPLACEMENT_CHARACTER.len_utf8();
        no_text(path, &text, problem, at..end)
    })
}

fn no_text(path: &Path, text: &str, problem: &str, span: Span) -> ConfigError {
    ConfigError::Syntax {
        format: "UTF-8",
        problem: problem.to_owned(),
        location: Box::new(SourceText::new(Some(path), text).locate(&span)),
    }
}

/// How two bytes become one unit, where a text has two bytes for each. A config begins with a
/// character of ASCII, of which one byte is 0, or with the mark of the encoding.
fn utf_16(bytes: &[u8]) -> Option<fn([u8; 2]) -> u16> {
    match bytes {
        [0xff, 0xfe, ..] | [(1..), 0, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] | [0, (1..), ..] => Some(u16::from_be_bytes),
        _ => None,
    }
}

fn units(bytes: &[u8], read_as: fn([u8; 2]) -> u16) -> impl Iterator<Item = u16> {
    let pairs = bytes.chunks_exact(2);
    let units = pairs.map(move |pair| read_as([pair[0], pair[1]]));
    units.filter(|unit| *unit != 0xfeff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> (String, String) {
        let error = text_of(Path::new("mcp.json"), bytes.to_vec()).unwrap_err();
        let source = error.location().unwrap().source.clone();
        (error.to_string(), source)
    }

    #[test]
    fn a_byte_that_is_no_text_is_said_with_its_place_and_what_to_do() {
        let text = b"{ \"mcpServers\": {\n  \"caf\xe9\": { \"command\": \"s3cret\" } } }";
        let (message, source) = refused(text);
        let expected = "mcp.json:2:7: the config is not valid UTF-8: here is a byte";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("save the file as UTF-8"), "{message}");
        assert!(source.contains("command"), "{source}");
        assert!(!source.contains("s3cret"), "{source}");
        // Cut off in the middle of a character.
        let (message, _) = refused("{ \"ä".as_bytes().split_last().unwrap().1);
        assert!(message.starts_with("mcp.json:1:4:"), "{message}");
    }

    #[test]
    fn utf_16_is_known_by_its_mark_or_its_zeros() {
        let text = "{ \"mcpServers\": { \"x\": { \"command\": \"s3cret\" } } }";
        let little = || text.encode_utf16().flat_map(u16::to_le_bytes);
        let big = || text.encode_utf16().flat_map(u16::to_be_bytes);
        let files: [Vec<u8>; 4] = [
            little().collect(),
            big().collect(),
            [0xff, 0xfe].into_iter().chain(little()).collect(),
            [0xfe, 0xff].into_iter().chain(big()).collect(),
        ];
        for bytes in files {
            let (message, source) = refused(&bytes);
            let expected = "mcp.json:1:1: the config is not valid UTF-8: the file is UTF-16";
            assert!(message.starts_with(expected), "{message}");
            assert!(source.starts_with("{ \"mcpServers\": {"), "{source}");
            assert!(!source.contains("s3cret"), "{source}");
        }
    }

    #[test]
    fn utf_8_is_taken_as_it_is() {
        for text in ["", "{", "{}", "\u{feff}{\"ä\": 1}"] {
            let read = text_of(Path::new("x"), text.into());
            assert_eq!(read.unwrap(), text);
        }
    }
}
