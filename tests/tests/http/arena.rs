//! An HTTP server and a fleet of one that calls it, and the checks for both.

use std::time::Duration;

use mcpvisor::{CallError, Runtime, ServerHandle, ServerSettings, ShutdownReport, Transport};
use mcpvisor_testkit::http_server::{HttpOptions, HttpServer, ReplyKind};
use rmcp::model::{
    ArgumentInfo, CallToolResult, CompleteRequestParams, PromptReference, Reference,
};
use serde_json::{Value, json};

pub(crate) use crate::deadlines::*;
use crate::fleet::*;

/// Every kind of request that is resent when its session is lost.
pub(crate) const KINDS: [&str; 8] = [
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];

/// A server and the fleet of one that calls it.
pub(crate) struct Arena {
    pub(crate) server: HttpServer,
    pub(crate) runtime: Runtime,
    pub(crate) handle: ServerHandle,
}

impl Arena {
    /// Starts a fleet that is connected and listed.
    pub(crate) async fn new(options: HttpOptions) -> Self {
        Self::with(options, quick()).await
    }

    /// Starts a fleet with these settings that is connected and listed.
    pub(crate) async fn with(options: HttpOptions, settings: ServerSettings) -> Self {
        let arena = Self::start(HttpServer::start(options).await, settings).await;
        arena.runtime.ready(DEADLINE).await.unwrap();
        arena
    }

    /// Starts a fleet without waiting for the connection.
    pub(crate) async fn start(server: HttpServer, settings: ServerSettings) -> Self {
        let endpoint = match server.options().reply {
            ReplyKind::Session => Transport::sse(server.url()),
            ReplyKind::Json | ReplyKind::Sse => Transport::http(server.url()),
        };
        let web = crate::fleet::server("web", endpoint).settings(settings);
        let runtime = fleet([web]).await;
        let handle = runtime.server("web").unwrap();
        Self {
            server,
            runtime,
            handle,
        }
    }

    /// Injects a fault into a call.
    pub(crate) async fn inject(
        &self,
        fault: &str,
        deadline: Duration,
    ) -> (Result<CallToolResult, CallError>, Duration) {
        let call = self
            .handle
            .call_tool("misbehave", json!({ "fault": fault }));
        timed(call.deadline(deadline).idle_timeout(deadline)).await
    }

    /// Makes a call that must fail before its deadline.
    pub(crate) async fn at_once(&self, fault: &str) -> CallError {
        let (outcome, took) = self.inject(fault, DEADLINE).await;
        let error = outcome.unwrap_err();
        assert!(took < tolerance(), "{fault}: {took:?}, {error}");
        error
    }

    /// Runs a side effect that the server counts.
    pub(crate) async fn run(&self, key: &str) -> Result<CallToolResult, CallError> {
        self.run_for(key, 0).await
    }

    /// Runs a side effect that the server counts, with a delayed reply.
    pub(crate) async fn run_for(&self, key: &str, ms: u64) -> Result<CallToolResult, CallError> {
        let arguments = json!({ "key": key, "ms": ms });
        self.handle
            .call_tool("run", arguments)
            .deadline(DEADLINE)
            .await
    }

    /// Sends a request of this kind.
    pub(crate) async fn ask(&self, kind: &str) -> Result<(), CallError> {
        ask(&self.handle, kind).await
    }

    pub(crate) fn generation(&self) -> u64 {
        self.handle.status().generation.get()
    }

    /// Checks that the next call works, on the connection of this generation.
    #[track_caller]
    pub(crate) fn recovers(&self, generation: u64) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        let handle = self.handle.clone();
        async move {
            let call = handle.call_tool("echo", json!({ "a": 1 }));
            let echoed = call.deadline(DEADLINE).await;
            let echoed = echoed.unwrap_or_else(|error| panic!("{at}: {error:?}"));
            assert_eq!(echoed.structured_content, Some(json!({ "a": 1 })), "{at}");
            assert_eq!(handle.status().generation.get(), generation, "{at}");
        }
    }

    /// Shuts down, within the time limit.
    pub(crate) async fn end(self) -> ShutdownReport {
        let (report, took) = timed(self.runtime.shutdown(secs(20))).await;
        let limit = GRACE.total() + secs(1) + tolerance();
        assert!(took < limit, "the shutdown took {took:?}");
        report
    }
}

/// Sends a request of this kind to a server.
pub(crate) async fn ask(handle: &ServerHandle, kind: &str) -> Result<(), CallError> {
    match kind {
        "tools/call" => {
            let call = handle.call_tool("run", json!({ "key": "asked" }));
            call.deadline(DEADLINE).await.map(drop)
        }
        "tools/list" => handle.list_tools(None).deadline(DEADLINE).await.map(drop),
        "resources/list" => handle
            .list_resources(None)
            .deadline(DEADLINE)
            .await
            .map(drop),
        "resources/read" => {
            let read = handle.read_resource("fixture://one");
            read.deadline(DEADLINE).await.map(drop)
        }
        "resources/templates/list" => {
            let list = handle.list_resource_templates(None);
            list.deadline(DEADLINE).await.map(drop)
        }
        "prompts/list" => handle.list_prompts(None).deadline(DEADLINE).await.map(drop),
        "prompts/get" => {
            let arguments = json!({ "name": "Ada" }).as_object().cloned();
            let get = handle.get_prompt("greet", arguments.unwrap());
            get.deadline(DEADLINE).await.map(drop)
        }
        "completion/complete" => {
            let prompt = Reference::Prompt(PromptReference::new("greet"));
            let params = CompleteRequestParams::new(prompt, ArgumentInfo::new("name", "A"));
            handle.complete(params).deadline(DEADLINE).await.map(drop)
        }
        other => panic!("no kind {other}"),
    }
}

/// Arguments that the tool ignores.
pub(crate) const NOTHING: Value = Value::Null;
