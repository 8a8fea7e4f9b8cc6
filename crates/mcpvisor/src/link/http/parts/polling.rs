//! How a link polls its exchanges, and in which order it returns their messages.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use futures_util::stream::StreamExt as _;

use super::Down;
use super::exchanges::Exchanges;
use super::message_reader::MessageReader;
use crate::link::codec::Decoded;
use crate::link::flood_gate::push_in_order;
use crate::link::http::exchange::event::ExchangeEvent;
use crate::link::http::exchange::outgoing::Purpose;
use crate::link::{Inbound, LinkDown, PendingRequests};

/// Events handled without a message for the caller before the task yields.
pub(crate) const MAX_EVENTS_PER_POLL: usize = 256;

/// The parts of a link that are polled.
pub(crate) struct PolledParts<'l> {
    pub(crate) exchanges: &'l mut Exchanges,
    pub(crate) reader: &'l mut MessageReader,
    /// Received messages that are not returned yet.
    pub(crate) ready: &'l mut VecDeque<Inbound>,
    /// Set once the link has ended.
    pub(crate) down: &'l Option<Down>,
}

/// A link that consists of exchanges.
pub(crate) trait ExchangeLink {
    fn parts(&mut self) -> PolledParts<'_>;

    /// Handles an event of an exchange. Returns its message, if it has one.
    fn handle_event(
        &mut self,
        purpose: Purpose,
        event: ExchangeEvent,
        pending: &impl PendingRequests,
    ) -> Option<Inbound>;

    /// Admits a single decoded message, unless the server sends too many.
    fn admit_one(&mut self, purpose: Purpose, decoded: Decoded) -> Option<Inbound>;

    /// Polls the timers of the link. Returns whether one fired, so that exchanges may have changed.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> bool;

    /// Admits a decoded message or batch. Returns the first message of a batch and queues the others.
    fn admit(&mut self, purpose: Purpose, decoded: Decoded) -> Option<Inbound> {
        let Decoded::Batch(messages) = decoded else {
            return self.admit_one(purpose, decoded);
        };
        let mut first = None;
        for message in messages {
            let admitted = self.admit_one(purpose, message);
            push_in_order(admitted, &mut first, self.parts().ready);
        }
        first
    }

    /// Polls the next message, or the end of the link.
    fn poll_link(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Result<Inbound, LinkDown>> {
        if let Poll::Ready(report) = self.parts().reader.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        self.poll_timers(cx);
        let mut budget = MAX_EVENTS_PER_POLL;
        if let Poll::Ready(Some(inbound)) = self.poll_exchanges(cx, pending, &mut budget) {
            return Poll::Ready(Ok(inbound));
        }
        if budget == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        // An event may have started a timer, which has to be polled once.
        if self.poll_timers(cx) {
            cx.waker().wake_by_ref();
        }
        let PolledParts {
            exchanges,
            reader,
            down,
            ..
        } = self.parts();
        exchanges.pool.poll_evict(cx);
        // Messages may have been dropped since the first poll, so register for their report.
        if let Poll::Ready(report) = reader.gate.poll_report(cx) {
            return Poll::Ready(Ok(report));
        }
        let Some(down) = down else {
            return Poll::Pending;
        };
        let report = reader.gate.take_report();
        Poll::Ready(report.ok_or_else(|| down.reason.clone()))
    }

    /// Polls the next message. `Ready(None)`: there are no exchanges.
    ///
    /// After a reply, the event behind it is handled before the reply is returned: most often that
    /// is the end of its stream, which frees the connection for the next request. Meanwhile the
    /// reply is the first in the queue.
    fn poll_exchanges(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
        budget: &mut usize,
    ) -> Poll<Option<Inbound>> {
        let mut has_reply = false;
        while *budget > 0 {
            *budget -= 1;
            if !has_reply && let Some(inbound) = self.parts().ready.pop_front() {
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
                    self.parts().ready.push_front(inbound);
                    has_reply = true;
                }
                Some(inbound) if !has_reply => return Poll::Ready(Some(inbound)),
                Some(inbound) => {
                    self.parts().ready.push_back(inbound);
                    break;
                }
                None => {}
            }
        }
        if has_reply {
            return Poll::Ready(self.parts().ready.pop_front());
        }
        Poll::Pending
    }

    /// Handles one event. The inner `Option` is its message, if it has one.
    fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        pending: &impl PendingRequests,
    ) -> Poll<Option<Option<Inbound>>> {
        let parts = self.parts();
        if let Some(decoding) = parts.reader.poll_background(cx) {
            let (purpose, decoded) = ready!(decoding);
            return Poll::Ready(Some(
                decoded.and_then(|decoded| self.admit(purpose, decoded)),
            ));
        }
        let event = ready!(parts.exchanges.active.poll_next_unpin(cx));
        Poll::Ready(event.map(|(purpose, event)| self.handle_event(purpose, event, pending)))
    }
}
