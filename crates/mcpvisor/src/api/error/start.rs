//! Why a runtime could not start.

use mcpvisor_core::{InvalidSetting, ServerName};

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
