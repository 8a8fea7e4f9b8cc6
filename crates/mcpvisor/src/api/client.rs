//! One agent's view of a shared fleet.

use std::sync::Arc;
use std::time::Duration;

use mcpvisor_core::names::SEPARATOR;
use mcpvisor_core::rate_limit::RateLimit;
use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::{ClientId, Filter, Generation, exposed_name};
use rmcp::model::CallToolResult;
use serde_json::Value;

use crate::api::agent::Agent;
use crate::api::callbacks::{BoundCallbacks, Callbacks};
use crate::api::error::{UnknownServer, UnknownTool};
use crate::api::handle::ServerHandle;
use crate::api::meta_tools::{self, MetaTool};
use crate::api::notifications::Notifications;
use crate::api::quota::{Quota, QuotaLimits};
use crate::api::request::Request;
use crate::api::runtime::Runtime;
use crate::catalog::{CatalogChanges, ClientView, FleetCatalog};
use crate::server::message::ServerMessage;
use crate::server::slot::ServerSlot;

/// Builds an agent's view of the fleet.
#[derive(Debug)]
pub struct ClientBuilder {
    runtime: Runtime,
    name: String,
    id: ClientId,
    limits: QuotaLimits,
    callbacks: Option<Callbacks>,
    filter: Filter,
    account: Option<Arc<str>>,
}

impl ClientBuilder {
    pub(crate) fn new(runtime: Runtime, name: String, id: ClientId) -> Self {
        Self {
            runtime,
            name,
            id,
            limits: QuotaLimits::default(),
            callbacks: None,
            filter: Filter::default(),
            account: None,
        }
    }

    /// Limits the agent's concurrent requests. Further ones wait within their deadlines, in order
    /// of arrival, whatever their [priority](crate::Request::priority).
    #[must_use]
    pub fn quota(mut self, requests: usize) -> Self {
        self.limits.in_flight = Some(requests.max(1));
        self
    }

    /// Limits the agent's requests that wait for its [quota](Self::quota) or its
    /// [rate](Self::rate); further ones are [busy](crate::CallError::Busy) at once.
    #[must_use]
    pub fn waiting(mut self, requests: usize) -> Self {
        self.limits.waiting = Some(requests);
        self
    }

    /// Limits the agent's requests per time: at most `requests` in a burst, refilled evenly over
    /// `period`. Further ones wait within their deadlines, in order of arrival; one that would wait
    /// longer is [busy](crate::CallError::Busy) at once.
    ///
    /// ```no_run
    /// # fn example(runtime: mcpvisor::Runtime) {
    /// use std::time::Duration;
    ///
    /// let crawler = runtime.client("crawler").quota(8).waiting(100);
    /// let crawler = crawler.rate(60, Duration::from_secs(60)).build();
    /// # }
    /// ```
    #[must_use]
    pub fn rate(mut self, requests: u32, period: Duration) -> Self {
        self.limits.rate = Some(RateLimit::new(requests, period));
        self
    }

    /// Answers the requests of servers that this agent's requests cause, instead of the runtime's
    /// callbacks.
    ///
    /// In protocol 2026-07-28 a request of a server belongs to a call, and each call advertises what
    /// its agent answers. In older versions it need not say which call caused it, and a connection
    /// advertises what the agents at the time of its handshake answer together: build agents before
    /// the servers connect, or name their callbacks with
    /// [`RuntimeBuilder::client_callbacks`](crate::RuntimeBuilder::client_callbacks). There a
    /// request that calls of several agents may have caused is declined and counted in
    /// [`ServerStatus::ambiguous_requests`](crate::ServerStatus::ambiguous_requests).
    #[must_use]
    pub fn callbacks(mut self, callbacks: Callbacks) -> Self {
        self.callbacks = Some(callbacks);
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

    /// Uses this account at servers whose scope is
    /// [`ConnectionScope::Client`](crate::ConnectionScope::Client) and that authorize with OAuth,
    /// instead of the account of their config. The agent's connections use the tokens of the account,
    /// and the agent sees what the servers list for it; before its first request, nothing. Other
    /// servers ignore it.
    #[must_use]
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.account = Some(account.into().into());
        self
    }

    /// Builds the client.
    pub fn build(self) -> Client {
        let catalogs = &self.runtime.lifeline.catalogs;
        let view = Some(catalogs.view(self.filter, self.account));
        let callbacks = self.callbacks.map(|callbacks| {
            self.runtime.lifeline.host.offer(&callbacks);
            BoundCallbacks::new(Answerer::Client(self.id), Arc::new(callbacks))
        });
        let quota = Quota::new(self.limits);
        let agent = Agent::new(self.id, self.name.into(), quota, callbacks, view.clone());
        Client {
            runtime: self.runtime,
            agent: Arc::new(agent),
            view,
        }
    }
}

/// One agent of a shared fleet, with a quota, a filter, and a fair share of each server.
#[derive(Debug, Clone)]
pub struct Client {
    runtime: Runtime,
    agent: Arc<Agent>,
    view: Option<Arc<ClientView>>,
}

