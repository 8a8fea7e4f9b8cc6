//! The error of a notification.

use mcpvisor_core::{ServerName, StateName};

/// Why a notification was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotifyError {
    /// The server is not connected. Call it, or reconnect it, then notify it again.
    #[error("{server}: the notification was not sent: the server is {state}; connect it first")]
    NotConnected {
        /// Which server.
        server: ServerName,
        /// Its state.
        state: StateName,
    },
    /// The method is reserved, or the parameters are not valid.
    #[error("{server}: the notification was not sent: {problem}")]
    Invalid {
        /// Which server.
        server: ServerName,
        /// What is wrong.
        problem: String,
    },
    /// The server does not read its input.
    #[error("{server}: the notification was not sent: the server does not read its input")]
    NotRead {
        /// Which server.
        server: ServerName,
    },
    /// The client was closed.
    #[error("{server}: the notification was not sent: its client was closed")]
    ClientClosed {
        /// Which server.
        server: ServerName,
    },
    /// The server was removed, or the runtime has ended.
    #[error("{server}: the notification was not sent: the server was removed")]
    Removed {
        /// Which server.
        server: ServerName,
    },
}
