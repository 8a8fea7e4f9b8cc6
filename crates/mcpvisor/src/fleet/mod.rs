//! The fleet: the supervisor of all servers, reloads, and what the servers share.
//!
//! Nothing here touches a connection, and no handler waits for a server.

mod child_exit;
mod config_diff;
mod connect_permits;
pub(crate) mod host;
mod message;
pub(crate) mod reload;
mod shutdown;
mod supervisor;
#[cfg(feature = "config-files")]
pub(crate) mod watch;

pub use config_diff::ServerChange;
pub(crate) use message::SupervisorMessage;
pub use shutdown::{CloseOutcome, ServerClosed, ShutdownReport};
pub(crate) use shutdown::{DROP_SHUTDOWN_LIMIT, MAX_SHUTDOWN, SHUTDOWN_MARGIN};
pub(crate) use supervisor::{ServerRegistry, SupervisorActor, SupervisorArguments};
