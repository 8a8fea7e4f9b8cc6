//! One agent's view of a fleet that it shares with others.

use std::sync::Arc;

use mcpvisor_core::{ClientId, ServerName};
use tokio::sync::Semaphore;

use crate::catalog::ServerCatalog;
use crate::error::UnknownServer;
use crate::handle::ServerHandle;
use crate::runtime::Runtime;

/// Describes an agent's view of the fleet.
#[derive(Debug)]
pub struct ClientBuilder {
    runtime: Runtime,
    name: String,
    id: ClientId,
    quota: Option<usize>,
}

impl ClientBuilder {
    pub(crate) fn new(runtime: Runtime, name: String, id: ClientId) -> Self {
        Self {
            runtime,
            name,
            id,
            quota: None,
        }
    }

    /// At most this many requests of the agent run or wait at once; more wait for their turn
    /// within their deadlines.
    #[must_use]
    pub fn quota(mut self, requests: usize) -> Self {
        self.quota = Some(requests.max(1));
        self
    }

    /// The view.
    pub fn build(self) -> Client {
        Client {
            runtime: self.runtime,
            name: self.name.into(),
            id: self.id,
            quota: self
                .quota
                .map(|requests| Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)))),
        }
    }
}

/// One agent among those that share a fleet: its own quota, and its fair share of each server.
#[derive(Debug, Clone)]
pub struct Client {
    runtime: Runtime,
    name: Arc<str>,
    id: ClientId,
    quota: Option<Arc<Semaphore>>,
}

impl Client {
    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle of a server, for this agent.
    pub fn server(&self, name: &str) -> Result<ServerHandle, UnknownServer> {
        let slot = self.runtime.slot(name)?;
        Ok(self.runtime.handle(slot, self.id, self.quota.clone()))
    }

    /// What every server offers: the last good catalogs. Never waits.
    pub fn catalog(&self) -> Vec<(ServerName, Arc<ServerCatalog>)> {
        self.runtime.catalog()
    }
}
