//! The link: what the connection task sends, waits for and closes.
//!
//! It connects its parts, each of which owns its state: the session, held requests, outgoing
//! messages, the server stream, the exchanges and the message reader.

mod close;
mod exchange_end;
mod poll;
mod server_stream;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Method, StatusCode};
use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage,
    ProtocolVersion,
};

use self::server_stream::ServerStream;
use super::context::HttpContext;
use super::endpoint::HttpEndpoint;
use super::exchange::Exchange;
use super::exchange::outgoing::{Outgoing, Purpose};
use super::headers;
use super::net::pool::ConnectionPool;
use super::net::redial::RedialPolicy;
use super::parts::Down;
use super::parts::exchanges::Exchanges;
use super::parts::message_queue::MessageQueue;
use super::parts::message_reader::MessageReader;
use super::parts::polling::{ExchangeLink as _, MAX_EVENTS_PER_POLL};
use super::parts::request_hold::{HeldRequest, RequestHold};
use super::parts::session::HttpSession;
use super::target::Target;
use crate::auth::{Authorization, ServerAuth};
use crate::link::codec::{encode, encode_request};
use crate::link::cpu_quota::CpuQuota;
use crate::link::limits::MessageLimits;
use crate::link::outgoing::{cancel_notification, may_call_back};
use crate::link::{Inbound, Link, LinkDown, OpenFailure, PendingRequests};

/// Time for a notification or a reply to reach the server.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// An open link.
#[derive(Debug)]
pub(crate) struct HttpLink {
    session: HttpSession,
    hold: RequestHold,
    messages: MessageQueue,
    stream: ServerStream,
    exchanges: Exchanges,
    reader: MessageReader,
    /// Received messages that are not returned yet.
    ready: VecDeque<Inbound>,
    /// Set once the server cannot be reached.
    down: Option<Down>,
    /// The DELETE of the session while the link closes.
    deleting: Option<Exchange>,
    /// The status that the last handshake request was refused with.
    refused_handshake: Option<StatusCode>,
    /// The credential of new requests.
    authorization: Authorization,
    /// Learns what the server demands.
    auth: ServerAuth,
}

impl HttpLink {
    /// Validates the endpoint and prepares connections. Sends nothing.
    pub(crate) async fn open(
        endpoint: &HttpEndpoint,
        context: &HttpContext,
        limits: MessageLimits,
        auth: ServerAuth,
        authorization: Authorization,
    ) -> Result<Self, OpenFailure> {
        let target = context.resolve_target(endpoint).await?;
        let headers = target.with_proxy_authorization(target.headers.clone());
        let pool = ConnectionPool::new(&target, &context.keep_alive);
        let quota = CpuQuota::default();
        Ok(Self {
            session: HttpSession::new(headers, &authorization),
            hold: RequestHold::default(),
            messages: MessageQueue::default(),
            stream: ServerStream::default(),
            exchanges: Exchanges::new(target, pool, limits.clone(), quota.clone()),
            reader: MessageReader::new(limits, quota),
            ready: VecDeque::new(),
            down: None,
            deleting: None,
            refused_handshake: None,
            authorization,
            auth,
        })
    }

    /// Whether the server refused the handshake like one that speaks only HTTP+SSE: it does not take
    /// the POST.
    pub(crate) fn is_refused_like_sse(&self) -> bool {
        matches!(
            self.refused_handshake,
            Some(StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED)
        )
    }

    fn outgoing(&self, method: Method, body: Vec<u8>) -> Outgoing {
        Outgoing::new(method, &self.session.headers, body)
    }

    fn start_request(&mut self, id: CallId, outgoing: Outgoing) {
        match &mut self.down {
            Some(down) => down.unsent.push(id),
            None => {
                let purpose = Purpose::Request(id);
                self.exchanges.start_request(purpose, outgoing);
            }
        }
    }

    /// Whether a request was not sent because the link is down.
    fn is_unsent(&self, id: CallId) -> bool {
        let down = self.down.as_ref();
        down.is_some_and(|down| down.unsent.contains(&id))
    }

    /// Sends queued messages, as far as the limit in flight allows.
    fn send_messages(&mut self) {
        while let Some(outgoing) = self.messages.next() {
            self.exchanges.start(Purpose::Message, outgoing);
        }
    }

    /// Sends the held requests that need not wait any longer.
    fn send_released(&mut self) {
        for request in self.hold.take_released() {
            self.start_request(request.id, request.outgoing);
        }
    }

    /// Ends the pause of held requests and sends them.
    fn resume_requests(&mut self) {
        self.hold.pause = None;
        self.send_released();
    }
}

