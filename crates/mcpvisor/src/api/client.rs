//! One agent's view of a shared fleet.

use std::sync::Arc;

use mcpvisor_core::names::SEPARATOR;
use mcpvisor_core::{ClientId, Filter, Generation, exposed_name};
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::api::error::{UnknownServer, UnknownTool};
use crate::api::handle::ServerHandle;
use crate::api::meta_tools::{self, MetaTool};
use crate::api::request::Request;
use crate::api::runtime::Runtime;
use crate::catalog::{CatalogChanges, ClientView, FleetCatalog};
use crate::server::slot::ServerSlot;

/// Builds an agent's view of the fleet.
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

    /// Limits the agent's concurrent requests. Further ones wait within their deadlines, in order
    /// of arrival, whatever their [priority](crate::Request::priority).
    #[must_use]
    pub fn quota(mut self, requests: usize) -> Self {
        self.quota = Some(requests.max(1));
        self
    }

    /// Limits the tools that the agent sees and calls, by their exposed names: those that match a
    /// pattern (all if there is none), except those that match a pattern after `!`. `*` matches any
    /// text, `?` any character; the order of patterns does not matter.
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

    /// Builds the client.
    pub fn build(self) -> Client {
        let view = (!self.filter.is_open()).then(|| {
            let catalogs = &self.runtime.lifeline.catalogs;
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

/// One agent of a shared fleet, with a quota, a filter, and a fair share of each server.
#[derive(Debug, Clone)]
pub struct Client {
    runtime: Runtime,
    name: Arc<str>,
    id: ClientId,
    quota: Option<Arc<Semaphore>>,
    view: Option<Arc<ClientView>>,
}

impl Client {
    /// The client of calls without one: no filter and no quota.
    pub(crate) fn default_of(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            name: Arc::default(),
            id: ClientId::DEFAULT,
            quota: None,
            view: None,
        }
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn filter(&self) -> Option<&Filter> {
        self.view.as_deref().map(|view| &view.filter)
    }

    /// The agent's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A handle to a server for this agent, by a `&str`, a `String` or a
    /// [`ServerName`](crate::ServerName).
    pub fn server(&self, name: impl AsRef<str>) -> Result<ServerHandle, UnknownServer> {
        Ok(self.handle(self.runtime.slot(name.as_ref())?))
    }

    fn handle(&self, slot: Arc<ServerSlot>) -> ServerHandle {
        self.runtime
            .handle(slot, self.id, self.quota.clone(), self.view.clone())
    }

    /// The catalog that this agent sees, with the last good lists of each server. Never waits.
    pub fn catalog(&self) -> Arc<FleetCatalog> {
        match &self.view {
            Some(view) => view.catalog(),
            None => self.runtime.catalog(),
        }
    }

    /// Subscribes to changes of the catalog that this agent sees.
    pub fn catalog_changes(&self) -> CatalogChanges<FleetCatalog> {
        match &self.view {
            Some(view) => view.changes(),
            None => self.runtime.catalog_changes(),
        }
    }

    /// Tools with which a model finds and calls the tools of this agent, for a catalog that is too
    /// large for a request: `mcpvisor__search_tools`, `mcpvisor__describe_tools`,
    /// `mcpvisor__call_tool` and `mcpvisor__list_servers`. Offer them instead of the
    /// [`catalog`](Self::catalog); [`call`](Self::call) answers them. Their definitions never
    /// change.
    ///
    /// They show and call what this agent may see and call, and nothing else. A call through
    /// `mcpvisor__call_tool` is the same request as a direct call, with the same options (deadline,
    /// progress, retry), the same cancellation and the same outcome; only an unknown tool is a
    /// result with `is_error`, which suggests others. The other three are answered at once, from
    /// the last good catalogs; they start no server, and the options of a request do not apply.
    ///
    /// ```no_run
    /// # async fn example(agent: mcpvisor::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use mcpvisor::for_model::{self, ModelText};
    /// use serde_json::json;
    ///
    /// let tools = for_model::anthropic_tools(&agent.meta_tools());
    /// // What the model calls:
    /// let found = agent.call("mcpvisor__search_tools", json!({ "query": "create issue" }))?;
    /// println!("{}", found.await.model_text());
    /// let arguments = json!({ "owner": "mcpvisor", "repo": "mcpvisor", "title": "A bug" });
    /// let call = json!({ "name": "github__create_issue", "arguments": arguments });
    /// println!("{}", agent.call("mcpvisor__call_tool", call)?.await.model_text());
    /// # Ok(())
    /// # }
    /// ```
    pub fn meta_tools(&self) -> Arc<FleetCatalog> {
        meta_tools::catalog()
    }

    /// Calls a tool by its exposed name, such as `github__search`, or one of the
    /// [`meta_tools`](Self::meta_tools). `arguments` is an object, or null for none. A call of a
    /// tool that the agent's filter hides is not sent, and its error says so.
    pub fn call(
        &self,
        exposed: &str,
        arguments: impl Into<Value>,
    ) -> Result<Request<CallToolResult>, UnknownTool> {
        if let Some(tool) = MetaTool::of(exposed) {
            return Ok(tool.call(self, arguments.into()));
        }
        let (slot, tool) = resolve(&self.runtime, exposed)?;
        Ok(self.handle(slot).call_tool(tool, arguments))
    }

    /// Calls a tool by its exposed name, unless there is none: its server has listed its tools on
    /// the present connection, and not this one.
    pub(crate) fn call_listed(
        &self,
        exposed: &str,
        arguments: Value,
    ) -> Option<Request<CallToolResult>> {
        let (slot, tool) = resolve(&self.runtime, exposed).ok()?;
        let listed = slot.published.catalog();
        let is_known = listed.tool(&tool).is_some() || listed.held(&tool).is_some();
        let handle = self.handle(slot);
        let is_fresh = listed.generation != Generation::NONE && !listed.stale;
        // What a filter hides is refused as in a direct call, whether or not it exists.
        let is_unknown = is_fresh && !is_known && handle.sees(&tool).is_ok();
        (!is_unknown).then(|| handle.call_tool(tool, arguments))
    }
}

/// Resolves an exposed name to its server and tool. Until a server has listed its tools, it is
/// found by the prefix of the name, unless the name was altered; the call then waits for the
/// connection.
fn resolve(runtime: &Runtime, exposed: &str) -> Result<(Arc<ServerSlot>, String), UnknownTool> {
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
