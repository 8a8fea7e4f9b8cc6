//! The fleet: the supervisor of all servers, reloads, and what the servers share.
//!
//! Nothing here touches a connection, and no handler waits for a server.

pub(crate) mod host;
mod message;
mod registry;
pub(crate) mod reload;
mod shutdown;
mod supervisor;
#[cfg(feature = "config-files")]
pub(crate) mod watch;

pub(crate) use message::SupervisorMessage;
pub(crate) use registry::Registry;
pub use shutdown::{CloseOutcome, ServerClosed, ShutdownReport};
pub(crate) use supervisor::{
    LONGEST_SHUTDOWN, QUIET_SHUTDOWN, SupervisorActor, SupervisorArguments,
};
