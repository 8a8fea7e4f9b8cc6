//! Handles what the exchanges report, and the messages in it.

use std::task::{Context, Poll, ready};

use futures_util::stream::StreamExt as _;
use http::HeaderValue;
use tokio::time::Instant;

use super::{Down, HttpLink};
use crate::link::codec::Decoded;
use crate::link::flood_gate::push_in_order;
use crate::link::http::exchange::event::ExchangeEvent;
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::http::net::connect_error::ConnectError;
use crate::link::{DownKind, Inbound, LinkDown, PendingRequests};

/// Events handled without a message for the caller before the task yields.
pub(super) const MAX_EVENTS_PER_POLL: usize = 256;

impl HttpLink {
    /// Polls the next message. `Ready(None)`: there are no exchanges.
    ///
    /// After a reply, the event behind it is handled before the reply is returned: most often that
    /// is the end of its stream, which frees the connection for the next request. Meanwhile the
    /// reply is the first in the queue.
    pub(super) fn poll_exchanges(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
        budget: &mut usize,
    ) -> Poll<Option<Inbound>> {
        let mut has_reply = false;
        while *budget > 0 {
            *budget -= 1;
            if !has_reply && let Some(inbound) = self.ready.pop_front() {
                return Poll::Ready(Some(inbound));
            }
            let inbound = match self.poll_event(cx, pending) {
                Poll::Ready(Some(inbound)) => inbound,
                Poll::Ready(None) if !has_reply => return Poll::Ready(None),
                Poll::Pending if !has_reply => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            };
            match inbound {
                Some(inbound @ Inbound::Response { .. }) if !has_reply => {
                    self.ready.push_front(inbound);
                    has_reply = true;
                }
                Some(inbound) if !has_reply => return Poll::Ready(Some(inbound)),
                Some(inbound) => {
                    self.ready.push_back(inbound);
                    break;
                }
                None => {}
            }
        }
        if has_reply {
            return Poll::Ready(self.ready.pop_front());
        }
        Poll::Pending
    }

    /// Handles one event. The inner `Option` is its message, if it has one.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Option<Option<Inbound>>> {
        if let Some(decoding) = self.reader.poll_background(cx) {
            let (purpose, decoded) = ready!(decoding);
            return Poll::Ready(Some(
                decoded.and_then(|decoded| self.admit(purpose, decoded)),
            ));
        }
        let event = ready!(self.exchanges.active.poll_next_unpin(cx));
        Poll::Ready(event.map(|(purpose, event)| self.handle_event(purpose, event, pending)))
    }

    fn handle_event(
        &mut self,
        purpose: Purpose,
        event: ExchangeEvent,
        pending: &impl PendingRequests,
    ) -> Option<Inbound> {
        match event {
            ExchangeEvent::Head(session_id) => self.response_began(purpose, session_id),
            ExchangeEvent::Message(message) => {
                if purpose == Purpose::ServerStream {
                    self.stream.has_message = true;
                }
                self.authorization.mark_accepted();
                let decoded = self.reader.read(purpose, message, pending)?;
                self.admit(purpose, decoded)
            }
            ExchangeEvent::ConnectFailed(error) => {
                self.connect_failed(&error, pending);
                self.exchanges.may_have_stalled = true;
                if purpose == Purpose::ServerStream && self.down.is_none() {
                    // Opening the stream may take long; requests do not wait for that.
                    self.resume_requests();
                }
                None
            }
            ExchangeEvent::Ended(ended) => self.exchange_ended(purpose, *ended, pending),
        }
    }

    /// The head of a successful response arrived.
    fn response_began(
        &mut self,
        purpose: Purpose,
        session_id: Option<HeaderValue>,
    ) -> Option<Inbound> {
        match purpose {
            Purpose::ServerStream => {
                // The server knows the session after all.
                self.session.deferred_loss = None;
                let missed = self.stream.opened(Instant::now());
                self.resume_requests();
                return missed.then_some(Inbound::NotificationsMissed);
            }
            Purpose::Initialized => self.handshake_ended(true),
            _ => self.session.start(session_id),
        }
        None
    }

    /// Admits a decoded message, unless the server sends too many.
    fn admit(&mut self, purpose: Purpose, decoded: Decoded) -> Option<Inbound> {
        if let Decoded::Batch(messages) = decoded {
            let mut first = None;
            for message in messages {
                let admitted = self.admit(purpose, message);
                push_in_order(admitted, &mut first, &mut self.ready);
            }
            return first;
        }
        let is_reply = matches!(decoded, Decoded::Reply(_));
        let mut inbound = self.reader.gate.admit(decoded, &mut self.ready)?;
        if !is_reply {
            if let Some(id) = purpose.request() {
                inbound.set_cause(id);
            }
            return Some(inbound);
        }
        if let Some(id) = purpose.request()
            && inbound.answers() == Some(id)
        {
            self.exchanges.request_answered(id);
        }
        Some(self.session.flag_possible_loss(inbound))
    }

    /// Sends the held requests once their pause is over. Returns whether it is.
    pub(super) fn poll_pause(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = self.hold.poll_pause_timeout(cx);
        if is_over {
            self.send_released();
        }
        is_over
    }

    /// Whether a request that was written may still be answered.
    pub(super) fn is_in_flight(&self, pending: &impl PendingRequests) -> bool {
        self.exchanges.await_reply(pending)
            || self.exchanges.await_server_stream() && self.stream.awaits_reply(pending)
    }

    /// A connection could not be opened. That ends the link, unless it would cut off a request in
    /// flight, or the cause is local. (Before the handshake is done, a local cause counts too.)
    pub(in crate::link::http) fn connect_failed(
        &mut self,
        error: &ConnectError,
        pending: &impl PendingRequests,
    ) {
        let counts = !error.is_local || !self.session.is_negotiated();
        if counts && !self.is_in_flight(pending) {
            self.down.get_or_insert_with(|| Down {
                reason: LinkDown::new(DownKind::Unreachable, &error.problem),
                unsent: Vec::new(),
            });
        }
    }
}
