//! How the connection task uses the link: what it pushes, waits for and closes.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};

use http::{HeaderValue, Method};
use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage,
    ProtocolVersion,
};
use tokio::time::Instant;

use super::exchange::{Exchange, Purpose};
use super::redial::Patience;
use super::request_hold::Held;
use super::{
    Ending, HttpEndpoint, HttpLink, MAX_MESSAGES, MESSAGE, MESSAGES_IN_A_TURN, Session, headers,
};
use crate::link::codec::{encode, encode_request};
use crate::link::{Inbound, Link, LinkDown, PendingRequests, cancel_notification};

impl Link for HttpLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        let answers = matches!(
            message,
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
        );
        if !matches!(self.end, Ending::Open) || (self.modern && answers) {
            return Ok(0);
        }
        let mut text = Vec::new();
        encode(&message, &mut text).map_err(|problem| problem.to_string())?;
        let mut outgoing = self.outgoing(Method::POST, text);
        outgoing.limit = Some(MESSAGE);
        if is_greeting(&message) {
            self.greeting = true;
            let exchange = self.exchange(Purpose::Initialized, outgoing);
            self.exchanges.push(exchange.wanting_head());
        } else if self.messages.len() < MAX_MESSAGES {
            self.messages.push_back(outgoing);
            self.pump_messages();
        }
        Ok(0)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        _keep: bool,
    ) -> Result<u64, String> {
        let request = request.as_ref().ok_or("the request is gone")?;
        let extra = headers::of_request(request, self.modern)?;
        let mut text = Vec::with_capacity(256);
        encode_request(id, request, &mut text)
            .map_err(|problem| format!("the message cannot be written as JSON: {problem}"))?;
        let mut outgoing = self.outgoing(Method::POST, text);
        outgoing.extra = extra;
        match request {
            // A check that cannot be sent is no answer of the server's, so it waits for nothing.
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => {
                outgoing.patience = Patience::None
            }
            ClientRequest::SubscriptionsListenRequest(_) => self.listening = Some(id),
            _ => {}
        }
        let may_be_asked = may_be_asked(request);
        if self.holds(may_be_asked) {
            self.held.push_back(Held {
                id,
                outgoing,
                may_be_asked,
            });
            return Ok(0);
        }
        let opens = match request {
            ClientRequest::InitializeRequest(initialize) => {
                self.answers = answers(&initialize.params.capabilities);
                true
            }
            _ => false,
        };
        self.start_request(id, outgoing, opens);
        Ok(0)
    }

    fn sent(&self) -> u64 {
        0
    }

    fn is_written(&self, id: CallId, _position: u64) -> bool {
        let waits = self.unsent.contains(&id) || self.held.iter().any(|held| held.id == id);
        let mut exchanges = self.exchanges.iter();
        let exchange = exchanges.find(|exchange| exchange.purpose.request() == Some(id));
        // What was accepted and waits for its answer on another stream has no exchange any more.
        !waits && exchange.is_none_or(Exchange::is_written)
    }

    fn set_protocol_version(&mut self, version: &ProtocolVersion) {
        self.agreed = true;
        self.modern = !version.has_initialize();
        if self.modern {
            self.without_session();
        }
        if let Ok(value) = HeaderValue::from_str(version.as_str()) {
            self.set_header(headers::VERSION, value);
        }
    }

    fn update_endpoint(&mut self, endpoint: &HttpEndpoint) {
        self.renew_headers(endpoint);
    }

    fn forget(&mut self, id: CallId) {
        self.cut_off(id);
    }

    fn cancel(&mut self, id: CallId, reason: &str) -> bool {
        if let Some(at) = self.held.iter().position(|held| held.id == id) {
            self.held.remove(at);
            return false;
        }
        // What was accepted and waits for its answer on another stream has no exchange any more.
        let written = self
            .cut_off(id)
            .unwrap_or_else(|| !self.unsent.contains(&id));
        // A server of the newer protocol takes the closed stream for the wish.
        if written && !self.modern {
            let _ = self.push(cancel_notification(id, reason));
        }
        written
    }

    fn next(
        &mut self,
        pending: &impl PendingRequests,
    ) -> impl Future<Output = Result<Inbound, LinkDown>> + Send {
        poll_fn(|cx| self.poll_next(cx, pending))
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        // Whoever waits next registers its own waker before it does.
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_exchanges(&mut cx, pending, &mut { MESSAGES_IN_A_TURN }) {
            Poll::Ready(inbound) => inbound,
            Poll::Pending => None,
        }
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        self.drop_all_but_messages();
        let begun = Instant::now();
        // Half of the time at most: the end of the session is the server's memory.
        let said = poll_fn(|cx| self.poll_last_messages(cx));
        let _ = tokio::time::timeout(grace.stdin / 2, said).await;
        self.exchanges.clear();
        self.messages.clear();
        let reachable = matches!(self.end, Ending::Open);
        if self.session == Session::Held && reachable && !grace.stdin.is_zero() {
            self.session = Session::Gone;
            let outgoing = self.outgoing(Method::DELETE, Vec::new());
            self.deleting = Some(self.exchange(Purpose::Delete, outgoing));
        }
        let deleted = poll_fn(|cx| self.poll_delete(cx));
        let left = grace.stdin.saturating_sub(begun.elapsed());
        let deleted = tokio::time::timeout(left, deleted).await;
        self.deleting = None;
        self.idle.clear();
        deleted.map_err(|_| "the server did not confirm the end of the session in time".to_owned())
    }
}

/// Whether the server may ask something of the client before it answers.
fn may_be_asked(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::CallToolRequest(_)
            | ClientRequest::GetPromptRequest(_)
            | ClientRequest::ReadResourceRequest(_)
    )
}

/// Whether a client with these capabilities answers questions.
fn answers(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.is_some()
        || capabilities.sampling.is_some()
        || capabilities.roots.is_some()
}

/// Whether it ends the handshake.
fn is_greeting(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(said) = message else {
        return false;
    };
    matches!(
        said.notification,
        ClientNotification::InitializedNotification(_)
    )
}
