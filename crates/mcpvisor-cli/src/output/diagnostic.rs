//! A problem of a config with the line that it is about.
//!
//! Drawing it is the library's business, which hides what could be a secret and what a terminal would
//! obey.

use mcpvisor::config::{ConfigError, ConfigProblem};

use super::{ColorMode, printable_lines};

/// A problem and its line, with and without colors. The first line of it is the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    plain: String,
    colored: String,
}

impl Diagnostic {
    /// The message, and the line below it.
    pub(crate) fn whole(&self, color: ColorMode) -> String {
        match color {
            ColorMode::Colored => self.colored.clone(),
            ColorMode::Plain => printable_lines(&self.plain),
        }
    }

    /// The line alone, for where the message stands already.
    pub(crate) fn source(&self, color: ColorMode) -> Vec<String> {
        self.whole(color)
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect()
    }
}

impl From<&ConfigProblem> for Diagnostic {
    fn from(problem: &ConfigProblem) -> Self {
        Self {
            plain: problem.render(),
            colored: problem.render_colored(),
        }
    }
}

impl From<&ConfigError> for Diagnostic {
    fn from(error: &ConfigError) -> Self {
        Self {
            plain: error.render(),
            colored: error.render_colored(),
        }
    }
}
