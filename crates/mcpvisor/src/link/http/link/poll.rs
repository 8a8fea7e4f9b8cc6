//! Handles what the exchanges report, and the messages in it.

use std::task::Context;

use http::HeaderValue;
use tokio::time::Instant;

use super::HttpLink;
use crate::link::codec::Decoded;
use crate::link::http::exchange::event::ExchangeEvent;
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::http::net::connect_error::ConnectError;
use crate::link::http::parts::Down;
use crate::link::http::parts::polling::{ExchangeLink, PolledParts};
use crate::link::{DownKind, Inbound, LinkDown, PendingRequests};

impl ExchangeLink for HttpLink {
    fn parts(&mut self) -> PolledParts<'_> {
        PolledParts {
            exchanges: &mut self.exchanges,
            reader: &mut self.reader,
            ready: &mut self.ready,
            down: &self.down,
        }
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
            // Only the stream of a session (HTTP+SSE) has these.
            ExchangeEvent::Endpoint(_) | ExchangeEvent::Oversized(..) => None,
        }
    }

    fn admit_one(&mut self, purpose: Purpose, decoded: Decoded) -> Option<Inbound> {
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

    /// Sends the held requests once their pause is over.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = self.hold.poll_pause_timeout(cx);
        if is_over {
            self.send_released();
        }
        is_over
    }
}

impl HttpLink {
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
            self.down.get_or_insert_with(|| {
                Down::new(LinkDown::new(DownKind::Unreachable, &error.problem))
            });
        }
    }
}
