//! A cloneable handle to one server. It stays valid across reconnects.

use std::sync::Arc;

use mcpvisor_core::{ClientId, Generation, ListKind, ServerName, exposed_name};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CompleteRequest, CompleteRequestParams,
    CompleteResult, ExtensionCapabilities, GetPromptRequest, GetPromptRequestParams,
    GetPromptResult, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PingRequest, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResult, Resource, ServerPeerInfo, SetLevelRequest,
    SetLevelRequestParams, SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest,
    UnsubscribeRequestParams,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::agent::Agent;
use crate::api::error::CallError;
use crate::api::reply::Failure;
use crate::api::request::Request;
use crate::api::runtime::Lifeline;
use crate::api::status::ServerStatus;
use crate::catalog::{CatalogChanges, ClientView, ServerCatalog};
use crate::server::internal_requests::page_request;
use crate::server::message::ServerMessage;
use crate::server::slot::ServerSlot;

/// One server of a runtime.
///
/// A handle stays valid across reconnects. Its requests wait for the connection if the server's
/// state allows it, within their deadlines.
#[derive(Clone)]
pub struct ServerHandle {
    pub(crate) slot: Arc<ServerSlot>,
    /// The client that the requests belong to; the default client if there is none.
    pub(crate) agent: Option<Arc<Agent>>,
    /// The filtered view of the client, if the client has a filter.
    pub(crate) view: Option<Arc<ClientView>>,
    /// Keeps the runtime alive: it ends with its last handle.
    pub(crate) lifeline: Arc<Lifeline>,
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle")
            .field("server", self.slot.name())
            .field("client", &self.client())
            .finish_non_exhaustive()
    }
}

impl ServerHandle {
    /// The client that the requests belong to.
    pub(crate) fn client(&self) -> ClientId {
        let agent = self.agent.as_ref();
        agent.map_or(ClientId::DEFAULT, |agent| agent.id)
    }

    /// The same for one slot of the server, such as the instance that runs a task.
    pub(crate) fn at(&self, slot: &Arc<ServerSlot>) -> Self {
        Self {
            slot: Arc::clone(slot),
            ..self.clone()
        }
    }

    /// The slot that its requests use; before the first request of a client with a connection of its
    /// own, the main slot of the server.
    pub(crate) fn present_slot(&self) -> Arc<ServerSlot> {
        let own = self.agent.as_ref().filter(|_| self.slot.is_per_client());
        let own = own.and_then(|agent| agent.present_slot(&self.slot.id));
        own.unwrap_or_else(|| Arc::clone(&self.slot))
    }

    /// The slot that its next request uses. `None` if the client is closed.
    pub(crate) fn request_slot(&self) -> Option<Arc<ServerSlot>> {
        match &self.agent {
            // One that has ended says so itself.
            Some(agent) if self.slot.is_per_client() && !self.slot.is_removed() => {
                self.slot.slot_of(agent, &self.lifeline.supervisor)
            }
            _ => Some(Arc::clone(&self.slot)),
        }
    }

    /// The server's name.
    pub fn name(&self) -> &ServerName {
        self.slot.name()
    }

    /// The current status of the server; of a pool, that of its first instance; of a server with a
    /// connection for each client, that of this client's. Never waits.
    pub fn status(&self) -> ServerStatus {
        self.present_slot().published.status()
    }

