//! Why a server could not be found, changed or added.

use mcpvisor_core::{InvalidSetting, ServerName, StateName};

use super::MissingDriver;

/// There is no server of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no server named {name:?}{}", known_names(.known))]
#[non_exhaustive]
pub struct UnknownServer {
    /// The requested name.
    pub name: String,
    /// The names that exist.
    pub known: Vec<ServerName>,
}

fn known_names(known: &[ServerName]) -> String {
    if known.is_empty() {
        return "; no servers are configured".to_owned();
    }
    let names: Vec<&str> = known.iter().map(ServerName::as_str).collect();
    format!("; configured: {}", names.join(", "))
}

/// There is no tool of this exposed name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no tool named {name:?}; the catalog lists the names, as server__tool")]
#[non_exhaustive]
pub struct UnknownTool {
    /// The requested name.
    pub name: String,
}

/// Why a control request failed: enable, disable, reconnect, add, remove or approve.
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
        "{server}: the tool {tool} is not held back; check its name and the list of held tools"
    )]
    NotHeld {
        /// Which server.
        server: ServerName,
        /// Which tool.
        tool: String,
    },
    /// The approval holds for this run, but could not be saved.
    #[error("{server}: approved for this run, but it could not be saved: {problem}")]
    NotSaved {
        /// Which server.
        server: ServerName,
        /// The system's error.
        problem: String,
    },
    /// The file of approved tools did not respond in time; nothing was approved.
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
    /// The server's actor crashed before it carried out the request.
    #[error("{0}: the server's actor restarted; try again")]
    Interrupted(ServerName),
    /// The runtime has ended.
    #[error("the runtime has shut down")]
    RuntimeGone,
}
