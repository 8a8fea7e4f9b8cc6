//! A problem of a config with its source line.
//!
//! The library renders it, without secrets and control characters.

use mcpvisor::config::{ConfigError, ConfigProblem};

use super::{ColorMode, printable_lines};

/// A problem and its source line, with and without colors. The first line is the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    plain: String,
    colored: String,
}

impl Diagnostic {
    /// The message and the source line.
    pub(crate) fn whole(&self, color: ColorMode) -> String {
        match color {
            ColorMode::Colored => self.colored.clone(),
            ColorMode::Plain => printable_lines(&self.plain),
        }
    }

    /// The source line without the message.
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
