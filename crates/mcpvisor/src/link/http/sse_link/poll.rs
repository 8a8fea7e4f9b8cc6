//! Handles what the exchanges report: the endpoint, and the messages on the stream.

use std::future::Future as _;
use std::sync::Arc;
use std::task::Context;

use super::SseLink;
use super::endpoint_event::resolve_endpoint;
use crate::link::codec::Decoded;
use crate::link::http::exchange::event::ExchangeEvent;
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::http::net::connect_error::ConnectError;
use crate::link::http::parts::Down;
use crate::link::http::parts::polling::{ExchangeLink, PolledParts};
use crate::link::http::target::Target;
use crate::link::{DownKind, Inbound, LinkDown, PendingRequests};

impl ExchangeLink for SseLink {
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
            ExchangeEvent::Message(message) => {
                let decoded = self.reader.read(purpose, message, pending)?;
                self.admit(purpose, decoded)
            }
            ExchangeEvent::Oversized(message, problem) => {
                match self.reader.read_oversized(&message, &problem, pending) {
                    Some(decoded) => self.admit(purpose, decoded),
                    None => {
                        self.end_link(DownKind::Broken, problem);
                        None
                    }
                }
            }
            ExchangeEvent::Endpoint(address) => {
                self.endpoint_received(&address);
                None
            }
            ExchangeEvent::ConnectFailed(error) => {
                self.connect_failed(&error, pending);
                self.exchanges.may_have_stalled = true;
                None
            }
            ExchangeEvent::Ended(ended) => self.exchange_ended(purpose, *ended, pending),
            ExchangeEvent::Head(_) => None,
        }
    }

    fn admit_one(&mut self, _: Purpose, decoded: Decoded) -> Option<Inbound> {
        let inbound = self.reader.gate.admit(decoded, &mut self.ready)?;
        // The server may answer a request before it answers the POST.
        if let Some(id) = inbound.answers()
            && self.exchanges.is_written(id).is_some()
        {
            self.exchanges.request_answered(id);
        }
        Some(inbound)
    }

    /// Ends the link if the endpoint takes too long.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(timeout) = &mut self.endpoint_timeout else {
            return false;
        };
        if timeout.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.endpoint_timeout = None;
        let problem = "the server did not send its endpoint in time".to_owned();
        self.end_link(DownKind::Closed, problem);
        true
    }
}

impl SseLink {
    /// The server sent the address for messages: the session begins.
    fn endpoint_received(&mut self, address: &[u8]) {
        self.endpoint_timeout = None;
        self.hold.awaits_endpoint = false;
        match resolve_endpoint(&self.exchanges.target, address) {
            Ok(path) => {
                let target = Target::clone(&self.exchanges.target);
                self.exchanges.target = Arc::new(Target { path, ..target });
                self.session.start_at_endpoint();
                self.authorization.mark_accepted();
                self.send_released();
                self.send_messages();
            }
            Err(problem) => {
                self.end_link(DownKind::Misdirected, problem);
                // They are recorded as not sent.
                self.send_released();
            }
        }
    }

    /// Ends the link: nothing more is read from the stream or sent. The first reason is kept.
    pub(super) fn end_link(&mut self, kind: DownKind, problem: impl Into<String>) {
        if self.down.is_none() {
            let mut down = Down::new(LinkDown::new(kind, problem));
            down.unsent = self.exchanges.end_session();
            self.down = Some(down);
        }
    }

    /// A connection could not be opened. That ends the link, unless it would cut off a request in
    /// flight, or the cause is local. (Before the handshake is done, a local cause counts too.)
    pub(super) fn connect_failed(&mut self, error: &ConnectError, pending: &impl PendingRequests) {
        let counts = !error.is_local || !self.session.is_negotiated();
        if counts && !self.is_in_flight(pending) {
            self.end_link(DownKind::Unreachable, &error.problem);
        }
    }

    /// Whether a request that was written may still be answered.
    pub(super) fn is_in_flight(&self, pending: &impl PendingRequests) -> bool {
        let pending = pending.snapshot().0;
        let may_be_written = |id| !self.is_unsent(id) && !self.hold.contains(id);
        pending
            .iter()
            .any(|(id, _)| may_be_written(*id) && self.exchanges.is_written(*id).unwrap_or(true))
    }
}
