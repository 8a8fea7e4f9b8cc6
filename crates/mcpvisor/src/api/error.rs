//! What a caller is told when there is no result.
//!
//! Each error names the server, says what is known about the request, and what to do next. A retry
//! reads the variant, never the text.

mod call;

use std::fmt;

use mcpvisor_core::machine::FaultClass;
use mcpvisor_core::{InvalidSetting, ServerName, StateName};

pub use self::call::{ArgumentProblem, CallError, NotSentReason};
pub(crate) use self::call::{Asked, Obstacle};

/// Why a runtime could not start.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two servers have the same name.
    #[error("the server {0} is configured twice; give one of them another name")]
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
    /// A bound on the connects of the fleet would make the runtime misbehave.
    #[error("{0}")]
    InvalidConnects(#[source] InvalidSetting),
    /// Tokio's runtime lacks a driver that is needed.
    #[error(transparent)]
    MissingDriver(#[from] MissingDriver),
    /// The supervisor could not be started.
    #[error("the supervisor could not be started: {0}")]
    Supervisor(String),
}

/// Tokio's runtime lacks a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MissingDriver {
    /// Deadlines, reconnects and checks need timers.
    #[error("the tokio runtime has no time driver; build it with enable_all()")]
    Time,
    /// Servers over stdio and HTTP need I/O.
    #[error("the tokio runtime has no I/O driver; build it with enable_all()")]
    Io,
}

/// There is no server of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no server named {name:?}{}", known_names(.known))]
#[non_exhaustive]
pub struct UnknownServer {
    /// The name that was asked for.
    pub name: String,
    /// The names that exist.
    pub known: Vec<ServerName>,
}

fn known_names(known: &[ServerName]) -> String {
    if known.is_empty() {
        return "; none is configured".to_owned();
    }
    let names: Vec<&str> = known.iter().map(ServerName::as_str).collect();
    format!("; there are: {}", names.join(", "))
}

/// There is no tool of this exposed name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no tool named {name:?}; the catalog has the names of those that there are, as server__tool"
)]
#[non_exhaustive]
pub struct UnknownTool {
    /// The name that was asked for.
    pub name: String,
}

/// Why a wish about a server was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such server.
    #[error(transparent)]
    Unknown(#[from] UnknownServer),
    /// A disabled server is not reconnected.
    #[error("{server} is {state}; enable it instead of reconnecting it")]
    Disabled {
        /// Which server.
        server: ServerName,
        /// Its state.
        state: StateName,
    },
    /// A server of this name exists already.
    #[error("{0} exists already; remove it first")]
    Exists(ServerName),
    /// A setting would make the runtime misbehave.
    #[error("{server}: {problem}")]
    InvalidSetting {
        /// Which server.
        server: ServerName,
        /// Which setting, and what to write instead.
        #[source]
        problem: InvalidSetting,
    },
    /// The tool is not held back.
    #[error(
        "{server}: the tool {tool} is not held back; see which ones are, or whether the server lists it"
    )]
    NotHeld {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
    },
    /// It is done, but could not be kept for the next run.
    #[error("{server}: approved for now, but it could not be saved: {problem}")]
    NotSaved {
        /// Which server.
        server: ServerName,
        /// What the system said.
        problem: String,
    },
    /// It was not done in time: the file of approved tools does not answer.
    #[error("{server}: not approved: {problem}, then approve again")]
    NotApproved {
        /// Which server.
        server: ServerName,
        /// Which file, and what to do.
        problem: String,
    },
    /// A server of this kind cannot run on this tokio runtime.
    #[error("{server}: {problem}")]
    MissingDriver {
        /// Which server.
        server: ServerName,
        /// Which driver.
        #[source]
        problem: MissingDriver,
    },
    /// The server's actor crashed before it could do it.
    #[error("{0}: the server's actor restarted meanwhile; ask again")]
    Interrupted(ServerName),
    /// The runtime has ended.
    #[error("the runtime has shut down")]
    RuntimeGone,
}

/// Servers that failed, are switched off, or were still on their way when the time was up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not ready: {}", states(.servers))]
#[non_exhaustive]
pub struct NotReady {
    /// Each of them.
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
    /// The kind of what last went wrong.
    pub class: Option<FaultClass>,
    /// What last went wrong.
    pub problem: Option<String>,
    /// What a person should do about it.
    pub action: Option<String>,
}

impl fmt::Display for ServerNotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            StateName::PermanentlyFailed => write!(f, "{} failed", self.server)?,
            StateName::Disabling | StateName::Disabled | StateName::Disconnected => {
                write!(f, "{} is {}", self.server, self.state)?;
            }
            // Its lists are missing.
            StateName::Connected => write!(f, "{} is still being listed", self.server)?,
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
