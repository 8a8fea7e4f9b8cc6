//! The link to a server over HTTP+SSE, the transport of 2024-11-05.
//!
//! A GET opens the stream of the session, whose first event names the endpoint. The client POSTs its
//! messages there, and all messages of the server come on the stream. The stream is the session: the
//! link ends with it. The parts are those of the other HTTP link.

pub(super) mod endpoint_event;
mod exchange_end;
mod poll;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::stream::StreamExt as _;
use http::Method;
use http::header::{ACCEPT, HeaderValue};
use mcpvisor_core::CallId;
use mcpvisor_core::settings::CloseSettings;
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ProtocolVersion};
use tokio::time::Sleep;

use super::context::HttpContext;
use super::endpoint::HttpEndpoint;
use super::exchange::event::ExchangeEvent;
use super::exchange::outgoing::{Outgoing, Purpose};
use super::link::{MESSAGE_TIMEOUT, is_initialized};
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
use crate::link::outgoing::cancel_notification;
use crate::link::{Inbound, Link, LinkDown, OpenFailure, PendingRequests, PendingSnapshot};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// An open link.
#[derive(Debug)]
pub(crate) struct SseLink {
    session: HttpSession,
    hold: RequestHold,
    messages: MessageQueue,
    exchanges: Exchanges,
    reader: MessageReader,
    /// Received messages that are not returned yet.
    ready: VecDeque<Inbound>,
    /// Set once the stream has ended or the server cannot be reached.
    down: Option<Down>,
    /// How long the endpoint may take.
    endpoint_timeout: Option<Pin<Box<Sleep>>>,
    /// The credential of new requests.
    authorization: Authorization,
    /// Learns what the server demands.
    auth: ServerAuth,
}

impl SseLink {
    /// Validates the endpoint and prepares the stream, which is opened by the first poll. Without a
    /// limit for the endpoint event, the connect timeout applies.
    pub(crate) async fn open(
        endpoint: &HttpEndpoint,
        context: &HttpContext,
        limits: MessageLimits,
        auth: ServerAuth,
        authorization: Authorization,
        endpoint_timeout: Option<Duration>,
    ) -> Result<Self, OpenFailure> {
        let target = context.resolve_target(endpoint).await?;
        let headers = target.with_proxy_authorization(target.headers.clone());
        let pool = ConnectionPool::new(&target, &context.keep_alive);
        let quota = CpuQuota::default();
        let mut link = Self {
            session: HttpSession::new(headers, &authorization),
            hold: RequestHold {
                awaits_endpoint: true,
                ..RequestHold::default()
            },
            messages: MessageQueue::default(),
            exchanges: Exchanges::new(target, pool, limits.clone(), quota.clone()),
            reader: MessageReader::new(limits, quota),
            ready: VecDeque::new(),
            down: None,
            endpoint_timeout: endpoint_timeout.map(|limit| Box::pin(tokio::time::sleep(limit))),
            authorization,
            auth,
        };
        let mut outgoing = link.outgoing(Method::GET, Vec::new());
        outgoing.extra_headers.push((ACCEPT, EVENT_STREAM));
        link.exchanges.start(Purpose::SessionStream, outgoing);
        Ok(link)
    }

    /// Whether the server sent an endpoint, valid or not: it speaks HTTP+SSE.
    pub(crate) fn has_endpoint(&self) -> bool {
        !self.hold.awaits_endpoint
    }

    fn outgoing(&self, method: Method, body: Vec<u8>) -> Outgoing {
        Outgoing::new(method, &self.session.headers, body)
    }

    fn start_request(&mut self, id: CallId, outgoing: Outgoing) {
        match &mut self.down {
            Some(down) => down.unsent.push(id),
            None => self.exchanges.start_request(Purpose::Post(id), outgoing),
        }
    }

    /// Whether a request was not sent because the link is down.
    fn is_unsent(&self, id: CallId) -> bool {
        let down = self.down.as_ref();
        down.is_some_and(|down| down.unsent.contains(&id))
    }

    /// Sends queued messages, as far as the limit in flight allows.
    fn send_messages(&mut self) {
        while !self.hold.awaits_endpoint
            && let Some(outgoing) = self.messages.next()
        {
            self.exchanges.start(Purpose::Message, outgoing);
        }
    }

    /// Sends the held requests that need not wait any longer.
    fn send_released(&mut self) {
        for request in self.hold.take_released() {
            self.start_request(request.id, request.outgoing);
        }
    }

    /// Messages in the queue or on their way get this long to arrive.
    async fn close_within(&mut self, grace: Duration) {
        self.hold.requests.clear();
        self.reader.background = None;
        // The stream stays open meanwhile: without it the server does not know the session.
        self.exchanges.keep_messages();
        let sent = poll_fn(|cx| self.poll_last_messages(cx));
        let _ = tokio::time::timeout(grace, sent).await;
        self.messages.queued.clear();
        self.exchanges.active.clear();
        self.exchanges.pool.clear();
    }

    /// Waits until the server has received the last messages, or cannot be reached.
    fn poll_last_messages(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let nothing_pending = PendingSnapshot(Vec::new());
        for _ in 0..MAX_EVENTS_PER_POLL {
            if self.down.is_some() || self.session.is_lost() || self.messages.is_empty() {
                return Poll::Ready(());
            }
            let Some((purpose, event)) = ready!(self.exchanges.active.poll_next_unpin(cx)) else {
                return Poll::Ready(());
            };
            match event {
                ExchangeEvent::Ended(ended) => {
                    self.exchange_ended(purpose, *ended, &nothing_pending);
                }
                ExchangeEvent::ConnectFailed(error) => {
                    self.connect_failed(&error, &nothing_pending);
                }
                ExchangeEvent::Head(_)
                | ExchangeEvent::Message(_)
                | ExchangeEvent::Endpoint(_)
                | ExchangeEvent::Oversized(..) => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Link for SseLink {
    fn push(&mut self, message: ClientJsonRpcMessage) -> Result<u64, String> {
        if self.down.is_some() {
            return Ok(0);
        }
        let mut text = Vec::new();
        encode(&message, &mut text).map_err(|problem| problem.to_string())?;
        let mut outgoing = self.outgoing(Method::POST, text);
        outgoing.timeout = Some(MESSAGE_TIMEOUT);
        if is_initialized(&message) {
            self.hold.awaits_initialized = true;
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
        let mut text = Vec::with_capacity(256);
        encode_request(id, request, &mut text)
            .map_err(|problem| format!("the message cannot be written as JSON: {problem}"))?;
        let mut outgoing = self.outgoing(Method::POST, text);
        if matches!(request, ClientRequest::PingRequest(_)) {
            // A health check must fail at once if the server cannot be reached.
            outgoing.redial = RedialPolicy::Once;
        }
        if self.hold.applies_to(false) {
            self.hold.requests.push_back(HeldRequest {
                id,
                outgoing,
                may_call_back: false,
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
        // A request that the server accepted has no exchange any more.
        self.exchanges.is_written(id).unwrap_or(true)
    }

    fn is_legacy(&self) -> bool {
        true
    }

    fn set_protocol_version(&mut self, version: &ProtocolVersion) {
        self.session.set_version(version);
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
        self.hold.remove(id);
        self.exchanges.abort(id);
    }

    fn cancel(&mut self, id: CallId, reason: &str) -> bool {
        if self.hold.remove(id) {
            return false;
        }
        // A request that the server accepted has no exchange any more.
        let written = self.exchanges.abort(id);
        let written = written.unwrap_or_else(|| !self.is_unsent(id));
        if written {
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
        self.close_within(grace.stdin).await;
        Ok(())
    }
}
