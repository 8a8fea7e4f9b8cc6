//! One agent's view of a fleet that it shares with others.

use std::sync::Arc;

use mcpvisor_core::names::SEPARATOR;
use mcpvisor_core::{ClientId, Filter, exposed_name};
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api::error::{UnknownServer, UnknownTool};
use crate::api::handle::ServerHandle;
use crate::api::request::Request;
use crate::api::runtime::Runtime;
use crate::catalog::{CatalogChanges, ClientView, FleetCatalog};
use crate::server::slot::ServerSlot;

/// Describes an agent's view of the fleet.
#[derive(Debug)]
pub struct ClientBuilder {
    runtime: Runtime,
    name: String,
    id: ClientId,
    quota: Option<usize>,
    filter: Filter,
}

impl ClientBuilder {
    pub(crate) fn new(runtime: Runtime, name: String, id: ClientId) -> Self {
        Self {
            runtime,
            name,
            id,
            quota: None,
            filter: Filter::default(),
        }
    }

    /// At most this many requests of the agent run or wait at once; more wait for their turn
    /// within their deadlines, in the order in which they came, whatever their
    /// [priority](crate::Request::priority).
    #[must_use]
    pub fn quota(mut self, requests: usize) -> Self {
        self.quota = Some(requests.max(1));
        self
    }

    /// The agent sees and calls only tools whose exposed names pass: those that a pattern matches, all
    /// if there is none, without those that a pattern after `!` matches. `*` is any text, `?` any
    /// character, and the order does not count.
    ///
    /// ```no_run
    /// # fn example(runtime: mcpvisor::Runtime) {
    /// let planner = runtime.client("planner").tools(["github__*", "!github__delete_*"]).build();
    /// # }
    /// ```
    #[must_use]
    pub fn tools<S: AsRef<str>>(mut self, patterns: impl IntoIterator<Item = S>) -> Self {
        self.filter = Filter::from_patterns(patterns);
        self
    }

    /// The view.
    pub fn build(self) -> Client {
        let view = (!self.filter.is_open()).then(|| {
            let catalogs = &self.runtime.lifeline().catalogs;
            catalogs.view(self.filter)
        });
        Client {
            runtime: self.runtime,
            name: self.name.into(),
            id: self.id,
            quota: self
                .quota
                .map(|requests| Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)))),
            view,
        }
    }
}

/// One agent among those that share a fleet: its own quota, its own filter, and its fair share of
/// each server.
#[derive(Debug, Clone)]
pub struct Client {
    runtime: Runtime,
    name: Arc<str>,
    id: ClientId,
    quota: Option<Arc<Semaphore>>,
    view: Option<Arc<ClientView>>,
}

impl Client {
    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle of a server, for this agent, by a `&str`, a `String` or a [`ServerName`](crate::ServerName).
    pub fn server(&self, name: impl AsRef<str>) -> Result<ServerHandle, UnknownServer> {
        Ok(self.handle(self.runtime.slot(name.as_ref())?))
    }

    fn handle(&self, slot: Arc<ServerSlot>) -> ServerHandle {
        self.runtime
            .handle(slot, self.id, self.quota.clone(), self.view.clone())
    }

    /// What all servers offer this agent, the last good of each: one pointer load, never waits.
    pub fn catalog(&self) -> Arc<FleetCatalog> {
        match &self.view {
            Some(view) => view.catalog(),
            None => self.runtime.catalog(),
        }
    }

    /// Waits for changes of what this agent sees, from now on. A change of what its filter hides is none.
    pub fn catalog_changes(&self) -> CatalogChanges<FleetCatalog> {
        match &self.view {
            Some(view) => view.changes(),
            None => self.runtime.catalog_changes(),
        }
    }

    /// Calls a tool by its exposed name, such as `github__search`. `arguments` is an object, or null
    /// for none. One that the agent's filter hides is not sent, and the outcome says so.
    pub fn call(
        &self,
        exposed: &str,
        arguments: impl Into<Value>,
    ) -> Result<Request<CallToolResult>, UnknownTool> {
        let (slot, tool) = resolve(&self.runtime, exposed)?;
        Ok(self.handle(slot).call_tool(tool, arguments))
    }
}

/// The server and the tool behind an exposed name. A server that has not listed its tools yet is
/// found by the name alone, where it was not altered; the call waits for the connection then.
pub(crate) fn resolve(
    runtime: &Runtime,
    exposed: &str,
) -> Result<(Arc<ServerSlot>, String), UnknownTool> {
    let unknown = || UnknownTool {
        name: exposed.to_owned(),
    };
    if let Some(tool) = runtime.catalog().tool(exposed) {
        let slot = runtime
            .slot(tool.server().as_str())
            .map_err(|_| unknown())?;
        return Ok((slot, tool.name().to_owned()));
    }
    let (server, tool) = exposed.split_once(SEPARATOR).ok_or_else(unknown)?;
    let slot = runtime.slot(server).map_err(|_| unknown())?;
    if exposed_name(slot.name(), tool) == exposed {
        Ok((slot, tool.to_owned()))
    } else {
        Err(unknown())
    }
}
