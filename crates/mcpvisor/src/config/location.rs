//! A position in a config file, with its redacted line.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

#[cfg(feature = "config-files")]
use mcpvisor_core::suspicion::is_suspicious;

/// A position in a config file.
///
/// Its line is safe to show: values that could be secrets and comments are `***`, and control
/// characters are removed. Keys, structure, flags, and the numbers and durations of settings stay.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Location {
    /// The file, if the text came from one.
    pub file: Option<PathBuf>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1; in bytes on a line longer than 4 KiB.
    pub column: usize,
    /// The line, or the part of it around the column, with possible secrets redacted.
    pub source: String,
    /// The marked range within [`Location::source`], in bytes.
    pub mark: Range<usize>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, .. } = self;
        match &self.file {
            Some(file) => write!(f, "{}:{line}:{column}", file.display()),
            None => write!(f, "line {line}, column {column}"),
        }
    }
}

/// A text on one line, without control and invisible characters.
#[cfg(feature = "config-files")]
pub(super) fn harmless(text: &str) -> String {
    let shown = |c: char| match c {
        _ if c.is_whitespace() => ' ',
        _ if is_suspicious(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
