//! Problems in a config that do not keep it from being read.

use std::fmt;

use mcpvisor_core::ServerName;

use super::Location;

/// A problem in a config. It holds names and keys but never values, so that it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The server, as spelled in the config.
    pub server: Option<String>,
    /// What is wrong, and how to fix it.
    pub message: String,
    /// The effect.
    pub severity: Severity,
    /// The position, if the config came from a text.
    pub location: Option<Location>,
}

/// The effect of a [`ConfigProblem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// The server runs, but perhaps not as intended.
    Warning,
    /// The server was left out of the fleet.
    Excluded,
    /// The server was left out, but its entry disables it anyway.
    Disabled,
}

impl ConfigProblem {
    /// A problem of one server without a position.
    pub fn of(server: &ServerName, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            server: Some(server.to_string()),
            message: message.into(),
            severity,
            location: None,
        }
    }

    /// The server that is not in the fleet because of this problem.
    pub fn excluded_server(&self) -> Option<&str> {
        match self.severity {
            Severity::Excluded | Severity::Disabled => self.server.as_deref(),
            Severity::Warning => None,
        }
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            write!(f, "{location}: ")?;
        }
        match &self.server {
            Some(server) => write!(f, "server {server:?}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}
