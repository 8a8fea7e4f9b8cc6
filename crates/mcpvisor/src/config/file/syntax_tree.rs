//! The syntax tree of a config with source positions, for JSON and TOML alike.

use std::ops::Range;

/// A range of the text, in bytes.
pub(super) type Span = Range<usize>;

/// A value and its position.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Span,
}

impl Node {
    /// Whether it is `null`, which means the same as absent.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file, duplicate keys included.
    Object(Vec<Member>),
    /// A value that no key accepts, such as a TOML date.
    Other,
}

/// A key of an object with its value.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

/// Why a text cannot be parsed. It quotes nothing of the text, which may hold secrets.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) problem: String,
    pub(super) span: Span,
}

/// The text without a byte order mark, and the mark's length.
pub(super) fn without_mark(text: &str) -> (&str, usize) {
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    (plain, text.len() - plain.len())
}
