//! One request and its reply.

use std::sync::Arc;
use std::time::{Duration, Instant};

use mcpvisor_core::machine::NewCall;
use mcpvisor_core::request_routing::Answerer;
use mcpvisor_core::settings::RetrySettings;
use mcpvisor_core::{CallId, ClientId, Priority, RetryPolicy, Safety, ToolHints};
use rmcp::ErrorData;
use rmcp::model::{ClientCapabilities, ClientRequest, ProgressNotificationParam};
use tokio::sync::mpsc;

use crate::api::callbacks::BoundCallbacks;
use crate::api::reply::Reply;
use crate::api::request::RequestKey;
use crate::catalog::ServerCatalog;
use crate::link::{TaskParam, tool_name};

/// A request with its options and its reply. It is boxed once and moves as a pointer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    /// Its id for callers, which stays the same when it is sent again.
    pub(crate) key: RequestKey,
    pub(crate) client: ClientId,
    /// Answers what it causes; the runtime's callbacks if there are none.
    pub(crate) callbacks: Option<BoundCallbacks>,
    /// What it advertises instead of its callbacks in the modern era; its caller gets the input that
    /// the server requires.
    pub(crate) capabilities: Option<Box<ClientCapabilities>>,
    /// `None` once a transport has taken it; otherwise it is available for a retry.
    pub(crate) request: Option<ClientRequest>,
    /// Sends a tool call as a task, to a server of 2025-11-25 that has tasks.
    pub(crate) task: Option<TaskParam>,
    pub(crate) retry_policy: RetryPolicy,
    pub(crate) priority: Priority,
    pub(crate) deadline: Instant,
    pub(crate) idle: Duration,
    pub(crate) progress: Option<mpsc::Sender<ProgressNotificationParam>>,
    pub(crate) reply: Reply,
    /// Rounds in which the server requested input.
    pub(crate) rounds: u32,
    /// The tools were listed again because the server rejected its headers.
    pub(crate) relisted: bool,
    /// Keep the request when it is sent, for a retry.
    pub(crate) keep_request: bool,
    /// The error with which the server refused a retry.
    pub(crate) refusal: Option<ErrorData>,
    /// The catalog when a tool call was first sent: a retry needs the same tool.
    pub(crate) catalog_at_send: Option<Arc<ServerCatalog>>,
}

impl Call {
    /// Describes the call to the machine, and decides whether the request is retained for a retry.
    pub(crate) fn admit(&mut self, settings: &RetrySettings, catalog: &ServerCatalog) -> NewCall {
        let tool = self.tool_name();
        let is_tool = tool.is_some();
        let safety = match (tool, &self.request) {
            (Some(name), _) => tool_safety(name, settings, catalog),
            (None, Some(ClientRequest::CustomRequest(raw))) => Safety::of_method(&raw.method),
            (None, _) => Safety::Repeatable,
        };
        self.keep_request = match (self.retry_policy, safety) {
            (RetryPolicy::Never, _) => false,
            (RetryPolicy::Always, _) => true,
            (RetryPolicy::Default, Safety::Repeatable | Safety::TrustedTool) => true,
            (RetryPolicy::Default, Safety::Effectful) => false,
        };
        NewCall {
            call: self.id,
            client: self.client,
            safety,
            retry_policy: self.retry_policy,
            priority: self.priority,
            is_tool,
            deadline: self.deadline,
            idle: self.idle,
        }
    }

    /// Who answers the requests of the server that it causes.
    pub(crate) fn answerer(&self) -> Answerer {
        let callbacks = self.callbacks.as_ref();
        callbacks.map_or(Answerer::Runtime, BoundCallbacks::owner)
    }

    /// Stores the error of a refused retry, which the caller gets.
    pub(crate) fn note_refusal(&mut self, error: Option<ErrorData>) {
        self.refusal = error.filter(|_| self.reply.is_retry());
    }

    pub(crate) fn tool_name(&self) -> Option<&str> {
        tool_name(self.request.as_ref()?)
    }
}

fn tool_safety(name: &str, settings: &RetrySettings, catalog: &ServerCatalog) -> Safety {
    Safety::of_tool(name, settings, || {
        let tool = catalog.tool(name);
        let annotations = tool.and_then(|tool| tool.annotations.as_ref());
        annotations.map_or_else(ToolHints::default, |hints| ToolHints {
            read_only: hints.read_only_hint == Some(true),
            idempotent: hints.idempotent_hint == Some(true),
        })
    })
}
