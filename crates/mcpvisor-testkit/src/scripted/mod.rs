//! An MCP server on typed messages that follows a script.
//!
//! A [`ScriptedServer`] serves one connection per generation over a pair of channels and follows
//! its [`Script`], which is well-behaved by default. A [`Behaviour`] defines the reaction to a
//! message, a [`ScriptedControl`] intervenes while the server runs, and the [`Record`] holds
//! everything received. All timers use tokio's clock, so everything works under paused time.
//! Processes, pipes and bytes are out of scope.

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

/// A server that follows a script. Clones refer to the same server.
#[derive(Debug, Clone)]
pub struct ScriptedServer {
    shared: Arc<Shared>,
}

impl ScriptedServer {
    /// Creates a server that follows this script on every connection.
    pub fn new(script: Script) -> Self {
        Self {
            shared: Arc::new(Shared::new(script)),
        }
    }

    /// Uses another script for the connection of this generation.
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

    /// A transport to this server: each new connection follows the script of its generation.
    pub fn transport(&self) -> Transport {
        let server = self.clone();
        Transport::channel(move |end| {
            let generation = end.generation.get();
            server.clone().serve(end.incoming, end.outgoing, generation)
        })
    }

    /// The record of everything received, which keeps growing.
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