    /// What the server reported about itself on the last connection: its instructions for a model,
    /// its capabilities, its name and version. All of it is unmodified server text. `None` before
    /// the first connection: wait with [`Runtime::ready`](crate::Runtime::ready). Never waits.
    ///
    /// The type is rmcp's `ServerPeerInfo`. rmcp deprecates `ServerInfo`, the result of the older
    /// handshake. `server_info` is optional: a server of 2026-07-28 may omit its name and version.
    /// [`ServerStatus::server`] has them too.
    ///
    /// ```no_run
    /// # fn example(files: mcpvisor::ServerHandle) {
    /// if let Some(info) = files.info() {
    ///     let instructions = info.instructions.as_deref().unwrap_or_default();
    ///     let version = info.server_info.as_ref().map(|server| server.version.as_str());
    ///     println!("{version:?}, protocol {}: {instructions}", info.protocol_version);
    /// }
    /// # }
    /// ```
    pub fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.present_slot().published.peer_info.load_full()
    }

    /// The protocol extensions that the server declared on its last connection, with their settings.
    /// Empty before the first connection. Never waits.
    ///
    /// ```no_run
    /// # fn example(files: mcpvisor::ServerHandle) {
    /// if files.extensions().contains_key("io.modelcontextprotocol/ui") {
    ///     println!("the server has MCP Apps");
    /// }
    /// # }
    /// ```
    pub fn extensions(&self) -> ExtensionCapabilities {
        let info = self.info();
        let extensions = info.and_then(|info| info.capabilities.extensions.clone());
        extensions.unwrap_or_default()
    }

    /// Subscribes to the server's status. Its call counts are those of the last status change;
    /// [`ServerHandle::status`] has the current counts. The server's actor counts the calls, so
    /// they may lag behind an answer that a caller already has.
    pub fn watch(&self) -> watch::Receiver<ServerStatus> {
        self.present_slot().published.subscribe_status()
    }

    /// The last good catalog of the server, with the filters of its config and of the client
    /// applied. Never waits.
    pub fn catalog(&self) -> Arc<ServerCatalog> {
        catalog(&self.present_slot(), self.view.as_deref())
    }

    /// Subscribes to changes of the server's [`catalog`](Self::catalog).
    pub fn catalog_changes(&self) -> CatalogChanges<ServerCatalog> {
        let (slot, view) = (Arc::clone(&self.slot), self.view.clone());
        let read = move || catalog(&slot, view.as_deref());
        let changed = &self.slot.shared.public.changed;
        CatalogChanges::new(changed, read, ServerCatalog::offers_same)
    }

    /// The error for a call of this tool if a filter hides it, whether or not the server has the
    /// tool. `None` if the filters of the config and of the client allow it. Never waits.
    pub fn hidden(&self, tool: &str) -> Option<CallError> {
        match self.sees(tool) {
            Err(Failure::Hidden(whose, hidden)) => {
                Some(CallError::hidden(self.name().clone(), tool, whose, &hidden))
            }
            _ => None,
        }
    }

    /// Checks a tool against the filters of the config and of the client.
    pub(crate) fn sees(&self, tool: &str) -> Result<(), Failure> {
        let by = |whose| move |hidden| Failure::Hidden(whose, hidden);
        let config = self.slot.config();
        config.filter.check(tool).map_err(by("its server"))?;
        match &self.view {
            Some(view) if !view.filter.is_open() => {
                let exposed = exposed_name(self.name(), tool);
                view.filter.check(&exposed).map_err(by("the client"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The last stderr output of the server since its last start, or from before it if there is
    /// none since. Secrets of its config are replaced by `***`.
    pub fn stderr_tail(&self) -> String {
        self.present_slot().stderr_tail()
    }

    /// A reusable handle to a tool, by name.
    pub fn tool(&self, name: impl Into<String>) -> ToolHandle {
        ToolHandle {
            server: self.clone(),
            name: name.into(),
        }
    }

    /// Reports that a connection is broken. Ignored if a newer connection is live, so reports of
    /// several callers cause one reconnect. Each instance of a pool whose connection has this
    /// generation is reconnected.
    pub fn report_broken(&self, generation: Generation) {
        for instance in self.present_slot().instances() {
            instance.send(ServerMessage::ReportBroken(generation));
        }
    }

    /// Makes the actors of all instances panic. For tests of crash isolation.
    #[doc(hidden)]
    pub fn crash_actor(&self) {
        for instance in self.slot.all_slots() {
            instance.send(ServerMessage::Crash);
        }
    }

    /// Makes the actor of one instance panic. For tests of crash isolation.
    #[doc(hidden)]
    pub fn crash_instance(&self, instance: u32) {
        let instances = self.slot.all_slots();
        if let Some(slot) = instances.iter().find(|it| it.id.instance == instance) {
            slot.send(ServerMessage::Crash);
        }
    }

    /// The current status of each instance of the server's pool, ordered by number; one if it has no
    /// pool. Never waits.
    pub fn instances(&self) -> Vec<ServerStatus> {
        let instances = self.slot.instances();
        instances.iter().map(|it| it.published.status()).collect()
    }

    /// Calls a tool. `arguments` is an object, or null for none.
    pub fn call_tool(
        &self,
        name: impl Into<String>,
        arguments: impl Into<Value>,
    ) -> Request<CallToolResult> {
        let mut params = CallToolRequestParams::new(name.into());
        let arguments = object(arguments.into(), "tool");
        let request = arguments.map(|arguments| {
            params.arguments = arguments;
            CallToolRequest::new(params).into()
        });
        let hint = |problem| format!("{problem}; write {{\"name\": value}}");
        Request::checked(self, "tools/call", request.map_err(hint))
    }

    /// Lists one page of tools as the server returns it, without filters. `cursor` is the
    /// `next_cursor` of the previous page.
    pub fn list_tools(&self, cursor: Option<String>) -> Request<ListToolsResult> {
        Request::new(self, "tools/list", page_request(ListKind::Tools, cursor))
    }

    /// Lists one page of prompts.
    pub fn list_prompts(&self, cursor: Option<String>) -> Request<ListPromptsResult> {
        Request::new(
            self,
            "prompts/list",
            page_request(ListKind::Prompts, cursor),
        )
    }

    /// Lists one page of resources.
    pub fn list_resources(&self, cursor: Option<String>) -> Request<ListResourcesResult> {
        Request::new(
            self,
            "resources/list",
            page_request(ListKind::Resources, cursor),
        )
    }

    /// Lists one page of resource templates.
    pub fn list_resource_templates(
        &self,
        cursor: Option<String>,
    ) -> Request<ListResourceTemplatesResult> {
        Request::new(
            self,
            "resources/templates/list",
            page_request(ListKind::Templates, cursor),
        )
    }

    /// Gets a prompt. `arguments` is an object of strings, or null for none.
    pub fn get_prompt(
        &self,
        name: impl Into<String>,
        arguments: impl Into<Value>,
    ) -> Request<GetPromptResult> {
        let mut params = GetPromptRequestParams::new(name.into());
        let arguments = object(arguments.into(), "prompt");
        let request = arguments.map(|arguments| {
            params.arguments = arguments;
            GetPromptRequest::new(params).into()
        });
        Request::checked(self, "prompts/get", request)
    }

    /// Reads a resource.
    pub fn read_resource(&self, uri: impl Into<String>) -> Request<ReadResourceResult> {
        let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri.into()));
        Request::new(self, "resources/read", request)
    }

    /// Reads the resource that a link in a result names. Only the server that sent the link knows
    /// its URI, so use the handle of the call.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
    /// let result = files.call_tool("search", serde_json::json!({ "q": "reconnect" })).await?;
    /// for link in result.content.iter().filter_map(|block| block.as_resource_link()) {
    ///     println!("{}: {:?}", link.uri, files.read_link(link).await?.contents);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_link(&self, link: &Resource) -> Request<ReadResourceResult> {
        self.read_resource(&link.uri)
    }

    /// Completes an argument of a prompt or of a resource template.
    pub fn complete(&self, params: CompleteRequestParams) -> Request<CompleteResult> {
        Request::new(self, "completion/complete", CompleteRequest::new(params))
    }

    /// Subscribes this client to changes of a resource. Restored on every new connection, until the
    /// client [ends](crate::Client::close).
    ///
    /// Clients share one subscription at the server: it is made for the first client and cancelled
    /// after the last one. Handles without a client count as one.
    pub fn subscribe(&self, uri: impl Into<String>) -> Request<()> {
        self.note_settings();
        let request = SubscribeRequest::new(SubscribeRequestParams::new(uri.into()));
        Request::new(self, "resources/subscribe", request)
    }

    /// Cancels a subscription of this client. The server learns it when no client has one.
    pub fn unsubscribe(&self, uri: impl Into<String>) -> Request<()> {
        let request = UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri.into()));
        Request::new(self, "resources/unsubscribe", request)
    }

    /// Sets this client's minimum log level. Restored on every new connection, until the client
    /// [ends](crate::Client::close).
    ///
    /// The server gets the most verbose level of all clients. In protocol 2026-07-28 each request
    /// carries the level of its own client instead. Handles without a client count as one.
    ///
    /// rmcp marks [`LoggingLevel`] as deprecated because the protocol will drop logging: a program
    /// that names it needs `#[allow(deprecated)]`.
    ///
    /// ```no_run
    /// # async fn example(files: mcpvisor::ServerHandle) -> Result<(), mcpvisor::CallError> {
    /// #[allow(deprecated)]
    /// use mcpvisor::rmcp::model::LoggingLevel;
    ///
    /// #[allow(deprecated)]
    /// files.set_log_level(LoggingLevel::Warning).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_log_level(&self, level: LoggingLevel) -> Request<()> {
        self.note_settings();
        let request = SetLevelRequest::new(SetLevelRequestParams::new(level));
        Request::new(self, "logging/setLevel", request)
    }

    /// What the client sets at this server ends with the client.
    pub(crate) fn note_settings(&self) {
        if let Some(agent) = &self.agent {
            agent.note_settings_at(&self.slot);
        }
    }

    /// Sends a ping to the server.
    pub fn ping(&self) -> Request<()> {
        Request::new(self, "ping", PingRequest::default())
    }
}

