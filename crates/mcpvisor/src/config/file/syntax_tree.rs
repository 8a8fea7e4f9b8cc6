//! A config as a tree in which everything knows where it stands, whether it was JSON or TOML.

use std::ops::Range;

/// Where something stands in the text, in bytes.
pub(super) type Span = Range<usize>;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Span,
}

impl Node {
    /// Whether it is as good as absent.
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
    /// In the order of the file, with every key that is there twice.
    Object(Vec<Member>),
    /// What no key of a config can be, such as a date of TOML.
    Other,
}

/// One key of an object with its value.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) node: Node,
}

/// What keeps a text from becoming a tree. It quotes nothing of the text.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) problem: String,
    pub(super) span: Span,
}

/// The text without a byte order mark, and how long that was.
pub(super) fn without_mark(text: &str) -> (&str, usize) {
    let plain = text.strip_prefix('\u{feff}').unwrap_or(text);
    (plain, text.len() - plain.len())
}
