//! Why a fleet is not ready.

use std::fmt;

use mcpvisor_core::machine::{Action, FaultClass};
use mcpvisor_core::{ServerName, StateName};

/// The servers that failed, are disabled, or were not ready before the timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not ready: {}", states(.servers))]
#[non_exhaustive]
pub struct NotReady {
    /// One entry per server.
    pub servers: Vec<ServerNotReady>,
}

/// A server that is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerNotReady {
    /// Which server.
    pub server: ServerName,
    /// Its state.
    pub state: StateName,
    /// The class of the last fault.
    pub class: Option<FaultClass>,
    /// The last fault.
    pub problem: Option<String>,
    /// How to fix it.
    pub action: Option<Action>,
}

impl fmt::Display for ServerNotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            StateName::PermanentlyFailed => write!(f, "{} failed", self.server)?,
            StateName::Disabling | StateName::Disabled | StateName::Disconnected => {
                write!(f, "{} is {}", self.server, self.state)?;
            }
            StateName::Connected => write!(f, "{} is still listing its tools", self.server)?,
            StateName::Connecting | StateName::Reconnecting | StateName::Sleeping => {
                write!(f, "{} is still {}", self.server, self.state)?;
            }
        }
        if let Some(problem) = &self.problem {
            write!(f, ": {problem}")?;
        }
        match &self.action {
            Some(action) => write!(f, "; {action}"),
            None => Ok(()),
        }
    }
}

fn states(servers: &[ServerNotReady]) -> String {
    let parts: Vec<String> = servers.iter().map(ToString::to_string).collect();
    parts.join(". ")
}