/// A server's catalog as its client sees it.
fn catalog(slot: &ServerSlot, view: Option<&ClientView>) -> Arc<ServerCatalog> {
    slot.refresh_expired_lists();
    match view {
        Some(view) if !view.shows_fleet() => view.server(slot.name()),
        _ => slot.shared.public.load(),
    }
}

/// The arguments of a tool or a prompt: an object, or null for none.
fn object(arguments: Value, owner: &str) -> Result<Option<JsonObject>, String> {
    match arguments {
        Value::Object(arguments) => Ok(Some(arguments)),
        Value::Null => Ok(None),
        other => Err(format!(
            "the arguments of a {owner} are an object, not {}",
            kind(&other)
        )),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A tool of a server, by name. It stays valid across reconnects.
#[derive(Debug, Clone)]
pub struct ToolHandle {
    server: ServerHandle,
    name: String,
}

impl ToolHandle {
    /// The tool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tool's definition in the current catalog.
    pub fn definition(&self) -> Option<rmcp::model::Tool> {
        self.server.catalog().tool(&self.name).cloned()
    }

    /// Calls the tool.
    pub fn call(&self, arguments: JsonObject) -> Request<CallToolResult> {
        self.server
            .call_tool(self.name.clone(), Value::Object(arguments))
    }
}