impl Link for HttpLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        let is_reply = matches!(
            message,
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)
        );
        if self.down.is_some() || (self.session.is_modern() && is_reply) {
            return Ok(0);
        }
        let mut text = Vec::new();
        encode(&message, &mut text).map_err(|problem| problem.to_string())?;
        let mut outgoing = self.outgoing(Method::POST, text);
        outgoing.timeout = Some(MESSAGE_TIMEOUT);
        if is_initialized(&message) {
            self.hold.awaits_initialized = true;
            outgoing.reports_head = true;
            self.exchanges.start(Purpose::Initialized, outgoing);
        } else {
            self.messages.push(outgoing);
            self.send_messages();
        }
        Ok(0)
    }

    fn push_request(
        &mut self,
        id: CallId,
        request: &mut Option<ClientRequest>,
        _keep: bool,
    ) -> Result<u64, String> {
        let request = request
            .as_ref()
            .ok_or("the request was taken before it was sent")?;
        let extra_headers = headers::request_headers(request, self.session.is_modern())?;
        let mut text = Vec::with_capacity(256);
        encode_request(id, request, &mut text)
            .map_err(|problem| format!("the message cannot be written as JSON: {problem}"))?;
        let mut outgoing = self.outgoing(Method::POST, text);
        outgoing.extra_headers = extra_headers;
        match request {
            // A health check must fail at once if the server cannot be reached.
            ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => {
                outgoing.redial = RedialPolicy::Once
            }
            ClientRequest::SubscriptionsListenRequest(_) => self.exchanges.subscription = Some(id),
            ClientRequest::InitializeRequest(initialize) => {
                self.hold.offers_callbacks = offers_callbacks(&initialize.params.capabilities);
                outgoing.reports_head = true;
            }
            _ => {}
        }
        let may_call_back = may_call_back(request);
        if self.hold.applies_to(may_call_back) {
            self.hold.requests.push_back(HeldRequest {
                id,
                outgoing,
                may_call_back,
            });
        } else {
            self.start_request(id, outgoing);
        }
        Ok(0)
    }

    fn sent(&self) -> u64 {
        0
    }

    fn is_written(&self, id: CallId, _position: u64) -> bool {
        if self.is_unsent(id) || self.hold.contains(id) {
            return false;
        }
        // An accepted request whose reply comes on the server stream has no exchange.
        self.exchanges.is_written(id).unwrap_or(true)
    }

    fn set_protocol_version(&mut self, version: &ProtocolVersion) {
        if let Some(headers) = self.session.set_version(version) {
            let mut outgoing = Outgoing::new(Method::DELETE, &headers, Vec::new());
            outgoing.timeout = Some(MESSAGE_TIMEOUT);
            self.exchanges.start(Purpose::DeleteSession, outgoing);
        }
    }

    fn update_authorization(&mut self, authorization: Authorization) {
        self.session.authorize(&self.authorization, &authorization);
        self.authorization = authorization;
        self.hold.update_headers(&self.session.headers);
        self.messages.update_headers(&self.session.headers);
    }

    fn update_endpoint(&mut self, endpoint: &HttpEndpoint) {
        let Ok(fresh) = Target::new(endpoint, |name| std::env::var_os(name)) else {
            // The caller has validated the endpoint; the next connection reports what is wrong.
            return;
        };
        let target = &self.exchanges.target;
        let fresh = target.with_proxy_authorization(fresh.headers);
        self.session.replace_headers(fresh, &self.authorization);
        self.hold.update_headers(&self.session.headers);
        self.messages.update_headers(&self.session.headers);
    }

    fn forget(&mut self, id: CallId) {
        self.exchanges.abort(id);
    }

    fn cancel(&mut self, id: CallId, reason: &str) -> bool {
        if self.hold.remove(id) {
            return false;
        }
        // An accepted request whose reply comes on the server stream has no exchange.
        let written = self.exchanges.abort(id);
        let written = written.unwrap_or_else(|| !self.is_unsent(id));
        // In the modern era, closing the stream cancels the request.
        if written && !self.session.is_modern() {
            let _ = self.push(cancel_notification(id, reason));
        }
        written
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        self.poll_link(cx, pending)
    }

    fn try_next(&mut self, pending: &impl PendingRequests) -> Option<Inbound> {
        // The next wait registers its own waker.
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_exchanges(&mut cx, pending, &mut { MAX_EVENTS_PER_POLL }) {
            Poll::Ready(inbound) => inbound,
            Poll::Pending => None,
        }
    }

    async fn close(&mut self, grace: CloseSettings) -> Result<(), String> {
        self.close_within(grace.stdin).await
    }
}

/// Whether a client with these capabilities answers requests of the server.
fn offers_callbacks(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.is_some()
        || capabilities.sampling.is_some()
        || capabilities.roots.is_some()
}

/// Whether a message is the notification that ends the handshake.
pub(super) fn is_initialized(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Notification(message) = message else {
        return false;
    };
    matches!(
        message.notification,
        ClientNotification::InitializedNotification(_)
    )
}
