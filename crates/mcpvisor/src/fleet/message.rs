//! What is said to the supervisor.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{GovernorSettings, ServerName};
use tokio::sync::oneshot;

use super::ShutdownReport;
use crate::api::error::ControlError;
use crate::server::slot::ServerSlot;

/// A message to the [`super::Supervisor`].
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// A server wants to connect.
    RequestPermit {
        /// Which server.
        server: ServerName,
        /// Not for the first time.
        reconnect: bool,
    },
    /// A server no longer needs its permit, or no longer wants one.
    ReleasePermit {
        /// Which server.
        server: ServerName,
    },
    /// The governor may have room again.
    GovernorDue,
    /// Other bounds on connects from now on.
    Govern(GovernorSettings),
    /// Add a server.
    Add {
        /// Its slot.
        slot: Arc<ServerSlot>,
        /// Answered when its actor runs.
        reply: oneshot::Sender<Result<(), ControlError>>,
    },
    /// Remove a server.
    Remove {
        /// Which server.
        server: ServerName,
        /// Answered when nothing of it is left.
        reply: oneshot::Sender<Result<(), ControlError>>,
    },
    /// The actor of a server may be started again.
    RestartDue {
        /// Which server.
        server: ServerName,
    },
    /// End everything within the limit.
    Shutdown {
        /// All servers together.
        limit: Duration,
        /// Who wants to hear of it; nobody when the last handle was dropped.
        reply: Option<oneshot::Sender<ShutdownReport>>,
    },
    /// The time for the shutdown is up.
    ShutdownDue,
    /// Panic, to show what becomes of the handles.
    Crash,
}

/// With ractor's cluster feature a message says whether it can leave the process. This one cannot.
#[cfg(feature = "cluster")]
impl ractor::Message for SupervisorMessage {}
