//! A problem of a config with the line that it is about.
//!
//! Drawing it is the library's business, which hides what could be a secret and what a terminal would
//! obey.

use mcpvisor::config::{ConfigError, ConfigProblem};

use super::{Tty, printable_lines};

/// A problem and its line, with and without colours. The first line of it is the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drawn {
    plain: String,
    coloured: String,
}

impl Drawn {
    /// The message, and the line below it.
    pub(crate) fn whole(&self, tty: Tty) -> String {
        match tty {
            Tty::Colours => self.coloured.clone(),
            Tty::Plain => printable_lines(&self.plain),
        }
    }

    /// The line alone, for where the message stands already.
    pub(crate) fn source(&self, tty: Tty) -> Vec<String> {
        self.whole(tty).lines().skip(1).map(str::to_owned).collect()
    }
}

impl From<&ConfigProblem> for Drawn {
    fn from(problem: &ConfigProblem) -> Self {
        Self {
            plain: problem.render(),
            coloured: problem.render_colored(),
        }
    }
}

impl From<&ConfigError> for Drawn {
    fn from(error: &ConfigError) -> Self {
        Self {
            plain: error.render(),
            coloured: error.render_colored(),
        }
    }
}
