//! Why a runtime could not start, or is not ready.

use std::fmt;

use mcpvisor_core::machine::{Action, FaultClass};
use mcpvisor_core::{InvalidSetting, ServerName, StateName};

use super::join;

/// Why a runtime could not start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two servers have the same name.
    #[error("the server {0} is configured twice; rename one of them")]
    DuplicateServer(ServerName),
    /// A setting would make the runtime misbehave.
    #[error("{server}: {problem}")]
    InvalidSetting {
        /// Which server.
        server: ServerName,
        /// Which setting, and what to write instead.
        #[source]
        problem: InvalidSetting,
    },
    /// A limit on concurrent connects would make the runtime misbehave.
    #[error("{0}")]
    InvalidConnects(#[source] InvalidSetting),
    /// The tokio runtime lacks a required driver.
    #[error(transparent)]
    MissingDriver(#[from] MissingDriver),
    /// The supervisor could not be started.
    #[error("the supervisor could not be started: {0}")]
    Supervisor(String),
}

/// A driver that the tokio runtime lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MissingDriver {
    /// Deadlines, reconnects and health checks need timers.
    #[error("the tokio runtime has no time driver; build it with enable_all()")]
    Time,
    /// Servers over stdio and HTTP need I/O.
    #[error("the tokio runtime has no I/O driver; build it with enable_all()")]
    Io,
}

/// The servers that failed, are disabled, or were not ready before the timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not ready: {}", join(.servers, ". "))]
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