impl Client {
    /// The client of calls without one: no filter and no quota.
    pub(crate) fn default_of(runtime: &Runtime) -> Self {
        Self {
            agent: Arc::clone(&runtime.lifeline.default_agent),
            runtime: runtime.clone(),
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
        &self.agent.name
    }

    /// Cancels the agent's running and waiting requests, at the servers too. Later requests are not
    /// affected. A cancelled request ends with [`CallError::Cancelled`](crate::CallError::Cancelled)
    /// if it may have been sent, else with
    /// [`NotSentReason::ClientClosed`](crate::NotSentReason::ClientClosed).
    pub fn cancel_all(&self) {
        self.agent.cancel_all();
        self.cancel_at_servers();
    }

    /// Ends the agent: its requests are cancelled as by [`cancel_all`](Self::cancel_all), its
    /// subscriptions end, its log levels no longer count, and further requests of this client and
    /// its handles are not sent. Dropping the last clone of the client, of its handles and of their
    /// requests ends the subscriptions and log levels too.
    pub fn close(&self) {
        self.agent.close();
        // Before its connections end, so that its requests end for this reason.
        self.cancel_at_servers();
        self.agent.release_slots();
        self.agent.release_settings();
        self.agent.close_notifications();
    }

    /// Cancels the requests that the servers' actors have, those of one server together, so that the
    /// end of one does not start another.
    fn cancel_at_servers(&self) {
        let client = self.agent.id;
        let others = |slot: &ServerSlot| slot.owner().is_some_and(|it| it.client != client);
        for slot in self.runtime.slots().iter().filter(|it| !others(it)) {
            slot.send(ServerMessage::CancelClient(self.agent.id));
        }
    }

    /// Whether the agent was [closed](Self::close).
    pub fn is_closed(&self) -> bool {
        self.agent.is_closed()
    }

    /// A handle to a server for this agent, by a `&str`, a `String` or a
    /// [`ServerName`](crate::ServerName).
    pub fn server(&self, name: impl AsRef<str>) -> Result<ServerHandle, UnknownServer> {
        Ok(self.handle(self.runtime.slot(name.as_ref())?))
    }

    fn handle(&self, slot: Arc<ServerSlot>) -> ServerHandle {
        // Requests of the default client have no quota and cannot be cancelled together.
        let agent = (self.agent.id != ClientId::DEFAULT).then(|| Arc::clone(&self.agent));
        self.runtime.handle(slot, agent, self.view.clone())
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

    /// Reads what servers send to this agent: log messages from its own
    /// [level](ServerHandle::set_log_level) on, updates of the resources that it
    /// [subscribed](ServerHandle::subscribe) to, progress of its own requests, custom notifications,
    /// and changes of the lists that it sees.
    ///
    /// A log message or a custom notification that is known to belong to a request goes to the client
    /// of that request alone. Otherwise all clients get it: up to 2025-11-25, and over stdio, servers
    /// do not say whom it is for. An agent that has set no level gets the log messages that its own
    /// requests caused, and all others as long as no client has set one.
    ///
    /// A reader that is [`NOTIFICATION_BUFFER`](crate::NOTIFICATION_BUFFER) notifications behind loses
    /// the oldest, and gets their number. Several readers of one agent each get everything. The
    /// reader ends with the agent: when it is [closed](Self::close), or when its last clone, handle and
    /// request are dropped. [`Runtime::events`] has the notifications of all servers, for whomever they
    /// are.
    ///
    /// ```no_run
    /// # async fn example(agent: mcpvisor::Client) {
    /// use mcpvisor::{NotificationKind, Received};
    ///
    /// let mut notifications = agent.notifications();
    /// while let Some(received) = notifications.recv().await {
    ///     match received {
    ///         Received::Notification(it) => match &it.kind {
    ///             NotificationKind::ResourceUpdated(updated) => println!("{}: {}", it.server, updated.uri),
    ///             other => println!("{}: {other:?}", it.server),
    ///         },
    ///         Received::Missed(count) => println!("{count} were missed"),
    ///         _ => {}
    ///     }
    /// }
    /// # }
    /// ```
    pub fn notifications(&self) -> Notifications {
        let events = &self.runtime.lifeline.events;
        self.agent.notifications(events)
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
        let (slot, tool) = self.resolve(exposed)?;
        Ok(self.handle(slot).call_tool(tool, arguments))
    }

    /// Resolves an exposed name in what the agent's connections list, whatever its filter hides.
    fn resolve(&self, exposed: &str) -> Result<(Arc<ServerSlot>, String), UnknownTool> {
        let catalog = match &self.view {
            Some(view) => view.unfiltered(),
            None => self.runtime.catalog(),
        };
        resolve(&self.runtime, &catalog, exposed)
    }

    /// Calls a tool by its exposed name, unless there is none: its server has listed its tools on
    /// the present connection, and not this one.
    pub(crate) fn call_listed(
        &self,
        exposed: &str,
        arguments: Value,
    ) -> Option<Request<CallToolResult>> {
        let (slot, tool) = self.resolve(exposed).ok()?;
        let listed = self
            .handle(Arc::clone(&slot))
            .present_slot()
            .callers_catalog();
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
fn resolve(
    runtime: &Runtime,
    catalog: &FleetCatalog,
    exposed: &str,
) -> Result<(Arc<ServerSlot>, String), UnknownTool> {
    let unknown = || UnknownTool {
        name: exposed.to_owned(),
    };
    if let Some(tool) = catalog.tool(exposed) {
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
