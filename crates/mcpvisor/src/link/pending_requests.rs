//! What the link needs to know about pending requests: their ids and the kind of reply to expect.

use mcpvisor_core::CallId;
use rmcp::model::{CallToolRequest, ClientRequest};

use super::outgoing::TaskParam;

/// The kind of result that a pending request expects.
///
/// The decoder reads a reply as this kind first, because trying every kind in turn is most of the
/// cost of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyKind {
    /// A tool result.
    CallTool,
    /// A page of tools.
    ListTools,
    /// A page of prompts.
    ListPrompts,
    /// A rendered prompt.
    GetPrompt,
    /// A page of resources.
    ListResources,
    /// A page of resource templates.
    ListTemplates,
    /// The contents of a resource.
    ReadResource,
    /// Completions of an argument.
    Complete,
    /// The server's part of the handshake.
    Initialize,
    /// The protocol versions of the server.
    Discover,
    /// An acknowledgement; its content is ignored.
    Empty,
    /// Any result; its shape decides.
    Any,
    /// Any result, kept as JSON.
    Raw,
}

impl ReplyKind {
    /// The kind of reply that a request expects.
    pub(crate) fn of(request: &ClientRequest) -> Self {
        match request {
            ClientRequest::CallToolRequest(call) if is_task(call) => Self::Raw,
            ClientRequest::CallToolRequest(_) => Self::CallTool,
            ClientRequest::ListToolsRequest(_) => Self::ListTools,
            ClientRequest::ListPromptsRequest(_) => Self::ListPrompts,
            ClientRequest::GetPromptRequest(_) => Self::GetPrompt,
            ClientRequest::ListResourcesRequest(_) => Self::ListResources,
            ClientRequest::ListResourceTemplatesRequest(_) => Self::ListTemplates,
            ClientRequest::ReadResourceRequest(_) => Self::ReadResource,
            ClientRequest::CompleteRequest(_) => Self::Complete,
            ClientRequest::InitializeRequest(_) => Self::Initialize,
            ClientRequest::DiscoverRequest(_) => Self::Discover,
            ClientRequest::PingRequest(_)
            | ClientRequest::SetLevelRequest(_)
            | ClientRequest::SubscribeRequest(_)
            | ClientRequest::UnsubscribeRequest(_) => Self::Empty,
            ClientRequest::GetTaskRequest(_)
            | ClientRequest::UpdateTaskRequest(_)
            | ClientRequest::CancelTaskRequest(_)
            | ClientRequest::CustomRequest(_) => Self::Raw,
            // Subscriptions and requests that rmcp may add.
            _ => Self::Any,
        }
    }
}

/// Whether a call is sent as a task of 2025-11-25, so that its result may be one.
fn is_task(call: &CallToolRequest) -> bool {
    call.extensions.get::<TaskParam>().is_some()
}

/// The unanswered requests of a connection; implemented by its pending table.
pub(crate) trait PendingRequests: Sync {
    /// The kind of reply that a request expects; `None` if no such request is pending.
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind>;

    /// A copy of the table, for decoding on another thread.
    fn snapshot(&self) -> PendingSnapshot;
}

/// The requests that were pending at one moment. Calls in flight are few, so lookups are linear.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingSnapshot(pub(crate) Vec<(CallId, ReplyKind)>);

impl PendingRequests for PendingSnapshot {
    fn reply_kind(&self, id: CallId) -> Option<ReplyKind> {
        let pending = self.0.iter().find(|(pending, _)| *pending == id);
        pending.map(|(_, kind)| *kind)
    }

    fn snapshot(&self) -> PendingSnapshot {
        self.clone()
    }
}
