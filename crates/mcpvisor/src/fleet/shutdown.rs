//! How a runtime and each of its servers ended.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::ServerName;

use crate::server::slot::ServerSlot;

/// How a runtime ended.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Each server, in the order of their names.
    pub servers: Vec<ServerClosed>,
    /// How long it took.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether every server closed without trouble.
    pub fn is_clean(&self) -> bool {
        self.servers
            .iter()
            .all(|closed| closed.how == CloseOutcome::Clean)
    }

    /// Adds the servers that a supervisor which had ended before could not tell of.
    pub(crate) fn complete(&mut self, slots: &[Arc<ServerSlot>]) {
        for slot in slots {
            let name = slot.name();
            if self.servers.iter().any(|closed| closed.server == *name) {
                continue;
            }
            let unasked = || CloseOutcome::Problem("its supervisor had ended before".to_owned());
            let how = slot.restart_state().closed.clone().unwrap_or_else(unasked);
            let server = name.clone();
            self.servers.push(ServerClosed { server, how });
        }
        self.servers.sort_by(|a, b| a.server.cmp(&b.server));
    }
}

/// How one server ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerClosed {
    /// Which server.
    pub server: ServerName,
    /// How.
    pub how: CloseOutcome,
}

/// How a server was closed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseOutcome {
    /// As asked.
    Clean,
    /// It is closed, but not as asked.
    Problem(String),
    /// It was not closed in time and was ended by force.
    Forced,
}
