//! An MCP server on typed messages that follows a script.
//!
//! A [`ScriptedServer`] serves one connection per generation over a pair of channels, as
//! [`Script`] says: well-behaved unless told otherwise. What each message does is a [`Behaviour`];
//! what the test wants in mid-flight it says through [`ScriptedControl`]; all that arrived is in
//! the [`Record`]. Nothing here reads another clock than tokio's, so everything works under paused
//! time. Processes, pipes and bytes are not its business.

mod answer;
mod behaviour;
mod control;
mod record;
mod script;
mod session;
mod shared;

use std::sync::Arc;

use mcpvisor::Transport;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use tokio::sync::mpsc;

pub use behaviour::Behaviour;
pub use control::ScriptedControl;
pub use record::{Ending, Entry, EntryKind, Incoming, Record, ToolCall};
pub use script::{Listing, Script, tool};

use shared::Shared;

/// A server that follows a script. Clones are the same server.
#[derive(Debug, Clone)]
pub struct ScriptedServer {
    shared: Arc<Shared>,
}

impl ScriptedServer {
    /// A server that follows this script on every connection.
    pub fn new(script: Script) -> Self {
        Self {
            shared: Arc::new(Shared::new(script)),
        }
    }

    /// Follows another script on the connection of this generation.
    #[must_use]
    pub fn on_generation(self, generation: u64, script: Script) -> Self {
        self.shared
            .scripts()
            .by_generation
            .insert(generation, script);
        self
    }

    /// Serves one connection until it ends.
    pub async fn serve(
        self,
        incoming: mpsc::UnboundedReceiver<ClientJsonRpcMessage>,
        outgoing: mpsc::UnboundedSender<ServerJsonRpcMessage>,
        generation: u64,
    ) {
        session::run(self.shared, incoming, outgoing, generation).await;
    }

    /// How a runtime reaches this server: each connection that it opens is served by the script of
    /// its generation.
    pub fn transport(&self) -> Transport {
        let server = self.clone();
        Transport::channel(move |end| {
            let generation = end.generation.get();
            server.clone().serve(end.incoming, end.outgoing, generation)
        })
    }

    /// What was received so far, and what comes.
    pub fn record(&self) -> Record {
        self.shared.record.clone()
    }

    /// The test's handle on the server.
    pub fn control(&self) -> ScriptedControl {
        ScriptedControl {
            shared: Arc::clone(&self.shared),
        }
    }
}

#[cfg(test)]
mod tests;
