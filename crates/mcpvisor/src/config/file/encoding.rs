//! Decodes the bytes of a file.
//!
//! Files are UTF-8. Errors name the position and the fix, which those of the standard library do
//! not.

use std::path::Path;

use super::error::ConfigError;
use super::redacted_excerpt::SourceText;
use super::syntax_tree::Span;

/// Decodes a file as UTF-8.
pub(in crate::config) fn text_of(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    if let Some(read_as) = utf_16(&bytes) {
        let text: String = char::decode_utf16(units(&bytes, read_as))
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        let problem = "the file is UTF-16; save it as UTF-8";
        return Err(invalid_encoding(path, &text, problem, 0..1));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        // Up to there the lossy text is identical, so the replacement character is at the same
        // offset.
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let problem = "invalid byte (Latin-1 or Windows-1252?); save the file as UTF-8";
        let end = at + char::REPLACEMENT_CHARACTER.len_utf8();
        invalid_encoding(path, &text, problem, at..end)
    })
}

fn invalid_encoding(path: &Path, text: &str, problem: &str, span: Span) -> ConfigError {
    ConfigError::Syntax {
        format: "UTF-8",
        problem: problem.to_owned(),
        location: Box::new(SourceText::new(Some(path), text).locate(&span)),
    }
}

/// How to decode the code units of a UTF-16 file. A config starts with an ASCII character, which
/// has one zero byte in UTF-16, or with a byte order mark.
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
    fn an_invalid_byte_is_reported_with_its_position_and_a_fix() {
        let text = b"{ \"mcpServers\": {\n  \"caf\xe9\": { \"command\": \"s3cret\" } } }";
        let (message, source) = refused(text);
        let expected = "mcp.json:2:7: the config is not valid UTF-8: invalid byte";
        assert!(message.starts_with(expected), "{message}");
        assert!(message.ends_with("save the file as UTF-8"), "{message}");
        assert!(source.contains("command"), "{source}");
        assert!(!source.contains("s3cret"), "{source}");
        // Cut off in the middle of a character.
        let (message, _) = refused("{ \"ä".as_bytes().split_last().unwrap().1);
        assert!(message.starts_with("mcp.json:1:4:"), "{message}");
    }

    #[test]
    fn utf_16_is_detected_by_its_mark_or_its_zeros() {
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
    fn utf_8_is_not_changed() {
        for text in ["", "{", "{}", "\u{feff}{\"ä\": 1}"] {
            let read = text_of(Path::new("x"), text.into());
            assert_eq!(read.unwrap(), text);
        }
    }
}
