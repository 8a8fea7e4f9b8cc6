//! The messages to the supervisor.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::{GovernorSettings, ServerInstance, ServerName};
use tokio::sync::oneshot;

use super::ShutdownReport;
use crate::server::message::ControlReply;
use crate::server::slot::ServerSlot;

/// A message to the [`super::SupervisorActor`].
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// Grant this slot a connect permit when the governor allows it.
    RequestPermit {
        /// Which slot.
        slot: ServerInstance,
        /// Not its first connect.
        reconnect: bool,
    },
    /// Release the permit of this slot, or withdraw its request.
    ReleasePermit(ServerInstance),
    /// The governor may grant permits again.
    PermitTimerFired,
    /// Change the limits on connects.
    ReconfigureGovernor(GovernorSettings),
    /// Add a server, with the instances of its pool.
    Add {
        /// Its main slot.
        slot: Arc<ServerSlot>,
        /// Answered when its actors run.
        reply: ControlReply,
    },
    /// Start the actor of a further slot of a server. Its mailbox says when it runs.
    AddSlot(Arc<ServerSlot>),
    /// Remove a server with all of its slots.
    Remove {
        /// Which server.
        server: ServerName,
        /// Answered when it is closed and forgotten.
        reply: ControlReply,
    },
    /// Remove one further slot of a server.
    RemoveSlot(ServerInstance),
    /// Start the actor of a slot again, after the pause that follows a crash.
    RestartActor(ServerInstance),
    /// Shut all servers down within the limit.
    Shutdown {
        /// For all servers together.
        limit: Duration,
        /// Receives the report; none when the last handle was dropped.
        reply: Option<oneshot::Sender<ShutdownReport>>,
    },
    /// The limit of the shutdown has passed.
    ShutdownTimedOut,
    /// Panic, to test what handles report then.
    Crash,
}

/// With ractor's cluster feature every message type states whether it is serializable; this one is
/// not.
#[cfg(feature = "cluster")]
impl ractor::Message for SupervisorMessage {}
