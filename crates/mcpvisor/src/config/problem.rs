//! Problems in a config that do not keep it from being read.

use std::fmt;

use mcpvisor_core::ServerName;

use super::Location;

/// Something in a config that a person should look at. It never holds a value of the config, only
/// names and keys, so that it can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigProblem {
    /// The server that it is about, as the config spells it.
    pub server: Option<String>,
    /// What is wrong, and what to write instead.
    pub message: String,
    /// What it costs.
    pub severity: Severity,
    /// Where it is, in a config that came from a text.
    pub location: Option<Location>,
}

/// What a [`ConfigProblem`] costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Severity {
    /// The server runs, perhaps not as it was meant.
    Warning,
    /// The server was left out of the fleet.
    LeftOut,
    /// The same of a server that its entry switches off: nobody misses it until it is switched on.
    Off,
}

impl ConfigProblem {
    /// A problem of one server that was found beside its text.
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
            Severity::LeftOut | Severity::Off => self.server.as_deref(),
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
